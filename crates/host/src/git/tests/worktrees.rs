use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

use mainstem_core::id::Oid;

use super::super::{BranchDeletion, GitError};
use super::{KEEP, Scene, commit, git, plain, who, write};
use crate::files;

const BRANCH: &str = "mainstem/t-1";

fn prepare(scene: &Scene, path: &Path, base: &Oid) {
    let prepared = scene.repo.prepare_worktree(path, BRANCH, base, &scene.trash(), KEEP).unwrap();
    assert!(prepared.notes.is_empty(), "{:?}", prepared.notes);
    assert_ready(scene, path, base);
}

/// Asked of plain git, inside the folder, as an agent will.
fn assert_ready(scene: &Scene, path: &Path, base: &Oid) {
    assert_eq!(git(path, &["rev-parse", "HEAD"]).trim(), base.as_str());
    assert_eq!(git(path, &["symbolic-ref", "--short", "HEAD"]).trim(), BRANCH);
    assert_eq!(git(path, &["status", "--porcelain"]), "");
    assert!(scene.repo.is_worktree_intact(path, BRANCH).unwrap());
    let ours: Vec<_> =
        scene.repo.list_worktrees().unwrap().into_iter().filter(|w| w.path == path).collect();
    assert_eq!(ours.len(), 1);
    assert!(!ours[0].locked && !ours[0].prunable);
    assert_eq!(ours[0].branch.as_deref(), Some(BRANCH));
    assert_eq!(ours[0].head.as_ref(), Some(base));
}

fn admin_of(scene: &Scene, path: &Path) -> std::path::PathBuf {
    scene.repo.list_admin_dirs(path).unwrap().remove(0)
}

fn kept(scene: &Scene) -> Vec<std::path::PathBuf> {
    files::empty_trash(&scene.trash()).unwrap();
    fs::read_dir(scene.trash())
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default()
}

#[test]
fn preparing_twice_gives_the_same_clean_workspace() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let path = scene.at("work spaces/t ö\n1");
    prepare(&scene, &path, &base);
    prepare(&scene, &path, &base);
    assert!(kept(&scene).is_empty());
    assert_eq!(fs::read_dir(scene.repo.common_dir().join("worktrees")).unwrap().count(), 1);
}

#[test]
fn a_used_workspace_is_recycled_and_keeps_its_warm_caches() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let path = scene.at("work");
    prepare(&scene, &path, &base);
    write(&path, "a.txt", "agent\n");
    commit(&path, "agent work");
    write(&path, "a.txt", "again\n");
    write(&path, "junk/new.txt", "n\n");
    write(&path, "target/cache", "warm");
    fs::remove_file(path.join("dir/b.txt")).unwrap();
    git(&path, &["checkout", "-q", "-b", "elsewhere"]);
    git(&path, &["init", "-q", "nested"]);
    write(&path, "nested/file", "x");
    git(&scene.top(), &["worktree", "unlock", path.to_str().unwrap()]);
    git(&scene.top(), &["worktree", "lock", path.to_str().unwrap()]);
    fs::write(admin_of(&scene, &path).join("index.lock"), "").unwrap();

    let next = scene.change(&base, &[("a.txt", Some("next\n")), ("c.txt", Some("c\n"))]);
    prepare(&scene, &path, &next);
    assert_eq!(fs::read_to_string(path.join("target/cache")).unwrap(), "warm");
    assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "next\n");
    assert!(!path.join("nested").exists() && !path.join("junk").exists());
}

#[test]
fn an_unfinished_rebase_or_merge_does_not_survive_recycling() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let other = scene.change(&base, &[("a.txt", Some("other\n"))]);
    let path = scene.at("work");
    prepare(&scene, &path, &base);
    write(&path, "a.txt", "mine\n");
    commit(&path, "mine");
    assert!(!plain(&path, &["rebase", other.as_str()]).status.success());
    prepare(&scene, &path, &base);
    assert!(!admin_of(&scene, &path).join("rebase-merge").exists());
    write(&path, "a.txt", "mine\n");
    commit(&path, "mine");
    assert!(!plain(&path, &["merge", other.as_str()]).status.success());
    prepare(&scene, &path, &other);
}

