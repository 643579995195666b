//! Taking a repository over: the lock, the journal, the run; then a life of the engine, or one
//! command to a resting run.

mod error;
mod channel;
mod move_watch;
mod shutdown;
mod revision;
mod governing_files;
mod target_check;

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use mainstem_agents::PromptTemplate;
use mainstem_core::config::{GateWaitMode, LandMode, Settings};
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, TaskIx, Time};
use mainstem_core::machine::{
    CommandRefusal, EpochOptions, Input, Machine, MachineCommand, MergeOnlyMode,
};
use mainstem_core::phase::Phase;
use mainstem_core::phase_closing::add_closing_tasks;
use mainstem_core::plan::Plan;
use mainstem_host::files;
use mainstem_host::git::{GitError, Repo};
use mainstem_host::lock::OwnerLock;
use mainstem_host::{clock, crash};
use mainstem_store::{Journal, JournalReader, StoreClaim, StoreError, StoreOwnership};
use sha2::{Digest, Sha256};

use crate::control_socket::ControlSocket;
use crate::driver::{DriverStart, EngineDriver, EngineOutcome};
use crate::engine_context::{CreatedWorkspaces, EngineContext};
use crate::event::EngineEvent;
use crate::forge_connection::{ForgeConnection, phase_branch_name};
use crate::lessons::LessonStore;
use crate::observer::{JournaledFact, RunObserver};
use crate::query;
use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError, UnshownFact};
use crate::sandbox_policy::{self, EngineSandbox};
use crate::signing::{LandingSigner, signing_error_text};
use crate::snapshot_pruning::{self, DueSnapshots, SnapshotPruner};
use crate::state_check;
use crate::state_owner;
use crate::target_branch::{self, TargetBranchError};
use crate::threaded_host::ThreadedHost;
use crate::trash::TrashEmptier;
use crate::upstream::UpstreamBranch;
use move_watch::RepoMoveWatch;

pub use channel::{EngineChannel, EngineHandle};
pub use error::EngineError;
pub use revision::{check_dropped, starts_anew};
pub use target_check::{TargetCheck, TargetCheckOutcome, TargetCheckProgress};

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
    pub merger: Option<MergeOnlyMode>,
    /// Somebody is there to decide on work that waits for a person.
    pub attended: bool,
    /// What was seen of the target branch, if somebody looked.
    pub seen: Option<TargetCheck>,
}

/// A repository that is ours until this is dropped.
#[derive(Debug)]
pub struct EngineInstance {
    repo: Repo,
    layout: RepoLayout,
    settings: Settings,
    journal: Box<dyn Journal>,
    epoch: u64,
    exe: PathBuf,
    env: Vec<(String, String)>,
    unshown_facts: Vec<UnshownFact>,
    /// The folder of workspaces, once something is to be made there.
    root: Option<OwnerLock>,
    /// Found out once, before anything starts.
    sandbox: Option<Option<EngineSandbox>>,
    /// The forge, once it was reached.
    forge_connection: Option<ForgeConnection>,
    /// The train's first checkout was made by a look at the target branch.
    lane_was_created: bool,
    _ownership: StoreOwnership,
}

