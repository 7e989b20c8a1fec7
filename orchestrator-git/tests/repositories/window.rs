//! Several merges under way at once, each verified on top of the one before it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::{Applied, Integrator as _, Proposal, StageContext, Store};
use orchestrator_core::testing::{Recorder, Scripted, VirtualHost};
use orchestrator_core::{
    Candidate, DriverConfig, FencingToken, MemoryStore, MergeIntent, Orchestrator, Plan, PoolName,
    Ports, RunEnd, StageEnd, StageKind, TaskSpec, VerifyCommand,
};
use orchestrator_git::{GitConfig, GitRun};
use tokio_util::sync::CancellationToken;

use crate::world::{World, clean, conflict, git, task, write};

async fn world(window: usize) -> World {
    World::with(|_| {}, |config: &mut GitConfig| config.window = window).await
}

/// Proposes a task's merge as a driver does.
async fn propose(world: &World, name: &str, token: u64, what: &Candidate) -> MergeIntent {
    world.fence(&task(name), token).await;
    clean(world.propose(&task(name), token, what).await).0
}

async fn turn(world: &World, name: &str, token: u64, intent: &MergeIntent) -> bool {
    let (id, spec) = (world.run_id(), task(name));
    world.run.turn(&id, &spec.id, FencingToken(token), intent).await.unwrap()
}

#[tokio::test]
async fn p17_each_is_built_on_the_one_before_and_merged_in_that_order() {
    let world = world(3).await;
    let mut sealed = Vec::new();
    for (name, token) in [("a", 1), ("b", 2), ("c", 3)] {
        sealed.push(world.work(&task(name), token, &[(name, "x\n")]).await);
    }
    let a = propose(&world, "a", 11, &sealed[0]).await;
    let b = propose(&world, "b", 12, &sealed[1]).await;
    let c = propose(&world, "c", 13, &sealed[2]).await;
    assert_eq!((&b.onto, &c.onto), (&a.merged, &b.merged));
    let files = git(&world.repo, ["ls-tree", "--name-only", c.merged.as_str()]);
    assert!(["a", "b", "c"].iter().all(|name| files.lines().any(|file| file == *name)));
    // Nothing may overtake, whatever its driver asks for.
    assert_eq!(world.apply(&task("c"), 13, &c).await, Applied::Moved);
    let c = propose(&world, "c", 13, &sealed[2]).await;
    assert!(turn(&world, "a", 11, &a).await);
    assert_eq!(world.apply(&task("a"), 11, &a).await, Applied::Merged);
    assert!(turn(&world, "b", 12, &b).await);
    // The one in front is given up: what was built on it lapses.
    world.run.withdraw(&world.run_id(), &task("b").id, FencingToken(12));
    assert!(!turn(&world, "c", 13, &c).await);
    let c = propose(&world, "c", 13, &sealed[2]).await;
    assert_eq!(c.onto, a.merged, "the nearest good one");
    assert!(turn(&world, "c", 13, &c).await);
    assert_eq!(world.apply(&task("c"), 13, &c).await, Applied::Merged);
    assert_eq!(world.merges_of("b"), 0);
}

#[tokio::test]
async fn a_conflict_with_one_that_is_not_merged_yet_is_none_until_it_is() {
    let world = world(2).await;
    let one = world.work(&task("one"), 1, &[("README.md", "by one\n")]).await;
    let two = world.work(&task("two"), 2, &[("README.md", "by two\n")]).await;
    for is_merged in [false, true] {
        let token = 10 + u64::from(is_merged);
        let intent = propose(&world, "one", token, &one).await;
        world.fence(&task("two"), token + 10).await;
        let (run, id, spec, candidate) =
            (world.run.clone(), world.run_id(), task("two"), two.clone());
        let proposing = tokio::spawn(async move {
            run.propose(&id, &spec, FencingToken(token + 10), &candidate).await.unwrap()
        });
        tokio::task::yield_now().await;
        if is_merged {
            assert_eq!(world.apply(&task("one"), token, &intent).await, Applied::Merged);
            assert!(conflict(proposing.await.unwrap()).contains("`README.md`"));
        } else {
            world.run.withdraw(&world.run_id(), &task("one").id, FencingToken(token));
            let proposal = proposing.await.unwrap();
            assert!(matches!(proposal, Proposal::Clean { is_judged: true, .. }), "{proposal:?}");
            world.run.withdraw(&world.run_id(), &task("two").id, FencingToken(token + 10));
        }
    }
}

