//! The simulated machine as the driver reaches it, and what becomes of orders: step by step, with other
//! things happening between any two steps, so that a death leaves them half done.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mainstem_core::attempt_work::{ContinuedWork, WorkPlacement, WorkspaceContinuation};
use mainstem_core::capacity::CapacityShortage;
use mainstem_core::conflict::{ConflictForecast, ConflictPair, UnlandedWork};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentClaim, AgentEnding, Evidence, GateVerdict, LimitKind, Usage};
use mainstem_core::hold::GuardedChange;
use mainstem_core::id::{Oid, Time};
use mainstem_core::machine::{GateResult, Input, ReviewerResult};
use mainstem_core::review::{ReviewOpinion, ReviewerOutcome};
use mainstem_engine::conflict_forecast::ForecastWork;
use mainstem_engine::effect_queue::EffectTicket;
use mainstem_engine::effects::{EffectAction, EffectOrder};
use mainstem_engine::engine_host::EngineHost;
use mainstem_engine::event::EngineEvent;

use crate::agent::{Agent, Job, Key};
use crate::faults::Fault;
use crate::git::{At, Git, Workspace};
use crate::world::{Ear, Gate, Happening, Shared, World};
use crate::{check, setup};

/// An order under way.
#[derive(Debug)]
pub struct Flight {
    ticket: EffectTicket,
    order: Arc<EffectOrder>,
    step: usize,
    turns: Turns,
    /// The commit that a step found, for the next one.
    pub found: At,
    /// The commit that its work counts from.
    base: At,
    pub verdicts: Vec<GateResult>,
}

/// Whether an order is carried out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turns {
    Only,
    First,
    Second,
}

/// How far one step brought an order.
pub enum Progress {
    /// The next step comes.
    On,
    /// The same step again, a little later.
    Wait,
    Done,
}

/// The machine as the driver sees it.
pub struct Simulated(pub Shared);

impl EngineHost for Simulated {
    fn now(&mut self) -> Time {
        Time(self.0.get().wall())
    }

    fn utc_offset_min(&mut self) -> i32 {
        0
    }

    fn check_capacity(&mut self) -> Result<(), CapacityShortage> {
        let mut world = self.0.get();
        world.no_room = world.strikes(Fault::NoRoom);
        if world.no_room { Err(CapacityShortage::for_everyone("disk space")) } else { Ok(()) }
    }

    fn workspace_path(&self, unit: &str) -> PathBuf {
        PathBuf::from(format!("ws/{unit}"))
    }

    fn start_effect(&mut self, ticket: EffectTicket, order: EffectOrder) {
        let mut world = self.0.get();
        if world.dead || world.strikes(Fault::Death) {
            world.dead = true;
            return;
        }
        check::intended(&world, &order);
        if world.strikes(Fault::NoThread) {
            return world.inbox.push_back(EngineEvent::Abandon);
        }
        world.note(|| format!("start {} {:?}", order.task.id, order.action));
        let turns = if world.strikes(Fault::OrderTwice) { Turns::First } else { Turns::Only };
        let number = world.number();
        let order = Arc::new(order);
        let flight =
            Flight { ticket, order, step: 0, turns, found: 0, base: 0, verdicts: Vec::new() };
        world.flights.insert(number, flight);
        world.step_later(number);
    }

    /// Sees clashes where there are none, and overlooks others: nothing but an order follows from it.
    fn start_forecast(&mut self, works: Vec<ForecastWork>) -> bool {
        let mut world = self.0.get();
        if world.dead || world.rng.in_thousand(100) {
            return false;
        }
        let (mut pieces, mut pairs) = (Vec::new(), Vec::new());
        for work in works {
            let paths = vec![format!("{}.txt", work.task)];
            let others = pieces.iter().filter(|_| world.rng.in_thousand(300));
            let with = |other: &UnlandedWork| ConflictPair {
                a: other.task.clone(),
                b: Some(work.task.clone()),
                paths: paths.clone(),
            };
            pairs.extend(others.map(with));
            let (task, attempt, commit) = (work.task, work.attempt, work.commit);
            pieces.push(UnlandedWork { task, attempt, commit, paths });
        }
        let whole = world.rng.in_thousand(800);
        let seen = (!world.rng.in_thousand(50)).then_some(ConflictForecast {
            unlanded_work: pieces,
            pairs,
            complete: whole,
        });
        world.inbox.push_back(EngineEvent::ForecastMade(seen));
        true
    }

