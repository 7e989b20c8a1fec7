//! The tasks' records in dense form: what a completion touches lies together.
//!
//! A task that went through without trouble, and whose stages made nothing, costs 64 bytes here; what
//! most tasks do not have lies apart in a [`Detail`]. A [`Row`] changes a task where it lies, a
//! [`View`] reads it, [`Saved`] is how tasks were.

mod row;
mod saved;
mod view;

use std::hint::black_box;
use std::sync::Arc;

pub(super) use self::row::Row;
pub(super) use self::saved::{Before, Saved};
pub(super) use self::view::View;
use super::detail::{Detail, PLAIN};
use super::kind::Kind;
use super::leases::{Lease, Leases};
use super::slab::{NONE, Slab};
use crate::id::FencingToken;
use crate::money::Usd;
use crate::outcome::Restart;
use crate::specs::Profile;
use crate::time::Timestamp;

/// How a task got done; where it was merged, the [`Detail`] knows the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Merged,
    Verified,
    ByHand,
    Skipped,
}

/// What each completion reads or writes of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hot {
    since: Timestamp,
    last_token: FencingToken,
    spent: Usd,
    /// The number of its lease.
    lease: u32,
    dispatches: u32,
    attempt: u32,
    /// How many grants of the run its workspace is older than its last one, and 1; 0 is none,
    /// [`NONE`] is in the detail.
    workspace: u32,
    /// The number of its detail.
    detail: u32,
    /// The number of its profile.
    profile: u32,
    /// Its place among all by priority and rank; a lower one goes first.
    order: u32,
    stage: u8,
    kind: Kind,
    way: Way,
    flags: u8,
}

const UNDER_WAY: u8 = 1;
const HOLDS_SCOPE: u8 = 2;
const ON_CANDIDATE: u8 = 4;
/// Something that it depends on is escalated, cancelled or blocked.
const NEVER_MET: u8 = 8;

/// How many tasks ahead of those that are done records are read: more than there are ready at once in
/// most graphs, and so few that they stay in the processor's cache.
const LOOK_AHEAD: usize = 2048;

/// The state of many tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    hot: Vec<Hot>,
    pub(super) places: Places,
    /// For each task how many of its dependencies are not done; apart, since each end of one that is
    /// waited for counts here, and touches nothing else of most of those that wait.
    unmet: Vec<u32>,
    /// For each task how many of its dependencies are escalated, cancelled or blocked; empty as long
    /// as none is.
    dead: Vec<u32>,
    details: Slab<Arc<Detail>>,
    leases: Leases,
}

/// For each task its place in the heap that it waits in, if it is in one; apart, since what moves in a
/// heap touches nothing else of most tasks there.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Vec<u32>);

impl Places {
    /// The place of a task.
    #[inline]
    pub(super) fn of(&self, task: u32) -> u32 {
        self.0[task as usize]
    }

    /// Notes places as a heap tells them.
    #[inline]
    pub(super) fn note(&mut self) -> impl FnMut(u32, u32) + '_ {
        |task, place| self.0[task as usize] = place
    }
}

impl Table {
    pub(super) const fn len(&self) -> usize {
        self.hot.len()
    }

    #[inline]
    pub(super) fn hot(&self, task: u32) -> &Hot {
        &self.hot[task as usize]
    }

    /// How many of a task's dependencies are not done.
    #[inline]
    pub(super) fn unmet(&self, task: u32) -> u32 {
        self.unmet[task as usize]
    }

    #[inline]
    pub(super) fn unmet_mut(&mut self, task: u32) -> &mut u32 {
        &mut self.unmet[task as usize]
    }

    /// How many of a task's dependencies are escalated, cancelled or blocked.
    pub(super) fn dead(&self, task: u32) -> u32 {
        self.dead.get(task as usize).copied().unwrap_or(0)
    }

    pub(super) fn set_dead(&mut self, task: u32, dead: u32) {
        if dead > 0 && self.dead.is_empty() {
            self.dead.resize(self.hot.len(), 0);
        }
        if let Some(place) = self.dead.get_mut(task as usize) {
            *place = dead;
        }
        let flags = &mut self.hot[task as usize].flags;
        *flags = if dead > 0 { *flags | NEVER_MET } else { *flags & !NEVER_MET };
    }

    /// Takes no task for one that waits for another.
    pub(super) fn forget_neighbours(&mut self) {
        self.unmet.fill(0);
        self.dead.clear();
    }

    /// Notes at a task what was counted for it.
    #[inline]
    pub(super) fn note_dead(&mut self, task: u32) {
        let dead = self.dead(task);
        // Most are as they were: they need not be written.
        if self.hot(task).is_never_met() != (dead > 0) {
            self.set_dead(task, dead);
        }
    }

    /// Whether a task could run if there were capacity.
    #[inline]
    pub(super) fn is_ready(&self, task: u32) -> bool {
        self.hot(task).kind == Kind::Open && self.unmet(task) == 0
    }

    /// Notes the place of a task among all by priority and rank.
    pub(super) fn set_order(&mut self, task: u32, order: u32) {
        self.hot[task as usize].order = order;
    }

    /// Notes the profile of a task.
    pub(super) fn set_profile(&mut self, task: u32, profile: u32) {
        self.hot[task as usize].profile = profile;
    }

