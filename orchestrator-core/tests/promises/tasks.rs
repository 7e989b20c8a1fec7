//! What is promised of tasks: order, bounds, what is blocked, scopes, turns.

use std::sync::Arc;

use orchestrator_core::{
    AGENTS, Cause, Command, Interruption, Outcome, Phase, Plan, PoolBounds, PoolName, Refusal,
    Resolution, RetryRules, Scope, StageKind, TaskSpec, Timestamp, Usd,
};

use crate::world::{World, cancel, crashed, id, plan, question, rejected, retry, staged};

#[test]
pub(crate) fn p3_a_task_begins_when_all_that_it_depends_on_is_done() {
    let edges: [(&str, &[&str]); 4] =
        [("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])];
    let mut world = World::new(staged(&edges, &[StageKind::Run, StageKind::Verify]));
    world.tell(&Command::AddPlan { plan: Arc::new(plan(&[("e", &["d", "b"])])) });
    while let Some(grant) = world.claim() {
        let spec = world.engine.spec(&grant.task).unwrap();
        for before in &spec.depends_on {
            let before = world.engine.task(before).unwrap();
            assert!(matches!(before.phase, Phase::Done(_)), "`{}` before {before:?}", grant.task);
        }
        world.report(&grant, Outcome::Passed);
    }
    assert_eq!(world.engine.run().unwrap().counts.done, 5);
}

#[test]
pub(crate) fn p3_a_plan_that_is_no_graph_is_refused_whole() {
    let mut world = World::new(plan(&[("a", &[])]));
    let odd: [&[(&str, &[&str])]; 4] = [
        &[("fine", &[]), ("x", &["nobody"])],
        &[("fine", &[]), ("x", &["x"])],
        &[("fine", &[]), ("x", &["z"]), ("y", &["x"]), ("z", &["y"])],
        &[("fine", &[]), ("a", &[])],
    ];
    for edges in odd {
        let refused = world.try_tell(&Command::AddPlan { plan: Arc::new(plan(edges)) });
        assert!(matches!(refused, Err(Refusal::Plan(_))), "{edges:?}: {refused:?}");
        assert_eq!(world.tasks().len(), 1, "{edges:?}");
    }
    // Nor can an edit make a circle of what was checked.
    world.tell(&Command::AddPlan { plan: Arc::new(plan(&[("b", &["a"])])) });
    let mut spec = world.engine.spec(&id("a")).unwrap().clone();
    spec.depends_on = vec![id("b")];
    let (actor, reason) = ("ann".into(), "why not".into());
    world.try_tell(&Command::Edit { spec: Arc::new(spec), actor, reason }).unwrap_err();
    assert_eq!(world.pass_all(), [id("a"), id("b")]);
}

#[test]
pub(crate) fn p6_each_end_is_counted_in_one_class_and_each_class_has_a_bound() {
    let rules = RetryRules { interruptions_max: 3, dispatches_spare: 6, ..RetryRules::default() };
    let kinds = [StageKind::Run, StageKind::Verify];
    let mut one = staged(&[("a", &[])], &kinds);
    one.tasks[0].max_retries = 2;
    let max = rules.dispatches_max(kinds.len(), 2);
    assert_eq!(max, 2 * 3 + 6);
    let shutdown = || Outcome::Interrupted { reason: Interruption::Shutdown, retry_at: None };
    let limit = || Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: None };
    type End<'a> = &'a dyn Fn(u32) -> Outcome;
    // What ends it, after how many grants, and the counts that it then has.
    let ends: [(End<'_>, Cause, u32, (u32, u32)); 4] = [
        (&|n: u32| rejected(&"x".repeat(n as usize + 1)), Cause::RetriesUsed, 3, (3, 0)),
        (&|_| crashed(), Cause::InterruptionsUsed, 4, (0, 4)),
        (&|_| shutdown(), Cause::DispatchesUsed, max, (0, 0)),
        (&|_| limit(), Cause::DispatchesUsed, max, (0, 0)),
    ];
    for (end, cause, grants, counts) in ends {
        let mut world = World::with_rules(one.clone(), rules.clone());
        for number in 0..grants {
            world.now += 24 * 3_600_000;
            world.tell(&Command::Tick);
            let grant = world.claim().unwrap();
            world.report(&grant, end(number));
        }
        let task = world.task("a");
        let Phase::Escalated(escalation) = &task.phase else { panic!("{task:?}") };
        assert_eq!(escalation.cause, cause);
        assert_eq!((task.rejections, task.interruptions), counts, "{cause:?}");
        assert_eq!(task.dispatches, grants, "{cause:?}");
        assert_eq!(world.claim(), None, "nothing is left of it before a person allows more");
    }
    // The same failure twice is enough, and so is one after the first stage.
    let mut world = World::with_rules(one, rules);
    for line in [7, 91] {
        let grant = world.claim().unwrap();
        assert_eq!(grant.stage, 0);
        world.report(&grant, Outcome::Passed);
        let verify = world.claim().unwrap();
        world.report(&verify, rejected(&format!("a.rs:{line}: no")));
    }
    assert_eq!(world.task("a").rejections, 2);
    assert!(
        matches!(&world.task("a").phase, Phase::Escalated(it) if it.cause == Cause::SameFailure)
    );
}

#[test]
pub(crate) fn p7_what_is_blocked_follows_from_the_graph_in_whatever_order() {
    let edges: [(&str, &[&str]); 6] =
        [("a", &[]), ("b", &[]), ("c", &["a"]), ("d", &["c", "b"]), ("e", &["d"]), ("f", &["b"])];
    let blocked = |world: &World| -> String {
        let names = ["a", "b", "c", "d", "e", "f"];
        names.into_iter().filter(|name| world.engine.is_blocked(&id(name))).collect()
    };
    for first in [0, 1] {
        let mut world = World::new(plan(&edges));
        let grants = world.claim_all();
        assert_eq!(grants.len(), 2);
        world.report(&grants[first], crashed());
        assert_eq!(blocked(&world), "", "what waits is not given up");
        world.report(&grants[1 - first], question());
        world.now += 3_600_000;
        world.tell(&Command::Tick);
        let again = world.claim().unwrap();
        world.report(&again, question());
        assert_eq!(blocked(&world), "cdef");
        let (one, other) = if first == 0 { ("a", "b") } else { ("b", "a") };
        world.tell(&retry(one));
        assert_eq!(blocked(&world), if one == "a" { "def" } else { "cde" });
        world.tell(&retry(other));
        assert_eq!(blocked(&world), "", "in either order");
        world.tell(&cancel("c"));
        assert_eq!(blocked(&world), "de");
        let (actor, reason) = ("ann".into(), "done by hand".into());
        world.tell(&Command::Resolve { task: id("c"), how: Resolution::ByHand, actor, reason });
        assert_eq!(blocked(&world), "");
        world.pass_all();
        assert_eq!(world.engine.run().unwrap().counts.done, 6);
        // One that comes later waits for nothing that is done.
        world.tell(&Command::AddPlan { plan: Arc::new(plan(&[("g", &["a", "c"])])) });
        assert_eq!(world.pass_all(), [id("g")]);
        // What was cancelled is tried again like all else that was given up.
        world.tell(&Command::AddPlan { plan: Arc::new(plan(&[("h", &[]), ("i", &["h"])])) });
        world.tell(&cancel("i"));
        world.tell(&cancel("h"));
        let (actor, reason) = ("ann".into(), "after all".into());
        world.tell(&Command::Retry { task: id("h"), dependents: true, actor, reason });
        assert_eq!(world.pass_all(), [id("h"), id("i")]);
    }
}

#[test]
pub(crate) fn p9_scopes_that_overlap_are_never_held_together() {
    let mut plan = staged(
        &[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])],
        &[StageKind::Run, StageKind::Verify],
    );
    for (task, path) in plan.tasks.iter_mut().zip(["src", "src/a.rs", "SRC/A.rs", "docs"]) {
        task.scope = Scope::parse([path]).ok();
    }
    let mut world = World::new(plan);
    let holders = |world: &World| -> Vec<Scope> {
        let held = world.tasks().into_iter().filter(|task| task.holds_scope);
        held.filter_map(|task| world.engine.spec(&task.id)?.scope.clone()).collect()
    };
    let mut ends = [Outcome::Passed, crashed(), Outcome::Passed, question()].into_iter().cycle();
    for round in 0..20 {
        let grants = world.claim_all();
        let held = holders(&world);
        for (at, one) in held.iter().enumerate() {
            assert!(held[..at].iter().all(|other| !one.overlaps(other)), "{held:?}");
        }
        assert!(round > 0 || grants.len() == 2, "`docs` and one of the others");
        for grant in grants {
            let before = world.engine.task(&grant.task).unwrap();
            assert!(before.holds_scope);
            world.report(&grant, ends.next().unwrap());
            let after = world.engine.task(&grant.task).unwrap();
            // It is held from stage to stage and while a stage waits, and given back at the end.
            let is_over = matches!(after.phase, Phase::Done(_) | Phase::Escalated(_));
            assert_eq!(after.holds_scope, !is_over, "{after:?}");
        }
        world.now += 3_600_000;
        world.tell(&Command::Tick);
    }
    for task in ["a", "b", "c", "d"] {
        drop(world.try_tell(&cancel(task)));
    }
    assert!(holders(&world).is_empty(), "{:?}", holders(&world));
    let mut fresh = staged(&[("x", &[])], &[StageKind::Run]);
    fresh.tasks[0].scope = Scope::parse(["src"]).ok();
    world.tell(&Command::AddPlan { plan: Arc::new(fresh) });
    let grant = world.claim().unwrap();
    world.report(&grant, Outcome::Interrupted { reason: Interruption::Shutdown, retry_at: None });
    world.tell(&cancel("x"));
    assert!(!world.task("x").holds_scope, "what was cancelled holds nothing");
}

