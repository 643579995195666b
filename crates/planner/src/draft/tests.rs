#![expect(clippy::unwrap_used, reason = "tests")]

use mainstem_core::config::layers::resolve_settings;
use mainstem_core::fact::Usage;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{EpicPart, TaskDraft};

const EXIT_0: AgentEnding = AgentEnding::Exited { code: 0 };

fn settings() -> Settings {
    resolve_settings(&[]).unwrap().settings
}

fn rules(jobs: u32, agents: &[&str]) -> DraftRules {
    let hand = |name: &&str| DraftAgent {
        agent: (*name).to_owned(),
        provider: format!("{name}-provider"),
        model: None,
        effort: None,
    };
    DraftRules {
        hands: agents.iter().map(hand).collect(),
        jobs,
        retries: RETRIES,
        single_pass: false,
        settings: settings(),
    }
}

fn epics(count: usize) -> EpicBreakdown {
    let epic = |n| EpicPart {
        id: format!("E-{n:03}"),
        title: format!("Epic {n}"),
        description: "Something".to_owned(),
        ..EpicPart::default()
    };
    EpicBreakdown { epics: (1..=count).map(epic).collect() }
}

fn tasks(epic: &str) -> EpicTasks {
    let task = TaskDraft {
        temp_id: format!("{}01", crate::schema::temp_prefix(epic)),
        title: format!("Do {epic}"),
        description: "It".to_owned(),
        acceptance_criteria: vec!["done".to_owned()],
        effort: "small".to_owned(),
        priority: "must-have".to_owned(),
        ..TaskDraft::default()
    };
    EpicTasks { epic_id: epic.to_owned(), tasks: vec![task] }
}

fn answer_for(part: &DraftPart, count: usize) -> DraftAnswer {
    match part {
        DraftPart::Shred => DraftAnswer { breakdown: Some(epics(count)), ..DraftAnswer::default() },
        DraftPart::Epic(id) => DraftAnswer { tasks: vec![tasks(id)], ..DraftAnswer::default() },
        DraftPart::Whole => DraftAnswer {
            breakdown: Some(epics(1)),
            tasks: vec![tasks("E-001")],
            ..DraftAnswer::default()
        },
    }
}

/// A draft, a clock, the calls under way and every fact so far.
struct Stage {
    draft: Draft,
    now: Time,
    calls: Vec<(DraftPart, u32)>,
    facts: Vec<(DraftFact, Time)>,
    stops: Vec<DraftEffect>,
    most: usize,
    count: usize,
}

impl Stage {
    /// With the epics known, or about to be asked for if there are none.
    fn new(rules: DraftRules, count: usize) -> Self {
        let draft = Draft::new(rules);
        let (calls, facts, stops) = (Vec::new(), Vec::new(), Vec::new());
        let mut stage = Self { draft, now: Time(1_000), calls, facts, stops, most: 0, count };
        stage.input(DraftInput::Begin(Vec::new()));
        stage
    }

    /// The same after the split.
    fn scattering(rules: DraftRules, count: usize) -> Self {
        let mut stage = Self::new(rules, count);
        stage.answer(&DraftPart::Shred);
        stage
    }

    fn input(&mut self, input: DraftInput) {
        let facts = self.draft.step(input, self.now);
        self.facts.extend(facts.into_iter().map(|fact| (fact, self.now)));
        for want in self.draft.outstanding_effects() {
            match want {
                DraftEffect::Call { part, call } => self.calls.push((part, call)),
                stop @ DraftEffect::Stop { .. } => self.stops.push(stop),
            }
        }
        self.most = self.most.max(self.calls.len());
    }

    fn end(
        &mut self,
        part: &DraftPart,
        ending: AgentEnding,
        claim: AgentClaim,
        answer: Result<DraftAnswer, Vec<AnswerProblem>>,
    ) {
        let at = self.calls.iter().position(|(calling, _)| calling == part).unwrap();
        let (part, call) = self.calls.remove(at);
        self.input(DraftInput::Ended { part, call, ending, claim, answer });
    }

