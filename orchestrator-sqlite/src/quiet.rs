//! What the store asks of SQLite, counted by SQLite itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use orchestrator_core::port::{Commit, Store as _};
use orchestrator_core::testing::conformance::samples::{
    first_commit, full_task_record, run_id, task_id,
};
use orchestrator_core::testing::{MemoryTarget, Recorder, Scripted, VirtualHost};
use orchestrator_core::{
    DriverConfig, EventKind, Interruption, Orchestrator, Plan, Ports, StageEnd, TaskSpec,
    VerifyCommand,
};
use rusqlite::StatementStatus;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use tokio_util::sync::CancellationToken;

use crate::SqliteOptions;
use crate::store::SqliteStore;

/// Longer than a change of the files may go unseen from outside.
const SETTLED: Duration = Duration::from_millis(1_500);

const PATIENCE: Duration = Duration::from_secs(300);

/// A driver whose one agent ends so, and its store; `look` is called with the host once `is_begun`
/// says so of the log.
async fn driven(
    ends: StageEnd,
    lease_ttl: Duration,
    tell: fn(TraceEvent<'_>),
    is_begun: fn(&EventKind) -> bool,
    look: impl AsyncFnOnce(&VirtualHost),
) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let store = SqliteStore::open(dir.path().join("run.db"), SqliteOptions::new()).await;
    let store = store.expect("the store opens");
    store.trace(TraceEventCodes::SQLITE_TRACE_STMT, tell).await;
    let script = Arc::new(Scripted::new(move |_| ends.clone()));
    let (target, stop) = (MemoryTarget::default(), CancellationToken::new());
    let (host, recorder) = (VirtualHost::new(), Recorder::default());
    let ports = Ports {
        store: Arc::new(store),
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(target),
        host: Arc::new(host.clone()),
        observer: Arc::new(recorder.clone()),
    };
    let mut config = DriverConfig::new(run_id("r"), "stages".into());
    config.lease_ttl = lease_ttl;
    let mut task = TaskSpec::new(task_id("t"));
    task.verify = Some(VerifyCommand::Shell("true".to_owned()));
    let plan = Plan { tasks: vec![task], ..Plan::default() };
    let driver = Orchestrator::new(ports, config);
    let drive = driver.drive(Some(Arc::new(plan)), stop.clone());
    let look = async {
        let begun = async {
            while !recorder.events().iter().any(|stored| is_begun(&stored.event.kind)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, begun).await.expect("it begins");
        tokio::time::sleep(SETTLED).await;
        look(&host).await;
        stop.cancel();
    };
    let (end, ()) = tokio::join!(drive, look);
    end.expect("the run is stopped");
}

static STATEMENTS: AtomicU64 = AtomicU64::new(0);

fn count(_: TraceEvent<'_>) {
    STATEMENTS.fetch_add(1, Ordering::SeqCst);
}

/// A task that waits to be tried again, for as long as the clocks of this host stand still.
#[tokio::test(flavor = "multi_thread")]
async fn an_orchestrator_for_which_nothing_runs_issues_no_sql_at_all() {
    let ends = StageEnd::interrupted(Interruption::Network);
    let is_begun = |kind: &EventKind| matches!(kind, EventKind::Interrupted { .. });
    driven(ends, Duration::from_secs(3), count, is_begun, async |_| {
        // On a busy machine what it still has to do comes late.
        let comes_to_rest = async {
            loop {
                let before = STATEMENTS.load(Ordering::SeqCst);
                tokio::time::sleep(SETTLED * 3).await;
                if STATEMENTS.load(Ordering::SeqCst) == before {
                    return before;
                }
            }
        };
        let issued = tokio::time::timeout(PATIENCE, comes_to_rest).await;
        assert!(issued.expect("it never comes to rest") > 0, "statements are counted");
    })
    .await;
}

static ISSUED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[expect(clippy::needless_pass_by_value, reason = "events are handed over so")]
fn keep(event: TraceEvent<'_>) {
    // A comment tells of a trigger that a statement set off.
    if let TraceEvent::Stmt(_, sql) = event
        && !sql.starts_with("--")
    {
        ISSUED.lock().unwrap_or_else(PoisonError::into_inner).push(sql.to_owned());
    }
}

/// An agent that works for hours: its lease is renewed at each third of the time that it lives, by
/// one transaction. As that changes the file, the run's position is looked at as long as another
/// change could go unseen: each 200 ms for a second. Nothing else is asked.
#[tokio::test(flavor = "multi_thread")]
async fn an_orchestrator_whose_agents_work_issues_one_touch_at_each_third_of_a_lease_and_nothing_else()
 {
    const PERIODS: u32 = 3;
    const TTL: Duration = Duration::from_secs(6);
    const TOUCH: [&str; 8] = [
        "BEGIN IMMEDIATE",
        "PRAGMA user_version",
        "SELECT run",
        "SELECT touched",
        "UPDATE file",
        "UPDATE owners",
        "UPDATE file",
        "COMMIT",
    ];
    let ends = StageEnd::interrupted(Interruption::Silence);
    let is_begun = |kind: &EventKind| matches!(kind, EventKind::Granted { .. });
    driven(ends, TTL, keep, is_begun, async |host| {
        ISSUED.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let start = Instant::now();
        let mut issued = Vec::new();
        while start.elapsed() < TTL / 3 * PERIODS || whole_touches(&issued).is_empty() {
            assert!(start.elapsed() < PATIENCE, "nothing is renewed: {issued:?}");
            // The run's time goes on no faster than the driver's.
            host.advance(100);
            tokio::time::sleep(Duration::from_millis(100)).await;
            ISSUED.lock().unwrap_or_else(PoisonError::into_inner).clone_into(&mut issued);
        }
        let periods = start.elapsed().as_millis() / (TTL / 3).as_millis();
        let issued = whole_touches(&issued);
        let touches = issued.iter().filter(|sql| sql.starts_with("COMMIT")).count();
        assert!(
            touches > 0 && touches as u128 <= periods + 1,
            "{touches} in {periods}: {issued:?}"
        );
        let is_touch = |part: &[String]| {
            part.len() == TOUCH.len()
                && part.iter().zip(TOUCH).all(|(sql, expected)| sql.starts_with(expected))
        };
        let found = issued.windows(TOUCH.len()).filter(|part| is_touch(part)).count();
        assert_eq!(found, touches, "{issued:?}");
        let looks = issued.len() - touches * TOUCH.len();
        assert!(looks <= touches * 7, "{looks} looks after {touches} touches: {issued:?}");
        let is_known = |sql: &String| TOUCH.iter().any(|known| sql.starts_with(known));
        assert!(issued.iter().all(is_known), "{issued:?}");
    })
    .await;
}

/// Without the end of a transaction that had begun before, and the beginning of one that has not
/// ended: one may be under way when it is looked.
fn whole_touches(issued: &[String]) -> &[String] {
    let place = |word: &str| issued.iter().position(|sql| sql.starts_with(word));
    let last = |word: &str| issued.iter().rposition(|sql| sql.starts_with(word));
    let from = match (place("COMMIT"), place("BEGIN")) {
        (Some(end), begin) if begin.is_none_or(|begin| end < begin) => end + 1,
        _ => 0,
    };
    let to = match (last("COMMIT"), last("BEGIN")) {
        (end, Some(begin)) if end.is_none_or(|end| end < begin) => begin,
        _ => issued.len(),
    };
    issued.get(from..to).unwrap_or_default()
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
