//! Claude Code: stream-json in both directions.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    LaunchPlan, attempt_file, drive_spec, json_env, new_session_id, to_strings, tool_folder,
};
use crate::adapter::{LaunchBrief, LaunchError};

pub(crate) struct ClaudeAdapter;

/// The tool retries a blip; waiting is for the engine, which knows of all attempts.
const RETRIES: &str = "2";

pub(super) fn plan_launch(brief: &LaunchBrief<'_>) -> Result<LaunchPlan, LaunchError> {
    let mut spec = drive_spec(brief, "claude");
    let mut args = to_strings(&[
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
    ]);
    if spec.allowed_tools.is_some() {
        // 2.1.325 lists this mode as `manual`, which 2.1.197 does not know; both take `default`.
        let asked = ["--permission-mode", "default", "--permission-prompt-tool", "stdio"];
        args.extend(to_strings(&asked));
    } else {
        args.push("--dangerously-skip-permissions".to_owned());
    }
    let mut option = |name: &str, value: Option<&String>| {
        if let Some(value) = value {
            args.extend([name.to_owned(), value.clone()]);
        }
    };
    option("--model", spec.model.as_ref());
    option("--effort", spec.effort.as_ref());
    option("--append-system-prompt", spec.system_prompt.as_ref());
    let turns = (brief.agent.max_turns > 0).then(|| brief.agent.max_turns.to_string());
    option("--max-turns", turns.as_ref());
    let mut files = Vec::new();
    if let Some(mcp) = brief.mcp {
        let file = attempt_file(brief, "mcp.json");
        // Without `alwaysLoad` its tools hide behind a search tool, and the model never looks.
        let server = json!({"type": "stdio", "command": mcp.command, "args": mcp.args,
            "env": json_env(&mcp.env), "alwaysLoad": true});
        files.push((file.clone(), json!({"mcpServers": {"mainstem": server}}).to_string()));
        args.extend(["--strict-mcp-config".to_owned(), "--mcp-config".to_owned(), file]);
    }
    args.extend(brief.agent.args.iter().cloned());
    // An id that was used before, as by an attempt that vanished, is refused: then it gets its own.
    spec.fresh_args = Some(args.clone());
    match &spec.resume {
        Some(session) => args.extend(["--resume".to_owned(), session.clone()]),
        None => args.extend(["--session-id".to_owned(), new_session_id(brief)]),
    }
    spec.args = args;
    // As root it refuses to work without permissions unless it is told of a sandbox.
    spec.as_root = BTreeMap::from([("IS_SANDBOX".to_owned(), "1".to_owned())]);
    let env = [
        ("CLAUDE_CODE_MAX_RETRIES", RETRIES),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ];
    let state = tool_folder(brief, "CLAUDE_CONFIG_DIR", ".claude").into_iter().collect();
    let moved = brief.agent.env.contains_key("CLAUDE_CONFIG_DIR");
    let home = super::visible_variable(brief, "HOME").filter(|_| !moved);
    let state_files = home.map(|home| format!("{home}/.claude.json")).into_iter().collect();
    let env = env.map(|(name, value)| (name, value.to_owned())).to_vec();
    Ok(LaunchPlan { spec, env, files, state, state_files })
}
