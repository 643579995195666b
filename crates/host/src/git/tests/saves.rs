use std::fs;
use std::path::PathBuf;

use mainstem_core::id::Oid;

use super::super::WorktreeSnapshot;
use super::{KEEP, Scene, commit, git, plain, who, write};

const BRANCH: &str = "mainstem/t-1";
const PREFIX: &str = "refs/mainstem/snapshots/t-1/1";

fn workspace(scene: &Scene) -> (PathBuf, Oid) {
    let base = scene.tip("main");
    let path = scene.at("work");
    scene.repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP).unwrap();
    (path, base)
}

fn snapshot(scene: &Scene, path: &std::path::Path) -> WorktreeSnapshot {
    scene.repo.take_snapshot(path, PREFIX, "snapshot").unwrap().unwrap()
}

/// The same, found and not made.
fn again(kept: &WorktreeSnapshot) -> WorktreeSnapshot {
    WorktreeSnapshot { is_new: false, ..kept.clone() }
}

#[test]
fn a_snapshot_holds_all_files_but_ignored_ones_and_touches_nothing() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    write(&path, "a.txt", "edited\n");
    write(&path, "ünï cödé/ sp ace", "odd\n");
    write(&path, "line\nend", "odd\n");
    write(&path, ":(exclude)x", "odd\n");
    write(&path, "secret.ignored", "no");
    write(&path, "staged", "s\n");
    git(&path, &["add", "staged"]);
    fs::remove_file(path.join("dir/b.txt")).unwrap();
    let before = git(&path, &["status", "--porcelain", "-z"]);

    let kept = snapshot(&scene, &path);
    let mut names = scene.names(&kept.commit);
    names.sort();
    let wanted = [".gitignore", ":(exclude)x", "a.txt", "line\nend", "staged", "ünï cödé/ sp ace"];
    assert_eq!(names, wanted);
    assert_eq!(scene.show(&kept.commit, "a.txt"), "edited\n");
    assert_eq!((kept.number, kept.refname.as_str()), (1, &*format!("{PREFIX}/1")));
    assert_eq!(scene.repo.read_ref(&kept.refname).unwrap(), Some(kept.commit.clone()));
    assert_eq!(scene.tip(&format!("{}^", kept.commit)), base);
    assert_eq!(scene.repo.tree_of(&kept.commit).unwrap(), kept.tree);
    assert_eq!(git(&path, &["status", "--porcelain", "-z"]), before);
    assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(base));
    // The private index stays for the next one, and goes with the worktree.
    let left = || fs::read_dir(scene.repo.common_dir().join("mainstem/tmp")).unwrap().count();
    assert_eq!(left(), 1);
    scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
    assert_eq!(left(), 0);
}

#[test]
fn snapshots_are_numbered_and_an_unchanged_one_is_not_repeated() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    let clean = snapshot(&scene, &path);
    assert_eq!((clean.number, &clean.commit), (1, &base));
    assert!(clean.is_new);
    assert_eq!(snapshot(&scene, &path), again(&clean));
    write(&path, "a.txt", "edited\n");
    let edited = snapshot(&scene, &path);
    assert_eq!(edited.number, 2);
    assert_eq!(snapshot(&scene, &path), again(&edited));
    // Same size, same second: only the content tells.
    write(&path, "a.txt", "EDITED\n");
    assert_eq!(snapshot(&scene, &path).number, 3);
    commit(&path, "agent");
    let committed = snapshot(&scene, &path);
    assert_eq!(committed.number, 4);
    assert_eq!(Some(committed.commit), scene.repo.read_worktree_tip(&path).unwrap());
    assert_eq!(scene.repo.take_snapshot(&scene.at("nowhere"), PREFIX, "s").unwrap(), None);
}

