//! Machines where nobody is root and no user namespaces can be had: bubblewrap fails there, Landlock works.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use mainstem_testkit::TestScene;
use mainstem_testkit::scene::TEST_BINARY;
use mainstem_testkit::shell_plans::shell_plan;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
/// Nobody, on every system.
const NOBODY: &str = "65534";

/// Runs our program in a scene as an ordinary user, with a bubblewrap that may make no namespaces.
#[expect(clippy::disallowed_methods, reason = "the whole scene gets another owner")]
fn run_as_nobody(scene: &TestScene, args: &[&str]) -> Option<Output> {
    let root = scene.repo().root();
    let bin = root.join("bin");
    fs::create_dir_all(&bin).expect("a folder");
    let bwrap = bin.join("bwrap");
    let script = "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n";
    fs::write(&bwrap, script).expect("a program");
    let own = bin.join("mainstem");
    if !own.exists() {
        fs::copy(BIN, &own).expect("a copy of our program");
    }
    for program in [&bwrap, &own] {
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("our own file");
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root {
        let owner = format!("{NOBODY}:{NOBODY}");
        let chown = Command::new("chown").args(["-R", &owner]).arg(root).status();
        assert!(chown.expect("chown is there").success());
        let mut command = scene.repo().command("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(&own);
        command
    } else {
        scene.repo().command(&own)
    };
    command.env("PATH", path).args(args).output().ok()
}

fn text(output: &Output) -> String {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

fn has_landed(scene: &TestScene, file: &str) -> bool {
    Path::new(&scene.repo().path().join(file)).exists()
}

#[test]
fn without_root_and_user_namespaces_agents_run_behind_landlock() {
    let check =
        "mktemp > /dev/null && ! touch ~/outside 2>/dev/null && ! cat ~/.ssh/id 2>/dev/null";
    let scene = TestScene::new(BIN)
        .walled("auto")
        .config(&format!(
            "[run]\nretries = 0\n[gates]\nneed_tests = false\nverify = ['''{check}''']\n"
        ))
        .plan(&shell_plan(&[("T", &format!("{check} && echo x > x.txt"), "")]));
    let home = scene.repo().home();
    fs::create_dir_all(home.join(".ssh")).expect("a folder at home");
    fs::write(home.join(".ssh/id"), "secret").expect("a file at home");
    let Some(output) =
        run_as_nobody(&scene, &["--config", "sandbox.kind=auto", "run", "plan.toml"])
    else {
        return println!("left out: setpriv is not installed here");
    };
    let said = text(&output);
    assert!(output.status.success() && said.contains("Landlock"), "{said}");
    assert!(has_landed(&scene, "x.txt") && !home.join("outside").exists(), "{said}");
}

#[test]
fn a_sandbox_that_cannot_be_had_is_refused_in_one_sentence_that_names_the_setting() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T", "echo x > x.txt", "")]));
    let Some(output) =
        run_as_nobody(&scene, &["--config", "sandbox.kind=bwrap", "run", "plan.toml"])
    else {
        return println!("left out: setpriv is not installed here");
    };
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the sandbox bubblewrap does not work here"), "{said}");
    assert!(said.contains("No permissions to create new namespace"), "{said}");
    assert!(said.contains("sandbox.kind"), "{said}");
    assert!(!has_landed(&scene, "x.txt"));
}

/// Runs one of these tests again as an ordinary user, if we are root; otherwise it runs as one anyway.
#[expect(clippy::disallowed_methods, reason = "our own test program, as another user")]
fn again_as_nobody(test: &str) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::Builder::new().prefix("ms").tempdir_in("/tmp").expect("a temporary folder");
    let (program, own, tmp) =
        (dir.path().join("it"), dir.path().join("mainstem"), dir.path().join("t"));
    // Nobody may look into the folder in which we were built.
    fs::copy(std::env::current_exe().expect("we run"), &program).expect("a copy of this program");
    fs::copy(BIN, &own).expect("a copy of our program");
    fs::create_dir(&tmp).expect("a folder");
    for (path, mode) in [(dir.path(), 0o755), (&tmp, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own folder");
    }
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg(&program)
        .args(["--exact", test, "--nocapture"])
        .current_dir(&tmp)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
        .env("HOME", &tmp)
        .env("TMPDIR", &tmp)
        .env(TEST_BINARY, &own)
        .output()
        .expect("setpriv is installed");
    let said = text(&output);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn no_attack_of_an_ordinary_users_agent_succeeds_behind_bubblewrap_in_a_worktree() {
    again_as_nobody("attacks::no_attack_succeeds_behind_bubblewrap_in_a_worktree");
}

#[test]
fn no_attack_of_an_ordinary_users_agent_succeeds_behind_bubblewrap_in_a_clone() {
    again_as_nobody("attacks::no_attack_succeeds_behind_bubblewrap_in_a_clone");
}

#[test]
fn no_attack_of_an_ordinary_users_agent_succeeds_behind_landlock_in_a_worktree() {
    again_as_nobody("attacks::no_attack_succeeds_behind_landlock_in_a_worktree");
}

#[test]
fn no_attack_of_an_ordinary_users_agent_succeeds_behind_landlock_in_a_clone() {
    again_as_nobody("attacks::no_attack_succeeds_behind_landlock_in_a_clone");
}

#[test]
fn an_ordinary_users_session_and_hidden_files_are_safe_too() {
    for test in [
        "no_program_of_the_users_session_hears_an_agent_or_a_gate",
        "a_hidden_file_that_is_replaced_while_an_agent_works_stays_hidden",
    ] {
        again_as_nobody(&format!("quarantine::{test}"));
    }
}

#[test]
fn an_ordinary_users_leases_and_sockets_are_safe_too() {
    for test in [
        "links_among_the_leases_of_ports_lead_the_engine_nowhere",
        "nobody_listens_in_place_of_an_engine_whose_socket_needs_a_short_path",
    ] {
        again_as_nobody(&format!("quarantine::{test}"));
    }
}

#[test]
fn an_ordinary_users_objects_and_credentials_are_safe_too() {
    for test in [
        "content_planted_under_the_name_of_anothers_file_never_lands_as_its_work",
        "credentials_in_gits_settings_reach_no_agent_no_gate_and_no_log",
    ] {
        again_as_nobody(&format!("quarantine::{test}"));
    }
}
