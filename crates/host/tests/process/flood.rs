//! Output without measure: bounded on disk and in memory, and the end is always recorded.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use mainstem_host::process::{self, JobSpec, JobStopMode};

use super::{PROGRAM, Place, exited, wait_for};

fn disk_use(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().flatten().map(|e| e.metadata().map_or(0, |m| m.len())).sum()
}

fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find(|l| l.starts_with("VmHWM"))?.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn a_flood_of_200_mb_is_bounded_on_disk_and_in_memory() {
    let place = Place::new();
    let go = place.file("go");
    let script = format!(
        "yes 'a line of some forty bytes, more or less' | head -c 200000000; echo; echo last; \
         while [ ! -e {} ]; do sleep 0.02; done",
        go.display()
    );
    place.start(&JobSpec { output_bytes: 8 << 20, ..place.spec(&script) });
    let (mut most, mut from) = (0, 0);
    wait_for("the last line", || {
        most = most.max(disk_use(&place.dir()));
        let output = process::read_job_output(&place.dir(), from, 4 << 20).unwrap();
        from = output.next;
        output.lines.iter().any(|l| l.text == b"last").then_some(())
    });
    let peak = peak_kib(place.pids().pid).unwrap();
    fs::write(go, "").unwrap();
    let exit = place.end();
    assert!(most < (8 << 20) + (2 << 20), "{most} bytes on disk");
    assert!(peak < 64 * 1024, "{peak} KiB");
    assert!(exit.output_bytes > 200_000_000 && exit.output_dropped > 190_000_000, "{exit:?}");
    let first = process::read_job_output(&place.dir(), 0, 1000).unwrap();
    assert!(first.lines[0].text.starts_with(b"a line"));
}

#[test]
fn a_single_line_of_10_mb_is_kept_in_pieces() {
    let place = Place::new();
    let spec = JobSpec {
        output_bytes: 64 << 20,
        ..place.spec("head -c 10485760 /dev/zero | tr '\\0' x; echo; echo after")
    };
    place.run(&spec);
    let lines = place.lines();
    let (after, pieces) = lines.split_last().unwrap();
    assert_eq!(after.text, b"after");
    assert_eq!(pieces.iter().map(|l| l.text.len()).sum::<usize>(), 10 << 20);
    assert!(pieces.iter().all(|l| l.text.len() <= 1 << 20));
    assert!(pieces.split_last().unwrap().1.iter().all(|l| l.continues));
    assert!(!pieces.last().unwrap().continues);
}

#[test]
fn a_full_disk_drops_output_and_does_not_stop_the_command() {
    // A file size limit stands in for the full disk: writing beyond it fails in the same way.
    let place = Place::new();
    let spec = JobSpec { output_bytes: 64 << 20, ..place.spec("seq 1 2000000; exit 4") };
    fs::create_dir_all(place.dir()).unwrap();
    let wrapper: Vec<OsString> = vec![
        "sh".into(),
        "-c".into(),
        "trap '' XFSZ; ulimit -f 100; exec \"$0\" __supervise \"$1\"".into(),
        PROGRAM.into(),
    ];
    process::start_job(&place.dir(), &spec, &wrapper).unwrap();
    let exit = place.end();
    assert_eq!(exit.ending, exited(4));
    assert!(exit.output_dropped > 1_000_000, "{exit:?}");
    assert_eq!(place.stdout()[0], "1");
}

#[test]
fn a_line_of_100_mb_takes_no_more_memory_than_any_other() {
    let place = Place::new();
    let go = place.file("go");
    let script = format!(
        "head -c 104857600 /dev/zero | tr '\\0' x; echo; echo last >&2; \
         while [ ! -e {} ]; do sleep 0.02; done",
        go.display()
    );
    place.start(&place.spec(&script));
    wait_for("its end", || place.lines().iter().any(|l| l.text == b"last").then_some(()));
    let peak = peak_kib(place.pids().pid);
    fs::write(go, "").unwrap();
    let exit = place.end();
    assert_eq!(exit.ending, exited(0));
    assert!(peak.is_none_or(|kib| kib < 64 * 1024), "{peak:?} KiB");
    assert!(disk_use(&place.dir()) < (4 << 20) + (1 << 20));
    assert!(exit.output_dropped > 100_000_000, "{exit:?}");
}

#[test]
fn an_end_that_cannot_be_recorded_at_once_is_recorded_later() {
    let place = Place::new();
    place.start(&place.spec("sleep 600"));
    let pids = place.pids();
    // A folder in its place stands in for the full disk: the record cannot be put there.
    let exit = place.dir().join("exit.json");
    fs::create_dir(&exit).unwrap();
    fs::write(place.dir().join("stop"), "kill\n").unwrap();
    wait_for("the command's end", || (!super::alive(pids.agent_pid.unwrap())).then_some(()));
    // It has been tried, and is being tried.
    wait_for("a try", || tried(&place.dir()).then_some(()));
    assert!(super::alive(pids.pid), "the supervisor must not leave without a record");
    fs::remove_dir(&exit).unwrap();
    assert_eq!(place.end().ending, process::JobEnding::Stopped);
    process::stop_job(&place.dir(), JobStopMode::Term).unwrap();
}

/// The environment is forgotten right before the end is recorded.
fn tried(dir: &Path) -> bool {
    let spec: JobSpec = serde_json::from_slice(&fs::read(dir.join("spec.json")).unwrap()).unwrap();
    spec.env.values().all(String::is_empty)
}
