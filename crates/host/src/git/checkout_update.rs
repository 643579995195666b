//! Brings checkouts of a branch along after the branch was moved under them.
//!
//! Its index is locked before the branch moves, and until its files have followed, so that no git of the
//! user's makes a commit in between. Whatever of the user's is in the way is found before the branch moves;
//! what comes in between is put aside ([`super::user_files`]).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mainstem_core::id::Oid;

use super::checkout_repair::TouchedFile;
use super::command::TIMEOUT_CHECKOUT;
use super::error::{GitError, IoErrorContext, Result};
use super::staging::PrivateIndex;
use super::stale_locks::LockNote;
use super::user_files::{
    BlockedCheckout, CheckoutObstacle, busy_index_obstacle, find_unfinished_command,
};
use super::{Repo, is_oid, lossy_string, parse_oid, resolve_path, split_nul};
use crate::files;

/// In the git dir of a checkout that could not follow: the commit it shows.
const OUTDATED_NOTE: &str = "mainstem-left";
/// In the git dir of a checkout while index and files are written: from which commit to which.
const UPDATE_NOTE: &str = "mainstem-step";
/// Room that stays free on the disk besides what is written.
const DISK_SPARE: u64 = 1 << 20;
/// How far back a checkout without that file is looked for.
const RECENT_MAX: &str = "64";
/// How often files that are edited while a checkout follows are put aside.
const ASIDE_TRIES: u32 = 4;
/// How long a git of the user's that works in a checkout is waited for.
const BUSY_WAIT: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// What became of the checkouts of a moved branch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum CheckoutUpdate {
    /// Nobody has the branch checked out.
    NotCheckedOut,
    /// Every checkout shows the new commit now.
    Updated,
    /// So it is, and files of the user's that came in the way had to make room.
    UpdatedFilesAside {
        /// What became of them.
        why: String,
    },
    /// At least one was left exactly as it is.
    LeftUnchanged {
        /// The reason, and what the person can do.
        why: String,
    },
}

/// Which commit the index of a checkout stands for, edits aside.
enum CheckoutPosition {
    AtCommit(Oid),
    /// Partly the one it was left at, partly what came after: only a person knows what is meant.
    BetweenCommits(Oid),
    /// Exactly an older one, and we did not leave it there: it may be meant.
    OlderCommit(Oid),
}

/// Whether the checkouts of a branch can follow where it is about to move.
#[derive(Debug)]
#[must_use]
pub enum CheckoutReadiness {
    /// All of them; their indexes are locked until this is dropped or followed.
    Locked(LockedCheckouts),
    /// Something of the user's is in the way, and nothing is locked.
    Blocked(BlockedCheckout),
}

/// The checkouts of a branch that is about to move, or has just moved.
#[derive(Debug, Default)]
#[must_use]
pub struct LockedCheckouts(Vec<LockedCheckout>);

#[derive(Debug)]
struct LockedCheckout {
    path: PathBuf,
    git_dir: PathBuf,
    index_copy: PrivateIndex,
    lock: IndexLock,
    from: Oid,
    /// The note that says so, if it is ours to take back.
    outdated_note: Option<PathBuf>,
}

impl LockedCheckouts {
    /// The branch did not move.
    pub fn release(self) {
        for follower in self.0 {
            if let Some(note) = follower.outdated_note {
                // One that stays only makes the next follower look once more.
                let _ = fs::remove_file(note);
            }
        }
    }
}

/// The lock of somebody's index, held by us.
#[derive(Debug)]
struct IndexLock {
    /// Until it is given up.
    path: Option<PathBuf>,
    _mark: LockNote,
}

