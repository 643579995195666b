//! Emptying the trash while the run goes on. Workspaces of tasks that landed are renamed into it; deleting them
//! takes minutes on some disks, and nobody should wait for that: not the train, not a new attempt that needs the
//! space, not the person at the prompt. Decides nothing about what goes there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mainstem_host::{files, process};

use crate::repo_layout::RepoLayout;

/// How often the trash is looked at.
const LOOK_EVERY_MS: u64 = 500;
/// How long the end of a run waits for a trash that is nearly empty. What is left after that is deleted by a
/// process of its own.
const GRACE: Duration = Duration::from_millis(300);

/// The hidden subcommand that empties a trash folder.
pub const EMPTY_TRASH_STEP: &str = "__empty-trash";

/// Deletes what is in a trash folder, with the lowest priority, until it is dropped.
#[derive(Debug, Clone)]
pub struct TrashEmptier(Arc<TrashEmptierState>);

#[derive(Debug)]
struct TrashEmptierState {
    trash: PathBuf,
    over: Arc<AtomicBool>,
    hurrying: Arc<AtomicBool>,
}

impl Drop for TrashEmptierState {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl TrashEmptier {
    /// Starts with this folder, which need not be there yet.
    pub fn start(trash: PathBuf) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (folder, stop) = (trash.clone(), Arc::clone(&over));
        // Without a thread the trash is emptied when the run is over.
        let _ = std::thread::Builder::new().name("trash".to_owned()).spawn(move || {
            process::lower_thread_priority();
            while !stop.load(Ordering::Relaxed) {
                // What resists is tried again, and named by `mainstem clean`.
                let _ = files::empty_trash(&folder);
                process::sleep_ms(LOOK_EVERY_MS);
            }
        });
        Self(Arc::new(TrashEmptierState { trash, over, hurrying: Arc::default() }))
    }

    /// Somebody needs the space: deletes with ordinary priority until the trash is empty. Says whether
    /// there is something to delete.
    pub fn raise_priority(&self) -> bool {
        if !files::has_trash(&self.0.trash) {
            return false;
        }
        if !self.0.hurrying.swap(true, Ordering::Relaxed) {
            let (folder, hurrying) = (self.0.trash.clone(), Arc::clone(&self.0.hurrying));
            let _ = std::thread::Builder::new().name("trash-now".to_owned()).spawn(move || {
                let _ = files::empty_trash(&folder);
                hurrying.store(false, Ordering::Relaxed);
            });
        }
        true
    }

    /// Waits a moment for the rest; whether nothing is left.
    fn is_empty_after_grace(&self) -> bool {
        let deadline = Instant::now() + GRACE;
        while self.raise_priority() {
            if Instant::now() > deadline {
                return false;
            }
            process::sleep_ms(5);
        }
        true
    }

    /// The run is over: what is left is deleted by a process of its own, which holds no lock.
    pub fn hand_over_to_process(&self, exe: &Path, layout: &RepoLayout) {
        let done = self.is_empty_after_grace();
        layout.release_root();
        if !done {
            // If it cannot be started, the next run begins with it.
            let _ = spawn_trash_process(exe, layout);
        }
    }
}

fn spawn_trash_process(exe: &Path, layout: &RepoLayout) -> io::Result<()> {
    let trash = layout.trash_dir();
    let argv =
        [exe, Path::new(EMPTY_TRASH_STEP), &trash].map(|word| word.to_string_lossy().into_owned());
    process::spawn_detached(&argv, Path::new("/"), &[], Path::new("/dev/null")).map(drop)
}

/// The main function of that process: empties the folder and takes it away, and the folder that it is in, if
/// nothing else is there.
pub fn empty_trash_folder(trash: &Path) -> io::Result<()> {
    process::lower_thread_priority();
    while files::has_trash(trash) {
        let emptied = files::empty_trash(trash)?;
        if emptied.deleted == 0 {
            break;
        }
    }
    if std::fs::remove_dir(trash).is_ok()
        && let Some(root) = trash.parent()
    {
        let _ = std::fs::remove_dir(root);
    }
    Ok(())
}
