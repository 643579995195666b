//! What comes in from an agent's own store, and what is refused by name.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::secludes::{BRANCH, commit, made};
use super::{KEEP, Scene, git};

/// The folder of objects that belongs to whoever works at `path`.
fn store_of(path: &Path) -> PathBuf {
    let own = git(path, &["rev-parse", "--absolute-git-dir"]);
    PathBuf::from(own.trim()).join("objects")
}

/// Puts a loose object there whatever its name says.
fn plant(store: &Path, id: &str, kind: &str, body: &[u8]) {
    let folder = store.join(&id[..2]);
    fs::create_dir_all(&folder).unwrap();
    let mut file = ZlibEncoder::new(Vec::new(), Compression::fast());
    file.write_all(format!("{kind} {}\0", body.len()).as_bytes()).unwrap();
    file.write_all(body).unwrap();
    let place = folder.join(&id[2..]);
    let _ = fs::remove_file(&place);
    fs::write(place, file.finish().unwrap()).unwrap();
}

/// Writes an object that git itself would not make.
fn literally(path: &Path, kind: &str, body: &[u8]) -> String {
    let mut child = Command::new("git")
        .args(["hash-object", "-w", "--literally", "--stdin", "-t", kind])
        .current_dir(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// All objects of the user's store.
fn objects(scene: &Scene) -> String {
    let args = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"];
    git(&scene.top(), &args)
}

#[track_caller]
fn assert_refused(scene: &Scene, path: &Path, before: &str, words: &str) {
    let told = scene.repo.import_agent_commits(path, BRANCH, true).unwrap().unwrap_or_default();
    assert!(told.contains("commits were refused") && told.contains(words), "{told}");
    assert_eq!(objects(scene), before, "something of it is in the user's store: {told}");
    let base = scene.repo.read_ref("refs/heads/main").unwrap();
    assert_eq!(scene.repo.read_ref(&format!("refs/heads/{BRANCH}")).unwrap(), base);
    git(&scene.top(), &["fsck", "--strict"]);
}

#[test]
fn what_an_agent_writes_stays_in_its_own_store_until_it_is_taken_in() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, _) = made(&scene, clone);
        let before = objects(&scene);
        let tip = commit(&path, "one.txt");
        assert_eq!(objects(&scene), before, "clone: {clone}");
        assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, false).unwrap(), None);
        assert!(objects(&scene).contains(tip.as_str()), "clone: {clone}");
        git(&scene.top(), &["fsck", "--strict"]);
    }
}

#[test]
fn an_object_with_another_content_than_its_name_says_is_refused() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, _) = made(&scene, clone);
        commit(&path, "one.txt");
        let blob = git(&path, &["rev-parse", "HEAD:one.txt"]).trim().to_owned();
        plant(&store_of(&path), &blob, "blob", b"something else");
        let words = format!("blob {} does not match the object id (one.txt)", &blob[..12]);
        assert_refused(&scene, &path, &objects(&scene), &words);
    }
}

#[test]
fn an_object_that_the_user_has_is_never_replaced() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, _) = made(&scene, clone);
        let blob = git(&scene.top(), &["rev-parse", "main:a.txt"]).trim().to_owned();
        plant(&store_of(&path), &blob, "blob", b"planted");
        let tip = commit(&path, "one.txt");
        let told = scene.repo.import_agent_commits(&path, BRANCH, true).unwrap();
        let shown = git(&scene.top(), &["cat-file", "blob", &blob]);
        assert_eq!(shown, "one\ntwo\nthree\n", "clone: {clone}");
        // Its own commit names the object, so it cannot come in without it.
        assert!(told.is_some(), "clone: {clone}");
        let folder = store_of(&path).join(&blob[..2]);
        fs::remove_file(folder.join(&blob[2..])).unwrap();
        assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, true).unwrap(), None);
        assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(tip));
        git(&scene.top(), &["fsck", "--strict"]);
    }
}

