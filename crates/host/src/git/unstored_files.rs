//! Files that git cannot take in: too large, unreadable, refused by a filter or an encoding, no room to write to.
//! Each is named with the true reason, so that whoever asked can keep it as a file.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::Repo;
use super::distrusted_filters::FileStamp;
use super::error::{GitError, IoErrorContext, Result};
use super::import::too_large_message;
use super::indexed_worktree::IndexedWorktree;
use super::{path_from_bytes, split_nul};

/// How git begins to say that it left a file out because of its name.
pub(super) const LEFT_OUT: &str = "Ignoring path ";

/// Files per piece where all at once does not work.
const PIECE: usize = 100;
/// A file that changes under so many readings in a row is being written to all the time.
const TRIES: u32 = 3;

/// A file, or a folder that cannot be read, that git did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnstoredFile {
    /// Relative to the worktree.
    pub path: PathBuf,
    /// The reason, as a whole sentence without its full stop.
    pub why: String,
}

impl fmt::Display for UnstoredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl UnstoredFile {
    fn new(path: &Path, why: &str) -> Self {
        let why = format!("git could not store {}: {why}", path.display());
        Self { path: path.to_path_buf(), why }
    }
}

impl Repo {
    /// Moves such files out of a worktree that is about to go, to a folder in `trash` that is kept for a
    /// person, and says where that is.
    pub fn set_unstored_aside(
        &self,
        worktree: &Path,
        unstored: &[UnstoredFile],
        trash: &Path,
        label: &str,
    ) -> Result<Option<PathBuf>> {
        let paths: Vec<PathBuf> = unstored.iter().map(|file| file.path.clone()).collect();
        crate::files::set_files_aside(worktree, &paths, trash, label)
            .with_path("keep files of", worktree)
    }

    /// Those of the files that are larger than git is given. By their size alone: nothing is read.
    pub(super) fn select_oversized_files(
        &self,
        worktree: &Path,
        files: &[PathBuf],
    ) -> Vec<UnstoredFile> {
        let limit = self.file_limit();
        let size = |file: &PathBuf| {
            let meta = fs::symlink_metadata(worktree.join(file)).ok()?;
            Some(meta.len()).filter(|size| meta.is_file() && limit > 0 && *size > limit)
        };
        let large = files.iter().filter_map(|file| Some((file, size(file)?)));
        let mut found: Vec<UnstoredFile> = large
            .map(|(file, bytes)| UnstoredFile {
                path: file.clone(),
                why: too_large_message(&file.display().to_string(), bytes, limit),
            })
            .collect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }
}

impl IndexedWorktree<'_> {
    /// Takes in what one `git add` could not, in pieces, and what stops a piece alone. Says what is left.
    pub(super) fn add_in_pieces(&self, left: &[PathBuf]) -> Result<Vec<UnstoredFile>> {
        let args = ["ls-files", "--others", "--modified", "--deleted", "--exclude-standard", "-z"];
        let listed = self.git().args(args).run()?;
        let files =
            split_nul(&listed.stdout).filter(|name| !name.ends_with(b"/")).map(path_from_bytes);
        let mut files: Vec<PathBuf> = files.filter(|file| !left.contains(file)).collect();
        files.dedup();
        let mut unstored = parse_unreadable_folders(&listed.stderr);
        let mut open: Vec<&[PathBuf]> = files.chunks(PIECE).collect();
        while let Some(piece) = open.pop() {
            match (self.update_index(piece), piece) {
                (Ok(_), _) => {}
                (Err(GitError::Failed { code: Some(_), .. }), [file]) => {
                    unstored.extend(self.add_single_file(file)?);
                }
                (Err(GitError::Failed { code: Some(_), .. }), piece) => {
                    open.extend(piece.chunks(piece.len().div_ceil(8)));
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(unstored)
    }

    /// Only a file that really changes while it is read is read again.
    fn add_single_file(&self, file: &PathBuf) -> Result<Option<UnstoredFile>> {
        let place = self.worktree.join(file);
        let stamp = || fs::symlink_metadata(&place).ok().map(|meta| FileStamp::from(&meta));
        let mut tries = 0;
        loop {
            let before = stamp();
            let stderr = match self.update_index(std::slice::from_ref(file)) {
                Ok(_) => return Ok(None),
                Err(GitError::Failed { code: Some(_), stderr, .. }) => stderr,
                Err(error) => return Err(error),
            };
            tries += 1;
            if stamp() == before {
                return Ok(Some(UnstoredFile::new(file, &parse_refusal_reason(&stderr))));
            }
            if tries >= TRIES {
                return Ok(Some(UnstoredFile::new(file, "the file keeps changing")));
            }
        }
    }
}

/// What git, or a filter that it ran, gave as the reason for one file.
fn parse_refusal_reason(stderr: &str) -> String {
    if stderr.lines().any(|line| line.starts_with(LEFT_OUT)) {
        return BAD_NAME.to_owned();
    }
    let told = |line: &&str| {
        ["error: ", "fatal: ", "warning: ", "hint: "].iter().all(|start| !line.starts_with(start))
    };
    let filter = stderr.lines().find_map(|line| {
        let at = line.find("clean filter '").filter(|_| line.ends_with("failed"))?;
        Some(&line[at..])
    });
    if let Some(filter) = filter {
        let words = stderr.lines().find(|line| told(line) && !line.trim().is_empty());
        return words.map_or_else(|| filter.to_owned(), |words| format!("{filter}: {words}"));
    }
    let said = |line: &str| {
        line.strip_prefix("error: ").or_else(|| line.strip_prefix("fatal: ")).map(str::to_owned)
    };
    stderr.lines().find_map(said).unwrap_or_else(|| stderr.trim().to_owned())
}

/// Folders that git says it could not look into: whatever is in there is in no tree.
pub(super) fn parse_unreadable_folders(stderr: &str) -> Vec<UnstoredFile> {
    let folder = |line: &str| {
        let rest = line.strip_prefix("warning: could not open directory '")?;
        let (path, why) = rest.rsplit_once("': ")?;
        Some(UnstoredFile::new(Path::new(path.trim_end_matches('/')), why))
    };
    stderr.lines().filter_map(folder).collect()
}

/// Why a file with a name such as `git~1` is not taken.
const BAD_NAME: &str = "git does not accept this name, which stands for .git on other systems";

/// What git leaves out because of its name.
pub(super) fn bad_name(path: &Path) -> UnstoredFile {
    UnstoredFile::new(path, BAD_NAME)
}

/// What cannot even be opened.
pub(super) fn unreadable_file(path: &Path) -> UnstoredFile {
    UnstoredFile::new(path, "cannot read the file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_filters_own_word_or_the_first_one_of_git() {
        let filter = "lfs: cannot store\nerror: external filter 'x' failed 2\n\
                      fatal: model.bin: clean filter 'lfs' failed\n";
        assert_eq!(parse_refusal_reason(filter), "clean filter 'lfs' failed: lfs: cannot store");
        let store = "error: insufficient permission for adding an object to repository database\n\
                     error: a: failed to insert into database\nfatal: Unable to process path a\n";
        assert_eq!(
            parse_refusal_reason(store),
            "insufficient permission for adding an object to repository database"
        );
        assert_eq!(parse_refusal_reason("it gave no reason"), "it gave no reason");
    }

    #[test]
    fn folders_that_cannot_be_read_are_named() {
        let said = "warning: could not open directory 'a b/': Permission denied\n";
        let found = parse_unreadable_folders(said);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, Path::new("a b"));
        assert_eq!(found[0].why, "git could not store a b: Permission denied");
    }
}
