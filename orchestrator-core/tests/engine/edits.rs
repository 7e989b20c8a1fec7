//! What a task depends on can change before its first grant.

use std::sync::Arc;

use orchestrator_core::{
    Command, CommandId, Engine, Outcome, Phase, Plan, Reason, Refusal, RunState, TaskSpec,
    Timestamp, VerifyCommand,
};

use super::{World, id, plan};

fn rewired(world: &World, task: &str, depends_on: &[&str]) -> Command {
    let spec = world.engine.spec(&id(task)).unwrap().clone();
    let depends_on = depends_on.iter().map(|name| id(name)).collect();
    Command::Edit {
        spec: Arc::new(TaskSpec { depends_on, ..spec }),
        actor: "ann".into(),
        reason: "it needs the parser".into(),
    }
}

fn refused(world: &mut World, command: &Command) -> Refusal {
    let name = CommandId::parse("refused").unwrap();
    world.engine.submit(Timestamp(world.now), &name, command).unwrap_err()
}

fn reasons(world: &World, task: &str) -> Vec<Reason> {
    world.engine.explain(Timestamp(world.now), &id(task))
}

#[test]
fn p3_a_task_waits_for_what_it_was_made_to_depend_on_and_for_nothing_else() {
    // In the order of the plan `a` stands before all others.
    let mut world = World::new(plan(&[("a", &[]), ("b", &["a"]), ("c", &[])]));
    world.tell(&rewired(&world, "b", &[]));
    world.tell(&rewired(&world, "a", &["c", "b"]));
    assert_eq!(reasons(&world, "b"), [Reason::Ready]);
    let mut waits: Vec<_> = reasons(&world, "a");
    waits.sort_by_key(|reason| format!("{reason:?}"));
    assert_eq!(waits, ["b", "c"].map(|name| Reason::WaitsFor { task: id(name) }));
    let mut order = Vec::new();
    while let Some(grant) = world.claim() {
        world.report(&grant, Outcome::Passed);
        order.push((grant.stage, grant.task));
    }
    let firsts: Vec<_> =
        order.iter().filter(|(stage, _)| *stage == 0).map(|(_, task)| task).collect();
    assert_eq!(firsts.last(), Some(&&id("a")));
    assert_eq!(firsts.len(), 3);
    // What is loaded is what was edited.
    let restored = Engine::restore(&world.engine.snapshot().unwrap()).unwrap();
    assert_eq!(restored.spec(&id("a")), world.engine.spec(&id("a")));
    assert_eq!(restored.audit(), Vec::<String>::new());
}

#[test]
fn p3_an_edit_that_makes_tasks_wait_for_each_other_is_refused_with_the_circle() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]));
    let command = rewired(&world, "a", &["c"]);
    let said = refused(&mut world, &command).to_string();
    assert!(said.contains("a → c → b → a"), "{said}");
    for (other, expected) in [("a", "itself"), ("nobody", "does not exist")] {
        let command = rewired(&world, "a", &[other]);
        let said = refused(&mut world, &command).to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn what_began_keeps_its_dependencies() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &[])]));
    let grant = world.claim().unwrap();
    world.report(&grant, Outcome::Passed);
    let other = if grant.task == id("a") { "b" } else { "a" };
    let command = rewired(&world, grant.task.as_str(), &[other]);
    let said = refused(&mut world, &command).to_string();
    assert!(said.contains("only before its first grant"), "{said}");
}

#[test]
fn p7_p15_a_run_that_failed_goes_on_when_an_edit_frees_a_blocked_task() {
    let mut world = World::new(plan(&[("a", &[]), ("b", &["a"])]));
    let grant = world.claim().unwrap();
    world.report(&grant, Outcome::Fatal { error: "no compiler".into() });
    world.tell(&Command::Settle);
    assert_eq!(world.state(), &RunState::Failed);
    assert!(world.engine.is_blocked(&id("b")));
    world.tell(&rewired(&world, "b", &[]));
    assert_eq!(world.state(), &RunState::Active);
    assert!(!world.engine.is_blocked(&id("b")));
    assert_eq!(world.claim().unwrap().task, id("b"));
    assert!(matches!(world.phase("a"), Phase::Escalated(_)));
}

#[test]
fn p16_a_task_with_very_many_dependencies_is_edited_in_bounded_time() {
    let name = |number: usize| format!("t{number}");
    let many = 30_000;
    let mut tasks: Vec<TaskSpec> = (0..many).map(|task| TaskSpec::new(id(&name(task)))).collect();
    let depends_on = tasks.iter().map(|spec| spec.id.clone()).collect();
    tasks.push(TaskSpec { depends_on, ..TaskSpec::new(id("last")) });
    tasks.iter_mut().for_each(|spec| spec.verify = Some(VerifyCommand::Shell("true".into())));
    let mut world = World::new(Plan { tasks, ..Plan::default() });
    let all: Vec<String> = (1..many).map(name).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    world.tell(&rewired(&world, "last", &all));
    assert_eq!(reasons(&world, "last").len(), many - 1);
    let command = rewired(&world, "t0", &["last"]);
    world.tell(&command);
    let command = rewired(&world, "t1", &["t0"]);
    assert!(refused(&mut world, &command).to_string().contains("t1 → t0 → last → t1"));
}
