//! The loop: input → step → journal → publish → perform. The imperative shell around the machine;
//! decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use mainstem_agents::{AgentEvent, Parser, PromptInput, RetryContext, adapter, prompt};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{Claim, Ending, Fact, StopReason};
use mainstem_core::id::{TaskIx, Time};
use mainstem_core::machine::{Input, Machine, Rest, Said, Step};
use mainstem_host::process::{self as host, Watch, WatchEvent};
use mainstem_host::{clock, crash};
use mainstem_store::{Journal, StoreError};

use crate::event::{Event, Reply};
use crate::face::{Face, Shown};
use crate::ledger;
use crate::perform::agent::Assignment;
use crate::perform::{Errand, agent, evidence, gates, landing, unit_name, workspace};
use crate::queue::{Key, Queue, Ticket, Weight};
use crate::room;
use crate::world::World;

/// Events taken in one round, so that their facts share one commit.
const ROUND_MAX: usize = 256;
/// How often faces may redraw and the machine's room is looked at when nothing happens.
const TICK: Duration = Duration::from_millis(200);
/// How often free disk and load are looked at.
const ROOM_EVERY_MS: u64 = 5_000;

type Job = Box<dyn FnOnce() + Send>;

/// An agent whose output is being read.
struct Followed {
    task: TaskIx,
    attempt: u32,
    parser: Box<dyn Parser>,
    claim: Claim,
}

/// The engine at work.
pub struct Driver<'a> {
    /// The surroundings.
    pub world: Arc<World>,
    /// The run.
    pub machine: Machine,
    /// The record.
    pub journal: Box<dyn Journal>,
    /// Our number among its writers.
    pub epoch: u64,
    /// Place of the last fact.
    pub seq: u64,
    /// Everything that happens.
    pub events: Receiver<Event>,
    /// Where results go.
    pub results: Sender<Event>,
    /// Who shows it.
    pub face: &'a mut dyn Face,
    watch: Watch,
    queue: Queue<Job>,
    followed: BTreeMap<u64, Followed>,
    cancels: BTreeMap<(TaskIx, u32), Arc<AtomicBool>>,
    interrupts: u32,
    room_at: Time,
}

/// What an engine's life came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do.
    Rested(Rest),
    /// It was told to go at once.
    Left,
}

/// The engine cannot go on: the record or the watching failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// What happened could not be written down, so nothing more may happen.
    #[error("the journal cannot be written: {0}")]
    Journal(#[from] StoreError),
    /// Jobs cannot be watched.
    #[error("jobs cannot be watched: {0}")]
    Watch(std::io::Error),
}

/// What a driver starts from.
pub struct Start {
    /// The surroundings.
    pub world: World,
    /// The folded run.
    pub machine: Machine,
    /// The record.
    pub journal: Box<dyn Journal>,
    /// Our number among its writers.
    pub epoch: u64,
    /// Place of the last fact.
    pub seq: u64,
}

impl<'a> Driver<'a> {
    /// A driver that has not begun.
    pub fn new(
        start: Start,
        (results, events): (Sender<Event>, Receiver<Event>),
        face: &'a mut dyn Face,
    ) -> Result<Self, DriverError> {
        let seen = results.clone();
        let watch = Watch::start(move |event| {
            // The loop ends before its watcher: then nobody needs the news.
            let _ = seen.send(Event::Watch(event));
        })
        .map_err(DriverError::Watch)?;
        Ok(Self {
            world: Arc::new(start.world),
            machine: start.machine,
            journal: start.journal,
            epoch: start.epoch,
            seq: start.seq,
            events,
            results,
            face,
            watch,
            queue: Queue::new(),
            followed: BTreeMap::new(),
            cancels: BTreeMap::new(),
            interrupts: 0,
            room_at: Time(0),
        })
    }

