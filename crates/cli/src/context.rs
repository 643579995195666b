//! Where a command works: the folder, the repository, the settings. Reads files and environment
//! once, hands them on as values.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use mainstem_core::config::Settings;
use mainstem_core::config::layers::{
    ResolvedSettings, SettingLayer, SettingOrigin, resolve_settings,
};
use mainstem_core::id::Time;
use mainstem_core::inbox::PendingFile;
use mainstem_core::machine::Input;
use mainstem_core::plan::Plan;
use mainstem_core::plan::check::{PlanCheckContext, load_plan, load_plan_for_display};
use mainstem_core::plan::document::DocumentFormat;
use mainstem_engine::accepted_files::{AcceptedFiles, FileInForce, PendingFileVersion};
use mainstem_engine::instance::EngineInstance;
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::run_status::JournaledRun;
use mainstem_host::git::Repo;

use crate::args::GlobalArgs;
use crate::error::{CliError, CliErrorSource};
use crate::output;

/// The file of a project's settings.
pub(crate) const CONFIG_FILE: &str = "mainstem.toml";
/// Plans larger than this are refused before they are read.
const PLAN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The surroundings of a command.
pub(crate) struct CliContext {
    /// Options of every command.
    pub(crate) global: GlobalArgs,
    pub(crate) dir: PathBuf,
    /// Colours on standard output.
    pub(crate) color_out: bool,
    /// Colours on standard error.
    pub(crate) color_err: bool,
}

impl CliContext {
    pub(crate) fn new(global: GlobalArgs) -> Result<Self, CliError> {
        let here = std::env::current_dir()
            .map_err(|error| CliError::io_error("cannot read the current directory", &error))?;
        let dir = match &global.dir {
            Some(dir) => here.join(dir),
            None => here,
        };
        if !dir.is_dir() {
            return Err(CliError::new(format!("{} is not a directory", dir.display())));
        }
        let plain = global.no_color
            || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let color_out = !plain && std::io::stdout().is_terminal();
        let color_err = !plain && std::io::stderr().is_terminal();
        Ok(Self { global, dir, color_out, color_err })
    }

    pub(crate) fn open_repo(&self) -> Result<Repo, CliError> {
        Ok(Repo::discover(&self.dir)?)
    }

    /// A path as typed, seen from where the command works.
    pub(crate) fn resolve_path(&self, typed: &Path) -> PathBuf {
        self.dir.join(typed)
    }

    /// The project's settings file, found by walking up, not leaving the repository.
    pub(crate) fn find_config_file(&self, stop_at: Option<&Path>) -> Option<PathBuf> {
        let stop_at = stop_at.and_then(|stop| stop.canonicalize().ok());
        for dir in self.dir.ancestors() {
            let file = dir.join(CONFIG_FILE);
            if file.is_file() {
                return Some(file);
            }
            if stop_at.is_some() && dir.canonicalize().ok() == stop_at {
                break;
            }
        }
        None
    }

