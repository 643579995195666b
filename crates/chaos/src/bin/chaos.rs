//! `chaos`: plays rounds until told to stop, one line each, and keeps what failed.

#![expect(clippy::print_stdout, reason = "a program for people at a terminal")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use mainstem_chaos::campaign::sweep::{SweepProgress, tour};
use mainstem_chaos::campaign::{self, CampaignRequest, CaseOutcome};
use mainstem_chaos::fault_rig::{self, RigOptions};
use mainstem_chaos::minimise::minimise;
use mainstem_chaos::{ChaosFixture, ChaosPrograms, ChaosScenario, RoundResult, play};

/// Attacks a build of Mainstem and asks the oracle what was lost.
#[derive(Parser)]
#[command(name = "chaos")]
struct ChaosArgs {
    /// First seed; without it one from the clock, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// How many rounds (20 if none are named); of a campaign, a sample of so many cases
    #[arg(long)]
    rounds: Option<u64>,
    /// Stop after so many minutes, however many rounds were played
    #[arg(long)]
    minutes: Option<f64>,
    /// How many rounds run at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Play the rounds in these files instead: those that failed once
    #[arg(long, value_name = "FILE")]
    replay: Vec<PathBuf>,
    /// Let every drawn round push to a remote that others push to, too; drawn, too, without it
    #[arg(long)]
    push: bool,
    /// Play every drawn round behind this wall (off, auto, bwrap, landlock); drawn, too, without it
    #[arg(long, value_name = "KIND")]
    sandbox: Option<String>,
    /// Play every drawn round in workspaces of this kind (worktree, clone); drawn, too, without it
    #[arg(long, value_name = "KIND")]
    workspace: Option<String>,
    /// Plays spent on making a failed round smaller
    #[arg(long, default_value_t = 12)]
    tries: usize,
    /// Leave the stage of a failed round on disk
    #[arg(long)]
    keep: bool,
    /// Where failed rounds are written to
    #[arg(long, default_value = "target/chaos")]
    failures: PathBuf,
    /// Only this part of the campaign (a file system, a part of the disk, a target)
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Folder with mainstem, chaos-agent and mainstem-oracle; without it, where this program is
    #[arg(long)]
    bin: Option<PathBuf>,
    /// A campaign instead of drawn rounds: points, pairs, journal, twice, failing, or a rig: disk,
    /// power, syscalls
    #[arg(long, value_name = "NAME")]
    campaign: Vec<String>,
    /// Of a campaign, start with the case of this name
    #[arg(long, value_name = "CASE", requires = "campaign")]
    from: Option<String>,
    /// Play only these cases, by the names that a campaign printed
    #[arg(long, value_name = "CASE", conflicts_with = "campaign")]
    case: Vec<String>,
}

/// Campaigns that need a machine prepared for them.
const RIGS: [&str; 3] = ["disk", "power", "syscalls"];

#[derive(Default)]
struct ChaosTotals {
    rounds: u64,
    lives: usize,
    landed: usize,
    tasks: usize,
    faults: BTreeMap<String, usize>,
    failed: Vec<String>,
    broken: Vec<String>,
}

fn main() -> ExitCode {
    let args = ChaosArgs::parse();
    if let [name] = &args.campaign[..]
        && RIGS.contains(&name.as_str())
    {
        return march(name, &args).unwrap_or_else(|why| {
            println!("chaos: {why}");
            ExitCode::from(2)
        });
    }
    let good = if args.campaign.is_empty() && args.case.is_empty() {
        run(&args).map(|sum| sum.failed.is_empty() && sum.broken.is_empty())
    } else {
        campaigns(&args)
    };
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            println!("chaos: {why}");
            ExitCode::from(2)
        }
    }
}

fn tools(args: &ChaosArgs) -> Result<ChaosPrograms, String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let place = args.bin.as_ref().map_or(me, |folder| folder.join("chaos"));
    ChaosPrograms::beside(&place).ok_or_else(|| {
        format!("no mainstem, chaos-agent and mainstem-oracle beside {}", place.display())
    })
}

