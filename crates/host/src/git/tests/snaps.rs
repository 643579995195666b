use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{Repo, WorktreeSnapshot};
use super::{KEEP, Scene, commit, git, who, write};

const BRANCH: &str = "mainstem/t-1";
const SERIES: &str = "refs/mainstem/snapshots/t-1/1";

fn workspace(scene: &Scene) -> PathBuf {
    let path = scene.at("work");
    let base = scene.tip("main");
    scene.repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP).unwrap();
    path
}

fn passing(scene: &Scene, path: &Path) -> WorktreeSnapshot {
    scene.repo.take_quick_snapshot(path, SERIES, "in passing").unwrap().unwrap()
}

fn whole(scene: &Scene, path: &Path) -> WorktreeSnapshot {
    scene.repo.take_snapshot(path, SERIES, "whole").unwrap().unwrap()
}

fn objects(scene: &Scene) -> String {
    git(&scene.top(), &["count-objects", "-v"])
}

#[test]
fn a_snapshot_of_nothing_new_writes_nothing() {
    let scene = Scene::new();
    let path = workspace(&scene);
    write(&path, "new.txt", "n\n");
    write(&path, "tool/x", "x\n");
    git(&path.join("tool"), &["init", "-q"]);
    let first = passing(&scene, &path);
    let before = (objects(&scene), scene.repo.list_refs("refs").unwrap());
    for _ in 0..3 {
        let same = passing(&scene, &path);
        assert!(!same.is_new && same.commit == first.commit && same.notes == first.notes);
        assert!(!whole(&scene, &path).is_new);
    }
    assert_eq!((objects(&scene), scene.repo.list_refs("refs").unwrap()), before);
    // Nor does another process find anything new.
    let other = Repo::discover(&scene.top()).unwrap();
    let same = other.take_snapshot(&path, SERIES, "other").unwrap().unwrap();
    assert!(!same.is_new && same.commit == first.commit);
    // A new file in the nested repository is seen like any other.
    write(&path, "tool/y", "y\n");
    let more = passing(&scene, &path);
    assert_eq!(scene.show(&more.commit, "tool/y"), "y\n");
}

#[test]
fn edits_within_one_tick_of_the_clock_are_seen_by_the_index_that_stays() {
    let scene = Scene::new();
    let path = workspace(&scene);
    for round in 0..20 {
        // Always the same size.
        write(&path, "a.txt", &format!("{round:04}\n"));
        let kept = passing(&scene, &path);
        assert!(kept.is_new);
        assert_eq!(scene.show(&kept.commit, "a.txt"), format!("{round:04}\n"));
    }
}

#[test]
fn what_the_agent_does_to_its_own_index_is_followed_and_never_disturbed() {
    let scene = Scene::new();
    let path = workspace(&scene);
    passing(&scene, &path);
    write(&path, "forced.ignored", "by force\n");
    assert!(!passing(&scene, &path).is_new);
    git(&path, &["add", "--force", "forced.ignored"]);
    let admin = scene.repo.list_admin_dirs(&path).unwrap().remove(0);
    // The agent's git is at work on its index.
    fs::write(admin.join("index.lock"), "held").unwrap();
    let before = fs::read(admin.join("index")).unwrap();
    let kept = passing(&scene, &path);
    assert_eq!(scene.show(&kept.commit, "forced.ignored"), "by force\n");
    assert_eq!(fs::read(admin.join("index")).unwrap(), before);
    assert_eq!(fs::read_to_string(admin.join("index.lock")).unwrap(), "held");
    fs::remove_file(admin.join("index.lock")).unwrap();
    // Commits, branches, resets: each is followed.
    let tip = commit(&path, "agent");
    assert_eq!(passing(&scene, &path).commit, tip);
    git(&path, &["reset", "-q", "--hard", "HEAD~1"]);
    let back = passing(&scene, &path);
    assert!(back.is_new);
    assert_eq!(back.commit, scene.tip("main"));
    fs::remove_file(admin.join("index")).unwrap();
    assert_eq!(whole(&scene, &path).commit, back.commit);
}

