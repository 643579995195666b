//! The loop: input → step → journal → publish → perform. The imperative shell around the machine;
//! decides nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use mainstem_agents::{AgentEvent, Parser, adapter};
use mainstem_api::outlook::Progress;
use mainstem_core::effect::Effect;
use mainstem_core::fact::{Claim, Ending, Fact, StopReason};
use mainstem_core::id::{Oid, RunId, TaskIx, Time};
use mainstem_core::machine::{Input, Machine, Rest, Said, Step};
use mainstem_core::plan::Task;
use mainstem_core::policy::supersede;
use mainstem_host::crash;
use mainstem_host::process::{self as host, WatchEvent};
use mainstem_planner::draft::Parked;
use mainstem_store::{Journal, StoreError};

use crate::event::{Event, Reply};
use crate::face::{Activity, Face, RunningGate, Shown};
use crate::last_words::LastWords;
use crate::ledger;
use crate::outside::Outside;
use crate::perform::agent::Assignment;
use crate::perform::consult::Consultation;
use crate::perform::{Deed, Order, unit_name};
use crate::queue::{Key, Queue, Weight};
use crate::steady_clock::SteadyClock;
use crate::survey::Lookout;
use crate::told::Told;

/// Events taken in one round, so that their facts share one commit.
const ROUND_MAX: usize = 256;
/// How often free disk and load are looked at.
const ROOM_EVERY_MS: u64 = 5_000;

/// An input, and whom to answer.
type Taken = (Input, Option<Sender<Reply>>);

/// An agent whose output is being read.
struct Followed {
    task: TaskIx,
    attempt: u32,
    parser: Box<dyn Parser>,
    claim: Claim,
    /// What it was last seen doing. Never journaled: it is gone with the engine.
    progress: Option<Progress>,
    last_words: LastWords,
}

/// How long an engine that was told to stop waits for a forge.
const FORGE_PATIENCE_MS: u64 = 3_000;

/// The engine at work.
pub struct Driver<'a> {
    machine: Machine,
    journal: Box<dyn Journal>,
    outside: &'a mut dyn Outside,
    face: &'a mut dyn Face,
    run: RunId,
    epoch: u64,
    clock: SteadyClock,
    queue: Queue<Order>,
    followed: BTreeMap<u64, Followed>,
    /// Checks that run, by their logs.
    gates: BTreeMap<String, RunningGate>,
    cancels: BTreeMap<(TaskIx, u32), Arc<AtomicBool>>,
    /// What is being verified in each lane of the train.
    lanes: BTreeMap<u32, Arc<AtomicBool>>,
    interrupts: u32,
    room_at: Option<Time>,
    lookout: Lookout,
}

/// What an engine's life came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do.
    Rested(Rest),
    /// It was told to go at once.
    Left,
}

/// The engine cannot go on: the record failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// What happened could not be written down, so nothing more may happen.
    #[error("cannot write the journal: {0}")]
    Journal(#[from] StoreError),
}

/// What a driver starts from.
pub struct Start {
    /// The run.
    pub run: RunId,
    /// It, folded.
    pub machine: Machine,
    /// The record.
    pub journal: Box<dyn Journal>,
    /// Our number among its writers.
    pub epoch: u64,
}

impl<'a> Driver<'a> {
    /// A driver that has not begun.
    pub fn new(start: Start, outside: &'a mut dyn Outside, face: &'a mut dyn Face) -> Self {
        Self {
            clock: SteadyClock::new(start.machine.now()),
            machine: start.machine,
            journal: start.journal,
            outside,
            face,
            run: start.run,
            epoch: start.epoch,
            queue: Queue::new(),
            followed: BTreeMap::new(),
            gates: BTreeMap::new(),
            cancels: BTreeMap::new(),
            lanes: BTreeMap::new(),
            interrupts: 0,
            room_at: None,
            lookout: Lookout::default(),
        }
    }

    /// The run as it stands.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Runs until nothing is left to do.
    pub fn run(&mut self, begin: Input) -> Result<Outcome, DriverError> {
        let mut outcome = self.begin(begin)?;
        loop {
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            outcome = self.turn()?;
        }
    }

