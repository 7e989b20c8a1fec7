//! The tasks' records in dense form: what a completion touches lies together.
//!
//! A task that went through without trouble, and whose stages made nothing, costs 56 bytes here; what
//! most tasks do not have lies apart in a [`Detail`]. A [`Row`] changes a task where it lies, a
//! [`View`] reads it, a [`Saved`] is how it was.

mod row;

use std::sync::Arc;

pub(super) use self::row::Row;
use super::detail::{Detail, PLAIN};
use super::kind::Kind;
use super::leases::{Hold, Lease, Leases};
use super::slab::{NONE, Slab};
use crate::id::FencingToken;
use crate::money::Usd;
use crate::outcome::{Interruption, Restart};
use crate::record::Completion;
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
    /// Its place in the heap or list that its phase puts it in, or the number of its lease.
    pub(super) slot: u32,
    dispatches: u32,
    attempt: u32,
    /// How many grants of the run its workspace is older than its last one, and 1; 0 is none,
    /// [`NONE`] is in the detail.
    workspace: u32,
    /// The number of its detail.
    detail: u32,
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

/// The state of many tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    hot: Vec<Hot>,
    /// For each task how many of its dependencies are not done; apart, since each end of one that is
    /// waited for counts here, and touches nothing else of most of those that wait.
    unmet: Vec<u32>,
    /// For each task how many of its dependencies are escalated, cancelled or blocked.
    dead: Vec<u32>,
    details: Slab<Arc<Detail>>,
    leases: Leases,
}

/// How a task was before a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Saved {
    pub(super) task: u32,
    /// The place of its detail among those that were saved.
    detail: u32,
    hot: Hot,
    /// Why its lease was being stopped; meaningless unless it was. The lease itself is still there.
    why: Interruption,
}

/// One task, to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    hot: &'a Hot,
    lease: Option<&'a Lease>,
    detail: &'a Detail,
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
        self.dead[task as usize]
    }

    pub(super) fn set_dead(&mut self, task: u32, dead: u32) {
        self.dead[task as usize] = dead;
        let flags = &mut self.hot[task as usize].flags;
        *flags = if dead > 0 { *flags | NEVER_MET } else { *flags & !NEVER_MET };
    }

    /// Whether a task could run if there were capacity.
    #[inline]
    pub(super) fn is_ready(&self, task: u32) -> bool {
        self.hot(task).kind == Kind::Open && self.unmet(task) == 0
    }

    pub(super) fn all_hot(&self) -> &[Hot] {
        &self.hot
    }

    /// Gives a task's place in a heap a writer of its own, while the heap is borrowed.
    #[inline]
    pub(super) fn placer(&mut self) -> impl FnMut(u32, u32) + '_ {
        |task, place| self.hot[task as usize].slot = place
    }

    #[inline]
    pub(super) fn lease(&self, number: u32) -> Option<&Lease> {
        self.leases.get(number)
    }

    #[inline]
    pub(super) fn lease_mut(&mut self, number: u32) -> Option<&mut Lease> {
        self.leases.get_mut(number)
    }

    pub(super) fn reserve(&mut self, more: usize) {
        self.hot.reserve_exact(more);
        self.unmet.reserve_exact(more);
        self.dead.reserve_exact(more);
    }

    /// Adds a task that was never granted.
    pub(super) fn push(&mut self, at: Timestamp) -> Row<'_> {
        let number = u32::try_from(self.hot.len()).unwrap_or(NONE);
        self.hot.push(Hot {
            since: at,
            last_token: FencingToken(0),
            spent: Usd::ZERO,
            slot: NONE,
            dispatches: 0,
            attempt: 0,
            workspace: 0,
            detail: NONE,
            stage: 0,
            kind: Kind::Open,
            way: Way::Verified,
            flags: 0,
        });
        self.unmet.push(0);
        self.dead.push(0);
        self.row(number)
    }

    pub(super) fn truncate(&mut self, tasks: usize) {
        self.unmet.truncate(tasks);
        self.dead.truncate(tasks);
        for hot in self.hot.drain(tasks..) {
            self.details.remove(hot.detail);
            if hot.kind.has_lease() {
                self.leases.end(hot.slot);
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
        let Self { hot, details, leases, .. } = self;
        Row { number, hot: &mut hot[number as usize], details, leases }
    }

    #[inline]
    pub(super) fn view(&self, number: u32) -> View<'_> {
        let hot = &self.hot[number as usize];
        let lease = hot.kind.has_lease().then(|| self.leases.get(hot.slot)).flatten();
        View { hot, lease, detail: self.detail(hot.detail) }
    }

    #[inline]
    fn detail(&self, number: u32) -> &Detail {
        if number == NONE {
            return &PLAIN;
        }
        self.details.get(number).map_or(&PLAIN, |detail| detail)
    }

    /// Adds how a task is now to what was saved; its detail, if it has one, to the details.
    #[inline]
    pub(super) fn save(&self, task: u32, all: &mut Vec<Saved>, details: &mut Vec<Arc<Detail>>) {
        let hot = &self.hot[task as usize];
        let has_more = hot.detail != NONE || hot.kind == Kind::Stopping;
        all.push(Saved { hot: *hot, task, detail: NONE, why: Interruption::Crashed });
        if has_more && let Some(saved) = all.last_mut() {
            self.save_more(saved, details);
        }
    }

    #[inline(never)]
    fn save_more(&self, saved: &mut Saved, details: &mut Vec<Arc<Detail>>) {
        let Hot { kind, slot, detail, .. } = saved.hot;
        if kind == Kind::Stopping
            && let Some(lease) = self.leases.get(slot)
        {
            saved.why = lease.why;
        }
        if let Some(detail) = self.details.get(detail) {
            saved.detail = u32::try_from(details.len()).unwrap_or(NONE);
            details.push(Arc::clone(detail));
        }
    }

    /// Makes a task what it was; what is computed of its neighbours stays.
    pub(super) fn restore(&mut self, saved: &Saved, details: &[Arc<Detail>]) {
        let row = self.row(saved.task);
        let lease_of = |hot: &Hot| hot.kind.has_lease().then_some(hot.slot);
        let (had, has) = (lease_of(&saved.hot), lease_of(row.hot));
        if had != has {
            has.into_iter().for_each(|lease| row.leases.take_back(lease));
            had.into_iter().for_each(|lease| row.leases.revive(lease));
        }
        if let Some(lease) = had.and_then(|lease| row.leases.get_mut(lease)) {
            lease.why = saved.why;
        }
        let (detail, never_met) = (row.hot.detail, row.hot.flags & NEVER_MET);
        let flags = saved.hot.flags & !NEVER_MET | never_met;
        *row.hot = Hot { detail, flags, slot: had.unwrap_or(NONE), ..saved.hot };
        match details.get(saved.detail as usize).map(Arc::clone) {
            Some(detail) => match row.details.get_mut(row.hot.detail) {
                Some(place) => *place = detail,
                None => row.hot.detail = row.details.insert(detail),
            },
            None => {
                row.details.remove(row.hot.detail);
                row.hot.detail = NONE;
            }
        }
    }
}

