//! Performing effects: one file per subject. Each function may be called twice with the same
//! effect, because after a crash all outstanding ones come again.

pub mod agent;
pub mod clash;
pub mod consult;
pub mod evidence;
pub mod gates;
pub mod jobs;
pub mod landing;
pub mod mcp;
pub mod order;
pub mod pull;
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
use mainstem_host::git::GitError;

use crate::event::Event;
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
        Behind { workspace: cwd, branch, ..Behind::default() }
    }

    /// Brings commits that the agent made behind its wall to its branch. What cannot be taken in is
    /// told when nobody works there any more; the files are looked at all the same.
    pub fn take_in(&self, over: bool) -> Result<(), GitError> {
        let refused = self.world.repo.take_in(&self.workspace, &self.branch, over)?;
        self.tell_notes(refused.into_iter().filter(|_| over).collect());
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
