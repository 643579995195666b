//! The coordinator of a provider: by itself under random words, and in a machine with several attempts.

use mainstem_core::fact::AgentClaim;
use mainstem_core::fact::{AgentEnding, AgentFault, Fact, FailureClass, LimitKind};
use mainstem_core::id::Time;
use mainstem_core::machine::{AgentStatement, Input, MachineCommand};
use mainstem_core::phase::Phase;
use mainstem_core::plan::Task;
use mainstem_core::provider::{LimitReport, Provider, ProviderStanding, RAMP_STEP_MS, jitter_ms};
use mainstem_core::quiet_hours::QuietHours;
use mainstem_core::schedule::StartObstacle;
use proptest::prelude::*;

use crate::drive::{exited_well, limited, usage};
use crate::lab::Lab;
use crate::setup::{plan, settings, task};

fn limit(at: i64, begun: i64, until: i64, kind: LimitKind) -> LimitReport<'static> {
    LimitReport {
        at: Time(at),
        begun: Time(begun),
        until: Time(until),
        kind,
        message: "slow down",
        retrying: false,
    }
}

#[test]
fn one_incident_with_many_attempts_is_one_wait_and_the_latest_reset_counts() {
    let mut p = Provider::default();
    for n in 0..20 {
        p.record_limit(&limit(1_000 + n, 500, 5_000 + 100 * n, LimitKind::Rate));
    }
    assert_eq!(p.incidents(), 1, "twenty records, one incident");
    assert_eq!(p.wait_end(), Some(Time(6_900)));
    p.record_limit(&limit(1_100, 500, 2_000, LimitKind::Rate));
    assert_eq!(p.wait_end(), Some(Time(6_900)), "an earlier reset takes nothing back");
    p.record_limit(&limit(9_000, 500, 9_500, LimitKind::Rate));
    assert_eq!(p.incidents(), 1, "it began before the incident, and only speaks late");
    p.record_limit(&limit(12_000, 10_000, 13_000, LimitKind::Rate));
    assert_eq!(p.incidents(), 2, "it began after the wait");
    p.record_success(Time(14_000), Time(13_500));
    assert_eq!(p.incidents(), 0, "an attempt went well");
}

#[test]
fn after_a_wait_one_goes_first_and_then_more_and_more() {
    let mut p = Provider::default();
    p.record_limit(&limit(1_000, 500, 5_000, LimitKind::Rate));
    assert_eq!(p.standing(Time(4_999), true), ProviderStanding::Rests);
    assert_eq!(p.standing(Time(5_000), true), ProviderStanding::Ramps(1));
    assert_eq!(p.standing(Time(500_000), true), ProviderStanding::Ramps(1), "nobody has tried yet");
    p.record_start(Time(600_000));
    let later = |ms: u64| Time(600_000).plus_ms(ms);
    assert_eq!(p.standing(later(RAMP_STEP_MS - 1), true), ProviderStanding::Ramps(1));
    assert_eq!(
        p.standing(later(RAMP_STEP_MS), true),
        ProviderStanding::Ramps(2),
        "no news is good news"
    );
    assert_eq!(p.wake_at(later(1)), Some(later(RAMP_STEP_MS)));
    p.record_answer(later(1), Time(600_000));
    assert_eq!(p.standing(later(1), true), ProviderStanding::Ramps(2), "an answer is better news");
    for _ in 0..12 {
        p.record_answer(later(2), Time(600_000));
    }
    assert_eq!(p.standing(later(2), true), ProviderStanding::Free);
    p.record_limit(&limit(700_000, 600_000, 800_000, LimitKind::Rate));
    assert_eq!(p.standing(Time(800_000), true), ProviderStanding::Ramps(1), "from the start again");
}

#[test]
fn a_quota_waits_for_a_person_only_where_people_want_that() {
    let mut p = Provider::default();
    p.record_limit(&limit(1_000, 500, 5_000, LimitKind::Quota));
    p.record_limit(&limit(1_100, 500, 1_200, LimitKind::Rate));
    assert_eq!(p.kind(), LimitKind::Quota, "a rate limit on the way hides no quota");
    assert_eq!(p.rests_until(Time(2_000), true), Some(Some(Time(5_000))));
    assert_eq!(p.standing(Time(5_000), true), ProviderStanding::Ramps(1));
    assert_eq!(p.rests_until(Time(5_000_000), false), Some(None));
    p.release();
    assert_eq!(p.standing(Time(2_000), false), ProviderStanding::Ramps(1));
}

