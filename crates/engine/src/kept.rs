//! What is known of snapshots: the refs say that they are there, the journal when and why. If the
//! journal is lost, their commits have to do.

use std::collections::HashMap;

use mainstem_core::fact::Fact;
use mainstem_core::id::Oid;
use mainstem_host::git::{GitError, Repo, Size};
use mainstem_store::Reader;

use crate::care::Kept;
use crate::ledger::{self, LedgerError};

/// Facts of one task read at once.
const BATCH: usize = 4_096;
/// Snapshots whose base is looked for in the history, one question each. More are not measured.
const BASES_MAX: usize = 200;

/// A snapshot with all that is known of it.
#[derive(Debug, Clone)]
pub struct Known {
    /// The ref and where it points.
    pub kept: Kept,
    /// When it was taken, in milliseconds; the commit's own time if the journal does not say.
    pub at_ms: Option<i64>,
    /// Why it was taken, if the journal says.
    pub why: Option<String>,
    /// First line of the commit.
    pub subject: Option<String>,
    /// Where the work started from.
    pub base: Option<Oid>,
    /// How much it differs from there.
    pub size: Option<Size>,
}

struct Told {
    at_ms: i64,
    why: String,
    commit: Oid,
    base: Option<Oid>,
}

/// What all runs of the journal say about a task's snapshots.
#[derive(Default)]
pub struct Tale {
    told: HashMap<String, Told>,
    bases: HashMap<u32, Oid>,
}

impl Tale {
    /// Reads it.
    pub fn of(reader: &dyn Reader, task: &str) -> Result<Self, LedgerError> {
        let mut tale = Self::default();
        for row in reader.runs()? {
            let mut after = 0;
            loop {
                let records = reader.read_task(&row.run, task, after, BATCH)?;
                let Some(last) = records.last() else { break };
                after = last.seq;
                for record in &records {
                    tale.hear(record.at_ms, ledger::decode(record)?);
                }
            }
        }
        Ok(tale)
    }

    fn hear(&mut self, at_ms: i64, fact: Fact) {
        match fact {
            Fact::WorkspaceReady { attempt, base, .. } => drop(self.bases.insert(attempt, base)),
            Fact::SnapshotTaken { attempt, refname, commit, why, .. } => {
                let base = self.bases.get(&attempt).cloned();
                self.told.insert(refname, Told { at_ms, why, commit, base });
            }
            _ => {}
        }
    }
}

/// Puts together what is known. `target` is the branch that work starts from.
pub fn known(
    repo: &Repo,
    kept: &[Kept],
    tale: &Tale,
    target: Option<&str>,
) -> Result<Vec<Known>, GitError> {
    let commits: Vec<Oid> = kept.iter().map(|kept| kept.commit.clone()).collect();
    let times = repo.commit_times(&commits)?;
    let target = match target {
        Some(target) => repo.read_ref(&format!("refs/heads/{target}"))?,
        None => None,
    };
    let mut asked = 0;
    let mut all = Vec::new();
    for kept in kept {
        // A number may have been given twice, once before the first one was removed.
        let told = tale.told.get(&kept.refname).filter(|told| told.commit == kept.commit);
        let commit = times.get(&kept.commit);
        let mut base = told.and_then(|told| told.base.clone());
        if let (None, Some(target), Some(_)) = (&base, &target, commit)
            && asked < BASES_MAX
        {
            asked += 1;
            base = repo.merge_base(&kept.commit, target)?;
        }
        all.push(Known {
            kept: kept.clone(),
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
        .filter_map(|n| Some((all[*n].base.clone()?, all[*n].kept.commit.clone())))
        .collect();
    for (n, size) in measured.into_iter().zip(repo.sizes(&pairs)?) {
        all[n].size = size;
    }
    Ok(all)
}
