//! Merges, replays and reverts in the object database: no working tree, no index, no hooks.

use std::path::Path;
use std::time::Duration;

use mainstem_core::id::Oid;

use super::command::{GitCommand, GitOutput, TIMEOUT_CHECKOUT};
use super::commit_signing::NewCommit;
use super::error::{GitError, IoErrorContext, Result};
use super::{GitIdentity, Repo, lossy_string, parse_oid};

/// How a merge ended. A git that broke is an error, never a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum GitMergeOutcome {
    Clean {
        tree: Oid,
    },
    /// Both sides changed the same thing.
    Conflict {
        files: Vec<String>,
        /// What git says about it.
        text: String,
        /// What the files would be, with both sides between markers where they clash.
        tree: Oid,
        /// What the three sides have there.
        stages: Vec<GitIndexStage>,
    },
}

/// One side of a file that clashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitIndexStage {
    pub path: String,
    /// 1: the common ancestor, 2: what it is merged into, 3: what is merged.
    pub stage: u8,
    /// Kind and permissions, as git writes them.
    pub mode: String,
    pub blob: Oid,
}

/// How putting commits on another base ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum GitReplayOutcome {
    Clean {
        /// The last of the new commits; the new base itself if nothing was left to do.
        tip: Oid,
    },
    /// One of them does not fit.
    Conflict {
        files: Vec<String>,
        /// What git says about it.
        text: String,
    },
}

/// The common ancestor is shown too: whoever resolves it needs to see what either side changed.
const MARKERS: &str = "merge.conflictStyle=diff3";

/// How files are merged is the target branch's to say, and nobody's who happens to run us.
const NO_ATTRIBUTES: &str = "core.attributesFile=/dev/null";

/// A merge that nobody waits for is not worth more.
const TIMEOUT_PROBE: Duration = Duration::from_secs(10);

/// Ends of names of files that mergiraf is tried on: languages that it knows, and text.
const LANGUAGES: &[&str] = &[
    "rs", "toml", "go", "java", "kt", "py", "js", "jsx", "ts", "tsx", "json", "yml", "yaml", "c",
    "h", "cc", "cpp", "hpp", "cs", "rb", "php", "scala", "dart", "html", "xml", "lua", "ex", "hs",
    "nix", "sol",
];

/// A commit taken apart.
#[derive(Debug, Clone)]
pub(super) struct CommitDetails {
    pub(super) parents: Vec<Oid>,
    pub(super) author: GitIdentity,
    author_date: String,
    committer_date: String,
    message: String,
}

impl Repo {
    /// Merges `tip` into `onto` and says what the files would be. Attributes come from `onto`, so a
    /// branch cannot choose how it is merged.
    pub fn merge(&self, onto: &Oid, tip: &Oid) -> Result<GitMergeOutcome> {
        self.merge_tree(None, onto, tip)
    }

    /// The same as if `base` were what both sides come from.
    pub fn merge_with_base(&self, base: &Oid, onto: &Oid, tip: &Oid) -> Result<GitMergeOutcome> {
        self.merge_tree(Some(base), onto, tip)
    }

    /// The same, but what git writes goes to a folder of its own.
    pub(super) fn merge_into_object_dir(
        &self,
        onto: &Oid,
        tip: &Oid,
        objects: &Path,
    ) -> Result<GitMergeOutcome> {
        let git = self
            .git()
            .config_setting(NO_ATTRIBUTES)
            .timeout(TIMEOUT_PROBE)
            .env("GIT_OBJECT_DIRECTORY", objects)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", self.common_dir().join("objects"));
        self.run_merge_tree(git, None, onto, (onto, tip))
    }

