//! Measures what the machine has left for one more agent. What is too little, and what follows from
//! it, is the core's business.

use std::path::Path;

use mainstem_core::capacity::{CapacityShortage, HostVitals, judge_capacity};
use mainstem_host::{files, system_stats};

use crate::engine_context::EngineContext;

/// What there is too little of; `Ok` if nothing.
pub fn check_capacity(world: &EngineContext) -> Result<(), CapacityShortage> {
    let vitals = measure_vitals(world);
    let floor = world.settings.limits.disk_floor;
    // Before the floor is reached: what we threw away ourselves must hold nobody up.
    let near = floor.saturating_mul(2);
    if vitals.disks.iter().any(|(_, free)| *free < near)
        && let Some(trash) = &world.trash
    {
        trash.raise_priority();
    }
    judge_capacity(&world.settings.limits, &vitals)
}

fn measure_vitals(world: &EngineContext) -> HostVitals {
    let checkout = world.repo.toplevel().unwrap_or_else(|| world.repo.common_dir());
    let places = [
        ("workspaces are", world.layout.workspace_root()),
        ("the state is", world.layout.state_dir()),
        ("the repository is", checkout),
    ];
    HostVitals {
        // A disk that cannot be asked holds nobody up: writing there says why it fails.
        disks: places
            .into_iter()
            .filter_map(|(what, place)| Some((what.to_owned(), free_disk_bytes(place)?)))
            .collect(),
        load: system_stats::load_average(),
        memory_available: system_stats::memory_available(),
        memory_pressure: system_stats::memory_pressure(),
    }
}

/// Free bytes where this folder is, or would be.
fn free_disk_bytes(place: &Path) -> Option<u64> {
    let there = place.ancestors().find(|place| place.is_dir())?;
    files::free_bytes(there).ok()
}
