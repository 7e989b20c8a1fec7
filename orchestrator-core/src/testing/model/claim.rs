//! What a claim may take, and what a run comes to.

use std::cmp::Reverse;
use std::time::Duration;

use super::leases::{held, note_unheard};
use super::{Given, Model};
use crate::command::{Answer, Grant, Refusal};
use crate::id::{OwnerId, PoolName, TaskId, TaskNo};
use crate::lease::Lease;
use crate::money::Usd;
use crate::outcome::Restart;
use crate::pipeline::StageSpec;
use crate::record::{ParkReason, Phase, RunState, TaskRecord, Unheard};
use crate::time::Timestamp;

/// A stage that does not end by itself is ended a minute after its timeout.
const GRACE: Duration = Duration::from_secs(60);

impl Model {
    /// A claim that took something: it must be one of the first that can run.
    pub(super) fn granted(
        &mut self,
        now: Timestamp,
        owner: &OwnerId,
        grant: &Grant,
    ) -> Result<(), String> {
        if self.run_mut().driver.as_ref() != Some(owner) {
            return Err(format!("P1: `{owner}` was granted a stage and does not drive the run"));
        }
        let mut can_run = self.can_run(now);
        // What is kept for a task is granted to it before anything else.
        if let Some(kept_for) = self.kept_for(now).filter(|task| can_run.contains(task)) {
            can_run = vec![kept_for];
        }
        let first = can_run.iter().map(|place| self.order(*place)).max();
        let place = self.place(&grant.task).ok_or("a task was granted that does not exist")?;
        if Some(self.order(place)) != first {
            return Err(format!("`{}` was granted before its turn", grant.task));
        }
        self.take(now, place, &can_run, owner, grant)
    }

    /// A claim of one task: it must be able to run, and need not be the first.
    pub(super) fn granted_alone(
        &mut self,
        now: Timestamp,
        owner: &OwnerId,
        task: &TaskId,
        grant: &Grant,
    ) -> Result<(), String> {
        let place = self.place(task).ok_or("a task was granted that does not exist")?;
        let can_run = self.can_run(now);
        if grant.task != *task || self.run_mut().driver.as_ref() != Some(owner) {
            return Err(format!(
                "`{}` was granted to `{owner}`, who asked for `{task}`",
                grant.task
            ));
        }
        self.take(now, place, &can_run, owner, grant)
    }

    fn take(
        &mut self,
        now: Timestamp,
        place: usize,
        can_run: &[usize],
        owner: &OwnerId,
        grant: &Grant,
    ) -> Result<(), String> {
        if !can_run.contains(&place) {
            return Err(format!("`{}` was granted and cannot run", grant.task));
        }
        let expected = self.grant(place, grant.number);
        if expected != *grant {
            return Err(format!("{grant:?} was granted, expected {expected:?}"));
        }
        self.lease(now, place, owner, grant);
        Ok(())
    }

    /// A claim that took nothing: nothing of what it asked for can run.
    pub(super) fn nothing(
        &mut self,
        now: Timestamp,
        owner: &OwnerId,
        asked: impl Fn(usize) -> bool,
    ) -> Given {
        if self.run_mut().driver.as_ref() != Some(owner) {
            return Err(Refusal::NotDriver(owner.clone()));
        }
        match self.can_run(now).iter().find(|place| asked(**place)) {
            Some(place) => {
                let grant = self.grant(*place, TaskNo(u32::MAX));
                let (task, token) = (grant.number, grant.token);
                let (stage, attempt) = (grant.stage, grant.attempt);
                Ok(Answer::Granted { task, stage, attempt, token })
            }
            None => Ok(Answer::Nothing),
        }
    }

    fn grant(&self, place: usize, number: TaskNo) -> Grant {
        let task = &self.tasks[place];
        let run = self.run.as_ref().expect("a grant is of a run");
        let attempt = if task.under_way { task.attempt } else { task.attempt + 1 };
        let has_candidate = task.candidate.is_some();
        Grant {
            number,
            task: task.id.clone(),
            stage: task.stage,
            attempt,
            dispatch: task.dispatches + 1,
            token: crate::id::FencingToken(run.last_token.0 + 1),
            cap: self.reservation(place).unwrap_or_default(),
            feedback: task.feedback.clone(),
            restart: if has_candidate { task.restart } else { Restart::OnTarget },
            workspace: task.workspace.filter(|_| task.under_way),
            session: task.session.clone(),
            candidate: task.candidate.clone(),
            intent: task.intent.clone(),
        }
    }

