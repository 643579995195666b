//! Any program as an agent: the prompt goes in on standard input and as a file, JSON lines come out.
//!
//! Knows nothing about the program it starts.

use crate::adapter::{
    AgentAdapter, LaunchBrief, LaunchError, LaunchSpec, agent_variables, check_startable,
};
use crate::line_protocol::{AgentOutputParser, JsonLineParser};

pub(crate) struct CommandAdapter;

impl AgentAdapter for CommandAdapter {
    fn kind(&self) -> &'static str {
        "command"
    }

    fn launch(&self, brief: &LaunchBrief<'_>) -> Result<LaunchSpec, LaunchError> {
        let launch = LaunchSpec {
            argv: build_argv(brief)?,
            env: agent_variables(brief),
            stdin_prompt: true,
            converse: true,
            ..LaunchSpec::default()
        };
        check_startable(launch, brief)
    }

    fn output_parser(&self) -> Box<dyn AgentOutputParser> {
        Box::new(JsonLineParser)
    }
}

fn build_argv(brief: &LaunchBrief<'_>) -> Result<Vec<String>, LaunchError> {
    if let Some(run) = &brief.task.run {
        if run.trim().is_empty() {
            return Err(LaunchError::EmptyRun { task: brief.task.id.to_string() });
        }
        return Ok(vec!["/bin/sh".to_owned(), "-c".to_owned(), run.clone()]);
    }
    if brief.agent.preset.as_deref() == Some("aider") && brief.agent.command.is_empty() {
        return Ok(aider_argv(brief));
    }
    match brief.agent.command.first() {
        Some(program) if !program.trim().is_empty() => Ok(brief.agent.command.clone()),
        _ => Err(LaunchError::EmptyCommand { agent: brief.agent_name.to_owned() }),
    }
}

/// Aider without a terminal: one message from a file, no questions, its own commits.
fn aider_argv(brief: &LaunchBrief<'_>) -> Vec<String> {
    let program = brief.agent.binary.as_deref().unwrap_or("aider");
    let mut argv: Vec<String> = [
        program,
        "--yes-always",
        "--no-check-update",
        "--no-analytics",
        "--no-show-model-warnings",
        "--no-pretty",
        "--no-stream",
        "--no-gitignore",
        "--no-detect-urls",
        "--no-suggest-shell-commands",
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(model) = brief.model {
        argv.extend(["--model".to_owned(), model.to_owned()]);
    }
    argv.extend(brief.agent.args.iter().cloned());
    argv.extend(["--message-file".to_owned(), brief.prompt_file.to_owned()]);
    argv
}
