//! The loop: input → step → journal → publish → perform. The imperative shell around the machine;
//! decides nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use mainstem_agents::find_adapter;
use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentClaim, AgentEnding, Fact, LimitKind, StopReason};
use mainstem_core::id::{Oid, RunId, TaskIx, Time};
use mainstem_core::machine::{AgentStatement, Input, Machine, MachineStep, RestReason};
use mainstem_core::plan::Task;
use mainstem_host::crash;
use mainstem_host::process::{self as host, WatchEvent};
use mainstem_planner::draft::DraftRateLimit;
use mainstem_store::{Journal, StoreError};

use crate::agent_output::AgentOutputReader;
use crate::attempt_prompt::AttemptPromptContext;
use crate::conflict_forecast::ForecastSchedule;
use crate::effect_queue::{EffectQueue, EffectQueueKey, EffectWeight};
use crate::effects::agent::AttemptLaunch;
use crate::effects::answering_agent::AnsweringRequest;
use crate::effects::{EffectAction, EffectOrder, workspace_key};
use crate::engine_host::EngineHost;
use crate::event::{CommandReply, EngineEvent};
use crate::last_words::LastWords;
use crate::observer::{EngineActivity, GateActivity, JournaledFact, RunObserver};
use crate::run_journal;
use crate::steady_clock::SteadyClock;

/// Events taken in one round, so that their facts share one commit.
const ROUND_MAX: usize = 256;
/// How often free disk and load are looked at.
const CAPACITY_EVERY_MS: u64 = 5_000;

/// An input, and whom to answer.
type QueuedInput = (Input, Option<Sender<CommandReply>>);

/// How long an engine that was told to stop waits for a forge.
const FORGE_PATIENCE_MS: u64 = 3_000;

/// The engine at work.
pub struct EngineDriver<'a> {
    machine: Machine,
    journal: Box<dyn Journal>,
    host: &'a mut dyn EngineHost,
    observer: &'a mut dyn RunObserver,
    run: RunId,
    epoch: u64,
    clock: SteadyClock,
    queue: EffectQueue<EffectOrder>,
    agent_outputs: BTreeMap<u64, AgentOutputReader>,
    /// Checks that run, by their logs.
    running_gates: BTreeMap<String, GateActivity>,
    cancels: BTreeMap<(TaskIx, u32), Arc<AtomicBool>>,
    /// What is being verified in each lane of the train.
    lane_cancels: BTreeMap<u32, Arc<AtomicBool>>,
    interrupts: u32,
    capacity_checked_at: Option<Time>,
    forecast_schedule: ForecastSchedule,
}

/// What an engine's life came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineOutcome {
    /// Nothing is left to do.
    Rested(RestReason),
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
pub struct DriverStart {
    pub run: RunId,
    pub machine: Machine,
    pub journal: Box<dyn Journal>,
    /// Our number among its writers.
    pub epoch: u64,
}

impl<'a> EngineDriver<'a> {
    /// A driver that has not begun.
    pub fn new(
        start: DriverStart,
        host: &'a mut dyn EngineHost,
        observer: &'a mut dyn RunObserver,
    ) -> Self {
        Self {
            clock: SteadyClock::new(start.machine.now()),
            machine: start.machine,
            journal: start.journal,
            host,
            observer,
            run: start.run,
            epoch: start.epoch,
            queue: EffectQueue::new(),
            agent_outputs: BTreeMap::new(),
            running_gates: BTreeMap::new(),
            cancels: BTreeMap::new(),
            lane_cancels: BTreeMap::new(),
            interrupts: 0,
            capacity_checked_at: None,
            forecast_schedule: ForecastSchedule::default(),
        }
    }

    /// The run as it stands.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Runs until nothing is left to do.
    pub fn run(&mut self, begin: Input) -> Result<EngineOutcome, DriverError> {
        let mut outcome = self.run_first_round(begin)?;
        loop {
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            outcome = self.run_next_round()?;
        }
    }

    /// The first round: a new life asks for all that is wanted.
    pub fn run_first_round(&mut self, begin: Input) -> Result<Option<EngineOutcome>, DriverError> {
        let now = self.read_clock();
        let around = self.check_surroundings(now);
        // Room first: nothing may start before it is known that there is some.
        self.run_round(around.into_iter().chain([begin]).map(|input| (input, None)).collect())
    }

