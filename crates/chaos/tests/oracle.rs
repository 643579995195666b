//! The oracle itself on trial: a round in which nothing happened has nothing wrong with it, and each
//! thing that could be wrong is noticed once it is made so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mainstem_chaos::event_log::{ChaosEvent, note, read};
use mainstem_chaos::oracle_call::judge;
use mainstem_chaos::script::{ChaosAttempt, ChaosAttemptEnd, ChaosScript, ChaosStep};
use mainstem_chaos::{ChaosFixture, ChaosPrograms, ChaosScenario, play};
use tempfile::TempDir;

/// One task lands, one fails and has its work kept, one needs the first.
fn show() -> ChaosScenario {
    let mut show = ChaosScenario::draw(1);
    show.faults.clear();
    show.settings.retries = 0;
    show.settings.on_failure = "continue".to_owned();
    show.settings.barrier = "none".to_owned();
    show.settings.sandbox = "off".to_owned();
    show.settings.workspace = "worktree".to_owned();
    show.settings.keep = "until-landed".to_owned();
    show.settings.push = false;
    let script = |task: &str, needs: &[&str], code: u8| ChaosScript {
        task: task.to_owned(),
        needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        attempts: vec![ChaosAttempt {
            steps: vec![
                ChaosStep::Write { path: format!("{task}/file"), lines: 2 },
                ChaosStep::Usage { micros: 1000 },
                ChaosStep::Commit,
            ],
            end: ChaosAttemptEnd::Exit(code),
        }],
    };
    show.scripts = vec![script("T-0", &[], 0), script("T-1", &[], 1), script("T-2", &["T-0"], 0)];
    show
}

struct Played {
    stage: ChaosFixture,
    _dir: TempDir,
}

fn played(show: &ChaosScenario) -> Played {
    let dir = tempfile::Builder::new().prefix("oracle").tempdir().expect("a temporary folder");
    let folder = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).expect("a folder in a temporary folder");
        path
    };
    let tools = ChaosPrograms {
        mainstem: mainstem_testkit::mainstem().to_owned(),
        agent: PathBuf::from(env!("CARGO_BIN_EXE_chaos-agent")),
        oracle: PathBuf::from(env!("CARGO_BIN_EXE_mainstem-oracle")),
    };
    let mut stage = ChaosFixture::set(&folder("place"), &folder("outside"), &tools, show)
        .expect("a stage can be set");
    let outcome = play(&mut stage, show).expect("a round can be played");
    assert_eq!(outcome.violations, []);
    assert_eq!(outcome.landed, 2);
    Played { stage, _dir: dir }
}

/// What the oracle says after somebody did this to a round that was fine.
#[track_caller]
fn noticed(what: &str, tamper: impl FnOnce(&mut ChaosFixture)) {
    noticed_in(&show(), what, tamper);
}

/// The same where landings are pushed.
#[track_caller]
fn noticed_there(what: &str, tamper: impl FnOnce(&mut ChaosFixture)) {
    let mut show = show();
    show.settings.push = true;
    noticed_in(&show, what, tamper);
}

#[track_caller]
fn noticed_in(show: &ChaosScenario, what: &str, tamper: impl FnOnce(&mut ChaosFixture)) {
    let mut played = played(show);
    tamper(&mut played.stage);
    let found = judge(&played.stage).expect("the oracle answers");
    assert!(found.iter().any(|violation| violation.0.contains(what)), "no {what:?} in {found:#?}");
}

fn git(stage: &ChaosFixture, args: &[&str]) -> String {
    stage.git(args).expect("git works in a stage")
}

/// The same on the remote.
fn there(stage: &ChaosFixture, args: &[&str]) -> String {
    stage.git_in(&stage.remote(), args).expect("git works on the remote")
}

