//! How each vendor's tool is started: its arguments, its environment, what it must be able to write.
//!
//! None of them is started directly: `mainstem __drive` is, with a spec that says what to start and
//! which protocol it speaks. Nothing here looks at this machine.

use std::collections::BTreeMap;

use mainstem_core::config::AgentPermission;

use crate::adapter::{
    AgentAdapter, LaunchBrief, LaunchError, LaunchSpec, agent_variables, check_startable,
};
use crate::drive::DriveSpec;
use crate::line_protocol::{AgentOutputParser, JsonLineParser};

mod acp;
mod claude;
mod codex;
mod gemini;
mod opencode;
#[cfg(test)]
mod tests;

pub(crate) use acp::AcpAdapter;
pub(crate) use claude::ClaudeAdapter;
pub(crate) use codex::CodexAdapter;
pub(crate) use gemini::GeminiAdapter;
pub(crate) use opencode::OpenCodeAdapter;

/// The hidden subcommand of our binary that drives a tool.
pub(crate) const DRIVE_COMMAND: &str = "__drive";

/// What an adapter adds to what all tools have in common.
struct LaunchPlan {
    spec: DriveSpec,
    /// Variables of the tool; those of the settings win.
    env: Vec<(&'static str, String)>,
    files: Vec<(String, String)>,
    /// Folders outside the workspace that are the tool's own.
    state: Vec<String>,
    /// Files outside the workspace that are the tool's own.
    state_files: Vec<String>,
}

/// The part of the spec that is the same for all tools.
fn drive_spec(brief: &LaunchBrief<'_>, protocol: &str) -> DriveSpec {
    let agent = brief.agent;
    let listed = agent.permission == AgentPermission::List || !agent.allowed_tools.is_empty();
    DriveSpec {
        protocol: protocol.to_owned(),
        program: agent.binary.clone().unwrap_or_else(|| agent.kind.clone()),
        prompt_file: brief.prompt_file.to_owned(),
        workspace: brief.workspace.to_owned(),
        transcript: attempt_file(brief, "transcript.jsonl"),
        resume: brief.session.map(str::to_owned),
        model: brief.model.map(str::to_owned),
        effort: brief.effort.map(str::to_owned).or_else(|| agent.effort.clone()),
        system_prompt: agent.system_prompt.clone(),
        allowed_tools: listed.then(|| agent.allowed_tools.clone()),
        mcp: brief.mcp.cloned(),
        agent: brief.agent_name.to_owned(),
        keys: visible_key_names(brief),
        ..DriveSpec::default()
    }
}

/// A launch of our own binary that drives the tool.
fn drive_launch(brief: &LaunchBrief<'_>, plan: LaunchPlan) -> Result<LaunchSpec, LaunchError> {
    let file = attempt_file(brief, "drive.json");
    let cause = |error: serde_json::Error| LaunchError::Script {
        task: brief.task.id.to_string(),
        cause: error.to_string(),
    };
    let text = serde_json::to_string_pretty(&plan.spec).map_err(cause)?;
    let mut env = agent_variables(brief);
    for (name, value) in plan.env {
        env.entry(name.to_owned()).or_insert(value);
    }
    let mut files = plan.files;
    // It must be there to be let through the sandbox's wall.
    files.push((plan.spec.transcript.clone(), String::new()));
    files.push((file.clone(), text));
    let folders = plan.state.clone();
    let mut state = plan.state;
    state.extend(plan.state_files);
    state.push(plan.spec.transcript);
    let launch = LaunchSpec {
        argv: vec![brief.own_exe.to_owned(), DRIVE_COMMAND.to_owned(), file],
        env,
        stdin_prompt: false,
        converse: true,
        files,
        state,
        folders,
    };
    check_startable(launch, brief)
}

/// A file in the attempt's folder.
fn attempt_file(brief: &LaunchBrief<'_>, name: &str) -> String {
    let folder = brief.script_file.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{name}")
}

/// A variable as the tool will see it.
fn visible_variable<'b>(brief: &'b LaunchBrief<'_>, name: &str) -> Option<&'b str> {
    let inherited = || brief.inherited.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    brief.agent.env.get(name).or_else(inherited).map(String::as_str).filter(|v| !v.is_empty())
}

/// A variable that is only seen if the settings hand it over.
fn is_handed_over(brief: &LaunchBrief<'_>, name: &str) -> bool {
    brief.agent.env.contains_key(name) || brief.agent.secrets.iter().any(|secret| secret == name)
}

/// The variables with keys of its provider that the tool will see.
fn visible_key_names(brief: &LaunchBrief<'_>) -> Vec<String> {
    let known = crate::known_agents::find_known_agent(&brief.agent.kind)
        .map_or(&[][..], |known| known.keys);
    let given =
        |name: &&&str| is_handed_over(brief, name) && visible_variable(brief, name).is_some();
    known.iter().filter(given).map(|name| (*name).to_owned()).collect()
}

/// A folder below home, or what the settings say instead.
fn tool_folder(brief: &LaunchBrief<'_>, named_by: &str, below_home: &str) -> Option<String> {
    match brief.agent.env.get(named_by) {
        Some(folder) => Some(folder.clone()),
        None => visible_variable(brief, "HOME").map(|home| format!("{home}/{below_home}")),
    }
}

/// A session name that nobody else has: a UUID made of what is unique to this attempt.
fn new_session_id(brief: &LaunchBrief<'_>) -> String {
    let name = format!("{}/{}/{}/{}", brief.run, brief.task.id, brief.attempt, brief.workspace);
    // FNV-1a, twice from different beginnings: names must differ, not resist anybody.
    let hash = |start: u64| {
        name.bytes()
            .fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x9ae1_6a3b_2f90_404f));
    format!(
        "{:08x}-{:04x}-8{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The variables of an entry as a JSON object.
fn json_env(env: &BTreeMap<String, String>) -> serde_json::Value {
    serde_json::json!(env)
}

/// All of them print the lines of one protocol, because `__drive` does.
fn line_parser() -> Box<dyn AgentOutputParser> {
    Box::new(JsonLineParser)
}

macro_rules! tool {
    ($name:ident, $kind:literal, $plan:path) => {
        impl AgentAdapter for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn launch(&self, brief: &LaunchBrief<'_>) -> Result<LaunchSpec, LaunchError> {
                drive_launch(brief, $plan(brief)?)
            }

            fn output_parser(&self) -> Box<dyn AgentOutputParser> {
                line_parser()
            }
        }
    };
}

tool!(ClaudeAdapter, "claude", claude::plan_launch);
tool!(CodexAdapter, "codex", codex::plan_launch);
tool!(GeminiAdapter, "gemini", gemini::plan_launch);
tool!(OpenCodeAdapter, "opencode", opencode::plan_launch);
tool!(AcpAdapter, "acp", acp::plan_launch);
