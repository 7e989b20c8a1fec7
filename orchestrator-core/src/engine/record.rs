//! Between the dense form of a task and the record that a store keeps.

use super::Engine;
use super::kind::Kind;
use super::leases::Hold;
use super::table::{View, Way};
use crate::lease::Lease;
use crate::mutant::{Mutant, is_on};
use crate::outcome::Interruption;
use crate::record::{Cause, Completion, Escalation, Phase, TaskRecord, Wait};
use crate::time::Timestamp;

impl Engine {
    /// The record of a task.
    pub(super) fn to_record(&self, number: u32) -> TaskRecord {
        let task = self.table.view(number);
        let (hot, detail) = (task.hot(), task.detail());
        TaskRecord {
            id: self.specs.id(number).clone(),
            phase: self.phase(&task),
            stage: hot.stage(),
            attempt: hot.attempt(),
            under_way: hot.is_under_way(),
            rejections: detail.rejections,
            rounds: detail.rounds.clone(),
            interruptions: detail.interruptions,
            deferrals: detail.deferrals,
            dispatches: hot.dispatches(),
            extra: detail.extra,
            feedback: detail.feedback.clone(),
            signature: detail.signature,
            restart: hot.restart(),
            holds_scope: hot.holds_scope(),
            workspace: task.workspace(),
            session: detail.session.clone(),
            candidate: detail.candidate.clone(),
            intent: detail.intent.clone(),
            last_token: task.last_token(),
            content: detail.content.clone(),
            settled: detail.settled,
            unheard: detail.unheard.clone(),
            refused: detail.refused,
            spent: task.spent(),
            since: hot.since(),
        }
    }

    fn phase(&self, task: &View<'_>) -> Phase {
        let lease = |hold: &Hold| Lease {
            token: hold.token,
            owner: self.owners.name(hold.owner).clone(),
            granted_at: hold.granted_at,
            hard_stop: hold.hard_stop,
            reserved: hold.reserved,
        };
        match (task.hot().kind(), task.hold(), task.stopping()) {
            (Kind::Stopping, _, Some((hold, why))) => Phase::Stopping { lease: lease(hold), why },
            (Kind::Leased, Some(hold), _) => Phase::Leased(lease(hold)),
            // A lease is there as long as its phase: `Row` sets both.
            (Kind::Open | Kind::Leased | Kind::Stopping, ..) => Phase::Open,
            (Kind::Deferred, ..) => {
                let never = (Timestamp(0), Wait::Interrupted(Interruption::Crashed));
                let (until, why) = task.detail().deferred.unwrap_or(never);
                Phase::Deferred { until, why }
            }
            (Kind::Done, ..) => Phase::Done(task.completion()),
            (Kind::Escalated, ..) => {
                let never = Escalation { cause: Cause::Fatal, text: None, kept: None };
                Phase::Escalated(task.detail().escalation.clone().unwrap_or(never))
            }
            (Kind::Cancelled, ..) => Phase::Cancelled,
        }
    }

    /// Makes a task that was never granted what its record says.
    pub(super) fn set_record(&mut self, number: u32, record: &TaskRecord) {
        let mut row = self.table.row(number);
        row.set_since(record.since);
        row.set_stage(record.stage);
        row.set_attempt(record.attempt);
        row.set_dispatches(record.dispatches);
        row.set_under_way(record.under_way);
        row.set_holds_scope(record.holds_scope);
        row.set_restart(record.restart);
        row.set_last_token(record.last_token);
        row.set_workspace(record.workspace);
        row.spend(record.spent);
        if has_detail(record) {
            let detail = row.detail_mut();
            detail.rejections = record.rejections;
            let forgets = is_on(Mutant::RestartForgetsInterruptions);
            detail.interruptions = if forgets { 0 } else { record.interruptions };
            detail.rounds.clone_from(&record.rounds);
            detail.deferrals = record.deferrals;
            detail.extra = record.extra;
            detail.feedback.clone_from(&record.feedback);
            detail.signature = record.signature;
            detail.session.clone_from(&record.session);
            detail.candidate.clone_from(&record.candidate);
            detail.intent.clone_from(&record.intent);
            detail.content.clone_from(&record.content);
            detail.settled = record.settled;
            detail.unheard.clone_from(&record.unheard);
            detail.refused = record.refused;
        }
        let owners = &mut self.owners;
        let mut hold = |lease: &Lease| Hold {
            token: lease.token,
            owner: owners.number(&lease.owner),
            granted_at: lease.granted_at,
            hard_stop: lease.hard_stop,
            reserved: lease.reserved,
        };
        match &record.phase {
            Phase::Open => {}
            Phase::Deferred { until, why } => row.defer(*until, *why),
            Phase::Leased(lease) => row.lease(hold(lease)),
            Phase::Stopping { lease, why } => {
                row.lease(hold(lease));
                row.stop(*why);
            }
            Phase::Done(Completion::Merged(change)) => {
                row.detail_mut().merged = Some(change.clone());
                row.finish(Way::Merged);
            }
            Phase::Done(Completion::Verified) => row.finish(Way::Verified),
            Phase::Done(Completion::ByHand) => row.finish(Way::ByHand),
            Phase::Done(Completion::Skipped) => row.finish(Way::Skipped),
            Phase::Escalated(escalation) => row.escalate(escalation.clone()),
            Phase::Cancelled => row.cancel(),
        }
    }
}

/// Whether the record says more of its task than that it went through without trouble.
fn has_detail(record: &TaskRecord) -> bool {
    record.rejections > 0
        || record.interruptions > 0
        || record.deferrals > 0
        || !record.rounds.is_empty()
        || record.extra != crate::record::Extra::default()
        || !record.feedback.is_empty()
        || record.signature.is_some()
        || record.session.is_some()
        || record.candidate.is_some()
        || record.intent.is_some()
        || record.content.is_some()
        || record.settled != crate::money::Usd::ZERO
        || !record.unheard.is_empty()
        || record.refused.is_some()
}
