//! Looks ahead: which pieces of work that are under way or wait to land would clash with each other or with
//! the target branch, by merging their newest commits in memory, off the loop's thread. Only a view: what
//! is found is told to the machine as an input and kept nowhere.
//!
//! Two pieces that touch no file in common are not merged at all; a pair is merged once for each pair of
//! commits; and one look does a bounded amount of work and says whether it saw everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mainstem_core::conflict::{ConflictForecast, ConflictPair, UnlandedWork};
use mainstem_core::id::{Oid, TaskId, TaskIx, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_host::git::{GitError, MergeProbe, Repo};

use crate::engine_host::EngineHost;

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
pub struct ForecastWork {
    pub task: TaskId,
    pub attempt: u32,
    pub base: Oid,
    pub commit: Oid,
}

/// The work that is under way or waits to land, as far as it is on a ref.
pub fn list_forecast_work(machine: &Machine) -> Vec<ForecastWork> {
    let of = |t: TaskIx| {
        let state = machine.tasks().get(t);
        let current = state.current.as_ref()?;
        let task = machine.plan().tasks[t.index()].id.clone();
        let series = format!("refs/mainstem/snapshots/{task}/{}/", current.n);
        let snapshot = || state.snapshot.clone().filter(|(name, _)| name.starts_with(&series));
        let commit = match (state.phase(), &current.evidence) {
            (Phase::Verifying | Phase::Merging, Some(evidence)) => evidence.tip.clone(),
            _ => snapshot()?.1,
        };
        Some(ForecastWork { task, attempt: current.n, base: current.base.clone()?, commit })
    };
    machine.tasks().active_tasks().filter_map(of).take(PIECES_MAX).collect()
}

/// Whether to look, and when: never twice at once, only if something has changed, not all the time.
#[derive(Debug, Default)]
pub struct ForecastSchedule {
    looking: bool,
    /// What was looked at last, and after how many landings.
    last: Option<(Vec<ForecastWork>, u32)>,
    at: Option<Time>,
}

impl ForecastSchedule {
    /// Begins to look if there is something new to see.
    pub fn start_if_due(&mut self, machine: &Machine, outside: &mut dyn EngineHost) {
        let now = machine.now();
        if self.looking || self.at.is_some_and(|at| now.since_ms(at) < EVERY_MS) {
            return;
        }
        let seen = (list_forecast_work(machine), machine.tasks().count_in_phase(Phase::Landed));
        if seen.0.is_empty() && machine.conflict_forecast().unlanded_work.is_empty()
            || self.last.as_ref() == Some(&seen)
        {
            return;
        }
        self.looking = outside.start_forecast(seen.0.clone());
        (self.last, self.at) = (Some(seen), Some(now));
    }

    /// It was looked. What was not seen whole is looked at again.
    pub fn finish_forecast(
        &mut self,
        outlook: Option<ConflictForecast>,
    ) -> Option<ConflictForecast> {
        self.looking = false;
        if outlook.as_ref().is_none_or(|outlook| !outlook.complete) {
            self.last = None;
        }
        outlook
    }

    /// Is anybody looking now?
    pub fn is_running(&self) -> bool {
        self.looking
    }
}

/// What was found out before, for as long as it is of use.
#[derive(Debug, Default)]
pub struct ConflictForecaster {
    changed: BTreeMap<(Oid, Oid), BTreeSet<String>>,
    merged: BTreeMap<(Oid, Oid), Vec<String>>,
}

struct ForecastPass<'a> {
    probe: MergeProbe<'a>,
    merges: usize,
    until: Instant,
    whole: bool,
    known: ConflictForecaster,
    used: ConflictForecaster,
}

impl ConflictForecaster {
    /// Looks at these, and at the target branch.
    pub fn forecast_conflicts(
        &mut self,
        repo: &Repo,
        target: &str,
        works: &[ForecastWork],
    ) -> Result<ConflictForecast, GitError> {
        let main = repo.read_ref(target)?;
        let mut look = ForecastPass {
            probe: repo.create_merge_probe()?,
            merges: 0,
            until: Instant::now() + TIME_MAX,
            whole: true,
            known: std::mem::take(self),
            used: Self::default(),
        };
        let outlook = look.compare_all(main.as_ref(), works);
        // What nobody asks for any more is forgotten.
        *self = look.used;
        outlook
    }
}

impl ForecastPass<'_> {
    fn compare_all(
        &mut self,
        main: Option<&Oid>,
        works: &[ForecastWork],
    ) -> Result<ConflictForecast, GitError> {
        let mut pieces = Vec::new();
        let mut pairs = Vec::new();
        for work in works {
            let paths = self.changed_paths(&work.base, &work.commit)?;
            let (task, attempt, commit) = (work.task.clone(), work.attempt, work.commit.clone());
            pieces.push(UnlandedWork { task, attempt, commit, paths: paths.into_iter().collect() });
        }
        for (n, a) in works.iter().enumerate() {
            let mine: BTreeSet<&String> = pieces[n].paths.iter().collect();
            if let Some(main) = main.filter(|main| **main != a.base) {
                let theirs = self.changed_paths(&a.base, main)?;
                if theirs.iter().any(|path| mine.contains(path)) {
                    let paths = self.conflicting_paths(main, &a.commit)?;
                    pairs.push(ConflictPair { a: a.task.clone(), b: None, paths });
                }
            }
            for (m, b) in works.iter().enumerate().skip(n + 1) {
                if pieces[m].paths.iter().any(|path| mine.contains(path)) {
                    let paths = self.conflicting_paths(&a.commit, &b.commit)?;
                    pairs.push(ConflictPair { a: a.task.clone(), b: Some(b.task.clone()), paths });
                }
            }
        }
        pairs.retain(|pair| !pair.paths.is_empty());
        Ok(ConflictForecast { unlanded_work: pieces, pairs, complete: self.whole })
    }

    fn changed_paths(&mut self, from: &Oid, to: &Oid) -> Result<BTreeSet<String>, GitError> {
        let key = (from.clone(), to.clone());
        let known = self.used.changed.get(&key).or_else(|| self.known.changed.get(&key));
        let paths = match known {
            Some(paths) => paths.clone(),
            None => self.probe.list_changed_files(from, to)?.into_iter().take(PATHS_MAX).collect(),
        };
        self.used.changed.insert(key, paths.clone());
        Ok(paths)
    }

    /// The files in which two commits clash; none while that is not known.
    fn conflicting_paths(&mut self, a: &Oid, b: &Oid) -> Result<Vec<String>, GitError> {
        let key = (a.clone(), b.clone());
        let files = match self.known.merged.remove(&key) {
            Some(files) => files,
            None if self.merges >= MERGES_MAX || Instant::now() >= self.until => {
                self.whole = false;
                return Ok(Vec::new());
            }
            None => {
                self.merges += 1;
                self.probe.find_conflicts(a, b)?
            }
        };
        self.used.merged.insert(key, files.clone());
        Ok(files)
    }
}