/// A rig's campaign from its beginning to its end.
fn march(name: &str, args: &ChaosArgs) -> Result<ExitCode, String> {
    type RoundRunner = fn(&ChaosPrograms, &RigOptions) -> Result<fault_rig::RigTotals, String>;
    let (run, mounts): (RoundRunner, bool) = match name {
        "disk" => (fault_rig::full_disk::run, true),
        "power" => (fault_rig::power_cut::run, true),
        "syscalls" => (fault_rig::failing_syscalls::run, false),
        _ => return Err(format!("no rig {name}")),
    };
    if mounts {
        match fault_rig::mounts::own_namespace() {
            Ok(None) => {}
            Ok(Some(code)) => return Ok(ExitCode::from(code)),
            Err(why) => {
                println!("{name} skipped: {why}");
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    let started = Instant::now();
    let options = RigOptions {
        seed: args.seed.unwrap_or_else(fresh_seed),
        rounds: args.rounds.unwrap_or(20),
        until: args.minutes.map(|minutes| started + Duration::from_secs_f64(minutes * 60.0)),
        only: args.only.clone(),
        keep: args.keep,
        stop: Arc::default(),
        say: |line| println!("{line}"),
    };
    for signal in [2, 15] {
        signal_hook::flag::register(signal, Arc::clone(&options.stop))
            .map_err(|error| error.to_string())?;
    }
    println!("chaos --campaign {name} --seed {} --rounds {}", options.seed, options.rounds);
    let sum = run(&tools(args)?, &options)?;
    println!("{name}: {}", sum.tell(started.elapsed()));
    Ok(ExitCode::from(u8::from(!sum.is_clean())))
}

/// A seed that nobody had before.
fn fresh_seed() -> u64 {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    clock.map_or(0, |time| time.as_secs()) * 100_000
}

fn run(args: &ChaosArgs) -> Result<ChaosTotals, String> {
    let tools = tools(args)?;
    let shows = shows(args)?;
    let started = Instant::now();
    let until = args.minutes.map(|minutes| started + Duration::from_secs_f64(minutes * 60.0));
    let next = Mutex::new(shows.into_iter());
    let sum = Mutex::new(ChaosTotals::default());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    if until.is_some_and(|until| Instant::now() >= until) {
                        break;
                    }
                    let Some(show) = next.lock().ok().and_then(|mut shows| shows.next()) else {
                        break;
                    };
                    round(args, &tools, &show, &sum);
                }
            });
        }
    });
    let sum = sum.into_inner().map_err(|error| error.to_string())?;
    tell(&sum, started.elapsed());
    Ok(sum)
}

/// The rounds to play.
fn shows(args: &ChaosArgs) -> Result<Vec<ChaosScenario>, String> {
    if args.replay.is_empty() {
        let first = args.seed.unwrap_or_else(fresh_seed);
        let rounds = args.rounds.unwrap_or(20);
        println!("chaos --seed {first} --rounds {rounds}");
        let drawn = |seed| {
            let mut show = ChaosScenario::draw(seed);
            let settings = &mut show.settings;
            settings.sandbox = args.sandbox.clone().unwrap_or(settings.sandbox.clone());
            settings.workspace = args.workspace.clone().unwrap_or(settings.workspace.clone());
            if args.push && !show.settings.push {
                show.share();
            }
            show
        };
        return Ok((first..first.saturating_add(rounds)).map(drawn).collect());
    }
    let read = |path: &PathBuf| {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    };
    args.replay.iter().map(read).collect()
}

/// Plays campaigns, one after the other; whether all was well.
fn campaigns(args: &ChaosArgs) -> Result<bool, String> {
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let rounds = args.rounds.map(|rounds| usize::try_from(rounds).unwrap_or(usize::MAX));
    let order = CampaignRequest { tools: tools(args)?, jobs: args.jobs, rounds, seed };
    if args.campaign.is_empty() {
        return play_cases(args, &order, &args.case);
    }
    let mut good = true;
    for name in &args.campaign {
        let known: Vec<&str> = campaign::ALL.iter().map(|one| one.name).chain(RIGS).collect();
        let Some(campaign) = campaign::ALL.iter().find(|one| one.name == name) else {
            return Err(format!("there is no campaign {name:?}; there are {}", known.join(", ")));
        };
        println!("chaos --campaign {name} --seed {seed}: {}", campaign.about);
        let list = (campaign.list)(&order)?;
        for line in &list.remarks {
            println!("  {line}");
        }
        for line in &list.wrong {
            println!("  WRONG {line}");
        }
        good &= list.wrong.is_empty();
        let mut cases: Vec<String> =
            list.cases.iter().map(|case| format!("{name}/{case}")).collect();
        if let Some(from) = &args.from {
            let at = cases.iter().position(|case| case == from);
            cases.drain(..at.ok_or_else(|| format!("there is no case {from:?}"))?);
        }
        println!("  {} cases", cases.len());
        good &= play_cases(args, &order, &cases)?;
    }
    Ok(good)
}

