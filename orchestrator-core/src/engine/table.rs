//! The tasks' records in dense form: what a completion touches lies together.
//!
//! A task that went through without trouble, and whose stages made nothing, costs 56 bytes here; what
//! most tasks do not have lies apart in a [`Detail`]. A [`Row`] changes a task where it lies, a
//! [`View`] reads it, a [`Saved`] is how it was.

use std::sync::Arc;

use super::detail::{Detail, PLAIN};
use super::kind::Kind;
use super::leases::{Hold, Lease, Leases};
use super::slab::{NONE, Slab};
use crate::id::FencingToken;
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Interruption, Restart};
use crate::record::{Completion, Escalation, Wait};
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
    /// Its place in the heap or list that its phase puts it in, or the number of its lease.
    pub(super) slot: u32,
    /// Dependencies that are not done.
    pub(super) unmet: u32,
    /// Dependencies that are escalated, cancelled or blocked.
    pub(super) dead: u32,
    dispatches: u32,
    attempt: u32,
    stage: u8,
    kind: Kind,
    way: Way,
    flags: u8,
}

const UNDER_WAY: u8 = 1;
const HOLDS_SCOPE: u8 = 2;
const ON_CANDIDATE: u8 = 4;

#[derive(Debug, Clone, Copy)]
struct Cold {
    last_token: FencingToken,
    spent: Usd,
    /// How many grants of the run its workspace is older than its last one, and 1; 0 is none,
    /// [`NONE`] is in the detail.
    workspace: u32,
    /// The number of its detail.
    detail: u32,
}

/// The state of many tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    details: Slab<Arc<Detail>>,
    leases: Leases,
}

/// How a task was before a change.
#[derive(Debug, Clone)]
pub(super) struct Saved {
    hot: Hot,
    cold: Cold,
    /// Why its lease was being stopped; meaningless unless it was. The lease itself is still there.
    why: Interruption,
    detail: Option<Arc<Detail>>,
}

/// One task, to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    hot: &'a Hot,
    cold: &'a Cold,
    lease: Option<&'a Lease>,
    detail: &'a Detail,
}

/// One task, to be changed where it lies. It must be out of the index while its phase changes.
#[derive(Debug)]
pub(super) struct Row<'a> {
    number: u32,
    hot: &'a mut Hot,
    cold: &'a mut Cold,
    details: &'a mut Slab<Arc<Detail>>,
    leases: &'a mut Leases,
}

impl Table {
    pub(super) const fn len(&self) -> usize {
        self.hot.len()
    }

    pub(super) fn hot(&self, task: u32) -> &Hot {
        &self.hot[task as usize]
    }

    pub(super) fn hot_mut(&mut self, task: u32) -> &mut Hot {
        &mut self.hot[task as usize]
    }

    pub(super) fn all_hot(&self) -> &[Hot] {
        &self.hot
    }

