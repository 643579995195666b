//! Python: uv, poetry or hatch where the project uses them and they are here; else an environment of the
//! workspace's own, with what the project says its tests need.

#![expect(
    clippy::disallowed_methods,
    reason = "Python is asked here and now what it can do, outside any run"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use toml::Value;

use super::{EcosystemProject, InstalledPrograms, read_small_file};

/// Files that say that a folder holds a Python project.
const MARKERS: [&str; 5] =
    ["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile"];
/// Names of the extras and groups that hold what tests need, best first.
const TEST_GROUPS: [&str; 6] = ["test", "tests", "testing", "tests-runner", "dev", "development"];
/// Files of requirements for tests.
const TEST_FILES: [&str; 9] = [
    "requirements-test.txt",
    "requirements-tests.txt",
    "test-requirements.txt",
    "test_requirements.txt",
    "requirements/test.txt",
    "requirements/tests.txt",
    "tests/requirements.txt",
    "requirements-dev.txt",
    "dev-requirements.txt",
];
/// Requirements written into one command.
const REQUIREMENTS_MAX: usize = 30;
/// Test files read for what they import.
const TEST_FILES_MAX: usize = 200;
/// What tests import, and what brings it.
const IMPORTS: [(&str, &str); 16] = [
    ("hypothesis", "hypothesis"),
    ("pytest_mock", "pytest-mock"),
    ("freezegun", "freezegun"),
    ("responses", "responses"),
    ("requests_mock", "requests-mock"),
    ("mock", "mock"),
    ("parameterized", "parameterized"),
    ("pytest_asyncio", "pytest-asyncio"),
    ("trio", "trio"),
    ("anyio", "anyio"),
    ("numpy", "numpy"),
    ("yaml", "pyyaml"),
    ("attr", "attrs"),
    ("dateutil", "python-dateutil"),
    ("pretend", "pretend"),
    ("pytest_httpserver", "pytest-httpserver"),
];
/// Options in a project's pytest settings, and the plugin they come from.
const OPTIONS: [(&str, &str); 6] = [
    ("--cov", "pytest-cov"),
    ("--benchmark", "pytest-benchmark"),
    ("-n auto", "pytest-xdist"),
    ("--timeout", "pytest-timeout"),
    ("asyncio_mode", "pytest-asyncio"),
    ("--doctest-glob", ""),
];

/// Whether `python3` can make a virtual environment with pip in it.
pub(super) fn can_create_venv() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import venv, ensurepip"]);
    python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

/// The Python project of a folder, if it has tests.
pub(super) fn python_project(
    dir: &Path,
    machine: &InstalledPrograms<'_>,
) -> Option<EcosystemProject> {
    let because = MARKERS.into_iter().find(|name| dir.join(name).is_file())?;
    let project: Value = read_small_file(dir, "pyproject.toml")
        .and_then(|text| text.parse::<toml::Table>().ok())
        .map_or_else(|| Value::Table(toml::Table::new()), Value::Table);
    let tests = ["tests", "test", "testing"].into_iter().find(|name| dir.join(name).is_dir());
    let says = |name: &str| read_small_file(dir, name).is_some_and(|text| text.contains("pytest"));
    let files = ["pytest.ini", "conftest.py", "tests/conftest.py", "test/conftest.py"];
    let pytest = files.iter().any(|name| dir.join(name).is_file())
        || ["pyproject.toml", "setup.cfg", "tox.ini", "setup.py", "noxfile.py"]
            .into_iter()
            .any(says)
        || TEST_FILES.into_iter().any(says)
        || test_imports(dir, tests).contains("pytest");
    if !pytest && tests.is_none() {
        return None;
    }
    let test = if pytest { "pytest" } else { "unittest" };
    Some(managed_project(dir, machine, &project, test).unwrap_or_else(|| {
        let wanted = declared_manager(dir, &project).filter(|name| !machine.has_program(name));
        let note =
            wanted.map(|name| format!("{name} is not installed; pip in .venv/ is used instead"));
        EcosystemProject {
            because: because.to_owned(),
            note,
            ..venv_project(dir, machine, &project, (test, tests))
        }
    }))
}

