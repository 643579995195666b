//! Work goes on where it stopped: no work of an ended attempt is missing where the next one starts, unless
//! somebody wants it to start over; and then its session is not taken up either.

use std::collections::BTreeMap;

use mainstem_core::config::ConflictAction;
use mainstem_core::effect::Effect;
use mainstem_core::fact::Fact;
use mainstem_core::id::{Oid, TaskId, TaskIx};
use mainstem_core::machine::Machine;

/// What each task's last attempt left, as far as somebody looked.
#[derive(Debug, Default)]
pub struct Left(BTreeMap<TaskId, Oid>);

impl Left {
    /// Looks at a fact before it is folded.
    pub fn look_at(&mut self, machine: &Machine, t: TaskIx, fact: &Fact) {
        let state = machine.tasks().get(t);
        if let Fact::AttemptIntended { task, .. } = fact {
            let open = machine.open_question(t).map(|open| open.name.as_str());
            assert_eq!(open, None, "I14: {task} goes on without the answer it asked for");
        }
        match fact {
            Fact::EvidenceCollected { task, evidence, .. } => {
                if evidence.tip == evidence.base {
                    self.0.remove(task);
                } else {
                    self.0.insert(task.clone(), evidence.tip.clone());
                }
            }
            // Nobody could read what it left.
            Fact::AttemptFailed { task, .. } => {
                let current = state.current.as_ref().expect("an attempt failed");
                if current.evidence.is_none() && current.base.is_some() {
                    self.0.remove(task);
                }
            }
            Fact::WorkspaceReady { task, continued: None, .. } => {
                let asked = state.current.as_ref().is_some_and(|a| a.continues.is_some());
                if asked {
                    self.0.remove(task);
                }
            }
            Fact::AttemptIntended { task, continues, fresh: false, .. } => {
                let Some(left) = self.0.get(task) else { return };
                let merged = state.conflict.as_ref().is_some_and(|clash| clash.tip == *left)
                    && machine.settings().land.on_conflict == ConflictAction::Agent;
                let found = continues.as_ref().map(|work| &work.commit);
                assert!(
                    found == Some(left) || (found.is_none() && merged),
                    "I14: {task} left {left}, and its next attempt starts from {continues:?}"
                );
            }
            Fact::AttemptIntended { task, continues, session, .. } => {
                let class = state.last.as_ref().map(|last| last.class);
                let set = class.is_some_and(|c| machine.settings().run.start_over.contains(&c));
                assert!(set || state.fresh, "I14: {task} starts over, and nobody said so");
                assert_eq!((continues, session), (&None, &None), "I14: {task} starts over");
                self.0.remove(task);
            }
            Fact::TaskLanded { task, .. } => drop(self.0.remove(task)),
            _ => {}
        }
    }
}

/// What an attempt was said to start from is what its workspace is made from.
pub fn i14_is_asked_for(machine: &Machine, effect: &Effect) {
    let Effect::PrepareWorkspace { task, continues, merge, .. } = effect else { return };
    let current = machine.tasks().get(*task).current.as_ref().expect("it is for an attempt");
    let work = continues.as_ref().map(|wish| wish.work.clone());
    assert_eq!(work, current.continues, "I14: the workspace of {task:?}");
    assert!(merge.is_none() || work.is_none(), "I14: both a merge and earlier work");
}
