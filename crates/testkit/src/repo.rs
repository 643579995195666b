//! Throw-away git repositories that see nothing of the machine they are on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A folder name with what breaks careless quoting: spaces, quotes, a dollar, a semicolon, a
/// backslash, letters beyond ASCII.
pub const ODD_NAME: &str = "-odd näme 'q' \"d\" $(x);&\\#%";

/// What a process left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestCommandOutput {
    /// Exit code; 128 plus the signal if one ended it.
    pub code: i32,
    /// Standard output, bad bytes replaced.
    pub stdout: String,
    /// Standard error, bad bytes replaced.
    pub stderr: String,
}

impl TestCommandOutput {
    /// Itself, if it ended with this code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

pub(crate) fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A git repository in a temporary folder, with a home and an identity of its own.
pub struct TestRepo {
    /// Removed with everything in it when this goes.
    dir: TempDir,
    /// Absolute and without symbolic links, so that it can be compared with what processes show.
    root: PathBuf,
    path: PathBuf,
}

impl TestRepo {
    /// A repository with one commit on `main`.
    pub fn new() -> Self {
        Self::named("repo")
    }

    /// The same under [`ODD_NAME`].
    pub fn odd() -> Self {
        Self::named(ODD_NAME)
    }

    /// The same in a folder of this name.
    pub fn named(name: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("ms").tempdir().expect("a temporary folder");
        let root = dir.path().canonicalize().expect("a folder just made");
        let path = root.join("place").join(name);
        let repo = Self { dir, root, path };
        for folder in [repo.home(), repo.home().join("config"), repo.path.clone()] {
            fs::create_dir_all(folder).expect("a folder in a temporary folder");
        }
        let identity = "[user]\n\tname = Test\n\temail = test@example.invalid\n\
             [init]\n\tdefaultBranch = main\n[commit]\n\tgpgSign = false\n";
        fs::write(repo.home().join("gitconfig"), identity).expect("a file in a temporary folder");
        repo.git(&["init", "-q"]);
        repo.commit("first", &[("README.md", "# A repository\n")]);
        repo
    }

    /// The repository's own folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The temporary folder around repository, home and whatever is put beside them.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder whose entries are the repository and its siblings.
    pub fn place(&self) -> PathBuf {
        self.root.join("place")
    }

    /// The home that programs started here see.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// Leaves everything on disk, for a person to look at, and says where.
    pub fn keep(mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.root.clone()
    }

    /// The whole environment of programs started here: nothing of the machine's but its `PATH`.
    pub fn env(&self) -> BTreeMap<String, OsString> {
        let home = self.home();
        let mut env = BTreeMap::new();
        let mut set = |name: &str, value: OsString| env.insert(name.to_owned(), value);
        set("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        set("HOME", home.clone().into());
        set("XDG_CONFIG_HOME", home.join("config").into());
        set("GIT_CONFIG_GLOBAL", home.join("gitconfig").into());
        set("GIT_CONFIG_NOSYSTEM", "1".into());
        set("GIT_TERMINAL_PROMPT", "0".into());
        set("LANG", "C.UTF-8".into());
        set("TERM", "dumb".into());
        set("NO_COLOR", "1".into());
        env
    }

    /// A program in this repository's folder and environment, without input.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.path).env_clear().envs(self.env()).stdin(Stdio::null());
        command
    }

    /// Runs git and returns what it printed, without the last line end; panics if it fails.
    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        let output = self.try_git(args);
        assert_eq!(output.code, 0, "git {args:?} failed:\n{}{}", output.stdout, output.stderr);
        output.stdout.trim_end_matches('\n').to_owned()
    }

    /// Runs git, whatever comes of it.
    pub fn try_git(&self, args: &[&str]) -> TestCommandOutput {
        let output = self.command("git").args(args).output().expect("git is installed");
        TestCommandOutput {
            code: exit_code(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Writes a file, its folders included.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let full = self.path.join(path);
        let folder = full.parent().expect("a file lies in a folder");
        fs::create_dir_all(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        fs::write(&full, content).unwrap_or_else(|e| panic!("{}: {e}", full.display()));
    }

    /// Reads a file of the checkout; panics if there is none.
    #[track_caller]
    pub fn read(&self, path: &str) -> String {
        let full = self.path.join(path);
        fs::read_to_string(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display()))
    }

    /// Whether a file is in the checkout.
    pub fn has(&self, path: &str) -> bool {
        self.path.join(path).symlink_metadata().is_ok()
    }

    /// Writes files and commits everything; returns the commit.
    #[track_caller]
    pub fn commit(&self, message: &str, files: &[(&str, &str)]) -> String {
        for (path, content) in files {
            self.write(path, content);
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.commit_of("HEAD")
    }

    /// Makes a branch at a revision without checking it out.
    #[track_caller]
    pub fn branch(&self, name: &str, at: &str) {
        self.git(&["branch", "--no-track", name, at]);
    }

    /// The commit a revision names; panics if there is none.
    #[track_caller]
    pub fn commit_of(&self, revision: &str) -> String {
        self.git(&["rev-parse", "--verify", "--end-of-options", &format!("{revision}^{{commit}}")])
    }

    /// A file's content in a revision, or nothing if it is not there.
    #[track_caller]
    pub fn show(&self, revision: &str, path: &str) -> Option<String> {
        let listed = self.git(&["ls-tree", "--name-only", "-z", revision, "--", path]);
        if listed.is_empty() {
            return None;
        }
        let output = self.try_git(&["show", &format!("{revision}:{path}")]);
        assert_eq!(output.code, 0, "git show {revision}:{path}: {}", output.stderr);
        Some(output.stdout)
    }

    /// The git dir shared by all worktrees.
    pub fn git_dir(&self) -> PathBuf {
        let dir = self.git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        PathBuf::from(dir)
    }
}

impl Default for TestRepo {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_one_commit_on_main_and_its_own_identity() {
        let repo = TestRepo::new();
        assert_eq!(repo.git(&["symbolic-ref", "--short", "HEAD"]), "main");
        assert_eq!(repo.git(&["log", "--format=%an %s"]), "Test first");
        assert_eq!(repo.show("main", "README.md").as_deref(), Some("# A repository\n"));
        assert_eq!(repo.show("main", "nothing"), None);
    }

    #[test]
    fn an_odd_name_works_like_any_other() {
        let repo = TestRepo::odd();
        let commit = repo.commit("second", &[("a b/ü.txt", "x\n")]);
        repo.branch("side", "HEAD");
        assert_eq!(repo.commit_of("side"), commit);
        assert!(repo.git_dir().starts_with(repo.path()), "{:?}", repo.git_dir());
    }

    #[test]
    fn a_failing_git_is_an_answer_when_asked_for() {
        let output = TestRepo::new().try_git(&["rev-parse", "--verify", "nowhere"]);
        assert_eq!(output.code, 128);
        assert!(output.stderr.contains("fatal"), "{output:?}");
    }

    #[test]
    fn everything_goes_with_the_repository() {
        let repo = TestRepo::new();
        let root = repo.root().to_owned();
        assert!(root.exists());
        drop(repo);
        assert!(!root.exists());
    }
}
