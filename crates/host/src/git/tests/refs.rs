use std::fs;
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

use super::super::{GitError, RefUpdateOutcome};
use super::{Scene, git};

#[test]
fn names_resolve_to_commits_and_absence_is_an_answer() {
    let scene = Scene::new();
    let tip = scene.tip("main");
    assert_eq!(scene.repo.resolve_commit("HEAD").unwrap(), Some(tip.clone()));
    assert_eq!(scene.repo.resolve_commit("no such branch").unwrap(), None);
    assert_eq!(scene.repo.resolve_commit("-x").unwrap(), None);
    assert_eq!(scene.repo.resolve_commit("a\nb").unwrap(), None);
    assert_eq!(scene.repo.read_ref("refs/heads/main").unwrap(), Some(tip.clone()));
    assert_eq!(scene.repo.read_ref("refs/heads/mai").unwrap(), None);
    assert_eq!(scene.repo.read_ref("refs/heads").unwrap(), None);
    assert!(scene.repo.has_object(&tip).unwrap());
    assert!(!scene.repo.has_object(&"1".repeat(40).as_str().into()).unwrap());
    assert!(scene.repo.tree_of(&"1".repeat(40).as_str().into()).is_err());
}

#[test]
fn a_damaged_ref_is_an_error_and_not_absent() {
    let scene = Scene::new();
    let path = scene.repo.common_dir().join("refs/heads/broken");
    fs::write(path, "").unwrap();
    assert!(scene.repo.read_ref("refs/heads/broken").is_err());
    assert!(scene.repo.list_refs("refs/heads").is_err());
}

#[test]
fn a_ref_has_the_same_value_in_its_own_file_packed_in_both_and_by_another_name() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let next = scene.change(&base, &[("a.txt", Some("next\n"))]);
    let read = |name: &str| scene.repo.read_ref(name).unwrap();
    assert_eq!(read("refs/heads/main"), Some(base.clone()));
    git(&scene.top(), &["pack-refs", "--all"]);
    assert!(!scene.repo.common_dir().join("refs/heads/main").exists());
    assert_eq!(read("refs/heads/main"), Some(base.clone()));
    // Its own file counts before what is packed.
    let _ = scene.repo.update_ref("refs/heads/main", &next, Some(&base), "next").unwrap();
    assert_eq!(read("refs/heads/main"), Some(next.clone()));
    git(&scene.top(), &["symbolic-ref", "refs/heads/other", "refs/heads/main"]);
    assert_eq!(read("refs/heads/other"), Some(next));
    assert_eq!(read("refs/heads/../heads/main"), None);
    assert_eq!(read("refs/heads"), None);
}

#[test]
fn a_broken_repository_is_an_error_and_not_absent() {
    let scene = Scene::new();
    fs::remove_file(scene.repo.common_dir().join("HEAD")).unwrap();
    assert!(scene.repo.resolve_commit("main").is_err());
    assert!(scene.repo.read_ref("refs/heads/main").is_err());
    assert!(scene.repo.list_worktrees().is_err());
}

#[test]
fn ancestors_are_told_from_strangers_and_from_errors() {
    let scene = Scene::new();
    let first = scene.tip("main");
    scene.write("a.txt", "x");
    let second = scene.commit("second");
    assert!(scene.repo.is_ancestor(&first, &second).unwrap());
    assert!(!scene.repo.is_ancestor(&second, &first).unwrap());
    assert!(scene.repo.is_ancestor(&"1".repeat(40).as_str().into(), &first).is_err());
    assert_eq!(scene.repo.count_commits_between(&first, &second).unwrap(), 1);
}

