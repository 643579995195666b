//! The target branch: what landed, once, verified, on top of what it needs, and nobody else's lost.

use std::collections::BTreeMap;

use mainstem_chaos::ChaosFixture;
use mainstem_chaos::script::RED;

use super::ProductReport;
use super::ground_truth::GroundTruth;
use super::unlanded_work::{files_of, holds};

/// The target branch here.
const HERE: &str = "refs/heads/main";

#[derive(Debug, Clone)]
pub(crate) struct LandingCommit {
    pub(crate) task: String,
    pub(crate) attempt: u32,
    pub(crate) commit: String,
    pub(crate) tree: String,
}

/// The landings on the target branch's first parents, oldest first.
pub(crate) fn landings(stage: &ChaosFixture) -> Result<Vec<LandingCommit>, String> {
    landings_from(stage, &target(stage)?)
}

/// The branch that a run made for its own landings.
pub(crate) fn own_branch(stage: &ChaosFixture) -> Result<Option<String>, String> {
    if !stage.own_branch {
        return Ok(None);
    }
    let refs = stage.git(&["for-each-ref", "--format=%(refname)", "refs/heads/mainstem/r-*"])?;
    match refs.lines().collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).to_owned())),
        more => Err(format!("one run has {} branches of its own", more.len())),
    }
}

/// Where work lands: on the run's own branch if it has one, on the remote if it is pushed. What others put
/// there is brought here to be looked at, and onto no ref.
fn target(stage: &ChaosFixture) -> Result<String, String> {
    if let Some(own) = own_branch(stage)? {
        return Ok(own);
    }
    if !stage.pushed {
        return Ok(HERE.to_owned());
    }
    let remote = stage.remote().display().to_string();
    stage.git(&["fetch", "-q", "--no-write-fetch-head", "--no-auto-gc", &remote, "main"])?;
    stage.git_in(&stage.remote(), &["rev-parse", HERE])
}

/// The remote has the one branch and nothing else of ours, and what landed there is here too.
fn shared(
    stage: &ChaosFixture,
    landings: &[LandingCommit],
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    if !stage.pushed {
        return Ok(());
    }
    let refs = stage.git_in(&stage.remote(), &["for-each-ref", "--format=%(refname)"])?;
    if refs != HERE {
        wrong.push(format!("remote: it has {}", refs.replace('\n', ", ")));
    }
    for landing in landings.iter().filter(|_| !stage.apart) {
        if !is_ancestor(stage, &landing.commit, HERE) {
            let LandingCommit { task, commit, .. } = landing;
            wrong.push(format!("target: {task} landed as {commit} on the remote and not here"));
        }
    }
    Ok(())
}

fn landings_from(stage: &ChaosFixture, tip: &str) -> Result<Vec<LandingCommit>, String> {
    let trailer = |key: &str| format!("%(trailers:key={key},valueonly,separator=%x1f)");
    let format = format!(
        "--format=%H%x1e%T%x1e{}%x1e{}",
        trailer("Mainstem-Task"),
        trailer("Mainstem-Attempt")
    );
    let log = stage.git(&["log", "--first-parent", "--reverse", &format, tip, "--"])?;
    let mut found = Vec::new();
    for line in log.lines() {
        let fields: Vec<&str> = line.split('\u{1e}').collect();
        let [commit, tree, task, attempt] = fields[..] else {
            return Err(format!("odd line of git log: {line:?}"));
        };
        if !task.is_empty() {
            found.push(LandingCommit {
                task: task.to_owned(),
                attempt: attempt.parse().unwrap_or(0),
                commit: commit.to_owned(),
                tree: tree.to_owned(),
            });
        }
    }
    Ok(found)
}