#[test]
fn a_breaker_opens_after_failures_in_a_row_probes_and_closes() {
    let mut p = Provider::default();
    for _ in 0..3 {
        assert!(!p.is_broken(3, Time(0)));
        p.record_failure();
    }
    assert!(p.is_broken(3, Time(0)) && !p.is_broken(0, Time(0)));
    assert_eq!(p.breaker_wait_ms(1_000), 1_000);
    p.park(LimitKind::Breaker, Time(1_000), "3 consecutive failures");
    assert_eq!(p.standing(Time(999), true), ProviderStanding::Rests);
    assert!(!p.is_broken(3, Time(500)), "it is open already");
    assert_eq!(p.standing(Time(1_000), true), ProviderStanding::Ramps(1), "one probe");
    p.record_start(Time(1_000));
    p.record_failure();
    assert!(p.is_broken(3, Time(1_100)), "the probe failed");
    assert_eq!(p.breaker_wait_ms(1_000), 2_000);
    p.park(LimitKind::Breaker, Time(3_100), "again");
    p.record_success(Time(3_300), Time(3_200));
    p.record_failure();
    assert!(!p.is_broken(3, Time(3_400)), "a probe that went well closes it");
    assert_eq!(p.breaker_wait_ms(1_000), 1_000);
    assert_eq!(p.breaker_wait_ms(u64::MAX), u64::MAX, "however long it is asked for");
}

#[test]
fn waits_are_spread_by_name_and_by_at_most_a_tenth() {
    let spread: std::collections::BTreeSet<u64> =
        (0..100).map(|n| jitter_ms(&format!("T-{n}"), 60_000)).collect();
    assert!(spread.len() > 80 && spread.iter().all(|ms| *ms <= 6_000), "{spread:?}");
    assert_eq!(jitter_ms("T-1", 60_000), jitter_ms("T-1", 60_000));
    assert_eq!(jitter_ms("T-1", 9), 0);
    assert!(jitter_ms("T-1", u64::MAX) <= 30_000);
}

/// Something that happens to a provider.
#[derive(Debug, Clone)]
enum Word {
    Limited { begun_ago: i64, wait: i64, kind: LimitKind, retrying: bool },
    Parked { wait: i64, kind: LimitKind },
    Tried,
    Answered { begun_ago: i64 },
    Served { begun_ago: i64 },
    Failed,
    Freed,
}

fn kinds() -> impl Strategy<Value = LimitKind> {
    prop_oneof![Just(LimitKind::Rate), Just(LimitKind::Quota)]
}

fn words() -> impl Strategy<Value = Vec<(i64, Word)>> {
    let word = prop_oneof![
        (0..50_000i64, 0..90_000i64, kinds(), any::<bool>()).prop_map(
            |(begun_ago, wait, kind, retrying)| Word::Limited { begun_ago, wait, kind, retrying }
        ),
        (0..90_000i64, kinds()).prop_map(|(wait, kind)| Word::Parked { wait, kind }),
        (0..90_000i64).prop_map(|wait| Word::Parked { wait, kind: LimitKind::Breaker }),
        Just(Word::Tried),
        (0..50_000i64).prop_map(|begun_ago| Word::Answered { begun_ago }),
        (0..50_000i64).prop_map(|begun_ago| Word::Served { begun_ago }),
        Just(Word::Failed),
        Just(Word::Freed),
    ];
    proptest::collection::vec((0..30_000i64, word), 0..40)
}

