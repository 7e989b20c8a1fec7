//! The engine's rules, one at a time.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod edits;
mod extremes;
mod forecasts;
mod held;
mod pipelines;
mod prune;
mod reasons;

use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{
    AGENTS, Answer, Cause, ChangeId, ClockReading, Command, CommandId, Cost, EVENT_BYTES_MAX,
    Engine, EventKind, FencingToken, Interruption, MergeIntent, Outcome, ParkReason, Phase,
    Pipeline, Plan, PoolName, Reason, RetryRules, RunState, Scope, StageKind, StageSpec, TaskId,
    TaskSpec, Timestamp, Usd, VerifyCommand, WallTime,
};

mod money;
mod world;

use self::world::{World, id, interrupted, owner, plan, rejected};

#[test]
fn p6_no_mixture_of_endings_is_granted_more_often_than_the_bound() {
    let rules = RetryRules { dispatches_spare: 6, interruptions_max: 3, ..RetryRules::default() };
    let max = rules.dispatches_max(4, TaskSpec::new(id("a")).max_retries);
    for last in [Outcome::Passed, rejected("no"), interrupted(Interruption::Crashed)] {
        let mut world = World::with_rules(plan(&[("a", &[])]), rules.clone());
        // Interruptions of a kind that is not counted one after the other, up to the bound.
        while world.engine.task(&id("a")).unwrap().dispatches < max - 1 {
            let grant = world.claim().unwrap();
            world.report(&grant, interrupted(Interruption::Shutdown));
        }
        let grant = world.claim().unwrap();
        world.report(&grant, last);
        assert_eq!(world.cause("a"), Some(Cause::DispatchesUsed));
        assert_eq!(world.engine.task(&id("a")).unwrap().dispatches, max);
    }
}

