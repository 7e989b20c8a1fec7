//! A run of which a plan was pruned: it is loaded without the plan's text, which stays for the log.

use std::sync::Arc;

use orchestrator_core::port::Store as _;
use orchestrator_core::testing::conformance::samples::{command_id, task_id};
use orchestrator_core::{
    Command, Engine, Plan, Resolution, TaskId, TaskSpec, Timestamp, VerifyCommand,
};
use orchestrator_sqlite::SqliteStore;

use crate::mending::{faults, spoil, whole_run};
use crate::support::{TempStore, run};

async fn load(store: &SqliteStore) -> Engine {
    let snapshot = store.load(&run()).await.expect("load").expect("the run is there");
    Engine::restore(&snapshot).expect("the records fit")
}

async fn tell(store: &SqliteStore, engine: &mut Engine, name: &str, command: &Command) {
    engine.submit(Timestamp(10), &command_id(name), command).expect("it makes sense");
    let commit = engine.batch().expect("it is an event");
    store.commit(&run(), &commit).await.expect("commit");
    engine.accept();
}

/// A run whose only plan was pruned.
async fn pruned(fixture: &TempStore) -> SqliteStore {
    let store = whole_run(fixture).await;
    let mut engine = load(&store).await;
    let open: Vec<TaskId> =
        engine.tasks().filter(|task| task.phase.as_str() != "done").map(|task| task.id).collect();
    for (at, task) in open.into_iter().enumerate() {
        let (actor, reason) = ("ana".to_owned(), "not needed".to_owned());
        let skip = Command::Resolve { task, how: Resolution::Skip, actor, reason };
        tell(&store, &mut engine, &format!("skip {at}"), &skip).await;
    }
    tell(&store, &mut engine, "prune", &Command::Prune).await;
    store
}

#[tokio::test]
async fn a_pruned_run_is_sound_and_goes_on() {
    let fixture = TempStore::new();
    let store = pruned(&fixture).await;
    assert_eq!(faults(&store).await, Vec::<String>::new());
    let mut engine = load(&store).await;
    let first = engine.tasks().next().expect("its tasks are there").id;
    let next = TaskSpec {
        depends_on: vec![first],
        verify: Some(VerifyCommand::Shell("true".to_owned())),
        ..TaskSpec::new(task_id("next"))
    };
    let plan = Arc::new(Plan { tasks: vec![next], ..Plan::default() });
    tell(&store, &mut engine, "more", &Command::AddPlan { plan }).await;
    assert_eq!(load(&store).await.snapshot(), engine.snapshot());
    assert_eq!(faults(&store).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_row_of_a_pruned_run_is_made_anew_from_the_log() {
    let fixture = TempStore::new();
    let store = pruned(&fixture).await;
    let must = load(&store).await.snapshot();
    drop(store);
    spoil(&fixture, "DELETE FROM tasks WHERE place = 0");
    let store = fixture.sqlite().await;
    assert_eq!(load(&store).await.snapshot(), must);
    store.repair(&run()).await.expect("repair");
    assert_eq!(faults(&store).await, Vec::<String>::new());
}
