//! A store in a folder of its own, and commits that show whether they are whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::{Commit, Store};
use orchestrator_core::testing::StoreFixture;
use orchestrator_core::testing::conformance::SharedFixture;
use orchestrator_core::testing::conformance::samples::{
    command_id, event, full_task_record, owner_record, pool_records, run_id, run_record,
};
use orchestrator_core::{Answer, BlobHash, Records, RunId, Seq, Timestamp};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

/// A fresh file that is gone when this is dropped.
pub(crate) struct TempStore {
    dir: TempDir,
}

impl TempStore {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder for the test") }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("run.db")
    }

    pub(crate) async fn sqlite(&self) -> SqliteStore {
        SqliteStore::open(self.path(), SqliteOptions::new()).await.expect("the store opens")
    }

    /// A connection of somebody who looks at the file, or spoils it, without the store.
    pub(crate) fn shell(&self) -> Connection {
        Connection::open(self.path()).expect("the shell opens")
    }
}

#[async_trait]
impl StoreFixture for TempStore {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.sqlite().await)
    }
}

impl SharedFixture for TempStore {
    fn address(&self) -> String {
        self.path().to_str().expect("a folder for tests has a plain name").to_owned()
    }
}

/// The run of these tests.
pub(crate) fn run() -> RunId {
    run_id("r")
}

/// A commit after this position of which every part bears the position that it leads to.
pub(crate) fn stamped(expected: Seq) -> Commit {
    let stamp = expected.plus(1).0;
    let mut run = run_record("r");
    run.last_at = Timestamp(stamp);
    let task = |place: u32| {
        let mut task = full_task_record(&format!("t{place}"));
        task.since = Timestamp(stamp);
        (place, task)
    };
    Commit {
        expected,
        commands: vec![(command_id(&format!("c{stamp}")), Answer::Done)],
        events: vec![event(stamp)],
        records: Records {
            run: Some(run),
            tasks: (0..20).map(task).collect(),
            pools: pool_records(),
            owners: vec![owner_record("o", stamp)],
        },
        blobs: vec![blob(stamp)],
    }
}

fn blob(stamp: u64) -> Vec<u8> {
    format!("blob {stamp} {}", "x".repeat(6_000)).into_bytes()
}

/// Checks that the store holds whole [`stamped`] commits and nothing of others; returns how many.
pub(crate) async fn assert_whole(store: &dyn Store) -> Seq {
    let run = run();
    let Some(loaded) = store.load(&run).await.expect("load") else { return Seq(0) };
    let stamp = Timestamp(loaded.seq.0);
    assert_eq!(loaded.run.last_at, stamp);
    assert_eq!(loaded.tasks.len(), 20);
    assert!(loaded.tasks.iter().all(|task| task.since == stamp), "tasks of {stamp}");
    assert!(loaded.owners.iter().all(|owner| owner.touched_at == stamp), "owners of {stamp}");
    let log = store.events(&run, Seq(0), usize::MAX).await.expect("events");
    let log: Vec<_> = log.into_iter().map(|stored| (stored.seq.0, stored.event.at.0)).collect();
    assert_eq!(log, (1..=stamp.0).map(|at| (at, at)).collect::<Vec<_>>());
    for at in [1, stamp.0 / 2 + 1, stamp.0, stamp.0 + 1] {
        let is_there = at <= stamp.0;
        let answer = store.answer(&run, &command_id(&format!("c{at}"))).await.expect("answer");
        assert_eq!(answer.is_some(), is_there, "the command of {at}");
        let found = store.blob(&run, &BlobHash::of(&blob(at))).await.expect("blob");
        assert_eq!(found.is_some(), is_there, "the blob of {at}");
    }
    loaded.seq
}
