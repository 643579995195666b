//! A repository of ours that lends out the objects of one that an agent wrote.
//!
//! Whatever is in an agent's git folder, a git that looks into it reads: settings that name programs, a
//! pipe in place of a ref that never ends, a list of further folders with objects. So no git of ours
//! looks into it. Its plain files with objects are given a second name in a folder of ours, and that is
//! what git reads; everything else stays where it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{GitError, IoErrorContext, Result};
use super::worktree_ownership::is_real_folder;
use super::{Repo, path_bytes};
use crate::files;

/// Most files with objects that are looked at; an agent that commits a whole package tree makes tens of
/// thousands.
const OBJECTS_MAX: usize = 1_000_000;
/// Most entries of a nested repository's git folder; packed ones have a few dozen.
const ENTRIES_MAX: usize = 200_000;

/// The repository; it goes when it is dropped.
pub(super) struct ObjectProxyRepo(PathBuf);

impl ObjectProxyRepo {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ObjectProxyRepo {
    fn drop(&mut self) {
        // What stays is swept at the next start.
        let _ = files::remove_all(&self.0);
    }
}

impl Repo {
    /// A repository with our objects and those in `objects`, an agent's folder of them, and in `lender`;
    /// `sha256` is how they are named.
    pub(super) fn create_object_proxy(
        &self,
        objects: &Path,
        sha256: bool,
        lender: Option<&Path>,
    ) -> Result<ObjectProxyRepo> {
        let front = ObjectProxyRepo(self.temp_path("front"));
        let own = front.0.join("objects");
        let config = if sha256 {
            "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"
        } else {
            "[core]\n\tbare = true\n"
        };
        let mut ours = [path_bytes(&self.common_dir().join("objects")), b"\n"].concat();
        for lender in
            lender.into_iter().filter(|lender| **lender != self.common_dir().join("objects"))
        {
            ours.extend([path_bytes(lender), b"\n"].concat());
        }
        let make = || -> io::Result<()> {
            fs::create_dir_all(own.join("info"))?;
            fs::create_dir_all(own.join("pack"))?;
            fs::create_dir_all(front.0.join("refs"))?;
            fs::write(own.join("info/alternates"), ours)?;
            fs::write(front.0.join("config"), config)?;
            fs::write(front.0.join("HEAD"), "ref: refs/heads/none\n")?;
            let shallow = self.common_dir().join("shallow");
            if shallow.is_file() {
                fs::copy(&shallow, front.0.join("shallow"))?;
            }
            Ok(())
        };
        make().with_path("create", &front.0)?;
        let too_many = || GitError::NotOurs {
            path: objects.to_path_buf(),
            why: format!("it has more than {OBJECTS_MAX} files"),
        };
        let mut left = OBJECTS_MAX;
        for folder in list_dir_paths(objects).with_path("list", objects)? {
            let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
            let loose = name.len() == 2 && is_hex_name(name);
            if !(loose || name == "pack") || !is_real_folder(&folder) {
                continue;
            }
            let to = own.join(name);
            fs::create_dir_all(&to).with_path("create", &to)?;
            for file in list_dir_paths(&folder).with_path("list", &folder)? {
                left = left.checked_sub(1).ok_or_else(too_many)?;
                let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
                if if loose { is_hex_name(name) } else { is_pack_file_name(name) } {
                    hard_link_regular_file(&file, &to.join(name)).with_path("copy", &file)?;
                }
            }
        }
        Ok(front)
    }
}

/// Whether a git folder holds nothing that a reader would wait for (pipes, sockets, devices), and no link
/// among its objects, by which we would write elsewhere.
pub(super) fn is_safe_git_dir(git_dir: &Path) -> bool {
    let objects = git_dir.join("objects");
    let mut open = vec![git_dir.to_path_buf()];
    let mut left = ENTRIES_MAX;
    while let Some(dir) = open.pop() {
        let Ok(entries) = list_dir_paths(&dir) else { return false };
        for entry in entries {
            let Some(rest) = left.checked_sub(1) else { return false };
            left = rest;
            let Ok(meta) = fs::symlink_metadata(&entry) else { return false };
            if meta.is_dir() {
                open.push(entry);
            } else if meta.is_symlink() {
                let waits =
                    fs::metadata(&entry).is_ok_and(|meta| !meta.is_dir() && !meta.is_file());
                if waits || entry.starts_with(&objects) {
                    return false;
                }
            } else if !meta.is_file() {
                return false;
            }
        }
    }
    true
}

fn list_dir_paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    if !is_real_folder(dir) {
        return Ok(Vec::new());
    }
    fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

fn is_hex_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_pack_file_name(name: &str) -> bool {
    let stem = name.strip_suffix(".pack").or_else(|| name.strip_suffix(".idx"));
    stem.and_then(|stem| stem.strip_prefix("pack-")).is_some_and(is_hex_name)
}

/// A plain file under a second name; whatever else is there is left out.
fn hard_link_regular_file(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => {
            if !fs::symlink_metadata(to)?.is_file() {
                fs::remove_file(to)?;
            }
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Another filesystem, or no links at all.
        Err(_) => {}
    }
    match files::open_regular_file(from) {
        Ok(mut file) => io::copy(&mut file, &mut fs::File::create(to)?).map(|_| ()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A link: it is not followed.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_objects_are_lent() {
        assert!(is_hex_name("0f") && !is_hex_name("0F") && !is_hex_name(""));
        assert!(is_pack_file_name("pack-0a1b.pack") && is_pack_file_name("pack-0a1b.idx"));
        for name in ["pack-0a1b.keep", "multi-pack-index", "pack-.pack", "tmp_pack_x"] {
            assert!(!is_pack_file_name(name), "{name}");
        }
    }

    #[test]
    fn a_git_folder_with_a_pipe_in_it_is_not_sound() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join("git");
        fs::create_dir_all(git.join("refs/heads")).unwrap();
        fs::write(git.join("HEAD"), "x").unwrap();
        assert!(is_safe_git_dir(&git));
        let link = git.join("objects/ab");
        fs::create_dir_all(git.join("objects")).unwrap();
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(!is_safe_git_dir(&git), "what is written to the store would go elsewhere");
        fs::remove_file(link).unwrap();
        assert!(is_safe_git_dir(&git));
        let pipe = git.join("refs/heads/p");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(!is_safe_git_dir(&git));
    }
}
