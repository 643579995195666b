#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;

use super::schema::{self, MIGRATIONS};
use super::{SqliteJournal, SqliteJournalReader, SqliteStore, open};
use crate::conformance::{self, StoreUnderTest, test_record};
use crate::{Journal, JournalReader, NewJournalRecord, Store, StoreClaim, StoreError, StoreOwner};

struct Scratch {
    directory: TempDir,
    store: SqliteStore,
}

impl Scratch {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        let store = SqliteStore::new(path("journal.db"), path("engine.lock"));
        Self { directory, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("journal.db")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.directory.path().join(format!("journal.db{suffix}"))
    }

    /// The names in the directory, sorted.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A closed journal of `count` facts.
    fn holding(count: usize) -> Self {
        let scratch = Self::new();
        let (mut journal, epoch) = scratch.take_over();
        journal.append(epoch, &facts(count)).unwrap();
        scratch
    }

    fn take_over(&self) -> (SqliteJournal, u64) {
        let mut journal = SqliteJournal::open(self.path()).unwrap();
        let epoch = journal.take_over().unwrap();
        (journal, epoch)
    }

    /// Runs SQL behind the journal's back.
    fn meddle(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }
}

impl StoreUnderTest for Scratch {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn refuse_kind(&self, kind: &str) {
        self.meddle(&format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON facts WHEN NEW.kind = '{kind}'
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ));
    }
}

fn facts(count: usize) -> Vec<NewJournalRecord> {
    (1..=count)
        .map(|n| {
            test_record("r", "k", Some("T-1"), &format!("{{\"n\":{n},\"pad\":\"{:200}\"}}", ""))
        })
        .collect()
}

fn is_corrupt<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Corrupt { .. }))
}

/// Neither side opens the file, and it stays as it is, alone.
fn check_refused(scratch: &Scratch) {
    let before = fs::read(scratch.path()).unwrap();
    let names = scratch.names();
    assert!(is_corrupt(&SqliteJournal::open(scratch.path())));
    assert!(is_corrupt(&SqliteJournalReader::open(scratch.path())));
    assert!(fs::read(scratch.path()).unwrap() == before, "the file was changed");
    assert_eq!(scratch.names(), names);
}

#[test]
fn the_store_in_a_file_keeps_every_promise() {
    conformance::run_all(&|| Box::new(Scratch::new()));
}

#[test]
fn reading_where_nothing_is_says_absent_and_makes_nothing() {
    let scratch = Scratch::new();
    let absent = SqliteJournalReader::open(scratch.path()).unwrap_err();
    assert_eq!(absent, StoreError::Absent { place: scratch.path().display().to_string() });
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn files_that_are_no_databases_are_refused_and_left_alone() {
    for content in [&b""[..], b"x", b"hello, this is a text\n", &[0; 8192], b"SQLite format 3\0"] {
        let scratch = Scratch::new();
        fs::write(scratch.path(), content).unwrap();
        check_refused(&scratch);
    }
}

#[test]
fn databases_of_other_programs_are_refused_and_left_alone() {
    for mode in ["DELETE", "WAL"] {
        let scratch = Scratch::new();
        scratch.meddle(&format!(
            "PRAGMA journal_mode={mode}; CREATE TABLE facts (seq INTEGER PRIMARY KEY);
             PRAGMA user_version=1; PRAGMA application_id=7;"
        ));
        check_refused(&scratch);
    }
}

#[test]
fn a_directory_in_its_place_is_refused() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path()).unwrap();
    assert!(is_corrupt(&SqliteJournal::open(scratch.path())));
    assert!(is_corrupt(&SqliteJournalReader::open(scratch.path())));
}

#[test]
fn a_truncated_journal_is_refused_and_left_alone() {
    let scratch = Scratch::holding(1000);
    let length = fs::metadata(scratch.path()).unwrap().len();
    fs::OpenOptions::new().write(true).open(scratch.path()).unwrap().set_len(length / 2).unwrap();
    let before = fs::read(scratch.path()).unwrap();
    assert!(is_corrupt(&SqliteJournal::open(scratch.path())));
    assert!(fs::read(scratch.path()).unwrap() == before, "the file was changed");
}