proptest! {
    #[test]
    fn whatever_is_said_it_never_lets_in_while_it_rests_and_always_wakes(words in words()) {
        let mut p = Provider::default();
        let mut now = 1_000_000;
        for (pause, word) in words {
            now += pause;
            match word {
                Word::Limited { begun_ago, wait, kind, retrying } => {
                    let before = p.clone();
                    let word = LimitReport { retrying, ..limit(now, now - begun_ago, now + wait, kind) };
                    p.record_limit(&word);
                    prop_assert!(p.wait_end() >= before.wait_end(), "a wait never gets shorter");
                    prop_assert!(p.incidents() <= before.incidents() + 1);
                    p.record_limit(&word);
                    prop_assert!(p.incidents() <= before.incidents() + 1, "said twice, counted once");
                }
                Word::Parked { wait, kind } => p.park(kind, Time(now + wait), ""),
                Word::Tried => p.record_start(Time(now)),
                Word::Answered { begun_ago } => p.record_answer(Time(now), Time(now - begun_ago)),
                Word::Served { begun_ago } => p.record_success(Time(now), Time(now - begun_ago)),
                Word::Failed => p.record_failure(),
                Word::Freed => p.release(),
            }
            let at = Time(now);
            if p.wait_end().is_some_and(|until| until > at) {
                prop_assert_eq!(p.standing(at, true), ProviderStanding::Rests);
                prop_assert_eq!(p.standing(at, false), ProviderStanding::Rests);
            }
            if let ProviderStanding::Ramps(most) = p.standing(at, true) {
                prop_assert!(most >= 1, "somebody may always try");
            }
        }
        // Nobody says anything more: it wakes at the time it names, and sooner or later lets all in.
        let mut at = Time(now);
        if p.standing(at, true) == ProviderStanding::Rests {
            let wake = p.wake_at(at);
            prop_assert_eq!(wake, p.wait_end());
            at = wake.unwrap_or(at);
            prop_assert_ne!(p.standing(at, true), ProviderStanding::Rests);
        }
        p.record_start(at);
        for _ in 0..20 {
            let Some(next) = p.wake_at(at) else { break };
            prop_assert!(next > at, "it does not wake for nothing");
            at = next;
        }
        prop_assert_eq!(p.wake_at(at), None);
        prop_assert!(!matches!(p.standing(at, true), ProviderStanding::Ramps(most) if most < 1_000));
    }

    #[test]
    fn incidents_are_counted_and_not_records(
        incidents in proptest::collection::vec((1..30usize, 1..60_000i64), 1..20),
    ) {
        let mut p = Provider::default();
        let mut now = 1_000;
        for (n, (records, wait)) in incidents.iter().enumerate() {
            let begun = now;
            for record in 0..i64::try_from(*records).unwrap() {
                p.record_limit(&limit(now + 10 + record, begun, now + 10 + wait, LimitKind::Rate));
            }
            prop_assert_eq!(p.incidents() as usize, n + 1);
            now += 100 + wait;
        }
    }
}

fn of(count: usize) -> Vec<Task> {
    (0..count).map(|n| task(&format!("T{n}"), &[])).collect()
}

fn classes(lab: &Lab) -> Vec<FailureClass> {
    let class = |(_, fact): &(Time, Fact)| match fact {
        Fact::AttemptFailed { class, .. } => Some(*class),
        _ => None,
    };
    lab.facts.iter().filter_map(class).collect()
}

impl Lab {
    /// Its agent runs into a limit and ends of it.
    fn hits_limit(&mut self, id: &str, said: AgentStatement, claim: AgentClaim) {
        self.say(id, 1, said);
        self.ends(id, claim);
    }

    fn ends(&mut self, id: &str, claim: AgentClaim) {
        let (task, attempt) = (self.ix(id), self.attempt(id));
        let ending = AgentEnding::Exited { code: 1 };
        self.put(Input::AgentEnded { task, attempt, ending, claim });
        self.collect(id);
    }

    fn fails_of(&mut self, id: &str, fault: AgentFault) {
        let help = Some("claude /login".to_owned());
        self.ends(id, AgentClaim::Failed { fault, message: "said so".to_owned(), help });
    }

    fn pass_until_wake(&mut self) {
        self.now = self.machine.wake_at().unwrap();
        self.put(Input::Tick);
    }
}

