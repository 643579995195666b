//! Looking again at what landed: from time to time the target branch is verified in a clean checkout without build
//! caches. Where that disagrees with the verdicts that let work land, the first landing at which it does is searched
//! for. Decides what is looked at next; runs nothing.

use serde::{Deserialize, Serialize};

use crate::id::{Oid, TaskId};

/// One move of the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetBranchMove {
    /// Whose work it brought, in order.
    pub tasks: Vec<TaskId>,
    /// The attempt of the last of them.
    pub attempt: u32,
    /// Where the branch stood then.
    pub commit: Oid,
    pub tree: Oid,
}

/// The fact that the target branch was verified again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRecheckFact {
    /// The commit that was verified.
    pub commit: Oid,
    pub tree: Oid,
    /// The tasks whose work landed with it.
    pub tasks: Vec<TaskId>,
    /// What failed; none if everything passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RecheckFailure>,
}

/// What failed in a clean checkout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecheckFailure {
    pub gate: String,
    /// What failed and why, in one sentence.
    pub headline: String,
    /// The end of its output.
    pub output: String,
    /// Where all of its output is, relative to the state folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// What landed since the target branch was last seen to pass in a clean checkout.
#[derive(Debug, Clone, Default)]
pub struct RecheckQueue {
    landings: Vec<TargetBranchMove>,
    /// The first landing that is known to fail.
    bad: Option<usize>,
    /// A landing that was verified without caches, because they were no longer trusted.
    clean: Option<Oid>,
}

impl RecheckQueue {
    /// The branch is about to move to this commit. Since it is known to fail, every verdict is one of a clean
    /// checkout.
    pub fn record_intent(&mut self, commit: &Oid) {
        self.clean = self.is_target_failing().then(|| commit.clone());
    }

    /// A task's work landed with this move of the branch.
    pub fn record_landing(&mut self, task: &TaskId, attempt: u32, commit: &Oid, tree: &Oid) {
        if self.clean.as_ref() == Some(commit) {
            self.reset_after_pass();
        }
        match self.landings.last_mut().filter(|last| last.commit == *commit) {
            Some(last) => {
                last.tasks.push(task.clone());
                last.attempt = attempt;
            }
            None => self.landings.push(TargetBranchMove {
                tasks: vec![task.clone()],
                attempt,
                commit: commit.clone(),
                tree: tree.clone(),
            }),
        }
    }

    /// What to verify next, if this many landings are verified at once; zero is never.
    pub fn next_due(&self, every: u32) -> Option<&TargetBranchMove> {
        let every = usize::try_from(every).unwrap_or(usize::MAX);
        match self.bad {
            Some(0) => None,
            Some(bad) => self.landings.get(bad / 2),
            None if every > 0 && self.landings.len() >= every => self.landings.last(),
            None => None,
        }
    }

    /// The landing at this commit.
    pub fn landing_at(&self, commit: &Oid) -> Option<&TargetBranchMove> {
        self.landings.iter().find(|landing| landing.commit == *commit)
    }

    /// A landing passed, or failed.
    pub fn record_result(&mut self, commit: &Oid, passed: bool) {
        let Some(at) = self.landings.iter().position(|landing| landing.commit == *commit) else {
            return;
        };
        if passed {
            self.landings.drain(..=at);
            self.bad = self.bad.and_then(|bad| bad.checked_sub(at + 1));
        } else {
            self.bad = Some(self.bad.map_or(at, |bad| bad.min(at)));
        }
    }

    /// All gates pass on the target branch as it is now.
    pub fn reset_after_pass(&mut self) {
        *self = Self::default();
    }

    /// Does the target branch fail in a clean checkout, as far as is known?
    pub fn is_target_failing(&self) -> bool {
        self.bad.is_some()
    }

    /// The first landing that fails in a clean checkout, once it is found.
    pub fn first_bad_landing(&self) -> Option<&TargetBranchMove> {
        self.landings.first().filter(|_| self.bad == Some(0))
    }

    /// Is this the last landing?
    pub fn is_last_landing(&self, commit: &Oid) -> bool {
        self.landings.last().is_some_and(|last| last.commit == *commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn landed(count: usize) -> RecheckQueue {
        let mut rechecks = RecheckQueue::default();
        for n in 0..count {
            let name = |kind: &str| Oid::new(format!("{kind}{n}"));
            rechecks.record_landing(&TaskId::new(format!("T{n}")), 1, &name("c"), &name("t"));
        }
        rechecks
    }

    #[test]
    fn the_first_bad_landing_is_found_wherever_it_is() {
        for count in 1..12 {
            for bad in 0..count {
                let mut rechecks = landed(count);
                let every = u32::try_from(count).unwrap_or(0);
                let mut looks = 0;
                while let Some(next) = rechecks.next_due(every) {
                    let commit = next.commit.clone();
                    let at: usize = commit.as_str()[1..].parse().unwrap_or(0);
                    rechecks.record_result(&commit, at < bad);
                    looks += 1;
                    assert!(looks < 8, "{bad} of {count}");
                }
                let found = rechecks.first_bad_landing().map(|landing| landing.commit.to_string());
                assert_eq!(found, Some(format!("c{bad}")));
            }
        }
    }

    #[test]
    fn nothing_is_due_before_enough_has_landed_and_a_good_branch_starts_anew() {
        let mut rechecks = landed(2);
        assert_eq!(rechecks.next_due(0), None);
        assert_eq!(rechecks.next_due(3), None);
        let last = rechecks.next_due(2).map(|landing| landing.commit.clone());
        assert_eq!(last, Some(Oid::new("c1")));
        rechecks.record_result(&Oid::new("c1"), true);
        assert_eq!(rechecks.next_due(1), None);
        assert!(!rechecks.is_target_failing());
    }

    #[test]
    fn work_that_lands_after_a_disagreement_shows_that_the_branch_is_good_again() {
        let mut rechecks = landed(1);
        rechecks.record_result(&Oid::new("c0"), false);
        assert!(rechecks.is_target_failing());
        rechecks.record_intent(&Oid::new("c1"));
        rechecks.record_landing(&TaskId::new("T1"), 1, &Oid::new("c1"), &Oid::new("t1"));
        assert!(!rechecks.is_target_failing());
    }

    #[test]
    fn tasks_that_landed_with_one_move_are_one_landing() {
        let mut rechecks = RecheckQueue::default();
        let (commit, tree) = (Oid::new("c"), Oid::new("t"));
        rechecks.record_landing(&TaskId::new("A"), 1, &commit, &tree);
        rechecks.record_landing(&TaskId::new("B"), 2, &commit, &tree);
        let next = rechecks.next_due(1).map(|landing| (landing.tasks.len(), landing.attempt));
        assert_eq!(next, Some((2, 2)));
    }
}
