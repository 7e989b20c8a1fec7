//! Limits that change while a run goes on, and runs that begin with a pilot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orchestrator_core::port::Store;
use orchestrator_core::testing::{Fault, FaultStore};
use orchestrator_core::{
    AGENTS, Adaptive, Assumptions, Capacity, CapacitySource, Command, DriverConfig, EventKind,
    Interruption, MemoryStore, Orchestrator, ParkReason, PilotRule, PoolName, RunEnd,
    SharedCapacity, Sign, StageEnd, StageKind, Timestamp, UsageWindow, Usd,
};
use tokio_util::sync::CancellationToken;

use super::{World, plan, run};

impl World {
    /// An orchestrator that is configured otherwise.
    pub(super) fn configured(&self, change: impl FnOnce(&mut DriverConfig)) -> Orchestrator {
        let mut config = DriverConfig::new(run(), "stages".into());
        config.rules.backoff = Duration::ZERO;
        change(&mut config);
        Orchestrator::new(self.orchestrator().ports().clone(), config)
    }

    fn limits(&self, pool: &PoolName) -> Vec<u32> {
        let limit = |kind: &EventKind| {
            let EventKind::PoolLimited { pool: of, limit } = kind else { return None };
            (of == pool).then_some(*limit)
        };
        self.recorder.events().iter().filter_map(|stored| limit(&stored.event.kind)).collect()
    }
}

fn agents() -> PoolName {
    PoolName::parse(AGENTS).unwrap()
}

fn shared(source: impl CapacitySource + 'static) -> BTreeMap<PoolName, SharedCapacity> {
    let source: SharedCapacity = Arc::new(Mutex::new(source));
    [(agents(), source)].into()
}

#[tokio::test]
async fn an_overloaded_service_gets_half_of_the_stages_and_then_one_more_with_each_round() {
    let calls = AtomicU32::new(0);
    let world = World::new(move |cx| {
        if cx.stage.kind == StageKind::Run && calls.fetch_add(1, Ordering::Relaxed) == 0 {
            return StageEnd::interrupted(Interruption::Overload);
        }
        StageEnd::passed()
    });
    let edges: Vec<String> = (0..12).map(|number| format!("t{number}")).collect();
    let edges: Vec<(&str, &[&str])> = edges.iter().map(|name| (name.as_str(), &[][..])).collect();
    let orchestrator = world.configured(|config| config.capacity = shared(Adaptive::new(1, 8, 8)));
    let ended = orchestrator.drive(Some(plan(&edges)), CancellationToken::new()).await;
    assert_eq!(ended.unwrap(), RunEnd::Completed);
    let limits = world.limits(&agents());
    // Some that were under way may have passed in the same turn.
    let [8, halved @ 4..=5, steps @ ..] = limits.as_slice() else { panic!("{limits:?}") };
    assert!(steps.iter().copied().eq(halved + 1..=8), "{limits:?}");
}

/// Closed at first; open once its time has come.
#[derive(Debug)]
struct ClosedUntil(u64);

impl CapacitySource for ClosedUntil {
    fn note(&mut self, _now: Timestamp, _sign: Sign) {}

    fn capacity(&self, now: Timestamp) -> Capacity {
        let until = Some(Timestamp(self.0)).filter(|at| *at > now);
        Capacity { limit: if until.is_some() { 0 } else { 3 }, until }
    }
}

#[tokio::test(start_paused = true)]
async fn p11_a_window_that_is_used_up_is_waited_for_and_is_no_stall() {
    let world = World::new(|_| StageEnd::passed());
    let orchestrator = world.configured(|config| config.capacity = shared(ClosedUntil(60_000)));
    let driving = tokio::spawn(async move {
        orchestrator.drive(Some(plan(&[("a", &[])])), CancellationToken::new()).await
    });
    world.committed(|kind| matches!(kind, EventKind::PoolClosed { .. })).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    let granted = |kind: &EventKind| matches!(kind, EventKind::Granted { .. });
    assert!(!world.recorder.events().iter().any(|stored| granted(&stored.event.kind)));
    world.host.advance(60_000);
    let ended = tokio::time::timeout(Duration::from_secs(120), driving).await;
    assert_eq!(ended.unwrap().unwrap().unwrap(), RunEnd::Completed);
    assert_eq!(world.limits(&agents()), [3]);
}

fn count(world: &World, is_it: impl Fn(&EventKind) -> bool) -> usize {
    world.recorder.events().iter().filter(|stored| is_it(&stored.event.kind)).count()
}

