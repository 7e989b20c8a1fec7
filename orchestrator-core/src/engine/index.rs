//! What the engine computes from its records, kept up to date so that no question scans all tasks.
//!
//! What a change of a task means for it is in `places`, what it means for others in `neighbours`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::heap::Heap;
use super::leases::HardStops;
use super::locks::Locks;
use super::registry::Registry;
use super::slab::NONE;
use super::table::{Hot, Places};
use crate::budget::allowance;
use crate::id::PoolName;
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::pipeline::Pipeline;
use crate::record::PoolRecord;
use crate::time::Timestamp;

/// Tasks at the same stage that need the same: what holds one for want of capacity holds all.
#[derive(Debug, Clone)]
pub(super) struct Class {
    /// Permits by the number of their pool.
    pub(super) needs: Box<[(u32, u32)]>,
    pub(super) stage: u8,
    /// Whether its tasks were never begun.
    pub(super) is_fresh: bool,
    /// The most that the stage may spend.
    pub(super) cap: Usd,
    /// Whether it needs more than one permit.
    is_wide: bool,
    /// What could run if there were capacity.
    pub(super) ready: Heap<u64>,
    /// Its place among the classes as claims go through them.
    place: usize,
}

/// A class as claims go through them: what they ask of each, side by side.
#[derive(Debug, Clone, Copy)]
pub(super) struct InTurn {
    pub(super) class: u32,
    /// How many of its tasks are ready.
    pub(super) ready: u32,
    pub(super) stage: u8,
}

/// What is taken of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Used {
    pub(super) permits: u32,
    /// What live leases have set aside.
    pub(super) reserved: Usd,
    /// Tasks that it began and that are past their first stage and not finished.
    pub(super) in_flight: u32,
}

/// What makes two tasks be of one class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey {
    needs: Box<[(u32, u32)]>,
    stage: Option<u8>,
    cap: Usd,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    pub(super) classes: Vec<Class>,
    /// The classes, those of later stages first.
    pub(super) in_turn: Vec<InTurn>,
    known_classes: BTreeMap<ClassKey, u32>,
    /// Whether the tasks of a class need more than one permit.
    has_wide: bool,
    /// The number of the owner that drives the run.
    pub(super) driver: Option<u32>,
    /// Whether the run or a pool has, or had, a budget.
    pub(super) has_budgets: bool,
    /// What is taken of each pool, by its number.
    pub(super) used: Vec<Used>,
    /// Tasks that were begun.
    pub(super) begun: u32,
    /// Tasks that are ready, but whose own budget does not cover their stage.
    pub(super) overdrawn: BTreeSet<u32>,
    /// When the waits of deferred tasks end.
    pub(super) timers: BTreeSet<(Timestamp, u32)>,
    pub(super) hard_stops: HardStops,
    /// Tasks whose lease is being stopped.
    pub(super) stopping: BTreeSet<u32>,
    pub(super) locks: Locks,
    /// How many unfinished tasks can never run as things are.
    pub(super) blocked: u32,
    /// By their class, tasks that are ready and need several things at once, those longest in their
    /// phase first.
    pub(super) wide: BTreeMap<u32, BTreeSet<(Timestamp, u32)>>,
    /// Lists that a task of a class stood for before the present change.
    stood: Vec<(u32, u32)>,
    /// Lists that became free with the present change.
    pub(super) freed: Vec<u32>,
}

/// The order of what is ready at one stage: priority and rank, then age in steps of about a second.
#[inline]
pub(super) fn key_of(hot: &Hot) -> u64 {
    let age = u32::try_from(hot.since().0 >> 10).unwrap_or(u32::MAX);
    u64::from(hot.order()) << 32 | u64::from(age)
}

impl Index {
    /// The class of a stage's tasks with these needs, or (`None`) of those that were never begun. Where
    /// it is a new one, all that is computed of tasks has to be computed anew.
    pub(super) fn class(
        &mut self,
        pools: &mut Registry<PoolName, PoolRecord>,
        pipeline: &Pipeline,
        stage: Option<u8>,
        own: &BTreeMap<PoolName, NonZeroU32>,
    ) -> u32 {
        let mut needs: BTreeMap<u32, u32> =
            own.iter().map(|(pool, permits)| (pools.number(pool), permits.get())).collect();
        let spec = pipeline.stage(stage.unwrap_or(0));
        if let Some(spec) = spec {
            needs.entry(pools.number(&spec.pool)).or_insert(1);
        }
        self.used.resize(self.used.len().max(pools.len()), Used::default());
        let cap = spec.map_or(Usd::ZERO, |spec| spec.cap);
        let key = ClassKey { needs: needs.into_iter().collect(), stage, cap };
        if let Some(known) = self.known_classes.get(&key) {
            return *known;
        }
        let number = u32::try_from(self.classes.len()).unwrap_or(NONE);
        let (needs, ready) = (key.needs.clone(), Heap::default());
        let is_wide = needs.len() > 1 || needs.iter().any(|(_, permits)| *permits > 1);
        let (stage, is_fresh) = (stage.unwrap_or(0), stage.is_none());
        // Where it stands among the others is seen to when all is computed anew, for all that come.
        let place = self.in_turn.len();
        self.in_turn.push(InTurn { class: number, ready: 0, stage });
        self.has_wide |= is_wide;
        self.classes.push(Class { needs, stage, is_fresh, cap, is_wide, ready, place });
        self.known_classes.insert(key, number);
        number
    }

