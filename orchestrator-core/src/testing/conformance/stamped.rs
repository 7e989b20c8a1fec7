//! Commits of which every part bears the position that it leads to, so that half of one shows.

#![expect(clippy::missing_panics_doc, reason = "a check fails by a panic, as tests do")]

use super::samples::{
    command_id, event, full_task_record, owner_record, pool_records, run_id, run_record,
};
use crate::command::Answer;
use crate::id::{BlobHash, RunId, Seq};
use crate::port::{Commit, Store};
use crate::record::Records;
use crate::time::Timestamp;

const TASKS: u32 = 20;

/// The run that these commits make.
#[must_use]
pub fn run() -> RunId {
    run_id("r")
}

/// The commit after this position.
#[must_use]
pub fn stamped(expected: Seq) -> Commit {
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
            tasks: (0..TASKS).map(task).collect(),
            pools: pool_records(),
            owners: vec![owner_record("o", stamp)],
        },
        blobs: vec![blob(stamp)],
    }
}

fn blob(stamp: u64) -> Vec<u8> {
    format!("blob {stamp} {}", "x".repeat(6_000)).into_bytes()
}

/// Checks that the store, to which nobody writes meanwhile, holds whole commits of these and nothing
/// of others; where it stands.
pub async fn assert_whole(store: &dyn Store) -> Seq {
    let run = run();
    let Some(loaded) = store.load(&run).await.expect("load") else { return Seq(0) };
    let stamp = Timestamp(loaded.seq.0);
    assert_eq!(loaded.run.last_at, stamp);
    assert_eq!(loaded.tasks.len(), TASKS as usize);
    assert!(loaded.tasks.iter().all(|task| task.since == stamp), "tasks of {stamp}");
    assert!(loaded.owners.iter().all(|owner| owner.touched_at == stamp), "owners of {stamp}");
    let log = store.events(&run, Seq(0), usize::MAX).await.expect("events");
    let log: Vec<_> = log.into_iter().map(|stored| (stored.seq.0, stored.event.at.0)).collect();
    assert_eq!(log, (1..=stamp.0).map(|at| (at, at)).collect::<Vec<_>>(), "the log has no gap");
    for at in [1, stamp.0 / 2 + 1, stamp.0, stamp.0 + 1] {
        let is_there = at <= stamp.0;
        let answer = store.answer(&run, &command_id(&format!("c{at}"))).await.expect("answer");
        assert_eq!(answer.is_some(), is_there, "the command of {at}");
        let found = store.blob(&run, &BlobHash::of(&blob(at))).await.expect("blob");
        assert_eq!(found.is_some(), is_there, "the blob of {at}");
    }
    loaded.seq
}
