//! What a task costs whose agent writes one file and is done: the engine's own processor time, wall time, git processes.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::scene::Scene;
use super::table::{Sample, Table, judge};
use super::{Context, proc};
use crate::{Verdict, shell};

const TASKS: usize = 200;
const ROUNDS: usize = 3;

/// Prints the cost per task of several rounds, and how many git processes one task takes.
pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let mut table = Table::new(&[
        "",
        "engine CPU ms/task",
        "wall ms/task",
        "engine peak MiB",
        "all CPU ms/task",
    ]);
    let mut engine = Vec::new();
    for round in 1..=ROUNDS {
        let scene = Scene::new(context, &format!("round-{round}"))?;
        let spent = once(&scene, TASKS)?;
        let per_task = |seconds: f64| seconds * 1e3 / TASKS as f64;
        engine.push(per_task(spent.cpu.own));
        table.row(&[
            format!("round {round}"),
            format!("{:.2}", per_task(spent.cpu.own)),
            format!("{:.1}", per_task(spent.wall.as_secs_f64())),
            format!("{:.1}", spent.peak),
            format!("{:.1}", per_task(spent.cpu.own + spent.cpu.children)),
        ]);
    }
    table.print();
    count_git(context)?;
    judge("engine CPU per task", Sample::new(engine).median(), 5.0, " ms");
    Ok(Verdict::Clean)
}

fn once(scene: &Scene, tasks: usize) -> Result<proc::Spent, String> {
    let mut text = "version = 1\ntitle = \"Next to nothing\"\n".to_owned();
    for at in 0..tasks {
        let _ = writeln!(
            text,
            "\n[[task]]\nid = \"T-{at:03}\"\ntitle = \"One file\"\n\
             script = [{{ write = \"work/{at}.txt\", text = \"{at}\\n\" }}]"
        );
    }
    let plan = scene.write("plan.toml", &text)?.to_string_lossy().into_owned();
    let spent = proc::spend(&mut scene.mainstem(&["run", &plan, "-j", "4", "-q"])?)?;
    if spent.ok { Ok(spent) } else { Err(format!("the run failed: {}", scene.said())) }
}

/// In a run of its own: the counting program in front of git costs time.
fn count_git(context: &Context) -> Result<(), String> {
    let tasks = 40;
    let mut scene = Scene::new(context, "counted")?;
    let bin = scene.root().join("bin");
    let real = shell::output(scene.command("sh").args(["-c", "command -v git"]))?;
    let real = String::from_utf8_lossy(&real).trim().to_owned();
    let log = scene.root().join("git.log");
    let text = format!(
        "#!/bin/sh\nfor word do case $word in -*|*=*) ;; *) echo \"$word\" >> '{}'; break ;; esac; done\n\
         exec '{real}' \"$@\"\n",
        log.display()
    );
    let made = fs::create_dir_all(&bin)
        .and_then(|()| fs::write(bin.join("git"), text))
        .and_then(|()| fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)));
    made.map_err(|error| format!("{}: {error}", bin.display()))?;
    scene.first_in_path(&bin);
    once(&scene, tasks)?;
    let said = fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut words: Vec<&str> = said.lines().collect();
    words.sort_unstable();
    let total = words.len();
    let mut counts: Vec<(usize, &str)> =
        words.chunk_by(|a, b| a == b).map(|same| (same.len(), same[0])).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let each: Vec<String> = counts
        .iter()
        .take(12)
        .map(|(count, word)| format!("{word} {:.1}", *count as f64 / tasks as f64))
        .collect();
    println!("   git processes per task: {:.1} ({})", total as f64 / tasks as f64, each.join(", "));
    Ok(())
}