    /// Gives a task's place in a heap a writer of its own, while the heap is borrowed.
    pub(super) fn placer(&mut self) -> impl FnMut(u32, u32) + '_ {
        |task, place| self.hot[task as usize].slot = place
    }

    pub(super) fn lease(&self, number: u32) -> Option<&Lease> {
        self.leases.get(number)
    }

    pub(super) fn lease_mut(&mut self, number: u32) -> Option<&mut Lease> {
        self.leases.get_mut(number)
    }

    pub(super) fn reserve(&mut self, more: usize) {
        self.hot.reserve_exact(more);
        self.cold.reserve_exact(more);
    }

    /// Adds a task that was never granted.
    pub(super) fn push(&mut self, at: Timestamp) -> Row<'_> {
        let number = u32::try_from(self.hot.len()).unwrap_or(NONE);
        self.hot.push(Hot {
            since: at,
            slot: NONE,
            unmet: 0,
            dead: 0,
            dispatches: 0,
            attempt: 0,
            stage: 0,
            kind: Kind::Open,
            way: Way::Verified,
            flags: 0,
        });
        let (last_token, spent) = (FencingToken(0), Usd::ZERO);
        self.cold.push(Cold { last_token, spent, workspace: 0, detail: NONE });
        self.row(number)
    }

    pub(super) fn truncate(&mut self, tasks: usize) {
        for (hot, cold) in self.hot.drain(tasks..).zip(self.cold.drain(tasks..)) {
            self.details.remove(cold.detail);
            if hot.kind.has_lease() {
                self.leases.end(hot.slot);
            }
        }
    }

    /// Makes what ended final: it cannot be undone any more.
    pub(super) fn forget(&mut self) {
        self.leases.forget();
    }

    pub(super) fn row(&mut self, number: u32) -> Row<'_> {
        let place = number as usize;
        let Self { hot, cold, details, leases } = self;
        Row { number, hot: &mut hot[place], cold: &mut cold[place], details, leases }
    }

    pub(super) fn view(&self, number: u32) -> View<'_> {
        let (hot, cold) = (&self.hot[number as usize], &self.cold[number as usize]);
        let lease = hot.kind.has_lease().then(|| self.leases.get(hot.slot)).flatten();
        View { hot, cold, lease, detail: self.detail(cold.detail) }
    }

    fn detail(&self, number: u32) -> &Detail {
        if number == NONE {
            return &PLAIN;
        }
        self.details.get(number).map_or(&*PLAIN, |detail| detail)
    }

    /// How a task is now.
    pub(super) fn save(&self, number: u32) -> Saved {
        let (hot, cold) = (self.hot[number as usize], self.cold[number as usize]);
        let is_stopping = hot.kind == Kind::Stopping;
        let lease = is_stopping.then(|| self.leases.get(hot.slot)).flatten();
        let has_detail = cold.detail != NONE;
        let detail = has_detail.then(|| self.details.get(cold.detail).cloned()).flatten();
        Saved { hot, cold, why: lease.map_or(Interruption::Crashed, |lease| lease.why), detail }
    }

    /// Makes a task what it was; what is computed of its neighbours stays.
    pub(super) fn restore(&mut self, number: u32, saved: Saved) {
        let row = self.row(number);
        let lease_of = |hot: &Hot| hot.kind.has_lease().then_some(hot.slot);
        let (had, has) = (lease_of(&saved.hot), lease_of(row.hot));
        if had != has {
            has.into_iter().for_each(|lease| row.leases.take_back(lease));
            had.into_iter().for_each(|lease| row.leases.revive(lease));
        }
        if let Some(lease) = had.and_then(|lease| row.leases.get_mut(lease)) {
            lease.why = saved.why;
        }
        let (unmet, dead, detail) = (row.hot.unmet, row.hot.dead, row.cold.detail);
        *row.hot = Hot { unmet, dead, slot: had.unwrap_or(NONE), ..saved.hot };
        *row.cold = Cold { detail, ..saved.cold };
        match saved.detail {
            Some(detail) => match row.details.get_mut(row.cold.detail) {
                Some(place) => *place = detail,
                None => row.cold.detail = row.details.insert(detail),
            },
            None => {
                row.details.remove(row.cold.detail);
                row.cold.detail = NONE;
            }
        }
    }
}

