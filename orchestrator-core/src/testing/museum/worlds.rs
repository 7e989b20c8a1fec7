//! Worlds around the engine.

use crate::testing::Simulation;

/// Worlds that a fault has to hide in.
const SEEDS: u64 = 400;

pub(super) fn simulated() -> Result<(), String> {
    for seed in 0..SEEDS {
        Simulation::new(seed).run().map_err(|violation| violation.what)?;
    }
    Ok(())
}
