//! One call of an agent: the prompt, the job, the answer. Each may be done twice; the second time finds the
//! first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mainstem_agents::{LaunchBrief, allowed_environment, find_adapter};
use mainstem_core::config::{self, AgentPermission};
use mainstem_core::fact::{AgentClaim, AgentEnding, AgentFault};
use mainstem_core::id::{Oid, TaskId};
use mainstem_core::plan::Task;
use mainstem_host::process::{self, JobState, OutputStream};
use mainstem_host::{crash, files};
use mainstem_planner::draft::{
    Draft, DraftAnswer, DraftInput, DraftPart, DraftPromptInput, find_answer,
};
use mainstem_planner::extract::SIZE_MAX;
use mainstem_planner::schema::{AnswerProblem, EpicBreakdown};

use super::DraftRequest;
use crate::effects::agent::AgentStartFailure;
use crate::engine_context::EngineContext;
use crate::prompt_template;
use crate::sandbox_policy::SandboxScope;

/// In a call's folder: the supervised job.
pub(super) const JOB: &str = "agent";
/// In a call's folder: where the agent works, empty but for its answer.
const ROOM: &str = "room";
/// What a driver puts before lines that are log.
const LOG_MARK: &str = "│ ";
/// Read at once from a log.
const READ_BYTES: usize = 1 << 20;

/// The file in which the answer is expected.
pub fn answer_file_name(part: &DraftPart) -> String {
    match part {
        DraftPart::Shred => "epic-breakdown.json".to_owned(),
        DraftPart::Epic(id) => format!("epic-{id}.json"),
        DraftPart::Whole => "epics-and-tasks.json".to_owned(),
    }
}

fn call_folder(world: &EngineContext, part: &DraftPart, call: u32) -> PathBuf {
    world.layout.draft_call_dir(&world.run, &part.to_string(), call)
}

/// The job of a call.
pub(super) fn call_job_folder(world: &EngineContext, part: &DraftPart, call: u32) -> PathBuf {
    call_folder(world, part, call).join(JOB)
}

/// Everything that a call is started with.
pub(super) struct DraftCall {
    part: DraftPart,
    call: u32,
    agent: String,
    model: Option<String>,
    effort: Option<String>,
    prd: String,
    breakdown: Option<EpicBreakdown>,
    problems: Vec<AnswerProblem>,
}

impl DraftCall {
    pub(super) fn new(
        draft: &Draft,
        request: &DraftRequest,
        (part, call): (&DraftPart, u32),
    ) -> Self {
        let state = draft.parts().get(part);
        Self {
            part: part.clone(),
            call,
            agent: state.map(|state| state.agent.clone()).unwrap_or_default(),
            model: draft.agent_for(part).model.clone(),
            effort: request.effort.clone(),
            prd: request.prd.clone(),
            breakdown: draft.breakdown().cloned(),
            problems: state.map(|state| state.problems.clone()).unwrap_or_default(),
        }
    }

    /// Starts the agent, or finds it running or ended; says where its job is.
    pub(super) fn start_agent(&self, world: &EngineContext) -> Result<PathBuf, AgentStartFailure> {
        let dir = call_job_folder(world, &self.part, self.call);
        match process::read_job_state(&dir) {
            Ok(JobState::Absent) => {}
            Ok(_) => return Ok(dir),
            Err(error) => return Err(format!("{}: {error}", dir.display()).into()),
        }
        let spec = self.prepare_job(world, &call_folder(world, &self.part, self.call))?;
        crash::point("draft.before_start");
        if let Err(error) = process::start_job(&dir, &spec, &world.supervisor_command()) {
            // A start that failed may have started it all the same.
            if !job_was_started(&dir).map_err(|error| error.to_string())? {
                return Err(error.to_string().into());
            }
        }
        crash::point("draft.started");
        Ok(dir)
    }

    fn build_prompt(&self, world: &EngineContext, output: &Path) -> String {
        let previous =
            self.call.checked_sub(1).and_then(|call| read_earlier_answer(world, &self.part, call));
        let ask = DraftPromptInput {
            part: &self.part,
            prd: &self.prd,
            breakdown: self.breakdown.as_ref(),
            problems: &self.problems,
            previous: previous.as_deref(),
            output: &output.to_string_lossy(),
            bytes_max: prompt_template::max_prompt_bytes(&world.settings),
        };
        ask.build_prompt().text
    }

