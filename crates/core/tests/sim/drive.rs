//! The engine's loop with chance instead of threads: inputs arrive late, twice or in another order,
//! effects fail or are performed twice, people interfere, and the engine dies at any moment.
//!
//! The one rule that is kept: an effect is performed only after its step's facts were appended.

use std::collections::{BTreeMap, VecDeque};

use mainstem_core::capacity::CapacityShortage;
use mainstem_core::config::Settings;
use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentEnding, Fact, GateScope, GateVerdict, StopReason, Usage};
use mainstem_core::id::{Oid, TaskId, TaskIx, Time};
use mainstem_core::machine::{
    AgentStatement, EpochOptions, GateResult, Input, Machine, MachineCommand, RestReason,
    RetryRequest,
};
use mainstem_core::phase::Phase;

use crate::check;
use crate::cover::Coverage;
use crate::holds;
use crate::kept;
use crate::rng::Rng;
use crate::rules;
use crate::setup;
use crate::world::{Agent, Key, World};

/// What keeps its order: words of one agent, effects of one task, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Attempt(Key),
    Task(TaskIx),
    Train,
    Verify(u32),
    Single(u64),
}

pub struct Sim<'c> {
    pub rng: Rng,
    pub settings: Settings,
    pub live: Machine,
    /// The journal, folded: what a recovering engine knows.
    pub shadow: Machine,
    pub journal: Vec<(u64, Time, Fact)>,
    pub now: Time,
    pub world: World,
    pub epoch: u64,
    pub steps: u64,
    pub slots_before: u32,
    pub clash: Vec<Vec<bool>>,
    pub usage: BTreeMap<(TaskId, u32, u64), f64>,
    /// What the answering agent was paid, by question.
    pub answers: BTreeMap<String, f64>,
    /// Who works, or worked.
    pub agents: BTreeMap<Key, String>,
    pub draining: bool,
    pub interrupting: bool,
    pub main_moved: bool,
    scope: Option<Vec<TaskIx>>,
    pub passed: Vec<(Oid, String)>,
    must_contain: BTreeMap<Key, Vec<Oid>>,
    left: kept::Left,
    pub todo: BTreeMap<Lane, VecDeque<Effect>>,
    pub inbox: BTreeMap<Lane, VecDeque<Input>>,
    recent: VecDeque<Input>,
    singles: u64,
    pub fair: bool,
    /// How many of a thousand merges clash.
    pub clashing: u64,
    coverage: &'c mut Coverage,
}

/// Runs one seed to its end and says how many steps that took.
pub fn run(seed: u64, coverage: &mut Coverage) -> u64 {
    let mut sim = Sim::new(seed, coverage);
    sim.start();
    let chaos = 20 + sim.rng.below(60 + 12 * sim.live.plan().tasks.len());
    for _ in 0..chaos {
        if sim.live.rest_reason().is_some() {
            sim.rests();
        } else {
            sim.chaos();
        }
    }
    sim.fair = true;
    sim.comes_to_rest();
    sim.last_words();
    sim.steps
}

impl<'c> Sim<'c> {
    fn new(seed: u64, coverage: &'c mut Coverage) -> Self {
        let mut rng = Rng::new(seed);
        let settings = setup::random_settings(&mut rng);
        let mut machine = Machine::new(settings.clone());
        let options = EpochOptions { waits_for_people: true, ..EpochOptions::default() };
        machine.step(Input::ConfigureEpoch(options), Time(0));
        let clashing = *rng.pick(&[30, 30, 100, 700]);
        Self {
            rng,
            live: machine.clone(),
            shadow: machine,
            settings,
            journal: Vec::new(),
            now: Time(1_000),
            world: World::new(),
            epoch: 0,
            steps: 0,
            slots_before: 0,
            clash: Vec::new(),
            usage: BTreeMap::new(),
            answers: BTreeMap::new(),
            agents: BTreeMap::new(),
            draining: false,
            interrupting: false,
            main_moved: false,
            scope: None,
            passed: Vec::new(),
            must_contain: BTreeMap::new(),
            left: kept::Left::default(),
            todo: BTreeMap::new(),
            inbox: BTreeMap::new(),
            recent: VecDeque::new(),
            singles: 0,
            fair: false,
            clashing,
            coverage,
        }
    }

