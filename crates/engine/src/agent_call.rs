//! One call of an agent, whatever it is for: an attempt, a review, an answer to a question or a part of a plan.
//!
//! Finds the adapter, writes the prompt and the files of the launch, and builds the environment, the sandbox and
//! the job. Reads what an agent that was asked for an answer left behind.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mainstem_agents::{
    AgentEvent, LaunchBrief, LaunchSpec, McpServerEntry, allowed_environment, find_adapter,
};
use mainstem_core::config::{AgentPermission, AgentSettings};
use mainstem_core::fact::{AgentEnding, LimitKind, Usage};
use mainstem_core::id::Oid;
use mainstem_core::plan::Task;
use mainstem_host::process::{self, JobSpec, JobState, OutputLine, OutputStream, ToolSocketSpec};
use mainstem_host::{clock, files, user_folder};
use mainstem_planner::extract::SIZE_MAX;
use mainstem_planner::schema::AnswerProblem;

use crate::engine_context::EngineContext;
use crate::sandbox_policy::SandboxScope;

/// The prompt in the folder of a call.
const PROMPT: &str = "prompt.md";
/// What a driver puts before lines that are log.
const LOG_MARK: &str = "│ ";
/// Bytes read at once from a log.
const READ_BYTES: usize = 1 << 20;

/// Everything that decides how an agent is started.
pub(crate) struct AgentCall<'a> {
    pub engine: &'a EngineContext,
    /// The name of the agent under `[agents.*]`.
    pub agent_name: &'a str,
    pub agent: &'a AgentSettings,
    pub model: Option<&'a str>,
    pub effort: Option<&'a str>,
    pub task: &'a Task,
    pub attempt: u32,
    pub base: &'a Oid,
    pub prompt: &'a str,
    /// The folder for the prompt and the files of the launch.
    pub folder: &'a Path,
    /// The working directory of the agent.
    pub workspace: &'a Path,
    pub tmp: &'a Path,
    /// Variables that only this call has.
    pub variables: BTreeMap<String, String>,
    /// The longest time the call may take; zero is no limit.
    pub timeout_ms: u64,
    /// Whether what the agent writes must be on disk before its end is recorded.
    pub keeps_work: bool,
    pub purpose: AgentPurpose<'a>,
}

/// What an agent is called for.
pub(crate) enum AgentPurpose<'a> {
    /// To work on a task on a branch, with tools and with answers to its questions.
    Work {
        branch: &'a str,
        caches: PathBuf,
        session: Option<&'a str>,
        port: u16,
        tools: &'a McpServerEntry,
        tool_socket: ToolSocketSpec,
    },
    /// To write one answer into a file. The agent may write nothing else but what is in that file's folder.
    Answer { stage: &'a str, output: &'a Path },
}

/// A job that is ready to be started.
pub(crate) struct PreparedAgentJob {
    pub spec: JobSpec,
    /// Secrets that the settings name and the environment does not have.
    pub missing_secrets: Vec<String>,
}

/// Why an agent did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentStartFailure {
    pub why: String,
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

