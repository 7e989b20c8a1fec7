//! A task that is being read.

use super::{Hot, Way};
use crate::engine::detail::Detail;
use crate::engine::kind::Kind;
use crate::engine::leases::{Hold, Lease};
use crate::engine::slab::NONE;
use crate::id::FencingToken;
use crate::money::Usd;
use crate::outcome::Interruption;
use crate::record::Completion;

/// One task, to be read.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct View<'a> {
    pub(super) hot: &'a Hot,
    pub(super) lease: Option<&'a Lease>,
    pub(super) detail: &'a Detail,
}

impl<'a> View<'a> {
    #[inline]
    pub(in crate::engine) const fn hot(&self) -> &'a Hot {
        self.hot
    }

    #[inline]
    pub(in crate::engine) const fn detail(&self) -> &'a Detail {
        self.detail
    }

    /// Its lease, live or being stopped.
    #[inline]
    pub(in crate::engine) fn hold(&self) -> Option<&'a Hold> {
        self.lease.map(|lease| &lease.hold)
    }

    /// Its lease that is being stopped, and why.
    #[inline]
    pub(in crate::engine) fn stopping(&self) -> Option<(&'a Hold, Interruption)> {
        let is_stopping = self.hot.kind == Kind::Stopping;
        self.lease.filter(|_| is_stopping).map(|lease| (&lease.hold, lease.why))
    }

    #[inline]
    pub(in crate::engine) const fn last_token(&self) -> FencingToken {
        self.hot.last_token
    }

    #[inline]
    pub(in crate::engine) const fn spent(&self) -> Usd {
        self.hot.spent
    }

    pub(in crate::engine) fn workspace(&self) -> Option<FencingToken> {
        match self.hot.workspace {
            0 => None,
            NONE => self.detail.old_workspace,
            back => Some(FencingToken(self.hot.last_token.0.wrapping_sub(u64::from(back) - 1))),
        }
    }

    /// How it got done.
    pub(in crate::engine) fn completion(&self) -> Completion {
        match (self.hot.way, &self.detail.merged) {
            (Way::Merged, Some(change)) => Completion::Merged(change.clone()),
            (Way::Merged | Way::Verified, _) => Completion::Verified,
            (Way::ByHand, _) => Completion::ByHand,
            (Way::Skipped, _) => Completion::Skipped,
        }
    }
}
