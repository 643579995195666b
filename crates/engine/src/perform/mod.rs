//! Performing effects: one file per subject. Each function may be called twice with the same
//! effect, because after a crash all outstanding ones come again.

pub mod agent;
pub mod clash;
pub mod consult;
pub mod earlier_work;
pub mod evidence;
pub mod gates;
mod guarded;
mod handover;
pub mod jobs;
pub mod landing;
mod litter;
pub mod mcp;
pub mod order;
pub mod pull;
pub mod recheck;
pub mod review;
mod stack;
pub mod workspace;

pub use order::{Deed, Order, carry_out};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use mainstem_core::id::{Oid, TaskIx};
use mainstem_core::machine::{Input, Machine};
use mainstem_core::plan::Task;
use mainstem_host::files::{self, Fate};
use mainstem_host::git::{GitError, Unstored};

use crate::event::Event;
use crate::paths::UNSTORED;
use crate::walls::Behind;
use crate::world::World;

/// Which attempt an effect is for, and whom to tell.
#[derive(Debug, Clone)]
pub struct Errand {
    /// The surroundings.
    pub world: Arc<World>,
    /// Whose.
    pub ix: TaskIx,
    /// The task itself.
    pub task: Task,
    /// Which attempt.
    pub attempt: u32,
    /// The attempt's branch.
    pub branch: String,
    /// Its workspace: where the journal says, or where it will be made.
    pub workspace: PathBuf,
    /// Landings of the task that were taken back.
    pub undone: Vec<Oid>,
    /// Set when setup commands or gates are to end.
    pub cancel: Arc<AtomicBool>,
    /// The tasks of a line of the train, in its order, and their landings that were taken back.
    pub crew: Vec<(Task, Vec<Oid>)>,
    /// Where results go.
    pub results: Sender<Event>,
}

impl Errand {
    /// Tells the loop a result. It may be gone already: then nobody needs it.
    pub fn tell(&self, input: Input) {
        let _ = self.results.send(Event::Input(input));
    }

    /// Tells the loop that work is on a hidden ref.
    pub fn tell_kept(&self, refname: String, commit: Oid, why: &str) {
        let (task, attempt, why) = (self.ix, self.attempt, why.to_owned());
        self.tell(Input::Snapshotted { task, attempt, refname, commit, why });
    }

    /// Tells the loop things people should know.
    pub fn tell_notes(&self, notes: Vec<String>) {
        for message in notes {
            self.tell(Input::Notice { task: Some(self.ix), message });
        }
    }

    /// What a setup command or gate in `cwd` stands behind: this attempt's workspace, or the train's.
    pub fn behind<'a>(&'a self, cwd: &'a Path) -> Behind<'a> {
        let branch = (cwd == self.workspace).then_some(self.branch.as_str());
        let (tmp, caches) = (Some(self.tmp_for(cwd)), Some(self.caches_for(cwd)));
        Behind { workspace: cwd, branch, tmp, caches, ..Behind::default() }
    }

    /// Where build tools that run in `cwd` keep what they download.
    pub fn caches_for(&self, cwd: &Path) -> PathBuf {
        let layout = &self.world.layout;
        match layout.lane_at(cwd) {
            Some(lane) => layout.lane_caches(lane),
            None => layout.attempt_caches(&self.task.id, self.attempt),
        }
    }

    /// Throws away what earlier commands in `cwd` left in temporary folders and caches, those of earlier
    /// attempts included.
    pub fn drop_scratch(&self, cwd: &Path) -> std::io::Result<()> {
        let layout = &self.world.layout;
        let id = &self.task.id;
        let earlier = (1..self.attempt).flat_map(|attempt| {
            [layout.attempt_tmp(id, attempt), layout.attempt_caches(id, attempt)]
        });
        for folder in [self.tmp_for(cwd), self.caches_for(cwd)].into_iter().chain(earlier) {
            files::move_to_trash(&folder, &layout.trash(), Fate::Gone)?;
        }
        Ok(())
    }

    /// Where commands that run in `cwd` make temporary files.
    pub fn tmp_for(&self, cwd: &Path) -> PathBuf {
        let layout = &self.world.layout;
        match layout.lane_at(cwd) {
            Some(lane) => layout.lane_tmp(lane),
            None => layout.attempt_tmp(&self.task.id, self.attempt),
        }
    }

    /// Brings commits that the agent made behind its wall to its branch; says why, if they were refused.
    /// The files are looked at all the same.
    pub fn take_in(&self, over: bool) -> Result<Option<String>, GitError> {
        self.world.repo.take_in(&self.workspace, &self.branch, over)
    }

    /// Moves files that git could not take out of a workspace that is about to go, and says where they are.
    pub fn keep_unstored(&self, from: &Path, unstored: &[Unstored]) -> Result<(), GitError> {
        let label = format!("{UNSTORED}{}-{}", self.task.id, self.attempt);
        let trash = self.world.layout.trash();
        let Some(place) = self.world.repo.set_aside(from, unstored, &trash, &label)? else {
            return Ok(());
        };
        let (count, place) = (unstored.len(), place.display());
        let noun = if count == 1 { "file" } else { "files" };
        let message = format!("{count} {noun} that git could not store: kept in {place}");
        self.tell_notes(vec![message]);
        Ok(())
    }

    /// Where this attempt's snapshots are.
    pub fn snapshots(&self) -> String {
        format!("refs/mainstem/snapshots/{}/{}", self.task.id, self.attempt)
    }
}

/// The name of a task's workspace folder.
pub fn unit_name(machine: &Machine, t: TaskIx) -> String {
    let task = &machine.plan().tasks[t.ix()];
    mainstem_core::unit::unit_name(task, machine.settings().workspace.unit)
}
