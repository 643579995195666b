//! Codex: its app server, which says more than `exec --json`, and that as the second way.

use super::{LaunchPlan, drive_spec, to_strings, tool_folder};
use crate::adapter::{LaunchBrief, LaunchError};
use crate::drive::{DriveFallback, McpServerEntry};

pub(crate) struct CodexAdapter;

/// What it would otherwise look up in the network at every start.
const QUIET: [&str; 5] = [
    "features.plugins=false",
    "features.apps=false",
    "features.remote_plugin=false",
    "analytics.enabled=false",
    "check_for_update_on_startup=false",
];

/// The argument that forces `exec --json`.
const EXEC: &str = "--exec";

pub(super) fn plan_launch(brief: &LaunchBrief<'_>) -> Result<LaunchPlan, LaunchError> {
    let mut spec = drive_spec(brief, "codex");
    let mut settings: Vec<String> = QUIET.iter().map(|setting| (*setting).to_owned()).collect();
    if let Some(effort) = &spec.effort {
        settings.push(format!("model_reasoning_effort={}", toml_string(effort)));
    }
    if let Some(text) = &spec.system_prompt {
        settings.push(format!("developer_instructions={}", toml_string(text)));
    }
    if let Some(mcp) = brief.mcp {
        settings.push(format!("mcp_servers.mainstem={}", mcp_server_toml(mcp)));
    }
    let mut options: Vec<String> =
        settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect();
    let forced = brief.agent.args.iter().any(|arg| arg == EXEC);
    options.extend(brief.agent.args.iter().filter(|arg| *arg != EXEC).cloned());
    let mut server = vec!["app-server".to_owned()];
    server.extend(options.iter().cloned());
    // Its own sandbox would mount the git directory read-only; ours is the wall.
    let mut exec = to_strings(&["exec", "--json", "--skip-git-repo-check"]);
    exec.push("--dangerously-bypass-approvals-and-sandbox".to_owned());
    if let Some(model) = &spec.model {
        exec.extend(["-m".to_owned(), model.clone()]);
    }
    exec.extend(options);
    // Its counts grow over a thread and cannot be told apart afterwards: it is never resumed.
    exec.push("-".to_owned());
    if forced {
        spec.protocol = "codex-exec".to_owned();
        spec.args = exec;
    } else {
        spec.args = server;
        spec.fallback = Some(DriveFallback { protocol: "codex-exec".to_owned(), args: exec });
    }
    let state = tool_folder(brief, "CODEX_HOME", ".codex").into_iter().collect();
    let (env, files, state_files) = (Vec::new(), Vec::new(), Vec::new());
    Ok(LaunchPlan { spec, env, files, state, state_files })
}

/// An entry as an inline table. `required` makes the first request wait until it is up; an answer to
/// a question may take a day.
fn mcp_server_toml(mcp: &McpServerEntry) -> String {
    let list =
        |words: &[String]| words.iter().map(|w| toml_string(w)).collect::<Vec<_>>().join(",");
    let env =
        mcp.env.iter().map(|(name, value)| format!("{}={}", toml_string(name), toml_string(value)));
    format!(
        "{{command={},args=[{}],env={{{}}},required=true,startup_timeout_sec=60,tool_timeout_sec=86400}}",
        toml_string(&mcp.command),
        list(&mcp.args),
        env.collect::<Vec<_>>().join(",")
    )
}

/// A TOML basic string; JSON's escapes are TOML's, too.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
