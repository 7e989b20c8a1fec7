//! Rows that somebody took away, moved or renumbered: nothing is passed over in silence, nothing
//! that was done is undone, and what stops a run says what helps.

use std::fs;

use orchestrator_core::port::{CommitError, Store as _, StoreError};
use orchestrator_core::testing::conformance::samples::{
    command_id, first_commit, next_commit, owner_id, run_id, task_id,
};
use orchestrator_core::{BlobHash, Engine, Seq, Timestamp};
use orchestrator_sqlite::{CopyError, FileFault, OpenError, SqliteOptions, SqliteStore};

use crate::mending::{chain, faults, spoil, whole_run};
use crate::support::{TempStore, run, stamped};

/// What a commit at the position that the run seems to have is told.
async fn refused(store: &SqliteStore) -> String {
    let position = store.header(&run()).await;
    let at = position.ok().flatten().map_or(Seq(0), |(seq, _)| seq);
    let err = store.commit(&run(), &next_commit(at)).await.expect_err("the file is not whole");
    let CommitError::Failed(StoreError::Corrupt { remedy, .. }) = &err else { panic!("{err:?}") };
    assert!(remedy.contains("repair") && remedy.contains("restore a backup"), "{remedy}");
    chain(&err)
}

async fn event_count(store: &SqliteStore) -> usize {
    store.events(&run(), Seq(0), usize::MAX).await.expect("the log is whole").len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_stand_where_its_log_ends_is_named_refused_and_mended_forwards() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    let before = store.load(&run()).await.unwrap().unwrap();
    for (sql, place) in [
        ("UPDATE runs SET seq = seq - 3", "table `runs`, row `r`, column `seq`"),
        ("UPDATE runs SET seq = 0", "table `runs`, row `r`, column `seq`"),
        ("UPDATE runs SET seq = -1", "table `runs`, row `r`, column `seq`"),
        ("UPDATE runs SET seq = seq + 3", "table `events`"),
        ("UPDATE runs SET seq = 9223372036854775807", "table `events`"),
    ] {
        spoil(&fixture, sql);
        let said = faults(&store).await;
        assert!(said.iter().any(|line| line.contains(place)), "{sql}: {said:?}");
        let said = refused(&store).await;
        assert!(said.contains(place), "{sql}: {said}");
        assert_eq!(store.repair(&run()).await.unwrap(), ["the run"], "{sql}");
        assert_eq!(store.load(&run()).await.unwrap().as_ref(), Some(&before), "{sql}");
        assert_eq!(faults(&store).await, [""; 0], "{sql}");
        assert_eq!(event_count(&store).await as u64, before.seq.0);
    }
    assert_eq!(store.commit(&run(), &next_commit(before.seq)).await.unwrap(), before.seq.plus(1));
}

