//! Whether a write that failed was refused by the sandbox: looks at the policy and at the file system as the
//! user sees it, after the fact. Enforces nothing.

use std::path::{Path, PathBuf};

use super::{SandboxBackend, SandboxPathAccess, SandboxPolicy};
use crate::files;

impl SandboxPolicy {
    /// Does this policy keep a job from writing there, although the user could?
    pub fn denies_write(&self, path: &Path) -> bool {
        let Some(real) = resolve_existing(path) else { return false };
        // Devices and kernel files have rules of their own.
        if ["/dev", "/proc", "/sys"].iter().any(|place| real.starts_with(place)) {
            return false;
        }
        let covering = self.paths.iter().enumerate().filter(|(_, (at, _))| real.starts_with(at));
        let deepest = covering.max_by_key(|(n, (at, _))| (at.components().count(), *n));
        let access = deepest.map_or(SandboxPathAccess::Read, |(_, (_, access))| *access);
        // Landlock cannot keep back something inside a folder and let new files be made beside it.
        let split = || {
            let folder = if real.is_dir() { Some(real.as_path()) } else { real.parent() };
            self.kind == SandboxBackend::Landlock
                && self.paths.iter().any(|(at, access)| {
                    *access != SandboxPathAccess::Write
                        && folder.is_some_and(|folder| at != folder && at.starts_with(folder))
                })
        };
        (access != SandboxPathAccess::Write || split()) && user_can_write(&real)
    }
}

/// The path without links, as far as it exists.
fn resolve_existing(path: &Path) -> Option<PathBuf> {
    let there = path.ancestors().find(|place| place.exists())?;
    let rest = path.strip_prefix(there).ok()?;
    Some(there.canonicalize().ok()?.join(rest))
}

fn user_can_write(path: &Path) -> bool {
    path.ancestors().find(|place| place.exists()).is_some_and(files::can_write)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_deepest_entry_says_whether_a_write_was_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (open, shut) = (root.join("open"), root.join("open/shut"));
        std::fs::create_dir_all(&shut).unwrap();
        let mut policy = SandboxPolicy::minimal(SandboxBackend::Bwrap);
        policy.set_path_access(&open, SandboxPathAccess::Write);
        policy.set_path_access(&shut, SandboxPathAccess::Read);
        assert!(policy.denies_write(&root.join("elsewhere/new.txt")), "nothing covers it");
        assert!(!policy.denies_write(&open.join("new.txt")));
        assert!(policy.denies_write(&shut.join("deep/new.txt")));
        assert!(!policy.denies_write(Path::new("/proc/1/mem")), "no setting allows that");
        policy.kind = SandboxBackend::Landlock;
        assert!(policy.denies_write(&open.join("new.txt")), "something in it is kept back");
    }
}
