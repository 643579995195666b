//! What the stand-in does to its bare repository, with a plain git.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Clone)]
pub(super) struct BareTestRepo(pub(super) PathBuf);

impl BareTestRepo {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(&self.0).args(args).stdin(Stdio::null());
        for (key, _) in std::env::vars_os() {
            if key.as_encoded_bytes().starts_with(b"GIT_") {
                command.env_remove(key);
            }
        }
        command.envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_AUTHOR_NAME", "Forge"),
            ("GIT_AUTHOR_EMAIL", "forge@example.invalid"),
            ("GIT_COMMITTER_NAME", "Forge"),
            ("GIT_COMMITTER_EMAIL", "forge@example.invalid"),
        ]);
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String) {
        let output = self.command(args).output().expect("git is installed");
        let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        (crate::repo::exit_code(output.status), text)
    }

    fn line(&self, args: &[&str]) -> String {
        let (code, text) = self.run(args);
        assert_eq!(code, 0, "git {args:?} in {}", self.0.display());
        text
    }

    /// Makes it, if it is not there.
    pub(super) fn make(path: &Path) -> Self {
        let bare = Self(path.to_owned());
        if !path.join("HEAD").exists() {
            bare.line(&["init", "-q", "--bare", "-b", "main"]);
        }
        bare
    }

    /// The commit of a branch.
    pub(super) fn branch(&self, name: &str) -> Option<String> {
        let (code, text) =
            self.run(&["rev-parse", "--verify", "-q", &format!("refs/heads/{name}")]);
        (code == 0).then_some(text)
    }

    pub(super) fn is_ancestor(&self, a: &str, b: &str) -> bool {
        self.run(&["merge-base", "--is-ancestor", a, b]).0 == 0
    }

    /// The tree of the merge, or none if they clash.
    pub(super) fn merge_tree(&self, onto: &str, tip: &str) -> Option<String> {
        let (code, text) = self.run(&["merge-tree", "--write-tree", onto, tip]);
        (code == 0).then(|| text.lines().next().unwrap_or_default().to_owned())
    }

    pub(super) fn commit(&self, tree: &str, parents: &[&str], message: &str) -> String {
        let mut args = vec!["commit-tree", tree, "-m", message];
        for parent in parents {
            args.extend(["-p", parent]);
        }
        self.line(&args)
    }

    /// The commits of `tip` that `onto` lacks, each replayed; none if one clashes.
    pub(super) fn replay(&self, onto: &str, tip: &str) -> Option<String> {
        let range = format!("{onto}..{tip}");
        let list = self.line(&["rev-list", "--reverse", "--no-merges", &range]);
        let mut head = onto.to_owned();
        for commit in list.lines() {
            let base = format!("--merge-base={commit}^");
            let (code, tree) = self.run(&["merge-tree", "--write-tree", &base, &head, commit]);
            if code != 0 {
                return None;
            }
            let message = self.line(&["log", "-1", "--format=%B", commit]);
            head = self.commit(tree.lines().next().unwrap_or_default(), &[&head], &message);
        }
        Some(head)
    }

    /// Moves a branch from here to there; false if it was elsewhere.
    pub(super) fn move_branch(&self, name: &str, new: &str, old: &str) -> bool {
        self.run(&["update-ref", &format!("refs/heads/{name}"), new, old]).0 == 0
    }

    pub(super) fn delete_branch(&self, name: &str) -> bool {
        self.branch(name).is_some()
            && self.run(&["update-ref", "-d", &format!("refs/heads/{name}")]).0 == 0
    }

    /// Runs a shell command in a checkout of a commit: whether it ended well, and what it printed.
    pub(super) fn try_out(&self, commit: &str, command: &str) -> (bool, String) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let tree = dir.path().join("tree");
        let path = tree.to_string_lossy().into_owned();
        let (code, _) = self.run(&["worktree", "add", "-q", "--detach", &path, commit]);
        if code != 0 {
            return (false, format!("{commit} cannot be checked out"));
        }
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(&tree)
            .env("COMMIT", commit)
            .stdin(Stdio::null())
            .output()
            .expect("sh is there");
        self.run(&["worktree", "remove", "--force", &path]);
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }
}
