//! The phases of a task, as the engine tells them apart inside.

use crate::mutant::{Mutant, is_on};
use crate::record::Counts;

/// What a task is doing; what belongs to a phase is in its lease or [`Detail`](super::detail::Detail).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Deferred,
    Leased,
    Stopping,
    Done,
    Escalated,
    Cancelled,
}

impl Kind {
    /// Whether nothing but a person changes this phase.
    #[inline]
    pub(super) const fn is_settled(self) -> bool {
        matches!(self, Self::Done | Self::Escalated | Self::Cancelled)
    }

    /// Whether a task in this phase is another thing to those that wait for it than an open one.
    #[inline]
    pub(super) fn concerns_others(self) -> bool {
        self.is_settled() || is_on(Mutant::WaitBlocksDependents)
    }

    /// Whether it is neither to be worked on nor waited for.
    #[inline]
    pub(super) const fn is_finished(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }

    /// Whether what depends on a task in this phase cannot run.
    #[inline]
    pub(super) const fn is_dead_end(self) -> bool {
        matches!(self, Self::Escalated | Self::Cancelled)
    }

    /// Whether a task in this phase has a lease, live or being stopped.
    #[inline]
    pub(super) const fn has_lease(self) -> bool {
        matches!(self, Self::Leased | Self::Stopping)
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Deferred => "deferred",
            Self::Leased => "leased",
            Self::Stopping => "stopping",
            Self::Done => "done",
            Self::Escalated => "escalated",
            Self::Cancelled => "cancelled",
        }
    }

    /// The counter of this phase.
    #[inline]
    pub(super) fn counter(self, counts: &mut Counts) -> &mut u32 {
        // Most are one of these.
        if self == Self::Open {
            &mut counts.open
        } else if self == Self::Leased {
            &mut counts.leased
        } else {
            self.rare_counter(counts)
        }
    }

    #[cold]
    #[inline(never)]
    const fn rare_counter(self, counts: &mut Counts) -> &mut u32 {
        match self {
            Self::Open => &mut counts.open,
            Self::Deferred => &mut counts.deferred,
            Self::Leased => &mut counts.leased,
            Self::Stopping => &mut counts.stopping,
            Self::Done => &mut counts.done,
            Self::Escalated => &mut counts.escalated,
            Self::Cancelled => &mut counts.cancelled,
        }
    }
}
