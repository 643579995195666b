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

use mainstem_planner::import::{self, Accept, Format, Imported, State};
use mainstem_planner::push::Change;
use mainstem_planner::source::Source;
use serde_json::Value;

use crate::drive::find_program;
use crate::failure::Failure;
use crate::print;

const PROGRAM: &str = "bd";
/// Issues named in one call, so that a command line stays short.
const IDS_PER_CALL: usize = 50;
/// A list of issues is never longer.
const BYTES_MAX: u64 = 10 << 20;
/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one call of the program gave.
struct Said {
    /// It ended with exit code 0, which does not mean that it did what it was asked to.
    ok: bool,
    data: String,
    complaint: String,
}

/// An installed program and the project it is asked about.
pub(super) struct Program {
    path: PathBuf,
    /// The folder with `.beads` in it.
    project: PathBuf,
}

impl Program {
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
    pub(super) fn list(&self) -> Result<Source, Failure> {
        // Older ones do not know the flags that lift their own limits.
        let all = self.ask(&["list", "--json", "--all", "--limit", "0"]);
        let text = all.or_else(|_| self.ask(&["list", "--json"]))?;
        let text = self.with_dependencies(text)?;
        Ok(Source::new("", [(format!("{PROGRAM}-list.json"), text)])
            .named(format!("{PROGRAM} list --json")))
    }

    /// Before 0.49.1 `list` only counts the dependencies of an issue, while `show` names them.
    fn with_dependencies(&self, text: String) -> Result<String, Failure> {
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
            let shown: Value = serde_json::from_str(&self.ask(&args)?).unwrap_or_default();
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
        serde_json::to_string(&issues).map_err(|error| Failure::new(error.to_string()))
    }

    /// Sets what changed and makes sure that it was set: first the issues, then the epics, which are
    /// closed only when all their issues are.
    pub(super) fn set(&self, imported: &Imported, changes: &[Change]) -> Result<(), Failure> {
        let strange = changes.iter().map(|change| &change.theirs).find(|id| id.starts_with('-'));
        if let Some(id) = strange {
            return Err(Failure::new(format!("invalid issue ID {}", print::harmless(id))));
        }
        let is_task =
            |change: &&Change| imported.rows.iter().any(|row| row.theirs == change.theirs);
        let (tasks, epics): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(is_task);
        let complaints = self.update(&tasks)?;
        self.confirm(&tasks, &complaints)?;
        self.update(&epics)?;
        Ok(())
    }

    /// One call per issue; returns what the program complained of, by issue.
    fn update(&self, changes: &[&Change]) -> Result<BTreeMap<String, String>, Failure> {
        let mut complaints = BTreeMap::new();
        for change in changes {
            let id = change.theirs.as_str();
            let said = match change.to {
                State::Done => self.call(&["close", id])?,
                State::Doing => self.call(&["update", id, "--status", "in_progress"])?,
                State::Blocked => self.call(&["update", id, "--status", "blocked"])?,
                State::Open | State::Held | State::Dropped => {
                    self.call(&["update", id, "--status", "open"])?
                }
            };
            complaints.insert(id.to_owned(), said.complaint);
        }
        Ok(complaints)
    }

    /// Reads the issues back, because a refusal ends with exit code 0 in many versions.
    fn confirm(
        &self,
        changes: &[&Change],
        complaints: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        if changes.is_empty() {
            return Ok(());
        }
        let everything = Accept { all: true, ..Accept::default() };
        let now =
            import::read(&self.list()?, Format::Beads, &everything).map_err(super::refused)?;
        let now: BTreeMap<&str, State> =
            now.rows.iter().map(|row| (row.theirs.as_str(), row.state)).collect();
        let refused = |change: &&&Change| now.get(change.theirs.as_str()) != Some(&change.to);
        let ids: Vec<&str> =
            changes.iter().filter(refused).map(|change| change.theirs.as_str()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut failure = Failure::new(format!(
            "{PROGRAM} did not update {}: {}",
            print::count(ids.len() as u64, "issue"),
            print::harmless(&ids.join(" "))
        ));
        let words = ids.iter().filter_map(|id| complaints.get(*id));
        let lines = words.flat_map(|complaint| complaint.lines());
        failure.causes.extend(lines.filter(|line| !line.is_empty()).take(5).map(print::harmless));
        Err(failure.hint("resolve what blocks these issues, then run mainstem plan push again"))
    }

    fn ask(&self, args: &[&str]) -> Result<String, Failure> {
        let said = self.call(args)?;
        if said.ok {
            return Ok(said.data);
        }
        let mut failure = Failure::new(format!("{PROGRAM} {} failed", args.join(" ")));
        failure.causes.extend(said.complaint.lines().take(5).map(print::harmless));
        Err(failure.hint("or pass the exported file: .beads/issues.jsonl"))
    }

    fn call(&self, args: &[&str]) -> Result<Said, Failure> {
        let what = format!("{PROGRAM} {}", args.join(" "));
        let failed = |error: std::io::Error| Failure::io(format!("cannot run {what}"), &error);
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
                    return Err(Failure::new(format!("{what} timed out")));
                }
            }
        }
        let status = child.wait().map_err(failed)?;
        let ok = status.success() && data.len() as u64 <= BYTES_MAX;
        Ok(Said { ok, data, complaint })
    }
}