#[test]
fn a_usage_limit_never_opens_a_pool_that_an_earlier_one_closed_for_longer() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &[])]));
    let (a, b) = (world.claim().unwrap(), world.claim().unwrap());
    let limit = || interrupted(Interruption::UsageLimit);
    world.report_with(&a, limit(), |report| report.retry_at = Some(Timestamp(9_000_000)));
    world.report(&b, limit());
    let pool = PoolName::parse(AGENTS).unwrap();
    let closed = Reason::PoolClosed { pool, until: Timestamp(9_000_000) };
    assert_eq!(world.engine.explain(Timestamp(8_999_999), &id("a")), [closed]);
    assert_eq!(world.engine.next_wake(), Some(Timestamp(9_000_000)));
    world.now = 9_000_000;
    let again = world.claim().unwrap();
    assert_eq!((again.attempt, again.workspace), (1, Some(a.token)), "the same attempt goes on");
}
#[test]
fn a_usage_limit_waits_for_long_unless_it_says_that_it_is_over() {
    let rules = RetryRules::default();
    let long = rules.backoff_max..=Duration::from_secs(8 * 86_400);
    let short = Duration::ZERO..=rules.backoff;
    for (said, expected) in
        [(None, &long), (Some(Timestamp(u64::MAX)), &long), (Some(Timestamp(0)), &short)]
    {
        let mut world = World::new(plan(&[("a", &[])]));
        world.now = 1_000;
        let grant = world.claim().unwrap();
        let limit = interrupted(Interruption::UsageLimit);
        world.report_with(&grant, limit, |report| report.retry_at = said);
        let wait = world.engine.next_wake().unwrap().since(Timestamp(world.now));
        assert!(expected.contains(&wait), "{said:?}: {wait:?}");
    }
}
#[test]
fn questions_do_not_trip_the_breaker_and_failures_do() {
    let names: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
    let edges: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    let rules = RetryRules { first_stage_failures_max: 3, ..RetryRules::default() };
    let mut world = World::with_rules(plan(&edges), rules);
    for _ in 0..3 {
        let grant = world.claim().unwrap();
        world.report(&grant, Outcome::Question { text: "which?".into() });
    }
    for _ in 0..3 {
        assert_eq!(*world.state(), RunState::Active);
        let grant = world.claim().unwrap();
        world.report(&grant, Outcome::Fatal { error: "no such program".into() });
    }
    assert_eq!(*world.state(), RunState::Draining { reason: ParkReason::Breaker });
}
#[test]
fn only_who_passes_the_first_stage_ends_a_row_of_failures_at_it() {
    let names: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
    let edges: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    let rules = RetryRules { first_stage_failures_max: 3, ..RetryRules::default() };
    let mut world = World::with_rules(plan(&edges), rules);
    let failures = |world: &World| world.engine.run().unwrap().first_stage_failures;
    let first = world.claim().unwrap();
    world.report(&first, Outcome::Passed);
    let verify = world.claim().unwrap();
    assert_eq!(verify.stage, 1);
    let fails = world.claim().unwrap();
    world.report(&fails, Outcome::Fatal { error: "no such program".into() });
    world.report(&verify, Outcome::Passed);
    assert_eq!(failures(&world), 1, "what passes a later stage says nothing of the first");
    let review = world.claim().unwrap();
    assert_eq!(review.stage, 2);
    let passes = world.claim().unwrap();
    world.report(&passes, Outcome::Passed);
    assert_eq!(failures(&world), 0);
}
#[test]
fn p16_an_owner_that_fits_into_no_event_cannot_drive() {
    for (host, boot_id) in [("h".repeat(257), "b".to_owned()), ("h".to_owned(), "b\u{1}".into())] {
        let mut world = World::new(plan(&[("a", &[])]));
        let owner = orchestrator_core::Owner { host, boot_id, ..owner(2) };
        let reading =
            ClockReading { boot_id: owner.boot_id.clone(), boot_ms: 0, wall: WallTime(0) };
        let (ttl, token_floor) = (Duration::from_secs(60), FencingToken(0));
        let ended = Some(world::owner(1).id);
        let open = Command::OpenDriver { owner, reading, ttl, token_floor, ended };
        let name = CommandId::parse("open").unwrap();
        let refused = world.engine.submit(Timestamp(0), &name, &open).unwrap_err();
        assert!(matches!(refused, orchestrator_core::Refusal::InvalidOwner { .. }), "{refused}");
        assert!(world.claim().is_some(), "the former one drives on");
    }
}
#[test]
fn p11_every_holder_of_a_scope_that_overlaps_is_named_up_to_a_bound() {
    let with_scope = |name: &str, path: &str, depends_on: &[TaskId]| {
        let mut spec = TaskSpec::new(id(name));
        spec.scope = Scope::parse([path]).ok();
        spec.priority = i32::from(name != "all");
        spec.depends_on = depends_on.to_vec();
        spec.verify = Some(VerifyCommand::Shell("true".into()));
        spec
    };
    for (parts, told) in [(3_u32, 3), (40, 32)] {
        let mut tasks: Vec<TaskSpec> = (0..parts)
            .map(|part| with_scope(&format!("part{part}"), &format!("src/{part}"), &[]))
            .collect();
        tasks.push(with_scope("all", "src", &[]));
        let mut plan = Plan { tasks, ..Plan::default() };
        plan.pools.insert(PoolName::parse(AGENTS).unwrap(), 100);
        let mut world = World::new(plan);
        while world.claim().is_some() {}
        let reasons = world.engine.explain(Timestamp(0), &id("all"));
        let held = |reason: &&Reason| matches!(reason, Reason::ScopeHeld { .. });
        assert_eq!(reasons.iter().filter(held).count(), told, "{reasons:?}");
    }
}
#[test]
fn what_a_stopped_lease_really_cost_is_booked_once_whenever_it_becomes_known() {
    let late = |cost: Cost, first: bool, expected: u64| {
        let mut world = World::new(plan(&[("a", &[])]));
        let grant = world.claim().unwrap();
        let cap = grant.cap;
        world.open(1, Some(owner(1).id));
        let stopped = Command::Stopped { task: grant.number, token: grant.token };
        let say = |world: &mut World| {
            for _ in 0..2 {
                world.report_with(&grant, Outcome::Passed, |report| report.cost = cost);
            }
        };
        if first {
            say(&mut world);
            world.tell(&stopped);
        } else {
            world.tell(&stopped);
            say(&mut world);
        }
        let run = world.engine.run().unwrap();
        assert_eq!(run.spent, cap.plus(Usd(expected)), "{cost:?}, result first: {first}");
        assert_eq!(run.reserved, Usd::ZERO);
    };
    let over = World::new(plan(&[("a", &[])])).claim().unwrap().cap.plus(Usd(7));
    for first in [true, false] {
        late(Cost::Known(over), first, 7);
        late(Cost::AtLeast(over), first, 7);
        late(Cost::Known(Usd(1)), first, 0);
    }
}
#[test]
fn a_failed_run_is_complete_once_a_person_gives_up_what_failed() {
    let mut world = World::new(plan(&[("a", &[])]));
    let grant = world.claim().unwrap();
    world.report(&grant, Outcome::Question { text: "which?".into() });
    world.tell(&Command::Settle);
    assert_eq!(*world.state(), RunState::Failed);
    world.tell(&Command::Cancel { task: id("a"), actor: "me".into(), reason: "no use".into() });
    world.tell(&Command::Settle);
    assert_eq!(*world.state(), RunState::Completed);
}
#[test]
fn p16_no_event_is_larger_than_allowed_whatever_its_words() {
    let worst = |length: usize| "\"\u{1}".repeat(length / 2);
    let long = "\"".repeat(256);
    let mut world = World::new(plan(&[(&long, &[])]));
    let task = TaskId::parse(&long).unwrap();
    let grant = world.claim().unwrap();
    world.report_with(&grant, Outcome::Question { text: worst(9_000) }, |report| {
        report.kept = Some(worst(9_000));
    });
    let (actor, reason) = (worst(9_000), worst(9_000));
    world.tell(&Command::Retry {
        task: task.clone(),
        dependents: false,
        actor: actor.clone(),
        reason: reason.clone(),
    });
    world.tell(&Command::Cancel { task, actor: actor.clone(), reason: reason.clone() });
    world.tell(&Command::Pause { actor, reason });
    for kind in &world.events {
        let bytes = serde_json::to_vec(kind).unwrap().len() + 40;
        assert!(bytes <= EVENT_BYTES_MAX, "{bytes} bytes: {kind:?}");
    }
}
#[test]
fn a_process_that_drives_again_ends_what_it_left_running() {
    let mut world = World::new(plan(&[("a", &[])]));
    let grant = world.claim().unwrap();
    world.open(1, Some(owner(1).id));
    assert!(matches!(world.phase("a"), Phase::Stopping { .. }));
    world.tell(&Command::Stopped { task: grant.number, token: grant.token });
    assert_eq!(world.claim().unwrap().attempt, 1);
}