impl<'a> View<'a> {
    #[inline]
    pub(super) const fn hot(&self) -> &'a Hot {
        self.hot
    }

    #[inline]
    pub(super) const fn detail(&self) -> &'a Detail {
        self.detail
    }

    /// Its lease, live or being stopped.
    #[inline]
    pub(super) fn hold(&self) -> Option<&'a Hold> {
        self.lease.map(|lease| &lease.hold)
    }

    /// Its lease that is being stopped, and why.
    #[inline]
    pub(super) fn stopping(&self) -> Option<(&'a Hold, Interruption)> {
        let is_stopping = self.hot.kind == Kind::Stopping;
        self.lease.filter(|_| is_stopping).map(|lease| (&lease.hold, lease.why))
    }

    #[inline]
    pub(super) const fn last_token(&self) -> FencingToken {
        self.hot.last_token
    }

    #[inline]
    pub(super) const fn spent(&self) -> Usd {
        self.hot.spent
    }

    pub(super) fn workspace(&self) -> Option<FencingToken> {
        match self.hot.workspace {
            0 => None,
            NONE => self.detail.old_workspace,
            back => Some(FencingToken(self.hot.last_token.0.wrapping_sub(u64::from(back) - 1))),
        }
    }

    /// How it got done.
    pub(super) fn completion(&self) -> Completion {
        match (self.hot.way, &self.detail.merged) {
            (Way::Merged, Some(change)) => Completion::Merged(change.clone()),
            (Way::Merged | Way::Verified, _) => Completion::Verified,
            (Way::ByHand, _) => Completion::ByHand,
            (Way::Skipped, _) => Completion::Skipped,
        }
    }
}

impl Hot {
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

    #[inline]
    pub(super) const fn since(&self) -> Timestamp {
        self.since
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
