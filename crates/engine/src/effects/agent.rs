//! Starting, finding again, answering and stopping an attempt's agent.

use std::io;
use std::path::Path;

use mainstem_agents::{PromptInput, answer_line, prompt};
use mainstem_core::attempt_work::ContinuedWork;
use mainstem_core::config;
use mainstem_core::fact::{AgentClaim, AgentEnding};
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_core::plan::Epic;
use mainstem_host::process::{self, JobState, JobStopMode};
use mainstem_host::{crash, port_leases};

use super::{EffectContext, conflict_text, earlier_work, tool_server, workspace};
use crate::agent_call::{
    AgentCall, AgentPurpose, AgentStartFailure, create_folder, job_was_started,
};
use crate::attempt_prompt::AttemptPromptContext;
use crate::event::EngineEvent;
use crate::lessons::{self, LessonError};
use crate::prompt_template;
use crate::run_journal;

/// First port that is leased; below are the well-known ones, above the system's own.
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 10;
/// Blocks of ports to choose from.
const PORT_BLOCKS: u16 = 1_000;

/// What an agent is started with.
#[derive(Debug, Clone)]
pub struct AttemptLaunch {
    pub name: String,
    pub agent: config::AgentSettings,
    pub model: Option<String>,
    /// The session of an earlier attempt that it takes up.
    pub session: Option<String>,
    pub epic: Option<Epic>,
    /// Where the attempt starts.
    pub base: Oid,
    /// The commit that its workspace begins with, if that is not where it starts.
    pub checkout: Option<Oid>,
    /// What its workspace holds of earlier work.
    pub continued: Option<ContinuedWork>,
    /// It was seen alive already: it is found again, and never started a second time.
    pub was_seen: bool,
    /// What is laid out in its workspace, merged onto where it starts.
    pub merge: Option<Oid>,
    /// What it is told of the run.
    pub prompt_context: AttemptPromptContext,
}

impl AttemptLaunch {
    fn starting_commit(&self) -> &Oid {
        self.checkout.as_ref().unwrap_or(&self.base)
    }
}

/// Starts the agent, or finds it running or ended, and has its output followed.
pub fn run_agent(errand: &EffectContext, assignment: &AttemptLaunch) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let world = &errand.engine;
    let dir = world.layout.agent_job(&world.run, &errand.task.id, attempt);
    let started = match process::read_job_state(&dir) {
        // Somebody took its record away. What it left is judged like that of any agent that vanished.
        Ok(JobState::Absent) if assignment.was_seen => {
            return reap_vanished_agent(errand, AgentClaim::None);
        }
        Ok(JobState::Absent) => workspace::ensure_workspace(
            errand,
            assignment.starting_commit(),
            assignment.merge.as_ref(),
        )
        .map_err(|error| AgentStartFailure::from(error.to_string()))
        .and_then(|()| start_agent(errand, assignment, &dir)),
        Ok(_) => Ok(()),
        Err(error) => return report_agent_trouble(errand, "looked at", &error),
    };
    if let Err(why) = started {
        // A start that failed may have started it all the same.
        match job_was_started(&dir) {
            Ok(true) => {}
            Ok(false) => {
                let ending = why.into_ending();
                return errand.send_input(Input::AgentEnded {
                    task,
                    attempt,
                    ending,
                    claim: AgentClaim::None,
                });
            }
            Err(error) => return report_agent_trouble(errand, "looked at", &error),
        }
    }
    crash::point("agent.started");
    let pid =
        process::read_job_pids(&dir).ok().flatten().and_then(|pids| pids.agent_pid).unwrap_or(0);
    errand.send_input(Input::AgentStarted { task, attempt, pid });
    let _ = errand.results.send(EngineEvent::WatchAgent { task, attempt, dir });
}

fn start_agent(
    errand: &EffectContext,
    assignment: &AttemptLaunch,
    job: &Path,
) -> Result<(), AgentStartFailure> {
    let engine = &errand.engine;
    let tmp = errand.temp_dir_for(&errand.workspace);
    create_folder(&tmp)?;
    let (tool_socket, tools) = tool_server::prepare_tool_server(errand, assignment, &tmp)?;
    create_folder(job)?;
    let prompt = build_prompt(errand, assignment);
    let call = AgentCall {
        engine,
        agent_name: &assignment.name,
        agent: &assignment.agent,
        model: assignment.model.as_deref(),
        effort: None,
        task: &errand.task,
        attempt: errand.attempt,
        base: &assignment.base,
        prompt: &engine.build_redactor().redact_text(&prompt),
        folder: &engine.layout.attempt_dir(&engine.run, &errand.task.id, errand.attempt),
        workspace: &errand.workspace,
        tmp: &tmp,
        variables: tools.env.clone(),
        timeout_ms: errand.task.timeout_ms.unwrap_or(engine.settings.run.timeout_ms),
        keeps_work: true,
        purpose: AgentPurpose::Work {
            branch: &errand.branch,
            caches: errand.cache_dir_for(&errand.workspace),
            session: assignment.session.as_deref(),
            port: lease_agent_ports(errand, job),
            tools: &tools,
            tool_socket,
        },
    };
    let prepared = call.prepare()?;
    report_missing_secrets(errand, assignment, &prepared.missing_secrets);
    crash::point("agent.before_start");
    process::start_job(job, &prepared.spec, &engine.supervisor_command())
        .map_err(|error| error.to_string())?;
    Ok(())
}

