use std::fs;

use mainstem_core::id::Oid;

use super::super::CheckoutUpdate;
use super::{Scene, git};

fn status(scene: &Scene) -> String {
    git(&scene.top(), &["status", "--porcelain", "-uall"])
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.top().join(name)).unwrap()
}

/// A landing whose follower was stopped after it had said that it begins.
fn begun(scene: &Scene, files: &[(&str, Option<&str>)]) -> (Oid, Oid) {
    let old = scene.tip("main");
    let new = scene.change(&old, files);
    let _ = scene.repo.update_ref("refs/heads/main", &new, Some(&old), "land").unwrap();
    fs::write(scene.repo.common_dir().join("mainstem-left"), format!("{old}\n")).unwrap();
    fs::write(scene.repo.common_dir().join("mainstem-step"), format!("{old} {new}\n")).unwrap();
    (old, new)
}

#[test]
fn a_follower_that_died_between_files_and_index_is_finished() {
    let scene = Scene::new();
    let files =
        [("a.txt", Some("landed\n")), ("new/n.txt", Some("new\n")), ("dir/b.txt", Some("b2\n"))];
    let (old, new) = begun(&scene, &files);
    // Two files are written, the index is not.
    scene.write("a.txt", "landed\n");
    scene.write("new/n.txt", "new\n");
    assert_eq!(scene.repo.update_checkouts("main", &old, &new).unwrap(), CheckoutUpdate::Updated);
    assert_eq!(status(&scene), "");
    assert_eq!(read(&scene, "dir/b.txt"), "b2\n");
}

#[test]
fn files_with_odd_names_are_mended_like_any_other() {
    let scene = Scene::new();
    let names = ["\"quoted\" ü.txt", "\"", "line\nend", "back\\slash", "tail\r"];
    let files: Vec<(&str, Option<&str>)> = names.iter().map(|name| (*name, Some("x\n"))).collect();
    let (old, new) = begun(&scene, &files);
    for name in &names[1..] {
        scene.write(name, "x\n");
    }
    assert_eq!(scene.repo.update_checkouts("main", &old, &new).unwrap(), CheckoutUpdate::Updated);
    assert_eq!(status(&scene), "");
    for name in names {
        assert_eq!(read(&scene, name), "x\n", "{name:?}");
    }
}

#[test]
fn files_that_the_power_emptied_while_a_checkout_followed_come_back() {
    let scene = Scene::new();
    let (_, new) = begun(&scene, &[("a.txt", Some("landed\n")), ("dir/b.txt", Some("b2\n"))]);
    // The index came to the disk, the files did not.
    git(&scene.top(), &["read-tree", "-m", "-u", "HEAD~1", "HEAD"]);
    scene.write("a.txt", "");
    scene.repo.resume_checkout_updates("main").unwrap();
    assert_eq!(status(&scene), "");
    assert_eq!(read(&scene, "a.txt"), "landed\n");
    assert_eq!(scene.tip("main"), new);
}

#[test]
fn what_a_person_changed_meanwhile_is_put_beside_the_landed_file() {
    let scene = Scene::new();
    begun(&scene, &[("a.txt", Some("landed\n"))]);
    scene.write("a.txt", "mine\n");
    scene.repo.resume_checkout_updates("main").unwrap();
    // Left in its place, it would take the landing back with the next commit of everything.
    assert_eq!(read(&scene, "a.txt"), "landed\n");
    assert_eq!(read(&scene, "a.txt.yours"), "mine\n");
}

#[test]
fn a_file_that_a_person_emptied_is_put_aside_and_not_taken_for_one_half_written() {
    let scene = Scene::new();
    for (text, beside) in [("landed\n", "a.txt.yours"), ("again\n", "a.txt.yours-2")] {
        scene.write("a.txt", "");
        let old = scene.tip("main");
        let new = scene.change(&old, &[("a.txt", Some(text))]);
        let _ = scene.repo.update_ref("refs/heads/main", &new, Some(&old), "land").unwrap();
        let followed = scene.repo.update_checkouts("main", &old, &new).unwrap();
        assert!(matches!(followed, CheckoutUpdate::UpdatedFilesAside { .. }), "{followed:?}");
        assert_eq!((read(&scene, "a.txt").as_str(), read(&scene, beside).as_str()), (text, ""));
    }
}

