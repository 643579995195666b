//! Says whether the product kept its promises, from git, the file system and `/proc` alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::repo::TestRepo;
use crate::scene::TestScene;
use crate::wait::holds_within;

/// How long processes may take to go after the engine has ended.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// One task's commit on a branch, as its trailers tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLanding {
    pub task: String,
    pub attempt: u32,
    pub run: String,
    pub commit: String,
}

/// A process that belongs to a scene.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SceneProcess {
    pub pid: i32,
    /// Its command line, for messages.
    pub command: String,
}

/// The landings on a branch, oldest first.
#[track_caller]
pub fn landings(repo: &TestRepo, branch: &str) -> Vec<ObservedLanding> {
    let trailer = |key: &str| format!("%(trailers:key={key},valueonly,separator=%x1f)");
    let format = format!(
        "--format=%H%x1e{}%x1e{}%x1e{}",
        trailer("Mainstem-Task"),
        trailer("Mainstem-Attempt"),
        trailer("Mainstem-Run")
    );
    let log = repo.git(&["log", "--first-parent", "--reverse", &format, branch, "--"]);
    log.lines().flat_map(landing).collect()
}

/// A commit lands one task, or several that were verified together: then it names an attempt for each.
fn landing(line: &str) -> Vec<ObservedLanding> {
    let fields: Vec<&str> = line.split('\u{1e}').collect();
    let [commit, task, attempt, run] = fields[..] else { panic!("odd line of git log: {line:?}") };
    if task.is_empty() && attempt.is_empty() && run.is_empty() {
        return Vec::new();
    }
    let (tasks, attempts) = (task.split('\u{1f}'), attempt.split('\u{1f}'));
    let paired = tasks.clone().count() == attempts.clone().count() && !run.contains('\u{1f}');
    let whole = tasks.clone().chain(attempts.clone()).chain([run]).all(|part| !part.is_empty());
    assert!(paired && whole, "{commit} does not have each trailer exactly once: {line:?}");
    let landing = |(task, attempt): (&str, &str)| {
        let attempt = attempt.parse().unwrap_or_else(|_| panic!("{commit}: attempt {attempt:?}"));
        ObservedLanding { task: task.into(), attempt, run: run.into(), commit: commit.into() }
    };
    tasks.zip(attempts).map(landing).collect()
}

impl TestScene {
    /// The landings on a branch, oldest first.
    #[track_caller]
    pub fn landings(&self, branch: &str) -> Vec<ObservedLanding> {
        landings(self.repo(), branch)
    }

    /// These tasks, and no others, have landed on `main`, each exactly once.
    #[track_caller]
    pub fn assert_each_lands_once(&self, tasks: &[&str]) {
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for landing in self.landings("main") {
            *times.entry(landing.task).or_default() += 1;
        }
        let expected = tasks.iter().map(|task| ((*task).to_owned(), 1)).collect();
        assert_eq!(times, expected, "landings on main by task");
    }

    /// Nothing of the product is left but its state, its landings, and the workspaces of tasks that failed.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        self.assert_no_leftovers();
        let fsck = self.repo().try_git(&["fsck", "--no-dangling", "--no-progress", "--strict"]);
        let said = format!("{}{}", fsck.stdout, fsck.stderr);
        assert!(fsck.code == 0 && said.trim().is_empty(), "git fsck ({}): {said}", fsck.code);
    }

    /// The same where agents made objects that `git fsck` complains about and nothing leads to.
    #[track_caller]
    pub fn assert_no_leftovers(&self) {
        let mut left = Vec::new();
        holds_within(GONE_WITHIN, || {
            left = leftovers(self.repo(), self.binary());
            if !left.is_empty() {
                let kept = self.kept_workspaces();
                left.retain(|line| !kept.iter().any(|workspace| workspace.explains(line)));
            }
            left.is_empty()
        });
        assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    }

    /// The workspaces that stay because a task of theirs failed or is blocked, as the state names them.
    pub fn kept_workspaces(&self) -> Vec<KeptWorkspace> {
        let status = self.status();
        let tasks = status["tasks"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut kept: BTreeMap<PathBuf, (bool, Vec<String>)> = BTreeMap::new();
        for task in &tasks {
            let Some(path) = text(&task["workspace"]) else { continue };
            let (failed, branches) = kept.entry(PathBuf::from(path)).or_default();
            *failed |= matches!(task["phase"].as_str(), Some("failed" | "blocked"));
            branches.extend(text(&task["branch"]));
        }
        let kept = kept.into_iter().filter(|(_, (failed, _))| *failed);
        kept.map(|(path, (_, branches))| KeptWorkspace { path, branches }).collect()
    }
}

