//! How leases end.

use std::time::Duration;

use super::leases::{held, note_unheard};
use super::{Model, refused};
use crate::command::{Answer, StageReport};
use crate::event::Stale;
use crate::id::{BlobHash, FencingToken, TaskId, TaskNo};
use crate::lease::Lease;
use crate::money::{Cost, Usd};
use crate::outcome::{Interruption, MergeIntent, Outcome, Restart, TEXT_BYTES_MAX, head_and_tail};
use crate::pipeline::{StageKind, StageSpec};
use crate::record::{
    Cause, Completion, Delay, Escalation, ParkReason, Phase, RunState, TaskRecord, Unheard, Wait,
};
use crate::signature::signature;
use crate::time::Timestamp;

/// A wait that somebody asks for is at most the longest usage window and a day.
const ASKED_MAX: Duration = Duration::from_secs(8 * 24 * 3600);

impl Model {
    /// P2: a result counts under the task's live lease, for its stage and attempt, and no other.
    pub(super) fn reported(
        &mut self,
        now: Timestamp,
        task: Option<&TaskId>,
        report: &StageReport,
    ) -> Answer {
        if report.run != self.id {
            return refused(Stale::OtherRun);
        }
        let place = task.and_then(|task| self.place(task));
        let Some(place) = place else { return refused(Stale::UnknownTask) };
        let task = &self.tasks[place];
        let lease = match self.live(place, report.token) {
            Ok(_) if report.stage != task.stage => Err(Stale::OtherStage),
            Ok(_) if report.attempt != task.attempt => Err(Stale::OtherAttempt),
            Ok(_) if report.content != task.content => Err(Stale::OtherContent),
            other => other,
        };
        match lease {
            Ok(lease) => self.ended(now, place, &lease, report),
            Err(why) => {
                self.late(place, report);
                return refused(why);
            }
        }
        Answer::Done
    }

    fn live(&self, place: usize, token: FencingToken) -> Result<Lease, Stale> {
        match &self.tasks[place].phase {
            Phase::Leased(lease) if lease.token == token => Ok(lease.clone()),
            Phase::Stopping { lease, .. } if lease.token == token => Err(Stale::Stopping),
            Phase::Leased(lease) | Phase::Stopping { lease, .. } => {
                Err(Stale::OtherToken { current: lease.token })
            }
            Phase::Open
            | Phase::Deferred { .. }
            | Phase::Done(_)
            | Phase::Escalated(_)
            | Phase::Cancelled => Err(Stale::NoLease),
        }
    }

    /// A result that counts for nothing is noted once, and what it shows to have been spent beyond
    /// what was booked for its lease is booked.
    fn late(&mut self, place: usize, report: &StageReport) {
        let task = &mut self.tasks[place];
        let unheard = task.unheard.iter().find(|lease| lease.token == report.token).copied();
        let is_said = Some(report.token) <= task.refused && unheard.is_none();
        if report.token > task.last_token || is_said {
            return;
        }
        let (Cost::Known(seen) | Cost::AtLeast(seen)) = report.cost;
        let booked = match (&task.phase, unheard) {
            (_, Some(lease)) => lease.booked,
            // It will be booked once its processes are gone.
            (Phase::Stopping { lease, .. }, _) if lease.token == report.token => lease.reserved,
            (Phase::Leased(_) | Phase::Stopping { .. }, _) => seen,
            (
                Phase::Open
                | Phase::Deferred { .. }
                | Phase::Done(_)
                | Phase::Escalated(_)
                | Phase::Cancelled,
                _,
            ) => {
                let ended_without = task.last_token == report.token && task.settled > Usd::ZERO;
                if ended_without { task.settled } else { seen }
            }
        };
        let more = seen.minus(booked);
        task.refused = task.refused.max(Some(report.token));
        task.unheard.retain(|lease| lease.token != report.token);
        task.spent = task.spent.plus(more);
        let run = self.run_mut();
        run.spent = run.spent.plus(more);
        self.book_to_pools(place, report.stage, more);
    }

