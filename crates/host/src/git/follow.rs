//! Brings checkouts of a branch along after the branch was moved under them.
//!
//! Its index is locked before the branch moves, and until its files have followed, so that no git of the
//! user's makes a commit in between. Whatever of the user's is in the way is found before the branch moves;
//! what comes in between is put aside ([`super::yours`]).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mainstem_core::id::Oid;

use super::error::{GitError, OnPath, Result};
use super::locks::Mark;
use super::mend::Touched;
use super::run::TIMEOUT_CHECKOUT;
use super::stage::PrivateIndex;
use super::yours::{InTheWay, Obstacle, busy, unfinished};
use super::{Repo, is_oid, lossy, oid, parts, settled};
use crate::files;

/// In the git dir of a checkout that could not follow: the commit it shows.
const LEFT: &str = "mainstem-left";
/// In the git dir of a checkout while index and files are written: from which commit to which.
const STEP: &str = "mainstem-step";
/// Room that stays free on the disk besides what is written.
const ROOM_SPARE: u64 = 1 << 20;
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
pub enum Follow {
    /// Nobody has the branch checked out.
    NotCheckedOut,
    /// Every checkout shows the new commit now.
    Moved,
    /// So it is, and files of the user's that came in the way had to make room.
    Aside {
        /// What became of them.
        why: String,
    },
    /// At least one was left exactly as it is.
    Left {
        /// The reason, and what the person can do.
        why: String,
    },
}

/// Which commit the index of a checkout stands for, edits aside.
enum Shown {
    /// This one.
    At(Oid),
    /// Partly the one it was left at, partly what came after: only a person knows what is meant.
    Between(Oid),
    /// Exactly an older one, and we did not leave it there: it may be meant.
    Older(Oid),
}

/// Whether the checkouts of a branch can follow where it is about to move.
#[derive(Debug)]
#[must_use]
pub enum Ready {
    /// All of them; their indexes are locked until this is dropped or followed.
    Go(Followers),
    /// Something of the user's is in the way, and nothing is locked.
    Blocked(InTheWay),
}

/// The checkouts of a branch that is about to move, or has just moved.
#[derive(Debug, Default)]
#[must_use]
pub struct Followers(Vec<Follower>);

#[derive(Debug)]
struct Follower {
    path: PathBuf,
    git_dir: PathBuf,
    copy: PrivateIndex,
    lock: IndexLock,
    /// What it shows.
    from: Oid,
    /// The note that says so, if it is ours to take back.
    note: Option<PathBuf>,
}

