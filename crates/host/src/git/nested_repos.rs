//! Repositories inside a worktree: submodules, and those that an agent cloned or made there. Their
//! history goes with the worktree, so it is kept on refs first: a submodule's in the copy that the
//! user has of it, any other's in this repository.
//!
//! Their configuration is not trusted: files are read with ours, only objects are theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstem_core::id::Oid;

use super::command::{GitCommand, TIMEOUT_CHECKOUT};
use super::error::{GitError, IoErrorContext, Result};
use super::indexed_worktree::IndexedWorktree;
use super::staging::PrivateIndex;
use super::stale_locks::list_folder;
use super::worktree_ownership::is_real_folder;
use super::{
    Repo, agent_git_dir, is_oid, lossy_string, object_proxy, parse_oid, path_bytes,
    path_from_bytes, resolve_path, split_nul,
};
use crate::files;

/// Submodules of submodules of …: deeper ones are kept as files.
const DEPTH_MAX: u32 = 4;

/// These are looked at in milliseconds; what an agent put there to be waited for is not waited for long.
const TIMEOUT_READ: Duration = Duration::from_secs(30);

/// Longest list of commits at which a shallow history ends.
const SHALLOW_BYTES: u64 = 16 << 20;

/// One repository inside a worktree.
#[derive(Debug)]
struct NestedRepo {
    /// For people, and in the names of refs.
    label: String,
    /// Its files, if they are there.
    folder: Option<PathBuf>,
    /// Its own git dir; ours if it lost it.
    git_dir: PathBuf,
    /// The git dir of the repository that takes its history in.
    home: PathBuf,
    /// The commit that is recorded for it outside.
    link: Option<Oid>,
    is_submodule: bool,
    /// A snapshot of the worktree has its files.
    files_are_kept: bool,
    depth: u32,
}

/// What `.gitmodules` says of one submodule.
struct SubmoduleEntry {
    name: String,
    place: PathBuf,
}

