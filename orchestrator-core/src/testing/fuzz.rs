//! The bodies of the fuzz targets, so that the same code is a test on a stable toolchain.

use super::{Dice, Simulation};
use crate::engine::Engine;
use crate::event::Event;
use crate::id::RunId;
use crate::plan::Plan;

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

/// Takes bytes for the lines of a log, and has an engine apply what can be read.
pub fn log(bytes: &[u8]) {
    let Ok(run) = RunId::parse("fuzzed") else { return };
    let mut engine = Engine::new(run);
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Ok(event) = serde_json::from_slice::<Event>(line) {
            engine.evolve(&event);
        }
    }
    drop(engine.audit());
}
