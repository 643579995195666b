//! Landings are signed as the user's git would sign them, or it is said that they are not; hooks are named.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::shell_plan;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// A repository whose user signs commits with an ssh key that has this passphrase.
fn signing(passphrase: &str) -> Option<TestScene> {
    let scene = TestScene::new(BIN);
    let key = scene.repo().home().join("key");
    let made = scene
        .repo()
        .command("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-C", "test", "-N", passphrase, "-f"])
        .arg(&key)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        // Without ssh-keygen there is nothing to sign with.
        return None;
    }
    let public = fs::read_to_string(key.with_extension("pub")).expect("a public key");
    let signers = scene.repo().home().join("signers");
    fs::write(&signers, format!("test@example.invalid {public}")).expect("a file");
    for (name, value) in [
        ("gpg.format", "ssh"),
        ("user.signingKey", key.to_str().expect("a plain path")),
        ("gpg.ssh.allowedSignersFile", signers.to_str().expect("a plain path")),
    ] {
        set(&scene, name, value);
    }
    let scene =
        scene.plan(&shell_plan(&[("A", "echo a > a.txt", ""), ("B", "echo b > b.txt", "")]));
    set(&scene, "commit.gpgSign", "true");
    Some(scene)
}

/// Sets it for git as it is started here, and for git as our program starts it: without variables of git's own.
fn set(scene: &TestScene, name: &str, value: &str) {
    let home = scene.repo().home().join(".gitconfig").display().to_string();
    scene.repo().git(&["config", "--global", name, value]);
    for (name, value) in
        [(name, value), ("user.name", "Test"), ("user.email", "test@example.invalid")]
    {
        scene.repo().git(&["config", "--file", &home, name, value]);
    }
}

fn signatures(scene: &TestScene) -> Vec<String> {
    let log = scene.repo().git(&["log", "--first-parent", "--format=%G?", "-2", "main"]);
    log.lines().map(str::to_owned).collect()
}

#[test]
fn landings_are_signed_where_commits_by_hand_would_be() {
    let Some(scene) = signing("") else { return };
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["A", "B"]);
    assert_eq!(signatures(&scene), ["G", "G"]);
    let doctor = scene.mainstem(&["doctor"]).stdout;
    assert!(doctor.contains("landed commits are signed"), "{doctor}");
    // A commit that is put on top is signed as well.
    scene.repo().git(&["commit", "-q", "--allow-empty", "-m", "mine"]);
    scene.expect(0, &["undo"]);
    assert_eq!(signatures(&scene)[0], "G");
}

#[test]
fn signing_can_be_switched_off() {
    let Some(scene) = signing("") else { return };
    scene.expect(0, &["--config", "land.sign=off", "run", "plan.toml"]);
    assert_eq!(signatures(&scene), ["N", "N"]);
}

#[test]
fn a_key_that_asks_for_a_passphrase_stops_nobody_unless_signatures_are_required() {
    let Some(scene) = signing("secret") else { return };
    let refused = scene.expect(1, &["--config", "land.sign=required", "run", "plan.toml"]);
    assert!(refused.stderr.contains("landings cannot be signed"), "{}", refused.stderr);
    assert!(scene.landings("main").is_empty());
    let ran = scene.expect(0, &["run", "plan.toml"]);
    assert!(ran.stderr.contains("not signed although commit.gpgSign is set"), "{}", ran.stderr);
    assert_eq!(signatures(&scene), ["N", "N"]);
    let doctor = scene.mainstem(&["doctor"]).stdout;
    assert!(doctor.contains("landed commits cannot be signed"), "{doctor}");
}

#[test]
fn the_users_hooks_are_named_and_never_run() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("A", "echo a > a.txt", "")]));
    let ran = scene.outside("ran");
    for name in ["pre-commit", "commit-msg", "post-merge"] {
        let hook = scene.repo().git_dir().join("hooks").join(name);
        fs::create_dir_all(hook.parent().expect("it has one")).expect("a folder");
        fs::write(&hook, format!("#!/bin/sh\necho {name} >> {}\nexit 1\n", ran.display()))
            .expect("a hook");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("our own file");
    }
    let output = scene.expect(0, &["run", "plan.toml"]);
    let named = "your git hooks pre-commit, commit-msg, post-merge do not run when work lands";
    assert!(output.stderr.contains(named), "{}", output.stderr);
    assert!(scene.mainstem(&["doctor"]).stdout.contains(named));
    assert!(!ran.exists());
    scene.assert_each_lands_once(&["A"]);
    // Wherever they are kept.
    scene.repo().write(".husky/pre-push", "#!/bin/sh\n");
    let hook = scene.repo().path().join(".husky/pre-push");
    fs::set_permissions(hook, fs::Permissions::from_mode(0o755)).expect("our own file");
    scene.repo().git(&["config", "core.hooksPath", ".husky"]);
    assert!(scene.mainstem(&["doctor"]).stdout.contains("your git hook pre-push does not run"));
}
