//! Stages, processes and drivers that do not end as they should.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{
    Activity, Host, Liveness, Observer, PortError, Progress, Runner, StageContext,
};
use orchestrator_core::testing::{FaultStore, VirtualHost};
use orchestrator_core::{
    ClockReading, EventKind, FencingToken, Interruption, Mask, Owner, Phase, RunEnd, RunId,
    StageEnd, StoredEvent,
};
use tokio_util::sync::CancellationToken;

use super::{World, from, plan, start};

/// A runner whose first stage neither ends nor listens.
#[derive(Debug, Default)]
struct Deaf(AtomicU32);

#[async_trait]
impl Runner for Deaf {
    async fn run(&self, _: &StageContext) -> StageEnd {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            std::future::pending::<()>().await;
        }
        StageEnd::passed()
    }
}

/// A host on which what a stage left running cannot be ended for some tries.
#[derive(Debug)]
struct Stubborn {
    host: VirtualHost,
    fails: Mutex<u32>,
    /// Whether the last try hangs in place of ending it.
    hangs: bool,
}

#[async_trait]
impl Host for Stubborn {
    fn reading(&self) -> ClockReading {
        self.host.reading()
    }

    fn this_process(&self) -> Owner {
        self.host.this_process()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        self.host.liveness(owner)
    }