impl Followers {
    /// The branch did not move.
    pub fn withdraw(self) {
        for follower in self.0 {
            if let Some(note) = follower.note {
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
    _mark: Mark,
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
        done.on("write", own)
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
pub(super) struct Checkout<'a> {
    pub(super) path: &'a Path,
    pub(super) git_dir: &'a Path,
    /// The index that is worked on: a copy until all is done.
    pub(super) copy: &'a Path,
}

impl Repo {
    /// After `refs/heads/<branch>` went from `old` to `new`: updates index and files of each
    /// worktree that has it checked out. Files of the user's that are in the way make room, and both changes
    /// are brought together where they merge. One that was left at an earlier commit catches up from there, in one step.
    pub fn follow_checkout(&self, branch: &str, old: &Oid, new: &Oid) -> Result<Follow> {
        let mut outcome = Follow::NotCheckedOut;
        for path in self.checkouts(branch)? {
            match self.follow_one(&path, old, new).inspect_err(|_| self.note_left(&path, old))? {
                Ok(None) if outcome == Follow::NotCheckedOut => outcome = Follow::Moved,
                Ok(None) => {}
                Ok(Some(why)) => outcome = Follow::Aside { why },
                Err(why) => {
                    let why = format!(
                        "{} was not updated, and committing there now would revert the landed work: {why}",
                        path.display()
                    );
                    outcome = Follow::Left { why };
                }
            }
        }
        Ok(outcome)
    }

    /// Brings along every checkout of the branch that an earlier follower was killed at, or that
    /// could not follow then. One that shows the branch already is left alone.
    pub fn catch_up(&self, branch: &str) -> Result<()> {
        let Some(tip) = self.read_ref(&format!("refs/heads/{branch}"))? else { return Ok(()) };
        let main = self.toplevel().map(Path::to_path_buf);
        let linked = self.worktrees()?.into_iter().skip(1).map(|worktree| settled(&worktree.path));
        let behind = main.into_iter().chain(linked).filter(|path| path.is_dir());
        let behind = behind
            .filter(|path| self.git_dir_of(path).is_ok_and(|git_dir| git_dir.join(LEFT).exists()));
        if behind.count() > 0 {
            // Said again at the next landing if it cannot follow now either.
            let _ = self.follow_checkout(branch, &tip, &tip)?;
        }
        Ok(())
    }

    /// To be called before the branch moves: locks the index of every checkout of it, and notes there where it
    /// is now, so that whoever comes after a crash brings it along.
    pub fn hold_checkouts(&self, branch: &str, old: &Oid, new: &Oid) -> Result<Ready> {
        let touched = self.touched(old, new)?;
        let mut followers = Followers::default();
        for checkout in self.checkouts(branch)? {
            match self.hold_one(&checkout, old, new, &touched) {
                Ok(Ok(follower)) => followers.0.push(follower),
                Ok(Err(obstacle)) => {
                    followers.withdraw();
                    return Ok(Ready::Blocked(obstacle.at(checkout)));
                }
                Err(error) => {
                    followers.withdraw();
                    return Err(error);
                }
            }
        }
        Ok(Ready::Go(followers))
    }

    /// Locks one checkout, or says what is in the way there.
    fn hold_one(
        &self,
        path: &Path,
        old: &Oid,
        new: &Oid,
        touched: &[Touched],
    ) -> Result<std::result::Result<Follower, Obstacle>> {
        let path = path.to_path_buf();
        let git_dir = self.git_dir_of(&path)?;
        self.finish_step(&path, &git_dir)?;
        let Some(lock) = self.wait_for_index(&git_dir)? else { return Ok(Err(busy(&git_dir))) };
        let copy = self.index_copy(&git_dir)?;
        let checkout = Checkout { path: &path, git_dir: &git_dir, copy: &copy.0 };
        let from = match self.obstacle(&checkout, (old, new), (old, new), touched)? {
            Ok(from) => from,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let left = git_dir.join(LEFT);
        let note = (!left.exists()).then(|| left.clone());
        files::write_atomic(&left, format!("{from}\n").as_bytes()).on("write", &left)?;
        Ok(Ok(Follower { path, git_dir, copy, lock, from, note }))
    }

    /// Why a checkout cannot follow its branch from one commit to another; else what it shows now. `written` is
    /// between which commits files change.
    pub(super) fn obstacle(
        &self,
        checkout: &Checkout<'_>,
        (old, new): (&Oid, &Oid),
        written: (&Oid, &Oid),
        touched: &[Touched],
    ) -> Result<std::result::Result<Oid, Obstacle>> {
        if let Some(what) = unfinished(checkout.git_dir) {
            let fix = "finish or abort the operation there".to_owned();
            return Ok(Err(Obstacle::trouble(format!("there is {what}"), fix)));
        }
        let from = match self.shown(checkout, old, new)? {
            Shown::At(from) => from,
            Shown::Between(commit) | Shown::Older(commit) => {
                let what = format!(
                    "the files are those of the older commit {}, and committing them would revert later landings",
                    short(&commit)
                );
                return Ok(Err(Obstacle::trouble(what, checkout.catch_up(&commit))));
            }
        };
        self.refresh(checkout)?;
        let yours = self.yours(checkout, &from, touched)?;
        if !yours.is_empty() {
            return Ok(Err(Obstacle::Files(yours)));
        }
        let start = if written.0 == old { &from } else { written.0 };
        let room = self.no_room(checkout, start, written.1)?;
        let full = |what| Obstacle::trouble(what, "free up disk space".to_owned());
        Ok(room.map_or(Ok(from), |what| Err(full(what))))
    }

    /// To be called once the branch has moved: brings its checkouts along.
    pub fn follow(&self, followers: Followers, new: &Oid) -> Result<Follow> {
        let mut outcome = Follow::NotCheckedOut;
        for follower in followers.0 {
            match (self.move_along(follower, new)?, &outcome) {
                (None, Follow::NotCheckedOut) => outcome = Follow::Moved,
                (None, _) => {}
                (Some(why), _) => outcome = Follow::Aside { why },
            }
        }
        Ok(outcome)
    }

    fn wait_for_index(&self, git_dir: &Path) -> Result<Option<IndexLock>> {
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
    pub fn left_behind(&self, branch: &str) -> Result<Vec<(PathBuf, String)>> {
        let mut behind = Vec::new();
        let Some(tip) = self.read_ref(&format!("refs/heads/{branch}"))? else { return Ok(behind) };
        for path in self.checkouts(branch)? {
            let git_dir = self.git_dir_of(&path)?;
            let Some(left) = self.left_at(&git_dir)? else { continue };
            let index = git_dir.join("index");
            let checkout = Checkout { path: &path, git_dir: &git_dir, copy: &index };
            if self.weigh(&checkout, &left, &tip)?.0 > 0 {
                let way = checkout.catch_up(&left);
                behind.push((path, way));
            }
        }
        Ok(behind)
    }

    /// The folders that have a branch checked out.
    pub(super) fn checkouts(&self, branch: &str) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for worktree in self.worktrees()? {
            if worktree.bare || worktree.branch.as_deref() != Some(branch) {
                continue;
            }
            let path = if self.is_main(&worktree.path) {
                self.toplevel().map(Path::to_path_buf)
            } else {
                Some(settled(&worktree.path))
            };
            found.extend(path.filter(|path| path.is_dir()));
        }
        Ok(found)
    }

    /// A checkout that could not even be looked at is behind all the same: whoever comes next must know.
    fn note_left(&self, path: &Path, old: &Oid) {
        if let Ok(left) = self.git_dir_of(path).map(|git_dir| git_dir.join(LEFT))
            && !left.exists()
        {
            // The error that is told matters more than one that comes after it.
            let _ = files::write_atomic(&left, format!("{old}\n").as_bytes());
        }
    }

    /// Git lists the main worktree of a submodule by its git dir.
    fn is_main(&self, path: &Path) -> bool {
        let path = settled(path);
        self.toplevel() == Some(&path) || self.common_dir() == path
    }

    /// What became of the user's files that were in the way; or why the checkout was left as it is.
    fn follow_one(
        &self,
        path: &Path,
        old: &Oid,
        new: &Oid,
    ) -> Result<std::result::Result<Option<String>, String>> {
        let git_dir = self.git_dir_of(path)?;
        self.finish_step(path, &git_dir)?;
        // Tried on a copy first, so that a refusal leaves not even a refreshed index behind.
        let copy = self.index_copy(&git_dir)?;
        let checkout = Checkout { path, git_dir: &git_dir, copy: &copy.0 };
        let from = match self.shown(&checkout, old, new)? {
            Shown::At(from) => from,
            Shown::Between(left) => {
                let way = checkout.catch_up(&left);
                return Ok(Err(format!("only some of the files are newer than {left}; {way}")));
            }
            Shown::Older(commit) => {
                let way = checkout.catch_up(&commit);
                return Ok(Err(format!(
                    "what is staged there is the older {commit}; if you did not do that, {way}"
                )));
            }
        };
        // Said before anything is tried: killed at any moment, the next try knows where to start.
        let left = git_dir.join(LEFT);
        files::write_atomic(&left, format!("{from}\n").as_bytes()).on("write", &left)?;
        let way = checkout.catch_up(&from);
        if let Some(what) = unfinished(&git_dir) {
            return Ok(Err(format!("there is {what}; finish or abort the operation, then {way}")));
        }
        // Held to the end: a commit of the person's meanwhile would have half of the landing.
        let Some(lock) = self.wait_for_index(&git_dir)? else {
            return Ok(Err(format!(
                "another git command is running there (index.lock); when that command has finished, {way}"
            )));
        };
        self.copy_index(&git_dir, &copy.0)?;
        if let Some(why) = self.no_room(&checkout, &from, new)? {
            return Ok(Err(format!("{why}; after freeing space, {way}")));
        }
        self.refresh(&checkout)?;
        let (path, note) = (path.to_path_buf(), None);
        self.move_along(Follower { path, git_dir, copy, lock, from, note }, new).map(Ok)
    }

    /// Brings index and files of a locked checkout to another commit. Says what became of files of the user's
    /// that were in the way.
    fn move_along(&self, follower: Follower, to: &Oid) -> Result<Option<String>> {
        let Follower { path, git_dir, copy, lock, from, .. } = follower;
        let checkout = Checkout { path: &path, git_dir: &git_dir, copy: &copy.0 };
        let touched = self.touched(&from, to)?;
        // What this step leaves half done is ours to put right, and nothing else is.
        let step = git_dir.join(STEP);
        files::write_atomic(&step, format!("{from} {to}\n").as_bytes()).on("write", &step)?;
        let mut aside = Vec::new();
        for last in (0..ASIDE_TRIES).rev() {
            // The index too is on disk before anybody is told that the checkout has followed.
            let git = self.git_in(&git_dir, &path).env("GIT_INDEX_FILE", &copy.0);
            let git = git.set("core.fsync=added").timeout(TIMEOUT_CHECKOUT);
            let yours = self.yours(&checkout, &from, &touched)?;
            aside.extend(self.put_aside(&checkout, &from, &touched, &yours)?);
            let act = git.args(["read-tree", "-m", "-u", from.as_str(), to.as_str()]);
            match act.run() {
                Ok(_) => break,
                // An edit in this very moment; git refuses before it touches anything.
                Err(GitError::Failed { code: Some(_), .. }) if last > 0 => {
                    self.refresh(&checkout)?;
                }
                Err(error) => {
                    self.finish_step(&path, &git_dir)?;
                    return Err(error);
                }
            }
        }
        lock.replace_with(&copy.0, &git_dir.join("index"))?;
        let index = git_dir.join("index");
        let shown = Checkout { path: &path, git_dir: &git_dir, copy: &index };
        let notes = self.take_up_again(&shown, &aside)?;
        // The files first: once the note is gone, whatever they are counts as the user's.
        files::sync_filesystem(&path).on("sync", &path)?;
        for note in [step, git_dir.join(LEFT)] {
            files::remove_all(&note).on("remove", &note)?;
        }
        Ok((!notes.is_empty()).then(|| notes.join("; ")))
    }

    /// Takes the lock of a checkout's index as git does; `None` if somebody has it.
    fn lock_index(&self, git_dir: &Path) -> Result<Option<IndexLock>> {
        let path = git_dir.join("index.lock");
        let mark = self.mark(std::slice::from_ref(&path))?;
        match fs::File::create_new(&path) {
            Ok(_) => Ok(Some(IndexLock { path: Some(path), _mark: mark })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error).on("create", &path),
        }
    }

    /// Puts right what a step left half done, if one did.
    fn finish_step(&self, path: &Path, git_dir: &Path) -> Result<()> {
        let step = git_dir.join(STEP);
        let text = match fs::read(&step) {
            Ok(bytes) => lossy(bytes.trim_ascii()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).on("read", &step),
        };
        // A power loss can leave it empty: then nothing came after it.
        if let Some((from, to)) = text.split_once(' ')
            && let (Some(from), Some(to)) = (self.resolve(from)?, self.resolve(to)?)
        {
            self.mend(path, git_dir, &from, &to)?;
            files::sync_filesystem(path).on("sync", path)?;
        }
        files::remove_all(&step).on("remove", &step)
    }

    /// Why the files that a step writes have no room, if they have none.
    fn no_room(&self, checkout: &Checkout<'_>, from: &Oid, to: &Oid) -> Result<Option<String>> {
        let index = checkout.git_dir.join("index");
        let index = fs::metadata(index).map_or(0, |meta| meta.len());
        let needed = self.bytes_written(from, to)? + 2 * index + ROOM_SPARE;
        let free = files::free_bytes(checkout.path).on("look at", checkout.path)?;
        let no_room = format!(
            "not enough disk space for the new files ({} MiB needed)",
            needed.div_ceil(1 << 20)
        );
        Ok((free < needed).then_some(no_room))
    }

    pub(super) fn index_copy(&self, git_dir: &Path) -> Result<PrivateIndex> {
        self.make_tmp_dir()?;
        let copy = PrivateIndex(self.tmp("index"));
        self.copy_index(git_dir, &copy.0)?;
        Ok(copy)
    }

    fn copy_index(&self, git_dir: &Path, copy: &Path) -> Result<()> {
        let own = git_dir.join("index");
        if own.exists() {
            let time = fs::metadata(&own).and_then(|meta| meta.modified()).on("look at", &own)?;
            fs::copy(&own, copy).on("copy", &own)?;
            let file = fs::File::options().write(true).open(copy);
            file.and_then(|file| file.set_modified(time)).on("copy", &own)?;
        }
        Ok(())
    }

    /// Which commit a checkout shows, whatever its HEAD says since the branch moved.
    fn shown(&self, checkout: &Checkout<'_>, old: &Oid, new: &Oid) -> Result<Shown> {
        if let Some(left) = self.left_at(checkout.git_dir)? {
            let (at_left, at_old) = self.weigh(checkout, &left, old)?;
            return Ok(match (at_left, at_old) {
                // The person caught up, or a killed follower had done it already.
                (0, _) => Shown::At(old.clone()),
                (_, 0) => Shown::At(left),
                _ => Shown::Between(left),
            });
        }
        let git =
            || self.git_in(checkout.git_dir, checkout.path).env("GIT_INDEX_FILE", checkout.copy);
        let args = ["diff-index", "--cached", "--quiet", old.as_str(), "--"];
        if git().args(args).accept(&[1]).run()?.code == 0 {
            return Ok(Shown::At(old.clone()));
        }
        let tree = match git().arg("write-tree").run() {
            Ok(answer) => oid(answer.line()?, &answer)?,
            // Conflicts are no commit's files.
            Err(GitError::Failed { code: Some(_), .. }) => return Ok(Shown::At(old.clone())),
            Err(error) => return Err(error),
        };
        if tree == self.tree_of(new)? {
            return Ok(Shown::At(old.clone()));
        }
        let recent = self
            .git()
            .args(["log", "--first-parent", "--no-show-signature", "--format=%H %T"])
            .args(["-n", RECENT_MAX, old.as_str(), "--"])
            .run()?;
        let same = recent.line()?.lines().filter_map(|line| line.split_once(' '));
        let same = same.into_iter().find(|(_, its)| *its == tree.as_str());
        Ok(same.map_or(Shown::At(old.clone()), |(commit, _)| Shown::Older(Oid::new(commit))))
    }

    /// Where we left a checkout; `None` if it followed, or if that commit no longer exists.
    fn left_at(&self, git_dir: &Path) -> Result<Option<Oid>> {
        let file = git_dir.join(LEFT);
        let text = match fs::read(&file) {
            Ok(bytes) => lossy(bytes.trim_ascii()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).on("read", &file),
        };
        // A power loss can leave it empty.
        if is_oid(&text) { self.resolve(&text) } else { Ok(None) }
    }

    /// Of the files that differ between two commits, how many the index has as in either.
    fn weigh(&self, checkout: &Checkout<'_>, left: &Oid, old: &Oid) -> Result<(usize, usize)> {
        let diff = self.diff_tree(left, old, &["-r", "-z", "--no-renames", "--no-abbrev"]).run()?;
        if diff.stdout.is_empty() {
            return Ok((0, 0));
        }
        let git = self.git_in(checkout.git_dir, checkout.path);
        let listed =
            git.env("GIT_INDEX_FILE", checkout.copy).args(["ls-files", "-s", "-z"]).run()?;
        let mut index = HashMap::new();
        for entry in parts(&listed.stdout) {
            let tab = entry.iter().position(|&b| b == b'\t').ok_or_else(|| listed.bad())?;
            // `<mode> <id> <stage>`; one in conflict is like neither.
            index.insert(&entry[tab + 1..], lossy(&entry[..tab]));
        }
        let (mut at_left, mut at_old) = (0, 0);
        let records: Vec<&[u8]> = parts(&diff.stdout).collect();
        for record in records.chunks(2) {
            let [what, name] = record else { return Err(diff.bad()) };
            let what = lossy(what);
            let words: Vec<&str> = what.trim_start_matches(':').split(' ').collect();
            let [mode, mode_old, id, id_old, _] = words[..] else { return Err(diff.bad()) };
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

impl Checkout<'_> {
    /// What brings it along by hand; nothing of the person's is touched, or git refuses.
    fn catch_up(&self, from: &Oid) -> String {
        let place = quoted(&self.path.to_string_lossy());
        let from = short(from);
        format!("run `git -C {place} read-tree -m -u {from} HEAD`")
    }
}

fn short(commit: &Oid) -> &str {
    commit.as_str().get(..12).unwrap_or(commit.as_str())
}

/// `text` as one word of a shell command.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
