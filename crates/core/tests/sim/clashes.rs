//! Stories of work that does not merge: resolved, given up, and seen ahead.

use mainstem_core::config::{AgentSettings, ConflictAction, Settings};
use mainstem_core::conflict::{ConflictForecast, ConflictPair, UnlandedWork};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentClaim, AgentEnding, Evidence, Fact, GateVerdict};
use mainstem_core::id::{Oid, TaskId, TaskIx};
use mainstem_core::machine::{Input, MachineCommand};
use mainstem_core::phase::Phase;
use mainstem_core::plan::Task;
use mainstem_core::train::batches::{BatchMerge, BatchPurpose, CandidateMerge, ReusedResolution};

use crate::cover::evidence;
use crate::drive::Sim;
use crate::lab::Lab;
use crate::setup::{plan, settings, task};

impl Sim<'_> {
    /// Somebody looked which work would clash, and may be wrong.
    pub fn look_ahead(&mut self) {
        let active: Vec<TaskIx> = self.live.tasks().active_tasks().collect();
        let pieces: Vec<UnlandedWork> = active.iter().map(|t| self.seen(*t)).collect();
        let mut pairs = Vec::new();
        for (n, a) in pieces.iter().enumerate() {
            for b in &pieces[n + 1..] {
                if self.rng.in_thousand(300) {
                    pairs.push(pair(a.task.as_str(), b.task.as_str()));
                }
            }
        }
        let whole = self.rng.in_thousand(800);
        self.step(Input::ConflictsForecast(ConflictForecast {
            unlanded_work: pieces,
            pairs,
            complete: whole,
        }));
    }

    fn seen(&self, t: TaskIx) -> UnlandedWork {
        let attempt = self.live.tasks().get(t).attempts;
        let task = self.live.plan().tasks[t.index()].id.clone();
        let tip = self.live.train().candidate_of(t).map(|car| car.tip.clone());
        let paths = self.live.plan().tasks[t.index()].writes.clone();
        UnlandedWork { task, attempt, commit: tip.unwrap_or_else(|| "half".into()), paths }
    }
}

fn resolving() -> Settings {
    let mut s = settings();
    s.land.on_conflict = ConflictAction::Agent;
    s.run.retries = 1;
    s
}

fn clash(lab: &mut Lab, id: &str) -> Vec<Effect> {
    let places = vec![lab.machine.train().candidate_of(lab.ix(id)).unwrap().queue_number];
    let (purpose, onto, files) = (BatchPurpose::Landing, "c0".into(), vec!["f".to_owned()]);
    lab.put(Input::BatchConflicted { purpose, places, at: 0, onto, files, with_main: true })
}

