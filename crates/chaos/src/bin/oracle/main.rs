//! `mainstem-oracle OUTSIDE`: says what is wrong with a stage at rest, one line per broken promise.
//!
//! Reads what a user can see (git, the file system, the process table, what the commands print) and
//! compares it with the ledger, in which agents and gates wrote down what they really did. Exit code
//! 0: all promises kept; 1: the lines say which were not; 2: the oracle itself failed.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program's findings are its output"
)]

mod target_branch;
mod leftovers;
mod power_cut;
mod ground_truth;
mod unlanded_work;

use std::path::Path;
use std::process::ExitCode;

use mainstem_chaos::ChaosFixture;
use serde_json::Value;

use ground_truth::GroundTruth;

/// What the product says of itself.
struct ProductReport {
    status: Value,
    facts: Vec<Value>,
}

impl ProductReport {
    fn tasks(&self) -> impl Iterator<Item = &Value> {
        self.status["tasks"].as_array().into_iter().flatten()
    }

    fn task(&self, id: &str) -> Option<&Value> {
        self.tasks().find(|task| task["id"] == id)
    }
}

fn main() -> ExitCode {
    let Some(outside) = std::env::args_os().nth(1) else {
        eprintln!("mainstem-oracle OUTSIDE");
        return ExitCode::from(64);
    };
    match look(Path::new(&outside)) {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            for line in wrong {
                println!("{}", line.replace('\n', " | "));
            }
            ExitCode::from(1)
        }
        Err(why) => {
            eprintln!("mainstem-oracle: {why}");
            ExitCode::from(2)
        }
    }
}

fn look(outside: &Path) -> Result<Vec<String>, String> {
    let stage = ChaosFixture::load(outside)?;
    let truth = GroundTruth::read(&stage)?;
    let mut wrong = Vec::new();
    let said = match hear(&stage) {
        Ok(said) => said,
        // A product that cannot tell its own state has lost it.
        Err(why) => return Ok(vec![why]),
    };
    journal(&stage, &said, &mut wrong);
    let landings = target_branch::landings(&stage)?;
    target_branch::check(&stage, &truth, &said, &landings, &mut wrong)?;
    unlanded_work::check(&stage, &truth, &said, &landings, &mut wrong)?;
    leftovers::check(&stage, &truth, &said, &mut wrong)?;
    money(&stage, &truth, &said, &mut wrong);
    if let Some(cut) = &stage.power_cut {
        power_cut::check(&stage, cut, &said, &mut wrong)?;
    }
    Ok(wrong)
}

fn hear(stage: &ChaosFixture) -> Result<ProductReport, String> {
    let (code, status, complaint) = stage.mainstem(&["status", "--json"])?;
    if code != 0 && code != 2 && code != 3 {
        return Err(format!("status fails with {code}: {complaint}"));
    }
    let status: Value =
        serde_json::from_str(&status).map_err(|error| format!("status is no JSON: {error}"))?;
    let (code, history, complaint) = stage.mainstem(&["history", "--json"])?;
    if code != 0 {
        return Err(format!("history fails with {code}: {complaint}"));
    }
    let facts: Result<Vec<Value>, _> = history.lines().map(serde_json::from_str).collect();
    let facts = facts.map_err(|error| format!("history is no JSON: {error}"))?;
    Ok(ProductReport { status, facts })
}

/// Gapless, at rest, one landing per landed task.
fn journal(stage: &ChaosFixture, said: &ProductReport, wrong: &mut Vec<String>) {
    for (n, pair) in said.facts.windows(2).enumerate() {
        if pair[1]["seq"].as_u64() != pair[0]["seq"].as_u64().map(|seq| seq + 1) {
            wrong.push(format!("journal: a gap after fact {n}: {} then {}", pair[0], pair[1]));
        }
    }
    if said.status["state"] != "resting" {
        wrong.push(format!("status: state is {}, not resting", said.status["state"]));
    }
    for task in said.tasks() {
        let id = task["id"].as_str().unwrap_or_default();
        let times = said
            .facts
            .iter()
            .filter(|fact| fact["type"] == "task_landed" && fact["task"] == id)
            .count();
        let expected = usize::from(task["phase"] == "landed");
        // Of a landing that was taken back the fact is there all the same.
        if times != expected && !stage.undone.iter().any(|task| task == id) {
            wrong.push(format!("journal: {id} is {} but landed {times} times", task["phase"]));
        }
        let settled =
            ["landed", "conflicted", "failed", "blocked", "cancelled", "skipped"].map(Value::from);
        // A branch that somebody made bad holds cars up, and all that needs them; they say so.
        let held = |task: &Value| {
            task["phase"] == "merging"
                && task["reason"].as_str().is_some_and(|why| why.contains("itself"))
        };
        let any_held = said.tasks().any(held);
        let waits = (stage.may_wait || any_held)
            && (task["phase"] == "ready" || task["phase"] == "waiting")
            || held(task);
        if !settled.contains(&task["phase"]) && !waits {
            wrong.push(format!(
                "status: {id} rests in phase {} ({})",
                task["phase"], task["reason"]
            ));
        }
    }
}

/// Money is counted once: never more than was spent, and all of it where no output was lost.
fn money(stage: &ChaosFixture, truth: &GroundTruth, said: &ProductReport, wrong: &mut Vec<String>) {
    for script in &truth.scripts {
        let id = &script.task;
        let cost = said.task(id).and_then(|task| task["cost_usd"].as_f64()).unwrap_or(0.0);
        let counted = (cost * 1e6).round();
        // Status rounds money to four places, so the bounds are rounded the same way.
        let rounded = |micros: u64| (micros as f64 / 100.0).round() * 100.0;
        let (least, most) = truth.spent(id);
        // What was spent is told by facts; those that are lost took their money with them.
        if stage.journal_cut {
            continue;
        }
        if counted > rounded(most) {
            wrong
                .push(format!("cost: {id} spent at most {most} millionths, {counted} are counted"));
        }
        if !stage.output_lost && counted < rounded(least) {
            wrong.push(format!(
                "cost: {id} spent at least {least} millionths, {counted} are counted"
            ));
        }
    }
}
