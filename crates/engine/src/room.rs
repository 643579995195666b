//! Whether the machine has room for one more agent: free disk, load. Only looks; what follows from
//! it is the machine's business.

use mainstem_host::files;

use crate::world::World;

/// What there is too little of, in words for a person; `Ok` if nothing.
pub fn look(world: &World) -> Result<(), String> {
    let limits = &world.settings.limits;
    let root = world.layout.root();
    let place = if root.exists() { root } else { world.layout.state() };
    if let Ok(free) = files::free_bytes(place)
        && free < limits.disk_floor
    {
        let (free, floor) = (free >> 20, limits.disk_floor >> 20);
        return Err(format!("disk space ({free} MiB free, limits.disk_floor is {floor} MiB)"));
    }
    if limits.load_ceiling > 0.0
        && let Some(load) = load_average()
        && load > limits.load_ceiling
    {
        return Err(format!("a lower load ({load:.1} now, limits.load_ceiling)"));
    }
    Ok(())
}

/// The one-minute load average, where the system tells.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
