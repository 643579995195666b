#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

const ALL: [&str; 14] = [
    "cargo", "npm", "npx", "pnpm", "yarn", "bun", "python3", "uv", "poetry", "hatch", "go", "mvn",
    "make", "just",
];

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn projects(files: &[(&str, &str)], programs: &[&str]) -> Vec<EcosystemProject> {
    let dir = folder(files);
    find_projects(dir.path(), &InstalledPrograms::with(programs))
}

/// The only project's setup and checks.
fn one(files: &[(&str, &str)], programs: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut found = projects(files, programs);
    assert_eq!(found.len(), 1, "{found:?}");
    let found = found.remove(0);
    assert!(found.missing.is_empty(), "{found:?}");
    (found.setup, found.verify)
}

fn verify(files: &[(&str, &str)]) -> Vec<String> {
    projects(files, &ALL).into_iter().flat_map(|project| project.verify).collect()
}

const NODE: &str = r#"{"scripts":{"test":"vitest"},"devDependencies":{"vitest":"1"}}"#;

#[test]
fn each_kind_of_project_gives_its_check_away() {
    assert_eq!(verify(&[("Cargo.toml", "[package]")]), ["cargo test"]);
    assert_eq!(verify(&[("Cargo.toml", "[workspace]\n[package]")]), ["cargo test --workspace"]);
    assert_eq!(verify(&[("go.mod", "")]), ["go test ./..."]);
    assert_eq!(verify(&[("Makefile", "all:\n\ttrue\ntest: all\n\ttrue\n")]), ["make test"]);
    assert_eq!(verify(&[("Makefile", "check:\n\ttrue\n")]), ["make check"]);
    assert_eq!(verify(&[("build.gradle", ""), ("gradlew", "")]), ["./gradlew test"]);
    assert_eq!(verify(&[("pom.xml", "")]), ["mvn -B -q test"]);
    assert_eq!(verify(&[("justfile", "test *args:\n  true\n")]), ["just test"]);
}

#[test]
fn the_lock_file_says_which_package_manager_sets_a_node_project_up() {
    let with = |lock: &str| one(&[("package.json", NODE), (lock, "")], &ALL);
    let (setup, verify) = with("package-lock.json");
    assert!(setup[0].starts_with("npm ci"), "{setup:?}");
    assert_eq!(verify, ["npm test"]);
    assert!(with("pnpm-lock.yaml").0[0].starts_with("pnpm install --frozen-lockfile"));
    assert!(with("yarn.lock").0[0].starts_with("yarn install --frozen-lockfile"));
    assert!(with("bun.lock").0[0].starts_with("bun install --frozen-lockfile"));
    let berry = [("package.json", NODE), ("yarn.lock", ""), (".yarnrc.yml", "")];
    assert_eq!(one(&berry, &ALL).0, ["yarn install --immutable"]);
    let (setup, _) = one(&[("package.json", NODE)], &ALL);
    assert!(
        setup[0].starts_with("npm install --no-package-lock"),
        "no lock file is left: {setup:?}"
    );
    let said = NODE.replacen('{', r#"{"packageManager":"pnpm@9.1.0","#, 1);
    assert_eq!(one(&[("package.json", &said)], &ALL).1, ["pnpm test"]);
}

#[test]
fn a_package_manager_that_is_not_here_is_fetched() {
    let files = [("package.json", NODE), ("pnpm-lock.yaml", "")];
    let (setup, verify) = one(&files, &["npm", "npx"]);
    assert!(setup[0].starts_with("npx --yes pnpm install"), "{setup:?}");
    assert_eq!(verify, ["npx --yes pnpm test"]);
}

#[test]
fn a_python_project_uses_its_manager_where_that_is_installed() {
    let uv = [
        ("pyproject.toml", "[project]\nname='x'\n[dependency-groups]\ntests=['pytest>=8']\n"),
        ("uv.lock", "name = \"pytest\""),
    ];
    assert_eq!(one(&uv, &ALL).1, ["uv run pytest"]);
    let (setup, verify) = one(&uv, &["python3"]);
    assert!(setup[1].ends_with("pip install -q -e . 'pytest>=8'"), "{setup:?}");
    assert_eq!(verify, [".venv/bin/python -m pytest"]);
    let poetry =
        [("pyproject.toml", "[tool.poetry]\nname='x'\n[tool.poetry.dependencies]\npytest='8'\n")];
    assert_eq!(one(&poetry, &ALL).1, ["poetry run pytest"]);
    let hatch = [(
        "pyproject.toml",
        "[project]\nname='x'\n[tool.hatch.envs.test]\ndependencies=['pytest']\n",
    )];
    assert_eq!(one(&hatch, &ALL).1, ["hatch test"]);
}

#[test]
fn what_python_tests_need_is_found_where_projects_say_it() {
    let (setup, _) = one(
        &[
            (
                "pyproject.toml",
                "[project]\nname='x'\n[project.optional-dependencies]\ntest=['pytest']\n",
            ),
            ("tests/test_a.py", "import hypothesis\nfrom freezegun import freeze_time\n"),
        ],
        &["python3"],
    );
    assert!(setup[1].contains("-e '.[test]'"), "{setup:?}");
    assert!(setup[1].contains("hypothesis") && setup[1].contains("freezegun"), "{setup:?}");
    let tox = "[tox]\nenvlist = py\n[testenv]\ndeps =\n    pytest>=6\n    py37: old\n    -r x.txt\ncommands = pytest\n";
    let (setup, _) = one(&[("setup.py", ""), ("tox.ini", tox), ("tests/a", "")], &["python3"]);
    assert!(setup[1].ends_with("-e . 'pytest>=6'"), "{setup:?}");
    let (_, verify) =
        one(&[("setup.py", ""), ("tests/test_a.py", "import unittest\n")], &["python3"]);
    assert_eq!(verify, [".venv/bin/python -m unittest discover -s tests"]);
}

#[test]
fn a_program_that_is_missing_is_named() {
    let found = projects(&[("go.mod", "")], &["cargo"]);
    assert_eq!(found[0].missing, ["go"]);
}

#[test]
fn a_repository_of_parts_is_checked_part_by_part() {
    let found = verify(&[("api/Cargo.toml", "[package]"), ("packages/web/package.json", NODE)]);
    assert_eq!(found, ["cd api && cargo test", "cd packages/web && npm test"]);
    let both =
        verify(&[("Cargo.toml", "[package]"), ("package.json", NODE), ("Makefile", "test:\n")]);
    assert_eq!(both, ["cargo test", "npm test"]);
}

#[test]
fn what_only_looks_like_a_check_is_left_alone() {
    let npm = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
    assert!(verify(&[("package.json", npm)]).is_empty());
    assert!(verify(&[("package.json", "{ junk")]).is_empty());
    assert!(verify(&[("Makefile", "tests:\n\ttest := 1\ntest := 2\n")]).is_empty());
    assert!(verify(&[("tests/a.txt", "")]).is_empty());
}
