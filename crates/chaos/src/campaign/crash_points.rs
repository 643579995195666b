//! Deaths at counted places: `points` dies once, `pairs` once more in the life that follows. The
//! places are the product's numbered crash points; a dry run counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::fixed_scenarios::{self, FixedScenario};
use super::{CampaignCases, CampaignRequest, CaseFolders, number, wish};
use crate::event_log::{self, ChaosEvent};
use crate::fixture::{ChaosFixture, FixtureVariables};
use crate::oracle_call::OracleViolation;
use crate::run_round::{RoundResult, play};

/// Exit code of a process that SIGKILL ended.
const KILLED: i32 = 137;
/// The scenes whose pairs are all played.
const PAIRED: [&str; 2] = ["one", "need"];
/// In a sample of pairs, about so many have the same first death.
const SECONDS: usize = 4;

/// What a dry run counted: the names of the points of each part of a scene, the run and then each
/// command that follows it.
struct CrashPointWalk {
    parts: Vec<Vec<String>>,
    wrong: Vec<String>,
}

/// Points of planning, of pull requests, of clones and of reviews: a scene would need an agent that plans or
/// reviews, a forge, or another kind of workspace. The tests of the command line die there (`draft.rs`,
/// `pulls.rs`, `clones.rs`, `review.rs`).
const ELSEWHERE: [&str; 4] = ["draft.", "pull.", "clone.", "review."];

/// All deaths of all scenes.
pub fn list(order: &CampaignRequest) -> Result<CampaignCases, String> {
    let scenes = fixed_scenarios::all();
    let walks = order.each(&scenes, |scene| walk(&CaseFolders::new(&order.tools)?, scene))?;
    let mut list = CampaignCases::default();
    let mut walked: BTreeSet<String> = BTreeSet::new();
    for (scene, walk) in scenes.iter().zip(walks) {
        let counts: Vec<usize> = walk.parts.iter().map(Vec::len).collect();
        list.remarks.push(format!("{}: {counts:?} points", scene.name));
        list.wrong.extend(walk.wrong.into_iter().map(|what| format!("{}: {what}", scene.name)));
        for (part, names) in walk.parts.into_iter().enumerate() {
            list.cases.extend((1..=names.len()).map(|n| format!("{}/{part}/{n}", scene.name)));
            walked.extend(names);
        }
    }
    let known = in_sources()?;
    let here = |name: &&String| !ELSEWHERE.iter().any(|part| name.starts_with(part));
    let unseen: Vec<&String> = known.difference(&walked).filter(here).collect();
    list.remarks.push(format!("{} named points, {} walked", known.len(), walked.len()));
    if !unseen.is_empty() {
        list.wrong.push(format!("no scene walks these crash points: {unseen:?}"));
    }
    list.cases = order.sample(list.cases);
    Ok(list)
}

/// The points that the sources name.
fn in_sources() -> Result<BTreeSet<String>, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let mut names = BTreeSet::new();
    let mut folders: Vec<_> = ["engine", "host", "store", "cli"]
        .iter()
        .map(|name| crates.join(name).join("src"))
        .collect();
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
                names.extend(
                    text.split("crash::point(\"")
                        .skip(1)
                        .filter_map(|rest| rest.split('"').next())
                        .map(str::to_owned),
                );
            }
        }
    }
    if names.is_empty() {
        return Err(format!("no crash point is named below {}", crates.display()));
    }
    Ok(names)
}

fn walk(room: &CaseFolders, scene: &FixedScenario) -> Result<CrashPointWalk, String> {
    let mut walk = CrashPointWalk { parts: Vec::new(), wrong: Vec::new() };
    let (stage, played) = go(room, scene, &CrashPointDeaths::default())?;
    walk.wrong.extend(played.violations.into_iter().map(|violation| violation.0));
    for part in 0..=scene.after.len() {
        walk.parts.push(names(&stage, part, 0));
    }
    Ok(walk)
}

/// Where to die: in which part of the scene, and at which point of that part's first lives.
#[derive(Debug, Default, Clone)]
struct CrashPointDeaths {
    part: usize,
    at: Vec<u64>,
}

pub fn play_one(room: &CaseFolders, words: &[&str]) -> Result<RoundResult, String> {
    let part = usize::try_from(number(words, 1)?).unwrap_or(0);
    let deaths = CrashPointDeaths { part, at: vec![number(words, 2)?] };
    go(room, &fixed_scenarios::named(words[0])?, &deaths).map(|(_, played)| played)
}

pub fn play_pair(room: &CaseFolders, words: &[&str]) -> Result<RoundResult, String> {
    let deaths = CrashPointDeaths { part: 0, at: vec![number(words, 1)?, number(words, 2)?] };
    go(room, &fixed_scenarios::named(words[0])?, &deaths).map(|(_, played)| played)
}

