//! The built-in agent that walks a list of steps, so that demos and tests need no account.
//!
//! Only says how to start it; the program that walks the steps is part of our own binary.

use crate::adapter::{
    AgentAdapter, LaunchBrief, LaunchError, LaunchSpec, agent_variables, check_startable,
};
use crate::line_protocol::{AgentOutputParser, JsonLineParser};

/// The hidden subcommand of our binary that walks a script file.
pub const SCRIPT_COMMAND: &str = "__script";

pub(crate) struct ScriptAdapter;

impl AgentAdapter for ScriptAdapter {
    fn kind(&self) -> &'static str {
        "script"
    }

    fn launch(&self, brief: &LaunchBrief<'_>) -> Result<LaunchSpec, LaunchError> {
        let task = brief.task.id.to_string();
        if brief.task.script.is_empty() {
            return Err(LaunchError::NoSteps { task, agent: brief.agent_name.to_owned() });
        }
        let steps = serde_json::to_string(&brief.task.script)
            .map_err(|error| LaunchError::Script { task, cause: error.to_string() })?;
        let argv = [brief.own_exe, SCRIPT_COMMAND, brief.script_file].map(str::to_owned).to_vec();
        let launch = LaunchSpec {
            argv,
            env: agent_variables(brief),
            stdin_prompt: true,
            converse: true,
            files: vec![(brief.script_file.to_owned(), steps)],
            ..LaunchSpec::default()
        };
        check_startable(launch, brief)
    }

    fn output_parser(&self) -> Box<dyn AgentOutputParser> {
        Box::new(JsonLineParser)
    }
}
