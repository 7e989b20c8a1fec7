//! The driver, in worlds in which something goes wrong. Time is that of a runtime whose clock is
//! paused: it goes on when nothing else can.

mod world;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use self::world::{Deaf, Listens, World, id, plan};
use crate::command::Command;
use crate::driver::{RunEnd, RunError};
use crate::event::EventKind;
use crate::outcome::{Interruption, StageEnd};
use crate::pipeline::StageKind;
use crate::port::Store;
use crate::testing::{Fault, FaultStore};

/// What a scene found.
type Found = Result<(), String>;

/// Longer than anything takes that happens at once.
const SOON: Duration = Duration::from_secs(8);
/// Longer than any scene takes.
const EVER: Duration = Duration::from_secs(48 * 3600);

pub(super) fn check() -> Found {
    // One thread: a fault is put in on this one only.
    scene(places())?;
    scene(freed_places())?;
    scene(timers())?;
    scene(others())?;
    scene(crash())?;
    scene(deaf())?;
    scene(same_process())?;
    scene(unseen())?;
    scene(lapsed())?;
    scene(taken_over())?;
    scene(busy())?;
    (0..40).try_for_each(|call| scene(died(call)))
}

fn scene(scene: impl Future<Output = Found>) -> Found {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|err| err.to_string())?;
    let found = runtime.block_on(async { timeout(EVER, scene).await });
    found.unwrap_or_else(|_| Err("P15: it never ends".to_owned()))
}

fn hang() -> StageEnd {
    StageEnd::interrupted(Interruption::Silence)
}