/// Every point of the first life, and for each of them every point of the life that follows.
pub fn list_pairs(order: &CampaignRequest) -> Result<CampaignCases, String> {
    let mut list = CampaignCases::default();
    for name in PAIRED {
        let scene = fixed_scenarios::named(name)?;
        let first = walk(&CaseFolders::new(&order.tools)?, &scene)?;
        let points = first.parts.first().map_or(0, Vec::len);
        let firsts: Vec<u64> = (1..=points as u64).collect();
        // A sample of pairs needs only a sample of firsts.
        let wanted = order.rounds.map(|rounds| rounds.div_ceil(2 * SECONDS));
        let firsts = CampaignRequest { rounds: wanted, ..order.clone() }.sample(firsts);
        let seconds = order.each(&firsts, |n| {
            let room = CaseFolders::new(&order.tools)?;
            let deaths = CrashPointDeaths { part: 0, at: vec![*n] };
            let (stage, played) = go(&room, &scene, &deaths)?;
            Ok((names(&stage, 0, 1).len(), played.violations))
        })?;
        let mut pairs = 0;
        for (n, (count, violations)) in firsts.iter().zip(seconds) {
            list.wrong.extend(violations.into_iter().map(|what| format!("{name}/{n}: {what}")));
            list.cases.extend((1..=count).map(|m| format!("{name}/{n}/{m}")));
            pairs += count;
        }
        list.remarks.push(format!("{name}: {points} points, {pairs} pairs"));
    }
    list.cases = order.sample(list.cases);
    Ok(list)
}

/// Plays a scene with its deaths to rest and has it judged.
fn go(
    room: &CaseFolders,
    scene: &FixedScenario,
    deaths: &CrashPointDeaths,
) -> Result<(ChaosFixture, RoundResult), String> {
    let mut stage = room.stage(&scene.show)?;
    stage.must_land = if scene.after.is_empty() { scene.lands.clone() } else { Vec::new() };
    let lives = deaths.at.len() + 1;
    stage.wishes = (0..lives).map(|life| wishes(&stage, 0, life, deaths)).collect();
    let mut played = play(&mut stage, &scene.show)?;
    if !scene.after.is_empty() && played.violations.is_empty() {
        after(&mut stage, scene, deaths, &mut played)?;
    }
    let events = event_log::read(&stage.outside).map_err(|error| error.to_string())?;
    let started = events.iter().filter(|event| matches!(event, ChaosEvent::Start { .. })).count();
    if let Some(expected) = scene.starts.filter(|starts| *starts != started) {
        let what = format!("{started} agents were started, not {expected}");
        played.violations.push(OracleViolation(what));
    }
    for (life, at) in deaths.at.iter().enumerate() {
        let names = names(&stage, deaths.part, life);
        let died = usize::try_from(*at).ok().and_then(|at| names.get(at.wrapping_sub(1)));
        played.fired.extend(died.cloned());
    }
    Ok((stage, played))
}

/// The commands that follow; one that died is given again, as a person would.
fn after(
    stage: &mut ChaosFixture,
    scene: &FixedScenario,
    deaths: &CrashPointDeaths,
    played: &mut RoundResult,
) -> Result<(), String> {
    for (n, words) in scene.after.iter().enumerate() {
        if let Some(words) = words.strip_prefix(&["git"]) {
            stage.git(words)?;
            continue;
        }
        for life in 0.. {
            let (code, _, said) =
                stage.mainstem_with(words, &wishes(stage, n + 1, life, deaths))?;
            played.lives += 1;
            if said.contains("panicked at") || said.contains("BUG") {
                return Err(format!("{words:?} broke: {said}"));
            }
            if code != KILLED {
                break;
            }
        }
    }
    stage.must_land.clone_from(&scene.lands);
    stage.undone.clone_from(&scene.undone);
    stage.brought_over = scene.after.contains(&&["land"][..]);
    stage.wishes.clear();
    let mut show = scene.show.clone();
    show.faults.clear();
    let more = play(stage, &show)?;
    played.lives += more.lives;
    played.landed = more.landed;
    played.violations = more.violations;
    Ok(())
}

fn wishes(
    stage: &ChaosFixture,
    part: usize,
    life: usize,
    deaths: &CrashPointDeaths,
) -> FixtureVariables {
    let log = stage.outside.join(format!("points.{part}.{life}"));
    let mut wishes = vec![wish("MAINSTEM_CRASH_LOG", log.display())];
    if part == deaths.part
        && let Some(at) = deaths.at.get(life)
    {
        wishes.push(wish("MAINSTEM_CRASH_AT", at));
    }
    wishes
}

/// Names of the points that a life passed.
fn names(stage: &ChaosFixture, part: usize, life: usize) -> Vec<String> {
    let text = fs::read_to_string(stage.outside.join(format!("points.{part}.{life}")));
    let text = text.unwrap_or_default();
    // Two threads may write their lines in another order than they were numbered.
    let numbered: BTreeMap<u64, &str> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(n, name)| Some((n.parse().ok()?, name)))
        .collect();
    numbered.into_values().map(str::to_owned).collect()
}