    /// The project's settings file, and its text where that is not what the file holds now: what a landing made
    /// of it is in force only after a person accepted it.
    fn read_project_file(
        &self,
        repo: Option<&Repo>,
    ) -> Result<Option<(PathBuf, Option<String>)>, CliError> {
        let home = repo.and_then(Repo::checkout).and_then(|home| home.canonicalize().ok());
        let (Some(repo), Some(home)) = (repo, home) else {
            return Ok(self.find_config_file(None).map(|path| (path, None)));
        };
        let accepted = AcceptedFiles::new(repo, RepoLayout::new(repo, None).state_dir());
        let here = self.dir.canonicalize().unwrap_or_else(|_| self.dir.clone());
        for dir in here.ancestors() {
            let Ok(inside) = dir.strip_prefix(&home) else { break };
            let file = dir.join(CONFIG_FILE);
            let in_force = match inside.join(CONFIG_FILE).to_str() {
                Some(path) => accepted.file_in_force(path)?,
                None => FileInForce::CheckoutVersion,
            };
            match in_force {
                FileInForce::EarlierVersion { content: Some(text), .. } => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    return Ok(Some((file, Some(text))));
                }
                FileInForce::CheckoutVersion if file.is_file() => return Ok(Some((file, None))),
                FileInForce::EarlierVersion { content: None, .. }
                | FileInForce::CheckoutVersion => {}
            }
        }
        Ok(None)
    }

    /// Files that decide about runs, as landings left them, that wait for a person.
    pub(crate) fn list_pending_files(
        &self,
        repo: &Repo,
        target: Option<&str>,
    ) -> Result<Vec<PendingFileVersion>, CliError> {
        let head = match target.filter(|target| !target.is_empty()) {
            Some(target) => repo.read_ref(&format!("refs/heads/{target}"))?,
            None => None,
        };
        let accepted = AcceptedFiles::new(repo, RepoLayout::new(repo, None).state_dir());
        Ok(accepted.list_pending(head.as_ref())?)
    }

    /// All settings with their origins.
    pub(crate) fn resolve_settings(
        &self,
        repo: Option<&Repo>,
    ) -> Result<ResolvedSettings, CliError> {
        let mut layers = Vec::new();
        let mut sources: Vec<(String, String)> = Vec::new();
        let mut read = |path: &Path, layer: fn(String, String) -> SettingLayer| {
            let name = path.display().to_string();
            match std::fs::read_to_string(path) {
                Ok(text) => {
                    sources.push((name.clone(), text.clone()));
                    layers.push(layer(name, text));
                    Ok(())
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(CliError::io_error(format!("cannot read {name}"), &error)),
            }
        };
        if let Some(path) = user_config_path() {
            read(&path, SettingLayer::from_user_file)?;
        }
        match self.read_project_file(repo)? {
            Some((path, None)) => read(&path, SettingLayer::from_project_file)?,
            Some((path, Some(text))) => {
                let name = format!("{} (before a landing changed it)", path.display());
                sources.push((name.clone(), text.clone()));
                layers.push(SettingLayer::from_project_file(name, text));
            }
            None => {}
        }
        layers.extend(SettingLayer::from_environment(std::env::vars_os().filter_map(
            |(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)),
        )));
        for pair in &self.global.config {
            let layer = SettingLayer::from_flag_pair(pair).ok_or_else(|| {
                CliError::usage_error(format!("--config {pair}: expected KEY=VALUE")).with_hint(
                    "for example --config run.jobs=4; list all settings: mainstem config",
                )
            })?;
            layers.push(layer);
        }
        let resolved = resolve_settings(&layers).map_err(|errors| {
            let count = errors.len();
            let noun = if count == 1 { "error" } else { "errors" };
            let mut failure = CliError::new(format!("invalid settings: {count} {noun}"))
                .with_hint("list all settings: mainstem config");
            for (origin, diagnostic) in errors {
                let file = origin.to_string();
                let is_file = matches!(origin, SettingOrigin::User(_) | SettingOrigin::Project(_));
                let source = sources.iter().find(|(name, _)| is_file && *name == file);
                let source = source.map(|(_, text)| text.clone()).unwrap_or_default();
                failure.add_source(CliErrorSource { file, source, diagnostics: vec![diagnostic] });
            }
            failure
        });
        let mut resolved = resolved?;
        if let Ok(home) = std::env::var("HOME")
            && home.starts_with('/')
        {
            resolved.settings.expand_home(&home);
        }
        Ok(resolved)
    }

    pub(crate) fn load_settings(&self, repo: Option<&Repo>) -> Result<Settings, CliError> {
        Ok(self.resolve_settings(repo)?.settings)
    }

    /// Repository, settings and places.
    pub(crate) fn load_repo_context(&self) -> Result<(Repo, Settings, RepoLayout), CliError> {
        let repo = self.open_repo()?;
        let settings = self.load_settings(Some(&repo))?;
        let layout = RepoLayout::new(&repo, settings.workspace.root.as_deref());
        Ok((repo, settings, layout))
    }

    /// Where the engine of this repository is reached. Needs no settings, so that a mistake in them keeps nobody from
    /// stopping or steering a run.
    pub(crate) fn engine_layout(&self) -> Result<RepoLayout, CliError> {
        Ok(RepoLayout::new(&self.open_repo()?, None))
    }

    /// Repository, settings and places for commands that only look: a mistake in a settings file is told, and what
    /// that file says is left out.
    pub(crate) fn load_read_only_context(&self) -> Result<(Repo, Settings, RepoLayout), CliError> {
        let repo = self.open_repo()?;
        let settings = match self.load_settings(Some(&repo)) {
            Ok(settings) => settings,
            Err(failure) => {
                // What was typed for this very call is refused; a file may have been broken by somebody else.
                let typed = failure
                    .places
                    .iter()
                    .any(|place| place.file == SettingOrigin::Flag.to_string());
                let Some(place) = failure.places.first().filter(|_| !typed) else {
                    return Err(failure);
                };
                let what = place.diagnostics.first().map(|d| d.message.clone()).unwrap_or_default();
                output::write_stderr(&format!(
                    "warning: {}: {what} (this file is ignored here; see all errors: mainstem doctor)",
                    place.file
                ));
                self.load_usable_settings(&repo)
            }
        };
        let layout = RepoLayout::new(&repo, settings.workspace.root.as_deref());
        Ok((repo, settings, layout))
    }

    /// The settings without the files that have mistakes.
    fn load_usable_settings(&self, repo: &Repo) -> Settings {
        let mut layers = Vec::new();
        let files = [
            user_config_path().map(|path| {
                (path, SettingLayer::from_user_file as fn(String, String) -> SettingLayer)
            }),
            self.find_config_file(repo.checkout())
                .map(|path| (path, SettingLayer::from_project_file as _)),
        ];
        for (path, layer) in files.into_iter().flatten() {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            layers.push(layer(path.display().to_string(), text));
            if resolve_settings(&layers).is_err() {
                layers.pop();
            }
        }
        let resolved = resolve_settings(&layers).or_else(|_| resolve_settings(&[]));
        resolved
            .map(|resolved| resolved.settings)
            .unwrap_or_else(|_| panic!("BUG: the defaults have no mistakes"))
    }

    /// A look at the run.
    pub(crate) fn open_run(
        &self,
        run: Option<&str>,
    ) -> Result<(Repo, RepoLayout, JournaledRun), CliError> {
        let (repo, settings, layout) = self.load_read_only_context()?;
        let mut look = JournaledRun::load(&layout, &settings, run)?;
        let pending =
            self.list_pending_files(&repo, Some(look.machine.target_branch()))?.into_iter();
        let waits = |file: PendingFileVersion| PendingFile {
            path: file.path,
            tasks: file.tasks,
            since: Time(file.at_ms),
        };
        let found = Input::PendingFilesFound(pending.map(waits).collect());
        look.machine.step(found, look.machine.now());
        Ok((repo, layout, look))
    }

    /// A look at a run that must exist.
    pub(crate) fn open_existing_run(
        &self,
        run: Option<&str>,
    ) -> Result<(Repo, RepoLayout, JournaledRun), CliError> {
        let found = self.open_run(run)?;
        if found.2.run.is_none() {
            return Err(CliError::new("no run in this repository yet")
                .with_hint("start one: mainstem run PLAN; or take a tour: mainstem demo"));
        }
        Ok(found)
    }

    /// Takes the repository over.
    pub(crate) fn open_engine_instance(&self) -> Result<EngineInstance, CliError> {
        let repo = self.open_repo()?;
        let settings = self.load_settings(Some(&repo))?;
        Ok(EngineInstance::open(repo, settings, own_executable()?, text_environment())?)
    }

    /// Reads and checks a plan.
    pub(crate) fn read_plan(&self, typed: &Path, settings: &Settings) -> Result<Plan, CliError> {
        let (name, format, bytes) = self.read_plan_text(typed)?;
        load_plan(&bytes, format, &known_names(settings)).map_err(|diagnostics| {
            CliError::source_error(name, String::from_utf8_lossy(&bytes).into_owned(), diagnostics)
        })
    }

    /// Reads a plan to look at it; what the settings lack for it comes beside it, in words.
    pub(crate) fn read_plan_to_show(
        &self,
        typed: &Path,
        settings: &Settings,
    ) -> Result<(Plan, Vec<String>), CliError> {
        let (name, format, bytes) = self.read_plan_text(typed)?;
        let (plan, lacking) = load_plan_for_display(&bytes, format, &known_names(settings))
            .map_err(|diagnostics| {
                CliError::source_error(
                    &name,
                    String::from_utf8_lossy(&bytes).into_owned(),
                    diagnostics,
                )
            })?;
        Ok((plan, lacking.iter().map(|fault| format!("{name}:{fault}")).collect()))
    }

    fn read_plan_text(&self, typed: &Path) -> Result<(String, DocumentFormat, Vec<u8>), CliError> {
        let path = self.resolve_path(typed);
        let name = typed.display().to_string();
        let format = DocumentFormat::from_path(&name).ok_or_else(|| {
            CliError::new(format!("{name} is not a plan file"))
                .with_hint("plan files end in .toml, .yaml, .yml or .json")
        })?;
        let unreadable = |error: std::io::Error| {
            let failure = CliError::io_error(format!("cannot read {name}"), &error);
            match error.kind() {
                std::io::ErrorKind::NotFound => {
                    failure.with_hint("create an example plan.toml: mainstem init")
                }
                _ => failure,
            }
        };
        let size = std::fs::metadata(&path).map_err(unreadable)?.len();
        if size > PLAN_BYTES_MAX {
            return Err(CliError::new(format!("{name} is larger than 64 MiB"))
                .with_hint("split the plan, or shorten the descriptions"));
        }
        let bytes = std::fs::read(&path).map_err(unreadable)?;
        Ok((name, format, bytes))
    }
}

fn known_names(settings: &Settings) -> PlanCheckContext<'_> {
    PlanCheckContext { agents: &settings.agents, default_agent: settings.run.agent.as_deref() }
}

pub(crate) fn own_executable() -> Result<PathBuf, CliError> {
    std::env::current_exe()
        .map_err(|error| CliError::io_error("cannot find the mainstem executable", &error))
}

/// The environment we were started with, as far as it is text.
pub(crate) fn text_environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

pub(crate) fn user_config_path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(home.join("mainstem").join("config.toml"))
}
