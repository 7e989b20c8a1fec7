//! What the stages of tasks may spend, and what is held back: budgets, back-pressure, the pilot.

use super::Engine;
use super::draft::Draft;
use super::index::Class;
use crate::budget::allowance;
use crate::command::Command;
use crate::event::EventKind;
use crate::id::{PoolName, TaskNo};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::record::{PoolBounds, RunRecord};

impl Engine {
    /// Decides what holds the run and its pools back; what is so already is no event.
    pub(super) fn decide_bounds(&self, draft: &mut Draft, run: &RunRecord, command: &Command) {
        let known = |pool: &PoolName| self.pools.by_name(pool);
        if let Command::LimitPool { pool, limit } = command {
            if known(pool).is_none_or(|known| known.limit != *limit) {
                draft.push(EventKind::PoolLimited { pool: pool.clone(), limit: *limit });
            }
        } else if let Command::ClosePool { pool, until } = command {
            let closed = known(pool).and_then(|known| known.closed_until);
            if *until > draft.now && closed < Some(*until) {
                draft.push(EventKind::PoolClosed { pool: pool.clone(), until: *until });
            }
        } else if let Command::OpenPool { pool } = command {
            if known(pool).is_some_and(|known| known.closed_until.is_some()) {
                draft.push(EventKind::PoolOpened { pool: pool.clone() });
            }
        } else if let Command::BoundPool { pool, bounds } = command {
            if known(pool).is_none_or(|known| known.bounds != *bounds) {
                draft.push(EventKind::PoolBounded { pool: pool.clone(), bounds: *bounds });
            }
        } else if let Command::SetPilot { tasks } = command {
            if run.pilot != *tasks {
                draft.push(EventKind::PilotSet { tasks: *tasks });
            }
        } else if let Command::SetBudget { budget } = command
            && run.budget != *budget
        {
            draft.push(EventKind::BudgetSet { budget: *budget });
        }
    }

    /// What the budgets of the run and of pools leave for a stage of this class; `None` when one of
    /// them does not cover it.
    #[inline]
    pub(super) fn allowance(&self, run: &RunRecord, class: &Class) -> Option<Usd> {
        if self.index.has_budgets { self.allowed(run, class) } else { Some(class.cap) }
    }

    #[cold]
    #[inline(never)]
    fn allowed(&self, run: &RunRecord, class: &Class) -> Option<Usd> {
        let unseen = is_on(Mutant::BudgetForgetsReservations);
        let reserved = if unseen { Usd::ZERO } else { run.reserved };
        let mut least = allowance(run.budget, run.spent.plus(reserved), class.cap)?;
        for (pool, _) in &class.needs {
            least = least.min(self.allowance_of(*pool, class.cap)?);
        }
        Some(least)
    }

    /// What a pool's budget leaves for a stage with this cap.
    pub(super) fn allowance_of(&self, pool: u32, cap: Usd) -> Option<Usd> {
        let record = self.pools.get(pool)?;
        let gone = record.spent.plus(self.index.used(pool).reserved);
        allowance(record.bounds.budget, gone, cap)
    }

    /// What is set aside for the stage of a task of this class.
    #[inline]
    pub(super) fn reservation(&self, run: &RunRecord, class: &Class, number: u32) -> Option<Usd> {
        // What costs nothing needs no money.
        if class.cap == Usd::ZERO {
            return Some(Usd::ZERO);
        }
        let shared = self.allowance(run, class)?;
        let spent = self.table.hot(number).spent();
        Some(shared.min(allowance(self.specs.budget(number), spent, class.cap)?))
    }

    /// Whether nothing of this class may be begun as things are: more is under way than is finished, or the
    /// pilot is.
    pub(super) fn is_held_back(&self, run: &RunRecord, class: &Class) -> bool {
        let is_pressed = || class.needs.iter().any(|(pool, _)| self.pressed(*pool).is_some());
        class.is_fresh && (self.is_pilot_full(run) || is_pressed())
    }

    /// Whether as many tasks were begun as the pilot has.
    pub(super) fn is_pilot_full(&self, run: &RunRecord) -> bool {
        run.pilot.is_some_and(|tasks| self.index.begun >= tasks) && !is_on(Mutant::PilotNeverEnds)
    }

    /// How many tasks that a pool began are in flight, and how many may be, where that is enough for it
    /// to begin no more.
    pub(super) fn pressed(&self, pool: u32) -> Option<(u32, u32)> {
        let max = self.pools.get(pool)?.bounds.in_flight_max?;
        let in_flight = self.index.used(pool).in_flight;
        (in_flight >= max).then_some((in_flight, max))
    }

    /// Gives a pool these bounds. One that has no budget any more, and gets one again, starts anew.
    pub(super) fn bound_pool(&mut self, pool: &PoolName, bounds: PoolBounds) {
        self.change_pool(pool, |record| {
            record.bounds = bounds;
            if bounds.budget.is_none() {
                record.spent = Usd::ZERO;
            }
        });
    }

    /// Books what a stage of a task cost to the pools that it took permits of.
    #[inline]
    pub(super) fn book_to_pools(&mut self, task: TaskNo, stage: u8, cost: Usd) {
        if cost > Usd::ZERO && !is_on(Mutant::PoolSpendUnbooked) {
            self.book(task, stage, cost);
        }
    }

    #[cold]
    #[inline(never)]
    fn book(&mut self, task: TaskNo, stage: u8, cost: Usd) {
        if !self.has(task) {
            return;
        }
        let classes = &self.profile(task.0).classes;
        let class = classes.get(usize::from(stage)).map(|class| *class as usize);
        let Some(class) = class.and_then(|class| self.index.classes.get(class)) else { return };
        let has_budget =
            |pool: &u32| self.pools.get(*pool).is_some_and(|record| record.bounds.budget.is_some());
        let pools = class.needs.iter().map(|(pool, _)| *pool).filter(has_budget);
        let pools: Vec<_> = pools.map(|pool| self.pools.name(pool).clone()).collect();
        for pool in pools {
            self.change_pool(&pool, |record| record.spent = record.spent.plus(cost));
        }
    }
}