    fn start(&mut self) {
        let (target, base) = ("main".to_owned(), self.world.git.main.clone());
        let step = self.live.step(Input::StartRun { target, base, bring_to: None }, self.now);
        self.append(&step.facts);
        let plan = Box::new(setup::random_plan(&mut self.rng));
        let step = self.live.step(Input::AdoptPlan { plan, hash: "first".to_owned() }, self.now);
        self.append(&step.facts);
        self.begin();
    }

    /// What a new engine says first.
    pub fn begin_input(&self, epoch: u64) -> Input {
        let (host, version) = (String::new(), String::new());
        Input::Begin { epoch, pid: 1, host, version, scope: self.scope.clone() }
    }

    fn begin(&mut self) {
        self.epoch += 1;
        self.interrupting = false;
        let count = self.live.plan().tasks.len();
        self.scope = None;
        if !self.fair && count > 0 && self.rng.in_thousand(100) {
            let t = TaskIx(u32::try_from(self.rng.below(count)).unwrap());
            self.scope = Some(vec![t]);
        }
        let begin = self.begin_input(self.epoch);
        let effects = self.step(begin);
        if let Some(effects) = effects
            && self.rng.in_thousand(300)
        {
            check::i10_recovery_is_idempotent(self, &effects);
        }
    }

    /// The engine dies. The world goes on without it; then another one folds the journal.
    fn crash(&mut self) {
        self.todo.clear();
        self.inbox.clear();
        self.recent.clear();
        self.world.engine_dies();
        for key in self.world.living() {
            for _ in 0..self.rng.below(3) {
                self.world.agents.get_mut(&key).unwrap().live();
            }
            if !self.fair && self.rng.in_thousand(100) {
                self.world.agents.get_mut(&key).unwrap().vanish();
            }
        }
        self.live = self.shadow.clone();
        if !self.fair && self.rng.in_thousand(120) {
            self.revise();
        }
        self.begin();
    }

    /// A person changed the plan before the next engine started.
    fn revise(&mut self) {
        let tasks = self.live.tasks();
        let plan = self.live.plan();
        let unstarted = |t: &TaskIx| tasks.get(*t).attempts == 0;
        let free: Vec<TaskId> =
            tasks.all_tasks().filter(unstarted).map(|t| plan.tasks[t.index()].id.clone()).collect();
        let fresh = self.epoch;
        let plan = setup::revised(&mut self.rng, plan, &free, fresh);
        let landed: Vec<TaskId> = landed_ids(&self.live);
        let hash = format!("revision {fresh}");
        let step = self.live.step(Input::AdoptPlan { plan: Box::new(plan), hash }, self.now);
        self.append(&step.facts);
        assert_eq!(landed, landed_ids(&self.live), "landed tasks stay landed");
    }

    /// Appends to the journal, folds, and looks at each fact on its own.
    fn append(&mut self, facts: &[Fact]) {
        for fact in facts {
            if let Some(id) = fact.task()
                && let Some(t) = self.shadow.graph().index_of(id.as_str())
            {
                self.look_at(t, fact);
            }
            let applied = self.shadow.apply(fact, self.now);
            assert!(applied.is_ok(), "I12: {applied:?}");
            match fact {
                Fact::RunDraining { .. } => self.draining = true,
                Fact::EngineStarted { .. } => self.draining = false,
                Fact::PlanAdopted { plan, .. } => self.clash = rules::clashes(plan),
                _ => {}
            }
            let seq = self.journal.len() as u64;
            self.journal.push((seq, self.now, fact.clone()));
        }
    }

