//! Ways in which what is judged, kept or landed could differ from what is there.

use std::fs;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::{KEEP, Scene, commit, git, who, write};

const BRANCH: &str = "mainstem/t-1";

fn workspace(scene: &Scene) -> (PathBuf, Oid) {
    let base = scene.tip("main");
    let path = scene.at("work");
    scene.repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP).unwrap();
    (path, base)
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn tracked_files_are_set_back_however_they_were_changed_and_others_stay() {
    let scene = Scene::new();
    let lane = scene.at("lane");
    let tip = scene.tip("main");
    scene.repo.prepare_detached_worktree(&lane, &tip, &scene.trash()).unwrap();
    let changed = || scene.repo.list_tracked_changes(&lane, &tip).unwrap();
    assert_eq!(changed(), Vec::<PathBuf>::new());
    // Edited and hidden from git, deleted, staged, and a lock that a killed git left.
    write(&lane, "a.txt", "edited\n");
    git(&lane, &["update-index", "--assume-unchanged", "a.txt"]);
    fs::remove_file(lane.join("dir/b.txt")).unwrap();
    write(&lane, "built.txt", "built\n");
    write(&lane, "target/cache", "warm\n");
    let admin = PathBuf::from(git(&lane, &["rev-parse", "--absolute-git-dir"]).trim());
    fs::write(admin.join("index.lock"), "").unwrap();
    assert_eq!(changed(), [PathBuf::from("a.txt"), PathBuf::from("dir/b.txt")]);
    git(&lane, &["add", "dir/b.txt"]);
    assert_eq!(changed().len(), 2);

    scene.repo.restore_tracked_files(&lane, &tip).unwrap();
    assert_eq!(changed(), Vec::<PathBuf>::new());
    assert_eq!(read(&lane, "a.txt"), "one\ntwo\nthree\n");
    assert_eq!(read(&lane, "dir/b.txt"), "b\n");
    assert_eq!(
        (read(&lane, "built.txt"), read(&lane, "target/cache")),
        ("built\n".into(), "warm\n".into())
    );
}

#[test]
fn what_lies_outside_a_sparse_checkout_is_not_deleted_by_an_index_that_is_made_anew() {
    for harm in ["gone", "hiding"] {
        let scene = Scene::new();
        scene.write("in/x", "x\n");
        scene.write("in/y", "y\n");
        scene.commit("more");
        git(&scene.top(), &["sparse-checkout", "set", "--cone", "in"]);
        let (path, _) = workspace(&scene);
        assert!(!path.join("dir").exists());
        let index = git(&path, &["rev-parse", "--path-format=absolute", "--git-path", "index"]);
        match harm {
            "gone" => fs::remove_file(index.trim()).unwrap(),
            _ => drop(git(&path, &["update-index", "--assume-unchanged", "in/y"])),
        }
        write(&path, "in/x", "edited\n");
        write(&path, "dir/new", "outside\n");
        fs::remove_file(path.join("in/y")).unwrap();
        let mut wanted = vec![".gitignore", "a.txt", "dir/b.txt", "dir/new", "in/x"];
        if scene.repo.version() < (2, 41) {
            // It cannot be asked what lies outside: nothing is taken for deleted.
            wanted.push("in/y");
        }
        let kept = scene.repo.take_snapshot(&path, KEEP, "s").unwrap().unwrap();
        assert_eq!(scene.names(&kept.commit), wanted, "{harm}");
        let made =
            scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
        assert_eq!(scene.names(&made), wanted, "{harm}");
        assert_eq!(scene.show(&made, "in/x"), "edited\n");
        if scene.repo.version() >= (2, 41) {
            assert_eq!(git(&path, &["status", "--porcelain"]), "");
        }
    }
}

/// A repository with the submodule `lib` filled, and a workspace in which it is filled too.
fn with_submodule() -> (Scene, PathBuf, Oid) {
    let scene = Scene::new();
    let library = scene.at("library");
    fs::create_dir(&library).unwrap();
    git(&library, &["init", "-q", "-b", "main"]);
    write(&library, "l.txt", "1\n");
    commit(&library, "library");
    git(&scene.top(), &["submodule", "--quiet", "add", library.to_str().unwrap(), "lib"]);
    scene.commit("with a submodule");
    let (path, base) = workspace(&scene);
    assert_eq!(read(&path, "lib/l.txt"), "1\n");
    (scene, path, base)
}

