//! A slice of each counted campaign, with a fresh seed; `RUN_SLOW=1` plays whole campaigns. The cases
//! that failed once are played every time.

#![expect(clippy::print_stdout, reason = "what a failed test has to say")]

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use mainstem_chaos::ChaosPrograms;
use mainstem_chaos::campaign::sweep::{SweepProgress, tour};
use mainstem_chaos::campaign::{ALL, CampaignRequest};

/// Cases by name, one per line, with what they found.
const FAILED_ONCE: &str = include_str!("../corpus/cases");

fn order(rounds: usize) -> CampaignRequest {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let slow = std::env::var_os("RUN_SLOW").is_some_and(|value| value == "1");
    let tools = ChaosPrograms {
        mainstem: mainstem_testkit::mainstem().to_owned(),
        agent: PathBuf::from(env!("CARGO_BIN_EXE_chaos-agent")),
        oracle: PathBuf::from(env!("CARGO_BIN_EXE_mainstem-oracle")),
    };
    CampaignRequest { tools, jobs: 2, rounds: (!slow).then_some(rounds), seed }
}

#[track_caller]
fn play(order: &CampaignRequest, names: &[String]) {
    let sum = tour(order, names, false, None, &|news| {
        if let SweepProgress::Bad(outcome) = news {
            println!("{}: {:?}", outcome.name, outcome.played);
        }
    })
    .expect("cases can be played");
    println!("{sum}");
    assert!(sum.is_good(), "seed {}: {:#?} {:#?}", order.seed, sum.failed, sum.broken);
}

#[track_caller]
fn slice(name: &str, rounds: usize) {
    let order = order(rounds);
    let campaign = ALL.iter().find(|one| one.name == name).expect("a campaign of that name");
    let list = (campaign.list)(&order).expect("the cases can be counted");
    assert!(list.wrong.is_empty(), "{:#?}", list.wrong);
    let names: Vec<String> = list.cases.iter().map(|case| format!("{name}/{case}")).collect();
    assert!(!names.is_empty());
    play(&order, &names);
}

#[test]
fn a_death_at_every_point_loses_and_doubles_nothing() {
    slice("points", 12);
}

#[test]
fn two_deaths_in_a_row_lose_and_double_nothing() {
    slice("pairs", 12);
}

#[test]
fn a_journal_that_lost_its_end_loses_and_doubles_nothing() {
    slice("journal", 8);
}

#[test]
fn every_effect_may_be_performed_twice() {
    slice("twice", 8);
}

#[test]
fn every_operation_may_fail_once() {
    slice("failing", 10);
}

#[test]
fn cases_that_failed_once_stay_good() {
    let names: Vec<String> = FAILED_ONCE
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| !name.starts_with('#'))
        .map(str::to_owned)
        .collect();
    assert!(!names.is_empty());
    play(&order(0), &names);
}
