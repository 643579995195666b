//! Drafting a plan from a PRD: journals what `mainstem_planner::draft` decides, has agents asked under the
//! same supervisors as tasks, and feeds their answers back until it rests.
//!
//! Its journal is a file of its own beside the run's, under a lock of its own: a plan can be drafted while
//! a run goes on. Limits of providers are told in both directions. Decides nothing, prints nothing.

mod call;
pub mod rate_limits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use mainstem_agents::{AgentEvent, AgentOutputParser, find_adapter};
use mainstem_core::attempt_policy::combine_claims;
use mainstem_core::config::Settings;
use mainstem_core::fact::AgentClaim;
use mainstem_core::id::{RunId, Time};
use mainstem_host::git::Repo;
use mainstem_host::process::{self, JobStopMode, JobWatch, OutputStream, WatchEvent};
use mainstem_host::{clock, crash, user_folder};
use mainstem_planner::draft::{
    Draft, DraftAgentWord, DraftEffect, DraftFact, DraftInput, DraftOutcome, DraftPart,
    DraftRateLimit, DraftRules,
};
use mainstem_store::{
    Journal, JournalReader, NewJournalRecord, StoreClaim, StoreError, StoreOwnership,
};
use sha2::{Digest, Sha256};

use crate::engine_context::EngineContext;
use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError};
use crate::sandbox_policy::{self, EngineSandbox, SandboxError};
use crate::shared_limits::SharedLimits;

pub use call::answer_file_name;

/// How often faces may redraw and other people's limits are looked at when nothing happens.
const TICK: Duration = Duration::from_millis(200);
/// Digits of a PRD's hash in the name of its draft.
const HASH_DIGITS: usize = 12;

