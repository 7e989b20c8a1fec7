//! Between the dense form of a task and the record that a store keeps.

use super::Engine;
use super::table::{Detail, Hold, Phase, Task, Way};
use crate::lease::Lease;
use crate::outcome::Interruption;
use crate::record::{Completion, Phase as RecordPhase, TaskRecord};
use crate::time::Timestamp;

impl Engine {
    /// The record of a task.
    pub(super) fn to_record(&self, number: u32) -> TaskRecord {
        let task = self.table.get(number);
        let detail = task.detail();
        TaskRecord {
            id: self.specs.id(number).clone(),
            phase: self.record_phase(&task),
            stage: task.stage,
            attempt: task.attempt,
            under_way: task.under_way,
            rejections: detail.rejections,
            interruptions: detail.interruptions,
            dispatches: task.dispatches,
            extra: detail.extra,
            feedback: detail.feedback.clone(),
            signature: detail.signature,
            restart: task.restart,
            holds_scope: task.holds_scope,
            workspace: task.workspace,
            session: detail.session.clone(),
            candidate: detail.candidate.clone(),
            intent: detail.intent.clone(),
            last_token: task.last_token,
            settled: detail.settled,
            refused: detail.refused,
            spent: task.spent,
            since: task.since,
        }
    }

    fn record_phase(&self, task: &Task) -> RecordPhase {
        let lease = |hold: &Hold| Lease {
            token: hold.token,
            owner: self.owners.name(hold.owner).clone(),
            granted_at: hold.granted_at,
            hard_stop: hold.hard_stop,
            reserved: hold.reserved,
        };
        match &task.phase {
            Phase::Open => RecordPhase::Open,
            Phase::Deferred => {
                let (until, why) =
                    task.detail().deferred.unwrap_or((Timestamp(0), Interruption::Crashed));
                RecordPhase::Deferred { until, why }
            }
            Phase::Leased(hold) => RecordPhase::Leased(lease(hold)),
            Phase::Stopping(hold, why) => RecordPhase::Stopping { lease: lease(hold), why: *why },
            Phase::Done(way) => RecordPhase::Done(task.completion(*way)),
            Phase::Escalated => match &task.detail().escalation {
                Some(escalation) => RecordPhase::Escalated(escalation.clone()),
                // Never so: the phase and the detail are set together.
                None => RecordPhase::Cancelled,
            },
            Phase::Cancelled => RecordPhase::Cancelled,
        }
    }

    /// The dense form of a record.
    pub(super) fn dense(&mut self, record: &TaskRecord) -> Task {
        let mut detail = Detail {
            rejections: record.rejections,
            interruptions: record.interruptions,
            extra: record.extra,
            feedback: record.feedback.clone(),
            signature: record.signature,
            session: record.session.clone(),
            candidate: record.candidate.clone(),
            intent: record.intent.clone(),
            settled: record.settled,
            refused: record.refused,
            ..Detail::default()
        };
        let mut hold = |lease: &Lease| Hold {
            token: lease.token,
            owner: self.owners.number(&lease.owner),
            granted_at: lease.granted_at,
            hard_stop: lease.hard_stop,
            reserved: lease.reserved,
        };
        let phase = match &record.phase {
            RecordPhase::Open => Phase::Open,
            RecordPhase::Deferred { until, why } => {
                detail.deferred = Some((*until, *why));
                Phase::Deferred
            }
            RecordPhase::Leased(lease) => Phase::Leased(hold(lease)),
            RecordPhase::Stopping { lease, why } => Phase::Stopping(hold(lease), *why),
            RecordPhase::Done(completion) => Phase::Done(match completion {
                Completion::Merged(change) => {
                    detail.merged = Some(change.clone());
                    Way::Merged
                }
                Completion::Verified => Way::Verified,
                Completion::ByHand => Way::ByHand,
                Completion::Skipped => Way::Skipped,
            }),
            RecordPhase::Escalated(escalation) => {
                detail.escalation = Some(escalation.clone());
                Phase::Escalated
            }
            RecordPhase::Cancelled => Phase::Cancelled,
        };
        let mut task = Task::new(record.since);
        task.phase = phase;
        task.stage = record.stage;
        task.attempt = record.attempt;
        task.dispatches = record.dispatches;
        task.under_way = record.under_way;
        task.holds_scope = record.holds_scope;
        task.restart = record.restart;
        task.workspace = record.workspace;
        task.last_token = record.last_token;
        task.spent = record.spent;
        if detail != Detail::default() {
            *task.detail_mut() = detail;
        }
        task
    }
}
