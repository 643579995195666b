//! A machine under glass: no chance, one input at a time.

use mainstem_core::config::Settings;
use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentClaim, AgentEnding, Evidence, Fact, GateVerdict};
use mainstem_core::id::{Oid, TaskIx, Time};
use mainstem_core::machine::{AgentStatement, CommandRefusal, Input, Machine, MachineCommand};
use mainstem_core::phase::Phase;
use mainstem_core::plan::Plan;
use mainstem_core::train::batches::{BatchMerge, BatchPurpose, CandidateMerge};

use crate::cover::evidence;
use crate::drive::verdict;

/// One machine and all that it said.
pub struct Lab {
    pub machine: Machine,
    pub now: Time,
    pub facts: Vec<(Time, Fact)>,
    pub effects: Vec<Effect>,
}

impl Lab {
    /// A run that has begun.
    pub fn new(settings: &Settings, plan: Plan) -> Self {
        let mut lab = Self::resting(settings, plan);
        lab.begin(None);
        lab
    }

    /// A run whose engine has not started.
    pub fn resting(settings: &Settings, plan: Plan) -> Self {
        let machine = Machine::new(settings.clone());
        let mut lab = Self { machine, now: Time(1_000), facts: Vec::new(), effects: Vec::new() };
        lab.put(Input::StartRun { target: "main".to_owned(), base: "c0".into(), bring_to: None });
        lab.adopt(plan, "first");
        lab
    }

    pub fn adopt(&mut self, plan: Plan, hash: &str) {
        self.put(Input::AdoptPlan { plan: Box::new(plan), hash: hash.to_owned() });
    }

    pub fn begin(&mut self, scope: Option<&[&str]>) {
        let scope = scope.map(|ids| ids.iter().map(|id| self.ix(id)).collect());
        let (host, version) = (String::new(), String::new());
        self.put(Input::Begin { epoch: 1, pid: 1, host, version, scope });
    }

    /// The engine dies and another folds what was written.
    pub fn crash(&mut self) {
        let mut fold = Machine::new(self.machine.settings().clone());
        for (at, fact) in &self.facts {
            fold.apply(fact, *at).unwrap();
        }
        self.machine = fold;
        self.begin(None);
    }

    /// One step; its facts and effects are added, and returned are the effects alone.
    pub fn put(&mut self, input: Input) -> Vec<Effect> {
        let step = self.machine.step(input, self.now);
        self.facts.extend(step.facts.into_iter().map(|fact| (self.now, fact)));
        self.effects.extend(step.effects.iter().cloned());
        step.effects
    }

    /// An input that must change nothing.
    pub fn ignored(&mut self, input: Input) {
        let step = self.machine.step(input.clone(), self.now);
        assert!(step.facts.is_empty(), "{input:?} led to {:?}", step.facts);
        assert!(step.effects.is_empty(), "{input:?} led to {:?}", step.effects);
    }

    pub fn command(&mut self, command: MachineCommand) -> Result<String, CommandRefusal> {
        let step = self.machine.step(Input::Command(command), self.now);
        self.facts.extend(step.facts.into_iter().map(|fact| (self.now, fact)));
        self.effects.extend(step.effects);
        step.reply.unwrap()
    }

    pub fn ix(&self, id: &str) -> TaskIx {
        self.machine.graph().index_of(id).unwrap()
    }

    pub fn phase(&self, id: &str) -> Phase {
        self.machine.tasks().phase(self.ix(id))
    }

    pub fn attempt(&self, id: &str) -> u32 {
        self.machine.tasks().get(self.ix(id)).attempts
    }

    /// Ids of the tasks in a phase, in plan order.
    pub fn all(&self, phase: Phase) -> Vec<&str> {
        let tasks = self.machine.tasks();
        let these = tasks.all_tasks().filter(|t| tasks.phase(*t) == phase);
        these.map(|t| self.machine.graph().id(t).as_str()).collect()
    }