    fn lease(&mut self, now: Timestamp, place: usize, owner: &OwnerId, grant: &Grant) {
        let timeout = self.stage(place).map(|stage| stage.timeout).unwrap_or_default();
        let lease = Lease {
            token: grant.token,
            owner: owner.clone(),
            granted_at: now,
            hard_stop: now.after(timeout).after(GRACE),
            reserved: grant.cap,
        };
        let has_scope = self.specs[place].0.scope.is_some();
        let had_scope = self.tasks[place].holds_scope;
        let task = &mut self.tasks[place];
        task.attempt = grant.attempt;
        // Only what the same attempt left can be gone on with.
        task.workspace = task.workspace.filter(|_| task.under_way);
        task.under_way = true;
        task.dispatches += 1;
        task.holds_scope = has_scope;
        let last = std::mem::replace(&mut task.last_token, grant.token);
        if task.settled > Usd::ZERO && task.refused < Some(last) {
            let booked = task.settled;
            note_unheard(task, Unheard { token: last, booked });
        }
        task.settled = Usd::ZERO;
        task.content = None;
        task.phase = Phase::Leased(lease);
        task.since = now;
        let run = self.run_mut();
        run.last_token = grant.token;
        run.reserved = run.reserved.plus(grant.cap);
        run.last_at = now;
        self.note_passed_over(now, place, had_scope);
    }

    /// Later stages first, then priority, then what the policy says, then age in steps of 1,024 ms.
    fn order(&self, place: usize) -> (u8, i32, u64, Reverse<u64>) {
        let rank = self.ranks.get(place).copied().unwrap_or(0);
        let TaskRecord { stage, since, .. } = &self.tasks[place];
        (*stage, self.specs[place].0.priority, rank, Reverse(since.0 / 1_024))
    }

    /// The tasks that a claim may take.
    pub(super) fn can_run(&self, now: Timestamp) -> Vec<usize> {
        let is_active = self.run.as_ref().is_some_and(|run| run.state == RunState::Active);
        let places = (0..self.tasks.len()).filter(|_| is_active);
        places.filter(|place| self.is_due(*place, now) && self.fits(*place, now)).collect()
    }

    fn is_due(&self, place: usize, now: Timestamp) -> bool {
        match self.tasks[place].phase {
            Phase::Open => true,
            Phase::Deferred { until, .. } => until <= now,
            Phase::Leased(_)
            | Phase::Stopping { .. }
            | Phase::Done(_)
            | Phase::Escalated(_)
            | Phase::Cancelled => false,
        }
    }

    /// Dependencies, permits, scope and budget.
    fn fits(&self, place: usize, now: Timestamp) -> bool {
        let has_permits = |pool: &PoolName| {
            let needs = self.needs(place, pool);
            let record = &self.pools[pool];
            let is_open = record.closed_until.is_none_or(|until| until <= now);
            needs == 0 || (is_open && self.in_use(pool) + needs <= u64::from(record.limit))
        };
        let task = &self.tasks[place];
        self.is_met(place)
            && self.pools.keys().all(has_permits)
            && (task.holds_scope || !self.is_scope_held(place))
            && self.reservation(place).is_some()
            && !self.is_held_back(place)
            && self.kept_for(now).is_none_or(|other| !self.is_kept_from(place, other))
    }

    pub(super) fn is_met(&self, place: usize) -> bool {
        self.specs[place].0.depends_on.iter().all(|from| {
            self.place(from).is_some_and(|at| matches!(self.tasks[at].phase, Phase::Done(_)))
        })
    }