#[test]
fn the_files_of_nested_repositories_are_not_lost() {
    let scene = Scene::new();
    let (path, _) = workspace(&scene);
    write(&path, "tool/src/x.rs", "x\n");
    write(&path, "tool/target/big", "ignored by the outer rules");
    git(&path.join("tool"), &["init", "-q"]);
    write(&path, "tool/src/inner/y.rs", "y\n");
    git(&path.join("tool/src/inner"), &["init", "-q"]);
    commit(&path.join("tool/src/inner"), "inner has commits");
    let kept = snapshot(&scene, &path);
    let names = scene.names(&kept.commit);
    assert!(names.contains(&"tool/src/x.rs".to_owned()), "{names:?}");
    assert!(names.contains(&"tool/src/inner/y.rs".to_owned()), "{names:?}");
    assert!(
        !names.iter().any(|name| name.contains("target") || name.contains(".git/")),
        "{names:?}"
    );
    assert!(kept.notes.iter().any(|note| note.starts_with("tool ")), "{:?}", kept.notes);
    let same = snapshot(&scene, &path);
    assert_eq!((same.commit, same.number, same.is_new), (kept.commit, 1, false));
    let made = scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    assert_eq!(scene.names(&made), names);
}

#[test]
fn a_conflicted_or_unfinished_state_can_be_kept() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    let other = scene.change(&base, &[("a.txt", Some("other\n"))]);
    write(&path, "a.txt", "mine\n");
    commit(&path, "mine");
    assert!(!plain(&path, &["merge", other.as_str()]).status.success());
    let kept = snapshot(&scene, &path);
    assert!(scene.show(&kept.commit, "a.txt").contains("<<<<<<<"));
    assert!(git(&path, &["status", "--porcelain"]).starts_with("UU"));
    git(&path, &["merge", "--abort"]);
    assert!(!plain(&path, &["rebase", other.as_str()]).status.success());
    assert!(scene.show(&snapshot(&scene, &path).commit, "a.txt").contains(">>>>>>>"));
}

#[test]
fn a_tampered_workspace_still_gives_up_its_files() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    write(&path, "work.txt", "w\n");
    fs::remove_file(path.join(".git")).unwrap();
    let kept = snapshot(&scene, &path);
    assert_eq!(scene.tip(&format!("{}^", kept.commit)), base);
    // An agent that starts its own history in place.
    git(&path, &["init", "-q"]);
    commit(&path, "a history of its own");
    write(&path, "work.txt", "more\n");
    let kept = snapshot(&scene, &path);
    assert_eq!(scene.show(&kept.commit, "work.txt"), "more\n");
    // And one whose admin folder is gone altogether.
    let admin = scene.repo.list_admin_dirs(&path).unwrap().remove(0);
    fs::write(admin.join("HEAD"), "garbage").unwrap();
    write(&path, "work.txt", "even more\n");
    let kept = snapshot(&scene, &path);
    assert_eq!(scene.show(&kept.commit, "work.txt"), "even more\n");
    assert_eq!(kept.number, 3);
    fs::remove_dir_all(admin).unwrap();
    write(&path, "work.txt", "and more\n");
    assert_eq!(scene.show(&snapshot(&scene, &path).commit, "work.txt"), "and more\n");
}

#[test]
fn a_hostile_git_file_and_commondir_are_not_followed() {
    let scene = Scene::new();
    let (path, _) = workspace(&scene);
    let trace = scene.at("ran");
    let evil = scene.at("evil");
    fs::create_dir(&evil).unwrap();
    git(&evil, &["init", "-q", "-b", "main"]);
    let command = format!("touch '{}'; cat", trace.display());
    git(&evil, &["config", "filter.evil.clean", &command]);
    git(&evil, &["config", "core.fsmonitor", &command]);
    write(&path, ".gitattributes", "* filter=evil\n");
    let admin = scene.repo.list_admin_dirs(&path).unwrap().remove(0);
    fs::write(path.join(".git"), format!("gitdir: {}\n", evil.join(".git").display())).unwrap();
    fs::write(admin.join("commondir"), evil.join(".git").as_os_str().as_encoded_bytes()).unwrap();
    write(&path, "work.txt", "w\n");
    let kept = snapshot(&scene, &path);
    assert_eq!(scene.show(&kept.commit, "work.txt"), "w\n");
    scene.repo.is_worktree_dirty(&path).unwrap();
    scene.repo.read_worktree_tip(&path).unwrap();
    assert!(!trace.exists());
}

