//! Why a task does not run, also where only the adapters know it.

use super::room::room_in;
use super::{Orchestrator, RunError, opening};
use crate::engine::Reason;
use crate::id::TaskId;
use crate::port::Room;

impl Orchestrator {
    /// Everything that holds a task: what [`Engine::explain`](crate::Engine::explain) names, and a disk
    /// that is nearly full.
    ///
    /// # Errors
    /// [`RunError`] when the store does not answer.
    pub async fn explain(&self, task: &TaskId) -> Result<Vec<Reason>, RunError> {
        let Self { ports, config } = self.shielded()?;
        let ledger = opening::load(&ports, &config).await?.0;
        let reasons = ledger.engine.explain(ledger.now(), task);
        Ok(with_room(reasons, room_in(&*ports.workspaces, &config.run).await))
    }
}

/// The reasons with that of the room, where the task waits to be granted.
fn with_room(mut reasons: Vec<Reason>, room: Room) -> Vec<Reason> {
    let Room::Short { place, free_bytes, wanted_bytes } = room else { return reasons };
    let waits = !reasons.iter().any(|reason| {
        matches!(
            reason,
            Reason::Unknown
                | Reason::Settled { .. }
                | Reason::Escalated { .. }
                | Reason::Running { .. }
                | Reason::Stopping { .. }
        )
    });
    if waits {
        reasons.retain(|reason| *reason != Reason::Ready);
        reasons.push(Reason::NoRoom { place, free_bytes, wanted_bytes });
    }
    reasons
}
