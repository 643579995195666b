//! Where things are: the state folder beside the repository's objects, and the workspaces outside.

use std::fs;
use std::path::{Path, PathBuf};

use mainstem_core::id::{RunId, TaskId};
use mainstem_host::git::Repo;
use mainstem_host::lock::{LockError, LockOutcome, OwnerLock};
use mainstem_host::{files, user_folder};
use mainstem_store::{Store, StoreContents, embedded_store};
use serde_json::{Value, json};

/// In the names of folders with files that git could not store; the task and the attempt follow.
pub const UNSTORED: &str = "unstored-";

/// The folder of the train's first lane. Tools treat files below a folder with a leading dot as hidden, and
/// no id of a task begins with an underscore.
const LANE: &str = "_train";
/// What earlier versions called it.
const OLD_LANE: &str = ".train";
/// Temporary folders of what runs in workspaces, one each.
const TEMPORARY: &str = "_tmp";
/// Caches of what runs in workspaces, one folder each.
const CACHES: &str = "_cache";

/// Longest socket path that every system takes.
const SOCKET_LEN_MAX: usize = 100;
/// In a folder of workspaces: whose it is. Locked while an engine lives.
const OWNER: &str = ".owner";
/// A folder that goes while it is taken is made again; more often than this means something else.
const CLAIMS_MAX: u32 = 8;

/// The folders and files of one repository.
#[derive(Debug, Clone)]
pub struct RepoLayout {
    common_dir: PathBuf,
    state: PathBuf,
    root: PathBuf,
    /// Where workspaces are if the wanted place is another repository's.
    fallback_root: PathBuf,
}

