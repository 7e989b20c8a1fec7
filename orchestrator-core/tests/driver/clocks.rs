//! Clocks that leap, and machines that sleep.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orchestrator_core::port::Host as _;
use orchestrator_core::testing::VirtualHost;
use orchestrator_core::{
    ClockReading, EventKind, Interruption, RunEnd, StageEnd, StageKind, WallTime,
};

use super::{World, plan, start};

/// Changes the host's clocks during the first run stage, which then hangs if it is to.
fn world(leap: impl Fn(&VirtualHost) + Send + Sync + 'static, hangs: bool) -> World {
    let host = VirtualHost::new();
    let clocks = host.clone();
    let has_leapt = AtomicBool::new(false);
    let world = World::new(move |cx| {
        if cx.stage.kind == StageKind::Run && !has_leapt.swap(true, Ordering::Relaxed) {
            leap(&clocks);
            if hangs {
                return StageEnd::interrupted(Interruption::Silence);
            }
        }
        StageEnd::passed()
    });
    World { host, ..world }
}

/// Drives two tasks to their end, and says why stages were interrupted.
async fn drive(world: &World) -> Vec<Interruption> {
    let (_stop, driving) = start(world.orchestrator(), plan(&[("a", &[]), ("b", &["a"])]));
    let end = tokio::time::timeout(Duration::from_secs(600), driving).await;
    assert_eq!(end.expect("it ends").unwrap().unwrap(), RunEnd::Completed);
    assert_eq!(world.target.merged().len(), 2);
    let events = world.recorder.events();
    let times: Vec<_> = events.iter().map(|stored| stored.event.at).collect();
    assert!(times.is_sorted(), "{times:?}");
    let reason = |kind: &EventKind| {
        if let EventKind::Interrupted { reason, .. } = kind { Some(*reason) } else { None }
    };
    events.iter().filter_map(|stored| reason(&stored.event.kind)).collect()
}

#[tokio::test(start_paused = true)]
async fn p14_a_stage_that_hung_while_the_machine_slept_is_ended_and_granted_again() {
    let world = world(|host| host.advance(3 * 24 * 3_600_000), true);
    assert_eq!(drive(&world).await, [Interruption::Expired]);
}

#[tokio::test(start_paused = true)]
async fn p14_a_stage_that_ended_while_the_machine_slept_counts_if_nobody_took_its_lease() {
    let world = world(|host| host.advance(10 * 60_000), false);
    assert_eq!(drive(&world).await, []);
}

#[tokio::test(start_paused = true)]
async fn p14_leaps_of_the_wall_clock_change_nothing() {
    for wall in [0, 1, u64::MAX / 2] {
        let world = world(
            move |host| {
                host.set(ClockReading { wall: WallTime(wall), ..host.reading() });
            },
            false,
        );
        assert_eq!(drive(&world).await, [], "{wall}");
    }
}

#[tokio::test(start_paused = true)]
async fn p14_a_boot_clock_that_goes_back_freezes_nothing() {
    let world = world(
        |host| {
            let boot_ms = host.reading().boot_ms.saturating_sub(900);
            host.set(ClockReading { boot_ms, ..host.reading() });
        },
        false,
    );
    assert_eq!(drive(&world).await, []);
}
