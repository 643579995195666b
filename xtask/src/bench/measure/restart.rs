//! Taking over a run of which 10,000 tasks have landed: how long until the engine schedules again.

use std::time::{Duration, Instant};

use mainstem_core::fact::Fact;
use mainstem_core::id::RunId;
use mainstem_core::plan::ScriptStep;
use mainstem_engine::run_journal;

use super::graphs::{GraphShape, Law, Work};
use super::scene::{Scene, default_settings};
use super::table::{Sample, Table, judge};
use super::timeline::Timeline;
use super::{Context, proc};
use crate::Verdict;

const LANDED: usize = 10_000;
/// Left to do, so that there is something to schedule.
const OPEN: usize = 4;
const ROUNDS: usize = 5;

/// Prints the time of every way to look at, and to take over, the long run.
pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let scene = Scene::new(context, "long")?;
    let facts = write_journal(&scene)?;
    let mut table = Table::new(&["", "wall ms", "CPU ms", "peak MiB"]);
    let begun = Instant::now();
    let settings = default_settings()?;
    let reader =
        run_journal::open_journal_reader(&*scene.store()).map_err(|error| error.to_string())?;
    let reader = reader.ok_or("the journal was not written")?;
    let run = RunId::new("r-bench");
    let (machine, _) =
        run_journal::fold_run(&*reader, &run, &settings).map_err(|error| error.to_string())?;
    let fold = begun.elapsed().as_secs_f64() * 1e3;
    drop((machine, reader));
    table.row(&["fold, from inside".to_owned(), format!("{fold:.0}")]);
    for args in [&["run", "--dry-run"][..], &["status", "--json"], &["status"]] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let spent = proc::spend(&mut scene.mainstem(args)?)?;
            if !spent.ok {
                return Err(format!("{args:?} failed: {}", scene.said()));
            }
            rounds.push(spent);
        }
        let median =
            |of: fn(&proc::Spent) -> f64| Sample::new(rounds.iter().map(of).collect()).median();
        table.row(&[
            format!("mainstem {}", args.join(" ")),
            format!("{:.0}", median(|spent| spent.wall.as_secs_f64() * 1e3)),
            format!("{:.0}", median(|spent| spent.cpu.own * 1e3)),
            format!("{:.0}", median(|spent| spent.peak)),
        ]);
    }
    let (up, spent) = take_over(&scene)?;
    let up = up.as_secs_f64();
    table.row(&[
        "mainstem run, until it schedules".to_owned(),
        format!("{:.0}", up * 1e3),
        String::new(),
        String::new(),
    ]);
    table.row(&[
        format!("the same, until {OPEN} more landed"),
        format!("{:.0}", spent.wall.as_secs_f64() * 1e3),
        format!("{:.0}", spent.cpu.own * 1e3),
        format!("{:.0}", spent.peak),
    ]);
    table.print();
    println!("   {facts} facts");
    judge("from process start to scheduling again", up, 1.0, " s");
    Ok(Verdict::Clean)
}

/// The journal that a real run of that size would have left.
fn write_journal(scene: &Scene) -> Result<usize, String> {
    let shape = GraphShape {
        seed: 5,
        tasks: LANDED + OPEN,
        needs: 2.0,
        law: Law::LogNormal,
        typical_ms: 60_000.0,
    };
    let work = Work::random(&shape);
    let mut plan = work.plan(None);
    let is_open = |at: usize| at >= LANDED;
    for (at, task) in plan.tasks.iter_mut().enumerate() {
        task.title = format!("Task number {at}");
        task.description = "What a task has to say for itself fits in a few lines. ".repeat(4);
        let text = format!("{at}\n");
        task.script = vec![ScriptStep::Write { path: format!("work/{at}.txt"), text }];
        // What is open needs nothing and nobody needs it: its needs would name commits that do not exist.
        task.needs.retain(|need| {
            let number = need.as_str().trim_start_matches("T-").parse::<usize>();
            !is_open(at) && number.is_ok_and(|number| !is_open(number))
        });
    }
    let mut settings = default_settings()?;
    settings.run.jobs = 8;
    settings.snapshot_every_ms = 0;
    let mut ms = work.ms;
    // The open ones would be at work for ever.
    ms[LANDED..].fill(1 << 40);
    settings.run.jobs += u32::try_from(OPEN).expect("BUG: a handful");
    let mut timeline = Timeline::new(&settings, plan, &ms, true);
    timeline.begin();
    let landed = |timeline: &Timeline<'_>| {
        timeline.machine.tasks().count_in_phase(mainstem_core::phase::Phase::Landed) as usize
    };
    while landed(&timeline) < LANDED && timeline.go_on(1) {}
    while timeline.machine.tasks().is_any_workspace_being_removed() && timeline.go_on(1) {}
    let open: Vec<_> = (LANDED..LANDED + OPEN).map(super::graphs::id).collect();
    let facts = timeline.facts.take().unwrap_or_default();
    // Those that never ended have not been begun either.
    let kept =
        facts.into_iter().filter(|(_, fact)| !fact.task().is_some_and(|task| open.contains(task)));
    let run = RunId::new("r-bench");
    let records: Vec<_> =
        kept.map(|(at, fact)| run_journal::encode_fact(&run, &fact, at)).collect();
    std::fs::create_dir_all(scene.state()).map_err(|error| error.to_string())?;
    let written = scene.store().open_journal().and_then(|mut journal| {
        let epoch = journal.take_over()?;
        records.chunks(1_000).try_for_each(|chunk| journal.append(epoch, chunk).map(drop))
    });
    written.map_err(|error| error.to_string())?;
    Ok(records.len())
}

/// From the start of the process to the first attempt in the journal, and the whole of it.
fn take_over(scene: &Scene) -> Result<(Duration, proc::Spent), String> {
    let (_, last) = scene.facts(0)?;
    let begun = Instant::now();
    let mut command = scene.mainstem(&["run", "-j", "2", "-q"])?;
    let child = command.spawn().map_err(|error| error.to_string())?;
    let mut failure = None;
    let seen = proc::wait_until(Duration::from_secs(60), || match scene.facts(last) {
        Ok((facts, _)) => {
            facts.iter().any(|(_, fact)| matches!(fact, Fact::AttemptIntended { .. }))
        }
        Err(error) => {
            failure = Some(error);
            true
        }
    });
    let up = begun.elapsed();
    let spent = proc::watch(child, begun)?;
    match failure {
        Some(error) => Err(error),
        None if !seen => Err(format!("nothing was scheduled: {}", scene.said())),
        None if !spent.ok => Err(format!("the open tasks did not land: {}", scene.said())),
        None => Ok((up, spent)),
    }
}