    fn answer(&mut self, part: &DraftPart) {
        let answer = Ok(answer_for(part, self.count));
        self.end(part, EXIT_0, AgentClaim::None, answer);
    }

    fn refuse(&mut self, part: &DraftPart) {
        self.end(part, EXIT_0, AgentClaim::None, Err(vec![AnswerProblem::new("json", "is none")]));
    }

    fn limit(&mut self, part: &DraftPart, wait_ms: u64, mark: u64) {
        let call = self.calls.iter().find(|(calling, _)| calling == part).unwrap().1;
        let word = DraftAgentWord::RateLimited {
            wait_ms: Some(wait_ms),
            message: "429".to_owned(),
            retrying: false,
        };
        self.input(DraftInput::Said { part: part.clone(), call, mark, word });
        self.end(
            part,
            AgentEnding::Exited { code: 1 },
            AgentClaim::RateLimited {},
            Err(Vec::new()),
        );
    }

    /// Everything that is asked is answered, until it rests.
    fn answer_all(&mut self) -> DraftOutcome {
        loop {
            if let Some(rest) = self.draft.outcome() {
                return rest;
            }
            match self.calls.first().cloned() {
                Some((part, _)) => self.answer(&part),
                None => self.wake(),
            }
        }
    }

    fn wake(&mut self) {
        self.now = self.draft.wake_at().expect("something is waited for");
        self.input(DraftInput::Tick);
    }

    fn events(&self) -> Vec<String> {
        let event = |(fact, _): &(DraftFact, Time)| {
            let event = notification_for(fact)?;
            Some(format!("{} {}", event.kind, event.epic.unwrap_or_default()).trim().to_owned())
        };
        self.facts.iter().filter_map(event).collect()
    }

    fn failures(&self) -> Vec<String> {
        let failed = |(part, state): (&DraftPart, &DraftPartState)| {
            matches!(state.phase, DraftPartPhase::Failed(_)).then(|| part.to_string())
        };
        self.draft.parts().iter().filter_map(failed).collect()
    }
}

fn epic(n: usize) -> DraftPart {
    DraftPart::Epic(format!("E-{n:03}"))
}

// ---- the tests that the seed asked for ------------------------------------------------------

#[test]
fn times_count_every_call_and_wait_of_a_part_and_nothing_between_two_lives() {
    let mut stage = Stage::new(rules(1, &["a"]), 1);
    // Two answers that do not fit, then one that does: all three calls count.
    for _ in 0..2 {
        stage.now = stage.now.plus_ms(1_000);
        stage.end(
            &DraftPart::Shred,
            EXIT_0,
            AgentClaim::None,
            Err(vec![AnswerProblem::new("epics", "is empty")]),
        );
    }
    stage.now = stage.now.plus_ms(500);
    stage.answer(&DraftPart::Shred);
    assert_eq!(stage.draft.parts()[&DraftPart::Shred].worked_ms, 2_500);
    // An epic is interrupted, and goes on much later.
    let epic = DraftPart::Epic("E-001".to_owned());
    stage.now = stage.now.plus_ms(2_000);
    stage.input(DraftInput::Interrupt);
    stage.end(&epic, AgentEnding::Stopped {}, AgentClaim::None, Err(Vec::new()));
    let mut next = Draft::new(rules(1, &["a"]));
    for (fact, at) in &stage.facts {
        next.apply(fact, *at).unwrap();
    }
    stage.draft = next;
    stage.now = stage.now.plus_ms(86_400_000);
    stage.input(DraftInput::Begin(Vec::new()));
    assert_eq!(stage.draft.earlier_epochs_ms(), 4_500);
    stage.now = stage.now.plus_ms(300);
    stage.answer(&epic);
    assert_eq!(stage.draft.parts()[&epic].worked_ms, 2_300);
    assert_eq!(stage.draft.stage_ms("shred"), Some(2_500));
    assert_eq!(stage.draft.stage_ms("scatter"), Some(2_300));
}

