//! The built-in agent that walks a list of steps, so that demos and tests need no account.
//!
//! Only says how to start it; the program that walks the steps is part of our own binary.

use crate::adapter::{Adapter, Brief, Launch, LaunchError, startable, variables};
use crate::lines::{JsonLines, Parser};

/// The hidden subcommand of our binary that walks a script file.
pub const SCRIPT_COMMAND: &str = "__script";

/// The `script` kind.
pub(crate) struct Script;

impl Adapter for Script {
    fn kind(&self) -> &'static str {
        "script"
    }

    fn launch(&self, brief: &Brief<'_>) -> Result<Launch, LaunchError> {
        let task = brief.task.id.to_string();
        if brief.task.script.is_empty() {
            return Err(LaunchError::NoSteps { task, agent: brief.agent_name.to_owned() });
        }
        let steps = serde_json::to_string(&brief.task.script)
            .map_err(|error| LaunchError::Script { task, cause: error.to_string() })?;
        let argv = [brief.own_exe, SCRIPT_COMMAND, brief.script_file].map(str::to_owned).to_vec();
        let launch = Launch {
            argv,
            env: variables(brief),
            stdin_prompt: true,
            converse: true,
            files: vec![(brief.script_file.to_owned(), steps)],
            state: Vec::new(),
        };
        startable(launch, brief)
    }

    fn parser(&self) -> Box<dyn Parser> {
        Box::new(JsonLines)
    }
}
