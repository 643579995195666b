//! A journal that lost its end: the world is ahead of it. Played to rest, cut at every index, and
//! played again; or everything is killed on the way and the last few facts are lost.

use std::path::Path;
use std::time::{Duration, Instant};

use mainstem_testkit::SeededRng;
use rusqlite::{Connection, params};

use super::fixed_scenarios;
use super::{CampaignCases, CampaignRequest, CaseFolders, number};
use crate::event_log;
use crate::fault::{self, ChaosFaultKind};
use crate::fixture::ChaosFixture;
use crate::process_table;
use crate::run_round::{RoundResult, end_all, play};

/// Facts that are never cut: without them there is no run, and the same plan starts a new one.
const FIRST_CUT: u64 = 2;
/// Lost ends per scene in which everything died on the way.
const ON_THE_WAY: u64 = 25;
const FACTS_LOST_MAX: u64 = 5;
const GONE_WITHIN: Duration = Duration::from_secs(20);
/// A run that does not get so far within this time is played as it is.
const FAR_ENOUGH_WITHIN: Duration = Duration::from_secs(15);

/// Every index of every scene.
pub fn list(order: &CampaignRequest) -> Result<CampaignCases, String> {
    let scenes = order.scenes(|scene| scene.after.is_empty());
    let counts = order.each(&scenes, |scene| {
        let room = CaseFolders::new(&order.tools)?;
        let mut stage = room.stage(&scene.show)?;
        let played = play(&mut stage, &scene.show)?;
        Ok((last_seq(&stage)?, played.violations))
    })?;
    let mut list = CampaignCases::default();
    for (scene, (count, violations)) in scenes.iter().zip(counts) {
        list.wrong.extend(violations.into_iter().map(|what| format!("{}: {what}", scene.name)));
        list.cases.extend((FIRST_CUT..count).map(|k| format!("{}/at/{k}", scene.name)));
        let ways = (0..ON_THE_WAY).map(|n| format!("{}/way/{}", scene.name, order.seed + n));
        list.cases.extend(ways);
        list.remarks.push(format!("{}: {count} facts", scene.name));
    }
    list.cases = order.sample(list.cases);
    Ok(list)
}

/// One lost end: `SCENE/at/INDEX` or `SCENE/way/SEED`.
pub fn play_one(room: &CaseFolders, words: &[&str]) -> Result<RoundResult, String> {
    let scene = fixed_scenarios::named(words[0])?;
    let n = number(words, 2)?;
    let mut stage = room.stage(&scene.show)?;
    stage.must_land.clone_from(&scene.lands);
    let mut show = scene.show.clone();
    let lost = if words[1] == "way" {
        show.faults.clear();
        die_on_the_way(&mut stage, n)?
    } else {
        let before = play(&mut stage, &show)?;
        if !before.violations.is_empty() {
            return Ok(before);
        }
        last_seq(&stage)?.saturating_sub(n)
    };
    let lost = cut(&stage, lost)?;
    stage.journal_cut = true;
    // What a person did is not done again; it may be forgotten with the facts.
    show.faults.clear();
    let mut played = play(&mut stage, &show)?;
    played.fired.extend(lost);
    Ok(played)
}

/// Starts the run, kills everything at a moment drawn from the seed, and draws how much is lost.
fn die_on_the_way(stage: &mut ChaosFixture, seed: u64) -> Result<u64, String> {
    let mut rng = SeededRng::new(seed);
    let events = usize::try_from(rng.below(24)).unwrap_or(0);
    let delay = Duration::from_millis(rng.below(120));
    let mut child = stage.spawn(&["run", "plan.toml"], 99, &[])?;
    let until = Instant::now() + FAR_ENOUGH_WITHIN;
    while event_log::length(&stage.outside) < events
        && Instant::now() < until
        && child.try_wait().map_err(|error| error.to_string())?.is_none()
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(delay);
    let pid = i32::try_from(child.id()).ok();
    fault::fire(stage, &ChaosFaultKind::KillAll, pid)?;
    end_all(stage);
    child.wait().map_err(|error| error.to_string())?;
    let until = Instant::now() + GONE_WITHIN;
    while !process_table::of(stage).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    // Whoever loses agents may lose attempts.
    stage.must_land.clear();
    Ok(1 + rng.below(FACTS_LOST_MAX))
}

fn journal(stage: &ChaosFixture) -> std::path::PathBuf {
    stage.repo.join(".git/mainstem/journal.db")
}

fn last_seq(stage: &ChaosFixture) -> Result<u64, String> {
    let path = journal(stage);
    if !path.exists() {
        return Ok(0);
    }
    let conn = Connection::open(&path).map_err(|error| error.to_string())?;
    let last: i64 = conn
        .query_row("SELECT value FROM meta WHERE key = 'last_seq'", [], |row| row.get(0))
        .map_err(|error| error.to_string())?;
    Ok(last.cast_unsigned())
}

/// Takes the last facts off the journal, as if they had never been written; the kinds that went.
fn cut(stage: &ChaosFixture, lost: u64) -> Result<Vec<String>, String> {
    let last = last_seq(stage)?;
    if last <= FIRST_CUT {
        return Ok(Vec::new());
    }
    let keep = last.saturating_sub(lost).max(FIRST_CUT);
    cut_to(&journal(stage), keep.cast_signed()).map_err(|error| format!("the journal: {error}"))
}

fn cut_to(path: &Path, keep: i64) -> rusqlite::Result<Vec<String>> {
    let mut conn = Connection::open(path)?;
    let tx = conn.transaction()?;
    let guard: String = tx.query_row(
        "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = 'facts_are_never_removed'",
        [],
        |row| row.get(0),
    )?;
    let next: Option<String> = tx
        .query_row("SELECT kind FROM facts WHERE seq = ?1", params![keep + 1], |row| row.get(0))
        .ok();
    tx.execute_batch("DROP TRIGGER facts_are_never_removed")?;
    tx.execute("DELETE FROM facts WHERE seq > ?1", params![keep])?;
    tx.execute("UPDATE meta SET value = ?1 WHERE key = 'last_seq'", params![keep])?;
    tx.execute_batch(&guard)?;
    tx.commit()?;
    Ok(next.into_iter().map(|kind| format!("before {kind}")).collect())
}
