//! A thousand agents at once: starting them, watching them, losing the engine, and ending them all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use mainstem_core::fact::Fact;
use mainstem_core::id::Time;

use super::scene::Scene;
use super::table::{Sample, Table, judge};
use super::{Context, proc};
use crate::Verdict;

const AGENTS: usize = 1_000;
/// Agents that are ended to see how fast that is noticed.
const ENDED: usize = 200;
const PATIENCE: Duration = Duration::from_secs(600);

/// An engine that is ended with the bench, whatever happens.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Engine {
    fn start(scene: &Scene, args: &[&str]) -> Result<Self, String> {
        scene.mainstem(args)?.spawn().map(Self).map_err(|error| error.to_string())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn lives(&self) -> bool {
        !matches!(proc::stat(self.pid()), None | Some(('Z', _)))
    }
}

/// What the facts told so far.
#[derive(Default)]
struct Seen {
    last: u64,
    pids: BTreeMap<String, u32>,
    ended: BTreeMap<String, Time>,
    engines: usize,
}

impl Seen {
    fn look(&mut self, scene: &Scene) -> Result<(), String> {
        let (facts, last) = scene.facts(self.last)?;
        self.last = last;
        for (at, fact) in facts {
            match fact {
                Fact::AgentStarted { task, pid, .. } => {
                    self.pids.insert(task.to_string(), pid);
                }
                Fact::AgentEnded { task, .. } => {
                    self.ended.insert(task.to_string(), at);
                }
                Fact::EngineStarted { .. } => self.engines += 1,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Prints what a thousand agents cost, and finds fault if any of them is left.
pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let scene = Scene::new(context, "many")?;
    let outcome = measure(&scene);
    // Whatever broke: nothing stays behind.
    let left = proc::below(scene.root());
    proc::end_all(&left);
    let gone = proc::wait_until(Duration::from_secs(30), || proc::below(scene.root()).is_empty());
    if !gone {
        return Err(format!("processes that cannot be ended: {:?}", proc::below(scene.root())));
    }
    outcome?;
    if left.is_empty() {
        return Ok(Verdict::Clean);
    }
    println!("   LEFT BEHIND: {} processes", left.len());
    Ok(Verdict::Findings)
}

fn measure(scene: &Scene) -> Result<(), String> {
    let plan = scene.write("plan.toml", &plan_text())?.to_string_lossy().into_owned();
    let jobs = AGENTS.to_string();
    let mut table = Table::new(&["", ""]);
    let mut say = |what: &str, value: String| table.row(&[what.to_owned(), value]);
    let mut seen = Seen::default();

    let begun = Instant::now();
    let engine = Engine::start(scene, &["run", &plan, "-j", &jobs, "-q"])?;
    wait(scene, &engine, &mut seen, "all agents to work", |seen| seen.pids.len() >= AGENTS)?;
    let all_work = begun.elapsed().as_secs_f64();
    say("until all work", format!("{all_work:.1} s"));
    let cpu = proc::stat(engine.pid()).map_or(0.0, |(_, cpu)| cpu.own);
    say("engine CPU until then", format!("{cpu:.2} s"));
    let first_rss = resident(&mut say, "engine memory", engine.pid());
    let idle = idle(engine.pid());
    say("engine CPU when nothing happens", format!("{:.2} % of a core", idle * 100.0));
    say("agents' supervisors", supervisors(scene));

    drop(engine);
    let begun = Instant::now();
    let engine = Engine::start(scene, &["run", "-j", &jobs, "-q"])?;
    let attached = attach(scene, &engine, &mut seen, begun)?;
    for (what, at) in &attached {
        say(&format!("kill -9, then {what}"), format!("{:.2} s", at.as_secs_f64()));
    }
    let cpu = proc::stat(engine.pid()).map_or(0.0, |(_, cpu)| cpu.own);
    say("engine CPU until then", format!("{cpu:.2} s"));
    let second_rss = resident(&mut say, "engine memory after that", engine.pid());

    let delays = reactions(scene, &engine, &mut seen)?;
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("worst", 1.0)] {
        say(
            &format!("{name} from an exit to its fact, {} exits", delays.len()),
            format!("{:.0} ms", delays.quantile(share)),
        );
    }
    let begun = Instant::now();
    proc::spend(&mut scene.mainstem(&["cancel"])?)?;
    let rested = proc::wait_until(PATIENCE, || !engine.lives());
    if !rested {
        return Err("the engine did not rest after cancel".to_owned());
    }
    say("cancel until the engine rests", format!("{:.1} s", begun.elapsed().as_secs_f64()));
    say("processes left", proc::below(scene.root()).len().to_string());
    table.print();
    let reattach = attached.last().map_or(f64::NAN, |(_, at)| at.as_secs_f64());
    judge("engine memory with 1,000 agents", first_rss.max(second_rss), 64.0, " MiB");
    judge("re-attach of all", reattach, 1.0, " s");
    judge("p99 from an exit to its fact", delays.quantile(0.99), 100.0, " ms");
    Ok(())
}

fn plan_text() -> String {
    let mut text = "version = 1\ntitle = \"A thousand\"\n".to_owned();
    for at in 0..AGENTS {
        let _ = writeln!(
            text,
            "\n[[task]]\nid = \"T-{at:04}\"\ntitle = \"Wait\"\nretries = 0\nrun = \"exec sleep 600\""
        );
    }
    text
}

fn wait(
    scene: &Scene,
    engine: &Engine,
    seen: &mut Seen,
    what: &str,
    holds: impl Fn(&Seen) -> bool,
) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        seen.look(scene)?;
        if holds(seen) {
            return Ok(());
        }
        if !engine.lives() {
            return Err(format!("the engine ended while waiting for {what}: {}", scene.said()));
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("waited too long for {what}: {} work", seen.pids.len()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The engine's memory now; printed with its peak.
fn resident(say: &mut dyn FnMut(&str, String), what: &str, pid: u32) -> f64 {
    let now = proc::mebibytes(pid, "VmRSS").unwrap_or(f64::NAN);
    let peak = proc::mebibytes(pid, "VmHWM").unwrap_or(f64::NAN);
    say(what, format!("{now:.1} MiB, peak {peak:.1} MiB"));
    peak
}

/// The share of a core that the engine uses while nothing happens.
fn idle(pid: u32) -> f64 {
    let own = || proc::stat(pid).map_or(0.0, |(_, cpu)| cpu.own);
    let (begun, before) = (Instant::now(), own());
    std::thread::sleep(Duration::from_secs(5));
    (own() - before) / begun.elapsed().as_secs_f64()
}

/// What the processes that stand between engine and agents take together.
fn supervisors(scene: &Scene) -> String {
    let mut count = 0;
    let mut private = 0.0;
    for pid in proc::below(scene.root()) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "sleep" || name.trim() == "sh" {
            continue;
        }
        count += 1;
        private += proc::mebibytes(pid, "RssAnon").unwrap_or(0.0);
    }
    format!("{count} processes, {:.2} MiB of their own each", private / f64::from(count.max(1)))
}

/// When the new engine had written its first fact, answered, and watched all agents.
fn attach(
    scene: &Scene,
    engine: &Engine,
    seen: &mut Seen,
    begun: Instant,
) -> Result<Vec<(&'static str, Duration)>, String> {
    let before = seen.engines;
    let mut times: Vec<(&'static str, Duration)> = Vec::new();
    let note = |times: &mut Vec<(&'static str, Duration)>, what: &'static str| {
        if times.iter().all(|(known, _)| *known != what) {
            times.push((what, begun.elapsed()));
        }
    };
    while times.len() < 3 {
        if begun.elapsed() > PATIENCE || !engine.lives() {
            return Err(format!("the second engine did not come up: {}", scene.said()));
        }
        if answers(&scene.state(), engine.pid()) {
            note(&mut times, "the new engine answers");
        }
        seen.look(scene)?;
        if seen.engines > before {
            note(&mut times, "its first fact is durable");
        }
        if proc::watches(engine.pid()) >= AGENTS {
            note(&mut times, "all agents are watched");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(times)
}

fn answers(state: &Path, pid: u32) -> bool {
    let ask = || -> Option<u64> {
        let lock: serde_json::Value =
            serde_json::from_slice(&fs::read(state.join("engine.lock")).ok()?).ok()?;
        let mut stream = UnixStream::connect(PathBuf::from(lock["socket"].as_str()?)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(b"{\"cmd\":\"ping\"}\n").ok()?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).ok()?;
        serde_json::from_str::<serde_json::Value>(&line).ok()?["data"]["pid"].as_u64()
    };
    ask() == Some(u64::from(pid))
}

/// Ends some agents one after the other, and compares their supervisors' records with the journal.
fn reactions(scene: &Scene, engine: &Engine, seen: &mut Seen) -> Result<Sample, String> {
    let chosen: Vec<(String, u32)> =
        seen.pids.iter().step_by(AGENTS / ENDED).map(|(task, pid)| (task.clone(), *pid)).collect();
    for (_, pid) in &chosen {
        proc::end(*pid);
        std::thread::sleep(Duration::from_millis(50));
    }
    wait(scene, engine, seen, "the ends of some agents", |seen| {
        chosen.iter().all(|(task, _)| seen.ended.contains_key(task))
    })?;
    let runs = scene.state().join("runs");
    let run = fs::read_dir(&runs).ok().and_then(|mut runs| runs.next()?.ok());
    let run = run.ok_or_else(|| format!("{} is empty", runs.display()))?.path();
    let mut delays = Vec::new();
    for (task, _) in &chosen {
        let path = run.join(task).join("1/agent/exit.json");
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let exit: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let ended = exit["ended_at_ms"].as_i64().ok_or("an exit without a time")?;
        delays.push((seen.ended[task].0 - ended).max(0) as f64);
    }
    Ok(Sample::new(delays))
}
