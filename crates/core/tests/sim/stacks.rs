//! Stacks of pull requests on the machine alone: stories, and random walks with a forge that knows only
//! what was pushed and merged.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::config::{LandMode, PullRequestSettings, Settings};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentClaim, AgentEnding, Evidence, Fact, GateVerdict};
use mainstem_core::id::Oid;
use mainstem_core::machine::{Input, MachineCommand, RestReason};
use mainstem_core::phase::Phase;
use mainstem_core::pull_request::{
    ForgeAction, ForgeActionResult, ObservedPullReview, ObservedPullState, PullRequestMergeability,
    PullRequestObservation,
};

use crate::cover::evidence;
use crate::drive::verdict;
use crate::lab::Lab;
use crate::rng::Rng;
use crate::setup::{plan, settings, task};

fn stacked() -> Settings {
    let mut s = settings();
    s.gates.verify.clear();
    s.land.mode = LandMode::Pr;
    s.land.pulls = PullRequestSettings {
        auto_merge: true,
        stacked: true,
        poll_ms: 1_000,
        ..PullRequestSettings::default()
    };
    s
}

fn lab(edges: &[(&str, &[&str])]) -> Lab {
    Lab::new(&stacked(), plan(edges.iter().map(|(id, needs)| task(id, needs)).collect()))
}

fn tip(lab: &Lab, id: &str) -> Oid {
    Oid::new(format!("{id}-{}", lab.attempt(id)))
}

/// From `preparing` to an offer of a commit of its own.
fn offer(lab: &mut Lab, id: &str) {
    lab.work(id);
    lab.end(id, AgentEnding::Exited { code: 0 });
    let (task, attempt) = (lab.ix(id), lab.attempt(id));
    let left = Evidence { tip: tip(lab, id), ..evidence() };
    lab.put(Input::EvidenceCollected { task, attempt, evidence: Ok(left) });
}

fn tell(lab: &mut Lab, id: &str, news: ForgeActionResult) -> Vec<Effect> {
    let (task, attempt) = (lab.ix(id), lab.attempt(id));
    lab.put(Input::forge_action_done(task, attempt, news))
}

fn number(lab: &Lab, id: &str) -> u64 {
    u64::from(lab.ix(id).0) + 1
}

fn open(lab: &mut Lab, id: &str) {
    offer(lab, id);
    let (number, tip) = (number(lab, id), tip(lab, id));
    tell(lab, id, ForgeActionResult::Opened { number, url: String::new(), created: true, tip });
}

fn sight(lab: &Lab, id: &str) -> PullRequestObservation {
    let head = lab.machine.pull_request(lab.ix(id)).unwrap().head.clone().unwrap();
    PullRequestObservation {
        number: number(lab, id),
        state: ObservedPullState::Open,
        head,
        ours: true,
        draft: false,
        mergeable: PullRequestMergeability::Yes,
        conflict: None,
        checks: Vec::new(),
        reviews: Vec::new(),
    }
}

fn look(lab: &mut Lab, id: &str) -> Vec<Effect> {
    let seen = sight(lab, id);
    tell(lab, id, ForgeActionResult::Looked(seen))
}

fn land(lab: &mut Lab, id: &str) -> Vec<Effect> {
    let merge = look(lab, id);
    assert!(matches!(deeds(&merge)[..], [ForgeAction::Merge { .. }]), "{merge:?}");
    let done = tell(
        lab,
        id,
        ForgeActionResult::Merged { commit: Oid::new(format!("m-{id}")), old: "o".into() },
    );
    assert_eq!(lab.phase(id), Phase::Landed);
    done
}

fn deeds(effects: &[Effect]) -> Vec<ForgeAction> {
    let deed = |effect: &Effect| match effect {
        Effect::RunForgeAction { action: deed, .. } => Some(deed.clone()),
        _ => None,
    };
    effects.iter().filter_map(deed).collect()
}

