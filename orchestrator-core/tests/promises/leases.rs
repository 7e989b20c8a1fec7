//! Who holds what, and what counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use orchestrator_core::{
    Answer, ChangeId, Command, Cost, Engine, FencingToken, Interruption, MergeIntent, Outcome,
    OwnerId, Reason, Refusal, RunId, StageKind, StageReport, Stale, TaskNo, Timestamp, Usd,
};

use crate::world::{World, crashed, id, plan, question, retry, staged};

#[test]
pub(crate) fn p1_one_holder_at_a_time_under_tokens_that_only_grow() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &[])]));
    let mut last = FencingToken(0);
    let mut holds = BTreeSet::new();
    for round in 0..6 {
        for grant in world.claim_all() {
            assert!(grant.token > last, "tokens grow: {} after {last}", grant.token);
            last = grant.token;
            assert!(holds.insert(grant.task.clone()), "`{}` has one holder", grant.task);
            if round % 2 == 0 {
                world.report(&grant, crashed());
                holds.remove(&grant.task);
            }
        }
        world.now += 3_600_000;
        // What another witness saw is never granted, also when the store has not seen it.
        world.crash(last.0 + 10);
        last = FencingToken(last.0 + 10);
        let stranger = Command::Claim { owner: OwnerId::parse("host/0").unwrap() };
        assert!(matches!(world.try_tell(&stranger), Err(Refusal::NotDriver(_))));
        let second = world.opening(99, 0, None);
        assert!(matches!(world.try_tell(&second), Err(Refusal::DriverRunning(_))));
        // What a dead driver started may still run: its tasks are free once it is known to be gone.
        for task in ["a", "b"] {
            if !world.is_stopping(task) {
                continue;
            }
            let (task, token) = (id(task), world.task(task).last_token);
            let number = world.engine.number(&task).unwrap();
            let granted = world.claim();
            assert!(granted.is_none_or(|grant| grant.task != task), "`{task}` still runs");
            world.tell(&Command::Stopped { task: number, token });
            holds.remove(&task);
        }
        world.now += 3_600_000;
    }
}

#[test]
pub(crate) fn p2_what_comes_under_another_token_changes_nothing_but_the_books() {
    let mut world = World::new(staged(&[("a", &[])], &[StageKind::Run, StageKind::Integrate]));
    let old = world.claim().unwrap();
    world.report(&old, crashed());
    world.now += 3_600_000;
    let live = world.claim().unwrap();
    let passed = world.report_of(&live, Outcome::Passed);
    let odd = [
        (StageReport { token: old.token, ..passed.clone() }, "an old token"),
        (StageReport { token: FencingToken(999), ..passed.clone() }, "a token that never was"),
        (StageReport { stage: 1, ..passed.clone() }, "another stage"),
        (StageReport { attempt: 7, ..passed.clone() }, "another attempt"),
        (StageReport { task: TaskNo(7), ..passed.clone() }, "a task that is none"),
        (StageReport { run: RunId::parse("another").unwrap(), ..passed }, "another run"),
    ];
    for (report, what) in odd {
        let answer = world.tell(&Command::Report(Box::new(report)));
        assert!(matches!(answer, Answer::Refused(_)), "{what}: {answer:?}");
        assert_eq!(world.engine.grant(live.number).as_ref(), Some(&live), "{what}");
    }
    let change = ChangeId::parse("c").unwrap();
    let intent = MergeIntent { onto: change.clone(), merged: change };
    let merge = |token| Command::IntendMerge { task: live.number, token, intent: intent.clone() };
    assert!(matches!(world.tell(&merge(old.token)), Answer::Refused(Stale::OtherToken { .. })));
    assert_eq!(world.task("a").intent, None);
    // One event for each token and result; what was really spent is booked, once.
    let mut world = World::new(plan(&[("a", &[])]));
    let live = world.claim().unwrap();
    world.crash(0);
    let cap = live.cap;
    let lines = world.log.len();
    for _ in 0..3 {
        let late = world.costs(&live, Outcome::Passed, Cost::Known(cap.plus(Usd(5))));
        assert_eq!(late, Answer::Refused(Stale::Stopping));
    }
    assert_eq!(world.log.len(), lines + 1);
    assert!(world.is_stopping("a"));
    world.stopped(&live);
    assert_eq!(world.engine.run().unwrap().spent, cap.plus(Usd(5)));
}

#[test]
pub(crate) fn p4_a_result_takes_effect_once_however_often_it_comes() {
    let mut world = World::new(staged(&[("a", &[])], &[StageKind::Run, StageKind::Verify]));
    let plan = Arc::new(staged(&[("b", &["a"])], &[StageKind::Run]));
    let grant = world.claim().unwrap();
    let cost = Cost::Known(Usd(7));
    assert_eq!(world.costs(&grant, Outcome::Passed, cost), Answer::Done);
    let after = (world.tasks(), world.engine.run().unwrap().spent);
    for _ in 0..3 {
        assert!(matches!(world.costs(&grant, Outcome::Passed, cost), Answer::Refused(_)));
        let (was, is) = (&after.0[0], &world.tasks()[0]);
        assert_eq!((was.stage, was.phase.as_str()), (is.stage, is.phase.as_str()));
        assert_eq!(world.engine.run().unwrap().spent, after.1);
    }
    // So it is with plans that are sent again, with time and with what was ended.
    let add = Command::AddPlan { plan };
    world.tell(&add);
    let lines = world.log.len();
    world.tell(&add);
    world.tell(&Command::Tick);
    world.tell(&Command::Tick);
    assert!(matches!(world.stopped(&grant), Answer::Refused(_)));
    assert_eq!(world.log.len(), lines);
}

