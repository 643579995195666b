//! Issues straight from the forge, as the file that the planner reads.

use std::path::Path;

use mainstem_engine::hub::Hub;
use mainstem_forge::{Issue, Place};
use mainstem_planner::source::Source;
use serde_json::{Value, json};

use crate::context::{Context, environment};
use crate::failure::Failure;

/// Is this `owner/name`, and no path of this machine?
pub(super) fn is_repository(context: &Context, typed: &Path) -> bool {
    let name = typed.to_str().unwrap_or_default();
    Place::of_path("forge", name).is_some() && !context.path(typed).exists()
}

/// Fetches the issues of a repository.
pub(super) fn read(context: &Context, typed: &Path, all: bool) -> Result<Source, Failure> {
    let repo = context.repo()?;
    let mut settings = context.settings(Some(&repo))?;
    let name = typed.to_string_lossy().into_owned();
    settings.land.pulls.repository = Some(name.clone());
    let hub = Hub::asking(&repo, &settings, &environment()).map_err(|error| {
        let failure = Failure::new(error.to_string());
        error.hint().into_iter().fold(failure, Failure::hint)
    })?;
    let issues = hub.issues(all).map_err(|error| Failure::new(error.to_string()))?;
    let list: Vec<Value> = issues.iter().map(as_json).collect();
    let text = serde_json::to_string_pretty(&list).expect("BUG: issues are plain data");
    Ok(Source::new("", [("issues.json".to_owned(), text)]).named(format!("issues of {name}")))
}

fn as_json(issue: &Issue) -> Value {
    let numbers = |list: &[u64]| list.iter().map(|n| json!({ "number": n })).collect::<Vec<_>>();
    let labels: Vec<Value> = issue.labels.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "number": issue.number, "title": issue.title, "body": issue.body,
        "state": if issue.open { "open" } else { "closed" }, "labels": labels,
        "milestone": issue.milestone, "url": issue.url,
        "blockedBy": numbers(&issue.blocked_by), "subIssues": numbers(&issue.parts),
    })
}