    /// Variables that only planner calls have.
    fn call_variables(&self, output: &Path) -> BTreeMap<String, String> {
        let output = output.to_string_lossy().into_owned();
        let stage = self.part.stage().to_owned();
        let epic = self.part.epic().map(|epic| ("MAINSTEM_EPIC".to_owned(), epic.to_owned()));
        let always = [("MAINSTEM_STAGE".to_owned(), stage), ("MAINSTEM_OUTPUT".to_owned(), output)];
        always.into_iter().chain(epic).collect()
    }

    /// Writes the prompt and says how the agent is run. It works in an empty folder and may write one file
    /// there.
    fn prepare_job(
        &self,
        world: &EngineContext,
        place: &Path,
    ) -> Result<process::JobSpec, AgentStartFailure> {
        let room = place.join(ROOM);
        let text = |error: std::io::Error| format!("{}: {error}", place.display());
        // An answer of an earlier try must not be taken for this one's.
        files::remove_all(&room).map_err(text)?;
        std::fs::create_dir_all(&room).map_err(text)?;
        std::fs::create_dir_all(place.join(JOB)).map_err(text)?;
        let (script, tmp) = (place.join("script.json"), place.join("tmp"));
        std::fs::create_dir_all(&tmp).map_err(text)?;
        let (prompt, output) = (place.join("prompt.md"), room.join(answer_file_name(&self.part)));
        let asked = self.build_prompt(world, &output);
        files::write_private(&prompt, asked.as_bytes()).map_err(text)?;
        let known = world.settings.agents.get(&self.agent).cloned();
        let unknown = || AgentStartFailure::permanent(format!("unknown agent {}", self.agent));
        let agent = known.ok_or_else(unknown)?;
        let agent = config::AgentSettings {
            permission: AgentPermission::List,
            allowed_tools: vec![format!("Write({})", output.display())],
            ..agent
        };
        let task = Task { id: TaskId::new(self.part.to_string()), ..Task::empty() };
        let launch = find_adapter(&agent.kind)
            .map_err(AgentStartFailure::permanent)?
            .launch(&LaunchBrief {
                task: &task,
                epic: None,
                run: &world.run,
                attempt: self.call,
                base: &Oid::new(""),
                branch: "",
                workspace: &room.to_string_lossy(),
                port: 0,
                tmp: &tmp.to_string_lossy(),
                prompt_file: &prompt.to_string_lossy(),
                model: self.model.as_deref(),
                session: None,
                agent_name: &self.agent,
                agent: &agent,
                script_file: &script.to_string_lossy(),
                own_exe: &world.exe.to_string_lossy(),
                effort: self.effort.as_deref(),
                mcp: None,
                inherited: &world.env,
            })
            .map_err(AgentStartFailure::permanent)?;
        for folder in &launch.folders {
            std::fs::create_dir_all(folder).map_err(text)?;
        }
        for (path, content) in &launch.files {
            files::write_atomic(Path::new(path), content.as_bytes()).map_err(text)?;
        }
        let mut env =
            allowed_environment(world.env.iter().cloned(), &agent.secrets, &launch.env).vars;
        env.extend(self.call_variables(&output));
        let mut spec = world.agent_job(launch.argv, room.clone(), env);
        let mut reads = world.list_program_dirs(&spec, &agent);
        reads.extend([prompt.clone(), script].into_iter().filter(|path| path.exists()));
        reads.extend(launch.files.iter().map(|(path, _)| PathBuf::from(path)));
        spec.stdin = launch.stdin_prompt.then_some(prompt);
        spec.wall_ms = Some(world.settings.run.timeout_ms).filter(|ms| *ms > 0);
        let behind = SandboxScope {
            workspace: &room,
            caches: Some(tmp.join("caches")),
            tmp: Some(tmp),
            readable_paths: reads,
            writable_paths: launch.state.iter().map(PathBuf::from).collect(),
            agent: Some(&agent.kind),
            ..SandboxScope::default()
        };
        world.sandboxed_job(spec, &behind).map_err(|error| error.to_string().into())
    }
}

/// Is there a job after all? One that is still on its way is ended first.
fn job_was_started(dir: &Path) -> std::io::Result<bool> {
    if process::read_job_state(dir)? == JobState::Starting {
        process::end_job(dir)?;
    }
    Ok(process::read_job_state(dir)? != JobState::Absent)
}

