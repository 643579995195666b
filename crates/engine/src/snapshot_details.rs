//! What is known of snapshots: the refs say that they are there, the journal when and why. If the
//! journal is lost, their commits have to do.

use std::collections::HashMap;

use mainstem_core::fact::Fact;
use mainstem_core::id::Oid;
use mainstem_host::git::{DiffSize, GitError, Repo};
use mainstem_store::JournalReader;

use crate::maintenance::SnapshotRef;
use crate::run_journal::{self, RunJournalError};

/// Facts of one task read at once.
const BATCH: usize = 4_096;
/// Snapshots whose base is looked for in the history, one question each. More are not measured.
const BASES_MAX: usize = 200;

/// A snapshot with all that is known of it.
#[derive(Debug, Clone)]
pub struct SnapshotDetails {
    /// The ref and where it points.
    pub snapshot: SnapshotRef,
    /// When it was taken, in milliseconds; the commit's own time if the journal does not say.
    pub at_ms: Option<i64>,
    /// Why it was taken, if the journal says.
    pub why: Option<String>,
    /// First line of the commit.
    pub subject: Option<String>,
    /// Where the work started from.
    pub base: Option<Oid>,
    /// How much it differs from there.
    pub size: Option<DiffSize>,
}

struct SnapshotEntry {
    at_ms: i64,
    why: String,
    commit: Oid,
    base: Option<Oid>,
}

/// What all runs of the journal say about a task's snapshots.
#[derive(Default)]
pub struct SnapshotHistory {
    entries: HashMap<String, SnapshotEntry>,
    bases: HashMap<u32, Oid>,
}

impl SnapshotHistory {
    pub fn read_history(reader: &dyn JournalReader, task: &str) -> Result<Self, RunJournalError> {
        let mut tale = Self::default();
        for row in reader.list_runs()? {
            let mut after = 0;
            loop {
                let records = reader.read_task(&row.run, task, after, BATCH)?;
                let Some(last) = records.last() else { break };
                after = last.seq;
                for record in &records {
                    tale.add_fact(record.at_ms, run_journal::decode_fact(record)?);
                }
            }
        }
        Ok(tale)
    }

    fn add_fact(&mut self, at_ms: i64, fact: Fact) {
        match fact {
            Fact::WorkspaceReady { attempt, base, .. } => drop(self.bases.insert(attempt, base)),
            Fact::SnapshotTaken { attempt, refname, commit, why, .. } => {
                let base = self.bases.get(&attempt).cloned();
                self.entries.insert(refname, SnapshotEntry { at_ms, why, commit, base });
            }
            _ => {}
        }
    }
}

/// Puts together what is known. `target` is the branch that work starts from.
pub fn describe_snapshots(
    repo: &Repo,
    kept: &[SnapshotRef],
    tale: &SnapshotHistory,
    target: Option<&str>,
) -> Result<Vec<SnapshotDetails>, GitError> {
    let commits: Vec<Oid> = kept.iter().map(|kept| kept.commit.clone()).collect();
    let times = repo.read_commit_times(&commits)?;
    let target = match target {
        Some(target) => repo.read_ref(&format!("refs/heads/{target}"))?,
        None => None,
    };
    let mut asked = 0;
    let mut all = Vec::new();
    for kept in kept {
        // A number may have been given twice, once before the first one was removed.
        let told = tale.entries.get(&kept.refname).filter(|told| told.commit == kept.commit);
        let commit = times.get(&kept.commit);
        let mut base = told.and_then(|told| told.base.clone());
        if let (None, Some(target), Some(_)) = (&base, &target, commit)
            && asked < BASES_MAX
        {
            asked += 1;
            base = repo.merge_base(&kept.commit, target)?;
        }
        all.push(SnapshotDetails {
            snapshot: kept.clone(),
            at_ms: told.map(|told| told.at_ms).or(commit.map(|(at, _)| *at)),
            why: told.map(|told| told.why.clone()),
            subject: commit.map(|(_, subject)| subject.clone()),
            base,
            size: None,
        });
    }
    let measured: Vec<usize> = (0..all.len()).filter(|n| all[*n].base.is_some()).collect();
    let pairs: Vec<(Oid, Oid)> = measured
        .iter()
        .filter_map(|n| Some((all[*n].base.clone()?, all[*n].snapshot.commit.clone())))
        .collect();
    for (n, size) in measured.into_iter().zip(repo.diff_sizes(&pairs)?) {
        all[n].size = size;
    }
    Ok(all)
}
