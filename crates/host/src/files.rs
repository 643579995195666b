//! Small file primitives: write all or nothing, move aside, ask for room.
//!
//! Knows no git, no tasks and no policy: which folder is the trash and when it is emptied is the
//! caller's business.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// Entries of a trash folder that [`empty_trash`] may delete start with this.
const GONE: &str = "gone-";
/// Entries that are being made start with this, followed by the name of the process that makes them.
const STAGING: &str = "draft-";
/// Entries that are somebody's and wait for a person start with this.
const KEPT: &str = "kept-";

/// How deep a folder is deleted from where it is: each level is an open file.
const DEPTH_MAX: usize = 32;

/// Rounds of deleting one folder; each takes [`DEPTH_MAX`] levels of the deepest branch.
const ROUNDS_MAX: usize = 1_000_000;

/// What may happen to a thing moved aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrashRetention {
    /// Ours and no longer needed: [`empty_trash`] deletes it.
    Deletable,
    /// Not ours: stays until a person looks at it.
    KeptForUser,
}

/// What emptying a trash folder did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrashReport {
    pub deleted: u32,
    /// Entries that resisted, with the reason; the next call tries again.
    pub left: Vec<(PathBuf, String)>,
}

/// Names this process. The pid alone would not do: in a container it is always the same.
pub(crate) fn process_lifetime_id() -> &'static str {
    static LIFE: LazyLock<String> = LazyLock::new(|| {
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        format!("{}.{:x}", std::process::id(), age.map_or(0, |age| age.as_nanos()))
    });
    &LIFE
}

/// A name that no other call uses, in this process or another.
pub(crate) fn unique_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", process_lifetime_id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What a trash folder keeps because it may be somebody's, by name.
pub fn list_kept_trash(trash: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(trash).into_iter().flatten().flatten();
    let kept = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(KEPT);
    let mut paths: Vec<PathBuf> = entries.filter(kept).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Writes a file so that after a crash it holds either the old or the new bytes, never a mixture.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with_mode(path, bytes, 0o666)
}

/// The same for a file that only its owner may read.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with_mode(path, bytes, 0o600)
}

/// `mode` is for a new file, before the mask of the process.
fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (Some(dir), Some(name)) = (parent_dir(path), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file path"));
    };
    let operation = crate::fault::begin_operation(|| format!("write {}", path.display()))?;
    let mut tmp_name = std::ffi::OsString::from(".");
    tmp_name.push(name);
    tmp_name.push(format!(".{}.tmp", unique_name()));
    let tmp = dir.join(tmp_name);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&tmp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&tmp, path)
    })();
    if let Err(error) = written {
        // Best effort: the error worth telling is the first one.
        let _ = fs::remove_file(&tmp);
        return Err(error);
    }
    sync_dir(dir)?;
    operation.finish()
}

/// Makes renames and new names inside a folder survive power loss.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Puts everything on the filesystem of `path` that was written so far on the disk, whoever wrote it:
/// what other programs made is theirs to sync, and they do not.
pub fn sync_filesystem(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(&file)?;
    #[cfg(not(target_os = "linux"))]
    {
        drop(file);
        rustix::fs::sync();
    }
    Ok(())
}

/// A fresh name in `trash` for something that is being made and will be renamed to its place: if that
/// never happens, it goes after [`abandon_staging_paths`].
pub fn staging_path(trash: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(trash)?;
    Ok(trash.join(format!("{STAGING}{}", unique_name())))
}

/// Gives up what earlier processes were making in `trash`, so that [`empty_trash`] deletes it. Only for who
/// knows that no other process makes anything there.
pub fn abandon_staging_paths(trash: &Path) {
    let ours = format!("{STAGING}{}-", process_lifetime_id());
    for entry in fs::read_dir(trash).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(STAGING) && !name.starts_with(&ours) {
            // What cannot be removed now is tried again by the next process.
            let _ = fs::rename(entry.path(), trash.join(format!("{GONE}{}-{name}", unique_name())));
        }
    }
}

/// Whether [`empty_trash`] has something to delete in this folder.
pub fn has_trash(trash: &Path) -> bool {
    let mut entries = fs::read_dir(trash).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with(GONE))
}

