//! Whatever holds a task, `explain` says who moves it on, and when.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{
    AGENTS, Cause, Command, Engine, Interruption, Mover, Outcome, Phase, Pipeline, Plan,
    PoolBounds, PoolName, Reason, Scope, StageKind, StageSpec, Timestamp, Usd,
};

use super::world::{World, id, interrupted, owner, plan};

/// What the only reason says that holds a task.
fn mover(world: &World, task: &str) -> Mover {
    let reasons = world.engine.explain(Timestamp(world.now), &id(task));
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons[0].mover()
}

fn person(by: &str) -> impl Fn(&Mover) -> bool {
    move |mover| matches!(mover, Mover::Person { by: other } if other.contains(by))
}

fn agents() -> PoolName {
    PoolName::parse(AGENTS).unwrap()
}

#[test]
fn p11_a_task_that_runs_or_waits_says_who_moves_it_on_and_when() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &["a"])]));
    assert_eq!(mover(&world, "a"), Mover::Driver, "the next claim takes it");
    assert_eq!(mover(&world, "b"), Mover::Task { task: id("a") });
    let grant = world.claim().unwrap();
    let Mover::Holder { token, hard_stop } = mover(&world, "a") else { panic!("it runs") };
    assert_eq!(token, grant.token);
    assert!(hard_stop > Timestamp(world.now));
    world.report(&grant, interrupted(Interruption::Crashed));
    let wake = world.engine.next_wake().unwrap();
    assert_eq!(mover(&world, "a"), Mover::Time { at: wake });
    world.now = wake.0;
    world.claim().unwrap();
    world.open(2, Some(owner(1).id));
    assert_eq!(mover(&world, "a"), Mover::Driver, "it is being stopped");
}

#[test]
fn p15_a_task_that_only_a_person_can_move_on_says_why_and_by_what() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]));
    let grant = world.claim().unwrap();
    world.report(&grant, Outcome::Question { text: "which one?".into() });
    let now = Timestamp(world.now);
    let reasons = world.engine.explain(now, &id("a"));
    assert_eq!(reasons, [Reason::Escalated { cause: Cause::Question }]);
    assert!(reasons[0].to_string().contains("the agent has a question"), "{}", reasons[0]);
    assert!(person("retry")(&mover(&world, "a")));
    // From what is blocked, the way leads to who has to act.
    let mut task = id("c");
    while let Mover::Task { task: next } = mover(&world, task.as_str()) {
        task = next;
    }
    assert_eq!(task, id("a"));
    world.tell(&Command::Cancel { task, actor: "ann".into(), reason: "no need".into() });
    assert!(person("retry")(&mover(&world, "a")));
    world.tell(&Command::Pause { actor: "ann".into(), reason: "look".into() });
    let reasons = world.engine.explain(now, &id("b"));
    assert!(reasons.iter().any(|reason| person("resume")(&reason.mover())), "{reasons:?}");
}

#[test]
fn p11_what_lacks_room_or_money_says_whether_others_or_a_person_make_it() {
    let mut plan = plan(&[("a", &[]), ("b", &[])]);
    plan.tasks.iter_mut().for_each(|task| task.scope = Scope::parse(["src"]).ok());
    plan.pools.insert(agents(), 2);
    let mut world = World::new(plan);
    let grant = world.claim().unwrap();
    let other = if grant.task == id("a") { "b" } else { "a" };
    assert_eq!(mover(&world, other), Mover::Task { task: grant.task.clone() });
    let name = grant.task.as_str();
    world.tell(&Command::LimitPool { pool: agents(), limit: 1 });
    let movers = |world: &World, task: &str| -> Vec<Mover> {
        let reasons = world.engine.explain(Timestamp(world.now), &id(task));
        reasons.iter().map(Reason::mover).collect()
    };
    assert!(movers(&world, other).contains(&Mover::Pool { pool: agents() }));
    world.tell(&Command::LimitPool { pool: agents(), limit: 0 });
    assert!(movers(&world, other).iter().any(person("permits")));
    world.tell(&Command::LimitPool { pool: agents(), limit: 2 });
    world.tell(&Command::SetBudget { budget: Some(Usd(1)) });
    assert!(movers(&world, other).iter().any(person("the run's budget")));
    world.tell(&Command::SetBudget { budget: None });
    let bounds = PoolBounds { budget: Some(Usd(1)), in_flight_max: Some(0) };
    world.tell(&Command::BoundPool { pool: agents(), bounds });
    assert!(movers(&world, other).iter().any(person("the pool's budget")));
    assert!(movers(&world, other).iter().any(person("begin tasks")));
    let until = Timestamp(world.now).after(Duration::from_secs(60));
    world.tell(&Command::ClosePool { pool: agents(), until });
    assert!(movers(&world, other).contains(&Mover::Time { at: until }));
    world.tell(&Command::SetPilot { tasks: Some(1) });
    assert!(movers(&world, other).iter().any(person("the pilot")));
    assert!(matches!(mover(&world, name), Mover::Holder { .. }));
}

