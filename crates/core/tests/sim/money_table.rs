//! What a budget and a failure that stops the run mean for tasks that are ready, and what answers count.

use mainstem_core::config::{ModelTiers, RunFailureAction, Settings};
use mainstem_core::fact::{AgentEnding, Fact, FailureClass};
use mainstem_core::machine::{AgentStatement, Input, MachineCommand, RunStop};
use mainstem_core::phase::Phase;
use mainstem_core::schedule::StartObstacle;

use crate::drive::usage;
use crate::lab::Lab;
use crate::setup::{plan, settings, task};

fn one_at_a_time() -> Settings {
    let mut s = settings();
    s.run.jobs = 1;
    s
}

/// Ann works with a cheap and a dear model, one task each, one at a time, with ten dollars.
fn two_models() -> Lab {
    let mut s = one_at_a_time();
    s.budget.usd = Some(10.0);
    s.budget.hard = true;
    let (mut dear, mut cheap) = (task("a-dear", &[]), task("b-cheap", &[]));
    (dear.agent, cheap.agent) = (Some("ann".to_owned()), Some("ann".to_owned()));
    (dear.model, cheap.model) = (Some("dear".to_owned()), Some("cheap".to_owned()));
    let mut again = task("c-dear", &[]);
    (again.agent, again.model) = (Some("ann".to_owned()), Some("dear".to_owned()));
    s.agents.get_mut("ann").unwrap().models = ModelTiers::default();
    Lab::new(&s, plan(vec![dear, cheap, again]))
}

#[test]
fn a_cheap_model_is_not_held_back_by_what_a_dear_one_cost() {
    let mut lab = two_models();
    lab.say("a-dear", 1, usage(Some(6.0)));
    lab.enqueue("a-dear");
    assert_eq!(lab.started(), ["a-dear", "b-cheap"], "four dollars are left, and it costs less");
    lab.say("b-cheap", 1, usage(Some(1.0)));
    lab.enqueue("b-cheap");
    assert_eq!(
        lab.machine.start_obstacle(lab.ix("c-dear")),
        Some(StartObstacle::Budget),
        "six dollars expected"
    );
}

#[test]
fn a_budget_that_stops_a_run_says_so_and_names_the_command() {
    let mut lab = two_models();
    for (id, usd) in [("a-dear", 6.0), ("b-cheap", 1.0)] {
        lab.say(id, 1, usage(Some(usd)));
        lab.enqueue(id);
        lab.land(id);
    }
    let view = lab.machine.task_view(lab.ix("c-dear"));
    assert_eq!(view.waiting_for, ["the budget"]);
    assert_eq!(view.reason, "over budget: $7.00 of $10.00 spent, the next attempt may cost $6.00");
    assert_eq!(
        view.next_action.as_deref(),
        Some("mainstem config set budget.usd 20, then mainstem run")
    );
    let Some(RunStop::Budget(short)) = lab.machine.run_stop() else {
        panic!("the whole run is stopped by it")
    };
    assert!((short.spent_usd - 7.0).abs() < 1e-9 && (short.expected_usd - 6.0).abs() < 1e-9);
    // With what it names the next attempt can start.
    let mut s = lab.machine.settings().clone();
    s.budget.usd = Some(20.0);
    let mut next = Lab::resting(&s, lab.machine.plan().clone());
    next.facts = lab.facts.clone();
    next.crash();
    assert_eq!(next.phase("c-dear"), Phase::Preparing);
}

#[test]
fn a_run_that_a_failure_drained_says_so() {
    for (on_failure, word) in
        [(RunFailureAction::Drain, "drain"), (RunFailureAction::Abort, "abort")]
    {
        let mut s = one_at_a_time();
        s.run.on_failure = on_failure;
        s.run.retries = 0;
        let tasks = vec![task("a", &[]), task("b", &[]), task("c", &[])];
        let mut lab = Lab::new(&s, plan(tasks));
        lab.fail_for_good("a");
        let view = lab.machine.task_view(lab.ix("c"));
        assert_eq!(view.phase, Phase::Ready);
        let reason = format!("a failed and run.on_failure = \"{word}\"");
        assert_eq!(view.reason, reason);
        assert_eq!(view.next_action.as_deref(), Some("mainstem run starts the remaining tasks"));
        assert_eq!(lab.machine.run_stop(), None, "b is still at work");
        if on_failure == RunFailureAction::Abort {
            continue;
        }
        lab.enqueue("b");
        lab.land("b");
        assert_eq!(lab.machine.run_stop().map(|stop| stop.kind()), Some(word));
        lab.crash();
        assert_eq!(lab.phase("c"), Phase::Preparing, "the command helps");
    }
}

#[test]
fn what_cannot_start_as_it_is_set_up_is_not_tried_again() {
    let mut lab = Lab::new(&settings(), plan(vec![task("a", &[])]));
    lab.workspace("a");
    let why = "agent `mine` has no command to run".to_owned();
    lab.end("a", AgentEnding::NotStarted { why, permanent: true });
    lab.collect("a");
    assert_eq!((lab.phase("a"), lab.attempt("a")), (Phase::Failed, 1));
    let refused = |(_, fact): &(_, Fact)| {
        matches!(fact, Fact::TaskFailed { class: FailureClass::Refused, reason, .. }
            if reason == "the agent cannot start: agent `mine` has no command to run")
    };
    assert!(lab.facts.iter().any(refused), "{:?}", lab.facts);
}