    /// The first round: a new life asks for all that is wanted.
    pub fn begin(&mut self, begin: Input) -> Result<Option<Outcome>, DriverError> {
        let now = self.now();
        let around = self.look_around(now);
        // Room first: nothing may start before it is known that there is some.
        self.round(around.into_iter().chain([begin]).map(|input| (input, None)).collect())
    }

    /// One more round: waits for something to happen, and acts on it.
    pub fn turn(&mut self) -> Result<Option<Outcome>, DriverError> {
        let inputs = self.wait();
        self.round(inputs)
    }

    fn round(&mut self, inputs: Vec<Taken>) -> Result<Option<Outcome>, DriverError> {
        self.take(inputs)?;
        while let Some((ticket, order)) = self.queue.take_next() {
            self.outside.start(ticket, order);
        }
        self.lookout.follow(&self.machine, self.outside);
        let (machine, followed, gates) = (&self.machine, &self.followed, &self.gates);
        self.face.tick(machine, &|| activity(machine, followed, gates));
        if self.interrupts >= 3 {
            return Ok(Some(Outcome::Left));
        }
        if let Some(rest) = self.machine.rest()
            && (rest == Rest::Interrupted || self.queue.running() == 0)
        {
            return self.leave(rest).map(Some);
        }
        Ok(None)
    }

    fn now(&mut self) -> Time {
        self.clock.at(self.outside.now())
    }

