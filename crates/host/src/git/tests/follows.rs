use std::fs;
use std::process::Command;

use mainstem_core::id::Oid;

use super::super::{Cas, Follow};
use super::{Scene, commit, git};

fn status(scene: &Scene) -> String {
    git(&scene.top(), &["-c", "core.quotePath=false", "status", "--porcelain", "-uall"])
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.top().join(name)).unwrap()
}

fn land(scene: &Scene, files: &[(&str, Option<&str>)]) -> Follow {
    let old = scene.tip("main");
    let new = scene.change(&old, files);
    move_main(scene, &old, &new);
    scene.repo.follow_checkout("main", &old, &new).unwrap()
}

fn move_main(scene: &Scene, old: &Oid, new: &Oid) {
    let moved = scene.repo.update_ref("refs/heads/main", new, Some(old), "land").unwrap();
    assert_eq!(moved, Cas::Moved);
}

fn left(follow: Follow) -> String {
    let Follow::Left { why } = follow else { panic!("{follow:?}") };
    why
}

/// The commands a message quotes, in order.
fn commands(why: &str) -> Vec<&str> {
    why.split('`').skip(1).step_by(2).collect()
}

/// Runs a command exactly as a person would paste it.
fn paste(scene: &Scene, command: &str) {
    let out = Command::new("sh").current_dir(scene.at("")).args(["-c", command]).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
}

fn record(scene: &Scene) -> bool {
    scene.repo.common_dir().join("mainstem-left").exists()
}

#[test]
fn a_checkout_left_once_catches_up_with_everything_as_soon_as_nothing_is_in_the_way() {
    let scene = Scene::new();
    scene.write("n ü/x", "mine\n");
    let first = [("a.txt", Some("landed\n")), ("n ü/x", Some("new\n"))];
    let why = left(land(&scene, &first));
    assert!(why.contains("n ü/x is not under version control"), "{why}");
    // It is still in the way: left again, and not half way between.
    let why = left(land(&scene, &[("dir/b.txt", Some("second\n"))]));
    assert!(why.contains("n ü/x is not under version control"), "{why}");
    assert_eq!(read(&scene, "dir/b.txt"), "b\n");
    assert_eq!(read(&scene, "n ü/x"), "mine\n");

    fs::rename(scene.top().join("n ü/x"), scene.top().join("mine")).unwrap();
    scene.write(".gitignore", "my edit\n");
    assert_eq!(land(&scene, &[("c.txt", Some("third\n"))]), Follow::Moved);
    assert_eq!(status(&scene), " M .gitignore\n?? mine\n");
    assert_eq!(read(&scene, "a.txt"), "landed\n");
    assert_eq!(read(&scene, "n ü/x"), "new\n");
    assert_eq!(read(&scene, "mine"), "mine\n");
    assert!(!record(&scene));
}

#[test]
fn the_advice_for_a_file_in_the_way_works_as_printed() {
    let scene = Scene::new();
    scene.write("c.txt", "mine\n");
    let why = left(land(&scene, &[("c.txt", Some("new\n")), ("a.txt", Some("landed\n"))]));
    fs::rename(scene.top().join("c.txt"), scene.top().join("mine")).unwrap();
    paste(&scene, commands(&why)[0]);
    assert_eq!(status(&scene), "?? mine\n");
    // The stale record does not mislead the next landing, nor hide what the person staged since.
    scene.write("dir/b.txt", "staged\n");
    git(&scene.top(), &["add", "dir/b.txt"]);
    assert!(record(&scene));
    assert_eq!(land(&scene, &[("d.txt", Some("d\n"))]), Follow::Moved);
    assert_eq!(status(&scene), "M  dir/b.txt\n?? mine\n");
    assert!(!record(&scene));
}