    fn watch_job(&mut self, key: u64, dir: PathBuf) {
        let mut world = self.0.get();
        if !world.dead {
            world.ears.insert(key, Ear { of: World::job_of(&dir), lines: 0 });
            world.later(1, 100, Happening::Look(key));
        }
    }

    fn next_event(&mut self, patience: Option<Duration>) -> Option<EngineEvent> {
        let mut world = self.0.get();
        if world.dead || world.strikes(Fault::Death) {
            world.dead = true;
            return Some(EngineEvent::Abandon);
        }
        world.clock_jumps();
        // Nobody sleeps for ever: faces are to be redrawn, room is to be looked for.
        let most = 1 + world.rng.next() % 60_000;
        let wait = patience.map_or(most, |p| u64::try_from(p.as_millis()).unwrap().min(most));
        let until = world.at + wait;
        while world.inbox.is_empty() && world.happen(until) {}
        if world.inbox.is_empty() {
            world.at = until;
        }
        world.hand_out()
    }

    fn ready_event(&mut self) -> Option<EngineEvent> {
        let mut world = self.0.get();
        if world.dead {
            return None;
        }
        // What happens at the same time is sometimes taken together.
        let near = world.at + world.rng.next() % 30;
        if world.rng.in_thousand(300) {
            world.happen(near);
        }
        world.hand_out()
    }
}

impl World {
    fn hand_out(&mut self) -> Option<EngineEvent> {
        let event = self.inbox.pop_front()?;
        self.note(|| format!("event {event:?}"));
        if matches!(event, EngineEvent::Interrupt | EngineEvent::StopNow | EngineEvent::Abandon) {
            self.interrupted = true;
        }
        self.unanswered += usize::from(matches!(event, EngineEvent::Command(..)));
        Some(event)
    }

    fn clock_jumps(&mut self) {
        if self.strikes(Fault::ClockBack) && self.rng.in_thousand(200) {
            self.skew -= i64::try_from(self.rng.next() % 200_000_000).unwrap();
        }
        if self.strikes(Fault::ClockForward) && self.rng.in_thousand(200) {
            self.skew += i64::try_from(self.rng.next() % 20_000_000).unwrap();
        }
    }

    fn step_later(&mut self, flight: u64) {
        let latest = if self.strikes(Fault::Slow) { 60_000 } else { 120 };
        self.later(1, latest, Happening::Order(flight));
    }

    /// An order goes one step further.
    pub fn fly(&mut self, number: u64) {
        let Some(mut flight) = self.flights.remove(&number) else { return };
        let before = self.inbox.len();
        if self.strikes(Fault::OrderBreaks) {
            self.inbox.push_back(EngineEvent::Abandon);
            return self.inbox.push_back(EngineEvent::Performed(flight.ticket));
        }
        match self.perform(&mut flight) {
            Progress::On => flight.step += 1,
            Progress::Wait => {}
            Progress::Done if flight.turns == Turns::First => {
                // As with `MAINSTEM_EFFECTS_TWICE`: nobody hears of the first time.
                flight.turns = Turns::Second;
                self.inbox.truncate(before);
                (flight.step, flight.verdicts) = (0, Vec::new());
            }
            Progress::Done => {
                if flight.turns == Turns::Second {
                    let again: Vec<EngineEvent> = self
                        .inbox
                        .range(before..)
                        .filter_map(EngineEvent::duplicate_result)
                        .collect();
                    self.inbox.extend(again);
                }
                return self.inbox.push_back(EngineEvent::Performed(flight.ticket));
            }
        }
        self.step_later(number);
        self.flights.insert(number, flight);
    }

