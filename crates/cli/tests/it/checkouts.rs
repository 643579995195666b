//! The user's checkout: landings wait for the user's edits, what is not in the way follows, and no commit of
//! the user's takes landed work back. And where work lands at all.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use mainstem_testkit::{TestScene, wait_until};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(60);

fn scene() -> TestScene {
    TestScene::new(env!("CARGO_BIN_EXE_mainstem"))
}

fn plan(tasks: &[(&str, &str)]) -> String {
    let one = |(id, run): &(&str, &str)| format!("[[task]]\nid = \"{id}\"\nrun = \"{run}\"\n");
    format!("version = 1\n{}", tasks.iter().map(one).collect::<String>())
}

fn json(scene: &TestScene, args: &[&str]) -> Value {
    serde_json::from_str(&scene.expect(0, args).stdout).unwrap()
}

/// What waits for the user's checkout, by task.
fn waiting(scene: &TestScene) -> Vec<String> {
    let status = json(scene, &["status", "--json"]);
    let inbox = status["inbox"].as_array().cloned().unwrap_or_default();
    let checkout = inbox.iter().filter(|item| item["kind"] == "checkout");
    checkout.map(|item| item["task"].as_str().unwrap().to_owned()).collect()
}

fn landed(scene: &TestScene, branch: &str, path: &str) -> String {
    scene.repo().show(branch, path).unwrap_or_default().trim().to_owned()
}

#[test]
fn landings_wait_for_edits_in_their_way_others_pass_and_a_commit_of_everything_reverts_nothing() {
    let scene = scene().plan(&plan(&[
        ("readme", "echo theirs > README.md"),
        ("scratch", "echo theirs > scratch.txt"),
        ("other", "echo other > other.txt"),
    ]));
    let repo = scene.repo();
    repo.write("README.md", "mine\n");
    repo.write("scratch.txt", "mine\n");
    let out = scene.expect(2, &["run", "plan.toml", "--json"]);
    let warning = "has uncommitted changes: README.md, scratch.txt";
    assert!(out.stderr.contains(warning), "told before: {}", out.stderr);
    assert_eq!(landed(&scene, "main", "other.txt"), "other");
    assert_eq!(repo.read("other.txt"), "other\n", "what is not in the way follows");
    assert_eq!(
        (repo.read("README.md"), repo.read("scratch.txt")),
        ("mine\n".into(), "mine\n".into())
    );
    let mut waits = waiting(&scene);
    waits.sort();
    assert_eq!(waits, ["readme", "scratch"]);
    assert_eq!(repo.git(&["status", "--porcelain"]).trim(), "M README.md\n?? scratch.txt");
    let inbox = scene.expect(0, &["questions"]).stdout;
    for said in ["W-readme", "README.md", "W-scratch", "scratch.txt", "then mainstem run"] {
        assert!(inbox.contains(said), "{said}: {inbox}");
    }
    let refused = scene.expect(1, &["answer", "W-readme", "go on"]);
    assert!(refused.stderr.contains("git stash -u or git commit"), "{}", refused.stderr);
    repo.git(&["commit", "-qam", "wip"]);
    assert_eq!(landed(&scene, "main", "other.txt"), "other");
    std::fs::rename(repo.path().join("scratch.txt"), repo.path().join("mine.txt")).unwrap();
    scene.mainstem(&["run"]);
    assert_eq!(landed(&scene, "main", "scratch.txt"), "theirs");
    assert_eq!(repo.read("scratch.txt"), "theirs\n");
    assert_eq!(repo.read("mine.txt"), "mine\n");
    assert!(waiting(&scene).is_empty());
}