/// A workspace that stays until its task lands or is called off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptWorkspace {
    pub path: PathBuf,
    /// The branches of the tasks that worked in it.
    pub branches: Vec<String>,
}

impl KeptWorkspace {
    /// Is it why this is left?
    fn explains(&self, left: &str) -> bool {
        let path = left.strip_prefix("worktree ").or_else(|| left.strip_prefix("workspace file "));
        let owner = self.path.with_file_name(".owner");
        path.is_some_and(|path| {
            let path = Path::new(path);
            path.starts_with(&self.path) || path == owner
        }) || self.branches.iter().any(|branch| left == format!("branch refs/heads/{branch}"))
    }
}

/// What a run should have taken with it: worktrees, branches, locks, processes, workspaces.
pub fn leftovers(repo: &TestRepo, binary: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let worktrees = repo.git(&["worktree", "list", "--porcelain", "-z"]);
    let linked = worktrees.split('\0').filter_map(|line| line.strip_prefix("worktree ")).skip(1);
    let linked = linked.filter(|path| !is_lane(Path::new(path)));
    left.extend(linked.map(|path| format!("worktree {path}")));
    let branches = repo.git(&["for-each-ref", "--format=%(refname)", "refs/heads/mainstem"]);
    left.extend(branches.lines().map(|name| format!("branch {name}")));
    let git_dir = repo.git_dir();
    // The product's own folder may keep a lock file: it is held by the system, not by being there.
    let state = git_dir.join("mainstem");
    let locks = files_under(&git_dir, &|path| path == state);
    let is_lock = |path: &&PathBuf| path.extension().is_some_and(|end| end == "lock");
    left.extend(locks.iter().filter(is_lock).map(|path| format!("lock {}", path.display())));
    // The train keeps its workspace and what was built there; a file beside it says whose it is.
    let kept = |path: &Path| {
        let of_lane = path.ends_with(".owner")
            && fs::read_dir(path.with_file_name(""))
                .is_ok_and(|mut all| all.any(|entry| entry.is_ok_and(|e| is_lane(&e.path()))));
        path == repo.path() || is_lane(path) || of_lane
    };
    let beside = files_under(&repo.place(), &kept);
    left.extend(beside.iter().map(|path| format!("workspace file {}", path.display())));
    for process in processes_of(repo.root(), binary) {
        left.push(format!("process {} {}", process.pid, process.command));
    }
    left
}

/// Whether this is the workspace of a lane of the train.
fn is_lane(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("_train").is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Files below a folder, but for the folders to skip. What goes while we look is gone.
fn files_under(folder: &Path, skip: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if skip(&path) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(_) => files.push(path),
                Err(_) => {}
            }
        }
    }
    files.sort();
    files
}

/// Processes of a scene: agents and jobs by their variables, ours by their binary; both only if
/// environment, command line or working directory lead into the scene's folder.
pub fn processes_of(root: &Path, binary: &Path) -> Vec<SceneProcess> {
    let entries = fs::read_dir("/proc").expect("these tests need /proc");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = i32::try_from(std::process::id()).expect("process ids fit");
    pids.filter(|pid| *pid != own).filter_map(|pid| process_of(pid, root, binary)).collect()
}

