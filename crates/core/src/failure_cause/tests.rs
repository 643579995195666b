//! Outputs as programs really printed them, and what is read from them.

use super::*;

struct Place {
    denied: &'static [&'static str],
    files: &'static [&'static str],
}

const OPEN: Place = Place { denied: &[], files: &[] };

fn cause(gate: &str, code: i32, output: &str, place: &Place) -> GateFailureCause {
    let denies_write = |path: &str| place.denied.iter().any(|denied| path.starts_with(denied));
    let has = |file: &str| place.files.contains(&file);
    let around = GateEnvironment {
        denies_write: &denies_write,
        has: &has,
        no_network: false,
        home: Some("/h/ann"),
        limit_ms: 1_200_000,
    };
    classify_failure(gate, &AgentEnding::Exited { code }, output, &around)
}

fn not_found(program: &str) -> GateFailureCause {
    GateFailureCause::CommandNotFound { program: program.to_owned() }
}

fn missing(name: &str, setup: &str) -> GateFailureCause {
    GateFailureCause::MissingDependency { name: name.to_owned(), setup: setup.to_owned() }
}

#[test]
fn a_program_that_is_not_there_is_named_whoever_says_so() {
    for (gate, code, output, program) in [
        ("uv run pytest", 127, "/bin/sh: 1: uv: not found\n", "uv"),
        ("uv run pytest", 127, "sh: line 1: uv: command not found\n", "uv"),
        ("bash ci.sh", 127, "ci.sh: line 3: shellcheck: command not found\n", "shellcheck"),
        ("zsh x", 127, "zsh:1: command not found: just\n", "just"),
        ("./run", 127, "/usr/bin/env: ‘node’: No such file or directory\n", "node"),
        ("nosuchtool --all", 127, "", "nosuchtool"),
        (
            "make test",
            2,
            "pytest -q\nmake: pytest: No such file or directory\nmake: *** [Makefile:2: test] Error 127\n",
            "pytest",
        ),
        ("./check.sh", 127, "/bin/sh: 1: ./check.sh: not found\n", "./check.sh"),
    ] {
        assert_eq!(cause(gate, code, output, &OPEN), not_found(program), "{output}");
    }
}

#[test]
fn a_script_without_the_executable_bit_is_told_from_a_missing_one() {
    let found = cause("./check.sh", 126, "/bin/sh: 1: ./check.sh: Permission denied\n", &OPEN);
    assert_eq!(found, GateFailureCause::NotExecutable { program: "./check.sh".to_owned() });
    assert!(found.fix_hint().is_some_and(|hint| hint.contains("--chmod=+x check.sh")));
}

#[test]
fn packages_that_were_never_installed_ask_for_a_setup_step() {
    let node = Place { denied: &[], files: &["package.json", "package-lock.json"] };
    let mocha =
        "\n> express@5.0.0 test\n> mocha --require test/support/env\n\nsh: 1: mocha: not found\n";
    assert_eq!(cause("npm test", 127, mocha, &node), missing("mocha", "npm ci"));
    let module = "node:internal/modules/cjs/loader:1143\n  throw err;\n  ^\n\nError: Cannot find module 'express'\nRequire stack:\n- /w/app.js\n";
    assert_eq!(cause("node test.js", 1, module, &node), missing("express", "npm ci"));
    let pnpm = Place { denied: &[], files: &["package.json", "pnpm-lock.yaml"] };
    let esm = "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'vitest' imported from /w/a.mjs\n";
    assert_eq!(
        cause("pnpm test", 1, esm, &pnpm),
        missing("vitest", "pnpm install --frozen-lockfile")
    );
    let python = Place { denied: &[], files: &["requirements.txt"] };
    let import = "Traceback (most recent call last):\n  File \"/w/a.py\", line 1, in <module>\n    import flask\nModuleNotFoundError: No module named 'flask'\n";
    let found = cause("python3 a.py", 1, import, &python);
    assert!(
        matches!(&found, GateFailureCause::MissingDependency { name, .. } if name == "flask"),
        "{found:?}"
    );
    let flag = "/usr/bin/python3: No module named pytest\n";
    let uv = Place { denied: &[], files: &["uv.lock"] };
    assert_eq!(cause("python3 -m pytest", 1, flag, &uv), missing("pytest", "uv sync"));
}