#[test]
fn p15_one_that_stands_for_others_hides_none_of_them_where_something_else_keeps_it_waiting() {
    let paths: [(&str, &[&str], i32); 4] =
        [("x", &["x"], 9), ("y", &["y"], 8), ("both", &["x", "y"], 7), ("behind", &["x"], 1)];
    let mut plan = plan(&paths.map(|(name, ..)| (name, &[][..])));
    let pipeline = |kinds: &[StageKind]| {
        Pipeline::new(kinds.iter().copied().map(StageSpec::of).collect()).unwrap()
    };
    plan.pipelines.insert("default".parse().unwrap(), pipeline(&[StageKind::Run]));
    let judged = pipeline(&[StageKind::Run, StageKind::Verify]);
    plan.pipelines.insert("judged".parse().unwrap(), judged);
    for (spec, (_, scope, priority)) in plan.tasks.iter_mut().zip(paths) {
        (spec.scope, spec.priority) = (Scope::parse(scope).ok(), priority);
    }
    plan.tasks[1].pipeline = "judged".parse().ok();
    plan.pools.insert("verify".parse().unwrap(), 0);
    let mut world = World::new(plan);
    let (x, y) = (world.claim().unwrap(), world.claim().unwrap());
    assert_eq!((&x.task, &y.task), (&id("x"), &id("y")));
    world.report(&y, Outcome::Passed);
    assert_eq!(world.claim(), None, "the others wait for their scopes");
    world.report(&x, Outcome::Passed);
    // `both` stands for who waits for `x`, and goes on waiting for `y`, which nobody verifies.
    let now = Timestamp(0);
    assert_eq!(world.engine.explain(now, &id("behind")), [Reason::Ready]);
    assert_eq!((world.engine.settlement(now), world.engine.stall(now)), (None, Vec::new()));
    let (name, claim) = ("q".parse().unwrap(), Command::Claim { owner: owner(1).id });
    let decided = world.engine.decide(now, &name, &claim).unwrap().answer;
    assert_eq!(world.tell(&claim), decided, "who asks beforehand hears the same");
    assert!(matches!(world.phase("behind"), Phase::Leased(_)));
}

#[test]
fn p11_p13_every_pool_that_holds_a_task_is_named_in_an_order_that_no_restart_changes() {
    let pool = |name: &str| PoolName::parse(name).unwrap();
    let mut plan = plan(&[("a", &[])]);
    let gpu = (pool("a-gpu"), NonZeroU32::MIN);
    plan.tasks[0].needs.extend([gpu]);
    let bounds = PoolBounds { in_flight_max: Some(0), budget: None };
    // Known in the order of the pipeline, and after a restart by name.
    plan.pool_bounds.extend([AGENTS, "a-gpu"].map(|name| (pool(name), bounds)));
    let mut world = World::new(Plan::default());
    world.tell(&Command::LimitPool { pool: agents(), limit: 0 });
    world.tell(&Command::AddPlan { plan: Arc::new(plan) });
    let reasons = |engine: &Engine| engine.explain(Timestamp(0), &id("a"));
    let told: Vec<String> = reasons(&world.engine)
        .into_iter()
        .filter_map(|reason| {
            if let Reason::BackPressure { pool, .. } = reason {
                Some(pool.to_string())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(told, ["a-gpu", "agents"]);
    let restored = Engine::restore(&world.engine.snapshot().unwrap()).unwrap();
    assert_eq!(reasons(&restored), reasons(&world.engine));
}