#[test]
fn what_an_agent_did_in_a_submodule_outlives_its_workspace_and_can_be_checked_out() {
    let (scene, path, base) = with_submodule();
    let held = || scene.repo.is_worktree_kept(&path, KEEP, "refs/heads/main").unwrap();
    assert!(held(), "nothing was done in it yet");
    assert_eq!(scene.repo.keep_nested_repos(&path, KEEP).unwrap(), Vec::<String>::new());
    write(&path, "lib/new.txt", "precious\n");
    let inner = commit(&path.join("lib"), "work in the submodule");
    write(&path, "lib/dirty.txt", "not committed\n");
    fs::write(path.join("lib/l.txt"), "edited\n").unwrap();
    assert!(!held());
    let notes = scene.repo.keep_nested_repos(&path, KEEP).unwrap();
    assert!(notes.len() == 1 && notes[0].starts_with("lib is a repository"), "{notes:?}");
    assert_eq!(
        scene.repo.keep_nested_repos(&path, KEEP).unwrap(),
        Vec::<String>::new(),
        "once is enough"
    );
    let made = scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    assert_eq!(scene.repo.find_hygiene_flaws(&base, &made, 0).unwrap(), []);
    scene.repo.remove_worktree(&path, &scene.trash()).unwrap();

    // The lane, and then the user: both have the commit.
    let lane = scene.at("lane");
    let prepared = scene.repo.prepare_detached_worktree(&lane, &made, &scene.trash()).unwrap();
    assert!(!prepared.submodule_incomplete, "{:?}", prepared.notes);
    assert_eq!(read(&lane, "lib/new.txt"), "precious\n");
    let home = scene.repo.common_dir().join("modules/lib");
    let refs = git(&home, &["for-each-ref", "--format=%(refname)", "refs/mainstem/inside/t-1/1"]);
    let holding =
        |text: &str| refs.lines().any(|name| git(&home, &["log", "-p", "-1", name]).contains(text));
    assert!(holding("+precious") && holding("+not committed") && holding("+edited"), "{refs}");
    git(&scene.top(), &["merge", "-q", "--ff-only", made.as_str()]);
    git(&scene.top(), &["submodule", "--quiet", "update", "--no-fetch"]);
    assert_eq!(git(&scene.top().join("lib"), &["rev-parse", "HEAD"]).trim(), inner.as_str());
}

#[test]
fn a_submodule_at_a_commit_that_nobody_else_has_is_a_flaw_and_leaves_the_lane_unfilled() {
    let (scene, path, base) = with_submodule();
    write(&path, "lib/new.txt", "x\n");
    commit(&path.join("lib"), "never kept");
    let made = scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap().commit.unwrap();
    let flaws = scene.repo.find_hygiene_flaws(&base, &made, 0).unwrap();
    assert_eq!(flaws.len(), 1, "{flaws:?}");
    assert!(flaws[0].to_string().starts_with("lib: the submodule is at"), "{flaws:?}");
    let prepared =
        scene.repo.prepare_detached_worktree(&scene.at("lane"), &made, &scene.trash()).unwrap();
    assert!(prepared.submodule_incomplete && !prepared.notes.is_empty());
}

#[test]
fn a_submodule_without_its_git_file_or_its_folder_is_kept_too() {
    let (scene, path, _) = with_submodule();
    write(&path, "lib/new.txt", "x\n");
    let inner = commit(&path.join("lib"), "work");
    write(&path, "lib/dirty.txt", "dirty\n");
    fs::remove_file(path.join("lib/.git")).unwrap();
    assert_eq!(scene.repo.keep_nested_repos(&path, KEEP).unwrap().len(), 1);
    let home = scene.repo.common_dir().join("modules/lib");
    git(&home, &["cat-file", "-e", inner.as_str()]);
    let kept = git(&home, &["for-each-ref", "--format=%(refname)", "refs/mainstem/inside"]);
    assert!(kept.lines().any(|name| git(&home, &["ls-tree", "-r", name]).contains("dirty.txt")));

    let (scene, path, _) = with_submodule();
    write(&path, "lib/new.txt", "x\n");
    let inner = commit(&path.join("lib"), "work");
    fs::remove_dir_all(path.join("lib")).unwrap();
    assert_eq!(scene.repo.keep_nested_repos(&path, KEEP).unwrap().len(), 1);
    git(&scene.repo.common_dir().join("modules/lib"), &["cat-file", "-e", inner.as_str()]);
}

#[test]
fn the_history_of_a_repository_that_an_agent_made_is_kept_with_the_snapshot() {
    let scene = Scene::new();
    let (path, _) = workspace(&scene);
    for place in ["tool", "tool/deeper"] {
        write(&path.join(place), "x", "1\n");
        git(&path.join(place), &["init", "-q", "-b", "main"]);
        commit(&path.join(place), "one");
    }
    git(&path.join("tool"), &["checkout", "-q", "-b", "side"]);
    write(&path, "tool/y", "2\n");
    let side = commit(&path.join("tool"), "on a side branch");
    git(&path.join("tool"), &["checkout", "-q", "main"]);
    let deeper = Oid::new(git(&path.join("tool/deeper"), &["rev-parse", "HEAD"]).trim());
    let kept = scene.repo.take_snapshot(&path, KEEP, "s").unwrap().unwrap();
    assert!(
        kept.notes.iter().any(|note| note.contains("refs/mainstem/inside/")),
        "{:?}",
        kept.notes
    );
    for commit in [side, deeper] {
        let refs = git(&scene.top(), &["for-each-ref", "--contains", commit.as_str()]);
        assert!(refs.contains("refs/mainstem/inside/t-1/1/"), "{refs}");
    }
}

#[test]
fn a_rebase_that_stopped_on_its_way_is_told_again_and_again() {
    let scene = Scene::new();
    let (path, base) = workspace(&scene);
    for name in ["c1", "c2", "c3"] {
        write(&path, name, "x\n");
        commit(&path, name);
    }
    let edit = "-c sequence.editor=sed -i '2s/^pick/edit/'";
    let (flag, setting) = edit.split_once(' ').unwrap();
    git(&path, &[flag, setting, "rebase", "-q", "-i", base.as_str()]);
    let look = || scene.repo.commit_leftovers(&path, BRANCH, "m", &who(), 0).unwrap();
    assert_eq!((look().commit, look().stopped), (None, Some("rebase")));
    write(&path, "more", "x\n");
    assert!(look().commit.is_some());
    assert_eq!(look().stopped, Some("rebase"));
}