#[test]
fn edits_hidden_by_index_flags_are_reset_too() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let path = scene.at("work");
    prepare(&scene, &path, &base);
    git(&path, &["update-index", "--assume-unchanged", "a.txt"]);
    git(&path, &["update-index", "--skip-worktree", "dir/b.txt"]);
    write(&path, "a.txt", "hidden\n");
    write(&path, "dir/b.txt", "hidden\n");
    prepare(&scene, &path, &base);
    assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(fs::read_to_string(path.join("dir/b.txt")).unwrap(), "b\n");
}

#[test]
fn whatever_a_killed_git_left_is_made_whole_again() {
    type Damage = fn(&Path, &Path);
    let damages: &[(&str, Damage)] = &[
        ("locked while initializing", |_, admin| {
            fs::write(admin.join("locked"), "initializing\n").unwrap();
        }),
        ("initializing, no HEAD yet", |_, admin| {
            fs::write(admin.join("locked"), "initializing\n").unwrap();
            fs::remove_file(admin.join("HEAD")).unwrap();
            fs::remove_file(admin.join("index")).unwrap();
        }),
        ("initializing, nothing readable yet", |path, admin| {
            fs::write(admin.join("locked"), "initializing\n").unwrap();
            fs::remove_file(admin.join("HEAD")).unwrap();
            fs::remove_file(admin.join("commondir")).unwrap();
            fs::write(path.join(".git"), "").unwrap();
        }),
        ("folder gone", |path, _| fs::remove_dir_all(path).unwrap()),
        ("folder gone and locked", |path, admin| {
            fs::write(admin.join("locked"), "initializing").unwrap();
            fs::remove_dir_all(path).unwrap();
        }),
        ("folder empty", |path, _| {
            fs::remove_dir_all(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
        ("admin folder gone", |_, admin| fs::remove_dir_all(admin).unwrap()),
        (".git file gone", |path, _| fs::remove_file(path.join(".git")).unwrap()),
        (".git file empty", |path, _| fs::write(path.join(".git"), "").unwrap()),
        ("index damaged", |_, admin| fs::write(admin.join("index"), "nonsense").unwrap()),
        ("HEAD damaged", |_, admin| fs::write(admin.join("HEAD"), "").unwrap()),
        ("commondir damaged", |_, admin| fs::write(admin.join("commondir"), "/nowhere").unwrap()),
        ("locks left", |_, admin| {
            fs::write(admin.join("HEAD.lock"), "").unwrap();
            fs::write(admin.join("index.lock"), "").unwrap();
        }),
    ];
    let scene = Scene::new();
    let base = scene.tip("main");
    let theirs = scene.at("theirs");
    git(&scene.top(), &["worktree", "add", "-q", "-b", "theirs", theirs.to_str().unwrap()]);
    fs::remove_dir_all(&theirs).unwrap();
    for (name, damage) in damages {
        let path = scene.at("work");
        prepare(&scene, &path, &base);
        damage(&path, &admin_of(&scene, &path));
        scene
            .repo
            .prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_ready(&scene, &path, &base);
    }
    assert_eq!(kept(&scene), [] as [std::path::PathBuf; 0]);
    // Somebody else's worktree with a missing folder (an unplugged disk?) is not ours to prune.
    assert!(scene.repo.common_dir().join("worktrees/theirs").is_dir());
}

#[test]
fn a_foreign_folder_is_moved_aside_and_never_deleted() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let path = scene.at("work");
    write(&path, "precious.txt", "mine");
    prepare(&scene, &path, &base);
    let aside = kept(&scene);
    assert_eq!(aside.len(), 1);
    assert_eq!(fs::read_to_string(aside[0].join("precious.txt")).unwrap(), "mine");

    // A clone of something else, and a plain file.
    for n in 2..=3 {
        scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        if n == 2 {
            git(scene.dir.path(), &["clone", "-q", "re po ü", path.to_str().unwrap()]);
        } else {
            fs::write(&path, "a file").unwrap();
        }
        prepare(&scene, &path, &base);
        assert_eq!(kept(&scene).len(), n);
    }
}

#[test]
fn a_link_in_a_workspaces_place_is_never_followed() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let feature = scene.at("feature");
    git(&scene.top(), &["worktree", "add", "-q", "-b", "feature", feature.to_str().unwrap()]);
    write(&feature, "unsaved.txt", "mine");
    write(&scene.at("docs"), "letter.txt", "mine");
    for target in ["feature", "docs"] {
        let path = scene.at("work");
        prepare(&scene, &path, &base);
        fs::remove_dir_all(&path).unwrap();
        std::os::unix::fs::symlink(target, &path).unwrap();
        assert!(scene.repo.is_worktree_replaced(&path));
        assert!(!scene.repo.would_lose_work(&path).unwrap());
        assert_eq!(scene.repo.take_snapshot(&path, KEEP, "why").unwrap(), None);
        let left = scene.repo.commit_leftovers(&path, BRANCH, "left", &who(), 0);
        assert!(matches!(left, Err(GitError::NotOurs { .. })), "{left:?}");
        // Used again, and removed: the link goes, what it leads to stays.
        prepare(&scene, &path, &base);
        fs::remove_dir_all(&path).unwrap();
        std::os::unix::fs::symlink(target, &path).unwrap();
        scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        assert!(fs::symlink_metadata(&path).is_err(), "{target}");
        assert_eq!(kept(&scene), [] as [std::path::PathBuf; 0]);
    }
    assert_eq!(git(&feature, &["status", "--porcelain"]), "?? unsaved.txt\n");
    assert_eq!(git(&feature, &["rev-parse", "HEAD"]).trim(), base.as_str());
    let docs: Vec<_> = fs::read_dir(scene.at("docs")).unwrap().collect();
    assert_eq!(docs.len(), 1);
}

#[test]
fn somebodys_worktree_in_our_place_is_moved_aside_and_stays_one() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let path = scene.at("work");
    git(&scene.top(), &["worktree", "add", "-q", "-b", "theirs", path.to_str().unwrap()]);
    write(&path, "unsaved.txt", "mine");
    for n in 1..=2 {
        if n == 1 {
            prepare(&scene, &path, &base);
            scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        } else {
            let aside = kept(&scene).remove(0);
            git(&aside, &["worktree", "move", ".", path.to_str().unwrap()]);
            scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        }
        let aside = kept(&scene);
        assert_eq!(aside.len(), 1);
        assert_eq!(git(&aside[0], &["branch", "--show-current"]), "theirs\n");
        let listed = git(&scene.top(), &["worktree", "list", "--porcelain"]);
        assert!(listed.contains(&format!("worktree {}\n", aside[0].display())), "{listed}");
        assert_eq!(fs::read_to_string(aside[0].join("unsaved.txt")).unwrap(), "mine");
    }
}

