//! Drafting a plan from a PRD: journals what `mainstem_planner::draft` decides, has agents asked under the
//! same supervisors as tasks, and feeds their answers back until it rests.
//!
//! Its journal is a file of its own beside the run's, under a lock of its own: a plan can be drafted while
//! a run goes on. Limits of providers are told in both directions. Decides nothing, prints nothing.

mod call;
pub mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use mainstem_agents::{AgentEvent, Parser, adapter};
use mainstem_core::config::Settings;
use mainstem_core::fact::Claim;
use mainstem_core::id::{RunId, Time};
use mainstem_core::policy::supersede;
use mainstem_host::git::Repo;
use mainstem_host::lock::{Acquired, LockError, OwnerLock};
use mainstem_host::process::{self, Stop, Stream, Watch, WatchEvent};
use mainstem_host::{clock, crash, private};
use mainstem_planner::draft::{Draft, DraftFact, Input, Parked, Part, Rest, Rules, Want, Word};
use mainstem_store::{Journal, NewRecord, Reader, SqliteJournal, StoreError};
use sha2::{Digest, Sha256};

use crate::ledger::{self, LedgerError};
use crate::paths::Layout;
use crate::shared_limits::SharedLimits;
use crate::walls::{self, WallError, Walls};
use crate::world::World;

pub use call::output_name;
pub(crate) use call::printed;

/// How often faces may redraw and other people's limits are looked at when nothing happens.
const TICK: Duration = Duration::from_millis(200);
/// Digits of a PRD's hash in the name of its draft.
const HASH_DIGITS: usize = 12;

