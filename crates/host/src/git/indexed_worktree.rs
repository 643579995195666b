//! One worktree with an index of our own laid over it: what git is asked there touches neither the
//! worktree's own index nor its lock, and runs no filter that was planted meanwhile.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstem_core::id::Oid;

use super::command::{GitCommand, GitOutput, TIMEOUT_CHECKOUT};
use super::error::{GitError, IoErrorContext, Result};
use super::unstored_files::{
    LEFT_OUT, UnstoredFile, bad_name, parse_unreadable_folders, unreadable_file,
};
use super::{Repo, is_oid, lossy_string, parse_oid, path_bytes, path_from_bytes, split_nul};

/// Whoever works there may write while git reads. A file that changes under three readings in a row
/// is left out and named.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// A worktree, the git dir that goes with it, and the index to use instead of its own.
pub(super) struct IndexedWorktree<'a> {
    pub(super) repo: &'a Repo,
    pub(super) git_dir: &'a Path,
    pub(super) worktree: &'a Path,
    pub(super) index: &'a Path,
    /// Settings that switch filters off, as pairs.
    pub(super) filter_overrides: &'a [(String, String)],
}

/// How a worktree differs from the index.
#[derive(Debug, Default)]
pub(super) struct WorktreeStatus {
    /// The commit HEAD is on.
    pub(super) head: Option<Oid>,
    /// Files that were edited, deleted or are new.
    pub(super) changed: Vec<PathBuf>,
    /// Repositories inside, of which git would only record a pointer.
    pub(super) nested: Vec<PathBuf>,
    /// Folders that could not be looked into.
    pub(super) unreadable: Vec<UnstoredFile>,
}

/// What taking in files brought to light.
#[derive(Debug, Default)]
pub(super) struct StagingReport {
    /// One sentence each, for people.
    pub(super) notes: Vec<String>,
    /// What is not in the index although it should be.
    pub(super) unstored: Vec<UnstoredFile>,
}

