//! Of a plan that is over, only what others are judged by stays.

use std::sync::Arc;

use orchestrator_core::{
    Answer, Command, CommandId, Engine, EventKind, Outcome, Phase, Plan, Reason, Refusal,
    Resolution, Stale, TaskRecord, Timestamp,
};
use serde_json::json;

use super::{World, id, plan};

const PROMPT: &str = "a prompt that nobody needs any more";

fn wordy(edges: &[(&str, &[&str])]) -> Plan {
    let mut plan = plan(edges);
    for task in &mut plan.tasks {
        task.inputs.insert("text".to_owned(), json!(PROMPT));
    }
    plan
}

fn finish(world: &mut World) {
    while let Some(grant) = world.claim() {
        world.report(&grant, Outcome::Passed);
    }
}

fn prune(world: &mut World) -> usize {
    let before = world.events.len();
    world.tell(&Command::Prune);
    let pruned = world.events[before..].iter();
    pruned.filter(|event| matches!(event, EventKind::PlanPruned { .. })).count()
}

fn add(world: &mut World, plan: Plan) {
    world.tell(&Command::AddPlan { plan: Arc::new(plan) });
}

fn cancel(task: &str) -> Command {
    Command::Cancel { task: id(task), actor: "ann".into(), reason: "no use".into() }
}

fn refused(world: &mut World, command: &Command) -> Refusal {
    let name = CommandId::parse("refused").unwrap();
    world.engine.submit(Timestamp(world.now), &name, command).unwrap_err()
}

fn text_of(engine: &Engine) -> String {
    let plans = engine.snapshot().unwrap().plans;
    plans.iter().map(|plan| String::from_utf8_lossy(plan).into_owned()).collect()
}

/// An engine that stands where this one does, as a store would give it back.
fn restored(world: &World) -> Engine {
    let engine = Engine::restore(&world.engine.snapshot().unwrap()).unwrap();
    assert_eq!(engine.audit(), Vec::<String>::new());
    assert_eq!(engine.snapshot(), world.engine.snapshot());
    engine
}

#[test]
fn what_is_left_of_a_plan_is_not_its_prompts_and_the_records_stay() {
    let mut world = World::new(wordy(&[("b", &["a"]), ("a", &[])]));
    assert_eq!(prune(&mut world), 0, "nothing is done yet");
    finish(&mut world);
    let records: Vec<TaskRecord> = world.engine.tasks().collect();
    assert!(text_of(&world.engine).contains(PROMPT));
    assert_eq!(prune(&mut world), 1);
    assert!(!text_of(&world.engine).contains(PROMPT));
    assert_eq!(world.engine.tasks().collect::<Vec<_>>(), records);
    assert_eq!(restored(&world).tasks().collect::<Vec<_>>(), records);
    assert_eq!(prune(&mut world), 0, "once is enough");
}

#[test]
fn p3_p7_later_plans_depend_on_pruned_tasks_as_on_any_other() {
    let mut world = World::new(wordy(&[("a", &[]), ("gone", &[])]));
    world.tell(&cancel("gone"));
    finish(&mut world);
    assert_eq!(prune(&mut world), 1);
    world.engine = restored(&world);
    add(&mut world, plan(&[("next", &["a"]), ("stuck", &["gone"]), ("after", &["next"])]));
    let reasons = |task| world.engine.explain(Timestamp(world.now), &id(task));
    assert_eq!(reasons("next"), [Reason::Ready]);
    assert_eq!(reasons("stuck"), [Reason::BlockedBy { task: id("gone") }]);
    finish(&mut world);
    assert!(matches!(world.phase("after"), Phase::Done(_)));
    assert_eq!(world.phase("stuck"), Phase::Open);
    restored(&world);
}

#[test]
fn a_plan_stays_while_something_waits_for_what_it_gave_up() {
    let mut world = World::new(wordy(&[("a", &[]), ("gone", &[])]));
    add(&mut world, wordy(&[("waits", &["gone"])]));
    world.tell(&cancel("gone"));
    finish(&mut world);
    assert_eq!(prune(&mut world), 0);
    world.tell(&cancel("waits"));
    assert_eq!(prune(&mut world), 2);
    restored(&world);
}

#[test]
fn a_plan_stays_while_what_it_depends_on_may_still_run() {
    let mut world = World::new(wordy(&[("a", &[])]));
    add(&mut world, wordy(&[("b", &["a"])]));
    let (actor, reason) = ("ann".to_owned(), "done already".to_owned());
    world.tell(&Command::Resolve { task: id("b"), how: Resolution::ByHand, actor, reason });
    assert_eq!(prune(&mut world), 0);
    finish(&mut world);
    assert_eq!(prune(&mut world), 2);
}

#[test]
fn a_plan_with_a_question_stays() {
    let mut world = World::new(wordy(&[("a", &[])]));
    let grant = world.claim().unwrap();
    world.report(&grant, Outcome::Question { text: "which?".into() });
    assert_eq!(prune(&mut world), 0);
}

