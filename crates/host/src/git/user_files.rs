//! The user's own files in a checkout that a landing would write to: found before the branch moves, so that
//! the landing can wait, and put aside in the rare case that they came in between.
//!
//! Nothing of the user's is ever lost, and no state is left in which `git commit -a` would take a landing
//! back: a file has either the landed content, or that and the user's change.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use mainstem_core::hold::{CheckoutProblem, HoldReason};
use mainstem_core::id::Oid;

use super::checkout_repair::{TouchedFile, is_null_oid};
use super::checkout_update::CheckoutPaths;
use super::error::{GitError, IoErrorContext, Result};
use super::worktree::UNFINISHED;
use super::{Repo, lossy_string, path_bytes, path_from_bytes, split_nul};
use crate::files;

/// What the user's version of a file is called while, or after, the landed one takes its place.
const USER_COPY_SUFFIX: &str = ".yours";

/// What is in the way of a landing in a checkout of its branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedCheckout {
    pub checkout: PathBuf,
    /// The user's files there, from its root.
    pub paths: Vec<String>,
    /// What it is, if it is not about files.
    pub trouble: Option<CheckoutProblem>,
}

impl BlockedCheckout {
    /// Why work waits for it.
    pub fn hold_reason(&self) -> HoldReason {
        HoldReason::CheckoutInTheWay {
            checkout: self.checkout.display().to_string(),
            paths: self.paths.clone(),
            trouble: self.trouble.clone(),
        }
    }
}

impl fmt::Display for BlockedCheckout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hold_reason().describe())
    }
}

/// What keeps one checkout from following.
pub(super) enum CheckoutObstacle {
    /// Files of the user's.
    Files(Vec<PathBuf>),
    Trouble(CheckoutProblem),
}

impl CheckoutObstacle {
    pub(super) fn from_trouble(what: String, fix: String) -> Self {
        Self::Trouble(CheckoutProblem { what, fix })
    }

    pub(super) fn at_checkout(self, checkout: PathBuf) -> BlockedCheckout {
        match self {
            Self::Files(files) => {
                let paths = files.iter().map(|name| name.to_string_lossy().into_owned()).collect();
                BlockedCheckout { checkout, paths, trouble: None }
            }
            Self::Trouble(trouble) => {
                BlockedCheckout { checkout, paths: Vec::new(), trouble: Some(trouble) }
            }
        }
    }
}

/// A file of the user's that made room for a landed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DisplacedFile {
    pub(super) name: PathBuf,
    pub(super) copy: PathBuf,
    /// The content that the landing started from; zeros if there was none.
    old_blob: String,
    /// The landed content; zeros if it removes the file.
    landed_blob: String,
}

impl Repo {
    /// The user's files that are in the way of what a commit changes since another one, in any checkout of
    /// the branch. Looks only.
    pub fn find_blocked_checkout(
        &self,
        branch: &str,
        base: &Oid,
        tip: &Oid,
    ) -> Result<Option<BlockedCheckout>> {
        let Some(head) = self.read_ref(&format!("refs/heads/{branch}"))? else { return Ok(None) };
        let touched = self.list_touched_files(base, tip)?;
        for path in self.list_checkouts(branch)? {
            let git_dir = self.find_worktree_git_dir(&path)?;
            let copy = self.create_index_copy(&git_dir)?;
            let checkout = CheckoutPaths { path: &path, git_dir: &git_dir, index_copy: &copy.0 };
            let obstacle = match git_dir.join("index.lock").exists() {
                true => Some(busy_index_obstacle(&git_dir)),
                // What the branch will be is not known yet; that of its own changes is enough to see.
                false => self
                    .find_checkout_obstacle(&checkout, (&head, &head), (base, tip), &touched)?
                    .err(),
            };
            if let Some(obstacle) = obstacle {
                return Ok(Some(obstacle.at_checkout(path)));
            }
        }
        Ok(None)
    }

    /// The user's uncommitted files in all checkouts of a branch, ignored ones aside. Looks only.
    pub fn list_uncommitted_files(&self, branch: &str) -> Result<Vec<BlockedCheckout>> {
        let mut found = Vec::new();
        for path in self.list_checkouts(branch)? {
            let git_dir = self.find_worktree_git_dir(&path)?;
            let git = self.git_in_worktree(&git_dir, &path).env("GIT_OPTIONAL_LOCKS", "0");
            let status = git.args(["status", "--porcelain", "-z", "--no-renames"]).run()?;
            let names = split_nul(&status.stdout).filter_map(|entry| entry.get(3..));
            let paths: Vec<String> = names.map(lossy_string).collect();
            if !paths.is_empty() {
                found.push(BlockedCheckout { checkout: path, paths, trouble: None });
            }
        }
        Ok(found)
    }