#[test]
fn damaged_pages_are_reported_when_read_and_never_written_to() {
    let scratch = Scratch::holding(1000);
    let length = fs::metadata(scratch.path()).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(scratch.path()).unwrap();
    let mut at = 4096;
    while at < length {
        file.write_all_at(&[0xa5; 2048], at).unwrap();
        at += 4096;
    }
    drop(file);
    let before = fs::read(scratch.path()).unwrap();
    assert!(is_corrupt(&SqliteJournal::open(scratch.path())));
    let read =
        SqliteJournalReader::open(scratch.path()).and_then(|reader| reader.read_after(0, 2000));
    assert!(is_corrupt(&read), "{read:?}");
    assert!(fs::read(scratch.path()).unwrap() == before, "the file was changed");
}

#[test]
fn a_journal_that_lost_its_newest_facts_is_refused() {
    let scratch = Scratch::holding(10);
    scratch.meddle("DROP TRIGGER facts_are_never_removed; DELETE FROM facts WHERE seq > 8;");
    let error = SqliteJournal::open(scratch.path()).unwrap_err();
    assert!(
        error.to_string().contains("should hold the facts 1 to 10 and holds 1 to 8"),
        "{error}"
    );
}

#[test]
fn a_hole_in_the_middle_is_seen_by_readers_and_by_the_full_check() {
    let scratch = Scratch::holding(10);
    let sound = SqliteJournalReader::open(scratch.path()).unwrap().find_damage().unwrap();
    assert_eq!(sound, Vec::<String>::new());
    scratch.meddle("DROP TRIGGER facts_are_never_removed; DELETE FROM facts WHERE seq = 5;");
    let reader = SqliteJournalReader::open(scratch.path()).unwrap();
    let error = reader.for_each(0, &mut |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("fact 5 is missing, 6 follows"), "{error}");
    assert!(is_corrupt(&reader.read_after(4, 1)));
    assert_eq!(reader.read_after(5, 100).unwrap().len(), 5);
    assert_eq!(
        reader.find_damage().unwrap(),
        ["facts 1 to 10 should be there, found 9 facts between 1 and 10"]
    );
}

#[test]
fn facts_can_be_neither_changed_nor_removed() {
    let scratch = Scratch::holding(3);
    let conn = Connection::open(scratch.path()).unwrap();
    assert!(conn.execute("UPDATE facts SET body = '' WHERE seq = 1", []).is_err());
    assert!(conn.execute("DELETE FROM facts", []).is_err());
    let count: i64 = conn.query_row("SELECT count(*) FROM facts", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 3);
}

#[test]
fn a_newer_schema_asks_for_an_upgrade_of_the_program() {
    let scratch = Scratch::holding(3);
    scratch.meddle("PRAGMA user_version=7");
    let newer =
        StoreError::Newer { place: scratch.path().display().to_string(), found: 7, known: 1 };
    assert_eq!(SqliteJournal::open(scratch.path()).unwrap_err(), newer);
    assert_eq!(SqliteJournalReader::open(scratch.path()).unwrap_err(), newer);
    assert!(newer.to_string().contains("upgrade mainstem"));
}

#[test]
fn a_newer_schema_that_is_still_in_the_wal_is_seen() {
    let scratch = Scratch::holding(3);
    let conn = Connection::open(scratch.path()).unwrap();
    conn.execute_batch("PRAGMA user_version=7").unwrap();
    assert!(fs::metadata(scratch.beside("-wal")).unwrap().len() > 0);
    assert!(matches!(SqliteJournal::open(scratch.path()), Err(StoreError::Newer { found: 7, .. })));
    assert!(matches!(
        SqliteJournalReader::open(scratch.path()),
        Err(StoreError::Newer { found: 7, .. })
    ));
}

#[test]
fn an_older_schema_is_upgraded_after_a_backup() {
    const STEPS: &[&str] = &[MIGRATIONS[0], "ALTER TABLE facts ADD COLUMN note TEXT;"];
    let scratch = Scratch::holding(3);
    let older = SqliteJournalReader::open_with(&scratch.path(), STEPS).unwrap_err();
    assert_eq!(
        older,
        StoreError::Older { place: scratch.path().display().to_string(), found: 1, known: 2 }
    );

    let mut journal = SqliteJournal::open_with(&scratch.path(), STEPS).unwrap();
    let epoch = journal.take_over().unwrap();
    assert_eq!(journal.append(epoch, &facts(1)), Ok(4));
    let reader = SqliteJournalReader::open_with(&scratch.path(), STEPS).unwrap();
    assert_eq!(reader.last_seq(), Ok(4));

    let backup = SqliteJournalReader::open(open::backup_path(&scratch.path(), 1)).unwrap();
    assert_eq!(backup.last_seq(), Ok(3));
    assert_eq!(backup.read_after(0, 9).unwrap(), reader.read_after(0, 3).unwrap());
}