fn starts_at(effects: &[Effect], lab: &Lab, id: &str) -> (Option<Oid>, Vec<Oid>) {
    let found = effects.iter().rev().find_map(|effect| match effect {
        Effect::PrepareWorkspace { task, from, must_contain, .. } if *task == lab.ix(id) => {
            Some((from.clone(), must_contain.clone()))
        }
        _ => None,
    });
    found.unwrap()
}

fn reason(lab: &Lab, id: &str) -> String {
    lab.machine.task_view(lab.ix(id)).reason
}

#[test]
fn a_task_begins_on_the_open_pull_request_of_what_it_needs_and_goes_into_its_branch() {
    let mut lab = lab(&[("A", &[]), ("B", &["A"]), ("C", &["B"])]);
    offer(&mut lab, "A");
    assert_eq!(lab.phase("B"), Phase::Waiting, "nothing stands yet");
    let (a, tip_a) = (number(&lab, "A"), tip(&lab, "A"));
    tell(
        &mut lab,
        "A",
        ForgeActionResult::Opened {
            number: a,
            url: String::new(),
            created: true,
            tip: tip_a.clone(),
        },
    );
    assert_eq!(starts_at(&lab.effects, &lab, "B"), (Some(tip_a.clone()), Vec::new()));
    lab.crash();
    assert_eq!(starts_at(&lab.effects, &lab, "B"), (Some(tip_a), Vec::new()), "a new life too");
    offer(&mut lab, "B");
    let Some(ForgeAction::Open { onto: Some(onto), .. }) = deeds(&lab.effects).pop() else {
        panic!()
    };
    assert_eq!((onto.number, onto.branch.as_str()), (Some(1), "mainstem/A"));
    let (b, tip_b) = (number(&lab, "B"), tip(&lab, "B"));
    tell(
        &mut lab,
        "B",
        ForgeActionResult::Opened {
            number: b,
            url: String::new(),
            created: true,
            tip: tip_b.clone(),
        },
    );
    assert_eq!(starts_at(&lab.effects, &lab, "C").0, Some(tip_b), "any height");
    assert_eq!(lab.machine.stacked_on(lab.ix("C")).unwrap().as_str(), "B");
}

#[test]
fn an_upper_one_is_never_merged_before_the_lower_one_and_then_goes_to_the_target_branch() {
    let mut lab = lab(&[("A", &[]), ("B", &["A"])]);
    open(&mut lab, "A");
    open(&mut lab, "B");
    assert_eq!(deeds(&look(&mut lab, "B")), []);
    let waits = lab.machine.pull_request(lab.ix("B")).unwrap().waits_for.clone();
    assert_eq!(waits, "pull request #1 of A, which is below in the stack");
    let seen = PullRequestObservation {
        mergeable: PullRequestMergeability::Conflict,
        conflict: Some(("c".into(), vec![])),
        ..sight(&lab, "B")
    };
    assert_eq!(deeds(&tell(&mut lab, "B", ForgeActionResult::Looked(seen))), []);
    assert_eq!(lab.phase("B"), Phase::Merging, "what it clashes with is still to change");
    let asked = deeds(&land(&mut lab, "A"));
    let below = tip(&lab, "A");
    assert!(
        matches!(&asked[..], [ForgeAction::Restack { number: 2, below: b, .. }] if *b == below),
        "{asked:?}"
    );
    let before = lab.effects.len();
    lab.crash();
    assert!(
        deeds(&lab.effects[before..])
            .iter()
            .any(|deed| matches!(deed, ForgeAction::Restack { .. }))
    );
    let head = tip(&lab, "B");
    let asked = deeds(&tell(
        &mut lab,
        "B",
        ForgeActionResult::Restacked { head: head.clone(), tip: "r".into() },
    ));
    let [ForgeAction::Open { push, onto: None, .. }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((push.tip.as_str(), push.lease.as_ref()), ("r", Some(&head)));
    let (task, attempt) = (lab.ix("B"), lab.attempt("B"));
    lab.ignored(Input::forge_action_done(
        task,
        attempt,
        ForgeActionResult::Restacked { head, tip: "r".into() },
    ));
    tell(
        &mut lab,
        "B",
        ForgeActionResult::Opened {
            number: 2,
            url: String::new(),
            created: false,
            tip: "r".into(),
        },
    );
    land(&mut lab, "B");
    for id in ["A", "B"] {
        lab.removed(id);
    }
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::Done));
}

