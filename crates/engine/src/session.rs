//! Taking a repository over: the lock, the journal, the run; then a life of the engine, or one
//! command to a resting run.

mod error;
mod line;
mod moved;
mod rest;
mod revision;
mod taken;
mod target_check;

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use mainstem_agents::Template;
use mainstem_core::config::{LandMode, Settings, Waits};
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, TaskIx, Time};
use mainstem_core::machine::{Command, Input, Machine, Merger, Refusal};
use mainstem_core::phase::Phase;
use mainstem_core::phases::close_phases;
use mainstem_core::plan::Plan;
use mainstem_host::files;
use mainstem_host::git::{GitError, Repo};
use mainstem_host::lock::{Acquired, OwnerLock};
use mainstem_host::{clock, crash};
use mainstem_store::{Journal, Reader as _, SqliteJournal};
use sha2::{Digest, Sha256};

use crate::control::Control;
use crate::driver::{Driver, Outcome, Start};
use crate::event::Event;
use crate::face::{Face, Shown};
use crate::home;
use crate::hub::{Hub, line_of};
use crate::ledger::{self, LedgerError, Written};
use crate::lessons::Shelf;
use crate::look;
use crate::paths::Layout;
use crate::prune::{self, Due, Prune};
use crate::signing::{Signer, words_of};
use crate::state_check;
use crate::target::{self, TargetError};
use crate::threads::Threads;
use crate::trash::Emptier;
use crate::upstream::Upstream;
use crate::walls::{self, Walls};
use crate::world::{Made, World};
use moved::MoveWatch;