impl IndexLock {
    /// Puts another index in place of the locked one, in one step, which ends the lock.
    fn replace_with(mut self, index: &Path, own: &Path) -> Result<()> {
        // Not looked at again once it is renamed: it may be somebody else's by then.
        let Some(path) = self.path.take() else { return Ok(()) };
        let done = fs::rename(index, &path).and_then(|()| fs::rename(&path, own));
        if done.is_err() {
            let _ = fs::remove_file(&path);
        }
        done.with_path("write", own)
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // One that stays is swept at the next start, by its mark.
            let _ = fs::remove_file(path);
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct CheckoutPaths<'a> {
    pub(super) path: &'a Path,
    pub(super) git_dir: &'a Path,
    /// The index that is worked on: a copy until all is done.
    pub(super) index_copy: &'a Path,
}

impl Repo {
    /// After `refs/heads/<branch>` went from `old` to `new`: updates index and files of each
    /// worktree that has it checked out. Files of the user's that are in the way make room, and both changes
    /// are brought together where they merge. One that was left at an earlier commit catches up from there, in one step.
    pub fn update_checkouts(&self, branch: &str, old: &Oid, new: &Oid) -> Result<CheckoutUpdate> {
        let mut outcome = CheckoutUpdate::NotCheckedOut;
        for path in self.list_checkouts(branch)? {
            match self
                .update_checkout(&path, old, new)
                .inspect_err(|_| self.record_outdated_checkout(&path, old))?
            {
                Ok(None) if outcome == CheckoutUpdate::NotCheckedOut => {
                    outcome = CheckoutUpdate::Updated;
                }
                Ok(None) => {}
                Ok(Some(why)) => outcome = CheckoutUpdate::UpdatedFilesAside { why },
                Err(why) => {
                    let why = format!(
                        "{} was not updated, and committing there now would revert the landed work: {why}",
                        path.display()
                    );
                    outcome = CheckoutUpdate::LeftUnchanged { why };
                }
            }
        }
        Ok(outcome)
    }

    /// Brings along every checkout of the branch that an earlier follower was killed at, or that
    /// could not follow then. One that shows the branch already is left alone.
    pub fn resume_checkout_updates(&self, branch: &str) -> Result<()> {
        let Some(tip) = self.read_ref(&format!("refs/heads/{branch}"))? else { return Ok(()) };
        let main = self.toplevel().map(Path::to_path_buf);
        let linked =
            self.list_worktrees()?.into_iter().skip(1).map(|worktree| resolve_path(&worktree.path));
        let behind = main.into_iter().chain(linked).filter(|path| path.is_dir());
        let behind = behind.filter(|path| {
            self.find_worktree_git_dir(path)
                .is_ok_and(|git_dir| git_dir.join(OUTDATED_NOTE).exists())
        });
        if behind.count() > 0 {
            // Said again at the next landing if it cannot follow now either.
            let _ = self.update_checkouts(branch, &tip, &tip)?;
        }
        Ok(())
    }

    /// To be called before the branch moves: locks the index of every checkout of it, and notes there where it
    /// is now, so that whoever comes after a crash brings it along.
    pub fn lock_checkouts(&self, branch: &str, old: &Oid, new: &Oid) -> Result<CheckoutReadiness> {
        let touched = self.list_touched_files(old, new)?;
        let mut followers = LockedCheckouts::default();
        for checkout in self.list_checkouts(branch)? {
            match self.lock_checkout(&checkout, old, new, &touched) {
                Ok(Ok(follower)) => followers.0.push(follower),
                Ok(Err(obstacle)) => {
                    followers.release();
                    return Ok(CheckoutReadiness::Blocked(obstacle.at_checkout(checkout)));
                }
                Err(error) => {
                    followers.release();
                    return Err(error);
                }
            }
        }
        Ok(CheckoutReadiness::Locked(followers))
    }