/// What an earlier call gave, for the one that mends it.
fn read_earlier_answer(world: &EngineContext, part: &DraftPart, call: u32) -> Option<String> {
    let written = read_answer_file(world, part, call).filter(|text| !text.trim().is_empty());
    written.or_else(|| read_printed_output(&call_job_folder(world, part, call)).ok())
}

fn read_answer_file(world: &EngineContext, part: &DraftPart, call: u32) -> Option<String> {
    let path = call_folder(world, part, call).join(ROOM).join(answer_file_name(part));
    // Links lead to files that no agent wrote as its answer; pipes lead nowhere.
    let bytes = files::read_regular_file(&path, SIZE_MAX as u64 + 1).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// All that was printed, without the lines of our own protocol.
pub(crate) fn read_printed_output(job: &Path) -> std::io::Result<String> {
    let (mut from, mut text) = (0, String::new());
    loop {
        let output = process::read_job_output(job, from, READ_BYTES)?;
        if output.next == from || text.len() > SIZE_MAX {
            return Ok(text);
        }
        from = output.next;
        for line in output.lines.iter().filter(|line| line.stream == OutputStream::Stdout) {
            let said = String::from_utf8_lossy(&line.text);
            if said.starts_with("{\"mainstem\":") {
                continue;
            }
            text.push_str(said.strip_prefix(LOG_MARK).unwrap_or(&said));
            if !line.continues {
                text.push('\n');
            }
        }
    }
}

/// Reads what a call left behind; what is left of one that vanished is ended first.
pub(super) fn read_call_answer(
    world: &EngineContext,
    (part, call): (&DraftPart, u32),
    epics: &BTreeSet<String>,
    ending: &AgentEnding,
) -> Result<DraftAnswer, Vec<AnswerProblem>> {
    let job = call_job_folder(world, part, call);
    let unreadable = |error: std::io::Error| {
        vec![AnswerProblem::new("json", format!("cannot read the output: {error}"))]
    };
    if matches!(ending, AgentEnding::Vanished {}) {
        process::kill_job_leftovers(&job).map_err(unreadable)?;
    }
    let file = read_answer_file(world, part, call);
    let printed = read_printed_output(&job).map_err(unreadable)?;
    find_answer(part, epics, file.as_deref(), &printed)
}

/// The end of a call that never began.
pub(super) fn not_started_input(
    part: DraftPart,
    call: u32,
    failed: AgentStartFailure,
) -> DraftInput {
    let ending = failed.into_ending();
    DraftInput::Ended { part, call, ending, claim: AgentClaim::None, answer: Err(Vec::new()) }
}

/// The end of a call whose worker broke.
pub(super) fn broken_call_input(part: DraftPart, call: u32, what: String) -> DraftInput {
    let message = format!("BUG: a worker broke off: {what}");
    let claim = AgentClaim::Failed { fault: AgentFault::Other, message, help: None };
    DraftInput::Ended {
        part,
        call,
        ending: AgentEnding::Vanished {},
        claim,
        answer: Err(Vec::new()),
    }
}

/// Runs it; a panic comes back as its message.
pub(super) fn catch_panic(work: impl FnOnce()) -> Result<(), String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_worker_is_a_failure_of_its_part_alone() {
        assert_eq!(catch_panic(|| {}), Ok(()));
        assert_eq!(catch_panic(|| panic!("E-002 broke")), Err("E-002 broke".to_owned()));
        let part = DraftPart::Epic("E-002".to_owned());
        let DraftInput::Ended { part, call, claim, answer, .. } =
            broken_call_input(part, 3, "x".to_owned())
        else {
            panic!("it ends the call");
        };
        assert_eq!((part.to_string(), call, answer), ("E-002".to_owned(), 3, Err(Vec::new())));
        assert!(matches!(claim, AgentClaim::Failed { fault: AgentFault::Other, .. }));
    }

    #[test]
    fn answers_have_the_names_that_were_promised() {
        assert_eq!(answer_file_name(&DraftPart::Epic("E-001".to_owned())), "epic-E-001.json");
        assert_eq!(answer_file_name(&DraftPart::Shred), "epic-breakdown.json");
    }
}