impl IndexedWorktree<'_> {
    pub(super) fn git(&self) -> GitCommand {
        let git = self.repo.git_in_worktree(self.git_dir, self.worktree);
        let mut git = git.env("GIT_INDEX_FILE", self.index).timeout(TIMEOUT_CHECKOUT);
        if !self.filter_overrides.is_empty() {
            git = git.env("GIT_CONFIG_COUNT", self.filter_overrides.len().to_string());
        }
        for (n, (key, value)) in self.filter_overrides.iter().enumerate() {
            git = git.env(&format!("GIT_CONFIG_KEY_{n}"), key);
            git = git.env(&format!("GIT_CONFIG_VALUE_{n}"), value);
        }
        git
    }

    /// What is there now that the index does not have, in one look.
    pub(super) fn read_status(&self) -> Result<WorktreeStatus> {
        let answer = self
            .git()
            .args(["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"])
            .args(["--no-renames", "--no-ahead-behind", "--ignore-submodules=dirty"])
            .run()?;
        let unreadable = parse_unreadable_folders(&answer.stderr);
        let mut seen = WorktreeStatus { unreadable, ..WorktreeStatus::default() };
        for line in split_nul(&answer.stdout) {
            let text = |count| line.splitn(count, |&b| b == b' ').last().unwrap_or_default();
            match line.first() {
                Some(b'#') => {
                    if let Some(id) = line.strip_prefix(b"# branch.oid ") {
                        let id = lossy_string(id);
                        seen.head = is_oid(&id).then(|| Oid::new(id));
                    }
                }
                // `1 XY …`: X compares the index with HEAD, which is not asked here.
                Some(b'1') if line.get(3) == Some(&b'.') => {}
                Some(b'1') => seen.changed.push(path_from_bytes(text(9))),
                Some(b'u') => seen.changed.push(path_from_bytes(text(11))),
                Some(b'?') => match text(2).strip_suffix(b"/") {
                    Some(folder) => seen.nested.push(path_from_bytes(folder)),
                    None => seen.changed.push(path_from_bytes(text(2))),
                },
                _ => return Err(answer.bad_output_error()),
            }
        }
        Ok(seen)
    }

    /// Repositories inside the worktree that the index has nothing of.
    pub(super) fn list_nested_repos(&self) -> Result<Vec<PathBuf>> {
        let args = ["ls-files", "--others", "--exclude-standard", "-z"];
        let listed = self.git().args(args).run()?;
        // Only a repository is listed as a folder.
        let folders = split_nul(&listed.stdout).filter_map(|name| name.strip_suffix(b"/"));
        Ok(folders.map(path_from_bytes).collect())
    }

    /// What the index does not have as it is: files, and repositories inside.
    pub(super) fn list_unstaged(&self) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        let args = ["ls-files", "--others", "--modified", "--exclude-standard", "-z"];
        let listed = self.git().args(args).run()?;
        let (mut files, mut nested) = (Vec::new(), Vec::new());
        for name in split_nul(&listed.stdout) {
            match name.strip_suffix(b"/") {
                Some(folder) => nested.push(path_from_bytes(folder)),
                None => files.push(path_from_bytes(name)),
            }
        }
        Ok((files, nested))
    }

    /// Takes all files into the index, but those in `left`. Git would record a bare pointer to a
    /// nested repository, and its files would be nowhere, so these are taken one by one.
    pub(super) fn add_all(
        &self,
        nested: &[PathBuf],
        left: &[PathBuf],
        taken: &mut StagingReport,
    ) -> Result<()> {
        // Excluding alone would not do: without a positive pathspec git excludes from the root.
        let mut spec = b".\0".to_vec();
        for place in nested.iter().chain(left) {
            spec.extend_from_slice(b":(exclude,literal,top)");
            spec.extend_from_slice(path_bytes(place));
            spec.push(0);
        }
        let add = || {
            self.git()
                .args(["add", "--all", "--sparse", "--ignore-errors", "--pathspec-from-file=-"])
                .arg("--pathspec-file-nul")
                .stdin_bytes(spec.clone())
                .accept_exit_codes(&[1])
                .run()
        };
        match retry_on_race(add) {
            Ok(added) if added.code == 0 => {
                taken.unstored.extend(parse_unreadable_folders(&added.stderr));
            }
            // Some could not be taken in; or git gives up altogether over one file that goes while it
            // looks. Which one, and why, is told apart file by file.
            Ok(_) | Err(GitError::Failed { code: Some(_), .. }) => {
                taken.unstored.extend(self.add_in_pieces(left)?);
            }
            Err(error) => return Err(error),
        }
        for place in nested {
            self.add_nested_repo(place, taken)?;
            taken.notes.push(format!(
                "{} is a repository of its own: its files are in here, its history is not",
                place.display()
            ));
        }
        Ok(())
    }

    /// Takes these files into the index as they are now, or out of it if they are gone. Fails if git left one
    /// out because of its name, of which its exit code says nothing.
    pub(super) fn update_index(&self, files: &[PathBuf]) -> Result<GitOutput> {
        let answer = self.feed_index(files)?;
        match answer.stderr.lines().any(|line| line.starts_with(LEFT_OUT)) {
            true => Err(answer.failure_error()),
            false => Ok(answer),
        }
    }

    fn feed_index(&self, files: &[PathBuf]) -> Result<GitOutput> {
        self.git()
            .args(["update-index", "--add", "--remove", "--replace", "-z", "--stdin"])
            .stdin_bytes(nul_separated(files))
            .run()
    }

    fn add_nested_repo(&self, place: &Path, taken: &mut StagingReport) -> Result<()> {
        let mut readable_only = false;
        let add = || {
            let mut files = self.list_nested_repo_files(place)?;
            let mut left = self.repo.select_oversized_files(self.worktree, &files);
            files.retain(|file| left.iter().all(|left| left.path != *file));
            if readable_only {
                let closed = |file: &&PathBuf| !is_readable(&self.worktree.join(file));
                left.extend(files.iter().filter(closed).map(|file| unreadable_file(file)));
                files.retain(|file| left.iter().all(|left| left.path != *file));
            }
            readable_only = true;
            let answer = self.feed_index(&files)?;
            let names = answer.stderr.lines().filter_map(|line| line.strip_prefix(LEFT_OUT));
            left.extend(names.map(|name| bad_name(Path::new(name))));
            Ok((answer, left))
        };
        taken.unstored.extend(retry_on_race(add)?.1);
        Ok(())
    }

    /// The files of a repository nested in the worktree, without trusting its configuration.
    pub(super) fn list_nested_repo_files(&self, place: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut open = vec![place.to_path_buf()];
        while let Some(place) = open.pop() {
            let listed = self
                .repo
                .git_in_worktree(self.repo.common_dir(), &self.worktree.join(&place))
                .env("GIT_INDEX_FILE", self.repo.temp_path("none"))
                .args(["ls-files", "--others", "--exclude-standard", "-z"])
                .run()?;
            for name in split_nul(&listed.stdout) {
                match name.strip_suffix(b"/") {
                    Some(deeper) => open.push(place.join(path_from_bytes(deeper))),
                    None => files.push(place.join(path_from_bytes(name))),
                }
            }
        }
        if !files.is_empty() {
            let ignored = self.repo.select_ignored(self.git_dir, self.worktree, &files)?;
            files.retain(|file| !ignored.contains(file));
        }
        Ok(files)
    }

    /// The index as a tree.
    pub(super) fn write_tree(&self) -> Result<Oid> {
        let answer = self.git().arg("write-tree").run()?;
        parse_oid(answer.single_line()?, &answer)
    }

    /// Starts over with what a commit has, or with nothing.
    pub(super) fn reset_index_to(&self, commit: Option<&Oid>) -> Result<()> {
        crate::files::remove_all(self.index).with_path("remove", self.index)?;
        if let Some(commit) = commit {
            self.git().args(["read-tree", commit.as_str()]).run()?;
            self.skip_sparse_entries()?;
        }
        Ok(())
    }

    /// In a sparse checkout, marks what is not there because it lies outside: git does so only where it
    /// writes the files as well, and without the marks they would all look deleted.
    fn skip_sparse_entries(&self) -> Result<()> {
        if !self.repo.is_sparse_worktree(self.git_dir, self.worktree)? {
            return Ok(());
        }
        let absent = self.git().args(["ls-files", "--deleted", "-z"]).run()?.stdout;
        let check = || {
            let git = self.git().args(["sparse-checkout", "check-rules", "-z"]);
            git.stdin_bytes(absent.clone()).run().map(|answer| answer.stdout)
        };
        let inside = match check() {
            Ok(inside) => inside,
            // A git before 2.41, or patterns that make no sense: nothing is taken for deleted.
            Err(GitError::Failed { code: Some(_), .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        let inside: HashSet<&[u8]> = split_nul(&inside).collect();
        let outside = split_nul(&absent).filter(|name| !inside.contains(name));
        let outside: Vec<PathBuf> = outside.map(path_from_bytes).collect();
        if outside.is_empty() {
            return Ok(());
        }
        let git = self.git().args(["update-index", "--skip-worktree", "-z", "--stdin"]);
        git.stdin_bytes(nul_separated(&outside)).run().map(drop)
    }
}

/// Asks again if git stumbled over a file that went or changed while it was read.
fn retry_on_race<T: HasExitCode>(mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        match ask() {
            Ok(answer) if answer.exit_code() == 0 => return Ok(answer),
            Ok(_) | Err(GitError::Failed { code: Some(_), .. }) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    ask()
}

trait HasExitCode {
    fn exit_code(&self) -> i32;
}

impl HasExitCode for GitOutput {
    fn exit_code(&self) -> i32 {
        self.code
    }
}

impl HasExitCode for (GitOutput, Vec<UnstoredFile>) {
    fn exit_code(&self) -> i32 {
        self.0.code
    }
}

/// Links are kept as links, so where they lead does not matter.
fn is_readable(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink() || fs::File::open(path).is_ok())
}

pub(super) fn nul_separated(files: &[PathBuf]) -> Vec<u8> {
    files.iter().flat_map(|file| [path_bytes(file), b"\0"].concat()).collect()
}
