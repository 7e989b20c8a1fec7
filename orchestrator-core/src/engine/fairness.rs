//! What is kept for a task that others were granted too often before (P12).

use super::Engine;
use super::index::Class;
use crate::budget::allowance;
use crate::id::TaskNo;
use crate::mutant::{Mutant, is_on};
use crate::record::{PassedOver, RunRecord};
use crate::time::Timestamp;

impl Engine {
    /// Counts a grant against the task that has waited for longest, if it took something from it.
    #[inline]
    pub(super) fn note_passed_over(&mut self, at: Timestamp, granted: u32, had_scope: bool) {
        if let Some(run) = &self.run
            && !(self.index.wide.is_empty() && run.passed_over.is_none())
        {
            let counted = self.passed_over(at, run, granted, had_scope);
            self.change_sums(|run| run.passed_over = counted);
        }
    }

    /// What is counted after a grant. A task that cannot be served is set aside for another one,
    /// with its count.
    #[cold]
    #[inline(never)]
    fn passed_over(
        &self,
        at: Timestamp,
        run: &RunRecord,
        granted: u32,
        had_scope: bool,
    ) -> Option<PassedOver> {
        let known = run.passed_over.iter().flat_map(PassedOver::counted);
        let mut known = known.filter(|(task, _)| self.is_wide_and_ready(*task));
        let (first, second) = (known.next(), known.next());
        let is_served = |known: Option<(TaskNo, u32)>| {
            let class = known.and_then(|(task, _)| self.class(task.0));
            class.is_some_and(|class| self.is_served(at, run, class))
        };
        let (counted, aside) = if is_served(first) {
            (first, second)
        } else if is_served(second) {
            (second, first)
        } else if let Some(other) = self.longest_waiting(at, run) {
            (Some((other, 0)), first)
        } else {
            (first, second)
        };
        counted.map(|(task, times)| {
            let takes = self.takes_from(granted, had_scope, task.0);
            PassedOver { task, times: times.saturating_add(u32::from(takes)), aside }
        })
    }

    fn is_wide_and_ready(&self, task: TaskNo) -> bool {
        let class = self.has(task).then(|| self.class_of(task.0));
        let wide = class.flatten().and_then(|class| self.index.wide.get(&class));
        wide.is_some_and(|wide| wide.contains(&(self.table.hot(task.0).since(), task.0)))
    }

    /// The task that needs several things at once and has waited for longest, of those that can be
    /// served. Of each class only the first is looked at.
    fn longest_waiting(&self, at: Timestamp, run: &RunRecord) -> Option<TaskNo> {
        let firsts = self.index.wide.iter().filter_map(|(class, wide)| {
            let class = &self.index.classes[*class as usize];
            wide.first().filter(|_| self.is_served(at, run, class))
        });
        firsts.min().map(|(_, task)| TaskNo(*task))
    }

    /// Whether others giving back what they hold is all that a task of this class waits for.
    fn is_served(&self, now: Timestamp, run: &RunRecord, class: &Class) -> bool {
        let pays = |budget, spent| allowance(budget, spent, class.cap).is_some();
        let is_served = |(number, permits): &(u32, u32)| {
            self.pools.get(*number).is_some_and(|pool| {
                *permits <= pool.limit
                    && pool.closed_until.is_none_or(|until| until <= now)
                    && pays(pool.bounds.budget, pool.spent)
            })
        };
        class.needs.iter().all(is_served)
            && pays(run.budget, run.spent)
            && !self.is_held_back(run, class)
    }

    /// Whether a grant took permits of a pool, or a part of the scope, that another task needs.
    fn takes_from(&self, granted: u32, had_scope: bool, other: u32) -> bool {
        let (Some(one), Some(two)) = (self.class(granted), self.class(other)) else { return false };
        let shares_pool =
            one.needs.iter().any(|(pool, _)| two.needs.iter().any(|(other, _)| pool == other));
        shares_pool || (!had_scope && self.index.locks.overlap(granted, other))
    }

    /// The task that what it needs is kept for, if there is one that only others keep from it.
    #[cold]
    #[inline(never)]
    pub(super) fn kept_for(&self, now: Timestamp, run: &RunRecord) -> Option<u32> {
        if is_on(Mutant::WideStarves) {
            return None;
        }
        let counted = run.passed_over.iter().flat_map(PassedOver::counted);
        let mut due = counted.filter(|(_, times)| *times >= run.rules.passed_over_max);
        let is_served =
            |class| self.is_served(now, run, class) && self.allowance(run, class).is_some();
        let due = due.find(|(task, _)| {
            self.is_wide_and_ready(*task) && self.class(task.0).is_some_and(is_served)
        });
        due.map(|(task, _)| task.0)
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
