//! The promises of a store as checks: every implementation runs the same ones.
//!
//! Meant for tests, hence a broken promise is a panic. The checks are part of the library so that stores in other
//! crates can be checked, too.

use std::sync::atomic::{AtomicBool, Ordering};

use std::time::Duration;

use crate::{
    Journal, JournalReader, JournalRecord, JournalRun, NewJournalRecord, StopReading, Store,
    StoreClaim, StoreError, StoreOwner, StoreOwnership,
};

/// One store under test.
pub trait StoreUnderTest {
    /// The store. Every call of its methods stands for another process that uses the same store.
    fn store(&self) -> &dyn Store;

    /// From now on, an append that carries a fact of type `kind` fails when it comes to that fact.
    fn refuse_kind(&self, kind: &str);
}

/// Runs every check, each on a store of its own from `make`, which must be empty.
///
/// # Panics
/// When a promise is broken.
pub fn run_all(make: &dyn Fn() -> Box<dyn StoreUnderTest>) {
    let checks: [fn(&dyn StoreUnderTest); 18] = [
        a_store_without_a_journal_says_so,
        an_empty_journal_has_nothing,
        places_count_from_one_without_a_gap_across_runs,
        every_field_comes_back_as_it_went_in,
        a_batch_is_kept_whole_or_not_at_all,
        a_writer_is_refused_once_another_took_over,
        an_epoch_that_was_never_given_is_refused,
        an_open_reader_sees_what_is_appended_later,
        reopening_keeps_everything,
        a_body_of_twenty_megabytes_is_kept,
        ten_thousand_facts_are_read_in_pages,
        runs_and_tasks_are_read_on_their_own,
        for_each_stops_when_told,
        a_reader_beside_a_writer_sees_whole_batches_in_order,
        a_store_has_one_owner_at_a_time,
        readers_and_writers_open_while_the_store_is_owned,
        waiting_ends_when_there_is_a_fact,
        a_sound_journal_shows_no_damage,
    ];
    for check in checks {
        check(&*make());
    }
}

/// A fact for tests.
#[must_use]
pub fn test_record(run: &str, kind: &str, task: Option<&str>, body: &str) -> NewJournalRecord {
    NewJournalRecord {
        at_ms: 1_700_000_000_000,
        run: run.to_owned(),
        kind: kind.to_owned(),
        task: task.map(str::to_owned),
        body: body.to_owned(),
    }
}

/// Takes over and returns the writer with its epoch.
fn open_owner(subject: &dyn StoreUnderTest) -> (Box<dyn Journal>, u64) {
    let mut writer = expect_ok(subject.store().open_journal());
    let epoch = expect_ok(writer.take_over());
    (writer, epoch)
}

fn open_reader(subject: &dyn StoreUnderTest) -> Box<dyn JournalReader> {
    expect_ok(subject.store().open_reader())
}

fn expect_ok<T>(result: Result<T, StoreError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the journal failed: {error}"),
    }
}

fn read_all(reader: &dyn JournalReader) -> Vec<JournalRecord> {
    expect_ok(reader.read_after(0, usize::MAX))
}

fn record_bodies(records: &[JournalRecord]) -> Vec<&str> {
    records.iter().map(|record| record.body.as_str()).collect()
}

fn a_store_without_a_journal_says_so(subject: &dyn StoreUnderTest) {
    let store = subject.store();
    assert!(!expect_ok(store.has_journal()));
    assert_eq!(expect_ok(store.owner()), None);
    match store.open_reader() {
        Err(StoreError::Absent { place }) => assert_eq!(place, store.place()),
        Err(error) => panic!("an absent journal is no failure: {error}"),
        Ok(_) => panic!("there is nothing to read"),
    }
    assert!(!expect_ok(store.has_journal()), "looking makes nothing");
    assert!(!store.name().is_empty() && store.place().ends_with(&store.name()));
    drop(expect_ok(store.open_journal()));
    assert!(expect_ok(store.has_journal()));
    assert_eq!(expect_ok(open_reader(subject).last_seq()), 0);
}