    fn look_at(&mut self, t: TaskIx, fact: &Fact) {
        let from = self.shadow.tasks().phase(t);
        match from.next(fact) {
            Ok(to) => self.coverage.walked(from, fact, to),
            Err(illegal) => panic!("I12: {illegal}"),
        }
        self.left.look_at(&self.shadow, t, fact);
        match fact {
            Fact::AttemptIntended { task, attempt, agent, provider, .. } => {
                check::i2_inputs_are_there(&self.shadow, t);
                check::i13_nobody_starts_at_a_resting_provider(self, provider);
                self.agents.insert((task.clone(), *attempt), agent.clone());
            }
            Fact::WorkspaceReady { task, attempt, base, .. } => {
                let must = self.must_contain.get(&(task.clone(), *attempt));
                let must = must.expect("I2: a workspace that nobody asked for");
                let all = must.iter().all(|commit| self.world.git.contains(base, commit));
                assert!(all, "I2: the base of {task}/{attempt} lacks a landing");
            }
            Fact::LandingIntended { .. } => holds::i14_nothing_held_lands(&self.shadow, t),
            Fact::QuestionAsked { .. } => holds::i14_is_ripe_for_approval(&self.shadow, t, fact),
            Fact::UsageReported { usage, .. } if let Some(who) = &usage.answering => {
                let twice = self.answers.insert(who.question.clone(), usage.paid_usd());
                assert_eq!(twice, None, "I9: paid twice: {fact:?}");
            }
            Fact::UsageReported { task, attempt, mark, usage } => {
                let key = (task.clone(), *attempt, *mark);
                let twice = self.usage.insert(key, usage.paid_usd());
                assert_eq!(twice, None, "I9: counted twice: {fact:?}");
            }
            Fact::GateRan {
                scope: GateScope::Train | GateScope::Base,
                verdict: GateVerdict::Passed,
                tree,
                gate,
                ..
            } => {
                let ran = self.passed.contains(&(tree.clone(), gate.clone()));
                assert!(ran, "I8: `{gate}` is said to have passed on {tree}, and never did");
            }
            _ => {}
        }
    }

    /// One step of the engine; none if it died in it.
    pub fn step(&mut self, input: Input) -> Option<Vec<Effect>> {
        self.steps += 1;
        self.slots_before = self.live.tasks().slots_in_use();
        let asks = matches!(input, Input::Command(_));
        let step = self.live.step(input, self.now);
        assert_eq!(asks, step.reply.is_some(), "every command is answered");
        if !self.fair && self.rng.in_thousand(8) {
            self.crash();
            return None;
        }
        self.append(&step.facts);
        check::after_step(self);
        self.main_moved = false;
        for effect in &step.effects {
            kept::i14_is_asked_for(&self.live, effect);
            if let Effect::PrepareWorkspace { task, attempt, must_contain, .. } = effect {
                check::i2_landings_are_asked_for(&self.live, *task, must_contain);
                let key = (self.id(*task), *attempt);
                self.must_contain.insert(key, must_contain.clone());
            }
        }
        if !self.fair && self.rng.in_thousand(8) {
            self.crash();
            return None;
        }
        for effect in &step.effects {
            let lane = match effect {
                Effect::PrepareWorkspace { task, .. }
                | Effect::RunAgent { task, .. }
                | Effect::StopAgent { task, .. }
                | Effect::DeliverAnswer { task, .. }
                | Effect::ConsultAgent { task, .. }
                | Effect::CollectEvidence { task, .. }
                | Effect::TakeSnapshot { task, .. }
                | Effect::RunGates { task, .. }
                | Effect::StopJobs { task, .. }
                | Effect::RunForgeAction { task, .. }
                | Effect::RemoveWorkspace { task, .. } => Lane::Task(*task),
                Effect::MergeBatch { .. }
                | Effect::Land { .. }
                | Effect::InspectCheckout { .. } => Lane::Train,
                Effect::VerifyBatch { lane, .. }
                | Effect::RecheckTarget { lane, .. }
                | Effect::Review { lane, .. }
                | Effect::StopLane { lane, .. } => Lane::Verify(*lane),
            };
            self.todo.entry(lane).or_default().push_back(effect.clone());
        }
        Some(step.effects)
    }

