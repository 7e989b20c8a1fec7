//! The greatest numbers that records and fences can hold, as nobody but a damaged or tampered file has
//! them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{
    Answer, BlobHash, ClockReading, Command, CommandId, Completion, Cost, Engine, Event, EventKind,
    Extra, FencingToken, Interruption, Outcome, Phase, Pipeline, PoolName, Refusal, RetryRules,
    RunRecord, Snapshot, StageKind, StageSpec, Stale, TaskRecord, Timestamp, Usd, WallTime,
};

use super::world::{World, id, interrupted, owner, plan, rejected};

fn gated() -> World {
    let mut plan = plan(&[("a", &[])]);
    let gate = StageSpec { rounds: Some(3), ..StageSpec::of(StageKind::Gate) };
    let stages = vec![StageSpec::of(StageKind::Run), gate, StageSpec::of(StageKind::Verify)];
    let pipeline = Pipeline::new(stages).unwrap();
    plan.pipelines.insert("default".parse().unwrap(), pipeline);
    World::new(plan)
}

/// Has a run go on from these records, with stages that end like these in turn.
fn drive(snapshot: &Snapshot, ends: &[Outcome]) -> Result<Engine, Refusal> {
    let mut engine = Engine::restore(snapshot).unwrap();
    let name = CommandId::parse("c").unwrap();
    let mut now = snapshot.run.last_at;
    for end in ends.iter().cycle().take(40) {
        let claim = Command::Claim { owner: owner(1).id };
        if let Answer::Granted { task, .. } = engine.submit(now, &name, &claim)? {
            let mut report = engine.grant(task).unwrap().report(engine.id().clone(), end.clone());
            report.cost = Cost::AtLeast(Usd(u64::MAX));
            engine.submit(now, &name, &Command::Report(Box::new(report)))?;
        } else {
            let Some(wake) = engine.next_wake() else { break };
            now = now.max(wake);
            engine.submit(now, &name, &Command::Tick)?;
        }
        engine.accept();
    }
    Ok(engine)
}

#[test]
fn p6_p16_a_counter_at_its_greatest_stays_there_and_still_binds() {
    const MAX: u32 = u32::MAX;
    let spoil_task: [fn(&mut TaskRecord); 7] = [
        |task| task.dispatches = MAX,
        |task| (task.attempt, task.stage) = (MAX, 1),
        |task| (task.rejections, task.extra.retries) = (MAX, MAX),
        |task| task.interruptions = MAX,
        |task| (task.deferrals, task.extra.deferrals, task.stage) = (MAX, MAX, 1),
        |task| (task.rounds, task.stage) = (vec![MAX; 3], 1),
        |task| task.extra = Extra { retries: MAX, dispatches: MAX, deferrals: MAX },
    ];
    let spoil_run: [fn(&mut RunRecord); 3] = [
        |run| run.first_stage_failures = MAX,
        |run| run.spent = Usd(u64::MAX),
        |run| run.last_at = Timestamp(u64::MAX),
    ];
    let suspended = Outcome::Suspended { poll_at: None };
    let ends = [
        vec![Outcome::Passed],
        vec![rejected("no")],
        vec![interrupted(Interruption::Crashed)],
        vec![Outcome::Passed, suspended.clone()],
        vec![suspended, rejected("no")],
        vec![Outcome::Fatal { error: "no".into() }],
    ];
    let fresh = gated().engine.snapshot().unwrap();
    for ends in ends {
        for spoil in spoil_task {
            let mut snapshot = fresh.clone();
            spoil(&mut snapshot.tasks[0]);
            let was = snapshot.tasks[0].clone();
            let is = drive(&snapshot, &ends).unwrap().task(&id("a")).unwrap();
            assert!(is.dispatches >= was.dispatches, "{ends:?}: {was:?} became {is:?}");
            assert!(is.rejections >= was.rejections, "{ends:?}: {was:?} became {is:?}");
            assert!(is.deferrals >= was.deferrals, "{ends:?}: {was:?} became {is:?}");
        }
        for spoil in spoil_run {
            let mut snapshot = fresh.clone();
            spoil(&mut snapshot.run);
            let engine = drive(&snapshot, &ends).unwrap();
            assert!(engine.run().unwrap().spent >= snapshot.run.spent);
        }
    }
}

