//! Whether the machine has room for one more agent: a rule over what was measured. Knows neither how it
//! is measured nor who would start.

use crate::config::LimitSettings;
use crate::plan::quantities::render_size;

/// What the machine has left. What could not be measured is absent and holds nobody up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostVitals {
    /// Free bytes of each disk that a run writes to, with what lives there.
    pub disks: Vec<(String, u64)>,
    /// The one-minute load average.
    pub load: Option<f64>,
    /// Bytes that new processes can have without swapping.
    pub memory_available: Option<u64>,
    /// Share of the last ten seconds in which somebody waited for memory, in percent.
    pub memory_pressure: Option<f64>,
}

/// What there is too little of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityShortage {
    /// In words that follow "waits for".
    pub why: String,
    /// Not even one agent may start: its work could not be kept.
    pub nobody: bool,
}

impl CapacityShortage {
    /// Too little for one more; one alone may still run, or a busy machine would never get on.
    pub fn for_one_more(why: impl Into<String>) -> Self {
        Self { why: why.into(), nobody: false }
    }

    /// Too little for anybody.
    pub fn for_everyone(why: impl Into<String>) -> Self {
        Self { why: why.into(), nobody: true }
    }

    /// How many agents may start while this many are at work.
    pub fn allowed_starts(&self, at_work: u32) -> usize {
        usize::from(!self.nobody && at_work == 0)
    }
}

/// `Ok` if one more agent may start.
pub fn judge_capacity(limits: &LimitSettings, vitals: &HostVitals) -> Result<(), CapacityShortage> {
    let short = |(_, free): &&(String, u64)| *free < limits.disk_floor;
    if let Some((what, free)) = vitals.disks.iter().find(short) {
        let (free, floor) = (format_mib(*free), render_size(limits.disk_floor));
        let why = format!("disk space ({free} free where {what}, limits.disk_floor is {floor})");
        return Err(CapacityShortage::for_everyone(why));
    }
    let (floor, key) = if limits.memory_per_agent > limits.memory_floor {
        (limits.memory_per_agent, "limits.memory_per_agent")
    } else {
        (limits.memory_floor, "limits.memory_floor")
    };
    if let Some(available) = vitals.memory_available.filter(|available| *available < floor) {
        let (available, floor) = (format_mib(available), render_size(floor));
        let why = format!("memory ({available} available, {key} is {floor})");
        return Err(CapacityShortage::for_one_more(why));
    }
    let above =
        |ceiling: f64, seen: Option<f64>| seen.filter(|seen| ceiling > 0.0 && *seen > ceiling);
    if let Some(pressure) = above(limits.pressure_ceiling, vitals.memory_pressure) {
        let ceiling = limits.pressure_ceiling;
        let why = format!(
            "lower memory pressure ({pressure:.0}% now, limits.pressure_ceiling is {ceiling:.0})"
        );
        return Err(CapacityShortage::for_one_more(why));
    }
    if let Some(load) = above(limits.load_ceiling, vitals.load) {
        let ceiling = limits.load_ceiling;
        let why = format!("a lower load ({load:.1} now, limits.load_ceiling is {ceiling:.1})");
        return Err(CapacityShortage::for_one_more(why));
    }
    Ok(())
}

fn format_mib(bytes: u64) -> String {
    render_size(bytes >> 20 << 20)
}