#[test]
fn the_advice_for_an_edited_file_works_as_printed_and_keeps_both_changes() {
    for staged in [false, true] {
        let scene = Scene::new();
        scene.write("o'dd name", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        scene.commit("more");
        scene.write("o'dd name", "1\n2\n3\n4\n5\n6\n7\n8\nmine\n");
        if staged {
            git(&scene.top(), &["add", "-A"]);
        }
        let landed = ("o'dd name", Some("theirs\n2\n3\n4\n5\n6\n7\n8\n9\n"));
        let why = left(land(&scene, &[landed, ("a.txt", Some("landed\n"))]));
        assert!(why.contains("o'dd name was changed here"), "{why}");
        let steps = commands(&why);
        assert_eq!(steps.len(), 4, "{why}");
        for step in steps {
            paste(&scene, step);
        }
        assert_eq!(read(&scene, "o'dd name"), "theirs\n2\n3\n4\n5\n6\n7\n8\nmine\n");
        assert_eq!(read(&scene, "a.txt"), "landed\n");
        assert_eq!(status(&scene).trim_start(), "M  \"o'dd name\"\n");
    }
}

#[test]
fn a_checkout_left_because_of_an_edit_follows_once_the_edit_is_gone() {
    let scene = Scene::new();
    scene.write("a.txt", "my edit\n");
    let _ = left(land(&scene, &[("a.txt", Some("landed\n")), ("c.txt", Some("c\n"))]));
    git(&scene.top(), &["add", "a.txt"]);
    let _ = left(land(&scene, &[("d.txt", Some("d\n"))]));
    assert_eq!(read(&scene, "a.txt"), "my edit\n");
    assert!(!scene.top().join("d.txt").exists());
    scene.write("a.txt", "one\ntwo\nthree\n");
    git(&scene.top(), &["add", "a.txt"]);
    assert_eq!(land(&scene, &[("e.txt", Some("e\n"))]), Follow::Moved);
    assert_eq!(status(&scene), "");
}

#[test]
fn a_person_who_switched_away_and_back_is_followed_from_where_they_are() {
    let scene = Scene::new();
    scene.write("c.txt", "mine\n");
    let _ = left(land(&scene, &[("c.txt", Some("new\n"))]));
    git(&scene.top(), &["checkout", "-q", "-f", "--detach"]);
    git(&scene.top(), &["checkout", "-q", "main"]);
    assert_eq!(land(&scene, &[("d.txt", Some("d\n"))]), Follow::Moved);
    assert_eq!(status(&scene), "");
    // One commit of the person's own, and on.
    scene.write("e.txt", "e\n");
    commit(&scene.top(), "mine");
    assert_eq!(land(&scene, &[("f.txt", Some("f\n"))]), Follow::Moved);
    assert_eq!(status(&scene), "");
}

#[test]
fn files_caught_up_by_hand_and_others_not_are_left_to_the_person() {
    let scene = Scene::new();
    scene.write("c.txt", "mine\n");
    let _ = left(land(&scene, &[("c.txt", Some("new\n")), ("a.txt", Some("landed\n"))]));
    fs::remove_file(scene.top().join("c.txt")).unwrap();
    git(&scene.top(), &["restore", "--staged", "--worktree", "--source=main", "a.txt"]);
    let why = left(land(&scene, &[("d.txt", Some("d\n"))]));
    assert_eq!(status(&scene), "D  c.txt\nD  d.txt\n");
    paste(&scene, commands(&why)[0]);
    assert_eq!(status(&scene), "");
}

#[test]
fn a_checkout_nobody_brought_along_is_not_taken_for_a_followed_one() {
    let scene = Scene::new();
    let old = scene.tip("main");
    let new = scene.change(&old, &[("a.txt", Some("landed\n"))]);
    // Killed right here, and never asked to follow.
    move_main(&scene, &old, &new);
    let why = left(land(&scene, &[("d.txt", Some("d\n"))]));
    assert!(why.contains("if you did not do that"), "{why}");
    assert_eq!(read(&scene, "a.txt"), "one\ntwo\nthree\n");
    paste(&scene, commands(&why)[0]);
    assert_eq!(status(&scene), "");
    assert_eq!(land(&scene, &[("e.txt", Some("e\n"))]), Follow::Moved);
}

#[test]
fn going_back_to_where_a_checkout_was_left_ends_the_matter() {
    let scene = Scene::new();
    scene.write("c.txt", "mine\n");
    let old = scene.tip("main");
    let _ = left(land(&scene, &[("c.txt", Some("new\n"))]));
    let landed = scene.tip("main");
    move_main(&scene, &landed, &old);
    assert_eq!(scene.repo.follow_checkout("main", &landed, &old).unwrap(), Follow::Moved);
    assert_eq!(status(&scene), "?? c.txt\n");
    assert!(!record(&scene));
}

#[test]
fn a_checkout_that_a_killed_follower_left_locked_is_freed_and_brought_along_by_the_next_life() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let lock = scene.repo.common_dir().join("index.lock");
    // What a life leaves that is killed with its git while that brings the checkout along.
    let tmp = scene.repo.common_dir().join("mainstem/tmp");
    fs::create_dir_all(&tmp).unwrap();
    fs::write(tmp.join("lock-1.abc-0"), lock.as_os_str().as_encoded_bytes()).unwrap();
    fs::write(&lock, "").unwrap();
    let why = left(land(&scene, &[("a.txt", Some("landed\n"))]));
    assert!(why.contains("index.lock"), "{why}");
    assert_ne!(scene.tip("main"), first);
    scene.repo.sweep_locks(None).unwrap();
    assert!(!lock.exists());
    scene.repo.catch_up("main").unwrap();
    assert_eq!(status(&scene), "");
    assert_eq!(read(&scene, "a.txt"), "landed\n");
    assert!(!record(&scene));
}

