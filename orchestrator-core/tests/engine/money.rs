//! Budgets of runs, tasks and pools (P10), back-pressure and pilots (P11, P15).

use std::num::NonZeroU32;
use std::sync::Arc;

use orchestrator_core::{
    AGENTS, Answer, Cause, Command, CommandId, Cost, EventKind, Interruption, Outcome, ParkReason,
    Plan, PlanFault, PoolBounds, PoolName, Reason, Refusal, RunState, Scope, StageReport, Stale,
    TaskSpec, Timestamp, Usd,
};

use crate::world::{World, id, interrupted, plan, rejected};

fn pool(name: &str) -> PoolName {
    PoolName::parse(name).unwrap()
}

/// A stage that cost this much.
fn costs(world: &mut World, grant: &orchestrator_core::Grant, outcome: Outcome, cost: Usd) {
    world.report_with(grant, outcome, |report| report.cost = Cost::Known(cost));
}

#[test]
fn p10_a_task_over_its_own_budget_is_handed_to_a_person_and_the_others_go_on() {
    let mut plan = plan(&[("a", &[]), ("b", &[])]);
    plan.tasks[0].budget = Some(Usd::dollars(6));
    plan.tasks[0].priority = 1;
    let mut world = World::new(plan);
    let first = world.claim().unwrap();
    assert_eq!((first.task.clone(), first.cap), (id("a"), Usd::dollars(5)));
    costs(&mut world, &first, rejected("no"), Usd::dollars(4));
    let again = world.claim().unwrap();
    assert_eq!((again.task.clone(), again.cap), (id("a"), Usd::dollars(2)), "what is left of it");
    costs(&mut world, &again, rejected("still not"), Usd::dollars(2));
    let reasons = world.engine.explain(Timestamp(0), &id("a"));
    let spent = Reason::TaskBudget { needs: Usd::dollars(5), left: Usd::ZERO };
    assert_eq!(reasons, [spent]);
    assert_eq!(world.claim().unwrap().task, id("b"), "the run has money");
    assert_eq!(world.engine.next_wake(), Some(Timestamp(0)), "at once");
    world.tell(&Command::Tick);
    assert_eq!(world.cause("a"), Some(Cause::BudgetUsed));
    // Trying again is of no use before it is given more.
    let retry = |world: &mut World| {
        let (task, actor, reason) = (id("a"), "ann".to_owned(), "again".to_owned());
        world.tell(&Command::Retry { task, dependents: false, actor, reason });
        world.tell(&Command::Tick);
    };
    retry(&mut world);
    assert_eq!(world.cause("a"), Some(Cause::BudgetUsed));
    let mut spec = world.engine.spec(&id("a")).unwrap().clone();
    spec.budget = Some(Usd::dollars(20));
    let (actor, reason) = ("ann".to_owned(), "worth it".to_owned());
    world.tell(&Command::Edit { spec: Arc::new(spec), actor, reason });
    retry(&mut world);
    assert_eq!(world.claim().unwrap().task, id("a"));
}

#[test]
fn p10_a_pool_over_its_budget_gives_nothing_more_and_says_so_and_a_person_raises_it() {
    let mut plan = plan(&[("a", &[]), ("b", &[]), ("c", &[])]);
    let one = NonZeroU32::MIN;
    for task in &mut plan.tasks[..2] {
        task.needs.insert(pool("opus"), one);
        task.priority = 1;
    }
    plan.pools.insert(pool("opus"), 2);
    let bounds = PoolBounds { budget: Some(Usd::dollars(8)), in_flight_max: None };
    plan.pool_bounds.insert(pool("opus"), bounds);
    let mut world = World::new(plan);
    let (a, b) = (world.claim().unwrap(), world.claim().unwrap());
    assert_eq!((a.cap, b.cap), (Usd::dollars(5), Usd::dollars(3)), "what is set aside counts");
    assert_eq!(world.claim().unwrap().cap, Usd::dollars(5), "`c` takes nothing of it");
    costs(&mut world, &a, rejected("no"), Usd::dollars(5));
    costs(&mut world, &b, rejected("no"), Usd::dollars(3));
    assert_eq!(world.claim(), None);
    let told = Reason::PoolBudget { pool: pool("opus"), needs: Usd::dollars(5), left: Usd::ZERO };
    assert_eq!(world.engine.explain(Timestamp(0), &id("b")), [told]);
    let record = |world: &World| world.engine.pools().find(|one| one.name == pool("opus")).cloned();
    assert_eq!(record(&world).unwrap().spent, Usd::dollars(8));
    let bounds = PoolBounds { budget: Some(Usd::dollars(30)), in_flight_max: None };
    world.tell(&Command::BoundPool { pool: pool("opus"), bounds });
    assert_eq!(record(&world).unwrap().spent, Usd::dollars(8), "what was spent stays spent");
    assert!(world.claim().is_some());
}