#[test]
fn what_is_not_all_in_one_pull_request_is_waited_for() {
    let mut two = lab(&[("A", &[]), ("B", &[]), ("C", &["A", "B"])]);
    open(&mut two, "A");
    open(&mut two, "B");
    assert_eq!(two.phase("C"), Phase::Waiting, "two that know nothing of each other");
    land(&mut two, "A");
    assert_eq!(two.phase("C"), Phase::Waiting, "B began before A had landed");
    land(&mut two, "B");
    assert_eq!(two.phase("C"), Phase::Preparing);
    assert_eq!(starts_at(&two.effects, &two, "C").1.len(), 2);

    let mut one = lab(&[("A", &[]), ("B", &["A"]), ("C", &["A", "B"])]);
    open(&mut one, "A");
    open(&mut one, "B");
    assert_eq!(one.phase("C"), Phase::Preparing, "B has all of A");

    let mut later = lab(&[("A", &[]), ("B", &["A"]), ("C", &["A", "B"])]);
    offer(&mut later, "A");
    later.command(MachineCommand::Pause).unwrap();
    open_now(&mut later, "A");
    land(&mut later, "A");
    later.command(MachineCommand::Resume).unwrap();
    open(&mut later, "B");
    let (from, must) = starts_at(&later.effects, &later, "C");
    assert_eq!((from, must), (Some(tip(&later, "B")), vec![Oid::new("m-A")]));

    let mut off = stacked();
    off.land.pulls.stacked = false;
    let mut lab = Lab::new(&off, plan(vec![task("A", &[]), task("B", &["A"])]));
    open(&mut lab, "A");
    assert_eq!(lab.phase("B"), Phase::Waiting, "nobody asked for it");
}

fn open_now(lab: &mut Lab, id: &str) {
    let (number, tip) = (number(lab, id), tip(lab, id));
    tell(lab, id, ForgeActionResult::Opened { number, url: String::new(), created: true, tip });
}

#[test]
fn commits_that_replaced_ours_are_nothing_to_build_on() {
    let mut lab = lab(&[("A", &[]), ("B", &["A"])]);
    offer(&mut lab, "A");
    lab.command(MachineCommand::Pause).unwrap();
    open_now(&mut lab, "A");
    assert_eq!(lab.phase("B"), Phase::Ready);
    let seen = PullRequestObservation { head: "x".into(), ours: false, ..sight(&lab, "A") };
    tell(&mut lab, "A", ForgeActionResult::Looked(seen));
    assert_eq!(lab.phase("B"), Phase::Waiting);
    let seen = PullRequestObservation { head: "y".into(), draft: true, ..sight(&lab, "A") };
    lab.now = lab.machine.wake_at().unwrap();
    lab.put(Input::Tick);
    tell(&mut lab, "A", ForgeActionResult::Looked(seen));
    lab.command(MachineCommand::Resume).unwrap();
    assert_eq!(starts_at(&lab.effects, &lab, "B").0, Some("y".into()), "added ones are");
}

