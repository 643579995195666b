//! Files that git cannot take: none is dropped, each is named with the true reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::secludes::{BRANCH, made};
use super::{KEEP, Repo, Scene, git, who};

/// The reasons given for what is not in the leftovers and not in the snapshot.
#[track_caller]
fn reasons(repo: &Repo, path: &Path) -> Vec<String> {
    let kept = repo.take_snapshot(path, KEEP, "test").unwrap().unwrap();
    let left = repo.commit_leftovers(path, BRANCH, "left", &who(), 0).unwrap();
    assert_eq!(kept.unstored, left.unstored);
    left.unstored.iter().map(ToString::to_string).collect()
}

/// A workspace of a repository in which `attributes` hold.
fn with_attributes(attributes: &str, settings: &[(&str, &str)]) -> (Scene, PathBuf) {
    let scene = Scene::new();
    scene.write(".gitattributes", attributes);
    scene.commit("attributes");
    for (key, value) in settings {
        git(&scene.top(), &["config", key, value]);
    }
    let repo = Repo::discover(&scene.top()).unwrap();
    let scene = Scene { repo, ..scene };
    let path = made(&scene, false).0;
    (scene, path)
}

#[test]
fn a_required_filter_that_fails_is_the_reason_for_its_files_alone() {
    let (scene, path) = with_attributes(
        "*.bin filter=lfs\n",
        &[("filter.lfs.clean", "echo 'lfs: no room' >&2; exit 2"), ("filter.lfs.required", "true")],
    );
    fs::write(path.join("model.bin"), "precious").unwrap();
    fs::write(path.join("note.txt"), "note").unwrap();
    let told = reasons(&scene.repo, &path);
    assert_eq!(told, ["git could not store model.bin: clean filter 'lfs' failed: lfs: no room"]);
    let tree = git(&scene.top(), &["ls-tree", "--name-only", BRANCH]);
    assert!(tree.contains("note.txt") && !tree.contains("model.bin"), "{tree}");
    let kept = scene.repo.take_snapshot(&path, KEEP, "test").unwrap().unwrap();
    let place = scene
        .repo
        .set_unstored_aside(&path, &kept.unstored, &scene.trash(), "unstored-T-1")
        .unwrap();
    assert_eq!(fs::read_to_string(place.unwrap().join("model.bin")).unwrap(), "precious");
}

#[test]
fn text_that_is_not_in_the_encoding_it_is_said_to_be_in_is_named() {
    let (scene, path) = with_attributes("*.ps1 working-tree-encoding=UTF-16LE\n", &[]);
    fs::write(path.join("deploy.ps1"), "odd").unwrap();
    let told = reasons(&scene.repo, &path);
    assert!(told.len() == 1 && told[0].contains("deploy.ps1"), "{told:?}");
    assert!(told[0].contains("UTF-16LE"), "{told:?}");
}

#[test]
fn files_and_folders_that_may_not_be_read_are_named() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::new();
    let (path, _) = made(&scene, false);
    fs::write(path.join("closed.txt"), "x").unwrap();
    fs::create_dir(path.join("shut")).unwrap();
    fs::write(path.join("shut/in.txt"), "x").unwrap();
    for name in ["closed.txt", "shut"] {
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let told = reasons(&scene.repo, &path).join("\n");
    assert!(told.contains("closed.txt") && told.contains("git could not store shut"), "{told}");
    fs::set_permissions(path.join("shut"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_large_file_is_noticed_by_its_size_and_never_read() {
    let scene = Scene::new();
    scene.repo.set_file_limit(1 << 20);
    let (path, _) = made(&scene, false);
    // Reading so much of nothing would take minutes.
    let file = fs::File::create(path.join("big.img")).unwrap();
    file.set_len(1 << 40).unwrap();
    fs::write(path.join("a.txt"), "grown").unwrap();
    fs::File::options().write(true).open(path.join("dir/b.txt")).unwrap().set_len(1 << 40).unwrap();
    let began = std::time::Instant::now();
    let told = reasons(&scene.repo, &path).join("\n");
    assert!(
        told.contains("big.img: 1099511627776 bytes are more than limits.file_size (1M)"),
        "{told}"
    );
    assert!(told.contains("dir/b.txt"), "{told}");
    assert!(began.elapsed() < std::time::Duration::from_secs(30));
    assert_eq!(git(&scene.top(), &["show", &format!("{BRANCH}:a.txt")]), "grown");
    assert_eq!(git(&scene.top(), &["show", &format!("{BRANCH}:dir/b.txt")]), "b\n");
}