    /// Ids in the order in which attempts were intended.
    pub fn started(&self) -> Vec<&str> {
        let intended = |(_, fact): &'_ (Time, Fact)| match fact {
            Fact::AttemptIntended { task, .. } => Some(task.clone()),
            _ => None,
        };
        let ids: Vec<_> = self.facts.iter().filter_map(intended).collect();
        ids.iter().map(|id| self.machine.graph().id(self.ix(id.as_str())).as_str()).collect()
    }

    pub fn workspace(&mut self, id: &str) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        let workspace = format!("w/{id}");
        let continued = None;
        self.put(Input::WorkspaceReady { task, attempt, workspace, base: "c0".into(), continued });
    }

    pub fn work(&mut self, id: &str) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        self.workspace(id);
        self.put(Input::AgentStarted { task, attempt, pid: 7 });
    }

    pub fn say(&mut self, id: &str, mark: u64, said: AgentStatement) -> Vec<Effect> {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        self.put(Input::AgentSaid { task, attempt, mark, said })
    }

    pub fn end(&mut self, id: &str, ending: AgentEnding) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        self.put(Input::AgentEnded { task, attempt, ending, claim: AgentClaim::None });
    }

    pub fn collect(&mut self, id: &str) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        let left: Evidence = evidence();
        self.put(Input::EvidenceCollected { task, attempt, evidence: Ok(left) });
    }

    /// From `preparing` into the train.
    pub fn enqueue(&mut self, id: &str) {
        self.work(id);
        self.end(id, AgentEnding::Exited { code: 0 });
        self.collect(id);
    }

    /// The merge of a task's car alone.
    pub fn merged(&self, id: &str) -> Input {
        let place =
            self.machine.train().candidate_of(self.ix(id)).map_or(0, |car| car.queue_number);
        let (onto, commit, tree) = (Oid::new("c0"), Oid::new(format!("m-{id}")), Oid::new("t"));
        let steps = vec![CandidateMerge {
            onto: onto.clone(),
            commit: commit.clone(),
            tree: tree.clone(),
            reused: Vec::new(),
        }];
        let formed =
            BatchMerge { onto, candidate_merges: steps, tip: commit.clone(), commit, tree };
        let (purpose, places) = (BatchPurpose::Landing, vec![place]);
        Input::BatchMerged { purpose, places, formed, base_tree: "b".into() }
    }

    pub fn form(&mut self, id: &str) {
        let input = self.merged(id);
        self.put(input);
    }

    pub fn verify(&mut self, id: &str, verdict_of: GateVerdict) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        let gates = vec![verdict("test", verdict_of)];
        let (commit, tree) = (Oid::new(format!("m-{id}")), Oid::new("t"));
        self.put(Input::BatchVerified { task, attempt, commit, tree, gates });
        if verdict_of == GateVerdict::Failed {
            self.base(id, GateVerdict::Passed);
        }
    }

    /// Its car fails, and so does the target branch itself.
    pub fn verify_red_base(&mut self, id: &str) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        let (commit, tree) = (Oid::new(format!("m-{id}")), Oid::new("t"));
        let gates = vec![verdict("test", GateVerdict::Failed)];
        self.put(Input::BatchVerified { task, attempt, commit, tree, gates });
        self.base(id, GateVerdict::Failed);
        self.base(id, GateVerdict::Failed);
    }

    /// The target branch itself is looked at before a car is blamed.
    pub fn base(&mut self, id: &str, verdict_of: GateVerdict) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        let (commit, tree) = (Oid::new("c0"), Oid::new("b"));
        let (onto, tip) = (commit.clone(), commit.clone());
        let formed = BatchMerge {
            onto,
            candidate_merges: Vec::new(),
            tip,
            commit: commit.clone(),
            tree: tree.clone(),
        };
        let (purpose, places, base_tree) = (BatchPurpose::TargetCheck, Vec::new(), tree.clone());
        self.put(Input::BatchMerged { purpose, places, formed, base_tree });
        let gates = vec![verdict("test", verdict_of)];
        self.put(Input::BatchVerified { task, attempt, commit, tree, gates });
    }

    /// From the train onto the branch.
    pub fn land(&mut self, id: &str) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        self.form(id);
        self.verify(id, GateVerdict::Passed);
        let commit = Oid::new(format!("m-{id}"));
        self.put(Input::Landed { task, attempt, commit, old: "c0".into() });
        assert_eq!(self.phase(id), Phase::Landed, "{id}");
    }

    /// From `preparing` to a failure on the merits.
    pub fn fail(&mut self, id: &str) {
        self.work(id);
        self.end(id, AgentEnding::Exited { code: 1 });
        self.collect(id);
    }

    /// Until no further attempt is made by itself.
    pub fn fail_for_good(&mut self, id: &str) {
        while self.phase(id) == Phase::Preparing {
            self.fail(id);
        }
        assert_eq!(self.phase(id), Phase::Failed, "{id}");
    }

    /// The workspace of a task that is over is gone.
    pub fn removed(&mut self, id: &str) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        self.put(Input::WorkspaceRemoved { task, attempt, workspace: Ok("w".to_owned()) });
    }
}
