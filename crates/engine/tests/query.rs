//! The read side on real journals: following folds each fact once, and any earlier moment can be shown.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainstem_core::config::Settings;
use mainstem_core::config::layers::resolve_settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, Time};
use mainstem_core::money::CostGrouping;
use mainstem_engine::query::RunReader;
use mainstem_engine::query::follower::JournalFollower;
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::run_journal::encode_fact;
use mainstem_host::git::Repo;
use mainstem_store::{
    Journal, JournalReader, JournalRecord, JournalRun, MemoryJournal, MemoryJournalReader,
    NewJournalRecord, StopReading, StoreError,
};
use mainstem_testkit::TestRepo;
use serde_json::{Value, json};

const BASE: &str = "1111111111111111111111111111111111111111";
const WORK: &str = "2222222222222222222222222222222222222222";
const MERGE: &str = "3333333333333333333333333333333333333333";

fn settings() -> Settings {
    resolve_settings(&[]).unwrap().settings
}

/// A run of two tasks: `one` reports usage this many times and lands, `two` then asks.
fn facts(usages: u64) -> Vec<NewJournalRecord> {
    let plan = json!({"version": 1, "title": "Two", "tasks": [
        {"id": "one", "title": "One", "run": "true"},
        {"id": "two", "title": "Two", "run": "true", "needs": ["one"]},
    ]});
    let plan: mainstem_core::plan::Plan = serde_json::from_value(plan).unwrap();
    let mut all = vec![
        json!({"type": "run_started", "target": "main", "base": BASE}),
        json!({"type": "plan_adopted", "revision": 1, "hash": "h", "plan": plan}),
        json!({"type": "engine_started", "epoch": 1, "pid": 7, "host": "vm", "version": "0"}),
    ];
    all.extend(attempt("one"));
    all.extend((0..usages).map(|mark| {
        json!({"type": "usage_reported", "task": "one", "attempt": 1, "mark": mark,
            "input_tokens": 2, "output_tokens": 1, "cost_usd": 0.001})
    }));
    all.push(json!({"type": "agent_ended", "task": "one", "attempt": 1,
        "ending": {"how": "exited", "code": 0}}));
    all.push(json!({"type": "evidence_collected", "task": "one", "attempt": 1, "evidence": {
        "base": BASE, "tip": WORK, "commits": 1, "files": 1, "insertions": 3, "deletions": 0,
        "diff_hash": "d"}}));
    all.push(json!({"type": "task_queued", "task": "one", "attempt": 1, "tip": WORK}));
    all.push(json!({"type": "car_formed", "task": "one", "attempt": 1, "onto": BASE,
        "commit": MERGE, "tree": WORK}));
    all.push(json!({"type": "landing_intended", "task": "one", "attempt": 1, "old": BASE,
        "new": MERGE, "tree": WORK}));
    all.push(json!({"type": "task_landed", "task": "one", "attempt": 1, "commit": MERGE,
        "old": BASE, "empty": false}));
    all.extend(attempt("two"));
    all.push(json!({"type": "question_asked", "question": "Q1", "task": "two", "attempt": 1,
        "number": 1, "mark": 1, "text": "Which?", "default": null}));
    let record = |(at, fact): (i64, Value)| {
        let fact: Fact = serde_json::from_value(fact).unwrap();
        encode_fact(&RunId::new("r-1"), &fact, Time(at * 1_000))
    };
    (1..).zip(all).map(record).collect()
}

fn attempt(task: &str) -> [Value; 3] {
    let workspace = format!("/w/{task}");
    let branch = format!("mainstem/{task}");
    [
        json!({"type": "attempt_intended", "task": task, "attempt": 1, "agent": "command",
            "provider": "", "branch": branch}),
        json!({"type": "workspace_ready", "task": task, "attempt": 1, "workspace": workspace,
            "base": BASE}),
        json!({"type": "agent_started", "task": task, "attempt": 1, "pid": 42}),
    ]
}

/// A reader that counts the records that it hands out.
struct CountingReader {
    inner: MemoryJournalReader,
    records: AtomicU64,
}

impl JournalReader for CountingReader {
    fn read_after(&self, seq: u64, max: usize) -> Result<Vec<JournalRecord>, StoreError> {
        self.inner.read_after(seq, max)
    }
    fn last_seq(&self) -> Result<u64, StoreError> {
        self.inner.last_seq()
    }
    fn for_each(
        &self,
        after: u64,
        f: &mut dyn FnMut(JournalRecord) -> Result<(), StopReading>,
    ) -> Result<u64, StoreError> {
        self.inner.for_each(after, f)
    }
    fn read_run(
        &self,
        run: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        let records = self.inner.read_run(run, after, max)?;
        self.records.fetch_add(records.len() as u64, Ordering::Relaxed);
        Ok(records)
    }
    fn read_task(
        &self,
        run: &str,
        task: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        self.inner.read_task(run, task, after, max)
    }
    fn list_runs(&self) -> Result<Vec<JournalRun>, StoreError> {
        self.inner.list_runs()
    }
    fn wait_after(&self, seq: u64, patience: Duration) -> Result<bool, StoreError> {
        self.inner.wait_after(seq, patience)
    }
    fn find_damage(&self) -> Result<Vec<String>, StoreError> {
        self.inner.find_damage()
    }
}

