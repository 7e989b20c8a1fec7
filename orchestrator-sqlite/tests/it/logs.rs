//! Which write-ahead log belongs to a file, wherever its writer was killed and whoever began it.

use std::fs;
use std::path::PathBuf;

use orchestrator_core::port::Store as _;
use orchestrator_core::testing::conformance::samples::{
    event, first_commit, next_commit, owner_id, owner_record, run_id,
};
use orchestrator_core::{Seq, Timestamp};
use orchestrator_sqlite::{OpenError, SqliteOptions, SqliteStore};
use rusqlite::Connection;
use rusqlite::backup::Backup;

use crate::child::Process;
use crate::support::{FORMAT_1, TempStore, assert_whole, run, stamped};

const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

fn log_of(fixture: &TempStore) -> PathBuf {
    fixture.dir().join("run.db-wal")
}

/// File and log as a kill of all who use them would leave them.
fn files(fixture: &TempStore) -> (Vec<u8>, Vec<u8>) {
    (fs::read(fixture.path()).expect("the file"), fs::read(log_of(fixture)).expect("the log"))
}

/// A file with a log beside it that nobody has open.
fn left(file: &[u8], log: &[u8]) -> TempStore {
    let fixture = TempStore::new();
    fs::write(fixture.path(), file).expect("the folder is ours");
    fs::write(log_of(&fixture), log).expect("the folder is ours");
    fixture
}

async fn open(fixture: &TempStore) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(fixture.path(), SqliteOptions::new()).await
}

async fn assert_refused(fixture: &TempStore) {
    let before = files(fixture);
    let err = open(fixture).await.expect_err("the log is of another file");
    assert!(matches!(err, OpenError::ForeignLog { .. }), "{err:?}");
    assert!(files(fixture) == before, "neither is touched");
}

/// Another run of the file, with an owner and an answer.
const OTHER: &str = "other";

async fn write_other(store: &SqliteStore, kind: &str, stamp: u64) {
    let name = run_id(OTHER);
    if store.header(&name).await.expect("header").is_none() {
        let mut first = first_commit(OTHER, "create");
        first.records.owners = vec![owner_record("o", 1)];
        store.commit(&name, &first).await.expect("commit");
    }
    match kind {
        "touch" => store.touch(&name, &owner_id("o"), Timestamp(stamp)).await.expect("touch"),
        "prune" => store.prune(&name, Seq(9)).await.expect("prune"),
        _ => drop(commits(store, Seq(stamp), 1).await),
    }
}

async fn commits(store: &SqliteStore, from: Seq, count: u64) -> Seq {
    let mut at = from;
    for _ in 0..count {
        at = store.commit(&run(), &stamped(at)).await.expect("commit");
    }
    at
}

/// What is in the log becomes the file's, so that what is written next begins a log.
fn fold(fixture: &TempStore) {
    fixture.shell().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("it is folded");
}

async fn store_backup(store: &SqliteStore, fixture: &TempStore, name: &str) -> Vec<u8> {
    let to = fixture.dir().join(name);
    store.backup(&to).await.expect("backup");
    fs::read(to).expect("the copy")
}

/// Copies as the shell's `.backup` does, which gives the copy no mark of its own.
fn shell_backup(fixture: &TempStore) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder for the copy");
    let to = dir.path().join("copy");
    let mut copy = Connection::open(&to).expect("the copy opens");
    let shell = fixture.shell();
    Backup::new(&shell, &mut copy).and_then(|backup| backup.step(-1)).expect("it is copied");
    copy.close().expect("it is closed");
    fs::read(to).expect("the copy")
}

fn frame_bytes(log: &[u8]) -> usize {
    FRAME_HEADER + u32::from_be_bytes(log[8..12].try_into().expect("four bytes")) as usize
}

/// The pages of a log, each with its number.
fn frames(log: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    log[LOG_HEADER..].chunks_exact(frame_bytes(log)).map(|frame| {
        (
            u32::from_be_bytes(frame[..4].try_into().expect("four bytes")) as usize,
            &frame[FRAME_HEADER..],
        )
    })
}

/// Whether a transaction ends within the frames of a log.
fn ends_in(log: &[u8], end: usize) -> bool {
    log[LOG_HEADER..end].chunks_exact(frame_bytes(log)).any(|frame| frame[4..8] != [0; 4])
}