#[test]
fn an_upgrade_that_fails_changes_nothing_and_can_be_tried_again() {
    let scratch = Scratch::holding(3);
    let broken = [MIGRATIONS[0], "CREATE TABLE half (x) STRICT; nonsense"];
    for _ in 0..2 {
        assert!(SqliteJournal::open_with(&scratch.path(), &broken).is_err());
    }
    let (mut journal, epoch) = scratch.take_over();
    assert_eq!(journal.append(epoch, &facts(1)), Ok(4));
    let conn = Connection::open(scratch.path()).unwrap();
    assert_eq!(schema::stored_version(&conn).unwrap(), 1);
    assert!(conn.prepare("SELECT * FROM half").is_err());
}

#[test]
fn a_full_disk_refuses_the_batch_and_writing_goes_on_once_there_is_space() {
    let scratch = Scratch::new();
    let mut journal = SqliteJournal::open(scratch.path()).unwrap();
    let epoch = journal.take_over().unwrap();
    journal.append(epoch, &facts(10)).unwrap();
    // From here on this connection finds no room for more pages, as on a full disk.
    let limited = |pages: u32| {
        let conn = Connection::open(scratch.path()).unwrap();
        let now: u32 = conn.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        now + pages
    };
    journal.limit_pages(limited(0));
    assert_eq!(
        journal.append(epoch, &facts(1000)),
        Err(StoreError::Full { place: scratch.path().display().to_string() })
    );
    assert_eq!(scratch.store.open_reader().unwrap().last_seq(), Ok(10));
    journal.limit_pages(limited(1_000_000));
    assert_eq!(journal.append(epoch, &facts(1)), Ok(11));
}

#[test]
fn a_reader_works_when_the_side_files_are_gone() {
    let scratch = Scratch::holding(5);
    assert_eq!(scratch.names(), ["journal.db"], "closing leaves one file");
    assert_eq!(scratch.store.open_reader().unwrap().last_seq(), Ok(5));
}

#[test]
fn a_reader_finds_the_facts_a_killed_writer_left_in_the_wal() {
    let (scratch, killed) = (Scratch::new(), Scratch::new());
    let (mut journal, epoch) = scratch.take_over();
    journal.append(epoch, &facts(5)).unwrap();
    // What a kill and a reboot leave: the file and its WAL, but no shared memory.
    fs::copy(scratch.path(), killed.path()).unwrap();
    fs::copy(scratch.beside("-wal"), killed.beside("-wal")).unwrap();
    assert_eq!(killed.store.open_reader().unwrap().last_seq(), Ok(5));
    assert_eq!(killed.take_over().0.last_seq(), Ok(5));
}

#[test]
fn a_journal_at_an_odd_path_works() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("a b%20?mode=x#ü/file:journal.db");
    let mut journal = SqliteJournal::open(&path).unwrap();
    let epoch = journal.take_over().unwrap();
    journal.append(epoch, &facts(2)).unwrap();
    assert_eq!(journal.reader().unwrap().last_seq(), Ok(2));
    drop(journal);
    assert_eq!(SqliteJournalReader::open(&path).unwrap().last_seq(), Ok(2));
}

#[test]
fn a_directory_that_cannot_be_written_can_still_be_read() {
    let scratch = Scratch::holding(5);
    let directory = scratch.directory.path();
    let set_mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o555);
    let last = SqliteJournalReader::open(scratch.path()).and_then(|reader| reader.last_seq());
    set_mode(0o755);
    assert_eq!(last, Ok(5));
}

#[test]
fn a_backup_taken_beside_a_writer_is_a_sound_journal() {
    let scratch = Scratch::new();
    let (mut journal, epoch) = scratch.take_over();
    journal.append(epoch, &facts(50)).unwrap();
    let copy = scratch.beside(".copy");
    let reader = SqliteJournalReader::open(scratch.path()).unwrap();
    reader.backup_to(&copy).unwrap();
    journal.append(epoch, &facts(1)).unwrap();

    let backup = SqliteJournalReader::open(&copy).unwrap();
    assert_eq!(backup.find_damage().unwrap(), Vec::<String>::new());
    assert_eq!(backup.read_after(0, 99).unwrap(), reader.read_after(0, 50).unwrap());
    assert_eq!(SqliteJournal::open(&copy).unwrap().epoch(), Ok(epoch));
    let again = journal.backup_to(&copy).unwrap_err();
    assert!(again.to_string().contains("choose another name"), "{again}");
}

