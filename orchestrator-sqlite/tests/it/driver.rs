//! The driver over this store: what a run leaves is what its log says.

use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::Store;
use orchestrator_core::testing::conformance::samples::{run_id, task_id};
use orchestrator_core::testing::{
    Fault, FaultStore, MemoryTarget, Recorder, Scripted, VirtualHost,
};
use orchestrator_core::{
    DriverConfig, Orchestrator, Outcome, Phase, Plan, Ports, RunEnd, RunError, Seq, StageEnd,
    StageKind, TaskSpec, VerifyCommand,
};
use tokio_util::sync::CancellationToken;

use crate::mending::chain;
use crate::shell::while_a_run_goes_on;
use crate::support::{TempStore, run};

/// Ten tasks: the second asks a question, which blocks the next one; each other fails its first
/// verification.
fn plan() -> Arc<Plan> {
    let tasks = (0..10).map(|number| {
        let mut spec = TaskSpec::new(task_id(&format!("t{number}")));
        if number > 1 {
            spec.depends_on = vec![task_id(&format!("t{}", number % 2))];
        }
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        spec
    });
    Arc::new(Plan { tasks: tasks.collect(), ..Plan::default() })
}

fn script() -> Scripted {
    Scripted::new(|cx| match (cx.stage.kind, cx.last_error()) {
        (StageKind::Run, _) if cx.task.id.as_str() == "t1" => {
            StageEnd::free(Outcome::Question { text: "which?".to_owned() })
        }
        (StageKind::Verify, None) => StageEnd::rejected("a test failed".to_owned()),
        _ => StageEnd::passed(),
    })
}