    /// One more round: waits for something to happen, and acts on it.
    pub fn run_next_round(&mut self) -> Result<Option<EngineOutcome>, DriverError> {
        let inputs = self.wait_for_inputs();
        self.run_round(inputs)
    }

    fn run_round(
        &mut self,
        inputs: Vec<QueuedInput>,
    ) -> Result<Option<EngineOutcome>, DriverError> {
        self.handle_inputs(inputs)?;
        while let Some((ticket, order)) = self.queue.take_next() {
            self.host.start_effect(ticket, order);
        }
        self.forecast_schedule.start_if_due(&self.machine, self.host);
        let (machine, followed, gates) = (&self.machine, &self.agent_outputs, &self.running_gates);
        self.observer.on_tick(machine, &|| collect_activity(machine, followed, gates));
        if self.interrupts >= 3 {
            return Ok(Some(EngineOutcome::Left));
        }
        if let Some(rest) = self.machine.rest_reason()
            && (rest == RestReason::Interrupted || self.queue.running_count() == 0)
        {
            return self.close_epoch(rest).map(Some);
        }
        Ok(None)
    }

    fn read_clock(&mut self) -> Time {
        self.clock.advance_to(self.host.now())
    }

    /// Facts of a whole round share one commit; nothing is performed before it is durable.
    fn handle_inputs(&mut self, inputs: Vec<QueuedInput>) -> Result<(), DriverError> {
        let now = self.read_clock();
        let mut facts: Vec<Fact> = Vec::new();
        let mut effects = Vec::new();
        let mut replies = Vec::new();
        for (input, answer) in inputs {
            let step = self.machine.step(input, now);
            let MachineStep { facts: new, effects: wanted, reply } = step;
            facts.extend(new);
            effects.extend(wanted);
            replies.extend(answer.zip(reply));
        }
        if !facts.is_empty() {
            self.journal_facts(&facts, now)?;
        }
        for effect in effects {
            self.enqueue_effect(effect);
        }
        for (answer, reply) in replies {
            // Whoever asked may have gone.
            let _ = answer.send(reply);
        }
        Ok(())
    }

    /// Makes facts durable, then shows them.
    fn journal_facts(&mut self, facts: &[Fact], at: Time) -> Result<(), DriverError> {
        let records: Vec<_> =
            facts.iter().map(|fact| run_journal::encode_fact(&self.run, fact, at)).collect();
        crash::point("journal.before");
        let last = self.journal.append(self.epoch, &records)?;
        crash::point("journal.after");
        let first = last + 1 - records.len() as u64;
        for ((seq, record), fact) in (first..).zip(&records).zip(facts) {
            let shown = JournaledFact { seq, at, run: &self.run, fact, body: &record.body };
            self.observer.on_fact(&shown, &self.machine);
            self.share_provider_limit(fact);
        }
        Ok(())
    }

    /// Tells the user's other repositories what attempts met at a provider, and pauses after repeated failures.
    fn share_provider_limit(&mut self, fact: &Fact) {
        match fact {
            Fact::ProviderLimited { provider, kind, until, message, .. }
            | Fact::ProviderParked {
                provider,
                kind: kind @ LimitKind::Breaker,
                until,
                message,
                ..
            } => {
                let (provider, message) = (provider.clone(), message.clone());
                let limit = DraftRateLimit { provider, kind: *kind, until: *until, message };
                self.host.share_limit(limit);
            }
            Fact::ProviderFreed { provider } => self.host.forget_limit(provider),
            _ => {}
        }
    }

    /// What they learned is taken over, if it is news.
    fn collect_shared_limits(&mut self) -> Vec<Input> {
        let others = self.host.read_shared_limits().into_iter();
        let known =
            |name: &str| self.machine.providers().get(name).and_then(|known| known.wait_end());
        let news =
            others.filter(|limit| known(&limit.provider).is_none_or(|had| had < limit.until));
        let park = |limit: DraftRateLimit| {
            let DraftRateLimit { provider, kind, until, message } = limit;
            Input::ProviderParked { provider, kind, until, message }
        };
        news.map(park).collect()
    }

