//! What is known before a run starts, and what a forecast makes of one that is under way.

use orchestrator_core::{
    Assumptions, BlobHash, Cause, Command, Cost, Interruption, Outcome, Pipeline, Plan, RetryRules,
    StageKind, StageSpec, Timestamp, Usd,
};

use crate::world::{World, interrupted, plan};

/// Has the run go on with stages that cost all that they may, until nothing more is granted; what it
/// spent, and in how many grants.
fn spend_all(world: &mut World, end: impl Fn(StageKind) -> Outcome) -> (Usd, u64) {
    let mut grants = 0;
    loop {
        if let Some(grant) = world.claim() {
            grants += 1;
            let kind =
                world.engine.pipeline(&grant.task).unwrap().stages()[usize::from(grant.stage)].kind;
            let cost = Cost::Known(grant.cap);
            world.report_with(&grant, end(kind), |report| report.cost = cost);
        } else {
            let Some(wake) = world.engine.next_wake() else { break };
            world.now = world.now.max(wake.0);
            world.tell(&Command::Tick);
        }
    }
    (world.engine.run().unwrap().spent, grants)
}

#[test]
fn p6_a_stage_that_is_interrupted_to_the_end_spends_no_more_than_was_known_before() {
    let plan = plan(&[("a", &[])]);
    let rules = RetryRules { dispatches_spare: 2, ..RetryRules::default() };
    let bounds = plan.bounds(&rules);
    let mut world = World::with_rules(plan, rules);
    let (spent, grants) = spend_all(&mut world, |_| interrupted(Interruption::Shutdown));
    assert_eq!(world.cause("a"), Some(Cause::DispatchesUsed));
    assert_eq!((spent, grants), (bounds.spend, bounds.dispatches), "and no less can be promised");
}

#[test]
fn p6_a_gate_that_costs_and_stays_closed_spends_no_more_than_was_known_before() {
    let gate = StageSpec { cap: Usd::dollars(1), ..StageSpec::of(StageKind::Gate) };
    let stages = vec![StageSpec::of(StageKind::Run), gate];
    let mut plan = Plan { budget: Some(Usd::dollars(1_000)), ..plan(&[("a", &[])]) };
    plan.pipelines.insert("default".parse().unwrap(), Pipeline::new(stages).unwrap());
    let rules = RetryRules { dispatches_spare: 0, deferrals_max: 50, ..RetryRules::default() };
    let bounds = plan.bounds(&rules);
    let mut world = World::with_rules(plan, rules);
    let (spent, grants) = spend_all(&mut world, |kind| match kind {
        StageKind::Gate => Outcome::Suspended { poll_at: None },
        StageKind::Run | StageKind::Verify | StageKind::Review | StageKind::Integrate => {
            Outcome::Passed
        }
    });
    assert_eq!(world.cause("a"), Some(Cause::DeferralsUsed));
    assert_eq!((spent, grants), (Usd::dollars(5 + 51), 52));
    assert!(spent <= bounds.spend && grants <= bounds.dispatches, "{bounds:?}");
}

#[test]
fn a_stage_that_said_what_it_hands_out_ends_in_a_forecast_like_any_other() {
    let mut world = World::new(plan(&[("a", &[])]));
    let grant = world.claim().unwrap();
    let forecast = |world: &World| world.engine.forecast(Timestamp(0), &Assumptions::default());
    let before = forecast(&world);
    let content = BlobHash::of(b"a prompt");
    world.tell(&Command::Dispatch { task: grant.number, token: grant.token, content });
    assert_eq!(forecast(&world), before);
    assert_eq!(before.unwrap().left.high, 0);
}
