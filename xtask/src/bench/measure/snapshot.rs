//! What a snapshot of a workspace of 50,000 files costs, beside a plain `git status` and the plainest way to the same
//! tree: `git add --all` and `git write-tree` over a copy of the workspace's index.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mainstem_core::id::Oid;
use mainstem_host::git::{GitError, Repo};

use super::scene::Scene;
use super::table::{Sample, Table, judge};
use super::{Context, proc};
use crate::Verdict;

const FOLDERS: usize = 500;
const FILES_PER_FOLDER: usize = 100;
const ROUNDS: usize = 15;
const LARGE_BYTES: usize = 200 << 20;
/// The default of `[snapshots] every`.
const EVERY_S: f64 = 60.0;
const SERIES: &str = "refs/mainstem/snapshots/T-1/1";

/// One workspace and what is done to it.
struct Place {
    scene: Scene,
    repo: Repo,
    path: PathBuf,
}

/// Wall and processor time of many rounds of one thing, children included.
#[derive(Default)]
struct Cost {
    wall_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
}

/// Prints a line per kind of snapshot and judges the two numbers of the design.
pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let scene = Scene::new(context, "wide")?;
    fill(&scene.repo()).map_err(|error| format!("{}: {error}", scene.repo().display()))?;
    scene.commit("many files")?;
    let repo = Repo::discover(&scene.repo()).map_err(words)?;
    let base = Oid::new(scene.git(&["rev-parse", "HEAD"])?);
    let (path, trash) = (scene.root().join("work"), scene.root().join("trash"));
    repo.prepare_worktree(&path, "mainstem/T-1", &base, &trash, SERIES).map_err(words)?;
    let place = Place { scene, repo, path };

    let [mut first, mut same, mut edited, mut status, mut plain] =
        std::array::from_fn(|_| Cost::default());
    first.of(|| place.snapshot().map(drop))?;
    // Alternating, so that a busy moment of the machine falls on all of them.
    for round in 0..ROUNDS {
        same.of(|| place.snapshot().map(drop))?;
        status.of(|| place.git(&["status", "--porcelain"], None).map(drop))?;
        place.edit(round).map_err(|error| format!("{}: {error}", place.path.display()))?;
        // Before ours, and over a copy of its own: neither makes the other's work easier.
        let mut theirs = String::new();
        plain.of(|| {
            theirs = place.plainly()?;
            Ok(())
        })?;
        let mut ours = String::new();
        edited.of(|| {
            ours = place.snapshot()?;
            Ok(())
        })?;
        if ours != theirs {
            return Err(format!("round {round}: the tree is {ours}, plain git made {theirs}"));
        }
    }
    let mut large = Cost::default();
    let noise = noise();
    fs::write(place.path.join("large.bin"), &noise).map_err(|error| error.to_string())?;
    let [mut whole, mut after, mut last] = std::array::from_fn(|_| Cost::default());
    for _ in 0..ROUNDS {
        large.of(|| place.snapshot().map(drop))?;
    }
    whole.of(|| place.whole())?;
    for _ in 0..ROUNDS {
        after.of(|| place.snapshot().map(drop))?;
        last.of(|| place.whole())?;
    }

    let rows = [
        ("the first of a workspace", &first),
        ("nothing changed", &same),
        ("10 files changed, 5 new", &edited),
        ("with a new file of 200 MB, which waits", &large),
        ("the same, with all in it", &whole),
        ("nothing changed after that", &after),
        ("the same, before the workspace goes", &last),
        ("plain git status", &status),
        ("plain git add and write-tree, 10 + 5", &plain),
    ];
    report(&rows);
    println!("   {} files, {ROUNDS} rounds, children counted", FOLDERS * FILES_PER_FOLDER);
    let wall = |cost: &Cost| Sample::new(cost.wall_ms.clone()).median();
    judge("a snapshot of 10 + 5 edits", wall(&edited) / 1e3, 1.0, " s");
    judge("the first snapshot", wall(&first) / 1e3, 1.0, " s");
    judge("share of one core at the default interval", edited.cpu() / (EVERY_S * 10.0), 5.0, " %");
    println!("   nothing changed ÷ git status: {:.2}", wall(&same) / wall(&status));
    println!("   10 + 5 edits ÷ plain git: {:.2}", wall(&edited) / wall(&plain));
    Ok(Verdict::Clean)
}