pub(crate) async fn drive(
    store: Arc<dyn Store>,
    target: &MemoryTarget,
    host: &VirtualHost,
) -> Result<RunEnd, RunError> {
    let script = Arc::new(script());
    let ports = Ports {
        store,
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(target.clone()),
        host: Arc::new(host.clone()),
        observer: Arc::new(Recorder::default()),
    };
    let mut config = DriverConfig::new(run(), "stages".into());
    config.resume = true;
    // The clocks of this host stand still: whatever waits for them would wait for ever.
    config.rules.backoff = Duration::ZERO;
    Orchestrator::new(ports, config).drive(Some(plan()), CancellationToken::new()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_run_leaves_records_that_are_what_its_log_says() {
    let fixture = TempStore::new();
    let store = Arc::new(fixture.sqlite().await);
    let target = MemoryTarget::default();
    let end = drive(Arc::<_>::clone(&store) as _, &target, &VirtualHost::new()).await.unwrap();
    assert_eq!(end, RunEnd::Failed);
    assert_eq!(target.merged().len(), 5);
    let health = store.doctor().await.unwrap();
    assert!(health.faults.is_empty(), "{:?}", health.faults);
    assert_eq!(health.runs, [run_id("r")]);
    let (seq, _) = store.header(&run()).await.unwrap().unwrap();
    assert_eq!(health.events, seq.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn p5_a_driver_whose_store_fails_at_any_call_ends_as_one_whose_store_does_not() {
    for call in (0..70).step_by(7) {
        for fault in [Fault::Before, Fault::After, Fault::Lost, Fault::Duplicate] {
            let fixture = TempStore::new();
            let sqlite = Arc::new(fixture.sqlite().await);
            let (target, host) = (MemoryTarget::default(), VirtualHost::new());
            let faulty = FaultStore::scripted(Arc::clone(&sqlite), [(call, fault)]);
            let mut end = drive(Arc::new(faulty), &target, &host).await;
            if end.is_err() {
                host.die();
                end = drive(Arc::<_>::clone(&sqlite) as _, &target, &host.process(2)).await;
            }
            assert_eq!(end.unwrap(), RunEnd::Failed, "{fault:?} at {call}");
            assert_eq!(target.merged().len(), 5, "{fault:?} at {call}");
            let health = sqlite.doctor().await.unwrap();
            assert!(health.faults.is_empty(), "{fault:?} at {call}: {:?}", health.faults);
            let asked = sqlite.task(&run(), &task_id("t1")).await.unwrap().unwrap();
            assert!(matches!(asked.phase, Phase::Escalated(_)), "{asked:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_what_is_wrong() {
    let fixture = TempStore::new();
    let store = Arc::new(fixture.sqlite().await);
    let target = MemoryTarget::default();
    drive(Arc::<_>::clone(&store) as _, &target, &VirtualHost::new()).await.unwrap();
    let shell = fixture.shell();
    for (spoil, mend, expected) in [
        (
            "UPDATE tasks SET rejections = rejections + 1 WHERE id = 't4'",
            "UPDATE tasks SET rejections = rejections - 1 WHERE id = 't4'",
            "task `t4` of run `r` is not what the log says",
        ),
        (
            "UPDATE runs SET spent_micros = 1",
            "UPDATE runs SET spent_micros = 0",
            "the record of run `r` is not what the log says",
        ),
        (
            "UPDATE events SET seq = -7 WHERE seq = 7",
            "UPDATE events SET seq = 7 WHERE seq = -7",
            "table `events`, row `7`",
        ),
        (
            "UPDATE tasks SET id = 'x' WHERE id = 't4'",
            "UPDATE tasks SET id = 't4' WHERE id = 'x'",
            "the records of run `r` do not fit its plans",
        ),
        (
            "UPDATE tasks SET phase = 'asleep' WHERE id = 't4'",
            "UPDATE tasks SET phase = 'done' WHERE id = 't4'",
            "run `r` cannot be read whole",
        ),
        (
            "INSERT INTO pools (run, name, permits) VALUES (99, 'p', 1)",
            "DELETE FROM pools WHERE run = 99",
            "a row of table `pools` belongs to no row of `runs`",
        ),
    ] {
        shell
            .execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF")
            .unwrap();
        shell.execute_batch(spoil).unwrap();
        let faults = store.doctor().await.unwrap().faults;
        let said: Vec<_> = faults.iter().map(|fault| chain(fault)).collect();
        assert!(said.iter().any(|line| line.contains(expected)), "{spoil}: {said:?}");
        shell.execute_batch(mend).unwrap();
        let faults = store.doctor().await.unwrap().faults;
        assert!(faults.is_empty(), "{mend}: {faults:?}");
    }
}

/// Whatever is wrong with the records, as long as the log is whole.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_were_spoiled_are_written_anew_from_the_log() {
    let fixture = TempStore::new();
    let store = Arc::new(fixture.sqlite().await);
    let target = MemoryTarget::default();
    drive(Arc::<_>::clone(&store) as _, &target, &VirtualHost::new()).await.unwrap();
    let before = store.load(&run()).await.unwrap();
    assert!(store.repair(&run()).await.unwrap().is_empty(), "nothing is wrong");
    assert!(store.repair(&run_id("other")).await.unwrap().is_empty());
    let shell = fixture.shell();
    for (spoil, mended) in [
        ("UPDATE tasks SET phase = 'asleep' WHERE id = 't4'", "task `t4`"),
        ("UPDATE tasks SET rejections = 99, feedback = '[1]' WHERE id = 't5'", "task `t5`"),
        ("DELETE FROM tasks WHERE id = 't9'", "task `t9`"),
        (
            "INSERT INTO tasks SELECT run, 77, 'x', phase, stage, attempt, under_way, rejections, \
          interruptions, dispatches, extra_retries, extra_dispatches, feedback, signature, restart, \
          holds_scope, workspace_token, session, candidate_change, candidate_base, intent_onto, \
          intent_merged, last_token, settled_micros, refused_token, spent_micros, since_ms, \
          deferred_until_ms, why, lease_token, lease_owner, lease_granted_at_ms, lease_hard_stop_ms, \
          lease_reserved_micros, completion, merged_change, cause, cause_text, kept, rounds, \
          deferrals, extra_deferrals, content, unheard FROM tasks WHERE id = 't1'",
            "",
        ),
        (
            "UPDATE tasks SET id = 'swap' WHERE id = 't2'; UPDATE tasks SET id = 't2' WHERE id = 't3'; \
          UPDATE tasks SET id = 't3' WHERE id = 'swap'",
            "task `t2`",
        ),
        ("UPDATE runs SET state = 'odd', spent_micros = 7", "the run"),
        ("DELETE FROM plans", "the run"),
        ("UPDATE pools SET permits = -1", "the pools"),
        ("UPDATE owners SET pid = -1, touched_at_ms = 5000", "the owners"),
    ] {
        shell.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
        shell.execute_batch(spoil).unwrap();
        let said = store.repair(&run()).await.unwrap();
        assert!(mended.is_empty() || said.contains(&mended.to_owned()), "{spoil}: {said:?}");
        let mut after = store.load(&run()).await.unwrap();
        let owners = before.iter().flat_map(|before| &before.owners);
        for (after, before) in after.iter_mut().flat_map(|after| &mut after.owners).zip(owners) {
            after.touched_at = before.touched_at;
        }
        assert_eq!(after, before, "{spoil}");
        let faults = store.doctor().await.unwrap().faults;
        assert!(faults.is_empty(), "{spoil}: {faults:?}");
    }

    shell.execute("UPDATE events SET seq = -7 WHERE seq = 7", []).unwrap();
    shell.execute("UPDATE tasks SET rejections = 99 WHERE id = 't5'", []).unwrap();
    let err = store.repair(&run()).await.unwrap_err();
    assert!(err.to_string().contains("table `events`, row `7`"), "{err}");
    let left: i64 = shell
        .query_row("SELECT rejections FROM tasks WHERE id = 't5'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 99, "without a whole log nothing is changed");
}

/// What a newer program, or a person, wrote while the run goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_another_process_that_cannot_be_understood_does_not_stop_a_driver() {
    const ODD: &str = "UPDATE runs SET seq = seq + 2; \
        INSERT INTO events (run, seq, body) SELECT run, seq - 1, '{\"at\":1,\"event\":\"sung\"}' FROM runs; \
        INSERT INTO events (run, seq, body) SELECT run, seq, body FROM runs \
        JOIN (SELECT body FROM events WHERE event = 'granted' LIMIT 1);";
    let fixture = TempStore::new();
    let store = Arc::new(fixture.sqlite().await);
    let shell = fixture.shell();
    while_a_run_goes_on(Arc::<_>::clone(&store), || {
        shell.execute_batch("BEGIN IMMEDIATE").unwrap();
        shell.execute_batch(ODD).unwrap();
        shell.execute_batch("COMMIT").unwrap();
    })
    .await;
    let (seq, run) = store.header(&run()).await.unwrap().unwrap();
    assert!(run.driver.is_none(), "the driver went on until it was stopped");
    assert!(seq > Seq(3));
}