fn an_empty_journal_has_nothing(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    let reader = open_reader(subject);
    assert_eq!(expect_ok(writer.last_seq()), 0);
    assert_eq!(expect_ok(reader.last_seq()), 0);
    assert_eq!(read_all(&*reader), []);
    assert_eq!(expect_ok(reader.list_runs()), []);
    assert_eq!(expect_ok(reader.read_run("r", 0, 9)), []);
    assert_eq!(expect_ok(writer.append(epoch, &[])), 0, "an empty batch changes nothing");
    assert_eq!(expect_ok(reader.for_each(0, &mut |_| panic!("there is nothing to hand over"))), 0);
}

fn places_count_from_one_without_a_gap_across_runs(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    assert_eq!(expect_ok(writer.append(epoch, &[test_record("a", "k", None, "1")])), 1);
    let batch = [
        test_record("b", "k", None, "2"),
        test_record("a", "k", None, "3"),
        test_record("b", "k", None, "4"),
    ];
    assert_eq!(expect_ok(writer.append(epoch, &batch)), 4);
    assert_eq!(expect_ok(writer.append(epoch, &[])), 4);
    assert_eq!(expect_ok(writer.last_seq()), 4);
    let records = read_all(&*open_reader(subject));
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(record_bodies(&records), ["1", "2", "3", "4"]);
}

fn every_field_comes_back_as_it_went_in(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    let facts = [
        NewJournalRecord {
            at_ms: -1,
            run: "läuft-🚆".into(),
            kind: "task_landed".into(),
            task: Some("T-\u{202e}1".into()),
            body:
                "{\"type\":\"task_landed\",\"text\":\"Grüße, 你好, \u{0}, e\u{301}, \u{10ffff}\"}"
                    .into(),
        },
        NewJournalRecord {
            at_ms: i64::MAX,
            run: String::new(),
            kind: String::new(),
            task: None,
            body: String::new(),
        },
        NewJournalRecord {
            at_ms: i64::MIN,
            run: "'; DROP".into(),
            kind: "%".into(),
            task: Some(String::new()),
            body: "\n".into(),
        },
    ];
    expect_ok(writer.append(epoch, &facts));
    let expected: Vec<_> =
        facts.into_iter().zip(1..).map(|(fact, seq)| fact.with_seq(seq)).collect();
    assert_eq!(read_all(&*open_reader(subject)), expected);
    let reader = open_reader(subject);
    assert_eq!(expect_ok(reader.read_task("läuft-🚆", "T-\u{202e}1", 0, 9)), expected[..1]);
    assert_eq!(expect_ok(reader.read_task("'; DROP", "", 0, 9)), expected[2..]);
}

fn a_batch_is_kept_whole_or_not_at_all(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    expect_ok(writer.append(epoch, &[test_record("r", "good", None, "1")]));
    subject.refuse_kind("bad");
    let batch = [
        test_record("r", "good", None, "x"),
        test_record("r", "bad", None, "y"),
        test_record("r", "good", None, "z"),
    ];
    assert!(writer.append(epoch, &batch).is_err(), "the refused fact must be reported");
    assert_eq!(record_bodies(&read_all(&*open_reader(subject))), ["1"]);
    let (mut writer, epoch) = open_owner(subject);
    assert_eq!(
        expect_ok(writer.append(epoch, &[test_record("r", "good", None, "2")])),
        2,
        "a failed batch leaves no gap"
    );
    assert_eq!(record_bodies(&read_all(&*open_reader(subject))), ["1", "2"]);
}