#[test]
fn catching_up_leaves_alone_what_shows_the_branch_already() {
    let scene = Scene::new();
    scene.write("a.txt", "my edit\n");
    scene.repo.catch_up("main").unwrap();
    assert_eq!(status(&scene), " M a.txt\n");
    assert_eq!(read(&scene, "a.txt"), "my edit\n");
}

#[test]
fn an_edit_that_meets_the_landing_leaves_the_checkout_and_the_message_warns_of_a_commit() {
    let scene = Scene::new();
    scene.write("a.txt", "mine\n");
    let before = fs::read(scene.repo.common_dir().join("index")).unwrap();
    let why = left(land(&scene, &[("a.txt", Some("theirs\n")), ("feature.txt", Some("f\n"))]));
    assert!(why.contains("would take the landing back"), "{why}");
    let behind = || scene.repo.left_behind("main").unwrap();
    assert!(behind().len() == 1 && behind()[0].1.contains("read-tree -m -u"), "{:?}", behind());
    assert_eq!(read(&scene, "a.txt"), "mine\n");
    assert!(!scene.top().join("feature.txt").exists());
    assert_eq!(fs::read(scene.repo.common_dir().join("index")).unwrap(), before);
    assert!(!scene.repo.common_dir().join("index.lock").exists());
    git(&scene.top(), &["checkout", "-q", "a.txt"]);
    paste(&scene, commands(&behind()[0].1)[0]);
    assert_eq!((behind(), status(&scene)), (Vec::new(), String::new()));
}

#[test]
fn a_checkout_is_brought_along_by_the_next_life_if_this_one_ends_right_after_the_landing() {
    let scene = Scene::new();
    let old = scene.tip("main");
    let new = scene.change(&old, &[("a.txt", Some("landed\n"))]);
    scene.repo.expect_move("main", &old, &new).unwrap().withdraw();
    assert!(!record(&scene), "the branch did not move");
    let _ = scene.repo.expect_move("main", &old, &new).unwrap();
    move_main(&scene, &old, &new);
    scene.repo.catch_up("main").unwrap();
    assert_eq!((status(&scene), read(&scene, "a.txt")), (String::new(), "landed\n".to_owned()));
    assert!(!record(&scene));
}
