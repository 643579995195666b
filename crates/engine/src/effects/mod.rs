//! Performing effects: one file per subject. Each function may be called twice with the same
//! effect, because after a crash all outstanding ones come again.

pub mod agent;
pub mod conflict_text;
pub mod answering_agent;
pub mod earlier_work;
pub mod evidence;
pub mod gates;
mod guarded_changes;
mod handover;
pub mod jobs;
pub mod landing;
mod litter;
pub mod tool_server;
pub mod order;
pub mod forge_actions;
pub mod recheck;
pub mod review;
mod stack_actions;
pub mod workspace;

pub use order::{EffectAction, EffectOrder, carry_out_order};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use mainstem_core::id::{Oid, TaskIx};
use mainstem_core::machine::{Input, Machine};
use mainstem_core::plan::Task;
use mainstem_host::files::{self, TrashRetention};
use mainstem_host::git::{GitError, UnstoredFile};

use crate::engine_context::EngineContext;
use crate::event::EngineEvent;
use crate::repo_layout::UNSTORED;
use crate::sandbox_policy::SandboxScope;

/// Which attempt an effect is for, and whom to tell.
#[derive(Debug, Clone)]
pub struct EffectContext {
    pub engine: Arc<EngineContext>,
    pub ix: TaskIx,
    pub task: Task,
    pub attempt: u32,
    pub branch: String,
    /// Its workspace: where the journal says, or where it will be made.
    pub workspace: PathBuf,
    /// Landings of the task that were taken back.
    pub undone_landings: Vec<Oid>,
    /// Set when setup commands or gates are to end.
    pub cancel: Arc<AtomicBool>,
    /// The tasks of a line of the train, in its order, and their landings that were taken back.
    pub candidate_tasks: Vec<(Task, Vec<Oid>)>,
    pub results: Sender<EngineEvent>,
}

impl EffectContext {
    /// Tells the loop a result. It may be gone already: then nobody needs it.
    pub fn send_input(&self, input: Input) {
        let _ = self.results.send(EngineEvent::Input(input));
    }

    /// Tells the loop that work is on a hidden ref.
    pub fn send_kept_ref(&self, refname: String, commit: Oid, why: &str) {
        let (task, attempt, why) = (self.ix, self.attempt, why.to_owned());
        self.send_input(Input::SnapshotTaken { task, attempt, refname, commit, why });
    }

    /// Tells the loop things people should know.
    pub fn send_notices(&self, notes: Vec<String>) {
        for message in notes {
            self.send_input(Input::Notice { task: Some(self.ix), message });
        }
    }

    /// What a setup command or gate in `cwd` stands behind: this attempt's workspace, or the train's.
    pub fn sandbox_scope<'a>(&'a self, cwd: &'a Path) -> SandboxScope<'a> {
        let branch = (cwd == self.workspace).then_some(self.branch.as_str());
        let (tmp, caches) = (Some(self.temp_dir_for(cwd)), Some(self.cache_dir_for(cwd)));
        SandboxScope { workspace: cwd, branch, tmp, caches, ..SandboxScope::default() }
    }

    /// Where build tools that run in `cwd` keep what they download.
    pub fn cache_dir_for(&self, cwd: &Path) -> PathBuf {
        let layout = &self.engine.layout;
        match layout.lane_of_workspace(cwd) {
            Some(lane) => layout.lane_caches(lane),
            None => layout.attempt_caches(&self.task.id, self.attempt),
        }
    }

    /// Throws away what earlier commands in `cwd` left in temporary folders and caches, those of earlier
    /// attempts included.
    pub fn remove_scratch(&self, cwd: &Path) -> std::io::Result<()> {
        let layout = &self.engine.layout;
        let id = &self.task.id;
        let earlier = (1..self.attempt).flat_map(|attempt| {
            [layout.attempt_tmp(id, attempt), layout.attempt_caches(id, attempt)]
        });
        for folder in [self.temp_dir_for(cwd), self.cache_dir_for(cwd)].into_iter().chain(earlier) {
            files::move_to_trash(&folder, &layout.trash_dir(), TrashRetention::Deletable)?;
        }
        Ok(())
    }

    /// Where commands that run in `cwd` make temporary files.
    pub fn temp_dir_for(&self, cwd: &Path) -> PathBuf {
        let layout = &self.engine.layout;
        match layout.lane_of_workspace(cwd) {
            Some(lane) => layout.lane_tmp(lane),
            None => layout.attempt_tmp(&self.task.id, self.attempt),
        }
    }

    /// Brings commits that the agent made behind its wall to its branch; says why, if they were refused.
    /// The files are looked at all the same.
    pub fn import_agent_commits(&self, over: bool) -> Result<Option<String>, GitError> {
        self.engine.repo.import_agent_commits(&self.workspace, &self.branch, over)
    }

    /// Moves files that git could not take out of a workspace that is about to go, and says where they are.
    pub fn keep_unstored_files(
        &self,
        from: &Path,
        unstored: &[UnstoredFile],
    ) -> Result<(), GitError> {
        let label = format!("{UNSTORED}{}-{}", self.task.id, self.attempt);
        let trash = self.engine.layout.trash_dir();
        let Some(place) = self.engine.repo.set_unstored_aside(from, unstored, &trash, &label)?
        else {
            return Ok(());
        };
        let (count, place) = (unstored.len(), place.display());
        let noun = if count == 1 { "file" } else { "files" };
        let message = format!("{count} {noun} that git could not store: kept in {place}");
        self.send_notices(vec![message]);
        Ok(())
    }

    /// Where this attempt's snapshots are.
    pub fn snapshot_ref_prefix(&self) -> String {
        format!("refs/mainstem/snapshots/{}/{}", self.task.id, self.attempt)
    }
}

/// The name of a task's workspace folder.
pub fn workspace_key(machine: &Machine, t: TaskIx) -> String {
    let task = &machine.plan().tasks[t.index()];
    mainstem_core::workspace_key::workspace_name(task, machine.settings().workspace.unit)
}