#[test]
fn rework_stays_on_the_lower_one_whatever_that_does_meanwhile() {
    let mut lab = lab(&[("A", &[]), ("B", &["A"])]);
    open(&mut lab, "A");
    open(&mut lab, "B");
    let below = tip(&lab, "A");
    let no = |id| ObservedPullReview {
        id,
        who: "bob".to_owned(),
        verdict: Some(false),
        text: "no".to_owned(),
    };
    for id in ["A", "B"] {
        let seen = PullRequestObservation { reviews: vec![no(3)], ..sight(&lab, id) };
        tell(&mut lab, id, ForgeActionResult::Looked(seen));
        assert_eq!(lab.phase(id), Phase::Preparing, "{id}");
    }
    assert_eq!(starts_at(&lab.effects, &lab, "B").0, Some("B-1".into()), "from its own head");
    open(&mut lab, "A");
    land(&mut lab, "A");
    lab.crash();
    assert_eq!(starts_at(&lab.effects, &lab, "B"), (Some("B-1".into()), Vec::new()));
    offer(&mut lab, "B");
    let Some(ForgeAction::Open { onto: None, .. }) = deeds(&lab.effects).pop() else { panic!() };
    open_now(&mut lab, "B");
    let Some(ForgeAction::Restack { below: found, .. }) = deeds(&lab.effects).pop() else {
        panic!()
    };
    assert_eq!(found, below, "what its work contains, not what landed");
}

#[test]
fn a_stack_whose_lowest_is_given_up_waits_for_people_and_begins_anew() {
    let mut lab = lab(&[("A", &[]), ("B", &["A"]), ("C", &["B"]), ("D", &["C"])]);
    open(&mut lab, "A");
    open(&mut lab, "B");
    open(&mut lab, "C");
    lab.work("D");
    let seen = PullRequestObservation { state: ObservedPullState::Closed, ..sight(&lab, "A") };
    tell(&mut lab, "A", ForgeActionResult::Looked(seen));
    for id in ["A", "B", "C"] {
        assert_eq!(lab.phase(id), Phase::Blocked, "{id}");
    }
    assert_eq!(
        reason(&lab, "B"),
        "A, which is below in the stack, is blocked: mainstem retry A, then mainstem retry B"
    );
    assert_eq!(lab.phase("D"), Phase::Working, "it ends by itself");
    lab.end("D", AgentEnding::Exited { code: 0 });
    let (task, attempt) = (lab.ix("D"), lab.attempt("D"));
    let left = Evidence { tip: tip(&lab, "D"), ..evidence() };
    lab.put(Input::EvidenceCollected { task, attempt, evidence: Ok(left) });
    assert_eq!(lab.phase("D"), Phase::Blocked);
    lab.crash();
    for id in ["A", "B"] {
        lab.removed(id);
        lab.command(MachineCommand::retry_task(id.to_owned())).unwrap();
    }
    assert_eq!(lab.phase("B"), Phase::Waiting);
    open(&mut lab, "A");
    assert_eq!(starts_at(&lab.effects, &lab, "B").0, Some("A-2".into()));
}

#[test]
fn who_conflicts_without_the_lower_one_is_done_again_on_the_target_branch() {
    let mut lab = lab(&[("A", &[]), ("B", &["A"])]);
    open(&mut lab, "A");
    open(&mut lab, "B");
    land(&mut lab, "A");
    let (head, files) = (tip(&lab, "B"), vec!["x".to_owned()]);
    let asked =
        tell(&mut lab, "B", ForgeActionResult::RestackClashed { head, onto: "m-A".into(), files });
    assert_eq!(starts_at(&asked, &lab, "B"), (None, vec!["m-A".into()]));
    assert_eq!(lab.machine.lower_pull_request(lab.ix("B")), None);
}

#[test]
fn work_that_adds_nothing_is_done_when_what_it_builds_on_has_landed() {
    let mut lab = lab(&[("A", &[]), ("B", &["A"])]);
    open(&mut lab, "A");
    lab.work("B");
    let (task, attempt, ending) = (lab.ix("B"), lab.attempt("B"), AgentEnding::Exited { code: 0 });
    let claim = AgentClaim::NothingToDo { reason: "it is there".to_owned() };
    lab.put(Input::AgentEnded { task, attempt, ending, claim });
    let left = Evidence { base: "A-1".into(), tip: "A-1".into(), files: 0, ..evidence() };
    lab.put(Input::EvidenceCollected { task, attempt, evidence: Ok(left) });
    assert_eq!(lab.phase("B"), Phase::Merging, "it holds only if A lands");
    assert!(
        !deeds(&lab.effects)
            .iter()
            .any(|deed| matches!(deed, ForgeAction::Open { onto: Some(_), .. }))
    );
    land(&mut lab, "A");
    assert_eq!(lab.phase("B"), Phase::Landed);
}