#[test]
fn another_repositorys_workspace_is_neither_used_nor_removed() {
    let (ours, theirs) = (Scene::new(), Scene::new());
    let base = ours.tip("main");
    let path = ours.at("work");
    prepare(&ours, &path, &base);
    fs::remove_dir_all(&path).unwrap();
    let other = theirs.tip("main");
    theirs.repo.prepare_worktree(&path, BRANCH, &other, &theirs.trash(), KEEP).unwrap();
    write(&path, "live.txt", "at work");
    assert!(ours.repo.is_worktree_replaced(&path) && !theirs.repo.is_worktree_replaced(&path));
    let made = ours.repo.prepare_worktree(&path, BRANCH, &base, &ours.trash(), KEEP);
    assert!(matches!(made, Err(GitError::NotOurs { .. })), "{made:?}");
    let left = ours.repo.commit_leftovers(&path, BRANCH, "left", &who(), 0);
    assert!(matches!(left, Err(GitError::NotOurs { .. })), "{left:?}");
    ours.repo.remove_worktree(&path, &ours.trash()).unwrap();
    assert_eq!(fs::read_to_string(path.join("live.txt")).unwrap(), "at work");
    assert!(theirs.repo.is_worktree_intact(&path, BRANCH).unwrap());
    assert_eq!(ours.repo.list_worktrees().unwrap().len(), 1);
}