#[test]
fn a_bad_private_index_is_thrown_away() {
    let scene = Scene::new();
    let path = workspace(&scene);
    passing(&scene, &path);
    let tmp = scene.repo.common_dir().join("mainstem/tmp");
    let private = || fs::read_dir(&tmp).unwrap().next().unwrap().unwrap().path();
    for (n, damage) in
        [&b""[..], b"DIRC garbage", b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"].iter().enumerate()
    {
        let text = format!("edit {n}\n");
        write(&path, "a.txt", &text);
        // Its time and size may even be the old ones: the content decides in the end.
        fs::write(private(), damage).unwrap();
        fs::write(private().with_added_extension("lock"), "killed").unwrap();
        let kept = passing(&scene, &path);
        assert!(kept.is_new);
        assert_eq!(scene.show(&kept.commit, "a.txt"), text);
        assert_eq!(scene.names(&kept.commit), [".gitignore", "a.txt", "dir/b.txt"]);
    }
    fs::remove_file(private()).unwrap();
    assert!(!passing(&scene, &path).is_new);
}

#[test]
fn flags_that_hide_edits_do_not_hide_them() {
    let scene = Scene::new();
    let path = workspace(&scene);
    passing(&scene, &path);
    git(&path, &["update-index", "--skip-worktree", "a.txt"]);
    git(&path, &["update-index", "--assume-unchanged", "dir/b.txt"]);
    write(&path, "a.txt", "hidden\n");
    write(&path, "dir/b.txt", "hidden too\n");
    let kept = passing(&scene, &path);
    assert_eq!(scene.show(&kept.commit, "a.txt"), "hidden\n");
    assert_eq!(scene.show(&kept.commit, "dir/b.txt"), "hidden too\n");
}

#[test]
fn odd_files_neither_stop_a_snapshot_nor_get_lost() {
    let scene = Scene::new();
    let path = workspace(&scene);
    passing(&scene, &path);
    let _socket = UnixListener::bind(path.join("socket")).unwrap();
    assert!(
        std::process::Command::new("mkfifo").arg(path.join("pipe")).status().unwrap().success()
    );
    symlink("nowhere/at all", path.join("dangling")).unwrap();
    symlink(scene.at(""), path.join("outside")).unwrap();
    // A tracked file that became something git cannot keep.
    fs::remove_file(path.join("dir/b.txt")).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(path.join("dir/b.txt"))
            .status()
            .unwrap()
            .success()
    );
    write(&path, "closed", "nobody reads this\n");
    fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    write(&path, "open", "o\n");
    fs::write(path.join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(path.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let kept = passing(&scene, &path);
    let names = scene.names(&kept.commit);
    for name in ["a.txt", "dangling", "open", "outside", "run"] {
        assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name == "socket" || name == "pipe"), "{names:?}");
    assert_eq!(scene.show(&kept.commit, "dangling"), "nowhere/at all");
    assert!(git(&scene.top(), &["ls-tree", kept.commit.as_str(), "run"]).starts_with("100755"));
    // Who is not root cannot read it, and is told so.
    if fs::read(path.join("closed")).is_err() {
        assert!(kept.notes.iter().any(|note| note.contains("closed")), "{:?}", kept.notes);
    }
    assert_eq!(scene.names(&whole(&scene, &path).commit), names);
}

#[test]
fn the_owners_excludes_are_honoured() {
    let scene = Scene::new();
    let path = workspace(&scene);
    write(scene.repo.common_dir(), "info/exclude", "*.private\n");
    write(&path, "x.private", "p\n");
    write(&path, "sub/.gitignore", "quiet\n");
    write(&path, "sub/quiet", "q\n");
    write(&path, "sub/loud", "l\n");
    let names = scene.names(&passing(&scene, &path).commit);
    assert_eq!(names, [".gitignore", "a.txt", "dir/b.txt", "sub/.gitignore", "sub/loud"]);
}

#[test]
fn very_large_files_wait_for_the_whole_snapshot_and_are_named_meanwhile() {
    let scene = Scene::new();
    let path = workspace(&scene);
    passing(&scene, &path);
    let large = vec![b'x'; 33 << 20];
    fs::write(path.join("large.bin"), &large).unwrap();
    write(&path, "small", "s\n");
    let kept = passing(&scene, &path);
    assert_eq!(scene.names(&kept.commit), [".gitignore", "a.txt", "dir/b.txt", "small"]);
    assert!(kept.notes[0].starts_with("large.bin is large"), "{:?}", kept.notes);
    let message = git(&scene.top(), &["log", "-1", "--format=%B", kept.commit.as_str()]);
    assert!(message.starts_with("in passing\n\n- large.bin is large"), "{message}");
    // It alone is no reason for another one.
    assert!(!passing(&scene, &path).is_new);
    let kept = whole(&scene, &path);
    assert!(kept.is_new && kept.notes.is_empty());
    assert_eq!(scene.show(&kept.commit, "large.bin").len(), large.len());
    assert!(!passing(&scene, &path).is_new);
    let other = Repo::discover(&scene.top()).unwrap();
    let there = other.take_snapshot(&path, "refs/mainstem/snapshots/t-1/2", "elsewhere");
    assert_eq!(there.unwrap().unwrap().tree, kept.tree);
}

#[test]
fn a_sparse_checkout_of_the_agents_own_is_not_taken_for_deletions() {
    let scene = Scene::new();
    let path = workspace(&scene);
    git(&path, &["sparse-checkout", "set", "--cone", "other"]);
    assert!(!path.join("dir/b.txt").exists());
    write(&path, "other/new", "n\n");
    write(&path, "outside/new", "o\n");
    write(&path, "dir/b.txt", "edited outside the cone\n");
    let wanted = [".gitignore", "a.txt", "dir/b.txt", "other/new", "outside/new"];
    let kept = passing(&scene, &path);
    assert_eq!(scene.names(&kept.commit), wanted);
    assert_eq!(scene.show(&kept.commit, "dir/b.txt"), "edited outside the cone\n");
    fs::remove_file(path.join("dir/b.txt")).unwrap();
    assert_eq!(scene.names(&whole(&scene, &path).commit), wanted);
    let made = scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    assert_eq!(scene.names(&made), wanted);
}

#[test]
fn filters_of_the_owner_run_and_planted_ones_do_not() {
    let scene = Scene::new();
    git(&scene.top(), &["config", "filter.upper.clean", "tr a-z A-Z"]);
    scene.write(".gitattributes", "*.up filter=upper\n");
    scene.commit("attributes");
    let scene = Scene { repo: Repo::discover(&scene.top()).unwrap(), dir: scene.dir };
    let path = workspace(&scene);
    let trace = scene.at("filter-ran");
    let evil = format!("touch '{}'; cat", trace.display());
    // One in the settings all worktrees share, one in this worktree's own, and a known one changed.
    git(&path, &["config", "filter.evil.clean", &evil]);
    git(&path, &["config", "filter.evil.required", "true"]);
    git(&path, &["config", "extensions.worktreeConfig", "true"]);
    git(&path, &["config", "--worktree", "filter.mine.process", &evil]);
    write(&path, ".gitattributes", "*.up filter=upper\n*.e filter=evil\n*.m filter=mine\n");
    for name in ["x.up", "x.e", "x.m"] {
        write(&path, name, "text\n");
    }
    let kept = whole(&scene, &path);
    assert!(!trace.exists());
    assert_eq!(scene.show(&kept.commit, "x.up"), "TEXT\n");
    assert_eq!(scene.show(&kept.commit, "x.e"), "text\n");
    assert_eq!(kept.notes.len(), 2, "{:?}", kept.notes);
    git(&path, &["config", "filter.upper.clean", &evil]);
    write(&path, "y.up", "text\n");
    let kept = passing(&scene, &path);
    assert_eq!(scene.show(&kept.commit, "y.up"), "text\n");
    scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    scene.repo.is_worktree_dirty(&path).unwrap();
    assert!(!trace.exists());
}

#[test]
fn submodules_are_kept_as_what_they_point_to() {
    let scene = Scene::new();
    let inner = scene.at("inner");
    fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "-q", "-b", "main"]);
    write(&inner, "i", "1\n");
    commit(&inner, "inner");
    git(&scene.top(), &["submodule", "--quiet", "add", inner.to_str().unwrap(), "sub"]);
    scene.commit("with a submodule");
    let path = workspace(&scene);
    let clean = passing(&scene, &path);
    assert_eq!((clean.commit, clean.notes), (scene.tip("main"), vec![]));
    write(&path, "sub/i", "2\n");
    let moved = commit(&path.join("sub"), "moved");
    let kept = passing(&scene, &path);
    assert!(git(&scene.top(), &["ls-tree", kept.commit.as_str(), "sub"]).contains(moved.as_str()));
    assert!(kept.notes[0].starts_with("submodule sub is at"), "{:?}", kept.notes);
}