/// The tool that the project is managed with.
fn declared_manager(dir: &Path, project: &Value) -> Option<&'static str> {
    let has = |name: &str| dir.join(name).is_file();
    let tool = |name: &str| project.get("tool").and_then(|tool| tool.get(name)).is_some();
    if has("uv.lock") || tool("uv") {
        Some("uv")
    } else if has("poetry.lock") || tool("poetry") {
        Some("poetry")
    } else if project.get("tool").and_then(|t| t.get("hatch")?.get("envs")).is_some() {
        Some("hatch")
    } else {
        None
    }
}

fn managed_project(
    dir: &Path,
    machine: &InstalledPrograms<'_>,
    project: &Value,
    test: &str,
) -> Option<EcosystemProject> {
    let name = declared_manager(dir, project).filter(|name| machine.has_program(name))?;
    let module = if test == "pytest" { "pytest" } else { "python -m unittest" };
    let (because, setup, verify) = match name {
        "uv" => {
            let locked = read_small_file(dir, "uv.lock")
                .is_some_and(|text| text.contains("name = \"pytest\""));
            let groups = "uv sync --all-groups --all-extras";
            let run = if locked || test != "pytest" { "uv run" } else { "uv run --with pytest" };
            ("uv.lock", vec![groups.to_owned()], format!("{run} {module}"))
        }
        "poetry" => {
            let install = "poetry install --all-extras --no-interaction";
            ("pyproject.toml", vec![install.to_owned()], format!("poetry run {module}"))
        }
        _ => ("pyproject.toml", Vec::new(), "hatch test".to_owned()),
    };
    Some(EcosystemProject {
        ecosystem: name,
        because: because.to_owned(),
        setup,
        verify: vec![verify],
        ..EcosystemProject::default()
    })
}

/// A virtual environment in the workspace, ignored by git wherever the project ignores what.
fn venv_project(
    dir: &Path,
    machine: &InstalledPrograms<'_>,
    project: &Value,
    (test, tests): (&str, Option<&str>),
) -> EcosystemProject {
    let module = match (test, tests) {
        ("pytest", _) => "-m pytest".to_owned(),
        (_, Some(tests)) => format!("-m unittest discover -s {tests}"),
        (_, None) => "-m unittest discover".to_owned(),
    };
    if !machine.venv {
        return EcosystemProject {
            ecosystem: "python",
            verify: vec![format!("python3 {module}")],
            missing: vec!["python3-venv".to_owned()],
            ..EcosystemProject::default()
        };
    }
    let mut install = vec!["install -q".to_owned()];
    let packaged =
        ["pyproject.toml", "setup.py", "setup.cfg"].iter().any(|f| dir.join(f).is_file());
    // A pyproject.toml may only hold the settings of tools.
    let buildable = dir.join("setup.py").is_file()
        || project.get("project").is_some()
        || project.get("build-system").is_some();
    if packaged && buildable {
        let extras = test_extras(dir, project);
        install.push(match extras.as_slice() {
            [] => "-e .".to_owned(),
            some => format!("-e '.[{}]'", some.join(",")),
        });
    }
    if dir.join("requirements.txt").is_file() {
        install.push("-r requirements.txt".to_owned());
    }
    if let Some(file) = TEST_FILES.into_iter().find(|name| dir.join(name).is_file()) {
        install.push(format!("-r {file}"));
    }
    let mut wanted = test_requirements(dir, project, tests);
    if test == "pytest" && !wanted.iter().any(|one| requirement_name(one) == "pytest") {
        wanted.push("pytest".to_owned());
    }
    wanted.truncate(REQUIREMENTS_MAX);
    install.extend(wanted.iter().map(|one| quote_requirement(one)));
    let mut setup = vec!["python3 -m venv .venv && echo '*' > .venv/.gitignore".to_owned()];
    if install.len() > 1 {
        setup.push(format!(".venv/bin/python -m pip {}", install.join(" ")));
    }
    EcosystemProject {
        ecosystem: "python",
        setup,
        verify: vec![format!(".venv/bin/python {module}")],
        ..EcosystemProject::default()
    }
}

/// A requirement as a word for a shell.
fn quote_requirement(requirement: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if requirement.chars().all(plain) { requirement.to_owned() } else { format!("'{requirement}'") }
}

/// The name of what a requirement asks for.
fn requirement_name(requirement: &str) -> String {
    let name = requirement.split(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c)));
    name.into_iter().next().unwrap_or_default().to_ascii_lowercase().replace('_', "-")
}