    /// Runs until nothing is left to do.
    pub fn run(&mut self, begin: Input) -> Result<Outcome, DriverError> {
        let now = Time(clock::now_ms());
        let room = self.look_for_room(now);
        // Room first: nothing may start before it is known that there is some.
        let mut inputs: Vec<(Input, Option<Sender<Reply>>)> =
            room.into_iter().chain([begin]).map(|input| (input, None)).collect();
        loop {
            self.take(inputs)?;
            self.start_waiting();
            self.face.tick(&self.machine);
            if self.interrupts >= 3 {
                return Ok(Outcome::Left);
            }
            if let Some(rest) = self.machine.rest()
                && (rest == Rest::Interrupted || self.queue.running() == 0)
            {
                return self.leave(rest);
            }
            inputs = self.wait();
        }
    }

    /// Facts of a whole round share one commit; nothing is performed before it is durable.
    fn take(&mut self, inputs: Vec<(Input, Option<Sender<Reply>>)>) -> Result<(), DriverError> {
        let now = Time(clock::now_ms());
        let mut facts: Vec<(Fact, Time)> = Vec::new();
        let mut effects = Vec::new();
        let mut replies = Vec::new();
        for (input, answer) in inputs {
            let step = self.machine.step(input, now);
            let Step { facts: new, effects: wanted, reply } = step;
            facts.extend(new.into_iter().map(|fact| (fact, now)));
            effects.extend(wanted);
            replies.extend(answer.zip(reply));
        }
        if !facts.is_empty() {
            let records: Vec<_> =
                facts.iter().map(|(fact, at)| ledger::encode(&self.world.run, fact, *at)).collect();
            crash::point("journal.before");
            let last = self.journal.append(self.epoch, &records)?;
            crash::point("journal.after");
            let first = last + 1 - records.len() as u64;
            for (n, (record, (fact, at))) in records.iter().zip(&facts).enumerate() {
                let seq = first + n as u64;
                self.face.fact(
                    &Shown { seq, at: *at, run: &self.world.run, fact, body: &record.body },
                    &self.machine,
                );
            }
            self.seq = last;
        }
        for effect in effects {
            self.enqueue(effect);
        }
        for (answer, reply) in replies {
            // Whoever asked may have gone.
            let _ = answer.send(reply);
        }
        Ok(())
    }

