//! Takes files into an index while the agent that wrote them is still at work.
//!
//! Between git's look at a file and its opening it, an agent can put a link in the file's place, and git outside
//! the sandbox would read what the agent may not: a key, the journal. So each file is opened here, without
//! following a link anywhere on the way, and git is given bytes and never a path.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::{GitError, IoErrorContext, Result};
use super::hygiene::is_git_component;
use super::indexed_worktree::IndexedWorktree;
use super::{is_oid, lossy_string, path_bytes, path_from_bytes, split_nul};

/// Files that git has to convert, each by a process of its own, in one snapshot. The rest waits for a later one.
const CONVERTED_MAX: usize = 100;
/// Attributes that change what a file holds on its way into the repository, whatever it holds.
const CONVERTING: [&str; 3] = ["filter", "ident", "working-tree-encoding"];
/// Attributes that change line ends.
const LINE_ENDS: [&str; 3] = ["text", "crlf", "eol"];

/// What is at a path.
enum Found {
    Gone,
    /// Nothing that git keeps, or a link where a folder was.
    Other,
    Folder,
    Link(Vec<u8>),
    Plain {
        bytes: Vec<u8>,
        executable: bool,
    },
}

impl IndexedWorktree<'_> {
    /// Takes these files into the index as they are now, and out of it those that are gone if `removals` says so.
    /// What is swapped while it is read stays as the index has it.
    pub(super) fn take_in_passing(&self, files: &[PathBuf], removals: bool) -> Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.worktree, flags, Mode::empty());
        let root = root.map_err(std::io::Error::from).with_path("open", self.worktree)?;
        let converted = self.converted(files)?;
        let zero = "0".repeat(self.repo.hash_blob(b"")?.as_str().len());
        let mut lines: Vec<u8> = Vec::new();
        let mut line = |mode: &str, id: &str, file: &Path| {
            lines.extend_from_slice(format!("{mode} {id}\t").as_bytes());
            lines.extend_from_slice(path_bytes(file));
            lines.push(0);
        };
        let mut raw: Vec<(&PathBuf, &str, Vec<u8>)> = Vec::new();
        let (mut by_git, mut folders) = (0, Vec::new());
        for file in files.iter().filter(|file| has_plain_name(file)) {
            match find(&root, file) {
                Found::Other => {}
                Found::Folder => folders.push(file),
                Found::Gone if removals => line("0", &zero, file),
                Found::Gone => {}
                Found::Link(target) => raw.push((file, "120000", target)),
                Found::Plain { bytes, executable } => {
                    let mode = if executable { "100755" } else { "100644" };
                    if !converted.is_for(file, &bytes) {
                        raw.push((file, mode, bytes));
                    } else if by_git < CONVERTED_MAX {
                        by_git += 1;
                        let git = self.git().args(["hash-object", "-w", "--stdin", "--path"]);
                        // A filter that fails is told of when the attempt ends.
                        let Ok(answer) = git.arg(file).stdin_bytes(bytes).run() else { continue };
                        line(mode, answer.single_line()?, file);
                    }
                }
            }
        }
        let ids = self.write_blobs(raw.iter().map(|(_, _, bytes)| bytes.as_slice()))?;
        for ((file, mode, _), id) in raw.iter().zip(&ids) {
            line(mode, id, file);
        }
        self.git().args(["update-index", "-z", "--index-info"]).stdin_bytes(lines).run()?;
        self.take_pointers(&folders)
    }

    /// Takes in what submodules point to. Should one become a file meanwhile, what git reads there goes into a store
    /// that is thrown away.
    fn take_pointers(&self, folders: &[&PathBuf]) -> Result<()> {
        if folders.is_empty() {
            return Ok(());
        }
        let store = self.repo.temp_path("objects");
        fs::create_dir(&store).with_path("create", &store)?;
        let objects = self.repo.common_dir().join("objects");
        for folder in folders {
            let git = self.git().env("GIT_OBJECT_DIRECTORY", &store);
            let git = git.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &objects);
            let git = git.args(["update-index", "--add", "--"]).arg(folder);
            match git.run() {
                // A folder that is no submodule: its files are taken one by one.
                Ok(_) | Err(GitError::Failed { code: Some(_), .. }) => {}
                Err(error) => return Err(error),
            }
        }
        crate::files::remove_all(&store).with_path("remove", &store)
    }

    /// Stores contents as blobs, in one go, and says their ids.
    fn write_blobs<'b>(&self, contents: impl Iterator<Item = &'b [u8]>) -> Result<Vec<String>> {
        let mut stream: Vec<u8> = Vec::new();
        let mut count = 0;
        for content in contents {
            count += 1;
            let head = format!("blob\nmark :{count}\ndata {}\n", content.len());
            stream.extend_from_slice(head.as_bytes());
            stream.extend_from_slice(content);
            stream.push(b'\n');
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let marks = self.repo.temp_path("marks");
        let mut option = std::ffi::OsString::from("--export-marks=");
        option.push(&marks);
        let git = self.repo.git().args(["fast-import", "--quiet"]).arg(option);
        let answer = git.timeout(super::command::TIMEOUT_CHECKOUT).stdin_bytes(stream).run()?;
        let text = fs::read_to_string(&marks).with_path("read", &marks);
        crate::files::remove_all(&marks).with_path("remove", &marks)?;
        let mut ids = vec![String::new(); count];
        for line in text?.lines() {
            let Some((mark, id)) = line.strip_prefix(':').and_then(|line| line.split_once(' '))
            else {
                continue;
            };
            let slot = mark.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            if let Some(slot) = slot.and_then(|n| ids.get_mut(n)) {
                id.clone_into(slot);
            }
        }
        if ids.iter().all(|id| is_oid(id)) { Ok(ids) } else { Err(answer.bad_output_error()) }
    }

    /// Which of these files git converts.
    fn converted(&self, files: &[PathBuf]) -> Result<Converted> {
        let args = ["config", "--get", "core.autocrlf"];
        let setting = self.git().args(args).accept_exit_codes(&[1]).run()?;
        let by_default = !matches!(setting.single_line()?, "" | "false");
        let mut converted = Converted { by_default, ..Converted::default() };
        let mut names: Vec<u8> = Vec::new();
        for file in files {
            names.extend_from_slice(path_bytes(file));
            names.push(0);
        }
        let git = self.git().args(["check-attr", "-z", "--stdin"]);
        let answer = git.args(CONVERTING).args(LINE_ENDS).stdin_bytes(names).run()?;
        let mut words = split_nul(&answer.stdout);
        while let (Some(path), Some(name), Some(value)) = (words.next(), words.next(), words.next())
        {
            if matches!(value, b"unspecified" | b"unset") {
                continue;
            }
            match CONVERTING.contains(&lossy_string(name).as_str()) {
                true => converted.always.insert(path_from_bytes(path)),
                false => converted.line_ends.insert(path_from_bytes(path)),
            };
        }
        Ok(converted)
    }
}