/// A requirement that can be written into a command.
fn is_usable_requirement(requirement: &str) -> bool {
    !requirement.is_empty()
        && !requirement.contains(['\'', '{', '`', '$', '\\'])
        && requirement.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Extras of the package that hold what its tests need.
fn test_extras(dir: &Path, project: &Value) -> Vec<String> {
    let optional = project.get("project").and_then(|p| p.get("optional-dependencies"));
    let mut named: Vec<String> = optional
        .and_then(Value::as_table)
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default();
    if let Some(text) = read_small_file(dir, "setup.cfg") {
        let lines =
            text.lines().skip_while(|line| line.trim() != "[options.extras_require]").skip(1);
        let section = lines.take_while(|line| !line.starts_with('['));
        named.extend(
            section
                .filter(|line| !line.starts_with(char::is_whitespace))
                .filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned())),
        );
    }
    let wanted = TEST_GROUPS.iter().find(|group| named.iter().any(|name| name == *group));
    wanted.map(|group| vec![(*group).to_owned()]).unwrap_or_default()
}

/// What the tests need besides the package: dependency groups, tox, plugins, imports.
fn test_requirements(dir: &Path, project: &Value, tests: Option<&str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    if let Some(groups) = project.get("dependency-groups").and_then(Value::as_table)
        && let Some(group) = TEST_GROUPS.iter().find(|group| groups.contains_key(**group))
    {
        collect_group(groups, group, &mut all, 0);
    }
    all.extend(tox_dependencies(dir));
    let settings: String = ["pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini"]
        .into_iter()
        .filter_map(|name| read_small_file(dir, name))
        .collect();
    let plugins =
        OPTIONS.iter().filter(|(option, plugin)| !plugin.is_empty() && settings.contains(option));
    all.extend(plugins.map(|(_, plugin)| (*plugin).to_owned()));
    let imported = test_imports(dir, tests);
    let brought = IMPORTS.iter().filter(|(module, _)| imported.contains(*module));
    all.extend(brought.map(|(_, package)| (*package).to_owned()));
    let own = project
        .get("project")
        .and_then(|p| p.get("name"))
        .and_then(Value::as_str)
        .map(requirement_name);
    let mut seen = BTreeSet::new();
    all.retain(|one| {
        is_usable_requirement(one)
            && Some(requirement_name(one)) != own
            && seen.insert(requirement_name(one))
    });
    all
}

fn collect_group(groups: &toml::Table, name: &str, all: &mut Vec<String>, depth: usize) {
    let Some(entries) = groups.get(name).and_then(Value::as_array).filter(|_| depth < 8) else {
        return;
    };
    for entry in entries {
        match entry {
            Value::String(requirement) => all.push(requirement.clone()),
            Value::Table(table) => {
                if let Some(other) = table.get("include-group").and_then(Value::as_str) {
                    collect_group(groups, other, all, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// The dependencies of tox's plain test environment.
fn tox_dependencies(dir: &Path) -> Vec<String> {
    let Some(text) = read_small_file(dir, "tox.ini") else { return Vec::new() };
    let lines = text.lines().skip_while(|line| line.trim() != "[testenv]").skip(1);
    let mut found = Vec::new();
    let mut inside = false;
    for line in lines.take_while(|line| !line.starts_with('[')) {
        if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with([' ', '\t']))
        {
            inside = key.trim() == "deps";
            if !inside {
                continue;
            }
            found.push(value.trim().to_owned());
        } else if inside && line.starts_with([' ', '\t']) {
            found.push(line.trim().to_owned());
        } else if !line.trim().is_empty() {
            inside = false;
        }
    }
    // What holds only for some environments is written `factor: requirement`.
    found.retain(|one| {
        !one.starts_with(['#', '-', '.']) && !one.contains(": ") && !one.contains(".[")
    });
    found
}

/// The modules that test files import.
fn test_imports(dir: &Path, tests: Option<&str>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let folders = [tests.map(|tests| dir.join(tests)), Some(dir.to_path_buf())];
    let files = folders.into_iter().flatten().flat_map(|folder| {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    });
    let python = files.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_test =
            name.starts_with("test") || name.ends_with("_test.py") || name == "conftest.py";
        name.ends_with(".py") && is_test
    });
    for file in python.take(TEST_FILES_MAX) {
        let text = fs::read_to_string(file).unwrap_or_default();
        for line in text.lines() {
            let rest = line.strip_prefix("import ").or_else(|| line.strip_prefix("from "));
            let module = rest.and_then(|rest| rest.split([' ', '.', ',']).next());
            found.extend(module.map(str::to_owned));
        }
    }
    found
}
