//! The driver with scripted adapters, a target in memory and the memory store.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod clocks;
mod ending;
mod gates;
mod judging;
mod lapse;
mod others;
mod panics;
mod room;
mod secrets;

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orchestrator_core::port::{StageContext, Store};
use orchestrator_core::testing::{
    Fault, FaultStore, MemoryTarget, Recorder, Scripted, VirtualHost,
};
use orchestrator_core::{
    Cause, Command, Completion, DriverConfig, EventKind, Interruption, Mask, MemoryStore,
    Orchestrator, Outcome, ParkReason, Phase, Plan, Ports, Restart, RunEnd, RunError, RunId,
    Snapshot, StageEnd, StageKind, TaskId, TaskSpec, VerifyCommand,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

fn run() -> RunId {
    RunId::parse("test").unwrap()
}

fn plan(edges: &[(&str, &[&str])]) -> Arc<Plan> {
    let tasks = edges.iter().map(|(name, depends_on)| {
        let mut spec = TaskSpec::new(id(name));
        spec.depends_on = depends_on.iter().map(|name| id(name)).collect();
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        spec
    });
    Arc::new(Plan { tasks: tasks.collect(), ..Plan::default() })
}

/// A world in which a driver can be started again.
#[derive(Clone)]
struct World {
    store: Arc<dyn Store>,
    target: MemoryTarget,
    host: VirtualHost,
    recorder: Recorder,
    script: Scripted,
}

impl World {
    fn new(script: impl Fn(&StageContext) -> StageEnd + Send + Sync + 'static) -> Self {
        Self {
            store: Arc::new(MemoryStore::default()),
            target: MemoryTarget::default(),
            host: VirtualHost::new(),
            recorder: Recorder::default(),
            script: Scripted::new(script),
        }
    }

    /// The same in a process that no other test has: all drives of one process know of each other.
    fn alone(self) -> Self {
        static PROCESSES: AtomicU32 = AtomicU32::new(1_000);
        Self { host: self.host.process(PROCESSES.fetch_add(1, Relaxed)), ..self }
    }

    fn orchestrator(&self) -> Orchestrator {
        self.orchestrator_with(|_| {})
    }

    /// An orchestrator with other adapters.
    fn orchestrator_with(&self, change: impl FnOnce(&mut Ports)) -> Orchestrator {
        self.orchestrator_masking(Mask::keys(), change)
    }

    /// One that keeps more than keys secret, with other adapters.
    fn orchestrator_masking(&self, mask: Mask, change: impl FnOnce(&mut Ports)) -> Orchestrator {
        let script = Arc::new(self.script.clone());
        let mut ports = Ports {
            store: Arc::clone(&self.store),
            runner: Arc::<Scripted>::clone(&script),
            verifier: Arc::<Scripted>::clone(&script),
            reviewer: script,
            integrator: Arc::new(self.target.clone()),
            workspaces: Arc::new(self.target.clone()),
            host: Arc::new(self.host.clone()),
            observer: Arc::new(self.recorder.clone()),
        };
        change(&mut ports);
        let mut config = DriverConfig::new(run(), "stages".into());
        config.stop_grace = Duration::from_millis(200);
        config.resume = true;
        config.mask = mask;
        // The host's clock stands still, so that no wait would ever be over.
        config.rules.backoff = Duration::ZERO;
        config.rules.poll = Duration::ZERO;
        Orchestrator::new(ports, config)
    }

    async fn drive(&self, plan: Option<Arc<Plan>>) -> Result<RunEnd, RunError> {
        self.orchestrator().drive(plan, CancellationToken::new()).await
    }

    /// Waits, by the runtime's paused clock, until something of this kind is committed.
    async fn committed(&self, is_it: impl Fn(&EventKind) -> bool) {
        for _ in 0..1_000 {
            if self.recorder.events().iter().any(|stored| is_it(&stored.event.kind)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it never happens: {:?}", self.recorder.events());
    }

    async fn snapshot(&self) -> Snapshot {
        self.store.load(&run()).await.unwrap().unwrap()
    }

    async fn phase(&self, task: &str) -> Phase {
        self.store.task(&run(), &id(task)).await.unwrap().unwrap().phase
    }
}

type Driving = JoinHandle<Result<RunEnd, RunError>>;

/// Drives in the background; what cancels the token stops it.
fn start(orchestrator: Orchestrator, plan: Arc<Plan>) -> (CancellationToken, Driving) {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    (stop, tokio::spawn(async move { orchestrator.drive(Some(plan), stopped).await }))
}

#[tokio::test]
async fn a_plan_runs_to_merged_changes_and_leaves_no_workspace() {
    let world = World::new(|_| StageEnd::passed());
    let plan = plan(&[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])]);
    assert_eq!(world.drive(Some(plan)).await.unwrap(), RunEnd::Completed);
    assert_eq!(world.target.merged().len(), 4);
    assert_eq!(world.target.open_workspaces(), []);
    let snapshot = world.snapshot().await;
    assert!(snapshot.run.driver.is_none());
    assert!(snapshot.tasks.iter().all(|t| matches!(t.phase, Phase::Done(Completion::Merged(_)))));
}

#[tokio::test]
async fn a_stage_knows_the_directory_of_its_logs_wherever_its_programs_stand() {
    let dirs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&dirs);
    let world = World::new(move |cx| {
        seen.lock().unwrap().push(cx.dir.clone());
        StageEnd::passed()
    });
    world.drive(Some(plan(&[("a", &[])]))).await.unwrap();
    let below = std::path::absolute("stages/a").unwrap();
    let dirs = dirs.lock().unwrap();
    assert_eq!(dirs.len(), 3);
    assert!(dirs.iter().all(|dir| dir.starts_with(&below)), "{dirs:?}");
}