    /// Permits of a pool in use.
    #[inline]
    pub(super) fn in_use(&self, pool: u32) -> u32 {
        self.used.get(pool as usize).map_or(0, |used| used.permits)
    }

    /// What is taken of a pool.
    #[inline]
    pub(super) fn used(&self, pool: u32) -> Used {
        self.used.get(pool as usize).copied().unwrap_or_default()
    }

    /// Whether others may take from the task what it needs, one part after the other.
    fn is_wide(&self, task: u32, holds_scope: bool, class: u32) -> bool {
        self.classes[class as usize].is_wide || (self.locks.has_parts(task) && !holds_scope)
    }

    /// Whether the task's own budget does not cover its stage. It has no lease.
    #[inline(always)]
    pub(super) fn is_overdrawn(&self, spent: Usd, class: u32, budget: Option<Usd>) -> bool {
        budget.is_some() && self.overdraws(spent, class, budget)
    }

    #[cold]
    #[inline(never)]
    fn overdraws(&self, spent: Usd, class: u32, budget: Option<Usd>) -> bool {
        let cap = self.classes[class as usize].cap;
        let unseen = is_on(Mutant::OverdrawnTaskGoesOn);
        allowance(budget, spent, cap).is_none() && !unseen
    }

    /// Puts a task among what is ready, or aside when its own budget does not cover its stage.
    #[inline(always)]
    pub(super) fn enter(
        &mut self,
        places: &mut Places,
        (task, hot): (u32, Hot),
        class: u32,
        budget: Option<Usd>,
    ) {
        if self.is_overdrawn(hot.spent(), class, budget) {
            self.overdrawn.insert(task);
            return;
        }
        if !self.is_narrow() {
            self.note_wide(task, hot.since(), hot.holds_scope(), class);
        }
        self.make_ready(places, class, key_of(&hot), task);
    }

    /// Puts a task among what is ready of its class.
    #[inline(always)]
    fn make_ready(&mut self, places: &mut Places, class: u32, key: u64, task: u32) {
        let class = &mut self.classes[class as usize];
        self.in_turn[class.place].ready += 1;
        class.ready.insert(key, task, &mut places.note());
    }

    /// Takes out the task at this place of what is ready of its class.
    #[inline(always)]
    fn take_ready(&mut self, places: &mut Places, class: u32, place: u32) {
        let class = &mut self.classes[class as usize];
        self.in_turn[class.place].ready -= 1;
        class.ready.remove(place, &mut places.note());
    }

    #[cold]
    #[inline(never)]
    fn note_wide(&mut self, task: u32, since: Timestamp, holds_scope: bool, class: u32) {
        if self.is_wide(task, holds_scope, class) {
            self.wide.entry(class).or_default().insert((since, task));
        }
    }

    /// Takes a task out of what is ready, or from where it is parked.
    #[inline(always)]
    pub(super) fn leave(&mut self, places: &mut Places, (task, hot): (u32, Hot), class: u32) {
        if self.is_narrow() && self.overdrawn.is_empty() {
            let place = places.of(task);
            self.take_ready(places, class, place);
        } else {
            self.leave_any(places, (task, hot.since(), hot.holds_scope()), class);
        }
    }

    /// Whether no task needs several things at once, or a scope.
    #[inline(always)]
    const fn is_narrow(&self) -> bool {
        !self.has_wide && self.locks.is_empty()
    }

    #[cold]
    #[inline(never)]
    fn leave_any(
        &mut self,
        places: &mut Places,
        (task, since, holds_scope): (u32, Timestamp, bool),
        class: u32,
    ) {
        if self.overdrawn.remove(&task) {
            return;
        }
        if self.is_wide(task, holds_scope, class)
            && let Some(wide) = self.wide.get_mut(&class)
        {
            wide.remove(&(since, task));
            if wide.is_empty() {
                self.wide.remove(&class);
            }
        }
        let place = places.of(task);
        if self.locks.waits_in(task).is_some() {
            self.locks.unpark(task, class, place, &mut places.note());
            return;
        }
        self.take_ready(places, class, place);
        let stood_for = self.locks.stand_down(task, class);
        self.stood.extend(stood_for.map(|list| (list, class)));
    }

