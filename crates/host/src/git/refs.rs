//! Reads and moves refs, and asks about commits. Knows no branch by name.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use mainstem_core::id::Oid;

use super::error::{GitError, Result};
use super::{GitIdentity, Repo, is_oid, lossy_string, parse_oid};

/// An object's name and a line end, in a ref's file.
const REF_BYTES_MAX: u64 = 65;

/// How a compare-and-swap of a ref ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum RefUpdateOutcome {
    /// The ref has the new value, and we put it there.
    Moved,
    /// Nothing was changed: re-reading shows another value than the expected one.
    Refused {
        /// What the ref holds instead.
        found: Option<Oid>,
    },
}

impl Repo {
    /// The commit a revision names; `None` if git says there is none.
    pub fn resolve_commit(&self, rev: &str) -> Result<Option<Oid>> {
        self.find_object(&format!("{rev}^{{commit}}"), self.git())
    }

    /// The value of a ref by its full name; `None` if it is not among the refs git lists.
    pub fn read_ref(&self, name: &str) -> Result<Option<Oid>> {
        if let Some(value) = self.read_loose_ref(name) {
            return Ok(Some(value));
        }
        let refs = self.list_refs(name)?;
        Ok(refs.into_iter().find(|(found, _)| found == name).map(|(_, oid)| oid))
    }

    /// The value of a ref that has a file of its own, which counts before anything packed. Whatever is
    /// not plainly one is for git to say: this saves a process, and proves no absence.
    pub(super) fn read_loose_ref(&self, name: &str) -> Option<Oid> {
        let plain = |part: &str| !part.is_empty() && !part.starts_with('.');
        if !name.starts_with("refs/") || !name.split('/').all(plain) {
            return None;
        }
        // Without it git takes the folder for no repository.
        std::fs::symlink_metadata(self.common_dir().join("HEAD")).ok()?;
        let text =
            crate::files::read_regular_file(&self.common_dir().join(name), REF_BYTES_MAX).ok()?;
        let id = std::str::from_utf8(&text).ok()?.strip_suffix('\n')?;
        (is_oid(id) && id.bytes().any(|b| b != b'0')).then(|| Oid::new(id))
    }

    /// All refs below a prefix (a whole path component), sorted by name.
    pub fn list_refs(&self, prefix: &str) -> Result<Vec<(String, Oid)>> {
        let prefix = prefix.trim_end_matches('/');
        let answer =
            self.git().args(["for-each-ref", "--format=%(objectname) %(refname)", prefix]).run()?;
        // A damaged ref is left out of the list with a warning; that is no proof of absence.
        if answer.stderr.contains("broken ref") {
            return Err(answer.failure_error());
        }
        let mut refs = Vec::new();
        for line in lossy_string(&answer.stdout).lines() {
            let (id, name) = line.split_once(' ').ok_or_else(|| answer.bad_output_error())?;
            refs.push((name.to_owned(), parse_oid(id, &answer)?));
        }
        Ok(refs)
    }

    /// The tree of a commit.
    pub fn tree_of(&self, commit: &Oid) -> Result<Oid> {
        if let Some(tree) = self.inner.tree_ids.get(commit) {
            return Ok(tree);
        }
        let rev = format!("{commit}^{{tree}}");
        let tree =
            self.find_object(&rev, self.git())?.ok_or_else(|| missing_commit_error(commit))?;
        // Only a whole name means the same tree for ever.
        if is_oid(commit.as_str()) {
            self.inner.tree_ids.insert(commit, &tree);
        }
        Ok(tree)
    }

    /// Whether `a` is `b` or an ancestor of it.
    pub fn is_ancestor(&self, a: &Oid, b: &Oid) -> Result<bool> {
        let args = ["merge-base", "--is-ancestor", a.as_str(), b.as_str()];
        Ok(self.git().args(args).accept_exit_codes(&[1]).run()?.code == 0)
    }