#[test]
fn a_ref_moves_only_from_the_expected_value() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let second = scene.change(&first, &[("a.txt", Some("2"))]);
    let third = scene.change(&first, &[("a.txt", Some("3"))]);
    let name = "refs/heads/target";
    let set = |new, old| scene.repo.update_ref(name, new, old, "test").unwrap();
    assert_eq!(set(&first, None), RefUpdateOutcome::Moved);
    assert_eq!(set(&second, None), RefUpdateOutcome::Refused { found: Some(first.clone()) });
    assert_eq!(set(&second, Some(&first)), RefUpdateOutcome::Moved);
    assert_eq!(
        set(&third, Some(&first)),
        RefUpdateOutcome::Refused { found: Some(second.clone()) }
    );
    let refused = scene.repo.delete_ref(name, Some(&first)).unwrap();
    assert_eq!(refused, RefUpdateOutcome::Refused { found: Some(second.clone()) });
    assert_eq!(scene.repo.delete_ref(name, Some(&second)).unwrap(), RefUpdateOutcome::Moved);
    assert_eq!(scene.repo.delete_ref(name, Some(&second)).unwrap(), RefUpdateOutcome::Moved);
    assert_eq!(set(&third, Some(&first)), RefUpdateOutcome::Refused { found: None });
    let strange = scene.repo.update_ref(name, &"1".repeat(40).as_str().into(), None, "test");
    assert!(matches!(strange, Err(GitError::Failed { .. })), "{strange:?}");
}

#[test]
fn of_sixteen_writers_exactly_one_wins() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let repo = &scene.repo;
    let tree = repo.tree_of(&first).unwrap();
    let commits: Vec<_> = (0..16)
        .map(|n| {
            let who = super::who();
            repo.commit_tree(&tree, std::slice::from_ref(&first), &format!("n {n}"), &who, &who, n)
                .unwrap()
        })
        .collect();
    let barrier = Barrier::new(commits.len());
    let outcomes: Vec<RefUpdateOutcome> = std::thread::scope(|scope| {
        let writers: Vec<_> = commits
            .iter()
            .map(|new| {
                let (barrier, first) = (&barrier, &first);
                scope.spawn(move || {
                    barrier.wait();
                    repo.update_ref("refs/heads/main", new, Some(first), "race").unwrap()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|cas| **cas == RefUpdateOutcome::Moved).count(), 1);
    let winner = outcomes.iter().position(|cas| *cas == RefUpdateOutcome::Moved).unwrap();
    assert_eq!(scene.tip("main"), commits[winner]);
    let left = fs::read_dir(repo.common_dir().join("mainstem/tmp")).unwrap().count();
    assert_eq!(left, 0, "notes about locks were left behind");
}

#[test]
fn a_restored_branch_never_overwrites_another() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let second = scene.change(&first, &[("a.txt", Some("2"))]);
    assert_eq!(scene.repo.restore_branch("rescue", &first).unwrap(), "rescue");
    assert_eq!(scene.repo.restore_branch("rescue", &first).unwrap(), "rescue");
    assert_eq!(scene.repo.restore_branch("rescue", &second).unwrap(), "rescue-2");
    git(&scene.top(), &["branch", "deep/er"]);
    assert_eq!(scene.repo.restore_branch("deep", &second).unwrap(), "deep-2");
    assert!(scene.repo.restore_branch("bad..name", &second).is_err());
}

#[test]
fn stale_locks_of_ours_are_swept_and_those_of_others_only_reported() {
    let scene = Scene::new();
    let common = scene.repo.common_dir().to_path_buf();
    let ours = common.join("refs/mainstem/snapshots/t/1.lock");
    let branch = common.join("refs/heads/mainstem/t.lock");
    let theirs = common.join("refs/heads/main.lock");
    let index = common.join("index.lock");
    let dead = common.join("refs/heads/dead.lock");
    for lock in [&ours, &branch, &theirs, &index, &dead] {
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        fs::write(lock, "").unwrap();
    }
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for lock in [&dead, &index] {
        fs::File::options().write(true).open(lock).unwrap().set_modified(long_ago).unwrap();
    }
    let swept = scene.repo.sweep_stale_locks(None).unwrap();
    assert_eq!(swept.removed, [ours, branch, dead]);
    assert_eq!(swept.foreign, [theirs.clone(), index.clone()]);
    assert!(theirs.exists() && index.exists());
}

#[test]
fn a_lock_our_killed_git_announced_is_swept_though_it_is_shared() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let common = scene.repo.common_dir().to_path_buf();
    let lock = common.join("refs/heads/main.lock");
    fs::create_dir_all(common.join("mainstem/tmp")).unwrap();
    // What an earlier life leaves behind that was killed between lock and rename.
    fs::write(common.join("mainstem/tmp/lock-1.abc-0"), lock.as_os_str().as_encoded_bytes())
        .unwrap();
    fs::write(&lock, "").unwrap();
    let second = scene.change(&first, &[("a.txt", Some("2"))]);
    let stuck = scene.repo.update_ref("refs/heads/main", &second, Some(&first), "land");
    assert!(matches!(stuck, Err(GitError::Failed { .. })), "{stuck:?}");
    let swept = scene.repo.sweep_stale_locks(None).unwrap();
    assert_eq!(swept.removed, [lock]);
    let moved = scene.repo.update_ref("refs/heads/main", &second, Some(&first), "land").unwrap();
    assert_eq!(moved, RefUpdateOutcome::Moved);
    assert_eq!(fs::read_dir(common.join("mainstem/tmp")).unwrap().count(), 0);
}

#[test]
fn a_lock_of_ours_is_swept_after_the_repository_was_moved() {
    let scene = Scene::new();
    let index = scene.repo.common_dir().join("index.lock");
    let mark = scene.repo.write_lock_note(std::slice::from_ref(&index)).unwrap();
    fs::write(&index, "").unwrap();
    let old = scene.top();
    let new = old.with_file_name("elsewhere");
    fs::rename(&old, &new).unwrap();
    // The process that took the lock ends, and removes neither file: both are elsewhere.
    drop(mark);
    let tmp = new.join(".git/mainstem/tmp");
    let left = fs::read_dir(&tmp).unwrap().next().unwrap().unwrap().path();
    fs::rename(left, tmp.join("lock-1.abc-0")).unwrap();
    let swept = crate::git::Repo::discover(&new).unwrap().sweep_stale_locks(None).unwrap();
    assert_eq!(swept.removed, [new.join(".git/index.lock")]);
}

#[test]
fn a_ref_lock_that_nobody_can_hold_any_more_does_not_stop_a_landing() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let lock = scene.repo.common_dir().join("refs/heads/main.lock");
    fs::write(&lock, "").unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(&lock).unwrap().set_modified(long_ago).unwrap();
    let second = scene.change(&first, &[("a.txt", Some("2"))]);
    let moved = scene.repo.update_ref("refs/heads/main", &second, Some(&first), "land").unwrap();
    assert_eq!(moved, RefUpdateOutcome::Moved);
    assert!(!lock.exists());
}

