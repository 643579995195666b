//! OpenCode: `run --format json`, the prompt on standard input.

use serde_json::{Map, Value, json};

use super::{LaunchPlan, drive_spec, json_env, to_strings, visible_variable};
use crate::adapter::{LaunchBrief, LaunchError};

pub(crate) struct OpenCodeAdapter;

/// Where the tool reads settings from that are not in a file.
const SETTINGS: &str = "OPENCODE_CONFIG_CONTENT";

pub(super) fn plan_launch(brief: &LaunchBrief<'_>) -> Result<LaunchPlan, LaunchError> {
    let mut spec = drive_spec(brief, "opencode");
    // Its log is the only place where it says that a request failed and is repeated.
    let mut args = to_strings(&["run", "--format", "json", "--print-logs", "--log-level", "ERROR"]);
    if spec.allowed_tools.is_none() {
        args.push("--auto".to_owned());
    }
    let mut option = |name: &str, value: Option<&String>| {
        if let Some(value) = value {
            args.extend([name.to_owned(), value.clone()]);
        }
    };
    option("-m", spec.model.as_ref());
    option("--variant", spec.effort.as_ref());
    args.extend(brief.agent.args.iter().cloned());
    spec.fresh_args = Some(args.clone());
    if let Some(session) = &spec.resume {
        args.extend(["-s".to_owned(), session.clone()]);
    }
    spec.args = args;
    let mut files = Vec::new();
    let mut settings = read_own_settings(brief)?;
    let mut set = |name: &str, value: Value| {
        settings.entry(name).or_insert(value);
    };
    set("autoupdate", json!(false));
    set("share", json!("disabled"));
    set("permission", permission_settings(spec.allowed_tools.as_deref()));
    if let Some(text) = &spec.system_prompt {
        let file = format!("{}/instructions.md", brief.tmp);
        files.push((file.clone(), text.clone()));
        set("instructions", json!([file]));
    }
    if let Some(mcp) = brief.mcp {
        let command: Vec<&String> = std::iter::once(&mcp.command).chain(&mcp.args).collect();
        let server = json!({"type": "local", "command": command, "environment": json_env(&mcp.env),
            "enabled": true, "timeout": 86_400_000});
        let servers = settings.entry("mcp").or_insert_with(|| json!({}));
        servers["mainstem"] = server;
    }
    spec.set = vec![(SETTINGS.to_owned(), Value::Object(settings).to_string())];
    // It takes its folder from this variable and not from where it is.
    spec.set.push(("PWD".to_owned(), brief.workspace.to_owned()));
    let env = [
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
        // Without it a plugin is looked up in the registry at every start.
        ("npm_config_offline", "true"),
    ];
    let below = |variable_name: &str, below_home: &str| {
        let base = visible_variable(brief, variable_name).map(str::to_owned);
        let base =
            base.or_else(|| Some(format!("{}/{below_home}", visible_variable(brief, "HOME")?)))?;
        Some(format!("{base}/opencode"))
    };
    let state = [
        below("XDG_DATA_HOME", ".local/share"),
        below("XDG_STATE_HOME", ".local/state"),
        below("XDG_CACHE_HOME", ".cache"),
        below("XDG_CONFIG_HOME", ".config"),
    ];
    let env = env.map(|(name, value)| (name, value.to_owned())).to_vec();
    let state = state.into_iter().flatten().collect();
    Ok(LaunchPlan { spec, env, files, state, state_files: Vec::new() })
}

/// Everything, or only what is listed.
fn permission_settings(allowed: Option<&[String]>) -> Value {
    let Some(allowed) = allowed else {
        return json!("allow");
    };
    let mut rules = Map::from_iter([("*".to_owned(), json!("deny"))]);
    rules.extend(allowed.iter().map(|tool| (tool.clone(), json!("allow"))));
    Value::Object(rules)
}

fn read_own_settings(brief: &LaunchBrief<'_>) -> Result<Map<String, Value>, LaunchError> {
    let Some(text) = brief.agent.env.get(SETTINGS) else {
        return Ok(Map::new());
    };
    serde_json::from_str(text).map_err(|error| LaunchError::Settings {
        name: SETTINGS.to_owned(),
        agent: brief.agent_name.to_owned(),
        cause: error.to_string(),
    })
}
