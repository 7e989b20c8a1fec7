//! What the engine computes from its records, kept up to date so that no question scans all tasks.
//!
//! [`Index::unlink`] and [`Index::link`] are the only two places that change it for a task, so that
//! it is a function of the records at all times: undoing a change is linking the old record again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::id::PoolName;
use crate::lease::Lease;
use crate::record::{Counts, Phase, TaskRecord};
use crate::time::Timestamp;

use super::Entry;

/// Permits that a stage takes, by pool; tasks that need the same wait in one queue.
pub(super) type Needs = BTreeMap<PoolName, u32>;

/// The order of what is ready: later stage, priority, rank, age, number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    stage: Reverse<u8>,
    priority: Reverse<i32>,
    rank: Reverse<u64>,
    since: Timestamp,
    pub(super) index: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Index {
    /// What could run if there were capacity, by what it needs.
    pub(super) ready: BTreeMap<Needs, BTreeSet<Key>>,
    /// When the waits of deferred tasks end.
    pub(super) timers: BTreeSet<(Timestamp, u32)>,
    /// When live leases end at the latest.
    pub(super) hard_stops: BTreeSet<(Timestamp, u32)>,
    /// Tasks whose lease is being stopped.
    pub(super) stopping: BTreeSet<u32>,
    /// Tasks that hold their scope.
    pub(super) scopes: BTreeSet<u32>,
    /// Permits in use.
    pub(super) in_use: BTreeMap<PoolName, u32>,
    /// How many tasks are in which phase.
    pub(super) counts: Counts,
    /// How many unfinished tasks can never run as things are.
    pub(super) blocked: u32,
}

impl Index {
    /// Takes a task out.
    pub(super) fn unlink(&mut self, index: u32, entry: &Entry, record: &TaskRecord) {
        *self.counts.of(&record.phase) -= 1;
        self.blocked -= u32::from(is_blocked(entry, record));
        if record.holds_scope {
            self.scopes.remove(&index);
        }
        match &record.phase {
            Phase::Open => {
                if entry.unmet == 0 {
                    let needs = needs(entry, record);
                    if let Some(queue) = self.ready.get_mut(&needs) {
                        queue.remove(&key(index, entry, record));
                        if queue.is_empty() {
                            self.ready.remove(&needs);
                        }
                    }
                }
            }
            Phase::Deferred { until, .. } => {
                self.timers.remove(&(*until, index));
            }
            Phase::Leased(lease) => {
                self.hard_stops.remove(&(lease.hard_stop, index));
                self.give_back(entry, record);
            }
            Phase::Stopping { .. } => {
                self.stopping.remove(&index);
                self.give_back(entry, record);
            }
            Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled => {}
        }
    }

    /// Puts a task in.
    pub(super) fn link(&mut self, index: u32, entry: &Entry, record: &TaskRecord) {
        *self.counts.of(&record.phase) += 1;
        self.blocked += u32::from(is_blocked(entry, record));
        if record.holds_scope {
            self.scopes.insert(index);
        }
        match &record.phase {
            Phase::Open => {
                if entry.unmet == 0 {
                    let queue = self.ready.entry(needs(entry, record)).or_default();
                    queue.insert(key(index, entry, record));
                }
            }
            Phase::Deferred { until, .. } => {
                self.timers.insert((*until, index));
            }
            Phase::Leased(lease) => {
                self.hard_stops.insert((lease.hard_stop, index));
                self.take(entry, record);
            }
            Phase::Stopping { .. } => {
                self.stopping.insert(index);
                self.take(entry, record);
            }
            Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled => {}
        }
    }

    fn take(&mut self, entry: &Entry, record: &TaskRecord) {
        for (pool, permits) in needs(entry, record) {
            *self.in_use.entry(pool).or_default() += permits;
        }
    }

    fn give_back(&mut self, entry: &Entry, record: &TaskRecord) {
        for (pool, permits) in needs(entry, record) {
            if let Some(used) = self.in_use.get_mut(&pool) {
                *used -= permits;
                if *used == 0 {
                    self.in_use.remove(&pool);
                }
            }
        }
    }
}

/// The place of a task in its queue; `since` is fixed while it is in one phase.
pub(super) fn key(index: u32, entry: &Entry, record: &TaskRecord) -> Key {
    Key {
        stage: Reverse(record.stage),
        priority: Reverse(entry.spec.priority),
        rank: Reverse(entry.rank),
        since: record.since,
        index,
    }
}

/// What the task's present stage takes: one permit of the stage's pool, and what the task asks for
/// beyond it.
pub(super) fn needs(entry: &Entry, record: &TaskRecord) -> Needs {
    let mut needs: Needs =
        entry.spec.needs.iter().map(|(pool, permits)| (pool.clone(), permits.get())).collect();
    if let Some(stage) = entry.pipeline.stage(record.stage) {
        needs.entry(stage.pool.clone()).or_insert(1);
    }
    needs
}

/// Whether the task can never run as things are, though nobody gave it up.
pub(super) const fn is_blocked(entry: &Entry, record: &TaskRecord) -> bool {
    entry.dead > 0 && !is_settled(&record.phase)
}

/// Whether nothing but a person changes this phase.
pub(super) const fn is_settled(phase: &Phase) -> bool {
    matches!(phase, Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled)
}

/// Whether what depends on a task in this phase cannot run.
pub(super) const fn is_dead_end(phase: &Phase) -> bool {
    matches!(phase, Phase::Escalated(_) | Phase::Cancelled)
}

/// The lease of a phase that has one.
pub(super) const fn lease(phase: &Phase) -> Option<&Lease> {
    match phase {
        Phase::Leased(lease) | Phase::Stopping { lease, .. } => Some(lease),
        Phase::Open
        | Phase::Deferred { .. }
        | Phase::Done(_)
        | Phase::Escalated(_)
        | Phase::Cancelled => None,
    }
}