    pub fn id(&self, t: TaskIx) -> TaskId {
        self.live.graph().id(t).clone()
    }

    pub fn reply(&mut self, input: Input) {
        self.singles += 1;
        self.inbox.entry(Lane::Single(self.singles)).or_default().push_back(input);
    }

    /// Something goes wrong so often of a thousand times, while the world is not fair.
    pub fn wrong(&mut self, cases: u64) -> bool {
        !self.fair && self.rng.in_thousand(cases)
    }

    fn deliver_next(&mut self) {
        let lanes: Vec<Lane> = self.inbox.keys().cloned().collect();
        let lane = self.rng.pick(&lanes).clone();
        let queue = self.inbox.get_mut(&lane).unwrap();
        let input = queue.pop_front().unwrap();
        if queue.is_empty() {
            self.inbox.remove(&lane);
        }
        if self.recent.len() == 24 {
            self.recent.pop_front();
        }
        self.recent.push_back(input.clone());
        self.step(input);
    }

    fn agent_lives(&mut self) {
        let living = self.busy_agents();
        let key = self.rng.pick(&living).clone();
        let gone = self.wrong(15);
        let agent = self.world.agents.get_mut(&key).unwrap();
        if gone { agent.vanish() } else { agent.live() }
    }

    fn busy_agents(&self) -> Vec<Key> {
        let busy = |agent: &Agent| agent.alive() && (agent.stopping || !agent.waits());
        self.world.agents.iter().filter(|(_, a)| busy(a)).map(|(key, _)| key.clone()).collect()
    }

    /// One thing that goes on by itself; none if nothing does.
    fn goes_on(&mut self) -> bool {
        self.listen();
        let mut choices: Vec<fn(&mut Self)> = Vec::new();
        if !self.inbox.is_empty() {
            choices.extend([Self::deliver_next as fn(&mut Self); 4]);
        }
        if !self.todo.is_empty() {
            choices.extend([Self::perform_next as fn(&mut Self); 4]);
        }
        if !self.busy_agents().is_empty() {
            choices.extend([Self::agent_lives as fn(&mut Self); 3]);
        }
        if !self.world.gating.is_empty() {
            choices.push(Self::finish_gates);
        }
        if choices.is_empty() {
            return false;
        }
        let choice = *self.rng.pick(&choices);
        choice(self);
        true
    }

    fn chaos(&mut self) {
        self.now = self.now.plus_ms(self.rng.next() % 300);
        match self.rng.below(1000) {
            0..8 => self.crash(),
            8..80 => self.person(),
            80..95 => self.world.git.stranger_moves(),
            95..122 => self.again(),
            122..130 => {
                self.step(Input::Tick);
            }
            130..138 => {
                let room = match self.rng.below(1000) {
                    0..250 => Err(CapacityShortage::for_everyone("disk")),
                    250..500 => Err(CapacityShortage::for_one_more("memory")),
                    _ => Ok(()),
                };
                self.step(Input::CapacityMeasured(room));
            }
            138..142 => {
                let now = self.rng.in_thousand(300);
                self.interrupting = true;
                self.step(Input::Interrupt { now });
            }
            142..165 => self.gossip(),
            165..175 => self.look_ahead(),
            175..185 => {
                if let Some(end) = holds::end_a_hold(&self.live) {
                    self.step(end);
                }
            }
            _ => {
                if !self.goes_on() {
                    self.pass_time();
                }
            }
        }
    }

