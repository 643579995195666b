//! People: commands, Ctrl-C, commits of others, and somebody who answers and resumes in the end.

use std::sync::mpsc;

use mainstem_core::inbox::{InboxItem, InboxKind};
use mainstem_core::machine::{MachineCommand, RetryRequest};
use mainstem_engine::event::EngineEvent;

use crate::faults::Fault;
use crate::world::{Happening, World};

impl World {
    /// Now and then somebody does something.
    pub fn people(&mut self) {
        if self.strikes(Fault::Strangers) {
            let there = self.rng.in_thousand(700);
            self.git.stranger(there);
        }
        if self.strikes(Fault::People) {
            let wish = self.wish();
            self.say(wish);
        }
        if self.strikes(Fault::Interrupts) && self.rng.in_thousand(250) {
            for _ in 0..1 + self.rng.below(3) {
                let stop = if self.rng.in_thousand(150) {
                    EngineEvent::StopNow
                } else {
                    EngineEvent::Interrupt
                };
                self.inbox.push_back(stop);
            }
        }
        if !self.faults.over {
            self.later(1, 1_500, Happening::People);
        }
    }

    /// Somebody looks after the run, so that it does not wait for people for ever.
    pub fn care(&mut self) {
        let auto_resume = self.settings.limits.auto_resume;
        let now = self.shadow.now();
        let mut known = self.shadow.providers().values();
        let parked = known.any(|provider| provider.rests_until(now, auto_resume) == Some(None));
        if self.shadow.is_paused() || parked {
            self.say(MachineCommand::Resume);
        }
        let guarded = |item: &InboxItem| item.kind == InboxKind::Guarded;
        if let Some(item) = self.shadow.inbox_items().into_iter().find(guarded) {
            self.say(MachineCommand::Answer {
                question: item.id,
                text: "accept".to_owned(),
                free: false,
            });
        }
        if let Some(open) = self.shadow.open_questions().first() {
            let text = if open.is_about_work() { "approve" } else { "a" };
            let (question, text) = (open.name.clone(), text.to_owned());
            self.say(MachineCommand::Answer { question, text, free: false });
        }
        self.later(1_000, 8_000, Happening::Care);
    }

    fn say(&mut self, command: MachineCommand) {
        let (answer, answered) = mpsc::channel();
        self.inbox.push_back(EngineEvent::Command(command, answer));
        self.asked.push_back(answered);
    }

    /// Once more, from where it stopped or from the beginning.
    fn again(&mut self, id: String) -> MachineCommand {
        let fresh = self.rng.in_thousand(250);
        MachineCommand::Retry(RetryRequest { tasks: vec![id], fresh, ..RetryRequest::default() })
    }

    /// Something that a person might want now.
    pub fn wish(&mut self) -> MachineCommand {
        let plan = self.shadow.plan();
        let ids: Vec<String> = plan.tasks.iter().map(|task| task.id.to_string()).collect();
        let id = match ids.is_empty() {
            true => "nobody".to_owned(),
            false => self.rng.pick(&ids).clone(),
        };
        let open = self.shadow.open_questions().len();
        match self.rng.below(100) {
            0..8 => MachineCommand::Pause,
            8..20 => MachineCommand::Resume,
            20..36 => MachineCommand::Cancel(Some(id)),
            36..38 => MachineCommand::Cancel(None),
            38..56 => self.again(id),
            56..66 => MachineCommand::Skip(id),
            66..74 => MachineCommand::Jobs(u32::try_from(self.rng.below(6)).unwrap()),
            _ if open == 0 => MachineCommand::Answer {
                question: "Q99".to_owned(),
                text: "a".to_owned(),
                free: false,
            },
            _ => {
                let at = self.rng.below(open);
                let question = self.shadow.open_questions()[at].name.clone();
                MachineCommand::Answer { question, text: "2".to_owned(), free: true }
            }
        }
    }
}
