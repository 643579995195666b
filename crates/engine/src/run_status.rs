//! Looking at a run without owning it: folded from the journal, in any process, at any time.

use mainstem_api::outlook::{BudgetStatus, EpicStatus, Eta, HostStatus};
use mainstem_api::{status as wire, time};
use mainstem_core::config::Settings;
use mainstem_core::eta::Expectations;
use mainstem_core::failed_gate::FailedGate;
use mainstem_core::id::{RunId, TaskIx, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::{PHASES, Phase};
use mainstem_core::plan::Epic;
use mainstem_core::train::{CandidateStage, TrainCandidate};
use mainstem_host::clock;
use mainstem_store::JournalReader;

use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError};

/// Why a run cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum RunLookupError {
    /// The journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] RunJournalError),
    /// There is no such run.
    #[error("unknown run {0}")]
    NoSuchRun(String),
    /// The beginning of a name that several runs have.
    #[error("`{0}` is ambiguous: {list}", list = .1.join(", "))]
    AmbiguousRun(String, Vec<String>),
}

/// The one run that a name, or the beginning of one, means.
pub fn find_run(reader: &dyn JournalReader, name: &str) -> Result<RunId, RunLookupError> {
    let mut found = run_journal::find_runs_by_name(reader, name)?;
    match (found.pop(), found.is_empty()) {
        (Some(run), true) => Ok(run),
        (None, _) => Err(RunLookupError::NoSuchRun(name.to_owned())),
        (Some(last), false) => {
            let all = found.iter().chain([&last]).map(ToString::to_string).collect();
            Err(RunLookupError::AmbiguousRun(name.to_owned(), all))
        }
    }
}

/// A run as it stood at one place of the journal.
pub struct JournaledRun {
    /// The run; none if there is none yet.
    pub run: Option<RunId>,
    pub machine: Machine,
    /// Place of the last fact.
    pub seq: u64,
    /// What the engine is doing.
    pub state: wire::RunState,
    /// The journal, if there is one.
    pub reader: Option<Box<dyn JournalReader>>,
}

impl JournaledRun {
    /// Looks at the newest run, or at the named one.
    pub fn load(
        layout: &RepoLayout,
        settings: &Settings,
        run: Option<&str>,
    ) -> Result<Self, RunLookupError> {
        let nothing = |reader| Self {
            run: None,
            machine: Machine::new(settings.clone()),
            seq: 0,
            state: wire::RunState::Resting,
            reader,
        };
        let Some(reader) = run_journal::open_journal_reader(&*layout.run_store())? else {
            return match run {
                Some(run) => Err(RunLookupError::NoSuchRun(run.to_owned())),
                None => Ok(nothing(None)),
            };
        };
        let newest = run_journal::find_newest_run(&*reader)?;
        let chosen = match run {
            None => newest.clone(),
            Some(name) => Some(find_run(&*reader, name)?),
        };
        let Some(run) = chosen else { return Ok(nothing(Some(reader))) };
        let (machine, seq) = run_journal::fold_run(&*reader, &run, settings)?;
        let owned = newest.as_ref() == Some(&run)
            && layout.run_store().owner().map_err(RunJournalError::from)?.is_some();
        let state = match (machine.is_engine_alive(), owned) {
            (true, true) if machine.is_paused() => wire::RunState::Paused,
            (true, true) => wire::RunState::Running,
            (true, false) => wire::RunState::Crashed,
            (false, _) if machine.is_paused() => wire::RunState::Paused,
            (false, _) => wire::RunState::Resting,
        };
        Ok(Self { run: Some(run), machine, seq, state, reader: Some(reader) })
    }

    /// An engine works on this run, as far as anybody can tell.
    fn has_running_engine(&self) -> bool {
        match self.state {
            wire::RunState::Running => true,
            // A pause stops attempts, not the train.
            wire::RunState::Paused => self.machine.is_engine_alive(),
            wire::RunState::Crashed | wire::RunState::Resting => false,
        }
    }

