//! The run as people see it: derived from the machine, never read back by it.

use crate::failure_cause::GateFailureCause;
use crate::id::{Oid, TaskIx, Time};
use crate::machine::Machine;
use crate::phase::Phase;
use crate::schedule::StartObstacle;
use crate::tasks::AttemptState;

/// One task as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskView {
    pub ix: TaskIx,
    pub phase: Phase,
    pub attempt: u32,
    /// Who works, or would.
    pub agent: String,
    pub model: Option<String>,
    /// Its branch, while there is one.
    pub branch: Option<String>,
    /// Its workspace, while there is one.
    pub workspace: Option<String>,
    pub pid: Option<u32>,
    /// When its current attempt started.
    pub started_at: Option<Time>,
    /// When it was over.
    pub ended_at: Option<Time>,
    /// What it waits for, in words and ids.
    pub waiting_for: Vec<String>,
    /// Why it waits, as one word for programs.
    pub waiting_why: Option<&'static str>,
    /// The commit on the target branch.
    pub commit: Option<Oid>,
    /// Why it stands where it stands.
    pub reason: String,
    /// The command that helps.
    pub next_action: Option<String>,
}

impl Machine {
    /// One task as people see it.
    pub fn task_view(&self, t: TaskIx) -> TaskView {
        let state = self.tasks().get(t);
        let current = state.current.as_ref();
        let phase = state.phase();
        let place = |a: &AttemptState| a.workspace.clone().or_else(|| a.previous_workspace.clone());
        let live = current.filter(|a| !a.removed && (phase.is_active() || place(a).is_some()));
        let claims = self.tasks().resources(t);
        TaskView {
            ix: t,
            phase,
            attempt: state.attempts,
            agent: current.map_or_else(|| claims.agent.clone(), |a| a.agent.clone()),
            model: current.map_or_else(|| claims.model.clone(), |a| a.model.clone()),
            branch: current.filter(|a| live.is_some() || a.branch_kept).map(|a| a.branch.clone()),
            workspace: live.and_then(place),
            pid: live.filter(|_| phase.is_active()).and_then(|a| a.pid),
            started_at: current.and_then(|a| a.started_at),
            ended_at: phase.is_over().then_some(state.since),
            waiting_for: self.wait_reasons(t),
            waiting_why: self.waiting_why(t),
            commit: state.landed.as_ref().map(|landing| landing.commit.clone()),
            reason: self.status_reason(t),
            next_action: self.next_action(t),
        }
    }

    fn status_reason(&self, t: TaskIx) -> String {
        if let Some(trouble) = self.current_trouble(t) {
            return trouble.to_owned();
        }
        if self.waits_for_target_fix(t) {
            let target = self.target_branch();
            return match self.target_failure() {
                Some(failure) => format!("waiting: on {target} itself {}", failure.headline()),
                None => format!("waiting: the checks fail on {target} itself"),
            };
        }
        if let Some(trouble) = self.push_trouble(t) {
            return trouble.reason.clone();
        }
        if let Some((reason, _)) = self.hold_reasons(t).first() {
            return reason.describe();
        }
        if let Some((why, _)) = self.why_not_started(t) {
            return why;
        }
        self.tasks().get(t).reason.clone()
    }

    /// What is wrong around a task right now, although it may still go well: a train that cannot go
    /// on, no room to start.
    pub fn current_trouble(&self, t: TaskIx) -> Option<&str> {
        let of_run = || self.lasting_notice(None).filter(|_| self.tasks().phase(t) == Phase::Ready);
        self.lasting_notice(Some(&self.plan().tasks[t.index()].id)).or_else(of_run)
    }