#[test]
fn files_that_were_only_begun_or_taken_away_come_back() {
    let scene = Scene::new();
    let files = [
        ("a.txt", Some("landed, and quite long\n")),
        ("dir/b.txt", Some("b2\n")),
        ("new.txt", Some("new\n")),
    ];
    begun(&scene, &files);
    // The disk was full in the middle of the first; the second was taken away to be written.
    scene.write("a.txt", "landed, and");
    fs::remove_file(scene.top().join("dir/b.txt")).unwrap();
    scene.write("new.txt", "ne");
    scene.repo.resume_checkout_updates("main").unwrap();
    assert_eq!(status(&scene), "");
    assert_eq!(read(&scene, "a.txt"), "landed, and quite long\n");
    assert_eq!(read(&scene, "dir/b.txt"), "b2\n");
}

#[test]
fn a_step_that_fails_half_way_leaves_the_checkout_as_it_was_and_blames_nobody() {
    let scene = Scene::new();
    scene.write(".gitattributes", "z.txt filter=broken\n");
    scene.write("z.txt", "z\n");
    scene.commit("more");
    git(&scene.top(), &["config", "filter.broken.clean", "cat"]);
    git(&scene.top(), &["config", "filter.broken.smudge", "false"]);
    git(&scene.top(), &["config", "filter.broken.required", "true"]);
    let old = scene.tip("main");
    git(&scene.top(), &["config", "filter.broken.smudge", "cat"]);
    let new = scene.change(&old, &[("a.txt", Some("landed\n")), ("z.txt", Some("z2\n"))]);
    git(&scene.top(), &["config", "filter.broken.smudge", "false"]);
    let _ = scene.repo.update_ref("refs/heads/main", &new, Some(&old), "land").unwrap();
    // Written by the time the filter fails: `a.txt`, and `z.txt` is gone.
    let followed = scene.repo.update_checkouts("main", &old, &new);
    let told = format!("{followed:?}");
    assert!(!told.contains("was changed here"), "{told}");
    git(&scene.top(), &["config", "filter.broken.smudge", "cat"]);
    scene.repo.resume_checkout_updates("main").unwrap();
    assert_eq!(status(&scene), "");
    assert_eq!((read(&scene, "a.txt"), read(&scene, "z.txt")), ("landed\n".into(), "z2\n".into()));
}

#[test]
fn a_checkout_that_could_not_be_looked_at_is_brought_along_by_the_next_life() {
    let scene = Scene::new();
    let old = scene.tip("main");
    let new = scene.change(&old, &[("a.txt", Some("landed\n"))]);
    let _ = scene.repo.update_ref("refs/heads/main", &new, Some(&old), "land").unwrap();
    let index = scene.repo.common_dir().join("index");
    let sound = fs::read(&index).unwrap();
    fs::write(&index, "no index").unwrap();
    scene.repo.update_checkouts("main", &old, &new).unwrap_err();
    fs::write(&index, sound).unwrap();
    scene.repo.resume_checkout_updates("main").unwrap();
    assert_eq!(status(&scene), "");
    assert_eq!(read(&scene, "a.txt"), "landed\n");
}

#[test]
fn empty_objects_and_refs_go_after_a_reboot_and_only_then() {
    let scene = Scene::new();
    let repo = &scene.repo;
    repo.remove_empty_files_after_boot().unwrap();
    let blob = "ce013625030ba8dba906f756967f9e9ca394464a";
    let object = repo.common_dir().join("objects").join(&blob[..2]).join(&blob[2..]);
    fs::create_dir_all(object.parent().unwrap()).unwrap();
    fs::write(&object, "").unwrap();
    let ours = repo.common_dir().join("refs/heads/mainstem/t-1");
    fs::create_dir_all(ours.parent().unwrap()).unwrap();
    fs::write(&ours, "").unwrap();
    let theirs = repo.common_dir().join("refs/heads/theirs");
    fs::write(&theirs, "").unwrap();
    assert!(repo.remove_empty_files_after_boot().unwrap().is_empty());
    assert!(object.exists() && ours.exists());

    fs::write(repo.common_dir().join("mainstem/boot"), "another boot").unwrap();
    assert_eq!(repo.remove_empty_files_after_boot().unwrap(), [object.clone(), ours]);
    assert!(theirs.exists());
    // With the empty file in its place git would not have written it.
    fs::remove_file(theirs).unwrap();
    scene.write("hello.txt", "hello\n");
    git(&scene.top(), &["add", "hello.txt"]);
    assert!(fs::metadata(object).unwrap().len() > 0);
}
