//! Gives whoever works in a worktree a git folder of its own, and takes in what it committed there.
//!
//! In a linked worktree everybody shares one set of refs, and git can only write a ref by writing to its
//! folder: who may commit may move everything. And whatever is put into a worktree's admin folder, a
//! pipe in place of a file, say, holds up every git that looks through the worktrees. So an agent
//! in a sandbox gets an *agent git dir*: a git folder with a copy of refs and settings, an index and a folder of
//! objects of its own, which borrows ours for reading. A *clone* is the same inside the workspace, for
//! whatever expects a folder there. What is committed in either comes in object by object, each checked
//! (see `import`). We ourselves work with the admin folder, which no agent can write to, and never look
//! through an agent git dir or a clone: what is in there is its agent's and is read as data.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::command::{GitCommand, TIMEOUT_CHECKOUT};
use super::error::{GitError, IoErrorContext, Result};
use super::import::{ImportOutcome, ImportRefusal};
use super::worktree_ownership::is_real_folder;
use super::{Repo, is_oid, lossy_string, path_bytes};
use crate::files;

/// The name of the agent git dir in a worktree's admin folder.
const AGENT_GIT_DIR: &str = "view";
/// Says that the worktree's `.git` is a clone of our making. Only we can write there.
const AGENT_CLONE: &str = "mainstem-clone";
/// Where fetched commits are until the branch has them.
const FETCHED_PREFIX: &str = "refs/mainstem/fetched";
/// Longest file with a single ref in it.
const REF_BYTES: u64 = 4096;
/// Longest list of refs of an agent's that we read.
const REFS_BYTES: u64 = 64 << 20;

/// What comes last counts. Nobody can sign in a sandbox: the keys are hidden, and a commit that asks for one
/// would only fail. Packing is left to us, so that objects stay files that can be read one by one.
const AGENT_GIT_DIR_SETTINGS: &str = "[core]\n\tbare = false\n[commit]\n\tgpgsign = false\n\
     [tag]\n\tgpgsign = false\n\tforcesignannotated = false\n[push]\n\tgpgsign = false\n\
     [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n";

/// The branch and HEAD of an agent, or why they were refused.
type AgentRefsResult = std::result::Result<(Option<Oid>, Option<Oid>), ImportRefusal>;

impl Repo {
    /// Gives the worktree at `path` an agent git dir of its own; a second call replaces it.
    pub fn create_agent_git_dir(&self, path: &Path) -> Result<()> {
        let Some(admin) = self.find_usable_admin_dir(path)? else { return Ok(()) };
        let draft = admin.join("view.draft");
        files::remove_all(&draft).with_path("remove", &draft)?;
        self.populate_agent_git_dir(&admin, &draft)?;
        let link = |name: &str| -> Result<()> {
            let from = self.common_dir().join(name);
            if from.exists() {
                symlink(&from, draft.join(name)).with_path("link", &from)?;
            }
            Ok(())
        };
        ["hooks", "lfs"].into_iter().try_for_each(link)?;
        let agent_dir = admin.join(AGENT_GIT_DIR);
        files::remove_all(&agent_dir).with_path("remove", &agent_dir)?;
        fs::rename(&draft, &agent_dir).with_path("create", &agent_dir)?;
        write_dot_git_file(path, &agent_dir)
    }

    /// Makes the worktree at `path` a clone: a git folder of its own that borrows our objects. Made in
    /// `trash`: half of it in the workspace would pass for somebody's work.
    pub fn create_agent_clone(&self, path: &Path, trash: &Path) -> Result<()> {
        let Some(admin) = self.find_usable_admin_dir(path)? else { return Ok(()) };
        let draft = files::staging_path(trash).with_path("create", trash)?;
        self.populate_agent_git_dir(&admin, &draft)?;
        let mark = admin.join(AGENT_CLONE);
        files::write_atomic(&mark, b"").with_path("write", &mark)?;
        let dot_git = path.join(".git");
        files::remove_all(&dot_git).with_path("remove", &dot_git)?;
        crate::crash::point("clone.made");
        fs::rename(&draft, &dot_git).with_path("create", &dot_git)
    }

