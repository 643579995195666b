//! Notices that the repository was moved or removed under a running engine. Everything that the engine knows
//! by path is elsewhere then: it would wait for ever for agents whose records it cannot see, and make a second
//! state folder in the old place.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use mainstem_host::process;

use super::EngineError;
use crate::event::EngineEvent;

/// How often it is looked.
const LOOK_EVERY_MS: u64 = 400;

/// Looks at the state folder until it is dropped, and has the engine leave once it is gone.
pub(super) struct RepoMoveWatch {
    common_dir: PathBuf,
    moved: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl RepoMoveWatch {
    pub(super) fn start(common_dir: &Path, state: &Path, events: Sender<EngineEvent>) -> Self {
        let (moved, over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let watch = Self {
            common_dir: common_dir.to_path_buf(),
            moved: Arc::clone(&moved),
            over: Arc::clone(&over),
        };
        let (state, Ok(was)) = (state.to_path_buf(), folder_identity(state)) else { return watch };
        let look = move || {
            let mut missed = 0;
            while !over.load(Ordering::Relaxed) && missed < 2 {
                process::sleep_ms(LOOK_EVERY_MS);
                // What cannot be looked at for another reason may be back in a moment.
                let gone = match folder_identity(&state) {
                    Ok(is) => is != was,
                    Err(error) => error.kind() == io::ErrorKind::NotFound,
                };
                missed = if gone { missed + 1 } else { 0 };
            }
            if missed == 2 {
                moved.store(true, Ordering::Relaxed);
                // An engine that has ended needs no telling.
                let _ = events.send(EngineEvent::Abandon);
            }
        };
        // Without a thread to look, it is noticed when something fails.
        let _ = std::thread::Builder::new().name("moved".to_owned()).spawn(look);
        watch
    }

    /// An error if the repository is not where it was.
    pub(super) fn check_not_moved(&self) -> Result<(), EngineError> {
        match self.moved.load(Ordering::Relaxed) {
            true => Err(EngineError::RepositoryMoved(self.common_dir.clone())),
            false => Ok(()),
        }
    }
}

impl Drop for RepoMoveWatch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn folder_identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|meta| (meta.dev(), meta.ino()))
}
