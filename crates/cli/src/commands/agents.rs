//! `agents`: the coding agents that are installed here, whether they are logged in, and what they can do.
//!
//! Looks at files and variables and asks each tool for its version; never at the network.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use mainstem_agents::known_agents::{ACP, AgentCapabilities, KNOWN, KnownAgent};
use mainstem_api::exit_code;
use mainstem_core::config::AgentSettings;
use serde_json::{Map, Value, json};

use crate::context::CliContext;
use crate::drive::find_program;
use crate::error::CommandResult;
use crate::{output, tool_versions};

/// What can be seen of one tool.
pub(crate) struct AgentReadiness {
    known: &'static KnownAgent,
    path: Option<PathBuf>,
    login: Option<String>,
}

impl AgentReadiness {
    /// Whether an attempt could start and would be let in, as far as can be seen.
    pub(crate) fn is_ready(&self) -> bool {
        self.path.is_some() && self.login.is_some()
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Why it is not ready, in a few words.
    pub(crate) fn problem_text(&self, name: &str) -> String {
        match self.path {
            None if name == self.known.program => "not installed".to_owned(),
            None => format!("{} is not installed", self.known.program),
            Some(_) => "not logged in".to_owned(),
        }
    }

    pub(crate) fn status_sentence(&self) -> String {
        match (&self.path, &self.login) {
            (None, _) => format!("{} is not installed", self.known.program),
            (Some(path), Some(login)) => format!("{}, logged in with {login}", path.display()),
            (Some(path), None) => format!("{}, not logged in", path.display()),
        }
    }

    /// Whether it is older than what is known to work, in words.
    pub(crate) fn untested_version_text(&self, version: Option<&str>) -> Option<String> {
        let version =
            version.filter(|version| tool_versions::is_older(version, self.known.oldest))?;
        Some(version_text(self.known, Some(version)))
    }

    /// How to get a newer one.
    pub(crate) fn update_hint(&self) -> String {
        format!("npm install -g {}", self.known.package)
    }

    pub(crate) fn advice_text(&self, name: &str) -> String {
        let KnownAgent { package, login_command, keys, .. } = self.known;
        match self.path {
            None => format!("install it (npm install -g {package}), or set agents.{name}.binary"),
            Some(_) => format!(
                "run {login_command}, or export {} and list it in agents.{name}.secrets",
                keys.first().unwrap_or(&"an API key")
            ),
        }
    }
}

/// Looks for a tool, with the settings of the agent that uses it if there is one.
pub(crate) fn inspect_agent(
    known: &'static KnownAgent,
    agent: Option<&AgentSettings>,
) -> AgentReadiness {
    let program = agent.and_then(|agent| agent.binary.as_deref()).unwrap_or(known.program);
    AgentReadiness { known, path: find_program(program), login: find_login(known, agent) }
}

/// What logs it in: a key it is handed, or a file it wrote.
fn find_login(known: &KnownAgent, agent: Option<&AgentSettings>) -> Option<String> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let handed = |name: &str| match agent {
        Some(agent) => {
            let secret = agent.secrets.iter().any(|secret| secret == name) && set(name);
            secret || agent.env.get(name).is_some_and(|value| !value.is_empty())
        }
        None => set(name),
    };
    if let Some(key) = known.keys.iter().find(|key| handed(key)) {
        return Some(format!("${key}"));
    }
    // Another cloud brings its own login, and so does a program that hands out keys.
    let clouds = [
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CODE_USE_FOUNDRY",
        "GOOGLE_GENAI_USE_VERTEXAI",
    ];
    if let Some(cloud) = clouds.iter().find(|name| handed(name) || set(name)) {
        return Some(format!("${cloud}"));
    }
    // A provider of its own in the settings brings its own key.
    let own = agent.is_some_and(|agent| {
        agent.args.iter().any(|arg| arg.starts_with("model_provider"))
            || agent.env.contains_key("OPENCODE_CONFIG_CONTENT")
    });
    if own {
        return Some("a custom provider".to_owned());
    }
    known.logins.iter().find_map(|login| {
        let named = agent.and_then(|agent| agent.env.get(login.variable)).map(PathBuf::from);
        let inherited = || std::env::var_os(login.variable).filter(|v| !v.is_empty());
        let folder = match named.or_else(|| inherited().map(PathBuf::from)) {
            Some(folder) => folder,
            None => Path::new(&std::env::var_os("HOME")?).join(login.below_home),
        };
        let file = folder.join(login.file);
        file.exists().then(|| file.display().to_string())
    })
}

