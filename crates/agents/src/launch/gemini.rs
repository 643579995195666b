//! Gemini CLI: stream-json out, the prompt on standard input.

use serde_json::json;

use super::{
    LaunchPlan, drive_spec, is_handed_over, json_env, new_session_id, to_strings, tool_folder,
};
use crate::adapter::{LaunchBrief, LaunchError};
use crate::drive::SettingsOverlay;

pub(crate) struct GeminiAdapter;

pub(super) fn plan_launch(brief: &LaunchBrief<'_>) -> Result<LaunchPlan, LaunchError> {
    let mut spec = drive_spec(brief, "gemini");
    let mode = if spec.allowed_tools.is_some() { "default" } else { "yolo" };
    let mut args = to_strings(&["--approval-mode", mode, "--skip-trust", "-o", "stream-json"]);
    for tool in spec.allowed_tools.iter().flatten() {
        args.extend(["--allowed-tools".to_owned(), tool.clone()]);
    }
    if let Some(model) = &spec.model {
        args.extend(["-m".to_owned(), model.clone()]);
    }
    args.extend(brief.agent.args.iter().cloned());
    spec.fresh_args = Some(args.clone());
    match &spec.resume {
        Some(session) => args.extend(["--resume".to_owned(), session.clone()]),
        None => args.extend(["--session-id".to_owned(), new_session_id(brief)]),
    }
    spec.args = args;
    let mut settings = json!({
        "privacy": {"usageStatisticsEnabled": false},
        // It would go on trying for minutes; waiting is for the engine, which knows of all attempts.
        "general": {"disableAutoUpdate": true, "maxAttempts": 3},
    });
    if is_handed_over(brief, "GEMINI_API_KEY") {
        settings["security"] = json!({"auth": {"selectedType": "gemini-api-key"}});
    }
    if brief.agent.max_turns > 0 {
        settings["model"] = json!({"maxSessionTurns": brief.agent.max_turns});
    }
    if let Some(mcp) = brief.mcp {
        let server = json!({"command": mcp.command, "args": mcp.args, "env": json_env(&mcp.env),
            "trust": true, "timeout": 86_400_000});
        settings["mcpServers"] = json!({"mainstem": server});
    }
    let mut files = Vec::new();
    if let Some(text) = &spec.system_prompt {
        // The variable that names a file replaces the whole system prompt; a context file adds to it.
        settings["context"] = json!({"fileName": ["GEMINI.md", "MAINSTEM.md"]});
        files.push((format!("{}/gemini-home/.gemini/MAINSTEM.md", brief.tmp), text.clone()));
    }
    let home =
        tool_folder(brief, "GEMINI_CLI_HOME", "").map(|home| home.trim_end_matches('/').to_owned());
    let mut state = Vec::new();
    if let Some(home) = home {
        let own = format!("{}/gemini-home", brief.tmp);
        state.push(format!("{home}/.gemini"));
        spec.overlay = Some(SettingsOverlay {
            variable: "GEMINI_CLI_HOME".to_owned(),
            home: own,
            folder: ".gemini".to_owned(),
            source: format!("{home}/.gemini"),
            file: "settings.json".to_owned(),
            settings: settings.to_string(),
            shared: to_strings(&["tmp", "history"]),
        });
    }
    // Its relauncher swallows every signal.
    let env = vec![
        ("GEMINI_CLI_NO_RELAUNCH", "true".to_owned()),
        ("NO_COLOR", "1".to_owned()),
        // It leaves a report of every error there.
        ("TMPDIR", brief.tmp.to_owned()),
    ];
    Ok(LaunchPlan { spec, env, files, state, state_files: Vec::new() })
}