/// The earlier work that the workspaces that are asked for start from.
fn continued(effects: &[Effect]) -> Vec<Option<Oid>> {
    let of = |effect: &Effect| match effect {
        Effect::PrepareWorkspace { continues, .. } => {
            Some(continues.as_ref().map(|wish| wish.work.commit.clone()))
        }
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

/// What is laid out in the workspaces that are asked for.
fn laid_out(effects: &[Effect]) -> Vec<Option<Oid>> {
    let merge = |effect: &Effect| match effect {
        Effect::PrepareWorkspace { merge, .. } => Some(merge.clone()),
        _ => None,
    };
    effects.iter().filter_map(merge).collect()
}

#[test]
fn the_next_attempt_starts_from_the_merge_until_the_task_lands() {
    let mut lab = Lab::new(&resolving(), plan(vec![task("A", &[])]));
    assert_eq!(laid_out(&lab.effects), [None]);
    lab.enqueue("A");
    let tip = evidence().tip;
    assert_eq!(laid_out(&clash(&mut lab, "A")), [Some(tip.clone())]);
    lab.effects.clear();
    lab.crash();
    assert_eq!(laid_out(&lab.effects), [Some(tip.clone())], "a new life asks for the same");
    lab.work("A");
    // It fails on the merits: what it made of the merge so far is what the next one starts from.
    lab.end("A", AgentEnding::Exited { code: 1 });
    let (t, attempt) = (lab.ix("A"), lab.attempt("A"));
    let half = Evidence { tip: "half".into(), ..evidence() };
    let again = lab.put(Input::EvidenceCollected { task: t, attempt, evidence: Ok(half) });
    assert_eq!(laid_out(&again), [None]);
    assert_eq!(continued(&again), [Some(Oid::new("half"))]);
    lab.enqueue("A");
    lab.land("A");
    assert!(lab.machine.tasks().get(t).conflict.is_none());
}

#[test]
fn however_a_resolver_gives_up_a_person_decides() {
    let mut lab = Lab::new(&resolving(), plan(vec![task("A", &[])]));
    lab.enqueue("A");
    clash(&mut lab, "A");
    lab.work("A");
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    let claim = AgentClaim::Blocked { reason: "both cannot hold".to_owned() };
    lab.put(Input::AgentEnded { task, attempt, ending: AgentEnding::Exited { code: 0 }, claim });
    lab.collect("A");
    assert_eq!(lab.phase("A"), Phase::Conflicted);
    let reason = &lab.machine.tasks().get(task).reason;
    assert!(reason.contains("conflicts in f") && reason.contains("both cannot hold"), "{reason}");
    // Asked to try again, it goes on from the work that is there.
    lab.effects.clear();
    lab.command(MachineCommand::retry_task("A".to_owned())).unwrap();
    lab.removed("A");
    assert_eq!(continued(&lab.effects), [Some(evidence().tip)]);
}

#[test]
fn a_resolver_that_left_nothing_gets_the_same_merge_again() {
    let mut lab = Lab::new(&resolving(), plan(vec![task("A", &[])]));
    lab.enqueue("A");
    clash(&mut lab, "A");
    lab.work("A");
    lab.end("A", AgentEnding::Exited { code: 1 });
    let (t, attempt) = (lab.ix("A"), lab.attempt("A"));
    let nothing = Evidence { tip: evidence().base, files: 0, ..evidence() };
    let again = lab.put(Input::EvidenceCollected { task: t, attempt, evidence: Ok(nothing) });
    assert_eq!(laid_out(&again), [Some(evidence().tip)]);
}

#[test]
fn conflicts_again_and_again_come_to_an_end() {
    let mut lab = Lab::new(&resolving(), plan(vec![task("A", &[])]));
    for _ in 0..3 {
        lab.enqueue("A");
        clash(&mut lab, "A");
    }
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Conflicted, 3));
}