/// A plan's hash, over the plan as adopted: comments and order of keys do not count.
pub fn hash_plan(plan: &Plan) -> String {
    let text = serde_json::to_string(plan).expect("BUG: a plan is plain data");
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl EngineInstance {
    /// Takes the repository over, or says who owns it.
    pub fn open(
        repo: Repo,
        settings: Settings,
        exe: PathBuf,
        env: Vec<(String, String)>,
    ) -> Result<Self, EngineError> {
        let layout = RepoLayout::new(&repo, settings.workspace.root.as_deref());
        for path in [layout.state_dir(), layout.workspace_root(), repo.dir()] {
            if path.to_str().is_none() {
                return Err(EngineError::OddPath { path: path.to_path_buf() });
            }
        }
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| EngineError::Io { what, source }
        };
        std::fs::create_dir_all(layout.state_dir())
            .map_err(io("cannot create the state folder"))?;
        let body = serde_json::json!({
            "pid": std::process::id(),
            "host": query::status::host_name(),
            "started_at_ms": clock::now_ms(),
            "version": env!("CARGO_PKG_VERSION"),
            "socket": layout.socket_path(),
        });
        let store = layout.run_store();
        let ownership = match store.claim(&body.to_string())? {
            StoreClaim::Owned(ownership) => ownership,
            StoreClaim::OwnedByAnother(owner) => return Err(error::owned_error(&owner)),
        };
        let copied = state_owner::claim_state_folder(repo.common_dir(), layout.state_dir())
            .map_err(io("cannot record the owner of the state folder"))?;
        if let Some(of) = copied {
            return Err(EngineError::Copied { of, state: layout.state_dir().to_path_buf() });
        }
        let mut journal = store.open_journal()?;
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
            unshown_facts: written,
            root: None,
            sandbox: None,
            forge_connection: None,
            lane_was_created: false,
            _ownership: ownership,
        })
    }

    /// Takes the folder of workspaces, so that no other repository's engine works in it.
    pub fn claim_root(&mut self) -> Result<(), EngineError> {
        if self.root.is_some() {
            return Ok(());
        }
        self.root = Some(self.layout.claim_root()?);
        crash::point("session.claimed");
        Ok(())
    }

    /// The walls that jobs of this session stand behind, tried out at the first call; none if the
    /// settings say so.
    pub fn sandbox(&mut self) -> Result<Option<&EngineSandbox>, EngineError> {
        if self.sandbox.is_none() {
            let kind = sandbox_policy::choose_backend(&self.settings.sandbox, &self.exe)?;
            let place = (&self.repo, &self.layout);
            let made =
                |kind| EngineSandbox::new(kind, &self.settings, place, (&self.exe, &self.env));
            self.sandbox = Some(kind.map(made).transpose()?);
        }
        Ok(self.sandbox.as_ref().and_then(Option::as_ref))
    }

    pub fn layout(&self) -> &RepoLayout {
        &self.layout
    }
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    fn open_reader(&self) -> Result<Box<dyn JournalReader>, StoreError> {
        self.layout.run_store().open_reader()
    }

    /// The newest run, folded.
    pub fn load_newest_run(&self) -> Result<Option<(RunId, Machine)>, EngineError> {
        Ok(run_journal::load_newest_run(&*self.open_reader()?, &self.settings)?)
    }

    /// Writes down what a step outside a life decided.
    pub fn record_step(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        input: Input,
    ) -> Result<Option<Result<String, CommandRefusal>>, EngineError> {
        let now = Time(clock::now_ms());
        let (written, reply) =
            run_journal::record_step(&mut *self.journal, self.epoch, run, machine, (input, now))?;
        self.unshown_facts.extend(written);
        Ok(reply)
    }

    /// Writes one fact down, outside a life of the engine.
    pub fn write_fact(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        fact: &Fact,
    ) -> Result<(), EngineError> {
        let at = Time(clock::now_ms());
        machine.apply(fact, at).map_err(|source| {
            EngineError::Ledger(RunJournalError::Order { seq: 0, source: Box::new(source) })
        })?;
        let record = run_journal::encode_fact(run, fact, at);
        let seq = self.journal.append(self.epoch, std::slice::from_ref(&record))?;
        self.unshown_facts.push(UnshownFact { seq, at, fact: fact.clone(), body: record.body });
        Ok(())
    }

    /// The snapshots that the policy lets go.
    pub fn find_due_snapshots(
        &self,
        run: &RunId,
        machine: &Machine,
    ) -> Result<DueSnapshots, EngineError> {
        let reader = self.open_reader()?;
        let (keep_ms, now) = (self.settings.snapshot_keep_ms, Time(clock::now_ms()));
        let newest = (run, machine);
        Ok(SnapshotPruner { repo: &self.repo, reader: &*reader, newest, keep_ms, now }
            .find_due()?)
    }

    /// Lets them go, after it is written down where they were.
    pub fn prune_snapshots(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
    ) -> Result<DueSnapshots, EngineError> {
        let due = self.find_due_snapshots(run, machine)?;
        if due.is_empty() {
            return Ok(due);
        }
        let facts = snapshot_pruning::build_removal_facts(&due, snapshot_pruning::PRUNE_REASON);
        for fact in &facts {
            self.write_fact(run, machine, fact)?;
        }
        snapshot_pruning::remove_snapshot_refs(&self.repo, &facts)?;
        Ok(due)
    }

    /// Finds or starts the run and brings its plan up to date.
    pub fn adopt_run(&mut self, request: &RunRequest) -> Result<(RunId, Machine), EngineError> {
        let newest = self.load_newest_run()?;
        if let (true, Some((run, machine))) = (request.new, &newest)
            && machine.tasks().active_tasks().next().is_some()
        {
            // Its agents may be alive, and its workspaces are where the new run's would be.
            return Err(EngineError::Unfinished(run.clone()));
        }
        let existing = newest.filter(|_| !request.new);
        let (run, mut machine) = match (existing, &request.plan) {
            (Some(found), _) => {
                if state_check::belongs_to_another_repository(&self.repo, &found.1)? {
                    return Err(EngineError::OtherRepository(
                        self.layout.state_dir().to_path_buf(),
                    ));
                }
                found
            }
            (None, None) => return Err(EngineError::NoRun),
            (None, Some(_)) => self.start_run(request)?,
        };
        target_branch::ensure_target(&self.repo, &machine, request.branch.as_deref())?;
        if let Some(plan) = &request.plan {
            let (plan, hash) = revision::of(&machine, plan, &self.settings)?;
            if hash != machine.plan_hash() {
                check_dropped(&machine, &plan)?;
                let plan = Box::new(plan);
                machine.set_plan_file(request.plan_file.clone());
                self.record_step(&run, &mut machine, Input::AdoptPlan { plan, hash })?;
            }
        } else if machine.revision() == 0 {
            return Err(EngineError::NoRun);
        }
        for limit in crate::draft::rate_limits::list_limits_for_run(&self.layout, &machine) {
            self.record_step(&run, &mut machine, limit)?;
        }
        Ok((run, machine))
    }

    fn start_run(&mut self, request: &RunRequest) -> Result<(RunId, Machine), EngineError> {
        let run = new_run_id();
        let (target, base, bring_to) = match self.settings.land.mode.lands_on_forge() {
            true => {
                let target = self.choose_target_branch()?;
                let base = self.repo.ensure_first_commit(&target)?;
                (target, base, None)
            }
            false => {
                let named = request.branch.as_deref();
                let chosen =
                    target_branch::choose_run_target(&self.repo, &self.settings, named, &run)?;
                (chosen.branch, chosen.base, chosen.bring_to)
            }
        };
        let mut machine = Machine::new(self.settings.clone());
        self.record_step(&run, &mut machine, Input::StartRun { target, base, bring_to })?;
        Ok((run, machine))
    }

    /// The branch that a run as it is asked for would land on or start from; none if that is a forge's.
    pub fn find_target(&self, request: &RunRequest) -> Result<Option<String>, EngineError> {
        if self.settings.land.mode.lands_on_forge() {
            return Ok(None);
        }
        if let Some((_, machine)) = self.load_newest_run()?.filter(|_| !request.new) {
            return Ok(Some(machine.target_branch().to_owned()));
        }
        let named = request.branch.as_deref();
        let (start, _) = target_branch::find_starting_point(&self.repo, &self.settings, named)?;
        Ok((!target_branch::uses_own_branch(&self.settings, named)).then_some(start))
    }

    /// Nobody starts an agent beside one that the journal has forgotten.
    fn refuse_unknown_agents(&self) -> Result<(), EngineError> {
        let runs = self.open_reader()?.list_runs()?;
        let known = runs.into_iter().map(|row| row.run.to_string()).collect();
        let what = "cannot read the folders of earlier runs".to_owned();
        let found = state_check::find_unknown_agents(&self.layout, &known)
            .map_err(|source| EngineError::Io { what, source })?;
        if found.is_empty() { Ok(()) } else { Err(EngineError::UnknownAgents(found)) }
    }

    /// Where a new run's work lands, here.
    fn choose_target_branch(&self) -> Result<String, EngineError> {
        let branch = match &self.settings.land.branch {
            Some(branch) => branch.clone(),
            None => match self.repo.current_branch()? {
                Some(here) if !self.settings.land.mode.lands_on_forge() => {
                    self.repo.resolve_branch_alias(&here)?
                }
                _ => self.repo.default_branch()?,
            },
        };
        let by_phase = self.settings.land.mode == LandMode::PhasePr;
        Ok(if by_phase { phase_branch_name(&branch) } else { branch })
    }

    /// The forge, as it was reached before, or as it is now.
    fn connect_forge_once(&mut self) -> Result<Option<ForgeConnection>, EngineError> {
        match self.forge_connection.take() {
            Some(hub) => Ok(Some(hub)),
            None => self.connect_forge(),
        }
    }

    /// The forge, if work lands there, and its branch as it is now.
    fn connect_forge(&self) -> Result<Option<ForgeConnection>, EngineError> {
        if !self.settings.land.mode.lands_on_forge() {
            return Ok(None);
        }
        let hub = ForgeConnection::connect(&self.repo, &self.settings, &self.env)?;
        let tip = hub.fetch_target(&self.repo)?;
        if self.settings.land.mode == LandMode::PhasePr {
            hub.create_phase_branch(&self.repo, &tip)?;
        }
        Ok(Some(hub))
    }

    /// The remote that landings are pushed to, and what is to be said of it.
    fn connect_upstream(
        &self,
        request: &RunRequest,
    ) -> Result<(Option<UpstreamBranch>, Option<String>), EngineError> {
        if self.settings.land.push.is_none() {
            return Ok((None, None));
        }
        let begun = self.load_newest_run()?.filter(|_| !request.new);
        if begun.is_none()
            && target_branch::uses_own_branch(&self.settings, request.branch.as_deref())
        {
            return Err(TargetBranchError::Pushed.into());
        }
        let target = match &begun {
            Some((_, machine)) => machine.target_branch().to_owned(),
            None => self.choose_target_branch()?,
        };
        Ok(UpstreamBranch::connect_and_sync(&self.repo, &self.settings, &target, begun.is_some())?)
    }

    /// A run goes on in the way that it began: what has landed is where that says.
    fn check_landing_mode(&self, machine: &Machine) -> Result<(), EngineError> {
        let began = machine.target_branch().to_owned();
        match !self.settings.land.mode.lands_on_forge() || began == self.choose_target_branch()? {
            true => Ok(()),
            false => Err(EngineError::OtherTarget(began)),
        }
    }

    pub fn run(
        mut self,
        request: &RunRequest,
        line: EngineChannel,
        face: &mut dyn RunObserver,
        ready: &mut dyn FnMut(&RunId, &Machine),
    ) -> Result<(EngineOutcome, Machine, RunId), EngineError> {
        if let Some(branch) = self.repo.find_blocking_branch("mainstem")? {
            return Err(EngineError::NoBranchRoom(branch));
        }
        self.refuse_unknown_agents()?;
        let taken = self.load_governing_files()?;
        let walls = self.sandbox()?.cloned();
        let hub = self.connect_forge_once()?;
        let (upstream, trouble) = self.connect_upstream(request)?;
        let (signer, unsigned) = LandingSigner::new(&self.repo, self.settings.land.sign)
            .map_err(|error| EngineError::Unsigned(signing_error_text(&error)))?;
        let (run, mut machine) = self.adopt_run(request)?;
        self.check_landing_mode(&machine)?;
        let scope = select_scope(&machine, request)?;
        let tools = self.toolchain_key()?;
        configure_machine(&mut machine, request, tools);
        self.record_target_check(&run, &mut machine, request.seen.as_ref())?;
        self.claim_root()?;
        self.sweep_leftovers()?;
        // A checkout that cannot be brought along now is told of at the next landing.
        let _ = self.repo.resume_checkout_updates(machine.target_branch());
        self.prune_or_report(&run, &mut machine)?;
        for message in trouble.into_iter().chain(unsigned) {
            self.record_step(&run, &mut machine, Input::Notice { task: None, message })?;
        }
        let EngineChannel(sender, receiver, ..) = line;
        let control = self.open_control_socket(&sender, walls.is_some())?;
        let mut world = self.build_context(&run, machine.target_branch(), taken, walls);
        let trash = TrashEmptier::start(self.layout.trash_dir());
        world.trash = Some(trash.clone());
        world.signer = signer;
        world.unjournaled_landings =
            state_check::find_unjournaled_landings(&self.repo, &run, &machine)?;
        world.forge_connection = hub;
        world.upstream = upstream;
        world.prepare_job_containment();
        ready(&run, &machine);
        self.show_unshown_facts(&run, &machine, face);
        let begin = begin_input(self.epoch, scope);
        let watch =
            RepoMoveWatch::start(self.repo.common_dir(), self.layout.state_dir(), sender.clone());
        let mut outside = ThreadedHost::new(world, (sender, receiver))
            .map_err(|source| EngineError::Io { what: "cannot watch jobs".to_owned(), source })?;
        let start =
            DriverStart { run: run.clone(), machine, journal: self.journal, epoch: self.epoch };
        let mut driver = EngineDriver::new(start, &mut outside, face);
        let outcome = driver.run(begin);
        watch.check_not_moved()?;
        let outcome = outcome?;
        let machine = driver.machine().clone();
        drop(driver);
        drop((outside, control));
        if let EngineOutcome::Rested(_) = outcome {
            shutdown::end_leftover_jobs(&self.layout, &run, &machine);
        }
        shutdown::remove_unused_lanes(&self.repo, &self.layout, self.settings.land.lanes);
        trash.hand_over_to_process(&self.exe, &self.layout);
        shutdown::learn_lessons(&self.repo, &self.layout, &self.settings, machine.target_branch());
        shutdown::sweep_repository(&self.repo, &self.layout, self.epoch, (&run, &machine));
        Ok((outcome, machine, run))
    }

    /// Shows the facts that were journaled before there was anybody to show them to.
    fn show_unshown_facts(&mut self, run: &RunId, machine: &Machine, face: &mut dyn RunObserver) {
        for UnshownFact { seq, at, fact, body } in self.unshown_facts.drain(..) {
            face.on_fact(&JournaledFact { seq, at, run, fact: &fact, body: &body }, machine);
        }
    }

    /// Opens the control socket. Nobody who runs in a job behind a wall is heard there.
    fn open_control_socket(
        &self,
        events: &Sender<EngineEvent>,
        walled: bool,
    ) -> Result<ControlSocket, EngineError> {
        let deaf_to = walled.then(|| self.layout.state_dir().to_path_buf());
        let what = "cannot open the control socket".to_owned();
        ControlSocket::listen(&self.layout.socket_path(), events.clone(), deaf_to)
            .map_err(|source| EngineError::Io { what, source })
    }

    /// The surroundings of a run's effects.
    fn build_context(
        &self,
        run: &RunId,
        target: &str,
        (template, include): (PromptTemplate, Vec<String>),
        walls: Option<EngineSandbox>,
    ) -> EngineContext {
        let learns = self.settings.lessons.learn;
        self.repo.set_file_limit(self.settings.limits.file_bytes);
        EngineContext {
            repo: self.repo.clone(),
            layout: self.layout.clone(),
            settings: self.settings.clone(),
            run: run.clone(),
            target: target.to_owned(),
            exe: self.exe.clone(),
            env: self.env.clone(),
            template,
            include,
            lessons: learns.then(|| LessonStore::new(&self.repo, &self.layout, &self.settings)),
            sandbox: walls,
            created_workspaces: CreatedWorkspaces::default(),
            forge_connection: None,
            upstream: None,
            signer: LandingSigner::default(),
            trash: None,
            unjournaled_landings: std::collections::BTreeSet::new(),
        }
    }

    /// One command to a run that no engine works on. Agents that are still alive are stopped if the
    /// command wants that; everything else waits for the next `run`.
    pub fn run_command(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        command: MachineCommand,
    ) -> Result<Result<String, CommandRefusal>, EngineError> {
        let reply = self.record_step(run, machine, Input::Command(command))?;
        self.stop_unwanted_agents(run, machine)?;
        Ok(reply.unwrap_or_else(|| Ok(String::new())))
    }

    /// A task whose landing the target branch does not have any more can be tried again.
    pub fn forget_lost_landing(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        task: &str,
    ) -> Result<(), EngineError> {
        let lost = state_check::find_lost_landings(&self.repo, run, machine)?;
        let Some(lost) = lost.into_iter().find(|lost| lost.task.as_str() == task) else {
            return Ok(());
        };
        let name = format!("refs/heads/{}", machine.target_branch());
        let Some(head) = self.repo.read_ref(&name)? else { return Ok(()) };
        let (task, commit, old, new) = (lost.task, lost.commit, head.clone(), head);
        self.write_fact(run, machine, &Fact::LandingUndone { task, commit, old, new })
    }

    fn stop_unwanted_agents(&self, run: &RunId, machine: &Machine) -> Result<(), EngineError> {
        for t in machine.tasks().active_tasks() {
            let Some(current) = machine.tasks().get(t).current.as_ref() else { continue };
            let lives = matches!(
                machine.tasks().phase(t),
                Phase::Preparing | Phase::Working | Phase::Asking
            );
            if current.stop.is_none() || !lives {
                continue;
            }
            let id = &machine.plan().tasks[t.index()].id;
            let dir = self.layout.agent_job(run, id, current.n);
            mainstem_host::process::stop_job(&dir, mainstem_host::process::JobStopMode::Term)
                .map_err(|source| EngineError::Io { what: format!("cannot stop {id}"), source })?;
        }
        Ok(())
    }

    /// Snapshots that cannot be pruned are no reason not to work.
    fn prune_or_report(&mut self, run: &RunId, machine: &mut Machine) -> Result<(), EngineError> {
        match self.prune_snapshots(run, machine) {
            Err(error @ (EngineError::Git(_) | EngineError::Prune(_))) => {
                let message = format!("cannot remove old snapshots: {error}");
                self.record_step(run, machine, Input::Notice { task: None, message }).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// What a killed git or engine left lying around, swept while the lock is ours.
    pub(crate) fn sweep_leftovers(&self) -> Result<(), EngineError> {
        self.repo.remove_empty_files_after_boot()?;
        self.repo.sweep_stale_locks(None)?;
        self.repo.sweep_branch_marks()?;
        files::abandon_staging_paths(&self.layout.trash_dir());
        for lane in self.layout.list_lane_workspaces() {
            let name = lane.file_name().unwrap_or_default().to_string_lossy();
            if RepoLayout::is_old_lane_name(&name) {
                // What cannot be removed now is named by `mainstem clean`.
                let _ = self.repo.remove_worktree(&lane, &self.layout.trash_dir());
            }
        }
        crash::point("session.swept");
        Ok(())
    }
}

/// What a life begins with.
fn begin_input(epoch: u64, scope: Option<Vec<TaskIx>>) -> Input {
    let (pid, host) = (std::process::id(), query::status::host_name());
    Input::Begin { epoch, pid, host, version: env!("CARGO_PKG_VERSION").to_owned(), scope }
}

/// What belongs to one life: agents at once as asked for now, and the tools there are.
fn configure_machine(machine: &mut Machine, request: &RunRequest, tools: String) {
    let waits_for_people = match machine.settings().gates.wait {
        GateWaitMode::Auto => request.attended,
        GateWaitMode::Always => true,
        GateWaitMode::Never => false,
    };
    let (jobs, merge_only) = (request.jobs, request.merger);
    let options = EpochOptions { jobs, merge_only, waits_for_people, gate_tools: tools };
    machine.step(Input::ConfigureEpoch(options), machine.now());
}

/// The tasks that a request asks for; all if none.
pub fn select_scope(
    machine: &Machine,
    request: &RunRequest,
) -> Result<Option<Vec<TaskIx>>, EngineError> {
    if request.tasks.is_empty() && request.epics.is_empty() {
        return Ok(None);
    }
    let mut scope = Vec::new();
    for id in &request.tasks {
        scope.push(machine.find_task(id).map_err(EngineError::Refused)?);
    }
    for epic in &request.epics {
        let before = scope.len();
        let below = format!("{epic}.");
        let tasks = machine.plan().tasks.iter().zip(machine.tasks().all_tasks());
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
            return Err(EngineError::Refused(CommandRefusal { message, hint: Some(hint) }));
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
pub fn find_layout(dir: &Path, settings: &Settings) -> Result<(Repo, RepoLayout), GitError> {
    let repo = Repo::discover(dir)?;
    let layout = RepoLayout::new(&repo, settings.workspace.root.as_deref());
    Ok((repo, layout))
}
