//! Any program as an agent: the prompt goes in on standard input and as a file, JSON lines come out.
//!
//! Knows nothing about the program it starts.

use crate::adapter::{Adapter, Brief, Launch, LaunchError, startable, variables};
use crate::lines::{JsonLines, Parser};

/// The `command` kind.
pub(crate) struct Command;

impl Adapter for Command {
    fn kind(&self) -> &'static str {
        "command"
    }

    fn launch(&self, brief: &Brief<'_>) -> Result<Launch, LaunchError> {
        let launch = Launch {
            argv: argv(brief)?,
            env: variables(brief),
            stdin_prompt: true,
            converse: true,
            files: Vec::new(),
            state: Vec::new(),
        };
        startable(launch, brief)
    }

    fn parser(&self) -> Box<dyn Parser> {
        Box::new(JsonLines)
    }
}

fn argv(brief: &Brief<'_>) -> Result<Vec<String>, LaunchError> {
    if let Some(run) = &brief.task.run {
        if run.trim().is_empty() {
            return Err(LaunchError::EmptyRun { task: brief.task.id.to_string() });
        }
        return Ok(vec!["/bin/sh".to_owned(), "-c".to_owned(), run.clone()]);
    }
    match brief.agent.command.first() {
        Some(program) if !program.trim().is_empty() => Ok(brief.agent.command.clone()),
        _ => Err(LaunchError::EmptyCommand { agent: brief.agent_name.to_owned() }),
    }
}
