//! Starting, finding again, answering and stopping an attempt's agent.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mainstem_agents::{
    LaunchBrief, PromptInput, allowed_environment, answer_line, find_adapter, prompt,
};
use mainstem_core::attempt_work::ContinuedWork;
use mainstem_core::config;
use mainstem_core::fact::{AgentClaim, AgentEnding};
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_core::plan::Epic;
use mainstem_host::process::{self, JobSpec, JobStart, JobState, JobStopMode, ToolSocketSpec};
use mainstem_host::{crash, files, port_leases, user_folder};

use super::{EffectContext, conflict_text, earlier_work, tool_server, workspace};
use crate::attempt_prompt::AttemptPromptContext;
use crate::event::EngineEvent;
use crate::lessons::{self, LessonError};
use crate::prompt_template;
use crate::run_journal;
use crate::sandbox_policy::SandboxScope;

/// First port that is leased; below are the well-known ones, above the system's own.
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 10;
/// Blocks of ports to choose from.
const PORT_BLOCKS: u16 = 1_000;

/// The attempt's folder for temporary files, its prompt, and what its driver writes down.
const PROMPT: &str = "prompt.md";
const TRANSCRIPT: &str = "transcript.jsonl";

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

/// Why an agent did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentStartFailure {
    why: String,
    /// Another try would end in the same way.
    permanent: bool,
}

impl AgentStartFailure {
    pub(crate) fn permanent(why: impl std::fmt::Display) -> Self {
        Self { why: why.to_string(), permanent: true }
    }

    pub(crate) fn into_ending(self) -> AgentEnding {
        AgentEnding::NotStarted { why: self.why, permanent: self.permanent }
    }
}

/// What went wrong on this machine may go well the next time.
impl From<String> for AgentStartFailure {
    fn from(why: String) -> Self {
        Self { why, permanent: false }
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

/// Is there a job after all? One that is still on its way is ended first.
fn job_was_started(dir: &Path) -> io::Result<bool> {
    if process::read_job_state(dir)? == JobState::Starting {
        process::end_job(dir)?;
    }
    Ok(process::read_job_state(dir)? != JobState::Absent)
}

fn start_agent(
    errand: &EffectContext,
    assignment: &AttemptLaunch,
    dir: &Path,
) -> Result<(), AgentStartFailure> {
    let world = &errand.engine;
    let place = world.layout.attempt_dir(&world.run, &errand.task.id, errand.attempt);
    let tmp = errand.temp_dir_for(&errand.workspace);
    let prompt_file = place.join(PROMPT);
    let write = |path: &Path, text: &str| {
        files::write_private(path, text.as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(&tmp)
        .map_err(|error| format!("cannot create {}: {error}", tmp.display()))?;
    write(&prompt_file, &world.build_redactor().redact_text(&build_prompt(errand, assignment)))?;
    let (door, entry) = tool_server::prepare_tool_server(errand, assignment, &tmp)?;
    std::fs::create_dir_all(dir)
        .map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
    let port = lease_agent_ports(errand, dir);
    let adapter = find_adapter(&assignment.agent.kind).map_err(AgentStartFailure::permanent)?;
    let workspace = errand.workspace.clone();
    let launch = adapter
        .launch(&LaunchBrief {
            task: &errand.task,
            epic: assignment.epic.as_ref(),
            run: &world.run,
            attempt: errand.attempt,
            base: &assignment.base,
            branch: &errand.branch,
            workspace: &workspace.to_string_lossy(),
            port,
            tmp: &tmp.to_string_lossy(),
            prompt_file: &prompt_file.to_string_lossy(),
            model: assignment.model.as_deref(),
            session: assignment.session.as_deref(),
            agent_name: &assignment.name,
            agent: &assignment.agent,
            script_file: &place.join("script.json").to_string_lossy(),
            own_exe: &world.exe.to_string_lossy(),
            effort: None,
            mcp: Some(&entry),
            inherited: &world.env,
        })
        .map_err(AgentStartFailure::permanent)?;
    for folder in &launch.folders {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot create {folder}: {error}"))?;
    }
    for (path, text) in &launch.files {
        write(Path::new(path), text)?;
    }
    let environment =
        allowed_environment(world.env.iter().cloned(), &assignment.agent.secrets, &launch.env);
    report_missing_secrets(errand, assignment, &environment.missing);
    let mut env: BTreeMap<String, String> = environment.vars;
    env.extend(entry.env);
    let mut spec = world.agent_job(launch.argv, workspace, env);
    spec.stdin = launch.stdin_prompt.then_some(prompt_file.clone());
    spec.converse = launch.converse;
    spec.door = Some(door);
    let limit = errand.task.timeout_ms.unwrap_or(world.settings.run.timeout_ms);
    spec.wall_ms = (limit > 0).then_some(limit);
    let spec = sandbox_agent_job(errand, assignment, spec, &launch.files, &launch.state)?;
    crash::point("agent.before_start");
    match process::start_job(dir, &spec, &world.supervisor_command()) {
        Ok(JobStart::Started | JobStart::AlreadyAlive | JobStart::AlreadyEnded(_)) => Ok(()),
        Err(error) => Err(error.to_string().into()),
    }
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

/// The agent's job behind its wall. Of our state folder it sees what was written for it, and keeps its
/// transcript there.
fn sandbox_agent_job(
    errand: &EffectContext,
    assignment: &AttemptLaunch,
    spec: JobSpec,
    files: &[(String, String)],
    state: &[String],
) -> Result<JobSpec, String> {
    let world = &errand.engine;
    let place = world.layout.attempt_dir(&world.run, &errand.task.id, errand.attempt);
    let transcript = place.join(TRANSCRIPT);
    if world.sandbox.is_some() {
        // A file that exists can be handed over; a folder of ours cannot.
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&transcript)
            .map_err(|error| format!("cannot create {}: {error}", transcript.display()))?;
    }
    let mut reads: Vec<PathBuf> = files.iter().map(|(path, _)| PathBuf::from(path)).collect();
    reads.push(place.join(PROMPT));
    reads.extend(world.list_program_dirs(&spec, &assignment.agent));
    let mut writes: Vec<PathBuf> = state.iter().map(PathBuf::from).collect();
    writes.push(transcript);
    if let Some(folder) = spec.door.as_ref().and_then(ToolSocketSpec::folder) {
        // What is to be let in must be there when the sandbox is made.
        user_folder::create_private_folder_with_parent(folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        writes.push(folder.to_path_buf());
    }
    let behind = SandboxScope {
        workspace: &errand.workspace,
        branch: Some(&errand.branch),
        tmp: Some(errand.temp_dir_for(&errand.workspace)),
        caches: Some(errand.cache_dir_for(&errand.workspace)),
        readable_paths: reads,
        writable_paths: writes,
        agent: Some(&assignment.agent.kind),
    };
    world.sandboxed_job(spec, &behind).map_err(|error| error.to_string())
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