#[test]
fn five_attempts_that_hit_one_limit_cost_one_wait_and_come_back_one_by_one() {
    let mut s = settings();
    s.run.jobs = 5;
    s.limits.rate_limit_waits = 1;
    let mut lab = Lab::new(&s, plan(of(5)));
    for n in 0..5 {
        lab.work(&format!("T{n}"));
    }
    for n in 0..5 {
        lab.now = Time(lab.now.0 + 50);
        lab.hits_limit(&format!("T{n}"), limited(Some(10_000)), AgentClaim::RateLimited {});
    }
    assert_eq!(classes(&lab), [FailureClass::RateLimited; 5]);
    assert_eq!(lab.all(Phase::Ready).len(), 5, "nobody gave up");
    assert_eq!(lab.machine.providers()["ann"].incidents(), 1);
    lab.pass_until_wake();
    assert_eq!(lab.all(Phase::Preparing), ["T0"], "one goes first");
    assert!(matches!(
        lab.machine.start_obstacle(lab.ix("T1")),
        Some(StartObstacle::ProviderRamps(_))
    ));
    lab.work("T0");
    lab.say("T0", 1, usage(None));
    assert_eq!(lab.all(Phase::Preparing), ["T1"], "it got an answer: two at once");
    lab.now = lab.now.plus_ms(RAMP_STEP_MS);
    lab.put(Input::Tick);
    assert_eq!(lab.all(Phase::Preparing).len(), 3, "and no limit since: four at once");
    lab.end("T0", exited_well());
    assert_eq!(lab.all(Phase::Preparing).len(), 4);
    assert_eq!(lab.machine.providers()["ann"].incidents(), 0);
}

#[test]
fn a_provider_that_limits_again_and_again_exhausts_the_waits_and_success_gives_them_back() {
    let mut s = settings();
    s.limits.rate_limit_waits = 2;
    let mut lab = Lab::new(&s, plan(of(1)));
    for round in 1..=3 {
        lab.work("T0");
        lab.now = Time(lab.now.0 + 10);
        lab.hits_limit("T0", limited(Some(1_000)), AgentClaim::RateLimited {});
        assert_eq!(lab.machine.providers()["ann"].incidents(), round);
        if round < 3 {
            lab.pass_until_wake();
        }
    }
    assert_eq!(lab.phase("T0"), Phase::Failed);
    lab.command(MachineCommand::retry_task("T0".to_owned())).unwrap();
    assert_eq!(lab.machine.providers()["ann"].incidents(), 0, "a person wants it again");
}

#[test]
fn an_agent_that_waits_by_itself_goes_on_and_others_wait_meanwhile() {
    let mut lab = Lab::new(&settings(), plan(of(2)));
    lab.work("T0");
    let said = AgentStatement::RateLimited {
        retry_after_ms: None,
        reset_at: Some(Time(61_000)),
        message: "429".to_owned(),
        retrying: true,
    };
    lab.say("T0", 1, said);
    assert_eq!(lab.phase("T0"), Phase::Working);
    lab.fail("T1");
    assert_eq!(lab.phase("T1"), Phase::Ready, "no new start");
    lab.enqueue("T0");
    assert_eq!(classes(&lab), [FailureClass::AgentFailed], "the one that waited came to no harm");
}

#[test]
fn a_used_up_quota_parks_until_its_reset_or_until_a_person_says_go() {
    for auto_resume in [true, false] {
        let mut s = settings();
        s.limits.auto_resume = auto_resume;
        let mut lab = Lab::new(&s, plan(of(1)));
        lab.work("T0");
        lab.say("T0", 1, AgentStatement::Session { session: "s-1".to_owned() });
        let reset_at = Some(Time(3_600_000));
        let said = AgentStatement::QuotaExhausted { reset_at, message: "five_hour".to_owned() };
        lab.say("T0", 2, said);
        lab.ends("T0", AgentClaim::QuotaExhausted {});
        assert_eq!((lab.phase("T0"), lab.machine.rest_reason()), (Phase::Ready, None));
        lab.crash();
        lab.now = Time(4_000_000);
        lab.put(Input::Tick);
        if !auto_resume {
            assert_eq!(lab.phase("T0"), Phase::Ready, "it waits for a person");
            let view = lab.machine.task_view(lab.ix("T0"));
            assert_eq!(view.next_action.as_deref(), Some("mainstem resume"));
            assert!(lab.command(MachineCommand::Resume).unwrap().contains("ann"));
        }
        assert_eq!(lab.phase("T0"), Phase::Preparing);
        let current = lab.machine.tasks().get(lab.ix("T0")).current.as_ref();
        assert_eq!(current.unwrap().session.as_deref(), Some("s-1"), "its session is taken up");
        assert_eq!(lab.machine.tasks().get(lab.ix("T0")).spent.retries, 0);
    }
}