#[test]
fn p10_a_run_whose_pool_is_over_its_budget_parks_when_nothing_else_is_left() {
    let mut plan = plan(&[("a", &[])]);
    let bounds = PoolBounds { budget: Some(Usd::dollars(1)), in_flight_max: None };
    plan.pool_bounds.insert(pool(AGENTS), bounds);
    let mut world = World::new(plan);
    let grant = world.claim().unwrap();
    costs(&mut world, &grant, rejected("no"), Usd::dollars(1));
    world.tell(&Command::Settle);
    assert_eq!(*world.state(), RunState::Parked { reason: ParkReason::Budget });
}

#[test]
fn p15_what_waits_for_a_pool_that_opens_again_does_so_too_when_it_is_parked_at_a_scope() {
    let mut plan = plan(&[("a", &[]), ("b", &[])]);
    let gpu = pool("gpu");
    plan.pools.insert(gpu.clone(), 1);
    plan.tasks[1].needs.insert(gpu.clone(), NonZeroU32::MIN);
    for task in &mut plan.tasks {
        task.scope = Some(Scope::parse(["src"]).unwrap());
    }
    let mut world = World::new(Plan { budget: Some(Usd::dollars(9)), ..plan });
    let a = world.claim().unwrap();
    assert!(world.claim().is_none(), "the other one is parked");
    costs(&mut world, &a, interrupted(Interruption::Crashed), Usd::dollars(10));
    world.now = 60_000;
    world.tell(&Command::Tick);
    let until = Timestamp(90_000);
    world.tell(&Command::ClosePool { pool: gpu, until });
    world.tell(&Command::Settle);
    assert_eq!((world.state(), world.engine.next_wake()), (&RunState::Active, Some(until)));
    world.now = until.0;
    world.tell(&Command::Tick);
    world.tell(&Command::Settle);
    assert_eq!(*world.state(), RunState::Parked { reason: ParkReason::Budget });
}

#[test]
fn p10_a_later_plan_does_not_replace_the_budgets_that_there_are() {
    let of = |name: &str, budget: u32, of_pool: u32| {
        let bounds = PoolBounds { budget: Some(Usd::dollars(of_pool)), in_flight_max: None };
        Plan {
            budget: Some(Usd::dollars(budget)),
            pool_bounds: [(pool(AGENTS), bounds)].into(),
            ..plan(&[(name, &[])])
        }
    };
    let mut world = World::new(of("a", 10, 4));
    let add = |world: &mut World, plan: Plan| {
        let name = CommandId::parse("add").unwrap();
        let added =
            world.engine.submit(Timestamp(0), &name, &Command::AddPlan { plan: Arc::new(plan) });
        world.engine.accept();
        added
    };
    let Err(Refusal::Plan(faults)) = add(&mut world, of("b", 50, 5)) else { panic!("taken") };
    let (plan, run) = (Usd::dollars(50), Usd::dollars(10));
    assert_eq!(faults[0], PlanFault::OtherBudget { pool: None, plan, run });
    let (plan, run) = (Usd::dollars(5), Usd::dollars(4));
    assert_eq!(faults[1..], [PlanFault::OtherBudget { pool: Some(pool(AGENTS)), plan, run }]);
    assert_eq!(add(&mut world, of("b", 10, 4)), Ok(Answer::Done), "the same is no other one");
    world.tell(&Command::SetBudget { budget: Some(Usd::dollars(50)) });
    assert_eq!(add(&mut world, of("c", 50, 4)), Ok(Answer::Done));
    assert_eq!(world.engine.run().unwrap().budget, Some(Usd::dollars(50)));
}