    pub(super) fn refresh_index_copy(&self, checkout: &CheckoutPaths<'_>) -> Result<()> {
        // Exit code 1 says that some files differ, and the disk is not to be asked for each of them twice.
        let git = self.git_in_worktree(checkout.git_dir, checkout.path);
        let git = git
            .env("GIT_INDEX_FILE", checkout.index_copy)
            .timeout(super::command::TIMEOUT_CHECKOUT);
        git.args(["update-index", "-q", "--refresh"]).accept_exit_codes(&[1]).run().map(drop)
    }

    /// Of the files that a landing touches, or what stands in their place, those that are the user's: edited,
    /// staged or not under version control, and not as the landing will have them.
    pub(super) fn find_user_files(
        &self,
        checkout: &CheckoutPaths<'_>,
        shown: &Oid,
        touched: &[TouchedFile],
    ) -> Result<Vec<PathBuf>> {
        let CheckoutPaths { path, git_dir, index_copy: copy } = *checkout;
        if touched.is_empty() {
            return Ok(Vec::new());
        }
        let git = || self.git_in_worktree(git_dir, path).env("GIT_INDEX_FILE", copy);
        let names = |answer: &super::command::GitOutput| -> HashSet<PathBuf> {
            split_nul(&answer.stdout).map(path_from_bytes).collect()
        };
        let args =
            ["diff-index", "--cached", "--name-only", "--no-renames", "-z", shown.as_str(), "--"];
        let staged = names(&git().args(args).run()?);
        let edited = names(&git().args(["diff-files", "--name-only", "--no-renames", "-z"]).run()?);
        let tracked = names(&git().args(["ls-files", "-z"]).run()?);
        let mut found = Vec::new();
        for one in touched {
            let place = match tracked.contains(&one.name) {
                true => (staged.contains(&one.name) || edited.contains(&one.name))
                    .then(|| one.name.clone()),
                false if is_null_oid(&one.new_blob) => None,
                false => find_blocking_path(path, &one.name, &tracked),
            };
            // What is taken out of the index by hand is the user's wish, though the file is there.
            let place = place.or_else(|| staged.contains(&one.name).then(|| one.name.clone()));
            let Some(place) = place.filter(|place| !found.contains(place)) else { continue };
            let gone = fs::symlink_metadata(path.join(&place)).is_err();
            let only_deleted = gone && !staged.contains(&one.name);
            if !(only_deleted || place == one.name && self.is_landed_version(checkout, one)?) {
                found.push(place);
            }
        }
        Ok(found)
    }

