//! Where things are: the state folder beside the repository's objects, and the workspaces outside.

use std::path::{Path, PathBuf};

use mainstem_core::id::{RunId, TaskId};
use mainstem_host::git::Repo;

/// Longest socket path that every system takes.
const SOCKET_LEN_MAX: usize = 100;

/// The folders and files of one repository.
#[derive(Debug, Clone)]
pub struct Layout {
    state: PathBuf,
    root: PathBuf,
}

impl Layout {
    /// For this repository; `root` is the setting, if there is one.
    pub fn new(repo: &Repo, root: Option<&str>) -> Self {
        let state = repo.common_dir().join("mainstem");
        let home = repo.toplevel().unwrap_or_else(|| repo.common_dir());
        let root = match root {
            Some(root) => home.join(root),
            None => {
                let name = home.file_name().unwrap_or_default().to_string_lossy();
                let name = name.strip_suffix(".git").unwrap_or(&name).to_owned();
                home.parent().unwrap_or(home).join(format!("{name}.mainstem"))
            }
        };
        Self { state, root }
    }

    /// All that is ours inside the git folder.
    pub fn state(&self) -> &Path {
        &self.state
    }
    /// All workspaces.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.state.join("journal.db")
    }
    /// The lock of the one engine.
    pub fn lock(&self) -> PathBuf {
        self.state.join("engine.lock")
    }
    /// What a detached engine prints.
    pub fn engine_log(&self) -> PathBuf {
        self.state.join("engine.log")
    }
    /// Where the engine listens: in the state folder if the path is short enough for a socket,
    /// otherwise in a private folder of the system's temporary one.
    pub fn socket(&self) -> PathBuf {
        let near = self.state.join("engine.sock");
        if near.as_os_str().len() <= SOCKET_LEN_MAX {
            return near;
        }
        let uid = rustix::process::getuid().as_raw();
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in near.as_os_str().as_encoded_bytes() {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        std::env::temp_dir().join(format!("mainstem-{uid}")).join(format!("{hash:016x}.sock"))
    }
    /// What waits for deletion.
    pub fn trash(&self) -> PathBuf {
        self.root.join(".trash")
    }
    /// The workspace in which the train verifies.
    pub fn lane(&self) -> PathBuf {
        self.root.join(".train")
    }
    /// Whose car the train's workspace was last used for.
    pub fn lane_note(&self) -> PathBuf {
        self.state.join("lane")
    }
    /// The workspace of a unit.
    pub fn workspace(&self, unit: &str) -> PathBuf {
        self.root.join(unit)
    }
    /// Everything of one attempt: prompt, logs, records.
    pub fn attempt(&self, run: &RunId, task: &TaskId, attempt: u32) -> PathBuf {
        self.state.join("runs").join(run.as_str()).join(task.as_str()).join(attempt.to_string())
    }
    /// The agent's job.
    pub fn agent_job(&self, run: &RunId, task: &TaskId, attempt: u32) -> PathBuf {
        self.attempt(run, task, attempt).join("agent")
    }
    /// The job of the n-th gate of an attempt.
    pub fn gate_job(&self, run: &RunId, task: &TaskId, attempt: u32, n: usize) -> PathBuf {
        self.attempt(run, task, attempt).join(format!("gate-{n}"))
    }
    /// The job of the n-th gate of the train on a commit.
    pub fn train_job(&self, run: &RunId, task: &TaskId, commit: &str, n: usize) -> PathBuf {
        let short = commit.get(..16).unwrap_or(commit);
        self.state
            .join("runs")
            .join(run.as_str())
            .join(task.as_str())
            .join(format!("train-{short}-{n}"))
    }
    /// A path as facts name it.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.state).unwrap_or(path).to_string_lossy().into_owned()
    }
}
