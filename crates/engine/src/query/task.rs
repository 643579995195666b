//! One task with everything that is known about it.

use std::path::PathBuf;

use mainstem_agents::SecretRedactor;
use mainstem_api::task::{
    AttemptDetail, PromptText, SnapshotStatus, TASK_SCHEMA, TaskDetail, TaskEdge, TaskIssue,
};
use mainstem_core::id::{RunId, TaskId, TaskIx};
use mainstem_core::plan::Task;
use serde::Serialize;

use crate::maintenance::SnapshotRef;
use crate::query::RunReader;
use crate::query::attempts::AttemptHistory;
use crate::query::status::build_task_status_with_edges;
use crate::repo_layout::RepoLayout;

/// What a task's details are made from besides the fold: the caller may have read it already.
pub struct TaskSources<'a> {
    pub layout: &'a RepoLayout,
    pub attempts: &'a [AttemptHistory],
    pub snapshots: &'a [SnapshotRef],
    pub redactor: &'a SecretRedactor,
    /// Include the text of the newest prompt.
    pub with_prompt: bool,
}

impl RunReader {
    /// One task for programs.
    pub fn task(&self, t: TaskIx, from: &TaskSources<'_>) -> TaskDetail {
        let machine = &self.machine;
        let graph = machine.graph();
        let task = &machine.plan().tasks[t.index()];
        let run = self.run.clone().unwrap_or_else(|| RunId::new(""));
        let edges = (self.edges(graph.needs(t)), self.edges(graph.soft_needs(t)));
        let ahead = machine.expectations(self.now());
        let detail = |attempt: &AttemptHistory| attempt.detail(from.layout, &run, &task.id);
        let newest = from.attempts.last().map(|attempt| attempt.number);
        let prompt =
            newest.and_then(|n| read_prompt(from.layout, from.redactor, &run, &task.id, n));
        let (prompt, text) = prompt.unzip();
        let unstored = from.layout.list_unstored_folders(task.id.as_str());
        TaskDetail {
            schema: TASK_SCHEMA.to_owned(),
            run: run.to_string(),
            seq: self.seq,
            status: build_task_status_with_edges(machine, &ahead, t, edges),
            description: task.description.clone(),
            acceptance: task.acceptance.clone(),
            writes: task.writes.clone(),
            verify: task.verify.clone(),
            role: task.role.clone(),
            effort: word_of(&task.effort),
            priority: task.priority,
            on_failure: word_of(&task.on_failure),
            retries: task.retries,
            timeout_ms: task.timeout_ms,
            dependents: self.edges(graph.dependents(t)),
            before: self.edges(graph.soft_dependents(t)),
            attempts: from.attempts.iter().map(detail).collect::<Vec<AttemptDetail>>(),
            issues: self.task_issues(task),
            snapshots: from.snapshots.iter().map(snapshot_status).collect(),
            unstored: unstored.iter().map(|folder| folder.display().to_string()).collect(),
            state_dir: from.layout.state_dir().display().to_string(),
            prompt: prompt.map(|path| from.layout.relative_name(&path)),
            prompt_text: match from.with_prompt {
                true => PromptText::Included(text),
                false => PromptText::LeftOut,
            },
        }
    }

    fn edges(&self, ends: impl Iterator<Item = TaskIx>) -> Vec<TaskEdge> {
        let machine = &self.machine;
        ends.map(|t| TaskEdge {
            id: machine.graph().id(t).to_string(),
            phase: machine.tasks().phase(t).as_str().to_owned(),
        })
        .collect()
    }

    fn task_issues(&self, task: &Task) -> Vec<TaskIssue> {
        let issues = self.machine.reported_issues().iter().filter(|issue| issue.task == task.id);
        issues
            .map(|issue| TaskIssue {
                title: issue.title.clone(),
                text: issue.text.clone(),
                severity: issue.severity.clone(),
            })
            .collect()
    }
}

/// A snapshot for programs.
pub fn snapshot_status(snapshot: &SnapshotRef) -> SnapshotStatus {
    SnapshotStatus {
        refname: snapshot.refname.clone(),
        attempt: snapshot.attempt,
        number: snapshot.number,
        commit: snapshot.commit.to_string(),
    }
}

/// The prompt of an attempt, without secrets; none if there is no such file.
pub fn read_prompt(
    layout: &RepoLayout,
    redactor: &SecretRedactor,
    run: &RunId,
    task: &TaskId,
    attempt: u32,
) -> Option<(PathBuf, String)> {
    let path = layout.attempt_dir(run, task, attempt).join("prompt.md");
    let bytes = std::fs::read(&path).ok()?;
    let text = String::from_utf8_lossy(&redactor.redact_bytes(&bytes)).into_owned();
    Some((path, text))
}

/// The word with which a setting of a task is written.
fn word_of(setting: &impl Serialize) -> String {
    let value = serde_json::to_value(setting).expect("BUG: settings are plain data");
    value.as_str().unwrap_or_default().to_owned()
}
