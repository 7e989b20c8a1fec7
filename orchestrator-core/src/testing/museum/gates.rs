//! A task that waits at a gate, longer than the worlds live.

use std::sync::Arc;
use std::time::Duration;

use crate::command::{Answer, Command};
use crate::engine::Engine;
use crate::id::{CommandId, FencingToken, OwnerId, RunId, TaskId};
use crate::lease::Owner;
use crate::outcome::{Candidate, Interruption, Outcome};
use crate::pipeline::{Pipeline, StageKind, StageSpec};
use crate::plan::Plan;
use crate::record::Phase;
use crate::retry::RetryRules;
use crate::task::{TaskSpec, VerifyCommand};
use crate::time::{ClockReading, Timestamp, WallTime};

/// How often the gate is found closed.
const POLLS: u32 = 40;

/// A task may wait for its gate as often as the rules allow, and spends nothing else by it.
pub(super) fn check() -> Result<(), String> {
    let rules = RetryRules { dispatches_spare: 1, deferrals_max: POLLS, ..RetryRules::default() };
    let mut engine = Engine::new(RunId::parse("gates").map_err(said)?);
    let owner = Owner {
        id: OwnerId::parse("museum").map_err(said)?,
        host: String::new(),
        boot_id: String::new(),
        pid: 1,
        start_time: 0,
    };
    let reading = ClockReading { boot_id: String::new(), boot_ms: 0, wall: WallTime(0) };
    let (ttl, token_floor) = (Duration::from_secs(60), FencingToken(0));
    let claim = Command::Claim { owner: owner.id.clone() };
    let open = Command::OpenDriver { owner, reading, ttl, token_floor, ended: None };
    for command in [Command::CreateRun { rules }, open, Command::AddPlan { plan: plan()? }] {
        tell(&mut engine, 0, &command)?;
    }
    let mut now = 0;
    for poll in 0..=POLLS + 2 {
        let Answer::Granted { task, stage, .. } = tell(&mut engine, now, &claim)? else {
            return Err(format!("P6: after {poll} polls the task is not granted any more"));
        };
        let grant = engine.grant(task).ok_or("a grant has no lease")?;
        let is_gate = stage == 1;
        // Once in between the orchestrator is stopped: nothing is held against the task for that.
        let outcome = if poll == POLLS / 2 {
            Outcome::Interrupted { reason: Interruption::Shutdown, retry_at: None }
        } else {
            Outcome::Suspended { poll_at: None }
        };
        let mut report =
            grant.report(engine.id().clone(), if is_gate { outcome } else { Outcome::Passed });
        let change = crate::id::ChangeId::parse("change").map_err(said)?;
        report.candidate =
            (!is_gate).then(|| Candidate { change: change.clone(), base: change.clone() });
        tell(&mut engine, now, &Command::Report(Box::new(report)))?;
        now += 600_000;
    }
    match engine.tasks().next().map(|task| task.phase) {
        Some(Phase::Escalated(_)) => Ok(()),
        other => Err(format!("P6: the gate is asked for ever: {other:?}")),
    }
}

fn plan() -> Result<Arc<Plan>, String> {
    let mut task = TaskSpec::new(TaskId::parse("a").map_err(said)?);
    task.max_retries = 0;
    let command = Some(VerifyCommand::Shell("false".to_owned()));
    let gate = StageSpec { command, ..StageSpec::of(StageKind::Gate) };
    let pipeline = Pipeline::new(vec![StageSpec::of(StageKind::Run), gate]).map_err(said)?;
    let name = crate::id::PipelineName::parse("default").map_err(said)?;
    let pipelines = [(name, pipeline)].into();
    Ok(Arc::new(Plan { tasks: vec![task], pipelines, ..Plan::default() }))
}

fn tell(engine: &mut Engine, now: u64, command: &Command) -> Result<Answer, String> {
    let id = CommandId::parse(&format!("c{}", engine.seq().0)).map_err(said)?;
    let answer = engine.submit(Timestamp(now), &id, command).map_err(said)?;
    if engine.batch().is_some() {
        engine.accept();
    }
    Ok(answer)
}

fn said(what: impl std::fmt::Display) -> String {
    what.to_string()
}