impl Repo {
    /// Keeps the commits and uncommitted files of all repositories inside a worktree that nothing
    /// else holds, on refs beside the series `prefix`; says what went where.
    pub fn keep_nested_repos(&self, worktree: &Path, prefix: &str) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let base = prefix.replacen("refs/mainstem/snapshots", "refs/mainstem/inside", 1);
        for (inner, tips) in self.find_unkept_nested_repos(&resolve_path(worktree))? {
            let label = &inner.label;
            match self.keep_nested_history(&inner, &tips, &base) {
                Ok(name) => notes.push(format!(
                    "{label} is a repository of its own: commits that exist only there are kept in {} as {name}",
                    inner.home.display()
                )),
                // One that an agent made can be broken, or half of a history; its files are kept.
                Err(
                    error @ (GitError::Failed { code: Some(_), .. } | GitError::TimedOut { .. }),
                ) if !inner.is_submodule => {
                    notes.push(format!("cannot keep the history of {label}: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(notes)
    }

    /// Whether no repository inside a worktree has anything that nobody else has.
    pub(super) fn are_nested_repos_kept(&self, worktree: &Path) -> Result<bool> {
        Ok(self.find_unkept_nested_repos(worktree)?.is_empty())
    }

    /// The repositories inside a worktree that have something nobody else has, and what.
    fn find_unkept_nested_repos(&self, worktree: &Path) -> Result<Vec<(NestedRepo, Vec<Oid>)>> {
        let admin = self.find_usable_admin_dir(worktree)?;
        admin.iter().for_each(|admin| agent_git_dir::remove_blocking_files(admin, worktree));
        let git_dir = admin.clone().unwrap_or_else(|| self.common_dir().to_path_buf());
        let mut open = self.find_nested_repos(worktree, &git_dir, &git_dir.join("index"), None)?;
        if let Some(admin) = &admin {
            // A submodule whose folder is gone still has its commits there.
            let agent_dir = agent_git_dir::find_agent_git_dir(admin);
            let places = [admin.clone(), agent_dir, worktree.join(".git")];
            let mut git_dirs = Vec::new();
            for place in places.iter().filter(|place| is_real_folder(place)) {
                git_dirs.extend(find_git_dirs(&place.join("modules"))?);
            }
            for (name, git_dir) in git_dirs {
                if open.iter().all(|inner| inner.git_dir != git_dir) {
                    let home = self.submodule_home(&name);
                    open.push(NestedRepo {
                        label: name,
                        folder: None,
                        git_dir,
                        home,
                        link: None,
                        is_submodule: true,
                        files_are_kept: false,
                        depth: 1,
                    });
                }
            }
        }
        let mut found = Vec::new();
        while let Some(inner) = open.pop() {
            let mut tips = self.list_nested_repo_tips(&inner)?;
            if let Some(folder) = &inner.folder {
                if !inner.files_are_kept {
                    tips.extend(self.commit_uncommitted_files(&inner, folder)?);
                }
                if inner.depth < DEPTH_MAX {
                    let index = inner.git_dir.join("index");
                    open.extend(self.find_nested_repos(
                        folder,
                        self.common_dir(),
                        &index,
                        Some(&inner),
                    )?);
                }
            }
            tips.dedup();
            let mut unheld = Vec::new();
            for tip in tips {
                if !self.has_commit_on_ref(&inner.home, &tip)? {
                    unheld.push(tip);
                }
            }
            if !unheld.is_empty() {
                found.push((inner, unheld));
            }
        }
        Ok(found)
    }

    /// The repositories directly inside a folder (that of `above`, or the worktree), by an index and by
    /// what lies there.
    fn find_nested_repos(
        &self,
        folder: &Path,
        git_dir: &Path,
        own: &Path,
        above: Option<&NestedRepo>,
    ) -> Result<Vec<NestedRepo>> {
        let index = self.copy_index_for_reading(own)?;
        let indexed = IndexedWorktree {
            repo: self,
            git_dir,
            worktree: folder,
            index: &index.0,
            filter_overrides: &[],
        };
        let named = self.read_gitmodules(folder)?;
        let mut found = Vec::new();
        let listed = match indexed.git().args(["ls-files", "-s", "-z"]).run() {
            Ok(answer) => answer.stdout,
            // A damaged index names nothing; what is there is found by its folder below.
            Err(GitError::Failed { code: Some(_), .. }) => {
                indexed.reset_index_to(None)?;
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        for entry in split_nul(&listed) {
            let Some(tab) = entry.iter().position(|&b| b == b'\t') else { continue };
            let meta = lossy_string(&entry[..tab]);
            let Some(link) = meta.strip_prefix("160000 ").and_then(|rest| rest.split(' ').next())
            else {
                continue;
            };
            let place = path_from_bytes(&entry[tab + 1..]);
            let name = named.iter().find(|named| named.place == place);
            let link = is_oid(link).then(|| Oid::new(link));
            let name = name.map(|named| named.name.as_str());
            found.extend(self.inspect_nested_repo((folder, git_dir, above), &place, name, link)?);
        }
        for place in indexed.list_nested_repos()? {
            let name = named.iter().find(|named| named.place == place);
            let name = name.map(|named| named.name.as_str());
            found.extend(self.inspect_nested_repo((folder, git_dir, above), &place, name, None)?);
        }
        Ok(found)
    }

    fn inspect_nested_repo(
        &self,
        (outside, outside_git, above): (&Path, &Path, Option<&NestedRepo>),
        place: &Path,
        name: Option<&str>,
        link: Option<Oid>,
    ) -> Result<Option<NestedRepo>> {
        let folder = outside.join(place);
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|meta| meta.is_dir());
        if !is_folder || list_folder(&folder)?.is_empty() {
            return Ok(None);
        }
        let spare = name.map(|name| outside_git.join("modules").join(name));
        let own = find_git_dir(&folder).or_else(|| spare.filter(|dir| is_git_dir(dir)));
        let own = own.map(|dir| resolve_path(&dir));
        // A worktree of a repository, ours or another: its history does not go with the folder.
        let linked = own.is_none() && folder.join(".git").is_file() && link.is_none();
        if linked || own.as_deref().is_some_and(|own| own == self.common_dir()) {
            return Ok(None);
        }
        let home = match name.filter(|_| above.is_none()) {
            Some(name) => self.submodule_home(name),
            None => self.common_dir().to_path_buf(),
        };
        Ok(Some(NestedRepo {
            label: match above {
                Some(above) => format!("{}/{}", above.label, place.display()),
                None => place.display().to_string(),
            },
            folder: Some(folder),
            git_dir: own.unwrap_or_else(|| self.common_dir().to_path_buf()),
            home,
            is_submodule: link.is_some(),
            files_are_kept: above.map_or(link.is_none(), |above| above.files_are_kept),
            link,
            depth: above.map_or(1, |above| above.depth + 1),
        }))
    }

    /// The user's own copy of a submodule; this repository if there is none.
    fn submodule_home(&self, name: &str) -> PathBuf {
        let copy = self.common_dir().join("modules").join(name);
        if is_git_dir(&copy) { resolve_path(&copy) } else { self.common_dir().to_path_buf() }
    }

    /// Whether a submodule's commit can be had by others: the user's copy has it, or a workspace's has
    /// it from the remote.
    pub(super) fn has_submodule_commit(&self, name: &str, commit: &Oid) -> Result<bool> {
        let copy = self.common_dir().join("modules").join(name);
        if is_git_dir(&copy)
            && self.find_object(commit.as_str(), foreign_git_command(&copy))?.is_some()
        {
            return Ok(true);
        }
        for admin in list_folder(&self.common_dir().join("worktrees"))? {
            for place in [agent_git_dir::find_agent_git_dir(&admin), admin] {
                let copy = place.join("modules").join(name);
                if !is_git_dir(&copy)
                    || self.find_object(commit.as_str(), foreign_git_command(&copy))?.is_none()
                {
                    continue;
                }
                let args =
                    ["for-each-ref", "--count=1", "--contains", commit.as_str(), "refs/remotes"];
                if !foreign_git_command(&copy).args(args).run()?.stdout.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn read_gitmodules(&self, folder: &Path) -> Result<Vec<SubmoduleEntry>> {
        let file = folder.join(".gitmodules");
        if !file.is_file() {
            return Ok(Vec::new());
        }
        // Exit code 1: it names none. A file that git cannot read (3) names none either.
        let answer = self
            .git()
            .args(["config", "-z", "--file"])
            .arg(&file)
            .args(["--get-regexp", r"^submodule\..*\.path$"])
            .accept_exit_codes(&[1, 3, 128])
            .run()?;
        let mut named = Vec::new();
        for entry in split_nul(&answer.stdout) {
            let Some(end) = entry.iter().position(|&b| b == b'\n') else { continue };
            let key = lossy_string(&entry[..end]);
            let name = key.strip_prefix("submodule.").and_then(|key| key.strip_suffix(".path"));
            // Git itself refuses such names.
            let Some(name) = name.filter(|name| !name.split('/').any(|part| part == "..")) else {
                continue;
            };
            named.push(SubmoduleEntry {
                name: name.to_owned(),
                place: path_from_bytes(&entry[end + 1..]),
            });
        }
        Ok(named)
    }

    /// Its HEAD, its branches, what it stashed last, and what is recorded of it outside.
    fn list_nested_repo_tips(&self, inner: &NestedRepo) -> Result<Vec<Oid>> {
        if inner.git_dir == self.common_dir() {
            return Ok(Vec::new());
        }
        let git = || foreign_git_command(&inner.git_dir);
        let mut tips: Vec<Oid> = self.find_object("HEAD^{commit}", git())?.into_iter().collect();
        let args = ["for-each-ref", "--format=%(objectname)", "refs/heads", "refs/stash"];
        let listed = git().args(args).run()?;
        tips.extend(listed.single_line()?.lines().filter(|line| is_oid(line)).map(Oid::new));
        if let Some(link) = &inner.link {
            tips.extend(self.find_object(&format!("{link}^{{commit}}"), git())?);
        }
        tips.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        Ok(tips)
    }

    /// A commit in its own store of the files that are not committed there; the same one as long as
    /// nothing changes.
    fn commit_uncommitted_files(&self, inner: &NestedRepo, folder: &Path) -> Result<Option<Oid>> {
        let is_ours = inner.git_dir == self.common_dir();
        let objects = inner.git_dir.join("objects");
        let head = if is_ours {
            None
        } else {
            self.find_object("HEAD^{commit}", foreign_git_command(&inner.git_dir))?
        };
        let own = if is_ours { PathBuf::new() } else { inner.git_dir.join("index") };
        let index = self.copy_index_for_reading(&own)?;
        let filters = self.distrusted_filters(self.common_dir())?;
        let git_dir = self.common_dir();
        let without = &filters.overrides;
        let indexed = IndexedWorktree {
            repo: self,
            git_dir,
            worktree: folder,
            index: &index.0,
            filter_overrides: without,
        };
        if own.exists() && self.index_hides_changes(git_dir, folder, Some(&index.0))? {
            indexed.reset_index_to(None)?;
        }
        let git = || indexed.git().env("GIT_OBJECT_DIRECTORY", &objects).timeout(TIMEOUT_CHECKOUT);
        let mut spec = b".\0".to_vec();
        for place in indexed.list_nested_repos()? {
            spec.extend_from_slice(b":(exclude,literal,top)");
            spec.extend_from_slice(path_bytes(&place));
            spec.push(0);
        }
        // Exit code 1: some could not be read; the others are in.
        git()
            .args(["add", "--all", "--sparse", "--ignore-errors", "--pathspec-from-file=-"])
            .arg("--pathspec-file-nul")
            .stdin_bytes(spec)
            .accept_exit_codes(&[1])
            .run()?;
        let written = git().arg("write-tree").run()?;
        let tree = parse_oid(written.single_line()?, &written)?;
        let before = match &head {
            Some(head) => {
                self.find_object(&format!("{head}^{{tree}}"), foreign_git_command(&inner.git_dir))?
            }
            None => None,
        };
        let nothing = git().args(["ls-tree", "-z", tree.as_str()]).run()?.stdout.is_empty();
        if before.as_ref() == Some(&tree) || (head.is_none() && nothing) {
            return Ok(None);
        }
        let mut commit = git().args(["commit-tree", "-m", "uncommitted files", tree.as_str()]);
        let mut date = "1".to_owned();
        if let Some(head) = &head {
            let args = ["show", "-s", "--format=%ct", head.as_str()];
            date = foreign_git_command(&inner.git_dir)
                .args(args)
                .run()?
                .single_line()?
                .trim()
                .to_owned();
            commit = commit.args(["-p", head.as_str()]);
        }
        let date = format!("@{date} +0000");
        let commit = commit.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date).run()?;
        parse_oid(commit.single_line()?, &commit).map(Some)
    }

    /// Whether a repository has a commit, and on a ref.
    fn has_commit_on_ref(&self, home: &Path, tip: &Oid) -> Result<bool> {
        if self.find_object(tip.as_str(), foreign_git_command(home))?.is_none() {
            return Ok(false);
        }
        let args = ["rev-list", "--max-count=1", tip.as_str(), "--not", "--all"];
        match foreign_git_command(home).args(args).run() {
            Ok(answer) => Ok(answer.stdout.is_empty()),
            // It has the commit and not all that the commit needs.
            Err(GitError::Failed { code: Some(_), .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes these commits, and all they need, into their home; the name of the refs.
    fn keep_nested_history(&self, inner: &NestedRepo, tips: &[Oid], base: &str) -> Result<String> {
        let plain_char = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let label: String = inner.label.chars().take(60).map(plain_char).collect();
        let mut refspecs = Vec::new();
        let mut first = None;
        for tip in tips {
            let name = format!("{base}/{label}/{}", &tip.as_str()[..12]);
            // Only we write below it, one at a time: a lock is what a killed git left.
            let lock = inner.home.join(format!("{name}.lock"));
            files::remove_all(&lock).with_path("remove", &lock)?;
            refspecs.push(format!("+{tip}:{name}"));
            first.get_or_insert(name);
        }
        let sha256 = tips.iter().any(|tip| tip.as_str().len() == 64);
        let objects = inner.git_dir.join("objects");
        let front =
            self.create_object_proxy(&objects, sha256, Some(&inner.home.join("objects")))?;
        if let Ok(shallow) = files::read_regular_file(&inner.git_dir.join("shallow"), SHALLOW_BYTES)
        {
            let file = front.path().join("shallow");
            fs::write(&file, shallow).with_path("write", &file)?;
        }
        foreign_git_command(&inner.home)
            .config_setting("protocol.file.allow=always")
            // Only by this version can a commit be asked for that is on no ref.
            .config_setting("protocol.version=2")
            .config_setting("fetch.fsckObjects=true")
            .config_setting("transfer.fsckObjects=true")
            .env("GIT_ALLOW_PROTOCOL", "file")
            .args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--"])
            .arg(front.path())
            .args(refspecs)
            .timeout(TIMEOUT_CHECKOUT)
            .run()
            .map(|_| first.unwrap_or_default())
    }

    /// A copy of an index to work on, or an empty one.
    fn copy_index_for_reading(&self, own: &Path) -> Result<PrivateIndex> {
        self.create_temp_dir()?;
        let copy = PrivateIndex(self.temp_path("index"));
        if own.is_file() {
            let time =
                fs::metadata(own).and_then(|meta| meta.modified()).with_path("look at", own)?;
            fs::copy(own, &copy.0).with_path("copy", own)?;
            let file = fs::File::options().write(true).open(&copy.0);
            file.and_then(|file| file.set_modified(time)).with_path("copy", own)?;
        }
        Ok(copy)
    }
}

/// A command on a repository that is not ours. It must not go to any network for what it lacks: an older
/// git knows no other way to keep it from that, and its settings may name a command to fetch with.
fn foreign_git_command(git_dir: &Path) -> GitCommand {
    // That of a submodule names its folder, which may be gone.
    let git = GitCommand::new(git_dir).env("GIT_DIR", git_dir).env("GIT_WORK_TREE", git_dir);
    let git = git.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none");
    git.timeout(TIMEOUT_READ)
}

/// The git dir that the `.git` in a folder is, or names.
fn find_git_dir(folder: &Path) -> Option<PathBuf> {
    let dot_git = folder.join(".git");
    let meta = fs::symlink_metadata(&dot_git).ok()?;
    let dir = if meta.is_file() {
        let bytes = fs::read(&dot_git).ok()?;
        folder.join(path_from_bytes(bytes.strip_prefix(b"gitdir: ")?.trim_ascii_end()))
    } else {
        dot_git
    };
    is_git_dir(&dir).then_some(dir)
}

/// One with something in it that a git would wait for is none: its agent made it so.
fn is_git_dir(dir: &Path) -> bool {
    dir.join("HEAD").is_file() && dir.join("objects").is_dir() && object_proxy::is_safe_git_dir(dir)
}

/// The git dirs below a folder, with their names relative to it.
fn find_git_dirs(top: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    let mut open = vec![top.to_path_buf()];
    while let Some(dir) = open.pop() {
        if !fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        if !is_git_dir(&dir) {
            open.extend(list_folder(&dir)?);
            continue;
        }
        let name = dir.strip_prefix(top).unwrap_or(&dir).to_string_lossy().into_owned();
        found.push((name, resolve_path(&dir)));
        // Those of its own submodules.
        open.push(dir.join("modules"));
    }
    Ok(found)
}
