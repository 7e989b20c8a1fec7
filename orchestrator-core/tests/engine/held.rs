//! A supervisor that calls now and then: leases that nobody renews, taken back, and what was handed
//! out under them.

use std::collections::BTreeSet;
use std::time::Duration;

use orchestrator_core::{
    AGENTS, Answer, BlobHash, ClockReading, Command, CommandId, EventKind, FencingToken, Grant,
    HELD, Interruption, Outcome, Owner, Phase, PoolName, Reason, Refusal, StageSpec, Stale, TaskId,
    Timestamp, WallTime,
};

use super::{World, id, owner, plan};

/// A call of the supervisor.
fn call(world: &mut World, ttl: Duration) {
    let reading = ClockReading { boot_id: "boot".into(), boot_ms: world.now, wall: WallTime(0) };
    // Each call is another process under the same name.
    let owner = Owner { pid: 4_000, ..owner(1) };
    let ended = Some(owner.id.clone());
    world.tell(&Command::OpenDriver { owner, reading, ttl, token_floor: FencingToken(0), ended });
}

fn supersede(world: &mut World, grant: &Grant) -> Answer {
    world.tell(&Command::Supersede { task: grant.number, token: grant.token })
}

#[test]
fn a_supervisors_lease_outlives_its_call_until_the_hard_stop() {
    let mut world = World::new(plan(&[("a", &[])]));
    call(&mut world, HELD);
    let grant = world.claim().unwrap();
    for _ in 0..4 {
        world.now += 10 * 60_000;
        call(&mut world, HELD);
        assert!(matches!(world.phase("a"), Phase::Leased(_)));
    }
    world.now += 10 * 60_000;
    world.tell(&Command::Tick);
    let Phase::Stopping { why, .. } = world.phase("a") else { panic!("its time is over") };
    assert_eq!(why, Interruption::Expired);
    assert_eq!(world.report(&grant, Outcome::Passed), Answer::Refused(Stale::Stopping));
    // What ended it, the supervisor knows.
    assert_eq!(supersede(&mut world, &grant), Answer::Done);
    assert!(matches!(world.phase("a"), Phase::Deferred { .. }));
}

#[test]
fn a_process_that_renews_its_leases_loses_them_when_it_opens_again() {
    let mut world = World::new(plan(&[("a", &[])]));
    world.claim().unwrap();
    call(&mut world, Duration::from_secs(60));
    assert!(matches!(world.phase("a"), Phase::Stopping { .. }));
}

#[test]
fn p1_a_lease_that_is_taken_back_is_granted_again_at_the_same_attempt_and_both_are_in_the_log() {
    let mut world = World::new(plan(&[("a", &[])]));
    call(&mut world, HELD);
    let old = world.claim().unwrap();
    assert_eq!(supersede(&mut world, &old), Answer::Done);
    let new = world.claim().unwrap();
    assert_eq!((new.stage, new.attempt), (old.stage, old.attempt));
    assert!(new.token > old.token);
    let late = world.report(&old, Outcome::Passed);
    assert_eq!(late, Answer::Refused(Stale::OtherToken { current: new.token }));
    let tokens: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| {
            if let EventKind::Interrupted { token, reason: Interruption::Superseded, .. } = event {
                return Some(("superseded", *token));
            }
            let EventKind::Granted { token, .. } = event else { return None };
            Some(("granted", *token))
        })
        .collect();
    let (old, new) = (old.token, new.token);
    assert_eq!(tokens, [("granted", old), ("superseded", old), ("granted", new)]);
}

#[test]
fn p1_a_lease_whose_holder_renews_it_is_not_taken_back() {
    let mut world = World::new(plan(&[("a", &[])]));
    let grant = world.claim().unwrap();
    assert_eq!(supersede(&mut world, &grant), Answer::Refused(Stale::Renewed));
    let other = Grant { token: FencingToken(77), ..grant.clone() };
    let current = grant.token;
    assert_eq!(supersede(&mut world, &other), Answer::Refused(Stale::OtherToken { current }));
    assert_eq!(world.report(&grant, Outcome::Passed), Answer::Done);
    assert_eq!(supersede(&mut world, &grant), Answer::Refused(Stale::NoLease));
}