    /// Locks one checkout, or says what is in the way there.
    fn lock_checkout(
        &self,
        path: &Path,
        old: &Oid,
        new: &Oid,
        touched: &[TouchedFile],
    ) -> Result<std::result::Result<LockedCheckout, CheckoutObstacle>> {
        let path = path.to_path_buf();
        let git_dir = self.find_worktree_git_dir(&path)?;
        self.finish_interrupted_update(&path, &git_dir)?;
        let Some(lock) = self.wait_for_index_lock(&git_dir)? else {
            return Ok(Err(busy_index_obstacle(&git_dir)));
        };
        let copy = self.create_index_copy(&git_dir)?;
        let checkout = CheckoutPaths { path: &path, git_dir: &git_dir, index_copy: &copy.0 };
        let from = match self.find_checkout_obstacle(&checkout, (old, new), (old, new), touched)? {
            Ok(from) => from,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let left = git_dir.join(OUTDATED_NOTE);
        let note = (!left.exists()).then(|| left.clone());
        files::write_atomic(&left, format!("{from}\n").as_bytes()).with_path("write", &left)?;
        Ok(Ok(LockedCheckout { path, git_dir, index_copy: copy, lock, from, outdated_note: note }))
    }

    /// Why a checkout cannot follow its branch from one commit to another; else what it shows now. `written` is
    /// between which commits files change.
    pub(super) fn find_checkout_obstacle(
        &self,
        checkout: &CheckoutPaths<'_>,
        (old, new): (&Oid, &Oid),
        written: (&Oid, &Oid),
        touched: &[TouchedFile],
    ) -> Result<std::result::Result<Oid, CheckoutObstacle>> {
        if let Some(what) = find_unfinished_command(checkout.git_dir) {
            let fix = "finish or abort the operation there".to_owned();
            return Ok(Err(CheckoutObstacle::from_trouble(format!("there is {what}"), fix)));
        }
        let from = match self.read_checkout_position(checkout, old, new)? {
            CheckoutPosition::AtCommit(from) => from,
            CheckoutPosition::BetweenCommits(commit) | CheckoutPosition::OlderCommit(commit) => {
                let what = format!(
                    "the files are those of the older commit {}, and committing them would revert later landings",
                    short_oid(&commit)
                );
                return Ok(Err(CheckoutObstacle::from_trouble(
                    what,
                    checkout.manual_update_command(&commit),
                )));
            }
        };
        self.refresh_index_copy(checkout)?;
        let yours = self.find_user_files(checkout, &from, touched)?;
        if !yours.is_empty() {
            return Ok(Err(CheckoutObstacle::Files(yours)));
        }
        let start = if written.0 == old { &from } else { written.0 };
        let room = self.find_disk_shortage(checkout, start, written.1)?;
        let full = |what| CheckoutObstacle::from_trouble(what, "free up disk space".to_owned());
        Ok(room.map_or(Ok(from), |what| Err(full(what))))
    }

    /// To be called once the branch has moved: brings its checkouts along.
    pub fn update_locked_checkouts(
        &self,
        followers: LockedCheckouts,
        new: &Oid,
    ) -> Result<CheckoutUpdate> {
        let mut outcome = CheckoutUpdate::NotCheckedOut;
        for follower in followers.0 {
            match (self.update_locked_checkout(follower, new)?, &outcome) {
                (None, CheckoutUpdate::NotCheckedOut) => outcome = CheckoutUpdate::Updated,
                (None, _) => {}
                (Some(why), _) => outcome = CheckoutUpdate::UpdatedFilesAside { why },
            }
        }
        Ok(outcome)
    }

    fn wait_for_index_lock(&self, git_dir: &Path) -> Result<Option<IndexLock>> {
        let deadline = Instant::now() + BUSY_WAIT;
        loop {
            match self.lock_index(git_dir)? {
                None if Instant::now() < deadline => std::thread::sleep(BUSY_PAUSE),
                lock => return Ok(lock),
            }
        }
    }

    /// Checkouts of a branch that still show an older commit, each with what brings it along. Looks
    /// only.
    pub fn list_outdated_checkouts(&self, branch: &str) -> Result<Vec<(PathBuf, String)>> {
        let mut behind = Vec::new();
        let Some(tip) = self.read_ref(&format!("refs/heads/{branch}"))? else { return Ok(behind) };
        for path in self.list_checkouts(branch)? {
            let git_dir = self.find_worktree_git_dir(&path)?;
            let Some(left) = self.read_outdated_commit(&git_dir)? else { continue };
            let index = git_dir.join("index");
            let checkout = CheckoutPaths { path: &path, git_dir: &git_dir, index_copy: &index };
            if self.count_index_matches(&checkout, &left, &tip)?.0 > 0 {
                let way = checkout.manual_update_command(&left);
                behind.push((path, way));
            }
        }
        Ok(behind)
    }

    /// The folders that have a branch checked out.
    pub(super) fn list_checkouts(&self, branch: &str) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for worktree in self.list_worktrees()? {
            if worktree.bare || worktree.branch.as_deref() != Some(branch) {
                continue;
            }
            let path = if self.is_main_worktree(&worktree.path) {
                self.toplevel().map(Path::to_path_buf)
            } else {
                Some(resolve_path(&worktree.path))
            };
            found.extend(path.filter(|path| path.is_dir()));
        }
        Ok(found)
    }

