//! Sees to it that moving a branch loses no commit: what nothing else holds gets a ref of its own.
//!
//! Knows refs and what reaches what, not what a branch is for.

use mainstem_core::id::Oid;

use super::error::{GitError, Result};
use super::{RefUpdateOutcome, Repo};

/// A branch that moves again and again while we look has somebody at work on it.
const TRIES_MAX: u32 = 16;

impl Repo {
    /// Keeps the commit a ref is on as the next free `<series>/<n>` and returns that name; `None` if
    /// there is no such ref, or if `also_in` or a ref below the series' parent holds the commit.
    ///
    /// `series` is `<task's prefix>/<attempt>`: what another attempt's series holds is held.
    pub fn keep_ref_tip(
        &self,
        refname: &str,
        series: &str,
        also_in: Option<&Oid>,
        reason: &str,
    ) -> Result<Option<String>> {
        match self.read_ref(refname)? {
            Some(tip) => self.keep_commit(&tip, series, also_in, reason),
            None => Ok(None),
        }
    }

    /// Keeps a commit as the next free `<series>/<n>`, unless the newest one there is it.
    pub fn keep_as_snapshot(&self, commit: &Oid, series: &str, reason: &str) -> Result<String> {
        let newest = self.find_newest_snapshot(series)?;
        match newest {
            Some((number, kept)) if kept == *commit => Ok(format!("{series}/{number}")),
            newest => {
                let first = newest.map_or(1, |(number, _)| number + 1);
                self.create_snapshot_ref(series, commit, first, reason).map(|(name, _)| name)
            }
        }
    }

    /// The branch that forbids branches `<prefix>/…`: git has no room for `a/b` beside `a`.
    ///
    /// `git branch -m <it> <another name>` makes room.
    pub fn find_blocking_branch(&self, prefix: &str) -> Result<Option<String>> {
        let mut name = String::new();
        for part in prefix.split('/').filter(|part| !part.is_empty()) {
            if !name.is_empty() {
                name.push('/');
            }
            name.push_str(part);
            if self.read_ref(&format!("refs/heads/{name}"))?.is_some() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Puts a branch at `base`, wherever it was; its former tip is kept if nothing else holds it.
    pub(super) fn rewind_branch(
        &self,
        name: &str,
        base: &Oid,
        series: &str,
    ) -> Result<Option<String>> {
        let mut kept = None;
        for _ in 0..TRIES_MAX {
            let tip = self.read_ref(name)?;
            if tip.as_ref() == Some(base) {
                return Ok(kept);
            }
            if let Some(tip) = &tip {
                let reason = "mainstem: kept before its branch is used again";
                kept = self.keep_commit(tip, series, Some(base), reason)?.or(kept);
            }
            // Only from the value that is kept: whoever commits in between wins, and is kept next.
            match self.update_ref(name, base, tip.as_ref(), "mainstem: prepare")? {
                RefUpdateOutcome::Moved => return Ok(kept),
                RefUpdateOutcome::Refused { .. } => {}
            }
        }
        Err(GitError::BadOutput {
            what: "git update-ref".to_owned(),
            text: format!("{name} keeps changing; stop the process that commits there"),
        })
    }

    fn keep_commit(
        &self,
        tip: &Oid,
        series: &str,
        also_in: Option<&Oid>,
        reason: &str,
    ) -> Result<Option<String>> {
        // Lost already, so no ref could keep it.
        if !self.has_object(tip)? {
            return Ok(None);
        }
        let series = series.trim_end_matches('/');
        let around = series.rsplit_once('/').map_or(series, |(parent, _)| parent);
        let mut question = format!("{tip}\n");
        let held = self.list_refs(around)?;
        for commit in held.iter().map(|(_, commit)| commit).chain(also_in) {
            question.push_str(&format!("^{commit}\n"));
        }
        // A ref whose commit is lost holds nothing.
        let args = ["rev-list", "-n", "1", "--ignore-missing", "--stdin"];
        let answer = self.git().args(args).stdin_bytes(question).run()?;
        if answer.single_line()?.is_empty() {
            return Ok(None);
        }
        let first = self.find_newest_snapshot(series)?.map_or(1, |(number, _)| number + 1);
        self.create_snapshot_ref(series, tip, first, reason).map(|(name, _)| Some(name))
    }
}