#[test]
pub(crate) fn p12_a_task_that_needs_much_is_overtaken_so_often_and_no_more() {
    let agents = || PoolName::parse(AGENTS).unwrap();
    let names: Vec<String> = (0..60).map(|number| format!("t{number}")).collect();
    let mut plan = Plan::default();
    for name in &names {
        let mut spec = TaskSpec::new(id(name));
        spec.priority = i32::from(name != "t0");
        plan.tasks.push(spec);
    }
    plan.tasks[0].needs.insert(agents(), 2.try_into().unwrap());
    let one = staged(&[], &[StageKind::Run]);
    let mut plan = Plan { pipelines: one.pipelines, ..plan };
    plan.pools.insert(agents(), 2);
    let rules = RetryRules { passed_over_max: 7, ..RetryRules::default() };
    let mut world = World::with_rules(plan, rules);
    let (mut live, mut before) = (std::collections::VecDeque::new(), 0);
    'run: loop {
        while let Some(grant) = world.claim() {
            if grant.task == id("t0") {
                break 'run;
            }
            before += 1;
            live.push_back(grant);
        }
        let grant = live.pop_front().unwrap();
        world.report(&grant, Outcome::Passed);
    }
    assert_eq!(before, 7, "and not after all of the others");
    assert_eq!(live.len(), 0, "it has both permits");
    // Of equals, those that came first go first.
    let rest: Vec<_> = world.claim_all();
    assert_eq!(rest, []);
    let big = world.engine.held().next().unwrap();
    let grant = world.engine.grant(world.engine.number(&big.id).unwrap()).unwrap();
    world.report(&grant, Outcome::Passed);
    let order = world.pass_all();
    let mut sorted = order.clone();
    sorted.sort_by_key(|task| task.as_str()[1..].parse::<u32>().unwrap());
    assert_eq!(order, sorted);
}