#[test]
fn malformed_commits_and_trees_are_refused() {
    for clone in [false, true] {
        let scene = Scene::new();
        let (path, base) = made(&scene, clone);
        let tree = git(&path, &["rev-parse", "HEAD^{tree}"]).trim().to_owned();
        let blob = literally(&path, "blob", b"x");
        let id: Vec<u8> =
            (0..20).map(|n| u8::from_str_radix(&blob[2 * n..2 * n + 2], 16).unwrap()).collect();
        let entry = |name: &str| [b"100644 ", name.as_bytes(), b"\0", &id].concat();
        let people = "author a <a@b.c> 1 +0000\ncommitter a <a@b.c> 1 +0000\n";
        let of = |tree: &str, people: &str| {
            let text = format!("tree {tree}\nparent {base}\n{people}\nx\n");
            literally(&path, "commit", text.as_bytes())
        };
        let before = objects(&scene);
        let bad_tree = |body: Vec<u8>| of(&literally(&path, "tree", &body), people);
        for (tip, words) in [
            (of(&tree, "author  <> 99999999999999999999 +0000\ncommitter nobody\n"), "author"),
            (bad_tree(entry(".git")), "hasDotgit"),
            (bad_tree([entry("b"), entry("a")].concat()), "treeNotSorted"),
            (bad_tree([entry("a"), entry("a")].concat()), "duplicateEntries"),
            (bad_tree(entry("..")), "hasDotdot"),
            (of(&blob, people), "is a blob"),
        ] {
            git(&path, &["update-ref", &format!("refs/heads/{BRANCH}"), &tip]);
            assert_refused(&scene, &path, &before, words);
        }
    }
}

#[test]
fn a_commit_whose_objects_are_nowhere_is_refused() {
    let scene = Scene::new();
    let (path, _) = made(&scene, false);
    commit(&path, "one.txt");
    let blob = git(&path, &["rev-parse", "HEAD:one.txt"]).trim().to_owned();
    fs::remove_file(store_of(&path).join(&blob[..2]).join(&blob[2..])).unwrap();
    let words = format!("blob {} is missing (one.txt)", &blob[..12]);
    assert_refused(&scene, &path, &objects(&scene), &words);
}

#[test]
fn packed_objects_come_in_and_planted_ones_among_them_do_not() {
    let scene = Scene::new();
    let (path, _) = made(&scene, false);
    let first = commit(&path, "one.txt");
    git(&path, &["repack", "-qad", "--local"]);
    git(&path, &["prune-packed"]);
    assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, false).unwrap(), None);
    let branch = format!("refs/heads/{BRANCH}");
    assert_eq!(scene.repo.read_ref(&branch).unwrap(), Some(first));
    assert!(scene.repo.list_refs("refs/mainstem/fetched").unwrap().is_empty());
    git(&scene.top(), &["fsck", "--strict"]);
}

#[test]
fn a_file_beyond_the_limit_is_refused_by_its_size() {
    let scene = Scene::new();
    scene.repo.set_file_limit(1 << 20);
    let (path, _) = made(&scene, false);
    fs::write(path.join("big.img"), vec![b'x'; 2 << 20]).unwrap();
    commit(&path, "one.txt");
    assert_refused(
        &scene,
        &path,
        &objects(&scene),
        "big.img: 2097152 bytes are more than limits.file_size (1M) allows",
    );
    let left = scene.repo.commit_leftovers(&path, BRANCH, "left", &super::who(), 0).unwrap();
    let names: Vec<_> = left.unstored.iter().map(|file| file.path.clone()).collect();
    assert_eq!(names, [PathBuf::from("big.img")]);
    let tree = git(&scene.top(), &["ls-tree", "--name-only", left.commit.unwrap().as_str()]);
    assert!(tree.contains("one.txt") && !tree.contains("big.img"), "{tree}");
}

#[test]
fn names_of_64_digits_are_checked_as_well() {
    let scene = Scene::empty(&["--object-format=sha256"]);
    scene.write("a.txt", "a\n");
    scene.commit("first");
    let (path, _) = made(&scene, false);
    let tip = commit(&path, "one.txt");
    assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, true).unwrap(), None);
    assert_eq!(scene.repo.read_worktree_tip(&path).unwrap(), Some(tip));
    git(&scene.top(), &["fsck", "--strict"]);
}