#[test]
fn one_agents_git_does_not_remove_anothers_workspace() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let (first, second) = (scene.at("one"), scene.at("two"));
    scene.repo.prepare_worktree(&first, "mainstem/one", &base, &scene.trash(), KEEP).unwrap();
    for _ in 0..2 {
        prepare(&scene, &second, &base);
        write(&second, "unsaved.txt", "x");
        let removed = plain(&first, &["worktree", "remove", "--force", second.to_str().unwrap()]);
        assert!(!removed.status.success());
        let said = String::from_utf8_lossy(&removed.stderr).into_owned();
        assert!(said.contains("mainstem works here"), "{said}");
        assert!(second.join("unsaved.txt").exists());
        git(&scene.top(), &["worktree", "unlock", second.to_str().unwrap()]);
    }
    // With its folder gone it is in nobody's way, though it is locked.
    prepare(&scene, &second, &base);
    fs::remove_dir_all(&second).unwrap();
    let third = scene.at("three");
    prepare(&scene, &third, &base);
    scene.repo.remove_worktree(&third, &scene.trash()).unwrap();
    scene.repo.remove_worktree(&second, &scene.trash()).unwrap();
    assert_eq!(scene.repo.list_worktrees().unwrap().len(), 2);
}

#[test]
fn a_branch_in_use_elsewhere_is_left_alone_and_another_one_is_used() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let path = scene.at("work");
    let prepare = |branch: &str| {
        let made = scene.repo.prepare_worktree(&path, branch, &base, &scene.trash(), KEEP);
        made.unwrap().branch.unwrap()
    };
    // Ours, and then a person works on it.
    assert_eq!(prepare(BRANCH), BRANCH);
    scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
    let theirs = scene.at("theirs");
    git(&scene.top(), &["worktree", "add", "-q", theirs.to_str().unwrap(), BRANCH]);
    write(&theirs, "f", "fix");
    let fix = commit(&theirs, "fix");
    for _ in 0..2 {
        assert_eq!(prepare(BRANCH), format!("{BRANCH}+2"));
    }
    assert_eq!(prepare("main"), "main+2");
    assert_eq!(git(&theirs, &["status", "--porcelain"]), "");
    assert_eq!(scene.tip(BRANCH), fix);
    let dropped = scene.repo.delete_owned_branch(BRANCH, &fix).unwrap();
    assert!(
        matches!(&dropped, BranchDeletion::Kept(why) if why.contains("checked out")),
        "{dropped:?}"
    );
    assert!(!scene.repo.hand_over_branch(BRANCH, &base).unwrap());
    assert_eq!(scene.tip(BRANCH), fix);
}

#[test]
fn the_repository_itself_can_never_be_a_workspace() {
    let scene = Scene::new();
    let base = scene.tip("main");
    for path in [scene.top(), scene.at(""), scene.top().join(".git/x"), "relative".into()] {
        let made = scene.repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP);
        assert!(matches!(made, Err(GitError::NotOurs { .. })), "{path:?}: {made:?}");
        let removed = scene.repo.remove_worktree(&path, &scene.trash());
        assert!(matches!(removed, Err(GitError::NotOurs { .. })), "{path:?}: {removed:?}");
    }
    assert!(scene.top().join("a.txt").exists());
}

#[test]
fn removing_works_with_either_half_missing_and_twice() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let theirs = scene.at("theirs");
    git(&scene.top(), &["worktree", "add", "-q", "-b", "theirs", theirs.to_str().unwrap()]);
    for half in ["none", "folder", "admin", "both"] {
        let path = scene.at("work");
        prepare(&scene, &path, &base);
        let admin = admin_of(&scene, &path);
        if matches!(half, "folder" | "both") {
            fs::remove_dir_all(&path).unwrap();
        }
        if matches!(half, "admin" | "both") {
            fs::remove_dir_all(&admin).unwrap();
        }
        scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        assert!(!path.exists() && !admin.exists(), "{half}");
        assert_eq!(scene.repo.list_worktrees().unwrap().len(), 2, "{half}");
    }
    assert!(kept(&scene).is_empty());
    assert!(theirs.join("a.txt").exists());
}

