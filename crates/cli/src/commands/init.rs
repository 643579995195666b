//! `init`: looks at a repository and writes a short, commented settings file for it.
//!
//! Only looks at names and small files; runs none of the commands it finds.

use std::fs;
use std::path::{Path, PathBuf};

use mainstem_agents::known::{KNOWN, Known};
use mainstem_api::exit_code;
use mainstem_core::config::layers::{Layer, resolve};
use mainstem_host::files::write_atomic;
use serde_json::{Value, json};

use crate::args::InitArgs;
use crate::context::{CONFIG_FILE, Context};
use crate::failure::{Failure, Outcome};
use crate::print;

/// Larger files are not worth reading for a test command.
const READ_MAX: u64 = 1 << 20;

/// Files that hold a plan or could become one.
const SPECS: [&str; 12] = [
    "plan.toml",
    "plan.yaml",
    "plan.yml",
    "plan.json",
    "PRD.md",
    "prd.md",
    "docs/PRD.md",
    "docs/prd.md",
    "SPEC.md",
    "docs/spec.md",
    "tasks.md",
    ".taskmaster/tasks/tasks.json",
];

/// A command that tests the project, and the file that gave it away.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Test {
    command: String,
    because: &'static str,
    /// What a fresh workspace needs first.
    setup: Option<String>,
}

/// What a look at the repository found.
#[derive(Debug)]
struct Found {
    branch: String,
    tests: Vec<Test>,
    agents: Vec<&'static Known>,
    specs: Vec<String>,
}

/// Writes `mainstem.toml`, or says what it would hold.
pub(crate) fn init(context: &Context, args: &InitArgs) -> Outcome {
    let repo = context.repo()?;
    let root = repo.toplevel().ok_or_else(|| {
        Failure::new("this is a bare repository: it has no folder to put mainstem.toml in")
            .hint("run mainstem init in a checkout of it")
    })?;
    let found = Found {
        branch: repo.default_branch()?,
        tests: find_tests(root),
        agents: KNOWN.iter().filter(|known| on_path(known.program).is_some()).collect(),
        specs: find_specs(root),
    };
    let text = compose(&found);
    let file = root.join(CONFIG_FILE);
    if let Err(faults) = resolve(&[Layer::project(CONFIG_FILE, text.as_str())]) {
        let first = faults.first().map(|(_, fault)| fault.to_string()).unwrap_or_default();
        return Err(Failure::new(format!("BUG: the file would not pass its own check: {first}")));
    }
    if args.dry_run {
        return report(context, &found, &file, &text, false);
    }
    if file.symlink_metadata().is_ok() && !args.force {
        return Err(Failure::new(format!(
            "{} is there already; nothing was changed",
            file.display()
        ))
        .hint("mainstem init --dry-run shows what would be written; --force replaces the file")
        .hint("mainstem config shows every setting and where it comes from"));
    }
    write_atomic(&file, text.as_bytes())
        .map_err(|error| Failure::io(format!("{} cannot be written", file.display()), &error))?;
    report(context, &found, &file, &text, true)
}

fn report(context: &Context, found: &Found, file: &Path, text: &str, written: bool) -> Outcome {
    if context.global.json {
        let tests: Vec<Value> = found
            .tests
            .iter()
            .map(|test| json!({ "command": test.command, "because": test.because }))
            .collect();
        let agents: Vec<&str> = found.agents.iter().map(|known| known.kind).collect();
        print::out_json(&json!({
            "written": written, "file": file, "branch": found.branch, "tests": tests,
            "agents": agents, "specs": found.specs, "text": text,
        }))?;
        return Ok(exit_code::OK);
    }
    let or_none = |list: Vec<String>| {
        if list.is_empty() { "none found".to_owned() } else { list.join(" · ") }
    };
    let tests = found.tests.iter().map(|test| format!("{} ({})", test.command, test.because));
    let agents = found.agents.iter().map(|known| known.kind.to_owned());
    let rows = [
        ("branch", found.branch.clone()),
        ("tests", or_none(tests.collect())),
        ("agents", or_none(agents.collect())),
        ("plans", or_none(found.specs.clone())),
    ];
    let rows = rows.map(|(name, text)| vec![name.to_owned(), print::harmless(&text)]);
    print::err(print::table(&rows).trim_end());
    if !written {
        print::out(text)?;
        return Ok(exit_code::OK);
    }
    print::err(&format!("wrote {}", file.display()));
    let plan = found.specs.iter().find(|name| name.starts_with("plan."));
    let next = match plan {
        Some(plan) => format!("next: mainstem plan show {plan} · mainstem run {plan}"),
        None => "next: write plan.toml, then mainstem plan show plan.toml · mainstem run plan.toml"
            .to_owned(),
    };
    print::err(&next);
    Ok(exit_code::OK)
}

