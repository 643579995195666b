//! Agents with a git folder of their own: what they commit comes in, what they do to refs does not.

use std::fs;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::{KEEP, Scene, git};

pub(super) const BRANCH: &str = "mainstem/t-1";

/// A worktree made ready, with a view or as a clone.
pub(super) fn made(scene: &Scene, clone: bool) -> (PathBuf, Oid) {
    let path = scene.at("work space");
    let base = scene.repo.read_ref("refs/heads/main").unwrap().unwrap();
    scene.repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP).unwrap();
    if clone {
        scene.repo.create_agent_clone(&path, &scene.trash()).unwrap();
    } else {
        scene.repo.create_agent_git_dir(&path).unwrap();
    }
    (path, base)
}

/// What an agent's own git does there.
pub(super) fn commit(path: &Path, name: &str) -> Oid {
    fs::write(path.join(name), name).unwrap();
    git(path, &["add", "-A"]);
    git(path, &["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", name]);
    Oid::new(git(path, &["rev-parse", "HEAD"]).trim())
}

#[test]
fn commits_come_in_and_refs_do_not() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, base) = made(&scene, clone);
        assert_eq!(git(&path, &["status", "--porcelain"]), "");
        let tip = commit(&path, "one.txt");
        git(&path, &["update-ref", "refs/heads/main", "HEAD"]);
        git(&path, &["tag", "planted"]);
        git(&path, &["config", "core.hooksPath", "/nowhere"]);
        for _ in 0..2 {
            assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, true).unwrap(), None);
            let branch = scene.repo.read_ref(&format!("refs/heads/{BRANCH}")).unwrap();
            assert_eq!(branch.as_ref(), Some(&tip), "clone: {clone}");
        }
        assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(tip));
        assert_eq!(scene.repo.read_ref("refs/heads/main").unwrap(), Some(base));
        assert_eq!(scene.repo.read_ref("refs/tags/planted").unwrap(), None);
        assert!(scene.repo.list_refs("refs/mainstem/fetched").unwrap().is_empty());
        assert!(
            !fs::read_to_string(scene.repo.common_dir().join("config")).unwrap().contains("hooks")
        );
    }
}

#[test]
fn git_that_tidies_up_in_a_workspace_deletes_nothing_of_others() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, base) = made(&scene, clone);
        let other = scene.change(&base, &[("b.txt", Some("of another task"))]);
        git(&path, &["gc", "-q", "--prune=now"]);
        assert!(scene.repo.has_object(&other).unwrap(), "clone: {clone}");
        let tip = commit(&path, "one.txt");
        git(&path, &["gc", "-q", "--prune=now"]);
        assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, true).unwrap(), None);
        assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(tip), "clone: {clone}");
    }
}

#[test]
fn work_on_another_branch_comes_in_when_its_agent_is_gone() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, base) = made(&scene, clone);
        git(&path, &["checkout", "-qb", "elsewhere"]);
        let tip = commit(&path, "one.txt");
        scene.repo.import_agent_commits(&path, BRANCH, true).unwrap();
        assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(tip), "clone: {clone}");
        assert_eq!(scene.repo.read_ref(&format!("refs/heads/{BRANCH}")).unwrap(), Some(base));
    }
}

#[test]
fn the_place_is_used_again_whatever_became_of_it() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, base) = made(&scene, clone);
        commit(&path, "one.txt");
        scene.repo.import_agent_commits(&path, BRANCH, true).unwrap();
        // Twice: a death in between leaves either state.
        for again in [clone, !clone] {
            let (path, second) = made(&scene, again);
            assert_eq!(second, base);
            assert!(!path.join("one.txt").exists());
            assert_eq!(git(&path, &["status", "--porcelain"]), "");
            assert_eq!(git(&path, &["rev-parse", "HEAD"]).trim(), base.as_str());
        }
        scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        assert!(!path.exists());
        assert_eq!(scene.repo.list_worktrees().unwrap().len(), 1);
    }
}

#[test]
fn a_snapshot_holds_what_is_not_committed() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, _) = made(&scene, clone);
        let tip = commit(&path, "one.txt");
        fs::write(path.join("two.txt"), "two").unwrap();
        git(&path, &["add", "two.txt"]);
        scene.repo.import_agent_commits(&path, BRANCH, false).unwrap();
        let kept = scene.repo.take_snapshot(&path, KEEP, "test").unwrap().unwrap();
        let parent = scene.repo.resolve_commit(&format!("{}^1", kept.commit)).unwrap();
        assert_eq!(parent, Some(tip), "clone: {clone}");
        let names = git(&scene.top(), &["ls-tree", "-r", "--name-only", kept.commit.as_str()]);
        assert!(names.contains("one.txt") && names.contains("two.txt"), "{names}");
    }
}

#[test]
fn a_file_that_is_committed_although_it_is_ignored_stays() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, _) = made(&scene, clone);
        fs::write(path.join("kept.ignored"), "x").unwrap();
        git(&path, &["add", "-f", "kept.ignored"]);
        let tip = commit(&path, "one.txt");
        scene.repo.import_agent_commits(&path, BRANCH, true).unwrap();
        let who = super::who();
        let left = scene.repo.commit_leftovers(&path, BRANCH, "left", &who, 0).unwrap();
        assert_eq!(left.commit, None, "clone: {clone}");
        assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(tip));
    }
}

fn pipe(place: &Path) {
    let _ = fs::remove_file(place);
    let _ = fs::remove_dir_all(place);
    assert!(std::process::Command::new("mkfifo").arg(place).status().unwrap().success());
}

