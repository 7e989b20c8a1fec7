//! Budgets, back-pressure, the pilot.

use super::{Given, Model};
use crate::budget::allowance;
use crate::command::{Answer, Command};
use crate::id::PoolName;
use crate::money::Usd;
use crate::plan::{Plan, PlanFault};
use crate::record::{Phase, TaskRecord};
use crate::time::Timestamp;

impl Model {
    /// What holds pools and the run back.
    pub(super) fn hold_back(&mut self, now: Timestamp, command: &Command) -> Given {
        if let Command::ClosePool { pool, until } = command
            && *until > now
        {
            let record = self.pool(pool);
            record.closed_until = record.closed_until.max(Some(*until));
        } else if let Command::OpenPool { pool } = command {
            if let Some(record) = self.pools.get_mut(pool) {
                record.closed_until = None;
            }
        } else if let Command::BoundPool { pool, bounds } = command {
            // A pool that has no budget any more, and gets one again, starts anew.
            let record = self.pool(pool);
            record.bounds = *bounds;
            record.spent = bounds.budget.map_or(Usd::ZERO, |_| record.spent);
        } else if let Command::SetPilot { tasks } = command {
            self.run_mut().pilot = *tasks;
        } else if let Command::LimitPool { pool, limit } = command {
            self.pool(pool).limit = *limit;
        } else if let Command::SetBudget { budget } = command {
            self.run_mut().budget = *budget;
        }
        Ok(Answer::Done)
    }

    /// A budget stays the same unless a person sets it.
    pub(super) fn other_budgets(&self, plan: &Plan) -> Vec<PlanFault> {
        let mut faults = Vec::new();
        let mut hold = |pool: Option<&PoolName>, plan: Option<Usd>, run: Option<Usd>| {
            if let (Some(plan), Some(run)) = (plan, run)
                && plan != run
            {
                faults.push(PlanFault::OtherBudget { pool: pool.cloned(), plan, run });
            }
        };
        hold(None, plan.budget, self.run.as_ref().and_then(|run| run.budget));
        for (pool, bounds) in &plan.pool_bounds {
            let known = self.pools.get(pool).and_then(|known| known.bounds.budget);
            hold(Some(pool), bounds.budget, known);
        }
        faults
    }

    /// P10: the stage's cap, or what is left of the run's budget, of those of all pools that it takes
    /// permits of, and of its own; nothing when one of them does not cover it.
    pub(super) fn reservation(&self, place: usize) -> Option<Usd> {
        let shared = self.shared_reservation(place)?;
        Some(shared.min(self.own_reservation(place)?))
    }

    pub(super) fn shared_reservation(&self, place: usize) -> Option<Usd> {
        let (run, stage) = (self.run.as_ref()?, self.stage(place)?);
        let mut least = allowance(run.budget, run.spent.plus(run.reserved), stage.cap)?;
        for pool in self.pools.values().filter(|pool| self.needs(place, &pool.name) > 0) {
            let gone = pool.spent.plus(self.reserved(&pool.name));
            least = least.min(allowance(pool.bounds.budget, gone, stage.cap)?);
        }
        Some(least)
    }

    pub(super) fn own_reservation(&self, place: usize) -> Option<Usd> {
        let cap = self.stage(place)?.cap;
        allowance(self.specs[place].0.budget, self.tasks[place].spent, cap)
    }

    /// What the leases that hold permits of a pool have set aside.
    fn reserved(&self, pool: &PoolName) -> Usd {
        let of = |place: usize| match &self.tasks[place].phase {
            Phase::Leased(lease) | Phase::Stopping { lease, .. } => lease.reserved,
            Phase::Open
            | Phase::Deferred { .. }
            | Phase::Done(_)
            | Phase::Escalated(_)
            | Phase::Cancelled => Usd::ZERO,
        };
        (0..self.tasks.len()).filter(|place| self.needs(*place, pool) > 0).map(of).sum()
    }

    /// Books what a stage of the task cost to the pools with a budget that it takes permits of.
    pub(super) fn book_to_pools(&mut self, place: usize, stage: u8, cost: Usd) {
        let Some(stage) = self.specs[place].1.stage(stage) else { return };
        let needs = &self.specs[place].0.needs;
        let takes = |pool: &&PoolName| stage.pool == **pool || needs.contains_key(*pool);
        let pools: Vec<PoolName> = self.pools.keys().filter(takes).cloned().collect();
        for pool in pools {
            let record = self.pool(&pool);
            if record.bounds.budget.is_some() {
                record.spent = record.spent.plus(cost);
            }
        }
    }

    /// Whether the task was never begun, and none may be begun as things are.
    pub(super) fn is_held_back(&self, place: usize) -> bool {
        let begun = self.tasks.iter().filter(|task| task.attempt > 0).count();
        let pilot = self.run.as_ref().and_then(|run| run.pilot);
        let is_full = pilot.is_some_and(|tasks| begun >= tasks as usize);
        let is_pressed = self.pools.values().any(|pool| {
            let in_flight = || self.in_flight(&pool.name);
            let max = pool.bounds.in_flight_max;
            self.needs(place, &pool.name) > 0 && max.is_some_and(|max| in_flight() >= max as usize)
        });
        self.tasks[place].attempt == 0 && (is_full || is_pressed)
    }

    /// Whether some ready task waits for nothing but that the pilot is judged.
    pub(super) fn is_pilot_over(&self, ready: &[usize]) -> bool {
        let begun = self.tasks.iter().filter(|task| task.attempt > 0).count();
        let pilot = self.run.as_ref().and_then(|run| run.pilot);
        pilot.is_some_and(|tasks| begun >= tasks as usize)
            && ready.iter().any(|place| self.tasks[*place].attempt == 0)
    }

    /// Tasks that took a permit of the pool for their first stage, and are past it and not finished.
    fn in_flight(&self, pool: &PoolName) -> usize {
        let is_begun_by = |place: &usize| {
            let (spec, pipeline) = &*self.specs[*place];
            let first = pipeline.stage(0).is_some_and(|stage| stage.pool == *pool);
            first || spec.needs.contains_key(pool)
        };
        let is_past = |task: &TaskRecord| {
            task.stage > 0
                && !matches!(task.phase, Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled)
        };
        let places = 0..self.tasks.len();
        places.filter(|place| is_past(&self.tasks[*place]) && is_begun_by(place)).count()
    }

    /// A ready task whose own budget does not cover its stage.
    pub(super) fn is_overdrawn(&self, place: usize) -> bool {
        matches!(self.tasks[place].phase, Phase::Open)
            && self.is_met(place)
            && self.own_reservation(place).is_none()
    }
}
