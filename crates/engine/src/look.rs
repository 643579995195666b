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
use mainstem_core::train::{Car, Stage};
use mainstem_host::clock;
use mainstem_host::lock::{self, LockError, Probe};
use mainstem_store::{Reader, SqliteReader};

use crate::ledger::{self, LedgerError};
use crate::paths::Layout;

/// Why a run cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The lock cannot be tried.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There is no such run.
    #[error("unknown run {0}")]
    NoSuchRun(String),
    /// The beginning of a name that several runs have.
    #[error("`{0}` is ambiguous: {list}", list = .1.join(", "))]
    AmbiguousRun(String, Vec<String>),
}

/// The one run that a name, or the beginning of one, means.
pub fn find_run(reader: &dyn Reader, name: &str) -> Result<RunId, LookError> {
    let mut found = ledger::runs_named(reader, name)?;
    match (found.pop(), found.is_empty()) {
        (Some(run), true) => Ok(run),
        (None, _) => Err(LookError::NoSuchRun(name.to_owned())),
        (Some(last), false) => {
            let all = found.iter().chain([&last]).map(ToString::to_string).collect();
            Err(LookError::AmbiguousRun(name.to_owned(), all))
        }
    }
}

/// A run as it stood at one place of the journal.
pub struct Look {
    /// The run; none if there is none yet.
    pub run: Option<RunId>,
    /// The folded machine.
    pub machine: Machine,
    /// Place of the last fact.
    pub seq: u64,
    /// What the engine is doing.
    pub state: wire::RunState,
    /// The journal, if there is one.
    pub reader: Option<SqliteReader>,
}

impl Look {
    /// Looks at the newest run, or at the named one.
    pub fn at(layout: &Layout, settings: &Settings, run: Option<&str>) -> Result<Self, LookError> {
        let nothing = |reader| Self {
            run: None,
            machine: Machine::new(settings.clone()),
            seq: 0,
            state: wire::RunState::Resting,
            reader,
        };
        let Some(reader) = ledger::open_reader(&layout.journal())? else {
            return match run {
                Some(run) => Err(LookError::NoSuchRun(run.to_owned())),
                None => Ok(nothing(None)),
            };
        };
        let newest = ledger::newest_run(&reader)?;
        let chosen = match run {
            None => newest.clone(),
            Some(name) => Some(find_run(&reader, name)?),
        };
        let Some(run) = chosen else { return Ok(nothing(Some(reader))) };
        let (machine, seq) = ledger::fold(&reader, &run, settings)?;
        let owned = newest.as_ref() == Some(&run)
            && matches!(lock::probe(&layout.lock())?, Probe::Busy { .. });
        let state = match (machine.engine_alive(), owned) {
            (true, true) if machine.is_paused() => wire::RunState::Paused,
            (true, true) => wire::RunState::Running,
            (true, false) => wire::RunState::Crashed,
            (false, _) if machine.is_paused() => wire::RunState::Paused,
            (false, _) => wire::RunState::Resting,
        };
        Ok(Self { run: Some(run), machine, seq, state, reader: Some(reader) })
    }

    /// An engine works on this run, as far as anybody can tell.
    fn is_at_work(&self) -> bool {
        match self.state {
            wire::RunState::Running => true,
            // A pause stops attempts, not the train.
            wire::RunState::Paused => self.machine.engine_alive(),
            wire::RunState::Crashed | wire::RunState::Resting => false,
        }
    }

    /// The whole as other programs get it.
    pub fn status(&self) -> wire::Status {
        let machine = &self.machine;
        let now = clock::now_ms();
        let ahead = machine.expectations(Time(now));
        let tasks: Vec<wire::TaskStatus> =
            machine.tasks().all().map(|t| task_status(machine, &ahead, t)).collect();
        wire::Status {
            schema: wire::SCHEMA.to_owned(),
            seq: self.seq,
            at: now,
            run: self.run.as_ref().map(ToString::to_string),
            title: machine.plan().title.clone(),
            target: self.run.as_ref().map(|_| machine.target().to_owned()),
            state: self.state,
            jobs: machine.jobs_in_force(),
            epics: epics(machine),
            budget: budget(machine),
            eta: eta(machine, &ahead),
            hosts: vec![this_host(machine, now)],
            train: train(machine, self.is_at_work()),
            questions: questions(machine),
            inbox: inbox(machine),
            limits: limits(machine, now),
            totals: totals(self, &tasks, now),
            aside: Vec::new(),
            dropped: dropped(machine),
            gates: Vec::new(),
            red_target: machine.base_failure().map(|failure| failed_check(failure, machine)),
            tasks,
        }
    }
}

