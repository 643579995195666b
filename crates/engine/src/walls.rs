//! Which wall stands around agents, setup commands and gates, and what each of them may reach.
//!
//! Turns settings and places into the policies of `host::wall`; enforces nothing itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use mainstem_core::config::{
    Sandbox, SandboxKind, SandboxNetwork, SandboxSockets, SandboxTmp, Settings, WorkspaceKind,
};
use mainstem_host::git::{GitError, Repo};
use mainstem_host::private;
use mainstem_host::wall::{self, Access, Kind, Network, Wall};

use crate::guarded_settings::GuardedSettings;
use crate::hidden;
use crate::paths::Layout;

/// Temporary folders of the machine.
const TMP: [&str; 2] = ["/tmp", "/var/tmp"];

/// Where programs make temporary files.
pub const TMPDIR: &str = "TMPDIR";

/// Kinds of agents that run a program of the user's own; all others talk to a model.
const OWN_PROGRAMS: [&str; 2] = ["command", "script"];

/// No wall can be had as asked for.
#[derive(Debug, thiserror::Error)]
pub enum WallError {
    /// There is none for this system.
    #[error("no sandbox is available on this system; sandboxes need Linux")]
    Unsupported,
    /// The one asked for does not work.
    #[error("the sandbox {} does not work here: {why}", .kind.name())]
    Broken {
        /// Which.
        kind: Kind,
        /// What it said.
        why: String,
    },
    /// None works.
    #[error("no sandbox works here: bubblewrap: {bwrap}; Landlock: {landlock}")]
    None {
        /// Why not bubblewrap.
        bwrap: String,
        /// Why not Landlock.
        landlock: String,
    },
    /// A socket that is as good as root cannot be hidden and may not be blocked.
    #[error(
        "agents could reach {socket}, which gives root access, and {} cannot hide sockets",
        Kind::Landlock.name()
    )]
    Socket {
        /// Which.
        socket: PathBuf,
    },
    /// All refs are in one file, so an agent that may commit could move them all.
    #[error(
        "this repository stores its refs in a reftable, which agents in worktrees cannot use in a sandbox"
    )]
    Reftable,
    /// Landlock has no loopback of its own.
    #[error("sandbox.network = \"loopback\" needs bubblewrap, but the sandbox is {}", .0.name())]
    NoLoopback(Kind),
}

impl WallError {
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
pub fn choose(sandbox: &Sandbox, exe: &Path) -> Result<Option<Kind>, WallError> {
    if !wall::SUPPORTED && sandbox.kind != SandboxKind::Off {
        return Err(WallError::Unsupported);
    }
    let tried = |kind: Kind| match wall::probe(kind, exe) {
        Ok(()) => Ok(Some(kind)),
        Err(why) => Err(WallError::Broken { kind, why }),
    };
    let found = match sandbox.kind {
        SandboxKind::Off => return Ok(None),
        SandboxKind::Bwrap => tried(Kind::Bwrap)?,
        SandboxKind::Landlock => tried(Kind::Landlock)?,
        SandboxKind::Auto => match wall::probe(Kind::Bwrap, exe) {
            Ok(()) => Some(Kind::Bwrap),
            Err(bwrap) => match wall::probe(Kind::Landlock, exe) {
                Ok(()) => Some(Kind::Landlock),
                Err(landlock) => return Err(WallError::None { bwrap, landlock }),
            },
        },
    };
    match found {
        Some(Kind::Landlock) if sandbox.network == SandboxNetwork::Loopback => {
            Err(WallError::NoLoopback(Kind::Landlock))
        }
        found => Ok(found),
    }
}

/// The walls of one engine.
#[derive(Debug, Clone)]
pub struct Walls {
    kind: Kind,
    sandbox: Sandbox,
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
    guarded: OnceLock<GuardedSettings>,
}

/// What stands behind one wall.
#[derive(Debug, Clone)]
pub struct Behind<'a> {
    /// Where it works.
    pub workspace: &'a Path,
    /// Its branch; none for a detached checkout.
    pub branch: Option<&'a str>,
    /// Its folder for temporary files.
    pub tmp: Option<PathBuf>,
    /// Its folder for the caches of build tools.
    pub caches: Option<PathBuf>,
    /// Files of ours that it reads.
    pub reads: Vec<PathBuf>,
    /// Files and folders outside that are its own.
    pub writes: Vec<PathBuf>,
    /// The agent's kind; none for setup commands and gates.
    pub agent: Option<&'a str>,
}

impl Default for Behind<'_> {
    fn default() -> Self {
        let (reads, writes) = (Vec::new(), Vec::new());
        let (tmp, caches) = (None, None);
        let workspace = Path::new("");
        Self { workspace, branch: None, tmp, caches, reads, writes, agent: None }
    }
}

