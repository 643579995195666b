//! Which wall stands around agents, setup commands and gates, and what each of them may reach.
//!
//! Turns settings and places into the policies of `host::wall`; enforces nothing itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use mainstem_core::config::{
    SandboxKind, SandboxNetwork, SandboxSettings, SandboxSockets, SandboxTmp, Settings,
    WorkspaceKind,
};
use mainstem_host::git::{GitError, Repo};
use mainstem_host::sandbox::{
    self, SandboxBackend, SandboxNetworkAccess, SandboxPathAccess, SandboxPolicy,
};
use mainstem_host::user_folder;

use crate::hidden;
use crate::hidden_git_settings::HiddenGitSettings;
use crate::repo_layout::RepoLayout;

/// Temporary folders of the machine.
const TMP: [&str; 2] = ["/tmp", "/var/tmp"];

/// Where programs make temporary files.
pub const TMPDIR: &str = "TMPDIR";

/// Kinds of agents that run a program of the user's own; all others talk to a model.
const OWN_PROGRAMS: [&str; 2] = ["command", "script"];

/// No wall can be had as asked for.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// There is none for this system.
    #[error("no sandbox is available on this system; sandboxes need Linux")]
    Unsupported,
    /// The one asked for does not work.
    #[error("the sandbox {} does not work here: {why}", .kind.name())]
    Broken { kind: SandboxBackend, why: String },
    #[error("no sandbox works here: bubblewrap: {bwrap}; Landlock: {landlock}")]
    None { bwrap: String, landlock: String },
    /// A socket that is as good as root cannot be hidden and may not be blocked.
    #[error(
        "agents could reach {socket}, which gives root access, and {} cannot hide sockets",
        SandboxBackend::Landlock.name()
    )]
    Socket { socket: PathBuf },
    /// All refs are in one file, so an agent that may commit could move them all.
    #[error(
        "this repository stores its refs in a reftable, which agents in worktrees cannot use in a sandbox"
    )]
    Reftable,
    /// Landlock has no loopback of its own.
    #[error("sandbox.network = \"loopback\" needs bubblewrap, but the sandbox is {}", .0.name())]
    NoLoopback(SandboxBackend),
}

impl SandboxError {
    /// The command or setting that helps.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Unsupported => {
                "set sandbox.kind = \"off\" to run agents with your rights, or run Mainstem in a Linux container"
            }
            Self::Broken { .. } | Self::None { .. } => {
                "install bubblewrap (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap), or set sandbox.kind = \"off\" to run agents with your rights"
            }
            Self::Socket { .. } => {
                "install bubblewrap, which can hide sockets, or set sandbox.sockets = \"blocked\" or \"open\""
            }
            Self::Reftable => {
                "give every agent a git folder of its own: mainstem config set workspace.kind clone"
            }
            Self::NoLoopback(_) => {
                "install bubblewrap, or set sandbox.network to \"open\" or \"none\""
            }
        }
    }
}

/// Tries each wall that the settings allow, the better one first, by running something behind it.
pub fn choose_backend(
    sandbox: &SandboxSettings,
    exe: &Path,
) -> Result<Option<SandboxBackend>, SandboxError> {
    if !sandbox::SUPPORTED && sandbox.kind != SandboxKind::Off {
        return Err(SandboxError::Unsupported);
    }
    let tried = |kind: SandboxBackend| match sandbox::probe_backend(kind, exe) {
        Ok(()) => Ok(Some(kind)),
        Err(why) => Err(SandboxError::Broken { kind, why }),
    };
    let found = match sandbox.kind {
        SandboxKind::Off => return Ok(None),
        SandboxKind::Bwrap => tried(SandboxBackend::Bwrap)?,
        SandboxKind::Landlock => tried(SandboxBackend::Landlock)?,
        SandboxKind::Auto => match sandbox::probe_backend(SandboxBackend::Bwrap, exe) {
            Ok(()) => Some(SandboxBackend::Bwrap),
            Err(bwrap) => match sandbox::probe_backend(SandboxBackend::Landlock, exe) {
                Ok(()) => Some(SandboxBackend::Landlock),
                Err(landlock) => return Err(SandboxError::None { bwrap, landlock }),
            },
        },
    };
    match found {
        Some(SandboxBackend::Landlock) if sandbox.network == SandboxNetwork::Loopback => {
            Err(SandboxError::NoLoopback(SandboxBackend::Landlock))
        }
        found => Ok(found),
    }
}