#[test]
fn what_is_refused_fails_at_once_with_the_command_that_helps() {
    for fault in [AgentFault::Auth, AgentFault::Request, AgentFault::Model] {
        let mut lab = Lab::new(&settings(), plan(of(1)));
        lab.work("T0");
        lab.fails_of("T0", fault);
        assert_eq!((lab.phase("T0"), lab.attempt("T0")), (Phase::Failed, 1), "{fault:?}");
        let view = lab.machine.task_view(lab.ix("T0"));
        assert_eq!(view.next_action.as_deref(), Some("claude /login, then mainstem retry T0"));
        assert!(view.reason.contains("said so"), "{}", view.reason);
        lab.command(MachineCommand::retry_task("T0".to_owned())).unwrap();
        lab.removed("T0");
        assert_eq!(lab.phase("T0"), Phase::Preparing);
    }
}

#[test]
fn a_provider_that_fails_attempt_after_attempt_is_left_alone_and_probed() {
    let mut s = settings();
    s.limits.breaker = 3;
    s.limits.breaker_wait_ms = 60_000;
    let mut lab = Lab::new(&s, plan(of(4)));
    for n in 0..3 {
        lab.work(&format!("T{n}"));
    }
    for n in 0..3 {
        lab.fails_of(&format!("T{n}"), AgentFault::Transient);
    }
    assert_eq!(classes(&lab), [FailureClass::Transient; 3]);
    assert_eq!(lab.all(Phase::Preparing), ["T3"], "it had started before the third failure");
    assert_eq!(lab.machine.provider_standing("ann"), ProviderStanding::Rests);
    lab.work("T3");
    lab.fails_of("T3", AgentFault::Transient);
    lab.crash();
    assert_eq!(
        lab.machine.provider_standing("ann"),
        ProviderStanding::Rests,
        "a new life knows it too"
    );
    let until = lab.machine.providers()["ann"].wait_end().unwrap();
    assert!((61_000..=68_000).contains(&until.0), "{until:?}");
    lab.now = until;
    lab.put(Input::Tick);
    assert_eq!(lab.all(Phase::Preparing).len(), 1, "one probe");
    let probe = lab.all(Phase::Preparing)[0].to_owned();
    lab.work(&probe);
    lab.end(&probe, exited_well());
    assert!(!lab.all(Phase::Preparing).is_empty(), "it went well: others follow");
    let opened = |(_, fact): &&(Time, Fact)| matches!(fact, Fact::ProviderParked { .. });
    assert_eq!(lab.facts.iter().filter(opened).count(), 1);
}

#[test]
fn another_agent_stands_in_while_a_provider_rests_for_long() {
    let mut s = settings();
    s.run.jobs = 2;
    s.limits.fallback_after_ms = 600_000;
    s.agents.get_mut("ann").unwrap().fallback = vec!["bob".to_owned()];
    for (wait, wanted) in [(300_000, vec![]), (900_000, vec!["T0", "T1"])] {
        let mut lab = Lab::new(&s, plan(of(2)));
        lab.work("T0");
        lab.say("T0", 1, AgentStatement::Session { session: "s-ann".to_owned() });
        lab.work("T1");
        lab.hits_limit("T1", limited(Some(wait)), AgentClaim::RateLimited {});
        lab.say("T0", 2, limited(Some(wait)));
        lab.ends("T0", AgentClaim::RateLimited {});
        assert_eq!(lab.all(Phase::Preparing), wanted, "{wait}");
        if wanted.is_empty() {
            continue;
        }
        let current = lab.machine.tasks().get(lab.ix("T0")).current.clone().unwrap();
        assert_eq!((current.agent.as_str(), current.provider.as_str()), ("bob", "shared"));
        assert_eq!(current.session, None, "bob knows nothing of ann's session");
    }
}

