use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::super::command::GitCommand;
use super::super::{GitError, GitIdentity, Repo, parse_git_version};
use super::{KEEP, Scene, git};

#[test]
fn a_folder_without_a_repository_is_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Repo::discover(dir.path()), Err(GitError::NotARepo { .. })));
    let nowhere = dir.path().join("nowhere");
    assert!(matches!(Repo::discover(&nowhere), Err(GitError::NotARepo { .. })));
}

#[test]
fn versions_of_all_builds_are_understood() {
    assert_eq!(parse_git_version("git version 2.47.3"), Some((2, 47)));
    assert_eq!(parse_git_version("git version 2.39.5 (Apple Git-154)"), Some((2, 39)));
    assert_eq!(parse_git_version("git version 3.0-rc1"), Some((3, 0)));
    assert_eq!(parse_git_version("hub version 1"), None);
}

#[test]
fn from_a_subfolder_or_a_linked_worktree_the_same_repository_is_found() {
    let scene = Scene::new();
    let linked = scene.at("linked\nwith a line end");
    git(&scene.top(), &["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()]);
    let inner = Repo::discover(&scene.top().join("dir")).unwrap();
    let outer = Repo::discover(&linked).unwrap();
    let top = fs::canonicalize(scene.top()).unwrap();
    for repo in [&inner, &outer] {
        assert_eq!(repo.common_dir(), top.join(".git"));
        assert_eq!(repo.toplevel(), Some(top.as_path()));
        assert_eq!(repo.dir(), top);
        assert_eq!(repo.default_branch().unwrap(), "main");
    }
    assert_eq!(inner.current_branch().unwrap().as_deref(), Some("main"));
    assert_eq!(outer.current_branch().unwrap().as_deref(), Some("side"));
}

#[test]
fn a_detached_checkout_has_no_branch_and_the_default_is_looked_for() {
    let scene = Scene::new();
    git(&scene.top(), &["checkout", "-q", "--detach"]);
    assert_eq!(scene.repo.current_branch().unwrap(), None);
    assert_eq!(scene.repo.default_branch().unwrap(), "main");
    git(&scene.top(), &["branch", "-m", "main", "master"]);
    assert_eq!(scene.repo.default_branch().unwrap(), "master");
    git(&scene.top(), &["update-ref", "refs/remotes/origin/trunk", "HEAD"]);
    git(&scene.top(), &["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk"]);
    assert_eq!(scene.repo.default_branch().unwrap(), "trunk");
}

#[test]
fn a_bare_repository_has_no_toplevel_and_serves_workspaces() {
    let scene = Scene::new();
    let bare = scene.at("bare.git");
    git(&scene.top(), &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let repo = Repo::discover(&bare).unwrap();
    assert_eq!(repo.toplevel(), None);
    assert_eq!(repo.dir(), bare);
    assert_eq!(repo.default_branch().unwrap(), "main");
    let base = repo.resolve_commit("main").unwrap().unwrap();
    let path = scene.at("work");
    repo.prepare_worktree(&path, "mainstem/t", &base, &scene.trash(), KEEP).unwrap();
    fs::write(path.join("a.txt"), "changed").unwrap();
    repo.prepare_worktree(&path, "mainstem/t", &base, &scene.trash(), KEEP).unwrap();
    assert!(!repo.is_worktree_dirty(&path).unwrap());
    fs::write(path.join("new"), "n").unwrap();
    assert!(repo.take_snapshot(&path, "refs/mainstem/snapshots/t/1", "s").unwrap().is_some());
}

#[test]
fn the_identity_comes_from_the_configuration_or_is_ours() {
    let scene = Scene::new();
    git(&scene.top(), &["config", "user.name", "Grace"]);
    git(&scene.top(), &["config", "user.email", "grace@example.org"]);
    let grace = GitIdentity { name: "Grace".into(), email: "grace@example.org".into() };
    assert_eq!(scene.repo.identity().unwrap(), grace);
    git(&scene.top(), &["config", "user.name", ""]);
    assert_eq!(scene.repo.identity().unwrap(), grace, "one engine commits as one person");
    let again = Repo::discover(&scene.top()).unwrap();
    assert_eq!(again.identity().unwrap(), GitIdentity::fallback());
}

#[test]
fn a_repository_without_commits_gets_one_and_keeps_the_users_files() {
    let scene = Scene::empty(&[]);
    scene.write("draft.txt", "not committed");
    git(&scene.top(), &["add", "draft.txt"]);
    let first = scene.repo.ensure_first_commit("main").unwrap();
    assert_eq!(scene.repo.ensure_first_commit("main").unwrap(), first);
    assert!(scene.names(&first).is_empty());
    assert_eq!(fs::read_to_string(scene.top().join("draft.txt")).unwrap(), "not committed");
    assert_eq!(git(&scene.top(), &["status", "--porcelain"]), "A  draft.txt\n");
}

#[test]
fn a_missing_branch_in_a_repository_with_commits_is_not_invented() {
    let scene = Scene::new();
    let error = scene.repo.ensure_first_commit("trunk").unwrap_err();
    assert!(matches!(error, GitError::NoBranch { .. }), "{error}");
    assert_eq!(scene.repo.read_ref("refs/heads/trunk").unwrap(), None);
}

#[test]
fn repositories_with_long_object_ids_work() {
    let scene = Scene::empty(&["--object-format=sha256"]);
    let first = scene.repo.ensure_first_commit("main").unwrap();
    assert_eq!(first.as_str().len(), 64);
    let path = scene.at("work");
    scene.repo.prepare_worktree(&path, "mainstem/t", &first, &scene.trash(), KEEP).unwrap();
    fs::write(path.join("f"), "x").unwrap();
    let made = scene.repo.commit_leftovers(&path, "mainstem/t", "m", &super::who(), 0).unwrap();
    let merged = scene.repo.merge(&first, &made.commit.unwrap()).unwrap();
    assert!(matches!(merged, super::super::GitMergeOutcome::Clean { .. }));
}

#[test]
fn a_hanging_program_is_stopped_with_everything_it_started() {
    let scene = Scene::new();
    let pid_file = scene.at("pid");
    let script = scene.at("hang.sh");
    let text = format!("#!/bin/sh\nsleep 1000 &\necho $! > '{}'\nwait\n", pid_file.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let error = GitCommand::new(&scene.top())
        .config_setting(format!("alias.hang=!'{}'", script.display()))
        .arg("hang")
        .timeout(Duration::from_secs(3))
        .run()
        .unwrap_err();
    assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
    let pid = fs::read_to_string(pid_file).unwrap().trim().to_owned();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    // A killed process nobody has waited for yet counts as dead.
    let alive =
        || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while alive() {
        assert!(std::time::Instant::now() < deadline, "the child of git survived");
        std::thread::yield_now();
    }
}

#[test]
fn a_child_that_keeps_the_pipe_open_does_not_hold_us() {
    let scene = Scene::new();
    let begun = std::time::Instant::now();
    let answer = GitCommand::new(&scene.top())
        .config_setting("alias.leave=!echo said; sleep 500 &")
        .arg("leave")
        .run()
        .unwrap();
    assert_eq!(answer.stdout, b"said\n");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn hooks_that_commits_run_are_named_wherever_they_are() {
    use std::os::unix::fs::PermissionsExt;
    let scene = super::Scene::new();
    assert!(scene.repo.list_commit_hooks().unwrap().is_empty(), "samples are none");
    let put = |folder: &std::path::Path, name: &str| {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join(name), "#!/bin/sh\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.join(name), mode).unwrap();
    };
    put(&scene.repo.common_dir().join("hooks"), "pre-commit");
    assert_eq!(scene.repo.list_commit_hooks().unwrap(), ["pre-commit"]);
    super::git(&scene.top(), &["config", "core.hooksPath", ".husky"]);
    assert!(scene.repo.list_commit_hooks().unwrap().is_empty());
    put(&scene.top().join(".husky"), "commit-msg");
    assert_eq!(scene.repo.list_commit_hooks().unwrap(), ["commit-msg"]);
}