    /// A checkout that could not even be looked at is behind all the same: whoever comes next must know.
    fn record_outdated_checkout(&self, path: &Path, old: &Oid) {
        if let Ok(left) =
            self.find_worktree_git_dir(path).map(|git_dir| git_dir.join(OUTDATED_NOTE))
            && !left.exists()
        {
            // The error that is told matters more than one that comes after it.
            let _ = files::write_atomic(&left, format!("{old}\n").as_bytes());
        }
    }

    /// Git lists the main worktree of a submodule by its git dir.
    fn is_main_worktree(&self, path: &Path) -> bool {
        let path = resolve_path(path);
        self.toplevel() == Some(&path) || self.common_dir() == path
    }

    /// What became of the user's files that were in the way; or why the checkout was left as it is.
    fn update_checkout(
        &self,
        path: &Path,
        old: &Oid,
        new: &Oid,
    ) -> Result<std::result::Result<Option<String>, String>> {
        let git_dir = self.find_worktree_git_dir(path)?;
        self.finish_interrupted_update(path, &git_dir)?;
        // Tried on a copy first, so that a refusal leaves not even a refreshed index behind.
        let copy = self.create_index_copy(&git_dir)?;
        let checkout = CheckoutPaths { path, git_dir: &git_dir, index_copy: &copy.0 };
        let from = match self.read_checkout_position(&checkout, old, new)? {
            CheckoutPosition::AtCommit(from) => from,
            CheckoutPosition::BetweenCommits(left) => {
                let way = checkout.manual_update_command(&left);
                return Ok(Err(format!("only some of the files are newer than {left}; {way}")));
            }
            CheckoutPosition::OlderCommit(commit) => {
                let way = checkout.manual_update_command(&commit);
                return Ok(Err(format!(
                    "what is staged there is the older {commit}; if you did not do that, {way}"
                )));
            }
        };
        // Said before anything is tried: killed at any moment, the next try knows where to start.
        let left = git_dir.join(OUTDATED_NOTE);
        files::write_atomic(&left, format!("{from}\n").as_bytes()).with_path("write", &left)?;
        let way = checkout.manual_update_command(&from);
        if let Some(what) = find_unfinished_command(&git_dir) {
            return Ok(Err(format!("there is {what}; finish or abort the operation, then {way}")));
        }
        // Held to the end: a commit of the person's meanwhile would have half of the landing.
        let Some(lock) = self.wait_for_index_lock(&git_dir)? else {
            return Ok(Err(format!(
                "another git command is running there (index.lock); when that command has finished, {way}"
            )));
        };
        self.copy_index(&git_dir, &copy.0)?;
        if let Some(why) = self.find_disk_shortage(&checkout, &from, new)? {
            return Ok(Err(format!("{why}; after freeing space, {way}")));
        }
        self.refresh_index_copy(&checkout)?;
        let (path, note) = (path.to_path_buf(), None);
        self.update_locked_checkout(
            LockedCheckout { path, git_dir, index_copy: copy, lock, from, outdated_note: note },
            new,
        )
        .map(Ok)
    }

    /// Brings index and files of a locked checkout to another commit. Says what became of files of the user's
    /// that were in the way.
    fn update_locked_checkout(&self, follower: LockedCheckout, to: &Oid) -> Result<Option<String>> {
        let LockedCheckout { path, git_dir, index_copy: copy, lock, from, .. } = follower;
        let checkout = CheckoutPaths { path: &path, git_dir: &git_dir, index_copy: &copy.0 };
        let touched = self.list_touched_files(&from, to)?;
        // What this step leaves half done is ours to put right, and nothing else is.
        let step = git_dir.join(UPDATE_NOTE);
        files::write_atomic(&step, format!("{from} {to}\n").as_bytes())
            .with_path("write", &step)?;
        let mut aside = Vec::new();
        for last in (0..ASIDE_TRIES).rev() {
            // The index too is on disk before anybody is told that the checkout has followed.
            let git = self.git_in_worktree(&git_dir, &path).env("GIT_INDEX_FILE", &copy.0);
            let git = git.config_setting("core.fsync=added").timeout(TIMEOUT_CHECKOUT);
            let yours = self.find_user_files(&checkout, &from, &touched)?;
            aside.extend(self.move_user_files_aside(&checkout, &from, &touched, &yours)?);
            let act = git.args(["read-tree", "-m", "-u", from.as_str(), to.as_str()]);
            match act.run() {
                Ok(_) => break,
                // An edit in this very moment; git refuses before it touches anything.
                Err(GitError::Failed { code: Some(_), .. }) if last > 0 => {
                    self.refresh_index_copy(&checkout)?;
                }
                Err(error) => {
                    self.finish_interrupted_update(&path, &git_dir)?;
                    return Err(error);
                }
            }
        }
        lock.replace_with(&copy.0, &git_dir.join("index"))?;
        let index = git_dir.join("index");
        let shown = CheckoutPaths { path: &path, git_dir: &git_dir, index_copy: &index };
        let notes = self.merge_user_files_back(&shown, &aside)?;
        // The files first: once the note is gone, whatever they are counts as the user's.
        files::sync_filesystem(&path).with_path("sync", &path)?;
        for note in [step, git_dir.join(OUTDATED_NOTE)] {
            files::remove_all(&note).with_path("remove", &note)?;
        }
        Ok((!notes.is_empty()).then(|| notes.join("; ")))
    }

