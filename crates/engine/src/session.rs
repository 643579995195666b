//! Taking a repository over: the lock, the journal, the run; then a life of the engine, or one
//! command to a resting run.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};

use mainstem_agents::Template;
use mainstem_core::config::{LandMode, Settings, Waits};
use mainstem_core::fact::Fact;
use mainstem_core::graph::Graph;
use mainstem_core::id::{RunId, TaskIx, Time};
use mainstem_core::machine::{Command, Input, Machine, Merger, Refusal, Rest};
use mainstem_core::phase::Phase;
use mainstem_core::phases::close_phases;
use mainstem_core::plan::Plan;
use mainstem_host::git::{GitError, Repo};
use mainstem_host::lock::{Acquired, LockError, OwnerLock};
use mainstem_host::{clock, crash, files};
use mainstem_store::{Journal, SqliteJournal, StoreError};
use sha2::{Digest, Sha256};

use crate::control::Control;
use crate::driver::{Driver, DriverError, Outcome, Start};
use crate::event::Event;
use crate::face::{Face, Shown};
use crate::home;
use crate::hub::{Hub, HubError, line_of};
use crate::ledger::{self, LedgerError, Written};
use crate::lessons::Shelf;
use crate::paths::Layout;
use crate::prompts::{self, PromptError};
use crate::prune::{self, Due, Prune, PruneError};
use crate::threads::Threads;
use crate::tools;
use crate::upstream::{Upstream, UpstreamError};
use crate::walls::{self, WallError, Walls};
use crate::world::{Made, World};

/// Why a repository could not be taken over or worked on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Git said no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Somebody else owns it.
    #[error("another engine works on this repository (process {pid} on {host}, since {since})")]
    Owned {
        /// Its process.
        pid: String,
        /// Its machine.
        host: String,
        /// Since when.
        since: String,
    },
    /// The lock could not be tried.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The journal cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Snapshots could not be pruned.
    #[error(transparent)]
    Prune(#[from] PruneError),
    /// The run began with another branch or mode.
    #[error(
        "this run lands on {0}; with other settings of [land] another one must begin: mainstem run --new PLAN"
    )]
    OtherTarget(String),
    /// Phases that need each other.
    #[error("the phases of the plan cannot follow each other: {0}")]
    Phases(String),
    /// There is no forge to go to.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Nothing can be pushed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The template of prompts cannot be used.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The engine broke off.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The state folder cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The state belongs to another repository, of which this is a copy.
    #[error(
        "this repository is a copy of {}, and so is its Mainstem state: the agents and workspaces \
         in it are the original's",
        of.display()
    )]
    Copied {
        /// The original's git folder.
        of: PathBuf,
        /// The copied state.
        state: PathBuf,
    },
    /// A path that facts and records could not name.
    #[error("the path {path:?} is not UTF-8; move the repository to one that is")]
    OddPath {
        /// The path.
        path: PathBuf,
    },
    /// No wall as the settings want it.
    #[error(transparent)]
    Wall(#[from] WallError),
    /// There is nothing to run.
    #[error("there is no run in this repository yet")]
    NoRun,
    /// Another run was asked for while attempts of the present one are under way.
    #[error("attempts of {0} are still under way")]
    Unfinished(RunId),
    /// A branch of the user's leaves no room for ours.
    #[error("the branch `{0}` stands in the way of the branches mainstem/<task>")]
    NoBranchRoom(String),
    /// Tasks that have begun are missing from the new plan.
    #[error("the new plan drops tasks that have begun: {}", .0.join(", "))]
    DropsStarted(Vec<String>),
    /// A task or epic to run that the plan does not have.
    #[error("{0}")]
    Refused(Refusal),
}

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// A plan; the adopted one if none.
    pub plan: Option<Plan>,
    /// Start another run even if one exists.
    pub new: bool,
    /// Only these tasks and what they need.
    pub tasks: Vec<String>,
    /// Only tasks of these epics and what they need.
    pub epics: Vec<String>,
    /// Agents at once, if said on the command line.
    pub jobs: Option<u32>,
    /// Start no agent: only bring pull requests on.
    pub merger: Option<Merger>,
    /// Somebody is there to decide on work that waits for a person.
    pub attended: bool,
}

