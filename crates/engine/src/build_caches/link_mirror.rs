//! Making a folder that shows what is in another one, by links, and can be added to.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Links made for one tool. Who has more downloaded than this finds some of it missing and downloads it again.
pub(super) const LINKS_MAX: usize = 20_000;

/// Links the entries of a folder whose names are wanted. A folder that is not there has none.
pub(super) fn link_entries(
    theirs: &Path,
    own: &Path,
    wanted: &dyn Fn(&str) -> bool,
) -> io::Result<()> {
    for entry in list_folder(theirs)?.take(LINKS_MAX) {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            symlink(entry.path(), own.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Makes the folders of `theirs` again in `own`, and links to all that is in them. Folders for which `whole` says so
/// are linked themselves.
pub(super) fn mirror_folder(
    theirs: &Path,
    own: &Path,
    whole: &dyn Fn(&Path) -> bool,
) -> io::Result<()> {
    let mut left = LINKS_MAX;
    mirror_subfolder(theirs, own, whole, &mut left)
}

fn mirror_subfolder(
    theirs: &Path,
    own: &Path,
    whole: &dyn Fn(&Path) -> bool,
    left: &mut usize,
) -> io::Result<()> {
    fs::create_dir_all(own)?;
    for entry in list_folder(theirs)? {
        let entry = entry?;
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        let (from, to) = (entry.path(), own.join(entry.file_name()));
        if entry.file_type()?.is_dir() && !whole(&from) {
            mirror_subfolder(&from, &to, whole, left)?;
        } else {
            symlink(from, to)?;
        }
    }
    Ok(())
}

/// What is in a folder; nothing if it is not there or not for us.
pub(super) fn list_folder(
    folder: &Path,
) -> io::Result<Box<dyn Iterator<Item = io::Result<fs::DirEntry>>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Box::new(entries)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Box::new(std::iter::empty()))
        }
        Err(error) => Err(error),
    }
}
