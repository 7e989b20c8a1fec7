//! The bodies of the fuzz targets, so that the same code is a test on a stable toolchain.

use serde_json::json;

use super::{Dice, Simulation};
use crate::command::Command;
use crate::engine::Engine;
use crate::event::{Event, EventKind};
use crate::id::{BlobHash, CommandId, OwnerId, RunId};
use crate::plan::Plan;
use crate::time::Timestamp;

/// Takes bytes for a plan: what parses is whole, and is the same when it is written and read again.
///
/// # Panics
/// When a promise about plans is broken.
pub fn plan(bytes: &[u8]) {
    if let Ok(plan) = Plan::parse_bytes(bytes) {
        assert_eq!(plan.check(&|_| false), [], "a plan that parses has no faults");
        let written = serde_json::to_vec(&plan).expect("a plan can be written");
        let read: Plan = serde_json::from_slice(&written).expect("what was written can be read");
        assert_eq!(read, plan);
    }
}

/// Takes bytes for the chances of a simulated world.
///
/// # Panics
/// When a promise of the engine is broken.
pub fn commands(bytes: &[u8]) {
    let simulation = Simulation::with_dice(Dice::of_bytes(bytes));
    if let Err(violation) = simulation.run() {
        panic!("{violation}");
    }
}

/// Takes bytes for the lines of a log, and has an engine apply what can be read; then it is asked
/// all that can be asked of it. Gives the number of tasks that came of it.
///
/// Lines that are no events are offered as the contents of plans and edits, beside some that are
/// always there. An event that names a content which is not there gets one that is.
pub fn log(bytes: &[u8]) -> usize {
    let Ok(run) = RunId::parse("fuzzed") else { return 0 };
    let mut engine = Engine::new(run);
    let mut known = Vec::new();
    let mut offer = |engine: &mut Engine, bytes: &[u8]| {
        engine.offer_entry(bytes);
        known.push(BlobHash::of(bytes));
    };
    contents().iter().for_each(|content| offer(&mut engine, content.as_bytes()));
    let mut events = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        match serde_json::from_slice::<Event>(line) {
            Ok(event) => events.push(event),
            Err(_) if is_content(line) => offer(&mut engine, line),
            Err(_) => {}
        }
    }
    for mut event in events {
        name_known(&mut event.kind, &known);
        engine.evolve(&event);
    }
    ask(&mut engine);
    engine.tasks().count()
}

/// What plans and edits may say: two plans of which the second stands on the first, and an edit.
fn contents() -> [String; 3] {
    const FIRST: &str = r#"{
        "budget": 20, "pools": {"gpu": 2},
        "pipelines": {"gated": [{"kind": "run"}, {"kind": "gate", "command": "true"}]},
        "tasks": [
            {"id": "a", "verify": "true", "max_retries": 1},
            {"id": "b", "verify": "true", "depends_on": ["a"], "needs": {"gpu": 2}, "budget": 6},
            {"id": "c", "pipeline": "gated", "scope": ["src"], "priority": 3},
            {"id": "d", "verify": "true", "depends_on": ["b", "c"], "scope": ["src/d", "docs"]}
        ]}"#;
    let first = Plan::parse(FIRST).expect("a whole plan");
    let mut second = Plan { budget: None, ..first.clone() };
    for (spec, id) in second.tasks.iter_mut().zip(["e", "f", "g", "h"]) {
        let before = std::mem::replace(&mut spec.id, id.parse().expect("a valid id"));
        spec.depends_on = vec![before];
    }
    let mut edited = first.tasks[1].clone();
    (edited.priority, edited.scope) = (-2, first.tasks[2].scope.clone());
    edited.depends_on.clear();
    [json!(first), json!(second), json!({ "amends": edited })].map(|content| content.to_string())
}

/// Whether this may be what a plan or an edit says.
fn is_content(line: &[u8]) -> bool {
    line.starts_with(b"{\"amends\"") || serde_json::from_slice::<Plan>(line).is_ok()
}

/// Lets an event name a content that is there.
fn name_known(kind: &mut EventKind, known: &[BlobHash]) {
    if let EventKind::PlanAdded { plan: named, .. }
    | EventKind::PlanPruned { plan: named, .. }
    | EventKind::Edited { spec: named, .. } = kind
        && !known.contains(named)
    {
        let digit = named.as_str().bytes().next().map_or(0, usize::from);
        named.clone_from(&known[digit % known.len()]);
    }
}

/// Asks all that a driver, or a person who looks at it, asks of an engine.
fn ask(engine: &mut Engine) {
    let now = engine.run().map_or(Timestamp(0), |run| run.last_at);
    drop((engine.audit(), engine.stall(now), engine.settlement(now), engine.next_wake()));
    let ids: Vec<_> = engine.tasks().map(|task| task.id).collect();
    ids.iter().for_each(|id| drop(engine.explain(now, id)));
    drop(engine.dispatchable(now, 2));
    if let Some(snapshot) = engine.snapshot()
        && let Ok(restored) = Engine::restore(&snapshot)
    {
        drop(restored.audit());
    }
    let owner = engine.run().and_then(|run| run.driver.clone());
    let stranger = || OwnerId::parse("stranger").expect("a valid id");
    let claim = Command::Claim { owner: owner.unwrap_or_else(stranger) };
    let id = CommandId::parse("fuzzed").expect("a valid id");
    for command in [Command::Tick, claim.clone(), claim, Command::Settle, Command::Prune] {
        drop(engine.submit(now, &id, &command));
    }
    engine.undo();
    drop(engine.audit());
}