fn forge(stage: &ChaosFixture, keep: impl Fn(&ChaosEvent) -> bool) {
    let events = read(&stage.outside).expect("a ledger");
    fs::remove_file(stage.outside.join("events")).expect("a ledger");
    for event in events.iter().filter(|event| keep(event)) {
        note(&stage.outside, event).expect("a ledger");
    }
}

#[test]
fn a_second_landing_is_noticed() {
    noticed("T-0 landed 2 times", |stage| {
        let message = "again\n\nMainstem-Task: T-0\nMainstem-Attempt: 1\nMainstem-Run: r";
        git(stage, &["commit", "-q", "--allow-empty", "-m", message]);
    });
}

#[test]
fn a_landing_that_is_gone_is_noticed() {
    noticed("not landed in git", |stage| {
        git(stage, &["reset", "-q", "--hard", "HEAD~1"]);
    });
}

#[test]
fn a_landing_that_no_gate_passed_is_noticed() {
    noticed("no gate passed", |stage| {
        forge(stage, |event| !matches!(event, ChaosEvent::Gate { .. }));
    });
}

#[test]
fn a_landing_without_its_work_is_noticed() {
    noticed("without its work", |stage| {
        let script = stage.outside.join("scripts/T-0.json");
        let text = fs::read_to_string(&script).expect("a script");
        fs::write(script, text.replace("\"lines\":2", "\"lines\":3")).expect("a script");
    });
}

#[test]
fn a_landing_of_an_agent_that_did_not_finish_is_noticed() {
    noticed("did not finish", |stage| {
        forge(stage, |event| !matches!(event, ChaosEvent::End { task, .. } if task == "T-0"));
    });
}

#[test]
fn lost_work_of_a_failed_attempt_is_noticed() {
    noticed("no snapshot is below", |stage| {
        let refs =
            git(stage, &["for-each-ref", "--format=%(refname)", "refs/mainstem/snapshots/T-1"]);
        for name in refs.lines() {
            git(stage, &["update-ref", "-d", name]);
        }
    });
}

#[test]
fn a_snapshot_with_other_content_is_noticed() {
    noticed("is not what it left", |stage| {
        let name = "refs/mainstem/snapshots/T-1/1/99";
        git(stage, &["update-ref", name, "HEAD"]);
    });
}

#[test]
fn an_attempt_that_ran_twice_is_noticed() {
    noticed("was started 2 times", |stage| {
        let events = read(&stage.outside).expect("a ledger");
        let start = events.iter().find(|event| matches!(event, ChaosEvent::Start { .. }));
        note(&stage.outside, start.expect("somebody worked")).expect("a ledger");
    });
}

#[test]
fn somebody_elses_lost_commit_is_noticed() {
    noticed("somebody else's commit", |stage| {
        let tree = git(stage, &["rev-parse", "HEAD^{tree}"]);
        let commit = git(stage, &["commit-tree", &tree, "-m", "lost"]);
        note(&stage.outside, &ChaosEvent::Others { commit }).expect("a ledger");
    });
}

#[test]
fn a_commit_that_somebody_pushed_and_that_is_gone_is_noticed() {
    noticed_there("somebody else's commit", |stage| {
        let tip = there(stage, &["rev-parse", "main"]);
        let tree = there(stage, &["rev-parse", "main^{tree}"]);
        let commit = there(stage, &["commit-tree", &tree, "-p", &tip, "-m", "theirs"]);
        // It was on the branch, and somebody forced it off.
        note(&stage.outside, &ChaosEvent::Others { commit }).expect("a ledger");
    });
}

#[test]
fn a_landing_that_is_only_here_and_one_that_is_only_there_are_noticed() {
    noticed_there("not landed in git", |stage| {
        there(stage, &["update-ref", "refs/heads/main", "main~1"]);
    });
    noticed_there("on the remote and not here", |stage| {
        git(stage, &["update-ref", "refs/heads/main", "main~1"]);
    });
}

