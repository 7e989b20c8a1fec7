//! A whole run by core's driver, with scripted agents that work on a real repository.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::{StageContext, Store};
use orchestrator_core::testing::{Recorder, Scripted, VirtualHost};
use orchestrator_core::{
    DriverConfig, MemoryStore, Orchestrator, Outcome, Phase, Plan, Ports, RunEnd, Scope, StageEnd,
    StageKind, TaskSpec, VerifyCommand,
};
use orchestrator_git::GitRun;
use tokio_util::sync::CancellationToken;

use crate::world::{World, git, task, write};

/// What the agents and judges of this run do.
fn act(cx: &StageContext) -> StageEnd {
    let (id, tree) = (cx.task.id.as_str(), &cx.workspace.path);
    let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap_or_default();
    match cx.stage.kind {
        StageKind::Run => {
            if id == "asks" {
                write(tree, "half done", "by a task that asks");
                return StageEnd::free(Outcome::Question { text: "which?".to_owned() });
            }
            // All of them add a line to one file, so that all but the first conflict once.
            let shared = read("shared.txt");
            if !shared.lines().any(|line| line == id) {
                write(tree, "shared.txt", format!("{shared}{id}\n"));
            }
            write(tree, format!("src/{id}"), "work\n");
            if id == "strays" && cx.attempt == 1 {
                write(tree, "README.md", "not its own");
            }
            if id == "fails" && cx.last_error().is_none_or(|error| !error.contains("no good")) {
                write(tree, format!("src/{id}"), "bad\n");
            }
        }
        StageKind::Verify if read(&format!("src/{id}")) != "work\n" => {
            return StageEnd::rejected("no good".to_owned());
        }
        StageKind::Verify | StageKind::Review | StageKind::Gate | StageKind::Integrate => {}
    }
    StageEnd::passed()
}

fn plan() -> Arc<Plan> {
    let spec = |id: &str, depends_on: &[&str]| TaskSpec {
        verify: Some(VerifyCommand::Shell("true".to_owned())),
        depends_on: depends_on.iter().map(|id| task(id).id).collect(),
        max_retries: 9,
        ..task(id)
    };
    let mut tasks = vec![
        spec("a", &[]),
        spec("B/odd #1", &[]),
        spec("fails", &["a"]),
        spec("asks", &[]),
        spec("blocked", &["asks"]),
        spec("last", &["fails", "strays"]),
    ];
    let scope = Some(Scope::parse(["src", "shared.txt"]).unwrap());
    tasks.push(TaskSpec { scope, ..spec("strays", &[]) });
    Arc::new(Plan { tasks, ..Plan::default() })
}

fn orchestrator(
    world: &World,
    run: GitRun,
    store: &Arc<dyn Store>,
    host: VirtualHost,
) -> Orchestrator {
    let script = Arc::new(Scripted::new(act));
    let run = Arc::new(run);
    let ports = Ports {
        store: Arc::clone(store),
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::<GitRun>::clone(&run),
        workspaces: run,
        host: Arc::new(host),
        observer: Arc::new(Recorder::default()),
    };
    let mut config = DriverConfig::new(world.run_id(), world.dir.path().join("stages"));
    config.resume = true;
    config.rules.backoff = Duration::ZERO;
    config.rules.same_failure_escalates = false;
    config.rules.interruptions_max = 1_000;
    config.rules.dispatches_spare = 1_000;
    Orchestrator::new(ports, config)
}

async fn check(world: &World, store: &Arc<dyn Store>) {
    let done = ["a", "B/odd #1", "fails", "strays", "last"];
    let snapshot = store.load(&world.run_id()).await.unwrap().unwrap();
    for record in &snapshot.tasks {
        let is_done = matches!(record.phase, Phase::Done(_));
        assert_eq!(is_done, done.contains(&record.id.as_str()), "{record:?}");
        assert_eq!(world.merges_of(record.id.as_str()), usize::from(is_done), "{}", record.id);
    }
    let shared = world.show("orchestrator/r:shared.txt");
    assert_eq!(shared.lines().count(), done.len(), "{shared}");
    assert_eq!(world.show("orchestrator/r:README.md"), "one\ntwo\nthree");
    assert_eq!(world.show("orchestrator/r:src/fails"), "work");
    let kept = world.refs();
    let kept = kept.lines().find(|name| name.contains("/kept/asks/")).unwrap();
    assert_eq!(world.show(&format!("{kept}:half done")), "by a task that asks");
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&world.repo, ["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_run_merges_each_done_task_once_and_nothing_of_the_others() {
    let world = World::new().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let driver = orchestrator(&world, world.run.clone(), &store, VirtualHost::new());
    let end = driver.drive(Some(plan()), CancellationToken::new()).await.unwrap();
    assert_eq!(end, RunEnd::Failed, "one task asks");
    check(&world, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_a_run_whose_driver_dies_at_many_moments_ends_as_one_that_lives() {
    let world = World::new().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let host = VirtualHost::new();
    let plan = plan();
    for pid in 1.. {
        let process = host.process(pid);
        let driver = orchestrator(&world, world.again().await, &store, process.clone());
        // One that died at once may not even have taken the plan.
        let driving = driver.drive(Some(Arc::clone(&plan)), CancellationToken::new());
        // Each lives longer than the one before, so that some get further than their first step, and
        // one of them to the end however slow the machine is.
        let life = Duration::from_millis(u64::from(pid) * 110);
        match tokio::time::timeout(life, driving).await {
            Ok(end) => {
                assert_eq!(end.unwrap(), RunEnd::Failed);
                break;
            }
            Err(_) => process.die(),
        }
    }
    check(&world, &store).await;
}