#[test]
fn a_lane_is_reset_to_a_commit_and_keeps_ignored_files() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let next = scene.change(&base, &[("dir/b.txt", None), ("c.txt", Some("c\n"))]);
    let path = scene.at("lane 0");
    scene.repo.prepare_detached_worktree(&path, &base, &scene.trash()).unwrap();
    write(&path, "target/warm", "w");
    write(&path, "left over", "x");
    write(&path, "a.txt", "edited by a gate");
    scene.repo.prepare_detached_worktree(&path, &next, &scene.trash()).unwrap();
    assert_eq!(git(&path, &["rev-parse", "HEAD"]).trim(), next.as_str());
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    assert!(path.join("target/warm").exists() && !path.join("left over").exists());
    assert!(!plain(&path, &["symbolic-ref", "-q", "HEAD"]).status.success());
}

#[test]
fn files_of_a_lane_can_be_made_newer_than_a_build_of_the_future() {
    let scene = Scene::new();
    let path = scene.at("lane 0");
    scene.repo.prepare_detached_worktree(&path, &scene.tip("main"), &scene.trash()).unwrap();
    write(&path, "target/warm", "w");
    let time = |name: &str| fs::symlink_metadata(path.join(name)).unwrap().modified().unwrap();
    let built = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    scene.repo.touch_tracked_files(&path, built).unwrap();
    assert!(time("a.txt") > built && time("dir/b.txt") > built);
    assert!(time("target/warm") < built, "what was built keeps its time");
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
}

#[test]
fn planted_hooks_and_monitors_never_run() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let next = scene.change(&base, &[("a.txt", Some("next\n"))]);
    let trace = scene.plant_hooks();
    let path = scene.at("work");
    prepare_quietly(&scene, &path, &base);
    write(&path, "new", "n");
    scene.repo.is_worktree_dirty(&path).unwrap();
    scene.repo.take_snapshot(&path, "refs/mainstem/snapshots/t/1", "s").unwrap();
    scene.repo.commit_leftovers(&path, BRANCH, "m", &super::who(), 0).unwrap().commit.unwrap();
    prepare_quietly(&scene, &path, &next);
    let _ = scene.repo.update_ref("refs/heads/main", &next, Some(&base), "land").unwrap();
    let _ = scene.repo.update_checkouts("main", &base, &next).unwrap();
    scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
    assert!(!trace.exists(), "{}", fs::read_to_string(trace).unwrap());
    // The trap itself works: the user's own git springs it.
    plain(&scene.top(), &["status"]);
    assert!(trace.exists());
}

fn prepare_quietly(scene: &Scene, path: &Path, base: &Oid) {
    scene.repo.prepare_worktree(path, BRANCH, base, &scene.trash(), KEEP).unwrap();
}

#[test]
fn submodules_the_user_has_are_filled_without_a_network() {
    let scene = Scene::new();
    let library = scene.at("library");
    fs::create_dir(&library).unwrap();
    git(&library, &["init", "-q", "-b", "main"]);
    write(&library, "lib.txt", "library\n");
    commit(&library, "lib");
    git(&scene.top(), &["submodule", "--quiet", "add", library.to_str().unwrap(), "vendor/my lib"]);
    let base = scene.commit("with a submodule");
    // Only the copy inside the user's repository is left.
    fs::remove_dir_all(&library).unwrap();
    let before = fs::read(scene.repo.common_dir().join("config")).unwrap();
    let path = scene.at("work");
    prepare(&scene, &path, &base);
    let file = path.join("vendor/my lib/lib.txt");
    assert_eq!(fs::read_to_string(&file).unwrap(), "library\n");
    fs::write(&file, "edited\n").unwrap();
    prepare(&scene, &path, &base);
    assert_eq!(fs::read_to_string(&file).unwrap(), "library\n");
    assert_eq!(fs::read(scene.repo.common_dir().join("config")).unwrap(), before);
    scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
}

