//! A disk that is nearly full.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use orchestrator_core::port::{Observer, Progress, Room, StageContext};
use orchestrator_core::testing::MemoryTarget;
use orchestrator_core::{EventKind, Reason, RunEnd, StageEnd, StageKind, StoredEvent, TaskId};

use crate::{World, plan, start};

/// Hears of room, and of nothing else.
#[derive(Clone, Default)]
struct Rooms(Arc<Mutex<Vec<Room>>>);

impl Observer for Rooms {
    fn committed(&self, _: &[StoredEvent], _: &Progress) {}

    fn room(&self, room: &Room) {
        self.0.lock().unwrap().push(room.clone());
    }
}

fn short() -> Room {
    Room::Short { place: "worktrees".into(), free_bytes: 1, wanted_bytes: 2 }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_granted_while_the_disk_is_nearly_full_and_nothing_is_counted() {
    let world = World::new(|_| StageEnd::passed());
    world.target.set_room(short());
    let (rooms, recorder) = (Rooms::default(), Arc::new(world.recorder.clone()));
    let heard = Arc::new(rooms.clone());
    let orchestrator = world.orchestrator_with(|ports| {
        let observers: Vec<Arc<dyn Observer>> = vec![recorder, heard];
        ports.observer = Arc::new(observers);
    });
    let (_stop, driving) = start(orchestrator, plan(&[("a", &[]), ("b", &["a"])]));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let is_granted = |kind: &EventKind| matches!(kind, EventKind::Granted { .. });
    let granted = |world: &World| {
        world.recorder.events().iter().filter(|stored| is_granted(&stored.event.kind)).count()
    };
    assert_eq!((granted(&world), driving.is_finished()), (0, false));
    let explain = async |id: &str| {
        let asked = world.orchestrator();
        asked.explain(&TaskId::parse(id).unwrap()).await.unwrap()
    };
    let no_room = Reason::NoRoom { place: "worktrees".into(), free_bytes: 1, wanted_bytes: 2 };
    let (a, after) = (TaskId::parse("a").unwrap(), no_room.clone());
    assert_eq!(explain("a").await, [no_room]);
    assert_eq!(explain("b").await, [Reason::WaitsFor { task: a }, after]);
    assert_eq!(explain("none").await, [Reason::Unknown]);
    world.target.set_room(Room::Enough);
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed);
    assert_eq!(granted(&world), 8, "no stage was granted twice");
    world.target.set_room(short());
    assert_eq!(explain("a").await, [Reason::Settled { phase: "done" }]);
    assert_eq!(*rooms.0.lock().unwrap(), [short(), Room::Enough]);
}

#[tokio::test(start_paused = true)]
async fn what_runs_goes_on_while_the_disk_is_nearly_full_and_the_next_stage_waits() {
    let target = MemoryTarget::default();
    let filled = target.clone();
    let script = move |cx: &StageContext| {
        if cx.stage.kind == StageKind::Run {
            filled.set_room(short());
        }
        StageEnd::passed()
    };
    let world = World { target, ..World::new(script) };
    let (_stop, driving) = start(world.orchestrator(), plan(&[("a", &[])]));
    world.committed(|kind| matches!(kind, EventKind::Passed { .. })).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!driving.is_finished());
    world.target.set_room(Room::Enough);
    assert_eq!(driving.await.unwrap().unwrap(), RunEnd::Completed);
}
