//! A task that is being changed.

use std::hint::cold_path;
use std::sync::Arc;

use super::{Before, HOLDS_SCOPE, Hot, NEVER_MET, ON_CANDIDATE, UNDER_WAY, View, Way};
use crate::engine::detail::{Detail, PLAIN};
use crate::engine::kind::Kind;
use crate::engine::leases::{Hold, Lease, Leases};
use crate::engine::slab::{NONE, Slab};
use crate::id::FencingToken;
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Interruption, Restart};
use crate::record::{Escalation, Wait};
use crate::time::Timestamp;

/// One task, to be changed where it lies. It must be out of the index while its phase changes.
#[derive(Debug)]
pub(in crate::engine) struct Row<'a> {
    pub(super) number: u32,
    pub(super) hot: &'a mut Hot,
    pub(super) details: &'a mut Slab<Arc<Detail>>,
    pub(super) leases: &'a mut Leases,
}

impl Row<'_> {
    #[inline]
    pub(in crate::engine) const fn number(&self) -> u32 {
        self.number
    }

    #[inline]
    pub(in crate::engine) const fn hot(&self) -> &Hot {
        self.hot
    }

    /// It, to be read.
    #[inline]
    pub(in crate::engine) fn view(&self) -> View<'_> {
        let lease = self.hot.kind.has_lease().then(|| self.its_lease()).flatten();
        View { hot: self.hot, lease, detail: self.detail() }
    }

    /// The lease that it has in its phase.
    #[inline]
    pub(in crate::engine) fn its_lease(&self) -> Option<&Lease> {
        self.leases.get(self.hot.lease)
    }

    /// Notes the places of leases among the hard stops.
    #[inline]
    pub(in crate::engine) fn note_stops(&mut self) -> impl FnMut(u32, u32) + '_ {
        |lease, place| {
            if let Some(lease) = self.leases.get_mut(lease) {
                lease.place = place;
            }
        }
    }

    /// Makes it what it was; what is computed of its neighbours, or of what the plans say, stays.
    pub(in crate::engine) fn restore(&mut self, before: &Before<'_>) {
        let lease_of = |hot: &Hot| hot.kind.has_lease().then_some(hot.lease);
        let (had, has) = (lease_of(before.hot), lease_of(self.hot));
        if had != has {
            has.into_iter().for_each(|lease| self.leases.take_back(lease));
            had.into_iter().for_each(|lease| self.leases.revive(lease));
        }
        if let Some(lease) = had.and_then(|lease| self.leases.get_mut(lease)) {
            lease.why = before.why;
        }
        let (detail, never_met) = (self.hot.detail, self.hot.flags & NEVER_MET);
        let flags = before.hot.flags & !NEVER_MET | never_met;
        let (profile, order) = (self.hot.profile, self.hot.order);
        *self.hot =
            Hot { detail, flags, profile, order, lease: had.unwrap_or(NONE), ..*before.hot };
        match before.detail.map(Arc::clone) {
            Some(detail) => match self.details.get_mut(self.hot.detail) {
                Some(place) => *place = detail,
                None => self.hot.detail = self.details.insert(detail),
            },
            None => {
                self.details.remove(self.hot.detail);
                self.hot.detail = NONE;
            }
        }
    }

    #[inline]
    pub(in crate::engine) fn hold(&self) -> Option<Hold> {
        let lease = self.hot.kind.has_lease().then(|| self.leases.get(self.hot.lease)).flatten();
        lease.map(|lease| lease.hold)
    }

    #[inline]
    pub(in crate::engine) fn detail(&self) -> &Detail {
        self.details.get(self.hot.detail).map_or(&PLAIN, |detail| detail)
    }

    /// The detail, made if there is none.
    #[inline]
    pub(in crate::engine) fn detail_mut(&mut self) -> &mut Detail {
        detail_of(self.hot, self.details)
    }

    /// Sets something back to what it is in a task that has no detail.
    #[inline]
    pub(in crate::engine) fn set_back(&mut self, change: impl FnOnce(&mut Detail)) {
        if self.hot.detail != NONE {
            cold_path();
            change(self.detail_mut());
        }
    }

    #[inline]
    pub(in crate::engine) const fn set_since(&mut self, at: Timestamp) {
        self.hot.since = at;
    }

    #[inline]
    pub(in crate::engine) const fn set_stage(&mut self, stage: u8) {
        self.hot.stage = stage;
    }

    #[inline]
    pub(in crate::engine) const fn set_attempt(&mut self, attempt: u32) {
        self.hot.attempt = attempt;
    }

    #[inline]
    pub(in crate::engine) const fn set_dispatches(&mut self, dispatches: u32) {
        self.hot.dispatches = dispatches;
    }

    #[inline]
    const fn set_flag(&mut self, flag: u8, to: bool) {
        self.hot.flags = if to { self.hot.flags | flag } else { self.hot.flags & !flag };
    }

    #[inline]
    pub(in crate::engine) const fn set_under_way(&mut self, is: bool) {
        self.set_flag(UNDER_WAY, is);
    }

    #[inline]
    pub(in crate::engine) const fn set_holds_scope(&mut self, holds: bool) {
        self.set_flag(HOLDS_SCOPE, holds);
    }

    #[inline]
    pub(in crate::engine) fn set_restart(&mut self, restart: Restart) {
        self.set_flag(ON_CANDIDATE, restart == Restart::OnCandidate);
    }

    #[inline]
    pub(in crate::engine) const fn last_token(&self) -> FencingToken {
        self.hot.last_token
    }

    /// Notes its last lease. Its workspace stays that of the lease that left it.
    #[inline]
    pub(in crate::engine) fn set_last_token(&mut self, token: FencingToken) {
        let workspace = self.workspace();
        self.hot.last_token = token;
        if !is_on(Mutant::WorkspaceOfAnother) {
            self.set_workspace(workspace);
        }
    }

    #[inline]
    fn workspace(&self) -> Option<FencingToken> {
        match self.hot.workspace {
            0 => None,
            NONE => self.detail().old_workspace,
            back => Some(FencingToken(self.hot.last_token.0.wrapping_sub(u64::from(back) - 1))),
        }
    }

    #[inline]
    pub(in crate::engine) fn set_workspace(&mut self, left_by: Option<FencingToken>) {
        let back = |token: FencingToken| {
            let back = self.hot.last_token.0.wrapping_sub(token.0).wrapping_add(1);
            u32::try_from(back).ok().filter(|back| *back > 0).unwrap_or(NONE)
        };
        self.hot.workspace = left_by.map_or(0, back);
        if self.hot.workspace == NONE {
            self.detail_mut().old_workspace = left_by;
        }
    }

    #[inline]
    pub(in crate::engine) const fn spend(&mut self, cost: Usd) {
        self.hot.spent = self.hot.spent.plus(cost);
    }

    /// Leaves its phase, with what belongs to that.
    #[inline]
    fn leave(&mut self) {
        if self.hot.kind.has_lease() {
            self.leases.end(self.hot.lease);
            self.hot.lease = NONE;
        } else if self.hot.detail != NONE {
            match self.hot.kind {
                Kind::Deferred => self.detail_mut().deferred = None,
                Kind::Escalated => self.detail_mut().escalation = None,
                Kind::Open | Kind::Leased | Kind::Stopping | Kind::Done | Kind::Cancelled => {}
            }
        }
    }

    #[inline]
    fn go(&mut self, kind: Kind) {
        self.leave();
        self.hot.kind = kind;
    }

    #[inline]
    pub(in crate::engine) fn open(&mut self) {
        self.go(Kind::Open);
    }

    pub(in crate::engine) fn defer(&mut self, until: Timestamp, why: Wait) {
        self.go(Kind::Deferred);
        self.detail_mut().deferred = Some((until, why));
    }

    #[inline]
    pub(in crate::engine) fn lease(&mut self, hold: Hold) {
        self.go(Kind::Leased);
        let lease = Lease { hold, task: self.number, place: NONE, why: Interruption::Crashed };
        self.hot.lease = self.leases.insert(lease);
    }

    /// Has its lease stopped, or stopped for another reason; nothing, when it has none.
    pub(in crate::engine) fn stop(&mut self, why: Interruption) {
        if self.hot.kind.has_lease()
            && let Some(lease) = self.leases.get_mut(self.hot.lease)
        {
            lease.why = why;
            self.hot.kind = Kind::Stopping;
        }
    }

    /// A live lease ends without its result: what was refused under it said nothing of what it spends,
    /// and what is said from now on is heard.
    pub(in crate::engine) fn hear_again(&mut self) {
        let before = FencingToken(self.hot.last_token.0.saturating_sub(1));
        if self.hot.kind == Kind::Leased {
            self.set_back(|detail| {
                detail.refused = detail.refused.map(|refused| refused.min(before));
            });
        }
    }

    #[inline]
    pub(in crate::engine) fn finish(&mut self, way: Way) {
        self.go(Kind::Done);
        self.hot.way = way;
    }

    pub(in crate::engine) fn escalate(&mut self, escalation: Escalation) {
        self.go(Kind::Escalated);
        self.detail_mut().escalation = Some(escalation);
    }

    pub(in crate::engine) fn cancel(&mut self) {
        self.go(Kind::Cancelled);
    }
}

/// The detail of a task, made if there is none. Not of a row, so that a row need not lie in memory
/// because of what is rare.
#[cold]
#[inline(never)]
fn detail_of<'a>(hot: &mut Hot, details: &'a mut Slab<Arc<Detail>>) -> &'a mut Detail {
    if hot.detail == NONE {
        hot.detail = details.insert(Arc::default());
    }
    let detail = details.get_mut(hot.detail);
    Arc::make_mut(detail.expect("a detail stays as long as its task names it"))
}