#[test]
fn a_landing_that_waits_continues_by_itself_once_the_edit_is_stashed() {
    let scene = scene()
        .plan(&plan(&[("readme", "echo theirs > README.md")]))
        .config("[gates]\nwait = \"always\"\n");
    scene.repo().write("README.md", "mine\n");
    let run = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "the landing waits", || waiting(&scene) == ["readme"]);
    scene.repo().git(&["stash", "-q"]);
    run.wait().expect_code(0);
    assert_eq!(scene.repo().read("README.md"), "theirs\n");
    assert_eq!(scene.repo().git(&["status", "--porcelain"]), "");
    assert!(scene.repo().git(&["stash", "show", "-p"]).contains("+mine"));
}

#[test]
fn a_branch_of_the_runs_own_leaves_the_checkout_alone_and_land_brings_it_over() {
    let scene = scene()
        .plan(&plan(&[("a", "echo theirs > README.md; echo a > a.txt")]))
        .config("[land]\ncheckout = \"branch\"\n");
    let repo = scene.repo();
    repo.write("README.md", "mine\n");
    let before = (repo.commit_of("main"), repo.git(&["status", "--porcelain"]));
    let out = scene.expect(0, &["run", "plan.toml"]);
    assert!(out.stderr.contains("mainstem land"), "{}", out.stderr);
    assert_eq!((repo.commit_of("main"), repo.git(&["status", "--porcelain"])), before);
    let own = json(&scene, &["status", "--json"])["run"].as_str().unwrap().to_owned();
    let own = format!("mainstem/{own}");
    assert_eq!(landed(&scene, &own, "a.txt"), "a");
    scene.expect(0, &["clean"]);
    assert_eq!(landed(&scene, &own, "a.txt"), "a", "clean keeps what is not brought over");
    let refused = scene.expect(1, &["land"]);
    assert!(refused.stderr.contains("README.md"), "{}", refused.stderr);
    assert_eq!((repo.commit_of("main"), repo.git(&["status", "--porcelain"])), before);
    // Somebody commits meanwhile: a merge is needed.
    repo.git(&["checkout", "-q", "README.md"]);
    repo.commit("hers", &[("hers.txt", "hers\n")]);
    let brought = json(&scene, &["land", "--json"]);
    assert_eq!((&brought["to"], &brought["merged"]), (&"main".into(), &true.into()), "{brought}");
    assert_eq!((repo.read("a.txt"), repo.read("hers.txt")), ("a\n".into(), "hers\n".into()));
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(json(&scene, &["land", "--json"])["already_there"], true);
}

#[test]
fn a_named_branch_is_the_target_for_the_runs_life() {
    let scene = scene().plan(&plan(&[("a", "echo a > a.txt")]));
    let before = scene.repo().commit_of("main");
    let refused = scene.expect(1, &["run", "plan.toml", "--branch", "main"]);
    assert!(refused.stderr.contains("checked out"), "{}", refused.stderr);
    scene.expect(0, &["run", "plan.toml", "--branch", "agents"]);
    assert_eq!(scene.repo().commit_of("main"), before);
    assert_eq!(landed(&scene, "agents", "a.txt"), "a");
    let fixed = scene.expect(1, &["run", "--branch", "other"]);
    assert!(fixed.stderr.contains("lands on agents"), "{}", fixed.stderr);
    scene.expect(0, &["land"]);
    assert_eq!(scene.repo().commit_of("main"), scene.repo().commit_of("agents"));
    assert_eq!(scene.repo().read("a.txt"), "a\n");
}

#[test]
fn work_lands_on_the_branch_of_the_checkout_in_which_the_run_is_started() {
    let scene = scene().plan(&plan(&[("a", "echo a > a.txt")]));
    let repo = scene.repo();
    let linked = repo.root().join("linked");
    let dir = linked.to_str().unwrap();
    repo.git(&["worktree", "add", "-q", "-b", "wt", dir]);
    let main = repo.commit_of("main");
    scene.expect(0, &["-C", dir, "run", "plan.toml"]);
    assert_eq!((repo.commit_of("main"), landed(&scene, "wt", "a.txt")), (main, "a".to_owned()));
    assert!(Path::new(dir).join("a.txt").exists());
    // Afterwards from anywhere: the target is fixed.
    scene.expect(0, &["run"]);
    repo.git(&["checkout", "-q", "--detach"]);
    let detached = scene.expect(1, &["run", "--new", "plan.toml"]);
    assert!(detached.stderr.contains("detached"), "{}", detached.stderr);
    assert!(detached.stderr.contains("--branch"), "{}", detached.stderr);
}