    fn wait_for_inputs(&mut self) -> Vec<QueuedInput> {
        let now = self.read_clock();
        let until = self.machine.wake_at().map(|at| Duration::from_millis(at.since_ms(now)));
        let mut inputs = Vec::new();
        if let Some(event) = self.host.next_event(until) {
            self.translate_event(event, &mut inputs);
        }
        while inputs.len() < ROUND_MAX
            && let Some(event) = self.host.ready_event()
        {
            self.translate_event(event, &mut inputs);
        }
        let now = self.read_clock();
        inputs.extend(self.check_surroundings(now).into_iter().map(|seen| (seen, None)));
        if self.machine.wake_at().is_some_and(|at| at <= now) || until.is_some() {
            inputs.push((Input::Tick, None));
        }
        inputs
    }

    fn translate_event(&mut self, event: EngineEvent, inputs: &mut Vec<QueuedInput>) {
        match event {
            EngineEvent::Input(input) => {
                if matches!(input, Input::Landed { .. }) {
                    crash::point("land.reported");
                }
                inputs.push((input, None));
            }
            EngineEvent::Performed(ticket) => self.queue.finish(ticket),
            EngineEvent::WatchAgent { task, attempt, dir } => self.watch_agent(task, attempt, dir),
            EngineEvent::JobWatched(seen) => self.handle_watch_event(seen, inputs),
            EngineEvent::Command(command, answer) => {
                inputs.push((Input::Command(command), Some(answer)));
            }
            EngineEvent::GateBegan(gate) => {
                self.running_gates.insert(gate.log.clone(), gate);
            }
            EngineEvent::GateEnded(log) => {
                self.running_gates.remove(&log);
            }
            EngineEvent::ActivityRequested(answer) => {
                // Whoever asked may have gone.
                let _ = answer.send(collect_activity(
                    &self.machine,
                    &self.agent_outputs,
                    &self.running_gates,
                ));
            }
            EngineEvent::ForecastMade(seen) => {
                let seen = self.forecast_schedule.finish_forecast(seen);
                inputs.extend(seen.map(|outlook| (Input::ConflictsForecast(outlook), None)));
            }
            EngineEvent::ForecastRequested(answer) => {
                let _ = answer.send(self.machine.conflict_forecast().clone());
            }
            EngineEvent::Interrupt | EngineEvent::StopNow | EngineEvent::Abandon => {
                self.interrupts += match event {
                    EngineEvent::Abandon => 3,
                    EngineEvent::StopNow => 2,
                    _ => 1,
                };
                let now = self.interrupts >= 2;
                for cancel in self.cancels.values().chain(self.lane_cancels.values()) {
                    cancel.store(true, Ordering::Relaxed);
                }
                inputs.push((Input::Interrupt { now }, None));
            }
        }
    }

    /// Every now and then: is there room for one more, and what did the user's other repositories meet?
    fn check_surroundings(&mut self, now: Time) -> Vec<Input> {
        if self.capacity_checked_at.is_some_and(|at| now.since_ms(at) < CAPACITY_EVERY_MS) {
            return Vec::new();
        }
        self.capacity_checked_at = Some(now);
        let minutes = self.host.utc_offset_min();
        self.machine.step(Input::UtcOffsetChanged { minutes }, now);
        let mut seen = self.collect_shared_limits();
        seen.push(Input::CapacityMeasured(self.host.check_capacity()));
        seen
    }