#[test]
fn unborn_and_hidden_edits_are_kept_too() {
    let scene = Scene::new();
    let (path, _) = workspace(&scene);
    git(&path, &["update-index", "--assume-unchanged", "a.txt"]);
    write(&path, "a.txt", "hidden\n");
    assert_eq!(scene.show(&snapshot(&scene, &path).commit, "a.txt"), "hidden\n");
    git(&path, &["checkout", "-q", "--orphan", "fresh"]);
    let kept = snapshot(&scene, &path);
    assert_eq!(scene.show(&kept.commit, "a.txt"), "hidden\n");
    assert_eq!(scene.repo.resolve_commit(&format!("{}^", kept.commit)).unwrap(), None);
    assert_eq!(snapshot(&scene, &path), again(&kept));
}

#[test]
fn leftovers_become_one_commit_on_the_branch() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    let save =
        || scene.repo.commit_leftovers(&path, BRANCH, "left over\n", &who(), 1_700_000_000_000);
    assert_eq!(save().unwrap().commit, None);
    write(&path, "a.txt", "edited\n");
    write(&path, "new file", "n\n");
    write(&path, "x.ignored", "i");
    fs::remove_file(path.join("dir/b.txt")).unwrap();
    let admin = scene.repo.list_admin_dirs(&path).unwrap().remove(0);
    fs::write(admin.join("index.lock"), "").unwrap();
    let made = save().unwrap().commit.unwrap();
    assert_eq!(scene.names(&made), [".gitignore", "a.txt", "new file"]);
    assert_eq!(scene.tip(&format!("{made}^")), base);
    assert_eq!(scene.tip(BRANCH), made);
    assert_eq!(scene.repo.read_author(&made).unwrap(), who());
    assert_eq!(git(&path, &["log", "-1", "--format=%ct"]).trim(), "1700000000");
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    assert!(!scene.repo.is_worktree_dirty(&path).unwrap());
    assert_eq!(save().unwrap().commit, None);
}

#[test]
fn an_index_that_the_agent_damaged_is_made_whole_though_nothing_is_left_over() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    let index = scene.repo.list_admin_dirs(&path).unwrap().remove(0).join("index");
    fs::write(&index, "no index").unwrap();
    let saved = scene.repo.commit_leftovers(&path, BRANCH, "left over\n", &who(), 0).unwrap();
    assert_eq!((saved.commit, scene.tip(BRANCH)), (None, base));
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    git(&path, &["fsck", "--no-progress"]);
}

#[test]
fn leftovers_of_an_unfinished_merge_remember_both_sides() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    let other = scene.change(&base, &[("other.txt", Some("o\n"))]);
    write(&path, "a.txt", "mine\n");
    commit(&path, "mine");
    git(&path, &["merge", "-q", "--no-commit", other.as_str()]);
    let made = scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    assert!(scene.repo.is_ancestor(&other, &made).unwrap());
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    assert!(git(&path, &["status"]).contains("nothing to commit"));
}

#[test]
fn leftovers_never_move_a_branch_that_is_not_the_workspaces() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    git(&path, &["checkout", "-q", "-b", "release"]);
    write(&path, "a.txt", "edited\n");
    let made = scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    assert_eq!(scene.tip("release"), base);
    assert_eq!(scene.tip(BRANCH), base);
    assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(made.clone()));
    // Detached now, and again so.
    write(&path, "a.txt", "more\n");
    let more = scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    assert_eq!(scene.tip(&format!("{more}^")), made);
    assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(more));
    git(&path, &["checkout", "-q", "--orphan", "unborn"]);
    let unborn =
        scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(unborn));
    assert_eq!(scene.repo.read_ref("refs/heads/unborn").unwrap(), None);
}