    fn ended(&mut self, now: Timestamp, place: usize, lease: &Lease, report: &StageReport) {
        let cost = report.cost.settle(lease.reserved);
        self.book(place, lease, cost);
        if self.specs[place].1.is(self.tasks[place].stage, StageKind::Run) {
            self.tasks[place].workspace = Some(lease.token);
        }
        self.tasks[place].since = now;
        match &report.outcome {
            Outcome::Passed => self.passed(place, report),
            Outcome::Rejected { feedback, .. } => self.rejected(now, place, feedback, report),
            Outcome::Question { text } => self.escalate(place, Cause::Question, Some(text), report),
            Outcome::Fatal { error } => {
                let was_first = self.tasks[place].stage == 0;
                self.escalate(place, Cause::Fatal, Some(error), report);
                if was_first {
                    self.first_stage_failed();
                }
            }
            Outcome::Interrupted { reason, .. } => {
                let is_stopping = matches!(self.tasks[place].phase, Phase::Stopping { .. });
                // To give a task up is a person's, whatever its holder says.
                let is_theirs = *reason == Interruption::Cancelled && !is_stopping;
                let reason = if is_theirs { Interruption::Shutdown } else { *reason };
                self.interrupted(now, place, reason, cost, report);
            }
            Outcome::Suspended { .. } => self.suspended(now, place, cost, report),
        }
    }

    /// A gate that is closed is asked again later; what is no gate cannot be closed.
    fn suspended(&mut self, now: Timestamp, place: usize, cost: Usd, report: &StageReport) {
        if !self.specs[place].1.is(self.tasks[place].stage, StageKind::Gate) {
            self.interrupted(now, place, Interruption::Crashed, cost, report);
            return;
        }
        let rules = self.run_mut().rules.clone();
        let task = &mut self.tasks[place];
        task.deferrals += 1;
        let count = task.deferrals - task.extra.deferrals;
        let least = rules.next_poll(now, &task.id, count);
        let asked = report.retry_at.map(|at| at.min(now.after(ASKED_MAX)));
        let until = asked.map_or(least, |at| at.max(least));
        task.phase = Phase::Deferred { until, why: Wait::Other(Delay::GateClosed) };
        if count > rules.deferrals_max {
            self.escalate(place, Cause::DeferralsUsed, None, report);
        }
    }

    /// P10: the reservation is given back once, and what was spent is booked once.
    fn book(&mut self, place: usize, lease: &Lease, cost: Usd) {
        self.tasks[place].spent = self.tasks[place].spent.plus(cost);
        self.book_to_pools(place, self.tasks[place].stage, cost);
        let run = self.run_mut();
        run.reserved = run.reserved.minus(lease.reserved);
        run.spent = run.spent.plus(cost);
    }

    fn passed(&mut self, place: usize, report: &StageReport) {
        let is_last =
            usize::from(self.tasks[place].stage) + 1 == self.specs[place].1.stages().len();
        if self.tasks[place].stage == 0 {
            self.run_mut().first_stage_failures = 0;
        }
        let task = &mut self.tasks[place];
        task.stage += 1;
        task.interruptions = 0;
        task.intent = None;
        task.candidate = report.candidate.clone().or_else(|| task.candidate.take());
        task.session = report.session.clone().or_else(|| task.session.take());
        let (stages, at) = (self.specs[place].1.stages(), usize::from(task.stage));
        let is_run = |stage: &StageSpec| stage.kind == StageKind::Run;
        if is_run(&stages[at - 1]) && stages.iter().skip(at).any(is_run) {
            task.restart = Restart::OnCandidate;
            task.session = None;
        }
        task.phase = Phase::Open;
        if is_last {
            let merged = report.merged.clone();
            task.phase = Phase::Done(merged.map_or(Completion::Verified, Completion::Merged));
            task.under_way = false;
            task.holds_scope = false;
        } else if self.is_spent(place) {
            self.escalate(place, Cause::DispatchesUsed, None, report);
        }
    }

