//! Where a run stands, as `status --json` prints it.

use std::collections::BTreeMap;

use mainstem_api::outlook::{BudgetStatus, EpicStatus, Eta, HostStatus};
use mainstem_api::{status as wire, time};
use mainstem_core::eta::Expectations;
use mainstem_core::failed_gate::FailedGate;
use mainstem_core::id::{TaskIx, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::{PHASES, Phase};
use mainstem_core::plan::Epic;
use mainstem_core::train::{CandidateStage, TrainCandidate};

use crate::control_socket;
use crate::query::RunReader;
use crate::repo_layout::RepoLayout;

impl RunReader {
    /// Where the run stands, as far as the journal tells.
    pub fn status(&self) -> wire::RunStatus {
        let machine = &self.machine;
        let now = self.now().0;
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

    /// The same, with what a running engine says about its agents and checks, and with folders that were moved aside.
    pub fn live_status(&self, layout: &RepoLayout) -> wire::RunStatus {
        let mut status = self.status();
        let engine = matches!(status.state, wire::RunState::Running | wire::RunState::Paused);
        if engine && !status.tasks.is_empty() {
            let wire::StatusActivity { mut agents, gates } =
                control_socket::fetch_status_activity(&layout.socket_path());
            status.gates = gates;
            let working = |task: &&mut wire::TaskStatus| task.phase == wire::StatusPhase::Working;
            for task in status.tasks.iter_mut().filter(working) {
                task.progress = agents.remove(&task.id);
            }
        }
        let aside = layout.list_kept_aside();
        status.aside = aside.iter().map(|path| path.display().to_string()).collect();
        status
    }

    /// What waits for an answer, oldest first.
    pub fn questions(&self) -> Vec<wire::StatusQuestion> {
        list_questions(&self.machine)
    }

    /// Everything that needs a person, most urgent first.
    pub fn inbox(&self) -> Vec<wire::StatusInboxItem> {
        list_inbox_items(&self.machine)
    }
}

pub(crate) fn task_id(machine: &Machine, t: TaskIx) -> String {
    machine.plan().tasks[t.index()].id.to_string()
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A phase as other programs know it.
pub fn status_phase(phase: Phase) -> wire::StatusPhase {
    wire::StatusPhase::parse(phase.as_str()).expect("BUG: both lists are the contract's")
}

/// Where one task stands.
pub fn build_task_status(machine: &Machine, ahead: &Expectations, t: TaskIx) -> wire::TaskStatus {
    let task = &machine.plan().tasks[t.index()];
    let needs = task.needs.iter().map(ToString::to_string).collect();
    let after = task.after.iter().map(ToString::to_string).collect();
    build_task_status_with_edges(machine, ahead, t, (needs, after))
}

/// The same with edges of the caller's choice: the tasks that it needs, and those that it comes after.
pub(crate) fn build_task_status_with_edges<Edge>(
    machine: &Machine,
    ahead: &Expectations,
    t: TaskIx,
    (needs, after): (Vec<Edge>, Vec<Edge>),
) -> wire::TaskStatus<Edge> {
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
        agent_ended_at: state.current.as_ref().and_then(|attempt| Some(attempt.ended_at?.0)),
        waiting_for: view.waiting_for,
        cost_usd: told.then_some(state.cost_usd),
        commit: view.commit.map(|commit| commit.to_string()),
        reason: non_empty(view.reason),
        next_action: view.next_action,
        progress: None,
        needs,
        after,
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
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for t in machine.tasks().all_tasks() {
        let Some(epic) = &machine.plan().tasks[t.index()].epic else { continue };
        let (tasks, landed) = counts.entry(epic.as_str()).or_default();
        *tasks += 1;
        *landed += u64::from(machine.tasks().phase(t) == Phase::Landed);
    }
    let one = |epic: &Epic| {
        let (tasks, landed) = counts.get(epic.id.as_str()).copied().unwrap_or_default();
        EpicStatus {
            id: epic.id.to_string(),
            title: epic.title.clone(),
            needs: epic.needs.iter().map(ToString::to_string).collect(),
            tasks,
            landed,
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

pub(crate) fn list_train_candidates(machine: &Machine, works: bool) -> Vec<wire::StatusCandidate> {
    let usually_ms = usual_train_ms(machine);
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
            since: Some(machine.tasks().get(car.task).since.0),
            usually_ms,
        }
    })
    .collect()
}

/// How long the gates of the train usually take together; none if one of them never ran in this run.
fn usual_train_ms(machine: &Machine) -> Option<u64> {
    let gates = &machine.settings().gates.verify;
    let times = gates.iter().map(|gate| machine.usual_gate_ms(gate));
    times.sum::<Option<u64>>().filter(|_| !gates.is_empty())
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

fn compute_totals(run: &RunReader, tasks: &[wire::TaskStatus], now: i64) -> wire::StatusTotals {
    let machine = &run.machine;
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
