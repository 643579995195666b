//! Brings checkouts of a branch along after the branch was moved under them.
//!
//! The user's files come first: either a checkout follows completely, edits kept, or nothing in it changes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::error::{GitError, OnPath, Result};
use super::locks::Mark;
use super::run::{Answer, TIMEOUT_CHECKOUT};
use super::stage::PrivateIndex;
use super::worktree::UNFINISHED;
use super::{Repo, is_oid, lossy, oid, parts, path_from, settled};
use crate::files;

/// In the git dir of a checkout that could not follow: the commit it shows.
const LEFT: &str = "mainstem-left";
/// In the git dir of a checkout while index and files are written: from which commit to which.
const STEP: &str = "mainstem-step";
/// Room that stays free on the disk besides what is written.
const ROOM_SPARE: u64 = 1 << 20;
/// How far back a checkout without that file is looked for.
const RECENT_MAX: &str = "64";

/// What became of the checkouts of a moved branch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Follow {
    /// Nobody has the branch checked out.
    NotCheckedOut,
    /// Every checkout shows the new commit now.
    Moved,
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

/// Checkouts that have a note of where they are, because their branch is about to move.
#[derive(Debug, Default)]
#[must_use]
pub struct Expected(Vec<PathBuf>);

impl Expected {
    /// The branch did not move.
    pub fn withdraw(self) {
        for note in self.0 {
            // One that stays only makes the next follower look once more.
            let _ = fs::remove_file(note);
        }
    }
}

/// The lock of somebody's index, held by us.
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
struct Checkout<'a> {
    path: &'a Path,
    git_dir: &'a Path,
    copy: &'a Path,
}