    /// What an agent git dir and a clone have in common: settings, refs, excludes, HEAD, index and a folder of objects.
    fn populate_agent_git_dir(&self, admin: &Path, draft: &Path) -> Result<()> {
        for folder in ["refs/heads", "objects/info", "objects/pack"] {
            fs::create_dir_all(draft.join(folder)).with_path("create", draft)?;
        }
        let lender = self.common_dir().join("objects");
        let borrowed = draft.join("objects/info/alternates");
        fs::write(&borrowed, [path_bytes(&lender), b"\n"].concat())
            .with_path("write", &borrowed)?;
        let common = self.common_dir();
        for name in ["HEAD", "index", "info/sparse-checkout"] {
            let (from, to) = (admin.join(name), draft.join(name));
            if from.is_file() {
                fs::create_dir_all(to.parent().unwrap_or(draft)).with_path("create", &to)?;
                fs::copy(&from, &to).with_path("copy", &from)?;
            }
        }
        if common.join("reftable").is_dir() {
            // There the file says nothing.
            let head = match self.read_symbolic_ref(admin, "HEAD")? {
                Some(name) => format!("ref: {name}\n"),
                None => {
                    match self.find_object("HEAD^{commit}", self.git_without_worktree(admin))? {
                        Some(commit) => format!("{commit}\n"),
                        None => "ref: refs/heads/none\n".to_owned(),
                    }
                }
            };
            let file = draft.join("HEAD");
            fs::write(&file, head).with_path("write", &file)?;
        }
        if common.join("shallow").is_file() {
            let from = common.join("shallow");
            fs::copy(&from, draft.join("shallow")).with_path("copy", &from)?;
        }
        fs::create_dir_all(draft.join("info")).with_path("create", draft)?;
        for name in ["exclude", "attributes", "grafts"] {
            let from = common.join("info").join(name);
            if from.is_file() {
                fs::copy(&from, draft.join("info").join(name)).with_path("copy", &from)?;
            }
        }
        let listed =
            self.git().args(["for-each-ref", "--format=%(objectname) %(refname)"]).run()?.stdout;
        // Left out here and not by git: `--exclude` came with git 2.42.
        let theirs = |line: &&[u8]| !contains_bytes(line, b" refs/mainstem/");
        let refs = draft.join("packed-refs");
        let mut text = b"# pack-refs with: sorted \n".to_vec();
        listed.split_inclusive(|&b| b == b'\n').filter(theirs).for_each(|l| text.extend(l));
        fs::write(&refs, text).with_path("write", &refs)?;
        let config = draft.join("config");
        let mut settings = self.agent_git_settings()?;
        settings.extend_from_slice(AGENT_GIT_DIR_SETTINGS.as_bytes());
        fs::write(&config, settings).with_path("write", &config)?;
        let own = admin.join("config.worktree");
        if own.is_file() {
            let to = draft.join("config.worktree");
            fs::write(&to, self.settings_without_credentials(&own)?).with_path("write", &to)?;
        }
        Ok(())
    }

    /// Undoes both, so that the worktree is an ordinary one again. What was committed there must have
    /// been taken in.
    pub(super) fn remove_agent_git_dir(&self, path: &Path) -> Result<()> {
        for admin in self.list_admin_dirs(path)? {
            let (agent_dir, mark) = (admin.join(AGENT_GIT_DIR), admin.join(AGENT_CLONE));
            if !agent_dir.exists() && !mark.exists() {
                continue;
            }
            let dot_git = path.join(".git");
            if fs::symlink_metadata(&dot_git).is_ok() {
                files::remove_all(&dot_git).with_path("remove", &dot_git)?;
            }
            if path.is_dir() {
                write_dot_git_file(path, &admin)?;
            }
            files::remove_all(&agent_dir).with_path("remove", &agent_dir)?;
            files::remove_all(&mark).with_path("remove", &mark)?;
        }
        Ok(())
    }

