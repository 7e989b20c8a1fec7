//! What a task's phase means for those that wait for it: what is met, and what never can be.

use super::Engine;
use super::kind::Kind;
use super::places::Standing;
use crate::mutant::{Mutant, is_on};
use crate::record::Counts;

impl Engine {
    /// Tells the tasks that wait for this one what its new phase means for them.
    pub(super) fn tell_dependents(&mut self, number: u32, was: Kind, is: Kind) {
        let (was_done, is_done) = (was == Kind::Done, is == Kind::Done);
        let blocked = self.table.hot(number).is_never_met();
        let was_dead = was.is_dead_end() || (blocked && !was.is_settled());
        let mut is_dead = is.is_dead_end() || (blocked && !is.is_settled());
        is_dead |= is_on(Mutant::WaitBlocksDependents) && is == Kind::Deferred;
        if is_done && !was_done {
            self.table.look_ahead(self.run.as_ref().map_or(0, |run| run.counts.done));
            self.count_at_dependents(number, true);
        } else if was_done && !is_done {
            self.count_at_dependents(number, false);
        }
        if was_dead != is_dead && (is_dead || !is_on(Mutant::RetryLeavesBlocked)) {
            self.cascade(number, is_dead);
        }
    }

    #[inline(always)]
    fn count_at_dependents(&mut self, number: u32, is_done: bool) {
        for edge in self.specs.edges(number) {
            self.count_unmet(number, self.specs.end(edge), is_done);
        }
        for place in 0.. {
            let Some(next) = self.specs.later_dependent(number, place) else { break };
            self.count_unmet(number, next, is_done);
        }
    }

    /// A task that another one waits for, if this edge counts, became done, or is so no longer.
    #[inline(always)]
    fn count_unmet(&mut self, from: u32, number: u32, is_done: bool) {
        if !self.specs.is_edge(from, number) {
            return;
        }
        let unmet = self.table.unmet_mut(number);
        let was_met = *unmet == 0;
        if is_done {
            let all = is_on(Mutant::OneDependencyIsEnough);
            *unmet = if all { 0 } else { unmet.saturating_sub(1) };
        } else {
            *unmet += 1;
        }
        let is_met = *unmet == 0;
        // Most wait for more: nothing else of them is looked at.
        if was_met != is_met {
            self.met(number, is_met);
        }
    }

    /// All that a task waits for is done now, or is so no longer.
    #[inline(never)]
    fn met(&mut self, number: u32, is_met: bool) {
        if self.table.hot(number).kind() != Kind::Open {
            return;
        }
        let Self { specs, table, index, .. } = self;
        let (row, places) = table.split(number);
        let Some(class) = row.hot().class(specs.profile(row.hot().profile())) else { return };
        if is_met {
            index.enter(places, (number, *row.hot()), class, specs.budget(number));
        } else {
            index.leave(places, (number, *row.hot()), class);
        }
    }

    /// Carries through the graph that a task became, or ceased to be, a dead end.
    fn cascade(&mut self, number: u32, is_dead: bool) {
        let mut stack: Vec<u32> = vec![number];
        while let Some(from) = stack.pop() {
            for next in self.specs.dependents(from) {
                let hot = self.table.hot(next);
                let (was_blocked, was_dead) = (hot.is_blocked(), hot.is_dead());
                let dead = self.table.dead(next);
                self.table.set_dead(next, if is_dead { dead + 1 } else { dead.saturating_sub(1) });
                let hot = self.table.hot(next);
                self.index.blocked -= u32::from(was_blocked);
                self.index.blocked += u32::from(hot.is_blocked());
                if was_dead != hot.is_dead() && !is_on(Mutant::CascadeStopsShort) {
                    stack.push(next);
                }
            }
        }
    }

    /// Puts a task in the index, in which it is not.
    fn put_in(&mut self, number: u32) {
        let Self { specs, table, index, .. } = self;
        let is_met = table.unmet(number) == 0;
        let (mut row, places) = table.split(number);
        let class = row.hot().class(specs.profile(row.hot().profile()));
        let standing = Standing { kind: row.hot().kind(), class, is_met };
        index.put_in(places, &mut row, standing, specs.budget(number));
    }

    /// Computes everything anew: after a plan came or went, and after loading.
    pub(super) fn reindex(&mut self) {
        self.table.forget_neighbours();
        self.index.clear();
        let mut counts = Counts::default();
        // What a task waits for is known of all before it when it is its turn.
        for number in self.specs.in_order() {
            self.table.note_dead(number);
            if self.table.hot(number).holds_scope() {
                self.index.locks.hold(number);
            }
            let hot = self.table.hot(number);
            let (kind, is_dead) = (hot.kind(), hot.is_dead());
            *kind.counter(&mut counts) += 1;
            self.index.blocked += u32::from(hot.is_blocked());
            self.index.begun += u32::from(hot.attempt() > 0);
            if hot.is_in_flight() {
                self.index.count_in_flight(self.profile(number).fresh, true);
            }
            self.put_in(number);
            let is_unmet = kind != Kind::Done || is_on(Mutant::DoneDependencyWaitedFor);
            // Not by a `for`: the two lists that they come from are gone through one after the other.
            self.specs.dependents(number).for_each(|next| {
                *self.table.unmet_mut(next) += u32::from(is_unmet);
                if is_dead {
                    self.table.set_dead(next, self.table.dead(next) + 1);
                }
            });
        }
        if let Some(run) = &mut self.run {
            run.counts = counts;
        }
    }
}
