//! One call of an agent: the prompt, the job, the answer. Each may be done twice; the second time finds the
//! first.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mainstem_core::fact::{AgentClaim, AgentEnding, AgentFault};
use mainstem_core::id::{Oid, TaskId};
use mainstem_core::plan::Task;
use mainstem_host::crash;
use mainstem_host::process::{self, JobState};
use mainstem_planner::draft::{
    Draft, DraftAnswer, DraftInput, DraftPart, DraftPromptInput, find_answer,
};
use mainstem_planner::schema::{AnswerProblem, EpicBreakdown};

use super::DraftRequest;
use crate::agent_call::{
    AgentCall, AgentPurpose, AgentStartFailure, create_empty_folder, job_was_started,
    read_answer_file, read_printed_output, restrict_tools, unreadable_output,
};
use crate::engine_context::EngineContext;
use crate::prompt_template;

/// In a call's folder: the supervised job.
pub(super) const JOB: &str = "agent";
/// In a call's folder: where the agent works, empty but for its answer.
const ROOM: &str = "room";

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
        let spec = self.prepare_job(world)?;
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

    /// Writes the prompt and says how the agent is run. It works in an empty folder and may write one file
    /// there.
    fn prepare_job(&self, engine: &EngineContext) -> Result<process::JobSpec, AgentStartFailure> {
        let known = engine.settings.agents.get(&self.agent);
        let unknown = || AgentStartFailure::permanent(format!("unknown agent {}", self.agent));
        let folder = call_folder(engine, &self.part, self.call);
        let room = folder.join(ROOM);
        let output = room.join(answer_file_name(&self.part));
        create_empty_folder(&room)?;
        let epic = self.part.epic().map(|epic| ("MAINSTEM_EPIC".to_owned(), epic.to_owned()));
        let call = AgentCall {
            engine,
            agent_name: &self.agent,
            agent: &restrict_tools(known.ok_or_else(unknown)?, &[], &output),
            model: self.model.as_deref(),
            effort: self.effort.as_deref(),
            task: &Task { id: TaskId::new(self.part.to_string()), ..Task::empty() },
            attempt: self.call,
            base: &Oid::new(""),
            prompt: &self.build_prompt(engine, &output),
            folder: &folder,
            workspace: &room,
            tmp: &folder.join("tmp"),
            variables: epic.into_iter().collect(),
            timeout_ms: engine.settings.run.timeout_ms,
            keeps_work: true,
            purpose: AgentPurpose::Answer { stage: self.part.stage(), output: &output },
        };
        Ok(call.prepare()?.spec)
    }
}

/// What an earlier call gave, for the one that mends it.
fn read_earlier_answer(world: &EngineContext, part: &DraftPart, call: u32) -> Option<String> {
    let written = read_call_file(world, part, call).filter(|text| !text.trim().is_empty());
    written.or_else(|| read_printed_output(&call_job_folder(world, part, call)).ok())
}

fn read_call_file(world: &EngineContext, part: &DraftPart, call: u32) -> Option<String> {
    let room = call_folder(world, part, call).join(ROOM);
    read_answer_file(&room.join(answer_file_name(part)))
}

/// Reads what a call left behind; what is left of one that vanished is ended first.
pub(super) fn read_call_answer(
    world: &EngineContext,
    (part, call): (&DraftPart, u32),
    epics: &BTreeSet<String>,
    ending: &AgentEnding,
) -> Result<DraftAnswer, Vec<AnswerProblem>> {
    let job = call_job_folder(world, part, call);
    let unreadable = |error: std::io::Error| unreadable_output(&error);
    if matches!(ending, AgentEnding::Vanished {}) {
        process::kill_job_leftovers(&job).map_err(unreadable)?;
    }
    let file = read_call_file(world, part, call);
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