fn process_of(pid: i32, root: &Path, binary: &Path) -> Option<SceneProcess> {
    // A process that has ended in between, or ended and not been waited for, has nothing to read.
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let command = fs::read(proc.join("cmdline")).ok()?;
    let environ = fs::read(proc.join("environ")).unwrap_or_default();
    let cwd = fs::read_link(proc.join("cwd")).unwrap_or_default();
    let root = root.as_os_str().as_bytes();
    let here = [&command[..], &environ[..], cwd.as_os_str().as_bytes()]
        .iter()
        .any(|bytes| contains(bytes, root));
    let is_agent = environ
        .split(|byte| *byte == 0)
        .any(|var| var.starts_with(b"MAINSTEM_RUN=") || var.starts_with(b"MAINSTEM_JOB="));
    let is_ours = fs::read_link(proc.join("exe")).is_ok_and(|exe| same_file(&exe, binary));
    if !here || !(is_agent || is_ours) {
        return None;
    }
    Some(SceneProcess { pid, command: String::from_utf8_lossy(&command).replace('\0', " ") })
}

fn same_file(exe: &Path, binary: &Path) -> bool {
    exe == binary || binary.canonicalize().is_ok_and(|binary| exe == binary)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}

/// The facts `history --json` printed; panics unless each line is one and no number is missing.
#[track_caller]
pub fn assert_history_gapless(stdout: &str) -> Vec<Value> {
    let mut facts: Vec<Value> = Vec::new();
    for line in stdout.lines() {
        let fact: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("not a fact: {line:?}: {error}"));
        let seq = fact["seq"].as_u64().unwrap_or_else(|| panic!("no seq: {line}"));
        for key in ["at", "run", "type"] {
            assert!(fact[key].is_string(), "no `{key}`: {line}");
        }
        if let Some(before) = facts.last() {
            assert_eq!(Some(seq), before["seq"].as_u64().map(|seq| seq + 1), "a gap before {line}");
        }
        facts.push(fact);
    }
    assert!(!facts.is_empty(), "no facts at all");
    facts
}