#[test]
fn a_git_of_ours_that_is_killed_while_it_holds_a_ref_takes_its_lock_along() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let second = scene.change(&first, &[("a.txt", Some("2"))]);
    let lock = scene.repo.common_dir().join("refs/heads/main.lock");
    // As update-ref killed between lock and rename: the lock is there, the process is not.
    let alias = format!("alias.die=!echo > '{}'; kill -9 $PPID $$", lock.display());
    let killed = scene.repo.run_locking_ref(
        scene.repo.git().config_setting(alias).arg("die"),
        "refs/heads/main",
        false,
    );
    assert!(matches!(killed, Err(GitError::Failed { code: None, .. })), "{killed:?}");
    assert!(!lock.exists());
    let moved = scene.repo.update_ref("refs/heads/main", &second, Some(&first), "land").unwrap();
    assert_eq!(moved, RefUpdateOutcome::Moved);
}

#[test]
fn a_sweep_waits_for_git_processes_of_an_earlier_life() {
    let scene = Scene::new();
    let gate = scene.at("gate");
    // As every start of a run does.
    scene.repo.sweep_stale_locks(None).unwrap();
    let repo = scene.repo.clone();
    let alias = format!("alias.wait=!while [ ! -e '{}' ]; do sleep 0.05; done", gate.display());
    std::thread::scope(|scope| {
        let stray = scope.spawn(|| repo.git().config_setting(alias).arg("wait").run().map(drop));
        let live =
            std::fs::File::options().append(true).create(true).open(repo.live_file_path()).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        // The stray holds the file as soon as an exclusive lock is refused.
        loop {
            let free =
                rustix::fs::flock(&live, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            if free.is_err() {
                break;
            }
            rustix::fs::flock(&live, rustix::fs::FlockOperation::Unlock).unwrap();
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        let sweep = scope.spawn(|| {
            scene.repo.sweep_stale_locks(None).unwrap();
            gate.exists()
        });
        fs::write(&gate, "").unwrap();
        assert!(sweep.join().unwrap(), "the sweep did not wait");
        stray.join().unwrap().unwrap();
    });
}

#[test]
fn many_refs_go_at_once_and_only_with_the_value_they_were_seen_with() {
    let scene = Scene::new();
    let (base, other) = (scene.tip("main"), scene.change(&scene.tip("main"), &[("x", Some("x"))]));
    let name = |n: usize| format!("refs/mainstem/snapshots/t-{}/1/{n}", n % 7);
    let orders: String = (0..300).map(|n| format!("create {} {base}\n", name(n))).collect();
    scene.repo.git().args(["update-ref", "--stdin"]).stdin_bytes(orders).run().unwrap();
    let mut refs: Vec<_> = (0..300).map(|n| (name(n), base.clone())).collect();
    git(&scene.top(), &["pack-refs", "--all"]);
    // One was moved, one is gone already.
    git(&scene.top(), &["update-ref", &name(5), other.as_str()]);
    git(&scene.top(), &["update-ref", "-d", &name(6)]);
    let gone = scene.repo.delete_refs(&refs).unwrap();
    refs.remove(5);
    assert_eq!(gone, refs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    assert_eq!(scene.repo.list_refs("refs/mainstem").unwrap(), [(name(5), other.clone())]);
    assert_eq!(scene.repo.delete_refs(&refs).unwrap().len(), 299);
    assert_eq!(scene.repo.delete_refs(&[]).unwrap(), [""; 0]);
    assert_eq!(scene.repo.delete_refs(&[(name(5), other)]).unwrap(), [name(5)]);
}

#[test]
fn commits_beyond_a_branch_are_told_from_those_on_it() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let beyond = scene.change(&base, &[("x", Some("x"))]);
    let lost = mainstem_core::id::Oid::new("1".repeat(40));
    let asked = [base.clone(), beyond.clone(), lost.clone()];
    let out = scene.repo.commits_not_in(&asked, &base).unwrap();
    assert_eq!(out, [beyond.clone(), lost.clone()].into());
    assert_eq!(scene.repo.commits_not_in(&asked, &beyond).unwrap(), [lost.clone()].into());
    let times = scene.repo.read_commit_times(&asked).unwrap();
    assert_eq!(times.len(), 2);
    assert_eq!(times[&beyond].1, "change");
    let sizes =
        [(base.clone(), beyond.clone()), (beyond.clone(), lost), (base.clone(), base.clone())];
    let sizes = scene.repo.diff_sizes(&sizes).unwrap();
    let counted = |n: usize| sizes[n].map(|size| (size.files, size.insertions));
    assert_eq!([counted(0), counted(1), counted(2)], [Some((1, 1)), None, Some((0, 0))]);
}

#[test]
fn a_lock_of_the_packed_refs_that_a_killed_agent_left_holds_nothing_up() {
    let scene = Scene::new();
    let tip = scene.tip("main");
    let lock = scene.repo.common_dir().join("packed-refs.lock");
    let made = scene.repo.update_ref("refs/mainstem/x", &tip, None, "x").unwrap();
    assert_eq!(made, RefUpdateOutcome::Moved);
    // Nobody announced it and nobody holds it, as after an agent's commit that was killed.
    fs::write(&lock, "").unwrap();
    assert_eq!(
        scene.repo.delete_ref("refs/mainstem/x", Some(&tip)).unwrap(),
        RefUpdateOutcome::Moved
    );
    assert!(!lock.exists());
    fs::write(&lock, "").unwrap();
    assert!(scene.repo.sweep_stale_locks(None).unwrap().removed.contains(&lock));
    assert!(!lock.exists());
}

#[test]
fn a_lock_of_the_packed_refs_is_left_to_a_git_that_lives() {
    let scene = Scene::new();
    let lock = scene.repo.common_dir().join("packed-refs.lock");
    let gate = scene.at("gate");
    let repo = scene.repo.clone();
    let alias = format!(
        "alias.hold=!echo > '{}'; while [ ! -e '{}' ]; do sleep 0.05; done",
        lock.display(),
        gate.display()
    );
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| repo.git().config_setting(alias).arg("hold").run().map(drop));
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while !lock.exists() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        assert!(!scene.repo.sweep_packed_refs_lock().unwrap());
        assert!(lock.exists());
        fs::write(&gate, "").unwrap();
        holder.join().unwrap().unwrap();
    });
}