/// Each kind of write may be the first of a log, and be killed after any of the pages that it writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_cut_off_anywhere_belongs_to_its_own_file_and_to_no_older_one() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = commits(&store, Seq(0), 10).await;
    for kind in ["commit", "touch", "prune"] {
        let older = store_backup(&store, &fixture, kind).await;
        let shells = shell_backup(&fixture);
        at = commits(&store, at, 3).await;
        fold(&fixture);
        write_other(&store, kind, at.0).await;
        at = store.header(&run()).await.unwrap().unwrap().0;
        at = commits(&store, at, 2).await;
        let (file, log) = files(&fixture);
        let mut refused = 0;
        for end in (LOG_HEADER..=log.len()).step_by(frame_bytes(&log)) {
            let own = left(&file, &log[..end]);
            assert_whole(&open(&own).await.unwrap()).await;
            for older in [&older, &shells] {
                let beside = left(older, &log[..end]);
                if ends_in(&log, end) {
                    assert_refused(&beside).await;
                    refused += 1;
                } else {
                    assert_whole(&open(&beside).await.unwrap()).await;
                }
            }
        }
        assert!(refused > 2, "{kind}: {refused}");
    }
}

/// Such a copy has the mark that the file had at that moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_the_shell_made_belongs_to_the_log_that_goes_on_from_it_and_to_no_later_one() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = Seq(0);
    let mut copies = Vec::new();
    for _ in 0..6 {
        at = commits(&store, at, 1).await;
        copies.push(shell_backup(&fixture));
        write_other(&store, "touch", 10 + at.0).await;
        copies.push(shell_backup(&fixture));
    }
    let (_, log) = files(&fixture);
    for copy in &copies {
        let beside = left(copy, &log);
        let whole = assert_whole(&open(&beside).await.unwrap()).await;
        assert_eq!(whole, at, "with what came after it, a copy is the file");
    }
    fold(&fixture);
    let last = copies.pop().unwrap();
    at = commits(&store, at, 2).await;
    let (_, log) = files(&fixture);
    for copy in &copies {
        assert_refused(&left(copy, &log)).await;
    }
    let beside = left(&last, &log);
    assert_eq!(assert_whole(&open(&beside).await.unwrap()).await, at);
}

/// The write that another program begins a log with, by the table that it changes.
const BY_SHELL: [&str; 8] = [
    "UPDATE tasks SET spent_micros = spent_micros + 1",
    "UPDATE runs SET spent_micros = spent_micros + 1",
    "INSERT INTO plans (run, position, hash, tasks) SELECT run, 99, 'h', 0 FROM runs",
    "DELETE FROM tasks",
    "DELETE FROM events",
    "INSERT INTO pools (run, name, permits) SELECT run, 'shells', 1 FROM runs",
    "UPDATE commands SET seq = 0",
    "UPDATE owners SET ended = 1",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_another_program_began_belongs_to_its_own_file_and_to_no_older_one() {
    for sql in BY_SHELL {
        let fixture = TempStore::new();
        let store = fixture.sqlite().await;
        let at = commits(&store, Seq(0), 3).await;
        let (older, shells) = (store_backup(&store, &fixture, "c").await, shell_backup(&fixture));
        commits(&store, at, 3).await;
        store.close().await;
        let shell = fixture.shell();
        assert!(shell.execute(sql, []).unwrap() > 0, "{sql}");
        shell.execute_batch("UPDATE blobs SET bytes = bytes").unwrap();
        let (file, log) = files(&fixture);
        open(&left(&file, &log)).await.expect(sql);
        assert_refused(&left(&older, &log)).await;
        assert_refused(&left(&shells, &log)).await;

        // And when the store goes on in the log that the shell began.
        let store = fixture.sqlite().await;
        store.commit(&run_id("new"), &first_commit("new", "create")).await.unwrap();
        let (file, log) = files(&fixture);
        let beside = left(&file, &log);
        let own = open(&beside).await.expect(sql);
        assert!(own.header(&run_id("new")).await.unwrap().is_some());
        assert_refused(&left(&older, &log)).await;
        assert_refused(&left(&shells, &log)).await;

        // A copy of what the shell left is no older than that.
        shell.execute_batch("UPDATE owners SET ended = 0").unwrap();
        let between = shell_backup(&fixture);
        write_other(&store, "touch", 20).await;
        fold(&fixture);
        write_other(&store, "touch", 30).await;
        let (_, log) = files(&fixture);
        assert_refused(&left(&between, &log)).await;
    }
}

/// A process that dies while it folds a log leaves some pages of the log in the file, in any state
/// that the log has them in.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_into_which_its_log_was_folded_in_part_belongs_to_it() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let at = commits(&store, Seq(0), 5).await;
    fold(&fixture);
    let at = commits(&store, at, 1).await;
    fixture.shell().execute_batch("UPDATE owners SET ended = 0").unwrap();
    let at = commits(&store, at, 4).await;
    let (mut file, log) = files(&fixture);
    let page_bytes = frame_bytes(&log) - FRAME_HEADER;
    for (number, page) in frames(&log) {
        let from = (number - 1) * page_bytes;
        file.resize(file.len().max(from + page_bytes), 0);
        file[from..][..page_bytes].copy_from_slice(page);
        let beside = left(&file, &log);
        let opened = open(&beside).await.expect("it is its own log");
        assert_eq!(assert_whole(&opened).await, at);
    }
}

