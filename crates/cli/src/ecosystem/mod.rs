//! What kind of project a folder holds, and which commands set it up and test it here.
//!
//! Looks at names and small files and at which programs are installed; runs nothing of the project.

mod node;
mod python;

use std::fs;
use std::path::Path;

use crate::drive::find_program;

/// Larger files are not worth reading for a test command.
const READ_MAX: u64 = 1 << 20;
/// Parts of a repository without a project at its root.
const PARTS_MAX: usize = 6;
/// Folders that hold parts.
const PART_FOLDERS: [&str; 6] = ["packages", "crates", "apps", "services", "libs", "projects"];

/// A project, and how it is set up and tested here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct EcosystemProject {
    /// Its language or tool.
    pub(crate) ecosystem: &'static str,
    /// The file that gave it away.
    pub(crate) because: String,
    /// What every fresh workspace needs.
    pub(crate) setup: Vec<String>,
    /// Commands that test it.
    pub(crate) verify: Vec<String>,
    /// Folders in which its tools keep what they built.
    pub(crate) caches: Vec<String>,
    /// Programs that these commands need and that are not here.
    pub(crate) missing: Vec<String>,
    /// What somebody should know about the choice.
    pub(crate) note: Option<String>,
}

/// What is installed here.
pub(crate) struct InstalledPrograms<'a> {
    has: Box<dyn Fn(&str) -> bool + 'a>,
    /// Whether Python can make virtual environments.
    venv: bool,
}

impl<'a> InstalledPrograms<'a> {
    pub(crate) fn on_this_machine() -> InstalledPrograms<'static> {
        InstalledPrograms {
            has: Box::new(|name| find_program(name).is_some()),
            venv: python::can_create_venv(),
        }
    }

    /// One that has exactly these programs.
    #[cfg(test)]
    pub(crate) fn with(programs: &'a [&'a str]) -> Self {
        InstalledPrograms { has: Box::new(|name| programs.contains(&name)), venv: true }
    }

    fn has_program(&self, program: &str) -> bool {
        (self.has)(program)
    }
}

/// The projects of a repository: those at its root, else those of its parts.
pub(crate) fn find_projects(root: &Path, machine: &InstalledPrograms<'_>) -> Vec<EcosystemProject> {
    let found = find_projects_in(root, machine);
    if !found.is_empty() {
        return found;
    }
    let mut parts = Vec::new();
    for part in list_part_folders(root) {
        let Ok(inside) = part.strip_prefix(root) else { continue };
        let inside = inside.to_string_lossy().into_owned();
        if !inside.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
            continue;
        }
        for project in find_projects_in(&part, machine) {
            let there = |command: &String| format!("cd {inside} && {command}");
            parts.push(EcosystemProject {
                because: format!("{inside}/{}", project.because),
                setup: project.setup.iter().map(there).collect(),
                verify: project.verify.iter().map(there).collect(),
                caches: project.caches.iter().map(|cache| format!("{inside}/{cache}")).collect(),
                ..project
            });
        }
        if parts.len() >= PARTS_MAX {
            break;
        }
    }
    parts.truncate(PARTS_MAX);
    parts
}

fn list_part_folders(root: &Path) -> Vec<std::path::PathBuf> {
    let folders = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut folders: Vec<_> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                !name.starts_with('.') && !["node_modules", "target", "vendor"].contains(&&*name)
            })
            .map(|entry| entry.path())
            .collect();
        folders.sort();
        folders
    };
    let mut parts = folders(root);
    for holder in PART_FOLDERS {
        parts.extend(folders(&root.join(holder)));
    }
    parts
}