    /// Something is told of any task at any time.
    fn gossip(&mut self) {
        let tasks = self.live.tasks();
        let mut of: Vec<TaskIx> = tasks.all_tasks().collect();
        if self.rng.in_thousand(300) {
            of.retain(|t| tasks.phase(*t) == Phase::Conflicted);
        }
        if of.is_empty() {
            return;
        }
        let task = *self.rng.pick(&of);
        let attempts = self.live.tasks().get(task).attempts;
        if self.rng.in_thousand(500) {
            self.snapshot(task, attempts);
        } else {
            self.reply(Input::Notice { task: Some(task), message: "hm".to_owned() });
        }
    }

    /// An input comes a second time, maybe long after.
    fn again(&mut self) {
        // Often of the train: that is where a word too late could move the branch.
        let of_train = |input: &&Input| {
            matches!(input, Input::BatchVerified { .. } | Input::LandingRefused { .. })
        };
        let some: Vec<Input> = match self.rng.in_thousand(300) {
            true => self.recent.iter().filter(of_train).cloned().collect(),
            false => self.recent.iter().cloned().collect(),
        };
        if some.is_empty() {
            return;
        }
        let input = self.rng.pick(&some).clone();
        self.step(input);
    }

    fn wish(&mut self) -> MachineCommand {
        let tasks = self.live.tasks();
        let mut of: Vec<TaskIx> = tasks.all_tasks().collect();
        if self.rng.in_thousand(250) {
            of.retain(|t| tasks.phase(*t) == Phase::Conflicted);
        }
        let any = (!of.is_empty()).then(|| *self.rng.pick(&of));
        let id = match any {
            Some(t) => self.id(t).to_string(),
            None => "nobody".to_owned(),
        };
        if let Some(wish) = self.wish_about_a_hold() {
            return wish;
        }
        let words = ["a", "2", "something else", "approve", "reject: no", "review again"];
        let text = self.rng.pick(&words).to_string();
        let open = self.live.open_questions().len();
        match self.rng.below(100) {
            0..6 => MachineCommand::Pause,
            6..20 => MachineCommand::Resume,
            20..34 => MachineCommand::Cancel(Some(id)),
            34..35 => MachineCommand::Cancel(None),
            35..52 => self.retry_wish(id),
            52..64 => MachineCommand::Skip(id),
            64..70 => MachineCommand::Jobs(u32::try_from(self.rng.below(7)).unwrap()),
            70..74 => MachineCommand::Accept(format!("P{}", 1 + self.rng.below(4))),
            74..76 => MachineCommand::Reject(format!("P{}", 1 + self.rng.below(4))),
            _ if open == 0 => {
                MachineCommand::Answer { question: "Q9999".to_owned(), text, free: false }
            }
            _ => {
                let at = self.rng.below(open);
                let question = self.live.open_questions()[at].name.clone();
                MachineCommand::Answer { question, text, free: self.rng.in_thousand(500) }
            }
        }
    }

    /// Once more, on terms of a person's own.
    fn retry_wish(&mut self, id: String) -> MachineCommand {
        let mut tasks = vec![id];
        if self.rng.in_thousand(100) {
            tasks.push(self.rng.pick(&["nobody", "T0", "T1"]).to_string());
        }
        let hint = self.rng.in_thousand(200).then(|| "look again".to_owned());
        let agent = self.rng.in_thousand(200).then(|| self.rng.pick(&["ann", "bob"]).to_string());
        let fresh = self.rng.in_thousand(250);
        MachineCommand::Retry(RetryRequest { tasks, hint, agent, fresh })
    }

    fn person(&mut self) {
        if self.rng.in_thousand(400) {
            return self.change_of_mind();
        }
        let wish = self.wish();
        self.step(Input::Command(wish));
    }

