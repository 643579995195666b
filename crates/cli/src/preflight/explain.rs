//! Why the target branch does not pass its own gates, in words: what failed, its last lines, what a clean
//! checkout lacks that the user's has, and what to type.

use std::collections::BTreeSet;
use std::path::Path;

use mainstem_core::config::Settings;
use mainstem_core::failure_cause::{GateFailureCause, output_in_detail};
use mainstem_core::machine::GateResult;
use mainstem_engine::instance::{TargetCheck, TargetCheckOutcome};
use mainstem_host::git::Repo;

use super::programs;
use crate::drive::find_program;
use crate::ecosystem;
use crate::error::CliError;

/// Lines of output shown.
const LINES_MAX: usize = 15;
/// Folders into which tools put what a project depends on. They are ignored by git, so a clean checkout
/// has none of them.
const DEPENDENCIES: [&str; 9] = [
    "node_modules",
    ".venv",
    "venv",
    ".tox",
    "vendor",
    "bower_components",
    ".bundle",
    "Pods",
    "deps",
];
/// Files that people keep beside the code and out of git.
const LOCAL_FILES: [&str; 6] = [
    ".env",
    ".env.local",
    ".env.test",
    "config.local.toml",
    "local.properties",
    "local_settings.py",
];

/// A red target branch, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetExplanation {
    pub(crate) message: String,
    /// The last lines of what failed.
    pub(crate) lines: Vec<String>,
    /// What is known of the cause, and what to type.
    pub(crate) hints: Vec<String>,
}

impl TargetExplanation {
    /// As an error, without a word of what was not started.
    pub(crate) fn into_advice(self) -> CliError {
        let mut failure = CliError::new(self.message);
        failure.detail = self.lines;
        failure.hints = self.hints;
        failure
    }

    pub(crate) fn into_error(self) -> CliError {
        self.into_advice().with_hint("no agent was started; to run a plan that fixes the check: --allow-red; to start anyway: --no-preflight")
    }
}

/// Explains a target branch that did not pass.
pub(crate) fn explain_target(
    repo: &Repo,
    settings: &Settings,
    check: &TargetCheck,
) -> TargetExplanation {
    let target = &check.target;
    match &check.outcome {
        TargetCheckOutcome::Failed(gate) => explain_gate(repo, settings, target, gate),
        TargetCheckOutcome::SetupFailed { command, tail } => TargetExplanation {
            message: format!("the setup command `{command}` fails in a clean checkout of {target}"),
            lines: last_output_lines(tail),
            hints: missing_programs(command, "workspace.setup")
                .into_iter()
                .chain([format!(
                    "`{command}` runs in every new workspace; change it in [workspace] setup"
                )])
                .collect(),
        },
        TargetCheckOutcome::Unable(why) => TargetExplanation {
            message: format!("cannot run the checks on {target}"),
            lines: last_output_lines(why),
            hints: Vec::new(),
        },
        TargetCheckOutcome::Passed | TargetCheckOutcome::PassedBefore => TargetExplanation {
            message: format!("the checks pass on {target}"),
            lines: Vec::new(),
            hints: Vec::new(),
        },
    }
}

fn explain_gate(
    repo: &Repo,
    settings: &Settings,
    target: &str,
    gate: &GateResult,
) -> TargetExplanation {
    let command = &gate.gate;
    let cause = gate.cause.as_ref();
    // The setup step of the whole project says more than that of the one thing that is missing.
    let lacking = repo.checkout().and_then(|root| missing_from_workspace(repo, root, settings));
    let lacking = lacking.filter(|_| match cause {
        Some(
            GateFailureCause::MissingDependency { .. } | GateFailureCause::CommandNotFound { .. },
        ) => true,
        Some(GateFailureCause::Failed {} | GateFailureCause::CleanCheckoutOnly { .. }) | None => {
            true
        }
        Some(_) => false,
    });
    let hints = match lacking {
        Some(lacking) => vec![lacking],
        None => cause.and_then(GateFailureCause::fix_hint).into_iter().collect(),
    };
    let said = cause.and_then(GateFailureCause::describe).map(|said| format!(" ({said})"));
    TargetExplanation {
        message: format!(
            "the check `{command}` fails on {target} before any task has run{}",
            said.unwrap_or_default()
        ),
        lines: last_output_lines(output_in_detail(&gate.detail)),
        hints,
    }
}

fn missing_programs(command: &str, key: &str) -> Vec<String> {
    let missing =
        programs::program_names(command).into_iter().filter(|p| find_program(p).is_none());
    missing
        .map(|program| format!("{program} is not installed: install it, or change {key}"))
        .collect()
}

/// What the user's checkout has and a fresh workspace does not, and the step that would make it.
fn missing_from_workspace(repo: &Repo, root: &Path, settings: &Settings) -> Option<String> {
    let ignored =
        |name: &str| root.join(name).exists() && repo.is_ignored(repo.dir(), name).unwrap_or(false);
    let folders: Vec<&str> = DEPENDENCIES
        .into_iter()
        .filter(|name| ignored(name) || ignored(&format!("{name}/")))
        .collect();
    if settings.workspace.setup.is_empty() {
        let setup = suggested_setup(root);
        if !setup.is_empty() {
            let list = toml::Value::Array(setup.iter().map(|s| s.as_str().into()).collect());
            let because = match folders.as_slice() {
                [] => "fresh workspaces have no installed dependencies".to_owned(),
                some => format!(
                    "your checkout has {}, which fresh workspaces do not have",
                    some.join(" and ")
                ),
            };
            return Some(format!(
                "{because}; add a setup step to mainstem.toml:\n\n  [workspace]\n  setup = {list}\n"
            ));
        }
    }
    let files: Vec<&str> = LOCAL_FILES
        .into_iter()
        .filter(|name| ignored(name) && !settings.workspace.include.iter().any(|i| i == name))
        .collect();
    let listed = std::fs::read_to_string(root.join(".worktreeinclude")).unwrap_or_default();
    let files: Vec<&str> =
        files.into_iter().filter(|name| !listed.lines().any(|line| line.trim() == *name)).collect();
    match (files.as_slice(), folders.as_slice()) {
        ([], []) => None,
        ([], folders) if settings.workspace.setup.is_empty() => Some(format!(
            "your checkout has {}, which fresh workspaces do not have; create it in [workspace] setup",
            folders.join(" and ")
        )),
        ([], _) => None,
        (files, _) => Some(format!(
            "your checkout has {}, which git ignores and fresh workspaces do not have; add it to .worktreeinclude",
            files.join(" and ")
        )),
    }
}

/// Setup commands of the project, if they need nothing that is not here.
fn suggested_setup(root: &Path) -> Vec<String> {
    let found = ecosystem::find_projects(root, &ecosystem::InstalledPrograms::on_this_machine());
    let mut seen = BTreeSet::new();
    let all = found.into_iter().filter(|project| project.missing.is_empty());
    all.flat_map(|project| project.setup).filter(|command| seen.insert(command.clone())).collect()
}

/// The end of a job's output, as a few lines.
pub(super) fn last_output_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(LINES_MAX);
    lines[from..].iter().map(|line| (*line).to_owned()).collect()
}