#[test]
fn p10_what_a_stopped_lease_really_cost_is_booked_also_when_its_task_was_started_again() {
    let mut world = World::new(plan(&[("a", &[])]));
    let first = world.claim().unwrap();
    world.open(1, Some(crate::world::owner(1).id));
    world.tell(&Command::Stopped { task: first.number, token: first.token });
    let second = world.claim().unwrap();
    let spent = |world: &World| world.engine.run().unwrap().spent;
    assert_eq!(spent(&world), first.cap, "nobody knows, so all that was set aside");
    let late = |world: &mut World| {
        world.report_with(&first, Outcome::Passed, |report| {
            report.cost = Cost::Known(first.cap.plus(Usd(7)));
        });
    };
    late(&mut world);
    late(&mut world);
    assert_eq!(spent(&world), first.cap.plus(Usd(7)), "once");
    let refused = |kind: &&EventKind| matches!(kind, EventKind::ResultRefused { .. });
    assert_eq!(world.events.iter().filter(refused).count(), 1);
    costs(&mut world, &second, interrupted(Interruption::Shutdown), Usd(1));
    assert_eq!(spent(&world), first.cap.plus(Usd(8)));
    // The ones between are told apart too, and survive a restart.
    let third = world.claim().unwrap();
    assert_eq!(world.engine.task(&id("a")).unwrap().unheard.len(), 1, "{third:?}");
    let snapshot = world.engine.snapshot().unwrap();
    let restored = orchestrator_core::Engine::restore(&snapshot).unwrap();
    assert_eq!(restored.snapshot(), Some(snapshot));
}

#[test]
fn p10_what_becomes_known_late_is_booked_to_the_pools_of_the_stage_that_cost_it() {
    let mut plan = plan(&[("a", &[])]);
    let bounds = PoolBounds { budget: Some(Usd::dollars(100)), in_flight_max: None };
    plan.pool_bounds.insert(pool(AGENTS), bounds);
    let mut world = World::new(plan);
    let first = world.claim().unwrap();
    world.open(1, Some(crate::world::owner(1).id));
    world.tell(&Command::Stopped { task: first.number, token: first.token });
    while let Some(grant) = world.claim() {
        world.report(&grant, Outcome::Passed);
    }
    let spent = |world: &World| {
        let agents = world.engine.pools().find(|pool| pool.name.as_str() == AGENTS);
        agents.unwrap().spent
    };
    assert_eq!(spent(&world), first.cap);
    costs(&mut world, &first, Outcome::Passed, first.cap.plus(Usd(7)));
    assert_eq!(spent(&world), first.cap.plus(Usd(7)), "the task is done, and at no stage any more");
}

#[test]
fn p2_a_result_that_was_refused_under_a_live_lease_does_not_hide_what_it_spends_after_that() {
    let mut world = World::new(plan(&[("a", &[])]));
    let grant = world.claim().unwrap();
    let other = |report: &mut StageReport| report.stage = 3;
    let answer = world.report_with(&grant, Outcome::Passed, other);
    assert_eq!(answer, Answer::Refused(Stale::OtherStage));
    world.open(1, Some(crate::world::owner(1).id));
    world.tell(&Command::Stopped { task: grant.number, token: grant.token });
    costs(&mut world, &grant, Outcome::Passed, grant.cap.plus(Usd(7)));
    costs(&mut world, &grant, Outcome::Passed, grant.cap.plus(Usd(7)));
    assert_eq!(world.engine.run().unwrap().spent, grant.cap.plus(Usd(7)), "once");
}

