//! How a stage ended, and what that means for its task.

use std::time::Duration;

use super::Engine;
use super::index::lease;
use crate::command::{Answer, Decision, StageReport};
use crate::event::{Event, EventKind, Stale};
use crate::id::{BlobHash, FencingToken, PoolName, TaskId};
use crate::lease::Lease;
use crate::money::{Cost, Usd};
use crate::outcome::{
    Interruption, MergeIntent, Outcome, TEXT_BYTES_MAX, head_and_tail, in_one_line,
};
use crate::record::{Cause, ParkReason, Phase, RunRecord, RunState, TaskRecord};
use crate::retry::signature;
use crate::time::Timestamp;

/// Longest `kept` of an escalation, in bytes.
const KEPT_BYTES_MAX: usize = 1024;
/// Longest wait that a result may ask for: the longest usage window, and a day for its clock.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(8 * 24 * 3600);

impl Engine {
    pub(super) fn decide_report(
        &self,
        now: Timestamp,
        run: &RunRecord,
        report: &StageReport,
    ) -> Decision {
        if report.run != self.id {
            return refused(now, Stale::OtherRun);
        }
        let Some(record) = self.record(&report.task) else {
            return refused(now, Stale::UnknownTask);
        };
        match current(record, report) {
            Ok(lease) => self.ended(now, run, record, lease, report),
            Err(reason) => late(now, record, report, reason),
        }
    }

    /// The events of an accepted result.
    fn ended(
        &self,
        now: Timestamp,
        run: &RunRecord,
        record: &TaskRecord,
        lease: &Lease,
        report: &StageReport,
    ) -> Decision {
        let cost = report.cost.settle(lease.reserved);
        let mut end = End { now, run, record, report, cost, decision: Decision::of(now, vec![]) };
        match &report.outcome {
            Outcome::Passed => {
                end.passed();
                if usize::from(record.stage) + 1 < self.stages(record) && self.is_spent(run, record)
                {
                    end.escalate(Cause::DispatchesUsed, None);
                }
            }
            Outcome::Rejected { feedback, restart } => {
                let text = end.blob(feedback);
                end.push(EventKind::Rejected {
                    task: record.id.clone(),
                    token: report.token,
                    cost,
                    feedback: text.clone(),
                    signature: signature(feedback),
                    restart: *restart,
                    candidate: report.candidate.clone(),
                    session: report.session.clone(),
                });
                let retries = self.retries_max(&record.id, record);
                if record.rejections >= retries {
                    end.escalate(Cause::RetriesUsed, Some(text));
                } else if run.rules.same_failure_escalates
                    && record.signature == Some(signature(feedback))
                {
                    end.escalate(Cause::SameFailure, Some(text));
                } else if self.is_spent(run, record) {
                    end.escalate(Cause::DispatchesUsed, Some(text));
                }
                end.trip_breaker();
            }
            Outcome::Question { text } => end.stop(Cause::Question, text),
            Outcome::Fatal { error } => {
                end.stop(Cause::Fatal, error);
                end.trip_breaker();
            }
            Outcome::Interrupted { reason, .. } => {
                self.interrupted(now, &mut end, *reason, report.retry_at);
            }
        }
        end.decision
    }

    fn interrupted(
        &self,
        now: Timestamp,
        end: &mut End<'_>,
        reason: Interruption,
        retry_at: Option<Timestamp>,
    ) {
        let (run, record) = (end.run, end.record);
        let count = record.interruptions.saturating_add(1);
        // What the time said is over, or further off than any window, says nothing.
        let said = retry_at.filter(|at| *at > now).map(|at| at.min(now.after(RETRY_AFTER_MAX)));
        let mut until = said.unwrap_or_else(|| run.rules.backoff(now, &record.id, count));
        if reason.is_ours() {
            until = now;
        } else if reason == Interruption::UsageLimit
            && let Some(pool) = self.pool_of(record)
        {
            // The account is closed, not the task: the pool waits, and the task with it. What an
            // earlier result said of the account still holds.
            let reopens = said.unwrap_or_else(|| now.after(run.rules.backoff_max));
            let closed = self.pools.get(&pool).and_then(|known| known.closed_until);
            end.push(EventKind::PoolClosed { pool, until: reopens.max(closed.unwrap_or(now)) });
            until = now;
        }
        end.push(EventKind::Interrupted {
            task: record.id.clone(),
            token: end.report.token,
            cost: end.cost,
            reason,
            until,
            session: end.report.session.clone(),
        });
        if self.is_spent(run, record) {
            end.escalate(Cause::DispatchesUsed, None);
        } else if reason != Interruption::Shutdown
            && reason != Interruption::UsageLimit
            && count > run.rules.interruptions_max
        {
            end.escalate(Cause::InterruptionsUsed, None);
        }
        let active = run.state == RunState::Active;
        if reason == Interruption::Auth && active {
            end.push(EventKind::Draining { reason: ParkReason::Auth });
        } else if reason == Interruption::Billing && active {
            end.push(EventKind::Draining { reason: ParkReason::Billing });
        }
    }

