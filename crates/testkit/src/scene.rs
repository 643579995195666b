//! A repository, a plan, a configuration and the binary under test.
//!
//! Drives the product as a user does: by its command line, in an environment of its own. Output
//! goes to files, so a grandchild that keeps it open cannot hang a test.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::oracle::processes_of;
use crate::repo::{TestCommandOutput, TestRepo, exit_code};
use crate::wait::holds_within;

/// A copy of the binary to run instead, for tests that run as a user who may not look into the folder in which
/// it was built.
pub const TEST_BINARY: &str = "MAINSTEM_TEST_BINARY";

/// A command that takes longer hangs.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Where a test plays.
pub struct TestScene {
    repo: TestRepo,
    binary: PathBuf,
    env: BTreeMap<String, OsString>,
    started: AtomicU32,
}

impl TestScene {
    /// A fresh repository for this binary.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self::in_repo(TestRepo::new(), binary)
    }

    /// A given repository for this binary, or for the one that [`TEST_BINARY`] names.
    pub fn in_repo(repo: TestRepo, binary: impl Into<PathBuf>) -> Self {
        let binary = std::env::var_os(TEST_BINARY).map_or_else(|| binary.into(), PathBuf::from);
        let scene = Self { repo, binary, env: BTreeMap::new(), started: AtomicU32::new(0) };
        scene.walled("off").env("MAINSTEM_RUN_PREFLIGHT", "false")
    }

    /// With a look at checks, agents and disk before the first task; a scene has none unless it is about
    /// that, because it takes its time and gates of scenes often fail before their tasks have run.
    #[must_use]
    pub fn preflight(self) -> Self {
        self.env("MAINSTEM_RUN_PREFLIGHT", "true")
    }

    /// Commits this text as `plan.toml`.
    #[must_use]
    pub fn plan(self, text: &str) -> Self {
        self.repo.commit("plan", &[("plan.toml", text)]);
        self
    }

    /// Commits this text as `mainstem.toml`.
    #[must_use]
    pub fn config(self, text: &str) -> Self {
        self.repo.commit("configuration", &[("mainstem.toml", text)]);
        self
    }

    /// Sets a variable for everything started from here on.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(name.to_owned(), value.as_ref().to_owned());
        self
    }

    /// With this wall around agents; a scene has none unless it is about walls, which take their time.
    #[must_use]
    pub fn walled(self, kind: &str) -> Self {
        self.env("MAINSTEM_SANDBOX_KIND", kind)
    }

    pub fn repo(&self) -> &TestRepo {
        &self.repo
    }

    /// The binary under test.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Runs a command to its end; panics with its output if that takes too long.
    #[track_caller]
    pub fn mainstem(&self, args: &[&str]) -> TestCommandOutput {
        self.spawn(args).wait()
    }

    /// Starts a command and returns at once.
    #[track_caller]
    pub fn spawn(&self, args: &[&str]) -> TestSceneProcess {
        self.spawn_with(args, &[])
    }

    /// The same with a standard output that nobody ever reads.
    #[track_caller]
    pub fn spawn_unread(&self, args: &[&str]) -> TestSceneProcess {
        let stderr = self.repo.root().join("unread.stderr");
        let file = File::create(&stderr).expect("a file in a temporary folder");
        let mut command = self.repo.command(&self.binary);
        command.args(args).envs(&self.env).stdout(std::process::Stdio::piped()).stderr(file);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", self.binary.display()));
        let stdout = PathBuf::from("/dev/null");
        TestSceneProcess { child, what: format!("{args:?}"), stdout, stderr, ended: false }
    }

    /// The same with further variables for this one process.
    #[track_caller]
    pub fn spawn_with(&self, args: &[&str], env: &[(&str, &str)]) -> TestSceneProcess {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let folder = self.repo.root().join("output");
        fs::create_dir_all(&folder).expect("a folder in a temporary folder");
        let file = |what: &str| {
            let path = folder.join(format!("{number}.{what}"));
            let file = File::create(&path).expect("a file in a temporary folder");
            (path, file)
        };
        let (stdout, stdout_file) = file("stdout");
        let (stderr, stderr_file) = file("stderr");
        let mut command = self.repo.command(&self.binary);
        command
            .args(args)
            .envs(&self.env)
            .envs(env.iter().copied())
            .stdout(stdout_file)
            .stderr(stderr_file);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", self.binary.display()));
        TestSceneProcess { child, what: format!("{args:?}"), stdout, stderr, ended: false }
    }
}

impl Drop for TestScene {
    // A failed test must not leave agents running that nobody will ever stop.
    fn drop(&mut self) {
        for process in processes_of(self.repo.root(), &self.binary) {
            if let Some(pid) = Pid::from_raw(process.pid) {
                // It may have ended by itself in between, and that is just as well.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// A command that has been started.
pub struct TestSceneProcess {
    child: Child,
    what: String,
    stdout: PathBuf,
    stderr: PathBuf,
    ended: bool,
}

impl TestSceneProcess {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("process ids fit")
    }

    /// What it printed so far.
    pub fn stdout(&self) -> String {
        lossy(&self.stdout)
    }

    /// What it said on standard error so far.
    pub fn stderr(&self) -> String {
        lossy(&self.stderr)
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Sends a signal to this process alone.
    pub fn signal(&mut self, signal: Signal) {
        if self.has_ended() {
            return;
        }
        let pid = Pid::from_raw(self.pid()).expect("a process id is positive");
        kill_process(pid, signal).expect("a child that was not waited for can be signalled");
    }

    /// Ends this process, and only this one, with no chance to clean up.
    pub fn kill9(mut self) -> TestCommandOutput {
        self.signal(Signal::KILL);
        self.wait()
    }

    /// The same after a while, unless it has ended by then.
    pub fn kill9_after(mut self, moment: Duration) -> TestCommandOutput {
        holds_within(moment, || self.has_ended());
        self.kill9()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(self) -> TestCommandOutput {
        self.wait_for(COMMAND_TIMEOUT)
    }

    /// Waits for its end at most this long; kills it and panics with its output after that.
    #[track_caller]
    pub fn wait_for(mut self, deadline: Duration) -> TestCommandOutput {
        let ended = holds_within(deadline, || self.has_ended());
        if !ended {
            self.signal(Signal::KILL);
        }
        let status = self.child.wait().expect("a child can be waited for");
        self.ended = true;
        let output = TestCommandOutput {
            code: exit_code(status),
            stdout: self.stdout(),
            stderr: self.stderr(),
        };
        assert!(
            ended,
            "{} did not end within {deadline:?}\nstdout:\n{}\nstderr:\n{}",
            self.what, output.stdout, output.stderr
        );
        output
    }
}

impl Drop for TestSceneProcess {
    fn drop(&mut self) {
        if !self.ended {
            // Only fails if it has ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