#[test]
fn p10_what_is_left_of_a_small_budget_is_the_cap_of_the_next_stage() {
    let budget = Usd(3_200_000);
    let tasks = plan(&[("a", &[]), ("b", &[])]);
    let mut world = World::new(Plan { budget: Some(budget), ..tasks });
    let first = world.claim().unwrap();
    assert_eq!(first.cap, budget, "the built-in cap is more than that");
    assert_eq!(world.claim(), None, "all of it is set aside");
    world.report_with(&first, Outcome::Passed, |report| report.cost = Cost::Known(Usd(3_100_000)));
    let verify = world.claim().unwrap();
    assert_eq!((verify.task.clone(), verify.stage, verify.cap), (id("a"), 1, Usd::ZERO));
    // A sixteenth of the budget is the least that a stage is started with.
    assert_eq!(world.claim(), None);
    world.report(&verify, Outcome::Passed);
    let left = Usd(100_000);
    let reasons = world.engine.explain(Timestamp(0), &id("b"));
    assert!(reasons.contains(&Reason::Budget { needs: Usd::dollars(5), left }), "{reasons:?}");
    world.tell(&Command::Settle);
    let state = world.engine.run().unwrap().state.clone();
    assert_eq!(state, RunState::Parked { reason: ParkReason::Budget });
}

/// One task that needs much, and many that need a part of it and go first.
fn crowd(with: impl Fn(&mut TaskSpec, u32)) -> Plan {
    let mut plan = Plan::default();
    for number in 0..100_u32 {
        let mut spec = TaskSpec::new(id(&format!("t{number}")));
        spec.priority = i32::from(number > 0);
        with(&mut spec, number);
        plan.tasks.push(spec);
    }
    let one_stage = Pipeline::new(vec![StageSpec::of(StageKind::Run)]).unwrap();
    plan.pipelines.insert("default".parse().unwrap(), one_stage);
    plan.pools.insert(PoolName::parse(AGENTS).unwrap(), 2);
    plan
}

/// Ends the older of two stages under way again and again; how many were granted before `t0`.
fn granted_before(world: &mut World) -> Option<u32> {
    let mut live = std::collections::VecDeque::new();
    let mut granted = 0;
    loop {
        while let Some(grant) = world.claim() {
            if grant.task == id("t0") {
                return Some(granted);
            }
            granted += 1;
            live.push_back(grant);
        }
        let grant = live.pop_front()?;
        world.report(&grant, Outcome::Passed);
    }
}

