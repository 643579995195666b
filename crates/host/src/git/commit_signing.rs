//! What the user's git does with every commit and ours does not by itself: signing, and hooks. Signing can be asked
//! for; hooks are only named, because a script that landed work may have changed is never run outside a sandbox.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::Result;
use super::{GitIdentity, Oid, Repo, parse_oid};

/// Hooks that a commit, a merge or a push by hand would run.
const HOOKS: &[&str] = &[
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-merge-commit",
    "post-merge",
    "pre-push",
];

/// A commit to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewCommit<'a> {
    pub tree: &'a Oid,
    pub parents: &'a [Oid],
    pub message: &'a str,
    pub author: &'a GitIdentity,
    pub committer: &'a GitIdentity,
    /// When, in milliseconds since 1970 (UTC).
    pub date_ms: i64,
}

impl Repo {
    /// Whether the user wants commits signed.
    pub fn wants_signatures(&self) -> Result<bool> {
        let said = self.read_user_setting("commit.gpgSign", &["--type=bool"])?;
        Ok(said.as_deref() == Some("true"))
    }

    /// Makes a commit as the user's git would sign it: with their program, key and agent. Nobody is asked for
    /// anything: a key that needs a person is an error.
    pub fn commit_signed(&self, new: NewCommit<'_>) -> Result<Oid> {
        self.write_signed_commit(new)
    }

    /// Whether a commit can be signed here, found out by signing one that nothing leads to.
    pub fn check_signing(&self) -> Result<()> {
        let answer = self.git().arg("mktree").stdin_bytes(Vec::new()).run()?;
        let tree = parse_oid(answer.single_line()?, &answer)?;
        let who = self.identity()?;
        let (parents, message, date_ms) = (&[][..], "mainstem: can this be signed?\n", 0);
        let new =
            NewCommit { tree: &tree, parents, message, author: &who, committer: &who, date_ms };
        self.commit_signed(new).map(drop)
    }

    /// The user's hooks that a commit or a push by hand would run, by name.
    pub fn list_user_hooks(&self) -> Result<Vec<String>> {
        let named = self.read_user_setting("core.hooksPath", &["--type=path"])?;
        let base = self.toplevel().unwrap_or_else(|| self.common_dir());
        let folder: PathBuf =
            named.map_or_else(|| self.common_dir().join("hooks"), |path| base.join(path));
        let runs = |path: &Path| {
            path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        };
        Ok(HOOKS.iter().filter(|name| runs(&folder.join(name))).map(|n| (*n).to_owned()).collect())
    }

    /// A setting as the user has it, though every command of ours overrules it.
    fn read_user_setting(&self, key: &str, how: &[&str]) -> Result<Option<String>> {
        let answer = self
            .git()
            .args(["config", "--get-all"])
            .args(how)
            .arg(key)
            .accept_exit_codes(&[1])
            .run()?;
        // The last one is ours.
        let mut values: Vec<&str> = answer.single_line()?.lines().collect();
        values.pop();
        Ok(values.last().map(|value| (*value).to_owned()).filter(|value| !value.is_empty()))
    }
}
