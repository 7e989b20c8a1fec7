//! What the engine computes from its records, kept up to date so that no question scans all tasks.
//!
//! [`Engine::unlink`] and [`Engine::link`] are the only two places that change it for a task's
//! phase, so that it is a function of the records at all times: undoing a change is linking the old
//! record again.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::Engine;
use super::heap::Heap;
use super::kind::Kind;
use super::locks::Locks;
use super::registry::Registry;
use super::slab::NONE;
use super::table::{Hot, Table};
use crate::id::{FencingToken, PoolName};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::pipeline::Pipeline;
use crate::record::{Counts, PoolRecord};
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
    known_classes: BTreeMap<ClassKey, u32>,
    /// What is taken of each pool, by its number.
    pub(super) used: Vec<Used>,
    /// Tasks that were begun.
    pub(super) begun: u32,
    /// Tasks that are ready, but whose own budget does not cover their stage.
    pub(super) overdrawn: BTreeSet<u32>,
    /// When the waits of deferred tasks end.
    pub(super) timers: BTreeSet<(Timestamp, u32)>,
    /// When live leases, by their number in the table, end at the latest; of those that end together
    /// the older one comes first.
    pub(super) hard_stops: Heap<(Timestamp, FencingToken)>,
    /// Tasks whose lease is being stopped.
    pub(super) stopping: BTreeSet<u32>,
    pub(super) locks: Locks,
    /// How many tasks are in which phase.
    pub(super) counts: Counts,
    /// How many unfinished tasks can never run as things are.
    pub(super) blocked: u32,
    /// For each task its place among all by priority and rank; a lower one goes first.
    pub(super) order: Vec<u32>,
    /// Tasks that are ready and need several things at once, those longest in their phase first.
    pub(super) wide: BTreeSet<(Timestamp, u32)>,
    /// Lists that a task of a class stood for before the present change.
    stood: Vec<(u32, u32)>,
    /// Lists that became free with the present change.
    freed: Vec<u32>,
}

/// The order of what is ready at one stage: priority and rank, then age in steps of about a second.
fn key(order: u32, since: Timestamp) -> u64 {
    let age = u32::try_from(since.0 >> 10).unwrap_or(u32::MAX);
    u64::from(order) << 32 | u64::from(age)
}