    /// Lets others stand where tasks stood that are gone from what is ready: at the end of a change,
    /// when it is known whether they took what the others wait for.
    #[inline]
    pub(super) fn replace_stood(&mut self, places: &mut Places) {
        while let Some((list, class)) = self.stood.pop() {
            self.promote(places, list, class);
        }
    }

    /// Lets a task that waits in a list stand for its class there, if the list is free.
    #[cold]
    #[inline(never)]
    fn promote(&mut self, places: &mut Places, list: u32, class: u32) {
        let promoted = self.locks.promote(list, class, &mut places.note());
        if let Some((key, task)) = promoted {
            self.make_ready(places, class, key, task);
        }
    }

    /// Parks the first task of a class, which something keeps from its scope.
    pub(super) fn park_first(&mut self, places: &mut Places, class: u32, list: u32) {
        let Some((key, task)) = self.classes[class as usize].ready.first() else { return };
        self.take_ready(places, class, places.of(task));
        let stood_for = self.locks.stand_down(task, class);
        self.locks.park((task, class, key), list, &mut places.note());
        if let Some(list) = stood_for {
            self.promote(places, list, class);
        }
    }

    /// Gives a task its scope, or takes it; who waited for it may go on.
    #[cold]
    #[inline(never)]
    pub(super) fn hold_scope(&mut self, places: &mut Places, task: u32, holds: bool) {
        if holds {
            self.locks.hold(task);
            return;
        }
        let mut freed = std::mem::take(&mut self.freed);
        self.locks.release(task, &mut freed);
        if is_on(Mutant::FreedScopeWakesNobody) {
            freed.clear();
        }
        for list in freed.drain(..) {
            for class in self.locks.classes(list) {
                self.promote(places, list, class);
            }
        }
        self.freed = freed;
    }

    #[inline(always)]
    pub(super) fn take(&mut self, class: u32, reserved: Usd) {
        for (pool, permits) in &self.classes[class as usize].needs {
            let used = &mut self.used[*pool as usize];
            used.permits = used.permits.saturating_add(*permits);
            used.reserved = used.reserved.plus(reserved);
        }
    }

    #[inline(always)]
    pub(super) fn give_back(&mut self, class: u32, reserved: Usd) {
        for (pool, permits) in &self.classes[class as usize].needs {
            let used = &mut self.used[*pool as usize];
            used.permits = used.permits.saturating_sub(*permits);
            used.reserved = used.reserved.minus(reserved);
        }
    }

    /// Counts a task of this first class in or out of those that are in flight.
    pub(super) fn count_in_flight(&mut self, first_class: u32, is_in: bool) {
        if !is_in && is_on(Mutant::FlightNeverEnds) {
            return;
        }
        for (pool, _) in &self.classes[first_class as usize].needs {
            let count = &mut self.used[*pool as usize].in_flight;
            *count = if is_in { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// What does not add up of the classes as claims go through them.
    pub(super) fn audit_turns(&self, faults: &mut Vec<String>) {
        let is_in_order = self.in_turn.is_sorted_by_key(|turn| Reverse(turn.stage));
        if !is_in_order || self.in_turn.len() != self.classes.len() {
            faults.push(format!("{} classes are not in turn", self.classes.len()));
        }
        for (place, turn) in self.in_turn.iter().enumerate() {
            let class = &self.classes[turn.class as usize];
            let ready = class.ready.entries().count();
            if (class.place, class.stage, ready) != (place, turn.stage, turn.ready as usize) {
                faults.push(format!("{ready} tasks are ready at place {place}, counted {turn:?}"));
            }
        }
    }

    /// Forgets all that is computed of tasks, and puts the classes in turn.
    pub(super) fn clear(&mut self) {
        self.classes.iter_mut().for_each(|class| class.ready.clear());
        self.in_turn.sort_by_key(|turn| Reverse(turn.stage));
        for (place, turn) in self.in_turn.iter_mut().enumerate() {
            turn.ready = 0;
            self.classes[turn.class as usize].place = place;
        }
        self.used.fill(Used::default());
        self.begun = 0;
        self.overdrawn.clear();
        self.timers.clear();
        self.hard_stops.clear();
        self.stopping.clear();
        self.wide.clear();
        self.locks.clear();
        self.blocked = 0;
    }
}