#[test]
fn p2_a_result_that_answers_something_else_than_was_handed_out_is_refused() {
    let mut world = World::new(plan(&[("a", &[])]));
    call(&mut world, HELD);
    let grant = world.claim().unwrap();
    let handed = content(&world, &grant, "port the parser");
    let handed_out =
        Command::Dispatch { task: grant.number, token: grant.token, content: handed.clone() };
    assert_eq!(world.tell(&handed_out), Answer::Done);
    let other = content(&world, &grant, "port the lexer");
    for wrong in [None, Some(other)] {
        let answer = world.report_with(&grant, Outcome::Passed, |report| report.content = wrong);
        assert_eq!(answer, Answer::Refused(Stale::OtherContent));
        assert!(matches!(world.phase("a"), Phase::Leased(_)));
    }
    let answer = world.report_with(&grant, Outcome::Passed, |report| report.content = Some(handed));
    assert_eq!(answer, Answer::Done);
    // The next lease begins with nothing.
    assert_eq!(
        world.claim().map(|grant| world.report(&grant, Outcome::Passed)),
        Some(Answer::Done)
    );
    let stale = world.tell(&handed_out);
    assert!(matches!(stale, Answer::Refused(_)), "{stale:?}");
}

fn content(world: &World, grant: &Grant, prompt: &str) -> BlobHash {
    let stage = world.engine.pipeline(&id("a")).unwrap().stage(grant.stage).unwrap();
    grant.content(world.engine.id(), stage, &BlobHash::of(prompt.as_bytes()))
}

#[test]
fn the_address_of_what_is_handed_out_tells_everything_that_defines_it() {
    let mut world = World::new(plan(&[("a", &[])]));
    let grant = world.claim().unwrap();
    let stage = world.engine.pipeline(&id("a")).unwrap().stages()[0].clone();
    let prompt = BlobHash::of(b"prompt");
    let of = |grant: &Grant, run: &str, stage: &StageSpec, prompt: &BlobHash| {
        grant.content(&orchestrator_core::RunId::parse(run).unwrap(), stage, prompt)
    };
    let first = of(&grant, "test", &stage, &prompt);
    assert_eq!(first.as_str().len(), 64);
    assert_eq!(first, of(&grant.clone(), "test", &stage.clone(), &prompt.clone()));
    let later = Grant { token: FencingToken(9), ..grant.clone() };
    let again = Grant { attempt: 2, ..grant.clone() };
    let richer = Grant { cap: orchestrator_core::Usd(1), ..grant.clone() };
    let other = Grant { task: id("b"), ..grant.clone() };
    let model = StageSpec { model: Some("large".into()), ..stage.clone() };
    let shorter = StageSpec { timeout: Duration::from_secs(1), ..stage.clone() };
    let all: BTreeSet<String> = [
        first,
        of(&later, "test", &stage, &prompt),
        of(&again, "test", &stage, &prompt),
        of(&richer, "test", &stage, &prompt),
        of(&other, "test", &stage, &prompt),
        of(&grant, "other", &stage, &prompt),
        of(&grant, "test", &model, &prompt),
        of(&grant, "test", &shorter, &prompt),
        of(&grant, "test", &stage, &BlobHash::of(b"another")),
    ]
    .iter()
    .map(|content| content.as_str().to_owned())
    .collect();
    assert_eq!(all.len(), 9);
}

#[test]
fn a_supervisor_sees_what_could_run_and_takes_what_it_chooses() {
    let mut chain = plan(&[("a", &[]), ("b", &[]), ("c", &["a"]), ("d", &[])]);
    chain.pools = [(PoolName::parse(AGENTS).unwrap(), 2)].into();
    let mut world = World::new(chain);
    call(&mut world, HELD);
    let now = Timestamp(world.now);
    let next = world.engine.dispatchable(now, 9);
    assert_eq!(next.len(), 2, "the limit of the pool binds: {next:?}");
    assert_eq!(world.engine.dispatchable(now, 1), next[..1]);
    // Of three that are ready it takes the one that would have come last.
    let last = ["a", "b", "d"].map(id).into_iter().find(|task| !next.contains(task)).unwrap();
    let claim = |task: &TaskId| Command::ClaimTask { owner: owner(1).id, task: task.clone() };
    assert!(matches!(world.tell(&claim(&last)), Answer::Granted { .. }));
    for held in [&last, &id("c")] {
        assert_eq!(world.tell(&claim(held)), Answer::Nothing);
        assert_ne!(world.engine.explain(now, held), [Reason::Ready]);
    }
    let name = CommandId::parse("unknown").unwrap();
    let refusal = world.engine.submit(now, &name, &claim(&id("nobody"))).unwrap_err();
    assert!(matches!(refusal, Refusal::UnknownTask(_)));
}
