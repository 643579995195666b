//! A folder for what all runs of one user share: leases of ports, sockets that need a short path. Agents run as
//! the same user, so it is kept where their sandbox lets them write nothing, and nothing in it is taken on trust.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Where it is: in the user's runtime folder, else among their state, else in the temporary folder.
pub fn user_folder_path() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    // After `su` or `sudo -E` a variable may name somebody else's folder.
    let ours = |dir: &PathBuf| {
        dir.is_absolute() && fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == user)
    };
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(ours);
    let home = || named("HOME").map(|home| home.join(".local/state"));
    match named("XDG_RUNTIME_DIR").or_else(|| named("XDG_STATE_HOME")).or_else(home) {
        Some(place) => place.join("mainstem"),
        None => temp_fallback_folder(),
    }
}

/// The last resort, which other users can reach as well.
pub fn temp_fallback_folder() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("mainstem-{user}"))
}

/// Makes a folder that only we can use, and refuses one that is somebody else's or a link.
pub fn create_private_folder(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let meta = fs::symlink_metadata(dir)?;
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !meta.is_dir() {
        return refuse(format!("{} is a link, not a folder; remove it", dir.display()));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return refuse(format!("{} belongs to another user; remove it", dir.display()));
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}

/// The same for a folder in a shared one of ours: both are made, and both must be ours alone.
pub fn create_private_folder_with_parent(dir: &Path) -> io::Result<()> {
    if let Some(above) = dir.parent() {
        create_private_folder(above)?;
    }
    create_private_folder(dir)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_private_folder_is_nobody_elses_and_no_link() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("mine");
        create_private_folder(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        create_private_folder(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert_eq!(
            create_private_folder(&link).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }
}