/// A text as TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn compose(found: &Found) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |line: &str| lines.push(line.to_owned());
    add(
        "# Settings of Mainstem for this repository. `mainstem config` lists every key and its value.",
    );
    add("");
    add("[run]");
    add("jobs = 3                      # agents at once");
    let agent = match found.agents.first() {
        Some(known) => {
            format!("agent = {:<22} # who works on tasks that name none", quoted(known.kind))
        }
        None => {
            "# agent = \"mine\"              # who works on tasks that name no agent; defined below"
                .to_owned()
        }
    };
    add(&agent);
    add("");
    add("[gates]");
    add("# Run on the exact merged tree; what does not pass does not land.");
    match found.tests.as_slice() {
        [] => add(
            "# verify = [\"make test\"]      # no test command was found: whatever merges will land",
        ),
        [first, others @ ..] => {
            add(&format!("verify = [{}]", quoted(&first.command)));
            for test in others {
                add(&format!("# also found: {} ({})", quoted(&test.command), test.because));
            }
        }
    }
    if let Some(setup) = found.tests.first().and_then(|test| test.setup.as_ref()) {
        add("");
        add("[workspace]");
        add("# Run in each new workspace, before the agent and before gates on the merged tree.");
        add(&format!("setup = [{}]", quoted(setup)));
    }
    add("");
    add("[land]");
    add(&format!("branch = {}", quoted(&found.branch)));
    add("");
    if found.agents.is_empty() {
        add(
            "# No known coding agent was found on the PATH. Any program can be one: it starts in its",
        );
        add("# workspace, with the prompt in the file $MAINSTEM_PROMPT and on standard input.");
        add("# [agents.mine]");
        add("# kind = \"command\"");
        add("# command = [\"./agent.sh\"]");
    } else {
        add(
            "# Found here; mainstem agents shows versions, logins and what they can do. A key that an",
        );
        add("# agent needs is named in its `secrets` and read from the environment.");
        for known in &found.agents {
            add(&format!("[agents.{}]", known.kind));
            add(&format!("# secrets = [{}]", quoted(known.keys.first().unwrap_or(&""))));
        }
    }
    lines.join("\n") + "\n"
}

/// A small text file; none if it is absent, large or no text.
fn small(root: &Path, name: &str) -> Option<String> {
    let path = root.join(name);
    let size = fs::metadata(&path).ok().filter(|meta| meta.is_file())?.len();
    (size <= READ_MAX).then(|| fs::read_to_string(&path).ok())?
}

fn find_tests(root: &Path) -> Vec<Test> {
    let has = |name: &str| root.join(name).exists();
    let test = |command: &str, because| Test { command: command.to_owned(), because, setup: None };
    let mut tests = Vec::new();
    if has("Cargo.toml") {
        tests.push(test("cargo test", "Cargo.toml"));
    }
    tests.extend(node_test(root));
    tests.extend(python_test(root));
    if has("go.mod") {
        tests.push(test("go test ./...", "go.mod"));
    }
    if let Some(name) =
        ["Makefile", "makefile", "GNUmakefile"].into_iter().find(|name| target(root, name))
    {
        tests.push(test("make test", name));
    }
    if let Some(name) = ["build.gradle", "build.gradle.kts"].into_iter().find(|name| has(name)) {
        tests.push(test(if has("gradlew") { "./gradlew test" } else { "gradle test" }, name));
    }
    if has("pom.xml") {
        tests.push(test(if has("mvnw") { "./mvnw -q test" } else { "mvn -q test" }, "pom.xml"));
    }
    if let Some(name) = ["justfile", "Justfile", ".justfile"].into_iter().find(|n| target(root, n))
    {
        tests.push(test("just test", name));
    }
    tests
}

/// Whether a makefile or justfile has a target or recipe called `test`.
fn target(root: &Path, name: &str) -> bool {
    // On file systems that ignore case two spellings are one file; only its true name counts.
    let listed = fs::read_dir(root)
        .is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name() == name));
    let is_test = |line: &str| {
        let line = line.strip_prefix('@').unwrap_or(line);
        let rest = line.strip_prefix("test").unwrap_or("-");
        rest.starts_with([':', ' ']) && rest.contains(':') && !rest.contains(":=")
    };
    listed && small(root, name).is_some_and(|text| text.lines().any(is_test))
}

fn node_test(root: &Path) -> Option<Test> {
    let package: Value = serde_json::from_str(&small(root, "package.json")?).ok()?;
    let script = package["scripts"]["test"].as_str()?;
    if script.contains("no test specified") {
        return None;
    }
    let has = |name: &str| root.join(name).exists();
    let (command, setup) = if has("pnpm-lock.yaml") {
        ("pnpm test", Some("pnpm install --frozen-lockfile"))
    } else if has("yarn.lock") {
        ("yarn test", Some("yarn install --immutable"))
    } else if has("bun.lock") || has("bun.lockb") {
        ("bun run test", Some("bun install --frozen-lockfile"))
    } else if has("package-lock.json") {
        ("npm test", Some("npm ci"))
    } else {
        ("npm test", None)
    };
    let setup = setup.map(str::to_owned);
    Some(Test { command: command.to_owned(), because: "package.json", setup })
}

