//! Pipelines as data: gates, rejections that go to another stage, several stages that work.

use std::time::Duration;

use orchestrator_core::{
    Answer, Candidate, Cause, ChangeId, Command, Delay, GATES, Grant, Outcome, Phase, Pipeline,
    PipelineName, Plan, PoolName, Reason, Resolution, Restart, RetryRules, Scope, SessionId,
    StageKind, StageName, StageSpec, TaskSpec, VerifyCommand, Wait,
};

use super::{World, id, plan, rejected};

fn stage(name: &str, kind: StageKind) -> StageSpec {
    StageSpec { name: StageName::parse(name).unwrap(), ..StageSpec::of(kind) }
}

/// The plan with these stages for all its tasks.
fn with_stages(plan: Plan, stages: Vec<StageSpec>) -> Plan {
    let name = PipelineName::parse("default").unwrap();
    Plan { pipelines: [(name, Pipeline::new(stages).unwrap())].into(), ..plan }
}

fn gated() -> Plan {
    let command = Some(VerifyCommand::Shell("./is-green".into()));
    let gate = StageSpec { command, ..stage("ci", StageKind::Gate) };
    let mut plan = with_stages(
        plan(&[("a", &[]), ("b", &[])]),
        vec![stage("run", StageKind::Run), gate, stage("integrate", StageKind::Integrate)],
    );
    for task in &mut plan.tasks {
        task.scope = Scope::parse(["src"]).ok();
    }
    plan
}

fn at_the_gate(rules: RetryRules) -> (World, Grant) {
    let mut world = World::with_rules(gated(), rules);
    let run = world.claim().unwrap();
    world.report(&run, Outcome::Passed);
    let gate = world.claim().unwrap();
    assert_eq!((gate.task.as_str(), gate.stage), ("a", 1));
    (world, gate)
}

fn closed() -> Outcome {
    Outcome::Suspended { poll_at: None }
}

fn resolve(world: &mut World, how: Resolution) -> Answer {
    let (actor, reason) = ("ann".to_owned(), "looked at it".to_owned());
    world.tell(&Command::Resolve { task: id("a"), how, actor, reason })
}

#[test]
fn p8_a_closed_gate_holds_no_permit_but_its_scope_and_is_asked_again_after_a_growing_wait() {
    let (mut world, mut gate) = at_the_gate(RetryRules::default());
    let mut waits = Vec::new();
    for _ in 0..8 {
        world.report(&gate, closed());
        assert_eq!(world.engine.in_use(&PoolName::parse(GATES).unwrap()), 0);
        let holder = [Reason::ScopeHeld { by: id("a") }];
        assert_eq!(world.engine.explain(orchestrator_core::Timestamp(world.now), &id("b")), holder);
        let Phase::Deferred { until, why } = world.phase("a") else { panic!("it waits") };
        assert_eq!(why, Wait::Other(Delay::GateClosed));
        assert_eq!(world.claim(), None);
        waits.push(until.0 - world.now);
        world.now = until.0;
        gate = world.claim().unwrap();
        assert_eq!((gate.stage, gate.attempt), (1, 1));
    }
    assert!((15_000..=30_000).contains(&waits[0]) && waits[7] >= 300_000, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 600_000), "{waits:?}");
    world.report(&gate, Outcome::Passed);
    assert_eq!(world.claim().unwrap().stage, 2);
}

#[test]
fn a_gate_that_says_when_is_asked_then_and_not_before() {
    let (mut world, gate) = at_the_gate(RetryRules::default());
    let at = orchestrator_core::Timestamp(3_600_000);
    world.report_with(&gate, closed(), |report| report.retry_at = Some(at));
    assert_eq!(world.engine.next_wake(), Some(at));
    // One that is in a hurry waits as the rules say.
    world.now = at.0;
    let gate = world.claim().unwrap();
    let at = orchestrator_core::Timestamp(world.now + 1);
    world.report_with(&gate, closed(), |report| report.retry_at = Some(at));
    assert!(world.engine.next_wake().unwrap().0 > world.now + 10_000);
}

#[test]
fn p6_a_gate_that_stays_closed_escalates_after_its_own_bound_and_spends_nothing_else() {
    let rules = RetryRules { deferrals_max: 100, dispatches_spare: 2, ..RetryRules::default() };
    let (mut world, mut gate) = at_the_gate(rules);
    for _ in 0..100 {
        world.report(&gate, closed());
        world.now += 600_000;
        gate = world.claim().unwrap();
    }
    world.report(&gate, closed());
    assert_eq!(world.cause("a"), Some(Cause::DeferralsUsed));
    let record = world.engine.task(&id("a")).unwrap();
    assert_eq!((record.deferrals, record.rejections, record.interruptions), (101, 0, 0));
    // Tried again, the gate is asked again: the work is as it was.
    let (actor, reason) = ("ann".to_owned(), "the service is back".to_owned());
    world.tell(&Command::Retry { task: id("a"), dependents: false, actor, reason });
    let gate = std::iter::from_fn(|| world.claim()).find(|grant| grant.task == id("a")).unwrap();
    assert_eq!(gate.stage, 1);
    world.report(&gate, closed());
    assert!(matches!(world.phase("a"), Phase::Deferred { .. }));
}

