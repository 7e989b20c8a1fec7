//! What is kept for a task that others were granted too often before (P12).

use super::Engine;
use super::index::Class;
use crate::id::TaskNo;
use crate::mutant::{Mutant, is_on};
use crate::record::{PassedOver, RunRecord};
use crate::time::Timestamp;

/// Tasks that are looked at for one that can be served at all.
const LOOKED_AT_MAX: usize = 16;

impl Engine {
    /// Counts a grant against the task that has waited for longest, if it took something from it.
    #[inline]
    pub(super) fn note_passed_over(&mut self, granted: u32, had_scope: bool) {
        if let Some(run) = &self.run
            && !(self.index.wide.is_empty() && run.passed_over.is_none())
        {
            self.count_passed_over(granted, had_scope);
        }
    }

    fn count_passed_over(&mut self, granted: u32, had_scope: bool) {
        let Some(run) = &self.run else { return };
        let mut counted = run.passed_over.filter(|counted| self.is_wide_and_ready(counted.task));
        if counted.is_none() {
            let mut waiting = self.index.wide.iter().take(LOOKED_AT_MAX).map(|(_, task)| *task);
            let first = waiting.find(|task| self.fits_limits(*task)).map(TaskNo);
            counted = first.map(|task| PassedOver { task, times: 0 });
        }
        if let Some(counted) = &mut counted
            && self.takes_from(granted, had_scope, counted.task.0)
        {
            counted.times = counted.times.saturating_add(1);
        }
        self.change_sums(|run| run.passed_over = counted);
    }

    fn is_wide_and_ready(&self, task: TaskNo) -> bool {
        self.has(task) && self.index.wide.contains(&(self.table.hot(task.0).since(), task.0))
    }

    /// Whether no pool is too small for the task.
    fn fits_limits(&self, task: u32) -> bool {
        self.class(task).is_some_and(|class| {
            class.needs.iter().all(|(pool, permits)| {
                self.pools.get(*pool).is_some_and(|pool| *permits <= pool.limit)
            })
        })
    }

    /// Whether a grant took permits of a pool, or a part of the scope, that another task needs.
    fn takes_from(&self, granted: u32, had_scope: bool, other: u32) -> bool {
        let (Some(one), Some(two)) = (self.class(granted), self.class(other)) else { return false };
        let shares_pool =
            one.needs.iter().any(|(pool, _)| two.needs.iter().any(|(other, _)| pool == other));
        shares_pool || (!had_scope && self.index.locks.overlap(granted, other))
    }

    /// The task that what it needs is kept for, if there is one that only others keep from it.
    #[inline(never)]
    pub(super) fn kept_for(&self, now: Timestamp, run: &RunRecord) -> Option<u32> {
        let counted =
            run.passed_over.filter(|counted| counted.times >= run.rules.passed_over_max)?;
        if is_on(Mutant::WideStarves) {
            return None;
        }
        let task = counted.task.0;
        let is_open = |class: &Class| {
            class.needs.iter().all(|(pool, _)| {
                let closed = self.pools.get(*pool).and_then(|pool| pool.closed_until);
                closed.is_none_or(|until| until <= now)
            })
        };
        let can_be_served = self.is_wide_and_ready(counted.task)
            && self.fits_limits(task)
            && self.class(task).is_some_and(|class| {
                is_open(class)
                    && !self.is_held_back(run, class)
                    && self.allowance(run, class).is_some()
            });
        can_be_served.then_some(task)
    }

    /// Whether a grant of a task of this class would take what is kept for another.
    ///
    /// As long as that one waits for its scope, permits are not kept for it: those who hold the
    /// scope need them to get done.
    pub(super) fn is_kept_from(&self, number: u32, class: &Class, kept_for: u32) -> bool {
        if number == kept_for {
            return false;
        }
        let holds_scope = self.table.hot(number).holds_scope();
        if !holds_scope && self.index.locks.overlap(number, kept_for) {
            return true;
        }
        self.has_scope(kept_for) && self.takes_permits(class, kept_for)
    }

    /// Whether with a stage of this class under way a pool would have too few permits for the task.
    pub(super) fn takes_permits(&self, class: &Class, task: u32) -> bool {
        let Some(wanted) = self.class(task) else { return false };
        class.needs.iter().any(|(pool, permits)| {
            let wants = wanted.needs.iter().find(|(other, _)| other == pool);
            let limit = self.pools.get(*pool).map_or(0, |pool| pool.limit);
            wants.is_some_and(|(_, wants)| {
                let sum = self.index.in_use(*pool).saturating_add(*permits).saturating_add(*wants);
                sum > limit
            })
        })
    }
}
