//! The times of a checkout's files. Build tools take a file for unchanged if it is not newer than what they made
//! of it; git gives files that it writes the time of writing, which is not enough if the clock went back.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use super::error::{IoErrorContext, Result};
use super::{Repo, path_from_bytes, resolve_path, split_nul};

impl Repo {
    /// Makes every tracked file of a worktree newer than `than`.
    pub fn touch_tracked_files(&self, worktree: &Path, than: SystemTime) -> Result<()> {
        let worktree = resolve_path(worktree);
        let git_dir = self.find_worktree_git_dir(&worktree)?;
        let listed = self.git_in_worktree(&git_dir, &worktree).args(["ls-files", "-z"]).run()?;
        // Coarse clocks of file systems count in seconds.
        let since = (than + Duration::from_secs(1)).duration_since(UNIX_EPOCH).unwrap_or_default();
        let keep = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps {
            last_access: keep,
            last_modification: Timespec {
                tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: since.subsec_nanos().into(),
            },
        };
        for name in split_nul(&listed.stdout).map(path_from_bytes) {
            let file = worktree.join(name);
            match utimensat(CWD, &file, &times, AtFlags::SYMLINK_NOFOLLOW) {
                // Left out of a sparse checkout, or a submodule that is not there.
                Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
                Err(error) => {
                    return Err(std::io::Error::from(error)).with_path("set the time of", &file);
                }
            }
        }
        Ok(())
    }
}
