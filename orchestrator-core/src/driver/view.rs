//! What observers see of a run.

use super::ledger::Ledger;
use super::shield::caught_now;
use crate::event::StoredEvent;
use crate::id::StageName;
use crate::port::{Activity, Observer, Progress, Room, Running};
use crate::record::{Phase, RunState};

/// Shows what was committed.
pub(super) fn show(observer: &dyn Observer, events: &[StoredEvent], ledger: &Ledger) {
    let progress = progress(ledger);
    shielded(|| observer.committed(events, &progress));
}

/// Shows a sign of life.
pub(super) fn show_activity(observer: &dyn Observer, activity: &Activity) {
    shielded(|| observer.activity(activity));
}

/// An observer that panics sees no more of this, and the run goes on.
fn shielded(show: impl FnOnce()) {
    caught_now("an observer", show).ok();
}

/// Shows that there is room for more work, or none.
pub(super) fn show_room(observer: &dyn Observer, room: &Room) {
    shielded(|| observer.room(room));
}

/// How the run stands.
fn progress(ledger: &Ledger) -> Progress {
    let engine = &ledger.engine;
    let mut running: Vec<Running> = engine
        .held()
        .filter_map(|task| {
            let lease = match &task.phase {
                Phase::Leased(lease) | Phase::Stopping { lease, .. } => lease,
                Phase::Open
                | Phase::Deferred { .. }
                | Phase::Done(_)
                | Phase::Escalated(_)
                | Phase::Cancelled => return None,
            };
            let stage: StageName = engine.pipeline(&task.id)?.stage(task.stage)?.name.clone();
            let (token, since) = (lease.token, lease.granted_at);
            Some(Running { task: task.id.clone(), stage, attempt: task.attempt, token, since })
        })
        .collect();
    running.sort_by_key(|one| one.token);
    let run = engine.run();
    Progress {
        state: run.map_or(RunState::Active, |run| run.state.clone()),
        now: ledger.now(),
        counts: run.map(|run| run.counts).unwrap_or_default(),
        blocked: engine.blocked(),
        running,
        spent: run.map(|run| run.spent).unwrap_or_default(),
        reserved: run.map(|run| run.reserved).unwrap_or_default(),
        budget: run.and_then(|run| run.budget),
    }
}