#[test]
fn parallel_workspaces_do_not_disturb_each_other() {
    let scene = Scene::new();
    let base = scene.tip("main");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (scene, base) = (&scene, &base);
            scope.spawn(move || {
                let path = scene.at(&format!("pool/{n}/same name"));
                let branch = format!("mainstem/t-{n}");
                scene.repo.prepare_worktree(&path, &branch, base, &scene.trash(), KEEP).unwrap();
                assert!(scene.repo.is_worktree_intact(&path, &branch).unwrap());
            });
        }
    });
    assert_eq!(scene.repo.list_worktrees().unwrap().len(), 9);
}

#[test]
fn ignored_files_are_copied_only_if_asked_for_and_really_ignored() {
    let scene = Scene::new();
    scene.write("secret.ignored", "s");
    scene.write("dir/deep.ignored", "s");
    scene.write("plain.txt", "untracked, not ignored");
    scene.write("target/big", "ignored, not asked for");
    let patterns = ["*.ignored".to_owned(), "plain.txt".to_owned(), "a.txt".to_owned()];
    let mut found = scene.repo.list_ignored_to_copy(scene.repo.dir(), &patterns).unwrap();
    found.sort();
    assert_eq!(found, [Path::new("dir/deep.ignored"), Path::new("secret.ignored")]);
    assert!(scene.repo.list_ignored_to_copy(scene.repo.dir(), &[]).unwrap().is_empty());
}

#[test]
fn a_git_killed_at_any_moment_of_making_a_worktree_is_no_obstacle() {
    let scene = Scene::new();
    for n in 0..300 {
        scene.write(&format!("many/{n}.txt"), &format!("{n}\n"));
    }
    let base = scene.commit("many files");
    let path = scene.at("work");
    for n in 0..12 {
        let mut killed = std::process::Command::new("git")
            .current_dir(scene.top())
            .args(["worktree", "add", "-q", "-B", BRANCH])
            .arg(&path)
            .stderr(std::process::Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        // Not a protocol: the moment shall differ from round to round, and any is right.
        std::thread::sleep(std::time::Duration::from_micros(700 * n));
        // With its checkout, which is a process of its own: nothing of it may go on.
        let group = rustix::process::Pid::from_child(&killed);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        killed.wait().unwrap();
        scene.repo.sweep_stale_locks(None).unwrap();
        prepare(&scene, &path, &base);
        scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
    }
    prepare(&scene, &path, &base);
    let kept = kept(&scene);
    let inside: Vec<_> =
        kept.iter().map(|dir| fs::read_dir(dir).unwrap().flatten().collect::<Vec<_>>()).collect();
    assert!(kept.is_empty(), "{inside:?}");
    git(&scene.top(), &["fsck", "--strict"]);
}

#[test]
fn what_a_killed_git_left_elsewhere_does_not_stop_everybody_for_ever() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let dead = scene.repo.common_dir().join("worktrees/somebody");
    fs::create_dir_all(&dead).unwrap();
    fs::write(dead.join("locked"), "initializing").unwrap();
    fs::write(dead.join("gitdir"), "/somewhere/else/.git\n").unwrap();
    fs::write(dead.join("commondir"), "").unwrap();
    assert!(!plain(&scene.top(), &["worktree", "list"]).status.success(), "git copes by now");
    prepare(&scene, &scene.at("work"), &base);
    assert!(!dead.exists());
    git(&scene.top(), &["worktree", "list"]);
}

#[test]
fn a_sparse_checkout_is_handed_on() {
    let scene = Scene::new();
    let base = scene.tip("main");
    git(&scene.top(), &["sparse-checkout", "set", "--cone", "nothing"]);
    assert!(!scene.top().join("dir").exists());
    let path = scene.at("work");
    prepare(&scene, &path, &base);
    assert!(path.join("a.txt").exists() && !path.join("dir").exists());
    write(&path, "a.txt", "x\n");
    let made =
        scene.repo.commit_leftovers(&path, BRANCH, "m", &super::who(), 0).unwrap().commit.unwrap();
    assert!(scene.names(&made).contains(&"dir/b.txt".to_owned()));
    prepare(&scene, &path, &base);
}