#[test]
fn p12_a_task_whose_scope_is_held_in_parts_gets_it_after_so_many_grants() {
    let plan = crowd(|spec, number| {
        let path = ["src/a", "src/b"][number as usize % 2];
        spec.scope = Scope::parse([if number == 0 { "src" } else { path }]).ok();
    });
    let before = granted_before(&mut World::new(plan)).unwrap();
    assert_eq!(before, RetryRules::default().passed_over_max, "and not after all of the others");
}

#[test]
fn p12_a_task_that_needs_two_permits_gets_them_though_one_at_a_time_is_free() {
    let agents = || PoolName::parse(AGENTS).unwrap();
    let plan = crowd(|spec, number| {
        if number == 0 {
            spec.needs.insert(agents(), std::num::NonZeroU32::new(2).unwrap());
        }
    });
    let mut world = World::new(plan.clone());
    assert_eq!(granted_before(&mut world), Some(RetryRules::default().passed_over_max));
    // Where it can never be served, nothing is kept for it.
    let mut world = World::new(plan);
    world.tell(&Command::LimitPool { pool: agents(), limit: 1 });
    assert_eq!(granted_before(&mut world), None);
    assert_eq!(world.engine.run().unwrap().counts.done, 99);
}

#[test]
fn p12_a_task_that_leaves_what_it_needs_to_another_says_so() {
    let plan = crowd(|spec, number| {
        let path = ["src/a", "src/b"][number as usize % 2];
        spec.scope = Scope::parse([if number == 0 { "src" } else { path }]).ok();
    });
    let mut world = World::new(plan);
    let mut live = Vec::new();
    for _ in 0..RetryRules::default().passed_over_max {
        live.extend(world.claim());
        if live.len() > 1 {
            world.report(&live.remove(0), Outcome::Passed);
        }
    }
    assert_eq!(world.claim(), None, "a part is free, and kept");
    let kept = Reason::KeptFor { task: id("t0") };
    let reasons = |task: &str| world.engine.explain(Timestamp(0), &id(task));
    assert!(reasons("t99").contains(&kept), "{:?}", reasons("t99"));
    assert!(!reasons("t0").contains(&kept), "{:?}", reasons("t0"));
}

#[test]
fn a_task_that_is_cancelled_while_it_runs_is_stopped_first_and_a_late_success_does_not_count() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &["a"])]));
    let grant = world.claim().unwrap();
    let cancel = |task: &str| Command::Cancel {
        task: id(task),
        actor: "ann".into(),
        reason: "not needed".into(),
    };
    world.tell(&cancel("a"));
    world.tell(&cancel("a"));
    let asked = |kind: &&EventKind| matches!(kind, EventKind::Cancelling { .. });
    assert_eq!(world.events.iter().filter(asked).count(), 1, "asking twice is asking once");
    assert_eq!(world.engine.in_use(&PoolName::parse(AGENTS).unwrap()), 1, "until it is gone");
    let late = world.report(&grant, Outcome::Passed);
    assert_eq!(late, Answer::Refused(orchestrator_core::Stale::Stopping));
    world.tell(&Command::Stopped { task: grant.number, token: grant.token });
    assert_eq!(world.phase("a"), Phase::Cancelled);
    assert!(world.engine.is_blocked(&id("b")));
    world.tell(&Command::Settle);
    assert_eq!(*world.state(), RunState::Failed, "what depends on it cannot be done");
}

#[test]
fn a_merge_that_was_announced_is_not_cancelled_before_it_is_known() {
    let mut world = World::new(plan(&[("a", &[])]));
    let mut last = None;
    for _ in 0..4 {
        let grant = world.claim().unwrap();
        if grant.stage < 3 {
            world.report(&grant, Outcome::Passed);
        }
        last = Some(grant);
    }
    let grant = last.unwrap();
    let change = |name: &str| ChangeId::parse(name).unwrap();
    let intent = MergeIntent { onto: change("o"), merged: change("m") };
    world.tell(&Command::IntendMerge { task: grant.number, token: grant.token, intent });
    let cancel = Command::Cancel { task: id("a"), actor: "ann".into(), reason: "no".into() };
    let name = CommandId::parse("cancel").unwrap();
    let refused = world.engine.submit(Timestamp(0), &name, &cancel).unwrap_err();
    assert!(matches!(refused, orchestrator_core::Refusal::MergeInDoubt(_)), "{refused}");
}