    fn wait(&mut self) -> Vec<(Input, Option<Sender<Reply>>)> {
        let now = Time(clock::now_ms());
        let until = self.machine.wake_at().map(|at| Duration::from_millis(at.since_ms(now)));
        let patience = until.map_or(TICK, |until| until.min(TICK));
        let mut inputs = Vec::new();
        match self.events.recv_timeout(patience) {
            Ok(event) => self.translate(event, &mut inputs),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        while inputs.len() < ROUND_MAX {
            match self.events.try_recv() {
                Ok(event) => self.translate(event, &mut inputs),
                Err(_) => break,
            }
        }
        let now = Time(clock::now_ms());
        inputs.extend(self.look_for_room(now).map(|room| (room, None)));
        if self.machine.wake_at().is_some_and(|at| at <= now) || until.is_some() {
            inputs.push((Input::Tick, None));
        }
        inputs
    }

    fn translate(&mut self, event: Event, inputs: &mut Vec<(Input, Option<Sender<Reply>>)>) {
        match event {
            Event::Input(input) => {
                if matches!(input, Input::Landed { .. }) {
                    crash::point("land.reported");
                }
                inputs.push((input, None));
            }
            Event::Performed(ticket) => self.performed(ticket),
            Event::Follow { task, attempt, dir } => self.follow(task, attempt, dir),
            Event::Watch(seen) => self.seen(seen, inputs),
            Event::Command(command, answer) => {
                inputs.push((Input::Command(command), Some(answer)));
            }
            Event::Interrupt | Event::StopNow | Event::Abandon => {
                self.interrupts += match event {
                    Event::Abandon => 3,
                    Event::StopNow => 2,
                    _ => 1,
                };
                let now = self.interrupts >= 2;
                for cancel in self.cancels.values() {
                    cancel.store(true, Ordering::Relaxed);
                }
                inputs.push((Input::Interrupt { now }, None));
            }
        }
    }

    fn performed(&mut self, ticket: Ticket) {
        self.queue.done(ticket);
    }

    fn look_for_room(&mut self, now: Time) -> Option<Input> {
        if now.since_ms(self.room_at) < ROOM_EVERY_MS {
            return None;
        }
        self.room_at = now;
        Some(Input::Room(room::look(&self.world)))
    }

    fn follow(&mut self, task: TaskIx, attempt: u32, dir: std::path::PathBuf) {
        let key = key_of(task, attempt);
        if self.followed.contains_key(&key) {
            return;
        }
        let kind = self
            .machine
            .tasks()
            .get(task)
            .current
            .as_ref()
            .and_then(|a| self.world.settings.agents.get(&a.agent))
            .map_or("command", |agent| agent.kind.as_str());
        let Ok(adapter) = adapter(kind).or_else(|_| adapter("command")) else { return };
        let parser = adapter.parser();
        self.followed.insert(key, Followed { task, attempt, parser, claim: Claim::None });
        self.watch.watch(key, dir, 0);
    }

    fn seen(&mut self, seen: WatchEvent, inputs: &mut Vec<(Input, Option<Sender<Reply>>)>) {
        match seen {
            WatchEvent::Lines { key, lines } => {
                let Some(followed) = self.followed.get_mut(&key) else { return };
                for line in lines {
                    if line.stream != host::Stream::Stdout {
                        continue;
                    }
                    for (n, event) in followed.parser.line(&line.text).into_iter().enumerate() {
                        let mark = (line.offset << 4) | (n as u64).min(15);
                        inputs.extend(followed.hear(mark, event).map(|input| (input, None)));
                    }
                }
            }
            WatchEvent::Gap { key, bytes } => {
                let task = self.followed.get(&key).map(|f| f.task);
                let message = format!("{bytes} bytes of output were dropped before they were read");
                inputs.push((Input::Notice { task, message }, None));
            }
            WatchEvent::Ended { key, exit } => {
                let Some(Followed { task, attempt, claim, .. }) = self.followed.remove(&key) else {
                    return;
                };
                let ending = ending_of(exit.ending);
                inputs.push((Input::AgentEnded { task, attempt, ending, claim }, None));
            }
            WatchEvent::Vanished { key } => {
                let Some(Followed { task, attempt, claim, .. }) = self.followed.remove(&key) else {
                    return;
                };
                let errand = self.errand(task, attempt);
                let job: Job = Box::new(move || agent::bury(&errand, claim));
                self.queue.push(Key::Task(task), Weight::Short, job);
            }
        }
    }

    fn errand(&mut self, ix: TaskIx, attempt: u32) -> Errand {
        let task = self.machine.plan().tasks[ix.ix()].clone();
        let current = self.machine.tasks().get(ix).current.as_ref();
        let branch = current.map_or_else(|| format!("mainstem/{}", task.id), |a| a.branch.clone());
        // A workspace stays where it was made, even if the setting for new ones has changed.
        let made = current.filter(|a| a.n == attempt).and_then(|a| a.workspace.as_ref());
        let workspace = made.map_or_else(
            || self.world.layout.workspace(&unit_name(&self.machine, ix)),
            std::path::PathBuf::from,
        );
        let cancel = self.cancels.entry((ix, attempt)).or_default();
        Errand {
            world: Arc::clone(&self.world),
            ix,
            workspace,
            task,
            attempt,
            branch,
            cancel: Arc::clone(cancel),
            results: self.results.clone(),
        }
    }

    fn enqueue(&mut self, effect: Effect) {
        if let Effect::StopJobs { task, attempt } = effect {
            // Not queued: it is about the effect of the same task that runs now.
            if let Some(cancel) = self.cancels.get(&(task, attempt)) {
                cancel.store(true, Ordering::Relaxed);
            }
            return;
        }
        let (task, attempt) = effect.whose();
        let errand = self.errand(task, attempt);
        let (key, weight) = self.place_of(&effect);
        let job: Job = match effect {
            Effect::PrepareWorkspace { must_contain, .. } => {
                Box::new(move || workspace::prepare(&errand, &must_contain))
            }
            Effect::RunAgent { .. } => {
                let assignment = self.assignment(task);
                Box::new(move || agent::run(&errand, &assignment))
            }
            Effect::StopAgent { now, .. } => Box::new(move || agent::stop(&errand, now)),
            Effect::DeliverAnswer { number, question, text, .. } => {
                Box::new(move || agent::answer(&errand, number, &question, &text))
            }
            Effect::CollectEvidence { base, .. } => {
                Box::new(move || evidence::collect(&errand, base.as_ref()))
            }
            Effect::TakeSnapshot { .. } => {
                Box::new(move || evidence::snapshot(&errand, "work in progress"))
            }
            Effect::RunGates { tip, .. } => Box::new(move || gates::of_task(&errand, &tip)),
            Effect::StopJobs { .. } => return,
            Effect::RemoveWorkspace { keep_branch, landed, .. } => {
                // The attempt is over: so is whatever still runs for it.
                if let Some(cancel) = self.cancels.remove(&(task, attempt)) {
                    cancel.store(true, Ordering::Relaxed);
                }
                Box::new(move || workspace::remove(&errand, keep_branch, landed))
            }
            Effect::FormCar { tip, base, date, .. } => {
                Box::new(move || landing::form(&errand, &tip, &base, date))
            }
            Effect::VerifyCar { commit, tree, .. } => {
                Box::new(move || gates::of_train(&errand, &commit, &tree))
            }
            Effect::Land { old, new, tree, .. } => {
                Box::new(move || landing::land(&errand, &old, &new, &tree))
            }
        };
        self.queue.push(key, weight, job);
    }

    /// In which line an effect waits, and how long it may take.
    fn place_of(&self, effect: &Effect) -> (Key, Weight) {
        let (task, _) = effect.whose();
        let setup = !self.world.settings.workspace.setup.is_empty();
        match effect {
            Effect::PrepareWorkspace { .. } if setup => (Key::Task(task), Weight::Long),
            Effect::RunGates { .. } => (Key::Task(task), Weight::Long),
            Effect::VerifyCar { .. } => (Key::Train, Weight::Long),
            Effect::FormCar { .. } | Effect::Land { .. } => (Key::Train, Weight::Short),
            Effect::TakeSnapshot { .. } => (Key::Snapshot(task), Weight::Short),
            Effect::PrepareWorkspace { .. }
            | Effect::RunAgent { .. }
            | Effect::StopAgent { .. }
            | Effect::DeliverAnswer { .. }
            | Effect::CollectEvidence { .. }
            | Effect::StopJobs { .. }
            | Effect::RemoveWorkspace { .. } => (Key::Task(task), Weight::Short),
        }
    }

    fn start_waiting(&mut self) {
        while let Some((ticket, job)) = self.queue.take_next() {
            let results = self.results.clone();
            let run = move || {
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                    // The effect stays outstanding for the next life; this one must not wait for it.
                    let message = "BUG: an effect broke off; the run stops here".to_owned();
                    let _ = results.send(Event::Input(Input::Notice { task: None, message }));
                    let _ = results.send(Event::Abandon);
                }
                let _ = results.send(Event::Performed(ticket));
            };
            let thread =
                std::thread::Builder::new().name("effect".to_owned()).stack_size(512 * 1024);
            if let Err(error) = thread.spawn(run) {
                // No thread to be had now: the effect stays outstanding for the next life, and
                // this one must not wait for it for ever.
                let message = format!("no thread could be started: {error}");
                let _ = self.results.send(Event::Input(Input::Notice { task: None, message }));
                let _ = self.results.send(Event::Abandon);
            }
        }
    }