    pub fn tell(&mut self, input: Input) {
        self.inbox.push_back(EngineEvent::Input(input));
    }

    fn perform(&mut self, flight: &mut Flight) -> Progress {
        let order = Arc::clone(&flight.order);
        let key = (order.task.id.clone(), order.attempt);
        let fails = self.strikes(Fault::OrderFails);
        let effect = match &order.action {
            EffectAction::AskAnsweringAgent(_) => panic!("no agent answers here"),
            EffectAction::RunAgent(_) => return self.run_agent(&order, &key, flight.step, fails),
            EffectAction::ReapVanishedAgent(claim) => {
                let (task, attempt) = (order.ix, order.attempt);
                if fails {
                    return self.unreached(&order);
                }
                self.agents.get_mut(&key).unwrap().die(&self.git);
                let (ending, claim) = (AgentEnding::Vanished {}, claim.clone());
                self.tell(Input::AgentEnded { task, attempt, ending, claim });
                return Progress::Done;
            }
            EffectAction::Effect(effect) => effect,
        };
        match effect {
            Effect::PrepareWorkspace { must_contain, continues, merge, .. } => {
                let start = (continues.as_ref(), merge.as_ref());
                self.prepare(flight, &key, (must_contain, start), fails)
            }
            Effect::StopAgent { now, .. } => self.stop_agent(&order, &key, *now, fails),
            Effect::DeliverAnswer { number, .. } => {
                if fails {
                    return self.unreached(&order);
                }
                if let Some(agent) = self.agents.get_mut(&key) {
                    agent.answers.insert(*number);
                    self.stir(&key);
                }
                Progress::Done
            }
            Effect::ConsultAgent { question, .. } => {
                let said = if fails { Err("no".to_owned()) } else { Ok("a".to_owned()) };
                let usage = vec![Usage { cost_usd: Some(1.0), ..Usage::default() }];
                self.tell(Input::ConsultationDone { question: question.clone(), said, usage });
                Progress::Done
            }
            Effect::CollectEvidence { base, .. } => {
                self.collect(flight, &key, base.as_ref(), fails)
            }
            Effect::TakeSnapshot { .. } => {
                let kept = self.git.snapshot(&key, &order.workspace);
                if !fails && let Some((refname, at)) = kept {
                    self.kept(&order, refname, at);
                }
                Progress::Done
            }
            Effect::RunGates { tip, .. } => self.run_gates(flight, &key, tip),
            review @ Effect::Review { .. } => self.review(review, &order, fails),
            Effect::RemoveWorkspace { keep_branch, landed, .. } => {
                self.remove(flight, &key, (*keep_branch, *landed), fails)
            }
            Effect::MergeBatch { .. }
            | Effect::VerifyBatch { .. }
            | Effect::RecheckTarget { .. }
            | Effect::Land { .. } => self.train_step(flight, &order, &key, fails),
            Effect::InspectCheckout { task, attempt, .. } => {
                let (task, attempt, reason) = (*task, *attempt, None);
                self.tell(Input::CheckoutInspected { task, attempt, reason });
                Progress::Done
            }
            Effect::RunForgeAction { .. } => panic!("everything lands here"),
            Effect::RunAgent { .. } | Effect::StopJobs { .. } | Effect::StopLane { .. } => {
                panic!("no order of the driver")
            }
        }
    }

    fn unreached(&mut self, order: &EffectOrder) -> Progress {
        let (task, attempt, reason) = (order.ix, order.attempt, "I/O".to_owned());
        self.tell(Input::AgentUnreachable { task, attempt, reason });
        Progress::Done
    }

    fn kept(&mut self, order: &EffectOrder, refname: String, at: At) {
        let (task, attempt, why) = (order.ix, order.attempt, "sim".to_owned());
        self.tell(Input::SnapshotTaken { task, attempt, refname, commit: Git::name(at), why });
    }