/// The most tasks at work at the same time, from lines `start TASK MS` and `end TASK MS` in any
/// order; other lines do not count. One that ends as another starts is not counted twice.
pub fn max_concurrent(log: &str) -> usize {
    let mut events: Vec<(u64, i64)> = log.lines().filter_map(moment).collect();
    events.sort_unstable();
    let (mut now, mut most) = (0_i64, 0_i64);
    for (_, change) in events {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

fn moment(line: &str) -> Option<(u64, i64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [what, _task, ms] = words[..] else { return None };
    let change = match what {
        "start" => 1,
        "end" => -1,
        _ => return None,
    };
    Some((ms.parse().ok()?, change))
}

#[cfg(test)]
mod tests {
    use std::process::Child;

    use super::*;

    fn agent_in(repo: &TestRepo) -> Child {
        let mut command = repo.command("sleep");
        command.arg("600").env("MAINSTEM_RUN", "r1").spawn().expect("sleep is installed")
    }

    fn land(repo: &TestRepo, task: &str) {
        let message = format!(
            "Land {task}\n\nMainstem-Task: {task}\nMainstem-Attempt: 2\nMainstem-Run: r1\n"
        );
        repo.git(&["commit", "-q", "--allow-empty", "-m", &message]);
    }

    #[test]
    fn landings_are_read_from_first_parents_in_order() {
        let repo = TestRepo::new();
        land(&repo, "T-1");
        repo.git(&["switch", "-q", "-c", "side"]);
        land(&repo, "T-not-on-main");
        repo.git(&["switch", "-q", "main"]);
        repo.commit("by a person", &[("x", "x")]);
        let message = "Merge\n\nMainstem-Task: T-2\nMainstem-Attempt: 1\nMainstem-Run: r1";
        repo.git(&["merge", "-q", "--no-ff", "-m", message, "side"]);
        let found = landings(&repo, "main");
        let tasks: Vec<_> = found.iter().map(|l| (l.task.as_str(), l.attempt)).collect();
        assert_eq!(tasks, [("T-1", 2), ("T-2", 1)]);
        assert_eq!(found[1].commit, repo.commit_of("main"));
    }

    #[test]
    #[should_panic(expected = "landings on main by task")]
    fn a_second_landing_is_noticed() {
        let scene = TestScene::new("/bin/true");
        land(scene.repo(), "T-1");
        scene.assert_each_lands_once(&["T-1"]);
        land(scene.repo(), "T-1");
        scene.assert_each_lands_once(&["T-1"]);
    }

    #[test]
    fn a_clean_scene_has_nothing_left() {
        TestScene::in_repo(TestRepo::odd(), "/bin/true").assert_nothing_left();
    }

    #[test]
    fn every_kind_of_leftover_is_noticed() {
        let repo = TestRepo::odd();
        let workspace = repo.place().join("spaces/T-1");
        let path = workspace.to_str().expect("our own path is text");
        repo.git(&["worktree", "add", "-q", "-b", "mainstem/T-1", path]);
        fs::write(repo.git_dir().join("index.lock"), "").expect("a file in a temporary folder");
        fs::create_dir(repo.git_dir().join("mainstem")).expect("a folder in a temporary folder");
        fs::write(repo.git_dir().join("mainstem/engine.lock"), "").expect("the same");
        let mut agent = agent_in(&repo);
        // Until exec the child still looks like this test.
        let mut left = Vec::new();
        holds_within(Duration::from_secs(60), || {
            left = leftovers(&repo, Path::new("/nowhere"));
            left.iter().any(|line| line.starts_with("process "))
        });
        agent.kill().and_then(|()| agent.wait()).expect("our own child");
        for kind in
            ["worktree ", "branch refs/heads/mainstem/T-1", "lock ", "workspace file ", "process "]
        {
            assert!(left.iter().any(|line| line.starts_with(kind)), "no {kind}in {left:#?}");
        }
        assert!(!left.iter().any(|line| line.contains("engine.lock")), "{left:#?}");
    }

    #[test]
    fn a_process_elsewhere_is_none_of_ours() {
        let (here, there) = (TestRepo::new(), TestRepo::new());
        let mut agent = agent_in(&there);
        let seen = holds_within(Duration::from_secs(60), || {
            !processes_of(there.root(), Path::new("/nowhere")).is_empty()
        });
        let ours = processes_of(here.root(), Path::new("/nowhere"));
        agent.kill().and_then(|()| agent.wait()).expect("our own child");
        assert!(seen && ours.is_empty(), "{ours:?}");
    }

    #[test]
    fn history_without_gaps_passes() {
        let line = |seq: u32| format!(r#"{{"seq":{seq},"at":"t","run":"r","type":"x"}}"#);
        let facts = assert_history_gapless(&format!("{}\n{}\n", line(1), line(2)));
        assert_eq!(facts.len(), 2);
    }

    #[test]
    #[should_panic(expected = "a gap before")]
    fn a_gap_in_history_is_noticed() {
        let line = |seq: u32| format!(r#"{{"seq":{seq},"at":"t","run":"r","type":"x"}}"#);
        assert_history_gapless(&format!("{}\n{}\n", line(1), line(3)));
    }

    #[test]
    fn concurrency_is_counted_from_the_log() {
        let log = "start A 10\nnoise\nend A 20\nstart B 20\nstart C 25\nend C 30\nend B 40\n";
        assert_eq!(max_concurrent(log), 2);
        assert_eq!(max_concurrent("start A 1\nend A 2\nstart B 2\nend B 3\n"), 1);
        assert_eq!(max_concurrent(""), 0);
    }
}
