//! Worlds around the engine.

use crate::testing::{Exploration, Simulation};

/// Worlds that a fault has to hide in.
const SEEDS: u64 = 400;

pub(super) fn simulated() -> Result<(), String> {
    for seed in 0..SEEDS {
        for world in [Simulation::new(seed), Simulation::new(seed).safety()] {
            world.run().map_err(|violation| violation.what)?;
        }
    }
    Ok(())
}

pub(super) fn explored() -> Result<(), String> {
    Exploration::of(1).run()?;
    Exploration::dear(1).run()?;
    Exploration::of(2).run().map(drop)
}
