//! Looks ahead: which pieces of work that are under way or wait to land would clash with each other or with
//! the target branch, by merging their newest commits in memory, off the loop's thread. Only a view: what
//! is found is told to the machine as an input and kept nowhere.
//!
//! Two pieces that touch no file in common are not merged at all; a pair is merged once for each pair of
//! commits; and one look does a bounded amount of work and says whether it saw everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mainstem_core::clash::{Outlook, Pair, Piece};
use mainstem_core::id::{Oid, TaskId, TaskIx, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_host::git::{GitError, Probe, Repo};

use crate::outside::Outside;

/// Time between two looks.
const EVERY_MS: u64 = 2_000;
/// Pieces that are compared.
const PIECES_MAX: usize = 64;
/// Merges in one look.
const MERGES_MAX: usize = 60;
/// Time for the merges of one look.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Files of one piece that are compared; work that touches more is taken for these.
const PATHS_MAX: usize = 2_000;

/// A piece of work as git knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Whose.
    pub task: TaskId,
    /// Which attempt.
    pub attempt: u32,
    /// Where it started.
    pub base: Oid,
    /// Its newest commit.
    pub commit: Oid,
}

/// The work that is under way or waits to land, as far as it is on a ref.
pub fn works(machine: &Machine) -> Vec<Work> {
    let of = |t: TaskIx| {
        let state = machine.tasks().get(t);
        let current = state.current.as_ref()?;
        let task = machine.plan().tasks[t.ix()].id.clone();
        let series = format!("refs/mainstem/snapshots/{task}/{}/", current.n);
        let snapshot = || state.snapshot.clone().filter(|(name, _)| name.starts_with(&series));
        let commit = match (state.phase(), &current.evidence) {
            (Phase::Verifying | Phase::Merging, Some(evidence)) => evidence.tip.clone(),
            _ => snapshot()?.1,
        };
        Some(Work { task, attempt: current.n, base: current.base.clone()?, commit })
    };
    machine.tasks().active().filter_map(of).take(PIECES_MAX).collect()
}

/// Whether to look, and when: never twice at once, only if something has changed, not all the time.
#[derive(Debug, Default)]
pub struct Lookout {
    looking: bool,
    /// What was looked at last, and after how many landings.
    last: Option<(Vec<Work>, u32)>,
    /// When that was.
    at: Option<Time>,
}

impl Lookout {
    /// Begins to look if there is something new to see.
    pub fn follow(&mut self, machine: &Machine, outside: &mut dyn Outside) {
        let now = machine.now();
        if self.looking || self.at.is_some_and(|at| now.since_ms(at) < EVERY_MS) {
            return;
        }
        let seen = (works(machine), machine.tasks().count(Phase::Landed));
        if seen.0.is_empty() && machine.outlook().pieces.is_empty()
            || self.last.as_ref() == Some(&seen)
        {
            return;
        }
        self.looking = outside.survey(seen.0.clone());
        (self.last, self.at) = (Some(seen), Some(now));
    }

    /// It was looked. What was not seen whole is looked at again.
    pub fn seen(&mut self, outlook: Option<Outlook>) -> Option<Outlook> {
        self.looking = false;
        if outlook.as_ref().is_none_or(|outlook| !outlook.whole) {
            self.last = None;
        }
        outlook
    }

    /// Is anybody looking now?
    pub fn is_looking(&self) -> bool {
        self.looking
    }
}

/// What was found out before, for as long as it is of use.
#[derive(Debug, Default)]
pub struct Surveyor {
    changed: BTreeMap<(Oid, Oid), BTreeSet<String>>,
    merged: BTreeMap<(Oid, Oid), Vec<String>>,
}

/// One look.
struct Look<'a> {
    probe: Probe<'a>,
    merges: usize,
    until: Instant,
    whole: bool,
    known: Surveyor,
    used: Surveyor,
}

impl Surveyor {
    /// Looks at these, and at the target branch.
    pub fn look(&mut self, repo: &Repo, target: &str, works: &[Work]) -> Result<Outlook, GitError> {
        let main = repo.read_ref(target)?;
        let mut look = Look {
            probe: repo.probe()?,
            merges: 0,
            until: Instant::now() + TIME_MAX,
            whole: true,
            known: std::mem::take(self),
            used: Self::default(),
        };
        let outlook = look.all(main.as_ref(), works);
        // What nobody asks for any more is forgotten.
        *self = look.used;
        outlook
    }
}

impl Look<'_> {
    fn all(&mut self, main: Option<&Oid>, works: &[Work]) -> Result<Outlook, GitError> {
        let mut pieces = Vec::new();
        let mut pairs = Vec::new();
        for work in works {
            let paths = self.changed(&work.base, &work.commit)?;
            let (task, attempt, commit) = (work.task.clone(), work.attempt, work.commit.clone());
            pieces.push(Piece { task, attempt, commit, paths: paths.into_iter().collect() });
        }
        for (n, a) in works.iter().enumerate() {
            let mine: BTreeSet<&String> = pieces[n].paths.iter().collect();
            if let Some(main) = main.filter(|main| **main != a.base) {
                let theirs = self.changed(&a.base, main)?;
                if theirs.iter().any(|path| mine.contains(path)) {
                    let paths = self.merged(main, &a.commit)?;
                    pairs.push(Pair { a: a.task.clone(), b: None, paths });
                }
            }
            for (m, b) in works.iter().enumerate().skip(n + 1) {
                if pieces[m].paths.iter().any(|path| mine.contains(path)) {
                    let paths = self.merged(&a.commit, &b.commit)?;
                    pairs.push(Pair { a: a.task.clone(), b: Some(b.task.clone()), paths });
                }
            }
        }
        pairs.retain(|pair| !pair.paths.is_empty());
        Ok(Outlook { pieces, pairs, whole: self.whole })
    }

    fn changed(&mut self, from: &Oid, to: &Oid) -> Result<BTreeSet<String>, GitError> {
        let key = (from.clone(), to.clone());
        let known = self.used.changed.get(&key).or_else(|| self.known.changed.get(&key));
        let paths = match known {
            Some(paths) => paths.clone(),
            None => self.probe.changed(from, to)?.into_iter().take(PATHS_MAX).collect(),
        };
        self.used.changed.insert(key, paths.clone());
        Ok(paths)
    }

    /// The files in which two commits clash; none while that is not known.
    fn merged(&mut self, a: &Oid, b: &Oid) -> Result<Vec<String>, GitError> {
        let key = (a.clone(), b.clone());
        let files = match self.known.merged.remove(&key) {
            Some(files) => files,
            None if self.merges >= MERGES_MAX || Instant::now() >= self.until => {
                self.whole = false;
                return Ok(Vec::new());
            }
            None => {
                self.merges += 1;
                self.probe.clashes(a, b)?
            }
        };
        self.used.merged.insert(key, files.clone());
        Ok(files)
    }
}