    /// The whole as other programs get it.
    pub fn build_status(&self) -> wire::RunStatus {
        let machine = &self.machine;
        let now = clock::now_ms();
        let ahead = machine.expectations(Time(now));
        let tasks: Vec<wire::TaskStatus> =
            machine.tasks().all_tasks().map(|t| build_task_status(machine, &ahead, t)).collect();
        wire::RunStatus {
            schema: wire::SCHEMA.to_owned(),
            seq: self.seq,
            at: now,
            run: self.run.as_ref().map(ToString::to_string),
            title: machine.plan().title.clone(),
            target: self.run.as_ref().map(|_| machine.target_branch().to_owned()),
            state: self.state,
            jobs: machine.jobs_in_force(),
            epics: epics(machine),
            budget: budget(machine),
            eta: eta(machine, &ahead),
            hosts: vec![this_host(machine, now)],
            train: list_train_candidates(machine, self.has_running_engine()),
            questions: list_questions(machine),
            inbox: list_inbox_items(machine),
            limits: list_rate_limits(machine, now),
            totals: compute_totals(self, &tasks, now),
            aside: Vec::new(),
            dropped: list_dropped_tasks(machine),
            gates: Vec::new(),
            red_target: machine
                .target_failure()
                .map(|failure| status_failed_check(failure, machine)),
            tasks,
        }
    }
}