pub use error::SessionError;
pub use line::{Handle, Line};
pub use revision::{check_dropped, starts_anew};
pub use target_check::{TargetCheck, TargetOutcome, Underway};

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// A plan; the adopted one if none.
    pub plan: Option<Plan>,
    /// The file that it was read from.
    pub plan_file: Option<String>,
    /// Start another run even if one exists.
    pub new: bool,
    /// Only these tasks and what they need.
    pub tasks: Vec<String>,
    /// Only tasks of these epics and what they need.
    pub epics: Vec<String>,
    /// The branch to land on, if said on the command line.
    pub branch: Option<String>,
    /// Agents at once, if said on the command line.
    pub jobs: Option<u32>,
    /// Start no agent: only bring pull requests on.
    pub merger: Option<Merger>,
    /// Somebody is there to decide on work that waits for a person.
    pub attended: bool,
    /// What was seen of the target branch, if somebody looked.
    pub seen: Option<TargetCheck>,
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
    /// The forge, once it was reached.
    hub: Option<Hub>,
    /// The train's first checkout was made by a look at the target branch.
    made_lane: bool,
    _lock: OwnerLock,
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
        std::fs::create_dir_all(layout.state()).map_err(io("cannot create the state folder"))?;
        let body = serde_json::json!({
            "pid": std::process::id(),
            "host": look::host_name(),
            "started_at_ms": clock::now_ms(),
            "version": env!("CARGO_PKG_VERSION"),
            "socket": layout.socket(),
        });
        let lock = match OwnerLock::acquire(&layout.lock(), &body)? {
            Acquired::Held(lock) => lock,
            Acquired::Busy { holder } => return Err(error::owned(&holder)),
        };
        let copied = home::settle(repo.common_dir(), layout.state())
            .map_err(io("cannot record the owner of the state folder"))?;
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
            hub: None,
            made_lane: false,
            _lock: lock,
        })
    }

    /// Takes the folder of workspaces, so that no other repository's engine works in it.
    pub fn claim_root(&mut self) -> Result<(), SessionError> {
        if self.root.is_some() {
            return Ok(());
        }
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
            (Some(found), _) => {
                if state_check::is_of_another_repository(&self.repo, &found.1)? {
                    return Err(SessionError::OtherRepository(self.layout.state().to_path_buf()));
                }
                found
            }
            (None, None) => return Err(SessionError::NoRun),
            (None, Some(_)) => self.start_run(request)?,
        };
        target::make_sure(&self.repo, &machine, request.branch.as_deref())?;
        if let Some(plan) = &request.plan {
            let (plan, hash) = revision::of(&machine, plan, &self.settings)?;
            if hash != machine.plan_hash() {
                check_dropped(&machine, &plan)?;
                let plan = Box::new(plan);
                machine.set_plan_file(request.plan_file.clone());
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

    fn start_run(&mut self, request: &RunRequest) -> Result<(RunId, Machine), SessionError> {
        let run = new_run_id();
        let (target, base, bring_to) = match self.settings.land.mode.by_pull() {
            true => {
                let target = self.target()?;
                let base = self.repo.ensure_first_commit(&target)?;
                (target, base, None)
            }
            false => {
                let named = request.branch.as_deref();
                let chosen = target::choose(&self.repo, &self.settings, named, &run)?;
                (chosen.branch, chosen.base, chosen.bring_to)
            }
        };
        let mut machine = Machine::new(self.settings.clone());
        self.record(&run, &mut machine, Input::StartRun { target, base, bring_to })?;
        Ok((run, machine))
    }

    /// The branch that a run as it is asked for would land on or start from; none if that is a forge's.
    pub fn target_of(&self, request: &RunRequest) -> Result<Option<String>, SessionError> {
        if self.settings.land.mode.by_pull() {
            return Ok(None);
        }
        if let Some((_, machine)) = self.newest()?.filter(|_| !request.new) {
            return Ok(Some(machine.target().to_owned()));
        }
        let named = request.branch.as_deref();
        let (start, _) = target::starting_point(&self.repo, &self.settings, named)?;
        Ok((!target::is_own(&self.settings, named)).then_some(start))
    }

    /// Nobody starts an agent beside one that the journal has forgotten.
    fn refuse_unknown_agents(&self) -> Result<(), SessionError> {
        let runs = self.journal.reader()?.runs()?;
        let known = runs.into_iter().map(|row| row.run.to_string()).collect();
        let what = "cannot read the folders of earlier runs".to_owned();
        let found = state_check::unknown_agents(&self.layout, &known)
            .map_err(|source| SessionError::Io { what, source })?;
        if found.is_empty() { Ok(()) } else { Err(SessionError::UnknownAgents(found)) }
    }

    /// Where a new run's work lands, here.
    fn target(&self) -> Result<String, SessionError> {
        let branch = match &self.settings.land.branch {
            Some(branch) => branch.clone(),
            None => match self.repo.current_branch()? {
                Some(here) if !self.settings.land.mode.by_pull() => self.repo.real_branch(&here)?,
                _ => self.repo.default_branch()?,
            },
        };
        let by_phase = self.settings.land.mode == LandMode::PhasePr;
        Ok(if by_phase { line_of(&branch) } else { branch })
    }

    /// The forge, as it was reached before, or as it is now.
    fn forge(&mut self) -> Result<Option<Hub>, SessionError> {
        match self.hub.take() {
            Some(hub) => Ok(Some(hub)),
            None => self.reach_forge(),
        }
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
        if begun.is_none() && target::is_own(&self.settings, request.branch.as_deref()) {
            return Err(TargetError::Pushed.into());
        }
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
        self.refuse_unknown_agents()?;
        let taken = self.take_settings()?;
        let walls = self.walls()?.cloned();
        let hub = self.forge()?;
        let (upstream, trouble) = self.reach_upstream(request)?;
        let (signer, unsigned) = Signer::new(&self.repo, self.settings.land.sign)
            .map_err(|error| SessionError::Unsigned(words_of(&error)))?;
        let (run, mut machine) = self.adopt(request)?;
        self.same_way(&machine)?;
        let scope = scope_of(&machine, request)?;
        let tools = self.tools()?;
        equip(&mut machine, request, tools);
        self.note_target(&run, &mut machine, request.seen.as_ref())?;
        self.claim_root()?;
        self.sweep()?;
        // A checkout that cannot be brought along now is told of at the next landing.
        let _ = self.repo.catch_up(machine.target());
        self.prune_or_say(&run, &mut machine)?;
        for message in trouble.into_iter().chain(unsigned) {
            self.record(&run, &mut machine, Input::Notice { task: None, message })?;
        }
        let Line(sender, receiver, ..) = line;
        let control = self.listen(&sender, walls.is_some())?;
        let mut world = self.world(&run, machine.target(), taken, walls);
        let trash = Emptier::start(self.layout.trash());
        world.trash = Some(trash.clone());
        world.signer = signer;
        world.landed_unknown = state_check::landed_unknown(&self.repo, &run, &machine)?;
        world.hub = hub;
        world.upstream = upstream;
        world.settle();
        ready(&run, &machine);
        for Written { seq, at, fact, body } in self.written.drain(..) {
            face.fact(&Shown { seq, at, run: &run, fact: &fact, body: &body }, &machine);
        }
        let begin = begin(self.epoch, scope);
        let watch = MoveWatch::start(self.repo.common_dir(), self.layout.state(), sender.clone());
        let mut outside = Threads::new(world, (sender, receiver))
            .map_err(|source| SessionError::Io { what: "cannot watch jobs".to_owned(), source })?;
        let start =
            Start { run: run.clone(), machine, journal: Box::new(self.journal), epoch: self.epoch };
        let mut driver = Driver::new(start, &mut outside, face);
        let outcome = driver.run(begin);
        watch.check()?;
        let outcome = outcome?;
        let machine = driver.machine().clone();
        drop(driver);
        drop((outside, control));
        if let Outcome::Rested(_) = outcome {
            rest::end_leftover_jobs(&self.layout, &run, &machine);
        }
        rest::drop_lanes(&self.repo, &self.layout, self.settings.land.lanes);
        trash.hand_over(&self.exe, &self.layout);
        rest::learn(&self.repo, &self.layout, &self.settings, machine.target());
        rest::sweep(&self.repo, &self.layout, self.epoch, (&run, &machine));
        Ok((outcome, machine, run))
    }

    /// Opens the control socket. Nobody who runs in a job behind a wall is heard there.
    fn listen(&self, events: &Sender<Event>, walled: bool) -> Result<Control, SessionError> {
        let deaf_to = walled.then(|| self.layout.state().to_path_buf());
        let what = "cannot open the control socket".to_owned();
        Control::listen(&self.layout.socket(), events.clone(), deaf_to)
            .map_err(|source| SessionError::Io { what, source })
    }

    /// The surroundings of a run's effects.
    fn world(
        &self,
        run: &RunId,
        target: &str,
        (template, include): (Template, Vec<String>),
        walls: Option<Walls>,
    ) -> World {
        let learns = self.settings.lessons.learn;
        self.repo.set_file_limit(self.settings.limits.file_bytes);
        World {
            repo: self.repo.clone(),
            layout: self.layout.clone(),
            settings: self.settings.clone(),
            run: run.clone(),
            target: target.to_owned(),
            exe: self.exe.clone(),
            env: self.env.clone(),
            template,
            include,
            shelf: learns.then(|| Shelf::new(&self.repo, &self.layout, &self.settings)),
            walls,
            made: Made::default(),
            hub: None,
            upstream: None,
            signer: Signer::default(),
            trash: None,
            landed_unknown: std::collections::BTreeSet::new(),
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

    /// A task whose landing the target branch does not have any more can be tried again.
    pub fn forget_lost_landing(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        task: &str,
    ) -> Result<(), SessionError> {
        let lost = state_check::lost_landings(&self.repo, run, machine)?;
        let Some(lost) = lost.into_iter().find(|lost| lost.task.as_str() == task) else {
            return Ok(());
        };
        let name = format!("refs/heads/{}", machine.target());
        let Some(head) = self.repo.read_ref(&name)? else { return Ok(()) };
        let (task, commit, old, new) = (lost.task, lost.commit, head.clone(), head);
        self.write(run, machine, &Fact::LandingUndone { task, commit, old, new })
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
            mainstem_host::process::stop(&dir, mainstem_host::process::Stop::Term)
                .map_err(|source| SessionError::Io { what: format!("cannot stop {id}"), source })?;
        }
        Ok(())
    }

    /// Snapshots that cannot be pruned are no reason not to work.
    fn prune_or_say(&mut self, run: &RunId, machine: &mut Machine) -> Result<(), SessionError> {
        match self.prune(run, machine) {
            Err(error @ (SessionError::Git(_) | SessionError::Prune(_))) => {
                let message = format!("cannot remove old snapshots: {error}");
                self.record(run, machine, Input::Notice { task: None, message }).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// What a killed git or engine left lying around, swept while the lock is ours.
    pub(crate) fn sweep(&self) -> Result<(), SessionError> {
        self.repo.heal_after_boot()?;
        self.repo.sweep_locks(None)?;
        self.repo.sweep_owned()?;
        files::abandon_drafts(&self.layout.trash());
        for lane in self.layout.lanes() {
            let name = lane.file_name().unwrap_or_default().to_string_lossy();
            if Layout::is_old_lane(&name) {
                // What cannot be removed now is named by `mainstem clean`.
                let _ = self.repo.remove_worktree(&lane, &self.layout.trash());
            }
        }
        crash::point("session.swept");
        Ok(())
    }
}

/// What a life begins with.
fn begin(epoch: u64, scope: Option<Vec<TaskIx>>) -> Input {
    let (pid, host) = (std::process::id(), look::host_name());
    Input::Begin { epoch, pid, host, version: env!("CARGO_PKG_VERSION").to_owned(), scope }
}

/// What belongs to one life: agents at once as asked for now, and the tools there are.
fn equip(machine: &mut Machine, request: &RunRequest, tools: String) {
    machine.set_jobs_flag(request.jobs);
    machine.set_merger(request.merger);
    let patient = match machine.settings().gates.wait {
        Waits::Auto => request.attended,
        Waits::Always => true,
        Waits::Never => false,
    };
    machine.set_patient(patient);
    machine.set_tools(tools);
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
            let message = format!("no tasks in the epic {epic}");
            return Err(SessionError::Refused(Refusal { message, hint: Some(hint) }));
        }
    }
    Ok(Some(scope))
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