fn id_of(machine: &Machine, t: TaskIx) -> String {
    machine.plan().tasks[t.ix()].id.to_string()
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A phase as other programs know it.
pub fn wire_phase(phase: Phase) -> wire::Phase {
    wire::Phase::from_word(phase.word()).expect("BUG: both lists are the contract's")
}

/// One task as other programs get it.
pub fn task_status(machine: &Machine, ahead: &Expectations, t: TaskIx) -> wire::TaskStatus {
    let task = &machine.plan().tasks[t.ix()];
    let view = machine.view(t);
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
        phase: wire_phase(view.phase),
        attempt: view.attempt,
        agent: some(view.agent),
        model: view.model,
        branch: view.branch,
        workspace: view.workspace,
        pid: view.pid.filter(|pid| *pid > 0),
        started_at: view.started_at.map(|at| at.0),
        ended_at: view.ended_at.map(|at| at.0),
        waiting_for: view.waiting_for,
        cost_usd: told.then_some(state.cost_usd),
        commit: view.commit.map(|commit| commit.to_string()),
        reason: some(view.reason),
        next_action: view.next_action,
        progress: None,
        needs: task.needs.iter().map(ToString::to_string).collect(),
        after: task.after.iter().map(ToString::to_string).collect(),
        since: since.map(|at| at.0),
        waiting_why: view.waiting_why.map(str::to_owned),
        critical: ahead.critical.contains(&t),
        expected_end: ahead.ends[t.ix()].map(|at| at.0),
        insertions: evidence.map(|evidence| evidence.insertions),
        deletions: evidence.map(|evidence| evidence.deletions),
        files: evidence.map(|evidence| u64::from(evidence.files)),
        host: host.map(|(host, _)| host.to_owned()),
        pull: machine.pull(t).and_then(|pull| {
            let (url, waits_for) = (pull.url.clone(), pull.waits_for.clone());
            Some(wire::PullStatus { number: pull.number?, url, waits_for })
        }),
        failed_check: machine.failed_check(t).map(|failure| failed_check(failure, machine)),
        stacked_on: machine.stacked_on(t).map(ToString::to_string),
    }
}

fn epics(machine: &Machine) -> Vec<EpicStatus> {
    let one = |epic: &Epic| {
        let of_epic = |t: &TaskIx| machine.plan().tasks[t.ix()].epic.as_ref() == Some(&epic.id);
        let tasks: Vec<TaskIx> = machine.tasks().all().filter(of_epic).collect();
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
        forecast_usd: machine.forecast().total_usd,
    }
}