impl RepoLayout {
    /// For this repository; `root` is the setting, if there is one.
    pub fn new(repo: &Repo, root: Option<&str>) -> Self {
        let common_dir = repo.common_dir().to_path_buf();
        let state = common_dir.join("mainstem");
        let home = repo.toplevel().unwrap_or_else(|| repo.common_dir());
        let name = home.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".git").unwrap_or(&name).to_owned();
        let wanted = match root {
            Some(root) => home.join(root),
            None => home.parent().unwrap_or(home).join(format!("{name}.mainstem")),
        };
        let fallback_root = wanted.join(format!("{name}-{:016x}", hash_path(&common_dir)));
        // Once aside, it stays there until nothing is left in it.
        let elsewhere = fallback_root.join(OWNER).exists()
            || !may_use_root(&read_root_owner(&wanted), &common_dir);
        let root = if elsewhere { fallback_root.clone() } else { wanted };
        Self { common_dir, state, root, fallback_root }
    }

    /// Takes the folder of workspaces for this repository; if it is another one's, a folder of our own
    /// in it. Held until the lock is dropped, ours until [`RepoLayout::release_root`].
    pub fn claim_root(&mut self) -> Result<OwnerLock, LockError> {
        let body = json!({ "repository": self.common_dir.to_string_lossy() });
        let mut tries = 0;
        loop {
            let path = self.root.join(OWNER);
            let failed = |what, source| LockError::Io { what, path: path.clone(), source };
            fs::create_dir_all(&self.root).map_err(|error| failed("make the folder of", error))?;
            match OwnerLock::acquire_if(&path, &body, |there| may_use_root(there, &self.common_dir))
            {
                Ok(LockOutcome::Held(lock)) => return Ok(lock),
                Ok(LockOutcome::Busy { .. }) if self.root != self.fallback_root => {
                    self.root = self.fallback_root.clone();
                }
                Ok(LockOutcome::Busy { .. }) => {
                    let why = std::io::Error::other("already used by another repository");
                    return Err(failed("take", why));
                }
                Err(LockError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && tries < CLAIMS_MAX =>
                {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives the folder of workspaces back if nothing of ours is in it but what the trash keeps.
    pub fn release_root(&self) {
        // What is not empty stays, and is named by `mainstem clean`.
        let _ = fs::remove_dir(self.trash_dir());
        let _ = fs::remove_dir(self.root.join(TEMPORARY));
        let _ = fs::remove_dir(self.root.join(CACHES));
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        let needed = entries.flatten().any(|entry| {
            let name = entry.file_name();
            name != OWNER && name != ".trash" && !entry.path().join(OWNER).exists()
        });
        let owner = read_root_owner(&self.root);
        if !needed && !owner.is_null() && may_use_root(&owner, &self.common_dir) {
            let _ = fs::remove_file(self.root.join(OWNER));
        }
        let _ = fs::remove_dir(&self.root);
        if let Some(wanted) = self.fallback_root.parent() {
            let _ = fs::remove_dir(wanted);
        }
    }

    /// All that is ours inside the git folder.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }
    pub fn workspace_root(&self) -> &Path {
        &self.root
    }
    /// The store of the runs. Its owner is the one engine of the repository.
    pub fn run_store(&self) -> Box<dyn Store> {
        embedded_store(&self.state, StoreContents::Runs)
    }
    /// The store of the drafts. Its owner is the one process that drafts a plan.
    pub fn draft_store(&self) -> Box<dyn Store> {
        embedded_store(&self.state, StoreContents::Drafts)
    }
    /// What a detached engine prints.
    pub fn engine_log_path(&self) -> PathBuf {
        self.state.join("engine.log")
    }
    /// Where the engine listens: in the state folder if the path is short enough for a socket,
    /// otherwise in the user's private folder.
    pub fn socket_path(&self) -> PathBuf {
        let near = self.state.join("engine.sock");
        if near.as_os_str().len() <= SOCKET_LEN_MAX {
            return near;
        }
        let name = format!("{:016x}.sock", hash_path(&near));
        let far = user_folder::user_folder_path().join(&name);
        if far.as_os_str().len() <= SOCKET_LEN_MAX {
            return far;
        }
        user_folder::temp_fallback_folder().join(name)
    }
    /// What waits for deletion.
    pub fn trash_dir(&self) -> PathBuf {
        self.root.join(".trash")
    }
    /// What was moved aside and is kept for a person.
    pub fn list_kept_aside(&self) -> Vec<PathBuf> {
        files::list_kept_trash(&self.trash_dir())
    }
    /// Folders with files of a task that git could not store.
    pub fn list_unstored_folders(&self, task: &str) -> Vec<PathBuf> {
        let mut found = self.list_kept_aside();
        found.retain(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            let whose = name.rsplit_once(UNSTORED).and_then(|(_, whose)| whose.rsplit_once('-'));
            whose.is_some_and(|(whose, _)| whose == task)
        });
        found
    }
    /// The workspace in which a lane of the train verifies, from 1. Each keeps what builds left there.
    pub fn lane_workspace(&self, lane: u32) -> PathBuf {
        self.root.join(lane_name(lane))
    }
    /// Is this the name of a lane's workspace?
    pub fn is_lane_name(name: &str) -> bool {
        has_numbered_name(LANE, name) || Self::is_old_lane_name(name)
    }
    /// Is this the name of a lane's workspace as an earlier version made it?
    pub fn is_old_lane_name(name: &str) -> bool {
        has_numbered_name(OLD_LANE, name)
    }
    /// The workspaces of lanes that are there.
    pub fn list_lane_workspaces(&self) -> Vec<PathBuf> {
        let Ok(all) = std::fs::read_dir(&self.root) else { return Vec::new() };
        let lanes =
            all.flatten().filter(|entry| Self::is_lane_name(&entry.file_name().to_string_lossy()));
        let mut lanes: Vec<PathBuf> = lanes.map(|entry| entry.path()).collect();
        lanes.sort();
        lanes
    }
    /// The temporary folder of a task's attempt: its agent's, its setup commands' and its gates'. Outside of
    /// the repository's git folder: a git that is started there must not take it for a repository.
    pub fn attempt_tmp(&self, task: &TaskId, attempt: u32) -> PathBuf {
        self.root.join(TEMPORARY).join(format!("{task}-{attempt}"))
    }
    /// The temporary folder of a lane's setup commands and gates.
    pub fn lane_tmp(&self, lane: u32) -> PathBuf {
        self.root.join(TEMPORARY).join(lane_name(lane))
    }
    /// The caches of a task's attempt.
    pub fn attempt_caches(&self, task: &TaskId, attempt: u32) -> PathBuf {
        self.root.join(CACHES).join(format!("{task}-{attempt}"))
    }
    /// The caches of a lane's setup commands and gates.
    pub fn lane_caches(&self, lane: u32) -> PathBuf {
        self.root.join(CACHES).join(lane_name(lane))
    }
    /// All temporary folders, and all caches.
    pub fn scratch_dirs(&self) -> [PathBuf; 2] {
        [TEMPORARY, CACHES].map(|name| self.root.join(name))
    }
    /// The temporary folder of a reviewer.
    pub fn review_tmp(&self, task: &TaskId, attempt: u32, call: &str) -> PathBuf {
        self.root.join(TEMPORARY).join(format!("_{call}-{task}-{attempt}"))
    }
    /// Which lane's workspace this is.
    pub fn lane_of_workspace(&self, path: &Path) -> Option<u32> {
        let name = path.strip_prefix(&self.root).ok()?.to_str()?;
        let rest = name.strip_prefix(LANE)?;
        if rest.is_empty() { Some(1) } else { rest.strip_prefix('-')?.parse().ok() }
    }
    /// Whose car a lane's workspace was last used for.
    pub fn lane_note_path(&self, lane: u32) -> PathBuf {
        self.state.join(if lane < 2 { "lane".to_owned() } else { format!("lane-{lane}") })
    }
    /// Verdicts on the target branch that are remembered beyond a run.
    pub fn verified_targets_path(&self) -> PathBuf {
        self.state.join("verified-targets.json")
    }
    /// Another number whenever build caches turned out to be wrong: none of before is used again.
    pub fn cache_generation_path(&self) -> PathBuf {
        self.state.join("cache-generation")
    }
    /// The workspace of a unit.
    pub fn workspace_path(&self, unit: &str) -> PathBuf {
        self.root.join(unit)
    }
    /// Everything of one attempt: prompt, logs, records.
    pub fn attempt_dir(&self, run: &RunId, task: &TaskId, attempt: u32) -> PathBuf {
        self.state.join("runs").join(run.as_str()).join(task.as_str()).join(attempt.to_string())
    }
    /// The record of who uses a workspace.
    pub fn workspace_owner(&self, run: &RunId, workspace: &Path) -> PathBuf {
        let name = workspace.file_name().unwrap_or_default();
        self.state.join("runs").join(run.as_str()).join(".workspaces").join(name)
    }
    pub fn agent_job(&self, run: &RunId, task: &TaskId, attempt: u32) -> PathBuf {
        self.attempt_dir(run, task, attempt).join("agent")
    }
    /// The job of the n-th gate of an attempt.
    pub fn gate_job(&self, run: &RunId, task: &TaskId, attempt: u32, n: usize) -> PathBuf {
        self.attempt_dir(run, task, attempt).join(format!("gate-{n}"))
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
    /// Drafts of plans: a folder each.
    pub fn drafts_dir(&self) -> PathBuf {
        self.state.join("plans")
    }
    /// Everything of one planner call: prompt, log, answer.
    pub fn draft_call_dir(&self, draft: &RunId, part: &str, call: u32) -> PathBuf {
        self.drafts_dir().join(draft.as_str()).join(part).join(call.to_string())
    }
    /// A path as facts name it.
    pub fn relative_name(&self, path: &Path) -> String {
        path.strip_prefix(&self.state).unwrap_or(path).to_string_lossy().into_owned()
    }
}

fn lane_name(lane: u32) -> String {
    if lane < 2 { LANE.to_owned() } else { format!("{LANE}-{lane}") }
}

/// Whether `name` is `first`, or `first-…`.
fn has_numbered_name(first: &str, name: &str) -> bool {
    name.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn hash_path(path: &Path) -> u64 {
    let start: u64 = 0xcbf2_9ce4_8422_2325;
    path.as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What the owner of a folder of workspaces wrote there; null if nobody did.
fn read_root_owner(root: &Path) -> Value {
    let text = fs::read_to_string(root.join(OWNER)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Whether a folder with this owner is ours to use: nobody's, ours, or of a repository that is gone.
fn may_use_root(owner: &Value, common_dir: &Path) -> bool {
    match owner["repository"].as_str() {
        // What cannot be looked at is there.
        Some(other) => {
            Path::new(other) == common_dir || matches!(Path::new(other).try_exists(), Ok(false))
        }
        None => true,
    }
}
