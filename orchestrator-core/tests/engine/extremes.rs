//! The greatest numbers that records and fences can hold, as nobody but a damaged or tampered file has
//! them.

use std::time::Duration;

use orchestrator_core::{
    Answer, ClockReading, Command, CommandId, Cost, Engine, Extra, FencingToken, Interruption,
    Outcome, Pipeline, Refusal, RunRecord, Snapshot, StageKind, StageSpec, TaskRecord, Timestamp,
    Usd, WallTime,
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