    /// Whether a remote has this commit, as far as its branches have been seen here.
    pub fn is_on_remote(&self, commit: &Oid) -> Result<bool> {
        let args = ["for-each-ref", "--count=1", "--format=%(refname)", "--contains"];
        let answer = self.git().args(args).args([commit.as_str(), "refs/remotes/"]).run()?;
        Ok(!answer.single_line()?.is_empty())
    }

    /// Whether the object is in this repository, without asking any other for it.
    pub fn has_object(&self, id: &Oid) -> Result<bool> {
        let git = self.git().env("GIT_NO_LAZY_FETCH", "1");
        Ok(self.find_object(id.as_str(), git)?.is_some())
    }

    /// The tip of a branch; in a repository without any commit, makes an empty first one there.
    pub fn ensure_first_commit(&self, branch: &str) -> Result<Oid> {
        let name = format!("refs/heads/{branch}");
        if let Some(tip) = self.read_ref(&name)? {
            return Ok(tip);
        }
        if !self.list_refs("refs/heads")?.is_empty() || self.resolve_commit("HEAD")?.is_some() {
            return Err(GitError::NoBranch { branch: branch.to_owned() });
        }
        let answer = self.git().args(["mktree"]).stdin_bytes(Vec::new()).run()?;
        let tree = parse_oid(answer.single_line()?, &answer)?;
        let who = self.identity()?;
        let first = self.commit_tree(&tree, &[], "Start the repository\n", &who, &who, now_ms())?;
        match self.update_ref(&name, &first, None, "mainstem: first commit")? {
            RefUpdateOutcome::Moved => Ok(first),
            RefUpdateOutcome::Refused { found: Some(tip) } => Ok(tip),
            RefUpdateOutcome::Refused { found: None } => {
                Err(GitError::NoBranch { branch: branch.to_owned() })
            }
        }
    }

    /// Moves a ref from `old` (`None`: it must not exist) to `new`, or leaves it alone.
    pub fn update_ref(
        &self,
        name: &str,
        new: &Oid,
        old: Option<&Oid>,
        reason: &str,
    ) -> Result<RefUpdateOutcome> {
        let none = "0".repeat(new.as_str().len());
        let expected = old.map_or(none.as_str(), Oid::as_str);
        let git = self
            .git()
            .args(["update-ref", "--no-deref", "-m", reason, "--end-of-options", name])
            .args([new.as_str(), expected]);
        self.classify_ref_update(self.run_locking_ref(git, name, false), name, old)
    }

    /// Deletes a ref (`old`: only if it has that value). A ref that is not there counts as deleted.
    pub fn delete_ref(&self, name: &str, old: Option<&Oid>) -> Result<RefUpdateOutcome> {
        let found = self.read_ref(name)?;
        let Some(found) = found else { return Ok(RefUpdateOutcome::Moved) };
        if old.is_some_and(|old| *old != found) {
            return Ok(RefUpdateOutcome::Refused { found: Some(found) });
        }
        let git = self.git().args([
            "update-ref",
            "--no-deref",
            "-d",
            "--end-of-options",
            name,
            found.as_str(),
        ]);
        match self.classify_ref_update(self.run_locking_ref(git, name, true), name, Some(&found))? {
            RefUpdateOutcome::Refused { found: None } => Ok(RefUpdateOutcome::Moved),
            other => Ok(other),
        }
    }

