//! How the machine is doing: load, memory, and who waits for it. What the system does not tell is absent.
//! Only looks; knows nothing of who asks.

/// The one-minute load average.
pub fn load_average() -> Option<f64> {
    system::load_average()
}

/// Bytes that new processes can have without swapping.
pub fn memory_available() -> Option<u64> {
    system::memory_available()
}

/// Share of the last ten seconds in which at least one process waited for memory, in percent.
pub fn memory_pressure() -> Option<f64> {
    system::memory_pressure()
}

#[cfg(all(target_os = "linux", not(mainstem_portable)))]
mod system {
    use std::fs::read_to_string;

    pub(super) fn load_average() -> Option<f64> {
        read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
    }

    pub(super) fn memory_available() -> Option<u64> {
        super::parse_memory_available(&read_to_string("/proc/meminfo").ok()?)
    }

    pub(super) fn memory_pressure() -> Option<f64> {
        super::parse_pressure_avg10(&read_to_string("/proc/pressure/memory").ok()?)
    }
}

#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
mod system {
    use std::process::Command;

    pub(super) fn load_average() -> Option<f64> {
        let out = Command::new("uptime").env("LC_ALL", "C").output().ok()?;
        super::parse_uptime_load(&String::from_utf8_lossy(&out.stdout))
    }

    pub(super) fn memory_available() -> Option<u64> {
        None
    }

    pub(super) fn memory_pressure() -> Option<f64> {
        None
    }
}

#[cfg(any(test, all(target_os = "linux", not(mainstem_portable))))]
fn parse_memory_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(any(test, all(target_os = "linux", not(mainstem_portable))))]
fn parse_pressure_avg10(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

/// `… load average: 0.10, …` and `… load averages: 0.10 …` are both in use.
#[cfg(any(test, not(all(target_os = "linux", not(mainstem_portable)))))]
fn parse_uptime_load(text: &str) -> Option<f64> {
    let (_, after) = text.split_once("load average")?;
    let (_, numbers) = after.split_once(':')?;
    numbers.split_whitespace().next()?.trim_end_matches(',').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_read_and_nonsense_is_absent() {
        let meminfo = "MemTotal: 24684000 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(parse_memory_available(meminfo), Some(2 << 20));
        assert_eq!(parse_memory_available("MemTotal: 1 kB\n"), None);
        let pressure = "some avg10=12.50 avg60=1.00 avg300=0.00 total=7\nfull avg10=3.00 avg60=0\n";
        assert_eq!(parse_pressure_avg10(pressure), Some(12.5));
        assert_eq!(parse_pressure_avg10("full avg10=3.00\n"), None);
        for text in [
            " 10:00:00 up 1 day, 2 users,  load average: 1.25, 0.51, 1.20\n",
            "10:00  up 1 day, 2 users, load averages: 1.25 0.51 1.20\n",
        ] {
            assert_eq!(parse_uptime_load(text), Some(1.25));
        }
        assert_eq!(parse_uptime_load("nothing"), None);
    }

    #[test]
    fn this_machine_tells_its_load() {
        assert!(load_average().is_some_and(|load| load >= 0.0));
    }
}