    pub(super) fn is_scope_held(&self, place: usize) -> bool {
        let Some(scope) = &self.specs[place].0.scope else { return false };
        let mut others = self.tasks.iter().zip(&self.specs).enumerate();
        others.any(|(other, (task, entry))| {
            let overlaps = entry.0.scope.as_ref().is_some_and(|theirs| theirs.overlaps(scope));
            other != place && task.holds_scope && overlaps
        })
    }

    pub(super) fn stage(&self, place: usize) -> Option<&StageSpec> {
        self.specs[place].1.stage(self.tasks[place].stage)
    }

    /// One permit of its stage's pool, unless the task says how many, and what else it needs.
    pub(super) fn needs(&self, place: usize, pool: &PoolName) -> u64 {
        let own = self.stage(place).is_some_and(|stage| stage.pool == *pool);
        let said = self.specs[place].0.needs.get(pool);
        said.map_or_else(|| u64::from(own), |permits| u64::from(permits.get()))
    }

    /// P8: the permits of all leases, and of no one else.
    pub(super) fn in_use(&self, pool: &PoolName) -> u64 {
        let held = (0..self.tasks.len()).filter(|place| held(&self.tasks[*place]));
        held.map(|place| self.needs(place, pool)).sum()
    }

    /// P7: whether something that it depends on, directly or not, is escalated or cancelled, with
    /// nothing done in between.
    pub(super) fn is_blocked(&self, task: &TaskRecord) -> bool {
        let is_settled =
            matches!(task.phase, Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled);
        !is_settled && self.place(&task.id).is_some_and(|place| self.has_dead_end(place))
    }

    fn has_dead_end(&self, place: usize) -> bool {
        let dead = |from: &TaskId| {
            self.place(from).is_some_and(|at| match self.tasks[at].phase {
                Phase::Done(_) => false,
                Phase::Escalated(_) | Phase::Cancelled => true,
                Phase::Open
                | Phase::Deferred { .. }
                | Phase::Leased(_)
                | Phase::Stopping { .. } => self.has_dead_end(at),
            })
        };
        self.specs[place].0.depends_on.iter().any(dead)
    }

    /// P15: says that the run is over, parked or failed, when nothing more happens by itself.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if self.tasks.iter().any(held) {
            return;
        }
        let counts = self.counts();
        let state = self.run_mut().state.clone();
        let next = match state {
            RunState::Draining { reason } => RunState::Parked { reason },
            RunState::Active if counts.open + counts.deferred == 0 => {
                if counts.escalated == 0 {
                    RunState::Completed
                } else {
                    RunState::Failed
                }
            }
            RunState::Active => match self.nothing_moves(now) {
                Some(next) => next,
                None => return,
            },
            RunState::Paused { .. }
            | RunState::Parked { .. }
            | RunState::Completed
            | RunState::Failed => return,
        };
        self.run_mut().state = next;
    }

    /// What an active run without leases is, if neither a claim nor time can do anything.
    fn nothing_moves(&self, now: Timestamp) -> Option<RunState> {
        let places = 0..self.tasks.len();
        let waits = |task: &TaskRecord| matches!(task.phase, Phase::Deferred { .. });
        let is_overdrawn = |place: usize| self.is_overdrawn(place);
        if !self.can_run(now).is_empty()
            || self.tasks.iter().any(waits)
            || places.clone().any(is_overdrawn)
        {
            return None;
        }
        let is_open = |place: &usize| matches!(self.tasks[*place].phase, Phase::Open);
        let ready: Vec<usize> =
            places.filter(|place| is_open(place) && self.is_met(*place)).collect();
        let closed = |place: &usize| {
            self.pools.values().any(|pool| {
                self.needs(*place, &pool.name) > 0
                    && pool.closed_until.is_some_and(|until| until > now)
            })
        };
        if ready.is_empty() {
            Some(RunState::Failed)
        } else if ready.iter().any(closed) {
            None
        } else if ready.iter().any(|place| self.shared_reservation(*place).is_none()) {
            Some(RunState::Parked { reason: ParkReason::Budget })
        } else if self.is_pilot_over(&ready) {
            Some(RunState::Parked { reason: ParkReason::Pilot })
        } else {
            // Stalled is computed, not a state.
            None
        }
    }
}