    /// The same again with the program mergiraf, which knows what files of many languages mean. Drivers
    /// that the repository sets itself go before it.
    pub fn merge_with_mergiraf(
        &self,
        onto: &Oid,
        tip: &Oid,
        mergiraf: &Path,
    ) -> Result<GitMergeOutcome> {
        let attributes = self.temp_path("attributes");
        let lines: String =
            LANGUAGES.iter().map(|end| format!("*.{end} merge=mergiraf\n")).collect();
        std::fs::write(&attributes, lines).with_path("write", &attributes)?;
        let quoted = mergiraf.display().to_string().replace('\'', "'\\''");
        let git = self
            .git()
            .config_setting(format!("core.attributesFile={}", attributes.display()))
            .config_setting(format!(
                "merge.mergiraf.driver='{quoted}' merge --git %O %A %B -p %P -l %L"
            ));
        let merged = self.run_merge_tree(git, None, onto, (onto, tip));
        // What stays is swept at the next start.
        let _ = std::fs::remove_file(&attributes);
        merged
    }

    /// What `head` would be without what `commit` brought, seen from its first parent.
    pub fn revert_in_memory(&self, commit: &Oid, head: &Oid) -> Result<GitMergeOutcome> {
        let details = self.read_commit_details(commit)?;
        let Some(parent) = details.parents.first() else {
            return Err(GitError::BadOutput {
                what: "git revert".to_owned(),
                text: format!("{commit} is the first commit and cannot be reverted"),
            });
        };
        self.merge_tree(Some(commit), head, parent)
    }

    /// Makes a commit object. Same arguments, same id.
    pub fn commit_tree(
        &self,
        tree: &Oid,
        parents: &[Oid],
        message: &str,
        author: &GitIdentity,
        committer: &GitIdentity,
        date_ms: i64,
    ) -> Result<Oid> {
        let date = format!("@{} +0000", date_ms.div_euclid(1000));
        self.write_commit(tree, parents, message, (author, &date), (committer, &date))
    }

    pub(super) fn write_signed_commit(&self, new: NewCommit<'_>) -> Result<Oid> {
        let date = format!("@{} +0000", new.date_ms.div_euclid(1000));
        let (author, committer) = ((new.author, &*date), (new.committer, &*date));
        let git = self.git().args(["commit-tree", "-S", new.tree.as_str()]);
        run_commit_tree(git, new.parents, new.message, author, committer)
    }

    /// Puts the commits `base..tip` onto `onto`, keeping authors and messages; ones that bring
    /// nothing new are left out. If there are merges among them, they become one commit.
    pub fn replay_commits(&self, base: &Oid, tip: &Oid, onto: &Oid) -> Result<GitReplayOutcome> {
        let answer = self
            .git()
            .args(["rev-list", "--reverse", "--topo-order", "--parents"])
            .args([&format!("{base}..{tip}"), "--"])
            .run()?;
        let text = answer.single_line()?.to_owned();
        let mut chain = Vec::new();
        for line in text.lines() {
            let ids: Vec<&str> = line.split(' ').collect();
            let [commit, parent] = ids.as_slice() else { return self.squash_commits(tip, onto) };
            chain.push((parse_oid(commit, &answer)?, parse_oid(parent, &answer)?));
        }
        let mut head = onto.clone();
        let mut head_tree = self.tree_of(onto)?;
        for (commit, parent) in chain {
            match self.merge_tree(Some(&parent), &head, &commit)? {
                GitMergeOutcome::Clean { tree } if tree == head_tree => {}
                GitMergeOutcome::Clean { tree } => {
                    head = self.copy_commit(&commit, &tree, &head)?;
                    head_tree = tree;
                }
                GitMergeOutcome::Conflict { files, text, .. } => {
                    return Ok(GitReplayOutcome::Conflict { files, text });
                }
            }
        }
        Ok(GitReplayOutcome::Clean { tip: head })
    }

    fn squash_commits(&self, tip: &Oid, onto: &Oid) -> Result<GitReplayOutcome> {
        match self.merge(onto, tip)? {
            GitMergeOutcome::Clean { tree } if tree == self.tree_of(onto)? => {
                Ok(GitReplayOutcome::Clean { tip: onto.clone() })
            }
            GitMergeOutcome::Clean { tree } => {
                Ok(GitReplayOutcome::Clean { tip: self.copy_commit(tip, &tree, onto)? })
            }
            GitMergeOutcome::Conflict { files, text, .. } => {
                Ok(GitReplayOutcome::Conflict { files, text })
            }
        }
    }