    fn review(&mut self, effect: &Effect, order: &EffectOrder, fails: bool) -> Progress {
        let Effect::Review { task, attempt, tree, cycle, asked, reviewer, .. } = effect else {
            panic!("only reviews are reviewed");
        };
        let said = |verdict, findings| ReviewerOutcome::Said { verdict, findings };
        let outcome = match self.rng.below(100) {
            _ if order.cancel.load(Ordering::Relaxed) => ReviewerOutcome::Stopped {},
            _ if fails => ReviewerOutcome::Failed { why: "no".to_owned() },
            0..65 => said(ReviewOpinion::Approved, Vec::new()),
            65..90 => said(ReviewOpinion::ChangesNeeded, vec![setup::finding()]),
            90..95 => ReviewerOutcome::Skipped { why: "nothing of it".to_owned() },
            _ => ReviewerOutcome::Limited {
                kind: LimitKind::Rate,
                wait_ms: Some(500),
                message: String::new(),
            },
        };
        let usage = vec![Usage { cost_usd: Some(0.25), ..Usage::default() }];
        self.tell(Input::ReviewerDone(Box::new(ReviewerResult {
            task: *task,
            attempt: *attempt,
            tree: tree.clone(),
            cycle: *cycle,
            asked: *asked,
            reviewer: reviewer.clone(),
            outcome,
            usage,
            duration_ms: 1,
            log: None,
        })));
        Progress::Done
    }

    fn prepare(
        &mut self,
        flight: &mut Flight,
        key: &Key,
        (must, (continues, merge)): (&[Oid], (Option<&WorkspaceContinuation>, Option<&Oid>)),
        fails: bool,
    ) -> Progress {
        let order = Arc::clone(&flight.order);
        let (task, attempt) = (order.ix, order.attempt);
        let called_off = order.cancel.load(Ordering::Relaxed) && flight.step == 3;
        if fails || called_off {
            let reason = "no".to_owned();
            self.tell(Input::WorkspaceFailed { task, attempt, reason });
            return Progress::Done;
        }
        match flight.step {
            0 => {
                self.end_jobs(key);
                Progress::On
            }
            1 => {
                self.save_unread_branch(&order, key, continues);
                self.save_what_is_there(&order, key);
                (flight.base, flight.found) = self.start_of(key, continues, must);
                let lost = must.iter().any(|c| !self.git.contains(flight.base, Git::find(c)));
                assert!(!lost, "the target branch lost what {} needs", key.0);
                Progress::On
            }
            2 => {
                self.nobody_in(&order.workspace);
                self.owners.insert(order.workspace.clone(), key.clone());
                if let Some(tip) = self.git.branches.get(&order.branch).copied()
                    && !self.git.contains(self.git.main, tip)
                {
                    let refname = self.git.keep(key, tip);
                    self.kept(&order, refname, tip);
                }
                let (head, mut files) = (flight.found, self.git.files(flight.found).clone());
                // A merge is laid out on top, and not committed.
                files.extend(merge.into_iter().flat_map(|tip| self.git.files(Git::find(tip))));
                self.git.branches.insert(order.branch.clone(), head);
                self.git.workspaces.insert(order.workspace.clone(), Workspace { head, files });
                Progress::On
            }
            _ => {
                let workspace = order.workspace.to_string_lossy().into_owned();
                let (base, there) = (Git::name(flight.base), flight.found);
                let continued = continues.map(|wish| ContinuedWork {
                    attempt: wish.work.attempt,
                    commit: Git::name(there),
                    tree: self.git.tree_name(there),
                    uncommitted: false,
                    moved: base != wish.work.base,
                    conflicts: Vec::new(),
                    set_back: false,
                });
                self.tell(Input::WorkspaceReady { task, attempt, workspace, base, continued });
                Progress::Done
            }
        }
    }