    async fn end_leftovers(&self, run: &RunId, token: FencingToken) -> Result<u32, PortError> {
        let fails = self.fails.lock().unwrap().checked_sub(1);
        if let Some(left) = fails {
            *self.fails.lock().unwrap() = left;
            return Err(PortError::Transient("they will not die".into()));
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        self.host.end_leftovers(run, token).await
    }

    async fn mask_logs(&self, dir: &Path, mask: &Mask) -> Result<(), PortError> {
        self.host.mask_logs(dir, mask).await
    }
}

#[tokio::test]
async fn a_grace_without_end_ends_with_the_stage() {
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let world = World::new(move |_| {
        asked.cancel();
        StageEnd::interrupted(Interruption::Silence)
    });
    let patient = world.configured(|config| config.stop_grace = Duration::MAX);
    assert_eq!(patient.drive(Some(plan(&[("a", &[])])), stop).await.unwrap(), RunEnd::Stopped);
}

#[tokio::test(start_paused = true)]
async fn p15_a_stage_past_its_hard_stop_that_does_not_listen_is_broken_off_and_granted_again() {
    let world = World::new(|_| StageEnd::passed());
    let deaf = world.orchestrator_with(|ports| ports.runner = Arc::new(Deaf::default()));
    let (_stop, driving) = start(deaf, plan(&[("a", &[])]));
    world.committed(|kind| matches!(kind, EventKind::Granted { .. })).await;
    world.host.advance(24 * 3_600_000);
    let end = tokio::time::timeout(Duration::from_secs(120), driving).await;
    assert_eq!(end.expect("it is broken off").unwrap().unwrap(), RunEnd::Completed);
    assert_eq!(world.host.ended().len(), 1, "its processes were ended");
}

#[tokio::test(start_paused = true)]
async fn p20_a_task_is_granted_again_only_once_nothing_of_its_crashed_stage_runs() {
    let world = World::new(|cx| {
        assert!(cx.token.0 > 1, "the adapter is broken");
        StageEnd::passed()
    });
    let host = Stubborn { host: world.host.clone(), fails: Mutex::new(5), hangs: false };
    let host = Arc::new(host);
    let stubborn = Arc::<Stubborn>::clone(&host);
    let orchestrator = world.orchestrator_with(|ports| ports.host = stubborn);
    let (_stop, driving) = start(orchestrator, plan(&[("a", &[])]));
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed);
    assert_eq!((*host.fails.lock().unwrap(), world.host.ended().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_quick_whatever_stages_and_processes_do_and_leaves_the_lease_to_the_next() {
    let world = with_leftovers().await;
    let Phase::Stopping { why, .. } = world.phase("a").await else { panic!("it was let go") };
    assert_eq!(why, Interruption::OwnerLost);
    assert_eq!(world.drive(None).await.unwrap(), RunEnd::Completed);
    assert_eq!(world.host.ended().len(), 1);
}

/// A world in which a driver ended, quickly, and left the processes of the run stage of `a`.
async fn with_leftovers() -> World {
    let world = World::new(|_| StageEnd::passed());
    let hanging = Stubborn { host: world.host.clone(), fails: Mutex::new(0), hangs: true };
    let orchestrator = world.orchestrator_with(|ports| {
        ports.runner = Arc::new(Deaf::default());
        ports.host = Arc::new(hanging);
    });
    let (stop, driving) = start(orchestrator, plan(&[("a", &[])]));
    world.committed(|kind| matches!(kind, EventKind::Granted { .. })).await;
    stop.cancel();
    let end = tokio::time::timeout(Duration::from_secs(1), driving).await;
    assert_eq!(end.expect("it stops").unwrap().unwrap(), RunEnd::Stopped);
    world
}

fn is_granted(kind: &EventKind, name: &str) -> bool {
    matches!(kind, EventKind::Granted { task, .. } if task.as_str() == name)
}

#[tokio::test(start_paused = true)]
async fn p20_nothing_is_granted_before_what_an_earlier_driver_left_is_ended() {
    let world = with_leftovers().await;
    let host = Stubborn { host: world.host.clone(), fails: Mutex::new(3), hangs: false };
    let orchestrator = world.orchestrator_with(|ports| ports.host = Arc::new(host));
    let (_stop, driving) = start(orchestrator, plan(&[("b", &[])]));
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed);
    let events = world.recorder.events();
    let place = |is_it: &dyn Fn(&EventKind) -> bool| {
        events.iter().position(|stored| is_it(&stored.event.kind)).unwrap()
    };
    let ended = place(&|kind| matches!(kind, EventKind::Interrupted { .. }));
    assert!(ended < place(&|kind| is_granted(kind, "b")));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_ended_holds_up_its_own_task_only() {
    let world = with_leftovers().await;
    let hanging = Stubborn { host: world.host.clone(), fails: Mutex::new(0), hangs: true };
    let orchestrator = world.orchestrator_with(|ports| ports.host = Arc::new(hanging));
    let (stop, driving) = start(orchestrator, plan(&[("b", &[])]));
    let granted = world.committed(|kind| is_granted(kind, "b"));
    tokio::time::timeout(Duration::from_secs(90), granted).await.expect("it is granted");
    stop.cancel();
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Stopped);
}

/// A host that panics the first times that it is to end something.
struct Panicking(VirtualHost, AtomicU32);

#[async_trait]
impl Host for Panicking {
    fn reading(&self) -> ClockReading {
        self.0.reading()
    }

    fn this_process(&self) -> Owner {
        self.0.this_process()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        self.0.liveness(owner)
    }

    async fn end_leftovers(&self, run: &RunId, token: FencingToken) -> Result<u32, PortError> {
        assert!(self.1.fetch_add(1, Ordering::Relaxed) > 1, "the host is broken");
        self.0.end_leftovers(run, token).await
    }

    async fn mask_logs(&self, dir: &Path, mask: &Mask) -> Result<(), PortError> {
        self.0.mask_logs(dir, mask).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_panics_is_asked_again_and_its_lease_is_not_forgotten() {
    let world = with_leftovers().await;
    let host = Panicking(world.host.clone(), AtomicU32::new(0));
    let orchestrator = world.orchestrator_with(|ports| ports.host = Arc::new(host));
    let (_stop, driving) = start(orchestrator, plan(&[("b", &[])]));
    let end = tokio::time::timeout(Duration::from_secs(60), driving).await;
    assert_eq!(end.expect("it ends").unwrap().unwrap(), RunEnd::Completed);
    assert_eq!(world.target.merged().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_same_process_drives_on_after_it_had_to_give_up() {
    for dies_after in 0..30 {
        let world = World::new(|_| StageEnd::passed()).alone();
        let dying = FaultStore::scripted(Arc::clone(&world.store), from(dies_after));
        let first = World { store: Arc::new(dying), ..world.clone() };
        let gave_up = first.drive(Some(plan(&[("a", &[]), ("b", &["a"])]))).await;
        let again = world.drive(Some(plan(&[("a", &[]), ("b", &["a"])]))).await;
        assert_eq!(again.unwrap(), RunEnd::Completed, "{dies_after}: {gave_up:?}");
        assert_eq!(world.target.merged().len(), 2);
    }
}

/// Falls over whatever it sees.
struct Clumsy;

impl Observer for Clumsy {
    fn committed(&self, _: &[StoredEvent], _: &Progress) {
        panic!("an observer that panics");
    }

    fn activity(&self, _: &Activity) {
        panic!("an observer that panics");
    }
}

#[tokio::test]
async fn an_observer_that_panics_interrupts_nothing_and_keeps_nothing_from_the_others() {
    let world = World::new(|_| StageEnd::passed());
    let all: Vec<Arc<dyn Observer>> = vec![Arc::new(Clumsy), Arc::new(world.recorder.clone())];
    let orchestrator = world.orchestrator_with(|ports| ports.observer = Arc::new(all));
    let end = orchestrator.drive(Some(plan(&[("a", &[])])), CancellationToken::new()).await;
    assert_eq!(end.unwrap(), RunEnd::Completed);
    let events = world.recorder.events();
    let is = |is_it: fn(&EventKind) -> bool| events.iter().any(|stored| is_it(&stored.event.kind));
    assert!(is(|kind| matches!(kind, EventKind::Completed)), "the other one sees all of it");
    assert!(!is(|kind| matches!(kind, EventKind::Interrupted { .. })), "{events:?}");
}