#[test]
fn a_person_can_say_what_a_gate_or_a_judge_would_have_said_but_not_do_the_work() {
    let (mut world, gate) = at_the_gate(RetryRules::default());
    world.report(&gate, Outcome::Question { text: "may it go on?".into() });
    assert_eq!(world.cause("a"), Some(Cause::Question));
    assert_eq!(resolve(&mut world, Resolution::Approve), Answer::Done);
    let next = world.claim().unwrap();
    assert_eq!((next.task.as_str(), next.stage, next.attempt), ("a", 2, 1));
    world.report(&next, Outcome::Question { text: "what now?".into() });
    let command = Command::Resolve {
        task: id("a"),
        how: Resolution::Approve,
        actor: "ann".into(),
        reason: "why not".into(),
    };
    let name = orchestrator_core::CommandId::parse("approve").unwrap();
    let refusal =
        world.engine.submit(orchestrator_core::Timestamp(world.now), &name, &command).unwrap_err();
    assert!(refusal.to_string().contains("only a stage that judges"), "{refusal}");
}

#[test]
fn what_is_no_gate_cannot_be_closed_and_counts_as_interrupted() {
    let mut world = World::new(plan(&[("a", &[])]));
    let run = world.claim().unwrap();
    world.report(&run, closed());
    let record = world.engine.task(&id("a")).unwrap();
    assert_eq!((record.interruptions, record.deferrals), (1, 0));
}

fn polished(rounds: Option<u32>) -> Plan {
    let polish = StageName::parse("polish").ok();
    let plan = with_stages(
        plan(&[("a", &[])]),
        vec![
            stage("draft", StageKind::Run),
            stage("polish", StageKind::Run),
            StageSpec { on_rejection: polish, rounds, ..stage("review", StageKind::Review) },
            stage("integrate", StageKind::Integrate),
        ],
    );
    let tasks = plan.tasks.into_iter().map(|task| TaskSpec { max_retries: 9, ..task }).collect();
    Plan { tasks, ..plan }
}

/// Has the task pass its next stage, which makes a change of this name where it works.
fn pass(world: &mut World, change: &str) -> Grant {
    let grant = world.claim().unwrap();
    let name = |text: &str| ChangeId::parse(text).unwrap();
    world.report_with(&grant, Outcome::Passed, |report| {
        let makes = Candidate { change: name(change), base: name("base") };
        report.candidate = (grant.stage < 2).then_some(makes);
        report.session = (grant.stage < 2).then(|| SessionId::parse(change).unwrap());
    });
    grant
}

#[test]
fn a_second_stage_that_works_goes_on_from_the_change_of_the_first_in_a_conversation_of_its_own() {
    let mut world = World::new(polished(None));
    let draft = pass(&mut world, "drafted");
    let polish = pass(&mut world, "polished");
    assert_eq!((draft.stage, polish.stage, polish.attempt), (0, 1, 1));
    assert_eq!(polish.candidate.unwrap().change.as_str(), "drafted");
    assert_eq!((polish.restart, polish.session), (Restart::OnCandidate, None));
    assert_eq!(world.claim().unwrap().candidate.unwrap().change.as_str(), "polished");
}

#[test]
fn a_rejection_goes_to_the_stage_that_is_named_unless_the_work_must_begin_anew() {
    let mut world = World::new(polished(None));
    pass(&mut world, "drafted");
    pass(&mut world, "polished");
    let review = world.claim().unwrap();
    world.report(&review, rejected("the names are unclear"));
    let again = pass(&mut world, "polished again");
    assert_eq!((again.stage, again.attempt), (1, 2));
    assert_eq!(again.candidate.unwrap().change.as_str(), "polished");
    pass(&mut world, "reviewed");
    let integrate = world.claim().unwrap();
    assert_eq!(integrate.stage, 3);
    let conflict = Outcome::Rejected { feedback: "conflicts".into(), restart: Restart::OnTarget };
    world.report(&integrate, conflict);
    let anew = world.claim().unwrap();
    assert_eq!((anew.stage, anew.attempt, anew.restart), (0, 3, Restart::OnTarget));
}

#[test]
fn p6_a_stage_rejects_a_task_so_many_rounds_and_then_a_person_has_to_look() {
    let mut world = World::new(polished(Some(2)));
    for round in ["one", "two", "three"] {
        while world.engine.task(&id("a")).unwrap().stage < 2 {
            pass(&mut world, round);
        }
        assert_eq!(world.cause("a"), None);
        let review = world.claim().unwrap();
        world.report(&review, rejected(round));
    }
    assert_eq!(world.cause("a"), Some(Cause::RoundsUsed));
    assert_eq!(world.engine.task(&id("a")).unwrap().rounds, [0, 0, 3]);
}

#[test]
fn a_rejected_task_waits_where_the_rules_say_so() {
    let rules = RetryRules { rejection_backoff: Duration::from_secs(60), ..RetryRules::default() };
    let mut world = World::with_rules(plan(&[("a", &[])]), rules);
    for (feedback, least) in [("one", 30_000), ("two", 60_000), ("three", 120_000)] {
        let run = world.claim().unwrap();
        world.report(&run, rejected(feedback));
        let Phase::Deferred { until, why } = world.phase("a") else { panic!("it waits") };
        assert_eq!(why, Wait::Other(Delay::Rejected));
        assert!((least..=2 * least).contains(&(until.0 - world.now)), "{feedback}: {until}");
        assert_eq!(world.claim(), None);
        world.now = until.0;
    }
}