#[tokio::test]
async fn a_rejected_attempt_is_told_why_the_last_one_failed() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let world = World::new(move |cx| {
        if cx.stage.kind == StageKind::Run {
            told.lock().unwrap().push((cx.attempt, cx.last_error().map(str::to_owned)));
        }
        match (cx.stage.kind, cx.last_error()) {
            (StageKind::Verify, None) => StageEnd::rejected("test 7 failed".to_owned()),
            _ => StageEnd::passed(),
        }
    });
    assert_eq!(world.drive(Some(plan(&[("a", &[])]))).await.unwrap(), RunEnd::Completed);
    let expected = vec![(1, None), (2, Some("test 7 failed".to_owned()))];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_question_escalates_and_blocks_what_depends_on_it() {
    let world = World::new(|cx| {
        if cx.task.id.as_str() == "b" && cx.stage.kind == StageKind::Run {
            return StageEnd::free(Outcome::Question { text: "tabs or spaces?".to_owned() });
        }
        StageEnd::passed()
    });
    let plan = plan(&[("a", &[]), ("b", &[]), ("c", &["b"]), ("d", &["a"])]);
    assert_eq!(world.drive(Some(plan)).await.unwrap(), RunEnd::Failed);
    let Phase::Escalated(escalation) = world.phase("b").await else { panic!("b is not escalated") };
    assert_eq!(escalation.cause, Cause::Question);
    assert_eq!(escalation.kept.as_deref(), Some("kept of b"));
    let text = world.store.blob(&run(), &escalation.text.unwrap()).await.unwrap().unwrap();
    assert_eq!(text, b"tabs or spaces?");
    assert_eq!(world.phase("c").await, Phase::Open);
    assert!(matches!(world.phase("d").await, Phase::Done(_)));
}

#[tokio::test]
async fn the_same_failure_twice_in_a_row_escalates() {
    let world = World::new(|cx| match cx.stage.kind {
        StageKind::Verify => StageEnd::rejected(format!("took {} ms", cx.attempt)),
        StageKind::Run | StageKind::Review | StageKind::Gate | StageKind::Integrate => {
            StageEnd::passed()
        }
    });
    assert_eq!(world.drive(Some(plan(&[("a", &[])]))).await.unwrap(), RunEnd::Failed);
    let Phase::Escalated(escalation) = world.phase("a").await else { panic!("not escalated") };
    assert_eq!(escalation.cause, Cause::SameFailure);
    assert_eq!(world.snapshot().await.tasks[0].attempt, 2);
}

#[tokio::test]
async fn p6_retries_are_bounded_when_each_failure_is_another() {
    let world = World::new(|cx| match cx.stage.kind {
        StageKind::Review => StageEnd::rejected("x".repeat(cx.attempt as usize)),
        StageKind::Run | StageKind::Verify | StageKind::Gate | StageKind::Integrate => {
            StageEnd::passed()
        }
    });
    assert_eq!(world.drive(Some(plan(&[("a", &[])]))).await.unwrap(), RunEnd::Failed);
    let Phase::Escalated(escalation) = world.phase("a").await else { panic!("not escalated") };
    assert_eq!(escalation.cause, Cause::RetriesUsed);
    assert_eq!(world.snapshot().await.tasks[0].attempt, 1 + TaskSpec::MAX_RETRIES_DEFAULT);
}