impl<'a> View<'a> {
    pub(super) const fn hot(&self) -> &'a Hot {
        self.hot
    }

    pub(super) const fn detail(&self) -> &'a Detail {
        self.detail
    }

    /// Its lease, live or being stopped.
    pub(super) fn hold(&self) -> Option<&'a Hold> {
        self.lease.map(|lease| &lease.hold)
    }

    /// Its lease that is being stopped, and why.
    pub(super) fn stopping(&self) -> Option<(&'a Hold, Interruption)> {
        let is_stopping = self.hot.kind == Kind::Stopping;
        self.lease.filter(|_| is_stopping).map(|lease| (&lease.hold, lease.why))
    }

    pub(super) const fn last_token(&self) -> FencingToken {
        self.cold.last_token
    }

    pub(super) const fn spent(&self) -> Usd {
        self.cold.spent
    }

    pub(super) fn workspace(&self) -> Option<FencingToken> {
        match self.cold.workspace {
            0 => None,
            NONE => self.detail.old_workspace,
            back => Some(FencingToken(self.cold.last_token.0.wrapping_sub(u64::from(back) - 1))),
        }
    }

    /// The attempt that a grant would belong to.
    pub(super) const fn attempt_of_grant(&self) -> u32 {
        let Hot { attempt, .. } = *self.hot;
        if self.hot.is_under_way() { attempt } else { attempt.saturating_add(1) }
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

impl Row<'_> {
    pub(super) const fn hot(&self) -> &Hot {
        self.hot
    }

    pub(super) fn hold(&self) -> Option<Hold> {
        let lease = self.hot.kind.has_lease().then(|| self.leases.get(self.hot.slot)).flatten();
        lease.map(|lease| lease.hold)
    }

    pub(super) fn detail(&self) -> &Detail {
        self.details.get(self.cold.detail).map_or(&*PLAIN, |detail| detail)
    }

    /// The detail, made if there is none.
    pub(super) fn detail_mut(&mut self) -> &mut Detail {
        if self.cold.detail == NONE {
            self.cold.detail = self.details.insert(Arc::default());
        }
        let detail = self.details.get_mut(self.cold.detail);
        Arc::make_mut(detail.expect("a detail stays as long as its task names it"))
    }

    /// Sets something back to what it is in a task that has no detail.
    pub(super) fn set_back(&mut self, change: impl FnOnce(&mut Detail)) {
        if self.cold.detail != NONE {
            change(self.detail_mut());
        }
    }

    pub(super) const fn set_since(&mut self, at: Timestamp) {
        self.hot.since = at;
    }

    pub(super) const fn set_stage(&mut self, stage: u8) {
        self.hot.stage = stage;
    }

    pub(super) const fn set_attempt(&mut self, attempt: u32) {
        self.hot.attempt = attempt;
    }

    pub(super) const fn set_dispatches(&mut self, dispatches: u32) {
        self.hot.dispatches = dispatches;
    }

    const fn set_flag(&mut self, flag: u8, to: bool) {
        self.hot.flags = if to { self.hot.flags | flag } else { self.hot.flags & !flag };
    }

    pub(super) const fn set_under_way(&mut self, is: bool) {
        self.set_flag(UNDER_WAY, is);
    }

    pub(super) const fn set_holds_scope(&mut self, holds: bool) {
        self.set_flag(HOLDS_SCOPE, holds);
    }

    pub(super) fn set_restart(&mut self, restart: Restart) {
        self.set_flag(ON_CANDIDATE, restart == Restart::OnCandidate);
    }

    pub(super) const fn last_token(&self) -> FencingToken {
        self.cold.last_token
    }

    /// Notes its last lease. Its workspace stays that of the lease that left it.
    pub(super) fn set_last_token(&mut self, token: FencingToken) {
        let workspace = self.workspace();
        self.cold.last_token = token;
        if !is_on(Mutant::WorkspaceOfAnother) {
            self.set_workspace(workspace);
        }
    }

    fn workspace(&self) -> Option<FencingToken> {
        match self.cold.workspace {
            0 => None,
            NONE => self.detail().old_workspace,
            back => Some(FencingToken(self.cold.last_token.0.wrapping_sub(u64::from(back) - 1))),
        }
    }

    pub(super) fn set_workspace(&mut self, left_by: Option<FencingToken>) {
        let back = |token: FencingToken| {
            let back = self.cold.last_token.0.wrapping_sub(token.0).wrapping_add(1);
            u32::try_from(back).ok().filter(|back| *back > 0).unwrap_or(NONE)
        };
        self.cold.workspace = left_by.map_or(0, back);
        if self.cold.workspace == NONE {
            self.detail_mut().old_workspace = left_by;
        }
    }

    pub(super) const fn spend(&mut self, cost: Usd) {
        self.cold.spent = self.cold.spent.plus(cost);
    }

    /// Leaves its phase, with what belongs to that.
    fn leave(&mut self) {
        match self.hot.kind {
            Kind::Leased | Kind::Stopping => {
                self.leases.end(self.hot.slot);
                self.hot.slot = NONE;
            }
            Kind::Deferred => self.set_back(|detail| detail.deferred = None),
            Kind::Escalated => self.set_back(|detail| detail.escalation = None),
            Kind::Open | Kind::Done | Kind::Cancelled => {}
        }
    }

    fn go(&mut self, kind: Kind) {
        self.leave();
        self.hot.kind = kind;
    }

    pub(super) fn open(&mut self) {
        self.go(Kind::Open);
    }

    pub(super) fn defer(&mut self, until: Timestamp, why: Wait) {
        self.go(Kind::Deferred);
        self.detail_mut().deferred = Some((until, why));
    }

    pub(super) fn lease(&mut self, hold: Hold) {
        self.go(Kind::Leased);
        let lease = Lease { hold, task: self.number, place: NONE, why: Interruption::Crashed };
        self.hot.slot = self.leases.insert(lease);
    }

    /// Has its lease stopped, or stopped for another reason; nothing, when it has none.
    pub(super) fn stop(&mut self, why: Interruption) {
        if self.hot.kind.has_lease()
            && let Some(lease) = self.leases.get_mut(self.hot.slot)
        {
            lease.why = why;
            self.hot.kind = Kind::Stopping;
        }
    }

    /// A live lease ends without its result: what was refused under it said nothing of what it spends,
    /// and what is said from now on is heard.
    pub(super) fn hear_again(&mut self) {
        let before = FencingToken(self.cold.last_token.0.saturating_sub(1));
        if self.hot.kind == Kind::Leased {
            self.set_back(|detail| {
                detail.refused = detail.refused.map(|refused| refused.min(before));
            });
        }
    }

    pub(super) fn finish(&mut self, way: Way) {
        self.go(Kind::Done);
        self.hot.way = way;
    }

    pub(super) fn escalate(&mut self, escalation: Escalation) {
        self.go(Kind::Escalated);
        self.detail_mut().escalation = Some(escalation);
    }

    pub(super) fn cancel(&mut self) {
        self.go(Kind::Cancelled);
    }
}