#[test]
fn many_first_openings_at_once_agree_on_one_journal() {
    let scratch = Scratch::new();
    let path = &scratch.path();
    let epochs = std::thread::scope(|scope| {
        let openings: Vec<_> = (0..8)
            .map(|_| scope.spawn(move || SqliteJournal::open(path).unwrap().take_over().unwrap()))
            .collect();
        let mut epochs: Vec<_> =
            openings.into_iter().map(|opening| opening.join().unwrap()).collect();
        epochs.sort_unstable();
        epochs
    });
    assert_eq!(epochs, [1, 2, 3, 4, 5, 6, 7, 8]);
    drop(SqliteJournal::open(path).unwrap());
    assert_eq!(scratch.names(), ["journal.db"]);
}

#[test]
fn half_made_files_of_killed_creations_are_swept_up() {
    let scratch = Scratch::new();
    fs::write(scratch.beside(".new-1-0"), "half").unwrap();
    fs::write(scratch.beside(".new-1-0-journal"), "half").unwrap();
    fs::write(scratch.beside(".newspaper"), "not ours").unwrap();
    drop(SqliteJournal::open(scratch.path()).unwrap());
    assert_eq!(scratch.names(), ["journal.db", "journal.db.newspaper"]);
}

#[test]
fn a_writer_syncs_every_commit_and_maps_nothing() {
    let scratch = Scratch::new();
    let (journal, _) = scratch.take_over();
    let setting = |name: &str| journal.setting(name);
    assert_eq!(setting("journal_mode"), "wal");
    assert_eq!(setting("synchronous"), "2");
    assert_eq!(setting("application_id"), schema::APPLICATION_ID.to_string());
    assert_eq!(setting("busy_timeout"), "10000");
    assert!(["", "0"].contains(&setting("mmap_size").as_str()));
}

#[test]
fn a_body_beyond_the_limit_is_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let (mut journal, epoch) = scratch.take_over();
    let huge = " ".repeat(crate::BODY_BYTES_MAX + 1);
    let refused = journal
        .append(epoch, &[test_record("r", "k", None, "1"), test_record("r", "huge", None, &huge)]);
    assert!(matches!(refused, Err(StoreError::TooBig { kind, .. }) if kind == "huge"));
    assert_eq!(journal.append(epoch, &facts(1)), Ok(1));
}

impl SqliteJournal {
    fn limit_pages(&self, pages: u32) {
        self.connection().pragma_update(None, "max_page_count", pages).unwrap();
    }

    fn setting(&self, name: &str) -> String {
        let value = self.connection().query_row(&format!("PRAGMA {name}"), [], |row| {
            row.get::<_, rusqlite::types::Value>(0)
        });
        match value {
            Ok(rusqlite::types::Value::Integer(number)) => number.to_string(),
            Ok(rusqlite::types::Value::Text(text)) => text,
            Err(rusqlite::Error::QueryReturnedNoRows) => String::new(),
            other => panic!("unexpected: {other:?}"),
        }
    }
}

/// The path is only used to make the point that relative paths work, too.
#[test]
fn a_relative_path_means_the_same_file_for_good() {
    let scratch = Scratch::holding(2);
    let here = std::env::current_dir().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| Path::new("..")).collect();
    let relative = up.join(scratch.path().strip_prefix("/").unwrap());
    let reader = SqliteJournalReader::open(&relative).unwrap();
    assert!(reader.path().is_absolute());
    assert_eq!(reader.last_seq(), Ok(2));
}

#[test]
fn a_lock_in_a_missing_folder_is_an_error_and_not_somebody_elses() {
    let scratch = Scratch::new();
    let lock = scratch.directory.path().join("no/owner");
    let error = SqliteStore::new(scratch.path(), &lock).claim("").unwrap_err();
    assert!(error.to_string().contains("no/owner"), "{error}");
}

#[test]
fn an_owner_that_wrote_nonsense_still_owns() {
    let scratch = Scratch::new();
    let StoreClaim::Owned(ownership) = scratch.store.claim("{}").unwrap() else {
        panic!("a fresh store is free");
    };
    fs::write(scratch.directory.path().join("engine.lock"), b"\xff{").unwrap();
    assert_eq!(scratch.store.owner().unwrap(), Some(StoreOwner::default()));
    drop(ownership);
    assert_eq!(scratch.store.owner().unwrap(), None);
}