/// A repository that is ours until this is dropped.
#[derive(Debug)]
pub struct Session {
    repo: Repo,
    layout: Layout,
    settings: Settings,
    journal: SqliteJournal,
    epoch: u64,
    exe: PathBuf,
    env: Vec<(String, String)>,
    written: Vec<Written>,
    /// The folder of workspaces, once something is to be made there.
    root: Option<OwnerLock>,
    /// Found out once, before anything starts.
    walls: Option<Option<Walls>>,
    _lock: OwnerLock,
}

/// A way to reach a running engine from signals and other threads.
#[derive(Debug, Clone)]
pub struct Handle(Sender<Event>);

impl Handle {
    /// Stop: once gently, twice at once, three times without waiting.
    pub fn interrupt(&self) {
        // An engine that has ended needs no interrupting.
        let _ = self.0.send(Event::Interrupt);
    }
}

/// The line between an engine and its handles, made before the engine.
#[derive(Debug)]
pub struct Line(Sender<Event>, Receiver<Event>);

impl Line {
    /// A new one.
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self(sender, receiver)
    }
    /// A way to reach the engine.
    pub fn handle(&self) -> Handle {
        Handle(self.0.clone())
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

/// A plan's hash, over the plan as adopted: comments and order of keys do not count.
pub fn plan_hash(plan: &Plan) -> String {
    let text = serde_json::to_string(plan).expect("BUG: a plan is plain data");
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Session {
    /// Takes the repository over, or says who owns it.
    pub fn open(
        repo: Repo,
        settings: Settings,
        exe: PathBuf,
        env: Vec<(String, String)>,
    ) -> Result<Self, SessionError> {
        let layout = Layout::new(&repo, settings.workspace.root.as_deref());
        for path in [layout.state(), layout.root(), repo.dir()] {
            if path.to_str().is_none() {
                return Err(SessionError::OddPath { path: path.to_path_buf() });
            }
        }
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| SessionError::Io { what, source }
        };
        std::fs::create_dir_all(layout.state()).map_err(io("the state folder cannot be made"))?;
        let body = serde_json::json!({
            "pid": std::process::id(),
            "host": host_name(),
            "started_at_ms": clock::now_ms(),
            "version": env!("CARGO_PKG_VERSION"),
            "socket": layout.socket(),
        });
        let lock = match OwnerLock::acquire(&layout.lock(), &body)? {
            Acquired::Held(lock) => lock,
            Acquired::Busy { holder } => return Err(owned(&holder)),
        };
        let copied = home::settle(repo.common_dir(), layout.state())
            .map_err(io("it cannot be noted whose the state folder is"))?;
        if let Some(of) = copied {
            return Err(SessionError::Copied { of, state: layout.state().to_path_buf() });
        }
        let mut journal = SqliteJournal::open(layout.journal())?;
        let epoch = journal.take_over()?;
        crash::point("session.taken");
        let written = Vec::new();
        Ok(Self {
            repo,
            layout,
            settings,
            journal,
            epoch,
            exe,
            env,
            written,
            root: None,
            walls: None,
            _lock: lock,
        })
    }

    /// Takes the folder of workspaces, so that no other repository's engine works in it.
    pub fn claim_root(&mut self) -> Result<(), SessionError> {
        self.root = Some(self.layout.claim()?);
        crash::point("session.claimed");
        Ok(())
    }

    /// The walls that jobs of this session stand behind, tried out at the first call; none if the
    /// settings say so.
    pub fn walls(&mut self) -> Result<Option<&Walls>, SessionError> {
        if self.walls.is_none() {
            let kind = walls::choose(&self.settings.sandbox, &self.exe)?;
            let place = (&self.repo, &self.layout);
            let made = |kind| Walls::new(kind, &self.settings, place, (&self.exe, &self.env));
            self.walls = Some(kind.map(made).transpose()?);
        }
        Ok(self.walls.as_ref().and_then(Option::as_ref))
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
    /// The repository.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// The newest run, folded.
    pub fn newest(&self) -> Result<Option<(RunId, Machine)>, SessionError> {
        Ok(ledger::newest(&self.journal.reader()?, &self.settings)?)
    }

    /// Writes down what a step outside a life decided.
    pub fn record(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        input: Input,
    ) -> Result<Option<Result<String, Refusal>>, SessionError> {
        let now = Time(clock::now_ms());
        let (written, reply) =
            ledger::record(&mut self.journal, self.epoch, run, machine, (input, now))?;
        self.written.extend(written);
        Ok(reply)
    }

    /// Writes one fact down, outside a life of the engine.
    pub fn write(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        fact: &Fact,
    ) -> Result<(), SessionError> {
        let at = Time(clock::now_ms());
        machine.apply(fact, at).map_err(|source| {
            SessionError::Ledger(LedgerError::Order { seq: 0, source: Box::new(source) })
        })?;
        let record = ledger::encode(run, fact, at);
        let seq = self.journal.append(self.epoch, std::slice::from_ref(&record))?;
        self.written.push(Written { seq, at, fact: fact.clone(), body: record.body });
        Ok(())
    }

    /// The snapshots that the policy lets go.
    pub fn due(&self, run: &RunId, machine: &Machine) -> Result<Due, SessionError> {
        let reader = self.journal.reader()?;
        let (keep_ms, now) = (self.settings.snapshot_keep_ms, Time(clock::now_ms()));
        let newest = (run, machine);
        Ok(Prune { repo: &self.repo, reader: &reader, newest, keep_ms, now }.due()?)
    }

    /// Lets them go, after it is written down where they were.
    pub fn prune(&mut self, run: &RunId, machine: &mut Machine) -> Result<Due, SessionError> {
        let due = self.due(run, machine)?;
        if due.is_empty() {
            return Ok(due);
        }
        let facts = prune::facts_of(&due, prune::WHY);
        for fact in &facts {
            self.write(run, machine, fact)?;
        }
        prune::remove(&self.repo, &facts)?;
        Ok(due)
    }

    /// Finds or starts the run and brings its plan up to date.
    pub fn adopt(&mut self, request: &RunRequest) -> Result<(RunId, Machine), SessionError> {
        let newest = self.newest()?;
        if let (true, Some((run, machine))) = (request.new, &newest)
            && machine.tasks().active().next().is_some()
        {
            // Its agents may be alive, and its workspaces are where the new run's would be.
            return Err(SessionError::Unfinished(run.clone()));
        }
        let existing = newest.filter(|_| !request.new);
        let (run, mut machine) = match (existing, &request.plan) {
            (Some(found), _) => found,
            (None, None) => return Err(SessionError::NoRun),
            (None, Some(_)) => {
                let target = self.target()?;
                let base = self.repo.ensure_first_commit(&target)?;
                let run = new_run_id();
                let mut machine = Machine::new(self.settings.clone());
                self.record(&run, &mut machine, Input::StartRun { target, base })?;
                (run, machine)
            }
        };
        if let Some(plan) = &request.plan {
            let mut plan = machine.with_accepted(plan.clone());
            if self.settings.land.mode == LandMode::PhasePr {
                plan = close_phases(plan, self.settings.run.agent.is_some());
                Graph::new(&plan).map_err(|error| SessionError::Phases(error.to_string()))?;
            }
            let hash = plan_hash(&plan);
            if hash != machine.plan_hash() {
                check_dropped(&machine, &plan)?;
                let plan = Box::new(plan);
                self.record(&run, &mut machine, Input::AdoptPlan { plan, hash })?;
            }
        } else if machine.revision() == 0 {
            return Err(SessionError::NoRun);
        }
        for limit in crate::draft::limits::for_run(&self.layout, &machine) {
            self.record(&run, &mut machine, limit)?;
        }
        Ok((run, machine))
    }

    /// Where a new run's work lands, here.
    fn target(&self) -> Result<String, SessionError> {
        let branch = match &self.settings.land.branch {
            Some(branch) => branch.clone(),
            None => self.repo.default_branch()?,
        };
        let by_phase = self.settings.land.mode == LandMode::PhasePr;
        Ok(if by_phase { line_of(&branch) } else { branch })
    }

    /// The forge, if work lands there, and its branch as it is now.
    fn reach_forge(&self) -> Result<Option<Hub>, SessionError> {
        if !self.settings.land.mode.by_pull() {
            return Ok(None);
        }
        let hub = Hub::connect(&self.repo, &self.settings, &self.env)?;
        let tip = hub.fetch_target(&self.repo)?;
        if self.settings.land.mode == LandMode::PhasePr {
            hub.make_line(&self.repo, &tip)?;
        }
        Ok(Some(hub))
    }

    /// The remote that landings are pushed to, and what is to be said of it.
    fn reach_upstream(
        &self,
        request: &RunRequest,
    ) -> Result<(Option<Upstream>, Option<String>), SessionError> {
        if self.settings.land.push.is_none() {
            return Ok((None, None));
        }
        let begun = self.newest()?.filter(|_| !request.new);
        let target = match &begun {
            Some((_, machine)) => machine.target().to_owned(),
            None => self.target()?,
        };
        Ok(Upstream::reach(&self.repo, &self.settings, &target, begun.is_some())?)
    }

    /// A run goes on in the way that it began: what has landed is where that says.
    fn same_way(&self, machine: &Machine) -> Result<(), SessionError> {
        let began = machine.target().to_owned();
        match !self.settings.land.mode.by_pull() || began == self.target()? {
            true => Ok(()),
            false => Err(SessionError::OtherTarget(began)),
        }
    }

    /// Runs to rest.
    pub fn run(
        mut self,
        request: &RunRequest,
        line: Line,
        face: &mut dyn Face,
        ready: &mut dyn FnMut(&RunId, &Machine),
    ) -> Result<(Outcome, Machine, RunId), SessionError> {
        if let Some(branch) = self.repo.branch_room("mainstem")? {
            return Err(SessionError::NoBranchRoom(branch));
        }
        let template = prompts::template(Some(&self.repo), &self.settings)?;
        let walls = self.walls()?.cloned();
        let hub = self.reach_forge()?;
        let (upstream, trouble) = self.reach_upstream(request)?;
        let (run, mut machine) = self.adopt(request)?;
        self.same_way(&machine)?;
        let scope = scope_of(&machine, request)?;
        equip(&mut machine, request);
        self.claim_root()?;
        self.sweep()?;
        // A checkout that cannot be brought along now is told of at the next landing.
        let _ = self.repo.catch_up(machine.target());
        self.prune_or_say(&run, &mut machine)?;
        if let Some(message) = trouble {
            self.record(&run, &mut machine, Input::Notice { task: None, message })?;
        }
        let Line(sender, receiver) = line;
        let control = {
            let deaf_to = walls.as_ref().map(|_| self.layout.state().to_path_buf());
            let what = "the control socket cannot be opened".to_owned();
            Control::listen(&self.layout.socket(), sender.clone(), deaf_to)
                .map_err(|source| SessionError::Io { what, source })?
        };
        let mut world = self.world(&run, machine.target(), template, walls);
        world.hub = hub;
        world.upstream = upstream;
        world.settle();
        ready(&run, &machine);
        for Written { seq, at, fact, body } in self.written.drain(..) {
            face.fact(&Shown { seq, at, run: &run, fact: &fact, body: &body }, &machine);
        }
        let begin = Input::Begin {
            epoch: self.epoch,
            pid: std::process::id(),
            host: host_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scope,
        };
        let mut outside = Threads::new(world, (sender, receiver)).map_err(|source| {
            SessionError::Io { what: "jobs cannot be watched".to_owned(), source }
        })?;
        let start =
            Start { run: run.clone(), machine, journal: Box::new(self.journal), epoch: self.epoch };
        let mut driver = Driver::new(start, &mut outside, face);
        let outcome = driver.run(begin)?;
        let machine = driver.machine().clone();
        drop(driver);
        drop(outside);
        drop(control);
        if let Outcome::Rested(_) = outcome {
            end_leftover_jobs(&self.layout, &run, &machine);
        }
        let rested = matches!(outcome, Outcome::Rested(rest) if rest != Rest::Interrupted);
        tidy_up(&self.repo, &self.layout, rested || machine.train().cars().is_empty());
        learn(&self.repo, &self.layout, &self.settings, machine.target());
        // What landed in this life may be due already. If not now, then at the next start.
        let _ = prune::at_rest(&self.repo, &self.layout, self.epoch, (&run, &machine));
        // An agent that was killed in a commit may have left it; so may one of the user's.
        let _ = self.repo.sweep_packed();
        Ok((outcome, machine, run))
    }

    /// The surroundings of a run's effects.
    fn world(&self, run: &RunId, target: &str, template: Template, walls: Option<Walls>) -> World {
        let learns = self.settings.lessons.learn;
        World {
            repo: self.repo.clone(),
            layout: self.layout.clone(),
            settings: self.settings.clone(),
            run: run.clone(),
            target: target.to_owned(),
            exe: self.exe.clone(),
            env: self.env.clone(),
            template,
            shelf: learns.then(|| Shelf::new(&self.repo, &self.layout, &self.settings)),
            walls,
            made: Made::default(),
            hub: None,
            upstream: None,
        }
    }

    /// One command to a run that no engine works on. Agents that are still alive are stopped if the
    /// command wants that; everything else waits for the next `run`.
    pub fn command(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        command: Command,
    ) -> Result<Result<String, Refusal>, SessionError> {
        let reply = self.record(run, machine, Input::Command(command))?;
        self.stop_unwanted(run, machine)?;
        Ok(reply.unwrap_or_else(|| Ok(String::new())))
    }

    fn stop_unwanted(&self, run: &RunId, machine: &Machine) -> Result<(), SessionError> {
        for t in machine.tasks().active() {
            let Some(current) = machine.tasks().get(t).current.as_ref() else { continue };
            let lives = matches!(
                machine.tasks().phase(t),
                Phase::Preparing | Phase::Working | Phase::Asking
            );
            if current.stop.is_none() || !lives {
                continue;
            }
            let id = &machine.plan().tasks[t.ix()].id;
            let dir = self.layout.agent_job(run, id, current.n);
            mainstem_host::process::stop(&dir, mainstem_host::process::Stop::Term).map_err(
                |source| SessionError::Io { what: format!("{id} could not be stopped"), source },
            )?;
        }
        Ok(())
    }

    /// Snapshots that cannot be pruned are no reason not to work.
    fn prune_or_say(&mut self, run: &RunId, machine: &mut Machine) -> Result<(), SessionError> {
        match self.prune(run, machine) {
            Err(error @ (SessionError::Git(_) | SessionError::Prune(_))) => {
                let message = format!("old snapshots could not be removed: {error}");
                self.record(run, machine, Input::Notice { task: None, message }).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// What a killed git or engine left lying around, swept while the lock is ours.
    fn sweep(&self) -> Result<(), SessionError> {
        self.repo.heal_after_boot()?;
        self.repo.sweep_locks(None)?;
        crash::point("session.swept");
        Ok(())
    }
}

/// A gate of a life that was killed may still run, though nobody wants its verdict now: the engine was
/// interrupted before it asked for it again, or its task was called off. Attempts whose workspace is
/// gone had their jobs ended with it.
fn end_leftover_jobs(layout: &Layout, run: &RunId, machine: &Machine) {
    for t in machine.tasks().all() {
        if let Some(current) = machine.tasks().get(t).current.as_ref().filter(|a| !a.removed) {
            // What cannot be ended now ends by itself, or with its workspace.
            let id = &machine.plan().tasks[t.ix()].id;
            let _ = crate::perform::jobs::end_all(layout, run, id, current.n);
        }
    }
}

/// Learns from the attempts of this life. If not now, then before the next attempt starts.
fn learn(repo: &Repo, layout: &Layout, settings: &Settings, target: &str) {
    if settings.lessons.learn
        && let Ok(Some(reader)) = ledger::open_reader(&layout.journal())
    {
        let _ = Shelf::new(repo, layout, settings).catch_up(&reader, repo, target);
    }
}

/// What belongs to one life: agents at once as asked for now, and the tools there are.
fn equip(machine: &mut Machine, request: &RunRequest) {
    machine.set_jobs_flag(request.jobs);
    machine.set_merger(request.merger);
    let patient = match machine.settings().gates.wait {
        Waits::Auto => request.attended,
        Waits::Always => true,
        Waits::Never => false,
    };
    machine.set_patient(patient);
    machine.set_tools(tools::key(&machine.settings().gates.verify));
}

/// At rest nothing of ours stays that nobody needs: the train's workspace, the trash, empty folders.
fn tidy_up(repo: &Repo, layout: &Layout, train_rests: bool) {
    if train_rests {
        for lane in layout.lanes() {
            // What cannot be removed now is named by `mainstem clean`.
            let _ = repo.remove_worktree(&lane, &layout.trash());
        }
    }
    let _ = files::empty_trash(&layout.trash());
    layout.leave();
}

/// A task that has begun and is not settled cannot simply vanish from the plan.
fn check_dropped(machine: &Machine, plan: &Plan) -> Result<(), SessionError> {
    let kept: std::collections::BTreeSet<&str> =
        plan.tasks.iter().map(|task| task.id.as_str()).collect();
    let dropped: Vec<String> = machine
        .tasks()
        .all()
        .filter(|t| machine.tasks().get(*t).attempts > 0)
        .filter(|t| {
            let phase = machine.tasks().phase(*t);
            !matches!(phase, Phase::Landed | Phase::Cancelled | Phase::Skipped)
        })
        .map(|t| machine.plan().tasks[t.ix()].id.to_string())
        .filter(|id| !kept.contains(id.as_str()))
        .collect();
    if dropped.is_empty() { Ok(()) } else { Err(SessionError::DropsStarted(dropped)) }
}

/// The tasks that a request asks for; all if none.
pub fn scope_of(
    machine: &Machine,
    request: &RunRequest,
) -> Result<Option<Vec<TaskIx>>, SessionError> {
    if request.tasks.is_empty() && request.epics.is_empty() {
        return Ok(None);
    }
    let mut scope = Vec::new();
    for id in &request.tasks {
        scope.push(machine.find(id).map_err(SessionError::Refused)?);
    }
    for epic in &request.epics {
        let before = scope.len();
        let below = format!("{epic}.");
        let tasks = machine.plan().tasks.iter().zip(machine.tasks().all());
        // Ids may say what they are part of: `E-1.2` is below the epic `E-1`.
        let is_below = |name: &str| name == epic || name.starts_with(&below);
        scope.extend(tasks.filter_map(|(task, t)| {
            let own = task.epic.as_ref().is_some_and(|own| is_below(own.as_str()));
            (own || task.id.as_str().starts_with(&below)).then_some(t)
        }));
        if scope.len() == before {
            let known: Vec<&str> = machine.plan().epics.iter().map(|e| e.id.as_str()).collect();
            let hint = match known.as_slice() {
                [] => "the plan has no epics".to_owned(),
                known => format!("the plan has {}", known.join(", ")),
            };
            let message = format!("there is no task in an epic {epic}");
            return Err(SessionError::Refused(Refusal { message, hint: Some(hint) }));
        }
    }
    Ok(Some(scope))
}

fn owned(holder: &serde_json::Value) -> SessionError {
    let text = |key: &str| match holder.get(key) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Number(number)) => number.to_string(),
        _ => "unknown".to_owned(),
    };
    let since = holder
        .get("started_at_ms")
        .and_then(serde_json::Value::as_i64)
        .map_or_else(|| "unknown".to_owned(), mainstem_api::time::to_rfc3339);
    SessionError::Owned { pid: text("pid"), host: text("host"), since }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A short name, different for every run: the time and the process, folded.
fn new_run_id() -> RunId {
    let mut n = (clock::now_ms().unsigned_abs() << 10) ^ u64::from(std::process::id() & 0x3ff);
    let digits = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut text = Vec::new();
    while n > 0 {
        text.push(digits[(n & 31) as usize]);
        n >>= 5;
    }
    text.reverse();
    RunId::new(format!("r-{}", String::from_utf8_lossy(&text)))
}

/// Where a repository's state is, without taking it over.
pub fn layout_of(dir: &Path, settings: &Settings) -> Result<(Repo, Layout), GitError> {
    let repo = Repo::discover(dir)?;
    let layout = Layout::new(&repo, settings.workspace.root.as_deref());
    Ok((repo, layout))
}
