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
use mainstem_host::git::{GitError, GitLanding, Repo};
use mainstem_host::{clock, crash};
use mainstem_store::JournalReader;

use crate::conflict_resolutions;
use crate::maintenance::{self, SnapshotRef};
use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError};

/// The snapshots that may go, by task.
pub type DueSnapshots = BTreeMap<String, Vec<SnapshotRef>>;

/// What the journal says about it.
pub const PRUNE_REASON: &str = "the task landed long enough ago";

/// Refs named by one fact.
const REFS_PER_FACT: usize = 500;
/// Facts of one task read at once.
const BATCH: usize = 4_096;

/// Why nothing could be pruned. Nothing is lost by that.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotPruneError {
    #[error(transparent)]
    Git(#[from] GitError),
    /// The journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] RunJournalError),
}

/// The last thing the journal says about a task is that it landed.
struct TaskLandingRecord {
    run: RunId,
    target: String,
    commit: Oid,
    at: Time,
}

/// Where to look and what is wanted.
pub struct SnapshotPruner<'a> {
    pub repo: &'a Repo,
    pub reader: &'a dyn JournalReader,
    /// The newest run, folded.
    pub newest: (&'a RunId, &'a Machine),
    pub keep_ms: u64,
    pub now: Time,
}

impl SnapshotPruner<'_> {
    /// The snapshots that may go, by task.
    pub fn find_due(&self) -> Result<DueSnapshots, SnapshotPruneError> {
        let mut due = BTreeMap::new();
        let mut landed = BTreeMap::new();
        for (task, kept) in maintenance::list_all_snapshots(self.repo)? {
            let Some(landing) = self.find_landing(&task)? else { continue };
            if !self.is_old_enough(landing.at) {
                continue;
            }
            landed.insert(task.clone(), landing);
            due.insert(task, kept);
        }
        self.retain_run_snapshots(&mut due, &landed)?;
        self.retain_proven_landings(&mut due, &landed)?;
        self.retain_old_snapshots(&mut due)?;
        due.retain(|_, kept| !kept.is_empty());
        Ok(due)
    }

    /// By the clock on the wall alone: facts may carry the time of a clock that was once wrong, and
    /// then it is better to keep too long. Who keeps nothing keeps nothing, whatever the clock says.
    fn is_old_enough(&self, at: Time) -> bool {
        self.keep_ms == 0 || at.plus_ms(self.keep_ms) <= self.now
    }

    fn find_landing(&self, task: &str) -> Result<Option<TaskLandingRecord>, SnapshotPruneError> {
        let (run, machine) = self.newest;
        if let Ok(t) = machine.find_task(task) {
            if machine.tasks().phase(t) != Phase::Landed {
                return Ok(None);
            }
            let landing = machine.tasks().get(t).landed.as_ref();
            return Ok(landing.map(|landing| TaskLandingRecord {
                run: run.clone(),
                target: machine.target_branch().to_owned(),
                commit: landing.commit.clone(),
                at: landing.at,
            }));
        }
        let runs = self.reader.list_runs().map_err(RunJournalError::from)?;
        for row in runs.iter().rev() {
            if let Some(found) = self.read_last_landing(&row.run, task)? {
                let Some((commit, at)) = found else { return Ok(None) };
                let first = self.reader.read_run(&row.run, 0, 1).map_err(RunJournalError::from)?;
                let first = first.first().map(run_journal::decode_fact).transpose()?;
                let Some(Fact::RunStarted { target, .. }) = first else { return Ok(None) };
                let run = RunId::new(row.run.as_str());
                return Ok(Some(TaskLandingRecord { run, target, commit, at }));
            }
        }
        Ok(None)
    }

    /// What a run says about a task in the end: nothing at all, not landed, or landed.
    #[expect(clippy::option_option, reason = "nothing said, and something other than landed")]
    fn read_last_landing(
        &self,
        run: &str,
        task: &str,
    ) -> Result<Option<Option<(Oid, Time)>>, SnapshotPruneError> {
        let (mut word, mut after) = (None, 0);
        loop {
            let records = self.reader.read_task(run, task, after, BATCH);
            let records = records.map_err(RunJournalError::from)?;
            let Some(last) = records.last() else { return Ok(word) };
            after = last.seq;
            for record in &records {
                word = match run_journal::decode_fact(record)? {
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
    fn retain_run_snapshots(
        &self,
        due: &mut DueSnapshots,
        landed: &BTreeMap<String, TaskLandingRecord>,
    ) -> Result<(), SnapshotPruneError> {
        for (task, kept) in due {
            let Some(landing) = landed.get(task) else { continue };
            let taken = self.list_snapshots_taken_by(&landing.run, task)?;
            let by_it =
                |kept: &SnapshotRef| taken.contains(&(kept.refname.clone(), kept.commit.clone()));
            kept.retain(|kept| kept.attempt == 0 || by_it(kept));
        }
        Ok(())
    }

    /// The snapshots of a task that a run told of.
    fn list_snapshots_taken_by(
        &self,
        run: &RunId,
        task: &str,
    ) -> Result<HashSet<(String, Oid)>, SnapshotPruneError> {
        let (mut taken, mut after) = (HashSet::new(), 0);
        loop {
            let records = self.reader.read_task(run.as_str(), task, after, BATCH);
            let records = records.map_err(RunJournalError::from)?;
            let Some(last) = records.last() else { return Ok(taken) };
            after = last.seq;
            for record in &records {
                if let Fact::SnapshotTaken { refname, commit, .. } =
                    run_journal::decode_fact(record)?
                {
                    taken.insert((refname, commit));
                }
            }
        }
    }

    /// Drops tasks whose landing the target branch does not show: by the commit itself, or, if its
    /// history was rewritten, by the trailers.
    fn retain_proven_landings(
        &self,
        due: &mut DueSnapshots,
        landed: &BTreeMap<String, TaskLandingRecord>,
    ) -> Result<(), SnapshotPruneError> {
        let targets: HashSet<&str> = landed.values().map(|l| l.target.as_str()).collect();
        for target in targets {
            let of_target = || landed.iter().filter(|(_, landing)| landing.target == target);
            let Some(tip) = self.repo.read_ref(&format!("refs/heads/{target}"))? else {
                of_target().for_each(|(task, _)| drop(due.remove(task)));
                continue;
            };
            let mut asked: Vec<Oid> = of_target().map(|(_, l)| l.commit.clone()).collect();
            // What `clean` kept is only let go if the branch has it.
            let by_clean = |kept: &&SnapshotRef| kept.attempt == 0;
            for (task, _) in of_target() {
                let kept = due.get(task).into_iter().flatten().filter(by_clean);
                asked.extend(kept.map(|kept| kept.commit.clone()));
            }
            let missing = self.repo.commits_not_in(&asked, &tip)?;
            let rewritten = of_target().any(|(_, landing)| missing.contains(&landing.commit));
            let landings =
                if rewritten { self.repo.list_landings(&tip, None)? } else { Vec::new() };
            for (task, landing) in of_target() {
                let trailers =
                    [("Mainstem-Task", task.as_str()), ("Mainstem-Run", landing.run.as_str())];
                let proven = !missing.contains(&landing.commit)
                    || landings.iter().any(|landing| has_trailers(landing, &trailers));
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
    fn retain_old_snapshots(&self, due: &mut DueSnapshots) -> Result<(), SnapshotPruneError> {
        let commits: Vec<Oid> = due.values().flatten().map(|kept| kept.commit.clone()).collect();
        let times: HashMap<Oid, (i64, String)> = self.repo.read_commit_times(&commits)?;
        for kept in due.values_mut() {
            kept.retain(|kept| match times.get(&kept.commit) {
                Some((at, _)) => self.is_old_enough(Time(*at)),
                // A ref whose commit is lost is for a person to look at.
                None => false,
            });
        }
        Ok(())
    }
}

/// The facts that name what is about to go.
pub fn build_removal_facts(due: &DueSnapshots, why: &str) -> Vec<Fact> {
    let refs: Vec<RefValue> = due
        .values()
        .flatten()
        .map(|kept| RefValue { refname: kept.refname.clone(), commit: kept.commit.clone() })
        .collect();
    let pieces = refs.chunks(REFS_PER_FACT);
    pieces.map(|refs| Fact::RefsRemoved { refs: refs.to_vec(), why: why.to_owned() }).collect()
}

/// Prunes after a life of the engine, while its lock is still held.
pub fn prune_at_rest(
    repo: &Repo,
    layout: &RepoLayout,
    epoch: u64,
    newest: (&RunId, &Machine),
) -> Result<(), SnapshotPruneError> {
    let Some(reader) = run_journal::open_journal_reader(&*layout.run_store())? else {
        return Ok(());
    };
    let keep_ms = newest.1.settings().snapshot_keep_ms;
    let now = Time(clock::now_ms());
    conflict_resolutions::prune_resolutions(repo, keep_ms, now)?;
    let due = SnapshotPruner { repo, reader: &*reader, newest, keep_ms, now }.find_due()?;
    if due.is_empty() {
        return Ok(());
    }
    let facts = build_removal_facts(&due, PRUNE_REASON);
    let records: Vec<_> =
        facts.iter().map(|fact| run_journal::encode_fact(newest.0, fact, now)).collect();
    let mut journal = layout.run_store().open_journal().map_err(RunJournalError::from)?;
    journal.append(epoch, &records).map_err(RunJournalError::from)?;
    Ok(remove_snapshot_refs(repo, &facts)?)
}

/// Removes them, now that they are written down.
pub fn remove_snapshot_refs(repo: &Repo, facts: &[Fact]) -> Result<(), GitError> {
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

fn has_trailers(landing: &GitLanding, wanted: &[(&str, &str)]) -> bool {
    let has =
        |(key, value): &(&str, &str)| landing.trailers.iter().any(|(k, v)| k == key && v == value);
    wanted.iter().all(has)
}