fn task_id(machine: &Machine, t: TaskIx) -> String {
    machine.plan().tasks[t.index()].id.to_string()
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A phase as other programs know it.
pub fn status_phase(phase: Phase) -> wire::StatusPhase {
    wire::StatusPhase::parse(phase.as_str()).expect("BUG: both lists are the contract's")
}

/// One task as other programs get it.
pub fn build_task_status(machine: &Machine, ahead: &Expectations, t: TaskIx) -> wire::TaskStatus {
    let task = &machine.plan().tasks[t.index()];
    let view = machine.task_view(t);
    let state = machine.tasks().get(t);
    let told = state.cost_usd > 0.0 || state.input_tokens > 0 || state.output_tokens > 0;
    let evidence = state.current.as_ref().and_then(|attempt| attempt.evidence.as_ref());
    let host = machine.last_engine().filter(|_| state.attempts > 0);
    // A task that has never moved has been waiting since the run began.
    let since = Some(state.since).filter(|at| at.0 > 0).or(machine.started_at());
    wire::TaskStatus {
        id: task.id.to_string(),
        title: task.title.clone(),
        epic: task.epic.as_ref().map(ToString::to_string),
        phase: status_phase(view.phase),
        attempt: view.attempt,
        agent: non_empty(view.agent),
        model: view.model,
        branch: view.branch,
        workspace: view.workspace,
        pid: view.pid.filter(|pid| *pid > 0),
        started_at: view.started_at.map(|at| at.0),
        ended_at: view.ended_at.map(|at| at.0),
        waiting_for: view.waiting_for,
        cost_usd: told.then_some(state.cost_usd),
        commit: view.commit.map(|commit| commit.to_string()),
        reason: non_empty(view.reason),
        next_action: view.next_action,
        progress: None,
        needs: task.needs.iter().map(ToString::to_string).collect(),
        after: task.after.iter().map(ToString::to_string).collect(),
        since: since.map(|at| at.0),
        waiting_why: view.waiting_why.map(str::to_owned),
        critical: ahead.critical.contains(&t),
        expected_end: ahead.ends[t.index()].map(|at| at.0),
        insertions: evidence.map(|evidence| evidence.insertions),
        deletions: evidence.map(|evidence| evidence.deletions),
        files: evidence.map(|evidence| u64::from(evidence.files)),
        host: host.map(|(host, _)| host.to_owned()),
        pull: machine.pull_request(t).and_then(|pull| {
            let (url, waits_for) = (pull.url.clone(), pull.waits_for.clone());
            Some(wire::StatusPullRequest { number: pull.number?, url, waits_for })
        }),
        failed_check: machine.failed_check(t).map(|failure| status_failed_check(failure, machine)),
        stacked_on: machine.stacked_on(t).map(ToString::to_string),
    }
}

fn epics(machine: &Machine) -> Vec<EpicStatus> {
    let one = |epic: &Epic| {
        let of_epic = |t: &TaskIx| machine.plan().tasks[t.index()].epic.as_ref() == Some(&epic.id);
        let tasks: Vec<TaskIx> = machine.tasks().all_tasks().filter(of_epic).collect();
        let landed = tasks.iter().filter(|t| machine.tasks().phase(**t) == Phase::Landed);
        EpicStatus {
            id: epic.id.to_string(),
            title: epic.title.clone(),
            needs: epic.needs.iter().map(ToString::to_string).collect(),
            tasks: tasks.len() as u64,
            landed: landed.count() as u64,
        }
    };
    machine.plan().epics.iter().map(one).collect()
}

fn budget(machine: &Machine) -> BudgetStatus {
    let settings = &machine.settings().budget;
    BudgetStatus {
        usd: settings.usd,
        hard: settings.hard,
        spent_usd: machine.spent_usd(),
        reserved_usd: machine.reserved_usd().max(0.0),
        forecast_usd: machine.cost_forecast().total_usd,
    }
}

fn eta(machine: &Machine, ahead: &Expectations) -> Eta {
    Eta {
        at: ahead.at.map(|at| at.0),
        critical_path: ahead.critical_path.iter().map(|t| task_id(machine, *t)).collect(),
        basis: ahead.at.map(|_| "effort".to_owned()),
    }
}

/// The machine on which the run works: the one that looks, unless an engine has said another name.
fn this_host(machine: &Machine, now: i64) -> HostStatus {
    let (host, incarnation) = match machine.last_engine() {
        Some((host, epoch)) => (host.to_owned(), epoch),
        None => (host_name(), 0),
    };
    let settings = machine.settings();
    HostStatus {
        host,
        state: "ok".to_owned(),
        slots: machine.jobs_in_force(),
        used: if machine.is_engine_alive() { machine.tasks().slots_in_use() } else { 0 },
        lanes: settings.land.lanes,
        labels: Vec::new(),
        agents: settings.agents.keys().cloned().collect(),
        seen_at: Some(now),
        incarnation,
    }
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Lines of a failed check's output that other programs get.
const OUTPUT_LINES: usize = 20;

fn status_failed_check(failure: &FailedGate, machine: &Machine) -> wire::StatusFailedCheck {
    wire::StatusFailedCheck {
        gate: failure.gate.clone(),
        place: failure.describe_place(machine.target_branch()),
        exit_code: failure.exit_code,
        cause: failure.cause.as_str().to_owned(),
        output: failure.last_output_lines(OUTPUT_LINES).into_iter().map(str::to_owned).collect(),
        hint: failure.cause.fix_hint(),
    }
}

fn list_train_candidates(machine: &Machine, works: bool) -> Vec<wire::StatusCandidate> {
    let cars = machine.train().candidates().iter().zip(1..);
    cars.map(|(car, place)| {
        let (state, onto, candidate) = match &car.stage {
            CandidateStage::Queued => (wire::StatusCandidateState::Queued, None, None),
            CandidateStage::Formed { onto, commit, .. } => {
                (candidate_state(machine, car, works), Some(onto), Some(commit))
            }
            CandidateStage::Landing { old, new, .. } => {
                (wire::StatusCandidateState::Verified, Some(old), Some(new))
            }
        };
        wire::StatusCandidate {
            task: task_id(machine, car.task),
            attempt: car.attempt,
            state,
            place: Some(place),
            tip: Some(car.tip.to_string()),
            onto: onto.map(ToString::to_string),
            candidate: candidate.map(ToString::to_string),
            reason: machine
                .lasting_notice(Some(&machine.plan().tasks[car.task.index()].id))
                .map(str::to_owned),
        }
    })
    .collect()
}

/// A merge that exists is being verified, unless the gates have spoken, nobody is there to run them, or the target
/// branch itself is bad.
fn candidate_state(
    machine: &Machine,
    car: &TrainCandidate,
    works: bool,
) -> wire::StatusCandidateState {
    match car.verdict {
        Some(true) => wire::StatusCandidateState::Verified,
        None if works && !machine.waits_for_target_fix(car.task) => {
            wire::StatusCandidateState::Verifying
        }
        Some(false) | None => wire::StatusCandidateState::Queued,
    }
}

fn list_dropped_tasks(machine: &Machine) -> Vec<wire::DroppedTask> {
    let landed = machine.landed_dropped_tasks().into_iter();
    landed
        .map(|(id, commit)| wire::DroppedTask { id: id.to_string(), commit: commit.to_string() })
        .collect()
}

fn list_questions(machine: &Machine) -> Vec<wire::StatusQuestion> {
    let open = machine.open_questions().iter().cloned().chain(machine.open_decisions());
    open.map(|q| wire::StatusQuestion {
        id: q.name.clone(),
        task: Some(task_id(machine, q.task)),
        attempt: Some(q.attempt),
        question: q.text.clone(),
        options: q.options.clone(),
        asked_at: q.at.0,
        default: q.default.clone(),
        deadline: q.deadline.map(|at| at.0),
    })
    .collect()
}

fn list_inbox_items(machine: &Machine) -> Vec<wire::StatusInboxItem> {
    let items = machine.inbox_items().into_iter();
    items
        .map(|item| wire::StatusInboxItem {
            id: item.id,
            kind: item.kind.as_str().to_owned(),
            task: item.task.map(|task| task.to_string()),
            text: item.text,
            options: item.options,
            holds_up: item.holds_up.iter().map(ToString::to_string).collect(),
            critical: item.critical,
            since: item.since.0,
            deadline: item.deadline.map(|at| at.0),
            default: item.default,
            help: item.help,
        })
        .collect()
}

fn list_rate_limits(machine: &Machine, now: i64) -> Vec<wire::StatusRateLimit> {
    let auto_resume = machine.settings().limits.auto_resume;
    let ready = |t: &TaskIx| machine.tasks().phase(*t) == Phase::Ready;
    let mut limits: Vec<wire::StatusRateLimit> = machine
        .providers()
        .iter()
        .filter_map(|(name, known)| {
            let until = known.rests_until(Time(now), auto_resume)?;
            let waits = |t: &TaskIx| ready(t) && machine.tasks().resources(*t).provider == *name;
            let waiting =
                machine.tasks().all_tasks().filter(waits).map(|t| task_id(machine, t)).collect();
            Some(wire::StatusRateLimit {
                provider: name.clone(),
                until: until.map(|at| at.0),
                reason: known.message().to_owned(),
                kind: known.kind().as_str().to_owned(),
                waiting,
            })
        })
        .collect();
    if machine.tasks().count_in_phase(Phase::Ready) > 0
        && let Some(until) = machine.quiet_until_at(Time(now), time::zone_minutes(now))
    {
        limits.push(wire::StatusRateLimit {
            provider: "*".to_owned(),
            until: Some(until.0),
            reason: "limits.quiet_hours".to_owned(),
            kind: "quiet_hours".to_owned(),
            waiting: machine
                .tasks()
                .all_tasks()
                .filter(ready)
                .map(|t| task_id(machine, t))
                .collect(),
        });
    }
    limits
}

fn compute_totals(look: &JournaledRun, tasks: &[wire::TaskStatus], now: i64) -> wire::StatusTotals {
    let machine = &look.machine;
    let mut totals =
        wire::StatusTotals { tasks: tasks.len() as u64, ..wire::StatusTotals::default() };
    for phase in PHASES {
        totals
            .by_phase
            .insert(status_phase(phase), u64::from(machine.tasks().count_in_phase(phase)));
    }
    totals.landed = u64::from(machine.tasks().count_in_phase(Phase::Landed));
    totals.questions = list_questions(machine).len() as u64;
    let mut end = machine.started_at().map_or(now, |at| at.0);
    for t in machine.tasks().all_tasks() {
        let state = machine.tasks().get(t);
        totals.input_tokens += state.input_tokens;
        totals.output_tokens += state.output_tokens;
        totals.agent_ms += state.agent_ms;
        end = end.max(state.since.0);
    }
    let told = tasks.iter().any(|task| task.cost_usd.is_some());
    totals.cost_usd = told.then_some(machine.spent_usd());
    if machine.is_engine_alive() {
        end = now;
    }
    if let Some(began) = machine.started_at() {
        totals.elapsed_ms = u64::try_from(end - began.0).unwrap_or(0);
    }
    totals
}