#[test]
fn what_passed_the_same_gates_is_not_suspected_again() {
    let mut s = stacked();
    s.gates.verify = vec!["test".to_owned()];
    let mut lab = Lab::new(&s, plan(vec![task("A", &[]), task("B", &["A"])]));
    offer(&mut lab, "A");
    let gates = |of| vec![verdict("test", of)];
    let (a, tree) = (lab.ix("A"), Oid::new("w"));
    lab.put(Input::GatesRan {
        task: a,
        attempt: 1,
        tree: tree.clone(),
        gates: gates(GateVerdict::Passed),
    });
    open_now(&mut lab, "A");
    let b = lab.ix("B");
    lab.put(Input::WorkspaceReady {
        task: b,
        attempt: 1,
        workspace: "w".to_owned(),
        base: "A-1".into(),
        continued: None,
    });
    lab.put(Input::AgentStarted { task: b, attempt: 1, pid: 7 });
    lab.end("B", AgentEnding::Exited { code: 0 });
    let left = Evidence { base: "A-1".into(), tip: "B-1".into(), ..evidence() };
    lab.put(Input::EvidenceCollected { task: b, attempt: 1, evidence: Ok(left) });
    let asked =
        lab.put(Input::GatesRan { task: b, attempt: 1, tree, gates: gates(GateVerdict::Failed) });
    assert!(!asked.iter().any(|effect| matches!(effect, Effect::MergeBatch { .. })), "{asked:?}");
    assert_eq!(lab.attempt("B"), 2, "its own fault");
}

/// What the forge of a random walk knows: commits as sets of work, branches, and what was merged.
#[derive(Default)]
struct Model {
    /// What each commit contains.
    has: BTreeMap<Oid, BTreeSet<String>>,
    main: Vec<Oid>,
    made: u32,
    /// Nothing goes wrong any more.
    calm: bool,
}

impl Model {
    fn commit(&mut self, of: &str, has: BTreeSet<String>) -> Oid {
        self.made += 1;
        let id = Oid::new(format!("{of}#{}", self.made));
        self.has.insert(id.clone(), has);
        id
    }
    fn main(&self) -> BTreeSet<String> {
        self.main.last().and_then(|tip| self.has.get(tip)).cloned().unwrap_or_default()
    }
}

/// Takes one effect to its end, or to one of its ends.
fn perform(lab: &mut Lab, model: &mut Model, rng: &mut Rng, effect: &Effect) {
    let (t, attempt) = effect.attempt_key();
    let id = lab.machine.graph().id(t).as_str().to_owned();
    let input = match effect {
        Effect::PrepareWorkspace { from, must_contain, .. } => {
            let base = match from {
                Some(from) => from.clone(),
                None => model.commit("main", model.main()),
            };
            for need in must_contain {
                let of = need.as_str().split('#').next().unwrap().to_owned();
                assert!(model.has[&base].contains(&of), "{id} begins without {of}");
            }
            let needs = lab.machine.graph().needs(t);
            for need in needs.map(|p| lab.machine.graph().id(p).as_str().to_owned()) {
                let gone = lab.phase(&need) != Phase::Landed && from.is_none();
                assert!(gone || model.has[&base].contains(&need), "{id} begins without {need}");
            }
            let (workspace, continued) = ("w".to_owned(), None);
            Input::WorkspaceReady { task: t, attempt, workspace, base, continued }
        }
        Effect::RunAgent { .. } => {
            lab.put(Input::AgentStarted { task: t, attempt, pid: 1 });
            let code = i32::from(!model.calm && rng.in_thousand(100));
            let claim = AgentClaim::None;
            Input::AgentEnded { task: t, attempt, ending: AgentEnding::Exited { code }, claim }
        }
        Effect::StopAgent { .. } => {
            let ending = AgentEnding::Exited { code: 1 };
            Input::AgentEnded { task: t, attempt, ending, claim: AgentClaim::None }
        }
        Effect::StopJobs { .. } => {
            Input::WorkspaceFailed { task: t, attempt, reason: "stopped".to_owned() }
        }
        Effect::CollectEvidence { base: None, .. } => {
            Input::EvidenceCollected { task: t, attempt, evidence: Ok(evidence()) }
        }
        Effect::CollectEvidence { base: Some(base), .. } => {
            let base = base.clone();
            let mut has = model.has[&base].clone();
            has.insert(id.clone());
            let tip = model.commit(&id, has);
            let left = Evidence { base, tip, ..evidence() };
            Input::EvidenceCollected { task: t, attempt, evidence: Ok(left) }
        }
        Effect::RemoveWorkspace { .. } => {
            Input::WorkspaceRemoved { task: t, attempt, workspace: Ok("w".to_owned()) }
        }
        Effect::RunForgeAction { action: deed, .. } => match news(lab, model, rng, (&id, deed)) {
            Some(news) => Input::forge_action_done(t, attempt, news),
            None => return,
        },
        _ => return,
    };
    lab.put(input);
}