#[test]
fn a_missing_file_of_the_project_itself_is_the_works_own_fault() {
    let node = Place { denied: &[], files: &["package.json"] };
    let own = "Error: Cannot find module './lib/cart'\n";
    assert_eq!(cause("node test.js", 1, own, &node), GateFailureCause::Failed {});
    let installed = Place { denied: &[], files: &["package.json", "node_modules"] };
    let other = "Error: Cannot find module 'left-pad'\n";
    assert_eq!(cause("node test.js", 1, other, &installed), GateFailureCause::Failed {});
    let data = "cat: expected.txt: No such file or directory\n";
    assert_eq!(cause("sh check.sh", 1, data, &OPEN), GateFailureCause::Failed {});
}

#[test]
fn writes_that_the_sandbox_refused_name_the_path_and_what_to_allow() {
    let place = Place { denied: &["/h/ann", "/etc", "/tmp"], files: &[] };
    for (output, path, allow) in [
        (
            "error: failed to write /h/ann/.local/share/foo/lock: Read-only file system (os error 30)\n",
            "~/.local/share/foo/lock",
            "~/.local/share/foo",
        ),
        (
            "touch: cannot touch '/h/ann/.config/app/x': Permission denied\n",
            "~/.config/app/x",
            "~/.config/app",
        ),
        (
            "mkdir: cannot create directory ‘/h/ann/.gradle/caches’: Read-only file system\n",
            "~/.gradle/caches",
            "~/.gradle",
        ),
        (
            "PermissionError: [Errno 13] Permission denied: '/h/ann/.matplotlib'\n",
            "~/.matplotlib",
            "~/.matplotlib",
        ),
        (
            "npm ERR! Error: EACCES: permission denied, mkdir '/h/ann/.npm/_cacache/tmp'\n",
            "~/.npm/_cacache/tmp",
            "~/.npm/_cacache",
        ),
        (
            "error: failed to open: /h/ann/.cargo/registry/x/.lock\n\nCaused by:\n  Read-only file system (os error 30)\n",
            "~/.cargo/registry/x/.lock",
            "~/.cargo/registry/x",
        ),
        (
            "open /h/ann/.cache/go-build/ab/cd-a: read-only file system\n",
            "~/.cache/go-build/ab/cd-a",
            "~/.cache/go-build/ab",
        ),
        ("cc: Cannot create temporary file in /tmp/: Permission denied\n", "/tmp/", "/tmp"),
        (
            "sh: 1: cannot create /etc/app.conf: Read-only file system\n",
            "/etc/app.conf",
            "/etc/app.conf",
        ),
    ] {
        let (path, allow) = (path.to_owned(), allow.to_owned());
        let found = cause("cargo test", 1, output, &place);
        assert_eq!(found, GateFailureCause::SandboxDenied { path, allow }, "{output}");
    }
}

#[test]
fn a_refusal_outside_what_the_sandbox_guards_is_not_blamed_on_it() {
    let output = "open /var/lib/app/db: permission denied\nFAIL\n";
    assert_eq!(cause("go test ./...", 1, output, &OPEN), GateFailureCause::Failed {});
    let place = Place { denied: &["/h/ann"], files: &[] };
    assert_eq!(cause("go test ./...", 1, output, &place), GateFailureCause::Failed {});
}

