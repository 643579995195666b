//! Removing snapshots that nobody needs any more: those of tasks whose landing is old enough, is what
//! the journal says of them last, and is proven by git.
//!
//! Work that has not landed is never touched, nor what `clean` kept (attempt 0), unless it is part of
//! the target branch. An earlier, failed attempt of a task that landed goes with the rest: the task
//! is done. Each ref is journaled with its value before it goes, so that a person can still bring it
//! back for as long as git has the commit.

use std::collections::{BTreeMap, HashMap, HashSet};

use mainstem_core::fact::{Fact, RefValue};
use mainstem_core::id::{Oid, RunId, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_host::git::{GitError, Landing, Repo};
use mainstem_host::{clock, crash};
use mainstem_store::{Journal, Reader, SqliteJournal};

use crate::care::{self, Kept};
use crate::ledger::{self, LedgerError};
use crate::paths::Layout;
use crate::resolutions;

/// The snapshots that may go, by task.
pub type Due = BTreeMap<String, Vec<Kept>>;

/// What the journal says about it.
pub const WHY: &str = "the task landed long enough ago";

/// Refs named by one fact.
const REFS_PER_FACT: usize = 500;
/// Facts of one task read at once.
const BATCH: usize = 4_096;

/// Why nothing could be pruned. Nothing is lost by that.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// Git said no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The last thing the journal says about a task is that it landed.
struct Landed {
    run: RunId,
    target: String,
    commit: Oid,
    at: Time,
}

/// Where to look and what is wanted.
pub struct Prune<'a> {
    /// The repository.
    pub repo: &'a Repo,
    /// The journal.
    pub reader: &'a dyn Reader,
    /// The newest run, folded.
    pub newest: (&'a RunId, &'a Machine),
    /// `[snapshots] keep`.
    pub keep_ms: u64,
    /// The present.
    pub now: Time,
}

impl Prune<'_> {
    /// The snapshots that may go, by task.
    pub fn due(&self) -> Result<Due, PruneError> {
        let mut due = BTreeMap::new();
        let mut landed = BTreeMap::new();
        for (task, kept) in care::all_snapshots(self.repo)? {
            let Some(landing) = self.landing_of(&task)? else { continue };
            if !self.is_old(landing.at) {
                continue;
            }
            landed.insert(task.clone(), landing);
            due.insert(task, kept);
        }
        self.only_of_the_run(&mut due, &landed)?;
        self.only_proven(&mut due, &landed)?;
        self.only_old(&mut due)?;
        due.retain(|_, kept| !kept.is_empty());
        Ok(due)
    }

    /// By the clock on the wall alone: facts may carry the time of a clock that was once wrong, and
    /// then it is better to keep too long. Who keeps nothing keeps nothing, whatever the clock says.
    fn is_old(&self, at: Time) -> bool {
        self.keep_ms == 0 || at.plus_ms(self.keep_ms) <= self.now
    }

    fn landing_of(&self, task: &str) -> Result<Option<Landed>, PruneError> {
        let (run, machine) = self.newest;
        if let Ok(t) = machine.find(task) {
            if machine.tasks().phase(t) != Phase::Landed {
                return Ok(None);
            }
            let landing = machine.tasks().get(t).landed.as_ref();
            return Ok(landing.map(|landing| Landed {
                run: run.clone(),
                target: machine.target().to_owned(),
                commit: landing.commit.clone(),
                at: landing.at,
            }));
        }
        let runs = self.reader.runs().map_err(LedgerError::from)?;
        for row in runs.iter().rev() {
            if let Some(found) = self.last_word(&row.run, task)? {
                let Some((commit, at)) = found else { return Ok(None) };
                let first = self.reader.read_run(&row.run, 0, 1).map_err(LedgerError::from)?;
                let first = first.first().map(ledger::decode).transpose()?;
                let Some(Fact::RunStarted { target, .. }) = first else { return Ok(None) };
                let run = RunId::new(row.run.as_str());
                return Ok(Some(Landed { run, target, commit, at }));
            }
        }
        Ok(None)
    }

    /// What a run says about a task in the end: nothing at all, not landed, or landed.
    #[expect(clippy::option_option, reason = "nothing said, and something other than landed")]
    fn last_word(&self, run: &str, task: &str) -> Result<Option<Option<(Oid, Time)>>, PruneError> {
        let (mut word, mut after) = (None, 0);
        loop {
            let records = self.reader.read_task(run, task, after, BATCH);
            let records = records.map_err(LedgerError::from)?;
            let Some(last) = records.last() else { return Ok(word) };
            after = last.seq;
            for record in &records {
                word = match ledger::decode(record)? {
                    Fact::TaskLanded { commit, .. } => Some(Some((commit, Time(record.at_ms)))),
                    Fact::AttemptIntended { .. }
                    | Fact::LandingUndone { .. }
                    | Fact::TaskRetried { .. } => Some(None),
                    // Whatever else is said of it: it is known.
                    _ => word.or(Some(None)),
                };
            }
        }
    }

    /// Drops snapshots that the run which landed did not take: ids come back in later runs, and what
    /// another run left under the same one has not landed.
    fn only_of_the_run(
        &self,
        due: &mut Due,
        landed: &BTreeMap<String, Landed>,
    ) -> Result<(), PruneError> {
        for (task, kept) in due {
            let Some(landing) = landed.get(task) else { continue };
            let taken = self.taken_by(&landing.run, task)?;
            let by_it = |kept: &Kept| taken.contains(&(kept.refname.clone(), kept.commit.clone()));
            kept.retain(|kept| kept.attempt == 0 || by_it(kept));
        }
        Ok(())
    }

    /// The snapshots of a task that a run told of.
    fn taken_by(&self, run: &RunId, task: &str) -> Result<HashSet<(String, Oid)>, PruneError> {
        let (mut taken, mut after) = (HashSet::new(), 0);
        loop {
            let records = self.reader.read_task(run.as_str(), task, after, BATCH);
            let records = records.map_err(LedgerError::from)?;
            let Some(last) = records.last() else { return Ok(taken) };
            after = last.seq;
            for record in &records {
                if let Fact::SnapshotTaken { refname, commit, .. } = ledger::decode(record)? {
                    taken.insert((refname, commit));
                }
            }
        }
    }

    /// Drops tasks whose landing the target branch does not show: by the commit itself, or, if its
    /// history was rewritten, by the trailers.
    fn only_proven(
        &self,
        due: &mut Due,
        landed: &BTreeMap<String, Landed>,
    ) -> Result<(), PruneError> {
        let targets: HashSet<&str> = landed.values().map(|l| l.target.as_str()).collect();
        for target in targets {
            let of_target = || landed.iter().filter(|(_, landing)| landing.target == target);
            let Some(tip) = self.repo.read_ref(&format!("refs/heads/{target}"))? else {
                of_target().for_each(|(task, _)| drop(due.remove(task)));
                continue;
            };
            let mut asked: Vec<Oid> = of_target().map(|(_, l)| l.commit.clone()).collect();
            // What `clean` kept is only let go if the branch has it.
            let by_clean = |kept: &&Kept| kept.attempt == 0;
            for (task, _) in of_target() {
                let kept = due.get(task).into_iter().flatten().filter(by_clean);
                asked.extend(kept.map(|kept| kept.commit.clone()));
            }
            let missing = self.repo.not_in(&asked, &tip)?;
            let rewritten = of_target().any(|(_, landing)| missing.contains(&landing.commit));
            let landings = if rewritten { self.repo.landings(&tip, None)? } else { Vec::new() };
            for (task, landing) in of_target() {
                let trailers =
                    [("Mainstem-Task", task.as_str()), ("Mainstem-Run", landing.run.as_str())];
                let proven = !missing.contains(&landing.commit)
                    || landings.iter().any(|landing| says(landing, &trailers));
                match due.get_mut(task) {
                    Some(kept) if proven => {
                        kept.retain(|kept| kept.attempt != 0 || !missing.contains(&kept.commit));
                    }
                    _ => drop(due.remove(task)),
                }
            }
        }
        Ok(())
    }

    /// Drops snapshots that are themselves younger than the time they are to be kept: what somebody
    /// did in a workspace long after the landing.
    fn only_old(&self, due: &mut Due) -> Result<(), PruneError> {
        let commits: Vec<Oid> = due.values().flatten().map(|kept| kept.commit.clone()).collect();
        let times: HashMap<Oid, (i64, String)> = self.repo.commit_times(&commits)?;
        for kept in due.values_mut() {
            kept.retain(|kept| match times.get(&kept.commit) {
                Some((at, _)) => self.is_old(Time(*at)),
                // A ref whose commit is lost is for a person to look at.
                None => false,
            });
        }
        Ok(())
    }
}

