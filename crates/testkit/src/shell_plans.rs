//! Plans of shell tasks, and shell lines with which agents meet each other and tell a test about it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A plan of shell tasks: id, command, and further keys of the task as TOML.
pub fn shell_plan(tasks: &[(&str, &str, &str)]) -> String {
    let mut plan = "version = 1\n".to_owned();
    for (id, run, rest) in tasks {
        let _ = writeln!(plan, "\n[[task]]\nid = \"{id}\"\nrun = '''{run}'''\n{rest}");
    }
    plan
}

/// Logs `start TASK MS`, then waits until so many have started: nobody ends before all are there.
pub fn meet(log: &Path, count: usize) -> String {
    let log = log.display();
    format!(
        "echo start $MAINSTEM_TASK $(date +%s%3N) >> '{log}'; \
         until [ $(grep -c ^start '{log}') -ge {count} ]; do sleep 0.02; done"
    )
}

/// Logs `start TASK MS`.
pub fn started(log: &Path) -> String {
    format!("echo start $MAINSTEM_TASK $(date +%s%3N) >> '{}'", log.display())
}

/// Logs `end TASK MS`.
pub fn ended(log: &Path) -> String {
    format!("echo end $MAINSTEM_TASK $(date +%s%3N) >> '{}'", log.display())
}

/// What agents logged; empty if none has.
pub fn log_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn those_who_meet_are_there_at_the_same_time() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let log = dir.path().join("a log");
        let line = format!("{}; {}", meet(&log, 2), ended(&log));
        let start = |task: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &line]).env("MAINSTEM_TASK", task).spawn().expect("sh is there")
        };
        for mut child in [start("A"), start("B")] {
            assert!(child.wait().expect("our own child").success());
        }
        assert_eq!(crate::max_concurrent(&log_of(&log)), 2);
    }
}
