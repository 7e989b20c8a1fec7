//! Where the index has a task, by its phase.
//!
//! [`Index::take_out`] and [`Index::put_in`] are the only two places that change the index for a task's
//! phase, and [`Engine::rework`] goes through both, so that the index is a function of the records at
//! all times: undoing a change is putting the old record in again. What most changes go through is
//! put in where it is called, so that what is known there of the phase need not be asked again.

use std::hint::cold_path;

use super::Engine;
use super::evolve::Context;
use super::index::Index;
use super::kind::Kind;
use super::table::{Hot, Places, Row, View};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::record::Counts;

impl Engine {
    /// Changes a task, and brings all that is computed in step.
    #[inline(always)]
    pub(super) fn rework(&mut self, number: u32, change: impl FnOnce(&mut Row<'_>, &Context<'_>)) {
        let Self { specs, table, index, run, .. } = self;
        let (profile, is_met) = (specs.profile(number), table.unmet(number) == 0);
        let (mut row, places) = table.split(number);
        let was = *row.hot();
        index.take_out(places, &mut row, profile.class(&was), is_met);
        let has_scope = index.locks.has_scope(number);
        change(&mut row, &Context { profile, stage: was.stage(), has_scope });
        let is = *row.hot();
        if was.holds_scope() != is.holds_scope() {
            cold_path();
            index.hold_scope(places, number, is.holds_scope());
        }
        if let Some(run) = run {
            recount(&mut run.counts, was.kind(), is.kind());
        }
        index.recount(&was, &is, profile.fresh);
        index.put_in(places, &mut row, profile.class(&is), is_met, specs.budget(number));
        if was.kind() != is.kind() && (was.kind().concerns_others() || is.kind().concerns_others())
        {
            self.tell_dependents(number, was.kind(), is.kind());
        }
        self.index.replace_stood(&mut self.table.places);
    }
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
        class: Option<u32>,
        is_met: bool,
    ) {
        // Most are one of the first two.
        if row.hot().kind() == Kind::Open {
            if let Some(class) = class
                && is_met
            {
                self.leave(places, (row.number(), *row.hot()), class);
            }
        } else if row.hot().kind() == Kind::Leased {
            self.take_lease_out(row, class);
        } else if !row.hot().kind().is_settled() {
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
        class: Option<u32>,
        is_met: bool,
        budget: Option<Usd>,
    ) {
        if row.hot().kind() == Kind::Open {
            if let Some(class) = class
                && is_met
            {
                self.enter(places, (row.number(), *row.hot()), class, budget);
            }
        } else if row.hot().kind() == Kind::Leased {
            self.put_lease_in(row, class);
        } else if !row.hot().kind().is_settled() {
            self.put_wait_in(row.number(), row.view(), class);
        }
    }

    #[inline(always)]
    fn put_lease_in(&mut self, row: &mut Row<'_>, class: Option<u32>) {
        let Some(hold) = row.its_lease().map(|lease| &lease.hold) else { return };
        let (stop, reserved) = ((hold.hard_stop, hold.token), hold.reserved);
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
    fn recount(&mut self, was: &Hot, is: &Hot, first_class: u32) {
        if is.is_never_met() {
            cold_path();
            self.blocked += u32::from(is.is_blocked());
            self.blocked -= u32::from(was.is_blocked());
        }
        if (was.attempt() > 0) != (is.attempt() > 0) {
            self.begun = self.begun + u32::from(is.attempt() > 0) - u32::from(was.attempt() > 0);
        }
        if was.is_in_flight() != is.is_in_flight() {
            self.count_in_flight(first_class, is.is_in_flight());
        }
    }
}
