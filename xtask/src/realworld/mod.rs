//! `cargo xtask realworld`: public projects by name and version, as a stranger would try them: a fresh
//! repository, `mainstem init`, a plan of three commands, `mainstem run`, nothing edited in between.
//!
//! The projects come from the registries that cargo, pip and npm are set up for, at the time of the run.
//! Where one of them cannot be reached the project is named as skipped, never as passed.

mod fetch;
mod scene;

use std::path::Path;
use std::time::Instant;

use crate::{Verdict, shell};

/// Where a project comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registry {
    Crates,
    Python,
    Npm,
}

/// What is odd about the repository that it is put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Plain,
    /// Files go through a clean and smudge filter, as with large file storage.
    Filtered,
    Submodule,
    /// Everything happens in a linked worktree on a branch of its own.
    Linked,
    /// The checkout has edits and files that are not committed.
    Dirty,
}

#[derive(Debug)]
pub(super) struct Project {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) registry: Registry,
    pub(super) shape: Shape,
    /// Part of every test run.
    slice: bool,
}

const fn project(
    registry: Registry,
    name: &'static str,
    version: &'static str,
    shape: Shape,
) -> Project {
    Project { name, version, registry, shape, slice: false }
}

const fn quick(project: Project) -> Project {
    Project { slice: true, ..project }
}

static PROJECTS: [Project; 15] = [
    quick(project(Registry::Crates, "itoa", "1.0.11", Shape::Plain)),
    project(Registry::Crates, "semver", "1.0.23", Shape::Plain),
    project(Registry::Crates, "fnv", "1.0.7", Shape::Filtered),
    project(Registry::Crates, "shlex", "1.3.0", Shape::Linked),
    project(Registry::Crates, "smallvec", "1.13.2", Shape::Dirty),
    quick(project(Registry::Python, "itsdangerous", "2.2.0", Shape::Plain)),
    project(Registry::Python, "click", "8.1.7", Shape::Plain),
    project(Registry::Python, "packaging", "24.1", Shape::Submodule),
    project(Registry::Python, "iniconfig", "2.0.0", Shape::Plain),
    project(Registry::Python, "markupsafe", "2.1.5", Shape::Dirty),
    quick(project(Registry::Npm, "left-pad", "1.3.0", Shape::Plain)),
    project(Registry::Npm, "function-bind", "1.1.2", Shape::Plain),
    project(Registry::Npm, "minimist", "1.2.8", Shape::Linked),
    project(Registry::Npm, "qs", "6.12.1", Shape::Plain),
    project(Registry::Npm, "has-symbols", "1.0.3", Shape::Plain),
];

/// How one project went.
#[derive(Debug)]
struct Row {
    project: &'static Project,
    ecosystem: String,
    init: String,
    run: String,
    seconds: f64,
    reason: String,
    /// Green, or red with its reason on the screen.
    good: bool,
    skipped: bool,
}

/// Tries all projects, or those that are named, or only the slice of every test run.
pub(crate) fn run(root: &Path, words: &[&str]) -> Option<Result<Verdict, String>> {
    let slice = words == ["--slice"];
    if !slice && words.iter().any(|word| word.starts_with('-')) {
        return None;
    }
    let wanted = |project: &&Project| match slice {
        true => project.slice,
        false => words.is_empty() || words.contains(&project.name),
    };
    let chosen: Vec<&'static Project> = PROJECTS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let all: Vec<&str> = PROJECTS.iter().map(|project| project.name).collect();
        return Some(Err(format!("no such project; there are {}", all.join(", "))));
    }
    Some(try_all(root, &chosen))
}

fn try_all(root: &Path, chosen: &[&'static Project]) -> Result<Verdict, String> {
    if !shell::succeeds(shell::cargo(root).args(["build", "--quiet", "--workspace", "--bins"]))? {
        return Err("the binary does not build".to_owned());
    }
    let place = std::env::temp_dir().join(format!("mainstem-realworld-{}", std::process::id()));
    std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let binary = scene::binary(root);
    let mut rows = Vec::new();
    for project in chosen {
        println!("-- {} {}", project.name, project.version);
        rows.push(try_one(&binary, &place, project));
    }
    // What cannot be removed is in the folder of temporary files.
    let _ = std::fs::remove_dir_all(&place);
    print(&rows);
    let bad = rows.iter().filter(|row| !row.good && !row.skipped).count();
    Ok(if bad == 0 { Verdict::Clean } else { Verdict::Findings })
}

fn try_one(binary: &Path, place: &Path, project: &'static Project) -> Row {
    let begun = Instant::now();
    let mut row = Row {
        project,
        ecosystem: "–".to_owned(),
        init: "–".to_owned(),
        run: "–".to_owned(),
        seconds: 0.0,
        reason: String::new(),
        good: false,
        skipped: false,
    };
    let home = place.join(project.name);
    let files = match fetch::unpack(project, &home) {
        Ok(files) => files,
        Err(why) => {
            (row.skipped, row.reason) = (true, format!("skipped: {why}"));
            return row;
        }
    };
    match scene::play(binary, &files, project.shape) {
        Ok(played) => {
            (row.ecosystem, row.init, row.run) = (played.ecosystem, played.init, played.run);
            (row.reason, row.good) = (played.reason, played.good);
        }
        Err(why) => row.reason = why,
    }
    row.seconds = begun.elapsed().as_secs_f64();
    row
}

fn print(rows: &[Row]) {
    println!();
    println!(
        "{:<22} {:<8} {:<10} {:<8} {:<8} {:>7}  reason",
        "project", "from", "shape", "init", "run", "seconds"
    );
    for row in rows {
        let name = format!("{} {}", row.project.name, row.project.version);
        let shape = format!("{:?}", row.project.shape).to_lowercase();
        println!(
            "{name:<22} {:<8} {shape:<10} {:<8} {:<8} {:>7.1}  {}",
            row.ecosystem, row.init, row.run, row.seconds, row.reason
        );
    }
    let count = |keep: fn(&Row) -> bool| rows.iter().filter(|row| keep(row)).count();
    println!(
        "{} green, {} red with the reason on the screen, {} wrong, {} skipped",
        count(|row| row.run == "green"),
        count(|row| row.good && row.run != "green"),
        count(|row| !row.good && !row.skipped),
        count(|row| row.skipped),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_twelve_projects_of_three_registries_and_every_shape() {
        assert!(PROJECTS.len() >= 12);
        for registry in [Registry::Crates, Registry::Python, Registry::Npm] {
            assert!(PROJECTS.iter().any(|project| project.registry == registry && project.slice));
        }
        for shape in [Shape::Plain, Shape::Filtered, Shape::Submodule, Shape::Linked, Shape::Dirty]
        {
            assert!(PROJECTS.iter().any(|project| project.shape == shape), "{shape:?}");
        }
    }

    #[test]
    fn words_that_make_no_choice_are_refused() {
        assert!(run(Path::new("."), &["--all"]).is_none());
        assert!(run(Path::new("."), &["no-such-project"]).is_some_and(|answer| answer.is_err()));
    }
}
