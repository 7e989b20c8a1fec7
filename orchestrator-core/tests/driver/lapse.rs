//! A driver that cannot renew its leases.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{Runner, StageContext};
use orchestrator_core::testing::{Fault, FaultStore};
use orchestrator_core::{EventKind, Interruption, RunEnd, RunError, StageEnd};
use tokio::time::Instant;

use super::{World, plan, start};

/// How long a lease lives.
const TTL: Duration = Duration::from_secs(60);

/// Its first stage goes on until it is told to end, and notes when that was.
#[derive(Debug, Default)]
struct Listens(Mutex<Option<Instant>>);

#[async_trait]
impl Runner for Listens {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        if self.0.lock().unwrap().is_some() {
            return StageEnd::passed();
        }
        cx.cancel.cancelled().await;
        *self.0.lock().unwrap() = Some(Instant::now());
        StageEnd::interrupted(Interruption::Shutdown)
    }
}

/// The calls of the store until the first stage runs.
async fn calls_before_it_runs() -> u64 {
    let world = World::new(|_| StageEnd::interrupted(Interruption::Silence));
    let store = Arc::new(FaultStore::scripted(Arc::clone(&world.store), []));
    let counted = World { store: Arc::<FaultStore<_>>::clone(&store), ..world.clone() };
    let (stop, driving) = start(counted.orchestrator(), plan(&[("a", &[])]));
    world.committed(|kind| matches!(kind, EventKind::Granted { .. })).await;
    let calls = store.calls();
    stop.cancel();
    driving.await.unwrap().unwrap();
    calls
}

/// Drives while these calls of the store fail; says after how long the stage was told to end.
async fn driven(faults: Range<u64>) -> (Duration, Result<RunEnd, RunError>) {
    let world = World::new(|_| StageEnd::passed());
    let faults = faults.map(|call| (call, Fault::Before));
    let store = Arc::new(FaultStore::scripted(Arc::clone(&world.store), faults));
    let (listens, begun) = (Arc::new(Listens::default()), Instant::now());
    let orchestrator = World { store, ..world }.orchestrator_with(|ports| {
        ports.runner = Arc::<Listens>::clone(&listens);
    });
    let (_stop, driving) = start(orchestrator, plan(&[("a", &[])]));
    let end = driving.await.unwrap();
    let told = listens.0.lock().unwrap().expect("the stage is told");
    (told.duration_since(begun), end)
}

#[tokio::test(start_paused = true)]
async fn p1_what_runs_ends_before_its_leases_can_be_taken_for_lapsed() {
    let calls = calls_before_it_runs().await;
    let (told, end) = driven(calls..calls + 10_000).await;
    assert!(told < TTL - Duration::from_secs(8), "no time is left to end in: {told:?}");
    assert!(matches!(end, Err(RunError::Commit(_))), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_when_its_leases_can_be_renewed_again() {
    let calls = calls_before_it_runs().await;
    // Two renewals.
    let (told, end) = driven(calls..calls + 2).await;
    assert!(told < TTL, "{told:?}");
    assert_eq!(end.unwrap(), RunEnd::Completed);
}
