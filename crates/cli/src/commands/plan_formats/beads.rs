//! Beads by its own program, `bd`: the files are only an export of what it knows.
//!
//! Its exit codes do not tell whether a change was made, so every change is read back.

#![expect(
    clippy::disallowed_methods,
    reason = "somebody's own program is asked here and now, outside any run"
)]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mainstem_planner::import::{self, ImportOptions, ImportedPlan, SourceTaskState, ToolFormat};
use mainstem_planner::import_source::ImportSource;
use mainstem_planner::status_push::StatusPushChange;
use serde_json::Value;

use crate::drive::find_program;
use crate::error::CliError;
use crate::output;

const PROGRAM: &str = "bd";
/// Issues named in one call, so that a command line stays short.
const IDS_PER_CALL: usize = 50;
/// A list of issues is never longer.
const BYTES_MAX: u64 = 10 << 20;
/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one call of the program gave.
struct BeadsOutput {
    /// It ended with exit code 0, which does not mean that it did what it was asked to.
    ok: bool,
    data: String,
    complaint: String,
}

/// An installed program and the project it is asked about.
pub(super) struct BeadsProgram {
    path: PathBuf,
    /// The folder with `.beads` in it.
    project: PathBuf,
}

impl BeadsProgram {
    /// If one is installed and this is a project of it, or its `.beads` folder.
    pub(super) fn find(folder: &Path) -> Option<Self> {
        let project = match folder.file_name() {
            Some(name) if name == ".beads" => folder.parent()?,
            _ if folder.join(".beads").is_dir() => folder,
            _ => return None,
        };
        Some(Self { path: find_program(PROGRAM)?, project: project.to_owned() })
    }

    /// Every issue that it knows.
    pub(super) fn list_issues(&self) -> Result<ImportSource, CliError> {
        // Older ones do not know the flags that lift their own limits.
        let all = self.run_checked(&["list", "--json", "--all", "--limit", "0"]);
        let text = all.or_else(|_| self.run_checked(&["list", "--json"]))?;
        let text = self.with_dependencies(text)?;
        Ok(ImportSource::new("", [(format!("{PROGRAM}-list.json"), text)])
            .with_name(format!("{PROGRAM} list --json")))
    }

    /// Before 0.49.1 `list` only counts the dependencies of an issue, while `show` names them.
    fn with_dependencies(&self, text: String) -> Result<String, CliError> {
        let Ok(Value::Array(mut issues)) = serde_json::from_str(&text) else { return Ok(text) };
        let only_counted = |issue: &Value| {
            issue["dependency_count"].as_u64().unwrap_or(0) > 0
                && issue.get("dependencies").is_none()
        };
        let ids: Vec<String> = issues
            .iter()
            .filter(|issue| only_counted(issue))
            .filter_map(|issue| issue["id"].as_str().map(str::to_owned))
            .filter(|id| !id.starts_with('-'))
            .collect();
        if ids.is_empty() {
            return Ok(text);
        }
        let mut named: BTreeMap<String, Value> = BTreeMap::new();
        for some in ids.chunks(IDS_PER_CALL) {
            let mut args = vec!["show"];
            args.extend(some.iter().map(String::as_str));
            args.push("--json");
            let shown: Value = serde_json::from_str(&self.run_checked(&args)?).unwrap_or_default();
            for issue in shown.as_array().into_iter().flatten() {
                if let (Some(id), Some(list)) = (issue["id"].as_str(), issue.get("dependencies")) {
                    named.insert(id.to_owned(), list.clone());
                }
            }
        }
        for issue in &mut issues {
            let found = issue["id"].as_str().and_then(|id| named.remove(id));
            if let (true, Some(list)) = (only_counted(issue), found) {
                issue["dependencies"] = list;
            }
        }
        serde_json::to_string(&issues).map_err(|error| CliError::new(error.to_string()))
    }

    /// Sets what changed and makes sure that it was set: first the issues, then the epics, which are
    /// closed only when all their issues are.
    pub(super) fn set_states(
        &self,
        imported: &ImportedPlan,
        changes: &[StatusPushChange],
    ) -> Result<(), CliError> {
        let strange = changes.iter().map(|change| &change.theirs).find(|id| id.starts_with('-'));
        if let Some(id) = strange {
            return Err(CliError::new(format!("invalid issue ID {}", output::sanitize_text(id))));
        }
        let is_task = |change: &&StatusPushChange| {
            imported.rows.iter().any(|row| row.theirs == change.theirs)
        };
        let (tasks, epics): (Vec<&StatusPushChange>, Vec<&StatusPushChange>) =
            changes.iter().partition(is_task);
        let complaints = self.update_issues(&tasks)?;
        self.confirm_states(&tasks, &complaints)?;
        self.update_issues(&epics)?;
        Ok(())
    }