#[test]
fn a_cost_that_cannot_be_true_is_not_counted_and_said_once() {
    let mut lab = two_models();
    lab.work("a-dear");
    for (mark, usd) in [1e308, f64::NAN, -3.0, 1_000.5, f64::INFINITY].into_iter().enumerate() {
        lab.say("a-dear", mark as u64 + 1, usage(Some(usd)));
    }
    lab.say("a-dear", 9, usage(Some(2.5)));
    assert!((lab.machine.spent_usd() - 2.5).abs() < 1e-9, "{}", lab.machine.spent_usd());
    let told: Vec<&str> = lab
        .facts
        .iter()
        .filter_map(|(_, fact)| match fact {
            Fact::Noticed { message, .. } => Some(message.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["the agent reported an impossible cost of 1e308 USD, which is not counted"]);
    lab.end("a-dear", AgentEnding::Exited { code: 0 });
    lab.collect("a-dear");
    assert_eq!(lab.started(), ["a-dear", "b-cheap"], "the budget is not used up");
}

/// An agent asks with these options, this default and a deadline.
fn asking(options: &[&str], default: Option<&str>, deadline_ms: u64) -> Lab {
    let mut s = settings();
    s.questions.default = Some("own judgement".to_owned());
    let mut lab = Lab::new(&s, plan(vec![task("a", &[])]));
    lab.work("a");
    let said = AgentStatement::Asked {
        text: "Which color?".to_owned(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        default: default.map(str::to_owned),
        deadline_ms: Some(deadline_ms),
        reference: None,
    };
    lab.say("a", 1, said);
    assert_eq!(lab.phase("a"), Phase::Asking);
    lab
}

fn answers(lab: &Lab) -> Vec<&str> {
    let answer = |(_, fact): &'_ (_, Fact)| matches!(fact, Fact::QuestionAnswered { .. });
    let answered = lab.facts.iter().filter(|fact| answer(fact));
    answered
        .filter_map(|(_, fact)| match fact {
            Fact::QuestionAnswered { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_deadline_takes_only_what_the_question_offers() {
    // The agent's own default, the one of the settings, and neither.
    for (options, default, taken) in [
        (&["red", "green"][..], Some("Green"), Some("green")),
        (&["red", "own judgement"], Some("blue"), Some("own judgement")),
        (&[], None, Some("own judgement")),
        (&["red", "green"], None, None),
    ] {
        let mut lab = asking(options, default, 1_000);
        lab.now = lab.now.plus_ms(1_000);
        lab.put(Input::Tick);
        assert_eq!(answers(&lab).first().copied(), taken, "{options:?} {default:?}");
        if taken.is_some() {
            continue;
        }
        assert_eq!(lab.phase("a"), Phase::Asking, "it waits for a person");
        let told = |(_, fact): &&(_, Fact)| {
            matches!(fact, Fact::Noticed { message, .. }
                if message.contains("the default is not one of the options (red, green)"))
        };
        assert_eq!(lab.facts.iter().filter(told).count(), 1, "said once");
        assert_eq!(lab.machine.open_questions()[0].deadline, None);
    }
}

#[test]
fn an_answer_that_is_not_offered_is_refused_with_the_list() {
    let mut lab = asking(&["grey", "red"], None, 1_000_000);
    let answer = |text: &str, free: bool| MachineCommand::Answer {
        question: "Q1".to_owned(),
        text: text.to_owned(),
        free,
    };
    let refusal = lab.command(answer("gray", false)).unwrap_err();
    assert_eq!(refusal.message, "`gray` is not an option of Q1: 1 grey, 2 red");
    assert!(refusal.hint.unwrap().contains("mainstem answer Q1 --free TEXT"));
    assert!(lab.command(answer("3", false)).is_err());
    assert!(lab.command(answer(" ", true)).is_err());
    assert_eq!(lab.phase("a"), Phase::Asking);
    lab.command(answer("RED", false)).unwrap();
    assert_eq!(answers(&lab), ["red"]);
    let mut lab = asking(&["grey", "red"], None, 1_000_000);
    lab.command(answer("neither, use the theme", true)).unwrap();
    assert_eq!(answers(&lab), ["neither, use the theme"]);
}

#[test]
fn an_accepted_proposal_of_a_run_task_gets_an_agent_that_can_do_it_or_is_refused() {
    let mut s = settings();
    let mut own = s.agents["ann"].clone();
    (own.kind, own.command) = ("command".to_owned(), Vec::new());
    s.agents.insert("command".to_owned(), own.clone());
    own.command = vec!["sh".to_owned()];
    s.agents.insert("able".to_owned(), own);
    for (of_run, taken) in [(Some("able"), true), (Some("command"), false), (None, false)] {
        s.run.agent = of_run.map(str::to_owned);
        let mut proposer = task("a", &[]);
        proposer.agent = Some("command".to_owned());
        let mut lab = Lab::new(&s, plan(vec![proposer]));
        lab.work("a");
        let (id, description, needs) = (Some("b".to_owned()), "x".to_owned(), Vec::new());
        lab.say(
            "a",
            1,
            AgentStatement::Proposed { id, title: "more".to_owned(), description, needs },
        );
        let accepted = lab.command(MachineCommand::Accept("P1".to_owned()));
        if taken {
            accepted.unwrap();
            let new = &lab.machine.plan().tasks[1];
            assert_eq!((new.id.as_str(), new.agent.as_deref()), ("b", None), "that of the run");
        } else {
            assert_eq!(accepted.unwrap_err().message, "no agent can work on the proposed task");
            assert_eq!(lab.machine.plan().tasks.len(), 1);
        }
    }
}