/// Which files git converts.
#[derive(Debug, Default)]
struct Converted {
    always: HashSet<PathBuf>,
    /// If they have line ends of Windows.
    line_ends: HashSet<PathBuf>,
    /// All files are among [`Converted::line_ends`].
    by_default: bool,
}

impl Converted {
    fn is_for(&self, file: &PathBuf, bytes: &[u8]) -> bool {
        let ends = self.by_default || self.line_ends.contains(file);
        self.always.contains(file) || ends && bytes.contains(&b'\r')
    }
}

/// Whether git would take a file of this name.
fn has_plain_name(file: &Path) -> bool {
    file.components().all(|part| match part {
        Component::Normal(name) => !is_git_component(name.as_encoded_bytes()),
        _ => false,
    })
}

/// Looks at a file below a folder; no link is followed and no pipe waited for.
fn find(root: &OwnedFd, file: &Path) -> Found {
    let (Some(above), Some(name)) = (file.parent(), file.file_name()) else { return Found::Other };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(mut folder) = rustix::io::dup(root) else { return Found::Other };
    for part in above {
        folder = match rustix::fs::openat(&folder, part, flags, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::NOENT) => return Found::Gone,
            // A file or a link is where a folder was: what was below it is looked at when nobody works here.
            Err(_) => return Found::Other,
        };
    }
    let stat = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Found::Gone,
        Err(_) => return Found::Other,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => match rustix::fs::readlinkat(&folder, name, Vec::new()) {
            Ok(target) => Found::Link(target.into_bytes()),
            Err(_) => Found::Other,
        },
        FileType::Directory => Found::Folder,
        FileType::RegularFile => read(&folder, name).unwrap_or(Found::Other),
        _ => Found::Other,
    }
}

fn read(folder: &OwnedFd, name: &OsStr) -> Option<Found> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    let most = super::index_cache::QUICK_SNAPSHOT_BYTES;
    file.by_ref().take(most + 1).read_to_end(&mut bytes).ok()?;
    // It grew beyond what is read in passing.
    if bytes.len() as u64 > most {
        return None;
    }
    let executable = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o100 != 0;
    Some(Found::Plain { bytes, executable })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn no_link_is_followed_on_the_way_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir_all(inside.join("d")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("key"), "secret").unwrap();
        fs::write(inside.join("d/plain"), "text").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("swapped")).unwrap();
        std::os::unix::fs::symlink(outside.join("key"), inside.join("d/key")).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&inside, flags, Mode::empty()).unwrap();
        let at = |path: &str| find(&root, Path::new(path));
        assert!(matches!(at("swapped/key"), Found::Other));
        assert!(matches!(at("d/key"), Found::Link(target) if target.ends_with(b"out/key")));
        assert!(
            matches!(at("d/plain"), Found::Plain { bytes, executable: false } if bytes == b"text")
        );
        assert!(matches!(at("d/none"), Found::Gone));
        assert!(!has_plain_name(Path::new("a/../b")) && !has_plain_name(Path::new(".git/config")));
    }
}