    fn wait_reasons(&self, t: TaskIx) -> Vec<String> {
        let id = |p: TaskIx| self.plan().tasks[p.index()].id.to_string();
        let state = self.tasks().get(t);
        match state.phase() {
            Phase::Waiting => {
                let hard = self.graph().needs(t).filter(|p| self.tasks().is_undecided(*p));
                let soft = self.graph().soft_needs(t).filter(|p| !self.tasks().phase(*p).is_over());
                let mut names: Vec<String> = hard.chain(soft).map(id).collect();
                names.dedup();
                names
            }
            Phase::Ready => {
                let mut held = Vec::new();
                if self.is_paused() {
                    held.push("resume".to_owned());
                }
                if state.not_before.is_some() {
                    held.push("the next retry".to_owned());
                }
                if let Some(short) = self.capacity_shortage() {
                    held.push(short.why.clone());
                }
                held.extend(self.start_obstacle(t).map(|held| self.describe_obstacle(&held)));
                held
            }
            Phase::Asking => {
                let open = self.open_questions().iter().filter(|q| q.task == t);
                open.map(|q| q.name.clone()).collect()
            }
            Phase::Merging if self.lands_on_forge(t) => {
                let pull = self.pull_request(t);
                let number =
                    pull.and_then(|pull| pull.number).map(|n| format!("pull request #{n}"));
                let what = pull.map(|pull| pull.waits_for.clone()).filter(|what| !what.is_empty());
                number.into_iter().chain(what).collect()
            }
            Phase::Merging if !self.hold_reasons(t).is_empty() => {
                let asked = self.open_questions().iter().filter(|q| q.task == t);
                let asked: Vec<String> = asked.map(|q| q.name.clone()).collect();
                if asked.is_empty() { vec!["you".to_owned()] } else { asked }
            }
            Phase::Merging => {
                let ahead = self.train().candidates().iter().take_while(|car| car.task != t);
                ahead.filter(|car| !car.held).map(|car| id(car.task)).collect()
            }
            Phase::Blocked if state.chain.is_empty() => {
                self.open_question(t).map(|open| open.name.clone()).into_iter().collect()
            }
            Phase::Blocked => state.chain.last().map(|root| id(*root)).into_iter().collect(),
            Phase::Verifying => {
                let asked =
                    self.open_questions().iter().filter(|q| q.task == t && q.is_about_work());
                let reviewers = self.awaited_reviewers(t).into_iter();
                let reviewers = reviewers.map(|name| format!("reviewer {name}"));
                asked.map(|q| q.name.clone()).chain(reviewers).collect()
            }
            Phase::Preparing
            | Phase::Working
            | Phase::Landed
            | Phase::Conflicted
            | Phase::Failed
            | Phase::Cancelled
            | Phase::Skipped => Vec::new(),
        }
    }

    /// Its provider's quota was used up, and nobody has said to go on.
    fn provider_waits_for_person(&self, t: TaskIx) -> bool {
        let auto_resume = self.settings().limits.auto_resume;
        let known = self.providers().get(&self.tasks().resources(t).provider);
        known.is_some_and(|known| known.rests_until(self.now(), auto_resume) == Some(None))
    }