#[test]
fn a_target_that_is_only_a_name_for_another_branch_stays_one_and_that_branch_moves() {
    let scene = scene().plan(&plan(&[("a", "echo a > a.txt")]));
    let repo = scene.repo();
    repo.git(&["branch", "-m", "main", "trunk"]);
    repo.git(&["symbolic-ref", "refs/heads/main", "refs/heads/trunk"]);
    repo.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(landed(&scene, "trunk", "a.txt"), "a");
    assert_eq!(repo.git(&["symbolic-ref", "refs/heads/main"]).trim(), "refs/heads/trunk");
    assert_eq!(
        (repo.read("a.txt"), repo.git(&["status", "--porcelain"])),
        ("a\n".into(), String::new())
    );
}

#[test]
fn undo_puts_a_revert_on_top_of_what_a_remote_has() {
    let scene = scene().plan(&plan(&[("a", "echo a > a.txt")]));
    let repo = scene.repo();
    scene.expect(0, &["run", "plan.toml"]);
    let pushed = repo.commit_of("main");
    // As a push by hand leaves it.
    repo.git(&["update-ref", "refs/remotes/origin/main", "main"]);
    assert_eq!(json(&scene, &["undo", "--dry-run", "--json"])["reverts"], true);
    assert_eq!(json(&scene, &["undo", "--json"])["reverted"], true);
    assert_eq!(repo.commit_of("main^"), pushed);
    assert_eq!(repo.show("main", "a.txt"), None);
}

#[test]
fn a_landing_that_the_branch_lost_is_said_and_can_be_made_again() {
    let scene = scene().plan(&plan(&[("a", "echo a > a.txt")]));
    let repo = scene.repo();
    let before = repo.commit_of("main");
    scene.expect(0, &["run", "plan.toml"]);
    repo.git(&["reset", "-q", "--hard", before.trim()]);
    let run = scene.expect(2, &["run"]);
    assert!(run.stderr.contains("no longer on main"), "{}", run.stderr);
    assert!(scene.expect(0, &["status"]).stdout.contains("no longer on main"));
    let doctor = scene.expect(1, &["doctor", "--no-try"]);
    assert!(doctor.stdout.contains("landed work is no longer on main: a"), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("mainstem retry a"), "{}", doctor.stdout);
    scene.expect(0, &["retry", "a"]);
    scene.expect(0, &["run"]);
    assert_eq!(landed(&scene, "main", "a.txt"), "a");
}

