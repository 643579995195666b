//! A repository of a bench's own, with a home that hides the machine's settings, and the binary in it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mainstem_core::config::{Settings, layers};
use mainstem_core::fact::Fact;
use mainstem_core::id::Time;
use mainstem_engine::run_journal;
use mainstem_store::{Store, StoreContents, embedded_store};

use super::Context;
use crate::shell;

/// A repository and where things of it are.
pub(super) struct Scene {
    binary: PathBuf,
    root: PathBuf,
    path: Option<String>,
}

impl Scene {
    /// A repository with one commit, in a folder of this name.
    pub(super) fn new(context: &Context, name: &str) -> Result<Self, String> {
        let scene =
            Self { binary: context.binary.clone(), root: context.scratch.join(name), path: None };
        let words = "[user]\n\tname = Bench\n\temail = bench@example.invalid\n[init]\n\tdefaultBranch = main\n\
                     [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n";
        let made = fs::create_dir_all(scene.repo())
            .and_then(|()| fs::create_dir_all(scene.root.join("home")))
            .and_then(|()| fs::write(scene.root.join("home/gitconfig"), words))
            .and_then(|()| fs::write(scene.repo().join("README.md"), "# A bench\n"));
        made.map_err(|error| format!("{}: {error}", scene.root.display()))?;
        scene.git(&["init", "-q"])?;
        scene.commit("first")?;
        Ok(scene)
    }

    /// Looks for programs in this folder before all others.
    pub(super) fn first_in_path(&mut self, folder: &Path) {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        self.path = Some(format!("{}:{path}", folder.display()));
    }

    pub(super) fn repo(&self) -> PathBuf {
        self.root.join("repo")
    }

    /// All that belongs to this scene.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The product's folder in the repository.
    pub(super) fn state(&self) -> PathBuf {
        self.repo().join(".git/mainstem")
    }

    pub(super) fn store(&self) -> Box<dyn Store> {
        embedded_store(&self.state(), StoreContents::Runs)
    }

    /// Writes a file beside the repository and says where.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.root.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Any program in the repository's folder and environment.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = shell::command(program, &self.repo());
        let home = self.root.join("home");
        command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join("config"));
        command.env("GIT_CONFIG_GLOBAL", home.join("gitconfig")).env("GIT_CONFIG_NOSYSTEM", "1");
        // The numbers are of the engine, on machines with and without walls.
        command.env("NO_COLOR", "1").env("MAINSTEM_SANDBOX_KIND", "off");
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        command
    }

    /// Git, to its end.
    pub(super) fn git(&self, args: &[&str]) -> Result<String, String> {
        let said = shell::output(self.command("git").args(args))?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }

    /// Commits everything there is.
    pub(super) fn commit(&self, message: &str) -> Result<(), String> {
        self.git(&["add", "-A"])?;
        self.git(&["commit", "-q", "-m", message]).map(drop)
    }

    /// The binary; what it says goes to files beside the repository.
    pub(super) fn mainstem(&self, args: &[&str]) -> Result<Command, String> {
        let open = |name: &str| {
            let path = self.root.join(name);
            File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut command = self.command(&self.binary);
        command.args(args).stdin(Stdio::null()).stdout(open("stdout")?).stderr(open("stderr")?);
        Ok(command)
    }

    /// The end of what the last command said on its standard error.
    pub(super) fn said(&self) -> String {
        let text = fs::read(self.root.join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().rev().take(4).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    /// All facts after a place in the journal, and the place of the last one. None while there is no journal.
    pub(super) fn facts(&self, after: u64) -> Result<(Vec<(Time, Fact)>, u64), String> {
        let words = |error: &dyn std::fmt::Display| format!("the journal cannot be read: {error}");
        let Some(reader) =
            run_journal::open_journal_reader(&*self.store()).map_err(|error| words(&error))?
        else {
            return Ok((Vec::new(), after));
        };
        let (mut facts, mut last) = (Vec::new(), after);
        loop {
            let records = reader.read_after(last, 4_096).map_err(|error| words(&error))?;
            let Some(end) = records.last() else { return Ok((facts, last)) };
            last = end.seq;
            for record in &records {
                let fact = run_journal::decode_fact(record).map_err(|error| words(&error))?;
                facts.push((Time(record.at_ms), fact));
            }
        }
    }
}

/// The settings that nobody set.
pub(super) fn default_settings() -> Result<Settings, String> {
    match layers::resolve_settings(&[]) {
        Ok(resolved) => Ok(resolved.settings),
        Err(_) => Err("the defaults are refused".to_owned()),
    }
}