#[test]
fn nothing_starts_in_quiet_hours_and_what_runs_goes_on() {
    let mut s = settings();
    s.limits.quiet_hours = QuietHours::parse("00:00-06:00").ok();
    let mut lab = Lab::new(&s, plan(of(1)));
    assert_eq!(lab.machine.start_obstacle(lab.ix("T0")), Some(StartObstacle::Quiet));
    assert_eq!(lab.machine.rest_reason(), None);
    assert_eq!(lab.machine.wake_at(), Some(Time(6 * 3_600_000)));
    lab.put(Input::UtcOffsetChanged { minutes: 7 * 60 });
    lab.put(Input::Tick);
    assert_eq!(lab.phase("T0"), Phase::Preparing, "it is past seven where we are");
}

#[test]
fn budgets_warn_once_and_a_task_that_spent_its_own_is_not_tried_again() {
    let mut s = settings();
    s.budget.usd = Some(10.0);
    s.budget.per_task_usd = Some(2.0);
    s.budget.hard = true;
    let mut lab = Lab::new(&s, plan(of(2)));
    let warned = |lab: &Lab| -> Vec<(bool, u32)> {
        let told = |(_, fact): &(Time, Fact)| match fact {
            Fact::BudgetReached { per_task, percent, .. } => Some((*per_task, *percent)),
            _ => None,
        };
        lab.facts.iter().filter_map(told).collect()
    };
    lab.work("T0");
    lab.say("T0", 1, usage(Some(1.0)));
    assert_eq!(warned(&lab), []);
    lab.say("T0", 2, usage(Some(0.75)));
    lab.say("T0", 3, usage(Some(0.05)));
    assert_eq!(warned(&lab), [(true, 80)]);
    lab.crash();
    lab.say("T0", 4, usage(Some(0.5)));
    assert_eq!(warned(&lab), [(true, 80), (true, 100)]);
    lab.end("T0", AgentEnding::Exited { code: 1 });
    lab.collect("T0");
    assert_eq!(lab.phase("T0"), Phase::Failed, "it had a retry left, but no money");
    assert!(lab.machine.task_view(lab.ix("T0")).reason.contains("budget.per_task"));
    lab.work("T1");
    lab.say("T1", 1, usage(Some(5.75)));
    assert_eq!(warned(&lab)[2..], [(true, 100), (false, 80)]);
}

#[test]
fn what_has_no_price_of_its_own_gets_one_from_the_list_and_a_subscription_costs_nothing() {
    use mainstem_core::config::ModelPrice;
    use mainstem_core::fact::{CostBasis, Usage};
    let mut s = settings();
    s.prices.insert("m".to_owned(), ModelPrice { input: 1_000_000.0, ..ModelPrice::default() });
    s.agents.get_mut("bob").unwrap().included = true;
    let by = |id: &str, agent: &str| Task { agent: Some(agent.to_owned()), ..task(id, &[]) };
    let mut lab = Lab::new(&s, plan(vec![by("a", "ann"), by("b", "bob")]));
    let said = |model: &str| {
        let model = Some(model.to_owned());
        AgentStatement::Usage(Usage { input_tokens: 2, model, ..Usage::default() })
    };
    lab.work("a");
    lab.work("b");
    lab.say("a", 1, said("m-2026"));
    lab.say("a", 2, said("other"));
    lab.say("b", 1, said("m"));
    let bases: Vec<_> = lab
        .facts
        .iter()
        .filter_map(|(_, fact)| match fact {
            Fact::UsageReported { usage, .. } => Some((usage.cost_usd, usage.basis)),
            _ => None,
        })
        .collect();
    assert_eq!(
        bases,
        [
            (Some(2.0), Some(CostBasis::Estimated)),
            (None, None),
            (Some(2.0), Some(CostBasis::Included))
        ]
    );
    assert!((lab.machine.spent_usd() - 2.0).abs() < 1e-9);
}

#[test]
fn a_stalled_attempt_is_started_again_in_its_session_before_it_costs_a_retry() {
    let mut s = settings();
    s.run.stall_restarts = 1;
    s.run.retries = 0;
    let mut lab = Lab::new(&s, plan(of(1)));
    lab.work("T0");
    lab.say("T0", 1, AgentStatement::Session { session: "s".to_owned() });
    lab.end("T0", AgentEnding::TimedOut { idle: true });
    lab.collect("T0");
    assert_eq!((lab.phase("T0"), lab.attempt("T0")), (Phase::Preparing, 2));
    let current = lab.machine.tasks().get(lab.ix("T0")).current.clone().unwrap();
    assert_eq!(current.session.as_deref(), Some("s"));
    lab.work("T0");
    lab.fails_of("T0", AgentFault::Stalled);
    assert_eq!(lab.phase("T0"), Phase::Failed);
}

