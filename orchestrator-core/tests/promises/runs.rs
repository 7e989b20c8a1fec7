//! What is promised of a run as a whole: permits, money, that it goes on, that it ends, and that no
//! message harms it.

use std::sync::Arc;

use orchestrator_core::{
    AGENTS, Answer, Command, Cost, FencingToken, Interruption, Outcome, ParkReason, Plan, PoolName,
    Reason, Scope, StageKind, TaskNo, Timestamp, Usd,
};

use crate::world::{World, cancel, crashed, id, plan, question, rejected, staged};

fn agents() -> PoolName {
    PoolName::parse(AGENTS).unwrap()
}

const FOUR: [(&str, &[&str]); 4] = [("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])];

#[test]
pub(crate) fn p8_permits_in_use_are_those_of_the_leases() {
    let mut four = plan(&FOUR);
    four.pools.insert(agents(), 2);
    let mut world = World::new(four);
    let in_use = |world: &World| world.engine.in_use(&agents());
    let grants = world.claim_all();
    assert_eq!((grants.len(), in_use(&world)), (2, 2));
    // Lowering a limit takes nothing away, and nothing is granted above it.
    world.tell(&Command::LimitPool { pool: agents(), limit: 1 });
    assert_eq!(world.engine.held().count(), 2);
    world.report(&grants[0], crashed());
    assert_eq!((world.claim(), in_use(&world)), (None, 1), "what waits holds no permit");
    // What is being stopped keeps its permit until it is gone, and gives it back once.
    world.tell(&cancel(grants[1].task.as_str()));
    assert_eq!((world.claim(), in_use(&world)), (None, 1));
    world.stopped(&grants[1]);
    world.stopped(&grants[1]);
    assert_eq!(in_use(&world), 0);
    world.tell(&Command::LimitPool { pool: agents(), limit: 2 });
    world.now += 3_600_000;
    let grants = world.claim_all();
    assert_eq!((grants.len(), in_use(&world)), (2, 2));
    // A pool that is closed grants nothing, whatever is free.
    let limit = Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: None };
    world.report(&grants[0], limit);
    assert_eq!((world.claim(), in_use(&world)), (None, 1));
    world.report(&grants[1], Outcome::Passed);
    assert_eq!(in_use(&world), 0);
}

#[test]
pub(crate) fn p10_what_is_spent_and_set_aside_stays_within_the_budget() {
    let budget = Usd::dollars(12);
    let mut world = World::new(Plan { budget: Some(budget), ..plan(&FOUR) });
    let mut over = Usd::ZERO;
    let costs = [Cost::AtLeast(Usd(1)), Cost::Known(Usd(3)), Cost::Known(Usd::dollars(6))];
    for round in 0..4 {
        for (grant, cost) in world.claim_all().into_iter().zip(costs.iter().cycle()) {
            assert!(world.spent_and_reserved() <= budget.plus(over), "round {round}");
            let before = world.engine.run().unwrap().spent;
            world.costs(&grant, rejected(&"x".repeat(round + 1)), *cost);
            let booked = world.engine.run().unwrap().spent.minus(before);
            // Of an unknown cost the worst is taken; what is known is booked, also beyond the cap.
            let (Cost::Known(seen) | Cost::AtLeast(seen)) = *cost;
            let expected = if matches!(cost, Cost::Known(_)) { seen } else { seen.max(grant.cap) };
            assert_eq!(booked, expected);
            over = over.plus(booked.minus(grant.cap));
        }
    }
    let run = world.engine.run().unwrap();
    assert_eq!(run.reserved, Usd::ZERO, "each grant was settled");
    assert!(run.spent <= budget.plus(over));
    // What a stage that was ended really spent is booked when it becomes known, once.
    let mut world = World::new(plan(&FOUR[..1]));
    let grant = world.claim().unwrap();
    world.crash(0);
    world.stopped(&grant);
    assert_eq!(world.engine.run().unwrap().spent, grant.cap);
    let more = grant.cap.plus(Usd(9));
    for _ in 0..2 {
        world.costs(&grant, Outcome::Passed, Cost::Known(more));
        assert_eq!(world.engine.run().unwrap().spent, more);
    }
    // And a refused commit gives back what it set aside.
    world.now += 3_600_000;
    world.submit(&Command::Claim { owner: World::owner(2).id }).unwrap();
    world.engine.undo();
    assert_eq!(world.engine.run().unwrap().reserved, Usd::ZERO);
}

#[test]
pub(crate) fn p11_what_can_run_is_granted_and_the_rest_says_why_not() {
    let mut plan = staged(
        &[("a", &[]), ("b", &[]), ("c", &[]), ("d", &["a"]), ("e", &[])],
        &[StageKind::Run, StageKind::Verify],
    );
    plan.pools.insert(agents(), 3);
    plan.pools.insert(PoolName::parse("gpu").unwrap(), 1);
    for (at, priority) in [(1, 9), (2, 8)] {
        plan.tasks[at].needs.insert(PoolName::parse("gpu").unwrap(), 1.try_into().unwrap());
        plan.tasks[at].priority = priority;
    }
    for at in [0, 4] {
        plan.tasks[at].scope = Scope::parse(["src"]).ok();
    }
    let mut world = World::new(plan);
    let mut ends = [Outcome::Passed, crashed(), Outcome::Passed].into_iter().cycle();
    for round in 0..60 {
        let ready = |world: &World| -> Vec<_> {
            let now = Timestamp(world.now);
            let all = world.tasks().into_iter().map(|task| task.id);
            all.filter(|task| {
                let reasons = world.engine.explain(now, task);
                assert!(!reasons.is_empty(), "`{task}` is held by nothing that can be named");
                reasons == [Reason::Ready]
            })
            .collect()
        };
        let grants = world.claim_all();
        assert_eq!(ready(&world), [], "round {round}: what could run was not granted");
        if round == 0 {
            let granted: Vec<_> = grants.iter().map(|grant| grant.task.as_str()).collect();
            assert_eq!(
                granted,
                ["b", "a"],
                "`c` needs what `b` has, and keeps nobody from running"
            );
        }
        for grant in &grants {
            world.report(grant, ends.next().unwrap());
        }
        if grants.is_empty() {
            let Some(wake) = world.engine.next_wake() else { break };
            assert!(wake.0 > world.now, "nothing happens then");
            world.now = wake.0;
            world.tell(&Command::Tick);
        }
    }
    assert_eq!(world.engine.run().unwrap().counts.done, 5);
    // A pool that a usage limit closed opens by itself.
    let mut world = World::new(crate::world::plan(&FOUR[..1]));
    let grant = world.claim().unwrap();
    world.report(&grant, Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: None });
    assert_eq!(world.claim(), None);
    world.now = world.engine.next_wake().unwrap().0;
    world.tell(&Command::Tick);
    assert!(world.claim().is_some());
}