impl Hot {
    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) const fn stage(&self) -> u8 {
        self.stage
    }

    pub(super) const fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(super) const fn dispatches(&self) -> u32 {
        self.dispatches
    }

    pub(super) const fn since(&self) -> Timestamp {
        self.since
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.flags & UNDER_WAY != 0
    }

    pub(super) const fn holds_scope(&self) -> bool {
        self.flags & HOLDS_SCOPE != 0
    }

    pub(super) const fn restart(&self) -> Restart {
        if self.flags & ON_CANDIDATE == 0 { Restart::OnTarget } else { Restart::OnCandidate }
    }

    /// Whether it could run if there were capacity.
    pub(super) const fn is_ready(&self) -> bool {
        self.unmet == 0 && matches!(self.kind, Kind::Open)
    }

    /// Whether it is past its first stage and not finished.
    pub(super) const fn is_in_flight(&self) -> bool {
        self.stage > 0 && !self.kind.is_settled()
    }

    /// Whether it can never run as things are, though nobody gave it up.
    pub(super) const fn is_blocked(&self) -> bool {
        self.dead > 0 && !self.kind.is_settled()
    }

    /// Whether what depends on it can never run as things are.
    pub(super) const fn is_dead(&self) -> bool {
        self.kind.is_dead_end() || self.is_blocked()
    }
}