fn answer(question: &str, text: &str) -> MachineCommand {
    let (question, text) = (question.to_owned(), text.to_owned());
    MachineCommand::Answer { question, text, free: false }
}

#[test]
fn who_goes_round_in_circles_or_leaves_with_an_open_question_needs_a_person() {
    use mainstem_core::config::LoopingAction;
    let mut lab = Lab::new(&settings(), plan(of(2)));
    lab.work("T0");
    lab.fails_of("T0", AgentFault::Looping);
    assert_eq!(lab.phase("T0"), Phase::Blocked);
    let asked = lab.machine.open_decisions();
    assert_eq!((asked.len(), asked[0].name.as_str()), (1, "L-T0"), "it is a question");
    let inbox = lab.machine.inbox_items();
    assert_eq!((inbox.len(), inbox[0].id.as_str()), (1, "L-T0"), "and nothing else");
    lab.crash();
    lab.removed("T0");
    lab.command(answer("L-T0", "look at the lock file first")).unwrap();
    assert_eq!((lab.phase("T0"), lab.attempt("T0")), (Phase::Preparing, 2));
    let told = lab.machine.tasks().get(lab.ix("T0")).hint.as_deref();
    assert_eq!(told, Some("look at the lock file first"));
    lab.work("T0");
    lab.fails_of("T0", AgentFault::Looping);
    lab.command(answer("L-T0", "3")).unwrap();
    assert_eq!(lab.phase("T0"), Phase::Cancelled);
    assert!(lab.machine.open_decisions().is_empty());
    lab.work("T1");
    lab.say("T1", 1, crate::drive::question(None, None));
    lab.ends("T1", AgentClaim::None);
    assert_eq!(lab.phase("T1"), Phase::Blocked);
    assert!(lab.machine.task_view(lab.ix("T1")).reason.contains("Q1"));
    let mut s = settings();
    s.run.on_looping = LoopingAction::Fail;
    let mut lab = Lab::new(&s, plan(of(1)));
    lab.work("T0");
    lab.fails_of("T0", AgentFault::Looping);
    assert_eq!((lab.phase("T0"), lab.attempt("T0")), (Phase::Preparing, 2), "one more try");
    let current = lab.machine.tasks().get(lab.ix("T0")).current.clone().unwrap();
    assert_eq!(current.session, None, "not the same conversation again");
}

#[test]
fn words_that_are_read_again_count_once_and_proposals_wait_to_be_accepted() {
    let mut lab = Lab::new(&settings(), plan(of(1)));
    lab.work("T0");
    let words = [
        AgentStatement::Session { session: "s".to_owned() },
        usage(Some(1.0)),
        AgentStatement::Issue {
            title: "odd".to_owned(),
            text: String::new(),
            severity: "low".to_owned(),
        },
        AgentStatement::Proposed {
            id: Some("T9".to_owned()),
            title: "more".to_owned(),
            description: String::new(),
            needs: vec!["T0".to_owned()],
        },
    ];
    for _ in 0..3 {
        for (mark, word) in (1..).zip(&words) {
            lab.say("T0", mark, word.clone());
        }
        lab.crash();
    }
    assert_eq!(lab.machine.proposals().len(), 1);
    assert_eq!(lab.machine.reported_issues().len(), 1);
    assert!((lab.machine.spent_usd() - 1.0).abs() < 1e-9);
    assert_eq!(lab.machine.plan().tasks.len(), 1, "a proposal is nobody's task");
}

#[test]
fn an_absurd_wait_from_one_agent_does_not_stop_the_others_for_days() {
    let mut lab = Lab::new(&settings(), plan(vec![task("A", &[]), task("B", &[])]));
    lab.work("A");
    lab.say("A", 1, limited(Some(u64::MAX / 4)));
    let known = lab.machine.providers().values().next().unwrap();
    let wait = known.wait_end().unwrap().since_ms(lab.now);
    let usual = lab.machine.settings().limits.rate_limit_wait_ms;
    assert!(wait <= usual + usual / 10 + 1, "{wait} ms");
}
