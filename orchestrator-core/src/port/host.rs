//! The port to the machine: its clocks, and which processes live.

use std::path::Path;

use async_trait::async_trait;

use super::PortError;
use crate::id::{FencingToken, RunId};
use crate::lease::Owner;
use crate::mask::Mask;
use crate::time::ClockReading;

/// What the machine knows.
#[async_trait]
pub trait Host: Send + Sync {
    /// What the clocks show now.
    fn reading(&self) -> ClockReading;

    /// This process.
    fn this_process(&self) -> Owner;

    /// Whether a process still lives.
    fn liveness(&self, owner: &Owner) -> Liveness;

    /// Ends every process that a lease of this number started and that still lives, and returns
    /// when none is left; says how many there were.
    ///
    /// # Errors
    /// [`PortError`] when some may be left.
    async fn end_leftovers(&self, run: &RunId, token: FencingToken) -> Result<u32, PortError>;

    /// Takes out of the files that a stage logged to in this directory what the mask finds, where
    /// whoever writes them could not do it any more; a directory that is not there has none.
    ///
    /// # Errors
    /// [`PortError`] when something may be left in them.
    async fn mask_logs(&self, dir: &Path, mask: &Mask) -> Result<(), PortError>;
}

/// Whether a process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It does.
    Alive,
    /// It does not; what it started may still live.
    Dead,
    /// The machine was started anew since: nothing of it lives.
    Gone,
    /// It is on another machine, or cannot be looked at.
    Unknown,
}