#[tokio::test]
async fn one_more_than_the_window_waits_for_room_and_a_new_lease_makes_some() {
    let world = world(2).await;
    let mut sealed = Vec::new();
    for (name, token) in [("a", 1), ("b", 2), ("c", 3)] {
        sealed.push(world.work(&task(name), token, &[(name, "x\n")]).await);
    }
    propose(&world, "a", 11, &sealed[0]).await;
    propose(&world, "b", 12, &sealed[1]).await;
    world.fence(&task("c"), 13).await;
    let (run, id, spec, candidate) =
        (world.run.clone(), world.run_id(), task("c"), sealed[2].clone());
    let mut third =
        tokio::spawn(async move { run.propose(&id, &spec, FencingToken(13), &candidate).await });
    let waited = tokio::time::timeout(Duration::from_millis(100), &mut third).await;
    assert!(waited.is_err(), "there is no room");
    // The process of this lease is gone; a later one begins.
    world.fence(&task("a"), 21).await;
    let (intent, _) = clean(third.await.unwrap().unwrap());
    assert_eq!(intent.onto, sealed[2].base, "both before it are gone");
}

/// Each task adds a file; `b` and `clashes` pass by themselves and not together.
fn act(cx: &StageContext) -> StageEnd {
    let (id, tree) = (cx.task.id.as_str(), &cx.workspace.path);
    match cx.stage.kind {
        StageKind::Run => {
            let text = if cx.last_error().is_some() { "fixed\n" } else { "new\n" };
            write(tree, format!("src/{id}"), text);
        }
        StageKind::Verify | StageKind::Gate | StageKind::Integrate => {
            let is_new = |name: &str| {
                fs::read_to_string(tree.join("src").join(name)).is_ok_and(|text| text == "new\n")
            };
            if is_new("b") && is_new("clashes") {
                return StageEnd::rejected("b and clashes do not go together".to_owned());
            }
        }
        StageKind::Review => {}
    }
    StageEnd::passed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_run_with_a_window_merges_each_task_once_and_nothing_that_fails_together() {
    let world = world(4).await;
    let names = ["a", "b", "clashes", "d", "e", "f"];
    let spec = |name: &&str| TaskSpec {
        verify: Some(VerifyCommand::Shell("true".to_owned())),
        max_retries: 5,
        ..task(name)
    };
    let plan = Plan { tasks: names.iter().map(spec).collect(), ..Plan::default() };
    let (script, run) = (Arc::new(Scripted::new(act)), Arc::new(world.run.clone()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let ports = Ports {
        store: Arc::clone(&store),
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::<GitRun>::clone(&run),
        workspaces: run,
        host: Arc::new(VirtualHost::new()),
        observer: Arc::new(Recorder::default()),
    };
    let mut config = DriverConfig::new(world.run_id(), world.dir.path().join("stages"));
    config.rules.backoff = Duration::ZERO;
    let limits = BTreeMap::from([("integrate", 4), ("run", 6)]);
    config.limits =
        limits.into_iter().map(|(pool, limit)| (PoolName::parse(pool).unwrap(), limit)).collect();
    let driver = Orchestrator::new(ports, config);
    let end = driver.drive(Some(Arc::new(plan)), CancellationToken::new()).await.unwrap();
    assert_eq!(end, RunEnd::Completed);
    for name in names {
        assert_eq!(world.merges_of(name), 1, "{name}");
    }
    // Every commit on the branch passes, not only the last one.
    for commit in git(&world.repo, ["rev-list", "orchestrator/r"]).lines() {
        let files = git(&world.repo, ["ls-tree", "-r", "--name-only", commit]);
        let has = |name: &str| files.lines().any(|file| file == name);
        if has("src/b") && has("src/clashes") {
            let texts = ["b", "clashes"].map(|name| world.show(&format!("{commit}:src/{name}")));
            assert!(texts.iter().any(|text| text == "fixed"), "{commit}");
        }
    }
}