fn play_cases(args: &ChaosArgs, order: &CampaignRequest, cases: &[String]) -> Result<bool, String> {
    let started = Instant::now();
    let until = args.minutes.map(|minutes| started + Duration::from_secs_f64(minutes * 60.0));
    let sum = tour(order, cases, args.keep, until, &|news| match news {
        SweepProgress::Progress(done, all, last) => {
            println!("  {done} of {all}, last {}", last.name);
        }
        SweepProgress::Bad(CaseOutcome { name, played, left, seconds }) => {
            println!("  FAILED  {name} after {seconds:.1} s");
            match played {
                Ok(played) => {
                    println!("    fired {:?}, {} lives", played.fired, played.lives);
                    for violation in &played.violations {
                        println!("    {}", violation.0.replace('\n', "\n    "));
                    }
                }
                Err(why) => println!("    the attacker failed: {why}"),
            }
            if let Some(left) = left {
                println!("    left in {}", left.display());
            }
            println!("    again with: cargo xtask chaos --case {name}");
        }
    })?;
    println!("  {sum} in {:.0} s", started.elapsed().as_secs_f64());
    let fired: Vec<String> =
        sum.fired.iter().map(|(name, times)| format!("{name} {times}")).collect();
    println!("  {}", fired.join(", "));
    Ok(sum.is_good())
}

fn round(args: &ChaosArgs, tools: &ChaosPrograms, show: &ChaosScenario, all: &Mutex<ChaosTotals>) {
    let started = Instant::now();
    let (played, place) = on_stage(tools, show, args.keep);
    let Ok(mut sum) = all.lock() else { return };
    sum.rounds += 1;
    sum.tasks += show.scripts.len();
    let head = format!("seed {:<10} {:>5.1} s", show.seed, started.elapsed().as_secs_f64());
    match played {
        Err(why) => {
            println!("{head}  BROKEN  {}: {why}", show.summary());
            sum.broken.push(format!("seed {}: {why}", show.seed));
        }
        Ok(played) => {
            sum.lives += played.lives;
            sum.landed += played.landed;
            for fault in &played.fired {
                *sum.faults.entry(fault.clone()).or_default() += 1;
            }
            if played.violations.is_empty() {
                println!("{head}  ok      {} lives, {}", played.lives, show.summary());
                return;
            }
            println!("{head}  FAILED  {}", show.summary());
            for violation in &played.violations {
                println!("    {}", violation.0.replace('\n', "\n    "));
            }
            if let Some(place) = place {
                println!("    left in {}", place.display());
            }
            let file = args.failures.join(format!("{}.json", show.seed));
            drop(sum);
            let fails = |show: &ChaosScenario| {
                on_stage(tools, show, false).0.is_ok_and(|played| !played.violations.is_empty())
            };
            let small = minimise(show, args.tries, fails);
            let text = serde_json::to_string_pretty(&small).unwrap_or_default();
            if fs::create_dir_all(&args.failures).and_then(|()| fs::write(&file, text)).is_ok() {
                println!("    again with: cargo xtask chaos --replay {}", file.display());
            }
            println!("    as small as it got: {}", small.summary());
            let Ok(mut sum) = all.lock() else { return };
            let first = played.violations[0].0.lines().next().unwrap_or_default().to_owned();
            sum.failed.push(format!("seed {}: {first}", show.seed));
        }
    }
}

/// Plays one round in folders of its own.
fn on_stage(
    tools: &ChaosPrograms,
    show: &ChaosScenario,
    keep: bool,
) -> (Result<RoundResult, String>, Option<PathBuf>) {
    let dir = match tempfile::Builder::new().prefix("chaos").tempdir() {
        Ok(dir) => dir,
        Err(error) => return (Err(error.to_string()), None),
    };
    let folder = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).map(|()| path).map_err(|error| error.to_string())
    };
    let played = folder("place").and_then(|place| {
        let outside = folder("outside")?;
        let mut stage = ChaosFixture::set(&place, &outside, tools, show)?;
        play(&mut stage, show)
    });
    let failed = played.as_ref().map_or(true, |played| !played.violations.is_empty());
    let place = (keep && failed).then(|| dir.keep());
    (played, place)
}

fn tell(sum: &ChaosTotals, took: Duration) {
    println!(
        "\n{} rounds in {:.0} s: {} lives, {} of {} tasks landed, {} violations",
        sum.rounds,
        took.as_secs_f64(),
        sum.lives,
        sum.landed,
        sum.tasks,
        sum.failed.len()
    );
    let faults: Vec<String> =
        sum.faults.iter().map(|(name, times)| format!("{name} {times}")).collect();
    println!("faults fired: {}", faults.join(", "));
    for line in sum.failed.iter().chain(&sum.broken) {
        println!("{line}");
    }
}