#[test]
fn three_epics_with_concurrency_two_only_two_workers_run_simultaneously() {
    let mut stage = Stage::scattering(rules(2, &["a"]), 3);
    assert_eq!(stage.calls, [(epic(1), 1), (epic(2), 1)]);
    stage.answer(&epic(2));
    assert_eq!(stage.calls, [(epic(1), 1), (epic(3), 1)]);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
    assert_eq!(stage.most, 2);
}

#[test]
fn all_workers_succeed_on_first_attempt_three_results_no_failures() {
    let mut stage = Stage::scattering(rules(3, &["a"]), 3);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
    let ids: Vec<String> = stage.draft.answers().into_iter().map(|a| a.epic_id).collect();
    assert_eq!(ids, ["E-001", "E-002", "E-003"]);
    assert!(stage.failures().is_empty() && stage.draft.is_complete());
    assert!(stage.draft.parts().values().all(|part| part.calls == 1));
}

#[test]
fn one_worker_fails_validation_and_succeeds_on_retry() {
    let mut stage = Stage::scattering(rules(3, &["a"]), 3);
    stage.refuse(&epic(2));
    assert_eq!(stage.draft.parts()[&epic(2)].problems, [AnswerProblem::new("json", "is none")]);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
    assert_eq!(stage.draft.parts()[&epic(2)].calls, 2);
    assert_eq!(stage.draft.answers().len(), 3);
}

#[test]
fn one_worker_fails_all_retries_two_results_one_failure() {
    let mut stage = Stage::scattering(rules(3, &["a"]), 3);
    for _ in 0..4 {
        stage.refuse(&epic(2));
    }
    assert_eq!(stage.answer_all(), DraftOutcome::Partial);
    assert_eq!((stage.draft.answers().len(), stage.failures()), (2, vec!["E-002".to_owned()]));
    assert_eq!(stage.draft.parts()[&epic(2)].calls, 4, "one and three more");
    // The next life asks again, and only for this one.
    stage.input(DraftInput::Begin(Vec::new()));
    assert_eq!(stage.calls, [(epic(2), 5)]);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
}

#[test]
fn rate_limit_on_one_worker_pauses_all_workers_then_resume() {
    let mut stage = Stage::scattering(rules(2, &["a"]), 4);
    stage.limit(&epic(1), 30_000, 1);
    stage.answer(&epic(2));
    assert!(stage.calls.is_empty(), "the others wait, too: {:?}", stage.calls);
    assert_eq!(stage.draft.outcome(), None);
    let until = stage.draft.provider_wait(&epic(3)).unwrap().1.unwrap();
    assert!(until.0 >= stage.now.0 + 30_000, "{until:?}");
    stage.wake();
    assert_eq!(stage.now, until);
    assert_eq!(stage.calls.len(), 1, "one goes first");
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
    // The limit cost no try.
    assert_eq!(stage.draft.parts()[&epic(1)].calls, 2);
    assert_eq!(stage.draft.parts()[&epic(1)].spent, RetryCounts::default());
}

#[test]
fn all_workers_hit_the_rate_limit_at_once_and_it_is_one_wait() {
    let mut stage = Stage::scattering(rules(3, &["a"]), 3);
    for n in 1..=3 {
        stage.limit(&epic(n), 10_000, 1);
    }
    let known = &stage.draft.providers["a-provider"];
    assert_eq!(known.incidents(), 1);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
}

#[test]
fn cancelled_mid_scatter_partial_results_are_returned() {
    let mut stage = Stage::scattering(rules(2, &["a"]), 4);
    stage.answer(&epic(1));
    stage.input(DraftInput::Interrupt);
    assert_eq!(stage.stops.len(), 2, "{:?}", stage.stops);
    assert_eq!(stage.draft.outcome(), None, "those at work are waited for");
    stage.end(&epic(2), AgentEnding::Stopped {}, AgentClaim::None, Err(Vec::new()));
    // One that answers all the same has answered.
    stage.answer(&epic(3));
    assert_eq!(stage.draft.outcome(), Some(DraftOutcome::Interrupted));
    assert_eq!(stage.draft.answers().len(), 2);
    stage.input(DraftInput::Interrupt);
    // The next life goes on where this one stopped.
    let mut draft = Draft::new(rules(2, &["a"]));
    for (fact, at) in &stage.facts {
        draft.apply(fact, *at).unwrap();
    }
    let mut next = Stage { draft, calls: Vec::new(), ..stage };
    next.input(DraftInput::Begin(Vec::new()));
    assert_eq!(next.calls, [(epic(2), 2), (epic(4), 1)]);
    assert_eq!(next.answer_all(), DraftOutcome::Done);
}

