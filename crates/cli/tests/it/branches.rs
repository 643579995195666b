//! Branches that the user made, or works on, stay where they are, whatever they are called.
#![expect(clippy::unwrap_used, reason = "tests")]

use mainstem_testkit::TestScene;

fn scene() -> TestScene {
    TestScene::new(env!("CARGO_BIN_EXE_mainstem"))
}

const ONE: &str = "version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt\"\n";

#[test]
fn a_branch_of_the_users_with_a_tasks_name_is_left_alone() {
    let scene = scene().plan(ONE).config("[snapshots]\nkeep = \"1s\"\n");
    let repo = scene.repo();
    repo.git(&["checkout", "-q", "-b", "mainstem/T"]);
    let mine = repo.commit("mine", &[("mine.txt", "precious")]);
    repo.git(&["checkout", "-q", "main"]);
    let out = scene.expect(0, &["run", "plan.toml"]);
    assert!(
        out.stderr.contains("mainstem/T is checked out or was not created by Mainstem"),
        "{}",
        out.stderr
    );
    scene.expect(0, &["clean"]);
    assert_eq!(repo.commit_of("mainstem/T"), mine);
    let branches = repo.git(&["branch", "--format=%(refname:short)"]);
    assert_eq!(branches.lines().collect::<Vec<_>>(), ["main", "mainstem/T"]);
    assert_eq!(repo.git(&["for-each-ref", "refs/mainstem/owned"]), "");
    // Nor is it taken for a snapshot of the task.
    let kept = repo.git(&["for-each-ref", "--contains", mine.trim(), "refs/mainstem"]);
    assert_eq!(kept, "");
}

#[test]
fn a_checked_out_branch_with_a_tasks_name_is_never_deleted_not_even_as_the_target() {
    let scene = scene().plan(ONE);
    let repo = scene.repo();
    repo.git(&["switch", "-q", "-c", "mainstem/T"]);
    let mine = repo.commit("mine", &[("mine.txt", "precious")]);
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(repo.git(&["symbolic-ref", "--short", "HEAD"]).trim(), "mainstem/T");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(repo.show("mainstem/T", "x.txt").unwrap().trim(), "x");
    let is_there = repo.git(&["merge-base", "mainstem/T", mine.trim()]);
    assert_eq!(is_there.trim(), mine.trim());

    // The same in a worktree of the user's.
    let elsewhere = repo.root().join("ext");
    repo.git(&["worktree", "add", "-q", elsewhere.to_str().unwrap(), "-b", "mainstem/U"]);
    repo.git(&["-C", elsewhere.to_str().unwrap(), "commit", "-q", "--allow-empty", "-m", "mine"]);
    let mine = repo.commit_of("mainstem/U");
    let scene = scene.plan(&ONE.replace('T', "U").replace("x.txt", "u.txt"));
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().commit_of("mainstem/U"), mine);
}

/// Two tasks that change the same file, of which the second one clashes.
fn clash(on_conflict: &str) -> TestScene {
    let plan = "version = 1\n[[task]]\nid = \"X\"\npriority = 1\nrun = \"echo x > base.txt\"\n\
                [[task]]\nid = \"Y\"\nrun = \"echo y > base.txt; sleep 1\"\n";
    let scene = scene().plan(plan);
    scene.repo().commit("base", &[("base.txt", "base\n")]);
    scene.config(&format!("[run]\nretries = 0\n[land]\non_conflict = \"{on_conflict}\"\n"))
}

#[test]
fn work_that_does_not_merge_is_on_its_branch_though_the_agent_did_not_commit_it() {
    for on_conflict in ["manual", "fail"] {
        let scene = clash(on_conflict);
        scene.expect(2, &["run", "plan.toml"]);
        let kept = scene.repo().show("mainstem/Y", "base.txt").unwrap_or_default();
        assert_eq!(kept.trim(), "y", "{on_conflict}");
        scene.expect(0, &["clean"]);
        assert_eq!(scene.repo().show("mainstem/Y", "base.txt").unwrap().trim(), "y");
    }
}

#[test]
fn a_fix_that_a_person_commits_to_a_kept_branch_survives_the_next_attempt() {
    let scene = clash("manual");
    scene.expect(2, &["run", "plan.toml"]);
    let repo = scene.repo();
    repo.git(&["switch", "-q", "mainstem/Y"]);
    let fix = repo.commit("fix", &[("fix.txt", "fix")]);
    scene.expect(0, &["answer", "C-Y", "retry"]);
    let again = scene.mainstem(&["run"]);
    assert!(!again.stdout.contains("transient"), "{}", again.stdout);
    assert_eq!(repo.commit_of("mainstem/Y"), fix);
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(repo.git(&["symbolic-ref", "--short", "HEAD"]).trim(), "mainstem/Y");
}
