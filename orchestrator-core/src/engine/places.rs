//! Where the index has a task, by its phase.
//!
//! [`Engine::unlink`] and [`Engine::link`] are the only two places that change the index for a task's
//! phase, so that it is a function of the records at all times: undoing a change is linking the old
//! record again. What most changes go through is put in where it is called, so that what is known
//! there of the phase need not be asked again.

use super::Engine;
use super::kind::Kind;
use super::leases::Hold;
use super::slab::NONE;
use super::table::{Hot, Table};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};

impl Engine {
    /// Takes a task of this profile out of the index, as far as its phase put it in.
    #[inline(always)]
    pub(super) fn unlink(&mut self, number: u32, hot: &Hot, profile: u32) {
        let class = self.specs.numbered(profile).class(hot);
        // Most are one of the first two.
        if hot.kind() == Kind::Open {
            if let Some(class) = class
                && self.table.unmet(number) == 0
            {
                self.index.leave(&mut self.table, class, number);
            }
        } else if hot.kind() == Kind::Leased {
            self.unlink_lease(hot, class);
        } else if !hot.kind().is_settled() {
            self.unlink_wait(number, hot, class);
        }
    }

    #[inline]
    fn unlink_lease(&mut self, hot: &Hot, class: Option<u32>) {
        let (index, table) = (&mut self.index, &mut self.table);
        let lease = table.lease(hot.slot);
        let (place, reserved) =
            lease.map_or((NONE, Usd::ZERO), |lease| (lease.place, lease.hold.reserved));
        if !is_on(Mutant::StopOutlivesLease) {
            let mut placed = |lease, place| place_stop(table, lease, place);
            index.hard_stops.remove(hot.stage(), place, &mut placed);
        }
        if let Some(class) = class {
            index.give_back(class, reserved);
        }
    }

    fn unlink_wait(&mut self, number: u32, hot: &Hot, class: Option<u32>) {
        let index = &mut self.index;
        if hot.kind() == Kind::Deferred {
            if let Some((until, _)) = self.table.view(number).detail().deferred {
                index.timers.remove(&(until, number));
            }
            class
                .filter(|_| is_on(Mutant::WaitingKeepsPermits))
                .into_iter()
                .for_each(|class| index.give_back(class, Usd::ZERO));
        } else {
            index.stopping.remove(&number);
            let lease = self.table.lease(hot.slot);
            let reserved = lease.map_or(Usd::ZERO, |lease| lease.hold.reserved);
            let times = 1 - usize::from(is_on(Mutant::StopLeaksPermits))
                + usize::from(is_on(Mutant::StopGivesBackTwice));
            let give_back = |class| (0..times).for_each(|_| index.give_back(class, reserved));
            class.into_iter().for_each(give_back);
        }
    }

    /// Puts a task of this profile in where its phase says.
    #[inline(always)]
    pub(super) fn link(&mut self, number: u32, profile: u32) {
        let hot = self.table.hot(number);
        let class = self.specs.numbered(profile).class(hot);
        if hot.kind() == Kind::Open {
            if let Some(class) = class
                && self.table.unmet(number) == 0
            {
                self.enter(class, number);
            }
        } else if hot.kind() == Kind::Leased {
            let (stage, slot) = (hot.stage(), hot.slot);
            self.link_lease(stage, slot, class);
        } else if !hot.kind().is_settled() {
            self.link_wait(number, class);
        }
    }

    #[inline]
    fn link_lease(&mut self, stage: u8, slot: u32, class: Option<u32>) {
        let (index, table) = (&mut self.index, &mut self.table);
        let Some(Hold { token, hard_stop, reserved, .. }) = table.lease(slot).map(|of| &of.hold)
        else {
            return;
        };
        let (stop, reserved) = ((*hard_stop, *token), *reserved);
        let mut placed = |lease, place| place_stop(table, lease, place);
        index.hard_stops.insert(stage, stop, slot, &mut placed);
        if let Some(class) = class {
            index.take(class, reserved);
        }
    }

    fn link_wait(&mut self, number: u32, class: Option<u32>) {
        let (hot, index) = (self.table.hot(number), &mut self.index);
        if hot.kind() == Kind::Deferred {
            if let Some((until, _)) = self.table.view(number).detail().deferred {
                index.timers.insert((until, number));
            }
            class
                .filter(|_| is_on(Mutant::WaitingKeepsPermits))
                .into_iter()
                .for_each(|class| index.take(class, Usd::ZERO));
        } else {
            index.stopping.insert(number);
            let lease = self.table.lease(hot.slot);
            let reserved = lease.map_or(Usd::ZERO, |lease| lease.hold.reserved);
            class.into_iter().for_each(|class| index.take(class, reserved));
        }
    }

    /// Counts a task that was like this as it is now.
    #[inline(always)]
    fn recount(&mut self, number: u32, was: &Hot, profile: u32) {
        let (is, index) = (self.table.hot(number), &mut self.index);
        if let Some(run) = &mut self.run
            && was.kind() != is.kind()
        {
            let drifts = is_on(Mutant::CountsDrift) && was.kind() == Kind::Deferred;
            *was.kind().counter(&mut run.counts) -= u32::from(!drifts);
            *is.kind().counter(&mut run.counts) += 1;
        }
        if is.is_never_met() {
            index.blocked += u32::from(is.is_blocked());
            index.blocked -= u32::from(was.is_blocked());
        }
        index.begun = index.begun + u32::from(is.attempt() > 0) - u32::from(was.attempt() > 0);
        if was.is_in_flight() != is.is_in_flight() {
            index.count_in_flight(self.specs.numbered(profile).fresh, is.is_in_flight());
        }
    }

    /// Puts a task among what is ready, or aside when its own budget does not cover its stage.
    #[inline]
    pub(super) fn enter(&mut self, class: u32, number: u32) {
        if self.is_overdrawn(number, class) {
            self.index.overdrawn.insert(number);
        } else {
            self.index.enter(&mut self.table, class, number);
        }
    }

    /// A task of this profile that was like this, and was taken out of the index, is another one now:
    /// puts it in again, and tells those whom it concerns.
    #[inline(always)]
    pub(super) fn changed(&mut self, number: u32, was: &Hot, profile: u32) {
        let is = self.table.hot(number);
        let (kind, holds_scope) = (is.kind(), is.holds_scope());
        if was.holds_scope() != holds_scope {
            self.hold_scope(number, holds_scope);
        }
        self.recount(number, was, profile);
        self.link(number, profile);
        if was.kind() != kind && (was.kind().concerns_others() || kind.concerns_others()) {
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
}

#[inline]
fn place_stop(table: &mut Table, lease: u32, place: u32) {
    if let Some(lease) = table.lease_mut(lease) {
        lease.place = place;
    }
}