#[test]
fn files_that_come_go_and_change_meanwhile_do_not_stop_a_snapshot() {
    let scene = Scene::new();
    let path = workspace(&scene);
    for n in 0..100 {
        write(&path, &format!("many/{n:03}"), &format!("{n}\n").repeat(50));
    }
    write(&path, "steady", "always here\n");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0_usize..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                let file = path.join(format!("many/{:03}", n % 100));
                match n % 3 {
                    0 => drop(fs::remove_file(&file)),
                    _ => drop(fs::write(&file, format!("{n}\n").repeat(n % 5000))),
                }
                let folder = path.join(format!("folder-{}", n % 7));
                if fs::create_dir(&folder).is_ok() {
                    drop(fs::write(folder.join("x"), "x"));
                } else {
                    drop(fs::remove_dir_all(&folder));
                }
            }
        });
        let result = std::panic::catch_unwind(|| {
            for _ in 0..6 {
                let kept = passing(&scene, &path);
                assert_eq!(scene.show(&kept.commit, "steady"), "always here\n");
            }
        });
        stop.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    let kept = whole(&scene, &path);
    assert!(kept.notes.is_empty(), "{:?}", kept.notes);
    git(&scene.top(), &["fsck", "--strict"]);
}

#[test]
fn two_snapshots_at_once_both_have_the_work() {
    let scene = Scene::new();
    let path = workspace(&scene);
    write(&path, "w", "w\n");
    let commits: Vec<_> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..4).map(|_| scope.spawn(|| whole(&scene, &path).commit)).collect();
        takers.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    for commit in commits {
        assert_eq!(scene.show(&commit, "w"), "w\n");
    }
}