    /// Facts of a whole round share one commit; nothing is performed before it is durable.
    fn take(&mut self, inputs: Vec<Taken>) -> Result<(), DriverError> {
        let now = self.now();
        let mut facts: Vec<Fact> = Vec::new();
        let mut effects = Vec::new();
        let mut replies = Vec::new();
        for (input, answer) in inputs {
            let step = self.machine.step(input, now);
            let Step { facts: new, effects: wanted, reply } = step;
            facts.extend(new);
            effects.extend(wanted);
            replies.extend(answer.zip(reply));
        }
        if !facts.is_empty() {
            self.write_down(&facts, now)?;
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

    /// Makes facts durable, then shows them.
    fn write_down(&mut self, facts: &[Fact], at: Time) -> Result<(), DriverError> {
        let records: Vec<_> =
            facts.iter().map(|fact| ledger::encode(&self.run, fact, at)).collect();
        crash::point("journal.before");
        let last = self.journal.append(self.epoch, &records)?;
        crash::point("journal.after");
        let first = last + 1 - records.len() as u64;
        for ((seq, record), fact) in (first..).zip(&records).zip(facts) {
            let shown = Shown { seq, at, run: &self.run, fact, body: &record.body };
            self.face.fact(&shown, &self.machine);
            self.share(fact);
        }
        Ok(())
    }

    /// What an attempt learned of its provider is told to the user's other repositories.
    fn share(&mut self, fact: &Fact) {
        match fact {
            Fact::ProviderLimited { provider, kind, until, message, .. } => {
                let (provider, message) = (provider.clone(), message.clone());
                let limit = Parked { provider, kind: *kind, until: *until, message };
                self.outside.share_limit(limit);
            }
            Fact::ProviderFreed { provider } => self.outside.forget_limit(provider),
            _ => {}
        }
    }

    /// What they learned is taken over, if it is news.
    fn limits_of_others(&mut self) -> Vec<Input> {
        let others = self.outside.limits_of_others().into_iter();
        let known = |name: &str| self.machine.providers().get(name).and_then(|known| known.until());
        let news =
            others.filter(|limit| known(&limit.provider).is_none_or(|had| had < limit.until));
        let park = |limit: Parked| {
            let Parked { provider, kind, until, message } = limit;
            Input::Park { provider, kind, until, message }
        };
        news.map(park).collect()
    }

    fn wait(&mut self) -> Vec<Taken> {
        let now = self.now();
        let until = self.machine.wake_at().map(|at| Duration::from_millis(at.since_ms(now)));
        let mut inputs = Vec::new();
        if let Some(event) = self.outside.next(until) {
            self.translate(event, &mut inputs);
        }
        while inputs.len() < ROUND_MAX
            && let Some(event) = self.outside.ready()
        {
            self.translate(event, &mut inputs);
        }
        let now = self.now();
        inputs.extend(self.look_around(now).into_iter().map(|seen| (seen, None)));
        if self.machine.wake_at().is_some_and(|at| at <= now) || until.is_some() {
            inputs.push((Input::Tick, None));
        }
        inputs
    }

    fn translate(&mut self, event: Event, inputs: &mut Vec<Taken>) {
        match event {
            Event::Input(input) => {
                if matches!(input, Input::Landed { .. }) {
                    crash::point("land.reported");
                }
                inputs.push((input, None));
            }
            Event::Performed(ticket) => self.queue.done(ticket),
            Event::Follow { task, attempt, dir } => self.follow(task, attempt, dir),
            Event::Watch(seen) => self.seen(seen, inputs),
            Event::Command(command, answer) => {
                inputs.push((Input::Command(command), Some(answer)));
            }
            Event::GateBegan(gate) => {
                self.gates.insert(gate.log.clone(), gate);
            }
            Event::GateEnded(log) => {
                self.gates.remove(&log);
            }
            Event::Activity(answer) => {
                // Whoever asked may have gone.
                let _ = answer.send(activity(&self.machine, &self.followed, &self.gates));
            }
            Event::Surveyed(seen) => {
                let seen = self.lookout.seen(seen);
                inputs.extend(seen.map(|outlook| (Input::Outlook(outlook), None)));
            }
            Event::Outlook(answer) => {
                let _ = answer.send(self.machine.outlook().clone());
            }
            Event::Interrupt | Event::StopNow | Event::Abandon => {
                self.interrupts += match event {
                    Event::Abandon => 3,
                    Event::StopNow => 2,
                    _ => 1,
                };
                let now = self.interrupts >= 2;
                for cancel in self.cancels.values().chain(self.lanes.values()) {
                    cancel.store(true, Ordering::Relaxed);
                }
                inputs.push((Input::Interrupt { now }, None));
            }
        }
    }

    /// Every now and then: is there room for one more, and what did the user's other repositories meet?
    fn look_around(&mut self, now: Time) -> Vec<Input> {
        if self.room_at.is_some_and(|at| now.since_ms(at) < ROOM_EVERY_MS) {
            return Vec::new();
        }
        self.room_at = Some(now);
        self.machine.set_zone(self.outside.zone_min());
        let mut seen = self.limits_of_others();
        seen.push(Input::Room(self.outside.room()));
        seen
    }

    fn follow(&mut self, task: TaskIx, attempt: u32, dir: PathBuf) {
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
            .and_then(|a| self.machine.settings().agents.get(&a.agent))
            .map_or("command", |agent| agent.kind.as_str());
        let Ok(adapter) = adapter(kind).or_else(|_| adapter("command")) else { return };
        let parser = adapter.parser();
        let (claim, last_words) = (Claim::None, LastWords::default());
        let followed = Followed { task, attempt, parser, claim, progress: None, last_words };
        self.followed.insert(key, followed);
        self.outside.watch(key, dir);
    }

    fn seen(&mut self, seen: WatchEvent, inputs: &mut Vec<Taken>) {
        match seen {
            WatchEvent::Lines { key, lines } => {
                let Some(followed) = self.followed.get_mut(&key) else { return };
                let current = self.machine.tasks().get(followed.task).current.as_ref();
                let known = current.filter(|a| a.n == followed.attempt).map_or(0, |a| a.mark);
                for line in lines {
                    if line.stream != host::Stream::Stdout {
                        followed.last_words.add(&line.text);
                        continue;
                    }
                    let events = followed.parser.line(&line.text);
                    if events.is_empty() {
                        followed.last_words.add(&line.text);
                    }
                    for (n, event) in events.into_iter().enumerate() {
                        let mark = (line.offset << 4) | (n as u64).min(15);
                        if let Some(heard) = followed.hear(mark, event) {
                            join(heard, known, inputs);
                        }
                    }
                }
            }
            WatchEvent::Gap { key, bytes } => {
                let task = self.followed.get(&key).map(|f| f.task);
                let message = format!("{bytes} bytes of output were lost");
                inputs.push((Input::Notice { task, message }, None));
            }
            WatchEvent::Ended { key, exit } => {
                let Some(followed) = self.followed.remove(&key) else { return };
                let Followed { task, attempt, claim, last_words, .. } = followed;
                let ending = ending_of(exit.ending);
                let claim = last_words.explain(&ending, claim);
                inputs.push((Input::AgentEnded { task, attempt, ending, claim }, None));
            }
            WatchEvent::Vanished { key } => {
                let Some(Followed { task, attempt, claim, .. }) = self.followed.remove(&key) else {
                    return;
                };
                let order = self.order(task, attempt, Deed::Bury(claim));
                self.queue.push(Key::Task(task), Weight::Short, order);
            }
        }
    }

    fn order(&mut self, ix: TaskIx, attempt: u32, deed: Deed) -> Order {
        let mut task = self.machine.plan().tasks[ix.ix()].clone();
        if let Deed::Effect(Effect::RunGates { .. }) = &deed {
            task.verify = self.machine.gates_of(ix);
        }
        if let Deed::RunAgent(_) = &deed
            && self.machine.is_resolved_by_another(ix)
        {
            // What is to be run for the task itself is its own agent's.
            (task.run, task.script) = (None, Vec::new());
        }
        let current = self.machine.tasks().get(ix).current.as_ref();
        let branch = current.map_or_else(|| format!("mainstem/{}", task.id), |a| a.branch.clone());
        // A workspace stays where it was made, even if the setting for new ones has changed.
        let made = current.filter(|a| a.n == attempt).and_then(|a| a.workspace.as_ref());
        let workspace = made.map_or_else(
            || self.outside.workspace(&unit_name(&self.machine, ix)),
            std::path::PathBuf::from,
        );
        let undone = self.machine.tasks().get(ix).undone.clone();
        let cancel = Arc::clone(self.cancels.entry((ix, attempt)).or_default());
        let crew = Vec::new();
        Order { ix, task, attempt, branch, workspace, undone, cancel, crew, deed }
    }

    fn enqueue(&mut self, effect: Effect) {
        let (task, attempt) = effect.whose();
        if let Effect::StopJobs { .. } = effect {
            // Not queued: it is about the effect of the same task that runs now.
            if let Some(cancel) = self.cancels.get(&(task, attempt)) {
                cancel.store(true, Ordering::Relaxed);
            }
            return;
        }
        if let Effect::StopLane { lane, .. } = effect {
            if let Some(cancel) = self.lanes.remove(&lane) {
                cancel.store(true, Ordering::Relaxed);
            }
            return;
        }
        let (key, weight) = self.place_of(&effect);
        let crew = self.crew_of(&effect);
        let lane = match effect {
            Effect::VerifyCar { lane, .. } | Effect::RecheckTarget { lane, .. } => Some(lane),
            _ => None,
        };
        let over = matches!(effect, Effect::RemoveWorkspace { .. });
        let deed = match effect {
            Effect::RunAgent { .. } => Deed::RunAgent(Box::new(self.assignment(task))),
            Effect::Consult { number, question, .. } => {
                let Some(asked) = Consultation::of(&self.machine, number, &question) else {
                    return;
                };
                Deed::Consult(Box::new(asked))
            }
            other => Deed::Effect(other),
        };
        let mut order = self.order(task, attempt, deed);
        order.crew = crew;
        if let Some(lane) = lane {
            // Apart from the task's own jobs: only the lane is given up.
            order.cancel = Arc::default();
            self.lanes.insert(lane, Arc::clone(&order.cancel));
        }
        if over {
            // The attempt is over: so is whatever still runs for it.
            order.cancel.store(true, Ordering::Relaxed);
            self.cancels.remove(&(task, attempt));
        }
        self.queue.push(key, weight, order);
    }

    /// In which line an effect waits, and how long it may take.
    fn place_of(&self, effect: &Effect) -> (Key, Weight) {
        let (task, _) = effect.whose();
        let setup = !self.machine.settings().workspace.setup.is_empty();
        let pushes = self.machine.settings().land.push.is_some();
        match effect {
            Effect::PrepareWorkspace { .. } if setup => (Key::Task(task), Weight::Long),
            Effect::RunGates { .. } => (Key::Task(task), Weight::Long),
            Effect::VerifyCar { lane, .. }
            | Effect::RecheckTarget { lane, .. }
            | Effect::Review { lane, .. }
            | Effect::StopLane { lane, .. } => (Key::Lane(*lane), Weight::Long),
            // What is pushed waits for somebody else's machine.
            Effect::FormLine { .. } | Effect::Land { .. } if pushes => (Key::Train, Weight::Long),
            Effect::FormLine { .. } | Effect::Land { .. } => (Key::Train, Weight::Short),
            Effect::Pull { .. } => (Key::Task(task), Weight::Remote),
            Effect::LookAtCheckout { .. } => (Key::Train, Weight::Short),
            Effect::TakeSnapshot { .. } => (Key::Snapshot(task), Weight::Short),
            Effect::Consult { .. } => (Key::Questions(task), Weight::Long),
            Effect::PrepareWorkspace { .. }
            | Effect::RunAgent { .. }
            | Effect::StopAgent { .. }
            | Effect::DeliverAnswer { .. }
            | Effect::CollectEvidence { .. }
            | Effect::StopJobs { .. }
            | Effect::RemoveWorkspace { .. } => (Key::Task(task), Weight::Short),
        }
    }

    /// The tasks of a line of the train.
    fn crew_of(&self, effect: &Effect) -> Vec<(Task, Vec<Oid>)> {
        let of = |t: TaskIx| {
            let task = self.machine.plan().tasks[t.ix()].clone();
            (task, self.machine.tasks().get(t).undone.clone())
        };
        match effect {
            Effect::FormLine { seats, .. } => seats.iter().map(|seat| of(seat.task)).collect(),
            Effect::Land { members, .. } => members.iter().map(|member| of(member.task)).collect(),
            _ => Vec::new(),
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
        let agent = self.machine.settings().agents.get(&current.agent).cloned();
        let agent = agent.unwrap_or_else(|| mainstem_core::config::Agent {
            kind: current.agent.clone(),
            ..Default::default()
        });
        let (merge, checkout) = self.machine.starts_with(t);
        Assignment {
            name: current.agent.clone(),
            agent,
            model: current.model.clone(),
            session: current.session.clone(),
            epic,
            base: current.base.clone().expect("BUG: an agent starts in a workspace"),
            checkout,
            continued: current.continued.clone(),
            seen: current.started_at.is_some(),
            merge,
            told: Told::of(&self.machine, t),
        }
    }

    /// The last word: gates that still run are ended, then the life is closed.
    fn leave(&mut self, rest: Rest) -> Result<Outcome, DriverError> {
        self.queue.clear();
        for cancel in self.cancels.values().chain(self.lanes.values()) {
            cancel.store(true, Ordering::Relaxed);
        }
        // A forge that does not answer holds up nobody who wants to stop: what it was asked for is found out by
        // the next life, as after a crash.
        let patience = self.now().plus_ms(FORGE_PATIENCE_MS);
        while self.queue.running() > 0 || self.lookout.is_looking() {
            let given_up = rest == Rest::Interrupted && self.now() >= patience;
            if given_up && self.queue.waits_for_remotes_only() && !self.lookout.is_looking() {
                break;
            }
            match self.outside.next(None) {
                Some(Event::Surveyed(seen)) => drop(self.lookout.seen(seen)),
                Some(Event::Performed(ticket)) => self.queue.done(ticket),
                Some(Event::Interrupt) => self.interrupts += 1,
                Some(Event::StopNow) => self.interrupts += 2,
                Some(Event::Abandon) => self.interrupts += 3,
                // A landing that finished in the meantime is found again by the next life.
                _ => {}
            }
            if self.interrupts >= 3 {
                return Ok(Outcome::Left);
            }
        }
        let why = match rest {
            Rest::Interrupted => StopReason::Interrupted,
            Rest::Done | Rest::NotLanded => StopReason::Rested,
        };
        let now = self.now();
        let fact = Fact::EngineStopped { why };
        self.machine.apply(&fact, now).expect("BUG: an engine may stop at any time");
        self.write_down(std::slice::from_ref(&fact), now)?;
        Ok(Outcome::Rested(rest))
    }
}

impl Followed {
    fn hear(&mut self, mark: u64, event: AgentEvent) -> Option<Input> {
        let said = match event {
            AgentEvent::Session { id } => Said::Session { session: id },
            AgentEvent::Usage(usage) => Said::Usage(usage),
            AgentEvent::RateLimited { retry_after_ms, reset_at_ms, message, retrying } => {
                if !retrying {
                    self.claims(Claim::RateLimited {});
                }
                let reset_at = reset_at_ms.map(Time);
                Said::RateLimited { retry_after_ms, reset_at, message, retrying }
            }
            AgentEvent::QuotaExhausted { reset_at_ms, window, message } => {
                self.claims(Claim::QuotaExhausted {});
                let message =
                    if window.is_empty() { message } else { format!("{window}: {message}") };
                Said::QuotaExhausted { reset_at: reset_at_ms.map(Time), message }
            }
            AgentEvent::Failed { fault, message, help } => {
                return self.claims(Claim::Failed { fault, message, help });
            }
            AgentEvent::Progress { text, tool } => {
                let text = mainstem_core::limits::brief(&text);
                self.progress = Some(Progress { tool, text });
                return None;
            }
            AgentEvent::Ask { question, options, default, deadline_ms, reference } => {
                Said::Asked { text: question, options, default, deadline_ms, reference }
            }
            AgentEvent::ClaimedDone { summary, evidence } => {
                return self.claims(Claim::Done { summary, evidence });
            }
            AgentEvent::Issue { title, text, severity } => Said::Issue { title, text, severity },
            AgentEvent::ProposeTask { id, title, description, needs } => {
                Said::Proposed { id, title, description, needs }
            }
            AgentEvent::NothingToDo { reason } => {
                return self.claims(Claim::NothingToDo { reason });
            }
            AgentEvent::Blocked { reason } => return self.claims(Claim::Blocked { reason }),
        };
        Some(Input::AgentSaid { task: self.task, attempt: self.attempt, mark, said })
    }

    /// Claims are told with the agent's end: a log that is read again gives the same one.
    fn claims(&mut self, new: Claim) -> Option<Input> {
        self.claim = supersede(std::mem::take(&mut self.claim), new);
        None
    }
}

/// An agent may report its use in every line: what comes in one go is told as one, so that the
/// journal grows with time and not with its words. What the machine knows already (`known`) must
/// stay apart, or it would be counted again with what is new.
fn join(heard: Input, known: u64, inputs: &mut Vec<Taken>) {
    if let Input::AgentSaid { task, attempt, mark, said: Said::Usage(more) } = &heard
        && let Some((Input::AgentSaid { task: t, attempt: a, mark: last, said }, None)) =
            inputs.last_mut()
        && let Said::Usage(usage) = said
        && (*t, *a) == (*task, *attempt)
        && *last > known
        && usage.join(more)
    {
        *last = *mark;
        return;
    }
    inputs.push((heard, None));
}

/// What agents were last seen doing, and which checks run.
fn activity(
    machine: &Machine,
    followed: &BTreeMap<u64, Followed>,
    gates: &BTreeMap<String, RunningGate>,
) -> Activity {
    let told = |followed: &Followed| {
        let task = &machine.plan().tasks[followed.task.ix()];
        Some((task.id.to_string(), followed.progress.clone()?))
    };
    let agents = followed.values().filter_map(told).collect();
    let usual = |gate: &RunningGate| machine.usual_gate_ms(&gate.gate);
    let gates = gates.values().map(|gate| RunningGate { usually_ms: usual(gate), ..gate.clone() });
    let mut gates: Vec<RunningGate> = gates.collect();
    gates.sort_by_key(|gate| gate.since);
    Activity { agents, gates }
}

fn key_of(task: TaskIx, attempt: u32) -> u64 {
    (u64::from(task.0) << 32) | u64::from(attempt)
}

pub(crate) fn ending_of(ending: host::Ending) -> Ending {
    match ending {
        host::Ending::Exited { code } => Ending::Exited { code },
        host::Ending::Signalled { signal } => Ending::Signalled { signal },
        host::Ending::TimedOut { idle } => Ending::TimedOut { idle },
        host::Ending::OutOfMemory { limit } => Ending::OutOfMemory { limit },
        host::Ending::Stopped => Ending::Stopped {},
        // A program that is not there will not be there the next time.
        host::Ending::NotStarted { why, not_found } => {
            Ending::NotStarted { why, permanent: not_found }
        }
    }
}
