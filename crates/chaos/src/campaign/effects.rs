//! Effects that misbehave by order: each performed twice, or one operation that fails once, before
//! or after it was done.

use std::fs;

use super::fixed_scenarios;
use super::{CampaignCases, CampaignRequest, CaseFolders, number, wish};
use crate::fault::ChaosFaultKind;
use crate::oracle_call::OracleViolation;
use crate::run_round::{RoundResult, play};
use crate::scenario::ChaosScenario;

/// Drawn rounds in `twice`, besides the scenes.
const DRAWN: u64 = 100;
/// Lives of a round in which every effect is performed twice.
const LIVES: usize = 16;

/// All scenes, and rounds that are drawn, with and without deaths of the engine.
pub fn list_twice(order: &CampaignRequest) -> Result<CampaignCases, String> {
    let mut list = CampaignCases::default();
    let scenes = fixed_scenarios::all();
    list.cases.extend(scenes.iter().map(|scene| format!("scene/{}", scene.name)));
    list.cases.extend((0..DRAWN).map(|n| format!("seed/{}", order.seed + n)));
    list.cases = order.sample(list.cases);
    Ok(list)
}

pub fn play_twice(room: &CaseFolders, words: &[&str]) -> Result<RoundResult, String> {
    let mut lands = None;
    let show = if words[0] == "scene" {
        let scene = fixed_scenarios::named(words.get(1).copied().unwrap_or_default())?;
        lands = scene.after.is_empty().then_some(scene.lands);
        scene.show
    } else {
        let mut show = ChaosScenario::draw(number(words, 1)?);
        show.faults.retain(|fault| fault.what == ChaosFaultKind::KillEngine);
        show
    };
    let mut stage = room.stage(&show)?;
    if let Some(lands) = lands {
        stage.must_land = lands;
    }
    stage.wishes = vec![vec![wish("MAINSTEM_EFFECTS_TWICE", 1)]; LIVES];
    play(&mut stage, &show)
}

/// Every operation of every scene.
pub fn list_failing(order: &CampaignRequest) -> Result<CampaignCases, String> {
    let scenes = order.scenes(|scene| scene.after.is_empty());
    let counts = order.each(&scenes, |scene| {
        let room = CaseFolders::new(&order.tools)?;
        let mut stage = room.stage(&scene.show)?;
        let log = stage.outside.join("operations");
        stage.wishes = vec![vec![wish("MAINSTEM_FAIL_LOG", log.display())]];
        let played = play(&mut stage, &scene.show)?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        Ok((text.lines().count(), played.violations))
    })?;
    let mut list = CampaignCases::default();
    for (scene, (count, violations)) in scenes.iter().zip(counts) {
        list.wrong.extend(violations.into_iter().map(|what| format!("{}: {what}", scene.name)));
        for n in 1..=count {
            list.cases.push(format!("{}/before/{n}", scene.name));
            list.cases.push(format!("{}/after/{n}", scene.name));
        }
        list.remarks.push(format!("{}: {count} operations", scene.name));
    }
    list.cases = order.sample(list.cases);
    Ok(list)
}

pub fn play_failing(room: &CaseFolders, words: &[&str]) -> Result<RoundResult, String> {
    let scene = fixed_scenarios::named(words[0])?;
    let n = number(words, 2)?;
    let mut stage = room.stage(&scene.show)?;
    stage.must_land.clone_from(&scene.lands);
    let log = stage.outside.join("operations");
    let at = if words[1] == "after" { format!("{n}+") } else { n.to_string() };
    let wishes = vec![wish("MAINSTEM_FAIL_LOG", log.display()), wish("MAINSTEM_FAIL_AT", at)];
    stage.wishes = vec![wishes];
    let mut played = play(&mut stage, &scene.show)?;
    if !played.violations.is_empty() {
        // What could not be done in that life is done by the next.
        let mut show = scene.show.clone();
        show.faults.clear();
        stage.wishes.clear();
        let more = play(&mut stage, &show)?;
        played.lives += more.lives;
        played.violations = more.violations;
    }
    // An interrupted engine ends a life without our help.
    let lives_max = 2 + scene.show.faults.len();
    if played.lives > lives_max {
        let what = format!("one failure cost {} lives", played.lives);
        played.violations.push(OracleViolation(what));
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    let failed = text.lines().find_map(|line| line.strip_prefix(&format!("{n} ")));
    let words = failed.unwrap_or_default().split_whitespace();
    // Without the paths and names that differ from case to case.
    let plain = |word: &&str| word.len() < 24 && !word.contains(['/', '=', '.']);
    let name: Vec<&str> = words.filter(plain).take(3).collect();
    if !name.is_empty() {
        played.fired.push(name.join(" "));
    }
    Ok(played)
}
