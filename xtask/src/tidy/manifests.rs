//! Which crate may use which: the architecture's arrows, held against each `Cargo.toml`, and the size of the lock file.
//!
//! Reads manifests only; what the code really calls is the compiler's business.

use toml::{Table, Value};

use super::Finding;

/// Folder below `crates/` and the folders it may depend on. A crate that is not here does not exist.
const EDGES: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("planner", &["core"]),
    ("agents", &["core"]),
    ("host", &["core"]),
    ("store", &[]),
    ("api", &[]),
    ("mcp", &[]),
    ("forge", &[]),
    ("engine", &["core", "planner", "agents", "host", "store", "api", "forge"]),
    ("cli", &["core", "planner", "agents", "host", "store", "api", "engine", "mcp", "forge"]),
    ("testkit", &[]),
    ("chaos", &["testkit"]),
];

/// Scenes for tests: never part of what users get.
const DEV_ONLY: &str = "testkit";

/// Crates that turn values into values and touch nothing.
const PURE: &[&str] = &["core", "planner"];

/// All that a pure crate may use: parsers and derives, nothing that can reach a file, a clock or a process.
const PURE_EXTERNAL: &[&str] =
    &["globset", "regex", "saphyr-parser", "serde", "serde_json", "thiserror", "toml"];

const LOCK_PACKAGES_MAX: usize = 300;

/// Judges one manifest of a crate or of xtask.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            return vec![Finding::new(path, 1, error.to_string(), "write valid TOML")];
        }
    };
    let Some(folder) =
        path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
    else {
        return check_xtask(path, text, &table);
    };
    let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == folder) else {
        let fix = "add it to EDGES in xtask/src/tidy/manifests.rs with what it may use";
        return vec![Finding::new(path, 1, format!("crate {folder} has no place"), fix)];
    };
    let mut findings = Vec::new();
    for dependency in dependencies(&table) {
        if let Some(what) = judge(folder, allowed, &dependency) {
            let fix = "move the code to the crate whose business it is";
            findings.push(Finding::new(path, line_of(text, &dependency.name), what, fix));
        }
    }
    findings.extend(inherits_lints(path, &table));
    findings
}

/// The page whose code map repeats [`EDGES`].
pub(super) const CODE_MAP: &str = "ARCHITECTURE.md";

/// Compares the column "depends on" of the code map with [`EDGES`], so that the page stays true.
pub(super) fn check_code_map(page: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, allowed) in EDGES {
        let row = page.lines().enumerate().find(|(_, line)| {
            let first = line.trim_start_matches('|').split('|').next().unwrap_or_default();
            line.starts_with('|') && first.trim() == format!("`{folder}`")
        });
        let Some((at, row)) = row else {
            let fix = "add a row to the table under \"Code map\"";
            findings.push(Finding::new(CODE_MAP, 1, format!("crate {folder} has no row"), fix));
            continue;
        };
        let column = row.split('|').nth(3).unwrap_or_default();
        let mut named: Vec<&str> = column.split('`').skip(1).step_by(2).collect();
        let mut expected = allowed.to_vec();
        named.sort_unstable();
        expected.sort_unstable();
        if named != expected {
            let what = format!("the row of {folder} names other crates than EDGES");
            let fix = format!("write {}", expected.join(", "));
            findings.push(Finding::new(CODE_MAP, at + 1, what, fix));
        }
    }
    findings
}

/// Chores must run when the product does not compile: only what a feature switches on may use it.
fn check_xtask(path: &str, text: &str, table: &Table) -> Vec<Finding> {
    if path != "xtask/Cargo.toml" {
        return Vec::new();
    }
    let by_default =
        table.get("features").is_some_and(|features| features.get("default").is_some());
    let ours = dependencies(table).into_iter().filter(|dependency| {
        our_folder(&dependency.name).is_some() && (by_default || !dependency.optional)
    });
    let found = ours.map(|dependency| {
        let what = format!("xtask always uses {}", dependency.name);
        let fix = "make it optional, behind the feature `measure`, or start the built binary";
        Finding::new(path, line_of(text, &dependency.name), what, fix)
    });
    found.chain(inherits_lints(path, table)).collect()
}

/// Counts the packages of the lock file.
pub(super) fn check_lock(text: &str) -> Option<Finding> {
    let packages = text.lines().filter(|line| *line == "[[package]]").count();
    if packages <= LOCK_PACKAGES_MAX {
        return None;
    }
    let what = format!("{packages} packages, more than {LOCK_PACKAGES_MAX}");
    Some(Finding::new("Cargo.lock", 1, what, "drop a dependency or its default features"))
}

struct Dependency {
    name: String,
    dev: bool,
    optional: bool,
}

fn judge(folder: &str, allowed: &[&str], dependency: &Dependency) -> Option<String> {
    let name = &dependency.name;
    match our_folder(name) {
        Some(DEV_ONLY) if dependency.dev || allowed.contains(&DEV_ONLY) => None,
        Some(DEV_ONLY) => Some(format!("{folder} ships {name}, which is for tests")),
        Some(ours) if allowed.contains(&ours) => None,
        Some(_) => Some(format!("{folder} may not use {name}")),
        None if PURE.contains(&folder)
            && !dependency.dev
            && !PURE_EXTERNAL.contains(&name.as_str()) =>
        {
            Some(format!("{folder} may not use {name}: it must stay pure"))
        }
        None => None,
    }
}

/// The folder of one of our packages; the binary's package has the product's name.
fn our_folder(package: &str) -> Option<&str> {
    if package == "mainstem" { Some("cli") } else { package.strip_prefix("mainstem-") }
}