    /// Moves `branch` to where the agent in `path` has it, if it has refs of its own; `over` says that
    /// nobody works there any more. Gives a sentence for people if its commits were refused; its files are
    /// another matter.
    pub fn import_agent_commits(
        &self,
        path: &Path,
        branch: &str,
        over: bool,
    ) -> Result<Option<String>> {
        let Some(admin) = self.find_usable_admin_dir(path)? else { return Ok(None) };
        let git_dir = find_working_git_dir(&admin, path);
        if git_dir == admin {
            return Ok(None);
        }
        let refname = format!("refs/heads/{branch}");
        let (tip, head) = match self.import_agent_refs(&admin, &git_dir, &refname)? {
            Ok(found) => found,
            Err(refusal) => {
                return Ok(Some(format!("the agent's commits were refused: {}", refusal.0)));
            }
        };
        let bare = || self.git_without_worktree(&admin);
        let known = self.find_object("HEAD^{commit}", bare())?;
        let at = if over { head.as_ref().or(tip.as_ref()) } else { tip.as_ref() };
        let moved = at.filter(|at| known.as_ref() != Some(*at)).cloned();
        if let Some(tip) = &tip
            && self.read_ref(&refname)?.as_ref() != Some(tip)
        {
            let git = self.git().args(["update-ref", "-m", "mainstem: taken in", &refname]);
            self.run_locking_ref(git.arg(tip.as_str()), &refname, false)?;
        }
        if let (true, Some(head)) = (over, head) {
            let git = bare().args(["update-ref", "-m", "mainstem: taken in"]);
            git.args(["--no-deref", "HEAD", head.as_str()]).run()?;
        }
        self.delete_fetched_refs(&refname)?;
        if let Some(seen) = moved.filter(|_| is_real_folder(path)) {
            remove_blocking_files(&admin, path);
            // Our own index follows: a file that is committed although it is ignored must not look
            // deleted. What git cannot bring together is read anew from the files.
            match self.git_in_worktree(&admin, path).args(["read-tree", "-m", seen.as_str()]).run()
            {
                Ok(_) | Err(GitError::Failed { code: Some(_), .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// A command on a worktree that needs no folder to stand in: somebody may have deleted it.
    fn git_without_worktree(&self, admin: &Path) -> GitCommand {
        let git = GitCommand::new(self.common_dir()).env("GIT_DIR", admin);
        git.env("GIT_COMMON_DIR", self.common_dir()).hold_live_file(self.live_file_path())
    }

    /// Where the agent in `path` has `branch` now, as far as that can be seen without taking it in.
    pub fn read_agent_tip(&self, path: &Path, branch: &str) -> Result<Option<Oid>> {
        let refname = format!("refs/heads/{branch}");
        if let Some(admin) = self.find_usable_admin_dir(path)?
            && admin.join(AGENT_GIT_DIR).is_dir()
            && let (Some(tip), _) = self.read_known_agent_refs(&admin, &refname)?
        {
            return Ok(Some(tip));
        }
        self.read_ref(&refname)
    }

    /// The branch in a worktree's agent git dir, and the commit HEAD is on if that is another branch.
    fn read_known_agent_refs(
        &self,
        admin: &Path,
        refname: &str,
    ) -> Result<(Option<Oid>, Option<Oid>)> {
        let (tip, head) = read_agent_refs(&admin.join(AGENT_GIT_DIR), refname);
        let tip = self.find_known_commit(tip)?;
        let head = self.find_known_commit(head)?.filter(|head| Some(head) != tip.as_ref());
        Ok((tip, head))
    }

    fn find_known_commit(&self, id: Option<String>) -> Result<Option<Oid>> {
        match id {
            Some(id) => self.find_object(&format!("{id}^{{commit}}"), self.git()),
            None => Ok(None),
        }
    }

    /// The branch in an agent's git folder, and the commit HEAD is on if that is not the branch's; all
    /// that they need is in our store then.
    fn import_agent_refs(
        &self,
        admin: &Path,
        git_dir: &Path,
        refname: &str,
    ) -> Result<AgentRefsResult> {
        let (tip, head) = read_agent_refs(git_dir, refname);
        let mut wanted = Vec::new();
        for (id, source) in [(&tip, refname), (&head, "HEAD")] {
            if let Some(id) = id
                && self.find_object(&format!("{id}^{{commit}}"), self.git())?.is_none()
            {
                wanted.push((id.clone(), fetched_ref_name(refname, source)));
            }
        }
        if !wanted.is_empty() {
            let objects = git_dir.join("objects");
            let tips: Vec<String> = wanted.iter().map(|(id, _)| id.clone()).collect();
            let known = self.find_object("HEAD^{commit}", self.git_without_worktree(admin))?;
            match self.import_objects(&objects, &tips, known.as_ref())? {
                ImportOutcome::Whole => {}
                ImportOutcome::Refused(refusal) => return Ok(Err(refusal)),
                ImportOutcome::NeedsGit => {
                    if let Err(refusal) = self.fetch_agent_packs(&objects, &wanted)? {
                        return Ok(Err(refusal));
                    }
                }
            }
        }
        let tip = self.find_known_commit(tip)?;
        let head = self.find_known_commit(head)?.filter(|head| Some(head) != tip.as_ref());
        Ok(Ok((tip, head)))
    }

    /// Lets git fetch commits out of an agent's packs, by way of a folder of ours with only their plain
    /// files in it.
    fn fetch_agent_packs(
        &self,
        objects: &Path,
        wanted: &[(String, String)],
    ) -> Result<std::result::Result<(), ImportRefusal>> {
        let sha256 = wanted.iter().any(|(id, _)| id.len() == 64);
        let fetched = self.create_object_proxy(objects, sha256, None).and_then(|front| {
            self.git()
                .config_setting("protocol.allow=never")
                .config_setting("protocol.file.allow=always")
                // Only by this version can a commit be asked for that is on no ref.
                .config_setting("protocol.version=2")
                .config_setting("fetch.fsckObjects=true")
                .config_setting("transfer.fsckObjects=true")
                .env("GIT_NO_LAZY_FETCH", "1")
                .args(["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"])
                .args(["--no-write-fetch-head", "--no-auto-maintenance", "--"])
                .arg(front.path())
                .args(wanted.iter().map(|(id, to)| format!("+{id}:{to}")))
                .timeout(TIMEOUT_CHECKOUT)
                .run()
        });
        match fetched {
            Ok(_) => Ok(Ok(())),
            // Objects that are missing, damaged or too many: that is the agent's own loss.
            Err(
                error @ (GitError::Failed { code: Some(_), .. }
                | GitError::TimedOut { .. }
                | GitError::NotOurs { .. }),
            ) => Ok(Err(ImportRefusal(error.to_string()))),
            Err(error) => Err(error),
        }
    }

    fn delete_fetched_refs(&self, refname: &str) -> Result<()> {
        for source in [refname, "HEAD"] {
            let name = fetched_ref_name(refname, source);
            if self.read_ref(&name)?.is_some() {
                let _ = self.delete_ref(&name, None)?;
            }
        }
        Ok(())
    }
}

fn fetched_ref_name(refname: &str, source: &str) -> String {
    let which = if source == "HEAD" { "head" } else { "branch" };
    format!("{FETCHED_PREFIX}/{}/{which}", refname.trim_start_matches("refs/heads/"))
}

/// Where an agent's own git folder has a branch, and where its HEAD is if that is not the branch. Read as
/// data: it may say anything.
fn read_agent_refs(git_dir: &Path, refname: &str) -> (Option<String>, Option<String>) {
    let text = read_regular_text_file(&git_dir.join("HEAD"), REF_BYTES).unwrap_or_default();
    let head = match text.trim().strip_prefix("ref: ") {
        Some(target) if target == refname || !is_safe_ref_name(target) => None,
        Some(target) => read_agent_ref(git_dir, target),
        None => Some(text.trim().to_owned()).filter(|id| is_oid(id)),
    };
    (read_agent_ref(git_dir, refname), head)
}

/// The value of a ref in an agent's own folder of refs.
fn read_agent_ref(agent_dir: &Path, refname: &str) -> Option<String> {
    if let Ok(text) = read_regular_text_file(&agent_dir.join(refname), REF_BYTES) {
        return Some(text.trim().to_owned()).filter(|id| is_oid(id));
    }
    let packed = read_regular_text_file(&agent_dir.join("packed-refs"), REFS_BYTES).ok()?;
    let line = packed.lines().find_map(|line| line.strip_suffix(refname)?.strip_suffix(' '));
    line.filter(|id| is_oid(id)).map(str::to_owned)
}

fn contains_bytes(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

/// A name that is no way out of a folder.
fn is_safe_ref_name(name: &str) -> bool {
    name.starts_with("refs/") && name.split('/').all(|part| !part.is_empty() && part != "..")
}

/// What [`files::open_regular_file`] opens, as text.
pub(super) fn read_regular_text_file(path: &Path, most: u64) -> io::Result<String> {
    files::read_regular_file(path, most).map(|bytes| lossy_string(&bytes))
}

/// Writes the `.git` file of a worktree.
fn write_dot_git_file(path: &Path, git_dir: &Path) -> Result<()> {
    let dot_git = path.join(".git");
    let text = [b"gitdir: ", path_bytes(git_dir), b"\n"].concat();
    files::write_atomic(&dot_git, &text).with_path("write", &dot_git)
}

/// Files that every git reads in every folder of a worktree, and would wait for if they were pipes.
const READ_BY_GIT: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];

/// Removes what an agent in a sandbox put into a worktree to make our git wait. It holds no work.
/// An agent without a sandbox gains nothing by it, and trees are large.
pub(super) fn remove_blocking_files(admin: &Path, worktree: &Path) {
    if find_working_git_dir(admin, worktree) == admin {
        return;
    }
    let mut open = vec![worktree.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            if kind.is_dir() && name != ".git" {
                open.push(entry.path());
            } else if !kind.is_dir()
                && !kind.is_file()
                && !kind.is_symlink()
                && READ_BY_GIT.iter().any(|read| name == *read)
            {
                // What cannot be removed is waited for, and not for ever.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The admin folder that a worktree's `.git` file leads to, directly or through an agent git dir.
pub(super) fn resolve_admin_dir(target: &Path) -> PathBuf {
    let admin = target.parent().filter(|_| target.ends_with(AGENT_GIT_DIR));
    admin.unwrap_or(target).to_path_buf()
}

/// The git folder that whoever works in a worktree uses. What is in there is read as data.
pub(super) fn find_working_git_dir(admin: &Path, worktree: &Path) -> PathBuf {
    let agent_dir = find_agent_git_dir(admin);
    if admin.join(AGENT_CLONE).exists() {
        worktree.join(".git")
    } else if agent_dir.is_dir() {
        agent_dir
    } else {
        admin.to_path_buf()
    }
}

/// The path of a worktree's agent git dir, if it has one.
pub(super) fn find_agent_git_dir(admin: &Path) -> PathBuf {
    admin.join(AGENT_GIT_DIR)
}

/// Whether `path` is a clone of our making, whatever is in it.
pub(super) fn is_agent_clone(admins: &[PathBuf]) -> bool {
    admins.iter().any(|admin| admin.join(AGENT_CLONE).exists())
}