#[test]
fn p7_retrying_a_root_with_what_was_given_up_behind_it_retries_just_that() {
    let edges: [(&str, &[&str]); 5] =
        [("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &[]), ("e", &["c", "d"])];
    let mut world = World::new(plan(&edges));
    let ask = |task: &str| (id(task), "ann".to_owned(), "why".to_owned());
    for task in ["a", "c", "d"] {
        let (task, actor, reason) = ask(task);
        world.tell(&Command::Cancel { task, actor, reason });
    }
    let (task, actor, reason) = ask("a");
    world.tell(&Command::Retry { task, dependents: true, actor, reason });
    assert_eq!(world.phase("a"), Phase::Open);
    assert_eq!(world.phase("c"), Phase::Open, "it was given up behind the root");
    assert_eq!(world.phase("d"), Phase::Cancelled, "it does not depend on the root");
    assert!(world.engine.is_blocked(&id("e")) && !world.engine.is_blocked(&id("c")));
}

#[test]
fn an_escalated_task_is_edited_and_tried_again_as_what_it_is_then() {
    let mut plan = plan(&[("a", &[]), ("b", &["a"])]);
    plan.tasks[0].max_retries = 0;
    let mut world = World::new(plan);
    let grant = world.claim().unwrap();
    world.report(&grant, rejected("it does not compile"));
    assert_eq!(world.cause("a"), Some(Cause::RetriesUsed));
    let mut spec = world.engine.spec(&id("a")).unwrap().clone();
    spec.inputs.insert("hint".into(), "use the other parser".into());
    spec.timeout = Some(Duration::from_secs(90));
    let edit = |spec: &TaskSpec| Command::Edit {
        spec: Arc::new(spec.clone()),
        actor: "ann".into(),
        reason: "it lacked a hint".into(),
    };
    world.tell(&edit(&spec));
    let (actor, reason) = ("ann".to_owned(), "edited".to_owned());
    world.tell(&Command::Retry { task: id("a"), dependents: false, actor, reason });
    let grant = world.claim().unwrap();
    assert_eq!(world.engine.spec(&id("a")), Some(&spec));
    let timeout = world.engine.pipeline(&id("a")).unwrap().stages()[0].timeout;
    assert_eq!(timeout, Duration::from_secs(90), "the stage is the edited one too");
    // What was edited is so after a restart, and for whoever follows the log.
    let snapshot = world.engine.snapshot().unwrap();
    let restored = Engine::restore(&snapshot).unwrap();
    assert_eq!(restored.spec(&id("a")), Some(&spec));
    assert_eq!(restored.snapshot(), Some(snapshot));
    // While it runs, and in what others rely on, it stays what it is.
    let refused = |world: &mut World, spec: &TaskSpec| {
        let name = CommandId::parse("edit").unwrap();
        let refusal = world.engine.submit(Timestamp(0), &name, &edit(spec)).unwrap_err();
        refusal.to_string()
    };
    spec.priority = 3;
    assert!(refused(&mut world, &spec).contains("its stage must end first"));
    world.report(&grant, interrupted(Interruption::Shutdown));
    spec.depends_on = vec![id("b")];
    assert!(refused(&mut world, &spec).contains("depends on"));
    let mut unknown = spec.clone();
    unknown.id = id("nobody");
    assert!(refused(&mut world, &unknown).contains("has no task `nobody`"));
    let mut unjudged = TaskSpec::new(id("b"));
    unjudged.depends_on = vec![id("a")];
    assert!(refused(&mut world, &unjudged).contains("verify"), "a plan without it is refused too");
}

#[test]
fn what_goes_first_goes_first_also_when_another_waited_for_the_same_scope_before_it() {
    let spec = |name: &str, scope: Option<&str>, priority: i32, depends_on: &[&str]| {
        let mut spec = TaskSpec::new(id(name));
        spec.scope = scope.map(|path| Scope::parse([path]).unwrap());
        spec.priority = priority;
        spec.depends_on = depends_on.iter().map(|name| id(name)).collect();
        spec
    };
    let mut plan = crowd(|_, _| {});
    plan.tasks = vec![
        spec("holds-first", Some("src"), 10, &[]),
        spec("low", Some("src/a"), -5, &[]),
        spec("holds-then", Some("src"), 9, &["holds-first"]),
        spec("best", Some("src/a"), 5, &["holds-first", "x"]),
        spec("x", None, 4, &["holds-first"]),
        spec("other-1", None, 0, &["holds-first"]),
        spec("other-2", None, 0, &["holds-first"]),
    ];
    let mut world = World::new(plan);
    let first = world.claim().unwrap();
    assert_eq!(world.claim(), None, "`low` waits for the scope");
    world.report(&first, Outcome::Passed);
    // `low` may have it now, but another one comes before it.
    let (then, x) = (world.claim().unwrap(), world.claim().unwrap());
    assert_eq!((then.task, x.task), (id("holds-then"), id("x")));
    let then = world.engine.grant(then.number).unwrap();
    let x = world.engine.grant(x.number).unwrap();
    world.report(&x, Outcome::Passed);
    let other = world.claim().unwrap();
    assert_eq!(other.task, id("other-1"), "`best` waits for the scope");
    world.report(&then, Outcome::Passed);
    assert_eq!(world.claim().unwrap().task, id("best"), "as soon as it is free");
}

#[test]
fn what_waits_longer_goes_first_among_equals_also_after_a_restart() {
    let mut plan = plan(&[("a", &[]), ("b", &[]), ("first", &[])]);
    plan.tasks[2].priority = 1;
    plan.pools.insert(PoolName::parse(AGENTS).unwrap(), 1);
    let mut world = World::new(plan);
    let first = world.claim().unwrap();
    assert_eq!(first.task, id("first"));
    world.report(&first, Outcome::Fatal { error: "no such program".into() });
    let a = world.claim().unwrap();
    world.now = 60_000;
    world.report(&a, interrupted(Interruption::Shutdown));
    let mut restored = Engine::restore(&world.engine.snapshot().unwrap()).unwrap();
    assert_eq!(a.task, id("a"));
    let b = world.claim().unwrap();
    assert_eq!(b.task, id("b"), "`a` has waited for no time");
    let (name, claim) = (CommandId::parse("c").unwrap(), Command::Claim { owner: owner(1).id });
    let granted = restored.submit(Timestamp(60_000), &name, &claim).unwrap();
    assert_eq!(granted, world.engine.grant(b.number).map(|grant| answer(&grant)).unwrap());
}

fn answer(grant: &orchestrator_core::Grant) -> Answer {
    let (task, stage) = (grant.number, grant.stage);
    Answer::Granted { task, stage, attempt: grant.attempt, token: grant.token }
}

#[test]
fn a_restored_engine_has_the_priorities_of_its_plans() {
    let mut plan = plan(&[("a", &[]), ("b", &[])]);
    plan.tasks[1].priority = 1;
    let world = World::new(plan);
    let mut restored = Engine::restore(&world.engine.snapshot().unwrap()).unwrap();
    let (name, claim) = (CommandId::parse("c").unwrap(), Command::Claim { owner: owner(1).id });
    let granted = restored.submit(Timestamp(0), &name, &claim).unwrap();
    let Answer::Granted { task, .. } = granted else { panic!("{granted:?}") };
    assert_eq!(restored.name(task), Some(&id("b")));
}

#[test]
fn a_workspace_is_that_of_its_lease_however_many_tokens_were_granted_since() {
    let mut world = World::new(plan(&[("a", &[])]));
    let run = world.claim().unwrap();
    world.report(&run, Outcome::Passed);
    let reading = ClockReading { boot_id: "boot".into(), boot_ms: 0, wall: WallTime(0) };
    world.tell(&Command::OpenDriver {
        owner: owner(1),
        reading,
        ttl: Duration::from_secs(60),
        token_floor: FencingToken(1 << 40),
        ended: Some(owner(1).id),
    });
    let verify = world.claim().unwrap();
    assert_eq!((verify.stage, verify.workspace), (1, Some(run.token)));
    let restored = Engine::restore(&world.engine.snapshot().unwrap()).unwrap();
    assert_eq!(restored.grant(verify.number), Some(verify));
}

#[test]
fn p4_a_merge_that_is_announced_again_is_announced_once() {
    let mut world = World::new(plan(&[("a", &[])]));
    let grant = world.claim().unwrap();
    let change = |name: &str| ChangeId::parse(name).unwrap();
    for (merged, announced) in [("m", 1), ("m", 1), ("n", 2)] {
        let intent = MergeIntent { onto: change("onto"), merged: change(merged) };
        let (task, token) = (grant.number, grant.token);
        assert_eq!(world.tell(&Command::IntendMerge { task, token, intent }), Answer::Done);
        let is_it = |kind: &&EventKind| matches!(kind, EventKind::MergeIntended { .. });
        assert_eq!(world.events.iter().filter(is_it).count(), announced);
    }
}