#[test]
fn p1_no_token_is_granted_twice_when_there_is_none_left() {
    let mut world = gated();
    let opening = |floor: u64| Command::OpenDriver {
        owner: owner(2),
        reading: ClockReading { boot_id: "boot".into(), boot_ms: 0, wall: WallTime(0) },
        ttl: Duration::from_secs(60),
        token_floor: FencingToken(floor),
        ended: Some(owner(1).id),
    };
    let name = CommandId::parse("c").unwrap();
    for floor in [u64::MAX, u64::MAX - 1, u64::MAX / 2 + 1] {
        let refused = world.engine.submit(Timestamp(0), &name, &opening(floor)).unwrap_err();
        assert_eq!(refused, Refusal::TokensUsedUp { last: FencingToken(floor) });
    }
    assert!(world.claim().is_some(), "the former one drives on");
    world.tell(&opening(u64::MAX / 2));
    // What a database says is not asked for; then nothing is granted.
    let mut snapshot = gated().engine.snapshot().unwrap();
    snapshot.run.last_token = FencingToken(u64::MAX);
    let refused = drive(&snapshot, &[Outcome::Passed]).unwrap_err();
    assert_eq!(refused, Refusal::TokensUsedUp { last: FencingToken(u64::MAX) });
    snapshot.run.last_token = FencingToken(u64::MAX - 1);
    let refused = drive(&snapshot, &[interrupted(Interruption::Shutdown)]).unwrap_err();
    assert_eq!(refused, Refusal::TokensUsedUp { last: FencingToken(u64::MAX) });
}

/// Somebody's log, with what no engine writes.
fn odd(engine: &mut Engine, kinds: &[EventKind]) {
    for kind in kinds {
        engine.evolve(&Event { at: Timestamp(1), kind: kind.clone() });
        drop(engine.audit());
    }
}

fn passed(token: u64) -> EventKind {
    let (task, token, cost) = (id("a"), FencingToken(token), Usd(1));
    EventKind::Passed { task, token, cost, candidate: None, merged: None, session: None }
}

#[test]
fn p16_a_log_that_begins_a_run_twice_or_late_breaks_nothing() {
    let mut engine = World::new(plan(&[("a", &[])])).engine;
    let before = engine.run().cloned();
    let created =
        EventKind::RunCreated { run: "other".parse().unwrap(), rules: RetryRules::default() };
    odd(&mut engine, std::slice::from_ref(&created));
    assert_eq!(engine.run().map(|run| run.counts), before.map(|run| run.counts));
    let mut late = Engine::new("late".parse().unwrap());
    let tasks = plan(&[("a", &[])]);
    let blob = BlobHash::of(&serde_json::to_vec(&tasks).unwrap());
    late.offer(Arc::new(tasks));
    odd(&mut late, &[EventKind::PlanAdded { plan: blob, tasks: 1 }, created, passed(1)]);
    assert_eq!(late.audit(), [""; 0]);
}

#[test]
fn p16_a_log_that_grants_a_stage_that_there_is_none_of_breaks_nothing() {
    for stage in [4, 31, 32, 255] {
        let mut engine = World::new(plan(&[("a", &[])])).engine;
        let (task, token, owner) = (id("a"), FencingToken(1), owner(1).id);
        let (hard_stop, reserved) = (Timestamp(9), Usd(1));
        let granted =
            EventKind::Granted { task, stage, attempt: 1, token, owner, hard_stop, reserved };
        odd(&mut engine, &[granted, passed(1)]);
    }
}

#[test]
fn p16_a_log_that_counts_more_tasks_than_its_plans_have_breaks_nothing() {
    let mut engine = World::new(plan(&[("a", &[])])).engine;
    let unknown = |byte: u8| EventKind::PlanAdded { plan: BlobHash::of(&[byte]), tasks: u32::MAX };
    odd(&mut engine, &[unknown(1), unknown(2)]);
    let name = CommandId::parse("c").unwrap();
    assert_eq!(engine.submit(Timestamp(1), &name, &Command::Prune), Ok(Answer::Done));
    let (plan, left) = (BlobHash::of(&[2]), BlobHash::of(&[3]));
    odd(&mut engine, &[EventKind::PlanPruned { plan, left }]);
}

