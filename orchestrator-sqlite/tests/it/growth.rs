//! How large the write-ahead log gets.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use orchestrator_core::port::{CommitError, Store as _, StoreError};
use orchestrator_core::testing::conformance::samples::owner_id;
use orchestrator_core::{Seq, Timestamp};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

use crate::support::{PATIENCE, TempStore, assert_whole, run, stamped};

const MIB: u64 = 1024 * 1024;
/// More than one of these commits brings.
const COMMIT_BYTES: u64 = MIB / 8;

async fn open(fixture: &TempStore, log_bytes_max: u64, busy_max: Duration) -> SqliteStore {
    let options = SqliteOptions::new().with_log_bytes_max(log_bytes_max).with_busy_max(busy_max);
    SqliteStore::open(fixture.path(), options).await.expect("the store opens")
}

fn log_bytes(fixture: &TempStore) -> u64 {
    fs::metadata(fixture.dir().join("run.db-wal")).map_or(0, |log| log.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_never_ends_stops_commits_at_the_limit_and_costs_nothing_when_it_ends() {
    let fixture = TempStore::new();
    let store = open(&fixture, MIB, Duration::from_millis(200)).await;
    let mut at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let reader = fixture.shell();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
    let full = loop {
        match store.commit(&run(), &stamped(at)).await {
            Ok(seq) => at = seq,
            Err(err) => break err,
        }
        assert!(log_bytes(&fixture) <= MIB + COMMIT_BYTES, "{}", log_bytes(&fixture));
    };
    let CommitError::Full(cause) = full else { panic!("{full:?}") };
    assert!(cause.to_string().contains("run.db-wal"), "{cause}");
    assert!(cause.to_string().contains("end that program"), "{cause}");
    assert_eq!(assert_whole(&store).await, at, "nothing is lost");

    reader.execute_batch("ROLLBACK").unwrap();
    at = store.commit(&run(), &stamped(at)).await.unwrap();
    assert!(log_bytes(&fixture) <= MIB / 4 + COMMIT_BYTES, "{}", log_bytes(&fixture));
    assert_eq!(assert_whole(&store).await, at);
}

/// Commits are not all that is written. Small writes go a little further than others, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn touches_pruning_and_repairs_are_held_to_the_limit_too() {
    let fixture = TempStore::new();
    let store = open(&fixture, MIB, Duration::from_millis(20)).await;
    let mut at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let reader = fixture.shell();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
    while let Ok(seq) = store.commit(&run(), &stamped(at)).await {
        at = seq;
    }
    for refused in [store.prune(&run(), at).await, store.repair(&run()).await.map(drop)] {
        let Err(StoreError::Busy(cause)) = refused else { panic!("{refused:?}") };
        assert!(cause.to_string().contains("end that program"), "{cause}");
    }
    let mut touches = 0;
    let refused = loop {
        touches += 1;
        let now = Timestamp(1_000_000 + touches);
        if let Err(err) = store.touch(&run(), &owner_id("o"), now).await {
            break err;
        }
        assert!(log_bytes(&fixture) <= MIB + MIB / 8, "{}", log_bytes(&fixture));
    };
    assert!(touches > 5, "leases live on for a while: {touches}");
    assert!(
        matches!(&refused, StoreError::Busy(cause) if cause.to_string().contains("run.db-wal"))
    );

    reader.execute_batch("ROLLBACK").unwrap();
    store.touch(&run(), &owner_id("o"), Timestamp(2_000_000)).await.unwrap();
    store.prune(&run(), Seq(1)).await.unwrap();
    at = store.commit(&run(), &stamped(at)).await.unwrap();
    let loaded = store.load(&run()).await.unwrap().unwrap();
    assert_eq!(loaded.seq, at);
    assert_eq!(loaded.owners.first().map(|owner| owner.touched_at), Some(Timestamp(2_000_000)));
}

/// Readers of which each begins before the last one ends keep SQLite by itself from ever beginning
/// the log anew.
#[tokio::test(flavor = "multi_thread")]
async fn readers_that_take_turns_without_a_break_do_not_make_the_log_grow() {
    let fixture = TempStore::new();
    let store = open(&fixture, 4 * MIB, PATIENCE).await;
    let mut at = store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    let (is_over, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let readers: Vec<_> = (0..2)
        .map(|number| {
            let (path, is_over, reads) = (fixture.path(), Arc::clone(&is_over), Arc::clone(&reads));
            thread::spawn(move || {
                read_for_ever(&Connection::open(path).unwrap(), number, &is_over, &reads);
            })
        })
        .collect();
    let mut largest = 0;
    let mut written = 0;
    // Until they have taken turns for a while, however seldom it is theirs on a busy machine.
    while written < 24 * MIB || reads.load(Ordering::SeqCst) < 5 {
        at = store.commit(&run(), &stamped(at)).await.unwrap();
        written += COMMIT_BYTES / 2;
        largest = largest.max(log_bytes(&fixture));
    }
    is_over.store(true, Ordering::SeqCst);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert!(largest <= 4 * MIB + COMMIT_BYTES, "the log had {largest} bytes");
    assert_eq!(assert_whole(&store).await, at);
}

/// Holds one state for a while, again and again; the second of two begins in the middle of the
/// first.
fn read_for_ever(conn: &Connection, number: u32, is_over: &AtomicBool, reads: &AtomicU32) {
    const HELD: Duration = Duration::from_millis(20);
    conn.busy_timeout(PATIENCE).expect("the patience is set");
    thread::sleep(HELD / 2 * number);
    while !is_over.load(Ordering::SeqCst) {
        conn.execute_batch("BEGIN; SELECT count(*) FROM events").expect("a read begins");
        thread::sleep(HELD);
        conn.execute_batch("COMMIT").expect("a read ends");
        reads.fetch_add(1, Ordering::SeqCst);
    }
}
