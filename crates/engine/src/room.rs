//! Measures what the machine has left for one more agent. What is too little, and what follows from
//! it, is the core's business.

use std::path::Path;

use mainstem_core::room::{Shortage, Vitals, judge};
use mainstem_host::{files, vitals};

use crate::world::World;

/// What there is too little of; `Ok` if nothing.
pub fn look(world: &World) -> Result<(), Shortage> {
    let vitals = measure(world);
    let floor = world.settings.limits.disk_floor;
    // Before the floor is reached: what we threw away ourselves must hold nobody up.
    let near = floor.saturating_mul(2);
    if vitals.disks.iter().any(|(_, free)| *free < near)
        && let Some(trash) = &world.trash
    {
        trash.hurry();
    }
    judge(&world.settings.limits, &vitals)
}

fn measure(world: &World) -> Vitals {
    let checkout = world.repo.toplevel().unwrap_or_else(|| world.repo.common_dir());
    let places = [
        ("workspaces are", world.layout.root()),
        ("the state is", world.layout.state()),
        ("the repository is", checkout),
    ];
    Vitals {
        // A disk that cannot be asked holds nobody up: writing there says why it fails.
        disks: places
            .into_iter()
            .filter_map(|(what, place)| Some((what.to_owned(), free(place)?)))
            .collect(),
        load: vitals::load_average(),
        memory_available: vitals::memory_available(),
        memory_pressure: vitals::memory_pressure(),
    }
}

/// Free bytes where this folder is, or would be.
fn free(place: &Path) -> Option<u64> {
    let there = place.ancestors().find(|place| place.is_dir())?;
    files::free_bytes(there).ok()
}
