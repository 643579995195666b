//! After the power went: what a user had been told by then is still true.

use mainstem_chaos::ChaosFixture;
use mainstem_chaos::fixture::PowerCut;
use serde_json::Value;

use super::ProductReport;

pub(crate) fn check(
    stage: &ChaosFixture,
    cut: &PowerCut,
    said: &ProductReport,
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    for line in &cut.told {
        let fact: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        if !said.facts.contains(&fact) {
            wrong.push(format!("power: the journal lost a fact that was told: {line}"));
        }
        let text = |key: &str| fact[key].as_str().unwrap_or_default().to_owned();
        let (task, commit) = (text("task"), text("commit"));
        let landed = said.task(&task).is_some_and(|task| task["phase"] == "landed");
        match fact["type"].as_str() {
            Some("task_landed")
                if fact["empty"] != true
                    && stage
                        .git(&["merge-base", "--is-ancestor", &commit, "refs/heads/main"])
                        .is_err() =>
            {
                wrong.push(format!("power: the landing {commit} of {task} was told and is gone"));
            }
            // Once the work has landed its snapshots may be pruned.
            Some("snapshot_taken") if !landed => {
                let now = stage.git(&["rev-parse", "--verify", "--quiet", &text("refname")]);
                if now.as_deref() != Ok(commit.as_str()) {
                    let name = text("refname");
                    wrong.push(format!("power: the snapshot {name} was told and is {now:?}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
