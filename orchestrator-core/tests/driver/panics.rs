//! Adapters that panic, or fail, wherever a driver asks them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{
    Applied, Change, Host, Integrator, Liveness, OpenWorkspace, PortError, Proposal, Room, Sealed,
    Workspace, Workspaces,
};
use orchestrator_core::testing::{Fault, FaultStore, MemoryTarget, VirtualHost};
use orchestrator_core::{
    Candidate, ChangeId, ClockReading, Cost, DriverConfig, EventKind, FencingToken, Mask,
    MergeIntent, Orchestrator, Owner, Plan, RunEnd, RunError, RunId, SchedulingPolicy, SessionId,
    StageEnd, StageKind, TaskGraph, TaskId, TaskSpec, Usd,
};

use crate::{World, plan, run, start};

/// Methods that panic, by name with spaces between them, at the calls of these numbers.
struct Panics {
    methods: &'static str,
    on: Range<u32>,
    calls: AtomicU32,
    /// Whether they do not panic, and fail instead.
    only_fail: bool,
}

impl Panics {
    fn new(methods: &'static str, on: Range<u32>) -> Self {
        Self { methods, on, calls: AtomicU32::new(0), only_fail: false }
    }

    #[expect(clippy::panic_in_result_fn, reason = "to panic is what it is there for")]
    fn ask(&self, method: &str) -> Result<(), PortError> {
        let is_meant = self.methods.split(' ').any(|one| one == method);
        if is_meant && self.on.contains(&self.calls.fetch_add(1, Ordering::Relaxed)) {
            assert!(self.only_fail, "{method} is broken");
            return Err(PortError::Transient(format!("{method} is broken").into()));
        }
        Ok(())
    }
}

/// A target some methods of which panic.
struct Broken(MemoryTarget, Panics);

#[async_trait]
impl Workspaces for Broken {
    async fn open(&self, ask: &OpenWorkspace) -> Result<Workspace, PortError> {
        self.1.ask("open")?;
        self.0.open(ask).await
    }

