//! What an event about one task changes in that task, and what it books.

use std::hint::cold_path;

use super::Engine;
use super::change::{Change, Context};
use super::draft::{Granted, Made, Passed};
use super::evolve::reopen;
use super::kind::Kind;
use super::leases::Hold;
use super::table::{Row, Way};
use crate::event::{EventKind, Resolution};
use crate::id::{FencingToken, TaskNo};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Interruption, Restart};
use crate::record::{Cause, Delay, Escalation, Wait};
use crate::time::Timestamp;

/// A stage is granted.
struct Grant<'a> {
    at: Timestamp,
    grant: &'a Granted,
}

impl Change for Grant<'_> {
    #[inline(always)]
    fn make(self, row: &mut Row<'_>, cx: &Context<'_>) -> Kind {
        let Granted { stage, attempt, token, owner, hard_stop, reserved, .. } = *self.grant;
        row.set_stage(stage);
        row.set_attempt(attempt);
        if !row.hot().is_under_way() {
            // Only what the same attempt left can be gone on with.
            row.set_workspace(None);
        }
        let is_free = is_on(Mutant::RegrantIsNoDispatch) && row.hot().is_under_way();
        row.set_under_way(true);
        row.set_dispatches(row.hot().dispatches().saturating_add(u32::from(!is_free)));
        row.set_holds_scope(cx.has_scope);
        let last = row.last_token();
        row.set_last_token(token);
        row.set_back(|detail| {
            detail.forget_settled(last);
            detail.content = None;
        });
        row.lease(Hold { token, owner, granted_at: self.at, hard_stop, reserved });
        Kind::Leased
    }
}

/// A lease ends, with what its stage cost; `reserved` is what was set aside for it.
struct End<'a, C> {
    cost: Usd,
    reserved: &'a mut Usd,
    change: C,
}

impl<C: Change> Change for End<'_, C> {
    #[inline(always)]
    fn make(self, row: &mut Row<'_>, cx: &Context<'_>) -> Kind {
        if let Some(hold) = row.hold() {
            *self.reserved = hold.reserved;
            if cx.makes() {
                row.set_workspace(Some(hold.token));
            }
        }
        row.spend(self.cost);
        self.change.make(row, cx)
    }
}

/// A stage passed, and may have made something.
struct Pass<'a> {
    made: Option<&'a Made>,
}

impl Change for Pass<'_> {
    #[inline(always)]
    fn make(self, row: &mut Row<'_>, cx: &Context<'_>) -> Kind {
        let merged = self.made.and_then(|made| made.merged.as_ref());
        row.set_stage(row.hot().stage().saturating_add(1));
        row.set_back(|detail| {
            detail.interruptions = 0;
            detail.intent = None;
        });
        if let Some(made) = self.made {
            let Made { candidate, session, .. } = made;
            let detail = row.detail_mut();
            if candidate.is_some() {
                detail.candidate.clone_from(candidate);
            }
            if session.is_some() {
                detail.session.clone_from(session);
            }
        }
        if cx.makes() && cx.makes_more() {
            // The next one goes on with the change, in a conversation of its own.
            row.set_restart(Restart::OnCandidate);
            row.set_back(|detail| detail.session = None);
        }
        if usize::from(row.hot().stage()) < cx.stages() {
            row.open();
            return Kind::Open;
        }
        if merged.is_some() {
            row.detail_mut().merged = merged.cloned();
        }
        row.finish(if merged.is_some() { Way::Merged } else { Way::Verified });
        row.set_under_way(false);
        row.set_holds_scope(false);
        Kind::Done
    }
}

impl Engine {
    #[inline(always)]
    pub(super) fn apply_grant(&mut self, at: Timestamp, grant: &Granted) {
        let Granted { task, token, reserved, .. } = *grant;
        if !self.has(task) {
            // Only in a damaged log; nobody else may get its token all the same.
            cold_path();
            return self.sum_grant(token, reserved);
        }
        let had_scope = self.table.hot(task.0).holds_scope();
        self.change_by(Some(Kind::Open), task, at, Grant { at, grant });
        self.sum_grant(token, reserved);
        self.note_passed_over(at, task.0, had_scope);
    }

    #[inline(always)]
    fn sum_grant(&mut self, token: FencingToken, reserved: Usd) {
        self.change_sums(|run| {
            run.last_token = run.last_token.max(token);
            run.reserved = run.reserved.plus(reserved);
        });
    }

