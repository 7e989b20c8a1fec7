//! P12: what is kept for a task that others were granted too often before.

use super::Model;
use crate::budget::allowance;
use crate::id::PoolName;
use crate::money::Usd;
use crate::record::{PassedOver, Phase, PoolRecord};
use crate::time::Timestamp;

impl Model {
    /// The tasks that are ready and need several things at once, those longest in their phase first.
    fn wide(&self) -> Vec<usize> {
        let is_open = |place: &usize| matches!(self.tasks[*place].phase, Phase::Open);
        let is_wide = |place: &usize| {
            (self.needs_much(*place) || self.has_parts(*place)) && !self.is_overdrawn(*place)
        };
        let mut wide: Vec<usize> = (0..self.tasks.len())
            .filter(|place| is_open(place) && self.is_met(*place) && is_wide(place))
            .collect();
        wide.sort_by_key(|place| (self.tasks[*place].since, self.numbers[*place]));
        wide
    }

    fn needs_much(&self, place: usize) -> bool {
        let needs = self.pools.keys().map(|pool| self.needs(place, pool));
        let needed: Vec<u64> = needs.filter(|permits| *permits > 0).collect();
        needed.len() > 1 || needed.iter().any(|permits| *permits > 1)
    }

    /// Whether it wants a scope of several paths, or one with paths of other scopes below it.
    fn has_parts(&self, place: usize) -> bool {
        let Some(scope) = &self.specs[place].0.scope else { return false };
        let of_all = || self.specs.iter().filter_map(|entry| entry.0.scope.as_ref());
        let is_below = |ours: &[String], theirs: &[String]| {
            theirs.len() > ours.len() && theirs.starts_with(ours)
        };
        let has_below = |ours: &[String]| {
            of_all().any(|theirs| theirs.prefixes().any(|theirs| is_below(ours, theirs)))
        };
        !self.tasks[place].holds_scope
            && (scope.prefixes().count() > 1 || scope.prefixes().any(has_below))
    }

    /// After a grant: counts it against the task that waits for longest, of those that can be
    /// served. One that cannot is set aside for another, with its count.
    pub(super) fn note_passed_over(&mut self, now: Timestamp, granted: usize, had_scope: bool) {
        let wide = self.wide();
        let mut known = self.counted();
        known.retain(|(place, _)| wide.contains(place));
        match known.iter().position(|(place, _)| self.is_served(*place, now)) {
            Some(at) => known.swap(0, at),
            None => {
                let other = wide.iter().find(|place| self.is_served(**place, now));
                known.splice(0..0, other.map(|place| (*place, 0)));
            }
        }
        if let Some((place, times)) = known.first_mut() {
            *times += u32::from(self.takes_from(granted, had_scope, *place));
        }
        let mut known = known.iter().map(|(place, times)| (self.numbers[*place], *times));
        let first = known.next();
        let counted = first.map(|(task, times)| PassedOver { task, times, aside: known.next() });
        self.run_mut().passed_over = counted;
    }

    /// The tasks that were counted, by their places, each with how often it was passed over.
    fn counted(&self) -> Vec<(usize, u32)> {
        let place = |task| self.numbers.iter().position(|number| *number == task);
        let known = self.run.as_ref().and_then(|run| run.passed_over);
        let known = known.iter().flat_map(PassedOver::counted);
        known.filter_map(|(task, times)| Some((place(task)?, times))).collect()
    }

    /// Whether the task can be served once others give back what they hold.
    fn is_served(&self, place: usize, now: Timestamp) -> bool {
        let cap = self.stage(place).map_or(Usd::ZERO, |stage| stage.cap);
        let pays = |budget, spent| allowance(budget, spent, cap).is_some();
        let of_pool = |pool: &PoolRecord| {
            let needs = self.needs(place, &pool.name);
            let is_open = pool.closed_until.is_none_or(|until| until <= now);
            let is_enough = needs <= u64::from(pool.limit);
            needs == 0 || (is_enough && is_open && pays(pool.bounds.budget, pool.spent))
        };
        self.pools.values().all(of_pool)
            && self.run.as_ref().is_some_and(|run| pays(run.budget, run.spent))
            && !self.is_held_back(place)
    }

    fn takes_from(&self, granted: usize, had_scope: bool, other: usize) -> bool {
        let both_need =
            |pool: &PoolName| self.needs(granted, pool) > 0 && self.needs(other, pool) > 0;
        self.pools.keys().any(both_need) || (!had_scope && self.overlap(granted, other))
    }

    fn overlap(&self, one: usize, other: usize) -> bool {
        let scope = |place: usize| self.specs[place].0.scope.as_ref();
        scope(one).zip(scope(other)).is_some_and(|(one, other)| one.overlaps(other))
    }

    /// The task that what it needs is kept for.
    pub(super) fn kept_for(&self, now: Timestamp) -> Option<usize> {
        let max = self.run.as_ref()?.rules.passed_over_max;
        let wide = self.wide();
        let due = self.counted().into_iter().find(|(place, times)| {
            *times >= max
                && wide.contains(place)
                && self.is_served(*place, now)
                && self.reservation(*place).is_some()
        });
        due.map(|(place, _)| place)
    }

    /// Whether the task must leave what it needs to another.
    pub(super) fn is_kept_from(&self, place: usize, other: usize) -> bool {
        if place == other {
            return false;
        }
        if !self.tasks[place].holds_scope && self.overlap(place, other) {
            return true;
        }
        let too_few = |pool: &PoolName| {
            let (ours, theirs) = (self.needs(place, pool), self.needs(other, pool));
            let sum = self.in_use(pool) + ours + theirs;
            ours > 0 && theirs > 0 && sum > u64::from(self.pools[pool].limit)
        };
        let has_scope = self.tasks[other].holds_scope || !self.is_scope_held(other);
        has_scope && self.pools.keys().any(too_few)
    }
}
