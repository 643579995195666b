//! Signatures on landings, as the user's git would make them. Made outside every sandbox, with the user's own program,
//! key and agent; nobody is asked for a passphrase.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mainstem_core::config::LandSigning;
use mainstem_core::id::Oid;
use mainstem_host::git::{GitError, NewCommit, Repo};

/// Makes the commits of landings.
#[derive(Debug, Default)]
pub struct LandingSigner {
    signs: bool,
    /// What was made in this life: a signature carries its time, and an effect that is performed twice must make
    /// the same commit.
    made: Mutex<BTreeMap<String, Oid>>,
}

impl LandingSigner {
    /// As the settings and the user's git say, tried out once; with what is to be said if they cannot be followed.
    pub fn new(repo: &Repo, sign: LandSigning) -> Result<(Self, Option<String>), GitError> {
        let wanted = match sign {
            LandSigning::Off => false,
            LandSigning::Required => true,
            LandSigning::Auto => repo.wants_signatures()?,
        };
        let signer = |signs| Self { signs, ..Self::default() };
        if !wanted {
            return Ok((signer(false), None));
        }
        match (repo.check_signing(), sign) {
            (Ok(()), _) => Ok((signer(true), None)),
            (Err(error), LandSigning::Required) => Err(error),
            (Err(error), _) => {
                let message = format!(
                    "commits are not signed although commit.gpgSign is set: {}. Set land.sign to \"off\" or \"required\"",
                    signing_error_text(&error)
                );
                Ok((signer(false), Some(message)))
            }
        }
    }

    /// Makes a commit, signed if landings are.
    pub fn write_commit(&self, repo: &Repo, new: NewCommit<'_>) -> Result<Oid, GitError> {
        let NewCommit { tree, parents, message, author, committer, date_ms } = new;
        if !self.signs {
            return repo.commit_tree(tree, parents, message, author, committer, date_ms);
        }
        let key = format!("{tree} {parents:?} {author:?} {committer:?} {date_ms} {message}");
        let known = |key: &str| self.made.lock().ok().and_then(|made| made.get(key).cloned());
        if let Some(commit) = known(&key) {
            return Ok(commit);
        }
        let commit = repo.commit_signed(new)?;
        if let Ok(mut made) = self.made.lock() {
            made.insert(key, commit.clone());
        }
        Ok(commit)
    }
}

/// What the signing program said, without the words of git around it.
pub fn signing_error_text(error: &GitError) -> String {
    let text = match error {
        GitError::Failed { stderr, .. } => stderr.clone(),
        other => other.to_string(),
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // Git puts a line of its own before those of the program.
    let ours = |line: &&str| !line.starts_with("[GNUPG:]") && !line.ends_with("to sign the data:");
    let first =
        lines.filter(|line| ours(line)).map(|line| line.trim_start_matches("error: ")).next();
    first.unwrap_or("the signing program gave no reason").trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_that_of_the_signing_program() {
        let said = |stderr: &str| {
            let what = "git commit-tree".to_owned();
            signing_error_text(&GitError::Failed {
                what,
                code: Some(128),
                stderr: stderr.to_owned(),
            })
        };
        let gpg = "error: gpg failed to sign the data:\ngpg: skipped \"x\": No secret key\n[GNUPG:] FAILURE sign 17\n";
        assert_eq!(said(gpg), "gpg: skipped \"x\": No secret key");
        let ssh = "error: Couldn't load public key x: No such file or directory?\n";
        assert_eq!(said(ssh), "Couldn't load public key x: No such file or directory?");
        assert_eq!(said("\n"), "the signing program gave no reason");
    }
}