    /// Where an attempt starts: what its work counts from, and what is there of it.
    fn start_of(
        &mut self,
        key: &Key,
        continues: Option<&WorkspaceContinuation>,
        must: &[Oid],
    ) -> (At, At) {
        let head = self.git.head();
        let Some(wish) = continues else { return (head, head) };
        let (base, mut work) = (Git::find(&wish.work.base), Git::find(&wish.work.commit));
        if wish.work.unread {
            let series = format!("refs/mainstem/snapshots/{}/{}/", key.0, wish.work.attempt);
            let refs = self.git.snapshots.range(series.clone()..);
            let refs = refs.take_while(|(name, _)| name.starts_with(&series));
            let snapshots: Vec<At> = refs.map(|(_, at)| *at).collect();
            // Equal trees share a ref here.
            let tree = self.git.tree_name(work);
            let known = snapshots.iter().any(|at| self.git.tree_name(*at) == tree);
            let newer = |at: &&At| known || self.git.contains(**at, work);
            work = snapshots.iter().rev().find(newer).copied().unwrap_or(work);
        }
        self.put_onto_head(wish, must, (base, work))
    }

    /// Saves what is in a folder under the name of the attempt that it was last made for.
    fn save_what_is_there(&mut self, order: &EffectOrder, key: &Key) {
        let before = (key.0.clone(), key.1.saturating_sub(1).max(1));
        let owner = self.owners.get(&order.workspace).cloned().unwrap_or(before);
        let nobody = (key.0.clone(), 0);
        let owner = if owner == *key { nobody } else { owner };
        let _ = self.git.snapshot(&owner, &order.workspace);
    }

    /// Saves the branch of an attempt whose work nobody could read.
    fn save_unread_branch(
        &mut self,
        order: &EffectOrder,
        key: &Key,
        continues: Option<&WorkspaceContinuation>,
    ) {
        let Some(work) = continues.map(|wish| &wish.work).filter(|work| work.unread) else {
            return;
        };
        let tip = self.git.branches.get(&order.branch).copied();
        if let Some(tip) = tip.filter(|tip| !self.git.contains(Git::find(&work.commit), *tip))
            && self.owners.get(&order.workspace) != Some(key)
        {
            self.git.keep(&(key.0.clone(), work.attempt), tip);
        }
    }

    fn put_onto_head(
        &mut self,
        wish: &WorkspaceContinuation,
        must: &[Oid],
        (base, work): (At, At),
    ) -> (At, At) {
        let head = self.git.head();
        let holds = must.iter().all(|need| self.git.contains(base, Git::find(need)));
        let conflicts = holds && self.rng.in_thousand(100);
        if holds
            && (wish.place == WorkPlacement::Stays
                || (wish.place == WorkPlacement::Follows && conflicts))
        {
            return (base, work);
        }
        if self.git.contains(work, head) {
            return (head, work);
        }
        let files = self.git.files(head) | self.git.files(work);
        (head, self.git.commit(vec![head], files, Vec::new()))
    }

    fn run_agent(&mut self, order: &EffectOrder, key: &Key, step: usize, fails: bool) -> Progress {
        let (task, attempt) = (order.ix, order.attempt);
        if step == 0 {
            if fails {
                // With no job there it is known that none runs; otherwise nothing is known.
                if self.agents.contains_key(key) || self.rng.in_thousand(500) {
                    return self.unreached(order);
                }
                let (ending, claim) = (
                    AgentEnding::NotStarted { why: "no".to_owned(), permanent: false },
                    AgentClaim::None,
                );
                self.tell(Input::AgentEnded { task, attempt, ending, claim });
                return Progress::Done;
            }
            if !self.agents.contains_key(key) {
                let bad = self.strikes(Fault::BadAgents);
                let (path, branch) = (order.workspace.clone(), order.branch.clone());
                let mut agent = Agent::random(&mut self.rng, bad, path, branch);
                let files = self.git.workspaces.get(&order.workspace).map(|w| w.files.clone());
                agent.began_with = files.expect("an agent starts in a workspace");
                check::work_goes_on(self, key, &agent.began_with);
                self.agents.insert(key.clone(), agent);
                self.stir(key);
            }
            return Progress::On;
        }
        if fails && self.faults.on(Fault::OrderUnknown) {
            return self.unreached(order);
        }
        self.tell(Input::AgentStarted { task, attempt, pid: 7 });
        let dir = Self::job_dir(key);
        self.inbox.push_back(EngineEvent::WatchAgent { task, attempt, dir });
        Progress::Done
    }

