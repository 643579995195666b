//! How each vendor's tool is started: its arguments, its environment, what it must be able to write.
//!
//! None of them is started directly: `mainstem __drive` is, with a spec that says what to start and
//! which protocol it speaks. Nothing here looks at this machine.

use std::collections::BTreeMap;

use mainstem_core::config::Permission;

use crate::adapter::{Adapter, Brief, Launch, LaunchError, startable, variables};
use crate::drive::DriveSpec;
use crate::lines::{JsonLines, Parser};

mod acp;
mod claude;
mod codex;
mod gemini;
mod opencode;
#[cfg(test)]
mod tests;

pub(crate) use acp::Acp;
pub(crate) use claude::Claude;
pub(crate) use codex::Codex;
pub(crate) use gemini::Gemini;
pub(crate) use opencode::OpenCode;

/// The hidden subcommand of our binary that drives a tool.
pub(crate) const DRIVE_COMMAND: &str = "__drive";

/// What an adapter adds to what all tools have in common.
struct Plan {
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
fn spec(brief: &Brief<'_>, protocol: &str) -> DriveSpec {
    let agent = brief.agent;
    let listed = agent.permission == Permission::List || !agent.allowed_tools.is_empty();
    DriveSpec {
        protocol: protocol.to_owned(),
        program: agent.binary.clone().unwrap_or_else(|| agent.kind.clone()),
        prompt_file: brief.prompt_file.to_owned(),
        workspace: brief.workspace.to_owned(),
        transcript: beside(brief, "transcript.jsonl"),
        resume: brief.session.map(str::to_owned),
        model: brief.model.map(str::to_owned),
        effort: brief.effort.map(str::to_owned).or_else(|| agent.effort.clone()),
        system_prompt: agent.system_prompt.clone(),
        allowed_tools: listed.then(|| agent.allowed_tools.clone()),
        mcp: brief.mcp.cloned(),
        agent: brief.agent_name.to_owned(),
        keys: keys(brief),
        ..DriveSpec::default()
    }
}

/// A launch of our own binary that drives the tool.
fn driven(brief: &Brief<'_>, plan: Plan) -> Result<Launch, LaunchError> {
    let file = beside(brief, "drive.json");
    let cause = |error: serde_json::Error| LaunchError::Script {
        task: brief.task.id.to_string(),
        cause: error.to_string(),
    };
    let text = serde_json::to_string_pretty(&plan.spec).map_err(cause)?;
    let mut env = variables(brief);
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
    let launch = Launch {
        argv: vec![brief.own_exe.to_owned(), DRIVE_COMMAND.to_owned(), file],
        env,
        stdin_prompt: false,
        converse: true,
        files,
        state,
        folders,
    };
    startable(launch, brief)
}

/// A file in the attempt's folder.
fn beside(brief: &Brief<'_>, name: &str) -> String {
    let folder = brief.script_file.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{name}")
}

/// A variable as the tool will see it.
fn variable<'b>(brief: &'b Brief<'_>, name: &str) -> Option<&'b str> {
    let inherited = || brief.inherited.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    brief.agent.env.get(name).or_else(inherited).map(String::as_str).filter(|v| !v.is_empty())
}

/// A variable that is only seen if the settings hand it over.
fn handed_over(brief: &Brief<'_>, name: &str) -> bool {
    brief.agent.env.contains_key(name) || brief.agent.secrets.iter().any(|secret| secret == name)
}

/// The variables with keys of its provider that the tool will see.
fn keys(brief: &Brief<'_>) -> Vec<String> {
    let known = crate::known::known(&brief.agent.kind).map_or(&[][..], |known| known.keys);
    let given = |name: &&&str| handed_over(brief, name) && variable(brief, name).is_some();
    known.iter().filter(given).map(|name| (*name).to_owned()).collect()
}

/// A folder below home, or what the settings say instead.
fn folder(brief: &Brief<'_>, named_by: &str, below_home: &str) -> Option<String> {
    match brief.agent.env.get(named_by) {
        Some(folder) => Some(folder.clone()),
        None => variable(brief, "HOME").map(|home| format!("{home}/{below_home}")),
    }
}

/// A session name that nobody else has: a UUID made of what is unique to this attempt.
fn session_id(brief: &Brief<'_>) -> String {
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

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The variables of an entry as a JSON object.
fn json_env(env: &BTreeMap<String, String>) -> serde_json::Value {
    serde_json::json!(env)
}

/// All of them print the lines of one protocol, because `__drive` does.
fn parser() -> Box<dyn Parser> {
    Box::new(JsonLines)
}

macro_rules! tool {
    ($name:ident, $kind:literal, $plan:path) => {
        impl Adapter for $name {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn launch(&self, brief: &Brief<'_>) -> Result<Launch, LaunchError> {
                driven(brief, $plan(brief)?)
            }

            fn parser(&self) -> Box<dyn Parser> {
                parser()
            }
        }
    };
}

tool!(Claude, "claude", claude::plan);
tool!(Codex, "codex", codex::plan);
tool!(Gemini, "gemini", gemini::plan);
tool!(OpenCode, "opencode", opencode::plan);
tool!(Acp, "acp", acp::plan);