fn eta(machine: &Machine, ahead: &Expectations) -> Eta {
    Eta {
        at: ahead.at.map(|at| at.0),
        critical_path: ahead.critical_path.iter().map(|t| id_of(machine, *t)).collect(),
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
        used: if machine.engine_alive() { machine.tasks().slots() } else { 0 },
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

fn failed_check(failure: &FailedGate, machine: &Machine) -> wire::FailedCheck {
    wire::FailedCheck {
        gate: failure.gate.clone(),
        place: failure.place(machine.target()),
        exit_code: failure.exit_code,
        cause: failure.cause.word().to_owned(),
        output: failure.last_lines(OUTPUT_LINES).into_iter().map(str::to_owned).collect(),
        hint: failure.cause.hint(),
    }
}

fn train(machine: &Machine, works: bool) -> Vec<wire::Car> {
    let cars = machine.train().cars().iter().zip(1..);
    cars.map(|(car, place)| {
        let (state, onto, candidate) = match &car.stage {
            Stage::Queued => (wire::CarState::Queued, None, None),
            Stage::Formed { onto, commit, .. } => {
                (formed_state(machine, car, works), Some(onto), Some(commit))
            }
            Stage::Landing { old, new, .. } => (wire::CarState::Verified, Some(old), Some(new)),
        };
        wire::Car {
            task: id_of(machine, car.task),
            attempt: car.attempt,
            state,
            place: Some(place),
            tip: Some(car.tip.to_string()),
            onto: onto.map(ToString::to_string),
            candidate: candidate.map(ToString::to_string),
            reason: machine
                .lasting(Some(&machine.plan().tasks[car.task.ix()].id))
                .map(str::to_owned),
        }
    })
    .collect()
}

/// A merge that exists is being verified, unless the gates have spoken, nobody is there to run them, or the target
/// branch itself is bad.
fn formed_state(machine: &Machine, car: &Car, works: bool) -> wire::CarState {
    match car.verdict {
        Some(true) => wire::CarState::Verified,
        None if works && !machine.is_held_up(car.task) => wire::CarState::Verifying,
        Some(false) | None => wire::CarState::Queued,
    }
}

fn dropped(machine: &Machine) -> Vec<wire::DroppedTask> {
    let landed = machine.landed_and_dropped().into_iter();
    landed
        .map(|(id, commit)| wire::DroppedTask { id: id.to_string(), commit: commit.to_string() })
        .collect()
}

fn questions(machine: &Machine) -> Vec<wire::Question> {
    let open = machine.questions().iter().cloned().chain(machine.decisions());
    open.map(|q| wire::Question {
        id: q.name.clone(),
        task: Some(id_of(machine, q.task)),
        attempt: Some(q.attempt),
        question: q.text.clone(),
        options: q.options.clone(),
        asked_at: q.at.0,
        default: q.default.clone(),
        deadline: q.deadline.map(|at| at.0),
    })
    .collect()
}

fn inbox(machine: &Machine) -> Vec<wire::InboxItem> {
    let items = machine.inbox().into_iter();
    items
        .map(|item| wire::InboxItem {
            id: item.id,
            kind: item.kind.word().to_owned(),
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

fn limits(machine: &Machine, now: i64) -> Vec<wire::Limit> {
    let auto_resume = machine.settings().limits.auto_resume;
    let ready = |t: &TaskIx| machine.tasks().phase(*t) == Phase::Ready;
    let mut limits: Vec<wire::Limit> = machine
        .providers()
        .iter()
        .filter_map(|(name, known)| {
            let until = known.rests_until(Time(now), auto_resume)?;
            let waits = |t: &TaskIx| ready(t) && machine.tasks().claims(*t).provider == *name;
            let waiting = machine.tasks().all().filter(waits).map(|t| id_of(machine, t)).collect();
            Some(wire::Limit {
                provider: name.clone(),
                until: until.map(|at| at.0),
                reason: known.message().to_owned(),
                kind: known.kind().word().to_owned(),
                waiting,
            })
        })
        .collect();
    if machine.tasks().count(Phase::Ready) > 0
        && let Some(until) = machine.quiet_until_at(Time(now), time::zone_minutes(now))
    {
        limits.push(wire::Limit {
            provider: "*".to_owned(),
            until: Some(until.0),
            reason: "limits.quiet_hours".to_owned(),
            kind: "quiet_hours".to_owned(),
            waiting: machine.tasks().all().filter(ready).map(|t| id_of(machine, t)).collect(),
        });
    }
    limits
}

fn totals(look: &Look, tasks: &[wire::TaskStatus], now: i64) -> wire::Totals {
    let machine = &look.machine;
    let mut totals = wire::Totals { tasks: tasks.len() as u64, ..wire::Totals::default() };
    for phase in PHASES {
        totals.by_phase.insert(wire_phase(phase), u64::from(machine.tasks().count(phase)));
    }
    totals.landed = u64::from(machine.tasks().count(Phase::Landed));
    totals.questions = questions(machine).len() as u64;
    let mut end = machine.started_at().map_or(now, |at| at.0);
    for t in machine.tasks().all() {
        let state = machine.tasks().get(t);
        totals.input_tokens += state.input_tokens;
        totals.output_tokens += state.output_tokens;
        totals.agent_ms += state.agent_ms;
        end = end.max(state.since.0);
    }
    let told = tasks.iter().any(|task| task.cost_usd.is_some());
    totals.cost_usd = told.then_some(machine.spent_usd());
    if machine.engine_alive() {
        end = now;
    }
    if let Some(began) = machine.started_at() {
        totals.elapsed_ms = u64::try_from(end - began.0).unwrap_or(0);
    }
    totals
}