fn a_writer_is_refused_once_another_took_over(subject: &dyn StoreUnderTest) {
    let (mut old, old_epoch) = open_owner(subject);
    expect_ok(old.append(old_epoch, &[test_record("r", "k", None, "old")]));
    let (mut new, new_epoch) = open_owner(subject);
    assert!(new_epoch > old_epoch);
    let fenced = Err(StoreError::Fenced { ours: old_epoch, current: new_epoch });
    assert_eq!(old.append(old_epoch, &[test_record("r", "k", None, "late")]), fenced);
    assert_eq!(old.append(old_epoch, &[]), fenced, "even an empty batch tells");
    assert_eq!(expect_ok(new.append(new_epoch, &[test_record("r", "k", None, "new")])), 2);
    assert_eq!(old.append(old_epoch, &[test_record("r", "k", None, "later")]), fenced);
    assert_eq!(record_bodies(&read_all(&*open_reader(subject))), ["old", "new"]);
    assert_eq!(expect_ok(old.take_over()), new_epoch + 1, "whoever takes over last is the writer");
    assert_eq!(expect_ok(old.append(new_epoch + 1, &[test_record("r", "k", None, "again")])), 3);
}

fn an_epoch_that_was_never_given_is_refused(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    for wrong in [0, epoch + 1, u64::MAX] {
        assert_eq!(
            writer.append(wrong, &[test_record("r", "k", None, "x")]),
            Err(StoreError::Fenced { ours: wrong, current: epoch })
        );
    }
    assert_eq!(expect_ok(writer.last_seq()), 0);
}

fn an_open_reader_sees_what_is_appended_later(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    let reader = open_reader(subject);
    for seq in 1..=20 {
        expect_ok(writer.append(epoch, &[test_record("r", "k", None, &seq.to_string())]));
        assert_eq!(expect_ok(reader.last_seq()), seq);
        assert_eq!(expect_ok(reader.read_after(seq - 1, 9))[0].body, seq.to_string());
    }
}

fn reopening_keeps_everything(subject: &dyn StoreUnderTest) {
    let mut epochs = Vec::new();
    for round in 1..=5_u64 {
        let (mut writer, epoch) = open_owner(subject);
        epochs.push(epoch);
        assert_eq!(expect_ok(writer.last_seq()), round - 1);
        assert_eq!(
            expect_ok(writer.append(epoch, &[test_record("r", "k", None, &round.to_string())])),
            round
        );
    }
    assert!(epochs.is_sorted_by(|a, b| a < b), "epochs only grow: {epochs:?}");
    assert_eq!(record_bodies(&read_all(&*open_reader(subject))), ["1", "2", "3", "4", "5"]);
}

fn a_body_of_twenty_megabytes_is_kept(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    let big = "0123456789abcdef".repeat(20 * 1024 * 1024 / 16);
    let batch = [
        test_record("r", "k", None, "a"),
        test_record("r", "k", None, &big),
        test_record("r", "k", None, "b"),
    ];
    expect_ok(writer.append(epoch, &batch));
    let mut seen = Vec::new();
    let last = expect_ok(open_reader(subject).for_each(0, &mut |record| {
        seen.push(record.body);
        Ok(())
    }));
    assert_eq!(last, 3);
    assert!(seen == ["a", &big, "b"], "a large body came back different");
}

fn ten_thousand_facts_are_read_in_pages(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    for batch in 0..100 {
        let facts: Vec<_> = (1..=100)
            .map(|n| test_record("r", "k", None, &(batch * 100 + n).to_string()))
            .collect();
        expect_ok(writer.append(epoch, &facts));
    }
    let reader = open_reader(subject);
    let mut seen = 0;
    for size in [1, 7, 999, 1000].into_iter().cycle() {
        let page = expect_ok(reader.read_after(seen, size));
        assert_eq!(page.len(), size.min(10_000 - usize::try_from(seen).unwrap_or(usize::MAX)));
        for record in &page {
            seen += 1;
            assert_eq!((record.seq, &record.body), (seen, &seen.to_string()));
        }
        if page.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 10_000);
    assert_eq!(expect_ok(reader.read_after(5, 0)), []);
    assert_eq!(expect_ok(reader.read_after(10_000, 5)), []);
    assert_eq!(expect_ok(reader.read_after(u64::MAX, 5)), []);
    let mut count = 0;
    assert_eq!(
        expect_ok(reader.for_each(2_500, &mut |record| {
            count += 1;
            assert_eq!(record.seq, 2_500 + count);
            Ok(())
        })),
        10_000
    );
    assert_eq!(count, 7_500);
}

