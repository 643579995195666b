//! Landing in the object database, as the product does it, over `git merge --no-ff` in a checkout of the same branch.

use std::fs;
use std::time::Instant;

use mainstem_core::id::{Oid, TaskId};
use mainstem_engine::conflict_forecast::{ConflictForecaster, ForecastWork};
use mainstem_host::git::{GitIdentity, GitMergeOutcome, RefUpdateOutcome, Repo};

use super::Context;
use super::scene::Scene;
use super::table::{Sample, Table, judge};
use crate::Verdict;

const FOLDERS: usize = 500;
const FILES_PER_FOLDER: usize = 100;
const ROUNDS: usize = 25;
const WORKSPACES: usize = 16;

/// Prints the medians of both ways and their ratio.
pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let scene = Scene::new(context, "wide")?;
    fill(&scene)?;
    let start = scene.git(&["rev-parse", "HEAD"])?;
    for round in 0..ROUNDS {
        branch(&scene, round, &start)?;
    }
    scene.git(&["branch", "bare", &start])?;
    scene.git(&["checkout", "-q", "main"])?;
    let repo = Repo::discover(&scene.repo()).map_err(|error| error.to_string())?;
    let (mut ours, mut theirs, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    // Alternating, so that a busy moment of the machine falls on both.
    for round in 0..ROUNDS {
        let name = format!("work-{round}");
        let begun = Instant::now();
        let tip = scene.git(&["rev-parse", &name])?;
        floor.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        land(&repo, &Oid::new(tip))?;
        ours.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        scene.git(&["merge", "-q", "--no-ff", "-m", "A landing", &name])?;
        theirs.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let trees = ["main^{tree}", "bare^{tree}"].map(|rev| scene.git(&["rev-parse", rev]));
    if trees[0] != trees[1] {
        return Err("the two ways came to different trees".to_owned());
    }
    let [ours, theirs, floor] = [ours, theirs, floor].map(Sample::new);
    let mut table = Table::new(&["", "median ms", "p95 ms"]);
    let rows = [
        ("without a working tree", &ours),
        ("git merge --no-ff", &theirs),
        ("git rev-parse: what starting git costs", &floor),
    ];
    for (name, sample) in rows {
        let (median, p95) = (sample.median(), sample.quantile(0.95));
        table.row(&[name.to_owned(), format!("{median:.1}"), format!("{p95:.1}")]);
    }
    table.print();
    println!("   {} files, {ROUNDS} landings each way", FOLDERS * FILES_PER_FOLDER);
    ahead(&scene, &repo, &start)?;
    judge("landing ÷ git merge", ours.median() / theirs.median(), 0.1, "");
    Ok(Verdict::Clean)
}

/// What it costs to see who would clash: one look at work that has no file in common, the same look again, and
/// what each pair costs that has to be merged.
fn ahead(scene: &Scene, repo: &Repo, start: &str) -> Result<(), String> {
    let words = |error: mainstem_host::git::GitError| error.to_string();
    let mut works = Vec::new();
    for n in 0..WORKSPACES {
        let commit = Oid::new(scene.git(&["rev-parse", &format!("work-{n}")])?);
        let task = TaskId::new(format!("T-{n}"));
        works.push(ForecastWork { task, attempt: 1, base: Oid::new(start), commit });
    }
    let mut surveyor = ConflictForecaster::default();
    let mut looks = Vec::new();
    for _ in 0..2 {
        let begun = Instant::now();
        surveyor.forecast_conflicts(repo, "refs/heads/bare", &works).map_err(words)?;
        looks.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let probe = repo.create_merge_probe().map_err(words)?;
    let mut merges = Vec::new();
    for pair in works.windows(2) {
        let begun = Instant::now();
        probe.find_conflicts(&pair[0].commit, &pair[1].commit).map_err(words)?;
        merges.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let pair = Sample::new(merges).median();
    println!(
        "   seen ahead, {WORKSPACES} workspaces: {:.1} ms, again {:.1} ms, {pair:.1} ms for each pair with files in common",
        looks[0], looks[1]
    );
    Ok(())
}

fn fill(scene: &Scene) -> Result<(), String> {
    let make = || -> std::io::Result<()> {
        for folder in 0..FOLDERS {
            let dir = scene.repo().join(format!("src/part-{folder:03}"));
            fs::create_dir_all(&dir)?;
            for file in 0..FILES_PER_FOLDER {
                let text = format!("fn part_{folder}_{file}() {{}}\n").repeat(20);
                fs::write(dir.join(format!("file-{file:03}.rs")), text)?;
            }
        }
        Ok(())
    };
    make().map_err(|error| format!("{}: {error}", scene.repo().display()))?;
    scene.commit("many files")
}

/// Work that changes three files and adds one.
fn branch(scene: &Scene, round: usize, start: &str) -> Result<(), String> {
    scene.git(&["checkout", "-q", "-b", &format!("work-{round}"), start])?;
    let write = |folder: usize, name: &str| {
        let path = scene.repo().join(format!("src/part-{folder:03}/{name}"));
        fs::write(&path, format!("// round {round}\n"))
            .map_err(|error| format!("{}: {error}", path.display()))
    };
    for step in 0..3 {
        write((round * 7 + step * 50) % FOLDERS, &format!("file-{round:03}.rs"))?;
    }
    write(round, &format!("new-{round}.rs"))?;
    scene.commit("some work")
}

/// Merge in memory, commit, move the branch from exactly here to exactly there.
fn land(repo: &Repo, tip: &Oid) -> Result<(), String> {
    let branch = "refs/heads/bare";
    let words = |error: mainstem_host::git::GitError| error.to_string();
    let head = repo.read_ref(branch).map_err(words)?.ok_or("the branch is gone")?;
    let GitMergeOutcome::Clean { tree } = repo.merge(&head, tip).map_err(words)? else {
        return Err("a conflict where there is none".to_owned());
    };
    let (who, parents) = (GitIdentity::fallback(), [head.clone(), tip.clone()]);
    let new = repo.commit_tree(&tree, &parents, "A landing", &who, &who, 0).map_err(words)?;
    match repo.update_ref(branch, &new, Some(&head), "landing").map_err(words)? {
        RefUpdateOutcome::Moved => Ok(()),
        RefUpdateOutcome::Refused { .. } => Err("the branch moved meanwhile".to_owned()),
    }
}