#[test]
pub(crate) fn p4_a_commit_that_is_refused_leaves_nothing() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &["a"]), ("c", &[])]));
    let (a, c) = (world.claim().unwrap(), world.claim().unwrap());
    world.report(&c, question());
    let mut spec = world.engine.spec(&id("b")).unwrap().clone();
    spec.priority = 9;
    let limit = Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: None };
    let batch = [
        Command::Report(Box::new(world.report_of(&a, limit))),
        Command::Edit { spec: Arc::new(spec), actor: "ann".into(), reason: "why not".into() },
        retry("c"),
        Command::Claim { owner: World::owner(1).id },
        Command::AddPlan { plan: Arc::new(plan(&[("d", &["a"])])) },
    ];
    let before = world.engine.snapshot();
    let edited = world.engine.spec(&id("b")).cloned();
    for command in &batch {
        world.submit(command).unwrap();
    }
    assert_ne!(world.engine.snapshot(), before);
    world.engine.undo();
    assert_eq!(world.engine.snapshot(), before);
    assert_eq!(world.engine.spec(&id("b")).cloned(), edited);
    assert_eq!(world.engine.audit(), Vec::<String>::new());
    assert_eq!(world.report(&a, Outcome::Passed), Answer::Done);
}

#[test]
pub(crate) fn p5_after_a_crash_the_run_goes_on_from_what_was_committed() {
    let edges: [(&str, &[&str]); 3] = [("a", &[]), ("b", &["a"]), ("c", &["b"])];
    let mut world = World::new(staged(&edges, &[StageKind::Run, StageKind::Verify]));
    let mut crashes = 0;
    while world.state().as_str() == "active" && crashes < 200 {
        let snapshot = world.engine.snapshot().unwrap();
        let restored = Engine::restore(&snapshot).unwrap();
        assert_eq!(restored.snapshot().as_ref(), Some(&snapshot));
        assert_eq!(restored.audit(), Vec::<String>::new());
        let granted = world.claim();
        let stage = granted.as_ref().map(|grant| (grant.task.clone(), grant.stage, grant.attempt));
        crashes += 1;
        world.crash(0);
        assert!(world.engine.held().all(|task| world.is_stopping(task.id.as_str())));
        if let Some(grant) = granted {
            let reasons = world.engine.explain(Timestamp(world.now), &grant.task);
            assert_eq!(reasons, [Reason::Stopping { token: grant.token }]);
            world.stopped(&grant);
            let task = world.engine.task(&grant.task).unwrap();
            assert_eq!(task.interruptions, 1, "counted, and not forgotten");
            world.now += 3_600_000;
            world.tell(&Command::Tick);
            // The same stage of the same attempt, by whoever comes next.
            let again = world.claim().unwrap();
            assert_eq!(Some((again.task.clone(), again.stage, again.attempt)), stage);
            assert!(again.stage > 0 || again.workspace == Some(grant.token));
            world.report(&again, Outcome::Passed);
        }
        world.tell(&Command::Settle);
    }
    assert_eq!(world.state().as_str(), "completed");
    let counts: Vec<u32> = world.tasks().iter().map(|task| task.attempt).collect();
    assert_eq!(counts, [1, 1, 1], "a crash spends no attempt");
}

#[test]
pub(crate) fn p14_no_jump_of_a_clock_loses_freezes_or_revives_anything() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &["a"])]));
    world.now = 50_000;
    let grant = world.claim().unwrap();
    let stop = world.engine.next_wake().unwrap();
    // Back: the run's time stands, its lease lives, and it has one holder.
    world.now = 10;
    world.tell(&Command::Tick);
    assert_eq!(world.claim(), None);
    world.tell(&Command::Pause { actor: "ann".into(), reason: "look".into() });
    world.tell(&Command::Resume { actor: "ann".into() });
    assert_eq!(world.engine.run().unwrap().last_at, Timestamp(50_000));
    assert_eq!(world.engine.next_wake(), Some(stop));
    // The wall clock leaps by years within a boot, and the next driver is not misled.
    world.now = 60_000;
    world.wall = 1 << 50;
    world.crash(0);
    assert_eq!(world.engine.run().unwrap().last_at, Timestamp(60_000));
    world.stopped(&grant);
    // The machine starts anew, and its wall clock is years ahead: a week has passed at most.
    world.boot = "another";
    world.wall = u64::MAX;
    world.crash(0);
    let week = 7 * 24 * 3_600_000;
    assert_eq!(world.engine.run().unwrap().last_at, Timestamp(60_000 + week));
    world.now = 60_000 + week;
    let granted = world.pass_all();
    assert_eq!(granted, [id("a"), id("b")], "and all of it gets done");
}