    fn assignment(&self, t: TaskIx) -> Assignment {
        let plan = self.machine.plan();
        let task = &plan.tasks[t.ix()];
        let state = self.machine.tasks().get(t);
        let current = state.current.as_ref().expect("BUG: an agent runs for an attempt");
        let epic = task
            .epic
            .as_ref()
            .and_then(|id| plan.epics.iter().find(|epic| epic.id == *id))
            .cloned();
        let landed_before: Vec<_> = self
            .machine
            .graph()
            .needs(t)
            .filter(|p| self.machine.tasks().get(*p).landed.is_some())
            .map(|p| (plan.tasks[p.ix()].id.clone(), plan.tasks[p.ix()].title.clone()))
            .collect();
        let retry = state.last.as_ref().map(|last| RetryContext {
            attempt: current.n,
            class: last.class.word().to_owned(),
            reason: last.reason.clone(),
            gate_output: Some(last.gate_output.clone()).filter(|text| !text.is_empty()),
            conflict_files: last.files.clone(),
            other_tasks: Vec::new(),
        });
        let prompt = prompt::build(&PromptInput {
            task,
            epic_title: epic.as_ref().map(|epic| epic.title.as_str()),
            landed_before: &landed_before,
            gates: &self.world.settings.gates.verify,
            retry: retry.as_ref(),
            answers: &[],
        });
        let agent = self.world.settings.agents.get(&current.agent).cloned();
        let agent = agent.unwrap_or_else(|| mainstem_core::config::Agent {
            kind: current.agent.clone(),
            command: Vec::new(),
            provider: None,
            model: None,
            secrets: Vec::new(),
            env: BTreeMap::new(),
        });
        Assignment {
            name: current.agent.clone(),
            agent,
            model: current.model.clone(),
            epic,
            base: current.base.clone().expect("BUG: an agent starts in a workspace"),
            prompt,
        }
    }

