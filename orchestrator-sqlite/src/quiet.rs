//! What the store asks of SQLite, counted by SQLite itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orchestrator_core::port::{Commit, Store as _};
use orchestrator_core::testing::conformance::samples::{
    first_commit, full_task_record, run_id, task_id,
};
use orchestrator_core::testing::{MemoryTarget, Recorder, Scripted, VirtualHost};
use orchestrator_core::{
    DriverConfig, Interruption, Orchestrator, Plan, Ports, StageEnd, TaskSpec, VerifyCommand,
};
use rusqlite::StatementStatus;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::SqliteOptions;
use crate::store::SqliteStore;

/// Longer than a change of the files may go unseen from outside.
const SETTLED: Duration = Duration::from_millis(1_500);

const PATIENCE: Duration = Duration::from_secs(60);

static STATEMENTS: AtomicU64 = AtomicU64::new(0);

fn count(_: TraceEvent<'_>) {
    STATEMENTS.fetch_add(1, Ordering::SeqCst);
}

/// A driver that waits for its agent, which works for hours.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_orchestrator_issues_no_sql() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("run.db"), SqliteOptions::new()).await.unwrap();
    store.trace(TraceEventCodes::SQLITE_TRACE_STMT, count).await;
    let (store, begun) = (Arc::new(store), Arc::new(Notify::new()));
    let tell = Arc::clone(&begun);
    let script = Arc::new(Scripted::new(move |_| {
        tell.notify_one();
        StageEnd::interrupted(Interruption::Silence)
    }));
    let (target, stop) = (MemoryTarget::default(), CancellationToken::new());
    let ports = Ports {
        store: Arc::<_>::clone(&store) as _,
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(target),
        host: Arc::new(VirtualHost::new()),
        observer: Arc::new(Recorder::default()),
    };
    let mut config = DriverConfig::new(run_id("r"), "stages".into());
    config.lease_ttl = Duration::from_secs(7_200);
    let mut task = TaskSpec::new(task_id("t"));
    task.verify = Some(VerifyCommand::Shell("true".to_owned()));
    let plan = Plan { tasks: vec![task], ..Plan::default() };
    let driver = Orchestrator::new(ports, config);
    let drive = driver.drive(Some(Arc::new(plan)), stop.clone());
    let look = async {
        tokio::time::timeout(PATIENCE, begun.notified()).await.expect("the agent begins");
        tokio::time::sleep(SETTLED).await;
        let before = STATEMENTS.load(Ordering::SeqCst);
        assert!(before > 0, "statements are counted");
        tokio::time::sleep(SETTLED).await;
        assert_eq!(STATEMENTS.load(Ordering::SeqCst), before);
        stop.cancel();
    };
    let (end, ()) = tokio::join!(drive, look);
    end.unwrap();
}

static STEPS: AtomicU64 = AtomicU64::new(0);
static SCANS: AtomicU64 = AtomicU64::new(0);

fn add_steps(event: TraceEvent<'_>) {
    if let TraceEvent::Profile(statement, _) = event {
        let of = |status| u64::try_from(statement.get_status(status)).unwrap_or(0);
        STEPS.fetch_add(of(StatementStatus::VmStep), Ordering::SeqCst);
        SCANS.fetch_add(of(StatementStatus::FullscanStep), Ordering::SeqCst);
    }
}

fn steps() -> u64 {
    STEPS.load(Ordering::SeqCst)
}

/// SQLite's own count of what it does for a header, a task and a commit.
#[tokio::test]
async fn partial_reads_and_commits_take_the_same_few_steps_however_large_the_run_is() {
    let mut counted = Vec::new();
    for tasks in [40, 4_000] {
        let (dir, run) = (tempfile::tempdir().unwrap(), run_id("r"));
        let path = dir.path().join("run.db");
        let store = SqliteStore::open(&path, SqliteOptions::new()).await.unwrap();
        let task = |place: u32| (place, full_task_record(&format!("t{place}")));
        let mut commit = first_commit("r", "create");
        commit.records.tasks = (0..tasks).map(task).collect();
        let at = store.commit(&run, &commit).await.unwrap();
        store.close().await;
        // Afresh: SQLite counts the steps of a statement from when it was prepared.
        let store = SqliteStore::open(&path, SqliteOptions::new()).await.unwrap();
        store.trace(TraceEventCodes::SQLITE_TRACE_PROFILE, add_steps).await;

        let before = steps();
        assert!(store.header(&run).await.unwrap().is_some());
        let header = steps() - before;
        assert!(store.task(&run, &task_id("t3")).await.unwrap().is_some());
        assert!(store.task(&run, &task_id("none")).await.unwrap().is_none());
        let task_read = steps() - before - header;
        let mut next = Commit { expected: at, ..first_commit("r", "next") };
        next.records.tasks = vec![task(7), task(31)];
        store.commit(&run, &next).await.unwrap();
        counted.push([header, task_read, steps() - before - header - task_read]);
    }
    assert!(counted.iter().flatten().all(|steps| *steps > 0), "{counted:?}");
    assert_eq!(counted.first(), counted.last(), "the run's size does not matter");
    assert_eq!(SCANS.load(Ordering::SeqCst), 0, "no table is read through");
}