    pub(super) fn decide_stopped(
        &self,
        now: Timestamp,
        run: &RunRecord,
        task: &TaskId,
        token: FencingToken,
    ) -> Decision {
        let Some(record) = self.record(task) else { return refused(now, Stale::UnknownTask) };
        let (lease, why) = match &record.phase {
            Phase::Stopping { lease, why } if lease.token == token => (lease, *why),
            Phase::Open
            | Phase::Deferred { .. }
            | Phase::Leased(_)
            | Phase::Stopping { .. }
            | Phase::Done(_)
            | Phase::Escalated(_)
            | Phase::Cancelled => return refused(now, Stale::NoLease),
        };
        let report = StageReport {
            run: self.id.clone(),
            task: task.clone(),
            stage: record.stage,
            attempt: record.attempt,
            token,
            outcome: Outcome::Interrupted { reason: why, retry_at: None },
            cost: Cost::AtLeast(Usd::ZERO),
            session: None,
            candidate: None,
            merged: None,
            kept: None,
            retry_at: None,
        };
        self.ended(now, run, record, lease, &report)
    }

    pub(super) fn decide_intent(
        &self,
        now: Timestamp,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Decision {
        let Some(record) = self.record(task) else { return refused(now, Stale::UnknownTask) };
        match holds(record, token) {
            Ok(_) => {
                let (task, intent) = (task.clone(), intent.clone());
                Decision::of(now, vec![EventKind::MergeIntended { task, token, intent }])
            }
            Err(reason) => refused(now, reason),
        }
    }

    /// Rejections that a task may have before it escalates.
    pub(super) fn retries_max(&self, task: &TaskId, record: &TaskRecord) -> u32 {
        let plan = self.entry(task).map_or(0, |entry| entry.spec.max_retries);
        plan.saturating_add(record.extra.retries)
    }

    /// Whether the task was granted as often as it may be.
    fn is_spent(&self, run: &RunRecord, record: &TaskRecord) -> bool {
        let retries = self.entry(&record.id).map_or(0, |entry| entry.spec.max_retries);
        let plan = run.rules.dispatches_max(self.stages(record), retries);
        record.dispatches >= plan.saturating_add(record.extra.dispatches)
    }

    fn stages(&self, record: &TaskRecord) -> usize {
        self.entry(&record.id).map_or(0, |entry| entry.pipeline.stages().len())
    }

    fn pool_of(&self, record: &TaskRecord) -> Option<PoolName> {
        let entry = self.entry(&record.id)?;
        entry.pipeline.stage(record.stage).map(|stage| stage.pool.clone())
    }
}

/// The decision on an accepted result while it is being made.
struct End<'a> {
    now: Timestamp,
    run: &'a RunRecord,
    record: &'a TaskRecord,
    report: &'a StageReport,
    cost: Usd,
    decision: Decision,
}

