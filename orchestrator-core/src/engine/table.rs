//! The tasks' records in dense form: what a completion touches lies together.
//!
//! [`Task`] is one task's own state as a value, [`Table`] keeps many of them. A task that went
//! through without trouble, and whose stages made nothing, costs 56 bytes here; what most tasks do
//! not have lies apart in a [`Detail`].

use std::sync::Arc;

use crate::id::{BlobHash, ChangeId, FencingToken, SessionId};
use crate::money::Usd;
use crate::outcome::{Candidate, Interruption, MergeIntent, Restart};
use crate::record::{Completion, Counts, Escalation, Extra};
use crate::time::Timestamp;

/// The state of one task, without its name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Task {
    pub(super) phase: Phase,
    pub(super) since: Timestamp,
    pub(super) stage: u8,
    pub(super) attempt: u32,
    pub(super) dispatches: u32,
    pub(super) under_way: bool,
    pub(super) holds_scope: bool,
    pub(super) restart: Restart,
    pub(super) workspace: Option<FencingToken>,
    pub(super) last_token: FencingToken,
    pub(super) spent: Usd,
    pub(super) detail: Option<Arc<Detail>>,
}

/// What a task is doing; the parts of a phase that are rare are in the [`Detail`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    Open,
    Deferred,
    Leased(Hold),
    Stopping(Hold, Interruption),
    Done(Way),
    Escalated,
    Cancelled,
}

/// A lease, with its owner by number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hold {
    pub(super) token: FencingToken,
    pub(super) owner: u32,
    pub(super) granted_at: Timestamp,
    pub(super) hard_stop: Timestamp,
    pub(super) reserved: Usd,
}

/// How a task got done; where it was merged, the [`Detail`] knows the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Merged,
    Verified,
    ByHand,
    Skipped,
}

/// What most tasks do not have.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Detail {
    pub(super) deferred: Option<(Timestamp, Interruption)>,
    pub(super) merged: Option<ChangeId>,
    pub(super) escalation: Option<Escalation>,
    pub(super) rejections: u32,
    pub(super) interruptions: u32,
    pub(super) extra: Extra,
    pub(super) feedback: Vec<BlobHash>,
    pub(super) signature: Option<u64>,
    pub(super) session: Option<SessionId>,
    pub(super) candidate: Option<Candidate>,
    pub(super) intent: Option<MergeIntent>,
    pub(super) settled: Usd,
    pub(super) refused: Option<FencingToken>,
    /// The lease that made its workspace, where that is too long ago for the table.
    pub(super) old_workspace: Option<FencingToken>,
}

/// A task that has nothing unusual has this.
static PLAIN: std::sync::LazyLock<Detail> = std::sync::LazyLock::new(Detail::default);

impl Task {
    /// A task that was just added.
    pub(super) const fn new(at: Timestamp) -> Self {
        Self {
            phase: Phase::Open,
            since: at,
            stage: 0,
            attempt: 0,
            dispatches: 0,
            under_way: false,
            holds_scope: false,
            restart: Restart::OnTarget,
            workspace: None,
            last_token: FencingToken(0),
            spent: Usd::ZERO,
            detail: None,
        }
    }

    pub(super) fn detail(&self) -> &Detail {
        self.detail.as_deref().unwrap_or(&PLAIN)
    }

    /// The detail, made if there is none.
    pub(super) fn detail_mut(&mut self) -> &mut Detail {
        Arc::make_mut(self.detail.get_or_insert_default())
    }

    /// Sets something back to what it is in a task that has no detail.
    pub(super) fn set_back(&mut self, change: impl FnOnce(&mut Detail)) {
        if let Some(detail) = &mut self.detail {
            change(Arc::make_mut(detail));
        }
    }

    pub(super) const fn hold(&self) -> Option<&Hold> {
        self.phase.hold()
    }

