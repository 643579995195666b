//! Trees that do not want to die, ended in every way there is: nobody may survive.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mainstem_host::process::{self, JobEnding, JobPids, JobSpec, JobState, JobStopMode};

use super::{PROGRAM, Place, alive, kill9, wait_for, with_word};

/// How a job is ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Cancelled,
    Killed,
    OutOfTime,
    /// The supervisor is killed; whoever comes next cleans up.
    SupervisorKilled,
    /// So is the process that started it.
    BothKilled,
}

const WAYS: [Way; 5] =
    [Way::Cancelled, Way::Killed, Way::OutOfTime, Way::SupervisorKilled, Way::BothKilled];

impl Way {
    fn supervisor_dies(self) -> bool {
        matches!(self, Self::SupervisorKilled | Self::BothKilled)
    }
}

/// What the members of a tree are called; tests run at once and must not see each other's.
fn word(name: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("{name}-{}-{}", std::process::id(), now.subsec_nanos())
}

/// A shell that ignores requests and carries `word` in its command line.
fn stubborn(word: &str) -> String {
    format!("sh -c \"trap '' TERM HUP INT; while :; do sleep 0.1; done\" {word}")
}

/// Ends the tree in this way once `ready` holds, and waits until it counts as ended.
fn end(place: &Place, spec: &JobSpec, way: Way, ready: impl Fn() -> bool) -> Option<JobPids> {
    let spec = match way {
        Way::OutOfTime => JobSpec { wall_ms: Some(4_000), ..spec.clone() },
        _ => spec.clone(),
    };
    let mut starter = None;
    if way == Way::BothKilled {
        fs::write(place.file("spec"), serde_json::to_vec(&spec).unwrap()).unwrap();
        let args = [place.dir(), place.file("spec")];
        starter = Some(Command::new(PROGRAM).arg("__start").args(args).spawn().unwrap());
    } else {
        place.start(&spec);
    }
    let pids = place.pids();
    if way == Way::OutOfTime {
        assert_eq!(place.end().ending, JobEnding::TimedOut { idle: false });
        return Some(pids);
    }
    wait_for("the whole tree", || ready().then_some(()));
    match way {
        Way::Cancelled => process::stop_job(&place.dir(), JobStopMode::Term).unwrap(),
        Way::Killed => process::stop_job(&place.dir(), JobStopMode::Kill).unwrap(),
        _ => {
            if let Some(starter) = &mut starter {
                starter.kill().unwrap();
                starter.wait().unwrap();
            }
            kill9(pids.pid);
            wait_for("vanished", || {
                (process::read_job_state(&place.dir()).unwrap() == JobState::Vanished).then_some(())
            });
            process::end_job(&place.dir()).unwrap();
            return Some(pids);
        }
    }
    assert_eq!(place.end().ending, JobEnding::Stopped);
    Some(pids)
}

fn nobody_left(word: &str, way: Way) {
    let left = with_word(word);
    for pid in &left {
        kill9(*pid);
    }
    assert!(left.is_empty(), "{way:?}: {} of {word} survived", left.len());
}

fn leaf_is_gone(pids: Option<JobPids>) {
    if let Some(leaf) = pids.and_then(|pids| pids.cgroup) {
        assert!(!leaf.exists(), "{} is left", leaf.display());
    }
}

#[test]
fn no_member_of_a_hostile_tree_survives_any_end() {
    for way in WAYS {
        let place = Place::new();
        let word = word("wild");
        let stay = stubborn(&word);
        // In its group, in a session of its own, a daemon, elsewhere, and stopped.
        let script = format!(
            "trap '' TERM HUP INT\n{stay} &\nsetsid {stay} &\n(setsid {stay} &)\n\
             (cd / && setsid {stay} &)\n\
             sh -c \"trap '' TERM; kill -STOP \\$\\$; while :; do sleep 0.1; done\" {word} &\n\
             while :; do sleep 0.1; done"
        );
        let pids = end(&place, &place.spec(&script), way, || with_word(&word).len() >= 6);
        nobody_left(&word, way);
        leaf_is_gone(pids);
    }
}

#[test]
fn two_hundred_processes_that_grow_again_all_die() {
    for way in WAYS {
        let place = Place::new();
        let word = word("hydra");
        // 5 + 25 + 125 heads and one body.
        let script = format!("exec {PROGRAM} __hydra 5 3 {word}");
        let enough = || with_word(&word).len() >= 156;
        let pids = end(&place, &place.spec(&script), way, enough);
        nobody_left(&word, way);
        leaf_is_gone(pids);
    }
}

/// With its supervisor gone, nothing but a cgroup leads to a process that has neither parent nor group
/// nor mark.
#[test]
fn who_hides_from_a_dead_supervisor_is_found_where_there_are_cgroups() {
    for way in WAYS {
        let place = Place::new();
        let (word, hidden) = (word("seen"), word("hidden"));
        let script = format!(
            "(env -i PATH=\"$PATH\" setsid {} >/dev/null 2>&1 &)\n\
             (cd / && env -i PATH=\"$PATH\" setsid {} >/dev/null 2>&1 &)\n{}",
            stubborn(&hidden),
            stubborn(&hidden),
            stubborn(&word)
        );
        let daemons = || {
            let init = |pid: &u32| {
                let stat = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap_or_default();
                !stat.contains("MAINSTEM_JOB")
            };
            with_word(&hidden).iter().filter(|pid| init(pid)).count() >= 2
        };
        let pids =
            end(&place, &place.spec(&script), way, || daemons() && !with_word(&word).is_empty());
        let contained = pids.as_ref().is_some_and(|pids| pids.cgroup.is_some());
        nobody_left(&word, way);
        if contained || (super::FINDS_ALL && !way.supervisor_dies()) {
            nobody_left(&hidden, way);
        } else {
            // As documented: this is what a cgroup is for.
            with_word(&hidden).into_iter().for_each(kill9);
        }
        leaf_is_gone(pids);
    }
}