impl End<'_> {
    fn push(&mut self, kind: EventKind) {
        self.decision.events.push(Event { at: self.now, kind });
    }

    fn blob(&mut self, text: &str) -> BlobHash {
        let bytes = head_and_tail(text, TEXT_BYTES_MAX).into_bytes();
        let hash = BlobHash::of(&bytes);
        self.decision.blobs.push(bytes);
        hash
    }

    fn passed(&mut self) {
        self.push(EventKind::Passed {
            task: self.record.id.clone(),
            token: self.report.token,
            cost: self.cost,
            candidate: self.report.candidate.clone(),
            merged: self.report.merged.clone(),
            session: self.report.session.clone(),
        });
    }

    /// Hands over a task whose lease ended with another event.
    fn escalate(&mut self, cause: Cause, text: Option<BlobHash>) {
        let kept = self.kept();
        let task = self.record.id.clone();
        let escalated =
            EventKind::Escalated { task, token: None, cost: Usd::ZERO, cause, text, kept };
        self.push(escalated);
    }

    /// Hands over a task, and ends its lease with that.
    fn stop(&mut self, cause: Cause, text: &str) {
        let text = Some(self.blob(text));
        let (task, token) = (self.record.id.clone(), Some(self.report.token));
        let (cost, kept) = (self.cost, self.kept());
        self.push(EventKind::Escalated { task, token, cost, cause, text, kept });
    }

    fn kept(&self) -> Option<String> {
        self.report.kept.as_ref().map(|kept| in_one_line(kept, KEPT_BYTES_MAX))
    }

    /// Stops a run in which one attempt after the other fails at its first stage.
    fn trip_breaker(&mut self) {
        let max = self.run.rules.first_stage_failures_max;
        let failures = self.run.first_stage_failures.saturating_add(1);
        let first_stage = self.record.stage == 0;
        if max > 0 && first_stage && failures >= max && self.run.state == RunState::Active {
            self.push(EventKind::Draining { reason: ParkReason::Breaker });
        }
    }
}

/// The live lease that a result answers.
fn current<'a>(record: &'a TaskRecord, report: &StageReport) -> Result<&'a Lease, Stale> {
    let lease = holds(record, report.token)?;
    if report.stage != record.stage {
        Err(Stale::OtherStage)
    } else if report.attempt != record.attempt {
        Err(Stale::OtherAttempt)
    } else {
        Ok(lease)
    }
}

/// The live lease of this number.
fn holds(record: &TaskRecord, token: FencingToken) -> Result<&Lease, Stale> {
    match &record.phase {
        Phase::Leased(lease) if lease.token == token => Ok(lease),
        Phase::Stopping { lease, .. } if lease.token == token => Err(Stale::Stopping),
        Phase::Open
        | Phase::Deferred { .. }
        | Phase::Leased(_)
        | Phase::Stopping { .. }
        | Phase::Done(_)
        | Phase::Escalated(_)
        | Phase::Cancelled => Err(lease(&record.phase)
            .map_or(Stale::NoLease, |lease| Stale::OtherToken { current: lease.token })),
    }
}

fn refused(now: Timestamp, reason: Stale) -> Decision {
    Decision::answering(now, vec![], Answer::Refused(reason))
}

/// A result that counts for nothing: logged once for each lease, and what it is known to have spent
/// beyond what was booked for it is booked.
fn late(now: Timestamp, record: &TaskRecord, report: &StageReport, reason: Stale) -> Decision {
    let never_granted = report.token > record.last_token;
    let said_before = record.refused.is_some_and(|refused| refused >= report.token);
    if never_granted || said_before {
        return refused(now, reason);
    }
    let (Cost::Known(seen) | Cost::AtLeast(seen)) = report.cost;
    let cost = booked_without(record, report.token).map_or(Usd::ZERO, |booked| seen.minus(booked));
    let (task, token) = (record.id.clone(), report.token);
    let event = EventKind::ResultRefused { task, token, reason, cost };
    Decision::answering(now, vec![event], Answer::Refused(reason))
}

/// What was booked, or will be, for a lease that ends without its own result; `None` when its
/// result counts, or when too little is known of it.
fn booked_without(record: &TaskRecord, token: FencingToken) -> Option<Usd> {
    match &record.phase {
        Phase::Stopping { lease, .. } => (lease.token == token).then_some(lease.reserved),
        Phase::Leased(_) => None,
        Phase::Open
        | Phase::Deferred { .. }
        | Phase::Done(_)
        | Phase::Escalated(_)
        | Phase::Cancelled => {
            (record.last_token == token && record.settled > Usd::ZERO).then_some(record.settled)
        }
    }
}
