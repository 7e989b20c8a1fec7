//! What other processes commit while a driver runs, and what must not overtake what.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{Change, OpenWorkspace, PortError, Sealed, Workspace, Workspaces};
use orchestrator_core::testing::MemoryTarget;
use orchestrator_core::{
    Candidate, ChangeId, Command, Completion, EventKind, Interruption, Outcome, Phase, RunEnd,
    RunId, StageEnd, StageKind, TaskId,
};

use super::{World, id, plan, start};

fn hang() -> StageEnd {
    StageEnd::interrupted(Interruption::Silence)
}

#[tokio::test(start_paused = true)]
async fn p11_what_another_process_asks_for_is_done_while_all_stages_are_busy() {
    let world =
        World::new(|cx| if cx.task.id.as_str() == "a" { hang() } else { StageEnd::passed() });
    let (stop, driving) = start(world.orchestrator(), plan(&[("a", &[])]));
    world.committed(|kind| matches!(kind, EventKind::Granted { .. })).await;
    let other = World { host: world.host.process(2), ..world.clone() };
    let more = Command::AddPlan { plan: plan(&[("b", &[])]) };
    other.orchestrator().ask(&more).await.unwrap();
    let passed = |kind: &EventKind| matches!(kind, EventKind::Passed { task, merged: Some(_), .. } if task.as_str() == "b");
    tokio::time::timeout(Duration::from_secs(2), world.committed(passed)).await.unwrap();
    stop.cancel();
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_process_finds_past_its_end_is_stopped_by_the_driver() {
    let world = World::new(|_| hang());
    let (_stop, driving) = start(world.orchestrator(), plan(&[("a", &[])]));
    world.committed(|kind| matches!(kind, EventKind::Granted { .. })).await;
    let other = World { host: world.host.process(2), ..world.clone() };
    world.host.advance(24 * 3_600_000);
    let pause = Command::Pause { actor: "me".into(), reason: "lunch".into() };
    other.orchestrator().ask(&pause).await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(60), driving).await;
    assert_eq!(end.expect("the stage is told").unwrap().unwrap(), RunEnd::Paused);
}

/// Workspaces that take long to remove, and tell in which order things happened.
#[derive(Debug)]
struct Slow {
    target: MemoryTarget,
    order: Mutex<Vec<&'static str>>,
}

#[async_trait]
impl Workspaces for Slow {
    async fn open(&self, ask: &OpenWorkspace) -> Result<Workspace, PortError> {
        if ask.task.id.as_str() == "b" {
            self.order.lock().unwrap().push("open");
        }
        self.target.open(ask).await
    }

    async fn seal(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Sealed, PortError> {
        self.target.seal(ask, at).await
    }

    async fn differing(&self, at: &Workspace, from: &ChangeId) -> Result<Vec<String>, PortError> {
        self.target.differing(at, from).await
    }

    async fn change(&self, candidate: &Candidate) -> Result<Change, PortError> {
        Workspaces::change(&self.target, candidate).await
    }

    async fn keep(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Option<String>, PortError> {
        self.target.keep(ask, at).await
    }

    async fn release(&self, run: &RunId, task: &TaskId) -> Result<(), PortError> {
        tokio::time::sleep(Duration::from_secs(5)).await;
        if task.as_str() == "b" {
            self.order.lock().unwrap().push("released");
        }
        self.target.release(run, task).await
    }

    async fn retain(&self, run: &RunId, live: &[TaskId]) -> Result<(), PortError> {
        self.target.retain(run, live).await
    }

    async fn untouched(&self, run: &RunId) -> Result<Workspace, PortError> {
        self.target.untouched(run).await
    }
}

#[tokio::test(start_paused = true)]
async fn p19_a_task_that_is_tried_again_waits_until_its_old_workspace_is_removed() {
    let asked = Arc::new(Mutex::new(false));
    let has_asked = Arc::clone(&asked);
    let world = World::new(move |cx| {
        if cx.task.id.as_str() == "a" {
            return hang();
        }
        if cx.stage.kind == StageKind::Run && !std::mem::replace(&mut *asked.lock().unwrap(), true)
        {
            return StageEnd::free(Outcome::Question { text: "which?".to_owned() });
        }
        StageEnd::passed()
    });
    let slow = Arc::new(Slow { target: world.target.clone(), order: Mutex::default() });
    let workspaces = Arc::<Slow>::clone(&slow);
    let orchestrator = world.orchestrator_with(|ports| ports.workspaces = workspaces);
    let (stop, driving) = start(orchestrator, plan(&[("a", &[]), ("b", &[])]));
    world.committed(|kind| matches!(kind, EventKind::Escalated { .. })).await;
    assert!(*has_asked.lock().unwrap());
    let other = World { host: world.host.process(2), ..world.clone() };
    let retry = Command::Retry {
        task: id("b"),
        dependents: false,
        actor: "me".into(),
        reason: "this".into(),
    };
    other.orchestrator().ask(&retry).await.unwrap();
    let passed = |kind: &EventKind| matches!(kind, EventKind::Passed { .. });
    world.committed(passed).await;
    stop.cancel();
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Stopped);
    assert_eq!(slow.order.lock().unwrap()[..3], ["open", "released", "open"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_somebody_cancels_while_it_runs_is_stopped_and_the_others_go_on() {
    let world =
        World::new(|cx| if cx.task.id.as_str() == "a" { hang() } else { StageEnd::passed() });
    let (_stop, driving) = start(world.orchestrator(), plan(&[("a", &[]), ("b", &[])]));
    world
        .committed(|kind| matches!(kind, EventKind::Granted { task, .. } if *task == id("a")))
        .await;
    let other = World { host: world.host.process(2), ..world.clone() };
    let (actor, reason) = ("me".to_owned(), "not needed".to_owned());
    other.orchestrator().ask(&Command::Cancel { task: id("a"), actor, reason }).await.unwrap();
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed);
    let snapshot = world.snapshot().await;
    let phase = |task: &str| {
        snapshot.tasks.iter().find(|record| record.id == id(task)).unwrap().phase.clone()
    };
    assert_eq!(phase("a"), Phase::Cancelled);
    assert!(matches!(phase("b"), Phase::Done(Completion::Merged(_))), "{:?}", phase("b"));
    assert_eq!(world.target.open_workspaces(), [], "nothing of it is left");
}
