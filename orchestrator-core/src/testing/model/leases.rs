//! What a lease is to its task's record.

use crate::record::{Phase, TaskRecord, Unheard};

/// Whether the task has a lease that lives or is being stopped.
pub(super) const fn held(task: &TaskRecord) -> bool {
    matches!(task.phase, Phase::Leased(_) | Phase::Stopping { .. })
}

/// Notes a lease that ended without its result: of each task the last 64.
pub(super) fn note_unheard(task: &mut TaskRecord, lease: Unheard) {
    task.unheard.push(lease);
    let more = task.unheard.len().saturating_sub(64);
    task.unheard.drain(..more);
}