#[test]
fn following_5000_facts_reads_and_folds_each_fact_once() {
    let all = facts(5_000);
    let mut journal = MemoryJournal::new();
    let epoch = journal.take_over().unwrap();
    let reader = CountingReader { inner: journal.reader(), records: AtomicU64::new(0) };
    let mut follower = JournalFollower::new(RunId::new("r-1"), &settings());
    let mut seen = Vec::new();
    for chunk in all.chunks(37) {
        journal.append(epoch, chunk).unwrap();
        follower
            .advance_with(&reader, u64::MAX, &mut |record, _, _| seen.push(record.seq))
            .unwrap();
    }
    let count = all.len() as u64;
    assert_eq!(seen, (1..=count).collect::<Vec<_>>());
    assert_eq!(follower.advance(&reader).unwrap(), 0, "nothing was written since");
    assert_eq!((reader.records.into_inner(), follower.seq()), (count, count));
    assert!((follower.machine().spent_usd() - 5.0).abs() < 1e-6);
}

/// A repository whose journal holds these facts.
fn repository(records: &[NewJournalRecord]) -> (TestRepo, RepoLayout) {
    let scene = TestRepo::new();
    let layout = RepoLayout::new(&Repo::discover(scene.path()).unwrap(), Some("/w"));
    std::fs::create_dir_all(layout.state_dir()).unwrap();
    append(&layout, records);
    (scene, layout)
}

fn append(layout: &RepoLayout, records: &[NewJournalRecord]) {
    let mut journal = layout.run_store().open_journal().unwrap();
    let epoch = journal.take_over().unwrap();
    journal.append(epoch, records).unwrap();
}

/// Everything that a face can ask for, as one value.
fn everything(run: &RunReader, layout: &RepoLayout) -> Value {
    json!({
        "status": run.status(),
        "train": run.train_candidates(),
        "left": run.train_departures().unwrap(),
        "inbox": run.inbox(),
        "questions": run.questions(),
        "cost": run.cost(layout, CostGrouping::Task).unwrap(),
        "timeline": run.timeline().unwrap(),
        "graph": run.graph(),
        "proposals": run.proposals(),
        "attempts": run.attempts("one").unwrap().len(),
    })
}

#[test]
fn a_view_at_a_seq_equals_a_fresh_fold_to_that_seq() {
    let all = facts(20);
    let (_scene, layout) = repository(&all);
    for seq in [0, 2, 3, 6, 15, 27, 29, 31, 32, all.len()] {
        let (_other, prefix) = repository(&all[..seq]);
        let then = RunReader::load_at(&layout, &settings(), None, seq as u64).unwrap();
        let fresh = RunReader::load_at(&prefix, &settings(), None, u64::MAX).unwrap();
        let (mut then, mut fresh) = (everything(&then, &layout), everything(&fresh, &prefix));
        if seq == 0 {
            // A journal without a fact does not know the run yet.
            for view in [&mut then, &mut fresh] {
                view["status"]["run"] = Value::Null;
                view["status"]["target"] = Value::Null;
                view["timeline"]["run"] = Value::Null;
            }
        }
        assert_eq!(then, fresh, "at {seq}");
    }
}

#[test]
fn an_earlier_moment_shows_the_train_and_the_phases_of_then() {
    let all = facts(1);
    let (_scene, layout) = repository(&all);
    let at = |kind: &str| all.iter().position(|record| record.kind == kind).unwrap() as u64 + 1;
    let look = |seq| RunReader::load_at(&layout, &settings(), None, seq).unwrap();
    let queued = look(at("car_formed")).status();
    assert_eq!(serde_json::to_value(queued.state).unwrap(), "running");
    let train = serde_json::to_value(&queued.train).unwrap();
    assert_eq!(train[0]["since"], "1970-01-01T00:00:10.000Z", "{train}");
    let one = &queued.tasks[0];
    assert_eq!((one.phase.as_str(), one.ended_at), ("merging", None));
    assert_eq!(
        one.agent_ended_at,
        Some(8_000),
        "the agent has ended although the task is not over"
    );
    let end = look(u64::MAX);
    assert_eq!(end.train_departures().unwrap().0[0].commit.as_deref(), Some(MERGE));
    let spans = end.timeline().unwrap().attempts;
    let phases: Vec<&str> = spans[0].segments.iter().map(|span| span.phase.as_str()).collect();
    assert_eq!(phases, ["preparing", "working", "verifying", "merging"]);
    assert!(spans[0].segments.iter().all(|span| span.to.is_some()), "{spans:?}");
    assert_eq!(spans[1].segments.last().unwrap().to, None);
}

#[test]
fn a_reader_goes_on_from_where_it_was() {
    let all = facts(3);
    let (_scene, layout) = repository(&all[..6]);
    let mut reader = RunReader::load(&layout, &settings(), None).unwrap();
    assert_eq!(reader.advance().unwrap(), 0);
    append(&layout, &all[6..]);
    assert_eq!(reader.advance().unwrap(), all.len() as u64 - 6);
    let fresh = RunReader::load(&layout, &settings(), None).unwrap();
    let tasks = |run: &RunReader| serde_json::to_value(run.status().tasks).unwrap();
    assert_eq!((tasks(&reader), reader.seq), (tasks(&fresh), fresh.seq));
    let questions = reader.questions();
    assert_eq!((questions.len(), questions[0].id.as_str()), (1, "Q1"));
    assert_eq!(reader.status().totals.questions, 1);
}