#[test]
fn a_commit_that_an_agent_makes_while_an_engine_begins_keeps_its_lock() {
    use std::io::{BufRead, Write};
    let scene = Scene::new();
    let first = scene.tip("main");
    let second = scene.change(&first, &[("a.txt", Some("2"))]);
    let branch = "refs/heads/mainstem/t-1";
    git(&scene.top(), &["update-ref", branch, first.as_str()]);
    // Between taking the lock and putting the new value in its place.
    let mut agent = std::process::Command::new("git")
        .args(["update-ref", "--stdin"])
        .current_dir(scene.top())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = agent.stdin.take().unwrap();
    let mut answers = std::io::BufReader::new(agent.stdout.take().unwrap());
    let mut say = |order: &str, answer: &str| {
        writeln!(orders, "{order}").unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), answer);
    };
    say("start", "start: ok");
    say(&format!("update {branch} {second} {first}\nprepare"), "prepare: ok");
    let lock = scene.repo.common_dir().join(format!("{branch}.lock"));
    assert!(lock.exists());
    let swept = scene.repo.sweep_stale_locks(None).unwrap();
    assert_eq!((swept.removed, swept.foreign), (vec![], vec![lock.clone()]));
    say("commit", "commit: ok");
    drop(orders);
    assert!(agent.wait().unwrap().success());
    assert_eq!(scene.tip("mainstem/t-1"), second);
    assert!(!lock.exists());
}