#[test]
fn another_agent_resolves_where_one_is_named_and_needs_its_own_slot() {
    let mut s = resolving();
    s.land.resolver = Some("mender".to_owned());
    s.agents.insert(
        "mender".to_owned(),
        AgentSettings { kind: "command".to_owned(), ..AgentSettings::default() },
    );
    s.limits.per_agent.insert("mender".to_owned(), 1);
    let mut lab = Lab::new(&s, plan(vec![task("A", &[]), task("B", &[])]));
    lab.enqueue("A");
    lab.enqueue("B");
    clash(&mut lab, "A");
    clash(&mut lab, "B");
    let agents: Vec<&str> = lab
        .facts
        .iter()
        .filter_map(|(_, fact)| match fact {
            Fact::AttemptIntended { agent, attempt: 2, .. } => Some(agent.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(agents, ["mender"], "one at a time");
    assert_eq!(lab.phase("B"), Phase::Ready);
    assert!(lab.machine.is_resolved_by_another(lab.ix("A")));
}

#[test]
fn a_conflict_resolved_as_before_that_turns_out_red_is_a_conflict() {
    let mut lab = Lab::new(&resolving(), plan(vec![task("A", &[])]));
    lab.enqueue("A");
    let place = lab.machine.train().candidate_of(lab.ix("A")).unwrap().queue_number;
    let (onto, commit, tree) = (Oid::new("c0"), Oid::new("m-A"), Oid::new("t"));
    let reused = vec![ReusedResolution { resolution: "Z/1".to_owned(), path: "f".to_owned() }];
    let steps = vec![CandidateMerge {
        onto: onto.clone(),
        commit: commit.clone(),
        tree: tree.clone(),
        reused,
    }];
    let formed = BatchMerge { onto, candidate_merges: steps, tip: commit.clone(), commit, tree };
    let (purpose, places) = (BatchPurpose::Landing, vec![place]);
    lab.put(Input::BatchMerged { purpose, places, formed, base_tree: "b".into() });
    lab.effects.clear();
    lab.verify("A", GateVerdict::Failed);
    let conflicted = lab.facts.iter().any(
        |(_, fact)| matches!(fact, Fact::CarConflicted { files, .. } if *files == ["f".to_owned()]),
    );
    assert!(conflicted, "{:?}", lab.facts);
    assert_eq!(lab.phase("A"), Phase::Preparing);
    assert_eq!(
        lab.machine.conflict_in_workspace(lab.ix("A")).map(|clash| clash.tip.clone()),
        Some(evidence().tip)
    );
}

fn piece(task: &str, commit: &Oid, path: &str) -> UnlandedWork {
    let (task, commit) = (TaskId::new(task), commit.clone());
    UnlandedWork { task, attempt: 1, commit, paths: vec![path.to_owned()] }
}

fn pair(a: &str, b: &str) -> ConflictPair {
    ConflictPair { a: TaskId::new(a), b: Some(TaskId::new(b)), paths: vec!["f".to_owned()] }
}

/// The cars of the lines that are to be merged.
fn lines(lab: &Lab, effects: &[Effect]) -> Vec<Vec<String>> {
    let cars = |effect: &Effect| match effect {
        Effect::MergeBatch { candidates: seats, .. } => {
            Some(seats.iter().map(|seat| lab.machine.graph().id(seat.task).to_string()).collect())
        }
        _ => None,
    };
    effects.iter().filter_map(cars).collect()
}

#[test]
fn work_that_is_known_to_clash_is_not_merged_onto_what_it_clashes_with() {
    let mut s = settings();
    s.land.lanes = 3;
    let tip = evidence().tip;
    let all = || plan(vec![task("A", &[]), task("B", &[]), task("C", &[])]);
    let line_of = |pairs: Vec<ConflictPair>| {
        let mut lab = Lab::new(&s, all());
        let pieces = ["A", "B", "C"].map(|id| piece(id, &tip, "f")).to_vec();
        lab.put(Input::ConflictsForecast(ConflictForecast {
            unlanded_work: pieces,
            pairs,
            complete: true,
        }));
        for id in ["A", "B", "C"] {
            lab.work(id);
            lab.end(id, AgentEnding::Exited { code: 0 });
        }
        lab.effects.clear();
        for id in ["A", "B", "C"] {
            lab.collect(id);
        }
        let effects = lab.effects.clone();
        lines(&lab, &effects)
    };
    let first = |lines: &[Vec<String>]| lines.first().cloned().unwrap_or_default();
    assert_eq!(first(&line_of(Vec::new())), ["A"]);
    let lines = line_of(vec![pair("A", "B")]);
    let both = |line: &Vec<String>| line.iter().any(|c| c == "A") && line.iter().any(|c| c == "B");
    assert!(!lines.iter().any(both), "{lines:?}");
}

#[test]
fn what_others_have_changed_is_started_last_among_equals() {
    let mut s = settings();
    s.run.jobs = 2;
    s.run.retries = 0;
    let writer = |id: &str, glob: &str| Task { writes: vec![glob.to_owned()], ..task(id, &[]) };
    let tasks = vec![
        task("busy", &[]),
        task("first", &[]),
        writer("same", "src/*"),
        writer("other", "docs/*"),
    ];
    let mut lab = Lab::new(&s, plan(tasks));
    assert_eq!(lab.started(), ["busy", "first"]);
    let seen = vec![piece("busy", &"c1".into(), "src/a.rs")];
    lab.put(Input::ConflictsForecast(ConflictForecast {
        unlanded_work: seen,
        ..ConflictForecast::default()
    }));
    lab.fail_for_good("first");
    assert_eq!(lab.started(), ["busy", "first", "other"], "docs/* is nobody's");
    lab.fail_for_good("other");
    assert_eq!(lab.started(), ["busy", "first", "other", "same"], "it is put off, not held");
}