#[test]
fn a_second_landing_on_the_remote_is_noticed() {
    noticed_there("T-0 landed 2 times", |stage| {
        let (tip, tree) =
            (there(stage, &["rev-parse", "main"]), there(stage, &["rev-parse", "main^{tree}"]));
        let message = "again\n\nMainstem-Task: T-0\nMainstem-Attempt: 1\nMainstem-Run: r";
        let again = there(stage, &["commit-tree", &tree, "-p", &tip, "-m", message]);
        there(stage, &["update-ref", "refs/heads/main", &again]);
    });
}

#[test]
fn a_branch_of_ours_on_the_remote_is_noticed() {
    noticed_there("remote: it has", |stage| {
        there(stage, &["branch", "mainstem/T-0", "main"]);
    });
}

#[test]
fn leftovers_of_every_kind_are_noticed() {
    noticed("left: branch mainstem/T-9", |stage| {
        git(stage, &["branch", "mainstem/T-9"]);
    });
    noticed("left: lock", |stage| {
        fs::write(stage.repo.join(".git/index.lock"), "").expect("a file");
    });
    noticed("left: worktree", |stage| {
        let path = stage.place().join("extra").display().to_string();
        git(stage, &["worktree", "add", "-q", "--detach", &path]);
    });
    noticed("left: temporary file", |stage| {
        let tmp = stage.repo.join(".git/mainstem/tmp");
        fs::create_dir_all(&tmp).expect("a folder");
        fs::write(tmp.join("x"), "").expect("a file");
    });
}

#[test]
fn a_process_that_is_left_is_noticed() {
    let mut child = None;
    noticed("left: process", |stage| {
        let sleep = Command::new("sleep")
            .arg("600")
            .current_dir(&stage.repo)
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep is installed");
        let proc = PathBuf::from(format!("/proc/{}/cmdline", sleep.id()));
        // Until exec it still looks like this test.
        mainstem_testkit::wait_until(std::time::Duration::from_secs(60), "it sleeps", || {
            fs::read(&proc).is_ok_and(|line| line.starts_with(b"sleep"))
        });
        child = Some(sleep);
    });
    let mut child = child.expect("it was started");
    child.kill().and_then(|()| child.wait()).expect("our own child");
}

#[test]
fn changes_to_what_is_the_users_are_noticed() {
    noticed("user: user.txt was", |stage| {
        let event = ChaosEvent::Edited { path: "user.txt".into(), text: "edited".into() };
        note(&stage.outside, &event).expect("a ledger");
    });
    noticed("a change nobody made", |stage| {
        fs::write(stage.repo.join("user.txt"), "not by the user").expect("a file");
    });
    noticed("the stash", |stage| {
        note(&stage.outside, &ChaosEvent::Stashed { commit: "0".repeat(40) }).expect("a ledger");
    });
}

#[test]
fn money_counted_twice_or_not_at_all_is_noticed() {
    noticed("spent at most 0", |stage| {
        forge(
            stage,
            |event| !matches!(event, ChaosEvent::Doing { task, n: 1, .. } | ChaosEvent::Did { task, n: 1, .. } if task == "T-0"),
        );
    });
    noticed("spent at least 3000", |stage| {
        let script = stage.outside.join("scripts/T-0.json");
        let text = fs::read_to_string(&script).expect("a script");
        fs::write(script, text.replace("1000", "3000")).expect("a script");
    });
}

#[test]
fn a_task_that_had_to_land_and_did_not_is_noticed() {
    noticed("T-1 must have landed", |stage| stage.must_land.push("T-1".to_owned()));
}

#[test]
fn a_broken_repository_is_noticed() {
    noticed("fsck", |stage| {
        let blob = git(stage, &["rev-parse", "HEAD:user.txt"]);
        let object = stage.repo.join(".git/objects").join(&blob[..2]).join(&blob[2..]);
        let spoil = |path: &Path| fs::remove_file(path).and_then(|()| fs::write(path, "rubbish"));
        spoil(&object).expect("a loose object");
    });
}
