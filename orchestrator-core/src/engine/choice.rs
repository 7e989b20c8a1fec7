//! Whose turn it is: of the tasks that are ready, and whose stage fits, the first.

use std::cmp::Reverse;

use super::Engine;
use super::index::{Class, InTurn, key_of};
use super::kind::Kind;
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::record::{RunRecord, RunState};
use crate::time::Timestamp;

/// The order of what is ready in different classes: later stages, then the key, then the task's
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    stage: Reverse<u8>,
    key: u64,
    task: u32,
}

#[inline(always)]
const fn turn(stage: u8, (key, task): (u64, u32)) -> Turn {
    Turn { stage: Reverse(stage), key, task }
}

/// The task whose turn it is, and its class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) task: u32,
    pub(super) class: u32,
}

impl Engine {
    /// The stage that a claim would be given: the first in order that fits.
    ///
    /// What does not fit is passed over, so that nothing waits behind it. Tasks whose wait is over
    /// count, whether or not a tick has said so.
    #[inline(always)]
    pub(super) fn next_grant(&self, now: Timestamp, run: &RunRecord) -> Option<Next> {
        let goes_on =
            is_on(Mutant::PausedRunGrants) && matches!(run.state, RunState::Paused { .. });
        if run.state != RunState::Active && !goes_on {
            return None;
        }
        match run.passed_over.and_then(|_| self.kept_for(now, run)) {
            Some(other) => self.first_beside(now, run, other),
            None => self.first_of_all(now, run),
        }
    }

    /// The first task that fits, as long as nothing is kept for another one.
    #[inline(always)]
    fn first_of_all(&self, now: Timestamp, run: &RunRecord) -> Option<Next> {
        let mut first = None;
        for (place, turn) in self.index.in_turn.iter().enumerate() {
            if turn.ready == 0 {
                continue;
            }
            let class = &self.index.classes[turn.class as usize];
            if self.has_capacity(now, run, class) {
                if let Some(task) = self.first_with_scope(turn.class, class) {
                    first = Some(Next { task: task.1, class: turn.class });
                    if let Some(other) = self.earlier_of_stage(now, run, place, task) {
                        first = self.next(other);
                    }
                    break;
                }
            } else if is_on(Mutant::FirstThatDoesNotFitStopsAll) {
                return None;
            }
        }
        if !self.index.timers.is_empty() {
            first = self.or_due(now, run, first, None);
        }
        first
    }

    /// What comes before a task of the class of this place, and fits, of the classes that follow at the
    /// same stage.
    #[inline(always)]
    fn earlier_of_stage(
        &self,
        now: Timestamp,
        run: &RunRecord,
        place: usize,
        task: (u64, u32),
    ) -> Option<u32> {
        let in_turn = &self.index.in_turn;
        let (own, following) =
            (in_turn[place].stage, in_turn.get(place + 1).map(|turn| turn.stage));
        if following.is_none_or(|following| following < own) && !is_on(Mutant::NewestFirst) {
            return None;
        }
        self.first_from(now, run, place + 1, own, task)
    }

    /// The first task that comes before this one, and fits, of the classes of its stage from a place on.
    #[inline(never)]
    fn first_from(
        &self,
        now: Timestamp,
        run: &RunRecord,
        place: usize,
        stage: u8,
        task: (u64, u32),
    ) -> Option<u32> {
        let before = turn(stage, task);
        let mut first = before;
        for InTurn { class: number, ready, stage: at } in self.index.in_turn.iter().skip(place) {
            if *at < stage && !is_on(Mutant::NewestFirst) {
                break;
            }
            let class = &self.index.classes[*number as usize];
            if *ready > 0 && self.has_capacity(now, run, class) {
                let task = self.first_with_scope(*number, class);
                let turn = task.map(|task| turn(*at, task));
                first = earlier(Some(first), turn).unwrap_or(first);
            }
        }
        (first != before).then_some(first.task)
    }

    /// The first task that fits and leaves what is kept for another one, or that one itself.
    #[inline(never)]
    #[cold]
    fn first_beside(&self, now: Timestamp, run: &RunRecord, other: u32) -> Option<Next> {
        if self.could_run(now, run, other) {
            return self.next(other);
        }
        let mut first: Option<Turn> = None;
        for (number, class) in (0_u32..).zip(&self.index.classes) {
            if self.has_capacity(now, run, class) {
                let task = self.first_of(number, class, other);
                first = earlier(first, task.map(|task| turn(class.stage, task)));
            } else if is_on(Mutant::FirstThatDoesNotFitStopsAll) && !class.ready.is_empty() {
                return None;
            }
        }
        let first = first.and_then(|first| self.next(first.task));
        self.or_due(now, run, first, Some(other))
    }

    /// This, or a task whose wait is over, where that comes before it.
    #[cold]
    #[inline(never)]
    fn or_due(
        &self,
        now: Timestamp,
        run: &RunRecord,
        first: Option<Next>,
        kept_for: Option<u32>,
    ) -> Option<Next> {
        let first = first.and_then(|first| self.turn_of(first.task));
        let due = self.due(now).map(|number| self.due_turn(now, run, number, kept_for));
        due.fold(first, earlier).and_then(|first| self.next(first.task))
    }

    /// The stage of this task, if it can run now.
    pub(super) fn grant_of(&self, now: Timestamp, run: &RunRecord, task: u32) -> Option<Next> {
        let hot = self.table.hot(task);
        let waits = self.table.view(task).detail().deferred.is_some_and(|(until, _)| until > now);
        let is_open = matches!(hot.kind(), Kind::Open | Kind::Deferred) && !waits;
        if run.state != RunState::Active || !is_open {
            return None;
        }
        let kept_for = self.kept_for(now, run);
        self.due_turn(now, run, task, kept_for.filter(|other| *other != task))?;
        self.next(task)
    }