    fn watch_agent(&mut self, task: TaskIx, attempt: u32, dir: PathBuf) {
        let key = watch_key(task, attempt);
        if self.agent_outputs.contains_key(&key) {
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
        let Ok(adapter) = find_adapter(kind).or_else(|_| find_adapter("command")) else { return };
        let parser = adapter.output_parser();
        let (claim, last_words) = (AgentClaim::None, LastWords::default());
        let followed =
            AgentOutputReader { task, attempt, parser, claim, progress: None, last_words };
        self.agent_outputs.insert(key, followed);
        self.host.watch_job(key, dir);
    }

    fn handle_watch_event(&mut self, seen: WatchEvent, inputs: &mut Vec<QueuedInput>) {
        match seen {
            WatchEvent::Lines { key, lines } => {
                let Some(followed) = self.agent_outputs.get_mut(&key) else { return };
                let current = self.machine.tasks().get(followed.task).current.as_ref();
                let known = current.filter(|a| a.n == followed.attempt).map_or(0, |a| a.mark);
                for line in lines {
                    if line.stream != host::OutputStream::Stdout {
                        followed.last_words.add(&line.text);
                        continue;
                    }
                    let events = followed.parser.parse_line(&line.text);
                    if events.is_empty() {
                        followed.last_words.add(&line.text);
                    }
                    for (n, event) in events.into_iter().enumerate() {
                        let mark = (line.offset << 4) | (n as u64).min(15);
                        if let Some(heard) = followed.handle_agent_event(mark, event) {
                            push_joined_input(heard, known, inputs);
                        }
                    }
                }
            }
            WatchEvent::Gap { key, bytes } => {
                let task = self.agent_outputs.get(&key).map(|f| f.task);
                let message = format!("{bytes} bytes of output were lost");
                inputs.push((Input::Notice { task, message }, None));
            }
            WatchEvent::Ended { key, exit } => {
                let Some(followed) = self.agent_outputs.remove(&key) else { return };
                let AgentOutputReader { task, attempt, claim, last_words, .. } = followed;
                let ending = agent_ending(exit.ending);
                let claim = last_words.explain(&ending, claim);
                inputs.push((Input::AgentEnded { task, attempt, ending, claim }, None));
            }
            WatchEvent::Vanished { key } => {
                let Some(AgentOutputReader { task, attempt, claim, .. }) =
                    self.agent_outputs.remove(&key)
                else {
                    return;
                };
                let order = self.build_order(task, attempt, EffectAction::ReapVanishedAgent(claim));
                self.queue.push(EffectQueueKey::Task(task), EffectWeight::Short, order);
            }
        }
    }

    fn build_order(&mut self, ix: TaskIx, attempt: u32, deed: EffectAction) -> EffectOrder {
        let mut task = self.machine.plan().tasks[ix.index()].clone();
        if let EffectAction::Effect(Effect::RunGates { .. }) = &deed {
            task.verify = self.machine.task_gates(ix);
        }
        if let EffectAction::RunAgent(_) = &deed
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
            || self.host.workspace_path(&workspace_key(&self.machine, ix)),
            std::path::PathBuf::from,
        );
        let undone = self.machine.tasks().get(ix).undone.clone();
        let cancel = Arc::clone(self.cancels.entry((ix, attempt)).or_default());
        let crew = Vec::new();
        EffectOrder {
            ix,
            task,
            attempt,
            branch,
            workspace,
            undone_landings: undone,
            cancel,
            candidate_tasks: crew,
            action: deed,
        }
    }

    fn enqueue_effect(&mut self, effect: Effect) {
        let (task, attempt) = effect.attempt_key();
        if let Effect::StopJobs { .. } = effect {
            // Not queued: it is about the effect of the same task that runs now.
            if let Some(cancel) = self.cancels.get(&(task, attempt)) {
                cancel.store(true, Ordering::Relaxed);
            }
            return;
        }
        if let Effect::StopLane { lane, .. } = effect {
            if let Some(cancel) = self.lane_cancels.remove(&lane) {
                cancel.store(true, Ordering::Relaxed);
            }
            return;
        }
        let (key, weight) = self.queue_key_of(&effect);
        let crew = self.list_candidate_tasks(&effect);
        let lane = match effect {
            Effect::VerifyBatch { lane, .. } | Effect::RecheckTarget { lane, .. } => Some(lane),
            _ => None,
        };
        let over = matches!(effect, Effect::RemoveWorkspace { .. });
        let deed = match effect {
            Effect::RunAgent { .. } => {
                EffectAction::RunAgent(Box::new(self.build_attempt_launch(task)))
            }
            Effect::ConsultAgent { number, question, .. } => {
                let Some(asked) = AnsweringRequest::for_question(&self.machine, number, &question)
                else {
                    return;
                };
                EffectAction::AskAnsweringAgent(Box::new(asked))
            }
            other => EffectAction::Effect(other),
        };
        let mut order = self.build_order(task, attempt, deed);
        order.candidate_tasks = crew;
        if let Some(lane) = lane {
            // Apart from the task's own jobs: only the lane is given up.
            order.cancel = Arc::default();
            self.lane_cancels.insert(lane, Arc::clone(&order.cancel));
        }
        if over {
            // The attempt is over: so is whatever still runs for it.
            order.cancel.store(true, Ordering::Relaxed);
            self.cancels.remove(&(task, attempt));
        }
        self.queue.push(key, weight, order);
    }