fn python_test(root: &Path) -> Option<Test> {
    let says = |name: &str| small(root, name).is_some_and(|text| text.contains("pytest"));
    let has = |name: &str| root.join(name).exists();
    let python = ["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"];
    let because = if has("pytest.ini") {
        "pytest.ini"
    } else if says("pyproject.toml") {
        "pyproject.toml"
    } else if python.into_iter().any(has) && root.join("tests").is_dir() {
        "tests/"
    } else {
        return None;
    };
    let command = if has("uv.lock") { "uv run pytest" } else { "pytest" };
    Some(Test { command: command.to_owned(), because, setup: None })
}

fn find_specs(root: &Path) -> Vec<String> {
    let names: Vec<String> = fs::read_dir(root)
        .map(|entries| {
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
        })
        .unwrap_or_default();
    let there = |name: &&str| {
        let top = name.split('/').next().unwrap_or(name);
        names.iter().any(|found| found == top) && root.join(name).is_file()
    };
    let mut specs: Vec<String> =
        SPECS.iter().filter(|name| there(name)).map(ToString::to_string).collect();
    // docs/PRD.md and docs/prd.md may be one file.
    specs.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    for folder in ["specs", ".kiro/specs", "openspec/changes"] {
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        let mut inside: Vec<String> = entries
            .flatten()
            .filter(|entry| entry.path().join("tasks.md").is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| format!("{folder}/{name}/tasks.md"))
            .collect();
        inside.sort();
        specs.extend(inside);
    }
    specs
}

/// Where a program of this name would be found.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| runnable(path))
}

/// Whether a path is a file that we may run.
pub(super) fn runnable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn commands(files: &[(&str, &str)]) -> Vec<String> {
        let dir = folder(files);
        find_tests(dir.path()).into_iter().map(|test| test.command).collect()
    }

    #[test]
    fn each_kind_of_project_gives_its_test_command_away() {
        assert_eq!(commands(&[("Cargo.toml", "")]), ["cargo test"]);
        let node = r#"{"scripts":{"test":"vitest"}}"#;
        assert_eq!(commands(&[("package.json", node)]), ["npm test"]);
        assert_eq!(commands(&[("package.json", node), ("pnpm-lock.yaml", "")]), ["pnpm test"]);
        assert_eq!(commands(&[("pytest.ini", "")]), ["pytest"]);
        assert_eq!(commands(&[("setup.py", ""), ("tests/test_a.py", "")]), ["pytest"]);
        assert_eq!(commands(&[("go.mod", "")]), ["go test ./..."]);
        assert_eq!(commands(&[("Makefile", "all:\n\ttrue\ntest: all\n\ttrue\n")]), ["make test"]);
        assert_eq!(commands(&[("build.gradle", ""), ("gradlew", "")]), ["./gradlew test"]);
        assert_eq!(commands(&[("pom.xml", "")]), ["mvn -q test"]);
        assert_eq!(commands(&[("justfile", "test *args:\n  true\n")]), ["just test"]);
    }

    #[test]
    fn what_only_looks_like_a_test_command_is_left_alone() {
        let npm = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
        assert!(commands(&[("package.json", npm)]).is_empty());
        assert!(commands(&[("package.json", "{ junk")]).is_empty());
        assert!(commands(&[("Makefile", "tests:\n\ttest := 1\ntest := 2\n")]).is_empty());
        assert!(commands(&[("tests/a.txt", "")]).is_empty());
    }

    #[test]
    fn whatever_was_found_the_file_passes_the_settings_check() {
        let odd = Test {
            command: "a \"b\" \\ 'c'".to_owned(),
            because: "x",
            setup: Some("y\"".to_owned()),
        };
        for tests in [vec![], vec![odd.clone()], vec![odd.clone(), odd]] {
            for agents in [vec![], KNOWN.iter().collect()] {
                let found = Found {
                    branch: "feature/x".into(),
                    tests: tests.clone(),
                    agents,
                    specs: vec![],
                };
                let text = compose(&found);
                resolve(&[Layer::project("x", text.as_str())]).unwrap();
                let bare: String = text
                    .replace("# [agents", "[agents")
                    .replace("# kind", "kind")
                    .replace("# secrets", "secrets")
                    .replace("# command", "command");
                resolve(&[Layer::project("x", bare)]).unwrap();
            }
        }
    }
}