impl Index {
    /// The class of a stage's tasks with these needs, or (`None`) of those that were never begun.
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
        self.classes.push(Class { needs, stage, is_fresh, cap, is_wide, ready });
        self.known_classes.insert(key, number);
        number
    }

    /// Permits of a pool in use.
    pub(super) fn in_use(&self, pool: u32) -> u32 {
        self.used(pool).permits
    }

    /// What is taken of a pool.
    pub(super) fn used(&self, pool: u32) -> Used {
        self.used.get(pool as usize).copied().unwrap_or_default()
    }

    pub(super) fn key(&self, table: &Table, task: u32) -> u64 {
        let order = self.order.get(task as usize).copied().unwrap_or(0);
        key(order, table.hot(task).since())
    }

    /// Whether others may take from the task what it needs, one part after the other.
    fn is_wide(&self, table: &Table, class: u32, task: u32) -> bool {
        self.classes[class as usize].is_wide
            || (!self.locks.is_empty()
                && self.locks.has_parts(task)
                && !table.hot(task).holds_scope())
    }

    /// Puts a task among what is ready.
    fn enter(&mut self, table: &mut Table, class: u32, task: u32) {
        if self.is_wide(table, class, task) {
            self.wide.insert((table.hot(task).since(), task));
        }
        let key = self.key(table, task);
        self.classes[class as usize].ready.insert(key, task, &mut table.placer());
    }

    /// Takes a task out of what is ready, or from where it is parked.
    fn leave(&mut self, table: &mut Table, class: u32, task: u32) {
        if !self.overdrawn.is_empty() && self.overdrawn.remove(&task) {
            return;
        }
        if self.is_wide(table, class, task) {
            self.wide.remove(&(table.hot(task).since(), task));
        }
        let place = table.hot(task).slot;
        if self.locks.is_empty() {
            self.classes[class as usize].ready.remove(place, &mut table.placer());
            return;
        }
        if self.locks.waits_in(task).is_some() {
            self.locks.unpark(task, class, place, &mut table.placer());
            return;
        }
        self.classes[class as usize].ready.remove(place, &mut table.placer());
        let stood_for = self.locks.stand_down(task, class);
        self.stood.extend(stood_for.map(|list| (list, class)));
    }

    /// Lets others stand where tasks stood that are gone from what is ready: at the end of a change,
    /// when it is known whether they took what the others wait for.
    fn replace_stood(&mut self, table: &mut Table) {
        while let Some((list, class)) = self.stood.pop() {
            self.promote(table, list, class);
        }
    }

    /// Lets a task that waits in a list stand for its class there, if the list is free.
    fn promote(&mut self, table: &mut Table, list: u32, class: u32) {
        let promoted = self.locks.promote(list, class, &mut table.placer());
        if let Some((key, task)) = promoted {
            self.classes[class as usize].ready.insert(key, task, &mut table.placer());
        }
    }

    /// Parks the first task of a class, which something keeps from its scope.
    pub(super) fn park_first(&mut self, table: &mut Table, class: u32, list: u32) {
        let first = self.classes[class as usize].ready.pop(&mut table.placer());
        let Some((key, task)) = first else { return };
        let stood_for = self.locks.stand_down(task, class);
        self.locks.park((task, class, key), list, &mut table.placer());
        if let Some(list) = stood_for {
            self.promote(table, list, class);
        }
    }

    fn take(&mut self, class: u32, reserved: Usd) {
        for (pool, permits) in &self.classes[class as usize].needs {
            let used = &mut self.used[*pool as usize];
            used.permits += permits;
            used.reserved = used.reserved.plus(reserved);
        }
    }

    fn give_back(&mut self, class: u32, reserved: Usd) {
        for (pool, permits) in &self.classes[class as usize].needs {
            let used = &mut self.used[*pool as usize];
            used.permits = used.permits.saturating_sub(*permits);
            used.reserved = used.reserved.minus(reserved);
        }
    }

    /// Counts a task of this first class in or out of those that are in flight.
    fn count_in_flight(&mut self, first_class: u32, is_in: bool) {
        if !is_in && is_on(Mutant::FlightNeverEnds) {
            return;
        }
        for (pool, _) in &self.classes[first_class as usize].needs {
            let count = &mut self.used[*pool as usize].in_flight;
            *count = if is_in { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// Forgets all that is computed of tasks.
    pub(super) fn clear(&mut self) {
        self.classes.iter_mut().for_each(|class| class.ready.clear());
        self.used.fill(Used::default());
        self.begun = 0;
        self.overdrawn.clear();
        self.timers.clear();
        self.hard_stops.clear();
        self.stopping.clear();
        self.wide.clear();
        self.locks.clear();
        self.counts = Counts::default();
        self.blocked = 0;
    }
}

impl Engine {
    /// Takes a task out of the index, as far as its phase put it in.
    pub(super) fn unlink(&mut self, number: u32) {
        let (hot, index) = (*self.table.hot(number), &mut self.index);
        let class = self.specs.class(number, &hot);
        match hot.kind() {
            Kind::Open => {
                if let Some(class) = class
                    && hot.unmet == 0
                {
                    index.leave(&mut self.table, class, number);
                }
            }
            Kind::Deferred => {
                if let Some((until, _)) = self.table.view(number).detail().deferred {
                    index.timers.remove(&(until, number));
                }
                class
                    .filter(|_| is_on(Mutant::WaitingKeepsPermits))
                    .into_iter()
                    .for_each(|class| index.give_back(class, Usd::ZERO));
            }
            Kind::Leased => {
                let lease = self.table.lease(hot.slot);
                let (place, reserved) =
                    lease.map_or((NONE, Usd::ZERO), |lease| (lease.place, lease.hold.reserved));
                let table = &mut self.table;
                if !is_on(Mutant::StopOutlivesLease) {
                    index
                        .hard_stops
                        .remove(place, &mut |lease, place| place_stop(table, lease, place));
                }
                class.into_iter().for_each(|class| index.give_back(class, reserved));
            }
            Kind::Stopping => {
                index.stopping.remove(&number);
                let lease = self.table.lease(hot.slot);
                let reserved = lease.map_or(Usd::ZERO, |lease| lease.hold.reserved);
                let times = 1 - usize::from(is_on(Mutant::StopLeaksPermits))
                    + usize::from(is_on(Mutant::StopGivesBackTwice));
                let give_back = |class| (0..times).for_each(|_| index.give_back(class, reserved));
                class.into_iter().for_each(give_back);
            }
            Kind::Done | Kind::Escalated | Kind::Cancelled => {}
        }
    }

    /// Puts a task in where its phase says.
    fn link(&mut self, number: u32) {
        let (hot, index) = (*self.table.hot(number), &mut self.index);
        let class = self.specs.class(number, &hot);
        match hot.kind() {
            Kind::Open => {
                if let Some(class) = class
                    && hot.unmet == 0
                {
                    self.enter(class, number);
                }
            }
            Kind::Deferred => {
                if let Some((until, _)) = self.table.view(number).detail().deferred {
                    index.timers.insert((until, number));
                }
                class
                    .filter(|_| is_on(Mutant::WaitingKeepsPermits))
                    .into_iter()
                    .for_each(|class| index.take(class, Usd::ZERO));
            }
            Kind::Leased => {
                let table = &mut self.table;
                let hold = table.lease(hot.slot).map(|lease| lease.hold);
                let stop = hold.map(|hold| (hold.hard_stop, hold.token)).unwrap_or_default();
                let reserved = hold.map(|hold| hold.reserved).unwrap_or_default();
                let mut placed = |lease, place| place_stop(table, lease, place);
                index.hard_stops.insert(stop, hot.slot, &mut placed);
                class.into_iter().for_each(|class| index.take(class, reserved));
            }
            Kind::Stopping => {
                index.stopping.insert(number);
                let lease = self.table.lease(hot.slot);
                let reserved = lease.map_or(Usd::ZERO, |lease| lease.hold.reserved);
                class.into_iter().for_each(|class| index.take(class, reserved));
            }
            Kind::Done | Kind::Escalated | Kind::Cancelled => {}
        }
    }

    /// Counts a task that was like this as it is now.
    fn recount(&mut self, number: u32, was: &Hot) {
        let (is, index) = (self.table.hot(number), &mut self.index);
        let drifts = is_on(Mutant::CountsDrift) && was.kind() == Kind::Deferred;
        *was.kind().counter(&mut index.counts) -= u32::from(!drifts);
        *is.kind().counter(&mut index.counts) += 1;
        index.blocked = index.blocked + u32::from(is.is_blocked()) - u32::from(was.is_blocked());
        index.begun = index.begun + u32::from(is.attempt() > 0) - u32::from(was.attempt() > 0);
        if was.is_in_flight() != is.is_in_flight() {
            index.count_in_flight(self.specs.fresh_class(number), is.is_in_flight());
        }
    }

    /// Puts a task among what is ready, or aside when its own budget does not cover its stage.
    fn enter(&mut self, class: u32, number: u32) {
        if self.is_overdrawn(number, class) {
            self.index.overdrawn.insert(number);
        } else {
            self.index.enter(&mut self.table, class, number);
        }
    }

    /// A task that was like this, and was taken out of the index, is another one now: puts it in
    /// again, and tells those whom it concerns.
    pub(super) fn changed(&mut self, number: u32, was: &Hot) {
        let is = self.table.hot(number);
        let (kind, holds_scope) = (is.kind(), is.holds_scope());
        if was.holds_scope() != holds_scope {
            self.hold_scope(number, holds_scope);
        }
        self.recount(number, was);
        self.link(number);
        if was.kind() != kind {
            self.tell_dependents(number, was.kind(), kind);
        }
        self.index.replace_stood(&mut self.table);
    }

    /// Gives a task its scope, or takes it; who waited for it may go on.
    fn hold_scope(&mut self, number: u32, holds: bool) {
        let index = &mut self.index;
        if holds {
            index.locks.hold(number);
            return;
        }
        let mut freed = std::mem::take(&mut index.freed);
        index.locks.release(number, &mut freed);
        if is_on(Mutant::FreedScopeWakesNobody) {
            freed.clear();
        }
        for list in freed.drain(..) {
            for class in index.locks.classes(list) {
                index.promote(&mut self.table, list, class);
            }
        }
        index.freed = freed;
    }

    /// Tells the tasks that wait for this one what its new phase means for them.
    fn tell_dependents(&mut self, number: u32, was: Kind, is: Kind) {
        let (was_done, is_done) = (was == Kind::Done, is == Kind::Done);
        let blocked = self.table.hot(number).dead > 0;
        let was_dead = was.is_dead_end() || (blocked && !was.is_settled());
        let mut is_dead = is.is_dead_end() || (blocked && !is.is_settled());
        is_dead |= is_on(Mutant::WaitBlocksDependents) && is == Kind::Deferred;
        if was_done != is_done {
            for edge in self.specs.edges(number) {
                self.count_unmet(number, self.specs.end(edge), is_done);
            }
            for place in 0.. {
                let Some(next) = self.specs.later_dependent(number, place) else { break };
                self.count_unmet(number, next, is_done);
            }
        }
        if was_dead != is_dead && (is_dead || !is_on(Mutant::RetryLeavesBlocked)) {
            self.cascade(number, is_dead);
        }
    }

    /// A task that another one waits for, if this edge counts, became done, or is so no longer.
    fn count_unmet(&mut self, from: u32, number: u32, is_done: bool) {
        if !self.specs.is_edge(from, number) {
            return;
        }
        let hot = self.table.hot_mut(number);
        let was_ready = hot.is_ready();
        if is_done {
            let all = is_on(Mutant::OneDependencyIsEnough);
            hot.unmet = if all { 0 } else { hot.unmet.saturating_sub(1) };
        } else {
            hot.unmet += 1;
        }
        let (is_ready, hot) = (hot.is_ready(), *hot);
        if was_ready != is_ready
            && let Some(class) = self.specs.class(number, &hot)
        {
            if is_ready {
                self.enter(class, number);
            } else {
                self.index.leave(&mut self.table, class, number);
            }
        }
    }

    /// Carries through the graph that a task became, or ceased to be, a dead end.
    fn cascade(&mut self, number: u32, is_dead: bool) {
        let mut stack: Vec<u32> = vec![number];
        while let Some(from) = stack.pop() {
            for next in self.specs.dependents(from) {
                let hot = self.table.hot_mut(next);
                let (was_blocked, was_dead) = (hot.is_blocked(), hot.is_dead());
                hot.dead = if is_dead { hot.dead + 1 } else { hot.dead.saturating_sub(1) };
                self.index.blocked -= u32::from(was_blocked);
                self.index.blocked += u32::from(hot.is_blocked());
                if was_dead != hot.is_dead() && !is_on(Mutant::CascadeStopsShort) {
                    stack.push(next);
                }
            }
        }
    }

    /// Computes everything anew: after a plan came or went, and after loading.
    pub(super) fn reindex(&mut self) {
        let all = (0_u32..).take(self.table.len());
        for number in all.clone() {
            let hot = self.table.hot_mut(number);
            (hot.unmet, hot.dead) = (0, 0);
        }
        for number in self.specs.in_order() {
            let hot = self.table.hot(number);
            let (is_done, is_dead) = (hot.kind() == Kind::Done, hot.is_dead());
            for next in self.specs.dependents(number) {
                let hot = self.table.hot_mut(next);
                hot.unmet += u32::from(!is_done || is_on(Mutant::DoneDependencyWaitedFor));
                hot.dead += u32::from(is_dead);
            }
        }
        self.index.clear();
        for number in all {
            if self.table.hot(number).holds_scope() {
                self.index.locks.hold(number);
            }
            let hot = self.table.hot(number);
            *hot.kind().counter(&mut self.index.counts) += 1;
            self.index.blocked += u32::from(hot.is_blocked());
            self.index.begun += u32::from(hot.attempt() > 0);
            if hot.is_in_flight() {
                self.index.count_in_flight(self.specs.fresh_class(number), true);
            }
            self.link(number);
        }
    }
}

fn place_stop(table: &mut Table, lease: u32, place: u32) {
    if let Some(lease) = table.lease_mut(lease) {
        lease.place = place;
    }
}
