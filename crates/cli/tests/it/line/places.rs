//! The user's checkout, odd repositories, and somebody else at work on the same branch.

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestRepo, TestScene};

use super::{BIN, text};

fn one() -> String {
    shell_plan(&[("T-1", "echo x > x.txt", "")])
}

#[test]
fn a_clean_checkout_follows_the_landings() {
    let scene = TestScene::new(BIN).plan(&one());
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().read("x.txt"), "x\n");
    assert!(scene.repo().git(&["status", "--porcelain"]).is_empty());
}

#[test]
fn work_that_meets_an_edit_waits_and_the_checkout_is_left_alone() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[(
        "T-1",
        "echo landed >> README.md; echo x > x.txt",
        "",
    )]));
    scene.repo().write("README.md", "# Being edited\n");
    let before = scene.repo().commit_of("main");
    let output = scene.expect(2, &["run", "plan.toml"]);
    assert!(output.stdout.contains("your uncommitted change in "), "{}", output.stdout);
    assert_eq!(scene.repo().read("README.md"), "# Being edited\n");
    assert!(!scene.repo().has("x.txt"), "a checkout follows whole or not at all");
    assert_eq!(scene.repo().commit_of("main"), before);
    let held = scene.facts_of("candidate_held");
    assert_eq!(held[0]["task"], "T-1", "{held:#?}");
}

#[test]
fn edits_elsewhere_survive_when_the_checkout_follows() {
    let scene = TestScene::new(BIN).plan(&one());
    scene.repo().write("README.md", "# Being edited\n");
    scene.repo().write("draft.txt", "untracked\n");
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().read("README.md"), "# Being edited\n");
    assert_eq!(scene.repo().read("draft.txt"), "untracked\n");
    let left = scene.repo().git(&["status", "--porcelain"]);
    assert_eq!(left, " M README.md\n?? draft.txt");
}

#[test]
fn an_untracked_file_in_the_way_is_not_overwritten() {
    let scene = TestScene::new(BIN).plan(&one());
    scene.repo().write("x.txt", "mine\n");
    let output = scene.expect(2, &["run", "plan.toml"]);
    assert!(output.stdout.contains("is in the way"), "{}", output.stdout);
    assert_eq!(scene.repo().read("x.txt"), "mine\n");
    assert!(scene.repo().show("main", "x.txt").is_none(), "it waits");
}

#[test]
fn a_detached_head_stays_where_it_is() {
    let scene = TestScene::new(BIN).config("[land]\nbranch = \"main\"\n").plan(&one());
    scene.repo().git(&["switch", "-q", "--detach"]);
    let before = scene.repo().commit_of("HEAD");
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().commit_of("HEAD"), before);
    assert!(!scene.repo().has("x.txt"));
    scene.assert_each_lands_once(&["T-1"]);
    scene.assert_nothing_left();
}

#[test]
fn a_checkout_of_another_branch_stays_where_it_is() {
    let scene = TestScene::new(BIN).config("[land]\nbranch = \"main\"\n").plan(&one());
    scene.repo().git(&["switch", "-q", "-c", "mine"]);
    let before = scene.repo().commit_of("mine");
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().git(&["symbolic-ref", "--short", "HEAD"]), "mine");
    assert_eq!(scene.repo().commit_of("mine"), before);
    assert!(!scene.repo().has("x.txt"));
    scene.assert_each_lands_once(&["T-1"]);
}

#[test]
fn a_repository_without_commits_gets_its_first() {
    let scene = TestScene::new(BIN);
    let empty = scene.outside("empty");
    let path = empty.display().to_string();
    scene.repo().git(&["init", "-q", "-b", "main", &path]);
    let plan = scene.outside("plan.toml");
    std::fs::write(&plan, one()).expect("a file in a temporary folder");
    scene.expect(0, &["-C", &path, "run", &plan.display().to_string()]);
    let git = |args: &[&str]| scene.repo().git(&[&["-C", &path], args].concat());
    assert_eq!(git(&["show", "main:x.txt"]), "x");
    assert_eq!(git(&["rev-list", "--count", "--first-parent", "main"]), "2");
    assert!(git(&["status", "--porcelain"]).is_empty());
}

#[test]
fn a_bare_repository_works_too() {
    let scene = TestScene::new(BIN);
    let bare = scene.outside("bare.git").display().to_string();
    scene.repo().git(&["clone", "-q", "--bare", ".", &bare]);
    let plan = scene.outside("plan.toml");
    std::fs::write(&plan, one()).expect("a file in a temporary folder");
    scene.expect(0, &["-C", &bare, "run", &plan.display().to_string()]);
    assert_eq!(scene.repo().git(&["-C", &bare, "show", "main:x.txt"]), "x");
    let worktrees = scene.repo().git(&["-C", &bare, "worktree", "list"]);
    assert_eq!(worktrees.lines().count(), 1, "{worktrees}");
}

#[test]
fn a_path_with_odd_characters_is_a_path() {
    for repo in [TestRepo::odd(), TestRepo::named("line\nbreak")] {
        let scene = TestScene::in_repo(repo, BIN)
            .config("[gates]\nverify = [\"test -e x.txt\"]\n")
            .plan(&one());
        scene.expect(0, &["run", "plan.toml"]);
        scene.assert_each_lands_once(&["T-1"]);
        assert_eq!(scene.repo().read("x.txt"), "x\n");
        scene.assert_nothing_left();
    }
}

#[test]
fn a_submodule_is_left_as_it_is() {
    let scene = TestScene::new(BIN);
    let part = TestRepo::new();
    let url = part.path().display().to_string();
    let add = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &url, "part"];
    scene.repo().git(&add);
    let scene = scene.plan(&one());
    let before = scene.repo().git(&["rev-parse", "main:part"]);
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["T-1"]);
    assert_eq!(scene.repo().git(&["rev-parse", "main:part"]), before);
    assert!(scene.repo().has("part/README.md"), "the user's own submodule is still filled");
    assert!(scene.repo().git(&["status", "--porcelain"]).is_empty());
    scene.assert_nothing_left();
}

#[test]
fn somebody_elses_commit_on_the_branch_is_kept_and_the_car_is_formed_again() {
    let scene = TestScene::new(BIN);
    let (done, repo) = (scene.outside("done"), scene.repo().path().display().to_string());
    // The gate runs between forming and landing: the latest moment for somebody to be first.
    let gate = format!(
        "test -e {done} || {{ touch {done}; cd {repo} && echo p > person.txt && git add -A && \
         git -c user.name=p -c user.email=p@example.invalid commit -qm 'By a person'; }}",
        done = done.display()
    );
    let scene = scene.config(&format!("[gates]\nverify = [\"{gate}\"]\n")).plan(&one());
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.facts_of("landing_refused").len(), 1);
    let subjects = scene.repo().git(&["log", "--first-parent", "--format=%s", "main"]);
    let subjects: Vec<_> = subjects.lines().take(2).collect();
    assert_eq!(subjects, ["T-1", "By a person"]);
    assert_eq!(scene.repo().show("main", "person.txt").as_deref(), Some("p\n"));
    scene.assert_each_lands_once(&["T-1"]);
    let gates = scene.facts_of("gate_ran");
    assert_eq!(gates.len(), 2, "the new merge is verified anew: {gates:#?}");
    assert_ne!(text(&gates[0], "tree"), text(&gates[1], "tree"));
    scene.assert_nothing_left();
}