    /// Makes one commit of all that `tip` is, with these files, on top of `onto`. Same arguments, same id.
    pub fn copy_commit_onto(&self, tip: &Oid, tree: &Oid, onto: &Oid) -> Result<Oid> {
        self.copy_commit(tip, tree, onto)
    }

    /// Makes a merge commit of ours, dated as its first parent. Same arguments, same id.
    pub fn commit_merge(&self, tree: &Oid, parents: [&Oid; 2], message: &str) -> Result<Oid> {
        let date = self.read_commit_details(parents[0])?.committer_date;
        let (who, parents) = (self.identity()?, parents.map(Clone::clone));
        self.write_commit(tree, &parents, message, (&who, &date), (&who, &date))
    }

    fn copy_commit(&self, commit: &Oid, tree: &Oid, parent: &Oid) -> Result<Oid> {
        let from = self.read_commit_details(commit)?;
        // The committer's date is taken over too: replaying again gives the same commit.
        self.write_commit(
            tree,
            std::slice::from_ref(parent),
            &from.message,
            (&from.author, &from.author_date),
            (&GitIdentity::fallback(), &from.committer_date),
        )
    }

    fn write_commit(
        &self,
        tree: &Oid,
        parents: &[Oid],
        message: &str,
        author: (&GitIdentity, &str),
        committer: (&GitIdentity, &str),
    ) -> Result<Oid> {
        let git = self.git().args(["commit-tree", tree.as_str()]);
        run_commit_tree(git, parents, message, author, committer)
    }

    /// Takes a commit apart.
    pub(super) fn read_commit_details(&self, commit: &Oid) -> Result<CommitDetails> {
        let format = "--format=tformat:%P%x00%an%x00%ae%x00%ad%x00%cd%x00%B";
        let answer = self
            .git()
            .args(["log", "-1", "--no-show-signature", "--date=raw", "-z", format])
            .args([commit.as_str(), "--"])
            .run()?;
        let fields: Vec<&[u8]> = answer.stdout.split(|&b| b == 0).collect();
        let [parents, name, email, author_date, committer_date, message, ..] = fields.as_slice()
        else {
            return Err(answer.bad_output_error());
        };
        let parents = lossy_string(parents);
        let parents =
            parents.split_whitespace().map(|id| parse_oid(id, &answer)).collect::<Result<_>>()?;
        Ok(CommitDetails {
            parents,
            author: GitIdentity { name: lossy_string(name), email: lossy_string(email) },
            author_date: format!("@{}", lossy_string(author_date)),
            committer_date: format!("@{}", lossy_string(committer_date)),
            message: lossy_string(message),
        })
    }

    fn merge_tree(&self, base: Option<&Oid>, ours: &Oid, theirs: &Oid) -> Result<GitMergeOutcome> {
        match base {
            Some(base) if !self.is_git_at_least(2, 40) => {
                self.merge_tree_with_grafted_base(base, ours, theirs)
            }
            base => self.merge_tree_with(base, ours, ours, theirs),
        }
    }

    fn merge_tree_with(
        &self,
        base: Option<&Oid>,
        attributes: &Oid,
        ours: &Oid,
        theirs: &Oid,
    ) -> Result<GitMergeOutcome> {
        let git = self.git().config_setting(NO_ATTRIBUTES).timeout(TIMEOUT_CHECKOUT);
        self.run_merge_tree(git, base, attributes, (ours, theirs))
    }

    fn run_merge_tree(
        &self,
        git: GitCommand,
        base: Option<&Oid>,
        attributes: &Oid,
        (ours, theirs): (&Oid, &Oid),
    ) -> Result<GitMergeOutcome> {
        let mut git = git.config_setting(MARKERS).args(["merge-tree", "--write-tree", "-z"]);
        if let Some(base) = base {
            git = git.arg(format!("--merge-base={base}"));
        }
        let answer = git
            .args([ours.as_str(), theirs.as_str()])
            // As an environment variable, because a git too old to know it then ignores it.
            .env("GIT_ATTR_SOURCE", attributes.as_str())
            .accept_exit_codes(&[1])
            .run()?;
        parse_merge_output(&answer)
    }