#[test]
fn pipes_in_an_agents_git_folder_hold_nobody_up() {
    for clone in [false, true] {
        for names in [
            &["HEAD", "packed-refs", "refs/heads/mainstem", "config", "index", "shallow"][..],
            &["refs", "info", "MERGE_HEAD"],
            &["commondir", "gitdir", "HEAD.lock", "rebase-merge"],
        ] {
            let scene = Scene::new();
            let (path, base) = made(&scene, clone);
            let own = PathBuf::from(git(&path, &["rev-parse", "--absolute-git-dir"]).trim());
            names.iter().for_each(|name| pipe(&own.join(name)));
            let began = std::time::Instant::now();
            assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, true).unwrap(), None);
            assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(base));
            assert_eq!(scene.repo.list_worktrees().unwrap().len(), 2);
            fs::write(path.join("left.txt"), "left").unwrap();
            let left = scene.repo.commit_leftovers(&path, BRANCH, "left", &super::who(), 0);
            assert!(left.unwrap().commit.is_some(), "clone: {clone}");
            scene.repo.take_snapshot(&path, KEEP, "test").unwrap();
            scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
            assert!(began.elapsed() < std::time::Duration::from_secs(60), "{names:?}");
        }
    }
}

#[test]
fn objects_of_an_agent_that_are_no_files_are_not_read() {
    [false, true].into_iter().for_each(read_no_object_that_is_no_file);
}

fn read_no_object_that_is_no_file(clone: bool) {
    let scene = Scene::new();
    let (path, base) = made(&scene, clone);
    let tip = commit(&path, "one.txt");
    let own = PathBuf::from(git(&path, &["rev-parse", "--absolute-git-dir"]).trim());
    let objects = own.join("objects");
    let object = objects.join(&tip.as_str()[..2]).join(&tip.as_str()[2..]);
    let aside = scene.at("object");
    for attack in ["pipe", "link", "gone", "garbage"] {
        if object.exists() {
            fs::rename(&object, &aside).unwrap();
        }
        match attack {
            "pipe" => pipe(&object),
            "link" => std::os::unix::fs::symlink(&aside, &object).unwrap(),
            "garbage" => fs::write(&object, "garbage").unwrap(),
            _ => {}
        }
        pipe(&objects.join("info/alternates"));
        let told = scene.repo.import_agent_commits(&path, BRANCH, true).unwrap();
        assert!(told.is_some_and(|told| told.contains("were refused")), "{attack}");
        let branch = scene.repo.read_ref(&format!("refs/heads/{BRANCH}")).unwrap();
        assert_eq!(branch.as_ref(), Some(&base), "{attack}");
        let _ = fs::remove_file(&object);
    }
    fs::rename(&aside, &object).unwrap();
    assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, true).unwrap(), None);
    assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(tip));
    assert!(fs::read_dir(scene.repo.common_dir().join("mainstem/tmp")).unwrap().next().is_none());
}

#[test]
fn a_rebase_that_stopped_behind_the_wall_is_seen() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, _) = made(&scene, clone);
        let own = PathBuf::from(git(&path, &["rev-parse", "--absolute-git-dir"]).trim());
        fs::create_dir(own.join("rebase-merge")).unwrap();
        let left = scene.repo.commit_leftovers(&path, BRANCH, "left", &super::who(), 0).unwrap();
        assert_eq!(left.stopped, Some("rebase"), "clone: {clone}");
    }
}

#[test]
fn commits_in_a_nested_repository_with_a_pipe_are_left_and_its_files_kept() {
    let scene = Scene::new();
    let (path, _) = made(&scene, false);
    let nested = path.join("nested");
    fs::create_dir(&nested).unwrap();
    git(&nested, &["init", "-q"]);
    fs::write(nested.join("file.txt"), "x").unwrap();
    pipe(&nested.join(".git/config"));
    let began = std::time::Instant::now();
    scene.repo.keep_nested_repos(&path, KEEP).unwrap();
    let kept = scene.repo.take_snapshot(&path, KEEP, "test").unwrap().unwrap();
    let names = git(&scene.top(), &["ls-tree", "-r", "--name-only", kept.commit.as_str()]);
    assert!(names.contains("nested/file.txt"), "{names}");
    assert!(began.elapsed() < std::time::Duration::from_secs(25));
}

#[test]
fn commits_outlive_the_folder_they_were_made_in_and_what_is_gone_is_no_error() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, base) = made(&scene, clone);
        let tip = commit(&path, "one.txt");
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, true).unwrap(), None);
        let branch = scene.repo.read_ref(&format!("refs/heads/{BRANCH}")).unwrap();
        assert_eq!(branch, Some(if clone { base } else { tip }), "clone: {clone}");
        scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        assert_eq!(scene.repo.list_worktrees().unwrap().len(), 1);
    }
}

#[test]
fn pipes_that_every_git_would_read_are_taken_out_of_the_tree() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, _) = made(&scene, clone);
        commit(&path, "one.txt");
        fs::create_dir_all(path.join("deep/er")).unwrap();
        fs::write(path.join("deep/er/two.txt"), "two").unwrap();
        for name in [".gitignore", "deep/.gitattributes", "deep/er/.gitignore", ".gitmodules"] {
            pipe(&path.join(name));
        }
        let began = std::time::Instant::now();
        scene.repo.import_agent_commits(&path, BRANCH, true).unwrap();
        scene.repo.keep_nested_repos(&path, KEEP).unwrap();
        let left = scene.repo.commit_leftovers(&path, BRANCH, "left", &super::who(), 0).unwrap();
        assert!(left.commit.is_some(), "clone: {clone}");
        pipe(&path.join("deep/.gitignore"));
        scene.repo.take_quick_snapshot(&path, KEEP, "test").unwrap();
        pipe(&path.join("deep/.gitignore"));
        assert!(scene.repo.is_worktree_kept(&path, KEEP, "refs/heads/main").unwrap());
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
    }
}
