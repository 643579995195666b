//! The product's machine in virtual time: everything is done at once, only agents take their time.

use std::collections::{BTreeMap, VecDeque};

use mainstem_core::config::Settings;
use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentClaim, AgentEnding, Evidence, Fact};
use mainstem_core::id::{Oid, TaskIx, Time};
use mainstem_core::machine::{Input, Machine};
use mainstem_core::plan::Plan;
use mainstem_core::train::batches::{BatchMerge, CandidateMerge};

/// A run and its clock.
pub(super) struct Timeline<'w> {
    pub(super) machine: Machine,
    /// All that happened, if it is kept.
    pub(super) facts: Option<Vec<(Time, Fact)>>,
    pub(super) steps: u64,
    ms: &'w [u64],
    now: Time,
    inbox: VecDeque<Input>,
    later: BTreeMap<(Time, u64), Input>,
    head: Oid,
    commits: u64,
    first_start: Option<Time>,
    last_end: Time,
}

impl<'w> Timeline<'w> {
    /// A run that has begun; task n takes `ms[n]`.
    pub(super) fn new(settings: &Settings, plan: Plan, ms: &'w [u64], keep: bool) -> Self {
        let mut timeline = Self {
            machine: Machine::new(settings.clone()),
            facts: keep.then(Vec::new),
            steps: 0,
            ms,
            now: Time(1_000),
            inbox: VecDeque::new(),
            later: BTreeMap::new(),
            head: oid(0),
            commits: 0,
            first_start: None,
            last_end: Time(0),
        };
        let base = timeline.head.clone();
        timeline.put(Input::StartRun { target: "main".to_owned(), base, bring_to: None });
        timeline.put(Input::AdoptPlan { plan: Box::new(plan), hash: "1".to_owned() });
        timeline
    }

    pub(super) fn begin(&mut self) {
        let (host, version) = (String::new(), String::new());
        self.put(Input::Begin { epoch: 1, pid: 1, host, version, scope: None });
    }

    /// Takes up to so many steps; false once nothing is left to do.
    pub(super) fn go_on(&mut self, steps: u64) -> bool {
        for _ in 0..steps {
            if let Some(input) = self.inbox.pop_front() {
                self.put(input);
            } else if let Some(((at, _), input)) = self.later.pop_first() {
                self.now = at;
                self.put(input);
            } else {
                return false;
            }
        }
        true
    }

    /// From the first agent's start to the last one's end.
    pub(super) fn makespan_ms(&self) -> u64 {
        self.first_start.map_or(0, |start| self.last_end.since_ms(start))
    }

    fn put(&mut self, input: Input) {
        self.steps += 1;
        let step = self.machine.step(input, self.now);
        if let Some(facts) = &mut self.facts {
            facts.extend(step.facts.into_iter().map(|fact| (self.now, fact)));
        }
        for effect in step.effects {
            self.perform(effect);
        }
    }

    fn commit(&mut self) -> Oid {
        self.commits += 1;
        oid(self.commits)
    }

    fn perform(&mut self, effect: Effect) {
        let input = match effect {
            Effect::PrepareWorkspace { task, attempt, .. } => {
                let workspace = format!("/place/repo.mainstem/{}", self.machine.graph().id(task));
                let base = self.head.clone();
                Input::WorkspaceReady { task, attempt, workspace, base, continued: None }
            }
            Effect::RunAgent { task, attempt } => return self.work(task, attempt),
            Effect::CollectEvidence { task, attempt, base } => {
                let base = base.unwrap_or_else(|| self.head.clone());
                let tip = self.commit();
                Input::EvidenceCollected { task, attempt, evidence: Ok(evidence(base, tip)) }
            }
            Effect::MergeBatch { purpose, candidates: seats, .. } => {
                let (onto, tip, tree) = (self.head.clone(), self.commit(), self.commit());
                let (commit, reused) = (tip.clone(), Vec::new());
                let step =
                    CandidateMerge { onto: onto.clone(), commit, tree: tree.clone(), reused };
                let places = seats.iter().map(|seat| seat.queue_number).collect();
                let (steps, base_tree) = (vec![step], onto.clone());
                let formed =
                    BatchMerge { onto, candidate_merges: steps, commit: tip.clone(), tip, tree };
                Input::BatchMerged { purpose, places, formed, base_tree }
            }
            Effect::Land { task, attempt, old, new, .. } => {
                self.head = new.clone();
                Input::Landed { task, attempt, commit: new, old }
            }
            Effect::RemoveWorkspace { task, attempt, .. } => {
                let workspace = format!("/place/repo.mainstem/{}", self.machine.graph().id(task));
                Input::WorkspaceRemoved { task, attempt, workspace: Ok(workspace) }
            }
            // A run without gates, questions, snapshots, a checkout and a forge needs none of these.
            Effect::StopAgent { .. }
            | Effect::DeliverAnswer { .. }
            | Effect::ConsultAgent { .. }
            | Effect::TakeSnapshot { .. }
            | Effect::RunGates { .. }
            | Effect::StopJobs { .. }
            | Effect::StopLane { .. }
            | Effect::VerifyBatch { .. }
            | Effect::RecheckTarget { .. }
            | Effect::InspectCheckout { .. }
            | Effect::Review { .. }
            | Effect::RunForgeAction { .. } => return,
        };
        self.inbox.push_back(input);
    }

    fn work(&mut self, task: TaskIx, attempt: u32) {
        self.first_start.get_or_insert(self.now);
        self.inbox.push_back(Input::AgentStarted { task, attempt, pid: 7 });
        let end = self.now.plus_ms(self.ms[task.index()]);
        self.last_end = self.last_end.max(end);
        let (ending, claim) = (AgentEnding::Exited { code: 0 }, AgentClaim::None);
        let ended = Input::AgentEnded { task, attempt, ending, claim };
        self.later.insert((end, self.steps), ended);
        // Several agents may end at the same time; the number of their step keeps them apart.
        self.steps += 1;
    }
}

fn oid(number: u64) -> Oid {
    Oid::new(format!("{:040x}", u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060)))
}

fn evidence(base: Oid, tip: Oid) -> Evidence {
    Evidence {
        tip,
        commits: 1,
        files: 1,
        insertions: 10,
        deletions: 2,
        diff_hash: "0".repeat(64),
        ..Evidence::empty_on(base)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use mainstem_core::machine::RestReason;

    use super::super::graphs::{GraphShape, Law, Work};
    use super::super::scene::default_settings;
    use super::*;

    #[test]
    fn all_tasks_land_and_take_no_less_than_the_bound() {
        let shape =
            GraphShape { seed: 9, tasks: 30, needs: 1.5, law: Law::Pareto, typical_ms: 1e3 };
        let work = Work::random(&shape);
        let mut settings = default_settings().unwrap();
        settings.run.jobs = 3;
        let mut timeline = Timeline::new(&settings, work.plan(None), &work.ms, true);
        timeline.begin();
        while timeline.go_on(100) {}
        assert_eq!(timeline.machine.rest_reason(), Some(RestReason::Done));
        assert!(timeline.makespan_ms() >= work.bound_ms(3));
        assert!(timeline.makespan_ms() <= work.ms.iter().sum());
        assert!(!timeline.facts.unwrap().is_empty());
    }
}