    #[inline(always)]
    pub(super) fn apply_passed(&mut self, at: Timestamp, passed: &Passed, made: Option<&Made>) {
        let Passed { task, cost, .. } = passed;
        if !self.has(*task) {
            cold_path();
            return self.sum_end(Usd::ZERO, *cost);
        }
        if self.table.hot(task.0).stage() == 0 {
            self.change_sums(|run| run.first_stage_failures = 0);
        }
        self.end_lease_by(Some(Kind::Leased), *task, at, *cost, Pass { made });
    }

    pub(super) fn apply_rejected(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Rejected { task, cost, feedback, signature, restart, .. } = kind else {
            return;
        };
        let EventKind::Rejected { candidate, session, until, .. } = kind else { return };
        self.count_first_stage_failure(*task);
        self.end_lease(*task, at, *cost, |row, cx| {
            let is_free = is_on(Mutant::ReviewRejectionIsFree) && row.hot().stage() > 0;
            let rejected_at = usize::from(row.hot().stage());
            if *until > at {
                row.defer(*until, Wait::Other(Delay::Rejected));
            } else {
                row.open();
            }
            // What begins anew on the target begins with the first stage.
            let anew = *restart == Restart::OnTarget || is_on(Mutant::RejectionGoesToFirst);
            row.set_stage(if anew { 0 } else { cx.back() });
            row.set_under_way(false);
            row.set_restart(*restart);
            let detail = row.detail_mut();
            detail.rejections = detail.rejections.saturating_add(u32::from(!is_free));
            if cx.has_rounds() {
                let length = detail.rounds.len().max(rejected_at + 1);
                detail.rounds.resize(length, 0);
                detail.rounds[rejected_at] = detail.rounds[rejected_at].saturating_add(1);
            }
            detail.interruptions = 0;
            detail.intent = None;
            detail.feedback.push(feedback.clone());
            detail.signature = Some(*signature);
            if candidate.is_some() {
                detail.candidate.clone_from(candidate);
            }
            detail.session.clone_from(session);
        });
    }

    pub(super) fn apply_suspended(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Suspended { task, cost, until, .. } = kind else { return };
        self.end_lease(*task, at, *cost, |row, _| {
            let detail = row.detail_mut();
            detail.deferrals = detail.deferrals.saturating_add(1);
            row.defer(*until, Wait::Other(Delay::GateClosed));
        });
    }

    pub(super) fn apply_interrupted(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Interrupted { task, cost, reason, until, session, .. } = kind else {
            return;
        };
        self.end_lease(*task, at, *cost, |row, _| {
            row.hear_again();
            let last = row.last_token();
            let detail = row.detail_mut();
            let burns = is_on(Mutant::UsageLimitBurnsInterruptions);
            let counted = u32::from(reason.is_counted() || burns);
            detail.interruptions = detail.interruptions.saturating_add(counted);
            detail.settle(last, *cost);
            if session.is_some() {
                detail.session.clone_from(session);
            }
            if *reason == Interruption::Cancelled {
                row.set_holds_scope(false);
                row.set_under_way(false);
                row.cancel();
            } else if *until > at {
                row.defer(*until, Wait::Interrupted(*reason));
            } else {
                row.open();
            }
            if is_on(Mutant::InterruptionStartsAnew) {
                row.set_stage(0);
            }
            if is_on(Mutant::InterruptionSpendsAttempt) {
                row.set_under_way(false);
            }
        });
        if *reason == Interruption::Cancelled {
            self.change_run(reopen);
        }
    }

    pub(super) fn apply_escalated(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Escalated { task, token, cost, cause, text, kept } = kind else { return };
        if token.is_some() && *cause == Cause::Fatal {
            self.count_first_stage_failure(*task);
        }
        let escalation = Escalation { cause: *cause, text: text.clone(), kept: kept.clone() };
        self.end_lease(*task, at, *cost, |row, _| {
            row.set_under_way(false);
            let keeps = is_on(Mutant::EscalatedKeepsScope) && row.hot().holds_scope();
            row.set_holds_scope(keeps);
            row.escalate(escalation);
        });
    }

    pub(super) fn apply_refused(&mut self, kind: &EventKind<TaskNo>) {
        let EventKind::ResultRefused { task, token, stage, cost, .. } = kind else { return };
        self.change_sums(|run| run.spent = run.spent.plus(*cost));
        self.book_to_pools(*task, *stage, *cost);
        self.touch(*task, |row| {
            row.spend(*cost);
            let detail = row.detail_mut();
            detail.refused = detail.refused.max(Some(*token));
            detail.unheard.retain(|lease| lease.token != *token);
        });
    }