#[test]
fn a_repository_with_another_ref_store_works_too() {
    let dir = tempfile::tempdir().unwrap();
    let made = plain(dir.path(), &["init", "-q", "-b", "main", "--ref-format=reftable", "r"]);
    if !made.status.success() {
        return; // A git before 2.45 has no other one.
    }
    let repo = super::super::Repo::discover(&dir.path().join("r")).unwrap();
    let base = repo.ensure_first_commit("main").unwrap();
    let path = fs::canonicalize(dir.path()).unwrap().join("work");
    for _ in 0..2 {
        repo.prepare_worktree(&path, BRANCH, &base, &dir.path().join("trash"), KEEP).unwrap();
        write(&path, "f", "x");
        assert!(repo.take_snapshot(&path, "refs/mainstem/snapshots/t/1", "s").unwrap().is_some());
        let saved = repo.commit_leftovers(&path, BRANCH, "m", &super::who(), 0).unwrap();
        assert!(saved.commit.is_some());
    }
}

#[test]
fn a_submodule_can_be_the_repository() {
    let scene = Scene::new();
    let outer = scene.at("outer");
    fs::create_dir(&outer).unwrap();
    git(&outer, &["init", "-q", "-b", "main"]);
    git(&outer, &["submodule", "--quiet", "add", scene.top().to_str().unwrap(), "inner"]);
    let inner = outer.join("inner");
    let repo = super::super::Repo::discover(&inner).unwrap();
    assert_eq!(repo.toplevel(), Some(inner.as_path()));
    let base = repo.resolve_commit("main").unwrap().unwrap();
    let path = scene.at("work");
    repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP).unwrap();
    assert_eq!(super::super::Repo::discover(&path).unwrap().toplevel(), Some(inner.as_path()));
    write(&path, "a.txt", "landed\n");
    let tip = repo.commit_leftovers(&path, BRANCH, "m", &super::who(), 0).unwrap().commit.unwrap();
    let _ = repo.update_ref("refs/heads/main", &tip, Some(&base), "land").unwrap();
    assert_eq!(
        repo.update_checkouts("main", &base, &tip).unwrap(),
        super::super::CheckoutUpdate::Updated
    );
    assert_eq!(fs::read_to_string(inner.join("a.txt")).unwrap(), "landed\n");
    assert_eq!(git(&inner, &["status", "--porcelain"]), "");
}

#[test]
fn only_what_is_or_was_a_worktree_of_ours_would_be_lost() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let path = scene.at("work");
    let lose = || scene.repo.would_lose_work(&path).unwrap();
    assert!(!lose());
    write(&path, "somebody's", "precious");
    assert!(!lose(), "it is moved aside and kept");
    fs::remove_dir_all(&path).unwrap();
    scene.repo.prepare_worktree(&path, "mainstem/t-1", &base, &scene.trash(), KEEP).unwrap();
    assert!(lose());
    fs::remove_file(path.join(".git")).unwrap();
    assert!(lose(), "it would be repaired and reset");
    git(&path, &["init", "-q"]);
    assert!(lose());
    // A file in its place cannot be kept by a snapshot, so it is moved aside and stays.
    fs::remove_dir_all(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    assert!(!lose());
    scene.repo.prepare_worktree(&path, "mainstem/t-1", &base, &scene.trash(), KEEP).unwrap();
    crate::files::empty_trash(&scene.trash()).unwrap();
    let kept: Vec<_> = fs::read_dir(scene.trash()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::read_to_string(&kept[0]).unwrap(), "precious");
}

#[test]
fn a_worktree_is_held_only_if_all_of_it_is() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let path = scene.at("work");
    scene.repo.prepare_worktree(&path, "mainstem/t-1", &base, &scene.trash(), KEEP).unwrap();
    let held = || scene.repo.is_worktree_kept(&path, KEEP, "refs/heads/main").unwrap();
    assert!(held());
    write(&path, "new", "n");
    assert!(!held(), "an untracked file");
    let tip = super::commit(&path, "agent");
    assert!(!held(), "a commit that only its branch has");
    scene.repo.keep_as_snapshot(&tip, KEEP, "test").unwrap();
    assert!(held());
    git(&path, &["checkout", "-q", "--detach"]);
    write(&path, "a.txt", "edited\n");
    super::commit(&path, "detached");
    assert!(!held());
}