    /// Reads the record of a task that will run some time after so many: numbers go in the order in
    /// which tasks are likely to run, and what is read in a row is there by the time that it is needed,
    /// where each of many tasks would be waited for.
    #[inline]
    pub(super) fn look_ahead(&self, done: u32) {
        black_box(self.hot.get(done as usize + LOOK_AHEAD).map(|hot| hot.kind));
    }

    pub(super) fn all_hot(&self) -> &[Hot] {
        &self.hot
    }

    #[inline]
    pub(super) fn lease(&self, number: u32) -> Option<&Lease> {
        self.leases.get(number)
    }

    /// Adds tasks of these profiles that were never granted.
    pub(super) fn add(&mut self, profiles: &[u32], at: Timestamp) {
        self.hot.reserve_exact(profiles.len());
        self.places.0.reserve_exact(profiles.len());
        self.unmet.reserve_exact(profiles.len());
        self.hot.extend(profiles.iter().map(|profile| Hot::fresh(at, *profile)));
        self.places.0.resize(self.hot.len(), NONE);
        self.unmet.resize(self.hot.len(), 0);
        if !self.dead.is_empty() {
            self.dead.resize(self.hot.len(), 0);
        }
    }

    pub(super) fn truncate(&mut self, tasks: usize) {
        self.places.0.truncate(tasks);
        self.unmet.truncate(tasks);
        self.dead.truncate(tasks);
        for hot in self.hot.drain(tasks..) {
            self.details.remove(hot.detail);
            if hot.kind.has_lease() {
                self.leases.end(hot.lease);
            }
        }
    }

    /// Makes what ended final: it cannot be undone any more.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.leases.forget();
    }

    #[inline]
    pub(super) fn row(&mut self, number: u32) -> Row<'_> {
        self.split(number).0
    }

    /// A task to be changed, and the places of all.
    #[inline]
    pub(super) fn split(&mut self, number: u32) -> (Row<'_>, &mut Places) {
        let Self { hot, places, details, leases, .. } = self;
        (Row { number, hot: &mut hot[number as usize], details, leases }, places)
    }

    #[inline]
    pub(super) fn view(&self, number: u32) -> View<'_> {
        let hot = &self.hot[number as usize];
        let lease = hot.kind.has_lease().then(|| self.leases.get(hot.lease)).flatten();
        View { hot, lease, detail: self.detail(hot.detail) }
    }

    #[inline]
    fn detail(&self, number: u32) -> &Detail {
        if number == NONE {
            return &PLAIN;
        }
        self.details.get(number).map_or(&PLAIN, |detail| detail)
    }
}

impl Hot {
    /// A task that was never granted.
    const fn fresh(at: Timestamp, profile: u32) -> Self {
        Self {
            since: at,
            last_token: FencingToken(0),
            spent: Usd::ZERO,
            lease: NONE,
            dispatches: 0,
            attempt: 0,
            workspace: 0,
            detail: NONE,
            profile,
            order: 0,
            stage: 0,
            kind: Kind::Open,
            way: Way::Verified,
            flags: 0,
        }
    }

    #[inline]
    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    #[inline]
    pub(super) const fn stage(&self) -> u8 {
        self.stage
    }

    #[inline]
    pub(super) const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The attempt that a grant would belong to.
    #[inline]
    pub(super) const fn attempt_of_grant(&self) -> u32 {
        if self.is_under_way() { self.attempt } else { self.attempt.saturating_add(1) }
    }

    #[inline]
    pub(super) const fn dispatches(&self) -> u32 {
        self.dispatches
    }

    /// Its class at the stage that it is at, if it has this profile.
    #[inline]
    pub(super) fn class(&self, profile: &Profile) -> Option<u32> {
        profile.class(self.attempt > 0, self.stage)
    }

    #[inline]
    pub(super) const fn profile(&self) -> u32 {
        self.profile
    }

    #[inline]
    pub(super) const fn order(&self) -> u32 {
        self.order
    }

    #[inline]
    pub(super) const fn lease(&self) -> u32 {
        self.lease
    }

    #[inline]
    pub(super) const fn since(&self) -> Timestamp {
        self.since
    }

    #[inline]
    pub(super) const fn spent(&self) -> Usd {
        self.spent
    }

    #[inline]
    pub(super) const fn is_under_way(&self) -> bool {
        self.flags & UNDER_WAY != 0
    }

    #[inline]
    pub(super) const fn holds_scope(&self) -> bool {
        self.flags & HOLDS_SCOPE != 0
    }

    pub(super) const fn restart(&self) -> Restart {
        if self.flags & ON_CANDIDATE == 0 { Restart::OnTarget } else { Restart::OnCandidate }
    }

    /// Whether it is past its first stage and not finished.
    #[inline]
    pub(super) const fn is_in_flight(&self) -> bool {
        self.stage > 0 && !self.kind.is_settled()
    }

    /// Whether something that it depends on is escalated, cancelled or blocked.
    #[inline]
    pub(super) const fn is_never_met(&self) -> bool {
        self.flags & NEVER_MET != 0
    }

    /// Whether it can never run as things are, though nobody gave it up.
    #[inline]
    pub(super) const fn is_blocked(&self) -> bool {
        self.is_never_met() && !self.kind.is_settled()
    }

    /// Whether what depends on it can never run as things are.
    pub(super) const fn is_dead(&self) -> bool {
        self.kind.is_dead_end() || self.is_blocked()
    }
}