    async fn seal(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Sealed, PortError> {
        self.1.ask("seal")?;
        self.0.seal(ask, at).await
    }

    async fn differing(&self, at: &Workspace, from: &ChangeId) -> Result<Vec<String>, PortError> {
        self.1.ask("differing")?;
        self.0.differing(at, from).await
    }

    async fn change(&self, candidate: &Candidate) -> Result<Change, PortError> {
        self.1.ask("change")?;
        self.0.change(candidate).await
    }

    async fn keep(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Option<String>, PortError> {
        self.1.ask("keep")?;
        self.0.keep(ask, at).await
    }

    async fn release(&self, run: &RunId, task: &TaskId) -> Result<(), PortError> {
        self.1.ask("release")?;
        self.0.release(run, task).await
    }

    async fn retain(&self, run: &RunId, live: &[TaskId]) -> Result<(), PortError> {
        self.1.ask("retain")?;
        self.0.retain(run, live).await
    }

    async fn untouched(&self, run: &RunId) -> Result<Workspace, PortError> {
        self.1.ask("untouched")?;
        self.0.untouched(run).await
    }

    async fn room(&self, run: &RunId) -> Result<Room, PortError> {
        self.1.ask("room")?;
        self.0.room(run).await
    }
}

#[async_trait]
impl Integrator for Broken {
    async fn fence(&self, run: &RunId, task: &TaskId, at: FencingToken) -> Result<(), PortError> {
        self.1.ask("fence")?;
        self.0.fence(run, task, at).await
    }

    async fn propose(
        &self,
        run: &RunId,
        task: &TaskSpec,
        token: FencingToken,
        candidate: &Candidate,
    ) -> Result<Proposal, PortError> {
        self.1.ask("propose")?;
        self.0.propose(run, task, token, candidate).await
    }

    async fn turn(
        &self,
        run: &RunId,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<bool, PortError> {
        self.1.ask("turn")?;
        self.0.turn(run, task, token, intent).await
    }

    fn withdraw(&self, run: &RunId, task: &TaskId, token: FencingToken) {
        self.1.ask("withdraw").unwrap();
        self.0.withdraw(run, task, token);
    }

    async fn apply(
        &self,
        run: &RunId,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<Applied, PortError> {
        self.1.ask("apply")?;
        self.0.apply(run, task, token, intent).await
    }

    async fn is_merged(&self, change: &ChangeId) -> Result<bool, PortError> {
        self.1.ask("is_merged")?;
        self.0.is_merged(change).await
    }

    async fn greatest_fence(&self, run: &RunId) -> Result<FencingToken, PortError> {
        self.1.ask("greatest_fence")?;
        self.0.greatest_fence(run).await
    }
}

/// A host some methods of which panic.
struct BrokenHost(VirtualHost, Panics);

#[async_trait]
impl Host for BrokenHost {
    fn reading(&self) -> ClockReading {
        self.1.ask("reading").unwrap();
        self.0.reading()
    }

    fn this_process(&self) -> Owner {
        self.1.ask("this_process").unwrap();
        self.0.this_process()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        self.1.ask("liveness").unwrap();
        self.0.liveness(owner)
    }

    async fn end_leftovers(&self, run: &RunId, token: FencingToken) -> Result<u32, PortError> {
        self.1.ask("end_leftovers")?;
        self.0.end_leftovers(run, token).await
    }

    async fn mask_logs(&self, dir: &Path, mask: &Mask) -> Result<(), PortError> {
        self.1.ask("mask_logs")?;
        self.0.mask_logs(dir, mask).await
    }
}

fn two() -> Arc<Plan> {
    plan(&[("a", &[]), ("b", &["a"])])
}

/// Drives to the end with methods of the target that panic at these calls.
async fn driven_with(methods: &'static str, on: Range<u32>) -> Result<(World, RunEnd), RunError> {
    let world = World::new(|_| StageEnd::passed());
    let broken = Arc::new(Broken(world.target.clone(), Panics::new(methods, on)));
    let orchestrator = world.orchestrator_with(|ports| {
        ports.workspaces = Arc::<Broken>::clone(&broken);
        ports.integrator = broken;
    });
    let (_stop, driving) = start(orchestrator, two());
    let end = driving.await.expect("it does not panic")?;
    Ok((world, end))
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_an_adapter_fails_costs_what_it_cost_and_its_conversation_goes_on() {
    let session = SessionId::parse("s-1").unwrap();
    for (method, runs, goes_on) in [("open", 1, None), ("seal", 2, Some(session.clone()))] {
        let session = session.clone();
        let world = World::new(move |cx| {
            if cx.stage.kind != StageKind::Run {
                return StageEnd::passed();
            }
            let (cost, session) = (Cost::Known(Usd::dollars(1)), Some(session.clone()));
            StageEnd { cost, session, ..StageEnd::passed() }
        });
        let fails = Panics { only_fail: true, ..Panics::new(method, 0..1) };
        let target = Arc::new(Broken(world.target.clone(), fails));
        let orchestrator = world.orchestrator_with(|ports| ports.workspaces = target);
        let (_stop, driving) = start(orchestrator, plan(&[("a", &[])]));
        assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed, "{method}");
        assert_eq!(world.snapshot().await.run.spent, Usd::dollars(runs), "{method}");
        let interrupted = world.recorder.events().into_iter().find_map(|stored| {
            let EventKind::Interrupted { session, .. } = stored.event.kind else { return None };
            Some(session)
        });
        assert_eq!(interrupted, Some(goes_on), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_panics_once_wherever_it_is_asked_ends_no_run() {
    for method in [
        "open",
        "seal",
        "differing",
        "release",
        "room",
        "fence",
        "propose",
        "turn",
        "withdraw",
        "apply",
        "change",
        "propose withdraw",
    ] {
        let calls = if method.contains(' ') { 2 } else { 1 };
        let (world, end) = driven_with(method, 0..calls).await.unwrap();
        assert_eq!(end, RunEnd::Completed, "{method}");
        assert_eq!(world.target.merged().len(), 2, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_panics_whenever_the_loop_asks_it_holds_nothing_up() {
    let (world, end) = driven_with("room release withdraw", 0..u32::MAX).await.unwrap();
    assert_eq!((end, world.target.merged().len()), (RunEnd::Completed, 2));
}

#[tokio::test(start_paused = true)]
async fn what_panics_before_anything_is_granted_is_why_the_run_cannot_be_taken_over() {
    for method in ["greatest_fence", "retain"] {
        let Err(err) = driven_with(method, 0..1).await else { panic!("{method} did not panic") };
        let RunError::Port(err) = err else { panic!("{method}: {err:?}") };
        assert!(err.chain().ends_with(&format!("panicked: {method} is broken")), "{err:?}");
    }
    let world = World::new(|_| StageEnd::passed());
    for method in ["reading", "this_process"] {
        let broken = BrokenHost(world.host.clone(), Panics::new(method, 0..1));
        let orchestrator = world.orchestrator_with(|ports| ports.host = Arc::new(broken));
        let err = start(orchestrator, two()).1.await.unwrap().unwrap_err();
        assert!(matches!(err, RunError::Port(_)), "{method}: {err:?}");
    }
    let broken = Broken(world.target.clone(), Panics::new("untouched", 0..1));
    let orchestrator = world.orchestrator_with(|ports| ports.workspaces = Arc::new(broken));
    let plan = plan(&[("a", &[])]);
    orchestrator.try_verify_commands(&plan).await.unwrap_err();
    assert_eq!(orchestrator.try_verify_commands(&plan).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_at_any_call_ends_no_run_that_was_taken_over() {
    let mut completed = 0;
    for call in 0..40 {
        let world = World::new(|_| StageEnd::passed()).alone();
        let store = FaultStore::scripted(Arc::clone(&world.store), [(call, Fault::Panic)]);
        let store = Arc::new(store);
        let broken = World { store: Arc::<FaultStore<_>>::clone(&store), ..world.clone() };
        let end = start(broken.orchestrator(), two()).1.await.expect("it does not panic");
        match end {
            Ok(end) => {
                assert_eq!(end, RunEnd::Completed, "{call}");
                completed += 1;
            }
            Err(err) => assert!(call < 2, "{call}: {err:?}"),
        }
        assert_eq!(world.drive(Some(two())).await.unwrap(), RunEnd::Completed, "{call}");
        assert_eq!(world.target.merged().len(), 2, "{call}");
    }
    assert!(completed >= 38, "{completed}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_when_leases_are_renewed_counts_as_one_that_does_not_answer() {
    let world = World::new(|_| StageEnd::interrupted(orchestrator_core::Interruption::Silence));
    let faults = (10..10_000).map(|call| (call, Fault::Panic));
    let store = Arc::new(FaultStore::scripted(Arc::clone(&world.store), faults));
    let broken = World { store, ..world.clone() };
    let (_stop, driving) = start(broken.orchestrator(), plan(&[("a", &[])]));
    let ended = tokio::time::timeout(Duration::from_secs(600), driving).await;
    let err = ended.expect("the stage is ended in time").unwrap().unwrap_err();
    assert!(matches!(err, RunError::Commit(_)), "{err:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_clock_panics_under_way_stands_still_and_ends_no_run() {
    let world = World::new(|_| StageEnd::passed());
    let host = BrokenHost(world.host.clone(), Panics::new("reading", 1..u32::MAX));
    let orchestrator = world.orchestrator_with(|ports| ports.host = Arc::new(host));
    let (_stop, driving) = start(orchestrator, two());
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed);
    assert_eq!(world.target.merged().len(), 2);
}

/// A policy that panics.
#[derive(Debug)]
struct Undecided;

impl SchedulingPolicy for Undecided {
    fn ranks(&self, _: &TaskGraph<'_>) -> Vec<u64> {
        panic!("it cannot decide")
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_leaves_the_order_in_which_tasks_came() {
    let world = World::new(|_| StageEnd::passed());
    let ports = world.orchestrator().ports().clone();
    let mut config = DriverConfig::new(run(), "stages".into());
    config.policy = Arc::new(Undecided);
    let (_stop, driving) = start(Orchestrator::new(ports, config), two());
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed);
}