    /// One call per issue; returns what the program complained of, by issue.
    fn update_issues(
        &self,
        changes: &[&StatusPushChange],
    ) -> Result<BTreeMap<String, String>, CliError> {
        let mut complaints = BTreeMap::new();
        for change in changes {
            let id = change.theirs.as_str();
            let said = match change.to {
                SourceTaskState::Done => self.run_program(&["close", id])?,
                SourceTaskState::Doing => {
                    self.run_program(&["update", id, "--status", "in_progress"])?
                }
                SourceTaskState::Blocked => {
                    self.run_program(&["update", id, "--status", "blocked"])?
                }
                SourceTaskState::Open | SourceTaskState::Held | SourceTaskState::Dropped => {
                    self.run_program(&["update", id, "--status", "open"])?
                }
            };
            complaints.insert(id.to_owned(), said.complaint);
        }
        Ok(complaints)
    }

    /// Reads the issues back, because a refusal ends with exit code 0 in many versions.
    fn confirm_states(
        &self,
        changes: &[&StatusPushChange],
        complaints: &BTreeMap<String, String>,
    ) -> Result<(), CliError> {
        if changes.is_empty() {
            return Ok(());
        }
        let everything = ImportOptions { all: true, ..ImportOptions::default() };
        let now = import::import_plan(&self.list_issues()?, ToolFormat::Beads, &everything)
            .map_err(super::import_error)?;
        let now: BTreeMap<&str, SourceTaskState> =
            now.rows.iter().map(|row| (row.theirs.as_str(), row.state)).collect();
        let refused =
            |change: &&&StatusPushChange| now.get(change.theirs.as_str()) != Some(&change.to);
        let ids: Vec<&str> =
            changes.iter().filter(refused).map(|change| change.theirs.as_str()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut failure = CliError::new(format!(
            "{PROGRAM} did not update {}: {}",
            output::count_noun(ids.len() as u64, "issue"),
            output::sanitize_text(&ids.join(" "))
        ));
        let words = ids.iter().filter_map(|id| complaints.get(*id));
        let lines = words.flat_map(|complaint| complaint.lines());
        failure
            .causes
            .extend(lines.filter(|line| !line.is_empty()).take(5).map(output::sanitize_text));
        Err(failure
            .with_hint("resolve what blocks these issues, then run mainstem plan push again"))
    }

    fn run_checked(&self, args: &[&str]) -> Result<String, CliError> {
        let said = self.run_program(args)?;
        if said.ok {
            return Ok(said.data);
        }
        let mut failure = CliError::new(format!("{PROGRAM} {} failed", args.join(" ")));
        failure.causes.extend(said.complaint.lines().take(5).map(output::sanitize_text));
        Err(failure.with_hint("or pass the exported file: .beads/issues.jsonl"))
    }

    fn run_program(&self, args: &[&str]) -> Result<BeadsOutput, CliError> {
        let what = format!("{PROGRAM} {}", args.join(" "));
        let failed =
            |error: std::io::Error| CliError::io_error(format!("cannot run {what}"), &error);
        let mut child = Command::new(&self.path)
            .args(args)
            .current_dir(&self.project)
            .env("BD_NO_AUTO_UPGRADE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (sender, texts) = mpsc::channel();
        let read = |pipe: Option<Box<dyn std::io::Read + Send>>, is_data: bool| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(pipe) = pipe {
                    let _ = pipe.take(BYTES_MAX + 1).read_to_end(&mut bytes);
                }
                let _ = sender.send((is_data, String::from_utf8_lossy(&bytes).into_owned()));
            });
        };
        read(child.stdout.take().map(|pipe| Box::new(pipe) as _), true);
        read(child.stderr.take().map(|pipe| Box::new(pipe) as _), false);
        let (mut data, mut complaint) = (String::new(), String::new());
        for _ in 0..2 {
            match texts.recv_timeout(PATIENCE) {
                Ok((true, text)) => data = text,
                Ok((false, text)) => complaint = text,
                Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(CliError::new(format!("{what} timed out")));
                }
            }
        }
        let status = child.wait().map_err(failed)?;
        let ok = status.success() && data.len() as u64 <= BYTES_MAX;
        Ok(BeadsOutput { ok, data, complaint })
    }
}
