//! Finds landings on a branch by the trailers of its first-parent commits. Knows the trailers'
//! common start, not what they say.

use mainstem_core::id::Oid;

use super::error::Result;
use super::{Repo, lossy_string, parse_oid, split_nul};

/// Trailers of ours start with this.
const TRAILERS: &str = "Mainstem-";

/// One commit on the first-parent line of a branch that carries our trailers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitLanding {
    pub commit: Oid,
    /// What the branch was before.
    pub parent: Oid,
    pub tree: Oid,
    /// The first line of its message.
    pub subject: String,
    /// All its trailers, in order.
    pub trailers: Vec<(String, String)>,
}

impl Repo {
    /// The newest first-parent commit of `branch_tip` (not going past `limit_from`) whose trailers
    /// include all these pairs.
    pub fn find_landing(
        &self,
        branch_tip: &Oid,
        trailers: &[(&str, &str)],
        limit_from: Option<&Oid>,
    ) -> Result<Option<Oid>> {
        let lines: Vec<String> =
            trailers.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        let found = self.walk_landings(branch_tip, limit_from, &lines)?;
        // The search by text is only a sieve: the line must be a trailer, and the whole of it.
        let all = |landing: &GitLanding| {
            trailers
                .iter()
                .all(|(key, value)| landing.trailers.iter().any(|(k, v)| k == key && v == value))
        };
        Ok(found.into_iter().find(all).map(|landing| landing.commit))
    }

    /// All landings on the first-parent line of `branch_tip`, newest first, not going past `stop_at`.
    pub fn list_landings(
        &self,
        branch_tip: &Oid,
        stop_at: Option<&Oid>,
    ) -> Result<Vec<GitLanding>> {
        self.walk_landings(branch_tip, stop_at, &[TRAILERS.to_owned()])
    }

    fn walk_landings(
        &self,
        tip: &Oid,
        stop: Option<&Oid>,
        sieve: &[String],
    ) -> Result<Vec<GitLanding>> {
        let format = "--format=tformat:%H%x00%P%x00%T%x00%s%x00%(trailers:only,unfold)";
        let mut git = self
            .git()
            .args(["log", "--first-parent", "-z", "--no-show-signature", format])
            .args(["--fixed-strings", "--all-match"]);
        for text in sieve {
            git = git.arg(format!("--grep={text}"));
        }
        git = git.arg(tip.as_str());
        if let Some(stop) = stop {
            git = git.arg(format!("^{stop}"));
        }
        let answer = git.arg("--").run()?;
        let fields: Vec<&[u8]> = split_nul(&answer.stdout).collect();
        // The trailers of the last commit may be empty, and then its field is stripped.
        let mut landings = Vec::new();
        for record in fields.chunks(5) {
            let [commit, parents, tree, subject, rest @ ..] = record else {
                return Err(answer.bad_output_error());
            };
            let trailers = parse_trailers(&lossy_string(rest.first().copied().unwrap_or_default()));
            let ours = trailers.iter().any(|(key, _)| key.starts_with(TRAILERS));
            let parents = lossy_string(parents);
            // A first commit has nothing before it, so nothing landed.
            let Some(parent) = parents.split(' ').next().filter(|id| ours && !id.is_empty()) else {
                continue;
            };
            landings.push(GitLanding {
                commit: parse_oid(&lossy_string(commit), &answer)?,
                parent: parse_oid(parent, &answer)?,
                tree: parse_oid(&lossy_string(tree), &answer)?,
                subject: lossy_string(subject),
                trailers,
            });
        }
        Ok(landings)
    }
}

fn parse_trailers(text: &str) -> Vec<(String, String)> {
    let pair = |line: &str| {
        let (key, value) = line.split_once(':')?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}
