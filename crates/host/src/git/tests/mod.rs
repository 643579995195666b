#![expect(clippy::unwrap_used, reason = "tests")]
//! Real git in folders with awkward names.

mod afar;
mod discover;
mod follows;
mod imports;
mod keeps;
mod lands;
mod mends;
mod refs;
mod saves;
mod secludes;
mod snaps;
mod sound;
mod trees;
mod unstores;
mod worktrees;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mainstem_core::id::Oid;

use super::{GitIdentity, Repo};

/// Where tests keep what a branch held before it is used again.
const KEEP: &str = "refs/mainstem/snapshots/t-1/1";

/// A repository with one commit on `main`, in a folder whose name has a space and an umlaut.
struct Scene {
    dir: tempfile::TempDir,
    repo: Repo,
}

impl Scene {
    fn new() -> Self {
        let scene = Self::empty(&[]);
        scene.write("a.txt", "one\ntwo\nthree\n");
        scene.write("dir/b.txt", "b\n");
        scene.write(".gitignore", "*.ignored\ntarget/\n");
        scene.commit("first");
        scene
    }

    fn empty(init: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("re po ü");
        fs::create_dir(&top).unwrap();
        git(&top, &[&["init", "-q", "-b", "main"], init].concat());
        let repo = Repo::discover(&top).unwrap();
        Self { dir, repo }
    }

    fn top(&self) -> PathBuf {
        self.dir.path().join("re po ü")
    }

    fn at(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(name)
    }

    fn trash(&self) -> PathBuf {
        self.at("trash")
    }

    fn write(&self, name: &str, text: &str) {
        write(&self.top(), name, text);
    }

    /// Commits everything in the main worktree.
    fn commit(&self, message: &str) -> Oid {
        commit(&self.top(), message)
    }

    fn tip(&self, rev: &str) -> Oid {
        self.repo.resolve_commit(rev).unwrap().unwrap()
    }

    /// A commit on top of `parent` with these files changed (`None`: deleted), no checkout involved.
    fn change(&self, parent: &Oid, files: &[(&str, Option<&str>)]) -> Oid {
        let place = self.at(&format!("side-{}", crate::files::unique_name()));
        let place_text = place.to_str().unwrap();
        git(&self.top(), &["worktree", "add", "-q", "--detach", place_text, parent.as_str()]);
        for (name, text) in files {
            match text {
                Some(text) => {
                    write(&place, name, text);
                    git(&place, &["add", "--force", "--", name]);
                }
                None => fs::remove_file(place.join(name)).unwrap(),
            }
        }
        let tip = commit(&place, "change");
        git(&self.top(), &["worktree", "remove", "--force", place_text]);
        tip
    }

    fn show(&self, tree: &Oid, name: &str) -> String {
        git(&self.top(), &["show", &format!("{tree}:{name}")])
    }

    fn names(&self, tree: &Oid) -> Vec<String> {
        let text = git(&self.top(), &["ls-tree", "-r", "-z", "--name-only", tree.as_str()]);
        text.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Puts a hook for everything into the repository that leaves a trace if it runs.
    fn plant_hooks(&self) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let trace = self.at("hook-ran");
        let text = format!("#!/bin/sh\necho \"$0\" >> '{}'\nexit 1\n", trace.display());
        for name in ["post-checkout", "reference-transaction", "pre-commit", "post-index-change"] {
            let hook = self.repo.common_dir().join("hooks").join(name);
            fs::create_dir_all(hook.parent().unwrap()).unwrap();
            fs::write(&hook, &text).unwrap();
            fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let monitor = self.repo.common_dir().join("hooks/post-checkout");
        git(&self.top(), &["config", "core.fsmonitor", monitor.to_str().unwrap()]);
        trace
    }
}

fn who() -> GitIdentity {
    GitIdentity { name: "Ada".to_owned(), email: "ada@example.org".to_owned() }
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn commit(dir: &Path, message: &str) -> Oid {
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "--allow-empty", "-m", message]);
    Oid::new(git(dir, &["rev-parse", "HEAD"]).trim())
}

/// Plain git, as a user or an agent would run it; must succeed.
fn git(dir: &Path, args: &[&str]) -> String {
    let out = plain(dir, args);
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn plain(dir: &Path, args: &[&str]) -> std::process::Output {
    Command::new("git")
        .current_dir(dir)
        .args(["-c", "protocol.file.allow=always", "-c", "advice.addEmbeddedRepo=false"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.org")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.org")
        .output()
        .unwrap()
}