/// Of every kind, for every target.
fn dependencies(table: &Table) -> Vec<Dependency> {
    let mut tables = vec![table];
    if let Some(Value::Table(targets)) = table.get("target") {
        tables.extend(targets.values().filter_map(Value::as_table));
    }
    let mut found = Vec::new();
    for table in tables {
        for (section, dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let Some(Value::Table(entries)) = table.get(section) else { continue };
            found.extend(entries.iter().map(|(key, entry)| {
                // A renamed dependency is judged by what it is.
                let name = entry.get("package").and_then(Value::as_str).unwrap_or(key);
                let optional = entry.get("optional").and_then(Value::as_bool) == Some(true);
                Dependency { name: name.to_owned(), dev, optional }
            }));
        }
    }
    found
}

fn inherits_lints(path: &str, table: &Table) -> Option<Finding> {
    let workspace = table.get("lints").and_then(|lints| lints.get("workspace"));
    if workspace.and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let fix = "add `[lints] workspace = true`; exceptions are `#![expect]` in the source";
    Some(Finding::new(path, 1, "does not take the workspace's lints", fix))
}

fn line_of(text: &str, name: &str) -> usize {
    text.lines().position(|line| line.starts_with(name)).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn whats(folder: &str, manifest: &str) -> Vec<String> {
        let text = format!("{LINTS}{manifest}");
        let found = check(&format!("crates/{folder}/Cargo.toml"), &text);
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn an_arrow_that_is_not_drawn_is_found() {
        let manifest = "[dependencies]\nmainstem-engine.workspace = true\n";
        assert_eq!(whats("host", manifest), ["host may not use mainstem-engine"]);
        assert_eq!(whats("cli", manifest), [""; 0]);
        assert_eq!(whats("core", "[dependencies]\nmainstem-api.workspace = true\n").len(), 1);
        assert_eq!(whats("api", "[dependencies]\nmainstem = { path = \"../cli\" }\n").len(), 1);
    }

    #[test]
    fn a_dev_dependency_needs_the_same_arrow_but_for_the_testkit() {
        assert_eq!(whats("host", "[dev-dependencies]\nmainstem-store.workspace = true\n").len(), 1);
        assert_eq!(
            whats("host", "[dev-dependencies]\nmainstem-testkit.workspace = true\n"),
            [""; 0]
        );
        let found = whats("cli", "[dependencies]\nmainstem-testkit.workspace = true\n");
        assert_eq!(found, ["cli ships mainstem-testkit, which is for tests"]);
    }

    #[test]
    fn core_takes_nothing_that_could_touch_the_machine() {
        assert_eq!(whats("core", "[dependencies]\nserde.workspace = true\n"), [""; 0]);
        assert_eq!(whats("core", "[dependencies]\ntokio = \"1\"\n").len(), 1);
        assert_eq!(whats("core", "[dev-dependencies]\nproptest = \"1\"\n"), [""; 0]);
    }

    #[test]
    fn targets_build_scripts_and_renames_are_seen() {
        let target = "[target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n";
        assert_eq!(whats("core", target).len(), 1);
        assert_eq!(whats("core", "[build-dependencies]\ncc = \"1\"\n").len(), 1);
        assert_eq!(
            whats("core", "[dependencies]\nserde = { package = \"tokio\", version = \"1\" }\n")
                .len(),
            1
        );
    }

    #[test]
    fn a_code_map_that_differs_from_the_edges_is_found() {
        let row = |folder: &str, uses: &[&str]| {
            let uses: Vec<String> = uses.iter().map(|name| format!("`{name}`")).collect();
            format!("| `{folder}` | what | {} | x | y |\n", uses.join(", "))
        };
        let page: String = EDGES.iter().map(|(folder, uses)| row(folder, uses)).collect();
        assert_eq!(check_code_map(&page), []);
        let wrong = page.replace(&row("planner", &["core"]), &row("planner", &["host"]));
        let found = check_code_map(&wrong);
        assert_eq!(found[0].what, "the row of planner names other crates than EDGES");
        let missing = page.replace(&row("planner", &["core"]), "");
        assert_eq!(check_code_map(&missing)[0].what, "crate planner has no row");
    }

    #[test]
    fn a_crate_nobody_drew_is_found() {
        assert_eq!(whats("extras", ""), ["crate extras has no place"]);
    }

    #[test]
    fn a_manifest_without_the_lints_is_found() {
        let found = check("crates/api/Cargo.toml", "[package]\nname = \"mainstem-api\"\n");
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn chores_use_the_product_only_behind_a_feature() {
        let text = format!("{LINTS}[dependencies]\nmainstem-core.workspace = true\n");
        assert_eq!(check("xtask/Cargo.toml", &text)[0].line, 4);
        let entry = "mainstem-core = { workspace = true, optional = true }\n";
        let text = format!("{LINTS}[dependencies]\n{entry}");
        assert_eq!(check("xtask/Cargo.toml", &text), []);
        let text = format!("{text}[features]\ndefault = [\"dep:mainstem-core\"]\n");
        assert_eq!(check("xtask/Cargo.toml", &text).len(), 1);
        assert_eq!(check("Cargo.toml", "[workspace]\n"), []);
    }

    #[test]
    fn the_lock_file_has_a_limit() {
        let lock = "[[package]]\nname = \"a\"\n".repeat(300);
        assert_eq!(check_lock(&lock), None);
        assert!(check_lock(&format!("{lock}[[package]]\n")).is_some());
    }
}