#[tokio::test]
async fn a_conflict_starts_the_next_attempt_on_the_present_target() {
    let world = World::new(|_| StageEnd::passed());
    world.target.conflict(id("a"), 1);
    assert_eq!(world.drive(Some(plan(&[("a", &[])]))).await.unwrap(), RunEnd::Completed);
    let rejected = world.recorder.events().into_iter().find_map(|one| {
        if let EventKind::Rejected { restart, .. } = one.event.kind { Some(restart) } else { None }
    });
    assert_eq!(rejected, Some(Restart::OnTarget));
    assert_eq!(world.target.merged().len(), 1);
}

#[tokio::test]
async fn a_panic_of_an_adapter_interrupts_its_stage_and_nothing_else() {
    let world = World::new(|cx| {
        let first = cx.token.0 <= 2;
        assert!(!(first && cx.task.id.as_str() == "a"), "the adapter is broken");
        StageEnd::passed()
    });
    let plan = plan(&[("a", &[]), ("b", &[])]);
    assert_eq!(world.drive(Some(plan)).await.unwrap(), RunEnd::Completed);
    let crashes = world.recorder.events().into_iter().filter(|one| {
        matches!(one.event.kind, EventKind::Interrupted { reason: Interruption::Crashed, .. })
    });
    assert_eq!(crashes.count(), 1);
    assert_eq!(world.host.ended().len(), 1, "what it started was ended");
    assert_eq!(world.host.masked().len(), 1, "nobody else could take secrets out of its logs");
}

#[tokio::test]
async fn a_stop_leaves_a_run_that_goes_on() {
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let world = World::new(move |cx| {
        if cx.task.id.as_str() == "b" && !asked.is_cancelled() {
            asked.cancel();
            return StageEnd::interrupted(Interruption::Silence);
        }
        StageEnd::passed()
    });
    let plan = plan(&[("a", &[]), ("b", &["a"])]);
    let end = world.orchestrator().drive(Some(plan), stop).await.unwrap();
    assert_eq!(end, RunEnd::Stopped);
    assert!(world.snapshot().await.run.driver.is_none());
    assert_eq!(world.phase("b").await, Phase::Open);
    assert_eq!(world.drive(None).await.unwrap(), RunEnd::Completed);
    assert_eq!(world.target.merged().len(), 2);
}

#[tokio::test]
async fn p1_a_second_driver_is_told_who_drives() {
    let stop = CancellationToken::new();
    let world = World::new(|_| StageEnd::interrupted(Interruption::Silence));
    let other = World { host: world.host.process(2), ..world.clone() };
    let first = world.orchestrator();
    let plan = plan(&[("a", &[])]);
    let driving = tokio::spawn({
        let stop = stop.clone();
        async move { first.drive(Some(plan), stop).await }
    });
    while world.recorder.events().is_empty() {
        tokio::task::yield_now().await;
    }
    match other.drive(None).await {
        Err(RunError::DriverRunning { owner, .. }) => assert_eq!(owner.pid, 1),
        unexpected => panic!("{unexpected:?}"),
    }
    stop.cancel();
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Stopped);
}

#[tokio::test(start_paused = true)]
async fn p5_a_driver_that_dies_at_any_commit_loses_nothing_and_merges_nothing_twice() {
    let edges: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"]), ("c", &["a"])];
    for dies_after in 0..60 {
        let world = World::new(|_| StageEnd::passed());
        let dying = FaultStore::scripted(Arc::clone(&world.store), from(dies_after));
        let first = World { store: Arc::new(dying), ..world.clone() };
        let end = first.drive(Some(plan(edges))).await;
        world.host.die();
        let next = World { host: world.host.process(2), ..world.clone() };
        assert_eq!(next.drive(Some(plan(edges))).await.unwrap(), RunEnd::Completed, "{end:?}");
        let merged = world.target.merged();
        assert_eq!(merged.len(), 3, "after commit {dies_after}: {merged:?}");
    }
}

/// Every call from this one on fails.
fn from(call: u64) -> impl Iterator<Item = (u64, Fault)> {
    (call..call + 1_000).map(|call| (call, Fault::Before))
}

