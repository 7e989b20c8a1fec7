//! Rows and pages that cannot be understood.

use std::fs;

use orchestrator_core::port::{Store as _, StoreError};
use orchestrator_core::testing::conformance::samples::{first_commit, run_id, task_id};
use orchestrator_core::{BlobHash, PlanRef, Seq};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};

use crate::support::{TempStore, run, stamped};

/// A run of three commits, spoiled by this SQL.
async fn spoiled(sql: &str) -> TempStore {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let mut at = Seq(0);
    for _ in 0..3 {
        at = store.commit(&run(), &stamped(at)).await.expect("commit");
    }
    let other = first_commit("other", "create");
    store.commit(&run_id("other"), &other).await.expect("commit");
    store.close().await;
    let shell = fixture.shell();
    shell.execute_batch("PRAGMA ignore_check_constraints = ON").expect("the checks are off");
    shell.execute_batch(sql).expect(sql);
    fixture
}

#[track_caller]
fn place<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Corrupt { place, remedy, .. }) => {
            assert!(remedy.contains("restore a backup"), "{remedy}");
            place
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_bad_event_is_named_and_stops_neither_loading_nor_the_rest_of_the_log() {
    for body in ["{}", r#"{"at":-1,"event":"completed"}"#, r#"{"at":1,"event":"sung"}"#] {
        let fixture = spoiled(&format!("UPDATE events SET body = '{body}' WHERE seq = 2")).await;
        let store = fixture.sqlite().await;
        let loaded = store.load(&run()).await.unwrap().unwrap();
        assert_eq!((loaded.seq, loaded.tasks.len()), (Seq(3), 20));
        assert_eq!(
            place(store.events(&run(), Seq(0), 9).await),
            "table `events`, row `2`, column `body`"
        );
        assert_eq!(store.events(&run(), Seq(0), 1).await.unwrap().len(), 1);
        assert_eq!(store.events(&run(), Seq(2), 9).await.unwrap().len(), 1);
        assert_eq!(store.commit(&run(), &stamped(Seq(3))).await.unwrap(), Seq(4));
    }
}

#[tokio::test]
async fn a_bad_value_of_a_task_is_named_and_leaves_the_others_readable() {
    for (set, column) in [
        ("phase = 'asleep'", "phase"),
        ("phase = 'done'", "completion"),
        ("phase = 'done', completion = 'merged'", "merged_change"),
        ("phase = 'deferred'", "deferred_until_ms"),
        ("lease_owner = NULL", "lease_owner"),
        ("attempt = -1", "attempt"),
        ("stage = 256", "stage"),
        ("restart = 'nowhere'", "restart"),
        ("feedback = '[1]'", "feedback"),
        ("session = char(7)", "session"),
        ("candidate_base = NULL", "candidate_base"),
        ("intent_onto = NULL", "intent_merged"),
    ] {
        let fixture = spoiled(&format!("UPDATE tasks SET {set} WHERE id = 't5'")).await;
        let store = fixture.sqlite().await;
        let expected = format!("table `tasks`, row `t5`, column `{column}`");
        assert_eq!(place(store.load(&run()).await), expected, "{set}");
        assert_eq!(place(store.task(&run(), &task_id("t5")).await), expected);
        assert!(store.task(&run(), &task_id("t6")).await.unwrap().is_some());
        assert!(store.header(&run()).await.unwrap().is_some());
        assert!(store.load(&run_id("other")).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn bad_values_of_runs_pools_owners_and_answers_are_named() {
    for (sql, expected) in [
        ("UPDATE runs SET state = 'odd' WHERE id = 'r'", "table `runs`, row `r`, column `state`"),
        ("UPDATE runs SET rules = '{}' WHERE id = 'r'", "table `runs`, row `r`, column `rules`"),
        ("UPDATE runs SET open = -1 WHERE id = 'r'", "table `runs`, row `r`, column `open`"),
        ("UPDATE pools SET permits = -1", "table `pools`, row `agents`, column `permits`"),
        ("UPDATE owners SET pid = -1", "table `owners`, row `o`, column `pid`"),
        ("DELETE FROM tasks WHERE place = 4", "table `tasks`, the row with place 4"),
    ] {
        let fixture = spoiled(sql).await;
        let store = fixture.sqlite().await;
        assert_eq!(place(store.load(&run()).await), expected);
        assert!(store.load(&run_id("other")).await.unwrap().is_some());
        assert_eq!(store.runs().await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_blob_that_was_altered_or_a_plan_that_is_gone_is_named() {
    let fixture = spoiled("SELECT 1").await;
    let store = fixture.sqlite().await;
    let mut commit = stamped(Seq(3));
    let plan = BlobHash::of(b"{}");
    let record = commit.records.run.as_mut().unwrap();
    record.plans = vec![PlanRef { blob: plan.clone(), tasks: 20 }];
    commit.blobs.push(b"{}".to_vec());
    store.commit(&run(), &commit).await.unwrap();
    let shell = fixture.shell();
    shell.execute("UPDATE blobs SET bytes = x'7b' WHERE hash = ?1", [plan.as_str()]).unwrap();
    let expected = format!("table `blobs`, row `{plan}`");
    assert_eq!(place(store.blob(&run(), &plan).await), format!("{expected}, column `bytes`"));
    assert_eq!(place(store.load(&run()).await), format!("{expected}, column `bytes`"));
    shell.execute("DELETE FROM blobs WHERE hash = ?1", [plan.as_str()]).unwrap();
    assert_eq!(store.blob(&run(), &plan).await.unwrap(), None);
    assert_eq!(place(store.load(&run()).await), expected);
}

#[tokio::test]
async fn overwritten_pages_give_errors_or_whole_records_and_never_a_panic() {
    let fixture = spoiled("SELECT 1").await;
    let bytes = fs::read(fixture.path()).unwrap();
    let mut refused = 0;
    for page in 1..bytes.len() / 4096 {
        let mut spoiled = bytes.clone();
        spoiled[page * 4096..][..4096].fill(if page % 2 == 0 { 0 } else { 0xa5 });
        let other = TempStore::new();
        fs::write(other.path(), spoiled).unwrap();
        let Ok(store) = SqliteStore::open(other.path(), SqliteOptions::new()).await else {
            refused += 1;
            continue;
        };
        let loaded = store.load(&run()).await;
        let log = store.events(&run(), Seq(0), usize::MAX).await;
        for err in [loaded.err(), log.err()].into_iter().flatten() {
            assert!(matches!(err, StoreError::Corrupt { .. }), "page {page}: {err:?}");
            refused += 1;
        }
    }
    assert!(refused > 0, "some page matters");
}

/// A file that ends too early, at the end of a page or within one, with its log and without.
#[tokio::test]
async fn a_truncated_file_gives_errors_or_whole_records_and_never_a_panic() {
    let fixture = spoiled("SELECT 1").await;
    let bytes = fs::read(fixture.path()).unwrap();
    let mut refused = 0;
    for length in (0..bytes.len()).step_by(2_900) {
        let other = TempStore::new();
        fs::write(other.path(), &bytes[..length]).unwrap();
        let opened = SqliteStore::open(other.path(), SqliteOptions::new()).await;
        let Ok(store) = opened else {
            refused += 1;
            continue;
        };
        let header = store.header(&run()).await;
        let loaded = store.load(&run()).await;
        let log = store.events(&run(), Seq(0), usize::MAX).await;
        let doctor = store.doctor().await;
        if let Ok(Some(snapshot)) = &loaded {
            assert_eq!((snapshot.seq, snapshot.tasks.len()), (Seq(3), 20), "{length} bytes");
        }
        for err in [header.err(), loaded.err(), log.err(), doctor.err()].into_iter().flatten() {
            assert!(matches!(err, StoreError::Corrupt { .. }), "{length} bytes: {err:?}");
            refused += 1;
        }
    }
    assert!(refused > 10, "{refused}");
}