/// The records tell of more than what is left of the log: they are not rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn last_events_that_are_gone_are_named_and_no_commit_makes_the_gap_stay() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    let before = store.load(&run()).await.unwrap().unwrap();
    spoil(&fixture, "DELETE FROM events WHERE seq > 20");
    let place = "table `events`, row `21`";
    let said = faults(&store).await;
    assert!(said.iter().any(|line| line.contains(place)), "{said:?}");
    assert!(refused(&store).await.contains(place));
    let err = store.repair(&run()).await.unwrap_err();
    assert!(err.to_string().contains(place), "{err}");
    let err = store.events(&run(), Seq(15), 99).await.unwrap_err();
    assert!(err.to_string().contains(place), "{err}");
    assert_eq!(store.events(&run(), Seq(15), 5).await.unwrap().len(), 5);
    assert_eq!(store.load(&run()).await.unwrap(), Some(before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_log_is_an_error_for_who_reads_over_it_and_for_an_export() {
    for (sql, place) in [
        ("DELETE FROM events WHERE seq = 3", "table `events`, row `3`"),
        ("DELETE FROM events WHERE seq = 1", "table `events`, row `1`"),
        ("DELETE FROM events", "table `events`, row `1`"),
        ("UPDATE events SET seq = 1000 WHERE seq = 4", "table `events`, row `4`"),
        ("DELETE FROM events WHERE seq > 20", "table `events`, row `21`"),
    ] {
        let fixture = TempStore::new();
        let store = whole_run(&fixture).await;
        spoil(&fixture, sql);
        let err = store.events(&run(), Seq(0), usize::MAX).await.unwrap_err();
        assert!(matches!(err, StoreError::Corrupt { .. }), "{sql}: {err:?}");
        assert!(err.to_string().contains(place), "{sql}: {err}");
        let to = fixture.dir().join("events.jsonl");
        let err = store.export(&run(), &to).await.unwrap_err();
        assert!(matches!(err, CopyError::Store(StoreError::Corrupt { .. })), "{sql}: {err:?}");
        assert!(chain(&err).contains(place), "{sql}: {err:?}");
        assert!(!to.exists(), "nothing of the copy is left");
        let said = faults(&store).await;
        assert!(said.iter().any(|line| line.contains(place)), "{sql}: {said:?}");
    }
}

/// Pages that say the same again and again, or anything else: each call ends, and nobody waits for
/// an export that writes until the disk is full.
#[tokio::test(flavor = "multi_thread")]
async fn every_call_ends_on_a_file_whose_pages_were_put_in_the_place_of_others() {
    let whole = TempStore::new();
    let store = whole.sqlite().await;
    let mut at = Seq(0);
    for _ in 0..40 {
        let mut commit = stamped(at);
        commit.blobs.clear();
        at = store.commit(&run(), &commit).await.unwrap();
    }
    store.close().await;
    let bytes = fs::read(whole.path()).unwrap();
    let pages = bytes.len() / 4096;
    let (mut opened, mut refused) = (0, 0);
    for (page, from) in
        (1..pages).flat_map(|page| [7, 5, 11].map(|by| (page, (page * by + 3) % pages)))
    {
        let mut spoiled = bytes.clone();
        spoiled[page * 4096..][..4096].copy_from_slice(&bytes[from * 4096..][..4096]);
        let fixture = TempStore::new();
        fs::write(fixture.path(), spoiled).unwrap();
        let Ok(store) = SqliteStore::open(fixture.path(), SqliteOptions::new()).await else {
            continue;
        };
        opened += 1;
        let health = store.doctor().await.expect("there is always a report");
        let exported = store.export(&run(), fixture.dir().join("events.jsonl")).await;
        match exported {
            Ok(exported) => assert_eq!(exported.events, at.0, "page {page}"),
            Err(CopyError::Store(StoreError::Corrupt { .. }) | CopyError::NoRun { .. }) => {
                assert!(!health.faults.is_empty(), "page {page}");
                refused += 1;
            }
            Err(err) => panic!("page {page}: {err:?}"),
        }
        let name = run();
        let commit = match store.commit(&name, &next_commit(at)).await {
            Err(CommitError::Failed(err))
                if store.header(&name).await.is_ok_and(|run| run.is_some()) =>
            {
                Some(err)
            }
            Err(CommitError::Failed(_) | CommitError::Moved { .. }) | Ok(_) => None,
            Err(err) => panic!("page {page} as {from}: {err:?}"),
        };
        for err in [
            commit,
            store.load(&name).await.err(),
            store.task(&name, &task_id("t3")).await.err(),
            store.blob(&name, &BlobHash::of(b"")).await.err(),
            store.answer(&name, &command_id("c3")).await.err(),
            store.touch(&name, &owner_id("o"), Timestamp(1_000)).await.err(),
            store.prune(&name, Seq(3)).await.err(),
            store.repair(&name).await.err(),
        ]
        .into_iter()
        .flatten()
        {
            assert!(matches!(err, StoreError::Corrupt { .. }), "page {page} as {from}: {err:?}");
        }
    }
    assert!(opened > 10 && refused > 0, "{opened} opened, {refused} refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_examined_hides_nothing_that_was_found() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    spoil(
        &fixture,
        "UPDATE tasks SET phase = 'asleep' WHERE id = 't4'; DROP VIEW v_progress; \
         INSERT INTO pools (run, name, permits) VALUES (99, 'p', 1); ALTER TABLE runs RENAME id TO x",
    );
    let health = store.doctor().await.unwrap();
    let said = faults(&store).await.join("\n");
    let unexamined = |fault: &FileFault| matches!(fault, FileFault::Unexamined { .. });
    assert!(health.faults.iter().any(unexamined), "{said}");
    assert!(said.contains("a row of table `pools` belongs to no row of `runs`"), "{said}");
    assert!(said.contains("the list of runs cannot be examined"), "{said}");
    spoil(&fixture, "ALTER TABLE runs RENAME x TO id; DROP TABLE commands");
    let said = faults(&store).await.join("\n");
    assert!(said.contains("row `t4`, column `phase`"), "{said}");
    assert!(said.contains("no such table: ") && said.contains("restore a backup"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_and_plans_that_are_gone_or_renamed_are_taken_from_the_log() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    let before = store.load(&run()).await.unwrap().unwrap();
    for sql in [
        "UPDATE tasks SET id = 'zzz' WHERE place = 0",
        "UPDATE tasks SET id = 'zzz' WHERE place = 5; UPDATE tasks SET id = 't0' WHERE place = 5",
        "DELETE FROM tasks WHERE place = (SELECT max(place) FROM tasks)",
        "DELETE FROM tasks",
        "UPDATE tasks SET place = 50 WHERE place = 0",
        "DELETE FROM plans",
        "DELETE FROM plans WHERE position = 0",
        "UPDATE plans SET hash = 'x'",
        "DELETE FROM tasks; DELETE FROM plans",
    ] {
        let shell = fixture.shell();
        shell.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        if shell.execute_batch(sql).is_err() {
            // Two tasks of one name are refused by the table itself.
            assert!(sql.contains("'t0'"), "{sql}");
        }
        let loaded = store.load(&run()).await.expect(sql).unwrap();
        assert_eq!(loaded, before, "{sql}");
        Engine::restore(&loaded).expect(sql);
        assert_ne!(faults(&store).await, [""; 0], "{sql}");
        assert_ne!(store.repair(&run()).await.unwrap(), [""; 0], "{sql}");
        assert_eq!(faults(&store).await, [""; 0], "{sql}");
        assert!(store.task(&run(), &task_id("t0")).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_and_plans_that_the_log_cannot_tell_are_an_error_that_names_table_and_row() {
    for (sql, place) in [
        ("UPDATE tasks SET id = 'zzz' WHERE place = 0", "table `tasks`, the row with place 0"),
        ("DELETE FROM tasks WHERE place = 9", "table `tasks`, the row with place 9"),
        ("DELETE FROM tasks", "table `tasks`, the row with place 0"),
        ("DELETE FROM plans", "table `plans`, the rows of the run"),
    ] {
        let fixture = TempStore::new();
        let store = whole_run(&fixture).await;
        spoil(&fixture, "UPDATE events SET body = '{\"at\":1,\"event\":\"sung\"}' WHERE seq = 20");
        spoil(&fixture, sql);
        let err = store.load(&run()).await.unwrap_err();
        let StoreError::Corrupt { place: found, remedy, .. } = &err else { panic!("{err:?}") };
        assert_eq!(found, place, "{sql}");
        assert!(remedy.contains("restore a backup"), "{remedy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_deleted_run_left_enters_no_other_run_and_stops_none() {
    let fixture = TempStore::new();
    let store = whole_run(&fixture).await;
    spoil(&fixture, "DELETE FROM runs");
    assert_eq!(store.load(&run()).await.unwrap(), None);
    for name in ["fresh", "r"] {
        let at = store.commit(&run_id(name), &first_commit(name, "edit")).await.unwrap();
        let loaded = store.load(&run_id(name)).await.unwrap().unwrap();
        assert_eq!((loaded.seq, loaded.run.id), (at, run_id(name)));
        assert!(loaded.tasks.is_empty() && loaded.pools.is_empty() && loaded.owners.is_empty());
        assert_eq!(store.events(&run_id(name), Seq(0), 99).await.unwrap().len(), 1);
    }
    let said = faults(&store).await;
    assert!(
        said.iter().any(|line| line.contains("`events` belongs to no row of `runs`")),
        "{said:?}"
    );

    spoil(&fixture, "UPDATE pools SET run = 9223372036854775807 WHERE run = 1");
    let err = store.commit(&run_id("third"), &first_commit("third", "create")).await.unwrap_err();
    let CommitError::Failed(StoreError::Corrupt { place, remedy, .. }) = &err else {
        panic!("{err:?}")
    };
    assert!(place.contains("table `pools`") && remedy.contains("sqlite3"), "{place}: {remedy}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_or_column_that_is_gone_is_an_error_that_says_what_helps() {
    for sql in [
        "DROP TABLE pools",
        "DROP TABLE events",
        "DROP TABLE commands",
        "ALTER TABLE tasks DROP COLUMN rounds",
    ] {
        let fixture = TempStore::new();
        let store = fixture.sqlite().await;
        store.commit(&run(), &stamped(Seq(0))).await.unwrap();
        store.close().await;
        spoil(&fixture, sql);
        let store = fixture.sqlite().await;
        let err = store.commit(&run(), &stamped(Seq(1))).await.unwrap_err();
        let CommitError::Failed(StoreError::Corrupt { remedy, .. }) = &err else {
            panic!("{sql}: {err:?}")
        };
        assert!(remedy.contains("restore a backup"), "{remedy}");
        assert_ne!(faults(&store).await, [""; 0], "{sql}");
    }
}

#[tokio::test]
async fn a_file_that_sqlite_cannot_open_is_refused_with_what_helps() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    store.commit(&run(), &stamped(Seq(0))).await.unwrap();
    store.close().await;
    let mut bytes = fs::read(fixture.path()).unwrap();
    // The first page holds the schema behind the header of the file.
    bytes[100..4096].fill(0xa5);
    fs::write(fixture.path(), bytes).unwrap();
    let err = SqliteStore::open(fixture.path(), SqliteOptions::new()).await.unwrap_err();
    assert!(matches!(err, OpenError::Database { .. }), "{err:?}");
    assert!(err.to_string().contains("restore a backup"), "{err}");
}
