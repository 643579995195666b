//! The agents that a plan uses: are they installed, logged in, of a version known to work, and are their
//! secrets there?

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use mainstem_agents::known_agents::find_known_agent;
use mainstem_core::config::{AgentSettings, Settings};
use mainstem_core::plan::Plan;
use mainstem_host::git::Repo;

use super::{FindingLevel, PreflightFinding};
use crate::commands::agents::inspect_agent;
use crate::drive::find_program;
use crate::tool_versions;

/// An agent, and the tasks that it is to work on.
type AgentUses = BTreeMap<String, Vec<String>>;

/// The agents of these tasks; all tasks if none are named.
pub(crate) fn agents_in_use(
    plan: &Plan,
    settings: &Settings,
    only: Option<&BTreeSet<String>>,
) -> AgentUses {
    let mut uses = AgentUses::new();
    for task in &plan.tasks {
        let id = task.id.to_string();
        if only.is_some_and(|only| !only.contains(&id)) {
            continue;
        }
        let builtin = task.run.is_some() || !task.script.is_empty();
        let default = settings.run.agent.as_ref().filter(|_| !builtin);
        if let Some(name) = task.agent.as_ref().or(default) {
            uses.entry(name.clone()).or_default().push(id);
        }
    }
    for reviewer in &settings.review.agents {
        let name = settings.review.reviewers.get(reviewer).map(|r| r.agent.clone());
        uses.entry(name.unwrap_or_else(|| reviewer.clone())).or_default();
    }
    uses
}

/// What is wrong with these agents. Tools are asked for their versions all at once.
pub(crate) fn agent_findings(
    repo: Option<&Repo>,
    settings: &Settings,
    uses: &AgentUses,
) -> Vec<PreflightFinding> {
    let mut found = Vec::new();
    let mut programs: Vec<(String, PathBuf)> = Vec::new();
    for (name, tasks) in uses {
        // What the settings lack was told when the plan was read.
        let Some(agent) = settings.agents.get(name) else { continue };
        let mut add = |level, text: String, help: String| {
            let subject = name.clone();
            found.push(PreflightFinding { level, subject, text, help, tasks: tasks.clone() });
        };
        match find_known_agent(&agent.kind) {
            Some(tool) => {
                let seen = inspect_agent(tool, Some(agent));
                if !seen.is_ready() {
                    add(FindingLevel::Error, seen.problem_text(name), seen.advice_text(name));
                }
                programs.extend(seen.path().map(|path| (name.clone(), path.to_path_buf())));
            }
            None => {
                if let Some((level, text, help)) = missing_own_program(repo, name, agent) {
                    add(level, text, help);
                }
            }
        }
        for secret in &agent.secrets {
            if std::env::var_os(secret).is_none_or(|value| value.is_empty()) {
                // A tool that is logged in by its own file can do without its key.
                let ready = find_known_agent(&agent.kind)
                    .is_some_and(|tool| inspect_agent(tool, Some(agent)).is_ready());
                let level = if ready { FindingLevel::Warning } else { FindingLevel::Error };
                let help = format!("export {secret}, or remove it from agents.{name}.secrets");
                add(level, format!("${secret} is not set"), help);
            }
        }
    }
    found.extend(old_version_findings(settings, uses, &programs));
    found.sort_by_key(|finding| finding.level);
    found
}

fn old_version_findings(
    settings: &Settings,
    uses: &AgentUses,
    programs: &[(String, PathBuf)],
) -> Vec<PreflightFinding> {
    let paths: Vec<PathBuf> = programs.iter().map(|(_, path)| path.clone()).collect();
    let versions = tool_versions::query_versions(&paths);
    let mut found = Vec::new();
    for ((name, _), version) in programs.iter().zip(versions) {
        let tool = settings.agents.get(name).and_then(|agent| find_known_agent(&agent.kind));
        let (Some(tool), Some(version)) = (tool, version) else { continue };
        if tool_versions::is_older(&version, tool.oldest) {
            let number = tool_versions::parse_version(&version).unwrap_or_default();
            let number: Vec<String> = number.iter().map(ToString::to_string).collect();
            found.push(PreflightFinding {
                level: FindingLevel::Warning,
                subject: name.clone(),
                text: format!("{} is untested", number.join(".")),
                help: format!(
                    "{} or newer is known to work: npm install -g {}",
                    tool.oldest, tool.package
                ),
                tasks: uses.get(name).cloned().unwrap_or_default(),
            });
        }
    }
    found
}

/// The program of a command agent, if it has one that cannot be there.
fn missing_own_program(
    repo: Option<&Repo>,
    name: &str,
    agent: &AgentSettings,
) -> Option<(FindingLevel, String, String)> {
    let preset = agent.preset.as_deref().filter(|_| agent.command.is_empty());
    let program = agent.command.first().map(String::as_str).or(preset)?;
    if !program.contains('/') || program.starts_with('/') {
        let found = find_program(program).is_some();
        let help = format!("install {program}, or change agents.{name}.command");
        return (!found)
            .then(|| (FindingLevel::Error, format!("{program} is not installed"), help));
    }
    // Seen from its workspace. A task before it may make it, so this is only a doubt.
    let root = repo.and_then(Repo::toplevel)?;
    let text = format!("{program} is not in this repository");
    let help = format!("commit {program}, or change agents.{name}.command");
    (!root.join(program).exists()).then_some((FindingLevel::Warning, text, help))
}