#[test]
fn p11_no_task_is_begun_while_so_many_wait_to_be_finished_and_those_begun_go_on() {
    let mut plan = plan(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])]);
    let bounds = PoolBounds { budget: None, in_flight_max: Some(2) };
    plan.pool_bounds.insert(pool(AGENTS), bounds);
    plan.pools.insert(pool("verify"), 0);
    let mut world = World::new(plan);
    let begun: Vec<_> = (0..3).map(|_| world.claim().unwrap()).collect();
    for grant in &begun[..2] {
        world.report(grant, Outcome::Passed);
    }
    assert_eq!(world.claim(), None, "two wait to be verified");
    let pressed = Reason::BackPressure { pool: pool(AGENTS), in_flight: 2, max: 2 };
    let held = world.engine.explain(Timestamp(0), &id("d"));
    assert_eq!(held, [pressed]);
    // One that was begun is tried again all the same.
    world.report(&begun[2], rejected("no"));
    let again = world.claim().unwrap();
    assert_eq!((again.task.clone(), again.attempt), (begun[2].task.clone(), 2));
    world.report(&again, Outcome::Passed);
    world.tell(&Command::LimitPool { pool: pool("verify"), limit: 1 });
    assert_eq!(world.claim().unwrap().stage, 1);
    assert_eq!(world.claim(), None, "three are in flight");
    let bounds = PoolBounds { budget: None, in_flight_max: Some(4) };
    world.tell(&Command::BoundPool { pool: pool(AGENTS), bounds });
    assert_eq!(world.claim().unwrap().task, id("d"));
}

#[test]
fn p15_a_pilot_begins_so_many_tasks_parks_when_they_are_through_and_goes_on_when_resumed() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &["a"])]));
    world.tell(&Command::SetPilot { tasks: Some(2) });
    let mut ended = 0;
    for _ in 0..2 {
        let mut live = vec![world.claim().unwrap(), world.claim().unwrap()];
        assert_eq!(world.claim(), None);
        while let Some(grant) = live.pop() {
            world.report(&grant, Outcome::Passed);
            ended += 1;
        }
    }
    let held = world.engine.explain(Timestamp(0), &id("c"));
    assert_eq!(held, [Reason::Pilot { tasks: 2 }]);
    while let Some(grant) = world.claim() {
        assert!(grant.stage > 0, "no third task is begun");
        world.report(&grant, Outcome::Passed);
        ended += 1;
    }
    assert_eq!((ended, world.engine.run().unwrap().counts.done), (8, 2));
    world.tell(&Command::Settle);
    assert_eq!(*world.state(), RunState::Parked { reason: ParkReason::Pilot });
    world.tell(&Command::Resume { actor: "ann".to_owned() });
    assert_eq!(world.engine.run().unwrap().pilot, None);
    assert!(world.claim().is_some() && world.claim().is_some());
}

#[test]
fn a_pilot_that_is_larger_than_the_run_changes_nothing() {
    let mut world = World::new(plan(&[("a", &[])]));
    world.tell(&Command::SetPilot { tasks: Some(5) });
    while let Some(grant) = world.claim() {
        world.report(&grant, Outcome::Passed);
    }
    world.tell(&Command::Settle);
    assert_eq!(*world.state(), RunState::Completed);
}

#[test]
fn a_budget_that_starts_nothing_is_a_fault_of_the_plan() {
    let mut spec = TaskSpec::new(id("a"));
    spec.verify = Some(orchestrator_core::VerifyCommand::Shell("true".into()));
    spec.budget = Some(Usd::ZERO);
    let plan = Plan { tasks: vec![spec], ..Plan::default() };
    assert_eq!(plan.check(&|_| false), [PlanFault::NoBudget { task: id("a") }]);
}

#[test]
fn a_pool_that_was_bounded_before_anybody_needed_it_has_as_many_permits_as_any_other() {
    let of = |name: &str, command: fn(PoolName) -> Command| {
        let mut world = World::new(Plan::default());
        world.tell(&command(pool(name)));
        world.tell(&Command::AddPlan { plan: Arc::new(plan(&[("a", &[])])) });
        let limit = world.engine.pools().find(|known| known.name.as_str() == name);
        limit.map(|known| known.limit)
    };
    let bounded = |pool| {
        let bounds = PoolBounds { budget: Some(Usd::dollars(90)), in_flight_max: None };
        Command::BoundPool { pool, bounds }
    };
    let closed = |pool| Command::ClosePool { pool, until: Timestamp(9) };
    for command in [bounded as fn(PoolName) -> Command, closed] {
        assert_eq!(of("agents", command), Some(4));
        assert_eq!(of("verify", command), Some(4));
        assert_eq!(of("integrate", command), Some(1), "merges follow one another");
    }
}