    /// In which line an effect waits, and how long it may take.
    fn queue_key_of(&self, effect: &Effect) -> (EffectQueueKey, EffectWeight) {
        let (task, _) = effect.attempt_key();
        let setup = !self.machine.settings().workspace.setup.is_empty();
        let pushes = self.machine.settings().land.push.is_some();
        match effect {
            Effect::PrepareWorkspace { .. } if setup => {
                (EffectQueueKey::Task(task), EffectWeight::Long)
            }
            Effect::RunGates { .. } => (EffectQueueKey::Task(task), EffectWeight::Long),
            Effect::VerifyBatch { lane, .. }
            | Effect::RecheckTarget { lane, .. }
            | Effect::Review { lane, .. }
            | Effect::StopLane { lane, .. } => (EffectQueueKey::Lane(*lane), EffectWeight::Long),
            // What is pushed waits for somebody else's machine.
            Effect::MergeBatch { .. } | Effect::Land { .. } if pushes => {
                (EffectQueueKey::Train, EffectWeight::Long)
            }
            Effect::MergeBatch { .. } | Effect::Land { .. } => {
                (EffectQueueKey::Train, EffectWeight::Short)
            }
            Effect::RunForgeAction { .. } => (EffectQueueKey::Task(task), EffectWeight::Remote),
            Effect::InspectCheckout { .. } => (EffectQueueKey::Train, EffectWeight::Short),
            Effect::TakeSnapshot { .. } => (EffectQueueKey::Snapshot(task), EffectWeight::Short),
            Effect::ConsultAgent { .. } => (EffectQueueKey::Questions(task), EffectWeight::Long),
            Effect::PrepareWorkspace { .. }
            | Effect::RunAgent { .. }
            | Effect::StopAgent { .. }
            | Effect::DeliverAnswer { .. }
            | Effect::CollectEvidence { .. }
            | Effect::StopJobs { .. }
            | Effect::RemoveWorkspace { .. } => (EffectQueueKey::Task(task), EffectWeight::Short),
        }
    }