fn runs_and_tasks_are_read_on_their_own(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    let mut facts = vec![
        test_record("z", "k", None, "1"),
        test_record("a", "k", Some("T-1"), "2"),
        test_record("z", "k", Some("T-1"), "3"),
        test_record("a", "k", Some("T-2"), "4"),
        test_record("a", "k", Some("T-1"), "5"),
        test_record("z", "k", Some("T-10"), "6"),
        test_record("a", "k", Some("T-1"), "7"),
    ];
    facts[1].at_ms = 42;
    expect_ok(writer.append(epoch, &facts));
    let reader = open_reader(subject);
    assert_eq!(record_bodies(&expect_ok(reader.read_run("a", 0, 99))), ["2", "4", "5", "7"]);
    assert_eq!(record_bodies(&expect_ok(reader.read_run("a", 2, 2))), ["4", "5"]);
    assert_eq!(record_bodies(&expect_ok(reader.read_run("z", 3, 99))), ["6"]);
    assert_eq!(expect_ok(reader.read_run("none", 0, 99)), []);
    assert_eq!(record_bodies(&expect_ok(reader.read_task("a", "T-1", 0, 99))), ["2", "5", "7"]);
    assert_eq!(record_bodies(&expect_ok(reader.read_task("a", "T-1", 2, 1))), ["5"]);
    assert_eq!(record_bodies(&expect_ok(reader.read_task("z", "T-1", 0, 99))), ["3"]);
    assert_eq!(expect_ok(reader.read_task("z", "T-2", 0, 99)), []);
    let row = |run: &str, first_seq, last_seq, first_at_ms| JournalRun {
        run: run.into(),
        first_seq,
        last_seq,
        first_at_ms,
    };
    assert_eq!(
        expect_ok(reader.list_runs()),
        [row("z", 1, 6, 1_700_000_000_000), row("a", 2, 7, 42)]
    );
}

fn for_each_stops_when_told(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    let facts: Vec<_> = (1..=9).map(|n| test_record("r", "k", None, &n.to_string())).collect();
    expect_ok(writer.append(epoch, &facts));
    let mut seen = Vec::new();
    let last = expect_ok(open_reader(subject).for_each(2, &mut |record| {
        seen.push(record.seq);
        if record.seq == 5 { Err(StopReading) } else { Ok(()) }
    }));
    assert_eq!((last, seen), (5, vec![3, 4, 5]));
    assert_eq!(expect_ok(open_reader(subject).for_each(9, &mut |_| Ok(()))), 9);
}

/// Each batch of three is one promise: a reader that sees one of them without the others has seen too early.
fn a_reader_beside_a_writer_sees_whole_batches_in_order(subject: &dyn StoreUnderTest) {
    const BATCHES: u64 = 300;
    let (mut writer, epoch) = open_owner(subject);
    let reader = open_reader(subject);
    let failed = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(move || {
            let mut seen = 0;
            let mut looks = 0_u64;
            while seen < BATCHES * 3 && !failed.load(Ordering::Relaxed) {
                let page = expect_ok(reader.read_after(seen, usize::MAX));
                assert_eq!(page.len() % 3, 0, "half a batch was seen");
                for record in page {
                    seen += 1;
                    assert_eq!((record.seq, record.body), (seen, seen.to_string()));
                }
                looks += 1;
            }
            looks
        });
        for batch in 0..BATCHES {
            let facts: Vec<_> = (1..=3)
                .map(|n| test_record("r", "k", None, &(batch * 3 + n).to_string()))
                .collect();
            if let Err(error) = writer.append(epoch, &facts) {
                // Otherwise the reader would wait for ever for what will not come.
                failed.store(true, Ordering::Relaxed);
                panic!("the journal failed beside a reader: {error}");
            }
        }
        assert!(watching.join().is_ok_and(|looks| looks > 0), "the reader failed");
    });
}

