//! Asking the answering agent: a job of its own beside the attempt, with the plan in view and nothing to
//! change. Done twice it is asked once; the second time finds the first answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use mainstem_core::config;
use mainstem_core::fact::Usage;
use mainstem_core::id::Oid;
use mainstem_core::machine::{Input, Machine};
use mainstem_host::process::{self, OutputLine};

use super::EffectContext;
use crate::agent_call::{AgentCall, AgentPurpose, AgentReply, output_lines, without_log_mark};

/// Bytes of the plan that the agent sees.
const PLAN_BYTES_MAX: usize = 64 * 1024;

/// A question on its way to the answering agent.
#[derive(Debug, Clone)]
pub struct AnsweringRequest {
    /// Which question of its attempt.
    pub number: u32,
    /// Its name in the inbox.
    pub question: String,
    pub name: String,
    pub agent: config::AgentSettings,
    /// What it is told.
    pub prompt: String,
}

impl AnsweringRequest {
    /// Gathers it; none if the question is no longer open or nobody answers.
    pub fn for_question(machine: &Machine, number: u32, question: &str) -> Option<Self> {
        let name = machine.settings().questions.agent.clone()?;
        // One that nobody configured is told of when it cannot be started.
        let unknown =
            || config::AgentSettings { kind: name.clone(), ..config::AgentSettings::default() };
        let agent = machine.settings().agents.get(&name).cloned().unwrap_or_else(unknown);
        let open = machine.open_questions().iter().find(|q| q.name == question)?;
        let task = &machine.plan().tasks[open.task.index()];
        let mut prompt = format!(
            "# A question from another agent\n\nThe agent working on task {} of the plan below needs an answer to continue. Decide as the person responsible for the plan would. Do not change any files.\n\n\
             ## The question\n\n{}\n",
            task.id, open.text
        );
        if !open.options.is_empty() {
            prompt.push_str("\nThe answer must be one of these, word for word:\n\n");
            for option in &open.options {
                let _ = writeln!(prompt, "- {option}");
            }
        }
        let _ = write!(
            prompt,
            "\n## How to answer\n\nWrite one JSON object, {{\"answer\": \"…\"}}, into the file named by \
             $MAINSTEM_OUTPUT, or print it as your last line.\n\n## The task\n\n{}: {}\n\n{}\n\n## The plan\n\n",
            task.id, task.title, task.description
        );
        let room = prompt.len() + PLAN_BYTES_MAX;
        for (at, other) in machine.plan().tasks.iter().enumerate() {
            if prompt.len() > room {
                let _ = writeln!(prompt, "… and {} more", machine.plan().tasks.len() - at);
                break;
            }
            let first = other.description.lines().next().unwrap_or_default();
            let _ = writeln!(prompt, "- {}: {} {first}", other.id, other.title);
        }
        Some(Self { number, question: question.to_owned(), name, agent, prompt })
    }
}

/// Asks, waits, and tells what came.
pub fn ask_answering_agent(errand: &EffectContext, request: &AnsweringRequest) {
    let (said, usage) = match run_answering_agent(errand, request) {
        Ok((said, usage)) => (said, usage),
        Err(why) => (Err(why), Vec::new()),
    };
    let question = request.question.clone();
    errand.send_input(Input::ConsultationDone { question, said, usage });
}

fn run_answering_agent(
    errand: &EffectContext,
    request: &AnsweringRequest,
) -> Result<(Result<String, String>, Vec<Usage>), String> {
    let engine = &errand.engine;
    let place = engine.layout.attempt_dir(&engine.run, &errand.task.id, errand.attempt);
    let job = place.join(format!("answer-{}", request.number));
    let folder = place.join(format!("consult-{}", request.number));
    let output = folder.join("answer.json");
    let call = AgentCall {
        engine,
        agent_name: &request.name,
        agent: &request.agent,
        model: request.agent.model.as_deref(),
        effort: None,
        task: &errand.task,
        attempt: errand.attempt,
        base: &Oid::new(""),
        prompt: &request.prompt,
        folder: &folder,
        workspace: &folder,
        tmp: &folder,
        variables: BTreeMap::new(),
        timeout_ms: engine.settings.questions.agent_timeout_ms,
        keeps_work: false,
        purpose: AgentPurpose::Answer { stage: "answer", output: &output },
    };
    let prepared = call.prepare().map_err(|failure| failure.why)?;
    process::run_job_to_end(&job, &prepared.spec, &engine.supervisor_command(), &errand.cancel)
        .map_err(|error| format!("cannot start the answering agent: {error}"))?;
    let reply = AgentReply::read(&job, &output, &request.agent.kind)?;
    let answer = reply.written.as_deref().and_then(parse_answer_object);
    let answer = answer.or_else(|| find_printed_answer(&job)).ok_or_else(|| match &reply.failure {
        Some(failure) => format!("the answering agent gave no answer: {}", failure.message()),
        None => "the answering agent gave no answer".to_owned(),
    });
    Ok((answer, reply.usage))
}

/// The last printed line that is an answer.
fn find_printed_answer(job: &Path) -> Option<String> {
    let lines = output_lines(job).map_while(Result::ok);
    let answer = |line: OutputLine| {
        parse_answer_object(without_log_mark(&String::from_utf8_lossy(&line.text)))
    };
    lines.filter_map(answer).last()
}

/// The answer in a JSON object.
fn parse_answer_object(text: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    Some(value.get("answer")?.as_str()?.to_owned()).filter(|text| !text.trim().is_empty())
}