/// The projects of one folder. A recipe of make or just counts only where nothing else says more.
fn find_projects_in(dir: &Path, machine: &InstalledPrograms<'_>) -> Vec<EcosystemProject> {
    let mut found = Vec::new();
    found.extend(rust_project(dir));
    found.extend(node::node_project(dir, machine));
    found.extend(python::python_project(dir, machine));
    found.extend(go_project(dir));
    found.extend(java_project(dir));
    if found.is_empty() {
        found.extend(recipe_project(dir, "make", &["Makefile", "makefile", "GNUmakefile"]));
    }
    if found.is_empty() {
        found.extend(recipe_project(dir, "just", &["justfile", "Justfile", ".justfile"]));
    }
    for project in &mut found {
        let commands = project.setup.iter().chain(&project.verify);
        let programs =
            commands.flat_map(|command| crate::preflight::programs::program_names(command));
        let mut missing: Vec<String> =
            programs.filter(|program| !machine.has_program(program)).collect();
        missing.sort();
        missing.dedup();
        project.missing.extend(missing);
    }
    found
}

/// A small text file; none if it is absent, large or no text.
fn read_small_file(dir: &Path, name: &str) -> Option<String> {
    let path = dir.join(name);
    let size = fs::metadata(&path).ok().filter(|meta| meta.is_file())?.len();
    (size <= READ_MAX).then(|| fs::read_to_string(&path).ok())?
}

fn rust_project(dir: &Path) -> Option<EcosystemProject> {
    let text = read_small_file(dir, "Cargo.toml")?;
    let workspace = text.lines().any(|line| line.trim() == "[workspace]");
    let package = text.lines().any(|line| line.trim() == "[package]");
    let command = if workspace && package { "cargo test --workspace" } else { "cargo test" };
    Some(EcosystemProject {
        ecosystem: "cargo",
        because: "Cargo.toml".to_owned(),
        verify: vec![command.to_owned()],
        caches: vec!["target".to_owned()],
        ..EcosystemProject::default()
    })
}

fn go_project(dir: &Path) -> Option<EcosystemProject> {
    dir.join("go.mod").is_file().then(|| EcosystemProject {
        ecosystem: "go",
        because: "go.mod".to_owned(),
        verify: vec!["go test ./...".to_owned()],
        ..EcosystemProject::default()
    })
}

fn java_project(dir: &Path) -> Option<EcosystemProject> {
    let has = |name: &str| dir.join(name).is_file();
    let project = |ecosystem, because: &str, command: &str, cache: &str| EcosystemProject {
        ecosystem,
        because: because.to_owned(),
        verify: vec![command.to_owned()],
        caches: vec![cache.to_owned()],
        ..EcosystemProject::default()
    };
    if has("pom.xml") {
        let command = if has("mvnw") { "./mvnw -B -q test" } else { "mvn -B -q test" };
        return Some(project("maven", "pom.xml", command, "target"));
    }
    let file = ["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"];
    let file = file.into_iter().find(|name| has(name))?;
    let command = if has("gradlew") { "./gradlew test" } else { "gradle test" };
    Some(project("gradle", file, command, "build"))
}

/// A makefile or justfile with a target or recipe called `test` or `check`.
fn recipe_project(dir: &Path, program: &'static str, names: &[&str]) -> Option<EcosystemProject> {
    // On file systems that ignore case two spellings are one file; only its true name counts.
    let listed: Vec<String> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    for name in names.iter().filter(|name| listed.iter().any(|other| other == *name)) {
        let Some(text) = read_small_file(dir, name) else { continue };
        for target in ["test", "check"] {
            if text.lines().any(|line| is_make_target(line, target)) {
                return Some(EcosystemProject {
                    ecosystem: program,
                    because: (*name).to_owned(),
                    verify: vec![format!("{program} {target}")],
                    ..EcosystemProject::default()
                });
            }
        }
    }
    None
}

fn is_make_target(line: &str, target: &str) -> bool {
    let line = line.strip_prefix('@').unwrap_or(line);
    let rest = line.strip_prefix(target).unwrap_or("-");
    rest.starts_with([':', ' ']) && rest.contains(':') && !rest.contains(":=")
}

#[cfg(test)]
mod tests;
