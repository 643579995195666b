//! Notices that stay in view until something else is said.

use crate::fact::{Fact, StopReason};
use crate::machine::Machine;

impl Machine {
    /// What lasts is over when the next thing is said of the same task; of the run, when its engine or
    /// another notice says so. What is said of a task when the engine comes to rest is why it rests.
    pub(super) fn apply_lasting_notice(&mut self, fact: &Fact) {
        match fact {
            Fact::Noticed { task, message, lasts: true } => {
                self.lasting_notices.insert(task.clone(), message.clone());
            }
            Fact::PushFailed(trouble) => {
                self.lasting_notices.insert(Some(trouble.task.clone()), trouble.reason.clone());
            }
            // A new engine looks for room before it is on record.
            Fact::EngineStarted { .. } => self.lasting_notices.retain(|task, _| task.is_none()),
            Fact::EngineStopped { why: StopReason::Rested } => {
                self.lasting_notices.retain(|task, _| task.is_some());
            }
            Fact::EngineStopped { .. } => self.lasting_notices.clear(),
            Fact::Noticed { task, lasts: false, .. } => {
                self.lasting_notices.remove(task);
            }
            other => {
                if let Some(task) = other.task().filter(|_| !self.lasting_notices.is_empty()) {
                    self.lasting_notices.remove(&Some(task.clone()));
                }
            }
        }
    }
}