#[test]
pub(crate) fn p13_the_same_commands_give_the_same_bytes() {
    let live = || {
        let mut world = World::new(Plan { budget: Some(Usd::dollars(50)), ..plan(&FOUR) });
        for round in 0..5 {
            for grant in world.claim_all() {
                let end = [crashed(), rejected("no"), Outcome::Passed]
                    [(round + grant.number.0 as usize) % 3]
                    .clone();
                world.report(&grant, end);
            }
            world.now += 100_000;
            world.tell(&Command::Tick);
        }
        world.log
    };
    let (one, two) = (live(), live());
    assert_eq!(one, two);
    assert!(one.len() > 20, "{one:?}");
    // Where the engine came from makes no difference.
    let mut world = World::new(plan(&FOUR));
    let mut restored = World::new(plan(&FOUR));
    restored.engine =
        orchestrator_core::Engine::restore(&restored.engine.snapshot().unwrap()).unwrap();
    for world in [&mut world, &mut restored] {
        let grant = world.claim().unwrap();
        world.report(&grant, crashed());
        world.claim_all();
    }
    assert_eq!(world.log, restored.log);
}

#[test]
pub(crate) fn p15_a_run_in_which_nothing_can_happen_says_so() {
    let state_after = |end: &dyn Fn(&mut World)| {
        let mut world = World::new(plan(&[("a", &[]), ("b", &["a"])]));
        end(&mut world);
        world.tell(&Command::Settle);
        world.state().as_str()
    };
    let ask = |world: &mut World| {
        let grant = world.claim().unwrap();
        world.report(&grant, question());
    };
    assert_eq!(state_after(&|_| {}), "active", "something can still happen");
    assert_eq!(state_after(&|world| drop(world.pass_all())), "completed");
    assert_eq!(state_after(&ask), "failed");
    let drain = Command::Drain { reason: ParkReason::Asked };
    assert_eq!(state_after(&|world| assert_eq!(world.tell(&drain), Answer::Done)), "parked");
    let crash = |world: &mut World| {
        let grant = world.claim().unwrap();
        world.report(&grant, crashed());
    };
    assert_eq!(state_after(&crash), "active", "time will help");
    // A person's pause holds until a person ends it.
    let mut world = World::new(plan(&FOUR));
    world.tell(&Command::Pause { actor: "ann".into(), reason: "look".into() });
    assert_eq!(world.claim(), None);
    world.tell(&Command::Resume { actor: "ann".into() });
    assert!(world.claim().is_some());
    // A plan that asks for more than there can be is refused before it can hang.
    let mut greedy = plan(&[("x", &[])]);
    greedy.tasks[0].needs.insert(agents(), 9.try_into().unwrap());
    greedy.pools.insert(agents(), 2);
    world.try_tell(&Command::AddPlan { plan: Arc::new(greedy) }).unwrap_err();
}

#[test]
pub(crate) fn p16_no_message_however_odd_ends_the_process() {
    let mut world = World::new(plan(&FOUR));
    let grant = world.claim().unwrap();
    world.report(&grant, Outcome::Passed);
    let numbers = [0, 1, 3, 4, 1_000, u32::MAX].map(TaskNo);
    let tokens = [0, 1, 2, 77, u64::MAX].map(FencingToken);
    for (task, token) in numbers.into_iter().flat_map(|task| tokens.map(|token| (task, token))) {
        let mut report = grant.report(world.engine.id().clone(), Outcome::Passed);
        (report.task, report.token) = (task, token);
        (report.attempt, report.stage) = (u32::MAX, u8::MAX);
        report.cost = Cost::Known(Usd(u64::MAX));
        drop(world.try_tell(&Command::Report(Box::new(report))));
        drop(world.try_tell(&Command::Stopped { task, token }));
    }
    for task in ["nobody", "a"] {
        drop(world.try_tell(&cancel(task)));
        drop(world.try_tell(&crate::world::retry(task)));
    }
    world.now = u64::MAX;
    world.tell(&Command::Tick);
    drop(world.claim_all());
    world.now = 0;
    world.tell(&Command::Tick);
    // A plan is refused with its place, whatever it is.
    for text in ["", "[", "{\"tasks\": 7}", "[{\"id\": \"a\", \"pipeline\": \"fast\"}]", "\u{0}"] {
        let told = Plan::parse(text).unwrap_err().to_string();
        assert!(!told.is_empty(), "{text:?}");
    }
    assert_eq!(world.engine.explain(Timestamp(0), &id("nobody")), [Reason::Unknown]);
}
