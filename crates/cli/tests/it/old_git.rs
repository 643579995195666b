//! The oldest git that is promised, and those before it. Debian 12 has 2.39; where the machine's own git is
//! newer than 2.41, and none so old is at `/usr/bin/git`, only the refusal is tested.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::shell_plan;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
/// The first git with everything that newer ones made easier.
const MODERN: (u32, u32) = (2, 42);

/// The PATH that prefers an old git, if there is one.
#[expect(clippy::disallowed_methods, reason = "no scene is there yet")]
fn old_path() -> Option<String> {
    let said = Command::new("/usr/bin/git").arg("version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut numbers = said.strip_prefix("git version ")?.split('.');
    let version = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let path = std::env::var("PATH").unwrap_or_default();
    (version < MODERN).then(|| format!("/usr/bin:{path}"))
}

fn scene(wall: &str, kind: &str) -> Option<TestScene> {
    let path = old_path()?;
    let config = format!(
        "[run]\nretries = 1\n[workspace]\nkind = \"{kind}\"\n[gates]\nverify = [\"test -e README.md\"]\n"
    );
    Some(TestScene::new(BIN).env("PATH", path).walled(wall).config(&config))
}

/// Commits, leaves a file uncommitted, and clashes with whatever landed before.
const WORK: &str = "git version; echo $MAINSTEM_TASK > $MAINSTEM_TASK.txt; git add -A; \
                    git commit -qm work; echo left > $MAINSTEM_TASK.left; echo $MAINSTEM_TASK >> shared.txt";

#[test]
fn with_the_oldest_git_work_lands_clashes_and_is_redone_behind_every_wall() {
    for (wall, kind) in [
        ("off", "worktree"),
        ("off", "clone"),
        ("bwrap", "worktree"),
        ("bwrap", "clone"),
        ("landlock", "worktree"),
        ("landlock", "clone"),
    ] {
        let Some(scene) = scene(wall, kind) else { return };
        let plan = shell_plan(&[("A", WORK, ""), ("B", WORK, ""), ("C", WORK, "needs = [\"A\"]")]);
        let scene = scene.plan(&plan);
        let doctor = scene.mainstem(&["doctor"]).stdout;
        if wall != "off" && !doctor.contains("sandbox: agents use") {
            continue;
        }
        let run = scene.mainstem(&["run", "plan.toml"]);
        assert_eq!(run.code, 0, "{wall} {kind}: {}\n{}", run.stdout, run.stderr);
        for task in ["A", "B", "C"] {
            assert!(scene.repo().show("main", &format!("{task}.left")).is_some(), "{task}");
            assert!(!scene.mainstem(&["logs", task]).stdout.contains("git version 2.47"));
        }
        scene.assert_each_lands_once(&["A", "B", "C"]);
        scene.expect(0, &["undo"]);
        scene.assert_nothing_left();
    }
}

#[test]
fn a_git_before_the_oldest_one_is_refused_in_one_sentence() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T", "true", "")]));
    let folder = scene.outside("bin");
    fs::create_dir(&folder).expect("a folder in a temporary folder");
    let git = folder.join("git");
    fs::write(&git, "#!/bin/sh\necho git version 2.38.1\n").expect("a file in a temporary folder");
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).expect("our own file");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let scene = scene.env("PATH", path);
    let refusal = "git 2.38.1 is too old: Mainstem needs git 2.39 or newer";
    let run = scene.expect(1, &["run", "plan.toml"]);
    assert!(run.stderr.contains(refusal), "{}", run.stderr);
    let doctor = scene.expect(1, &["doctor"]);
    assert!(doctor.stdout.contains(refusal), "{}", doctor.stdout);
}