fn report_missing_secrets(errand: &EffectContext, assignment: &AttemptLaunch, missing: &[String]) {
    for name in missing {
        let message = format!(
            "the environment variable {name} is not set (secrets of agent {})",
            assignment.name
        );
        errand.send_input(Input::Notice { task: Some(errand.ix), message });
    }
}

/// What attempts that ended before this one teach it.
fn load_lessons(errand: &EffectContext) -> Result<Vec<String>, LessonError> {
    let world = &errand.engine;
    let Some(shelf) = &world.lessons else { return Ok(Vec::new()) };
    if let Some(reader) = run_journal::open_journal_reader(&*world.layout.run_store())? {
        shelf.learn_from_journal(&*reader, &world.repo, &world.target)?;
    }
    Ok(shelf.read_lessons(lessons::task_domain(&errand.task))?.prompt_lines())
}

/// The attempt's prompt, as the template in force puts it.
fn build_prompt(errand: &EffectContext, assignment: &AttemptLaunch) -> String {
    let world = &errand.engine;
    let told = &assignment.prompt_context;
    let lessons = load_lessons(errand).unwrap_or_else(|error| {
        let message = format!("the prompt has no lessons: {error}");
        errand.send_input(Input::Notice { task: Some(errand.ix), message });
        Vec::new()
    });
    let mut retry = told.retry.clone();
    if let (Some(retry), Some(clashed)) = (&mut retry, &told.clashed) {
        (retry.sides, retry.other_tasks) =
            conflict_text::describe_conflict(errand, clashed, &assignment.base);
    }
    if let (Some(retry), Some(there)) = (&mut retry, &assignment.continued) {
        retry.kept = Some(earlier_work::describe_earlier_work(errand, there, &assignment.base));
    }
    let input = PromptInput {
        task: &errand.task,
        epic_title: assignment.epic.as_ref().map(|epic| epic.title.as_str()),
        landed_before: &told.landed_before,
        gates: &world.settings.gates.verify,
        retry: retry.as_ref(),
        hint: told.hint.as_deref(),
        answers: &told.answers,
        lessons: &lessons,
        bytes_max: prompt_template::max_prompt_bytes(&world.settings),
    };
    prompt::build_prompt(&input, &world.template)
}

/// The first of ten ports that are this attempt's alone until its workspace goes. An attempt does
/// not fail for lack of ports that it may never use; it is told of, and the block may be shared.
fn lease_agent_ports(errand: &EffectContext, job: &Path) -> u16 {
    let spread =
        errand.task.id.as_str().bytes().fold(0usize, |sum, b| sum * 31 % 1_009 + usize::from(b));
    let wish = PORT_FIRST + u16::try_from(spread % usize::from(PORT_BLOCKS)).unwrap_or(0) * PORTS;
    port_leases::lease_ports(&port_leases::lease_folder(), job, wish).unwrap_or_else(|error| {
        let message = format!("no ports reserved for this attempt: {error}");
        errand.send_input(Input::Notice { task: Some(errand.ix), message });
        wish
    })
}

/// Ends the agent. One that was never started ends here and now.
pub fn stop_agent(errand: &EffectContext, now: bool) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let world = &errand.engine;
    let dir = world.layout.agent_job(&world.run, &errand.task.id, attempt);
    let how = if now { JobStopMode::Kill } else { JobStopMode::Term };
    let ended = |ending| Input::AgentEnded { task, attempt, ending, claim: AgentClaim::None };
    match process::read_job_state(&dir) {
        Ok(JobState::Absent) => errand.send_input(ended(AgentEnding::Stopped {})),
        Ok(JobState::Ended(_) | JobState::Vanished) => {
            // Whoever follows the job reports this end.
            let _ = errand.results.send(EngineEvent::WatchAgent { task, attempt, dir });
        }
        Ok(JobState::Starting | JobState::Alive(_)) => {
            if let Err(error) = process::stop_job(&dir, how) {
                report_agent_trouble(errand, "stopped", &error);
            }
            let _ = errand.results.send(EngineEvent::WatchAgent { task, attempt, dir });
        }
        Err(error) => report_agent_trouble(errand, "stopped", &error),
    }
}

/// Hands an answer over; written twice it is read once.
pub fn deliver_answer(
    errand: &EffectContext,
    number: u32,
    question: &str,
    text: &str,
    reference: Option<&str>,
) {
    let world = &errand.engine;
    let dir = world.layout.agent_job(&world.run, &errand.task.id, errand.attempt);
    let line = answer_line(question, text, reference);
    if let Err(error) = process::answer_question(&dir, number, line.trim_end()) {
        report_agent_trouble(errand, "answered", &error);
    }
    crash::point("answer.delivered");
}

/// The supervisor is gone: ends what is left of the tree, then says so.
pub fn reap_vanished_agent(errand: &EffectContext, claim: AgentClaim) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let world = &errand.engine;
    let dir = world.layout.agent_job(&world.run, &errand.task.id, attempt);
    if let Err(error) = process::kill_job_leftovers(&dir) {
        // Its end is told only when all of it is dead.
        return report_agent_trouble(errand, "cleaned up after", &error);
    }
    errand.send_input(Input::AgentEnded { task, attempt, ending: AgentEnding::Vanished {}, claim });
}

/// Nothing is known of the agent now; the machine asks again.
fn report_agent_trouble(errand: &EffectContext, what: &str, error: &io::Error) {
    let reason = format!("the agent could not be {what}: {error}");
    let (task, attempt) = (errand.ix, errand.attempt);
    errand.send_input(Input::AgentUnreachable { task, attempt, reason });
}
