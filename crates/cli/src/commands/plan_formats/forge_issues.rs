//! Issues straight from the forge, as the file that the planner reads.

use std::path::Path;

use mainstem_engine::forge_connection::ForgeConnection;
use mainstem_forge::{ForgeIssue, ForgeRepository};
use mainstem_planner::import_source::ImportSource;
use serde_json::{Value, json};

use crate::context::{CliContext, text_environment};
use crate::error::CliError;

/// Is this `owner/name`, and no path of this machine?
pub(super) fn is_repository(context: &CliContext, typed: &Path) -> bool {
    let name = typed.to_str().unwrap_or_default();
    ForgeRepository::from_path("forge", name).is_some() && !context.resolve_path(typed).exists()
}

/// Fetches the issues of a repository.
pub(super) fn fetch_issues(
    context: &CliContext,
    typed: &Path,
    all: bool,
) -> Result<ImportSource, CliError> {
    let repo = context.open_repo()?;
    let mut settings = context.load_settings(Some(&repo))?;
    let name = typed.to_string_lossy().into_owned();
    settings.land.pulls.repository = Some(name.clone());
    let hub = ForgeConnection::connect_for_queries(&repo, &settings, &text_environment()).map_err(
        |error| {
            let failure = CliError::new(error.to_string());
            error.hint().into_iter().fold(failure, CliError::with_hint)
        },
    )?;
    let issues = hub.list_issues(all).map_err(|error| CliError::new(error.to_string()))?;
    let list: Vec<Value> = issues.iter().map(issue_json).collect();
    let text = serde_json::to_string_pretty(&list).expect("BUG: issues are plain data");
    Ok(ImportSource::new("", [("issues.json".to_owned(), text)])
        .with_name(format!("issues of {name}")))
}

fn issue_json(issue: &ForgeIssue) -> Value {
    let numbers = |list: &[u64]| list.iter().map(|n| json!({ "number": n })).collect::<Vec<_>>();
    let labels: Vec<Value> = issue.labels.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "number": issue.number, "title": issue.title, "body": issue.body,
        "state": if issue.open { "open" } else { "closed" }, "labels": labels,
        "milestone": issue.milestone, "url": issue.url,
        "blockedBy": numbers(&issue.blocked_by), "subIssues": numbers(&issue.parts),
    })
}