/// The walls of one engine.
#[derive(Debug, Clone)]
pub struct EngineSandbox {
    backend: SandboxBackend,
    sandbox: SandboxSettings,
    workspace: WorkspaceKind,
    /// What we were started with.
    env: BTreeMap<String, String>,
    exe: PathBuf,
    state: PathBuf,
    root: PathBuf,
    /// The repository's own folders.
    repository: Vec<PathBuf>,
    common: PathBuf,
    /// Whether no Unix sockets can be made.
    no_sockets: bool,
    /// Files with credentials in git's settings, found when the first job starts.
    hidden_settings: OnceLock<HiddenGitSettings>,
}

/// What stands behind one wall.
#[derive(Debug, Clone)]
pub struct SandboxScope<'a> {
    pub workspace: &'a Path,
    /// Its branch; none for a detached checkout.
    pub branch: Option<&'a str>,
    /// Its folder for temporary files.
    pub tmp: Option<PathBuf>,
    /// Its folder for the caches of build tools.
    pub caches: Option<PathBuf>,
    /// Files of ours that it reads.
    pub readable_paths: Vec<PathBuf>,
    /// Files and folders outside that are its own.
    pub writable_paths: Vec<PathBuf>,
    /// The agent's kind; none for setup commands and gates.
    pub agent: Option<&'a str>,
}

impl Default for SandboxScope<'_> {
    fn default() -> Self {
        let (reads, writes) = (Vec::new(), Vec::new());
        let (tmp, caches) = (None, None);
        let workspace = Path::new("");
        Self {
            workspace,
            branch: None,
            tmp,
            caches,
            readable_paths: reads,
            writable_paths: writes,
            agent: None,
        }
    }
}

impl EngineSandbox {
    /// For a repository; refuses what could not be kept.
    pub fn new(
        kind: SandboxBackend,
        settings: &Settings,
        (repo, layout): (&Repo, &RepoLayout),
        (exe, env): (&Path, &[(String, String)]),
    ) -> Result<Self, SandboxError> {
        let common = repo.common_dir().to_path_buf();
        let clone = settings.workspace.kind == WorkspaceKind::Clone;
        if !clone && repo.has_reftable() {
            return Err(SandboxError::Reftable);
        }
        let env: BTreeMap<String, String> = env.iter().cloned().collect();
        let sandbox = settings.sandbox.clone();
        let no_sockets = match (sandbox.sockets, kind) {
            (SandboxSockets::Open, _) => false,
            (SandboxSockets::Blocked, _) => true,
            (SandboxSockets::Auto, SandboxBackend::Bwrap) => false,
            (SandboxSockets::Auto, SandboxBackend::Landlock) => match hidden::reachable(&env) {
                None => false,
                Some(socket)
                    if settings.agents.values().any(|agent| needs_sockets(&agent.kind)) =>
                {
                    return Err(SandboxError::Socket { socket });
                }
                Some(_) => true,
            },
        };
        Ok(Self {
            backend: kind,
            sandbox,
            workspace: settings.workspace.kind,
            env,
            exe: exe.to_path_buf(),
            state: layout.state_dir().to_path_buf(),
            root: layout.workspace_root().to_path_buf(),
            repository: [repo.toplevel(), repo.checkout()]
                .into_iter()
                .flatten()
                .map(Path::to_path_buf)
                .collect(),
            common,
            no_sockets,
            hidden_settings: OnceLock::new(),
        })
    }

