//! One worktree with an index of our own laid over it: what git is asked there touches neither the
//! worktree's own index nor its lock, and runs no filter that was planted meanwhile.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstem_core::id::Oid;

use super::error::{GitError, OnPath, Result};
use super::run::{Answer, Git, TIMEOUT_CHECKOUT};
use super::{Repo, bytes_of, is_oid, lossy, oid, parts, path_from};

/// Whoever works there may write while git reads. A file that changes under three readings in a row
/// is left out and named.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(50);
/// Files per piece where all at once does not work.
const PIECE: usize = 100;

/// A worktree, the git dir that goes with it, and the index to use instead of its own.
pub(super) struct Desk<'a> {
    pub(super) repo: &'a Repo,
    pub(super) git_dir: &'a Path,
    pub(super) worktree: &'a Path,
    pub(super) index: &'a Path,
    /// Settings that switch filters off, as pairs.
    pub(super) without: &'a [(String, String)],
}

/// How a worktree differs from the index on the desk.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The commit HEAD is on.
    pub(super) head: Option<Oid>,
    /// Files that were edited, deleted or are new.
    pub(super) changed: Vec<PathBuf>,
    /// Repositories inside, of which git would only record a pointer.
    pub(super) nested: Vec<PathBuf>,
}

impl Desk<'_> {
    pub(super) fn git(&self) -> Git {
        let git = self.repo.git_in(self.git_dir, self.worktree);
        let mut git = git.env("GIT_INDEX_FILE", self.index).timeout(TIMEOUT_CHECKOUT);
        if !self.without.is_empty() {
            git = git.env("GIT_CONFIG_COUNT", self.without.len().to_string());
        }
        for (n, (key, value)) in self.without.iter().enumerate() {
            git = git.env(&format!("GIT_CONFIG_KEY_{n}"), key);
            git = git.env(&format!("GIT_CONFIG_VALUE_{n}"), value);
        }
        git
    }

    /// What is there now that the index does not have, in one look.
    pub(super) fn look(&self) -> Result<Seen> {
        let answer = self
            .git()
            .args(["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"])
            .args(["--no-renames", "--no-ahead-behind", "--ignore-submodules=dirty"])
            .run()?;
        let mut seen = Seen::default();
        for line in parts(&answer.stdout) {
            let text = |count| line.splitn(count, |&b| b == b' ').last().unwrap_or_default();
            match line.first() {
                Some(b'#') => {
                    if let Some(id) = line.strip_prefix(b"# branch.oid ") {
                        let id = lossy(id);
                        seen.head = is_oid(&id).then(|| Oid::new(id));
                    }
                }
                // `1 XY …`: X compares the index with HEAD, which is not asked here.
                Some(b'1') if line.get(3) == Some(&b'.') => {}
                Some(b'1') => seen.changed.push(path_from(text(9))),
                Some(b'u') => seen.changed.push(path_from(text(11))),
                Some(b'?') => match text(2).strip_suffix(b"/") {
                    Some(folder) => seen.nested.push(path_from(folder)),
                    None => seen.changed.push(path_from(text(2))),
                },
                _ => return Err(answer.bad()),
            }
        }
        Ok(seen)
    }

    /// Repositories inside the worktree that the index has nothing of.
    pub(super) fn nested(&self) -> Result<Vec<PathBuf>> {
        let args = ["ls-files", "--others", "--exclude-standard", "-z"];
        let listed = self.git().args(args).run()?;
        // Only a repository is listed as a folder.
        let folders = parts(&listed.stdout).filter_map(|name| name.strip_suffix(b"/"));
        Ok(folders.map(path_from).collect())
    }

    /// Takes all files into the index, but those in `left`. Git would record a bare pointer to a
    /// nested repository, and its files would be nowhere, so these are taken one by one.
    pub(super) fn add_all(
        &self,
        nested: &[PathBuf],
        left: &[PathBuf],
        notes: &mut Vec<String>,
    ) -> Result<()> {
        // Excluding alone would not do: without a positive pathspec git excludes from the root.
        let mut spec = b".\0".to_vec();
        for place in nested.iter().chain(left) {
            spec.extend_from_slice(b":(exclude,literal,top)");
            spec.extend_from_slice(bytes_of(place));
            spec.push(0);
        }
        let add = || {
            self.git()
                .args(["add", "--all", "--sparse", "--ignore-errors", "--pathspec-from-file=-"])
                .arg("--pathspec-file-nul")
                .input(spec.clone())
                .accept(&[1])
                .run()
        };
        match patiently(add) {
            Ok(added) if added.code == 1 => {
                notes.push(format!("some files could not be read: {}", first_lines(&added.stderr)));
            }
            Ok(added) if added.stderr.contains("could not open directory") => {
                notes.push(format!("a folder could not be read: {}", first_lines(&added.stderr)));
            }
            Ok(_) => {}
            // Git gives up altogether over one file that goes while it looks.
            Err(GitError::Failed { code: Some(_), .. }) => self.add_piecemeal(left, notes)?,
            Err(error) => return Err(error),
        }
        for place in nested {
            self.add_nested(place, notes)?;
            notes.push(format!(
                "{} is a repository of its own: its files are in here, its history is not",
                place.display()
            ));
        }
        Ok(())
    }

    /// The long way: in pieces, and what stops a piece alone.
    fn add_piecemeal(&self, left: &[PathBuf], notes: &mut Vec<String>) -> Result<()> {
        let args = ["ls-files", "--others", "--modified", "--deleted", "--exclude-standard", "-z"];
        let listed = self.git().args(args).run()?;
        let files = parts(&listed.stdout).filter(|name| !name.ends_with(b"/")).map(path_from);
        let mut files: Vec<PathBuf> = files.filter(|file| !left.contains(file)).collect();
        files.dedup();
        let mut open: Vec<&[PathBuf]> = files.chunks(PIECE).collect();
        let mut missed = Vec::new();
        while let Some(piece) = open.pop() {
            match (self.update_index(piece), piece) {
                (Ok(_), _) => {}
                (Err(GitError::Failed { code: Some(_), .. }), [file]) => missed.push(file),
                (Err(GitError::Failed { code: Some(_), .. }), piece) => {
                    open.extend(piece.chunks(piece.len().div_ceil(8)));
                }
                (Err(error), _) => return Err(error),
            }
        }
        if let Some(file) = missed.first() {
            let (count, name) = (missed.len(), file.display());
            notes.push(format!("{count} files changed while they were read, such as {name}"));
        }
        Ok(())
    }

    /// Takes these files into the index as they are now, or out of it if they are gone.
    pub(super) fn update_index(&self, files: &[PathBuf]) -> Result<Answer> {
        self.git()
            .args(["update-index", "--add", "--remove", "--replace", "-z", "--stdin"])
            .input(nul_separated(files))
            .run()
    }

    fn add_nested(&self, place: &Path, notes: &mut Vec<String>) -> Result<()> {
        let mut readable_only = false;
        let add = || {
            let mut files = self.files_of_nested(place)?;
            let all = files.len();
            if readable_only {
                files.retain(|file| can_be_read(&self.worktree.join(file)));
            }
            readable_only = true;
            self.update_index(&files).map(|answer| (answer, all - files.len()))
        };
        let left = patiently(add)?.1;
        if left > 0 {
            notes.push(format!("{left} files in {} could not be read", place.display()));
        }
        Ok(())
    }

    /// The files of a repository nested in the worktree, without trusting its configuration.
    fn files_of_nested(&self, place: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut open = vec![place.to_path_buf()];
        while let Some(place) = open.pop() {
            let listed = self
                .repo
                .git_in(self.repo.common_dir(), &self.worktree.join(&place))
                .env("GIT_INDEX_FILE", self.repo.tmp("none"))
                .args(["ls-files", "--others", "--exclude-standard", "-z"])
                .run()?;
            for name in parts(&listed.stdout) {
                match name.strip_suffix(b"/") {
                    Some(deeper) => open.push(place.join(path_from(deeper))),
                    None => files.push(place.join(path_from(name))),
                }
            }
        }
        if !files.is_empty() {
            let ignored = self.repo.ignored(self.git_dir, self.worktree, &files)?;
            files.retain(|file| !ignored.contains(file));
        }
        Ok(files)
    }

    /// The index as a tree.
    pub(super) fn write_tree(&self) -> Result<Oid> {
        let answer = self.git().arg("write-tree").run()?;
        oid(answer.line()?, &answer)
    }

    /// Starts over with what a commit has, or with nothing.
    pub(super) fn start_from(&self, commit: Option<&Oid>) -> Result<()> {
        crate::files::remove_all(self.index).on("remove", self.index)?;
        if let Some(commit) = commit {
            self.git().args(["read-tree", commit.as_str()]).run()?;
            self.skip_outside()?;
        }
        Ok(())
    }

    /// In a sparse checkout, marks what is not there because it lies outside: git does so only where it
    /// writes the files as well, and without the marks they would all look deleted.
    fn skip_outside(&self) -> Result<()> {
        if !self.repo.is_sparse(self.git_dir, self.worktree)? {
            return Ok(());
        }
        let absent = self.git().args(["ls-files", "--deleted", "-z"]).run()?.stdout;
        let check = || {
            let git = self.git().args(["sparse-checkout", "check-rules", "-z"]);
            git.input(absent.clone()).run().map(|answer| answer.stdout)
        };
        let inside = match check() {
            Ok(inside) => inside,
            // A git before 2.41, or patterns that make no sense: nothing is taken for deleted.
            Err(GitError::Failed { code: Some(_), .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        let inside: HashSet<&[u8]> = parts(&inside).collect();
        let outside = parts(&absent).filter(|name| !inside.contains(name));
        let outside: Vec<PathBuf> = outside.map(path_from).collect();
        if outside.is_empty() {
            return Ok(());
        }
        let git = self.git().args(["update-index", "--skip-worktree", "-z", "--stdin"]);
        git.input(nul_separated(&outside)).run().map(drop)
    }
}

/// Asks again if git stumbled over a file that went or changed while it was read.
fn patiently<T: HasCode>(mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        match ask() {
            Ok(answer) if answer.code() == 0 => return Ok(answer),
            Ok(_) | Err(GitError::Failed { code: Some(_), .. }) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    ask()
}

trait HasCode {
    fn code(&self) -> i32;
}

impl HasCode for Answer {
    fn code(&self) -> i32 {
        self.code
    }
}

impl HasCode for (Answer, usize) {
    fn code(&self) -> i32 {
        self.0.code
    }
}

/// Links are kept as links, so where they lead does not matter.
fn can_be_read(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink() || fs::File::open(path).is_ok())
}

pub(super) fn nul_separated(files: &[PathBuf]) -> Vec<u8> {
    files.iter().flat_map(|file| [bytes_of(file), b"\0"].concat()).collect()
}

/// Enough of an error text to act on; the rest repeats itself.
fn first_lines(text: &str) -> String {
    text.trim().lines().take(5).collect::<Vec<_>>().join("; ")
}