impl Walls {
    /// For a repository; refuses what could not be kept.
    pub fn new(
        kind: Kind,
        settings: &Settings,
        (repo, layout): (&Repo, &Layout),
        (exe, env): (&Path, &[(String, String)]),
    ) -> Result<Self, WallError> {
        let common = repo.common_dir().to_path_buf();
        let clone = settings.workspace.kind == WorkspaceKind::Clone;
        if !clone && repo.has_reftable() {
            return Err(WallError::Reftable);
        }
        let env: BTreeMap<String, String> = env.iter().cloned().collect();
        let sandbox = settings.sandbox.clone();
        let no_sockets = match (sandbox.sockets, kind) {
            (SandboxSockets::Open, _) => false,
            (SandboxSockets::Blocked, _) => true,
            (SandboxSockets::Auto, Kind::Bwrap) => false,
            (SandboxSockets::Auto, Kind::Landlock) => match hidden::reachable(&env) {
                None => false,
                Some(socket)
                    if settings.agents.values().any(|agent| needs_sockets(&agent.kind)) =>
                {
                    return Err(WallError::Socket { socket });
                }
                Some(_) => true,
            },
        };
        Ok(Self {
            kind,
            sandbox,
            workspace: settings.workspace.kind,
            env,
            exe: exe.to_path_buf(),
            state: layout.state().to_path_buf(),
            root: layout.root().to_path_buf(),
            repository: [repo.toplevel(), repo.checkout()]
                .into_iter()
                .flatten()
                .map(Path::to_path_buf)
                .collect(),
            common,
            no_sockets,
            guarded: OnceLock::new(),
        })
    }