/// Claims the store, which must be free.
fn claim_store(subject: &dyn StoreUnderTest, note: &str) -> StoreOwnership {
    match expect_ok(subject.store().claim(note)) {
        StoreClaim::Owned(ownership) => ownership,
        StoreClaim::OwnedByAnother(owner) => panic!("the store is free, not owned by {owner:?}"),
    }
}

fn a_store_has_one_owner_at_a_time(subject: &dyn StoreUnderTest) {
    let store = subject.store();
    let first = StoreOwner { note: "{\"pid\":7,\"host\":\"hüben\"}".to_owned() };
    let ownership = claim_store(subject, &first.note);
    assert_eq!(expect_ok(store.owner()), Some(first.clone()));
    match expect_ok(store.claim("second")) {
        StoreClaim::OwnedByAnother(owner) => assert_eq!(owner, first),
        StoreClaim::Owned(_) => panic!("two owners"),
    }
    assert_eq!(expect_ok(store.owner()), Some(first), "a refused claim changes nothing");
    drop(ownership);
    assert_eq!(expect_ok(store.owner()), None);
    let ownership = claim_store(subject, "3");
    assert_eq!(expect_ok(store.owner()), Some(StoreOwner { note: "3".to_owned() }));
    drop(ownership);
}

/// Ownership decides who works with the journal; only the epoch decides whose facts are kept.
fn readers_and_writers_open_while_the_store_is_owned(subject: &dyn StoreUnderTest) {
    let ownership = claim_store(subject, "owner");
    let (mut owner, owner_epoch) = open_owner(subject);
    expect_ok(owner.append(owner_epoch, &[test_record("r", "k", None, "1")]));
    let mut same_owner = expect_ok(subject.store().open_journal());
    assert_eq!(
        expect_ok(same_owner.append(owner_epoch, &[test_record("r", "k", None, "2")])),
        2,
        "the epoch is the owner's, not the connection's"
    );
    drop(ownership);
    assert_eq!(expect_ok(owner.append(owner_epoch, &[test_record("r", "k", None, "3")])), 3);
    assert_eq!(record_bodies(&read_all(&*open_reader(subject))), ["1", "2", "3"]);
}

fn waiting_ends_when_there_is_a_fact(subject: &dyn StoreUnderTest) {
    const LONG: Duration = Duration::from_secs(600);
    let (mut writer, epoch) = open_owner(subject);
    let reader = open_reader(subject);
    assert!(!expect_ok(reader.wait_after(0, Duration::from_millis(1))), "there is no fact yet");
    expect_ok(writer.append(epoch, &[test_record("r", "k", None, "1")]));
    assert!(expect_ok(reader.wait_after(0, LONG)), "a fact that is there needs no waiting");
    assert!(!expect_ok(reader.wait_after(1, Duration::ZERO)));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || expect_ok(reader.wait_after(1, LONG)));
        expect_ok(writer.append(epoch, &[test_record("r", "k", None, "2")]));
        assert!(waiting.join().is_ok_and(|found| found), "the fact was not seen");
    });
}

fn a_sound_journal_shows_no_damage(subject: &dyn StoreUnderTest) {
    let (mut writer, epoch) = open_owner(subject);
    assert_eq!(expect_ok(open_reader(subject).find_damage()), Vec::<String>::new());
    expect_ok(writer.append(epoch, &[test_record("r", "k", None, "1")]));
    assert_eq!(expect_ok(open_reader(subject).find_damage()), Vec::<String>::new());
}
