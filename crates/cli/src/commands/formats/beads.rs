//! Beads by its own program, `bd` or `br`: its files are only an export of what it knows.

#![expect(
    clippy::disallowed_methods,
    reason = "somebody's own program is asked here and now, outside any run"
)]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mainstem_planner::import::State;
use mainstem_planner::push::Change;
use mainstem_planner::source::Source;

use crate::drive::find_program;
use crate::failure::Failure;
use crate::print;

/// The programs, the first that is installed is asked.
const PROGRAMS: [&str; 2] = ["bd", "br"];
/// A list of issues is never longer.
const BYTES_MAX: u64 = 10 << 20;
/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An installed program and the project it is asked about.
pub(super) struct Program {
    name: &'static str,
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
        let found = |name: &'static str| Some((name, find_program(name)?));
        let (name, path) = PROGRAMS.into_iter().find_map(found)?;
        Some(Self { name, path, project: project.to_owned() })
    }

    /// Every issue that it knows.
    pub(super) fn list(&self) -> Result<Source, Failure> {
        // Older ones do not know the flags that lift their own limits.
        let all = self.ask(&["list", "--json", "--all", "--limit", "0"]);
        let text = all.or_else(|_| self.ask(&["list", "--json"]))?;
        let file = format!("{}-list.json", self.name);
        Ok(Source::new("", [(file, text)]).named(format!("{} list --json", self.name)))
    }

    /// Sets what changed, one issue after the other.
    pub(super) fn set(&self, changes: &[Change]) -> Result<(), Failure> {
        for change in changes {
            let id = change.theirs.as_str();
            if id.starts_with('-') {
                return Err(Failure::new(format!("{} is no id of an issue", print::harmless(id))));
            }
            let status = match change.to {
                State::Done => {
                    self.ask(&["close", id])?;
                    continue;
                }
                State::Doing => "in_progress",
                State::Blocked => "blocked",
                State::Open | State::Held | State::Dropped => "open",
            };
            self.ask(&["update", id, "--status", status])?;
        }
        Ok(())
    }

    fn ask(&self, args: &[&str]) -> Result<String, Failure> {
        let what = format!("{} {}", self.name, args.join(" "));
        let failed =
            |error: std::io::Error| Failure::io(format!("{what} could not be run"), &error);
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
                    return Err(Failure::new(format!("{what} does not end")));
                }
            }
        }
        let status = child.wait().map_err(failed)?;
        if !status.success() || data.len() as u64 > BYTES_MAX {
            let mut failure = Failure::new(format!("{what} failed"));
            failure.causes.extend(complaint.lines().take(5).map(print::harmless));
            return Err(failure.hint("or name the file that it exports: .beads/issues.jsonl"));
        }
        Ok(data)
    }
}