#[test]
fn p10_what_becomes_known_late_can_use_up_the_budget_of_a_task_that_waits() {
    let mut plan = plan(&[("a", &[])]);
    plan.tasks[0].budget = Some(Usd::dollars(20));
    let mut world = World::new(plan);
    let grant = world.claim().unwrap();
    world.open(1, Some(crate::world::owner(1).id));
    world.tell(&Command::Stopped { task: grant.number, token: grant.token });
    assert_eq!(world.engine.explain(Timestamp(0), &id("a")), [Reason::Ready]);
    let cost = Cost::Known(Usd::dollars(20));
    world.report_with(&grant, Outcome::Passed, |report| report.cost = cost);
    assert_eq!(world.claim(), None);
    world.tell(&Command::Tick);
    assert_eq!(world.cause("a"), Some(Cause::BudgetUsed));
}

#[test]
fn p10_what_a_stage_that_had_nothing_set_aside_really_cost_is_booked_once_when_it_becomes_known() {
    let spent = |world: &World| world.engine.run().unwrap().spent;
    let restart = |world: &mut World| {
        let snapshot = world.engine.snapshot().unwrap();
        world.engine = orchestrator_core::Engine::restore(&snapshot).unwrap();
    };
    let fate = |world: &mut World, grant: &orchestrator_core::Grant, is_lost: bool| {
        if is_lost {
            world.open(1, Some(crate::world::owner(1).id));
            world.tell(&Command::Stopped { task: grant.number, token: grant.token });
        } else {
            costs(world, grant, interrupted(Interruption::Shutdown), Usd::ZERO);
        }
    };
    for (is_lost, is_granted_again) in [(true, true), (true, false), (false, true), (false, false)]
    {
        let mut world = World::new(plan(&[("a", &[])]));
        let run = world.claim().unwrap();
        world.report(&run, Outcome::Passed);
        let before = spent(&world);
        let first = world.claim().unwrap();
        assert_eq!((first.stage, first.cap), (1, Usd::ZERO));
        fate(&mut world, &first, is_lost);
        restart(&mut world);
        let second = is_granted_again.then(|| world.claim().unwrap());
        restart(&mut world);
        assert_eq!(spent(&world), before, "nobody knows of anything");
        for _ in 0..3 {
            costs(&mut world, &first, Outcome::Passed, Usd(7));
            restart(&mut world);
            assert_eq!(spent(&world), before.plus(Usd(7)), "once: {is_lost} {is_granted_again}");
        }
        // The results of others say nothing of it, and one that counted is not booked again.
        if let Some(second) = second {
            costs(&mut world, &second, Outcome::Passed, Usd(2));
            costs(&mut world, &second, Outcome::Passed, Usd(9));
        }
        costs(&mut world, &run, Outcome::Passed, Usd::dollars(90));
        costs(&mut world, &first, Outcome::Passed, Usd(7));
        let of_second = Usd(if is_granted_again { 2 } else { 0 });
        assert_eq!(spent(&world), before.plus(Usd(7)).plus(of_second));
    }
}

#[test]
fn p10_what_becomes_known_while_such_a_stage_is_being_stopped_is_booked_once_too() {
    let mut world = World::new(plan(&[("a", &[])]));
    let run = world.claim().unwrap();
    world.report(&run, Outcome::Passed);
    let before = world.engine.run().unwrap().spent;
    let first = world.claim().unwrap();
    world.open(1, Some(crate::world::owner(1).id));
    costs(&mut world, &first, Outcome::Passed, Usd(7));
    world.tell(&Command::Stopped { task: first.number, token: first.token });
    costs(&mut world, &first, Outcome::Passed, Usd(7));
    world.claim().unwrap();
    costs(&mut world, &first, Outcome::Passed, Usd(7));
    assert_eq!(world.engine.run().unwrap().spent, before.plus(Usd(7)));
    assert_eq!(world.engine.task(&id("a")).unwrap().unheard, []);
}