#[test]
fn a_partial_clone_takes_in_work_and_refuses_what_is_planted() {
    let origin = Scene::new();
    let hub = origin.top();
    git(&hub, &["config", "uploadpack.allowFilter", "true"]);
    let top = origin.at("partial");
    let url = format!("file://{}", hub.display());
    git(
        origin.dir.path(),
        &["clone", "-q", "--filter=blob:none", "--no-checkout", &url, "partial"],
    );
    let repo = super::Repo::discover(&top).unwrap();
    let path = origin.at("work");
    let base = repo.read_ref("refs/heads/main").unwrap().unwrap();
    repo.prepare_worktree(&path, BRANCH, &base, &origin.trash(), KEEP).unwrap();
    repo.create_agent_git_dir(&path).unwrap();
    let tip = commit(&path, "one.txt");
    assert_eq!(repo.import_agent_commits(&path, BRANCH, true).unwrap(), None);
    assert_eq!(repo.read_worktree_tip(&path).unwrap(), Some(tip.clone()));
    commit(&path, "two.txt");
    let blob = git(&path, &["rev-parse", "HEAD:two.txt"]).trim().to_owned();
    plant(&store_of(&path), &blob, "blob", b"something else");
    assert!(repo.import_agent_commits(&path, BRANCH, true).unwrap().is_some());
    fs::remove_file(store_of(&path).join(&blob[..2]).join(&blob[2..])).unwrap();
    assert!(
        repo.import_agent_commits(&path, BRANCH, true).unwrap().is_some(),
        "nobody promised it"
    );
    assert_eq!(repo.read_worktree_tip(&path).unwrap(), Some(tip));
}

#[test]
fn many_imports_do_not_leave_many_packs() {
    let scene = Scene::new();
    let (path, _) = made(&scene, false);
    for n in 0..65 {
        commit(&path, &format!("{n}.txt"));
        assert_eq!(scene.repo.import_agent_commits(&path, BRANCH, false).unwrap(), None);
    }
    let packs = fs::read_dir(scene.repo.common_dir().join("objects/pack")).unwrap().flatten();
    let count = packs.filter(|e| e.path().extension().is_some_and(|end| end == "pack")).count();
    assert!(count <= 61, "{count}");
    git(&scene.top(), &["fsck", "--strict"]);
}

#[test]
fn settings_of_an_agent_have_no_credentials_and_ask_for_no_signature() {
    for clone in [false, true] {
        let scene = Scene::new();
        let top = scene.top();
        for (key, value) in [
            ("remote.origin.url", "https://x:s3cr3t-t0ken@example.invalid/a.git"),
            ("http.extraheader", "AUTHORIZATION: basic aGVhZGVyLXNlY3JldA=="),
            ("credential.helper", "store --file=s3cr3t-t0ken"),
            ("url.https://s3cr3t-t0ken@h.invalid/.insteadOf", "https://h.invalid/"),
            ("commit.gpgSign", "true"),
            ("alias.st", "status -s # \"quoted\" \\ text"),
        ] {
            git(&top, &["config", key, value]);
        }
        fs::write(scene.at("more"), "[http]\n\tproxy = http://u:s3cr3t-t0ken@p.invalid\n").unwrap();
        git(&top, &["config", "include.path", scene.at("more").to_str().unwrap()]);
        let repo = super::Repo::discover(&top).unwrap();
        let scene = Scene { repo, ..scene };
        let (path, _) = made(&scene, clone);
        let listed = git(&path, &["config", "--local", "--list"]);
        assert!(!listed.contains("s3cr3t") && !listed.contains("aGVhZGVy"), "{listed}");
        assert!(listed.contains("remote.origin.url=https://example.invalid/a.git"), "{listed}");
        assert!(listed.contains("http.proxy=http://p.invalid"), "{listed}");
        assert_eq!(git(&path, &["config", "alias.st"]).trim(), "status -s # \"quoted\" \\ text");
        assert_eq!(git(&path, &["config", "commit.gpgsign"]).trim(), "false");
        commit(&path, "one.txt");
        let found = scene.repo.find_credentials().unwrap();
        let values: Vec<&str> = found.values.iter().map(|found| found.value.as_str()).collect();
        assert!(values.contains(&"s3cr3t-t0ken") && values.contains(&"aGVhZGVyLXNlY3JldA=="));
        let config = scene.repo.common_dir().join("config");
        assert!(found.files.iter().any(|(file, _)| *file == config), "{:?}", found.files);
        assert!(found.files.iter().any(|(file, _)| file.ends_with("more")), "{:?}", found.files);
    }
}