fn holds(holds: bool, what: &str) -> Found {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn ended(end: &Result<RunEnd, RunError>, expected: &RunEnd) -> Found {
    match end {
        Ok(end) if end == expected => Ok(()),
        Ok(end) => Err(format!("P15: it ends {end:?}, not {expected:?}")),
        Err(err) => Err(format!("P5: it ends: {err}")),
    }
}

/// Every free place is filled at once.
async fn places() -> Found {
    let world = World::new(|_| hang());
    granted(&world, &["a", "b"], "P11: a free place stays empty").await
}

/// So is one that a result frees.
async fn freed_places() -> Found {
    let world =
        World::new(|cx| if cx.task.id.as_str() == "a" { StageEnd::passed() } else { hang() });
    granted(&world, &["c"], "P11: a place that became free stays empty").await
}

/// That all of these are granted soon, of two tasks and one that depends on the first.
async fn granted(world: &World, expected: &[&str], otherwise: &str) -> Found {
    let driving = world.start(plan(&[("a", &[]), ("b", &[]), ("c", &["a"])]));
    sleep(SOON).await;
    let granted = world.granted();
    driving.stop.cancel();
    ended(&driving.end().await, &RunEnd::Stopped)?;
    holds(expected.iter().all(|task| granted.contains(&id(task))), otherwise)
}

/// What waits for a time goes on at that time.
async fn timers() -> Found {
    let world = World::new(|cx| {
        let first = cx.stage.kind == StageKind::Run && cx.token.0 == 1;
        if first { StageEnd::interrupted(Interruption::Crashed) } else { StageEnd::passed() }
    });
    let end = timeout(SOON, world.drive(plan(&[("a", &[])]))).await;
    ended(&end.map_err(|_| "P15: nobody wakes when a wait is over")?, &RunEnd::Completed)
}

/// What another process asks for is heard, and a stage that is to end is told.
async fn others() -> Found {
    let world = World::new(|_| hang());
    let driving = world.start(plan(&[("a", &[])]));
    sleep(SOON).await;
    let (actor, reason) = ("ann".to_owned(), "not needed".to_owned());
    let cancel = Command::Cancel { task: id("a"), actor, reason };
    let asked = world.process(2).orchestrator().ask(&cancel).await;
    asked.map_err(|err| format!("P11: {err}"))?;
    let end = timeout(SOON, driving.end()).await;
    ended(&end.map_err(|_| "P15: what another process asks for is not done")?, &RunEnd::Completed)
}

/// A stage whose adapter panics is granted again, once nothing of it runs.
async fn crash() -> Found {
    let world = World::new(|cx| {
        assert!(cx.token.0 > 1, "an adapter that panics");
        StageEnd::passed()
    });
    ended(&world.drive(plan(&[("a", &[])])).await, &RunEnd::Completed)?;
    holds(world.host.ended().len() == 1, "P20: what ran under a lost lease runs on")
}

/// A stage that does not listen is broken off at its hard stop.
async fn deaf() -> Found {
    let world = World::new(|_| StageEnd::passed());
    let deaf = world.orchestrator_with(|ports| ports.runner = Arc::new(Deaf::default()));
    let driving = world.start_with(deaf, plan(&[("a", &[])]));
    ended(&driving.end().await, &RunEnd::Completed)?;
    holds(world.host.ended().len() == 1, "P20: what ran under a lost lease runs on")
}

/// A run is driven once, also in one process.
async fn same_process() -> Found {
    let world = World::new(|_| hang());
    let driving = world.start(plan(&[("a", &[])]));
    sleep(SOON).await;
    let second = timeout(SOON, world.drive(plan(&[("a", &[])]))).await;
    let is_told = matches!(second, Ok(Err(RunError::DriverRunning { .. })));
    driving.stop.cancel();
    drop(driving.end().await);
    holds(is_told, "P1: two drive one run")
}

/// A driver on another host, where nobody can look, holds its run as long as it renews.
async fn unseen() -> Found {
    let world = World::new(|_| hang());
    let driving = world.start(plan(&[("a", &[])]));
    let mut is_told = true;
    for minutes in [0, 30] {
        sleep(SOON + Duration::from_secs(minutes * 60)).await;
        let second = timeout(SOON, world.on("elsewhere").drive(plan(&[("a", &[])]))).await;
        is_told &= matches!(second, Ok(Err(RunError::DriverRunning { .. })));
    }
    driving.stop.cancel();
    drop(driving.end().await);
    holds(is_told, "P1: a driver that lives is taken for dead")
}

/// What runs under leases that cannot be renewed has ended before they lapse.
async fn lapsed() -> Found {
    // How many calls there are until the stage runs.
    let world = World::new(|_| hang());
    let store = Arc::new(FaultStore::scripted(Arc::clone(&world.store), []));
    let counted = World { store: Arc::<FaultStore<dyn Store>>::clone(&store), ..world.clone() };
    let driving = counted.start(plan(&[("a", &[])]));
    sleep(SOON).await;
    let calls = store.calls();
    driving.stop.cancel();
    drop(driving.end().await);

    let world = World::new(|_| hang());
    let dying = world.failing((calls..calls + 10_000).map(|call| (call, Fault::Before)));
    let listens = Arc::new(Listens::default());
    let runner = Arc::<Listens>::clone(&listens);
    let begun = Instant::now();
    let dying = dying.orchestrator_with(|ports| ports.runner = runner);
    let driving = world.start_with(dying, plan(&[("a", &[])]));
    drop(timeout(EVER / 2, driving.end()).await);
    let ttl = Duration::from_secs(60);
    let in_time = listens.told().is_some_and(|at| at.duration_since(begun) < ttl);
    holds(in_time, "P1: a stage outlives its lease")
}

/// A driver whose run another one has taken over ends when it notices.
async fn taken_over() -> Found {
    let world = World::new(|cx| if cx.token.0 == 1 { hang() } else { StageEnd::passed() });
    let driving = world.start(plan(&[("a", &[])]));
    sleep(SOON).await;
    world.host.die();
    ended(&world.process(2).drive(plan(&[("a", &[])])).await, &RunEnd::Completed)?;
    driving.stop.cancel();
    holds(driving.end().await.is_err(), "P1: a driver goes on that was told to have ended")?;
    holds(world.target.merged().len() == 1, "P17: a change is merged twice")
}

/// A store that is busy now and then changes nothing.
async fn busy() -> Found {
    let world = World::new(|_| StageEnd::passed());
    // Not the first calls: a run that cannot even be opened is an error.
    let faults = (4..200).filter(|call| call % 3 == 0).map(|call| (call, Fault::Before));
    ended(
        &world.failing(faults).drive(plan(&[("a", &[]), ("b", &["a"])])).await,
        &RunEnd::Completed,
    )
}

/// A driver that dies at any call of its store loses nothing, merges nothing twice and throws away
/// nothing.
async fn died(call: u64) -> Found {
    let world = World::new(|_| StageEnd::passed());
    let edges: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"])];
    let faults = (call..call + 10_000).map(|call| (call, Fault::Before));
    drop(world.failing(faults).drive(plan(edges)).await);
    world.host.die();
    let mut next = world.process(2);
    if !world.target.open_workspaces().is_empty() && world.has_run().await {
        let before = world.under_way().await;
        let driving = next.start(plan(edges));
        driving.stop.cancel();
        drop(driving.end().await);
        let kept = world.target.open_workspaces();
        holds(before.iter().all(|task| kept.contains(task)), "P19: what was under way is gone")?;
        next = world.process(3);
    }
    ended(&next.drive(plan(edges)).await, &RunEnd::Completed)?;
    let merged = world.target.merged().len();
    holds(merged == 2, &format!("P17: {merged} merges of two tasks"))?;
    world.merges_were_announced().await
}

/// That every merge was in the log before it happened.
fn announced(events: &[EventKind]) -> Found {
    let mut announced = Vec::new();
    for kind in events {
        if let EventKind::MergeIntended { intent, .. } = kind {
            announced.push(intent.merged.clone());
        }
        if let EventKind::Passed { merged: Some(merged), .. } = kind
            && !announced.contains(merged)
        {
            return Err("P17: a merge was not announced".to_owned());
        }
    }
    Ok(())
}