    /// Takes the lock of a checkout's index as git does; `None` if somebody has it.
    fn lock_index(&self, git_dir: &Path) -> Result<Option<IndexLock>> {
        let path = git_dir.join("index.lock");
        let mark = self.write_lock_note(std::slice::from_ref(&path))?;
        match fs::File::create_new(&path) {
            Ok(_) => Ok(Some(IndexLock { path: Some(path), _mark: mark })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error).with_path("create", &path),
        }
    }

    /// Puts right what a step left half done, if one did.
    fn finish_interrupted_update(&self, path: &Path, git_dir: &Path) -> Result<()> {
        let step = git_dir.join(UPDATE_NOTE);
        let text = match fs::read(&step) {
            Ok(bytes) => lossy_string(bytes.trim_ascii()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_path("read", &step),
        };
        // A power loss can leave it empty: then nothing came after it.
        if let Some((from, to)) = text.split_once(' ')
            && let (Some(from), Some(to)) = (self.resolve_commit(from)?, self.resolve_commit(to)?)
        {
            self.repair_checkout(path, git_dir, &from, &to)?;
            files::sync_filesystem(path).with_path("sync", path)?;
        }
        files::remove_all(&step).with_path("remove", &step)
    }

    /// Why the files that a step writes have no room, if they have none.
    fn find_disk_shortage(
        &self,
        checkout: &CheckoutPaths<'_>,
        from: &Oid,
        to: &Oid,
    ) -> Result<Option<String>> {
        let index = checkout.git_dir.join("index");
        let index = fs::metadata(index).map_or(0, |meta| meta.len());
        let needed = self.count_bytes_to_write(from, to)? + 2 * index + DISK_SPARE;
        let free = files::free_bytes(checkout.path).with_path("look at", checkout.path)?;
        let no_room = format!(
            "not enough disk space for the new files ({} MiB needed)",
            needed.div_ceil(1 << 20)
        );
        Ok((free < needed).then_some(no_room))
    }

    pub(super) fn create_index_copy(&self, git_dir: &Path) -> Result<PrivateIndex> {
        self.create_temp_dir()?;
        let copy = PrivateIndex(self.temp_path("index"));
        self.copy_index(git_dir, &copy.0)?;
        Ok(copy)
    }

    fn copy_index(&self, git_dir: &Path, copy: &Path) -> Result<()> {
        let own = git_dir.join("index");
        if own.exists() {
            let time =
                fs::metadata(&own).and_then(|meta| meta.modified()).with_path("look at", &own)?;
            fs::copy(&own, copy).with_path("copy", &own)?;
            let file = fs::File::options().write(true).open(copy);
            file.and_then(|file| file.set_modified(time)).with_path("copy", &own)?;
        }
        Ok(())
    }

    /// Which commit a checkout shows, whatever its HEAD says since the branch moved.
    fn read_checkout_position(
        &self,
        checkout: &CheckoutPaths<'_>,
        old: &Oid,
        new: &Oid,
    ) -> Result<CheckoutPosition> {
        if let Some(left) = self.read_outdated_commit(checkout.git_dir)? {
            let (at_left, at_old) = self.count_index_matches(checkout, &left, old)?;
            return Ok(match (at_left, at_old) {
                // The person caught up, or a killed follower had done it already.
                (0, _) => CheckoutPosition::AtCommit(old.clone()),
                (_, 0) => CheckoutPosition::AtCommit(left),
                _ => CheckoutPosition::BetweenCommits(left),
            });
        }
        let git = || {
            self.git_in_worktree(checkout.git_dir, checkout.path)
                .env("GIT_INDEX_FILE", checkout.index_copy)
        };
        let args = ["diff-index", "--cached", "--quiet", old.as_str(), "--"];
        if git().args(args).accept_exit_codes(&[1]).run()?.code == 0 {
            return Ok(CheckoutPosition::AtCommit(old.clone()));
        }
        let tree = match git().arg("write-tree").run() {
            Ok(answer) => parse_oid(answer.single_line()?, &answer)?,
            // Conflicts are no commit's files.
            Err(GitError::Failed { code: Some(_), .. }) => {
                return Ok(CheckoutPosition::AtCommit(old.clone()));
            }
            Err(error) => return Err(error),
        };
        if tree == self.tree_of(new)? {
            return Ok(CheckoutPosition::AtCommit(old.clone()));
        }
        let recent = self
            .git()
            .args(["log", "--first-parent", "--no-show-signature", "--format=%H %T"])
            .args(["-n", RECENT_MAX, old.as_str(), "--"])
            .run()?;
        let same = recent.single_line()?.lines().filter_map(|line| line.split_once(' '));
        let same = same.into_iter().find(|(_, its)| *its == tree.as_str());
        Ok(same.map_or(CheckoutPosition::AtCommit(old.clone()), |(commit, _)| {
            CheckoutPosition::OlderCommit(Oid::new(commit))
        }))
    }

    /// Where we left a checkout; `None` if it followed, or if that commit no longer exists.
    fn read_outdated_commit(&self, git_dir: &Path) -> Result<Option<Oid>> {
        let file = git_dir.join(OUTDATED_NOTE);
        let text = match fs::read(&file) {
            Ok(bytes) => lossy_string(bytes.trim_ascii()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_path("read", &file),
        };
        // A power loss can leave it empty.
        if is_oid(&text) { self.resolve_commit(&text) } else { Ok(None) }
    }

    /// Of the files that differ between two commits, how many the index has as in either.
    fn count_index_matches(
        &self,
        checkout: &CheckoutPaths<'_>,
        left: &Oid,
        old: &Oid,
    ) -> Result<(usize, usize)> {
        let diff = self.diff_tree(left, old, &["-r", "-z", "--no-renames", "--no-abbrev"]).run()?;
        if diff.stdout.is_empty() {
            return Ok((0, 0));
        }
        let git = self.git_in_worktree(checkout.git_dir, checkout.path);
        let listed =
            git.env("GIT_INDEX_FILE", checkout.index_copy).args(["ls-files", "-s", "-z"]).run()?;
        let mut index = HashMap::new();
        for entry in split_nul(&listed.stdout) {
            let tab =
                entry.iter().position(|&b| b == b'\t').ok_or_else(|| listed.bad_output_error())?;
            // `<mode> <id> <stage>`; one in conflict is like neither.
            index.insert(&entry[tab + 1..], lossy_string(&entry[..tab]));
        }
        let (mut at_left, mut at_old) = (0, 0);
        let records: Vec<&[u8]> = split_nul(&diff.stdout).collect();
        for record in records.chunks(2) {
            let [what, name] = record else { return Err(diff.bad_output_error()) };
            let what = lossy_string(what);
            let words: Vec<&str> = what.trim_start_matches(':').split(' ').collect();
            let [mode, mode_old, id, id_old, _] = words[..] else {
                return Err(diff.bad_output_error());
            };
            let here = index.get(name).map(String::as_str);
            let is = |mode: &str, id: &str| match here {
                None => mode == "000000",
                Some(here) => here == format!("{mode} {id} 0"),
            };
            at_left += usize::from(is(mode, id));
            at_old += usize::from(is(mode_old, id_old));
        }
        Ok((at_left, at_old))
    }
}

impl CheckoutPaths<'_> {
    /// What brings it along by hand; nothing of the person's is touched, or git refuses.
    fn manual_update_command(&self, from: &Oid) -> String {
        let place = shell_quote(&self.path.to_string_lossy());
        let from = short_oid(from);
        format!("run `git -C {place} read-tree -m -u {from} HEAD`")
    }
}

fn short_oid(commit: &Oid) -> &str {
    commit.as_str().get(..12).unwrap_or(commit.as_str())
}

/// `text` as one word of a shell command.
fn shell_quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