    /// A person wants something done after all that a running or just ended task needs.
    fn change_of_mind(&mut self) {
        let (tasks, graph) = (self.live.tasks(), self.live.graph());
        let going = |t: TaskIx| tasks.get(t).current.as_ref().is_some_and(|a| a.removing);
        let passed = |p: &TaskIx| tasks.phase(*p).is_over() && tasks.phase(*p) != Phase::Landed;
        let pairs: Vec<(TaskIx, TaskIx)> = tasks
            .all_tasks()
            .filter(|t| tasks.phase(*t).is_active() || going(*t))
            .flat_map(|t| {
                graph.needs(t).chain(graph.soft_needs(t)).filter(passed).map(move |p| (t, p))
            })
            .collect();
        let is_merging = |pair: &(TaskIx, TaskIx)| tasks.phase(pair.0) == Phase::Merging;
        let mut pairs = pairs;
        let leaving = |pair: &(TaskIx, TaskIx)| going(pair.0);
        // What can only follow on one of these is the rarest of all.
        if pairs.iter().any(leaving) {
            pairs.retain(leaving);
        } else if pairs.iter().any(is_merging) {
            pairs.retain(is_merging);
        }
        if pairs.is_empty() {
            return;
        }
        let (t, p) = *self.rng.pick(&pairs);
        let (t, p) = (self.id(t).to_string(), self.id(p).to_string());
        if self.step(Input::Command(MachineCommand::retry_task(p))).is_some() {
            self.step(Input::Command(MachineCommand::retry_task(t)));
        }
    }

    /// Nothing goes on by itself: what the machine waits for comes, or it hangs.
    fn pass_time(&mut self) {
        if let Some(at) = self.live.wake_at() {
            self.now = at;
            self.step(Input::Tick);
        } else if self.live.is_paused() || self.waits_for_person() {
            self.step(Input::Command(MachineCommand::Resume));
        } else if self.live.capacity_shortage().is_some() {
            self.step(Input::CapacityMeasured(Ok(())));
        } else if let Some(end) = holds::end_a_hold(&self.live) {
            self.step(end);
        } else if let Some(open) = self.live.open_questions().first() {
            let text = if open.is_about_work() { "approve" } else { "a" };
            let (question, text) = (open.name.clone(), text.to_owned());
            self.step(Input::Command(MachineCommand::Answer { question, text, free: true }));
        } else {
            panic!("I11: nothing goes on, and yet it does not rest:\n{}", self.picture());
        }
    }

    /// A quota was used up, and nobody has said to go on.
    fn waits_for_person(&self) -> bool {
        let auto_resume = self.settings.limits.auto_resume;
        let mut known = self.live.providers().values();
        known.any(|provider| provider.rests_until(self.now, auto_resume) == Some(None))
    }

    /// The machine has nothing to do: the engine goes, people look, another one comes.
    fn rests(&mut self) {
        check::at_rest(self);
        let why = if self.interrupting { StopReason::Interrupted } else { StopReason::Rested };
        self.append(&[Fact::EngineStopped { why }]);
        self.live = self.shadow.clone();
        for _ in 0..self.rng.below(3) {
            self.undo();
        }
        for _ in 0..self.rng.below(4) {
            let wish = self.wish();
            let step = self.live.step(Input::Command(wish), self.now);
            self.append(&step.facts);
            assert!(step.effects.is_empty(), "no effect without an engine");
        }
        self.crash();
    }

    fn undo(&mut self) {
        let tasks = self.shadow.tasks();
        let moved = |t: &TaskIx| tasks.get(*t).landed.as_ref().is_some_and(|l| !l.empty);
        let landed: Vec<TaskIx> = tasks.all_tasks().filter(moved).collect();
        if landed.is_empty() {
            return;
        }
        let t = *self.rng.pick(&landed);
        let commit = self.shadow.tasks().get(t).landed.as_ref().unwrap().commit.clone();
        let task = self.shadow.graph().id(t).clone();
        let (old, new) = self.world.git.revert(&task);
        self.append(&[Fact::LandingUndone { task, commit, old, new }]);
        self.live = self.shadow.clone();
    }