    /// What people call the sandbox.
    pub fn kind_name(&self) -> &'static str {
        self.kind.name()
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let sockets = if self.no_sockets { "; Unix sockets are blocked" } else { "" };
        let network = match self.sandbox.network {
            SandboxNetwork::Open => "",
            SandboxNetwork::Loopback => "; no network except a private loopback",
            SandboxNetwork::None => "; no network",
        };
        format!("agents run behind {}{network}{sockets}", self.kind.name())
    }

    /// The policy for one job, and variables that go with it.
    pub fn around(
        &self,
        behind: &Behind<'_>,
        repo: &Repo,
    ) -> Result<(Wall, BTreeMap<String, String>), GitError> {
        let mut wall = Wall::bare(self.kind);
        let mut env = BTreeMap::new();
        wall.network = match self.sandbox.network {
            SandboxNetwork::Open => Network::Open,
            SandboxNetwork::Loopback => Network::Loopback,
            SandboxNetwork::None => Network::None,
        };
        wall.no_sockets = self.no_sockets;
        wall.processes = Some(u64::from(self.sandbox.processes)).filter(|n| *n > 0);
        wall.file_bytes = Some(self.sandbox.file_bytes).filter(|n| *n > 0);
        self.temporary(behind, &mut wall, &mut env);
        // Wherever it is: in a temporary folder it would be writable with it.
        if let Some(home) = self.env.get("HOME").filter(|home| home.starts_with('/')) {
            wall.allow(Path::new(home), Access::Read);
        }
        for place in &self.sandbox.write {
            self.expanded(place).iter().for_each(|path| wall.allow(path, Access::Write));
        }
        for path in self.repository.iter().chain([&self.common, &self.exe]) {
            wall.allow(path, Access::Read);
        }
        if self.kind == Kind::Bwrap {
            // It has devices of its own, and nothing else that is there.
            for place in self.installed().iter().filter(|place| place.starts_with("/dev/")) {
                wall.allow(place, Access::Read);
            }
        }
        self.hide(behind, &mut wall);
        // Leases and sockets of all runs of this user.
        wall.allow(&private::folder(), Access::Hidden);
        if self.kind == Kind::Bwrap {
            // Landlock could not give the temporary folder and keep this back; nothing is there then. Bubblewrap
            // would make a folder that is missing itself, open to everybody.
            let _ = private::make(&private::temporary());
            wall.allow(&private::temporary(), Access::Hidden);
        }
        for place in &self.sandbox.read {
            self.expanded(place).iter().for_each(|path| wall.allow(path, Access::Read));
        }
        behind.reads.iter().for_each(|path| wall.allow(path, Access::Read));
        behind.writes.iter().for_each(|path| wall.allow(path, Access::Write));
        wall.allow(behind.workspace, Access::Write);
        if let Some(tmp) = &behind.tmp {
            wall.allow(tmp, Access::Write);
        }
        if let Some(caches) = &behind.caches {
            wall.allow(caches, Access::Write);
        }
        self.git(behind, repo, &mut wall)?;
        self.guarded(repo)?.apply(&mut wall, &mut env);
        Ok((wall, env))
    }

    fn temporary(&self, behind: &Behind<'_>, wall: &mut Wall, env: &mut BTreeMap<String, String>) {
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
                TMP.iter().for_each(|path| wall.allow(Path::new(path), Access::Hidden));
                // What is installed there stays usable.
                for place in self.installed().iter().filter(below_tmp) {
                    wall.allow(place, Access::Read);
                }
                wall.tmp = Some(tmp.clone());
                let named = if self.kind == Kind::Bwrap { Path::new("/tmp") } else { tmp };
                env.insert(TMPDIR.to_owned(), named.to_string_lossy().into_owned());
            }
            (tmp, _) => {
                shared.for_each(|path| wall.allow(&path, Access::Write));
                // A folder of its own all the same: Landlock cannot give a folder and keep back something
                // in it, so nothing new can be made right in /tmp where something of ours is below it.
                if let Some(tmp) = tmp {
                    env.insert(TMPDIR.to_owned(), tmp.to_string_lossy().into_owned());
                }
            }
        }
    }

    /// Folders of programs and of settings.
    fn installed(&self) -> Vec<PathBuf> {
        let path = self.env.get("PATH").map(String::as_str).unwrap_or_default();
        let home = self.env.get("HOME").map(PathBuf::from);
        std::env::split_paths(path).chain(home).filter(|place| place.is_absolute()).collect()
    }

    /// What must be there to run a program: its folder, and the whole of the package it is a part of.
    /// A folder that is everybody's is not opened for it.
    pub fn of_program(&self, program: &str) -> Vec<PathBuf> {
        let found = if program.contains('/') {
            Some(PathBuf::from(program))
        } else {
            let mut files = self.installed().into_iter().map(|folder| folder.join(program));
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
            let place = package_of(&file);
            places.push(if everybodys(&place) { file } else { place });
        }
        places
    }

    fn hide(&self, behind: &Behind<'_>, wall: &mut Wall) {
        for place in hidden::secrets(&self.env) {
            wall.allow(&place, Access::Hidden);
        }
        for login in hidden::foreign_logins(&self.env, behind.agent) {
            wall.allow(&login, Access::Hidden);
        }
        if self.kind == Kind::Bwrap {
            // Where /tmp is a folder of the job's own, nothing of the machine's is in it.
            let replaced = |place: &Path| TMP.iter().any(|tmp| place.starts_with(tmp));
            let shown = |place: &PathBuf| wall.tmp.is_none() || !replaced(place);
            let places: Vec<PathBuf> =
                hidden::listening(&self.env).into_iter().filter(shown).collect();
            places.iter().for_each(|place| wall.allow(place, Access::Hidden));
        }
        wall.allow(&self.state, Access::Hidden);
        // A root that holds the repository itself cannot be hidden as a whole.
        if !self.common.starts_with(&self.root) {
            wall.allow(&self.root, Access::Hidden);
        }
        for place in &self.sandbox.hide {
            self.expanded(place).iter().for_each(|path| wall.allow(path, Access::Hidden));
        }
    }

    /// What git needs to commit in a worktree that has a git folder of its own: that one, and nothing
    /// else of the shared git dir.
    fn git(&self, behind: &Behind<'_>, repo: &Repo, wall: &mut Wall) -> Result<(), GitError> {
        if self.workspace == WorkspaceKind::Worktree || behind.branch.is_none() {
            wall.sealed.push(behind.workspace.join(".git"));
        }
        // A detached checkout is for looking at: nothing is committed there.
        if behind.branch.is_some() {
            let own = repo.working_git_dirs(behind.workspace)?;
            own.iter().for_each(|dir| wall.allow(dir, Access::Write));
        }
        Ok(())
    }

    /// Whether the repository's own settings are hidden, so that a checkout without a git folder of its own has
    /// no use of git.
    pub fn hides_settings(&self, repo: &Repo) -> Result<bool, GitError> {
        Ok(self.kind == Kind::Landlock && self.guarded(repo)?.hides(&self.common))
    }

    fn guarded(&self, repo: &Repo) -> Result<&GuardedSettings, GitError> {
        if let Some(found) = self.guarded.get() {
            return Ok(found);
        }
        let home = self.env.get("HOME").map(PathBuf::from);
        let xdg = self.env.get("XDG_CONFIG_HOME").map(PathBuf::from);
        let found = GuardedSettings::find(repo, &self.state, home.as_deref(), xdg.as_deref())?;
        Ok(self.guarded.get_or_init(|| found))
    }

    /// A path of the settings; none if it starts with a variable that is not set.
    fn expanded(&self, place: &str) -> Option<PathBuf> {
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
fn package_of(file: &Path) -> PathBuf {
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
            assert_eq!(package_of(Path::new(file)), Path::new(place), "{file}");
        }
    }
}