    /// How it got done, if it is.
    pub(super) fn completion(&self, way: Way) -> Completion {
        match (way, &self.detail().merged) {
            (Way::Merged, Some(change)) => Completion::Merged(change.clone()),
            (Way::Merged | Way::Verified, _) => Completion::Verified,
            (Way::ByHand, _) => Completion::ByHand,
            (Way::Skipped, _) => Completion::Skipped,
        }
    }
}

impl Phase {
    /// The lease of a phase that has one.
    pub(super) const fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Leased(hold) | Self::Stopping(hold, _) => Some(hold),
            Self::Open | Self::Deferred | Self::Done(_) | Self::Escalated | Self::Cancelled => None,
        }
    }

    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Open => Kind::Open,
            Self::Deferred => Kind::Deferred,
            Self::Leased(_) => Kind::Leased,
            Self::Stopping(..) => Kind::Stopping,
            Self::Done(_) => Kind::Done,
            Self::Escalated => Kind::Escalated,
            Self::Cancelled => Kind::Cancelled,
        }
    }
}

/// A phase without what belongs to it.
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
    pub(super) const fn is_settled(self) -> bool {
        matches!(self, Self::Done | Self::Escalated | Self::Cancelled)
    }

    /// Whether what depends on a task in this phase cannot run.
    pub(super) const fn is_dead_end(self) -> bool {
        matches!(self, Self::Escalated | Self::Cancelled)
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
    pub(super) const fn counter(self, counts: &mut Counts) -> &mut u32 {
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

/// No detail, lease or place.
pub(super) const NONE: u32 = u32::MAX;

/// A lease in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) hold: Hold,
    pub(super) stopping: Option<Interruption>,
    /// Whose it is.
    pub(super) task: u32,
    /// Its place among the hard stops.
    pub(super) place: u32,
}

/// The state of many tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    details: Slab<Arc<Detail>>,
    leases: Slab<Lease>,
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

    pub(super) fn push(&mut self, task: Task) {
        let number = u32::try_from(self.hot.len()).unwrap_or(NONE);
        self.hot.push(Hot {
            since: task.since,
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
        self.put(number, task);
    }

    pub(super) fn truncate(&mut self, tasks: usize) {
        for task in tasks..self.len() {
            self.put(u32::try_from(task).unwrap_or(NONE), Task::new(Timestamp(0)));
        }
        self.hot.truncate(tasks);
        self.cold.truncate(tasks);
    }

    pub(super) fn reserve(&mut self, more: usize) {
        self.hot.reserve_exact(more);
        self.cold.reserve_exact(more);
    }

    /// A task's state.
    pub(super) fn get(&self, number: u32) -> Task {
        let (hot, cold) = (&self.hot[number as usize], &self.cold[number as usize]);
        let phase = match hot.kind {
            Kind::Open => Phase::Open,
            Kind::Deferred => Phase::Deferred,
            Kind::Leased | Kind::Stopping => match self.leases.get(hot.slot) {
                Some(lease) => match lease.stopping {
                    Some(why) => Phase::Stopping(lease.hold, why),
                    None => Phase::Leased(lease.hold),
                },
                None => Phase::Open,
            },
            Kind::Done => Phase::Done(hot.way),
            Kind::Escalated => Phase::Escalated,
            Kind::Cancelled => Phase::Cancelled,
        };
        let restart =
            if hot.flags & ON_CANDIDATE == 0 { Restart::OnTarget } else { Restart::OnCandidate };
        let detail = self.details.get(cold.detail).cloned();
        let workspace = match cold.workspace {
            0 => None,
            NONE => detail.as_ref().and_then(|detail| detail.old_workspace),
            back => Some(FencingToken(cold.last_token.0.wrapping_sub(u64::from(back) - 1))),
        };
        Task {
            phase,
            since: hot.since,
            stage: hot.stage,
            attempt: hot.attempt,
            dispatches: hot.dispatches,
            under_way: hot.flags & UNDER_WAY != 0,
            holds_scope: hot.flags & HOLDS_SCOPE != 0,
            restart,
            workspace,
            last_token: cold.last_token,
            spent: cold.spent,
            detail,
        }
    }

    /// Writes a task's state; its place, where it keeps its phase, stays.
    pub(super) fn put(&mut self, number: u32, mut task: Task) {
        let workspace = task.workspace.map_or(0, |made| {
            let back = task.last_token.0.wrapping_sub(made.0).wrapping_add(1);
            u32::try_from(back).ok().filter(|back| *back > 0).unwrap_or(NONE)
        });
        if workspace == NONE {
            task.detail_mut().old_workspace = task.workspace;
        }
        let slot = self.put_lease(number, &task);
        let hot = &mut self.hot[number as usize];
        let on_candidate = task.restart == Restart::OnCandidate;
        *hot = Hot {
            since: task.since,
            slot,
            dispatches: task.dispatches,
            attempt: task.attempt,
            stage: task.stage,
            kind: task.phase.kind(),
            way: if let Phase::Done(way) = task.phase { way } else { Way::Verified },
            flags: (u8::from(task.under_way) * UNDER_WAY)
                | (u8::from(task.holds_scope) * HOLDS_SCOPE)
                | (u8::from(on_candidate) * ON_CANDIDATE),
            ..*hot
        };
        let cold = &mut self.cold[number as usize];
        cold.last_token = task.last_token;
        cold.spent = task.spent;
        cold.workspace = workspace;
        match task.detail {
            Some(detail) => match self.details.get_mut(cold.detail) {
                Some(place) => *place = detail,
                None => cold.detail = self.details.insert(detail),
            },
            None => {
                self.details.remove(cold.detail);
                cold.detail = NONE;
            }
        }
    }

    /// Keeps the lease of a task in step with its phase; says what its slot is then.
    fn put_lease(&mut self, number: u32, task: &Task) -> u32 {
        let hot = &self.hot[number as usize];
        let had = matches!(hot.kind, Kind::Leased | Kind::Stopping);
        let stopping = match task.phase {
            Phase::Stopping(_, why) => Some(why),
            Phase::Open
            | Phase::Deferred
            | Phase::Leased(_)
            | Phase::Done(_)
            | Phase::Escalated
            | Phase::Cancelled => None,
        };
        match (had, task.phase.hold()) {
            (true, Some(hold)) => {
                if let Some(lease) = self.leases.get_mut(hot.slot) {
                    lease.hold = *hold;
                    lease.stopping = stopping;
                }
                hot.slot
            }
            (true, None) => {
                self.leases.remove(hot.slot);
                NONE
            }
            (false, Some(hold)) => {
                self.leases.insert(Lease { hold: *hold, stopping, task: number, place: NONE })
            }
            (false, None) => hot.slot,
        }
    }
}

impl Hot {
    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) const fn stage(&self) -> u8 {
        self.stage
    }

    pub(super) const fn since(&self) -> Timestamp {
        self.since
    }

    pub(super) const fn holds_scope(&self) -> bool {
        self.flags & HOLDS_SCOPE != 0
    }

    /// Whether it could run if there were capacity.
    pub(super) const fn is_ready(&self) -> bool {
        self.unmet == 0 && matches!(self.kind, Kind::Open)
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

/// Values under numbers that are given again once they are free.
#[derive(Debug, Clone)]
struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    fn get(&self, number: u32) -> Option<&T> {
        self.values.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.values.get_mut(number as usize)?.as_mut()
    }

    fn insert(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.values[number as usize] = Some(value);
            return number;
        }
        self.values.push(Some(value));
        u32::try_from(self.values.len() - 1).unwrap_or(NONE)
    }

    fn remove(&mut self, number: u32) {
        if let Some(place) = self.values.get_mut(number as usize)
            && place.take().is_some()
        {
            self.free.push(number);
        }
    }
}