#[tokio::test(start_paused = true)]
async fn p11_a_window_that_begins_anew_before_its_time_opens_the_pool_that_it_had_closed() {
    let calls = AtomicU32::new(0);
    let world = World::new(move |cx| {
        if cx.stage.kind == StageKind::Run && calls.fetch_add(1, Ordering::Relaxed) == 0 {
            return StageEnd::interrupted(Interruption::UsageLimit);
        }
        StageEnd::passed()
    });
    let window = Arc::new(Mutex::new(UsageWindow::new(3, 0)));
    let told = Arc::clone(&window);
    let orchestrator = world.configured(|config| {
        config.capacity.insert(agents(), window);
    });
    let driving = tokio::spawn(async move {
        orchestrator.drive(Some(plan(&[("a", &[])])), CancellationToken::new()).await
    });
    world.committed(|kind| matches!(kind, EventKind::PoolClosed { .. })).await;
    let nudge = |limit| Command::LimitPool { pool: PoolName::parse("other").unwrap(), limit };
    world.orchestrator().ask(&nudge(2)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!driving.is_finished(), "the account is closed");
    let sign = Sign::Used { per_mille: 100, reopens: None };
    told.lock().unwrap().note(Timestamp(0), sign);
    world.orchestrator().ask(&nudge(3)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(120), driving).await;
    assert_eq!(ended.expect("it opens").unwrap().unwrap(), RunEnd::Completed);
    assert_eq!(count(&world, |kind| matches!(kind, EventKind::PoolOpened { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn p11_a_pool_that_a_person_opens_stays_open_though_its_source_says_what_it_said() {
    let world = World::new(|_| StageEnd::passed());
    let orchestrator = world.configured(|config| config.capacity = shared(ClosedUntil(60_000)));
    let driving = tokio::spawn(async move {
        orchestrator.drive(Some(plan(&[("a", &[])])), CancellationToken::new()).await
    });
    world.committed(|kind| matches!(kind, EventKind::PoolClosed { .. })).await;
    let open = Command::OpenPool { pool: agents() };
    world.orchestrator().ask(&open).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(120), driving).await;
    assert_eq!(ended.expect("it opens").unwrap().unwrap(), RunEnd::Completed);
    let closed = |kind: &EventKind| matches!(kind, EventKind::PoolClosed { .. });
    assert_eq!(count(&world, closed), 1, "and is not closed again");
}

/// Says the limit once, and panics ever after.
#[derive(Debug)]
struct Broken(AtomicU32);

impl CapacitySource for Broken {
    fn note(&mut self, _now: Timestamp, _sign: Sign) {
        panic!("the source is broken");
    }

    fn capacity(&self, _now: Timestamp) -> Capacity {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) == 0, "the source is broken");
        Capacity { limit: 3, until: None }
    }
}

#[tokio::test]
async fn a_source_of_a_limit_that_panics_leaves_the_limit_and_the_run_goes_on() {
    let world = World::new(|_| StageEnd::passed());
    let source = shared(Broken(AtomicU32::new(0)));
    let orchestrator = world.configured(|config| config.capacity = source);
    let plan = plan(&[("a", &[]), ("b", &["a"])]);
    let end = orchestrator.drive(Some(plan), CancellationToken::new()).await;
    assert_eq!((end.unwrap(), world.limits(&agents())), (RunEnd::Completed, vec![3]));
}

#[tokio::test]
async fn p15_a_run_parks_after_its_pilot_with_a_projection_and_goes_on_when_a_person_resumes_it() {
    let world = World::new(|_| StageEnd::passed());
    let edges: [(&str, &[&str]); 4] = [("a", &[]), ("b", &[]), ("c", &[]), ("d", &["c"])];
    let orchestrator = world.configured(|config| config.pilot = Some(PilotRule::new(2)));
    let stop = CancellationToken::new;
    let ended = orchestrator.drive(Some(plan(&edges)), stop()).await.unwrap();
    assert_eq!(ended, RunEnd::Parked(ParkReason::Pilot));
    assert_eq!(world.target.merged().len(), 2);
    let known = orchestrator.projection(Assumptions::default()).await.unwrap().unwrap();
    assert_eq!(known.measured.rejected_per_mille, 0, "nothing was rejected");
    assert!(known.forecast.cost.high <= Usd::dollars(28), "{}", known.forecast);
    let resumed = world.configured(|config| config.resume = true);
    assert_eq!(resumed.drive(None, stop()).await.unwrap(), RunEnd::Completed);
    assert_eq!(world.target.merged().len(), 4);
}

#[tokio::test]
async fn p15_a_run_goes_on_after_its_pilot_by_itself_when_the_rest_keeps_within_its_bounds() {
    let edges: [(&str, &[&str]); 3] = [("a", &[]), ("b", &[]), ("c", &[])];
    for (cost_max, expected) in
        [(Usd::dollars(20), RunEnd::Completed), (Usd(1), RunEnd::Parked(ParkReason::Pilot))]
    {
        let world = World::new(|cx| {
            let mut end = StageEnd::passed();
            end.cost = orchestrator_core::Cost::Known(Usd(cx.stage.cap.0 / 4));
            end
        });
        let orchestrator = world.configured(|config| {
            let cost_max = Some(cost_max);
            config.pilot = Some(PilotRule { cost_max, ..PilotRule::new(1) });
        });
        let ended = orchestrator.drive(Some(plan(&edges)), CancellationToken::new()).await;
        assert_eq!(ended.unwrap(), expected);
        let resumed = |kind: &EventKind| matches!(kind, EventKind::Resumed { actor } if actor.starts_with("the pilot: "));
        let goes_on = world.recorder.events().iter().any(|one| resumed(&one.event.kind));
        assert_eq!(goes_on, expected == RunEnd::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_once_ends_no_run_that_has_a_pilot_wherever_it_fails() {
    for call in 0.. {
        let inner = Arc::new(MemoryStore::default());
        let store = Arc::new(FaultStore::scripted(inner, [(call, Fault::Lost)]));
        let kept: Arc<dyn Store> = Arc::<FaultStore<MemoryStore>>::clone(&store);
        let world = World { store: kept, ..World::new(|_| StageEnd::passed()) };
        let orchestrator = world.configured(|config| {
            let cost_max = Some(Usd::dollars(20));
            config.pilot = Some(PilotRule { cost_max, ..PilotRule::new(1) });
        });
        let edges: [(&str, &[&str]); 2] = [("a", &[]), ("b", &[])];
        let ended = orchestrator.drive(Some(plan(&edges)), CancellationToken::new()).await;
        let is_granted = |kind: &EventKind| matches!(kind, EventKind::Granted { .. });
        // Before that nothing has begun, and whoever starts it is told.
        if world.recorder.events().iter().any(|one| is_granted(&one.event.kind)) {
            assert_eq!(ended.unwrap(), RunEnd::Completed, "call {call}");
        }
        if store.calls() <= call {
            return;
        }
    }
}