    /// The last word: gates that still run are ended, then the life is closed.
    fn leave(&mut self, rest: Rest) -> Result<Outcome, DriverError> {
        self.queue.clear();
        for cancel in self.cancels.values() {
            cancel.store(true, Ordering::Relaxed);
        }
        while self.queue.running() > 0 {
            match self.events.recv() {
                Ok(Event::Performed(ticket)) => self.queue.done(ticket),
                // A landing that finished in the meantime is found again by the next life.
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let why = match rest {
            Rest::Interrupted => StopReason::Interrupted,
            Rest::Done | Rest::NotLanded => StopReason::Rested,
        };
        let now = Time(clock::now_ms());
        let fact = Fact::EngineStopped { why };
        let record = ledger::encode(&self.world.run, &fact, now);
        self.seq = self.journal.append(self.epoch, std::slice::from_ref(&record))?;
        if self.machine.apply(&fact, now).is_ok() {
            let shown = Shown {
                seq: self.seq,
                at: now,
                run: &self.world.run,
                fact: &fact,
                body: &record.body,
            };
            self.face.fact(&shown, &self.machine);
        }
        Ok(Outcome::Rested(rest))
    }
}

impl Followed {
    fn hear(&mut self, mark: u64, event: AgentEvent) -> Option<Input> {
        let said = match event {
            AgentEvent::Usage { input_tokens, output_tokens, cost_usd } => {
                Said::Usage { input_tokens, output_tokens, cost_usd }
            }
            AgentEvent::RateLimited { retry_after_ms, message } => {
                self.claim = Claim::RateLimited {};
                Said::RateLimited { retry_after_ms, message }
            }
            AgentEvent::Ask { question, options, default, deadline_ms } => {
                Said::Asked { text: question, options, default, deadline_ms }
            }
            AgentEvent::NothingToDo { reason } => {
                self.claim = Claim::NothingToDo { reason };
                return None;
            }
            AgentEvent::Blocked { reason } => {
                self.claim = Claim::Blocked { reason };
                return None;
            }
        };
        Some(Input::AgentSaid { task: self.task, attempt: self.attempt, mark, said })
    }
}

fn key_of(task: TaskIx, attempt: u32) -> u64 {
    (u64::from(task.0) << 32) | u64::from(attempt)
}

fn ending_of(ending: host::Ending) -> Ending {
    match ending {
        host::Ending::Exited { code } => Ending::Exited { code },
        host::Ending::Signalled { signal } => Ending::Signalled { signal },
        host::Ending::TimedOut { idle } => Ending::TimedOut { idle },
        host::Ending::OutOfMemory { limit } => Ending::OutOfMemory { limit },
        host::Ending::Stopped => Ending::Stopped {},
        host::Ending::NotStarted { why, .. } => Ending::NotStarted { why },
    }
}