/// The facts that name what is about to go.
pub fn facts_of(due: &Due, why: &str) -> Vec<Fact> {
    let refs: Vec<RefValue> = due
        .values()
        .flatten()
        .map(|kept| RefValue { refname: kept.refname.clone(), commit: kept.commit.clone() })
        .collect();
    let pieces = refs.chunks(REFS_PER_FACT);
    pieces.map(|refs| Fact::RefsRemoved { refs: refs.to_vec(), why: why.to_owned() }).collect()
}

/// Prunes after a life of the engine, while its lock is still held.
pub fn at_rest(
    repo: &Repo,
    layout: &Layout,
    epoch: u64,
    newest: (&RunId, &Machine),
) -> Result<(), PruneError> {
    let Some(reader) = ledger::open_reader(&layout.journal())? else { return Ok(()) };
    let keep_ms = newest.1.settings().snapshot_keep_ms;
    let now = Time(clock::now_ms());
    resolutions::prune(repo, keep_ms, now)?;
    let due = Prune { repo, reader: &reader, newest, keep_ms, now }.due()?;
    if due.is_empty() {
        return Ok(());
    }
    let facts = facts_of(&due, WHY);
    let records: Vec<_> = facts.iter().map(|fact| ledger::encode(newest.0, fact, now)).collect();
    let mut journal = SqliteJournal::open(layout.journal()).map_err(LedgerError::from)?;
    journal.append(epoch, &records).map_err(LedgerError::from)?;
    Ok(remove(repo, &facts)?)
}

/// Removes them, now that they are written down.
pub fn remove(repo: &Repo, facts: &[Fact]) -> Result<(), GitError> {
    crash::point("prune.told");
    let refs: Vec<(String, Oid)> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::RefsRemoved { refs, .. } => Some(refs),
            _ => None,
        })
        .flatten()
        .map(|value| (value.refname.clone(), value.commit.clone()))
        .collect();
    // One that somebody moved meanwhile stays, and is looked at again the next time.
    repo.delete_refs(&refs)?;
    crash::point("prune.done");
    Ok(())
}

fn says(landing: &Landing, wanted: &[(&str, &str)]) -> bool {
    let has =
        |(key, value): &(&str, &str)| landing.trailers.iter().any(|(k, v)| k == key && v == value);
    wanted.iter().all(has)
}
