//! Landings that are pushed to a remote: real bare repositories, hooks in them, foreign pushes, deaths.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::shell_plan;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// A scene whose landings go to a bare repository beside it.
struct Play {
    scene: TestScene,
    bare: PathBuf,
}

impl Play {
    fn new(tasks: &[(&str, &str, &str)], config: &str) -> Self {
        let scene = TestScene::new(BIN);
        let bare = scene.outside("origin.git");
        let config = config.replace("[land]\n", "[land]\npush = \"origin\"\n");
        let scene = scene.config(&config).plan(&shell_plan(tasks));
        let repo = scene.repo();
        repo.git(&["init", "-q", "--bare", "-b", "main", path(&bare)]);
        repo.git(&["remote", "add", "origin", path(&bare)]);
        repo.git(&["push", "-q", "origin", "main"]);
        Self { scene, bare }
    }

    fn there(&self, branch: &str) -> String {
        self.scene
            .repo()
            .git(&["--git-dir", path(&self.bare), "rev-parse", branch])
            .trim()
            .to_owned()
    }

    /// Somebody else's clone, which can push a file of that name.
    fn stranger(&self) -> PathBuf {
        let clone = self.scene.outside("stranger");
        self.scene.repo().git(&["clone", "-q", path(&self.bare), path(&clone)]);
        for (key, value) in [("user.name", "S"), ("user.email", "s@example.org")] {
            self.scene.repo().git(&["-C", path(&clone), "config", key, value]);
        }
        clone
    }

    /// A shell command that pushes a commit of somebody else's.
    fn foreign_push(clone: &Path, file: &str) -> String {
        let clone = clone.display();
        format!(
            "cd {clone} && git pull -q origin main && echo theirs > {file} && git add {file} \
             && git commit -q -m 'from elsewhere: {file}' && git push -q origin HEAD:main"
        )
    }

