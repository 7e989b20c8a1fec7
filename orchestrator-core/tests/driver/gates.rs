//! Gates: asked until they are open, by a command or by a person.

use std::sync::{Arc, Mutex};

use orchestrator_core::{
    Cause, Outcome, Phase, Pipeline, PipelineName, Plan, RunEnd, StageEnd, StageKind, StageSpec,
    VerifyCommand,
};

use super::{World, plan, run};

/// A plan of one task with these stages.
fn with_stages(stages: Vec<StageSpec>) -> Arc<Plan> {
    let name = PipelineName::parse("default").unwrap();
    let pipelines = [(name, Pipeline::new(stages).unwrap())].into();
    Arc::new(Plan { pipelines, ..Plan::clone(&plan(&[("a", &[])])) })
}

#[tokio::test]
async fn a_gate_is_asked_until_it_is_open_and_a_verify_stage_may_have_a_command_of_its_own() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let world = World::new(move |cx| {
        let command = cx.task.verify.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut seen = seen.lock().unwrap();
        seen.push(format!("{}: {command}", cx.stage.name));
        let polls = seen.iter().filter(|line| line.starts_with("gate")).count();
        if cx.stage.kind == StageKind::Gate && polls < 3 {
            return StageEnd::free(Outcome::Suspended { poll_at: None });
        }
        StageEnd::passed()
    });
    let stage = |kind, command: &str| StageSpec {
        command: Some(VerifyCommand::Shell(command.to_owned())),
        ..StageSpec::of(kind)
    };
    let stages = vec![
        StageSpec::of(StageKind::Run),
        stage(StageKind::Verify, "lint"),
        stage(StageKind::Gate, "is-green"),
        StageSpec::of(StageKind::Integrate),
    ];
    let plan = with_stages(stages);
    assert_eq!(world.drive(Some(plan)).await.unwrap(), RunEnd::Completed);
    let gate = "gate: is-green";
    let expected = ["run: true", "verify: lint", gate, gate, gate];
    assert_eq!(asked.lock().unwrap()[..5], expected);
    assert_eq!(world.snapshot().await.tasks[0].attempt, 1);
}

#[tokio::test]
async fn a_gate_without_a_command_waits_for_a_person() {
    let world = World::new(|_| StageEnd::passed());
    let stages = [StageKind::Run, StageKind::Gate].map(StageSpec::of).to_vec();
    let plan = with_stages(stages);
    assert_eq!(world.drive(Some(plan)).await.unwrap(), RunEnd::Failed);
    let Phase::Escalated(escalation) = world.phase("a").await else { panic!("not escalated") };
    assert_eq!(escalation.cause, Cause::Question);
    let text = world.store.blob(&run(), &escalation.text.unwrap()).await.unwrap().unwrap();
    assert!(String::from_utf8(text).unwrap().contains("approve it"));
}