fn news(
    lab: &Lab,
    model: &mut Model,
    rng: &mut Rng,
    (id, deed): (&str, &ForgeAction),
) -> Option<ForgeActionResult> {
    if !model.calm && rng.in_thousand(60) {
        return Some(ForgeActionResult::Failed {
            reason: "away".to_owned(),
            after_ms: None,
            refused: false,
        });
    }
    Some(match deed {
        ForgeAction::Open { push, .. } => ForgeActionResult::Opened {
            number: number(lab, id),
            url: String::new(),
            created: true,
            tip: push.tip.clone(),
        },
        ForgeAction::Look { .. } | ForgeAction::Update { .. } => {
            let mut seen = sight(lab, id);
            if model.calm {
                return Some(ForgeActionResult::Looked(seen));
            }
            if rng.in_thousand(30) {
                seen.state = ObservedPullState::Closed;
            } else if rng.in_thousand(120) {
                let id = u64::from(model.made) + 10;
                let (who, text) = ("bob".to_owned(), "no".to_owned());
                seen.reviews = vec![ObservedPullReview { id, who, verdict: Some(false), text }];
            } else if rng.in_thousand(60) {
                seen.mergeable = PullRequestMergeability::Conflict;
                seen.conflict = Some(("c".into(), vec!["x".to_owned()]));
            } else if rng.in_thousand(250) {
                seen.draft = true;
            }
            ForgeActionResult::Looked(seen)
        }
        ForgeAction::Restack { below, .. } => {
            let head = lab.machine.pull_request(lab.ix(id)).unwrap().head.clone().unwrap();
            let contains = |of: &Oid| model.has[of].clone();
            assert!(contains(below).is_subset(&contains(&head)), "{id}: {below} in {head}");
            if !model.calm && rng.in_thousand(100) {
                let (onto, files) = ("c".into(), vec!["x".to_owned()]);
                return Some(ForgeActionResult::RestackClashed { head, onto, files });
            }
            let mut own: BTreeSet<String> =
                contains(&head).difference(&contains(below)).cloned().collect();
            own.extend(model.main());
            let tip = model.commit(id, own);
            ForgeActionResult::Restacked { head, tip }
        }
        ForgeAction::Merge { head, .. } => {
            let main = model.main();
            let brought: Vec<String> = model.has[head].difference(&main).cloned().collect();
            assert_eq!(brought, [id.to_owned()], "{id} brings its own work and nothing else");
            let mut has = main.clone();
            has.insert(id.to_owned());
            let commit = model.commit(id, has);
            let old = model.main.last().cloned().unwrap_or_else(|| "c0".into());
            model.main.push(commit.clone());
            ForgeActionResult::Merged { commit, old }
        }
    })
}