    /// The tasks of a line of the train.
    fn list_candidate_tasks(&self, effect: &Effect) -> Vec<(Task, Vec<Oid>)> {
        let of = |t: TaskIx| {
            let task = self.machine.plan().tasks[t.index()].clone();
            (task, self.machine.tasks().get(t).undone.clone())
        };
        match effect {
            Effect::MergeBatch { candidates: seats, .. } => {
                seats.iter().map(|seat| of(seat.task)).collect()
            }
            Effect::Land { candidates: members, .. } => {
                members.iter().map(|member| of(member.task)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn build_attempt_launch(&self, t: TaskIx) -> AttemptLaunch {
        let plan = self.machine.plan();
        let task = &plan.tasks[t.index()];
        let state = self.machine.tasks().get(t);
        let current = state.current.as_ref().expect("BUG: an agent runs for an attempt");
        let epic = task
            .epic
            .as_ref()
            .and_then(|id| plan.epics.iter().find(|epic| epic.id == *id))
            .cloned();
        let agent = self.machine.settings().agents.get(&current.agent).cloned();
        let agent = agent.unwrap_or_else(|| mainstem_core::config::AgentSettings {
            kind: current.agent.clone(),
            ..Default::default()
        });
        let (merge, checkout) = self.machine.workspace_start(t);
        AttemptLaunch {
            name: current.agent.clone(),
            agent,
            model: current.model.clone(),
            session: current.session.clone(),
            epic,
            base: current.base.clone().expect("BUG: an agent starts in a workspace"),
            checkout,
            continued: current.continued.clone(),
            was_seen: current.started_at.is_some(),
            merge,
            prompt_context: AttemptPromptContext::gather(&self.machine, t),
        }
    }

    /// The last word: gates that still run are ended, then the life is closed.
    fn close_epoch(&mut self, rest: RestReason) -> Result<EngineOutcome, DriverError> {
        self.queue.clear();
        for cancel in self.cancels.values().chain(self.lane_cancels.values()) {
            cancel.store(true, Ordering::Relaxed);
        }
        // A forge that does not answer holds up nobody who wants to stop: what it was asked for is found out by
        // the next life, as after a crash.
        let patience = self.read_clock().plus_ms(FORGE_PATIENCE_MS);
        while self.queue.running_count() > 0 || self.forecast_schedule.is_running() {
            let given_up = rest == RestReason::Interrupted && self.read_clock() >= patience;
            if given_up
                && self.queue.runs_remote_effects_only()
                && !self.forecast_schedule.is_running()
            {
                break;
            }
            match self.host.next_event(None) {
                Some(EngineEvent::ForecastMade(seen)) => {
                    drop(self.forecast_schedule.finish_forecast(seen));
                }
                Some(EngineEvent::Performed(ticket)) => self.queue.finish(ticket),
                Some(EngineEvent::Interrupt) => self.interrupts += 1,
                Some(EngineEvent::StopNow) => self.interrupts += 2,
                Some(EngineEvent::Abandon) => self.interrupts += 3,
                // A landing that finished in the meantime is found again by the next life.
                _ => {}
            }
            if self.interrupts >= 3 {
                return Ok(EngineOutcome::Left);
            }
        }
        let why = match rest {
            RestReason::Interrupted => StopReason::Interrupted,
            RestReason::Done | RestReason::NotLanded => StopReason::Rested,
        };
        let now = self.read_clock();
        let fact = Fact::EngineStopped { why };
        self.machine.apply(&fact, now).expect("BUG: an engine may stop at any time");
        self.journal_facts(std::slice::from_ref(&fact), now)?;
        Ok(EngineOutcome::Rested(rest))
    }
}

/// An agent may report its use in every line: what comes in one go is told as one, so that the
/// journal grows with time and not with its words. What the machine knows already (`known`) must
/// stay apart, or it would be counted again with what is new.
fn push_joined_input(heard: Input, known: u64, inputs: &mut Vec<QueuedInput>) {
    if let Input::AgentSaid { task, attempt, mark, said: AgentStatement::Usage(more) } = &heard
        && let Some((Input::AgentSaid { task: t, attempt: a, mark: last, said }, None)) =
            inputs.last_mut()
        && let AgentStatement::Usage(usage) = said
        && (*t, *a) == (*task, *attempt)
        && *last > known
        && usage.merge_report(more)
    {
        *last = *mark;
        return;
    }
    inputs.push((heard, None));
}

/// What agents were last seen doing, and which checks run.
fn collect_activity(
    machine: &Machine,
    followed: &BTreeMap<u64, AgentOutputReader>,
    gates: &BTreeMap<String, GateActivity>,
) -> EngineActivity {
    let told = |followed: &AgentOutputReader| {
        let task = &machine.plan().tasks[followed.task.index()];
        Some((task.id.to_string(), followed.progress.clone()?))
    };
    let agents = followed.values().filter_map(told).collect();
    let usual = |gate: &GateActivity| machine.usual_gate_ms(&gate.gate);
    let gates = gates.values().map(|gate| GateActivity { usually_ms: usual(gate), ..gate.clone() });
    let mut gates: Vec<GateActivity> = gates.collect();
    gates.sort_by_key(|gate| gate.since);
    EngineActivity { agents, gates }
}

fn watch_key(task: TaskIx, attempt: u32) -> u64 {
    (u64::from(task.0) << 32) | u64::from(attempt)
}

pub(crate) fn agent_ending(ending: host::JobEnding) -> AgentEnding {
    match ending {
        host::JobEnding::Exited { code } => AgentEnding::Exited { code },
        host::JobEnding::Signalled { signal } => AgentEnding::Signalled { signal },
        host::JobEnding::TimedOut { idle } => AgentEnding::TimedOut { idle },
        host::JobEnding::OutOfMemory { limit } => AgentEnding::OutOfMemory { limit },
        host::JobEnding::Stopped => AgentEnding::Stopped {},
        // A program that is not there will not be there the next time.
        host::JobEnding::NotStarted { why, not_found } => {
            AgentEnding::NotStarted { why, permanent: not_found }
        }
    }
}