#[test]
fn a_process_that_got_the_number_of_a_dead_one_is_left_alone() {
    let place = Place::new();
    place.start(&place.spec("sleep 600"));
    let pids = place.pids();
    kill9(pids.pid);
    wait_for("vanished", || {
        (process::read_job_state(&place.dir()).unwrap() == JobState::Vanished).then_some(())
    });
    process::end_job(&place.dir()).unwrap();
    let bystander = || Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let (mut first, mut second) = (bystander(), bystander());
    // As if both numbers had been given to others since; the start times are those of the dead.
    let mut record = JobPids { pid: first.id(), agent_pid: Some(second.id()), ..pids };
    if !super::FINDS_ALL {
        // `ps` tells the second of a start only: they must not have begun within the same one.
        record.start_time -= 60;
        record.agent_start_time = record.agent_start_time.map(|start| start - 60);
    }
    fs::write(place.dir().join("pid.json"), serde_json::to_vec(&record).unwrap()).unwrap();
    assert_eq!(process::kill_job_leftovers(&place.dir()).unwrap(), 0);
    process::stop_job(&place.dir(), JobStopMode::Kill).unwrap();
    process::end_job(&place.dir()).unwrap();
    assert!(alive(first.id()) && alive(second.id()));
    for child in [&mut first, &mut second] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_copy_of_a_jobs_folder_harms_nobody_and_a_moved_one_is_the_job() {
    let place = Place::new();
    place.start(&place.spec("sleep 600"));
    let pids = place.pids();
    let copy = place.file("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(place.dir().join("pid.json"), copy.join("pid.json")).unwrap();
    assert_eq!(process::read_job_state(&copy).unwrap(), JobState::Vanished);
    assert_eq!(process::kill_job_leftovers(&copy).unwrap(), 0);
    process::stop_job(&copy, JobStopMode::Kill).unwrap();
    process::end_job(&copy).unwrap();
    assert!(alive(pids.pid) && alive(pids.agent_pid.unwrap()));

    kill9(pids.pid);
    let moved = place.file("moved");
    wait_for("vanished", || {
        (process::read_job_state(&place.dir()).unwrap() == JobState::Vanished).then_some(())
    });
    fs::rename(place.dir(), &moved).unwrap();
    process::end_job(&moved).unwrap();
    wait_for("the command to be gone", || (!alive(pids.agent_pid.unwrap())).then_some(()));
}

#[test]
fn a_record_that_names_a_group_of_others_harms_nobody() {
    let place = Place::new();
    place.start(&place.spec("sleep 600"));
    let pids = place.pids();
    let Some(leaf) = pids.cgroup.clone() else { return };
    kill9(pids.pid);
    wait_for("vanished", || {
        (process::read_job_state(&place.dir()).unwrap() == JobState::Vanished).then_some(())
    });
    let theirs = leaf.with_file_name(format!("not-ours-{}", std::process::id()));
    fs::create_dir(&theirs).unwrap();
    let mut bystander = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    fs::write(theirs.join("cgroup.procs"), bystander.id().to_string()).unwrap();
    for bad in [theirs.clone(), leaf.join("..").join(theirs.file_name().unwrap())] {
        let record = JobPids { cgroup: Some(bad), ..pids.clone() };
        fs::write(place.dir().join("pid.json"), serde_json::to_vec(&record).unwrap()).unwrap();
        process::kill_job_leftovers(&place.dir()).unwrap();
        assert!(alive(bystander.id()));
    }
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    wait_for("the group to be empty", || fs::remove_dir(&theirs).is_ok().then_some(()));
    fs::remove_dir(&leaf).unwrap();
}

#[test]
fn a_group_made_inside_the_jobs_own_dies_and_goes_with_it() {
    let place = Place::new();
    let script = "own=$(sed -n 's/^0:://p' /proc/self/cgroup); \
                  for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do \
                  mkdir $at$own/inner 2>/dev/null && echo 0 > $at$own/inner/cgroup.procs; done; \
                  echo ready; sleep 600";
    place.start(&place.spec(script));
    let pids = place.pids();
    wait_for("ready", || (!place.stdout().is_empty()).then_some(()));
    process::stop_job(&place.dir(), JobStopMode::Kill).unwrap();
    assert_eq!(place.end().ending, JobEnding::Stopped);
    leaf_is_gone(Some(pids));
}

const MIB: u64 = 1 << 20;

#[test]
fn a_job_that_takes_too_much_memory_is_ended_and_the_end_says_so() {
    let place = Place::new();
    let spec = JobSpec {
        memory_bytes: Some(48 * MIB),
        // Each for itself is within the limit.
        ..place.spec(&format!("yes | {PROGRAM} __hog 32 & yes | {PROGRAM} __hog 32"))
    };
    let begun = Instant::now();
    assert_eq!(place.run(&spec).ending, JobEnding::OutOfMemory { limit: 48 * MIB });
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_job_within_its_memory_is_left_alone() {
    let place = Place::new();
    let hog = format!("(sleep 2.5) | {PROGRAM} __hog 16");
    let spec = JobSpec { memory_bytes: Some(256 * MIB), ..place.spec(&hog) };
    assert_eq!(place.run(&spec).ending, JobEnding::Exited { code: 0 });
    assert_eq!(place.stdout(), ["taken"]);
}
