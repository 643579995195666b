//! Starting, finding again, answering and stopping an attempt's agent.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mainstem_agents::{Brief, PromptInput, adapter, allowed_env, answer_line, prompt};
use mainstem_core::config;
use mainstem_core::fact::{Claim, Ending};
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_core::plan::Epic;
use mainstem_core::work::Continued;
use mainstem_host::process::{self, DoorSpec, JobSpec, JobState, Start, Stop};
use mainstem_host::{crash, files, ports, private};

use super::{Errand, clash, earlier_work, mcp, workspace};
use crate::event::Event;
use crate::ledger;
use crate::lessons::{self, LessonError};
use crate::prompts;
use crate::told::Told;
use crate::walls::Behind;

/// First port that is leased; below are the well-known ones, above the system's own.
const PORT_FIRST: u16 = 20_000;
/// Ports per attempt.
const PORTS: u16 = 10;
/// Blocks of ports to choose from.
const PORT_BLOCKS: u16 = 1_000;

/// The attempt's folder for temporary files, its prompt, and what its driver writes down.
const PROMPT: &str = "prompt.md";
const TRANSCRIPT: &str = "transcript.jsonl";

/// What an agent is started with.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The agent's name.
    pub name: String,
    /// Its settings.
    pub agent: config::Agent,
    /// The model chosen.
    pub model: Option<String>,
    /// The session of an earlier attempt that it takes up.
    pub session: Option<String>,
    /// The task's epic.
    pub epic: Option<Epic>,
    /// Where the attempt starts.
    pub base: Oid,
    /// The commit that its workspace begins with, if that is not where it starts.
    pub checkout: Option<Oid>,
    /// What its workspace holds of earlier work.
    pub continued: Option<Continued>,
    /// It was seen alive already: it is found again, and never started a second time.
    pub seen: bool,
    /// What is laid out in its workspace, merged onto where it starts.
    pub merge: Option<Oid>,
    /// What it is told of the run.
    pub told: Told,
}

impl Assignment {
    fn begin(&self) -> &Oid {
        self.checkout.as_ref().unwrap_or(&self.base)
    }
}

/// Why an agent did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartFailure {
    why: String,
    /// Another try would end in the same way.
    permanent: bool,
}

impl StartFailure {
    pub(crate) fn permanent(why: impl std::fmt::Display) -> Self {
        Self { why: why.to_string(), permanent: true }
    }

    pub(crate) fn into_ending(self) -> Ending {
        Ending::NotStarted { why: self.why, permanent: self.permanent }
    }
}

/// What went wrong on this machine may go well the next time.
impl From<String> for StartFailure {
    fn from(why: String) -> Self {
        Self { why, permanent: false }
    }
}

/// Starts the agent, or finds it running or ended, and has its output followed.
pub fn run(errand: &Errand, assignment: &Assignment) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let world = &errand.world;
    let dir = world.layout.agent_job(&world.run, &errand.task.id, attempt);
    let started = match process::state(&dir) {
        // Somebody took its record away. What it left is judged like that of any agent that vanished.
        Ok(JobState::Absent) if assignment.seen => return bury(errand, Claim::None),
        Ok(JobState::Absent) => {
            workspace::make_sure(errand, assignment.begin(), assignment.merge.as_ref())
                .map_err(|error| StartFailure::from(error.to_string()))
                .and_then(|()| start(errand, assignment, &dir))
        }
        Ok(_) => Ok(()),
        Err(error) => return tell_trouble(errand, "looked at", &error),
    };
    if let Err(why) = started {
        // A start that failed may have started it all the same.
        match came_to_be(&dir) {
            Ok(true) => {}
            Ok(false) => {
                let ending = why.into_ending();
                return errand.tell(Input::AgentEnded {
                    task,
                    attempt,
                    ending,
                    claim: Claim::None,
                });
            }
            Err(error) => return tell_trouble(errand, "looked at", &error),
        }
    }
    crash::point("agent.started");
    let pid = process::pids(&dir).ok().flatten().and_then(|pids| pids.agent_pid).unwrap_or(0);
    errand.tell(Input::AgentStarted { task, attempt, pid });
    let _ = errand.results.send(Event::Follow { task, attempt, dir });
}

/// Is there a job after all? One that is still on its way is ended first.
fn came_to_be(dir: &Path) -> io::Result<bool> {
    if process::state(dir)? == JobState::Starting {
        process::end(dir)?;
    }
    Ok(process::state(dir)? != JobState::Absent)
}