    /// What people call the sandbox.
    pub fn backend_name(&self) -> &'static str {
        self.backend.name()
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let sockets = if self.no_sockets { "; Unix sockets are blocked" } else { "" };
        let network = match self.sandbox.network {
            SandboxNetwork::Open => "",
            SandboxNetwork::Loopback => "; no network except a private loopback",
            SandboxNetwork::None => "; no network",
        };
        format!("agents run behind {}{network}{sockets}", self.backend.name())
    }

    /// The policy for one job, and variables that go with it.
    pub fn build_policy(
        &self,
        behind: &SandboxScope<'_>,
        repo: &Repo,
    ) -> Result<(SandboxPolicy, BTreeMap<String, String>), GitError> {
        let mut wall = SandboxPolicy::minimal(self.backend);
        let mut env = BTreeMap::new();
        wall.network = match self.sandbox.network {
            SandboxNetwork::Open => SandboxNetworkAccess::Open,
            SandboxNetwork::Loopback => SandboxNetworkAccess::Loopback,
            SandboxNetwork::None => SandboxNetworkAccess::None,
        };
        wall.no_sockets = self.no_sockets;
        wall.processes = Some(u64::from(self.sandbox.processes)).filter(|n| *n > 0);
        wall.file_bytes = Some(self.sandbox.file_bytes).filter(|n| *n > 0);
        self.add_temp_dirs(behind, &mut wall, &mut env);
        // Wherever it is: in a temporary folder it would be writable with it.
        if let Some(home) = self.env.get("HOME").filter(|home| home.starts_with('/')) {
            wall.set_path_access(Path::new(home), SandboxPathAccess::Read);
        }
        for place in &self.sandbox.write {
            self.expand_path(place)
                .iter()
                .for_each(|path| wall.set_path_access(path, SandboxPathAccess::Write));
        }
        for path in self.repository.iter().chain([&self.common, &self.exe]) {
            wall.set_path_access(path, SandboxPathAccess::Read);
        }
        if self.backend == SandboxBackend::Bwrap {
            // It has devices of its own, and nothing else that is there.
            for place in
                self.list_installed_dirs().iter().filter(|place| place.starts_with("/dev/"))
            {
                wall.set_path_access(place, SandboxPathAccess::Read);
            }
        }
        self.hide_secret_places(behind, &mut wall);
        // Leases and sockets of all runs of this user.
        wall.set_path_access(&user_folder::user_folder_path(), SandboxPathAccess::Hidden);
        if self.backend == SandboxBackend::Bwrap {
            // Landlock could not give the temporary folder and keep this back; nothing is there then. Bubblewrap
            // would make a folder that is missing itself, open to everybody.
            let _ = user_folder::create_private_folder(&user_folder::temp_fallback_folder());
            wall.set_path_access(&user_folder::temp_fallback_folder(), SandboxPathAccess::Hidden);
        }
        for place in &self.sandbox.read {
            self.expand_path(place)
                .iter()
                .for_each(|path| wall.set_path_access(path, SandboxPathAccess::Read));
        }
        behind
            .readable_paths
            .iter()
            .for_each(|path| wall.set_path_access(path, SandboxPathAccess::Read));
        behind
            .writable_paths
            .iter()
            .for_each(|path| wall.set_path_access(path, SandboxPathAccess::Write));
        wall.set_path_access(behind.workspace, SandboxPathAccess::Write);
        if let Some(tmp) = &behind.tmp {
            wall.set_path_access(tmp, SandboxPathAccess::Write);
        }
        if let Some(caches) = &behind.caches {
            wall.set_path_access(caches, SandboxPathAccess::Write);
        }
        self.allow_git_dirs(behind, repo, &mut wall)?;
        self.hidden_git_settings(repo)?.apply(&mut wall, &mut env);
        Ok((wall, env))
    }

    fn add_temp_dirs(
        &self,
        behind: &SandboxScope<'_>,
        wall: &mut SandboxPolicy,
        env: &mut BTreeMap<String, String>,
    ) {
        let own = behind.agent.is_none_or(|kind| OWN_PROGRAMS.contains(&kind));
        let private = match self.sandbox.tmp {
            SandboxTmp::Private => true,
            SandboxTmp::Shared => false,
            SandboxTmp::Auto => !own,
        };
        let shared = TMP.map(PathBuf::from).into_iter();
        let shared = shared.chain(self.env.get("TMPDIR").map(PathBuf::from));
        let below_tmp = |path: &&PathBuf| TMP.iter().any(|tmp| path.starts_with(tmp));
        match (&behind.tmp, private) {
            (Some(tmp), true) => {
                TMP.iter().for_each(|path| {
                    wall.set_path_access(Path::new(path), SandboxPathAccess::Hidden);
                });
                // What is installed there stays usable.
                for place in self.list_installed_dirs().iter().filter(below_tmp) {
                    wall.set_path_access(place, SandboxPathAccess::Read);
                }
                wall.tmp = Some(tmp.clone());
                let named =
                    if self.backend == SandboxBackend::Bwrap { Path::new("/tmp") } else { tmp };
                env.insert(TMPDIR.to_owned(), named.to_string_lossy().into_owned());
            }
            (tmp, _) => {
                shared.for_each(|path| wall.set_path_access(&path, SandboxPathAccess::Write));
                // A folder of its own all the same: Landlock cannot give a folder and keep back something
                // in it, so nothing new can be made right in /tmp where something of ours is below it.
                if let Some(tmp) = tmp {
                    env.insert(TMPDIR.to_owned(), tmp.to_string_lossy().into_owned());
                }
            }
        }
    }

    /// Folders of programs and of settings.
    fn list_installed_dirs(&self) -> Vec<PathBuf> {
        let path = self.env.get("PATH").map(String::as_str).unwrap_or_default();
        let home = self.env.get("HOME").map(PathBuf::from);
        std::env::split_paths(path).chain(home).filter(|place| place.is_absolute()).collect()
    }

    /// What must be there to run a program: its folder, and the whole of the package it is a part of.
    /// A folder that is everybody's is not opened for it.
    pub fn list_program_dirs(&self, program: &str) -> Vec<PathBuf> {
        let found = if program.contains('/') {
            Some(PathBuf::from(program))
        } else {
            let mut files =
                self.list_installed_dirs().into_iter().map(|folder| folder.join(program));
            files.find(|file| file.is_file())
        };
        let Some(file) = found.filter(|file| file.is_absolute()) else { return Vec::new() };
        let real = file.canonicalize().ok();
        let home = self.env.get("HOME").map(PathBuf::from);
        let everybodys = |place: &Path| {
            place.parent().is_none()
                || TMP.iter().any(|tmp| place == Path::new(tmp))
                || home.as_deref() == Some(place)
        };
        let mut places = Vec::new();
        for file in [Some(file), real].into_iter().flatten() {
            let place = package_root(&file);
            places.push(if everybodys(&place) { file } else { place });
        }
        places
    }

    fn hide_secret_places(&self, behind: &SandboxScope<'_>, wall: &mut SandboxPolicy) {
        for place in hidden::secrets(&self.env) {
            wall.set_path_access(&place, SandboxPathAccess::Hidden);
        }
        for login in hidden::foreign_logins(&self.env, behind.agent) {
            wall.set_path_access(&login, SandboxPathAccess::Hidden);
        }
        if self.backend == SandboxBackend::Bwrap {
            // Where /tmp is a folder of the job's own, nothing of the machine's is in it.
            let replaced = |place: &Path| TMP.iter().any(|tmp| place.starts_with(tmp));
            let shown = |place: &PathBuf| wall.tmp.is_none() || !replaced(place);
            let places: Vec<PathBuf> =
                hidden::listening(&self.env).into_iter().filter(shown).collect();
            places.iter().for_each(|place| wall.set_path_access(place, SandboxPathAccess::Hidden));
        }
        wall.set_path_access(&self.state, SandboxPathAccess::Hidden);
        // A root that holds the repository itself cannot be hidden as a whole.
        if !self.common.starts_with(&self.root) {
            wall.set_path_access(&self.root, SandboxPathAccess::Hidden);
        }
        for place in &self.sandbox.hide {
            self.expand_path(place)
                .iter()
                .for_each(|path| wall.set_path_access(path, SandboxPathAccess::Hidden));
        }
    }

    /// What git needs to commit in a worktree that has a git folder of its own: that one, and nothing
    /// else of the shared git dir.
    fn allow_git_dirs(
        &self,
        behind: &SandboxScope<'_>,
        repo: &Repo,
        wall: &mut SandboxPolicy,
    ) -> Result<(), GitError> {
        if self.workspace == WorkspaceKind::Worktree || behind.branch.is_none() {
            wall.sealed.push(behind.workspace.join(".git"));
        }
        // A detached checkout is for looking at: nothing is committed there.
        if behind.branch.is_some() {
            let own = repo.list_working_git_dirs(behind.workspace)?;
            own.iter().for_each(|dir| wall.set_path_access(dir, SandboxPathAccess::Write));
        }
        Ok(())
    }

    /// Whether the repository's own settings are hidden, so that a checkout without a git folder of its own has
    /// no use of git.
    pub fn hides_git_settings(&self, repo: &Repo) -> Result<bool, GitError> {
        Ok(self.backend == SandboxBackend::Landlock
            && self.hidden_git_settings(repo)?.hides_settings_of(&self.common))
    }

    fn hidden_git_settings(&self, repo: &Repo) -> Result<&HiddenGitSettings, GitError> {
        if let Some(found) = self.hidden_settings.get() {
            return Ok(found);
        }
        let home = self.env.get("HOME").map(PathBuf::from);
        let xdg = self.env.get("XDG_CONFIG_HOME").map(PathBuf::from);
        let found = HiddenGitSettings::find(repo, &self.state, home.as_deref(), xdg.as_deref())?;
        Ok(self.hidden_settings.get_or_init(|| found))
    }

    /// A path of the settings; none if it starts with a variable that is not set.
    fn expand_path(&self, place: &str) -> Option<PathBuf> {
        let home = || self.env.get("HOME").map(PathBuf::from);
        if place == "~" {
            return home();
        }
        if let Some(rest) = place.strip_prefix("~/") {
            return home().map(|home| home.join(rest));
        }
        if let Some(rest) = place.strip_prefix('$') {
            let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
            return self.env.get(name).filter(|v| !v.is_empty()).map(|v| Path::new(v).join(rest));
        }
        let base = self.repository.first().unwrap_or(&self.common);
        Some(base.join(place))
    }
}

/// The folder that a program cannot do without: its own, or that of the packages it was installed with.
fn package_root(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(file);
    let above = folder.ancestors().filter(|place| place.ends_with("node_modules"));
    let Some(prefix) = above.last().and_then(Path::parent) else {
        return folder.to_path_buf();
    };
    if prefix.ends_with("lib") { prefix.parent().unwrap_or(prefix) } else { prefix }.to_path_buf()
}

/// Agents that talk to a model get a socket to ask questions through.
fn needs_sockets(kind: &str) -> bool {
    !OWN_PROGRAMS.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_comes_with_the_packages_it_was_installed_with() {
        for (file, place) in [
            ("/opt/tool/bin/tool", "/opt/tool/bin"),
            ("/tmp/x/node_modules/.bin/claude", "/tmp/x"),
            ("/tmp/x/node_modules/a/node_modules/b/cli.js", "/tmp/x"),
            ("/usr/lib/node_modules/@v/cli/dist/cli.js", "/usr"),
        ] {
            assert_eq!(package_root(Path::new(file)), Path::new(place), "{file}");
        }
    }
}