    fn rejected(&mut self, now: Timestamp, place: usize, feedback: &str, report: &StageReport) {
        let Outcome::Rejected { restart, .. } = &report.outcome else { return };
        let rules = self.run_mut().rules.clone();
        let at = self.tasks[place].stage;
        let (back, rounds) = {
            let pipeline = &self.specs[place].1;
            (pipeline.after_rejection(at), pipeline.stage(at).and_then(|stage| stage.rounds))
        };
        let was_first = self.tasks[place].stage == 0;
        let retries = self.specs[place].0.max_retries + self.tasks[place].extra.retries;
        let again = self.run_mut().rules.same_failure_escalates
            && self.tasks[place].signature == Some(signature(feedback));
        let task = &mut self.tasks[place];
        let is_last = task.rejections >= retries;
        let is_last_round = rounds.is_some_and(|rounds| {
            task.rounds.resize(task.rounds.len().max(usize::from(at) + 1), 0);
            task.rounds[usize::from(at)] += 1;
            task.rounds[usize::from(at)] > rounds
        });
        task.stage = if *restart == Restart::OnTarget { 0 } else { back };
        task.under_way = false;
        task.rejections += 1;
        task.interruptions = 0;
        task.intent = None;
        task.feedback.push(address(feedback));
        task.signature = Some(signature(feedback));
        task.restart = *restart;
        task.candidate = report.candidate.clone().or_else(|| task.candidate.take());
        task.session.clone_from(&report.session);
        let until = rules.after_rejection(now, &task.id, task.rejections - task.extra.retries);
        let why = Wait::Other(Delay::Rejected);
        task.phase = if until > now { Phase::Deferred { until, why } } else { Phase::Open };
        if is_last {
            self.escalate(place, Cause::RetriesUsed, Some(feedback), report);
        } else if is_last_round {
            self.escalate(place, Cause::RoundsUsed, Some(feedback), report);
        } else if again {
            self.escalate(place, Cause::SameFailure, Some(feedback), report);
        } else if self.is_spent(place) {
            self.escalate(place, Cause::DispatchesUsed, Some(feedback), report);
        }
        if was_first {
            self.first_stage_failed();
        }
    }

    /// Not the task's fault: it waits, and is granted again at the same stage and attempt.
    fn interrupted(
        &mut self,
        now: Timestamp,
        place: usize,
        reason: Interruption,
        cost: Usd,
        report: &StageReport,
    ) {
        let rules = self.run_mut().rules.clone();
        let pool = self.specs[place].1.stage(self.tasks[place].stage).map(|s| s.pool.clone());
        let is_given_up = reason == Interruption::Cancelled;
        let is_of_the_account =
            matches!(reason, Interruption::UsageLimit | Interruption::Auth | Interruption::Billing);
        let is_counted = !is_given_up && !is_of_the_account && reason != Interruption::Shutdown;
        let asked = report.retry_at.filter(|at| *at > now).map(|at| at.min(now.after(ASKED_MAX)));
        let task = &mut self.tasks[place];
        let count = task.interruptions + 1;
        let mut until = asked.unwrap_or_else(|| rules.backoff(now, &task.id, count));
        if matches!(
            reason,
            Interruption::OwnerLost
                | Interruption::Superseded
                | Interruption::Shutdown
                | Interruption::UsageLimit
                | Interruption::Cancelled
        ) {
            until = now;
        }
        hear_again(task);
        task.interruptions += u32::from(is_counted);
        settle(task, cost);
        task.session = report.session.clone().or_else(|| task.session.take());
        task.phase = if until > now {
            Phase::Deferred { until, why: Wait::Interrupted(reason) }
        } else {
            Phase::Open
        };
        if is_given_up {
            task.holds_scope = false;
            task.under_way = false;
            task.phase = Phase::Cancelled;
            self.reopen();
            return;
        }
        if reason == Interruption::UsageLimit
            && let Some(pool) = pool
        {
            let shortest = rules.backoff(now, &self.tasks[place].id, 1);
            let is_said_to_be_over = report.retry_at.is_some();
            let long = now.after(rules.backoff_max);
            let unasked = if is_said_to_be_over { shortest } else { long };
            let reopens = asked.unwrap_or(unasked);
            let record = self.pool(&pool);
            record.closed_until = Some(reopens.max(record.closed_until.unwrap_or(now)));
        }
        if self.is_spent(place) {
            self.escalate(place, Cause::DispatchesUsed, None, report);
        } else if is_counted && count > rules.interruptions_max {
            self.escalate(place, Cause::InterruptionsUsed, None, report);
        }
        match reason {
            Interruption::Auth => self.drain(ParkReason::Auth),
            Interruption::Billing => self.drain(ParkReason::Billing),
            Interruption::Silence
            | Interruption::Killed
            | Interruption::Crashed
            | Interruption::Overload
            | Interruption::RateLimited
            | Interruption::UsageLimit
            | Interruption::Network
            | Interruption::OwnerLost
            | Interruption::Expired
            | Interruption::Superseded
            | Interruption::Shutdown
            | Interruption::Cancelled => {}
        }
    }