#[test]
fn p2_a_late_result_for_a_pruned_task_is_refused_as_before() {
    let mut world = World::new(wordy(&[("a", &[])]));
    let first = world.claim().unwrap();
    world.report(&first, Outcome::Passed);
    finish(&mut world);
    let run = world.engine.id().clone();
    let late = Command::Report(Box::new(first.report(run, Outcome::Passed)));
    let name = CommandId::parse("late").unwrap();
    let before = world.engine.clone().submit(Timestamp(world.now), &name, &late);
    prune(&mut world);
    let after = world.tell(&late);
    assert!(matches!(after, Answer::Refused(Stale::NoLease)), "{after:?}");
    assert_eq!(Ok(after), before);
}

#[test]
fn nobody_takes_a_pruned_task_up_again() {
    let mut world = World::new(wordy(&[("a", &[]), ("gone", &[])]));
    world.tell(&cancel("gone"));
    finish(&mut world);
    let spec = Arc::new(world.engine.spec(&id("gone")).unwrap().clone());
    prune(&mut world);
    let (actor, reason) = ("ann".to_owned(), "please".to_owned());
    let (task, how, dependents) = (id("gone"), Resolution::Skip, false);
    let commands = [
        Command::Retry {
            task: task.clone(),
            dependents,
            actor: actor.clone(),
            reason: reason.clone(),
        },
        Command::Resolve { task: task.clone(), how, actor: actor.clone(), reason: reason.clone() },
        Command::Edit { spec, actor, reason },
        cancel("gone"),
    ];
    for command in commands {
        assert_eq!(refused(&mut world, &command), Refusal::Pruned(task.clone()));
    }
}

#[test]
fn p4_a_pruned_plan_that_is_sent_again_is_the_one_that_was() {
    let whole = wordy(&[("b", &["a"]), ("a", &[])]);
    let mut world = World::new(whole.clone());
    finish(&mut world);
    prune(&mut world);
    let before = world.engine.snapshot();
    add(&mut world, whole.clone());
    assert_eq!(world.engine.snapshot(), before);
    world.engine = restored(&world);
    add(&mut world, whole);
    assert_eq!(world.engine.snapshot(), before);
}

#[test]
fn a_refused_commit_leaves_the_plan_as_it_was() {
    let mut world = World::new(wordy(&[("b", &["a"]), ("a", &[])]));
    finish(&mut world);
    add(&mut world, wordy(&[("c", &["b"])]));
    let before = world.engine.snapshot();
    let name = CommandId::parse("lost").unwrap();
    world.engine.submit(Timestamp(world.now), &name, &Command::Prune).unwrap();
    assert_ne!(world.engine.snapshot(), before);
    world.engine.undo();
    assert_eq!(world.engine.snapshot(), before);
    assert_eq!(world.engine.audit(), Vec::<String>::new());
    assert_eq!(prune(&mut world), 1);
}

#[test]
fn an_edit_of_a_pruned_task_is_part_of_what_is_left() {
    let mut world = World::new(wordy(&[("a", &[])]));
    let mut spec = world.engine.spec(&id("a")).unwrap().clone();
    spec.priority = 7;
    let spec = Arc::new(spec);
    world.tell(&Command::Edit { spec, actor: "ann".into(), reason: "it is urgent".into() });
    finish(&mut world);
    prune(&mut world);
    assert_eq!(world.engine.spec(&id("a")).unwrap().priority, 7);
    assert_eq!(restored(&world).spec(&id("a")), world.engine.spec(&id("a")));
}

#[test]
fn very_many_plans_are_pruned_at_once_and_come_back_when_that_is_refused() {
    let many = 400;
    let name = |number: usize| format!("p{number}");
    let mut world = World::new(wordy(&[("p0", &[])]));
    for number in 1..many {
        add(&mut world, wordy(&[(&name(number), &[&name(number - 1)])]));
    }
    for number in 0..many {
        let command = Command::Resolve {
            task: id(&name(number)),
            how: Resolution::Skip,
            actor: "ann".into(),
            reason: "done before".into(),
        };
        world.tell(&command);
    }
    add(&mut world, wordy(&[("next", &[&name(many - 1)])]));
    let before = world.engine.snapshot();
    let command = CommandId::parse("refused").unwrap();
    world.engine.submit(Timestamp(world.now), &command, &Command::Prune).unwrap();
    let pruned = world.engine.batch().unwrap().events.len();
    assert_eq!(pruned, many);
    world.engine.undo();
    assert_eq!(world.engine.audit(), Vec::<String>::new());
    assert_eq!(world.engine.snapshot(), before);
    assert_eq!(prune(&mut world), many);
    assert_eq!(text_of(&restored(&world)).matches(PROMPT).count(), 1, "only the last one's stays");
    assert_eq!(world.claim().unwrap().task, id("next"));
}