#[test]
fn concurrency_of_one_workers_run_sequentially() {
    let mut stage = Stage::scattering(rules(1, &["a"]), 5);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
    assert_eq!(stage.most, 1);
    let want: Vec<String> = std::iter::once("shred_started".to_owned())
        .chain(["shred_completed".to_owned()])
        .chain((1..=5).flat_map(|n| {
            [format!("worker_started E-{n:03}"), format!("worker_completed E-{n:03}")]
        }))
        .collect();
    assert_eq!(stage.events(), want);
}

#[test]
fn an_empty_breakdown_gives_an_empty_result_without_error() {
    let mut stage = Stage::scattering(rules(3, &["a"]), 0);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
    assert!(stage.draft.answers().is_empty() && stage.calls.is_empty());
}

#[test]
fn mixed_agents_take_epics_in_turn_and_a_limit_rests_only_its_provider() {
    let mut stage = Stage::scattering(rules(4, &["a", "b"]), 4);
    let agents: Vec<&str> = (1..=4).map(|n| stage.draft.parts()[&epic(n)].agent.as_str()).collect();
    assert_eq!(agents, ["a", "b", "a", "b"]);
    stage.limit(&epic(1), 60_000, 1);
    stage.refuse(&epic(2));
    assert!(stage.calls.contains(&(epic(2), 2)), "b goes on: {:?}", stage.calls);
    assert!(!stage.calls.contains(&(epic(1), 2)), "a rests: {:?}", stage.calls);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
}

#[test]
fn a_worker_that_was_stopped_is_announced_as_nothing_else() {
    let mut stage = Stage::scattering(rules(1, &["a"]), 1);
    stage.input(DraftInput::Interrupt);
    let problems = vec![AnswerProblem::new("json", "there is no JSON")];
    stage.end(&epic(1), AgentEnding::Stopped {}, AgentClaim::None, Err(problems));
    assert_eq!(stage.draft.outcome(), Some(DraftOutcome::Interrupted));
    assert_eq!(stage.events().last().map(String::as_str), Some("worker_started E-001"));
    assert!(stage.draft.parts()[&epic(1)].problems.is_empty(), "its answer is not blamed");
}

