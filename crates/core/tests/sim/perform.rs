//! What becomes of effects: done, done twice, done without anybody being told, or not done.

use mainstem_core::attempt_work::{ContinuedWork, WorkspaceContinuation};
use mainstem_core::config::Settings;
use mainstem_core::effect::{CandidateToLand, CandidateToMerge, Effect};
use mainstem_core::fact::{Evidence, GateVerdict, LimitKind, Usage};
use mainstem_core::hold::HoldReason;
use mainstem_core::id::{Oid, TaskIx};
use mainstem_core::machine::{Input, ReviewerResult};
use mainstem_core::publish::PushRefusal;
use mainstem_core::review::{ReviewOpinion, ReviewerOutcome};
use mainstem_core::train::batches::{BatchMerge, BatchPurpose, CandidateMerge};

use crate::drive::{Lane, Sim, verdict};
use crate::setup;
use crate::world::{Agent, Key, Watch};

impl Sim<'_> {
    pub fn perform_next(&mut self) {
        let lanes: Vec<Lane> = self.todo.keys().cloned().collect();
        let lane = self.rng.pick(&lanes).clone();
        let queue = self.todo.get_mut(&lane).unwrap();
        let effect = queue.pop_front().unwrap();
        if queue.is_empty() {
            self.todo.remove(&lane);
        }
        if self.wrong(40) {
            self.perform(effect.clone());
        }
        self.perform(effect);
    }

    pub fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::PrepareWorkspace { task, attempt, continues, .. } => {
                self.prepare(task, attempt, continues);
            }
            Effect::RunAgent { task, attempt } => self.run_agent(task, attempt),
            Effect::StopAgent { task, attempt, now } => self.stop_agent(task, attempt, now),
            Effect::DeliverAnswer { task, attempt, number, .. } => {
                let key = (self.id(task), attempt);
                if self.wrong(60) {
                    self.unreached(task, attempt);
                } else if let Some(agent) = self.world.agents.get_mut(&key) {
                    agent.answers.insert(number);
                }
            }
            Effect::ConsultAgent { question, .. } => {
                let said = if self.wrong(200) { Err("no".to_owned()) } else { Ok("a".to_owned()) };
                let dollar = Usage { cost_usd: Some(1.0), ..Usage::default() };
                self.reply(Input::ConsultationDone { question, said, usage: vec![dollar] });
            }
            Effect::CollectEvidence { task, attempt, base } => self.collect(task, attempt, base),
            Effect::TakeSnapshot { task, attempt } => self.snapshot(task, attempt),
            Effect::RunGates { task, attempt, .. } => {
                self.world.gating.insert((self.id(task), attempt));
            }
            Effect::StopJobs { task, attempt } => {
                if self.world.gating.remove(&(self.id(task), attempt)) {
                    let gates = vec![verdict("unit", GateVerdict::Error)];
                    self.reply(Input::GatesRan { task, attempt, tree: "w".into(), gates });
                }
            }
            review @ Effect::Review { .. } => self.review(review),
            Effect::RemoveWorkspace { task, attempt, .. } => {
                let unit = self.live.tasks().resources(task).workspace_key;
                let taken = self.live.tasks().is_workspace_in_use(unit);
                assert!(!taken, "a workspace is removed while it is used: {}", self.id(task));
                let done = if self.wrong(50) { Err("busy".to_owned()) } else { Ok("w".to_owned()) };
                self.reply(Input::WorkspaceRemoved { task, attempt, workspace: done });
            }
            Effect::RunForgeAction { .. } => panic!("everything lands here"),
            Effect::MergeBatch { task, attempt, purpose, candidates: seats } => {
                self.form((task, attempt), purpose, &seats);
            }
            Effect::VerifyBatch { task, attempt, commit, tree, base, .. } => {
                self.verify((task, attempt), commit, &tree, base);
            }
            Effect::InspectCheckout { task, attempt, .. } => {
                let (checkout, paths) = ("here".to_owned(), vec!["b.rs".to_owned()]);
                let reason = HoldReason::CheckoutInTheWay { checkout, paths, trouble: None };
                let reason = self.rng.in_thousand(400).then_some(reason);
                self.reply(Input::CheckoutInspected { task, attempt, reason });
            }
            Effect::RecheckTarget { commit, tree, .. } => self.recheck(commit, &tree),
            // A verdict may come all the same.
            Effect::StopLane { .. } => {}
            Effect::Land { task, attempt, old, new, tree, candidates: members } => {
                self.land((task, attempt), &old, new, &tree, &members);
            }
        }
    }

    /// Earlier work is put on the target branch; now and then it conflicts with that, or is gone.
    fn prepare(&mut self, task: TaskIx, attempt: u32, continues: Option<WorkspaceContinuation>) {
        if self.wrong(80) {
            let reason = "disk full".to_owned();
            return self.reply(Input::WorkspaceFailed { task, attempt, reason });
        }
        let key = (self.id(task), attempt);
        let main = self.world.git.main.clone();
        let base = self.world.bases.entry(key.clone()).or_insert(main).clone();
        let gone = self.wrong(20);
        let continued = continues.filter(|_| !gone).map(|wish| {
            let commit = Oid::new(format!("{}+", wish.work.commit));
            ContinuedWork {
                attempt: wish.work.attempt,
                tree: Oid::new(format!("t-{commit}")),
                commit,
                uncommitted: wish.uncommitted,
                moved: base != wish.work.base,
                conflicts: Vec::new(),
                set_back: false,
            }
        });
        if let Some(there) = &continued {
            self.world.continued.insert(key, there.clone());
        }
        if self.wrong(40) {
            // Somebody has a branch of that name.
            let branch = format!("mainstem/{}+2", self.id(task));
            self.reply(Input::BranchChosen { task, attempt, branch });
        }
        let workspace = "w".to_owned();
        self.reply(Input::WorkspaceReady { task, attempt, workspace, base, continued });
    }

    fn watch(&mut self, key: Key) {
        let start_after = if self.rng.in_thousand(850) { 0 } else { self.rng.below(3) };
        self.world.watches.entry(key).or_insert(Watch {
            words: 0,
            started: false,
            start_after,
            ended: false,
        });
    }

    fn unreached(&mut self, task: TaskIx, attempt: u32) {
        let reason = "no process".to_owned();
        self.reply(Input::AgentUnreachable { task, attempt, reason });
    }

    fn run_agent(&mut self, task: TaskIx, attempt: u32) {
        if self.wrong(30) {
            return self.unreached(task, attempt);
        }
        let key = (self.id(task), attempt);
        if !self.world.agents.contains_key(&key) {
            let agent = Agent::random(&mut self.rng, self.fair);
            self.world.agents.insert(key.clone(), agent);
        }
        self.watch(key);
    }

    fn stop_agent(&mut self, task: TaskIx, attempt: u32, now: bool) {
        if self.wrong(60) {
            return self.unreached(task, attempt);
        }
        let key = (self.id(task), attempt);
        let agent = self.world.agents.entry(key.clone()).or_insert_with(Agent::never);
        agent.stopping = true;
        if now {
            agent.live();
        }
        self.watch(key);
    }

    /// Passes on what a watched agent has said since, in order.
    pub fn listen(&mut self) {
        let keys: Vec<Key> = self.world.watches.keys().cloned().collect();
        for key in keys {
            let Some(task) = self.live.graph().index_of(key.0.as_str()) else { continue };
            let attempt = key.1;
            let (Some(watch), Some(agent)) =
                (self.world.watches.get_mut(&key), self.world.agents.get(&key))
            else {
                continue;
            };
            let mut said = Vec::new();
            if !watch.started
                && agent.alive()
                && (watch.words >= watch.start_after || agent.waits())
            {
                watch.started = true;
                said.push(Input::AgentStarted { task, attempt, pid: 7 });
            }
            for word in &agent.log[watch.words..] {
                watch.words += 1;
                let mark = watch.words as u64;
                said.push(Input::AgentSaid { task, attempt, mark, said: word.clone() });
            }
            if let Some((ending, claim)) = agent.ended.clone()
                && !watch.ended
            {
                watch.ended = true;
                said.push(Input::AgentEnded { task, attempt, ending, claim });
            }
            if !said.is_empty() {
                self.inbox.entry(Lane::Attempt(key)).or_default().extend(said);
            }
        }
    }

    fn collect(&mut self, task: TaskIx, attempt: u32, base: Option<Oid>) {
        let key = (self.id(task), attempt);
        let evidence = match base {
            _ if self.wrong(40) => Err("git failed".to_owned()),
            None => Err("there is no workspace".to_owned()),
            Some(base) => {
                let worked = self.world.agents.get(&key).is_some_and(|agent| agent.worked);
                let there = self.world.continued.get(&key);
                let begun = there.map_or_else(|| base.clone(), |there| there.commit.clone());
                let tip = if worked { Oid::new(format!("w-{}-{attempt}", key.0)) } else { begun };
                let tree = there.filter(|_| !worked).map(|there| there.tree.clone());
                let worked = tip != base;
                let flaws = if self.wrong(30) { vec!["marker".to_owned()] } else { Vec::new() };
                let files = u32::from(worked);
                Ok(Evidence {
                    base,
                    tip,
                    commits: files,
                    files,
                    insertions: 0,
                    deletions: 0,
                    diff_hash: String::new(),
                    recovered: false,
                    flaws,
                    tree,
                    guarded: self.guarded_changes(worked, attempt),
                })
            }
        };
        if self.rng.in_thousand(200) {
            self.snapshot(task, attempt);
        }
        self.reply(Input::EvidenceCollected { task, attempt, evidence });
    }

    pub fn snapshot(&mut self, task: TaskIx, attempt: u32) {
        let (refname, commit, why) = ("r".to_owned(), Oid::new("s"), "timer".to_owned());
        self.reply(Input::SnapshotTaken { task, attempt, refname, commit, why });
    }

    fn review(&mut self, effect: Effect) {
        let Effect::Review { task, attempt, tree, cycle, asked, reviewer, .. } = effect else {
            return;
        };
        let said = |verdict, findings| ReviewerOutcome::Said { verdict, findings };
        let outcome = match self.rng.below(100) {
            0..60 => said(ReviewOpinion::Approved, Vec::new()),
            60..85 => said(ReviewOpinion::ChangesNeeded, vec![setup::finding()]),
            85..88 => said(ReviewOpinion::Blocking, Vec::new()),
            88..92 => ReviewerOutcome::Failed { why: "no JSON".to_owned() },
            92..95 => ReviewerOutcome::Skipped { why: "nothing of it".to_owned() },
            95..98 if !self.fair => {
                let kind = *self.rng.pick(&[LimitKind::Rate, LimitKind::Quota]);
                ReviewerOutcome::Limited { kind, wait_ms: Some(700), message: String::new() }
            }
            98.. if !self.fair => ReviewerOutcome::Stopped {},
            _ => said(ReviewOpinion::Approved, Vec::new()),
        };
        let usage = vec![Usage { cost_usd: Some(0.25), ..Usage::default() }];
        let (duration_ms, log) = (1, None);
        self.reply(Input::ReviewerDone(Box::new(ReviewerResult {
            task,
            attempt,
            tree,
            cycle,
            asked,
            reviewer,
            outcome,
            usage,
            duration_ms,
            log,
        })));
    }

    pub fn finish_gates(&mut self) {
        let keys: Vec<Key> = self.world.gating.iter().cloned().collect();
        let key = self.rng.pick(&keys).clone();
        self.world.gating.remove(&key);
        let Some(task) = self.live.graph().index_of(key.0.as_str()) else { return };
        let verdicts = match self.rng.below(100) {
            0..80 => vec![verdict("unit", GateVerdict::Passed)],
            80..92 => vec![verdict("unit", GateVerdict::Failed)],
            92..98 => vec![verdict("unit", GateVerdict::Error)],
            _ => Vec::new(),
        };
        self.reply(Input::GatesRan { task, attempt: key.1, tree: "w".into(), gates: verdicts });
    }

    fn train_fails(&mut self, task: TaskIx, attempt: u32) {
        self.reply(Input::TrainFailed { task, attempt, reason: "git failed".to_owned() });
    }

    fn push_fails(&mut self, task: TaskIx, attempt: u32) {
        let (reason, help) = ("away".to_owned(), "go there".to_owned());
        let why = PushRefusal { reason, help, heard: self.rng.in_thousand(300) };
        self.reply(Input::PushFailed { task, attempt, why });
    }

    fn form(
        &mut self,
        (task, attempt): (TaskIx, u32),
        purpose: BatchPurpose,
        seats: &[CandidateToMerge],
    ) {
        let keys: Vec<Key> = seats.iter().map(|s| (self.id(s.task), s.attempt)).collect();
        for (seat, key) in seats.iter().zip(&keys) {
            if let Some((commit, old)) = self.world.git.landed(key) {
                let (task, attempt) = (seat.task, seat.attempt);
                return self.reply(Input::Landed { task, attempt, commit, old });
            }
        }
        if self.wrong(60) {
            return self.train_fails(task, attempt);
        }
        let onto = self.world.git.main.clone();
        let places: Vec<u64> = seats.iter().map(|seat| seat.queue_number).collect();
        let (mut steps, mut tip) = (Vec::new(), onto.clone());
        for (at, key) in keys.iter().enumerate() {
            if self.rng.in_thousand(self.clashing) {
                let files = vec!["src/a.rs".to_owned()];
                let with_main = at == 0 || self.rng.in_thousand(500);
                let clash = Input::BatchConflicted { purpose, places, at, onto, files, with_main };
                return self.reply(clash);
            }
            let commit = self.world.git.merge(key, &tip);
            let tree = self.world.git.tree(&commit);
            steps.push(CandidateMerge {
                onto: tip,
                commit: commit.clone(),
                tree,
                reused: Vec::new(),
            });
            tip = commit;
        }
        let bound =
            if keys.len() > 1 { self.world.git.bind(&onto, &tip, &keys) } else { tip.clone() };
        let (tree, base_tree) = (self.world.git.tree(&tip), self.world.git.tree(&onto));
        let formed = BatchMerge { onto, candidate_merges: steps, tip, commit: bound, tree };
        self.reply(Input::BatchMerged { purpose, places, formed, base_tree });
    }

    fn verify(&mut self, (task, attempt): (TaskIx, u32), commit: Oid, tree: &Oid, base: bool) {
        assert_eq!(self.world.git.tree(&commit), *tree, "the tree is that of the commit");
        if self.wrong(40) {
            return self.train_fails(task, attempt);
        }
        let mut gates = Vec::new();
        for gate in self.settings.gates.verify.clone() {
            // A branch that is bad for good would hold everything up for good.
            let red = if base { self.wrong(300) } else { self.rng.in_thousand(60) };
            gates.push(verdict(&gate, if red { GateVerdict::Failed } else { GateVerdict::Passed }));
            if red {
                break;
            }
            self.passed.push((tree.clone(), gate));
        }
        if self.wrong(20) {
            gates.pop();
        }
        self.reply(Input::BatchVerified { task, attempt, commit, tree: tree.clone(), gates });
    }

    /// Now and then caches turn out to be wrong, or nobody can say.
    fn recheck(&mut self, commit: Oid, tree: &Oid) {
        assert_eq!(self.world.git.tree(&commit), *tree, "the tree is that of the commit");
        if self.wrong(40) {
            let gates = Err("disk full".to_owned());
            return self.reply(Input::TargetRechecked { commit, gates });
        }
        let red = self.wrong(100);
        let verdicts = self.settings.gates.verify.iter();
        let said = if red { GateVerdict::Failed } else { GateVerdict::Passed };
        let gates = verdicts.map(|gate| verdict(gate, said)).collect();
        if red {
            // What passed before counts no longer.
            self.passed.clear();
        }
        self.reply(Input::TargetRechecked { commit, gates: Ok(gates) });
    }

    fn land(
        &mut self,
        (task, attempt): (TaskIx, u32),
        old: &Oid,
        new: Oid,
        tree: &Oid,
        all: &[CandidateToLand],
    ) {
        if self.wrong(40) {
            return self.train_fails(task, attempt);
        }
        // Only of a branch that has not moved: one that has is found to have the work.
        if !self.world.git.contains(&self.world.git.main, &new) && self.wrong(50) {
            return self.checkout_in_the_way(task, attempt);
        }
        if self.wrong(60) && self.settings.land.push.is_some() {
            return self.push_fails(task, attempt);
        }
        if !self.world.git.contains(&self.world.git.main, &new) {
            if !self.world.git.swap(old, &new) {
                let found = Some(self.world.git.main.clone());
                return self.reply(Input::LandingRefused { task, attempt, new, found });
            }
            self.main_moved = true;
            i8_only_verified_trees_land(&self.passed, &self.settings, tree);
            assert_eq!(self.world.git.tree(&new), *tree, "I8: another tree landed");
        }
        if self.wrong(40) {
            // It happened, and nobody was told.
            return match self.settings.land.push {
                Some(_) => self.push_fails(task, attempt),
                None => self.train_fails(task, attempt),
            };
        }
        if self.rng.in_thousand(300) {
            self.reply(Input::CheckoutUpdated { task, moved: true, why: String::new() });
        }
        for member in all {
            let (task, attempt) = (member.task, member.attempt);
            let (commit, old) = (member.commit.clone(), member.onto.clone());
            self.reply(Input::Landed { task, attempt, commit, old });
        }
    }
}

fn i8_only_verified_trees_land(passed: &[(Oid, String)], settings: &Settings, tree: &Oid) {
    for gate in &settings.gates.verify {
        let ran = passed.iter().any(|(t, g)| t == tree && g == gate);
        assert!(ran, "I8: {tree} landed, but `{gate}` never passed on it");
    }
}
