//! Asking the answering agent: a job of its own beside the attempt, with the plan in view and nothing to
//! change. Done twice it is asked once; the second time finds the first answer.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use mainstem_agents::{
    AgentEvent, AgentOutputParser, LaunchBrief, allowed_environment, find_adapter,
};
use mainstem_core::config;
use mainstem_core::fact::Usage;
use mainstem_core::id::Oid;
use mainstem_core::machine::{Input, Machine};
use mainstem_core::plan::Task;
use mainstem_host::{files, process};

use super::EffectContext;
use crate::sandbox_policy::SandboxScope;

/// Bytes of the plan that the agent sees.
const PLAN_BYTES_MAX: usize = 64 * 1024;
/// Bytes of its output that are looked at.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// What a driver puts before lines that are log.
const LOG_MARK: &str = "│ ";

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
pub fn ask_answering_agent(errand: &EffectContext, consultation: &AnsweringRequest) {
    let (said, usage) = match run_answering_agent(errand, consultation) {
        Ok(heard) => (heard.final_answer(), heard.usage),
        Err(why) => (Err(why), Vec::new()),
    };
    errand.send_input(Input::ConsultationDone {
        question: consultation.question.clone(),
        said,
        usage,
    });
}

/// What the answering agent left.
#[derive(Default)]
struct AnsweringOutput {
    answer: Option<String>,
    /// What it was told instead of an answer by whoever serves it.
    trouble: Option<String>,
    usage: Vec<Usage>,
}

impl AnsweringOutput {
    fn final_answer(&self) -> Result<String, String> {
        let nothing = || match &self.trouble {
            Some(why) => format!("the answering agent gave no answer: {why}"),
            None => "the answering agent gave no answer".to_owned(),
        };
        self.answer.clone().ok_or_else(nothing)
    }

    fn add_usage(&mut self, usage: Usage) {
        if !self.usage.last_mut().is_some_and(|last| last.merge_report(&usage)) {
            self.usage.push(usage);
        }
    }

    /// Takes one printed line in; the last answer counts.
    fn parse_line(&mut self, parser: &mut dyn AgentOutputParser, line: &[u8]) {
        for event in parser.parse_line(line) {
            match event {
                AgentEvent::Usage(usage) => self.add_usage(usage),
                AgentEvent::RateLimited { message, retrying: false, .. }
                | AgentEvent::QuotaExhausted { message, .. }
                | AgentEvent::Failed { message, .. } => self.trouble = Some(message),
                _ => {}
            }
        }
        let text = String::from_utf8_lossy(line);
        self.answer = parse_answer_object(text.strip_prefix(LOG_MARK).unwrap_or(&text))
            .or(self.answer.take());
    }
}

fn run_answering_agent(
    errand: &EffectContext,
    consultation: &AnsweringRequest,
) -> Result<AnsweringOutput, String> {
    let world = &errand.engine;
    let place = world.layout.attempt_dir(&world.run, &errand.task.id, errand.attempt);
    let dir = place.join(format!("answer-{}", consultation.number));
    let room = place.join(format!("consult-{}", consultation.number));
    let text = |error: std::io::Error| format!("{}: {error}", room.display());
    std::fs::create_dir_all(&room).map_err(text)?;
    let (prompt, output) = (room.join("prompt.md"), room.join("answer.json"));
    files::write_private(&prompt, consultation.prompt.as_bytes()).map_err(text)?;
    let adapter = find_adapter(&consultation.agent.kind).map_err(|error| error.to_string())?;
    // The asking task's own commands are not for whoever answers.
    let task = Task { run: None, script: Vec::new(), ..errand.task.clone() };
    let launch = adapter
        .launch(&LaunchBrief {
            task: &task,
            epic: None,
            run: &world.run,
            attempt: errand.attempt,
            base: &Oid::new(""),
            branch: &errand.branch,
            workspace: &room.to_string_lossy(),
            port: 0,
            tmp: &room.to_string_lossy(),
            prompt_file: &prompt.to_string_lossy(),
            model: consultation.agent.model.as_deref(),
            session: None,
            agent_name: &consultation.name,
            agent: &consultation.agent,
            script_file: &room.join("script.json").to_string_lossy(),
            own_exe: &world.exe.to_string_lossy(),
            effort: None,
            mcp: None,
            inherited: &world.env,
        })
        .map_err(|error| error.to_string())?;
    for folder in &launch.folders {
        std::fs::create_dir_all(folder).map_err(|error| format!("{folder}: {error}"))?;
    }
    for (path, content) in &launch.files {
        files::write_atomic(Path::new(path), content.as_bytes()).map_err(text)?;
    }
    let allowed =
        allowed_environment(world.env.iter().cloned(), &consultation.agent.secrets, &launch.env);
    let mut env = allowed.vars;
    env.insert("MAINSTEM_STAGE".to_owned(), "answer".to_owned());
    env.insert("MAINSTEM_OUTPUT".to_owned(), output.to_string_lossy().into_owned());
    let mut spec = world.agent_job(launch.argv, room.clone(), env);
    spec.stdin = launch.stdin_prompt.then_some(prompt);
    spec.keeps_work = false;
    spec.wall_ms = Some(world.settings.questions.agent_timeout_ms).filter(|ms| *ms > 0);
    let behind = SandboxScope {
        workspace: &room,
        tmp: Some(room.clone()),
        caches: Some(room.join("caches")),
        readable_paths: world.list_program_dirs(&spec, &consultation.agent),
        writable_paths: launch.state.iter().map(PathBuf::from).collect(),
        agent: Some(&consultation.agent.kind),
        ..SandboxScope::default()
    };
    let spec = world.sandboxed_job(spec, &behind).map_err(|error| error.to_string())?;
    process::run_job_to_end(&dir, &spec, &world.supervisor_command(), &errand.cancel)
        .map_err(|error| format!("cannot start the answering agent: {error}"))?;
    let mut heard = parse_printed_output(&dir, adapter.output_parser().as_mut());
    let written = files::read_regular_file(&output, OUTPUT_BYTES_MAX as u64).ok();
    let written = written.and_then(|text| parse_answer_object(&String::from_utf8_lossy(&text)));
    heard.answer = written.or(heard.answer);
    Ok(heard)
}

/// What the printed lines say.
fn parse_printed_output(dir: &Path, parser: &mut dyn AgentOutputParser) -> AnsweringOutput {
    let (mut from, mut heard) = (0, AnsweringOutput::default());
    while let Ok(output) = process::read_job_output(dir, from, OUTPUT_BYTES_MAX)
        && output.next != from
    {
        from = output.next;
        for line in &output.lines {
            heard.parse_line(parser, &line.text);
        }
    }
    heard
}

/// The answer in a JSON object.
fn parse_answer_object(text: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    Some(value.get("answer")?.as_str()?.to_owned()).filter(|text| !text.trim().is_empty())
}