impl Repo {
    /// After `refs/heads/<branch>` went from `old` to `new`: updates index and files of each
    /// worktree that has it checked out, if none of the touched files is in the way, or edited so that
    /// it cannot have both changes.
    /// One that was left at an earlier commit catches up from there, in one step.
    pub fn follow_checkout(&self, branch: &str, old: &Oid, new: &Oid) -> Result<Follow> {
        let mut outcome = Follow::NotCheckedOut;
        for path in self.checkouts(branch)? {
            match self.follow_one(&path, old, new).inspect_err(|_| self.note_left(&path, old))? {
                None if outcome == Follow::NotCheckedOut => outcome = Follow::Moved,
                None => {}
                Some(why) => {
                    let why = format!(
                        "{} was left as it is, and a commit there with its old files would take the \
                         landing back: {why}",
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

    /// To be called before the branch moves: notes in every checkout of it where it is now, so that
    /// whoever comes after a crash brings it along.
    pub fn expect_move(&self, branch: &str, old: &Oid, new: &Oid) -> Result<Expected> {
        let mut expected = Expected::default();
        for path in self.checkouts(branch)? {
            let git_dir = self.git_dir_of(&path)?;
            let left = git_dir.join(LEFT);
            if left.exists() {
                continue;
            }
            let copy = self.index_copy(&git_dir)?;
            let checkout = Checkout { path: &path, git_dir: &git_dir, copy: &copy.0 };
            if let Shown::At(from) = self.shown(&checkout, old, new)? {
                files::write_atomic(&left, format!("{from}\n").as_bytes()).on("write", &left)?;
                expected.0.push(left);
            }
        }
        Ok(expected)
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
    fn checkouts(&self, branch: &str) -> Result<Vec<PathBuf>> {
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

    fn follow_one(&self, path: &Path, old: &Oid, new: &Oid) -> Result<Option<String>> {
        let git_dir = self.git_dir_of(path)?;
        self.finish_step(path, &git_dir)?;
        // Tried on a copy first, so that a refusal leaves not even a refreshed index behind.
        let copy = self.index_copy(&git_dir)?;
        let checkout = Checkout { path, git_dir: &git_dir, copy: &copy.0 };
        let from = match self.shown(&checkout, old, new)? {
            Shown::At(from) => from,
            Shown::Between(left) => {
                let way = checkout.catch_up(&left);
                return Ok(Some(format!("only some of its files are newer than {left}; {way}")));
            }
            Shown::Older(commit) => {
                let way = checkout.catch_up(&commit);
                return Ok(Some(format!(
                    "what is staged there is the older {commit}; if you did not do that, {way}"
                )));
            }
        };
        // Said before anything is tried: killed at any moment, the next try knows where to start.
        let left = git_dir.join(LEFT);
        files::write_atomic(&left, format!("{from}\n").as_bytes()).on("write", &left)?;
        let refusal = self.step(&checkout, &from, new)?;
        if refusal.is_none() {
            // The files first: once the note is gone, whatever they are counts as the user's.
            files::sync_filesystem(path).on("sync", path)?;
            for note in [git_dir.join(STEP), left] {
                files::remove_all(&note).on("remove", &note)?;
            }
        }
        Ok(refusal)
    }

    /// Brings index and files from one commit to another, or says why not and changes nothing.
    fn step(&self, checkout: &Checkout<'_>, from: &Oid, to: &Oid) -> Result<Option<String>> {
        let Checkout { path, git_dir, copy } = *checkout;
        let way = checkout.catch_up(from);
        if let Some(name) = UNFINISHED.iter().find(|name| git_dir.join(name).exists()) {
            return Ok(Some(format!(
                "a merge, rebase or similar is under way there ({name}); finish or abort it, then {way}"
            )));
        }
        // Held to the end: a commit of the person's meanwhile would have half of the landing.
        let Some(lock) = self.lock_index(git_dir)? else {
            return Ok(Some(format!(
                "another git command is working there (index.lock); when it has ended, {way}"
            )));
        };
        self.copy_index(git_dir, copy)?;
        if let Some(place) = self.in_the_way(git_dir, path, from, to)? {
            return Ok(Some(format!(
                "{} is not under version control and in the way; move it away, then {way}",
                place.display()
            )));
        }
        // The index too is on disk before anybody is told that the checkout has followed.
        let git = || {
            let git = self.git_in(git_dir, path).env("GIT_INDEX_FILE", copy);
            git.set("core.fsync=added").timeout(TIMEOUT_CHECKOUT)
        };
        // Exit code 1 says that some files differ; whether they matter is decided below.
        git().args(["update-index", "-q", "--refresh"]).accept(&[1]).run()?;
        let try_it = || {
            let git = git().args(["read-tree", "-m", "-u", "-n"]);
            refusal_of(git.args([from.as_str(), to.as_str()]).run())
        };
        if let Some(stderr) = try_it()? {
            return Ok(Some(checkout.refused(&stderr, from)));
        }
        if let Some(why) = self.no_room(checkout, from, to)? {
            return Ok(Some(format!("{why}; when there is, {way}")));
        }
        // What this step leaves half done is ours to put right, and nothing else is.
        let step = git_dir.join(STEP);
        files::write_atomic(&step, format!("{from} {to}\n").as_bytes()).on("write", &step)?;
        let act = git().args(["read-tree", "-m", "-u", from.as_str(), to.as_str()]);
        let refusal = refusal_of(act.run())?.map(|stderr| checkout.refused(&stderr, from));
        if refusal.is_none() {
            return lock.replace_with(copy, &git_dir.join("index")).map(|()| None);
        }
        // An edit between trial and act, and git refused before it touched anything; or it could not
        // write, and stopped in the middle.
        self.finish_step(path, git_dir)?;
        Ok(refusal)
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
            "there is no room on the disk for its new files ({} MiB needed)",
            needed.div_ceil(1 << 20)
        );
        Ok((free < needed).then_some(no_room))
    }

    fn index_copy(&self, git_dir: &Path) -> Result<PrivateIndex> {
        fs::create_dir_all(self.tmp_dir()).on("create", &self.tmp_dir())?;
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

    /// A file git does not track where a new one should go. Git itself would spare untracked files,
    /// but overwrite ignored ones, and those can be somebody's only copy.
    fn in_the_way(
        &self,
        git_dir: &Path,
        path: &Path,
        old: &Oid,
        new: &Oid,
    ) -> Result<Option<PathBuf>> {
        let args = ["-r", "-z", "--no-renames", "--name-only", "--diff-filter=A"];
        let added = self.diff_tree(old, new, &args).run()?;
        if added.stdout.is_empty() {
            return Ok(None);
        }
        let listed = self.git_in(git_dir, path).args(["ls-files", "-z"]).run()?;
        let tracked: HashSet<PathBuf> = parts(&listed.stdout).map(path_from).collect();
        for name in parts(&added.stdout).map(path_from) {
            if tracked.contains(&name) {
                continue;
            }
            for place in name.ancestors().filter(|place| !place.as_os_str().is_empty()) {
                let Ok(meta) = fs::symlink_metadata(path.join(place)) else { continue };
                // Folders above it are fine. A folder in its very place may hold ignored files.
                let fine = if meta.is_dir() { place != name } else { tracked.contains(place) };
                if !fine {
                    return Ok(Some(place.to_path_buf()));
                }
            }
        }
        Ok(None)
    }
}

impl Checkout<'_> {
    /// What brings it along by hand; nothing of the person's is touched, or git refuses.
    fn catch_up(&self, from: &Oid) -> String {
        let place = quoted(&self.path.to_string_lossy());
        let from = short(from);
        format!("run `git -C {place} read-tree -m -u {from} HEAD` (or wait for the next landing)")
    }

    /// Git's refusal, with what can be done about it.
    fn refused(&self, stderr: &str, from: &Oid) -> String {
        let line = stderr.lines().next().unwrap_or("git refused").trim_start_matches("error: ");
        let way = self.catch_up(from);
        let name = line.split_once('\'').and_then(|(_, rest)| rest.rsplit_once('\''));
        let by_edit = line.contains("not uptodate") || line.contains("would be");
        let Some((name, _)) = name.filter(|_| by_edit) else {
            return format!("{line}; when that is solved, {way}");
        };
        let (git, from) = (format!("git -C {}", quoted(&self.path.to_string_lossy())), short(from));
        let file = quoted(name);
        format!(
            "{name} was changed here, and by the landing too. To have both: save your change with \
             `{git} diff --binary {from} -- {file} > mine.patch`, take it out with \
             `{git} restore --source={from} --staged --worktree -- {file}`, {way}, and put it back \
             with `{git} apply --3way - < mine.patch`"
        )
    }
}

/// What git said if it would not; whatever else went wrong is an error.
fn refusal_of(answer: Result<Answer>) -> Result<Option<String>> {
    match answer {
        Ok(_) => Ok(None),
        Err(GitError::Failed { code: Some(_), stderr, .. }) => Ok(Some(stderr)),
        Err(error) => Err(error),
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