    fn escalate(&mut self, place: usize, cause: Cause, text: Option<&str>, report: &StageReport) {
        let kept = report.kept.clone();
        let task = &mut self.tasks[place];
        task.under_way = false;
        task.holds_scope = false;
        let text = text.map(address);
        task.phase = Phase::Escalated(Escalation { cause, text, kept });
    }

    /// P6: no task is granted more often than its stages, its retries and the spare allow.
    fn is_spent(&self, place: usize) -> bool {
        let (spec, pipeline) = &*self.specs[place];
        let spare = self.run.as_ref().map_or(0, |run| run.rules.dispatches_spare);
        let stages = pipeline.stages().len() as u64;
        let task = &self.tasks[place];
        let most = stages * (u64::from(spec.max_retries) + 1)
            + u64::from(spare)
            + u64::from(task.extra.dispatches);
        u64::from(task.dispatches - task.deferrals) >= most
    }

    fn first_stage_failed(&mut self) {
        let run = self.run_mut();
        run.first_stage_failures += 1;
        let max = run.rules.first_stage_failures_max;
        if max > 0 && run.first_stage_failures >= max {
            self.drain(ParkReason::Breaker);
        }
    }

    fn drain(&mut self, reason: ParkReason) {
        let run = self.run_mut();
        if run.state == RunState::Active {
            run.state = RunState::Draining { reason };
        }
    }