#[test]
pub(crate) fn p21_a_command_about_one_task_leaves_all_others_as_they_were() {
    let edges: [(&str, &[&str]); 5] =
        [("a", &[]), ("b", &["a"]), ("c", &[]), ("d", &["c"]), ("e", &[])];
    let mut world = World::new(plan(&edges));
    let grants = world.claim_all();
    for grant in &grants {
        world.report(grant, question());
    }
    let mut spec = world.engine.spec(&id("a")).unwrap().clone();
    spec.priority = 3;
    let words = || ("ann".to_owned(), "why not".to_owned());
    let about = |world: &mut World, task: &str, command: &Command| {
        let bytes = |world: &World| -> Vec<(String, String)> {
            let all = world.tasks().into_iter();
            all.map(|task| (task.id.to_string(), serde_json::to_string(&task).unwrap())).collect()
        };
        let before = bytes(world);
        world.tell(command);
        for (was, is) in before.iter().zip(bytes(world)).filter(|(was, _)| was.0 != task) {
            assert_eq!(*was, is, "{command:?}");
        }
    };
    let (actor, reason) = words();
    about(&mut world, "a", &Command::Edit { spec: Arc::new(spec), actor, reason });
    about(&mut world, "a", &retry("a"));
    about(&mut world, "c", &cancel("c"));
    about(&mut world, "c", &retry("c"));
    let (actor, reason) = words();
    let how = Resolution::Skip;
    about(&mut world, "e", &Command::Resolve { task: id("e"), how, actor, reason });
    let grant = world.claim().unwrap();
    let report = world.report_of(&grant, Outcome::Passed);
    about(&mut world, grant.task.as_str(), &Command::Report(Box::new(report)));
}

