//! Where a command works: the folder, the repository, the settings. Reads files and environment
//! once, hands them on as values.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use mainstem_core::config::Settings;
use mainstem_core::config::layers::{Layer, Origin, Resolved, resolve};
use mainstem_core::id::Time;
use mainstem_core::inbox::PendingFile;
use mainstem_core::plan::Plan;
use mainstem_core::plan::check::{Known, load_plan, load_plan_to_show};
use mainstem_core::plan::doc::Format;
use mainstem_engine::accepted::{Accepted, InForce, Pending};
use mainstem_engine::look::Look;
use mainstem_engine::paths::Layout;
use mainstem_engine::session::Session;
use mainstem_host::git::Repo;

use crate::args::Global;
use crate::failure::{Failure, Place};
use crate::print;

/// The file of a project's settings.
pub(crate) const CONFIG_FILE: &str = "mainstem.toml";
/// Plans larger than this are refused before they are read.
const PLAN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The surroundings of a command.
pub(crate) struct Context {
    /// Options of every command.
    pub(crate) global: Global,
    /// Where to work.
    pub(crate) dir: PathBuf,
    /// Colours on standard output.
    pub(crate) color_out: bool,
    /// Colours on standard error.
    pub(crate) color_err: bool,
}

impl Context {
    /// From the options.
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        let here = std::env::current_dir()
            .map_err(|error| Failure::io("the current folder cannot be read", &error))?;
        let dir = match &global.dir {
            Some(dir) => here.join(dir),
            None => here,
        };
        if !dir.is_dir() {
            return Err(Failure::new(format!("{} is not a folder", dir.display())));
        }
        let plain = global.no_color
            || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let color_out = !plain && std::io::stdout().is_terminal();
        let color_err = !plain && std::io::stderr().is_terminal();
        Ok(Self { global, dir, color_out, color_err })
    }

    /// The repository.
    pub(crate) fn repo(&self) -> Result<Repo, Failure> {
        Ok(Repo::discover(&self.dir)?)
    }

    /// A path as typed, seen from where the command works.
    pub(crate) fn path(&self, typed: &Path) -> PathBuf {
        self.dir.join(typed)
    }

    /// The project's settings file, found by walking up, not leaving the repository.
    pub(crate) fn config_file(&self, stop_at: Option<&Path>) -> Option<PathBuf> {
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
    fn project_file(
        &self,
        repo: Option<&Repo>,
    ) -> Result<Option<(PathBuf, Option<String>)>, Failure> {
        let home = repo.and_then(Repo::checkout).and_then(|home| home.canonicalize().ok());
        let (Some(repo), Some(home)) = (repo, home) else {
            return Ok(self.config_file(None).map(|path| (path, None)));
        };
        let accepted = Accepted::new(repo, Layout::new(repo, None).state());
        let here = self.dir.canonicalize().unwrap_or_else(|_| self.dir.clone());
        for dir in here.ancestors() {
            let Ok(inside) = dir.strip_prefix(&home) else { break };
            let file = dir.join(CONFIG_FILE);
            let in_force = match inside.join(CONFIG_FILE).to_str() {
                Some(path) => accepted.in_force(path)?,
                None => InForce::AsItIs,
            };
            match in_force {
                InForce::Before { content: Some(text), .. } => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    return Ok(Some((file, Some(text))));
                }
                InForce::AsItIs if file.is_file() => return Ok(Some((file, None))),
                InForce::Before { content: None, .. } | InForce::AsItIs => {}
            }
        }
        Ok(None)
    }

    /// Files that decide about runs, as landings left them, that wait for a person.
    pub(crate) fn pending_files(
        &self,
        repo: &Repo,
        target: Option<&str>,
    ) -> Result<Vec<Pending>, Failure> {
        let head = match target.filter(|target| !target.is_empty()) {
            Some(target) => repo.read_ref(&format!("refs/heads/{target}"))?,
            None => None,
        };
        let accepted = Accepted::new(repo, Layout::new(repo, None).state());
        Ok(accepted.pending(head.as_ref())?)
    }

    /// All settings with their origins.
    pub(crate) fn resolved(&self, repo: Option<&Repo>) -> Result<Resolved, Failure> {
        let mut layers = Vec::new();
        let mut sources: Vec<(String, String)> = Vec::new();
        let mut read = |path: &Path, layer: fn(String, String) -> Layer| {
            let name = path.display().to_string();
            match std::fs::read_to_string(path) {
                Ok(text) => {
                    sources.push((name.clone(), text.clone()));
                    layers.push(layer(name, text));
                    Ok(())
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(Failure::io(format!("{name} cannot be read"), &error)),
            }
        };
        if let Some(path) = user_config() {
            read(&path, Layer::user)?;
        }
        match self.project_file(repo)? {
            Some((path, None)) => read(&path, Layer::project)?,
            Some((path, Some(text))) => {
                let name = format!("{} (before a landing changed it)", path.display());
                sources.push((name.clone(), text.clone()));
                layers.push(Layer::project(name, text));
            }
            None => {}
        }
        layers.extend(Layer::environment(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        })));
        for pair in &self.global.config {
            let layer = Layer::flag_pair(pair).ok_or_else(|| {
                Failure::usage(format!("--config {pair}: expected KEY=VALUE"))
                    .hint("for example --config run.jobs=4; mainstem config lists all keys")
            })?;
            layers.push(layer);
        }
        let resolved = resolve(&layers).map_err(|errors| {
            let count = errors.len();
            let noun = if count == 1 { "error" } else { "errors" };
            let mut failure = Failure::new(format!("the configuration has {count} {noun}"))
                .hint("mainstem config lists all keys");
            for (origin, diagnostic) in errors {
                let file = origin.to_string();
                let is_file = matches!(origin, Origin::User(_) | Origin::Project(_));
                let source = sources.iter().find(|(name, _)| is_file && *name == file);
                let source = source.map(|(_, text)| text.clone()).unwrap_or_default();
                failure.add_place(Place { file, source, diagnostics: vec![diagnostic] });
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

    /// The settings.
    pub(crate) fn settings(&self, repo: Option<&Repo>) -> Result<Settings, Failure> {
        Ok(self.resolved(repo)?.settings)
    }

    /// Repository, settings and places.
    pub(crate) fn place(&self) -> Result<(Repo, Settings, Layout), Failure> {
        let repo = self.repo()?;
        let settings = self.settings(Some(&repo))?;
        let layout = Layout::new(&repo, settings.workspace.root.as_deref());
        Ok((repo, settings, layout))
    }

    /// Where the engine of this repository is reached. Needs no settings, so that a mistake in them keeps nobody from
    /// stopping or steering a run.
    pub(crate) fn engine_layout(&self) -> Result<Layout, Failure> {
        Ok(Layout::new(&self.repo()?, None))
    }

    /// Repository, settings and places for commands that only look: a mistake in a settings file is told, and what
    /// that file says is left out.
    pub(crate) fn place_to_look(&self) -> Result<(Repo, Settings, Layout), Failure> {
        let repo = self.repo()?;
        let settings = match self.settings(Some(&repo)) {
            Ok(settings) => settings,
            Err(failure) => {
                let Some(place) = failure.places.first() else { return Err(failure) };
                let what = place.diagnostics.first().map(|d| d.message.clone()).unwrap_or_default();
                print::err(&format!(
                    "warning: {}: {what} (defaults are shown in its place; mainstem doctor has all mistakes)",
                    place.file
                ));
                self.usable_settings(&repo)
            }
        };
        let layout = Layout::new(&repo, settings.workspace.root.as_deref());
        Ok((repo, settings, layout))
    }

    /// The settings without the files that have mistakes.
    fn usable_settings(&self, repo: &Repo) -> Settings {
        let mut layers = Vec::new();
        let files = [
            user_config().map(|path| (path, Layer::user as fn(String, String) -> Layer)),
            self.config_file(repo.checkout()).map(|path| (path, Layer::project as _)),
        ];
        for (path, layer) in files.into_iter().flatten() {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            layers.push(layer(path.display().to_string(), text));
            if resolve(&layers).is_err() {
                layers.pop();
            }
        }
        let resolved = resolve(&layers).or_else(|_| resolve(&[]));
        resolved
            .map(|resolved| resolved.settings)
            .unwrap_or_else(|_| panic!("BUG: the defaults have no mistakes"))
    }

    /// A look at the run.
    pub(crate) fn look(&self, run: Option<&str>) -> Result<(Repo, Layout, Look), Failure> {
        let (repo, settings, layout) = self.place_to_look()?;
        let mut look = Look::at(&layout, &settings, run)?;
        let pending = self.pending_files(&repo, Some(look.machine.target()))?.into_iter();
        let waits = |file: Pending| PendingFile {
            path: file.path,
            tasks: file.tasks,
            since: Time(file.at_ms),
        };
        look.machine.set_pending_files(pending.map(waits).collect());
        Ok((repo, layout, look))
    }

    /// A look at a run that must exist.
    pub(crate) fn look_at_run(&self, run: Option<&str>) -> Result<(Repo, Layout, Look), Failure> {
        let found = self.look(run)?;
        if found.2.run.is_none() {
            return Err(Failure::new("there is no run in this repository yet")
                .hint("mainstem run PLAN starts one; mainstem demo shows how"));
        }
        Ok(found)
    }

    /// Takes the repository over.
    pub(crate) fn session(&self) -> Result<Session, Failure> {
        let repo = self.repo()?;
        let settings = self.settings(Some(&repo))?;
        Ok(Session::open(repo, settings, own_exe()?, environment())?)
    }

    /// Reads and checks a plan.
    pub(crate) fn plan(&self, typed: &Path, settings: &Settings) -> Result<Plan, Failure> {
        let (name, format, bytes) = self.plan_text(typed)?;
        load_plan(&bytes, format, &known(settings)).map_err(|diagnostics| {
            Failure::text(name, String::from_utf8_lossy(&bytes).into_owned(), diagnostics)
        })
    }

    /// Reads a plan to look at it; what the settings lack for it comes beside it, in words.
    pub(crate) fn plan_to_show(
        &self,
        typed: &Path,
        settings: &Settings,
    ) -> Result<(Plan, Vec<String>), Failure> {
        let (name, format, bytes) = self.plan_text(typed)?;
        let (plan, lacking) =
            load_plan_to_show(&bytes, format, &known(settings)).map_err(|diagnostics| {
                Failure::text(&name, String::from_utf8_lossy(&bytes).into_owned(), diagnostics)
            })?;
        Ok((plan, lacking.iter().map(|fault| format!("{name}:{fault}")).collect()))
    }

    fn plan_text(&self, typed: &Path) -> Result<(String, Format, Vec<u8>), Failure> {
        let path = self.path(typed);
        let name = typed.display().to_string();
        let format = Format::from_path(&name).ok_or_else(|| {
            Failure::new(format!("{name} is not a plan"))
                .hint("a plan's name ends in .toml, .yaml, .yml or .json")
        })?;
        let unreadable = |error: std::io::Error| {
            let failure = Failure::io(format!("{name} cannot be read"), &error);
            match error.kind() {
                std::io::ErrorKind::NotFound => {
                    failure.hint("mainstem init writes an example plan.toml")
                }
                _ => failure,
            }
        };
        let size = std::fs::metadata(&path).map_err(unreadable)?.len();
        if size > PLAN_BYTES_MAX {
            return Err(Failure::new(format!("{name} is larger than 64 MiB"))
                .hint("split the plan, or generate shorter descriptions"));
        }
        let bytes = std::fs::read(&path).map_err(unreadable)?;
        Ok((name, format, bytes))
    }
}

fn known(settings: &Settings) -> Known<'_> {
    Known { agents: &settings.agents, default_agent: settings.run.agent.as_deref() }
}

/// Our own binary.
pub(crate) fn own_exe() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::io("our own program cannot be found", &error))
}

/// The environment we were started with, as far as it is text.
pub(crate) fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

pub(crate) fn user_config() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(home.join("mainstem").join("config.toml"))
}