    pub(super) fn intended(
        &mut self,
        task: Option<&TaskId>,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Answer {
        let place = task.and_then(|task| self.place(task));
        let Some(place) = place else { return refused(Stale::UnknownTask) };
        match self.live(place, token) {
            Ok(_) => {
                self.tasks[place].intent = Some(intent.clone());
                Answer::Done
            }
            Err(why) => refused(why),
        }
    }

    /// Nothing of a stopping lease runs any more: its end counts as an interruption.
    pub(super) fn stopped(
        &mut self,
        now: Timestamp,
        task: Option<&TaskId>,
        number: TaskNo,
        token: FencingToken,
    ) -> Answer {
        let place = task.and_then(|task| self.place(task));
        let Some(place) = place else { return refused(Stale::UnknownTask) };
        let (lease, why) = match &self.tasks[place].phase {
            Phase::Stopping { lease, why } if lease.token == token => (lease.clone(), *why),
            Phase::Open
            | Phase::Deferred { .. }
            | Phase::Leased(_)
            | Phase::Stopping { .. }
            | Phase::Done(_)
            | Phase::Escalated(_)
            | Phase::Cancelled => return refused(Stale::NoLease),
        };
        self.ended_without(now, place, number, &lease, why);
        Answer::Done
    }

    fn ended_without(
        &mut self,
        now: Timestamp,
        place: usize,
        task: TaskNo,
        lease: &Lease,
        reason: Interruption,
    ) {
        let report = StageReport {
            run: self.id.clone(),
            task,
            stage: self.tasks[place].stage,
            attempt: self.tasks[place].attempt,
            token: lease.token,
            content: None,
            outcome: Outcome::Interrupted { reason, retry_at: None },
            // Nobody knows what it spent.
            cost: Cost::AtLeast(Usd::ZERO),
            session: None,
            candidate: None,
            merged: None,
            kept: None,
            retry_at: None,
        };
        self.ended(now, place, lease, &report);
    }

    /// Only what nobody renews, or what is being stopped anyway, can be taken back.
    pub(super) fn superseded(
        &mut self,
        now: Timestamp,
        task: Option<&TaskId>,
        number: TaskNo,
        token: FencingToken,
    ) -> Answer {
        let place = task.and_then(|task| self.place(task));
        let Some(place) = place else { return refused(Stale::UnknownTask) };
        let (lease, why) = match &self.tasks[place].phase {
            Phase::Leased(lease) => (lease.clone(), None),
            Phase::Stopping { lease, why } => (lease.clone(), Some(*why)),
            Phase::Open
            | Phase::Deferred { .. }
            | Phase::Done(_)
            | Phase::Escalated(_)
            | Phase::Cancelled => return refused(Stale::NoLease),
        };
        if lease.token != token {
            return refused(Stale::OtherToken { current: lease.token });
        }
        if why.is_none() && !self.held.contains(&lease.owner) {
            return refused(Stale::Renewed);
        }
        let why = why.unwrap_or(Interruption::Superseded);
        self.ended_without(now, place, number, &lease, why);
        Answer::Done
    }

    pub(super) fn dispatched(
        &mut self,
        task: Option<&TaskId>,
        token: FencingToken,
        content: &BlobHash,
    ) -> Answer {
        let place = task.and_then(|task| self.place(task));
        let Some(place) = place else { return refused(Stale::UnknownTask) };
        match self.live(place, token) {
            Ok(_) => {
                self.tasks[place].content = Some(content.clone());
                Answer::Done
            }
            Err(why) => refused(why),
        }
    }

    /// Leases past their end are being stopped, closed pools open, waits end.
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.stop_leases(now, Interruption::Expired, |lease| lease.hard_stop <= now);
        for pool in self.pools.values_mut() {
            pool.closed_until = pool.closed_until.filter(|until| *until > now);
        }
        // A task that was ready before, and cannot pay for its stage, is handed to a person.
        for place in 0..self.tasks.len() {
            if self.is_overdrawn(place) {
                let task = &mut self.tasks[place];
                (task.under_way, task.holds_scope, task.since) = (false, false, now);
                let (cause, text, kept) = (Cause::BudgetUsed, None, None);
                task.phase = Phase::Escalated(Escalation { cause, text, kept });
            }
        }
        for task in &mut self.tasks {
            if let Phase::Deferred { until, .. } = task.phase
                && until <= now
            {
                task.phase = Phase::Open;
                task.since = now;
            }
        }
    }

    /// Live leases end; they keep permits and scope until nothing of them runs.
    pub(super) fn stop_leases(
        &mut self,
        now: Timestamp,
        why: Interruption,
        which: impl Fn(&Lease) -> bool,
    ) {
        for task in self.tasks.iter_mut().filter(|task| held(task)) {
            if let Phase::Leased(lease) = &task.phase
                && which(lease)
            {
                let lease = lease.clone();
                hear_again(task);
                task.phase = Phase::Stopping { lease, why };
                task.since = now;
            }
        }
    }
}

/// What was refused under a live lease says nothing of what it spent when it ended without a result.
pub(super) fn hear_again(task: &mut TaskRecord) {
    let is_live = matches!(task.phase, Phase::Leased(_));
    if is_live && task.refused == Some(task.last_token) {
        task.refused = Some(FencingToken(task.last_token.0 - 1));
    }
}

/// Notes what was booked for the last lease, which ended without its result.
fn settle(task: &mut TaskRecord, booked: Usd) {
    task.settled = booked;
    if booked == Usd::ZERO && task.refused < Some(task.last_token) {
        note_unheard(task, Unheard { token: task.last_token, booked });
    }
}

fn address(text: &str) -> BlobHash {
    BlobHash::of(head_and_tail(text, TEXT_BYTES_MAX).as_bytes())
}