fn walk(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let names = ["A", "B", "C", "D", "E", "F"];
    let count = 2 + rng.below(5);
    let mut tasks = Vec::new();
    for at in 0..count {
        let needs: Vec<&str> =
            (0..at).filter(|_| rng.in_thousand(450)).map(|before| names[before]).collect();
        tasks.push(task(names[at], &needs));
    }
    let mut lab = Lab::new(&stacked(), plan(tasks));
    let mut model = Model::default();
    let mut todo: Vec<Effect> = lab.effects.clone();
    for step in 0..1_500 {
        let known = lab.effects.len();
        model.calm = step >= 500;
        if !model.calm && rng.in_thousand(30) {
            lab.crash();
            todo.clear();
        } else if !model.calm && rng.in_thousand(10) {
            let id = names[rng.below(count)].to_owned();
            let _ = lab.command(MachineCommand::Cancel(Some(id)));
        } else if !model.calm && rng.in_thousand(40) {
            let id = names[rng.below(count)].to_owned();
            let _ = lab.command(MachineCommand::retry_task(id));
        } else if todo.is_empty() {
            for id in names[..count].iter().filter(|_| model.calm) {
                let _ = lab.command(MachineCommand::retry_task((*id).to_owned()));
            }
            if let Some(at) = lab.machine.wake_at() {
                lab.now = at;
                lab.put(Input::Tick);
            }
        } else {
            let at = rng.below(todo.len());
            let effect = todo.swap_remove(at);
            // What was asked of an attempt that is over, nobody does any more.
            let (t, attempt) = effect.attempt_key();
            if lab.machine.tasks().get(t).attempts == attempt {
                perform(&mut lab, &mut model, &mut rng, &effect);
            }
        }
        todo.extend(lab.effects[known..].iter().cloned());
    }
    check(&lab, seed);
    let open: Vec<&str> =
        names[..count].iter().copied().filter(|id| lab.phase(id) != Phase::Landed).collect();
    assert!(open.is_empty(), "seed {seed}: {open:?} did not come home");
    let is = |(_, fact): &&(_, Fact)| matches!(fact, Fact::PullStacked(s) if s.on.is_some());
    lab.facts.iter().filter(is).count()
}

/// Each landed once, and an upper one after all that it needs.
fn check(lab: &Lab, seed: u64) {
    let mut landed: Vec<&str> = Vec::new();
    for (_, fact) in &lab.facts {
        if let Fact::TaskLanded { task, .. } = fact {
            assert!(!landed.contains(&task.as_str()), "seed {seed}: {task} landed twice");
            for need in lab.machine.graph().needs(lab.ix(task.as_str())) {
                let need = lab.machine.graph().id(need).as_str();
                assert!(landed.contains(&need), "seed {seed}: {task} landed before {need}");
            }
            landed.push(task.as_str());
        }
    }
    let mut fold = mainstem_core::machine::Machine::new(lab.machine.settings().clone());
    for (at, fact) in &lab.facts {
        fold.apply(fact, *at).unwrap();
    }
    for t in lab.machine.tasks().all_tasks() {
        assert_eq!(fold.tasks().phase(t), lab.machine.tasks().phase(t), "seed {seed}");
        assert_eq!(fold.pull_request(t), lab.machine.pull_request(t), "seed {seed}");
    }
    // Whoever has turned it off meanwhile can still read what happened.
    let mut off = lab.machine.settings().clone();
    off.land.pulls.stacked = false;
    let mut fold = mainstem_core::machine::Machine::new(off);
    for (at, fact) in &lab.facts {
        fold.apply(fact, *at).unwrap();
    }
}

#[test]
fn random_stacks_land_in_order_once_each_and_bring_only_their_own_work() {
    let seeds = crate::number("SIM_SEEDS").unwrap_or(400);
    let stacked: usize = (0..seeds).map(walk).sum();
    assert!(stacked as u64 > seeds, "stacks are rare: {stacked}");
}