/// `g…` need two agents and a GPU, `w` needs two agents, and `t…` need one each and go first.
fn wide_and_small(wide: usize) -> World {
    let of = |name: String, agents: u32, gpus: u32| {
        let mut spec = TaskSpec::new(id(&name));
        spec.priority = i32::from(agents == 1);
        for (pool, permits) in [(AGENTS, agents), ("gpu", gpus)] {
            let permits = std::num::NonZeroU32::new(permits);
            spec.needs.extend(permits.map(|permits| (PoolName::parse(pool).unwrap(), permits)));
        }
        spec
    };
    let mut plan = Plan { pipelines: staged(&[], &[StageKind::Run]).pipelines, ..Plan::default() };
    plan.tasks.extend((0..wide).map(|number| of(format!("g{number}"), 2, 1)));
    plan.tasks.push(of("w".to_owned(), 2, 0));
    plan.tasks.extend((0..60).map(|number| of(format!("t{number}"), 1, 0)));
    plan.pools.insert(PoolName::parse(AGENTS).unwrap(), 2);
    plan.pools.insert(PoolName::parse("gpu").unwrap(), 1);
    World::with_rules(plan, RetryRules { passed_over_max: 7, ..RetryRules::default() })
}

/// Grants one task after the other, two at a time, until this one is or so many were; how many were.
fn granted_before(world: &mut World, task: &str, at_most: usize) -> usize {
    let live = |world: &World| {
        let held = world.engine.held().next()?;
        world.engine.grant(world.engine.number(&held.id)?)
    };
    let mut before = 0;
    while before < at_most {
        if let Some(grant) = world.claim() {
            if grant.task == id(task) {
                world.report(&grant, Outcome::Passed);
                break;
            }
            before += 1;
        } else {
            let grant = live(world).unwrap();
            world.report(&grant, Outcome::Passed);
        }
    }
    before
}

#[test]
pub(crate) fn p12_a_task_that_cannot_be_served_holds_up_no_other_and_keeps_its_count() {
    let gpu = || PoolName::parse("gpu").unwrap();
    let bounds = |budget, in_flight_max| PoolBounds { budget, in_flight_max };
    let limited = |limit| Command::LimitPool { pool: gpu(), limit };
    let closed = |until| Command::ClosePool { pool: gpu(), until: Timestamp(until) };
    let bounded = |bounds| Command::BoundPool { pool: gpu(), bounds };
    let hindrances = [
        (limited(0), limited(1), 0),
        (closed(9), Command::Tick, 9),
        (bounded(bounds(Some(Usd::ZERO), None)), bounded(bounds(None, None)), 0),
        (bounded(bounds(None, Some(0))), bounded(bounds(None, None)), 0),
    ];
    for (hindrance, end, later) in hindrances {
        // From the start, and of more tasks than anybody wants to look at one by one.
        let mut world = wide_and_small(40);
        world.tell(&hindrance);
        assert_eq!(granted_before(&mut world, "w", 60), 7, "{hindrance:?}");
        // When one of them was overtaken often before, and goes on from there afterwards.
        let mut world = wide_and_small(1);
        assert_eq!(granted_before(&mut world, "g0", 5), 5);
        world.tell(&hindrance);
        assert_eq!(granted_before(&mut world, "w", 60), 7, "{hindrance:?}");
        world.now += later;
        world.tell(&end);
        // Five before, `w`, and one more.
        assert_eq!(granted_before(&mut world, "g0", 60), 1, "{hindrance:?}");
    }
}