#[test]
fn ends_that_are_no_verdict_are_told_apart() {
    let nothing = |_: &str| false;
    let around = GateEnvironment {
        denies_write: &nothing,
        has: &nothing,
        no_network: true,
        home: None,
        limit_ms: 60_000,
    };
    let of = |ending: AgentEnding, output: &str| classify_failure("x", &ending, output, &around);
    assert_eq!(
        of(AgentEnding::TimedOut { idle: false }, ""),
        GateFailureCause::TimedOut { limit_ms: 60_000 }
    );
    assert_eq!(
        of(AgentEnding::Signalled { signal: 11 }, ""),
        GateFailureCause::Killed { signal: 11 }
    );
    assert_eq!(
        of(AgentEnding::Exited { code: 137 }, "Killed\n"),
        GateFailureCause::Killed { signal: 9 }
    );
    let limit = Some(1 << 30);
    assert_eq!(
        of(AgentEnding::OutOfMemory { limit: 1 << 30 }, ""),
        GateFailureCause::OutOfMemory { limit }
    );
    assert_eq!(
        of(AgentEnding::NotStarted { why: String::new(), permanent: false }, ""),
        GateFailureCause::CouldNotRun {}
    );
    let heap =
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n";
    assert_eq!(
        of(AgentEnding::Exited { code: 134 }, heap),
        GateFailureCause::OutOfMemory { limit: None }
    );
    let dns = "curl: (6) Could not resolve host: index.crates.io\n";
    assert_eq!(
        of(AgentEnding::Exited { code: 101 }, dns),
        GateFailureCause::NoNetwork { sandboxed: true }
    );
    assert_eq!(
        of(AgentEnding::Exited { code: 5 }, "no tests ran in 0.01s\n"),
        GateFailureCause::NoTests {}
    );
    assert_eq!(
        of(AgentEnding::Exited { code: 1 }, "assertion failed\n"),
        GateFailureCause::Failed {}
    );
}

#[test]
fn the_line_that_says_most_is_found_among_the_noise() {
    let rust = "running 1 test\ntest tests::total ... FAILED\n\nfailures:\n\n---- tests::total stdout ----\nthread 'tests::total' panicked at src/lib.rs:9:9:\nassertion `left == right` failed\n  left: 2\n right: 3\n\nfailures:\n    tests::total\n\ntest result: FAILED. 0 passed; 1 failed\n\nerror: test failed, to rerun pass `--lib`\n";
    assert_eq!(most_telling_line(rust), Some("assertion `left == right` failed"));
    let pytest = "E       assert 2 == 3\n\ntests/test_a.py:4: AssertionError\nFAILED tests/test_a.py::test_total - assert 2 == 3\n1 failed in 0.02s\n";
    assert_eq!(
        most_telling_line(pytest),
        Some("FAILED tests/test_a.py::test_total - assert 2 == 3")
    );
    assert_eq!(most_telling_line("one\ntwo\n\n"), Some("two"));
    assert_eq!(most_telling_line("\n"), None);
}

#[test]
fn our_own_first_line_is_no_part_of_the_output() {
    assert_eq!(output_in_detail("exit code 1\nboom\n"), "boom\n");
    assert_eq!(output_in_detail("cannot be checked out"), "cannot be checked out");
    assert_eq!(output_in_detail("exit code 1"), "");
}

#[test]
fn a_name_in_the_home_folder_that_changes_with_every_run_asks_for_another_home() {
    let denied = |path: &str| GateFailureCause::SandboxDenied {
        path: path.to_owned(),
        allow: path.to_owned(),
    };
    assert!(denied("~/.node-spawn-wrap-12345-0b2bd5a1").needs_own_home());
    for path in ["~/.cache", "~/.config/app-12345", "/opt/tool-12345", "~/.m2"] {
        assert!(!denied(path).needs_own_home(), "{path}");
    }
    let hint = denied("~/.node-spawn-wrap-12345-0b2bd5a1").fix_hint().expect("a hint");
    assert!(hint.contains("HOME=\"$TMPDIR\""), "{hint}");
}