    fn next(&self, task: u32) -> Option<Next> {
        let class = self.class_of(task)?;
        Some(Next { task, class })
    }

    /// The first task of a class that nothing keeps from its scope.
    #[inline(always)]
    fn first_with_scope(&self, number: u32, class: &Class) -> Option<(u64, u32)> {
        let free = self.index.locks.is_empty();
        if free { class.ready.first() } else { self.first_unlocked(number, class) }
    }

    #[cold]
    #[inline(never)]
    fn first_unlocked(&self, number: u32, class: &Class) -> Option<(u64, u32)> {
        let first = class.ready.first().filter(|(_, task)| self.has_scope(*task));
        first.or_else(|| self.first_that(number, class, |task| self.has_scope(task)))
    }

    /// The first task of a class, parked or not, that is as asked for: one that stands for others may
    /// be kept waiting where those behind it are not.
    fn first_that(
        &self,
        number: u32,
        class: &Class,
        fits: impl Fn(u32) -> bool,
    ) -> Option<(u64, u32)> {
        if self.index.locks.is_empty() {
            return class.ready.first_that(fits);
        }
        let queues = self.index.locks.parked(number).chain([&class.ready]);
        queues.filter_map(|queue| queue.first_that(&fits)).min()
    }

    /// The first task of a class that nothing keeps from its scope, and that leaves what is kept for
    /// another one.
    fn first_of(&self, number: u32, class: &Class, other: u32) -> Option<(u64, u32)> {
        if self.has_scope(other) && self.takes_permits(class, other) {
            // None fits, but perhaps that one, which comes first of all then.
            return None;
        }
        let fits = |task: u32| self.has_scope(task) && !self.is_kept_from(task, class, other);
        self.first_that(number, class, fits)
    }

    /// Whether the task is ready and has all that it needs.
    fn could_run(&self, now: Timestamp, run: &RunRecord, number: u32) -> bool {
        let fits = |class| self.has_capacity(now, run, class) && self.has_scope(number);
        self.table.is_ready(number) && self.class(number).is_some_and(fits)
    }

    /// Moves aside what something keeps from its scope, so that no claim looks at it again before
    /// that is gone. This changes nothing that is decided.
    #[cold]
    #[inline(never)]
    pub(super) fn park(&mut self, now: Timestamp) {
        let Some(run) = &self.run else { return };
        if run.state != RunState::Active {
            return;
        }
        for number in 0..self.index.classes.len() {
            let class = &self.index.classes[number];
            if class.ready.is_empty() || !self.has_capacity(now, run, class) {
                continue;
            }
            while let Some((_, task)) = self.index.classes[number].ready.first()
                && !self.table.hot(task).holds_scope()
                && let Some(list) = self.index.locks.obstacle(task)
            {
                let class = u32::try_from(number).unwrap_or(u32::MAX);
                self.index.park_first(&mut self.table.places, class, list);
            }
        }
    }

    /// Deferred tasks whose wait is over.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = u32> {
        self.index.timers.range(..=(now, u32::MAX)).map(|(_, number)| *number)
    }

    fn due_turn(
        &self,
        now: Timestamp,
        run: &RunRecord,
        number: u32,
        kept_for: Option<u32>,
    ) -> Option<Turn> {
        let class = self.class(number)?;
        let is_affordable = || self.reservation(run, class, number).is_some();
        let fits = self.table.unmet(number) == 0
            && is_affordable()
            && self.has_capacity(now, run, class)
            && self.has_scope(number)
            && kept_for.is_none_or(|other| !self.is_kept_from(number, class, other));
        if fits { self.turn_of(number) } else { None }
    }

    fn turn_of(&self, number: u32) -> Option<Turn> {
        let class = self.class(number)?;
        Some(turn(class.stage, (key_of(self.table.hot(number)), number)))
    }

    #[inline]
    pub(super) fn class(&self, number: u32) -> Option<&Class> {
        let class = self.class_of(number)?;
        self.index.classes.get(class as usize)
    }

    /// Whether every pool has the permits, and is open, the budgets cover the stage, and it is not
    /// held back.
    #[inline(always)]
    fn has_capacity(&self, now: Timestamp, run: &RunRecord, class: &Class) -> bool {
        for (number, permits) in &class.needs {
            let Some(pool) = self.pools.get(*number) else { return false };
            let used = self.index.in_use(*number).checked_add(*permits);
            if used.is_none_or(|used| used > pool.limit) {
                return false;
            }
            if pool.closed_until.is_some_and(|until| until > now)
                && !is_on(Mutant::ClosedPoolGrants)
            {
                return false;
            }
        }
        !(class.is_fresh && self.is_held_back(run, class))
            && (class.cap == Usd::ZERO || self.allowance(run, class).is_some())
    }

    /// Whether the task has its scope, or could have it.
    #[inline]
    pub(super) fn has_scope(&self, number: u32) -> bool {
        let own = self.table.hot(number).holds_scope() && !is_on(Mutant::BlockedByItself);
        own || self.index.locks.obstacle(number).is_none()
    }

    /// The tasks that hold a scope which overlaps this one's.
    pub(super) fn scope_holders(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let holders = self.index.locks.holders();
        holders.filter(move |other| *other != number && self.index.locks.overlap(number, *other))
    }
}

#[inline]
fn earlier(one: Option<Turn>, other: Option<Turn>) -> Option<Turn> {
    match (one, other) {
        (Some(one), Some(other)) if is_on(Mutant::NewestFirst) => Some(one.max(other)),
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