#[test]
fn p16_records_that_hold_more_permits_than_numbers_count_are_taken_up() {
    let mut tasks = plan(&[("a", &[]), ("b", &[])]);
    let gpu: PoolName = "gpu".parse().unwrap();
    tasks.tasks.iter_mut().for_each(|task| {
        task.needs.insert(gpu.clone(), NonZeroU32::MAX);
    });
    tasks.pools.insert(gpu.clone(), u32::MAX);
    let mut world = World::new(tasks);
    assert!(world.claim().is_some() && world.claim().is_none());
    let mut snapshot = world.engine.snapshot().unwrap();
    snapshot.tasks[1].phase = snapshot.tasks[0].phase.clone();
    assert_eq!(Engine::restore(&snapshot).unwrap().in_use(&gpu), u32::MAX);
}

#[test]
fn p16_records_that_do_not_fit_their_plans_are_refused_with_what_does_not() {
    let fresh = gated().engine.snapshot().unwrap();
    let refused = |spoil: fn(&mut Snapshot)| {
        let mut snapshot = fresh.clone();
        spoil(&mut snapshot);
        Engine::restore(&snapshot).unwrap_err().to_string()
    };
    assert_eq!(
        refused(|all| all.tasks[0].stage = 3),
        "task `a` of run `test` is at stage 3, counted from 0, of 3"
    );
    assert!(refused(|all| all.run.plans[0].tasks = 0).ends_with("1 tasks, and the run says 0"));
    assert!(refused(|all| all.tasks.clear()).ends_with("where its plans have `a`"));
    let mut done = fresh.clone();
    (done.tasks[0].stage, done.tasks[0].phase) = (3, Phase::Done(Completion::Verified));
    assert!(Engine::restore(&done).is_ok(), "what is done has passed all of them");
}

#[test]
fn p16_a_log_that_adds_a_plan_twice_adds_it_once() {
    let tasks = plan(&[("a", &[]), ("b", &["a"])]);
    let blob = BlobHash::of(&serde_json::to_vec(&tasks).unwrap());
    let mut engine = World::new(tasks).engine;
    let before = engine.snapshot().map(|all| (all.run.plans, all.tasks));
    odd(&mut engine, &[EventKind::PlanAdded { plan: blob, tasks: 2 }]);
    assert_eq!(engine.snapshot().map(|all| (all.run.plans, all.tasks)), before);
    assert_eq!(engine.audit(), [""; 0]);
}

#[test]
fn p1_p10_p16_tokens_and_money_of_a_task_that_a_log_names_and_no_plan_has_are_used_up() {
    let mut engine = World::new(plan(&[("a", &[])])).engine;
    let (token, stage, cost, reserved) = (FencingToken(7), 0, Usd(1), Usd(4));
    let (owner, hard_stop) = (owner(1).id, Timestamp(9));
    let task = || id("unknown");
    let granted = EventKind::Granted {
        task: task(),
        stage,
        attempt: 1,
        token,
        owner: owner.clone(),
        hard_stop,
        reserved,
    };
    let (candidate, merged, session) = (None, None, None);
    let passed = EventKind::Passed { task: task(), token, cost, candidate, merged, session };
    let reason = Stale::NoLease;
    let refused = EventKind::ResultRefused { task: task(), token, stage, reason, cost };
    odd(&mut engine, &[granted, passed, refused]);
    let run = engine.run().unwrap();
    assert_eq!((run.last_token, run.reserved, run.spent), (token, reserved, Usd(2)));
    assert!(engine.audit().len() >= 2, "no lease holds what is reserved, no task spent anything");
    let name = CommandId::parse("c").unwrap();
    let answer = engine.submit(Timestamp(1), &name, &Command::Claim { owner });
    let Ok(Answer::Granted { token: next, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(next, FencingToken(8));
}