/// Why a draft cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// Another process drafts in this repository.
    #[error("another draft is active in this repository (pid {pid})")]
    Owned {
        /// Its process.
        pid: String,
    },
    /// The lock could not be tried.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal of drafts cannot be written.
    #[error("cannot read the journal of drafts: {0}")]
    Store(#[from] StoreError),
    /// The run's journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// There is no wall for agents to work behind.
    #[error(transparent)]
    Wall(#[from] WallError),
    /// The journal of drafts holds what does not fit.
    #[error("cannot use fact {seq} of the journal of drafts: {why}; start over with --fresh")]
    Fact {
        /// Its place.
        seq: u64,
        /// Why.
        why: String,
    },
    /// The state folder cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// What to draft from.
#[derive(Debug, Clone)]
pub struct DraftRequest {
    /// The PRD.
    pub prd: String,
    /// How.
    pub rules: Rules,
    /// How hard models should think, if that was chosen.
    pub effort: Option<String>,
    /// Take nothing over from an earlier draft of the same PRD.
    pub fresh: bool,
}

/// A fact of a draft, on its way to people.
#[derive(Debug, Clone, Copy)]
pub struct DraftShown<'a> {
    /// Its place in the journal of drafts.
    pub seq: u64,
    /// When it happened.
    pub at: Time,
    /// What happened.
    pub fact: &'a DraftFact,
}

/// Shows a draft as it goes.
pub trait DraftFace {
    /// Something happened and is durable.
    fn fact(&mut self, shown: &DraftShown<'_>, draft: &Draft);
    /// What an agent is at.
    fn progress(&mut self, part: &Part, text: &str);
    /// Time to redraw.
    fn tick(&mut self, draft: &Draft);
}

/// Something for the loop.
#[derive(Debug)]
enum DraftEvent {
    Input(Input),
    Follow { part: Part, call: u32, dir: PathBuf },
    Watch(WatchEvent),
    Interrupt,
}

/// A way to interrupt a draft from a signal.
#[derive(Debug, Clone)]
pub struct DraftHandle(Sender<DraftEvent>);

impl DraftHandle {
    /// Stop: once gently, twice at once.
    pub fn interrupt(&self) {
        // A draft that has ended needs no interrupting.
        let _ = self.0.send(DraftEvent::Interrupt);
    }
}

/// A call whose output is read.
struct Followed {
    part: Part,
    call: u32,
    parser: Box<dyn Parser>,
    claim: Claim,
}

/// A draft that is ours until this is dropped.
pub struct DraftSession {
    world: Arc<World>,
    request: Arc<DraftRequest>,
    journal: SqliteJournal,
    epoch: u64,
    draft: Draft,
    events: Receiver<DraftEvent>,
    sender: Sender<DraftEvent>,
    shared: Option<SharedLimits>,
    _lock: OwnerLock,
}

impl DraftSession {
    /// Takes over the newest draft of this PRD, or begins one. What other drafts left running is ended.
    pub fn open(
        repo: Repo,
        settings: Settings,
        (exe, env): (PathBuf, Vec<(String, String)>),
        request: DraftRequest,
    ) -> Result<Self, DraftError> {
        let layout = Layout::new(&repo, settings.workspace.root.as_deref());
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| DraftError::Io { what, source }
        };
        private::make(&layout.plans()).map_err(io("cannot create the state folder"))?;
        let body = serde_json::json!({
            "pid": std::process::id(), "started_at_ms": clock::now_ms(),
        });
        let lock = match OwnerLock::acquire(&layout.plans_lock(), &body)? {
            Acquired::Held(lock) => lock,
            Acquired::Busy { holder } => {
                return Err(DraftError::Owned { pid: holder["pid"].to_string() });
            }
        };
        let mut journal = SqliteJournal::open(layout.plans_journal())?;
        let epoch = journal.take_over()?;
        crash::point("draft.taken");
        let reader = journal.reader()?;
        let name = name_of(&reader, &request)?;
        let draft = fold(&reader, &name, request.rules.clone())?;
        end_others(&layout, &name).map_err(io("cannot stop an agent of another draft"))?;
        let kind = walls::choose(&settings.sandbox, &exe)?;
        let made = |kind| Walls::new(kind, &settings, (&repo, &layout), (&exe, &env));
        let walls = kind.map(made).transpose()?;
        let world = World::for_planning(repo, layout, settings, name, (exe, env), walls);
        world.settle();
        let (sender, events) = mpsc::channel();
        let (world, request) = (Arc::new(world), Arc::new(request));
        let shared = SharedLimits::of_user(&world.env, &world.settings);
        Ok(Self { world, request, journal, epoch, draft, events, sender, shared, _lock: lock })
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
    pub fn name(&self) -> &RunId {
        &self.world.run
    }
    /// Where its prompts, logs and answers are.
    pub fn folder(&self) -> PathBuf {
        self.world.layout.plans().join(self.world.run.as_str())
    }

    /// Whether a plan of these bytes was written to this path by a draft: then nobody has changed it since.
    pub fn has_written(&self, path: &str, bytes: &[u8]) -> Result<bool, DraftError> {
        let reader = self.journal.reader()?;
        let (mut found, wanted) = (false, hash_of(bytes));
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
    pub fn note_written(
        &mut self,
        path: &str,
        text: &str,
        tasks: usize,
        face: &mut dyn DraftFace,
    ) -> Result<(), DraftError> {
        let (path, hash) = (path.to_owned(), hash_of(text.as_bytes()));
        self.take(Input::Written { path, hash, tasks }, face)
    }

    /// Asks until nothing is left to ask.
    pub fn run(&mut self, face: &mut dyn DraftFace) -> Result<Rest, DraftError> {
        let seen = self.sender.clone();
        let watch = Watch::start(move |event| {
            // The loop ends before its watcher: then nobody needs the news.
            let _ = seen.send(DraftEvent::Watch(event));
        })
        .map_err(|source| DraftError::Io { what: "cannot watch agents".to_owned(), source })?;
        let mut followed: BTreeMap<u64, Followed> = BTreeMap::new();
        let mut others = limits::OfRuns::open(&self.world.layout, &self.world.settings)?;
        let mut known = others.news()?;
        known.extend(limits::of_drafts(&self.journal.reader()?, Time(clock::now_ms()))?);
        known.extend(self.limits_of_others());
        self.take(Input::Begin(known), face)?;
        face.tick(&self.draft);
        let mut interrupts = 0;
        loop {
            for limit in others.news()?.into_iter().chain(self.limits_of_others()) {
                self.take(Input::Park(limit), face)?;
            }
            if let Some(rest) = self.draft.rest() {
                return Ok(rest);
            }
            match self.events.recv_timeout(TICK) {
                Ok(DraftEvent::Input(input)) => self.take(input, face)?,
                Ok(DraftEvent::Follow { part, call, dir }) => {
                    self.follow(&mut followed, &watch, (part, call, dir));
                }
                Ok(DraftEvent::Watch(seen)) => self.seen(&mut followed, seen, face)?,
                Ok(DraftEvent::Interrupt) => {
                    interrupts += 1;
                    self.take(Input::Interrupt, face)?;
                    if interrupts > 2 {
                        return Ok(Rest::Interrupted);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.take(Input::Tick, face)?;
                    face.tick(&self.draft);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(Rest::Interrupted),
            }
        }
    }

    /// Limits that the user's other repositories met since this was last asked.
    fn limits_of_others(&mut self) -> Vec<Parked> {
        let now = Time(clock::now_ms());
        self.shared.as_mut().map(|shared| shared.news(now)).unwrap_or_default()
    }

    /// Steps, writes down what that led to, shows it, then fulfils what is wanted.
    fn take(&mut self, input: Input, face: &mut dyn DraftFace) -> Result<(), DraftError> {
        let now = Time(clock::now_ms()).max(self.draft.now());
        let facts = self.draft.step(input, now);
        if !facts.is_empty() {
            let records: Vec<NewRecord> =
                facts.iter().map(|fact| encode(&self.world.run, fact, now)).collect();
            crash::point("draft.before");
            let last = self.journal.append(self.epoch, &records)?;
            crash::point("draft.after");
            let first = last + 1 - records.len() as u64;
            for (seq, fact) in (first..).zip(&facts) {
                face.fact(&DraftShown { seq, at: now, fact }, &self.draft);
                limits::tell(&self.world.layout, self.shared.as_mut(), fact);
            }
        }
        for want in self.draft.wants() {
            self.fulfil(want);
        }
        Ok(())
    }

    fn fulfil(&self, want: Want) {
        match want {
            Want::Call { part, call } => {
                let order = call::CallOrder::new(&self.draft, &self.request, (&part, call));
                let (world, sender) = (Arc::clone(&self.world), self.sender.clone());
                self.worker((part.clone(), call), move || match order.start(&world) {
                    Ok(dir) => {
                        let _ = sender.send(DraftEvent::Follow { part, call, dir });
                    }
                    Err(why) => {
                        let _ = sender.send(DraftEvent::Input(call::not_started(part, call, why)));
                    }
                });
            }
            Want::Stop { part, call, now } => {
                let how = if now { Stop::Kill } else { Stop::Term };
                let dir = call::job_of(&self.world, &part, call);
                self.worker((part, call), move || {
                    // One that cannot be reached is asked for again, at the latest by the next life.
                    let _ = process::stop(&dir, how);
                });
            }
        }
    }

    /// Runs something for one call. If it breaks, that is this call's failure and nobody else's.
    fn worker(&self, (part, call): (Part, u32), work: impl FnOnce() + Send + 'static) {
        let sender = self.sender.clone();
        let job = call::job_of(&self.world, &part, call);
        let guarded = move || {
            if let Err(broken) = call::guarded(work) {
                // Its agent, if it has one, must not go on unseen. At the latest the next life ends it.
                let _ = process::end(&job);
                let _ = sender.send(DraftEvent::Input(call::broken(part, call, broken)));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("plan".to_owned()).spawn(guarded) {
            // Without a thread the call stays outstanding: the next life finds it.
            drop(error);
            let _ = self.sender.send(DraftEvent::Interrupt);
        }
    }

    fn follow(
        &self,
        followed: &mut BTreeMap<u64, Followed>,
        watch: &Watch,
        (part, call, dir): (Part, u32, PathBuf),
    ) {
        let agent = self.draft.parts().get(&part).map(|state| state.agent.clone());
        let kind = agent.and_then(|name| Some(self.world.settings.agents.get(&name)?.kind.clone()));
        let Ok(adapter) = adapter(kind.as_deref().unwrap_or_default()) else { return };
        let key = followed.keys().next_back().map_or(0, |last| last + 1);
        followed.insert(key, Followed { part, call, parser: adapter.parser(), claim: Claim::None });
        watch.watch(key, dir, 0);
    }

    fn seen(
        &mut self,
        followed: &mut BTreeMap<u64, Followed>,
        seen: WatchEvent,
        face: &mut dyn DraftFace,
    ) -> Result<(), DraftError> {
        let (key, ending) = match seen {
            WatchEvent::Lines { key, lines } => {
                let Some(call) = followed.get_mut(&key) else { return Ok(()) };
                let mut inputs = Vec::new();
                for line in lines.into_iter().filter(|line| line.stream == Stream::Stdout) {
                    for (n, event) in call.parser.line(&line.text).into_iter().enumerate() {
                        let mark = (line.offset << 4) | (n as u64).min(15);
                        inputs.extend(call.hear(mark, event, face));
                    }
                }
                return inputs.into_iter().try_for_each(|input| self.take(input, face));
            }
            WatchEvent::Gap { .. } => return Ok(()),
            WatchEvent::Ended { key, exit } => (key, crate::driver::ending_of(exit.ending)),
            WatchEvent::Vanished { key } => (key, mainstem_core::fact::Ending::Vanished {}),
        };
        let Some(Followed { part, call, claim, .. }) = followed.remove(&key) else { return Ok(()) };
        let (world, sender) = (Arc::clone(&self.world), self.sender.clone());
        let epics: BTreeSet<String> = self
            .draft
            .breakdown()
            .map(|found| found.epics.iter().map(|epic| epic.id.clone()).collect())
            .unwrap_or_default();
        self.worker((part.clone(), call), move || {
            let answer = call::answer_of(&world, (&part, call), &epics, &ending);
            let input = Input::Ended { part, call, ending, claim, answer };
            let _ = sender.send(DraftEvent::Input(input));
        });
        Ok(())
    }
}

impl Followed {
    fn hear(&mut self, mark: u64, event: AgentEvent, face: &mut dyn DraftFace) -> Option<Input> {
        let wait = |at: Option<i64>| at.map(|at| Time(at).since_ms(Time(clock::now_ms())));
        let word = match event {
            AgentEvent::Usage(usage) => Word::Usage(usage),
            AgentEvent::RateLimited { retry_after_ms, reset_at_ms, message, retrying } => {
                if !retrying {
                    self.claims(Claim::RateLimited {});
                }
                let wait_ms = retry_after_ms.or_else(|| wait(reset_at_ms));
                Word::RateLimited { wait_ms, message, retrying }
            }
            AgentEvent::QuotaExhausted { reset_at_ms, window, message } => {
                self.claims(Claim::QuotaExhausted {});
                let message =
                    if window.is_empty() { message } else { format!("{window}: {message}") };
                Word::QuotaExhausted { wait_ms: wait(reset_at_ms), message }
            }
            AgentEvent::Failed { fault, message, help } => {
                self.claims(Claim::Failed { fault, message, help });
                return None;
            }
            AgentEvent::Blocked { reason } => {
                self.claims(Claim::Blocked { reason });
                return None;
            }
            AgentEvent::Progress { text, tool } => {
                let text = tool.map_or(text.clone(), |tool| format!("{tool} {text}"));
                face.progress(&self.part, &text);
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
        Some(Input::Said { part: self.part.clone(), call: self.call, mark, word })
    }

    fn claims(&mut self, new: Claim) {
        self.claim = supersede(std::mem::take(&mut self.claim), new);
    }
}

/// The hash of a file's bytes.
pub fn hash_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The newest draft of this text, or a new name.
fn name_of(reader: &dyn Reader, request: &DraftRequest) -> Result<RunId, DraftError> {
    let way = if request.rules.single_pass { "whole" } else { "plan" };
    let hash = hash_of(request.prd.as_bytes());
    let start = format!("{way}-{}-", &hash[..HASH_DIGITS]);
    let runs = reader.runs()?;
    let numbers = runs.iter().filter_map(|row| row.run.strip_prefix(&start)?.parse::<u32>().ok());
    let newest = numbers.max();
    let number = match (newest, request.fresh) {
        (Some(number), false) => number,
        (newest, _) => newest.unwrap_or(0) + 1,
    };
    Ok(RunId::new(format!("{start}{number}")))
}

fn encode(run: &RunId, fact: &DraftFact, at: Time) -> NewRecord {
    let body = serde_json::to_value(fact).expect("BUG: facts are plain data");
    let kind = body.get("type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
    NewRecord {
        at_ms: at.0,
        run: run.to_string(),
        kind,
        task: fact.part().map(ToString::to_string),
        body: body.to_string(),
    }
}

fn fold(reader: &dyn Reader, run: &RunId, rules: Rules) -> Result<Draft, DraftError> {
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
pub fn spent(layout: &Layout) -> Result<Vec<(mainstem_core::fact::Fact, Time)>, DraftError> {
    let Some(reader) = ledger::open_reader(&layout.plans_journal())? else { return Ok(Vec::new()) };
    let mut facts = Vec::new();
    reader.for_each(0, &mut |record| {
        // A fact of a newer version that is about money would be missing from an older one's sum as well.
        if let Ok(fact) = serde_json::from_str::<DraftFact>(&record.body) {
            facts.extend(mainstem_planner::draft::ledger(&fact).map(|f| (f, Time(record.at_ms))));
        }
        Ok(())
    })?;
    Ok(facts)
}

/// Drafts of other texts may still have agents at work, for whose answers nobody will ask.
fn end_others(layout: &Layout, ours: &RunId) -> std::io::Result<()> {
    for draft in folders(&layout.plans())? {
        if draft.file_name().is_some_and(|name| name == ours.as_str()) {
            continue;
        }
        for part in folders(&draft)? {
            for call in folders(&part)? {
                process::end(&call.join(call::JOB))?;
            }
        }
    }
    Ok(())
}

fn folders(place: &std::path::Path) -> std::io::Result<Vec<PathBuf>> {
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
