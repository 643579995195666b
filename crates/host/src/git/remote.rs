//! Asks and moves branches on a remote: a push only from exactly where the branch is known to be, a
//! fetch only of one branch into one ref of ours. What became of a push is never read from git's words
//! but asked of the remote.

use std::fmt;
use std::time::Duration;

use mainstem_core::id::Oid;

use super::command::GitCommand;
use super::error::{GitError, Result};
use super::{Repo, is_oid};

/// A slow line and a large history.
const TIMEOUT: Duration = Duration::from_secs(600);
/// A ref that others move every time is given up on.
const FETCH_TRIES: u32 = 5;

/// A remote, and how to get in.
#[derive(Clone)]
pub struct GitRemote {
    name: String,
    /// An address and the header that is sent there.
    header: Option<(String, String)>,
}

impl fmt::Debug for GitRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.name)
    }
}

impl GitRemote {
    /// The remote of this name, entered as git is set up to.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), header: None }
    }

    /// The same with a token for an HTTPS host. It goes by the environment, where no list of processes
    /// shows it.
    #[must_use]
    pub fn with_token(mut self, host: &str, token: &str) -> Self {
        let secret = encode_base64(format!("x-access-token:{token}").as_bytes());
        let address = format!("http.https://{host}/.extraHeader");
        self.header = Some((address, format!("Authorization: Basic {secret}")));
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

/// What became of a push, with the remote's own word told apart from silence.
#[derive(Debug)]
pub enum BranchPublishOutcome {
    /// The branch is where it was to be.
    Done,
    /// It was elsewhere, and still is.
    Moved {
        /// Where; none if it is not there.
        found: Option<Oid>,
    },
    /// The remote answers and the branch is where it was known to be, but it may not move: a hook or a
    /// rule there says no.
    Denied(GitError),
}

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BranchPushOutcome {
    /// The branch is where it was to be.
    Done,
    /// It was elsewhere, and still is.
    Refused {
        /// Where; none if it is not there.
        found: Option<Oid>,
    },
}

impl Repo {
    /// The address of a remote; none if there is no such remote.
    pub fn read_remote_url(&self, name: &str) -> Result<Option<String>> {
        self.read_config(&format!("remote.{name}.url"))
    }

    /// The commit of a branch on the remote; none if it has no such branch.
    pub fn read_remote_branch(&self, remote: &GitRemote, branch: &str) -> Result<Option<Oid>> {
        let name = format!("refs/heads/{branch}");
        let answer = self
            .remote_git_command(remote)
            .args(["ls-remote", "--", remote.name(), &name])
            .run()?;
        let text = answer.single_line()?;
        for line in text.lines() {
            match line.split_once('\t') {
                Some((commit, found)) if found == name && is_oid(commit) => {
                    return Ok(Some(Oid::new(commit)));
                }
                Some(_) => {}
                None => return Err(answer.bad_output_error()),
            }
        }
        Ok(None)
    }

    /// Moves a branch on the remote to `tip`, if it is at `lease` (or not there, if that is none), or
    /// finds it moved.
    pub fn push_branch(
        &self,
        remote: &GitRemote,
        branch: &str,
        tip: &Oid,
        lease: Option<&Oid>,
    ) -> Result<BranchPushOutcome> {
        match self.publish_branch(remote, branch, tip, lease)? {
            BranchPublishOutcome::Done => Ok(BranchPushOutcome::Done),
            BranchPublishOutcome::Moved { found } => Ok(BranchPushOutcome::Refused { found }),
            BranchPublishOutcome::Denied(error) => Err(error),
        }
    }

    /// The same, and an error only if nobody knows what became of it.
    pub fn publish_branch(
        &self,
        remote: &GitRemote,
        branch: &str,
        tip: &Oid,
        lease: Option<&Oid>,
    ) -> Result<BranchPublishOutcome> {
        let name = format!("refs/heads/{branch}");
        let expected = lease.map_or("", Oid::as_str);
        let pushed = self
            .remote_git_command(remote)
            .args(["push", "--quiet", "--atomic", "--no-verify", "--no-follow-tags"])
            .arg(format!("--force-with-lease={name}:{expected}"))
            .args(["--", remote.name(), &format!("{tip}:{name}")])
            .run();
        let Err(error) = pushed else { return Ok(BranchPublishOutcome::Done) };
        // Refused, or done and the answer lost, or not reached at all: only the remote knows.
        Ok(match self.read_remote_branch(remote, branch)? {
            Some(found) if found == *tip => BranchPublishOutcome::Done,
            found if found.as_ref() != lease => BranchPublishOutcome::Moved { found },
            _ => BranchPublishOutcome::Denied(error),
        })
    }

    /// Brings a branch of the remote into a ref of ours; none if the remote has no such branch. Several
    /// fetches of one branch may run at once: git lets only one of them move the ref, and the others look
    /// again.
    pub fn fetch_branch(
        &self,
        remote: &GitRemote,
        branch: &str,
        into: &str,
    ) -> Result<Option<Oid>> {
        let refspec = format!("+refs/heads/{branch}:{into}");
        let mut tries = 0;
        loop {
            let Some(there) = self.read_remote_branch(remote, branch)? else { return Ok(None) };
            let before = self.read_ref(into)?;
            if before.as_ref() == Some(&there) {
                return Ok(before);
            }
            let fetched = self
                .remote_git_command(remote)
                .args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"])
                .args(["--no-recurse-submodules", "--", remote.name(), &refspec])
                .run();
            tries += 1;
            match fetched {
                Ok(_) => return self.read_ref(into),
                Err(_) if tries < FETCH_TRIES && self.read_ref(into)? != before => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn remote_git_command(&self, remote: &GitRemote) -> GitCommand {
        // An address may be a path, and is then meant as seen from the checkout.
        let git = GitCommand::new(self.dir())
            .env("GIT_DIR", self.common_dir())
            .hold_live_file(self.live_file_path())
            .timeout(TIMEOUT);
        // Nobody is there to be asked. Who has a command of their own for ssh knows what it does.
        let git = match self.read_config("core.sshCommand") {
            Ok(None) => git.env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=30"),
            _ => git,
        };
        match &remote.header {
            Some((key, value)) => git
                .env("GIT_CONFIG_COUNT", "1")
                .env("GIT_CONFIG_KEY_0", key)
                .env("GIT_CONFIG_VALUE_0", value),
            None => git,
        }
    }
}

fn encode_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let at = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n) & 63) as usize];
            out.push(if n <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::encode_base64;

    #[test]
    fn base_64_is_as_everybody_writes_it() {
        for (text, code) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(encode_base64(text.as_bytes()), code);
        }
    }
}