/// Why a draft cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// Another process drafts in this repository.
    #[error("another draft is active in this repository (pid {pid})")]
    Owned { pid: String },
    /// It could not be found out who owns the store of drafts.
    #[error(transparent)]
    Ownership(StoreError),
    /// The journal of drafts cannot be written.
    #[error("cannot read the journal of drafts: {0}")]
    Store(#[from] StoreError),
    /// The run's journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] RunJournalError),
    /// There is no wall for agents to work behind.
    #[error(transparent)]
    Wall(#[from] SandboxError),
    /// The journal of drafts holds what does not fit.
    #[error("cannot use fact {seq} of the journal of drafts: {why}; start over with --fresh")]
    Fact { seq: u64, why: String },
    /// The state folder cannot be used.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

/// What to draft from.
#[derive(Debug, Clone)]
pub struct DraftRequest {
    pub prd: String,
    pub rules: DraftRules,
    /// How hard models should think, if that was chosen.
    pub effort: Option<String>,
    /// Take nothing over from an earlier draft of the same PRD.
    pub fresh: bool,
}

/// A fact of a draft, on its way to people.
#[derive(Debug, Clone, Copy)]
pub struct JournaledDraftFact<'a> {
    /// Its place in the journal of drafts.
    pub seq: u64,
    pub at: Time,
    pub fact: &'a DraftFact,
}

/// Shows a draft as it goes.
pub trait DraftObserver {
    /// Something happened and is durable.
    fn on_fact(&mut self, shown: &JournaledDraftFact<'_>, draft: &Draft);
    /// What an agent is at.
    fn on_progress(&mut self, part: &DraftPart, text: &str);
    fn on_tick(&mut self, draft: &Draft);
}

/// Something for the loop.
#[derive(Debug)]
enum DraftLoopEvent {
    Input(DraftInput),
    WatchCall { part: DraftPart, call: u32, dir: PathBuf },
    Watch(WatchEvent),
    Interrupt,
}

/// A way to interrupt a draft from a signal.
#[derive(Debug, Clone)]
pub struct DraftHandle(Sender<DraftLoopEvent>);

impl DraftHandle {
    /// Stop: once gently, twice at once.
    pub fn interrupt(&self) {
        // A draft that has ended needs no interrupting.
        let _ = self.0.send(DraftLoopEvent::Interrupt);
    }
}

/// A call whose output is read.
struct DraftCallReader {
    part: DraftPart,
    call: u32,
    parser: Box<dyn AgentOutputParser>,
    claim: AgentClaim,
}

/// A draft that is ours until this is dropped.
pub struct DraftRunner {
    engine: Arc<EngineContext>,
    request: Arc<DraftRequest>,
    journal: Box<dyn Journal>,
    epoch: u64,
    draft: Draft,
    events: Receiver<DraftLoopEvent>,
    sender: Sender<DraftLoopEvent>,
    shared_limits: Option<SharedLimits>,
    _ownership: StoreOwnership,
}

impl DraftRunner {
    /// Takes over the newest draft of this PRD, or begins one. What other drafts left running is ended.
    pub fn open(
        repo: Repo,
        settings: Settings,
        (exe, env): (PathBuf, Vec<(String, String)>),
        request: DraftRequest,
    ) -> Result<Self, DraftError> {
        let layout = RepoLayout::new(&repo, settings.workspace.root.as_deref());
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| DraftError::Io { what, source }
        };
        user_folder::create_private_folder(&layout.drafts_dir())
            .map_err(io("cannot create the state folder"))?;
        let body = serde_json::json!({
            "pid": std::process::id(), "started_at_ms": clock::now_ms(),
        });
        let store = layout.draft_store();
        let ownership = match store.claim(&body.to_string()).map_err(DraftError::Ownership)? {
            StoreClaim::Owned(ownership) => ownership,
            StoreClaim::OwnedByAnother(owner) => {
                let holder: serde_json::Value =
                    serde_json::from_str(&owner.note).unwrap_or_default();
                return Err(DraftError::Owned { pid: holder["pid"].to_string() });
            }
        };
        let mut journal = store.open_journal()?;
        let epoch = journal.take_over()?;
        crash::point("draft.taken");
        let reader = store.open_reader()?;
        let name = find_or_create_run_id(&*reader, &request)?;
        let draft = fold_draft(&*reader, &name, request.rules.clone())?;
        end_other_drafts(&layout, &name).map_err(io("cannot stop an agent of another draft"))?;
        let kind = sandbox_policy::choose_backend(&settings.sandbox, &exe)?;
        let made = |kind| EngineSandbox::new(kind, &settings, (&repo, &layout), (&exe, &env));
        let walls = kind.map(made).transpose()?;
        let world = EngineContext::for_planning(repo, layout, settings, name, (exe, env), walls);
        world.prepare_job_containment();
        let (sender, events) = mpsc::channel();
        let (world, request) = (Arc::new(world), Arc::new(request));
        let shared = SharedLimits::open_for_user(&world.env, &world.settings);
        Ok(Self {
            engine: world,
            request,
            journal,
            epoch,
            draft,
            events,
            sender,
            shared_limits: shared,
            _ownership: ownership,
        })
    }

    /// A way to interrupt it.
    pub fn handle(&self) -> DraftHandle {
        DraftHandle(self.sender.clone())
    }
    /// As far as it has come.
    pub fn draft(&self) -> &Draft {
        &self.draft
    }
    /// Its name in the journal of drafts.
    pub fn run_id(&self) -> &RunId {
        &self.engine.run
    }
    /// Where its prompts, logs and answers are.
    pub fn folder(&self) -> PathBuf {
        self.engine.layout.drafts_dir().join(self.engine.run.as_str())
    }

    /// Whether a plan of these bytes was written to this path by a draft: then nobody has changed it since.
    pub fn has_written_plan(&self, path: &str, bytes: &[u8]) -> Result<bool, DraftError> {
        let reader = self.engine.layout.draft_store().open_reader()?;
        let (mut found, wanted) = (false, hash_bytes(bytes));
        reader.for_each(0, &mut |record| {
            if record.kind == "plan_written"
                && let Ok(DraftFact::PlanWritten { path: there, hash, .. }) =
                    serde_json::from_str(&record.body)
                && there == path
                && hash == wanted
            {
                found = true;
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Notes a plan that is about to be written.
    pub fn record_written_plan(
        &mut self,
        path: &str,
        text: &str,
        tasks: usize,
        face: &mut dyn DraftObserver,
    ) -> Result<(), DraftError> {
        let (path, hash) = (path.to_owned(), hash_bytes(text.as_bytes()));
        self.handle_input(DraftInput::Written { path, hash, tasks }, face)
    }

    /// Asks until nothing is left to ask.
    pub fn run(&mut self, face: &mut dyn DraftObserver) -> Result<DraftOutcome, DraftError> {
        let seen = self.sender.clone();
        let watch = JobWatch::start(move |event| {
            // The loop ends before its watcher: then nobody needs the news.
            let _ = seen.send(DraftLoopEvent::Watch(event));
        })
        .map_err(|source| DraftError::Io { what: "cannot watch agents".to_owned(), source })?;
        let mut followed: BTreeMap<u64, DraftCallReader> = BTreeMap::new();
        let mut others =
            rate_limits::RunLimitReader::open(&self.engine.layout, &self.engine.settings)?;
        let mut known = others.read_new_limits()?;
        known.extend(rate_limits::read_draft_limits(
            &*self.engine.layout.draft_store().open_reader()?,
            Time(clock::now_ms()),
        )?);
        known.extend(self.read_shared_limits());
        self.handle_input(DraftInput::Begin(known), face)?;
        face.on_tick(&self.draft);
        let mut interrupts = 0;
        loop {
            for limit in others.read_new_limits()?.into_iter().chain(self.read_shared_limits()) {
                self.handle_input(DraftInput::Park(limit), face)?;
            }
            if let Some(rest) = self.draft.outcome() {
                return Ok(rest);
            }
            match self.events.recv_timeout(TICK) {
                Ok(DraftLoopEvent::Input(input)) => self.handle_input(input, face)?,
                Ok(DraftLoopEvent::WatchCall { part, call, dir }) => {
                    self.watch_call(&mut followed, &watch, (part, call, dir));
                }
                Ok(DraftLoopEvent::Watch(seen)) => {
                    self.handle_watch_event(&mut followed, seen, face)?;
                }
                Ok(DraftLoopEvent::Interrupt) => {
                    interrupts += 1;
                    self.handle_input(DraftInput::Interrupt, face)?;
                    if interrupts > 2 {
                        return Ok(DraftOutcome::Interrupted);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.handle_input(DraftInput::Tick, face)?;
                    face.on_tick(&self.draft);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(DraftOutcome::Interrupted),
            }
        }
    }

    /// Limits that the user's other repositories met since this was last asked.
    fn read_shared_limits(&mut self) -> Vec<DraftRateLimit> {
        let now = Time(clock::now_ms());
        self.shared_limits.as_mut().map(|shared| shared.read_new_limits(now)).unwrap_or_default()
    }

    /// Steps, writes down what that led to, shows it, then fulfils what is wanted.
    fn handle_input(
        &mut self,
        input: DraftInput,
        face: &mut dyn DraftObserver,
    ) -> Result<(), DraftError> {
        let now = Time(clock::now_ms()).max(self.draft.now());
        let facts = self.draft.step(input, now);
        if !facts.is_empty() {
            let records: Vec<NewJournalRecord> =
                facts.iter().map(|fact| encode_draft_fact(&self.engine.run, fact, now)).collect();
            crash::point("draft.before");
            let last = self.journal.append(self.epoch, &records)?;
            crash::point("draft.after");
            let first = last + 1 - records.len() as u64;
            for (seq, fact) in (first..).zip(&facts) {
                face.on_fact(&JournaledDraftFact { seq, at: now, fact }, &self.draft);
                rate_limits::publish_limit(&self.engine.layout, self.shared_limits.as_mut(), fact);
            }
        }
        for want in self.draft.outstanding_effects() {
            self.perform_effect(want);
        }
        Ok(())
    }

    fn perform_effect(&self, want: DraftEffect) {
        match want {
            DraftEffect::Call { part, call } => {
                let order = call::DraftCall::new(&self.draft, &self.request, (&part, call));
                let (world, sender) = (Arc::clone(&self.engine), self.sender.clone());
                self.spawn_worker((part.clone(), call), move || match order.start_agent(&world) {
                    Ok(dir) => {
                        let _ = sender.send(DraftLoopEvent::WatchCall { part, call, dir });
                    }
                    Err(why) => {
                        let _ = sender
                            .send(DraftLoopEvent::Input(call::not_started_input(part, call, why)));
                    }
                });
            }
            DraftEffect::Stop { part, call, now } => {
                let how = if now { JobStopMode::Kill } else { JobStopMode::Term };
                let dir = call::call_job_folder(&self.engine, &part, call);
                self.spawn_worker((part, call), move || {
                    // One that cannot be reached is asked for again, at the latest by the next life.
                    let _ = process::stop_job(&dir, how);
                });
            }
        }
    }

    /// Runs something for one call. If it breaks, that is this call's failure and nobody else's.
    fn spawn_worker(&self, (part, call): (DraftPart, u32), work: impl FnOnce() + Send + 'static) {
        let sender = self.sender.clone();
        let job = call::call_job_folder(&self.engine, &part, call);
        let guarded = move || {
            if let Err(broken) = call::catch_panic(work) {
                // Its agent, if it has one, must not go on unseen. At the latest the next life ends it.
                let _ = process::end_job(&job);
                let _ =
                    sender.send(DraftLoopEvent::Input(call::broken_call_input(part, call, broken)));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("plan".to_owned()).spawn(guarded) {
            // Without a thread the call stays outstanding: the next life finds it.
            drop(error);
            let _ = self.sender.send(DraftLoopEvent::Interrupt);
        }
    }

    fn watch_call(
        &self,
        followed: &mut BTreeMap<u64, DraftCallReader>,
        watch: &JobWatch,
        (part, call, dir): (DraftPart, u32, PathBuf),
    ) {
        let agent = self.draft.parts().get(&part).map(|state| state.agent.clone());
        let kind =
            agent.and_then(|name| Some(self.engine.settings.agents.get(&name)?.kind.clone()));
        let Ok(adapter) = find_adapter(kind.as_deref().unwrap_or_default()) else { return };
        let key = followed.keys().next_back().map_or(0, |last| last + 1);
        followed.insert(
            key,
            DraftCallReader {
                part,
                call,
                parser: adapter.output_parser(),
                claim: AgentClaim::None,
            },
        );
        watch.watch_job(key, dir, 0);
    }

    fn handle_watch_event(
        &mut self,
        followed: &mut BTreeMap<u64, DraftCallReader>,
        seen: WatchEvent,
        face: &mut dyn DraftObserver,
    ) -> Result<(), DraftError> {
        let (key, ending) = match seen {
            WatchEvent::Lines { key, lines } => {
                let Some(call) = followed.get_mut(&key) else { return Ok(()) };
                let mut inputs = Vec::new();
                for line in lines.into_iter().filter(|line| line.stream == OutputStream::Stdout) {
                    for (n, event) in call.parser.parse_line(&line.text).into_iter().enumerate() {
                        let mark = (line.offset << 4) | (n as u64).min(15);
                        inputs.extend(call.handle_agent_event(mark, event, face));
                    }
                }
                return inputs.into_iter().try_for_each(|input| self.handle_input(input, face));
            }
            WatchEvent::Gap { .. } => return Ok(()),
            WatchEvent::Ended { key, exit } => (key, crate::driver::agent_ending(exit.ending)),
            WatchEvent::Vanished { key } => (key, mainstem_core::fact::AgentEnding::Vanished {}),
        };
        let Some(DraftCallReader { part, call, claim, .. }) = followed.remove(&key) else {
            return Ok(());
        };
        let (world, sender) = (Arc::clone(&self.engine), self.sender.clone());
        let epics: BTreeSet<String> = self
            .draft
            .breakdown()
            .map(|found| found.epics.iter().map(|epic| epic.id.clone()).collect())
            .unwrap_or_default();
        self.spawn_worker((part.clone(), call), move || {
            let answer = call::read_call_answer(&world, (&part, call), &epics, &ending);
            let input = DraftInput::Ended { part, call, ending, claim, answer };
            let _ = sender.send(DraftLoopEvent::Input(input));
        });
        Ok(())
    }
}

impl DraftCallReader {
    fn handle_agent_event(
        &mut self,
        mark: u64,
        event: AgentEvent,
        face: &mut dyn DraftObserver,
    ) -> Option<DraftInput> {
        let wait = |at: Option<i64>| at.map(|at| Time(at).since_ms(Time(clock::now_ms())));
        let word = match event {
            AgentEvent::Usage(usage) => DraftAgentWord::Usage(usage),
            AgentEvent::RateLimited { retry_after_ms, reset_at_ms, message, retrying } => {
                if !retrying {
                    self.merge_claim(AgentClaim::RateLimited {});
                }
                let wait_ms = retry_after_ms.or_else(|| wait(reset_at_ms));
                DraftAgentWord::RateLimited { wait_ms, message, retrying }
            }
            AgentEvent::QuotaExhausted { reset_at_ms, window, message } => {
                self.merge_claim(AgentClaim::QuotaExhausted {});
                let message =
                    if window.is_empty() { message } else { format!("{window}: {message}") };
                DraftAgentWord::QuotaExhausted { wait_ms: wait(reset_at_ms), message }
            }
            AgentEvent::Failed { fault, message, help } => {
                self.merge_claim(AgentClaim::Failed { fault, message, help });
                return None;
            }
            AgentEvent::Blocked { reason } => {
                self.merge_claim(AgentClaim::Blocked { reason });
                return None;
            }
            AgentEvent::Progress { text, tool } => {
                let text = tool.map_or(text.clone(), |tool| format!("{tool} {text}"));
                face.on_progress(&self.part, &text);
                return None;
            }
            // Nobody answers questions here, and an answer speaks for itself.
            AgentEvent::Session { .. }
            | AgentEvent::Ask { .. }
            | AgentEvent::ClaimedDone { .. }
            | AgentEvent::Issue { .. }
            | AgentEvent::ProposeTask { .. }
            | AgentEvent::NothingToDo { .. } => return None,
        };
        Some(DraftInput::Said { part: self.part.clone(), call: self.call, mark, word })
    }

    fn merge_claim(&mut self, new: AgentClaim) {
        self.claim = combine_claims(std::mem::take(&mut self.claim), new);
    }
}

/// The hash of a file's bytes.
pub fn hash_bytes(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The newest draft of this text, or a new name.
fn find_or_create_run_id(
    reader: &dyn JournalReader,
    request: &DraftRequest,
) -> Result<RunId, DraftError> {
    let way = if request.rules.single_pass { "whole" } else { "plan" };
    let hash = hash_bytes(request.prd.as_bytes());
    let start = format!("{way}-{}-", &hash[..HASH_DIGITS]);
    let runs = reader.list_runs()?;
    let numbers = runs.iter().filter_map(|row| row.run.strip_prefix(&start)?.parse::<u32>().ok());
    let newest = numbers.max();
    let number = match (newest, request.fresh) {
        (Some(number), false) => number,
        (newest, _) => newest.unwrap_or(0) + 1,
    };
    Ok(RunId::new(format!("{start}{number}")))
}

fn encode_draft_fact(run: &RunId, fact: &DraftFact, at: Time) -> NewJournalRecord {
    let body = serde_json::to_value(fact).expect("BUG: facts are plain data");
    let kind = body.get("type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
    NewJournalRecord {
        at_ms: at.0,
        run: run.to_string(),
        kind,
        task: fact.part().map(ToString::to_string),
        body: body.to_string(),
    }
}

fn fold_draft(
    reader: &dyn JournalReader,
    run: &RunId,
    rules: DraftRules,
) -> Result<Draft, DraftError> {
    let mut draft = Draft::new(rules);
    let mut last = 0;
    loop {
        let records = reader.read_run(run.as_str(), last, 1_024)?;
        let Some(end) = records.last() else { return Ok(draft) };
        last = end.seq;
        for record in &records {
            let wrong = |why: String| DraftError::Fact { seq: record.seq, why };
            let fact: DraftFact =
                serde_json::from_str(&record.body).map_err(|error| wrong(error.to_string()))?;
            draft.apply(&fact, Time(record.at_ms)).map_err(|error| wrong(error.to_string()))?;
        }
    }
}

/// Every fact of every draft, as the cost ledger reads them.
pub fn read_all_draft_facts(
    layout: &RepoLayout,
) -> Result<Vec<(mainstem_core::fact::Fact, Time)>, DraftError> {
    let Some(reader) = run_journal::open_journal_reader(&*layout.draft_store())? else {
        return Ok(Vec::new());
    };
    let mut facts = Vec::new();
    reader.for_each(0, &mut |record| {
        // A fact of a newer version that is about money would be missing from an older one's sum as well.
        if let Ok(fact) = serde_json::from_str::<DraftFact>(&record.body) {
            facts.extend(
                mainstem_planner::draft::to_cost_fact(&fact).map(|f| (f, Time(record.at_ms))),
            );
        }
        Ok(())
    })?;
    Ok(facts)
}

/// Drafts of other texts may still have agents at work, for whose answers nobody will ask.
fn end_other_drafts(layout: &RepoLayout, ours: &RunId) -> std::io::Result<()> {
    for draft in list_folders(&layout.drafts_dir())? {
        if draft.file_name().is_some_and(|name| name == ours.as_str()) {
            continue;
        }
        for part in list_folders(&draft)? {
            for call in list_folders(&part)? {
                process::end_job(&call.join(call::JOB))?;
            }
        }
    }
    Ok(())
}

fn list_folders(place: &std::path::Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