impl AgentCall<'_> {
    /// Writes what the agent reads and says how its job is run.
    pub(crate) fn prepare(&self) -> Result<PreparedAgentJob, AgentStartFailure> {
        let prompt_file = self.folder.join(PROMPT);
        for folder in [self.folder, self.tmp] {
            create_folder(folder)?;
        }
        write_file(&prompt_file, self.prompt)?;
        let launch = self.build_launch(&prompt_file)?;
        for folder in &launch.folders {
            create_folder(Path::new(folder))?;
        }
        for (path, text) in &launch.files {
            let path = Path::new(path);
            create_folder(path.parent().unwrap_or(path))?;
            write_file(path, text)?;
        }
        let inherited = self.engine.env.iter().cloned();
        let environment = allowed_environment(inherited, &self.agent.secrets, &launch.env);
        let mut env = environment.vars;
        env.extend(self.variables.clone());
        if let AgentPurpose::Answer { stage, output } = &self.purpose {
            env.insert("MAINSTEM_STAGE".to_owned(), (*stage).to_owned());
            env.insert("MAINSTEM_OUTPUT".to_owned(), output.to_string_lossy().into_owned());
        }
        let mut spec = self.engine.agent_job(launch.argv.clone(), self.workspace.into(), env);
        spec.stdin = launch.stdin_prompt.then(|| prompt_file.clone());
        spec.wall_ms = Some(self.timeout_ms).filter(|limit| *limit > 0);
        spec.keeps_work = self.keeps_work;
        if let AgentPurpose::Work { tool_socket, .. } = &self.purpose {
            spec.converse = launch.converse;
            spec.door = Some(tool_socket.clone());
        }
        let spec = self.sandboxed_job(spec, &launch, prompt_file)?;
        Ok(PreparedAgentJob { spec, missing_secrets: environment.missing })
    }

    fn build_launch(&self, prompt_file: &Path) -> Result<LaunchSpec, AgentStartFailure> {
        let mut task = self.task.clone();
        let (session, port, mcp) = match &self.purpose {
            AgentPurpose::Work { session, port, tools, .. } => (*session, *port, Some(*tools)),
            AgentPurpose::Answer { .. } => {
                // The commands of a task are not for an agent that answers questions about the task.
                (task.run, task.script) = (None, Vec::new());
                (None, 0, None)
            }
        };
        let adapter = find_adapter(&self.agent.kind).map_err(AgentStartFailure::permanent)?;
        let script_file = self.folder.join("script.json");
        let brief = LaunchBrief {
            task: &task,
            run: &self.engine.run,
            attempt: self.attempt,
            base: self.base,
            workspace: &self.workspace.to_string_lossy(),
            port,
            tmp: &self.tmp.to_string_lossy(),
            prompt_file: &prompt_file.to_string_lossy(),
            model: self.model,
            session,
            agent_name: self.agent_name,
            agent: self.agent,
            script_file: &script_file.to_string_lossy(),
            own_exe: &self.engine.exe.to_string_lossy(),
            effort: self.effort,
            mcp,
            inherited: &self.engine.env,
        };
        adapter.launch(&brief).map_err(AgentStartFailure::permanent)
    }

    /// The job in its sandbox. Of our state folder the agent sees what was written for it.
    fn sandboxed_job(
        &self,
        spec: JobSpec,
        launch: &LaunchSpec,
        prompt_file: PathBuf,
    ) -> Result<JobSpec, AgentStartFailure> {
        let (own_folder, branch, caches) = match &self.purpose {
            AgentPurpose::Work { branch, caches, .. } => {
                (self.workspace, Some(*branch), caches.clone())
            }
            AgentPurpose::Answer { output, .. } => {
                (output.parent().unwrap_or(output), None, self.tmp.join("caches"))
            }
        };
        let written = launch.files.iter().map(|(path, _)| PathBuf::from(path));
        let mut readable_paths: Vec<PathBuf> = written
            .chain([prompt_file, self.workspace.to_path_buf()])
            // What is in the agent's own folder is writable with it.
            .filter(|path| !path.starts_with(own_folder))
            .collect();
        readable_paths.extend(self.engine.list_program_dirs(&spec, self.agent));
        let mut writable_paths: Vec<PathBuf> = launch.state.iter().map(PathBuf::from).collect();
        if let Some(folder) = spec.door.as_ref().and_then(ToolSocketSpec::folder) {
            // What is to be let in must be there when the sandbox is made.
            user_folder::create_private_folder_with_parent(folder)
                .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
            writable_paths.push(folder.to_path_buf());
        }
        let scope = SandboxScope {
            workspace: own_folder,
            branch,
            tmp: Some(self.tmp.to_path_buf()),
            caches: Some(caches),
            readable_paths,
            writable_paths,
            agent: Some(&self.agent.kind),
        };
        self.engine.sandboxed_job(spec, &scope).map_err(|error| error.to_string().into())
    }
}

/// The settings of an agent that may use these tools, write its answer, and do nothing else.
pub(crate) fn restrict_tools(
    agent: &AgentSettings,
    tools: &[&str],
    output: &Path,
) -> AgentSettings {
    let write = format!("Write({})", output.display());
    let allowed_tools = tools.iter().map(|tool| (*tool).to_owned()).chain([write]).collect();
    AgentSettings { permission: AgentPermission::List, allowed_tools, ..agent.clone() }
}

pub(crate) fn create_folder(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("cannot create {}: {error}", folder.display()))
}