    fn hook(&self, name: &str, script: &str) {
        let file = self.bare.join("hooks").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Each task landed once; the branch here and there are the same.
    fn assert_landed(&self, tasks: &[&str]) {
        let repo = self.scene.repo();
        let mut landed: Vec<String> =
            self.scene.landings("main").into_iter().map(|landing| landing.task).collect();
        landed.sort_unstable();
        assert_eq!(landed, tasks, "landings");
        assert_eq!(self.scene.facts_of("task_landed").len(), tasks.len(), "recorded once each");
        assert_eq!(repo.commit_of("main"), self.there("main"), "here and there");
        assert!(repo.git(&["status", "--porcelain"]).is_empty(), "the checkout followed");
        self.scene.assert_nothing_left();
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("our own path is text")
}

const PLAIN: &str = "[run]\nretries = 0\n[land]\n[gates]\nverify = [\"test ! -e red\"]\n";

#[test]
fn every_landing_is_pushed_and_an_undo_is_pushed_as_a_revert() {
    let tasks = [("T-1", "echo a > a.txt", ""), ("T-2", "cat a.txt > b.txt", "needs = [\"T-1\"]")];
    let play = Play::new(&tasks, PLAIN);
    // What the user has not pushed goes along, as it would with `git push`.
    play.scene.repo().commit("mine, not pushed", &[("mine.txt", "mine\n")]);
    let before = play.scene.repo().commit_of("main");
    play.scene.expect(0, &["run", "plan.toml"]);
    play.assert_landed(&["T-1", "T-2"]);
    play.scene.repo().git(&["merge-base", "--is-ancestor", &before, "main"]);
    play.scene.expect(0, &["clean"]);
    let ours = play.scene.repo().git(&["for-each-ref", "refs/mainstem/upstream"]);
    assert!(ours.is_empty(), "clean takes what was seen: {ours}");
    let tip = play.there("main");
    play.scene.expect(0, &["undo"]);
    assert_eq!(play.scene.repo().commit_of("main"), play.there("main"));
    play.scene.repo().git(&["merge-base", "--is-ancestor", &tip, "main"]);
    assert_eq!(play.scene.repo().show("main", "b.txt"), None, "its work is taken back");
    assert_eq!(play.scene.repo().show("main", "mine.txt").as_deref(), Some("mine\n"));
}

#[test]
fn a_foreign_push_between_verifying_and_landing_is_never_lost_and_all_is_verified_again() {
    let play = Play::new(&[("T-1", "echo a > a.txt", ""), ("T-2", "echo b > b.txt", "")], PLAIN);
    let clone = play.stranger();
    let once = play.scene.outside("once");
    // The gate itself pushes a foreign commit, the first time: after the merge, before the landing.
    let push = Play::foreign_push(&clone, "foreign.txt");
    let gate = format!("test -e {0} || {{ touch {0}; ( {push} ); }}; test ! -e red", path(&once));
    let script = play.scene.outside("gate.sh");
    fs::write(&script, format!("unset GIT_DIR GIT_WORK_TREE\n{gate}\n")).unwrap();
    let config = PLAIN.replace("test ! -e red", &format!("sh {}", path(&script)));
    let config = config.replace("[land]\n", "[land]\npush = \"origin\"\n");
    play.scene.repo().commit("another gate", &[("mainstem.toml", &config)]);
    play.scene.expect(0, &["run", "plan.toml", "-j", "1"]);
    play.assert_landed(&["T-1", "T-2"]);
    assert_eq!(play.scene.repo().show("main", "foreign.txt").as_deref(), Some("theirs\n"));
    assert!(!play.scene.facts_of("landing_refused").is_empty(), "the lease failed");
    // Every commit of ours on the first-parent line is one whose tree passed.
    let passed: Vec<String> = play
        .scene
        .facts_of("gate_ran")
        .iter()
        .filter(|fact| fact["verdict"] == "passed")
        .filter_map(|fact| fact["tree"].as_str().map(str::to_owned))
        .collect();
    for landing in play.scene.landings("main") {
        let tree = play.scene.repo().git(&["rev-parse", &format!("{}^{{tree}}", landing.commit)]);
        assert!(passed.contains(&tree.trim().to_owned()), "{} was not verified", landing.task);
    }
}

#[test]
fn kill_9_at_every_step_of_a_landing_that_is_pushed_lands_it_once_here_and_there() {
    let points = ["land.before", "upstream.pushed", "land.published", "along.moved"];
    for point in points {
        for twice in [false, true] {
            let play = Play::new(&[("T-1", "echo a > a.txt", "")], PLAIN);
            let clone = play.stranger();
            let died =
                play.scene.spawn_with(&["run", "plan.toml"], &[("MAINSTEM_CRASH_AT", point)]);
            let died = died.wait();
            assert_ne!(died.code, 0, "{point} was not reached: {}", died.stderr);
            if twice {
                // Somebody goes on from whatever is there.
                let push = Play::foreign_push(&clone, "foreign.txt");
                let done = play.scene.repo().command("sh").args(["-c", &push]).status().unwrap();
                assert!(done.success());
            }
            play.scene.expect(0, &["run"]);
            play.assert_landed(&["T-1"]);
            let foreign = play.scene.repo().show("main", "foreign.txt");
            assert_eq!(foreign.is_some(), twice, "{point}");
        }
    }
}

#[test]
fn kill_9_in_an_undo_that_is_pushed_takes_it_back_once() {
    for point in ["undo.before", "upstream.pushed", "undo.pushed", "along.moved"] {
        let play = Play::new(&[("T-1", "echo a > a.txt", "")], PLAIN);
        play.scene.expect(0, &["run", "plan.toml"]);
        let died = play.scene.spawn_with(&["undo"], &[("MAINSTEM_CRASH_AT", point)]).wait();
        assert_ne!(died.code, 0, "{point} was not reached");
        play.scene.expect(0, &["undo"]);
        assert_eq!(play.scene.repo().commit_of("main"), play.there("main"), "{point}");
        assert_eq!(play.scene.repo().show("main", "a.txt"), None, "{point}");
        let log = play.scene.repo().git(&["log", "--format=%s", "main"]);
        let reverts = log.lines().filter(|line| line.starts_with("Undo T-1")).count();
        // Each try makes its own commit; only one gets there.
        assert_eq!(reverts, 1, "{point}: {log}");
    }
}

#[test]
fn a_hook_that_refuses_is_told_with_its_words_and_the_landing_waits_for_a_person() {
    let play = Play::new(&[("T-1", "echo a > a.txt", "")], PLAIN);
    let before = play.there("main");
    play.hook("pre-receive", "echo 'only on Tuesdays' >&2; exit 1");
    let output = play.scene.expect(2, &["run", "plan.toml"]);
    assert!(output.stdout.contains("only on Tuesdays"), "{}", output.stdout);
    assert_eq!(play.there("main"), before, "nothing was forced");
    assert_eq!(play.scene.repo().commit_of("main"), before, "the branch here waits as well");
    let status = play.scene.expect(0, &["status", "--json"]).stdout;
    assert!(status.contains("only on Tuesdays"), "{status}");
    assert!(status.contains("then mainstem run"), "{status}");
    assert!(play.scene.expect(0, &["train"]).stdout.contains("only on Tuesdays"));
    fs::remove_file(play.bare.join("hooks/pre-receive")).unwrap();
    play.scene.expect(0, &["run"]);
    play.assert_landed(&["T-1"]);
}

#[test]
fn a_remote_that_is_away_holds_landings_only_and_nothing_is_lost() {
    let config = PLAIN.replace("[land]\n", "[land]\npush_tries = 2\n");
    let play = Play::new(&[("T-1", "false", "")], &config);
    let bare = play.bare.clone();
    let script = play.scene.outside("work.sh");
    fs::write(&script, format!("echo a > a.txt; mv {0} {0}.away", path(&bare))).unwrap();
    let plan = shell_plan(&[("T-1", &format!("sh {}", path(&script)), "")]);
    play.scene.repo().commit("plan", &[("plan.toml", &plan)]);
    let before = play.scene.repo().commit_of("main");
    let output = play.scene.expect(2, &["run", "plan.toml"]);
    assert!(output.stdout.contains("cannot reach origin"), "{}", output.stdout);
    assert_eq!(play.scene.repo().commit_of("main"), before);
    let status = play.scene.expect(0, &["status", "--json"]).stdout;
    assert!(status.contains("git ls-remote origin"), "{status}");
    // Still away at the next start: said, and no error.
    assert!(play.scene.expect(2, &["run"]).stdout.contains("cannot reach origin"));
    fs::rename(format!("{}.away", path(&bare)), &bare).unwrap();
    play.scene.expect(0, &["run"]);
    play.assert_landed(&["T-1"]);
}

#[test]
fn branches_that_have_gone_apart_are_an_error_before_anything_starts_and_nothing_is_forced() {
    let play = Play::new(&[("T-1", "echo a > a.txt", "")], PLAIN);
    let clone = play.stranger();
    let push = Play::foreign_push(&clone, "foreign.txt");
    assert!(play.scene.repo().command("sh").args(["-c", &push]).status().unwrap().success());
    let theirs = play.there("main");
    let mine = play.scene.repo().commit("mine", &[("mine.txt", "mine\n")]);
    let output = play.scene.expect(1, &["run", "plan.toml"]);
    assert!(output.stderr.contains("have diverged"), "{}", output.stderr);
    assert!(output.stderr.contains("git pull --rebase origin main"), "{}", output.stderr);
    assert_eq!((play.there("main"), play.scene.repo().commit_of("main")), (theirs, mine));
    play.scene.repo().git(&["pull", "-q", "--rebase", "origin", "main"]);
    play.scene.expect(0, &["run", "plan.toml"]);
    play.assert_landed(&["T-1"]);
}

#[test]
fn a_branch_that_is_behind_its_remote_is_brought_along_first() {
    let config = PLAIN.replace("[land]\n", "[land]\npush_branch = \"trunk\"\n");
    let play = Play::new(&[("T-1", "test -e foreign.txt && echo a > a.txt", "")], &config);
    play.scene.repo().git(&["push", "-q", "origin", "main:trunk"]);
    let clone = play.stranger();
    let push = Play::foreign_push(&clone, "foreign.txt").replace("HEAD:main", "HEAD:trunk");
    assert!(play.scene.repo().command("sh").args(["-c", &push]).status().unwrap().success());
    play.scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(play.scene.repo().commit_of("main"), play.there("trunk"));
    assert!(play.scene.repo().show("main", "foreign.txt").is_some());
    assert!(play.scene.repo().git(&["status", "--porcelain"]).is_empty());
}

#[test]
fn a_remote_that_nobody_named_is_an_error_with_the_command_that_helps() {
    let play = Play::new(&[("T-1", "echo a > a.txt", "")], PLAIN);
    play.scene.repo().git(&["remote", "remove", "origin"]);
    let output = play.scene.expect(1, &["run", "plan.toml"]);
    assert!(output.stderr.contains("git remote add origin URL"), "{}", output.stderr);
}

#[test]
fn a_push_that_overtakes_ours_on_the_remote_itself_is_never_lost() {
    let play = Play::new(&[("T-1", "echo a > a.txt", "")], PLAIN);
    let clone = play.stranger();
    let (repo, aside) = (play.scene.repo(), Play::foreign_push(&clone, "foreign.txt"));
    let aside = aside.replace("HEAD:main", "HEAD:aside");
    assert!(repo.command("sh").args(["-c", &aside]).status().unwrap().success());
    // While our push is being received, theirs gets to the branch.
    let script = format!(
        "test -e {0} && exit 0; touch {0}; env -i PATH=\"$PATH\" git --git-dir={1} \
         update-ref refs/heads/main refs/heads/aside",
        path(&play.scene.outside("once")),
        path(&play.bare)
    );
    play.hook("pre-receive", &script);
    play.scene.expect(0, &["run", "plan.toml"]);
    play.assert_landed(&["T-1"]);
    assert_eq!(repo.show("main", "foreign.txt").as_deref(), Some("theirs\n"));
    assert_eq!(play.scene.facts_of("landing_refused").len(), 1);
}

#[test]
fn branches_that_go_apart_in_the_middle_of_a_run_land_on_the_remotes_and_yours_is_left_alone() {
    let tasks = [("T-1", "echo a > a.txt", ""), ("T-2", "cat a.txt > b.txt", "needs = [\"T-1\"]")];
    let play = Play::new(&tasks, PLAIN);
    let (repo, clone) = (play.scene.repo(), play.stranger());
    let script = play.scene.outside("gate.sh");
    let text = format!(
        "unset GIT_DIR GIT_WORK_TREE\ntest -e {once} && exit 0\ntouch {once}\n( {push} ) || exit 1\n\
         git -C {repo} -c user.name=U -c user.email=u@example.org commit -q --allow-empty -m mine\n",
        once = path(&play.scene.outside("once")),
        push = Play::foreign_push(&clone, "foreign.txt"),
        repo = path(repo.path()),
    );
    fs::write(&script, text).unwrap();
    let config = PLAIN.replace("test ! -e red", &format!("sh {}", path(&script)));
    let config = config.replace("[land]\n", "[land]\npush = \"origin\"\n");
    repo.commit("another gate", &[("mainstem.toml", &config)]);
    repo.git(&["push", "-q", "origin", "main"]);
    let output = play.scene.expect(0, &["run", "plan.toml"]);
    assert!(output.stderr.contains("has commits that origin's does not have"), "{}", output.stderr);
    assert_eq!(repo.git(&["log", "-1", "--format=%s", "main"]), "mine", "yours is left alone");
    repo.git(&["fetch", "-q", "origin", "main"]);
    let landed = mainstem_testkit::oracle::landings(repo, "FETCH_HEAD");
    assert_eq!(landed.len(), 2, "both are there");
    assert!(repo.show("FETCH_HEAD", "foreign.txt").is_some());
    assert_eq!(repo.show("FETCH_HEAD", "b.txt").as_deref(), Some("a\n"));
    // What begins anew wants one ground; what goes on says so.
    let again = play.scene.expect(1, &["run", "--new", "plan.toml"]);
    assert!(again.stderr.contains("have diverged"), "{}", again.stderr);
    assert!(play.scene.expect(0, &["run"]).stderr.contains("have diverged"));
}

#[test]
fn who_is_not_let_in_is_asked_for_nothing_and_told_how_to_log_in() {
    let config = PLAIN.replace("[land]\n", "[land]\npush_tries = 1\n");
    let play = Play::new(&[("T-1", "echo a > a.txt", "")], &config);
    let ssh = play.scene.outside("ssh.sh");
    fs::write(&ssh, "#!/bin/sh\necho 'git@forge: Permission denied (publickey).' >&2\nexit 255\n")
        .unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let repo = play.scene.repo();
    repo.git(&["config", "core.sshCommand", path(&ssh)]);
    repo.git(&["remote", "set-url", "origin", "ssh://git@forge.invalid/o/r.git"]);
    let output = play.scene.expect(2, &["run", "plan.toml"]);
    assert!(output.stdout.contains("Permission denied (publickey)"), "{}", output.stdout);
    assert!(output.stdout.contains("log in"), "{}", output.stdout);
    let status = play.scene.expect(0, &["status", "--json"]).stdout;
    assert!(status.contains("git push --dry-run origin main"), "{status}");
    repo.git(&["remote", "set-url", "origin", path(&play.bare)]);
    play.scene.expect(0, &["run"]);
    play.assert_landed(&["T-1"]);
}