pub(crate) fn check(
    stage: &ChaosFixture,
    truth: &GroundTruth,
    said: &ProductReport,
    landings: &[LandingCommit],
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    once(stage, truth, said, landings, wrong)?;
    for landing in landings {
        one(stage, truth, landing, wrong)?;
    }
    shared(stage, landings, wrong)?;
    let target = target(stage)?;
    if stage.brought_over && !is_ancestor(stage, &target, HERE) {
        wrong.push(format!("target: {target} was brought over, and main does not have it"));
    }
    for commit in &truth.others {
        let withdrawn = truth.withdrawn.iter().any(|tip| is_ancestor(stage, commit, tip));
        // A commit that was made here while the remote's branch moved stays here.
        let kept = |tip: &str| is_ancestor(stage, commit, tip);
        if !withdrawn && !kept(&target) && !kept(HERE) {
            wrong.push(format!("target: somebody else's commit {commit} is gone"));
        }
    }
    for task in &stage.must_land {
        if !landings.iter().any(|landing| landing.task == *task) {
            let state = said.task(task);
            let why = state.map(|state| format!("{} ({})", state["phase"], state["reason"]));
            wrong.push(format!(
                "target: {task} must have landed, it is {}",
                why.unwrap_or_default()
            ));
        }
    }
    Ok(())
}

fn once(
    stage: &ChaosFixture,
    truth: &GroundTruth,
    said: &ProductReport,
    landings: &[LandingCommit],
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for landing in landings {
        *times.entry(&landing.task).or_default() += 1;
    }
    // What somebody took off the branch had landed all the same.
    let mut before = Vec::new();
    for tip in &truth.withdrawn {
        before.extend(landings_from(stage, tip)?);
    }
    for script in &truth.scripts {
        let id = script.task.as_str();
        let Some(task) = said.task(id) else {
            wrong.push(format!("status: {id} is missing"));
            continue;
        };
        let here = times.get(id).copied().unwrap_or(0);
        let ever = here > 0 || before.iter().any(|landing| landing.task == id);
        if here > 1 {
            wrong.push(format!("target: {id} landed {here} times"));
        }
        let undone = stage.undone.iter().any(|task| task == id);
        if ever != (task["phase"] == "landed") && !undone {
            let what = if ever { "landed" } else { "not landed" };
            wrong.push(format!("target: {id} is {what} in git and {} in status", task["phase"]));
        }
    }
    Ok(())
}

fn one(
    stage: &ChaosFixture,
    truth: &GroundTruth,
    landing: &LandingCommit,
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    let LandingCommit { task, attempt, commit, tree } = landing;
    let amended = stage.git(&["log", "-1", "--format=%s", commit])?.starts_with("amended: ");
    if !truth.passed.contains(tree) {
        wrong.push(format!("target: {task} landed as {commit}, whose tree {tree} no gate passed"));
    }
    let files = files_of(stage, commit)?;
    if files.keys().any(|path| path.ends_with(RED)) {
        wrong.push(format!("target: {task} landed as {commit}, which is red"));
    }
    let key = (task.clone(), *attempt);
    let Some(told) = truth.told.get(&key) else {
        wrong.push(format!("target: {task} landed attempt {attempt}, which no agent worked on"));
        return Ok(());
    };
    if !told.ended {
        wrong.push(format!("target: {task} landed attempt {attempt}, whose agent did not finish"));
    }
    let left = truth.left(task, *attempt);
    if let Some(what) = holds(stage, &files, &left)? {
        wrong.push(format!("target: {task} landed as {commit} without its work: {what}"));
    }
    let Some(script) = truth.script(task) else { return Ok(()) };
    for need in &script.needs {
        let landed = landings(stage)?.into_iter().find(|other| other.task == *need);
        let withdrawn = !truth.withdrawn.is_empty() || amended;
        if let Some(landed) = landed
            && !withdrawn
            && !is_ancestor(stage, &landed.commit, &told.base)
        {
            wrong.push(format!("order: {task} began at {}, without {need}", told.base));
        }
    }
    Ok(())
}

fn is_ancestor(stage: &ChaosFixture, commit: &str, tip: &str) -> bool {
    stage.git(&["merge-base", "--is-ancestor", commit, tip]).is_ok()
}
