//! Where the index has a task, by its phase.
//!
//! [`Index::take_out`] and [`Index::put_in`] are the only two places that change the index for a task's
//! phase, and [`Engine::rework`] goes through both, so that the index is a function of the records at
//! all times: undoing a change is putting the old record in again. What most changes go through is
//! put in where it is called, so that what is known there of the phase need not be asked again.

use std::hint::cold_path;

use super::Engine;
use super::change::{Change, Context};
use super::index::Index;
use super::kind::Kind;
use super::leases::Stop;
use super::table::{Hot, Places, Row, View};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::record::Counts;

impl Engine {
    /// Changes a task, and brings all that is computed in step. For the phase that is likely this is
    /// compiled apart, so that it goes faster.
    #[inline(always)]
    pub(super) fn rework(&mut self, likely: Option<Kind>, number: u32, change: impl Change) {
        let kind = self.table.hot(number).kind();
        match likely {
            Some(likely) if likely == kind => self.rework_from(likely, number, change),
            _ => self.rework_any(kind, number, change),
        }
    }

    #[cold]
    #[inline(never)]
    fn rework_any(&mut self, kind: Kind, number: u32, change: impl Change) {
        self.rework_from(kind, number, change);
    }

    /// Changes a task that is in this phase.
    #[inline(always)]
    fn rework_from(&mut self, from: Kind, number: u32, change: impl Change) {
        let Self { specs, table, index, run, .. } = self;
        let is_met = table.unmet(number) == 0;
        let (mut row, places) = table.split(number);
        let was = *row.hot();
        let profile = specs.profile(was.profile());
        let standing = Standing { kind: from, class: was.class(profile), is_met };
        index.take_out(places, &mut row, standing);
        let has_scope = index.locks.has_scope(number);
        let to = change.make(&mut row, &Context { profile, stage: was.stage(), has_scope });
        let is = *row.hot();
        if was.holds_scope() != is.holds_scope() {
            cold_path();
            index.hold_scope(places, number, is.holds_scope());
        }
        if let Some(run) = run {
            recount(&mut run.counts, from, to);
        }
        index.recount((&was, from), (&is, to), profile.fresh);
        let standing = Standing { kind: to, class: is.class(profile), is_met };
        index.put_in(places, &mut row, standing, specs.budget(number));
        if from != to && (from.concerns_others() || to.concerns_others()) {
            self.tell_dependents(number, from, to);
        }
        self.index.replace_stood(&mut self.table.places);
    }
}

/// What decides where the index has a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) kind: Kind,
    pub(super) class: Option<u32>,
    /// Whether all that it waits for is done.
    pub(super) is_met: bool,
}

/// Counts a task that was in one phase as one in another.
#[inline(always)]
fn recount(counts: &mut Counts, was: Kind, is: Kind) {
    if was != is {
        let drifts = is_on(Mutant::CountsDrift) && was == Kind::Deferred;
        *was.counter(counts) -= u32::from(!drifts);
        *is.counter(counts) += 1;
    }
}

impl Index {
    /// Takes a task out, as far as its phase put it in.
    #[inline(always)]
    fn take_out(
        &mut self,
        places: &mut Places,
        row: &mut Row<'_>,
        Standing { kind, class, is_met }: Standing,
    ) {
        // Most are one of the first two.
        if kind == Kind::Open {
            if let Some(class) = class
                && is_met
            {
                self.leave(places, (row.number(), *row.hot()), class);
            }
        } else if kind == Kind::Leased {
            self.take_lease_out(row, class);
        } else if !kind.is_settled() {
            self.take_wait_out(row.number(), row.view(), class);
        }
    }

    #[inline(always)]
    fn take_lease_out(&mut self, row: &mut Row<'_>, class: Option<u32>) {
        let Some(lease) = row.its_lease() else { return };
        let (place, reserved) = (lease.place, lease.hold.reserved);
        if !is_on(Mutant::StopOutlivesLease) {
            self.hard_stops.remove(row.hot().stage(), place, &mut row.note_stops());
        }
        if let Some(class) = class {
            self.give_back(class, reserved);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_wait_out(&mut self, number: u32, task: View<'_>, class: Option<u32>) {
        if task.hot().kind() == Kind::Deferred {
            if let Some((until, _)) = task.detail().deferred {
                self.timers.remove(&(until, number));
            }
            class
                .filter(|_| is_on(Mutant::WaitingKeepsPermits))
                .into_iter()
                .for_each(|class| self.give_back(class, Usd::ZERO));
        } else {
            self.stopping.remove(&number);
            let reserved = task.hold().map_or(Usd::ZERO, |hold| hold.reserved);
            let times = 1 - usize::from(is_on(Mutant::StopLeaksPermits))
                + usize::from(is_on(Mutant::StopGivesBackTwice));
            let give_back = |class| (0..times).for_each(|_| self.give_back(class, reserved));
            class.into_iter().for_each(give_back);
        }
    }

    /// Puts a task in where its phase says; all its stages together may spend this budget.
    #[inline(always)]
    pub(super) fn put_in(
        &mut self,
        places: &mut Places,
        row: &mut Row<'_>,
        Standing { kind, class, is_met }: Standing,
        budget: Option<Usd>,
    ) {
        if kind == Kind::Open {
            if let Some(class) = class
                && is_met
            {
                self.enter(places, (row.number(), *row.hot()), class, budget);
            }
        } else if kind == Kind::Leased {
            self.put_lease_in(row, class);
        } else if !kind.is_settled() {
            self.put_wait_in(row.number(), row.view(), class);
        }
    }

    #[inline(always)]
    fn put_lease_in(&mut self, row: &mut Row<'_>, class: Option<u32>) {
        let Some(hold) = row.its_lease().map(|lease| &lease.hold) else { return };
        let (stop, reserved) = (Stop::of(hold), hold.reserved);
        let (stage, lease) = (row.hot().stage(), row.hot().lease());
        self.hard_stops.insert(stage, stop, lease, &mut row.note_stops());
        if let Some(class) = class {
            self.take(class, reserved);
        }
    }

    #[cold]
    #[inline(never)]
    fn put_wait_in(&mut self, number: u32, task: View<'_>, class: Option<u32>) {
        if task.hot().kind() == Kind::Deferred {
            if let Some((until, _)) = task.detail().deferred {
                self.timers.insert((until, number));
            }
            class
                .filter(|_| is_on(Mutant::WaitingKeepsPermits))
                .into_iter()
                .for_each(|class| self.take(class, Usd::ZERO));
        } else {
            self.stopping.insert(number);
            let reserved = task.hold().map_or(Usd::ZERO, |hold| hold.reserved);
            class.into_iter().for_each(|class| self.take(class, reserved));
        }
    }

    /// Counts a task that was like this, and whose first class is this one, as it is now.
    #[inline(always)]
    fn recount(&mut self, (was, from): (&Hot, Kind), (is, to): (&Hot, Kind), first_class: u32) {
        if is.is_never_met() {
            cold_path();
            self.blocked += u32::from(is.is_blocked());
            self.blocked -= u32::from(was.is_blocked());
        }
        if (was.attempt() > 0) != (is.attempt() > 0) {
            self.begun = self.begun + u32::from(is.attempt() > 0) - u32::from(was.attempt() > 0);
        }
        let in_flight = |hot: &Hot, kind: Kind| hot.stage() > 0 && !kind.is_settled();
        if in_flight(was, from) != in_flight(is, to) {
            self.count_in_flight(first_class, in_flight(is, to));
        }
    }
}