    pub(super) fn apply_retried(&mut self, at: Timestamp, task: TaskNo) {
        if is_on(Mutant::RetryHitsOthers) {
            let all = (0_u32..).zip(self.table.all_hot());
            let others = all.filter(|(other, hot)| *other != task.0 && hot.kind().is_dead_end());
            let other = others.map(|(other, _)| TaskNo(other)).last();
            other.into_iter().for_each(|other| self.change(other, at, |row, _| row.open()));
        }
        self.change(task, at, |row, _| {
            let escalation = row.detail().escalation.as_ref();
            let cause = escalation.map(|escalation| escalation.cause);
            // A merge in doubt is found out about, and a gate that stayed closed is asked again:
            // what was judged before is as it was.
            if row.detail().intent.is_none() && cause != Some(Cause::DeferralsUsed) {
                row.set_stage(0);
            }
            row.open();
            allow_anew(row);
        });
        self.change_run(reopen);
    }

    pub(super) fn apply_resolved(&mut self, at: Timestamp, task: TaskNo, how: Resolution) {
        self.change(task, at, |row, cx| {
            let way = match how {
                Resolution::ByHand => Way::ByHand,
                Resolution::Skip => Way::Skipped,
                Resolution::Approve => {
                    row.set_stage(row.hot().stage().saturating_add(1));
                    allow_anew(row);
                    if usize::from(row.hot().stage()) < cx.stages() {
                        row.set_under_way(true);
                        row.open();
                        return;
                    }
                    Way::Verified
                }
            };
            row.set_holds_scope(false);
            row.set_under_way(false);
            row.finish(way);
        });
        self.change_run(reopen);
    }

    pub(super) fn apply_cancelled(&mut self, at: Timestamp, task: TaskNo) {
        self.change(task, at, |row, _| {
            let keeps = is_on(Mutant::CancelledKeepsScope) && row.hot().holds_scope();
            row.set_holds_scope(keeps);
            row.set_under_way(false);
            row.cancel();
        });
        self.change_run(reopen);
    }

    /// Changes a task whose lease ends, and books what that cost.
    fn end_lease(
        &mut self,
        task: TaskNo,
        at: Timestamp,
        cost: Usd,
        change: impl FnOnce(&mut Row<'_>, &Context<'_>),
    ) {
        self.end_lease_by(None, task, at, cost, change);
    }

    /// As [`Engine::end_lease`]; it goes faster where the task is in the phase that is likely.
    #[inline(always)]
    fn end_lease_by(
        &mut self,
        likely: Option<Kind>,
        task: TaskNo,
        at: Timestamp,
        cost: Usd,
        change: impl Change,
    ) {
        if !self.has(task) {
            // Only in a damaged log; the money is gone all the same.
            cold_path();
            return self.sum_end(Usd::ZERO, cost);
        }
        let mut reserved = Usd::ZERO;
        self.book_to_pools(task, self.table.hot(task.0).stage(), cost);
        self.change_by(likely, task, at, End { cost, reserved: &mut reserved, change });
        self.sum_end(reserved, cost);
    }

    #[inline(always)]
    fn sum_end(&mut self, reserved: Usd, cost: Usd) {
        self.change_sums(|run| {
            let is_given_back = !is_on(Mutant::ReservationLeaks);
            run.reserved = if is_given_back { run.reserved.minus(reserved) } else { run.reserved };
            run.spent = run.spent.plus(cost);
        });
    }

    fn count_first_stage_failure(&mut self, task: TaskNo) {
        if self.has(task) && self.table.hot(task.0).stage() == 0 {
            self.change_sums(|run| {
                run.first_stage_failures = run.first_stage_failures.saturating_add(1);
            });
        }
    }
}

/// Gives a task that a person has go on all that a new one may use.
fn allow_anew(row: &mut Row<'_>) {
    let dispatches = row.hot().dispatches();
    let detail = row.detail_mut();
    detail.extra.retries = detail.rejections;
    detail.extra.dispatches = dispatches.saturating_sub(detail.deferrals);
    detail.extra.deferrals = detail.deferrals;
    detail.rounds.clear();
    detail.interruptions = 0;
    detail.signature = None;
}
