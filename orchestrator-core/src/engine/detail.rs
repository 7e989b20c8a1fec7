//! What most tasks do not have: what became of those that met trouble, or made something.

use crate::id::{BlobHash, ChangeId, FencingToken, SessionId};
use crate::money::Usd;
use crate::outcome::{Candidate, MergeIntent};
use crate::record::{Escalation, Extra, Unheard, Wait};
use crate::time::Timestamp;

/// What most tasks do not have.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Detail {
    /// Set while the task is deferred.
    pub(super) deferred: Option<(Timestamp, Wait)>,
    pub(super) merged: Option<ChangeId>,
    /// Set while the task is escalated.
    pub(super) escalation: Option<Escalation>,
    pub(super) rejections: u32,
    pub(super) rounds: Vec<u32>,
    pub(super) interruptions: u32,
    pub(super) deferrals: u32,
    pub(super) extra: Extra,
    pub(super) feedback: Vec<BlobHash>,
    pub(super) signature: Option<u64>,
    pub(super) session: Option<SessionId>,
    pub(super) candidate: Option<Candidate>,
    pub(super) intent: Option<MergeIntent>,
    pub(super) content: Option<BlobHash>,
    pub(super) settled: Usd,
    /// Older leases that ended without their result, the newest last, and the last one if nothing was
    /// booked for it.
    pub(super) unheard: Vec<Unheard>,
    pub(super) refused: Option<FencingToken>,
    /// The lease that left its workspace, where that is too long ago for the table.
    pub(super) old_workspace: Option<FencingToken>,
}

/// Most leases of a task that are kept as unheard.
const UNHEARD_MAX: usize = 64;

impl Detail {
    /// The last lease ended without its result, and so much was booked for it.
    pub(super) fn settle(&mut self, last: FencingToken, booked: Usd) {
        self.settled = booked;
        // It cannot be told from one whose result counted otherwise.
        if booked == Usd::ZERO {
            self.note_unheard(last);
        }
    }

    /// What was booked for the last lease is that of an older one now.
    pub(super) fn forget_settled(&mut self, last: FencingToken) {
        if self.settled > Usd::ZERO {
            self.note_unheard(last);
        }
        self.settled = Usd::ZERO;
    }

    fn note_unheard(&mut self, token: FencingToken) {
        if self.refused < Some(token) {
            if self.unheard.len() >= UNHEARD_MAX {
                self.unheard.remove(0);
            }
            self.unheard.push(Unheard { token, booked: self.settled });
        }
    }
}

/// A task that has nothing unusual has this.
pub(super) static PLAIN: Detail = Detail {
    deferred: None,
    merged: None,
    escalation: None,
    rejections: 0,
    rounds: Vec::new(),
    interruptions: 0,
    deferrals: 0,
    extra: Extra { retries: 0, dispatches: 0, deferrals: 0 },
    feedback: Vec::new(),
    signature: None,
    session: None,
    candidate: None,
    intent: None,
    content: None,
    settled: Usd::ZERO,
    unheard: Vec::new(),
    refused: None,
    old_workspace: None,
};