/// Makes the folder for an answer anew: the answer of an earlier try must not be taken for this one's.
pub(crate) fn create_empty_folder(folder: &Path) -> Result<(), String> {
    files::remove_all(folder)
        .map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
    create_folder(folder)
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    files::write_private(path, text.as_bytes())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Is there a job after a start that failed? One that is still on its way is ended first.
pub(crate) fn job_was_started(job: &Path) -> io::Result<bool> {
    if process::read_job_state(job)? == JobState::Starting {
        process::end_job(job)?;
    }
    Ok(process::read_job_state(job)? != JobState::Absent)
}

/// What an agent that was asked for an answer left behind.
pub(crate) struct AgentReply {
    /// The text of the file in which the answer was asked for.
    pub written: Option<String>,
    /// The printed text, without the lines of our own protocol.
    pub printed: io::Result<String>,
    pub usage: Vec<Usage>,
    /// What the agent reported instead of an answer.
    pub failure: Option<AgentCallFailure>,
}

/// Why an agent gave no answer, in its own words.
pub(crate) enum AgentCallFailure {
    Limited { kind: LimitKind, wait_ms: Option<u64>, message: String },
    Failed { message: String },
}

impl AgentReply {
    /// Reads what a job that has ended left behind.
    pub(crate) fn read(job: &Path, output: &Path, agent_kind: &str) -> Result<Self, String> {
        let adapter = find_adapter(agent_kind).map_err(|error| error.to_string())?;
        let mut parser = adapter.output_parser();
        let (mut usage, mut failure) = (Vec::<Usage>::new(), None);
        let lines = output_lines(job).map_while(Result::ok);
        for line in lines.filter(|line| line.stream == OutputStream::Stdout) {
            for event in parser.parse_line(&line.text) {
                match event {
                    AgentEvent::Usage(more) => {
                        if !usage.last_mut().is_some_and(|last| last.merge_report(&more)) {
                            usage.push(more);
                        }
                    }
                    event => failure = AgentCallFailure::from_event(event).or(failure),
                }
            }
        }
        let (written, printed) = (read_answer_file(output), read_printed_output(job));
        Ok(Self { written, printed, usage, failure })
    }
}

impl AgentCallFailure {
    fn from_event(event: AgentEvent) -> Option<Self> {
        let until = |at: Option<i64>| at.and_then(|at| u64::try_from(at - clock::now_ms()).ok());
        match event {
            AgentEvent::RateLimited { retry_after_ms, reset_at_ms, message, retrying: false } => {
                let wait_ms = retry_after_ms.or_else(|| until(reset_at_ms));
                Some(Self::Limited { kind: LimitKind::Rate, wait_ms, message })
            }
            AgentEvent::QuotaExhausted { reset_at_ms, message, .. } => {
                let wait_ms = until(reset_at_ms);
                Some(Self::Limited { kind: LimitKind::Quota, wait_ms, message })
            }
            AgentEvent::Failed { message, .. } => Some(Self::Failed { message }),
            _ => None,
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Limited { message, .. } | Self::Failed { message } => message,
        }
    }
}

/// The text of the file in which an answer was asked for; none if there is no such file.
pub(crate) fn read_answer_file(output: &Path) -> Option<String> {
    // Links lead to files that no agent wrote as its answer; pipes lead nowhere.
    let bytes = files::read_regular_file(output, SIZE_MAX as u64 + 1).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The problem of an answer that nobody can look for.
pub(crate) fn unreadable_output(error: &io::Error) -> Vec<AnswerProblem> {
    vec![AnswerProblem::new("json", format!("cannot read the output: {error}"))]
}

/// All that was printed, without the lines of our own protocol.
pub(crate) fn read_printed_output(job: &Path) -> io::Result<String> {
    let mut text = String::new();
    for line in output_lines(job) {
        let line = line?;
        let said = String::from_utf8_lossy(&line.text);
        if line.stream != OutputStream::Stdout || said.starts_with("{\"mainstem\":") {
            continue;
        }
        text.push_str(without_log_mark(&said));
        if !line.continues {
            text.push('\n');
        }
        if text.len() > SIZE_MAX {
            break;
        }
    }
    Ok(text)
}

/// A printed line without what a driver puts before the words of its agent.
pub(crate) fn without_log_mark(line: &str) -> &str {
    line.strip_prefix(LOG_MARK).unwrap_or(line)
}

/// The lines of a job's log, read page by page.
pub(crate) fn output_lines(job: &Path) -> impl Iterator<Item = io::Result<OutputLine>> {
    let mut next = Some(0);
    let pages = std::iter::from_fn(move || {
        let start = next.take()?;
        match process::read_job_output(job, start, READ_BYTES) {
            Ok(page) if page.next == start => None,
            Ok(page) => {
                next = Some(page.next);
                Some(page.lines.into_iter().map(Ok).collect())
            }
            Err(error) => Some(vec![Err(error)]),
        }
    });
    pages.flatten()
}