fn start(errand: &Errand, assignment: &Assignment, dir: &Path) -> Result<(), StartFailure> {
    let world = &errand.world;
    let place = world.layout.attempt(&world.run, &errand.task.id, errand.attempt);
    let tmp = errand.tmp_for(&errand.workspace);
    let prompt_file = place.join(PROMPT);
    let write = |path: &Path, text: &str| {
        files::write_private(path, text.as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(&tmp)
        .map_err(|error| format!("cannot create {}: {error}", tmp.display()))?;
    write(&prompt_file, &world.redactor().redact_text(&prompt_of(errand, assignment)))?;
    let (door, entry) = mcp::prepare(errand, assignment, &tmp)?;
    std::fs::create_dir_all(dir)
        .map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
    let port = lease_port(errand, dir);
    let adapter = adapter(&assignment.agent.kind).map_err(StartFailure::permanent)?;
    let workspace = errand.workspace.clone();
    let launch = adapter
        .launch(&Brief {
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
        .map_err(StartFailure::permanent)?;
    for folder in &launch.folders {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot create {folder}: {error}"))?;
    }
    for (path, text) in &launch.files {
        write(Path::new(path), text)?;
    }
    let environment =
        allowed_env(world.env.iter().cloned(), &assignment.agent.secrets, &launch.env);
    report_missing_secrets(errand, assignment, &environment.missing);
    let mut env: BTreeMap<String, String> = environment.vars;
    env.extend(entry.env);
    let mut spec = world.agent_spec(launch.argv, workspace, env);
    spec.stdin = launch.stdin_prompt.then_some(prompt_file.clone());
    spec.converse = launch.converse;
    spec.door = Some(door);
    let limit = errand.task.timeout_ms.unwrap_or(world.settings.run.timeout_ms);
    spec.wall_ms = (limit > 0).then_some(limit);
    let spec = behind_wall(errand, assignment, spec, &launch.files, &launch.state)?;
    crash::point("agent.before_start");
    match process::start(dir, &spec, &world.supervisor()) {
        Ok(Start::Started | Start::AlreadyAlive | Start::AlreadyEnded(_)) => Ok(()),
        Err(error) => Err(error.to_string().into()),
    }
}

fn report_missing_secrets(errand: &Errand, assignment: &Assignment, missing: &[String]) {
    for name in missing {
        let message = format!(
            "the environment variable {name} is not set (secrets of agent {})",
            assignment.name
        );
        errand.tell(Input::Notice { task: Some(errand.ix), message });
    }
}

/// What attempts that ended before this one teach it.
fn lessons_for(errand: &Errand) -> Result<Vec<String>, LessonError> {
    let world = &errand.world;
    let Some(shelf) = &world.shelf else { return Ok(Vec::new()) };
    if let Some(reader) = ledger::open_reader(&world.layout.journal())? {
        shelf.catch_up(&reader, &world.repo, &world.target)?;
    }
    Ok(shelf.read(lessons::domain_of(&errand.task))?.told())
}

/// The attempt's prompt, as the template in force puts it.
fn prompt_of(errand: &Errand, assignment: &Assignment) -> String {
    let world = &errand.world;
    let told = &assignment.told;
    let lessons = lessons_for(errand).unwrap_or_else(|error| {
        let message = format!("the prompt has no lessons: {error}");
        errand.tell(Input::Notice { task: Some(errand.ix), message });
        Vec::new()
    });
    let mut retry = told.retry.clone();
    if let (Some(retry), Some(clashed)) = (&mut retry, &told.clashed) {
        (retry.sides, retry.other_tasks) = clash::told(errand, clashed, &assignment.base);
    }
    if let (Some(retry), Some(there)) = (&mut retry, &assignment.continued) {
        retry.kept = Some(earlier_work::told(errand, there, &assignment.base));
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
        bytes_max: prompts::bytes_max(&world.settings),
    };
    prompt::build(&input, &world.template)
}

/// The agent's job behind its wall. Of our state folder it sees what was written for it, and keeps its
/// transcript there.
fn behind_wall(
    errand: &Errand,
    assignment: &Assignment,
    spec: JobSpec,
    files: &[(String, String)],
    state: &[String],
) -> Result<JobSpec, String> {
    let world = &errand.world;
    let place = world.layout.attempt(&world.run, &errand.task.id, errand.attempt);
    let transcript = place.join(TRANSCRIPT);
    if world.walls.is_some() {
        // A file that exists can be handed over; a folder of ours cannot.
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&transcript)
            .map_err(|error| format!("cannot create {}: {error}", transcript.display()))?;
    }
    let mut reads: Vec<PathBuf> = files.iter().map(|(path, _)| PathBuf::from(path)).collect();
    reads.push(place.join(PROMPT));
    reads.extend(world.programs(&spec, &assignment.agent));
    let mut writes: Vec<PathBuf> = state.iter().map(PathBuf::from).collect();
    writes.push(transcript);
    if let Some(folder) = spec.door.as_ref().and_then(DoorSpec::folder) {
        // What is to be let in must be there when the sandbox is made.
        private::make_with_parent(folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        writes.push(folder.to_path_buf());
    }
    let behind = Behind {
        workspace: &errand.workspace,
        branch: Some(&errand.branch),
        tmp: Some(errand.tmp_for(&errand.workspace)),
        caches: Some(errand.caches_for(&errand.workspace)),
        reads,
        writes,
        agent: Some(&assignment.agent.kind),
    };
    world.walled(spec, &behind).map_err(|error| error.to_string())
}

/// The first of ten ports that are this attempt's alone until its workspace goes. An attempt does
/// not fail for lack of ports that it may never use; it is told of, and the block may be shared.
fn lease_port(errand: &Errand, job: &Path) -> u16 {
    let spread =
        errand.task.id.as_str().bytes().fold(0usize, |sum, b| sum * 31 % 1_009 + usize::from(b));
    let wish = PORT_FIRST + u16::try_from(spread % usize::from(PORT_BLOCKS)).unwrap_or(0) * PORTS;
    ports::lease(&ports::folder(), job, wish).unwrap_or_else(|error| {
        let message = format!("no ports reserved for this attempt: {error}");
        errand.tell(Input::Notice { task: Some(errand.ix), message });
        wish
    })
}

/// Ends the agent. One that was never started ends here and now.
pub fn stop(errand: &Errand, now: bool) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let world = &errand.world;
    let dir = world.layout.agent_job(&world.run, &errand.task.id, attempt);
    let how = if now { Stop::Kill } else { Stop::Term };
    let ended = |ending| Input::AgentEnded { task, attempt, ending, claim: Claim::None };
    match process::state(&dir) {
        Ok(JobState::Absent) => errand.tell(ended(Ending::Stopped {})),
        Ok(JobState::Ended(_) | JobState::Vanished) => {
            // Whoever follows the job reports this end.
            let _ = errand.results.send(Event::Follow { task, attempt, dir });
        }
        Ok(JobState::Starting | JobState::Alive(_)) => {
            if let Err(error) = process::stop(&dir, how) {
                tell_trouble(errand, "stopped", &error);
            }
            let _ = errand.results.send(Event::Follow { task, attempt, dir });
        }
        Err(error) => tell_trouble(errand, "stopped", &error),
    }
}

/// Hands an answer over; written twice it is read once.
pub fn answer(errand: &Errand, number: u32, question: &str, text: &str, reference: Option<&str>) {
    let world = &errand.world;
    let dir = world.layout.agent_job(&world.run, &errand.task.id, errand.attempt);
    let line = answer_line(question, text, reference);
    if let Err(error) = process::answer(&dir, number, line.trim_end()) {
        tell_trouble(errand, "answered", &error);
    }
    crash::point("answer.delivered");
}

/// The supervisor is gone: ends what is left of the tree, then says so.
pub fn bury(errand: &Errand, claim: Claim) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let world = &errand.world;
    let dir = world.layout.agent_job(&world.run, &errand.task.id, attempt);
    if let Err(error) = process::kill_leftovers(&dir) {
        // Its end is told only when all of it is dead.
        return tell_trouble(errand, "cleaned up after", &error);
    }
    errand.tell(Input::AgentEnded { task, attempt, ending: Ending::Vanished {}, claim });
}

/// Nothing is known of the agent now; the machine asks again.
fn tell_trouble(errand: &Errand, what: &str, error: &io::Error) {
    let reason = format!("the agent could not be {what}: {error}");
    let (task, attempt) = (errand.ix, errand.attempt);
    errand.tell(Input::AgentUnreached { task, attempt, reason });
}