#[test]
fn event_order_follows_the_life_of_each_worker() {
    let mut stage = Stage::scattering(rules(2, &["a"]), 2);
    stage.refuse(&epic(1));
    stage.limit(&epic(2), 1_000, 1);
    stage.answer_all();
    let of = |n: usize| {
        let name = format!("E-{n:03}");
        let mine = stage.events().into_iter().filter(move |event| event.ends_with(&name));
        mine.map(|event| event.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(1), ["worker_started", "worker_retry", "worker_started", "worker_completed"]);
    assert_eq!(of(2), ["worker_started", "rate_limited", "worker_started", "worker_completed"]);
}

// ---- our own --------------------------------------------------------------------------------

#[test]
fn a_refused_login_is_asked_once_and_fails_all_epics_of_that_agent_alone() {
    let mut stage = Stage::scattering(rules(1, &["a", "b"]), 4);
    let message = "no key".to_owned();
    let help = Some("a login".to_owned());
    let claim = AgentClaim::Failed { fault: AgentFault::Auth, message, help };
    stage.end(&epic(1), AgentEnding::Exited { code: 1 }, claim, Err(Vec::new()));
    assert_eq!(stage.answer_all(), DraftOutcome::Partial);
    assert_eq!(stage.failures(), ["E-001", "E-003"]);
    assert_eq!(stage.draft.parts()[&epic(3)].calls, 0);
    assert_eq!(stage.draft.parts()[&epic(3)].help.as_deref(), Some("a login"));
}

#[test]
fn a_split_that_fails_leaves_nothing_else_to_do() {
    let mut stage = Stage::new(rules(3, &["a"]), 3);
    for _ in 0..4 {
        stage.refuse(&DraftPart::Shred);
    }
    assert_eq!(stage.draft.outcome(), Some(DraftOutcome::Partial));
    assert_eq!(stage.failures(), ["shred"]);
    assert_eq!(stage.events().last().unwrap(), "shred_failed");
}

#[test]
fn one_pass_asks_once_for_all() {
    let mut stage = Stage::new(DraftRules { single_pass: true, ..rules(3, &["a"]) }, 1);
    assert_eq!(stage.calls, [(DraftPart::Whole, 1)]);
    assert_eq!(stage.answer_all(), DraftOutcome::Done);
    assert_eq!((stage.draft.answers().len(), stage.most), (1, 1));
}

#[test]
fn an_answer_counts_however_its_agent_ended() {
    let mut stage = Stage::scattering(rules(1, &["a"]), 1);
    let answer = Ok(answer_for(&epic(1), 1));
    stage.end(&epic(1), AgentEnding::Exited { code: 1 }, AgentClaim::RateLimited {}, answer);
    assert_eq!(stage.draft.outcome(), Some(DraftOutcome::Done));
}

#[test]
fn calls_lost_with_the_machine_cost_no_answer_but_not_for_ever() {
    let mut stage = Stage::scattering(rules(1, &["a"]), 1);
    for _ in 0..2 {
        stage.end(&epic(1), AgentEnding::Vanished {}, AgentClaim::None, Err(Vec::new()));
        assert_eq!(stage.calls.len(), 1);
    }
    assert_eq!(stage.draft.parts()[&epic(1)].spent.retries, 0);
    stage.end(&epic(1), AgentEnding::Vanished {}, AgentClaim::None, Err(Vec::new()));
    assert_eq!(stage.draft.outcome(), Some(DraftOutcome::Partial));
}

#[test]
fn what_is_spent_stops_further_calls_when_the_budget_is_hard() {
    let mut rules = rules(1, &["a"]);
    (rules.settings.budget.usd, rules.settings.budget.hard) = (Some(1.0), true);
    let mut stage = Stage::scattering(rules, 3);
    let usage = Usage { output_tokens: 10, cost_usd: Some(1.5), ..Usage::default() };
    let said = |mark| DraftInput::Said {
        part: epic(1),
        call: 1,
        mark,
        word: DraftAgentWord::Usage(usage.clone()),
    };
    stage.input(said(16));
    // Read again after a crash, it counts once.
    stage.input(said(16));
    assert_eq!(stage.draft.account().total.paid_usd(), 1.5);
    stage.answer(&epic(1));
    assert_eq!(stage.draft.outcome(), Some(DraftOutcome::Partial));
    assert_eq!(stage.failures(), ["E-002", "E-003"]);
    let DraftPartPhase::Failed(why) = &stage.draft.parts()[&epic(2)].phase else { unreachable!() };
    assert!(why.contains("budget.usd"), "{why}");
    assert!(stage.draft.account().sums.contains_key("plan:E-001"));
}

#[test]
fn a_quota_that_only_a_person_frees_is_no_endless_wait() {
    let mut rules = rules(2, &["a"]);
    rules.settings.limits.auto_resume = false;
    let mut stage = Stage::scattering(rules, 2);
    let word = DraftAgentWord::QuotaExhausted { wait_ms: None, message: "used up".to_owned() };
    stage.input(DraftInput::Said { part: epic(1), call: 1, mark: 1, word });
    stage.end(
        &epic(1),
        AgentEnding::Exited { code: 1 },
        AgentClaim::QuotaExhausted {},
        Err(Vec::new()),
    );
    stage.answer(&epic(2));
    assert_eq!(stage.draft.outcome(), Some(DraftOutcome::Parked));
}

#[test]
fn a_limit_that_somebody_else_met_is_waited_for_and_told_once() {
    let mut stage = Stage::new(rules(1, &["a"]), 1);
    let until = Time(50_000);
    let park = DraftRateLimit {
        provider: "a-provider".to_owned(),
        kind: LimitKind::Rate,
        until,
        message: "429".to_owned(),
    };
    stage.input(DraftInput::Park(park.clone()));
    stage.input(DraftInput::Park(park));
    stage.answer(&DraftPart::Shred);
    assert!(stage.calls.is_empty());
    stage.wake();
    assert_eq!((stage.now, stage.calls.len()), (until, 1));
    let parked = stage.facts.iter().filter(|(f, _)| matches!(f, DraftFact::ProviderParked { .. }));
    assert_eq!(parked.count(), 1);
}

#[test]
fn nobody_is_asked_before_limits_that_others_met_are_known() {
    let draft = Draft::new(rules(1, &["a"]));
    let (calls, facts, stops) = (Vec::new(), Vec::new(), Vec::new());
    let mut stage = Stage { draft, now: Time(1_000), calls, facts, stops, most: 0, count: 1 };
    let until = Time(50_000);
    stage.input(DraftInput::Begin(vec![DraftRateLimit {
        provider: "a-provider".to_owned(),
        kind: LimitKind::Rate,
        until,
        message: "429".to_owned(),
    }]));
    assert!(stage.calls.is_empty());
    stage.wake();
    assert_eq!((stage.now, stage.calls.len()), (until, 1));
}

#[test]
fn facts_that_cannot_have_happened_are_refused() {
    let mut stage = Stage::scattering(rules(1, &["a"]), 2);
    stage.answer(&epic(1));
    for (fact, at) in stage.facts.clone() {
        let known = stage.draft.clone();
        let again = stage.draft.apply(&fact, at);
        assert!(again.is_err(), "{fact:?} a second time");
        assert_eq!(stage.draft.parts().len(), known.parts().len());
    }
    let unknown = DraftFact::PartReopened { part: epic(9) };
    assert!(stage.draft.apply(&unknown, stage.now).is_err());
}

#[test]
fn answers_come_from_the_file_first_and_from_the_output_else() {
    let (part, known) = (epic(1), std::collections::BTreeSet::from(["E-001".to_owned()]));
    let whole = json!(tasks("E-001")).to_string();
    let other = whole.replace("Do E-001", "Other");
    let title = |found: Result<DraftAnswer, Vec<AnswerProblem>>| {
        found.unwrap().tasks[0].tasks[0].title.clone()
    };
    assert_eq!(title(find_answer(&part, &known, Some(&whole), &other)), "Do E-001");
    assert_eq!(title(find_answer(&part, &known, Some(" \n"), &other)), "Other");
    assert_eq!(
        title(find_answer(&part, &known, None, &format!("Here:\n```json\n{other}\n```"))),
        "Other"
    );
    // A file that was cut off does not hide a whole answer in the output.
    assert_eq!(title(find_answer(&part, &known, Some(&whole[..40]), &other)), "Other");
    let problems = find_answer(&part, &known, Some(&whole[..40]), "nothing").unwrap_err();
    assert!(problems[0].message.contains("cut off"), "{problems:?}");
    let foreign = whole.replace("E-001\",\"tasks", "E-002\",\"tasks");
    assert_eq!(find_answer(&part, &known, Some(&foreign), "").unwrap_err()[0].field, "epic_id");
}

#[test]
fn answers_that_go_round_are_refused_with_the_names() {
    let mut breakdown = epics(2);
    breakdown.epics[0].dependencies_on_epics = vec!["E-002".to_owned()];
    breakdown.epics[1].dependencies_on_epics = vec!["E-001".to_owned()];
    let none = std::collections::BTreeSet::new();
    let text = json!(breakdown).to_string();
    let problems = find_answer(&DraftPart::Shred, &none, Some(&text), "").unwrap_err();
    assert!(problems[0].message.contains("E-001 → E-002"), "{problems:?}");
    let mut answer = tasks("E-001");
    let mut second = answer.tasks[0].clone();
    second.temp_id = "E001-T02".to_owned();
    second.local_dependencies = vec!["E001-T01".to_owned()];
    answer.tasks[0].local_dependencies = vec!["E001-T02".to_owned()];
    answer.tasks.push(second);
    let known = std::collections::BTreeSet::from(["E-001".to_owned()]);
    let problems = find_answer(&epic(1), &known, Some(&json!(answer).to_string()), "").unwrap_err();
    assert!(
        problems[0].message.contains("dependency cycle in local_dependencies: E001-T01, E001-T02"),
        "{problems:?}"
    );
}

#[test]
fn one_pass_says_which_epics_task_is_wrong() {
    let whole = json!({"epics": [
        {"id": "E-001", "title": "A", "description": "a", "tasks": tasks("E-001").tasks},
        {"id": "E-002", "title": "B", "description": "b", "tasks": []},
    ]});
    let none = std::collections::BTreeSet::new();
    let problems = find_answer(&DraftPart::Whole, &none, Some(&whole.to_string()), "").unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].field, "epics[1].tasks");
    let mut right = whole;
    right["epics"][1]["tasks"] = json!(tasks("E-002").tasks);
    let answer = find_answer(&DraftPart::Whole, &none, None, &right.to_string()).unwrap();
    assert_eq!((answer.breakdown.unwrap().epics.len(), answer.tasks.len()), (2, 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever agents do and whenever the program dies: it comes to rest, nobody is asked for what was
    /// answered, never more than allowed are asked, and the journal gives the same state.
    #[test]
    fn any_course_comes_to_rest_and_replays(
        moves in proptest::collection::vec((0u8..8, 0usize..8), 0..60),
        jobs in 1u32..5,
        count in 0usize..8,
    ) {
        let mut stage = Stage::new(rules(jobs, &["a", "b"]), count);
        let mut mark = 0;
        for (what, which) in moves {
            mark += 16;
            let Some((part, call)) = stage.calls.get(which % stage.calls.len().max(1)).cloned() else {
                if stage.draft.outcome().is_some() { break }
                stage.wake();
                continue;
            };
            let prior: BTreeSet<DraftPart> = stage.draft.parts().iter()
                .filter(|(_, state)| state.phase == DraftPartPhase::Done).map(|(part, _)| part.clone()).collect();
            match what {
                0 | 1 => stage.answer(&part),
                2 => stage.refuse(&part),
                3 => stage.limit(&part, 5_000, mark),
                4 => stage.end(&part, AgentEnding::Vanished {}, AgentClaim::None, Err(Vec::new())),
                5 => {
                    let claim = AgentClaim::Failed { fault: AgentFault::Transient, message: String::new(), help: None };
                    stage.end(&part, AgentEnding::Exited { code: 1 }, claim, Err(Vec::new()));
                }
                6 => {
                    let usage = Usage { input_tokens: 3, ..Usage::default() };
                    stage.input(DraftInput::Said { part, call, mark, word: DraftAgentWord::Usage(usage) });
                }
                _ => {
                    // The program dies and comes back: calls under way are found again.
                    let mut draft = Draft::new(stage.draft.rules().clone());
                    for (fact, at) in &stage.facts {
                        let text = serde_json::to_string(fact).unwrap();
                        draft.apply(&serde_json::from_str(&text).unwrap(), *at).unwrap();
                    }
                    let before: Vec<_> = stage.calls.drain(..).collect();
                    stage.draft = draft;
                    stage.input(DraftInput::Begin(Vec::new()));
                    prop_assert!(before.iter().all(|call| stage.calls.contains(call)));
                }
            }
            prop_assert!(stage.calls.len() <= jobs as usize);
            prop_assert!(stage.calls.iter().all(|(part, _)| !prior.contains(part)));
        }
        let rest = stage.answer_all();
        prop_assert!(matches!(rest, DraftOutcome::Done | DraftOutcome::Partial), "{:?}", rest);
        let mut numbers = BTreeSet::new();
        for (fact, _) in &stage.facts {
            if let DraftFact::CallIntended { part, call, .. } = fact {
                prop_assert!(numbers.insert((part.clone(), *call)), "{} {} twice", part, call);
            }
        }
    }
}