/// The log in which a file was made, or brought to this format, is not folded yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_belongs_to_the_log_in_which_it_was_made_or_migrated() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let (empty, made) = files(&fixture);
    let at = commits(&store, Seq(0), 3).await;
    let (still_empty, first) = files(&fixture);
    assert!(empty == still_empty);
    for log in [&made, &first] {
        open(&left(&empty, log)).await.unwrap();
    }
    fold(&fixture);
    commits(&store, at, 2).await;
    let (_, later) = files(&fixture);
    assert_refused(&left(&empty, &later)).await;

    let format_3 = include_bytes!("../data/format-3.db");
    for old in [FORMAT_1, &format_3[..]] {
        let fixture = TempStore::new();
        fs::write(fixture.path(), old).unwrap();
        let store = fixture.sqlite().await;
        let (file, migrated) = files(&fixture);
        let (name, create) = (run_id("new"), first_commit("new", "create"));
        let at = store.commit(&name, &create).await.unwrap();
        let (_, first) = files(&fixture);
        for log in [&migrated, &first] {
            let beside = left(&file, log);
            let opened = open(&beside).await.unwrap();
            assert_eq!(opened.runs().await.unwrap().len(), if log == &first { 3 } else { 2 });
        }
        fold(&fixture);
        store.commit(&name, &next_commit(at)).await.unwrap();
        let (_, later) = files(&fixture);
        // Format 1 had no marks.
        if old != FORMAT_1 {
            assert_refused(&left(old, &later)).await;
        }
    }
}

/// While logs begin and end all the time, nobody who opens the file is told that they are foreign.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_others_write_to_is_opened_however_often_its_log_begins_anew() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    commits(&store, Seq(0), 1).await;
    let writers: Vec<_> =
        (0..2).map(|_| Process::start("begin logs for ever", &fixture.path())).collect();
    for _ in 0..60 {
        let other = open(&fixture).await.expect("it is its own log");
        assert!(other.header(&run()).await.unwrap().is_some());
    }
    drop(writers);
    assert_whole(&open(&fixture).await.unwrap()).await;
}

/// Whatever it says to that file, it is no log of this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_another_database_is_refused() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    commits(&store, Seq(0), 5).await;
    store.close().await;
    let file = fs::read(fixture.path()).unwrap();
    for (before, after) in [
        ("", "CREATE TABLE notes (text)"),
        ("CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('a')"),
        ("CREATE TABLE notes (text)", "INSERT INTO notes VALUES (zeroblob(500000))"),
    ] {
        let other = TempStore::new();
        let notes = other.shell();
        notes.execute_batch("PRAGMA journal_mode = WAL").unwrap();
        notes.execute_batch(before).unwrap();
        notes.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        notes.execute_batch(after).unwrap();
        assert_refused(&left(&file, &fs::read(log_of(&other)).unwrap())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_part_a_file_from_its_log_by_hand() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    commits(&store, Seq(0), 2).await;
    let shell = fixture.shell();
    for sql in [
        "UPDATE file SET mark = 5",
        "DELETE FROM file",
        "INSERT OR REPLACE INTO file (one, mark, former_mark, by_others) VALUES (1, 5, 5, 0)",
    ] {
        let refused = shell.execute(sql, []).expect_err(sql);
        assert!(refused.to_string().contains("the orchestrator keeps this row"), "{refused}");
    }
    let more = commits(&store, Seq(2), 1).await;
    let (file, log) = files(&fixture);
    let beside = left(&file, &log);
    assert_eq!(assert_whole(&open(&beside).await.unwrap()).await, more);
}

/// How many events a commit brings that fills a log soon.
const MANY: u64 = 200;

/// Commits and folds for ever: each log is short.
pub(crate) async fn begin_logs(store: &SqliteStore, path: &std::path::Path) {
    let shell = Connection::open(path).expect("the shell opens");
    let name = run_id(&format!("run {}", std::process::id()));
    let mut at = store.commit(&name, &first_commit(name.as_str(), "create")).await.expect("commit");
    for number in 0.. {
        let mut next = next_commit(at);
        next.commands.clear();
        next.events = (0..MANY).map(event).collect();
        at = store.commit(&name, &next).await.expect("commit");
        if number % 3 == 0 {
            // Others may hold it just now.
            drop(shell.execute_batch("PRAGMA wal_checkpoint(RESTART)"));
        }
    }
}