    fn stop_agent(&mut self, order: &EffectOrder, key: &Key, hard: bool, fails: bool) -> Progress {
        if fails {
            return self.unreached(order);
        }
        let (task, attempt, now) = (order.ix, order.attempt, self.wall());
        let Some(agent) = self.agents.get_mut(key) else {
            let (ending, claim) = (AgentEnding::Stopped {}, AgentClaim::None);
            self.tell(Input::AgentEnded { task, attempt, ending, claim });
            return Progress::Done;
        };
        if agent.job == Job::Alive {
            agent.stopping = true;
            if hard {
                agent.kill(&self.git, now);
            }
        }
        self.stir(key);
        let dir = Self::job_dir(key);
        self.inbox.push_back(EngineEvent::WatchAgent { task, attempt, dir });
        Progress::Done
    }

    fn collect(
        &mut self,
        flight: &mut Flight,
        key: &Key,
        base: Option<&Oid>,
        fails: bool,
    ) -> Progress {
        let order = Arc::clone(&flight.order);
        let (task, attempt) = (order.ix, order.attempt);
        let lives = self.agents.get(key).is_some_and(Agent::lives);
        assert!(!lives, "what {} left is looked at while its agent lives", key.0);
        let Some(base) = base.filter(|_| !fails) else {
            let evidence =
                if fails { Err("no".to_owned()) } else { Ok(Evidence::empty_on(Oid::new(""))) };
            self.tell(Input::EvidenceCollected { task, attempt, evidence });
            return Progress::Done;
        };
        let is_ours = self.owners.get(&order.workspace) == Some(key);
        if flight.step == 0 {
            if let Some(ws) = self.git.workspaces.get(&order.workspace).cloned()
                && is_ours
                && ws.files != *self.git.files(ws.head)
            {
                let head = self.git.commit(vec![ws.head], ws.files, Vec::new());
                self.git.branches.insert(order.branch.clone(), head);
                self.git.workspaces.get_mut(&order.workspace).unwrap().head = head;
            }
            return Progress::On;
        }
        let head = self.git.workspaces.get(&order.workspace).map(|ws| ws.head);
        let tip =
            head.filter(|_| is_ours).or_else(|| self.git.branches.get(&order.branch).copied());
        let start = Git::find(base);
        let tip = tip.filter(|tip| *tip != start);
        let evidence = match tip {
            None => Evidence::empty_on(base.clone()),
            Some(tip) => {
                let refname = self.git.keep(key, tip);
                self.kept(&order, refname, tip);
                let files = self.git.files(tip).len() - self.git.files(start).len();
                let files = u32::try_from(files).unwrap();
                Evidence {
                    tip: Git::name(tip),
                    commits: 1,
                    files,
                    guarded: self.guarded_changes(key),
                    tree: Some(self.git.tree_name(tip)),
                    ..Evidence::empty_on(base.clone())
                }
            }
        };
        self.tell(Input::EvidenceCollected { task, attempt, evidence: Ok(evidence) });
        Progress::Done
    }

    /// The work of some attempts changes a guarded file; whose never changes, however often it is looked at.
    fn guarded_changes(&self, key: &Key) -> Vec<GuardedChange> {
        let sum: u32 = key.0.as_str().bytes().map(u32::from).sum();
        if !(sum + key.1).is_multiple_of(7) {
            return Vec::new();
        }
        let (path, because) = ("test.sh".to_owned(), "a gate runs it".to_owned());
        vec![GuardedChange { path, blob: Some(Oid::new(format!("b{}", key.1))), because }]
    }

    fn run_gates(&mut self, flight: &mut Flight, key: &Key, tip: &Oid) -> Progress {
        let order = Arc::clone(&flight.order);
        let tree = self.git.tree_name(Git::find(tip));
        let commands = order.task.verify.clone();
        let prefix = format!("gate/{}/{}/", key.0, key.1);
        match self.gates_step(flight, &commands, &prefix, &tree, false) {
            Progress::Done => {
                let (task, attempt, gates) = (order.ix, order.attempt, flight.verdicts.clone());
                self.tell(Input::GatesRan { task, attempt, tree, gates });
                Progress::Done
            }
            other => other,
        }
    }