    /// Gives git a history in which `base` is the merge base, for a git that cannot be told.
    pub(super) fn merge_tree_with_grafted_base(
        &self,
        base: &Oid,
        ours: &Oid,
        theirs: &Oid,
    ) -> Result<GitMergeOutcome> {
        let who = GitIdentity::fallback();
        let root = self.commit_tree(&self.tree_of(base)?, &[], "base", &who, &who, 0)?;
        let parents = [root];
        let left = self.commit_tree(&self.tree_of(ours)?, &parents, "ours", &who, &who, 0)?;
        let right = self.commit_tree(&self.tree_of(theirs)?, &parents, "theirs", &who, &who, 0)?;
        self.merge_tree_with(None, ours, &left, &right)
    }
}

/// `<tree> NUL (<mode> <blob> <stage> TAB <file> NUL)* NUL (<count> NUL (<path> NUL)* <kind> NUL <message> NUL)*`
fn parse_merge_output(answer: &GitOutput) -> Result<GitMergeOutcome> {
    // Exit code 1 is also how it ends when it is given something that is no commit.
    if answer.code == 1 && answer.stdout.is_empty() {
        return Err(answer.failure_error());
    }
    let mut fields = answer.stdout.split(|&b| b == 0);
    let tree = parse_oid(&lossy_string(fields.next().unwrap_or_default()), answer)?;
    if answer.code == 0 {
        return Ok(GitMergeOutcome::Clean { tree });
    }
    let mut stages = Vec::new();
    for field in fields.by_ref().take_while(|field| !field.is_empty()) {
        stages.push(parse_index_stage(field).ok_or_else(|| answer.bad_output_error())?);
    }
    let mut files: Vec<String> = stages.iter().map(|stage| stage.path.clone()).collect();
    files.dedup();
    let mut text = String::new();
    while let Some(count) = fields.next().filter(|count| !count.is_empty()) {
        let count: usize = lossy_string(count).parse().map_err(|_| answer.bad_output_error())?;
        // After the paths comes the kind, then the sentence.
        let message = fields.nth(count + 1).ok_or_else(|| answer.bad_output_error())?;
        text.push_str(&lossy_string(message));
    }
    Ok(GitMergeOutcome::Conflict { files, text, tree, stages })
}

fn parse_index_stage(field: &[u8]) -> Option<GitIndexStage> {
    let tab = field.iter().position(|&b| b == b'\t')?;
    let head = std::str::from_utf8(&field[..tab]).ok()?;
    let [mode, blob, stage] = head.split(' ').collect::<Vec<_>>()[..] else { return None };
    let blob = Some(blob).filter(|blob| super::is_oid(blob)).map(Oid::new)?;
    let (path, mode) = (lossy_string(&field[tab + 1..]), mode.to_owned());
    Some(GitIndexStage { path, stage: stage.parse().ok()?, mode, blob })
}

fn run_commit_tree(
    mut git: GitCommand,
    parents: &[Oid],
    message: &str,
    author: (&GitIdentity, &str),
    committer: (&GitIdentity, &str),
) -> Result<Oid> {
    for parent in parents {
        git = git.args(["-p", parent.as_str()]);
    }
    let answer = git
        .args(["-F", "-"])
        .env("GIT_AUTHOR_NAME", name_or_unknown(&author.0.name))
        .env("GIT_AUTHOR_EMAIL", &author.0.email)
        .env("GIT_AUTHOR_DATE", author.1)
        .env("GIT_COMMITTER_NAME", name_or_unknown(&committer.0.name))
        .env("GIT_COMMITTER_EMAIL", &committer.0.email)
        .env("GIT_COMMITTER_DATE", committer.1)
        .stdin_bytes(message)
        .run()?;
    parse_oid(answer.single_line()?, &answer)
}

fn name_or_unknown(name: &str) -> &str {
    if name.trim().is_empty() { "unknown" } else { name }
}
