use std::fs;
use std::process::Command;

use mainstem_core::id::Oid;

use super::super::{CheckoutReadiness, CheckoutUpdate, RefUpdateOutcome};
use super::{Scene, commit, git};

fn status(scene: &Scene) -> String {
    git(&scene.top(), &["-c", "core.quotePath=false", "status", "--porcelain", "-uall"])
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.top().join(name)).unwrap()
}

fn land(scene: &Scene, files: &[(&str, Option<&str>)]) -> CheckoutUpdate {
    let old = scene.tip("main");
    let new = scene.change(&old, files);
    move_main(scene, &old, &new);
    scene.repo.update_checkouts("main", &old, &new).unwrap()
}

fn move_main(scene: &Scene, old: &Oid, new: &Oid) {
    let moved = scene.repo.update_ref("refs/heads/main", new, Some(old), "land").unwrap();
    assert_eq!(moved, RefUpdateOutcome::Moved);
}

fn left(follow: CheckoutUpdate) -> String {
    let CheckoutUpdate::LeftUnchanged { why } = follow else { panic!("{follow:?}") };
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

/// A person is in the middle of something there: nothing follows until it is over.
fn busy(scene: &Scene) -> std::path::PathBuf {
    let path = scene.repo.common_dir().join("CHERRY_PICK_HEAD");
    fs::write(&path, format!("{}\n", scene.tip("main"))).unwrap();
    path
}

fn record(scene: &Scene) -> bool {
    scene.repo.common_dir().join("mainstem-left").exists()
}

#[test]
fn a_checkout_left_once_catches_up_with_everything_as_soon_as_nothing_is_in_the_way() {
    let scene = Scene::new();
    let pick = busy(&scene);
    let first = [("a.txt", Some("landed\n")), ("n ü/x", Some("new\n"))];
    let why = left(land(&scene, &first));
    assert!(why.contains("CHERRY_PICK_HEAD"), "{why}");
    // It still is: left again, and not half way between.
    let _ = left(land(&scene, &[("dir/b.txt", Some("second\n"))]));
    assert_eq!(read(&scene, "dir/b.txt"), "b\n");
    fs::remove_file(pick).unwrap();
    scene.write(".gitignore", "my edit\n");
    assert_eq!(land(&scene, &[("c.txt", Some("third\n"))]), CheckoutUpdate::Updated);
    assert_eq!(status(&scene), " M .gitignore\n");
    assert_eq!(read(&scene, "a.txt"), "landed\n");
    assert_eq!(read(&scene, "n ü/x"), "new\n");
    assert!(!record(&scene));
}

#[test]
fn the_advice_for_a_checkout_that_was_left_works_as_printed() {
    let scene = Scene::new();
    let pick = busy(&scene);
    let why = left(land(&scene, &[("c.txt", Some("new\n")), ("a.txt", Some("landed\n"))]));
    assert!(why.contains("would revert the landed work"), "{why}");
    let behind = || scene.repo.list_outdated_checkouts("main").unwrap();
    assert!(behind().len() == 1 && behind()[0].1.contains("read-tree -m -u"), "{:?}", behind());
    fs::remove_file(pick).unwrap();
    paste(&scene, commands(&why)[0]);
    assert_eq!((behind(), status(&scene)), (Vec::new(), String::new()));
    // The stale record does not mislead the next landing, nor hide what the person staged since.
    scene.write("dir/b.txt", "staged\n");
    git(&scene.top(), &["add", "dir/b.txt"]);
    assert!(record(&scene));
    assert_eq!(land(&scene, &[("d.txt", Some("d\n"))]), CheckoutUpdate::Updated);
    assert_eq!(status(&scene), "M  dir/b.txt\n");
    assert!(!record(&scene));
}

#[test]
fn an_edit_made_while_the_branch_moves_and_the_landing_are_both_in_the_file() {
    for staged in [false, true] {
        let scene = Scene::new();
        scene.write("o'dd name", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        scene.commit("more");
        scene.write("o'dd name", "1\n2\n3\n4\n5\n6\n7\n8\nmine\n");
        if staged {
            git(&scene.top(), &["add", "-A"]);
        }
        let landed = ("o'dd name", Some("theirs\n2\n3\n4\n5\n6\n7\n8\n9\n"));
        let follow = land(&scene, &[landed, ("a.txt", Some("landed\n"))]);
        assert!(
            matches!(&follow, CheckoutUpdate::UpdatedFilesAside { why } if why.contains("both")),
            "{follow:?}"
        );
        assert_eq!(read(&scene, "o'dd name"), "theirs\n2\n3\n4\n5\n6\n7\n8\nmine\n");
        assert_eq!(status(&scene), " M \"o'dd name\"\n");
        git(&scene.top(), &["commit", "-qam", "mine"]);
        assert_eq!(git(&scene.top(), &["show", "HEAD:a.txt"]), "landed\n");
        let both = git(&scene.top(), &["show", "HEAD:o'dd name"]);
        assert!(both.starts_with("theirs\n") && both.ends_with("mine\n"), "{both}");
        assert!(!record(&scene));
    }
}

#[test]
fn whatever_the_user_does_in_the_last_moment_a_commit_of_everything_keeps_the_landing() {
    type Dirt = fn(&Scene);
    let cases: &[(&str, Dirt)] = &[
        ("nothing", |_| {}),
        ("an edit elsewhere", |scene| scene.write(".gitignore", "my edit\n")),
        ("edited", |scene| scene.write("a.txt", "my edit\n")),
        ("staged", |scene| {
            scene.write("a.txt", "my edit\n");
            git(&scene.top(), &["add", "a.txt"]);
        }),
        ("untracked in the way", |scene| scene.write("n ü/x", "my edit\n")),
        ("staged where it is new", |scene| {
            scene.write("n ü/x", "my edit\n");
            git(&scene.top(), &["add", "-A"]);
        }),
        ("a file where a folder must be", |scene| scene.write("n ü", "my edit\n")),
        ("a folder where a file must be", |scene| scene.write("n ü/x/deep", "my edit\n")),
        ("ignored in the way", |scene| {
            fs::write(scene.repo.common_dir().join("info/exclude"), "x\n").unwrap();
            scene.write("n ü/x", "my edit\n");
        }),
        ("edited where it is deleted", |scene| scene.write("dir/b.txt", "my edit\n")),
        ("removed from the index", |scene| {
            git(&scene.top(), &["rm", "-q", "--cached", "a.txt"]);
        }),
        ("deleted", |scene| fs::remove_file(scene.top().join("a.txt")).unwrap()),
        ("deleted and staged", |scene| drop(git(&scene.top(), &["rm", "-q", "a.txt"]))),
    ];
    for (name, dirty) in cases {
        let scene = Scene::new();
        let old = scene.tip("main");
        let files = [("a.txt", Some("landed\n")), ("n ü/x", Some("new\n")), ("dir/b.txt", None)];
        let new = scene.change(&old, &files);
        dirty(&scene);
        let args = ["grep", "-l", "--untracked", "--no-exclude-standard", "my edit"];
        let is_there = || super::plain(&scene.top(), &args).status.success();
        let mine = is_there();
        move_main(&scene, &old, &new);
        let follow = scene.repo.update_checkouts("main", &old, &new).unwrap();
        assert!(
            matches!(follow, CheckoutUpdate::Updated | CheckoutUpdate::UpdatedFilesAside { .. }),
            "{name}: {follow:?}"
        );
        let head = || {
            let listed = git(&scene.top(), &["ls-tree", "-r", "--name-only", "-z", "HEAD"]);
            let there: Vec<&str> = listed.split('\0').collect();
            assert!(!there.contains(&"dir/b.txt"), "{name}: {there:?}");
            assert_eq!(git(&scene.top(), &["show", "HEAD:a.txt"]), "landed\n", "{name}");
            assert_eq!(git(&scene.top(), &["show", "HEAD:n ü/x"]), "new\n", "{name}");
        };
        head();
        let all = super::plain(&scene.top(), &["commit", "-qam", "everything of mine"]);
        head();
        // Nothing of the user's is gone either.
        assert_eq!(is_there(), mine, "{name}: {all:?}");
        assert!(!scene.repo.common_dir().join("index.lock").exists() && !record(&scene), "{name}");
    }
}

#[test]
fn a_person_who_switched_away_and_back_is_followed_from_where_they_are() {
    let scene = Scene::new();
    let pick = busy(&scene);
    let _ = left(land(&scene, &[("c.txt", Some("new\n"))]));
    fs::remove_file(pick).unwrap();
    git(&scene.top(), &["checkout", "-q", "-f", "--detach"]);
    git(&scene.top(), &["checkout", "-q", "main"]);
    assert_eq!(land(&scene, &[("d.txt", Some("d\n"))]), CheckoutUpdate::Updated);
    assert_eq!(status(&scene), "");
    // One commit of the person's own, and on.
    scene.write("e.txt", "e\n");
    commit(&scene.top(), "mine");
    assert_eq!(land(&scene, &[("f.txt", Some("f\n"))]), CheckoutUpdate::Updated);
    assert_eq!(status(&scene), "");
}

#[test]
fn files_caught_up_by_hand_and_others_not_are_left_to_the_person() {
    let scene = Scene::new();
    let pick = busy(&scene);
    let _ = left(land(&scene, &[("c.txt", Some("new\n")), ("a.txt", Some("landed\n"))]));
    fs::remove_file(pick).unwrap();
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
    assert_eq!(land(&scene, &[("e.txt", Some("e\n"))]), CheckoutUpdate::Updated);
}

#[test]
fn going_back_to_where_a_checkout_was_left_ends_the_matter() {
    let scene = Scene::new();
    let pick = busy(&scene);
    let old = scene.tip("main");
    let _ = left(land(&scene, &[("c.txt", Some("new\n"))]));
    fs::remove_file(pick).unwrap();
    let landed = scene.tip("main");
    move_main(&scene, &landed, &old);
    assert_eq!(
        scene.repo.update_checkouts("main", &landed, &old).unwrap(),
        CheckoutUpdate::Updated
    );
    assert_eq!(status(&scene), "");
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
    scene.repo.sweep_stale_locks(None).unwrap();
    assert!(!lock.exists());
    scene.repo.resume_checkout_updates("main").unwrap();
    assert_eq!(status(&scene), "");
    assert_eq!(read(&scene, "a.txt"), "landed\n");
    assert!(!record(&scene));
}

#[test]
fn catching_up_leaves_alone_what_shows_the_branch_already() {
    let scene = Scene::new();
    scene.write("a.txt", "my edit\n");
    scene.repo.resume_checkout_updates("main").unwrap();
    assert_eq!(status(&scene), " M a.txt\n");
    assert_eq!(read(&scene, "a.txt"), "my edit\n");
}

#[test]
fn a_checkout_is_brought_along_by_the_next_life_if_this_one_ends_right_after_the_landing() {
    let scene = Scene::new();
    let old = scene.tip("main");
    let new = scene.change(&old, &[("a.txt", Some("landed\n"))]);
    let hold = || match scene.repo.lock_checkouts("main", &old, &new).unwrap() {
        CheckoutReadiness::Locked(followers) => followers,
        CheckoutReadiness::Blocked(way) => panic!("{way:?}"),
    };
    hold().release();
    assert!(!record(&scene), "the branch did not move");
    let followers = hold();
    // Nobody commits the old files on top of the new commit meanwhile.
    move_main(&scene, &old, &new);
    let commit = super::plain(&scene.top(), &["commit", "-qam", "meanwhile"]);
    assert!(!commit.status.success(), "{commit:?}");
    drop(followers);
    scene.repo.resume_checkout_updates("main").unwrap();
    assert_eq!((status(&scene), read(&scene, "a.txt")), (String::new(), "landed\n".to_owned()));
    assert!(!record(&scene));
}