/// Prints a line each.
fn report(rows: &[(&str, &Cost)]) {
    let mut table = Table::new(&["", "wall ms", "p95", "CPU ms", "% of a core at 60 s"]);
    for (name, cost) in rows {
        let (wall, cpu) = (Sample::new(cost.wall_ms.clone()), cost.cpu());
        table.row(&[
            (*name).to_owned(),
            format!("{:.0}", wall.median()),
            format!("{:.0}", wall.quantile(0.95)),
            format!("{cpu:.0}"),
            format!("{:.2}", cpu / (EVERY_S * 10.0)),
        ]);
    }
    table.print();
}

impl Cost {
    fn of(&mut self, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let (begun, before) = (Instant::now(), spent());
        work()?;
        self.wall_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        self.cpu_ms.push((spent() - before) * 1e3);
        Ok(())
    }

    /// The mean, because the system counts in ticks of 10 ms.
    fn cpu(&self) -> f64 {
        self.cpu_ms.iter().sum::<f64>() / self.cpu_ms.len().max(1) as f64
    }
}

impl Place {
    /// As the engine takes one while an agent works; returns the tree.
    fn snapshot(&self) -> Result<String, String> {
        let kept = self.repo.take_quick_snapshot(&self.path, SERIES, "work in progress");
        Ok(kept.map_err(words)?.ok_or("there was nothing to keep")?.tree.to_string())
    }

    /// As the engine takes one before a workspace goes.
    fn whole(&self) -> Result<(), String> {
        self.repo.take_snapshot(&self.path, SERIES, "the end").map(drop).map_err(words)
    }

    fn plainly(&self) -> Result<String, String> {
        let copy = self.scene.root().join("plain.index");
        let own =
            self.git(&["rev-parse", "--path-format=absolute", "--git-path", "index"], None)?;
        fs::copy(own, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        self.git(&["add", "--all"], Some(&copy))?;
        self.git(&["write-tree"], Some(&copy))
    }

    fn git(&self, args: &[&str], index: Option<&Path>) -> Result<String, String> {
        let mut command = self.scene.command("git");
        command.args(["-c", "core.fsync=committed"]).args(args).current_dir(&self.path);
        if let Some(index) = index {
            command.env("GIT_INDEX_FILE", index);
        }
        let said = crate::shell::output(&mut command)?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }

    fn edit(&self, round: usize) -> std::io::Result<()> {
        for step in 0..10 {
            let folder = (round * 31 + step * 47) % FOLDERS;
            let text = format!("// round {round}, step {step}\n").repeat(20);
            fs::write(self.path.join(format!("src/part-{folder:03}/file-{step:03}.rs")), text)?;
        }
        for step in 0..5 {
            let dir = self.path.join(format!("src/part-{:03}", (round * 13 + step * 91) % FOLDERS));
            fs::write(dir.join(format!("new-{round}-{step}.rs")), format!("// {round}.{step}\n"))?;
        }
        Ok(())
    }
}

fn words(error: GitError) -> String {
    error.to_string()
}

/// Processor time of this process and of the children it waited for, in seconds.
fn spent() -> f64 {
    let children = proc::stat(std::process::id()).map_or(0.0, |(_, cpu)| cpu.children);
    proc::own_cpu().as_secs_f64() + children
}

fn fill(repo: &Path) -> std::io::Result<()> {
    for folder in 0..FOLDERS {
        let dir = repo.join(format!("src/part-{folder:03}"));
        fs::create_dir_all(&dir)?;
        for file in 0..FILES_PER_FOLDER {
            let text = format!("fn part_{folder}_{file}() {{}}\n").repeat(20);
            fs::write(dir.join(format!("file-{file:03}.rs")), text)?;
        }
    }
    Ok(())
}

/// Bytes that no compression makes smaller.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(LARGE_BYTES + 8);
    while bytes.len() < LARGE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(LARGE_BYTES);
    bytes
}