    /// Gates one after the other, each a job that outlives the engine.
    pub fn gates_step(
        &mut self,
        flight: &mut Flight,
        commands: &[String],
        prefix: &str,
        tree: &Oid,
        lane: bool,
    ) -> Progress {
        let Some(command) = commands.get(flight.verdicts.len()) else { return Progress::Done };
        let name = format!("{prefix}{}", flight.verdicts.len());
        let cancelled = flight.order.cancel.load(Ordering::Relaxed);
        match self.gates.get_mut(&name) {
            Some(gate) if gate.running && !cancelled => return Progress::Wait,
            Some(gate) if gate.running => (gate.running, gate.stopped) = (false, true),
            Some(gate) if !gate.stopped => {}
            _ if cancelled => {}
            _ => {
                let gate = self.begin_gate(command, tree, lane);
                self.gates.insert(name.clone(), gate);
                let latest = *self.rng.pick(&[500, 2_000, 60_000]);
                self.later(5, latest, Happening::Gate(name));
                return Progress::Wait;
            }
        }
        let gate = self.gates.get(&name);
        let verdict = match gate.filter(|gate| !gate.stopped) {
            Some(gate) => {
                assert!(lane || gate.tree == *tree, "a gate's verdict on another tree");
                gate.verdict
            }
            None => GateVerdict::Error,
        };
        flight.verdicts.push(GateResult {
            gate: command.clone(),
            verdict,
            duration_ms: 1,
            log: None,
            detail: String::new(),
            cached: false,
            flakes: 0,
            exit_code: None,
            cause: None,
        });
        let over =
            verdict != GateVerdict::Passed || cancelled || flight.verdicts.len() == commands.len();
        if over { Progress::Done } else { Progress::Wait }
    }

    fn begin_gate(&mut self, command: &str, tree: &Oid, lane: bool) -> Gate {
        let verdict = match self.strikes(Fault::BadGates) {
            true => *self.rng.pick(&[GateVerdict::Failed, GateVerdict::Failed, GateVerdict::Error]),
            false => GateVerdict::Passed,
        };
        let (command, tree) = (command.to_owned(), tree.clone());
        Gate { command, tree, verdict, running: true, stopped: false, lane }
    }

    fn remove(
        &mut self,
        flight: &mut Flight,
        key: &Key,
        (keep_branch, landed): (bool, bool),
        fails: bool,
    ) -> Progress {
        let order = Arc::clone(&flight.order);
        let (task, attempt) = (order.ix, order.attempt);
        if fails {
            let workspace = Err("no".to_owned());
            self.tell(Input::WorkspaceRemoved { task, attempt, workspace });
            return Progress::Done;
        }
        match flight.step {
            0 => {
                self.end_jobs(key);
                let ws = self.git.workspaces.get(&order.workspace);
                let clean = ws.is_none_or(|ws| ws.files == *self.git.files(ws.head));
                if !(landed && clean)
                    && let Some((refname, at)) = self.git.snapshot(key, &order.workspace)
                {
                    self.kept(&order, refname, at);
                }
                Progress::On
            }
            1 => {
                self.nobody_in(&order.workspace);
                self.git.workspaces.remove(&order.workspace);
                Progress::On
            }
            _ => {
                if !keep_branch && let Some(tip) = self.git.branches.get(&order.branch).copied() {
                    if !self.git.contains(self.git.main, tip) {
                        let refname = self.git.keep(key, tip);
                        self.kept(&order, refname, tip);
                    }
                    self.git.branches.remove(&order.branch);
                }
                let workspace = Ok(order.workspace.to_string_lossy().into_owned());
                self.tell(Input::WorkspaceRemoved { task, attempt, workspace });
                Progress::Done
            }
        }
    }
}

impl Flight {
    /// How many steps are done.
    pub fn step(&self) -> usize {
        self.step
    }
}