#[test]
fn a_lock_that_a_killed_commit_left_on_a_tasks_branch_holds_nothing_up() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let second = scene.change(&first, &[("a.txt", Some("2"))]);
    let branch = "refs/heads/mainstem/t-1";
    let lock = scene.repo.common_dir().join(format!("{branch}.lock"));
    assert_eq!(scene.repo.update_ref(branch, &first, None, "x").unwrap(), RefUpdateOutcome::Moved);
    // An agent's, which nobody announced.
    fs::write(&lock, "").unwrap();
    assert_eq!(
        scene.repo.update_ref(branch, &second, Some(&first), "x").unwrap(),
        RefUpdateOutcome::Moved
    );
    assert!(!lock.exists());
    // Our own, by a clock that says that it was made before we began, though not before this machine did.
    let alias = format!(
        "alias.die=!echo > '{0}'; touch -d '1 minute ago' '{0}'; kill -9 $PPID $$",
        lock.display()
    );
    let killed = scene.repo.run_locking_ref(
        scene.repo.git().config_setting(alias).arg("die"),
        branch,
        false,
    );
    assert!(matches!(killed, Err(GitError::Failed { code: None, .. })), "{killed:?}");
    assert!(!lock.exists());
}

#[test]
fn a_branch_that_leaves_no_room_for_a_restored_one_is_named_at_once() {
    let scene = Scene::new();
    let tip = scene.tip("main");
    git(&scene.top(), &["branch", "restore"]);
    let refused = scene.repo.restore_branch("restore/t-1", &tip).unwrap_err();
    assert!(
        matches!(&refused, GitError::NoBranchRoom { branch, .. } if branch == "restore"),
        "{refused}"
    );
    git(&scene.top(), &["branch", "-m", "restore", "mine"]);
    assert_eq!(scene.repo.restore_branch("restore/t-1", &tip).unwrap(), "restore/t-1");
}