pub(crate) fn cmd_agents(context: &CliContext) -> CommandResult {
    let repo = context.open_repo().ok();
    let resolved = context.resolve_settings(repo.as_ref())?;
    let configured = |known: &KnownAgent| {
        resolved.settings.agents.values().find(|agent| agent.kind == known.kind)
    };
    let seen: Vec<AgentReadiness> =
        KNOWN.iter().map(|known| inspect_agent(known, configured(known))).collect();
    if !context.global.quiet && std::io::stderr().is_terminal() {
        output::write_stderr("checking agent versions");
    }
    let versions = agent_versions(&seen);
    if context.global.json {
        let all: Vec<Value> = seen.iter().zip(&versions).map(|(s, v)| agent_json(s, v)).collect();
        output::write_json(&json!({ "agents": all, "acp": capabilities_json(&ACP) }))?;
        return Ok(exit_code::OK);
    }
    let mut rows = vec![["agent", "version", "login", "path", "can"].map(str::to_owned).to_vec()];
    for (seen, version) in seen.iter().zip(&versions) {
        let path = seen.path.as_ref().map(|path| path.display().to_string());
        let login = match (&seen.path, &seen.login) {
            (None, _) => "–".to_owned(),
            (_, Some(login)) => login.clone(),
            (_, None) => format!("no: {}", seen.known.login_command),
        };
        rows.push(vec![
            seen.known.kind.to_owned(),
            output::sanitize_text(&version_text(seen.known, version.as_deref())),
            output::sanitize_text(&login),
            output::sanitize_text(path.as_deref().unwrap_or("not installed")),
            capabilities_text(&seen.known.can),
        ]);
    }
    let dash = || "–".to_owned();
    rows.push(vec![
        "acp".to_owned(),
        dash(),
        dash(),
        "any command".to_owned(),
        capabilities_text(&ACP),
    ]);
    output::write_stdout(&output::format_wrapped_table(&rows))?;
    Ok(exit_code::OK)
}

/// The version of each tool that is here, all asked at once.
pub(crate) fn agent_versions(seen: &[AgentReadiness]) -> Vec<Option<String>> {
    let paths: Vec<PathBuf> = seen.iter().filter_map(|seen| seen.path.clone()).collect();
    let mut answers = tool_versions::query_versions(&paths).into_iter();
    seen.iter().map(|seen| seen.path.as_ref().and_then(|_| answers.next().flatten())).collect()
}

/// A version, and whether it is known to work.
pub(crate) fn version_text(known: &KnownAgent, version: Option<&str>) -> String {
    match version {
        None => "–".to_owned(),
        Some(version) if tool_versions::is_older(version, known.oldest) => {
            format!("{version} is untested; {} or newer is known to work", known.oldest)
        }
        Some(version) => version.to_owned(),
    }
}

fn capabilities_text(can: &AgentCapabilities) -> String {
    let able = can.named_flags().into_iter().filter(|(_, able)| *able).map(|(name, _)| name);
    able.collect::<Vec<_>>().join(" ")
}

fn capabilities_json(can: &AgentCapabilities) -> Value {
    let mut map = Map::from_iter([("protocol".to_owned(), json!(can.protocol))]);
    map.extend(can.named_flags().into_iter().map(|(name, able)| (name.to_owned(), json!(able))));
    Value::Object(map)
}

fn agent_json(seen: &AgentReadiness, version: &Option<String>) -> Value {
    json!({
        "kind": seen.known.kind, "name": seen.known.name, "provider": seen.known.provider,
        "installed": seen.path.is_some(), "path": seen.path, "version": version,
        "tried_version": seen.known.tried, "oldest_tried_version": seen.known.oldest,
        "known_to_work": version.as_deref().map(|v| !tool_versions::is_older(v, seen.known.oldest)), "logged_in": seen.login.is_some(), "login": seen.login,
        "login_command": seen.known.login_command, "package": seen.known.package,
        "can": capabilities_json(&seen.known.can),
    })
}
