//! Why a repository could not be taken over or worked on.

use std::path::PathBuf;

use mainstem_core::id::RunId;
use mainstem_core::machine::CommandRefusal;
use mainstem_host::git::GitError;
use mainstem_host::lock::LockError;
use mainstem_store::{StoreError, StoreOwner};

use crate::accepted_files::AcceptedFilesError;
use crate::driver::DriverError;
use crate::forge_connection::ForgeConnectionError;
use crate::prompt_template::PromptTemplateLoadError;
use crate::run_journal::RunJournalError;
use crate::sandbox_policy::SandboxError;
use crate::snapshot_pruning::SnapshotPruneError;
use crate::state_check::UnknownAgent;
use crate::target_branch::TargetBranchError;
use crate::upstream::UpstreamError;

/// Why a repository could not be taken over or worked on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Git(#[from] GitError),
    /// Somebody else owns it.
    #[error("another run is active in this repository (pid {pid} on {host}, started {since})")]
    Owned { pid: String, host: String, since: String },
    /// The lock could not be tried.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal cannot be read.
    #[error(transparent)]
    Ledger(#[from] RunJournalError),
    /// The journal cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Snapshots could not be pruned.
    #[error(transparent)]
    Prune(#[from] SnapshotPruneError),
    /// The run began with another branch or mode.
    #[error(
        "this run lands on {0}; to use other [land] settings, start a new run: mainstem run --new PLAN"
    )]
    OtherTarget(String),
    /// Phases that need each other.
    #[error("the phases of the plan cannot be ordered: {0}")]
    Phases(String),
    /// There is no forge to go to.
    #[error(transparent)]
    Hub(#[from] ForgeConnectionError),
    /// Nothing can be pushed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// There is no branch to land on.
    #[error(transparent)]
    Target(#[from] TargetBranchError),
    /// The journal is of another repository.
    #[error(
        "the state in {} belongs to another repository: no landed commit of the journal exists here",
        .0.display()
    )]
    OtherRepository(PathBuf),
    /// The repository went away under the engine.
    #[error("the repository is no longer at {}: it was moved or removed while the run was working", .0.display())]
    RepositoryMoved(PathBuf),
    /// The journal was taken away from agents that are at work.
    #[error(
        "{}, unknown to the journal: the journal was moved or replaced while agents were running",
        describe_unknown_agents(.0)
    )]
    UnknownAgents(Vec<UnknownAgent>),
    /// The template of prompts cannot be used.
    #[error(transparent)]
    Prompt(#[from] PromptTemplateLoadError),
    /// The engine broke off.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The state folder cannot be used.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// The state belongs to another repository, of which this is a copy.
    #[error(
        "this repository is a copy of {}, with the Mainstem state of the original and references to the original's agents and workspaces",
        of.display()
    )]
    Copied {
        /// The original's git folder.
        of: PathBuf,
        state: PathBuf,
    },
    /// A path that facts and records could not name.
    #[error("the path {path:?} is not valid UTF-8; move the repository")]
    OddPath { path: PathBuf },
    /// No wall as the settings want it.
    #[error(transparent)]
    Wall(#[from] SandboxError),
    /// Landings must be signed and cannot be.
    #[error("landings cannot be signed, and land.sign is \"required\": {0}")]
    Unsigned(String),
    /// What decides about runs cannot be told.
    #[error(transparent)]
    Accepted(#[from] AcceptedFilesError),
    /// There is nothing to run.
    #[error("there is no run in this repository yet")]
    NoRun,
    /// Another run was asked for while attempts of the present one are under way.
    #[error("{0} still has running attempts")]
    Unfinished(RunId),
    /// A branch of the user's leaves no room for ours.
    #[error("the branch `{0}` prevents the creation of branches named mainstem/<task>")]
    NoBranchRoom(String),
    /// Tasks that have begun are missing from the new plan.
    #[error("the new plan drops tasks that have begun: {}", .0.join(", "))]
    DropsStarted(Vec<String>),
    /// A task or epic to run that the plan does not have.
    #[error("{0}")]
    Refused(CommandRefusal),
    /// Somebody wanted to stop before anything was started.
    #[error("interrupted; nothing was started")]
    Interrupted,
}

/// Who owns the repository, from what stands in its lock.
pub(super) fn owned_error(owner: &StoreOwner) -> EngineError {
    let holder: serde_json::Value = serde_json::from_str(&owner.note).unwrap_or_default();
    let text = |key: &str| match holder.get(key) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Number(number)) => number.to_string(),
        _ => "unknown".to_owned(),
    };
    let since = holder
        .get("started_at_ms")
        .and_then(serde_json::Value::as_i64)
        .map_or_else(|| "unknown".to_owned(), mainstem_api::time::to_rfc3339);
    EngineError::Owned { pid: text("pid"), host: text("host"), since }
}

fn describe_unknown_agents(agents: &[UnknownAgent]) -> String {
    let one = |agent: &UnknownAgent| {
        let pid = agent.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
        format!("{} of {}{pid}", agent.task, agent.run)
    };
    let all: Vec<String> = agents.iter().map(one).collect();
    let noun = if all.len() == 1 { "an agent is" } else { "agents are" };
    format!("{noun} still running here ({})", all.join("; "))
}