fn copy_state(scene: &TestScene, from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let done = scene.repo().command("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

#[test]
fn an_older_copy_of_the_state_lands_nothing_twice() {
    let scene = scene().plan(&plan(&[("a", "echo a > a.txt"), ("b", "echo b > b.txt")]));
    let state = scene.repo().path().join(".git/mainstem");
    let copy = scene.repo().root().join("older");
    scene.expect(0, &["run", "plan.toml", "--task", "a"]);
    copy_state(&scene, &state, &copy);
    scene.expect(0, &["run"]);
    copy_state(&scene, &copy, &state);
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["a", "b"]);
}

#[test]
fn the_state_of_another_repository_is_not_taken_for_this_ones() {
    let other = scene().plan(&plan(&[("a", "echo a > a.txt")]));
    other.expect(0, &["run", "plan.toml"]);
    let here = scene().plan(&plan(&[("a", "echo a > a.txt")]));
    here.repo().commit("more", &[("more.txt", "more\n")]);
    let state = here.repo().path().join(".git/mainstem");
    copy_state(&here, &other.repo().path().join(".git/mainstem"), &state);
    let refused = here.expect(1, &["run"]);
    assert!(refused.stderr.contains("another repository"), "{}", refused.stderr);
}

#[test]
fn a_second_agent_does_not_start_beside_one_that_the_journal_has_forgotten() {
    let scene = scene().plan(&plan(&[("a", "echo x > x.txt; sleep 600")]));
    let engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("a", "working");
    engine.kill9();
    for end in ["", "-wal", "-shm"] {
        let journal = scene.repo().path().join(format!(".git/mainstem/journal.db{end}"));
        if journal.exists() {
            std::fs::rename(&journal, scene.repo().root().join(format!("away{end}"))).unwrap();
        }
    }
    let refused = scene.expect(1, &["run", "plan.toml"]);
    assert!(refused.stderr.contains("still running here"), "{}", refused.stderr);
    assert!(refused.stderr.contains("kill "), "{}", refused.stderr);
}

#[test]
fn what_init_and_the_plan_are_is_no_dirt_to_warn_of() {
    let scene = scene();
    scene.repo().write("plan.toml", plan(&[("a", "echo a > a.txt")]));
    scene.repo().write("mainstem.toml", "[sandbox]\nkind = \"off\"\n");
    let out = scene.expect(0, &["run", "plan.toml"]);
    assert!(!out.stderr.contains("uncommitted"), "{}", out.stderr);
}

#[test]
fn a_target_branch_that_is_deleted_ends_in_the_command_that_brings_it_back() {
    let work = "echo a > a.txt; unset GIT_DIR; git -C \"$R\" update-ref -d refs/heads/main";
    let scene = scene();
    let at = scene.repo().path().display().to_string();
    let scene = scene.plan(&plan(&[("a", &work.replace("\"$R\"", &at))]));
    let before = scene.repo().commit_of("main");
    let out = scene.expect(2, &["run", "plan.toml"]);
    assert!(out.stdout.contains("the target branch main no longer exists"), "{}", out.stdout);
    let advice = format!("git branch main {}", before.trim());
    assert!(out.stdout.contains(&advice), "{}{}", out.stdout, out.stderr);
    let tries = scene.facts_of("noticed").len() + scene.facts_of("attempt_failed").len();
    assert_eq!(tries, 1, "at once: {:#?}", scene.facts());
}

#[test]
fn a_repository_that_is_moved_while_a_run_works_is_left_at_once_and_the_run_goes_on_there() {
    let scene = scene();
    let go = scene.outside("go");
    let work = format!("echo a > a.txt; until [ -e '{}' ]; do sleep 0.05; done", go.display());
    let scene = scene.plan(&plan(&[("a", &work), ("b", "echo b > b.txt")]));
    let engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("b", "landed");
    scene.wait_for_phase("a", "working");
    let old = scene.repo().path().to_path_buf();
    let new = old.with_file_name("elsewhere");
    std::fs::rename(&old, &new).unwrap();
    let ended = engine.wait();
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("it was moved or removed"), "{ended:?}");
    std::fs::write(&go, "").unwrap();
    let there = |program: &Path, args: &[&str]| {
        let output = scene.repo().command(program).current_dir(&new).args(args).output().unwrap();
        assert!(output.status.success(), "{program:?} {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    there(scene.binary(), &["--config", "sandbox.kind=off", "run", "--no-preflight"]);
    assert_eq!(there(Path::new("git"), &["show", "main:a.txt"]), "a\n");
    assert_eq!(there(Path::new("git"), &["status", "--porcelain"]), "");
    let found = scene.repo().command("find").current_dir(&new).arg(&old).output().unwrap();
    let stray = String::from_utf8(found.stdout).unwrap();
    assert_eq!(stray, "", "nothing is made in the old place");
}
