//! Finds landings on a branch by the trailers of its first-parent commits. Knows the trailers'
//! common start, not what they say.

use mainstem_core::id::Oid;

use super::error::Result;
use super::{Repo, lossy, oid, parts};

/// Trailers of ours start with this.
const TRAILERS: &str = "Mainstem-";

/// One commit on the first-parent line of a branch that carries our trailers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landing {
    /// The commit.
    pub commit: Oid,
    /// What the branch was before.
    pub parent: Oid,
    /// Its files.
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
        let found = self.walk(branch_tip, limit_from, &lines)?;
        // The search by text is only a sieve: the line must be a trailer, and the whole of it.
        let all = |landing: &Landing| {
            trailers
                .iter()
                .all(|(key, value)| landing.trailers.iter().any(|(k, v)| k == key && v == value))
        };
        Ok(found.into_iter().find(all).map(|landing| landing.commit))
    }

    /// All landings on the first-parent line of `branch_tip`, newest first, not going past `stop_at`.
    pub fn landings(&self, branch_tip: &Oid, stop_at: Option<&Oid>) -> Result<Vec<Landing>> {
        self.walk(branch_tip, stop_at, &[TRAILERS.to_owned()])
    }

    fn walk(&self, tip: &Oid, stop: Option<&Oid>, sieve: &[String]) -> Result<Vec<Landing>> {
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
        let fields: Vec<&[u8]> = parts(&answer.stdout).collect();
        // The trailers of the last commit may be empty, and then its field is stripped.
        let mut landings = Vec::new();
        for record in fields.chunks(5) {
            let [commit, parents, tree, subject, rest @ ..] = record else {
                return Err(answer.bad());
            };
            let trailers = read_trailers(&lossy(rest.first().copied().unwrap_or_default()));
            let ours = trailers.iter().any(|(key, _)| key.starts_with(TRAILERS));
            let parents = lossy(parents);
            // A first commit has nothing before it, so nothing landed.
            let Some(parent) = parents.split(' ').next().filter(|id| ours && !id.is_empty()) else {
                continue;
            };
            landings.push(Landing {
                commit: oid(&lossy(commit), &answer)?,
                parent: oid(parent, &answer)?,
                tree: oid(&lossy(tree), &answer)?,
                subject: lossy(subject),
                trailers,
            });
        }
        Ok(landings)
    }
}

fn read_trailers(text: &str) -> Vec<(String, String)> {
    let pair = |line: &str| {
        let (key, value) = line.split_once(':')?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}