#[tokio::test]
async fn a_person_has_an_escalated_task_tried_again() {
    let answered = Arc::new(Mutex::new(false));
    let knows = Arc::clone(&answered);
    let world = World::new(move |cx| {
        if cx.stage.kind == StageKind::Run && !*knows.lock().unwrap() {
            return StageEnd::free(Outcome::Question { text: "which?".to_owned() });
        }
        StageEnd::passed()
    });
    let plan = plan(&[("a", &[]), ("b", &["a"])]);
    assert_eq!(world.drive(Some(plan)).await.unwrap(), RunEnd::Failed);
    *answered.lock().unwrap() = true;
    let retry = Command::Retry {
        task: id("a"),
        dependents: false,
        actor: "me".into(),
        reason: "answered".into(),
    };
    let orchestrator = world.orchestrator();
    orchestrator.ask(&retry).await.unwrap();
    assert_eq!(world.drive(None).await.unwrap(), RunEnd::Completed);
    assert_eq!(world.target.merged().len(), 2);
}

#[tokio::test]
async fn each_verify_command_is_tried_once_before_anything_is_spent() {
    let world = World::new(|_| StageEnd::passed());
    let plan = plan(&[("a", &[]), ("b", &["a"])]);
    let tried = world.orchestrator().try_verify_commands(&plan).await.unwrap();
    assert_eq!(tried.len(), 1);
    assert_eq!(tried[0].tasks, [id("a"), id("b")]);
    assert!(world.store.runs().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_was_taken_for_dead_stops_when_it_notices() {
    let world = World::new(|cx| {
        if cx.token.0 == 1 {
            return StageEnd::interrupted(Interruption::Silence);
        }
        StageEnd::passed()
    });
    let (first, plan) = (world.orchestrator(), plan(&[("a", &[])]));
    let stop = CancellationToken::new();
    let driving = tokio::spawn({
        let stop = stop.clone();
        async move { first.drive(Some(plan), stop).await }
    });
    while world.recorder.events().len() < 4 {
        tokio::task::yield_now().await;
    }
    world.host.die();
    let next = World { host: world.host.process(2), ..world.clone() };
    assert_eq!(next.drive(None).await.unwrap(), RunEnd::Completed);
    // Its stage ends, and with the result it finds the run in other hands.
    stop.cancel();
    assert!(driving.await.unwrap().is_err());
    assert_eq!(world.target.merged().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn p4_a_store_that_fails_now_and_then_changes_nothing_about_the_outcome() {
    let edges: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["c"])];
    let faults = [
        Fault::Before,
        Fault::After,
        Fault::Lost,
        Fault::Duplicate,
        Fault::Delay(Duration::from_millis(30)),
    ];
    for seed in 0..300 {
        let world = World::new(|cx| match (cx.stage.kind, cx.task.id.as_str(), cx.last_error()) {
            (StageKind::Verify, "b", None) => StageEnd::rejected("not yet".to_owned()),
            _ => StageEnd::passed(),
        });
        let faulty = FaultStore::seeded(Arc::clone(&world.store), seed, 150, &faults);
        let first = World { store: Arc::new(faulty), ..world.clone() };
        // A fault while the run is opened or read is an error; then the next process goes on.
        let mut world_now = first;
        for pid in 2.. {
            match world_now.drive(Some(plan(edges))).await {
                Ok(end) => {
                    assert_eq!(end, RunEnd::Completed, "seed {seed}");
                    break;
                }
                Err(err) => {
                    assert!(pid < 60, "seed {seed} does not end: {err}");
                    world_now.host.die();
                    world_now = World { host: world.host.process(pid), ..world_now.clone() };
                }
            }
        }
        assert_eq!(world.target.merged().len(), 4, "seed {seed}");
        let engine = orchestrator_core::Engine::restore(&world.snapshot().await).unwrap();
        assert_eq!(engine.audit(), Vec::<String>::new(), "seed {seed}");
    }
}

#[tokio::test]
async fn an_account_that_cannot_be_used_parks_the_run_however_often_and_is_no_fault_of_its_tasks() {
    let left = Arc::new(AtomicU32::new(80));
    let tries = Arc::clone(&left);
    let world =
        World::new(move |_| match tries.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)) {
            Ok(left) if left % 4 < 2 => StageEnd::interrupted(Interruption::Auth),
            Ok(_) => StageEnd::interrupted(Interruption::Billing),
            Err(_) => StageEnd::passed(),
        });
    let plan = plan(&[("a", &[]), ("b", &[])]);
    let mut parked = 0;
    while left.load(Relaxed) > 0 {
        let end = world.drive(Some(Arc::clone(&plan))).await.unwrap();
        assert!(matches!(end, RunEnd::Parked(ParkReason::Auth | ParkReason::Billing)), "{end:?}");
        parked += 1;
    }
    assert!(parked >= 40, "{parked}");
    assert_eq!(world.drive(Some(plan)).await.unwrap(), RunEnd::Completed);
}