/// Renames `path` into `trash` under a fresh name and says where it is now; `None` if there was
/// nothing. Both must be on one filesystem: copying could be cut half way, a rename cannot.
pub fn move_to_trash(
    path: &Path,
    trash: &Path,
    fate: TrashRetention,
) -> io::Result<Option<PathBuf>> {
    match fs::symlink_metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let name = path.file_name().map_or_else(|| "root".into(), |name| name.to_string_lossy());
    let start = match fate {
        TrashRetention::Deletable => GONE,
        TrashRetention::KeptForUser => KEPT,
    };
    // File names are limited to 255 bytes, and ours needs room for the unique part.
    let short: String = name.chars().take(48).collect();
    let target = trash.join(format!("{start}{}-{short}", unique_name()));
    loop {
        fs::create_dir_all(trash)?;
        match fs::rename(path, &target) {
            Ok(()) => return Ok(Some(target)),
            // Whoever emptied the trash took the folder away: it is made again.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && fs::symlink_metadata(path).is_ok()
                    && !trash.exists() => {}
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && fs::symlink_metadata(path).is_err() =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Moves `paths`, relative to `folder`, into a new folder in `trash` that is kept for a person, and says
/// where that is; `None` if there was none of them. `label` becomes part of its name.
pub fn set_files_aside(
    folder: &Path,
    paths: &[PathBuf],
    trash: &Path,
    label: &str,
) -> io::Result<Option<PathBuf>> {
    let short: String = label.chars().take(100).collect();
    let place = trash.join(format!("{KEPT}{}-{short}", unique_name()));
    let mut moved = false;
    for path in paths {
        let (from, to) = (folder.join(path), place.join(path));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        match fs::rename(&from, &to) {
            Ok(()) => moved = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    if !moved {
        remove_all(&place)?;
        return Ok(None);
    }
    Ok(Some(place))
}

/// Deletes what [`move_to_trash`] put aside as [`TrashRetention::Deletable`]; everything else stays.
pub fn empty_trash(trash: &Path) -> io::Result<TrashReport> {
    let mut emptied = TrashReport::default();
    let entries = match fs::read_dir(trash) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(emptied),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(GONE) {
            continue;
        }
        match remove_all(&entry.path()) {
            Ok(()) => emptied.deleted += 1,
            // Two may empty it at once.
            Err(error) if error.kind() == io::ErrorKind::NotFound => emptied.deleted += 1,
            Err(error) => emptied.left.push((entry.path(), error.to_string())),
        }
    }
    Ok(emptied)
}

/// Deletes a file or a whole folder, also one with read-only folders inside (package caches make
/// those). Nothing there is fine. Symlinks are removed, never followed.
pub fn remove_all(path: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !meta.is_dir() {
        return fs::remove_file(path);
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            rustix::fs::open(path, flags, Mode::empty())?
        }
        other => other?,
    };
    // What lies too deep is moved up to the top, where the next round finds it. Two may delete it at once.
    for _ in 0..ROUNDS_MAX {
        if empty_folder(&top, &top, DEPTH_MAX)? {
            continue;
        }
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Err(io::Error::other("something is being written there all the time"))
}

/// Deletes what is in a folder; says whether something was moved to `top` instead. Neither the stack nor the number
/// of open files grows with how deep somebody nested folders.
fn empty_folder(folder: &OwnedFd, top: &OwnedFd, depth: usize) -> io::Result<bool> {
    let stat = rustix::fs::fstat(folder)?;
    if stat.st_mode & 0o700 != 0o700 {
        // What is not ours to change is told by the next step.
        let _ = rustix::fs::fchmod(folder, Mode::RWXU);
    }
    let mut moved = false;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            // The one for folders on Linux, the other elsewhere.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        if depth == 0 {
            match rustix::fs::renameat(folder, name, top, format!("deep-{}", unique_name())) {
                Ok(()) | Err(Errno::NOENT) => moved = true,
                Err(error) => return Err(error.into()),
            }
            continue;
        }
        let inner = match open_folder(folder, name) {
            Ok(inner) => inner,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        moved |= empty_folder(&inner, top, depth - 1)?;
        match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(moved)
}

fn open_folder(folder: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
            Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
        }
        other => Ok(other?),
    }
}

/// Whether there is something at `path` that we may write to.
pub fn can_write(path: &Path) -> bool {
    path.exists() && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Bytes an unprivileged process may still write on the filesystem of `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn parent_dir(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Opens a file that somebody else may have replaced by anything: no link is followed, no pipe waited for.
pub fn open_regular_file(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    // Whoever put it there is not waited for.
    Err(io::Error::new(io::ErrorKind::NotFound, "not a regular file"))
}

/// The first `most` bytes of what [`open_regular_file`] opens.
pub fn read_regular_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_atomic_write_replaces_the_whole_file_and_leaves_no_traces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a file");
        write_atomic(&path, b"a long first text").unwrap();
        write_atomic(&path, b"short").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_atomic_write_keeps_the_old_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "x").unwrap();
        assert!(write_atomic(&path, b"bytes").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(path.join("inside").exists());
    }

    #[test]
    fn folders_nested_deeper_than_any_path_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("deep");
        fs::create_dir(&root).unwrap();
        let mut at = rustix::fs::open(&root, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..5_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&at, "empty", Mode::empty()).unwrap();
            at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        // Less stack than a thread has that empties the trash, and two of them at once.
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (small, path) =
                    (std::thread::Builder::new().stack_size(256 * 1024), root.clone());
                small.spawn(move || remove_all(&path).unwrap()).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!root.exists());
    }

    #[test]
    fn the_trash_deletes_what_is_gone_and_keeps_what_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let trash = dir.path().join("trash");
        let ours = dir.path().join("ours");
        fs::create_dir_all(ours.join("deep/er")).unwrap();
        fs::write(ours.join("deep/er/file"), "x").unwrap();
        fs::set_permissions(ours.join("deep"), fs::Permissions::from_mode(0o555)).unwrap();
        let theirs = dir.path().join("theirs");
        fs::write(&theirs, "precious").unwrap();

        move_to_trash(&ours, &trash, TrashRetention::Deletable).unwrap().unwrap();
        let kept = move_to_trash(&theirs, &trash, TrashRetention::KeptForUser).unwrap().unwrap();
        assert_eq!(move_to_trash(&theirs, &trash, TrashRetention::KeptForUser).unwrap(), None);

        let emptied = empty_trash(&trash).unwrap();
        assert_eq!(emptied, TrashReport { deleted: 1, left: vec![] });
        assert_eq!(fs::read_to_string(kept).unwrap(), "precious");
        assert_eq!(fs::read_dir(&trash).unwrap().count(), 1);
    }

    #[test]
    fn what_is_set_aside_keeps_its_place_among_the_others_and_is_never_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let (work, trash) = (dir.path().join("work"), dir.path().join("trash"));
        fs::create_dir_all(work.join("a/b")).unwrap();
        fs::write(work.join("a/b/file"), "precious").unwrap();
        fs::set_permissions(work.join("a/b/file"), fs::Permissions::from_mode(0o000)).unwrap();
        let paths = [PathBuf::from("a/b/file"), PathBuf::from("gone")];
        let place = set_files_aside(&work, &paths, &trash, "unstored-T-1").unwrap().unwrap();
        assert!(place.join("a/b/file").exists() && !work.join("a/b/file").exists());
        assert_eq!(set_files_aside(&work, &paths, &trash, "unstored-T-1").unwrap(), None);
        assert_eq!(empty_trash(&trash).unwrap(), TrashReport::default());
        assert_eq!(list_kept_trash(&trash), [place]);
    }

    #[test]
    fn what_is_being_made_in_the_trash_stays_until_its_maker_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let trash = dir.path().join("trash");
        let ours = staging_path(&trash).unwrap();
        fs::create_dir_all(&ours).unwrap();
        let earlier = trash.join(format!("{STAGING}1.2-3"));
        fs::create_dir_all(earlier.join("half")).unwrap();
        assert_eq!(empty_trash(&trash).unwrap().deleted, 0);
        assert!(!has_trash(&trash));
        abandon_staging_paths(&trash);
        assert!(has_trash(&trash) && !earlier.exists() && ours.exists());
        assert_eq!(empty_trash(&trash).unwrap().deleted, 1);
        assert!(ours.exists());
    }

    #[test]
    fn a_trash_folder_that_goes_while_something_is_moved_there_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (trash, stop) = (dir.path().join("trash"), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::remove_dir(&trash);
                }
            });
            for n in 0..500 {
                let thing = dir.path().join(format!("thing-{n}"));
                fs::create_dir(&thing).unwrap();
                let moved = move_to_trash(&thing, &trash, TrashRetention::Deletable).unwrap();
                assert!(moved.is_some() && !thing.exists(), "{n}");
                fs::remove_dir(moved.unwrap()).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn free_bytes_of_a_missing_path_is_an_error_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(dir.path()).unwrap() > 0);
        assert!(free_bytes(&dir.path().join("nowhere")).is_err());
    }
}