    /// Whether a file is already as the landing will have it, in the index too where it is there.
    fn is_landed_version(&self, checkout: &CheckoutPaths<'_>, one: &TouchedFile) -> Result<bool> {
        let file = checkout.path.join(&one.name);
        if !fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_file()) {
            return Ok(false);
        }
        let git = || {
            self.git_in_worktree(checkout.git_dir, checkout.path)
                .env("GIT_INDEX_FILE", checkout.index_copy)
        };
        let hashed = git().args(["hash-object", "--"]).arg(&one.name).run()?;
        if hashed.single_line()? != one.new_blob {
            return Ok(false);
        }
        let listed = git().args(["ls-files", "-s", "-z", "--"]).arg(&one.name).run()?;
        let entry = lossy_string(&listed.stdout);
        let id = entry.split(' ').nth(1);
        Ok(id.is_none_or(|id| id == one.new_blob || id == one.old_blob))
    }

    /// Moves the user's files out of the way of a landing, so that the checkout can follow; each is beside its
    /// old place then. The index copy has what the landing starts from for them.
    pub(super) fn move_user_files_aside(
        &self,
        checkout: &CheckoutPaths<'_>,
        shown: &Oid,
        touched: &[TouchedFile],
        names: &[PathBuf],
    ) -> Result<Vec<DisplacedFile>> {
        let CheckoutPaths { path, git_dir, index_copy: copy } = *checkout;
        let mut aside = Vec::new();
        for name in names {
            let place = path.join(name);
            if fs::symlink_metadata(&place).is_err() {
                continue;
            }
            let free = free_sibling_name(&place);
            fs::rename(&place, &free).with_path("move aside", &place)?;
            let known = touched.iter().find(|one| one.name == *name);
            let none = || "0".to_owned();
            aside.push(DisplacedFile {
                name: name.clone(),
                copy: free,
                old_blob: known.map_or_else(none, |one| one.old_blob.clone()),
                landed_blob: known.map_or_else(none, |one| one.new_blob.clone()),
            });
        }
        let git = || self.git_in_worktree(git_dir, path).env("GIT_INDEX_FILE", copy);
        let mut entries = Vec::new();
        let zero = "0".repeat(shown.as_str().len());
        for name in names {
            let listed =
                self.git().args(["ls-tree", "-z", shown.as_str(), "--"]).arg(name).run()?;
            let known = split_nul(&listed.stdout)
                .next()
                .filter(|_| touched.iter().any(|t| t.name == *name));
            match known {
                Some(entry) => entries.extend_from_slice(entry),
                None => {
                    entries.extend_from_slice(format!("0 {zero}\t").as_bytes());
                    entries.extend_from_slice(path_bytes(name));
                }
            }
            entries.push(0);
        }
        git().args(["update-index", "-z", "--index-info"]).stdin_bytes(entries).run()?;
        let mut again = Vec::new();
        for one in
            touched.iter().filter(|one| names.contains(&one.name) && !is_null_oid(&one.old_blob))
        {
            again.extend_from_slice(path_bytes(&one.name));
            again.push(0);
        }
        if !again.is_empty() {
            let git = git().args(["checkout-index", "-f", "-q", "-u", "-z", "--stdin"]);
            git.stdin_bytes(again).run()?;
        }
        Ok(aside)
    }

    /// Brings the user's changes together with the landed files, where both merge; says what the user should
    /// know of each file.
    pub(super) fn merge_user_files_back(
        &self,
        checkout: &CheckoutPaths<'_>,
        aside: &[DisplacedFile],
    ) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for one in aside {
            let shown = one.name.display();
            let beside = one.copy.strip_prefix(checkout.path).unwrap_or(&one.copy).display();
            notes.push(match self.merge_user_file_back(checkout, one)? {
                true => format!("{shown} now has both your change and the landed change"),
                false => format!("{shown} has the landed version; your version is in {beside}"),
            });
        }
        Ok(notes)
    }

    fn merge_user_file_back(
        &self,
        checkout: &CheckoutPaths<'_>,
        one: &DisplacedFile,
    ) -> Result<bool> {
        let place = checkout.path.join(&one.name);
        let plain = |file: &Path| fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file());
        if is_null_oid(&one.old_blob)
            || is_null_oid(&one.landed_blob)
            || !plain(&place)
            || !plain(&one.copy)
        {
            return Ok(false);
        }
        let base = self.temp_path("base");
        let before =
            self.read_filtered_blob(checkout.path, checkout.git_dir, &one.name, &one.old_blob)?;
        fs::write(&base, before).with_path("write", &base)?;
        let git = self.git_in_worktree(checkout.git_dir, checkout.path);
        let merged =
            git.args(["merge-file", "-p", "--"]).arg(&one.copy).arg(&base).arg(&place).run();
        let _ = fs::remove_file(&base);
        let text = match merged {
            Ok(answer) => answer.stdout,
            // Its exit code is the number of conflicts; a file that is no text is an error.
            Err(GitError::Failed { code: Some(_), .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mode = fs::metadata(&one.copy).with_path("look at", &one.copy)?.permissions();
        files::write_atomic(&place, &text).with_path("write", &place)?;
        fs::set_permissions(&place, mode).with_path("write", &place)?;
        fs::remove_file(&one.copy).with_path("remove", &one.copy)?;
        Ok(true)
    }
}

/// A command that was begun in a checkout and will make a commit of its own.
pub(super) fn find_unfinished_command(git_dir: &Path) -> Option<String> {
    let name = UNFINISHED.iter().find(|name| git_dir.join(name).exists())?;
    Some(format!("an unfinished merge, rebase or similar operation ({name})"))
}

/// Somebody else has the index.
pub(super) fn busy_index_obstacle(git_dir: &Path) -> CheckoutObstacle {
    let lock = git_dir.join("index.lock");
    let what = "another git command is running there (index.lock)".to_owned();
    let fix =
        format!("wait for the command to finish; if none is running, remove {}", lock.display());
    CheckoutObstacle::from_trouble(what, fix)
}

/// What stands where a new file is to go. A folder above it is fine; a folder in its very place may hold
/// ignored files, which can be somebody's only copy.
fn find_blocking_path(root: &Path, name: &Path, tracked: &HashSet<PathBuf>) -> Option<PathBuf> {
    for place in name.ancestors().filter(|place| !place.as_os_str().is_empty()) {
        let Ok(meta) = fs::symlink_metadata(root.join(place)) else { continue };
        let fine = if meta.is_dir() { place != name } else { tracked.contains(place) };
        if !fine {
            return Some(place.to_path_buf());
        }
    }
    None
}

/// A name beside a file that nothing has.
fn free_sibling_name(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or(OsStr::new("file"));
    let with = |end: String| {
        let mut free: OsString = name.to_os_string();
        free.push(end);
        place.with_file_name(free)
    };
    let mut free = with(USER_COPY_SUFFIX.to_owned());
    let mut n = 2;
    while fs::symlink_metadata(&free).is_ok() {
        free = with(format!("{USER_COPY_SUFFIX}-{n}"));
        n += 1;
    }
    free
}