    /// I11: in a fair world the machine comes to rest, in a bounded number of steps.
    fn comes_to_rest(&mut self) {
        let bound = 2_000 + 400 * self.live.plan().tasks.len();
        let mut lives = 0;
        for _ in 0..bound {
            match self.live.rest_reason() {
                None => {
                    self.now = self.now.plus_ms(self.rng.next() % 50);
                    if !self.goes_on() {
                        self.pass_time();
                    }
                }
                // Once more, as a person would type `run` again.
                Some(_)
                    if lives == 0
                        || self.live.rest_reason() == Some(RestReason::Interrupted)
                            && lives < 3 =>
                {
                    check::at_rest(self);
                    lives += 1;
                    self.crash();
                }
                Some(_) => return,
            }
        }
        panic!("I11: no rest after {bound} steps:\n{}", self.picture());
    }

    fn last_words(&mut self) {
        check::at_rest(self);
        check::i9_no_money_is_forgotten(self);
        let tasks = self.live.tasks();
        let held = self.draining || self.settings.budget.hard || self.live.is_cancelled();
        for t in tasks.all_tasks() {
            let phase = tasks.phase(t);
            assert!(!phase.is_active(), "I11: {} at rest", phase.as_str());
            assert!(held || phase.is_over(), "I11: {} is {} at rest", self.id(t), phase.as_str());
        }
        let mut fold = Machine::new(self.settings.clone());
        for (_, at, fact) in &self.journal {
            fold.apply(fact, *at).unwrap();
        }
        rules::i5_replay_is_the_live_state(&self.live, &fold);
    }

    fn picture(&self) -> String {
        let tasks = self.live.tasks();
        let line = |t: TaskIx| {
            let state = tasks.get(t);
            let held = (state.phase() == Phase::Ready).then(|| self.live.start_obstacle(t));
            format!("{} {} {held:?} {:?}\n", self.id(t), state.phase().as_str(), state.current)
        };
        let all: String = tasks.all_tasks().map(line).collect();
        let last: Vec<_> = self.journal.iter().rev().take(12).collect();
        format!(
            "{all}todo {:?}\ntrain {:?}\nyard {:?}\nnewest first {last:#?}",
            self.todo,
            self.live.train(),
            self.live.train_batches()
        )
    }
}

fn landed_ids(machine: &Machine) -> Vec<TaskId> {
    let tasks = machine.tasks();
    let landed = tasks.all_tasks().filter(|t| tasks.phase(*t) == Phase::Landed);
    let mut ids: Vec<TaskId> = landed.map(|t| machine.graph().id(t).clone()).collect();
    ids.sort();
    ids
}

pub fn verdict(gate: &str, verdict: GateVerdict) -> GateResult {
    GateResult {
        gate: gate.to_owned(),
        verdict,
        duration_ms: 1,
        log: None,
        detail: String::new(),
        cached: false,
        flakes: 0,
        exit_code: None,
        cause: None,
    }
}

/// Used by tables: an agent that ended well.
pub fn exited_well() -> AgentEnding {
    AgentEnding::Exited { code: 0 }
}

/// Used by tables: a question.
pub fn question(default: Option<&str>, deadline_ms: Option<u64>) -> AgentStatement {
    AgentStatement::Asked {
        text: "which?".to_owned(),
        options: vec!["a".to_owned(), "b".to_owned()],
        default: default.map(str::to_owned),
        deadline_ms,
        reference: None,
    }
}

/// Used by tables: what an agent used.
pub fn usage(cost_usd: Option<f64>) -> AgentStatement {
    AgentStatement::Usage(Usage { input_tokens: 1, output_tokens: 1, cost_usd, ..Usage::default() })
}

/// Used by tables: a provider says to wait.
pub fn limited(retry_after_ms: Option<u64>) -> AgentStatement {
    AgentStatement::RateLimited {
        retry_after_ms,
        reset_at: None,
        message: String::new(),
        retrying: false,
    }
}