    /// Deletes many refs, each only if it still has the value given; says which are gone. One that is
    /// not there counts as gone, one that has another value by now stays.
    pub fn delete_refs(&self, refs: &[(String, Oid)]) -> Result<Vec<String>> {
        /// Whoever moves refs of ours while we remove them does it a few times at most.
        const TRIES_MAX: u32 = 4;
        let Some((first, _)) = refs.first() else { return Ok(Vec::new()) };
        for last in (0..TRIES_MAX).rev() {
            let now: HashMap<String, Oid> =
                self.list_refs(common_ref_folder(refs))?.into_iter().collect();
            let there = refs.iter().filter(|(name, old)| now.get(name) == Some(old));
            let orders: String = there
                .map(|(name, old)| format!("option no-deref\ndelete {name} {old}\n"))
                .collect();
            let git = self.git().args(["update-ref", "--stdin"]).stdin_bytes(orders);
            match self.run_locking_ref(git, first, true) {
                Ok(()) => {
                    let other = |name: &String, old| now.get(name).is_some_and(|id| id != old);
                    let gone = refs.iter().filter(|(name, old)| !other(name, old));
                    return Ok(gone.map(|(name, _)| name.clone()).collect());
                }
                // All or nothing: one that moved in between is left out the next time.
                Err(GitError::Failed { code: Some(_), .. }) if last > 0 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Vec::new())
    }

    /// Those of `commits` that `tip` does not contain, or that are not there at all.
    pub fn commits_not_in(&self, commits: &[Oid], tip: &Oid) -> Result<HashSet<Oid>> {
        if commits.is_empty() {
            return Ok(HashSet::new());
        }
        let names: Vec<String> = commits.iter().map(|id| format!("{id}^{{commit}}")).collect();
        let found = self.find_objects(&names)?;
        let mut out = HashSet::new();
        let mut question = format!("^{tip}\n");
        for (commit, found) in commits.iter().zip(found) {
            match found {
                Some(_) => question.push_str(&format!("{commit}\n")),
                None => drop(out.insert(commit.clone())),
            }
        }
        let answer = self.git().args(["rev-list", "--stdin"]).stdin_bytes(question).run()?;
        let beyond: HashSet<String> =
            lossy_string(&answer.stdout).lines().map(str::to_owned).collect();
        out.extend(commits.iter().filter(|id| beyond.contains(id.as_str())).cloned());
        Ok(out)
    }

    /// When each of these commits was made, in milliseconds; those that are not there are left out.
    pub fn read_commit_times(&self, commits: &[Oid]) -> Result<HashMap<Oid, (i64, String)>> {
        let names: Vec<String> = commits.iter().map(|id| format!("{id}^{{commit}}")).collect();
        if names.is_empty() {
            return Ok(HashMap::new());
        }
        let there = commits.iter().zip(self.find_objects(&names)?).filter(|(_, id)| id.is_some());
        let question: String = there.map(|(commit, _)| format!("{commit}\n")).collect();
        let args = ["log", "--no-walk=unsorted", "--stdin", "-z", "--format=tformat:%H %ct %s"];
        let answer = self.git().args(args).stdin_bytes(question).run()?;
        let mut times = HashMap::new();
        for line in super::split_nul(&answer.stdout) {
            let line = lossy_string(line);
            let mut words = line.splitn(3, ' ');
            let (id, time) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let seconds: i64 = time.parse().map_err(|_| answer.bad_output_error())?;
            let subject = words.next().unwrap_or("").to_owned();
            times.insert(parse_oid(id, &answer)?, (seconds.saturating_mul(1000), subject));
        }
        Ok(times)
    }

    /// Gives a commit a branch: `name`, or `name-2`, `name-3` … if that is somebody else's.
    pub fn restore_branch(&self, name: &str, commit: &Oid) -> Result<String> {
        /// Nobody restores one task a thousand times; a loop needs an end.
        const TRIES_MAX: u32 = 1000;
        self.ensure_branch_name_free(name)?;
        for n in 1..=TRIES_MAX {
            let candidate = if n == 1 { name.to_owned() } else { format!("{name}-{n}") };
            let full = format!("refs/heads/{candidate}");
            match self.update_ref(&full, commit, None, "mainstem: restore") {
                Ok(RefUpdateOutcome::Moved) => return Ok(candidate),
                Ok(RefUpdateOutcome::Refused { found }) if found.as_ref() == Some(commit) => {
                    return Ok(candidate);
                }
                Ok(RefUpdateOutcome::Refused { .. }) => {}
                // A branch `a/b` forbids a branch `a`.
                Err(GitError::Failed { stderr, .. }) if stderr.contains("cannot create") => {}
                Err(error) => return Err(error),
            }
        }
        Err(GitError::NoBranch { branch: name.to_owned() })
    }

    /// Fails if another branch leaves no room for one of this name.
    pub fn ensure_branch_name_free(&self, name: &str) -> Result<()> {
        let Some((folder, _)) = name.rsplit_once('/') else { return Ok(()) };
        match self.find_blocking_branch(folder)? {
            Some(branch) => Err(GitError::NoBranchRoom { branch, wanted: name.to_owned() }),
            None => Ok(()),
        }
    }

    fn classify_ref_update(
        &self,
        answer: Result<()>,
        name: &str,
        old: Option<&Oid>,
    ) -> Result<RefUpdateOutcome> {
        let Err(error) = answer else { return Ok(RefUpdateOutcome::Moved) };
        if !matches!(error, GitError::Failed { code: Some(_), .. }) {
            return Err(error);
        }
        let found = self.read_ref(name)?;
        if found.as_ref() == old { Err(error) } else { Ok(RefUpdateOutcome::Refused { found }) }
    }

    /// What git finds under a name; `None` only if git itself says that it is missing.
    pub(super) fn find_object(
        &self,
        name: &str,
        git: super::command::GitCommand,
    ) -> Result<Option<Oid>> {
        if name.contains(['\n', '\0']) {
            return Ok(None);
        }
        let answer =
            git.args(["cat-file", "--batch-check"]).stdin_bytes(format!("{name}\n")).run()?;
        let line = answer.single_line()?;
        if line.strip_suffix(" missing") == Some(name) {
            return Ok(None);
        }
        let first = line.split(' ').next().unwrap_or("");
        parse_oid(first, &answer).map(Some)
    }

    /// [`Self::find_object`] for many names at once.
    pub(super) fn find_objects(&self, names: &[String]) -> Result<Vec<Option<Oid>>> {
        let answer = self
            .git()
            .args(["cat-file", "--batch-check"])
            .stdin_bytes(names.join("\n") + "\n")
            .run()?;
        let text = lossy_string(&answer.stdout);
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() != names.len() {
            return Err(answer.bad_output_error());
        }
        let found = names.iter().zip(lines).map(|(name, line)| {
            if line.strip_suffix(" missing") == Some(name) {
                return Ok(None);
            }
            parse_oid(line.split(' ').next().unwrap_or(""), &answer).map(Some)
        });
        found.collect()
    }

    /// Who wrote a commit.
    pub fn read_author(&self, commit: &Oid) -> Result<GitIdentity> {
        Ok(self.read_commit_details(commit)?.author)
    }
}

/// Trees of commits that were asked for: they never change.
#[derive(Debug, Default)]
pub(super) struct TreeIdCache(Mutex<HashMap<Oid, Oid>>);

impl TreeIdCache {
    /// Commits remembered at once; then it begins anew.
    const KEPT_MAX: usize = 4096;

    fn get(&self, commit: &Oid) -> Option<Oid> {
        self.0.lock().ok()?.get(commit).cloned()
    }

    fn insert(&self, commit: &Oid, tree: &Oid) {
        let Ok(mut known) = self.0.lock() else { return };
        if known.len() >= Self::KEPT_MAX {
            known.clear();
        }
        known.insert(commit.clone(), tree.clone());
    }
}

/// The deepest folder that holds all these refs.
fn common_ref_folder(refs: &[(String, Oid)]) -> &str {
    let mut refs = refs.iter().map(|(name, _)| name.as_str());
    let mut folder = refs.next().unwrap_or("refs");
    for name in std::iter::once(folder).chain(refs) {
        while !name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')) {
            match folder.rsplit_once('/') {
                Some((shorter, _)) => folder = shorter,
                None => return "refs",
            }
        }
    }
    folder
}

pub(super) fn missing_commit_error(commit: &Oid) -> GitError {
    GitError::BadOutput {
        what: "git cat-file".to_owned(),
        text: format!("{commit} is not a commit of this repository"),
    }
}

pub(super) fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|age| i64::try_from(age.as_millis()).ok())
        .unwrap_or(0)
}
