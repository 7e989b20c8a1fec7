//! How a stage ended, and what that means for its task.

use std::time::Duration;

use super::Engine;
use super::draft::{Draft, Made, Passed};
use super::late::{current, late};
use super::leases::Hold;
use super::table::View;
use crate::command::StageReport;
use crate::event::{EventKind, Stale};
use crate::id::{BlobHash, TaskNo};
use crate::money::{Cost, Usd};
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Interruption, Outcome, in_one_line};
use crate::pipeline::StageKind;
use crate::record::{Cause, ParkReason, RunRecord, RunState};
use crate::signature::signature;

/// Longest `kept` of an escalation, in bytes.
const KEPT_BYTES_MAX: usize = 1024;
/// Longest wait that a result may ask for: the longest usage window, and a day for its clock.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(8 * 24 * 3600);

impl Engine {
    /// The task of a result that counts, and the lease that it ends; why it counts for nothing, if so.
    #[inline(always)]
    fn counted<'a>(
        &'a self,
        report: &StageReport,
    ) -> Result<(&'a RunRecord, View<'a>, &'a Hold), Stale> {
        let Some(run) = self.run.as_ref().filter(|_| report.run == self.id) else {
            return Err(Stale::OtherRun);
        };
        if !self.has(report.task) {
            return Err(Stale::UnknownTask);
        }
        let task = self.table.view(report.task.0);
        let hold = current(&task, report)?;
        Ok((run, task, hold))
    }

    /// What most results are: their stage passed, and made nothing. `None` for any other.
    #[inline(always)]
    pub(super) fn plain_pass(&self, report: &StageReport) -> Option<Passed> {
        let StageReport { task: number, token, candidate, merged, session, .. } = report;
        let is_made = candidate.is_some() || merged.is_some() || session.is_some();
        if is_made || !matches!(report.outcome, Outcome::Passed) {
            return None;
        }
        let (run, task, hold) = self.counted(report).ok()?;
        let cost = report.cost.settle(hold.reserved);
        let is_last = self.uses_up(run, *number, &task);
        (!is_last).then_some(Passed { task: *number, token: *token, cost, made: None })
    }

    /// The events of a result; why it counts for nothing, if it does.
    #[inline(never)]
    pub(super) fn decide_report(
        &self,
        draft: &mut Draft,
        report: &StageReport,
    ) -> Result<(), Stale> {
        let (run, task, hold) = self.counted(report).inspect_err(|reason| {
            if !matches!(reason, Stale::OtherRun | Stale::UnknownTask) {
                late(draft, &self.table.view(report.task.0), report, *reason);
            }
        })?;
        if matches!(report.outcome, Outcome::Passed) {
            self.passed(draft, run, &task, hold, report);
        } else {
            self.ended(draft, run, &task, hold, report);
        }
        Ok(())
    }

    /// Whether a pass leaves the task with stages that it may not be granted any more.
    #[inline]
    fn uses_up(&self, run: &RunRecord, number: TaskNo, task: &View<'_>) -> bool {
        usize::from(task.hot().stage()) + 1 < self.stages(number)
            && self.is_spent(run, number, task)
    }

    /// The events of a stage that passed.
    #[inline]
    fn passed(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        task: &View<'_>,
        hold: &Hold,
        report: &StageReport,
    ) {
        let cost = report.cost.settle(hold.reserved);
        let StageReport { task: number, token, candidate, merged, session, .. } = report;
        let is_made = candidate.is_some() || merged.is_some() || session.is_some();
        let made = is_made.then(|| {
            let (candidate, merged) = (candidate.clone(), merged.clone());
            Made { candidate, merged, session: session.clone() }
        });
        draft.passed(*number, *token, cost, made);
        if self.uses_up(run, *number, task) {
            End { run, task, report, cost, draft }.escalate(Cause::DispatchesUsed, None);
        }
    }

    /// The events of any accepted result.
    #[cold]
    #[inline(never)]
    fn ended(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        task: &View<'_>,
        hold: &Hold,
        report: &StageReport,
    ) {
        let cost = report.cost.settle(hold.reserved);
        let mut end = End { run, task, report, cost, draft };
        match &report.outcome {
            // Decided before, since most do.
            Outcome::Passed => {}
            Outcome::Rejected { feedback, restart } => {
                let (text, signature) = (end.draft.text(feedback), signature(feedback));
                let detail = task.detail();
                let again =
                    detail.rejections.saturating_sub(detail.extra.retries).saturating_add(1);
                let id = self.specs.id(report.task.0);
                let until = run.rules.after_rejection(end.draft.now, id, again);
                end.push(EventKind::Rejected {
                    task: report.task,
                    token: report.token,
                    cost,
                    feedback: text.clone(),
                    signature,
                    restart: *restart,
                    candidate: report.candidate.clone(),
                    session: report.session.clone(),
                    until,
                });
                let more = u32::from(is_on(Mutant::OneRetryTooMany));
                if detail.rejections >= self.retries_max(report.task, task).saturating_add(more) {
                    end.escalate(Cause::RetriesUsed, Some(text));
                } else if self.is_last_round(report.task, task) {
                    end.escalate(Cause::RoundsUsed, Some(text));
                } else if run.rules.same_failure_escalates && detail.signature == Some(signature) {
                    end.escalate(Cause::SameFailure, Some(text));
                } else if self.is_spent(run, report.task, task) {
                    end.escalate(Cause::DispatchesUsed, Some(text));
                }
                end.trip_breaker();
            }
            Outcome::Question { text } => end.stop(Cause::Question, text),
            Outcome::Fatal { error } => {
                end.stop(Cause::Fatal, error);
                end.trip_breaker();
            }
            Outcome::Suspended { .. } if self.is_at(report.task, task, StageKind::Gate) => {
                self.suspended(&mut end);
            }
            Outcome::Suspended { .. } => self.interrupted(&mut end, Interruption::Crashed),
            Outcome::Interrupted { reason, .. } => self.interrupted(&mut end, *reason),
        }
    }

    /// A gate is not open: it is asked again later, so often and no more.
    fn suspended(&self, end: &mut End<'_>) {
        let (run, number, now) = (end.run, end.report.task, end.draft.now);
        let detail = end.task.detail();
        let count = detail.deferrals.saturating_sub(detail.extra.deferrals).saturating_add(1);
        let least = run.rules.next_poll(now, self.specs.id(number.0), count);
        let said = end.report.retry_at.map(|at| at.min(now.after(RETRY_AFTER_MAX)));
        let until = said.map_or(least, |at| at.max(least));
        end.push(EventKind::Suspended {
            task: number,
            token: end.report.token,
            cost: end.cost,
            until,
        });
        if count > run.rules.deferrals_max && !is_on(Mutant::GateAskedForEver) {
            end.escalate(Cause::DeferralsUsed, None);
        }
    }

    fn interrupted(&self, end: &mut End<'_>, mut reason: Interruption) {
        if reason == Interruption::Cancelled && end.task.stopping().is_none() {
            // Who carries out a stage may be told to stop; giving the task up is a person's.
            reason = Interruption::Shutdown;
        }
        let (run, task, now) = (end.run, end.report.task, end.draft.now);
        let count = end.task.detail().interruptions.saturating_add(1);
        // What the time said is over, or further off than any window, says nothing.
        let said = end.report.retry_at.filter(|at| *at > now);
        let said = said.map(|at| at.min(now.after(RETRY_AFTER_MAX)));
        let backoff = || run.rules.backoff(now, self.specs.id(task.0), count);
        let mut until = said.unwrap_or_else(backoff);
        if reason.is_ours() {
            until = now;
        } else if reason == Interruption::UsageLimit
            && let Some(stage) = self.profile(task.0).pipeline.stage(end.task.hot().stage())
        {
            // The account is closed, not the task: the pool waits, and the task with it. What an
            // earlier result said of the account still holds.
            let pool = stage.pool.clone();
            let reopens = said.unwrap_or_else(|| match end.report.retry_at {
                // It should be open by now: the next stage finds out soon.
                Some(_) => run.rules.backoff(now, self.specs.id(task.0), 1),
                None => now.after(run.rules.backoff_max),
            });
            let closed = self.pools.by_name(&pool).and_then(|known| known.closed_until);
            end.push(EventKind::PoolClosed { pool, until: reopens.max(closed.unwrap_or(now)) });
            until = now;
        }
        end.push(EventKind::Interrupted {
            task,
            token: end.report.token,
            cost: end.cost,
            reason,
            until,
            session: end.report.session.clone(),
        });
        if reason == Interruption::Cancelled {
            return;
        }
        if self.is_spent(run, task, end.task) {
            end.escalate(Cause::DispatchesUsed, None);
        } else if reason.is_counted() && count > run.rules.interruptions_max {
            end.escalate(Cause::InterruptionsUsed, None);
        }
        let active = run.state == RunState::Active;
        if reason == Interruption::Auth && active {
            end.push(EventKind::Draining { reason: ParkReason::Auth });
        } else if reason == Interruption::Billing && active {
            end.push(EventKind::Draining { reason: ParkReason::Billing });
        }
    }

    /// A lease ends without its result: nobody knows what was spent under it.
    pub(super) fn ended_without(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        number: TaskNo,
        hold: &Hold,
        reason: Interruption,
    ) {
        let task = self.table.view(number.0);
        let report = StageReport {
            run: self.id.clone(),
            task: number,
            stage: task.hot().stage(),
            attempt: task.hot().attempt(),
            token: hold.token,
            content: None,
            outcome: Outcome::Interrupted { reason, retry_at: None },
            cost: Cost::AtLeast(Usd::ZERO),
            session: None,
            candidate: None,
            merged: None,
            kept: None,
            retry_at: None,
        };
        self.ended(draft, run, &task, hold, &report);
    }

    /// Rejections that a task may have before it escalates.
    fn retries_max(&self, number: TaskNo, task: &View<'_>) -> u32 {
        let plan = self.specs.spec(number.0).max_retries;
        plan.saturating_add(task.detail().extra.retries)
    }

    /// Whether the task was granted as often as it may be.
    #[inline]
    fn is_spent(&self, run: &RunRecord, number: TaskNo, task: &View<'_>) -> bool {
        // Most tasks never come near: they need not be looked up.
        let unseen = is_on(Mutant::NothingLeftStillReady);
        if task.hot().dispatches() < run.rules.dispatches_spare || unseen {
            return false;
        }
        let retries = self.specs.spec(number.0).max_retries;
        let plan = run.rules.dispatches_max(self.stages(number), retries);
        let detail = task.detail();
        let polls = if is_on(Mutant::PollSpendsDispatch) { 0 } else { detail.deferrals };
        task.hot().dispatches().saturating_sub(polls)
            >= plan.saturating_add(detail.extra.dispatches)
    }

    /// Whether the stage that rejects the task now has done so as often as it may before.
    fn is_last_round(&self, number: TaskNo, task: &View<'_>) -> bool {
        let at = task.hot().stage();
        let stage = self.profile(number.0).pipeline.stage(at);
        let before = task.detail().rounds.get(usize::from(at)).copied().unwrap_or(0);
        stage.and_then(|stage| stage.rounds).is_some_and(|rounds| before >= rounds)
    }

    fn is_at(&self, number: TaskNo, task: &View<'_>, kind: StageKind) -> bool {
        self.profile(number.0).pipeline.is(task.hot().stage(), kind)
    }

    #[inline]
    fn stages(&self, task: TaskNo) -> usize {
        self.profile(task.0).classes.len()
    }
}

/// The decision on an accepted result while it is being made.
struct End<'a> {
    run: &'a RunRecord,
    task: &'a View<'a>,
    report: &'a StageReport,
    cost: Usd,
    draft: &'a mut Draft,
}

impl End<'_> {
    fn push(&mut self, kind: EventKind<TaskNo>) {
        self.draft.push(kind);
    }

    /// Hands over a task whose lease ended with another event.
    fn escalate(&mut self, cause: Cause, text: Option<BlobHash>) {
        let (task, kept) = (self.report.task, self.kept());
        self.push(EventKind::Escalated { task, token: None, cost: Usd::ZERO, cause, text, kept });
    }

    /// Hands over a task, and ends its lease with that.
    fn stop(&mut self, cause: Cause, text: &str) {
        let text = Some(self.draft.text(text));
        let (task, token) = (self.report.task, Some(self.report.token));
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
        let first_stage = self.task.hot().stage() == 0;
        if max > 0 && first_stage && failures >= max && self.run.state == RunState::Active {
            self.push(EventKind::Draining { reason: ParkReason::Breaker });
        }
    }
}