    /// Why a task waits, as one word for programs; none if it does not.
    fn waiting_why(&self, t: TaskIx) -> Option<&'static str> {
        let state = self.tasks().get(t);
        match state.phase() {
            Phase::Waiting => {
                let hard = self.graph().needs(t).any(|p| self.tasks().is_undecided(p));
                Some(if hard { "needs" } else { "after" })
            }
            Phase::Ready if self.is_paused() => Some("paused"),
            Phase::Ready
                if self.open_question(t).is_some() || self.provider_waits_for_person(t) =>
            {
                Some("person")
            }
            Phase::Ready if state.not_before.is_some() => Some("backoff"),
            Phase::Ready => match self.start_obstacle(t) {
                Some(held) => Some(held_word(&held)),
                None => self.capacity_shortage().map(|_| "memory"),
            },
            Phase::Asking | Phase::Failed | Phase::Conflicted => Some("person"),
            Phase::Blocked if state.chain.is_empty() => Some("person"),
            Phase::Blocked => Some("needs"),
            Phase::Verifying => {
                let asked = self.open_questions().iter().any(|q| q.task == t && q.is_about_work());
                asked.then_some("person")
            }
            Phase::Merging if !self.hold_reasons(t).is_empty() => Some("person"),
            Phase::Merging if self.waits_for_target_fix(t) => Some("target"),
            Phase::Merging if self.lands_on_forge(t) => Some("pull_request"),
            Phase::Merging => Some("train"),
            Phase::Preparing
            | Phase::Working
            | Phase::Landed
            | Phase::Cancelled
            | Phase::Skipped => None,
        }
    }

    fn describe_obstacle(&self, held: &StartObstacle) -> String {
        match held {
            StartObstacle::Slots => "a free slot".to_owned(),
            StartObstacle::Provider(name) => format!("a free slot of provider {name}"),
            StartObstacle::Agent(name) => format!("a free slot of agent {name}"),
            StartObstacle::Role(name) => format!("a free slot of role {name}"),
            StartObstacle::ProviderRests(name) => format!("provider {name}"),
            StartObstacle::ProviderRamps(name) => {
                format!("provider {name}, which is restarting with few agents")
            }
            StartObstacle::Question(name) => name.clone(),
            StartObstacle::Quiet => "the end of limits.quiet_hours".to_owned(),
            StartObstacle::Writes(other) => {
                format!("files that {} is changing", self.plan().tasks[other.index()].id)
            }
            StartObstacle::Workspace => "the workspace".to_owned(),
            StartObstacle::Barrier => "the barrier".to_owned(),
            StartObstacle::Budget => "the budget".to_owned(),
        }
    }

    /// What helps when the target branch itself fails a check. Settings are read when a run starts, so a running
    /// one notices a mended branch by itself but not a mended setting.
    pub fn target_failure_help(&self) -> String {
        let cause = self.target_failure().map(|failure| &failure.cause);
        match cause.and_then(GateFailureCause::fix_hint) {
            Some(hint) => format!("{hint}, then mainstem run"),
            None => format!("fix {}, then mainstem run", self.target_branch()),
        }
    }

    fn answer_command(&self, t: TaskIx) -> Option<String> {
        self.open_question(t).map(|open| format!("mainstem answer {} TEXT", open.name))
    }

    fn next_action(&self, t: TaskIx) -> Option<String> {
        let task = &self.plan().tasks[t.index()].id;
        let state = self.tasks().get(t);
        match state.phase() {
            Phase::Failed => {
                let advice = self.task_advice(t);
                let first = advice.first().map(|first| first.command.clone());
                first.map(|first| format!("{first}, then mainstem retry {task}"))
            }
            Phase::Conflicted => Some(format!("mainstem diff {task}, then mainstem retry {task}")),
            Phase::Cancelled | Phase::Skipped => Some(format!("mainstem retry {task}")),
            Phase::Blocked => match state.chain.last() {
                None if self.open_question(t).is_some() => self.answer_command(t),
                Some(root) => {
                    let root = &self.plan().tasks[root.index()].id;
                    Some(format!("mainstem retry {root}, or mainstem skip {root}"))
                }
                None => Some(match &state.help {
                    Some(help) => format!("{help}, then mainstem retry {task}"),
                    None => format!("mainstem retry {task}"),
                }),
            },
            Phase::Asking => self.answer_command(t),
            Phase::Ready if self.open_question(t).is_some() => self.answer_command(t),
            Phase::Ready if self.why_not_started(t).is_some() => {
                self.why_not_started(t).map(|(_, help)| help)
            }
            Phase::Ready if self.is_paused() || self.provider_waits_for_person(t) => {
                Some("mainstem resume".to_owned())
            }
            Phase::Merging if !self.hold_reasons(t).is_empty() => self.hold_help(t),
            Phase::Merging if self.waits_for_target_fix(t) => Some(self.target_failure_help()),
            Phase::Working | Phase::Preparing => Some(format!("mainstem logs -f {task}")),
            Phase::Verifying => {
                let open =
                    self.open_questions().iter().find(|q| q.task == t && q.is_about_work())?;
                Some(format!("mainstem answer {} approve", open.name))
            }
            Phase::Merging => {
                self.push_trouble(t).map(|trouble| format!("{}, then mainstem run", trouble.help))
            }
            Phase::Waiting | Phase::Ready | Phase::Landed => None,
        }
    }
}

fn held_word(held: &StartObstacle) -> &'static str {
    match held {
        StartObstacle::Slots | StartObstacle::Agent(_) | StartObstacle::Role(_) => "slot",
        StartObstacle::Provider(_)
        | StartObstacle::ProviderRests(_)
        | StartObstacle::ProviderRamps(_) => "provider",
        StartObstacle::Question(_) => "person",
        StartObstacle::Quiet => "quiet_hours",
        StartObstacle::Writes(_) => "writes",
        StartObstacle::Workspace => "workspace",
        StartObstacle::Barrier => "barrier",
        StartObstacle::Budget => "budget",
    }
}
