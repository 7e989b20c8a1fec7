//! Questions to the engine: what runs, what holds a task, when something will happen by itself.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::claim::reservation;
use super::index::{is_settled, lease, needs};
use super::{Engine, Entry};
use crate::id::{FencingToken, PoolName, RunId, Seq, TaskId};
use crate::money::Usd;
use crate::outcome::Interruption;
use crate::pipeline::Pipeline;
use crate::record::{OwnerRecord, ParkReason, Phase, PoolRecord, RunRecord, RunState, TaskRecord};
use crate::task::TaskSpec;
use crate::time::Timestamp;

/// What holds a task, or that nothing does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// The run has no such task.
    Unknown,
    /// Nothing more is to be done, or a person must act.
    Settled {
        /// The phase.
        phase: &'static str,
    },
    /// It runs.
    Running {
        /// The lease.
        token: FencingToken,
    },
    /// Its lease ended, and its processes are being ended.
    Stopping {
        /// The lease.
        token: FencingToken,
    },
    /// A dependency is not done.
    WaitsFor {
        /// The dependency.
        task: TaskId,
    },
    /// A dependency is escalated, cancelled or blocked itself.
    BlockedBy {
        /// The dependency.
        task: TaskId,
    },
    /// It waits for a time.
    Deferred {
        /// That time.
        until: Timestamp,
        /// What happened before.
        why: Interruption,
    },
    /// A pool has too few permits left.
    PoolFull {
        /// The pool.
        pool: PoolName,
        /// Permits the task needs.
        needs: u32,
        /// Permits in use.
        in_use: u32,
        /// All permits.
        limit: u32,
    },
    /// A pool gives no permits for a time.
    PoolClosed {
        /// The pool.
        pool: PoolName,
        /// Until then.
        until: Timestamp,
    },
    /// Another task holds a scope that overlaps its own.
    ScopeHeld {
        /// The other task.
        by: TaskId,
    },
    /// The budget does not cover its stage.
    Budget {
        /// What the stage may spend.
        needs: Usd,
        /// What is left.
        left: Usd,
    },
    /// The run grants nothing.
    RunNotActive {
        /// What the run is.
        state: &'static str,
    },
    /// Nothing holds it: the next claims take it.
    Ready,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "the run has no such task"),
            Self::Settled { phase } => write!(f, "it is {phase}"),
            Self::Running { token } => write!(f, "it runs under token {token}"),
            Self::Stopping { token } => write!(f, "its processes of token {token} are being ended"),
            Self::WaitsFor { task } => write!(f, "it waits for `{task}`"),
            Self::BlockedBy { task } => write!(f, "`{task}` blocks it"),
            Self::Deferred { until, why } => write!(f, "{why}: not before {until}"),
            Self::PoolFull { pool, needs, in_use, limit } => {
                write!(f, "pool `{pool}` has {in_use} of {limit} permits in use, it needs {needs}")
            }
            Self::PoolClosed { pool, until } => write!(f, "pool `{pool}` is closed until {until}"),
            Self::ScopeHeld { by } => write!(f, "`{by}` holds a scope that overlaps its own"),
            Self::Budget { needs, left } => {
                write!(f, "its stage may spend {needs}, and {left} of the budget is left")
            }
            Self::RunNotActive { state } => write!(f, "the run is {state}"),
            Self::Ready => write!(f, "nothing holds it"),
        }
    }
}

/// What a run comes to when nothing happens by itself any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// All tasks are done or cancelled.
    Completed,
    /// Some task is escalated or blocked, and nothing else is left.
    Failed,
    /// It stands still for this reason.
    Parked(ParkReason),
    /// Some task could run, but what it needs will never be there; [`Engine::stall`] says what.
    Stalled,
}

impl Engine {
    /// The run's name.
    #[must_use]
    pub const fn id(&self) -> &RunId {
        &self.id
    }

    /// Where the run's log stands, the present batch included.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// The run's record; `None` before it is created.
    #[must_use]
    pub const fn run(&self) -> Option<&RunRecord> {
        self.run.as_ref()
    }

    /// A task's record.
    #[must_use]
    pub fn task(&self, task: &TaskId) -> Option<&TaskRecord> {
        self.record(task)
    }

    /// All tasks' records, in the run's order.
    #[must_use]
    pub fn tasks(&self) -> &[TaskRecord] {
        &self.tasks
    }

    /// A task's specification.
    #[must_use]
    pub fn spec(&self, task: &TaskId) -> Option<&Arc<TaskSpec>> {
        self.entry(task).map(|entry| &entry.spec)
    }

    /// The stages that a task goes through.
    #[must_use]
    pub fn pipeline(&self, task: &TaskId) -> Option<&Pipeline> {
        self.entry(task).map(|entry| &*entry.pipeline)
    }

    /// The pools, by name.
    pub fn pools(&self) -> impl Iterator<Item = &PoolRecord> {
        self.pools.values()
    }

    /// Permits of a pool in use.
    #[must_use]
    pub fn in_use(&self, pool: &PoolName) -> u32 {
        self.index.in_use.get(pool).copied().unwrap_or(0)
    }

    /// The owners, by id.
    pub fn owners(&self) -> impl Iterator<Item = &OwnerRecord> {
        self.owners.values()
    }

    /// Tasks with a live lease or one that is being stopped, in the run's order.
    pub fn held(&self) -> impl Iterator<Item = &TaskRecord> {
        let mut numbers: Vec<u32> = self.index.hard_stops.iter().map(|(_, task)| *task).collect();
        numbers.extend(&self.index.stopping);
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|number| self.tasks.get(number as usize))
    }

    /// Whether the task can never run as things are, though nobody gave it up.
    #[must_use]
    pub fn is_blocked(&self, task: &TaskId) -> bool {
        self.entry(task)
            .zip(self.record(task))
            .is_some_and(|(entry, record)| super::index::is_blocked(entry, record))
    }

    /// How many tasks are blocked.
    #[must_use]
    pub const fn blocked(&self) -> u32 {
        self.index.blocked
    }

    /// The next time at which something happens by itself; `None` when nothing will.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        let timer = self.index.timers.first().map(|(at, _)| *at);
        let stop = self.index.hard_stops.first().map(|(at, _)| *at);
        let closed = self.pools.values().filter_map(|pool| pool.closed_until);
        closed.chain(timer).chain(stop).min()
    }

    /// Everything that holds a task; each reason can be checked against the records.
    #[must_use]
    pub fn explain(&self, now: Timestamp, task: &TaskId) -> Vec<Reason> {
        let (Some(entry), Some(record), Some(run)) =
            (self.entry(task), self.record(task), self.run.as_ref())
        else {
            return vec![Reason::Unknown];
        };
        if is_settled(&record.phase) {
            return vec![Reason::Settled { phase: record.phase.as_str() }];
        }
        if let Some(lease) = lease(&record.phase) {
            let token = lease.token;
            return match record.phase {
                Phase::Stopping { .. } => vec![Reason::Stopping { token }],
                Phase::Open
                | Phase::Deferred { .. }
                | Phase::Leased(_)
                | Phase::Done(_)
                | Phase::Escalated(_)
                | Phase::Cancelled => vec![Reason::Running { token }],
            };
        }
        let mut reasons = self.unmet(entry);
        if let Phase::Deferred { until, why } = record.phase
            && until > now
        {
            reasons.push(Reason::Deferred { until, why });
        }
        if run.state != RunState::Active {
            reasons.push(Reason::RunNotActive { state: run.state.as_str() });
        }
        reasons.extend(self.short_of(now, run, entry, record));
        if reasons.is_empty() {
            reasons.push(Reason::Ready);
        }
        reasons
    }

    fn unmet(&self, entry: &Entry) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for number in &entry.depends_on {
            let place = *number as usize;
            let (task, phase) = (self.tasks[place].id.clone(), &self.tasks[place].phase);
            let dead = super::index::is_dead_end(phase) || self.entries[place].dead > 0;
            match phase {
                Phase::Done(_) => {}
                Phase::Open
                | Phase::Deferred { .. }
                | Phase::Leased(_)
                | Phase::Stopping { .. }
                | Phase::Escalated(_)
                | Phase::Cancelled => reasons.push(if dead {
                    Reason::BlockedBy { task }
                } else {
                    Reason::WaitsFor { task }
                }),
            }
        }
        reasons
    }

    /// The capacity that the task's stage lacks.
    fn short_of(
        &self,
        now: Timestamp,
        run: &RunRecord,
        entry: &Entry,
        record: &TaskRecord,
    ) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for (pool, needs) in needs(entry, record) {
            let known = self.pools.get(&pool);
            if let Some(until) = known.and_then(|known| known.closed_until).filter(|at| *at > now) {
                reasons.push(Reason::PoolClosed { pool: pool.clone(), until });
            }
            let (in_use, limit) = (self.in_use(&pool), known.map_or(0, |known| known.limit));
            if in_use.saturating_add(needs) > limit {
                reasons.push(Reason::PoolFull { pool, needs, in_use, limit });
            }
        }
        if !record.holds_scope
            && let Some(number) = self.numbers.get(&record.id)
            && let Some(holder) = self.scope_holder(*number, entry)
        {
            reasons.push(Reason::ScopeHeld { by: self.tasks[holder as usize].id.clone() });
        }
        if let Some(stage) = entry.pipeline.stage(record.stage)
            && reservation(run, stage).is_none()
        {
            let left = run.budget.unwrap_or_default().minus(run.spent).minus(run.reserved);
            reasons.push(Reason::Budget { needs: stage.cap, left });
        }
        reasons
    }

    /// What the run comes to, when nothing happens by itself any more; `None` while something does
    /// or can.
    #[must_use]
    pub fn settlement(&self, now: Timestamp) -> Option<Settlement> {
        let run = self.run.as_ref()?;
        let counts = self.index.counts;
        if counts.leased + counts.stopping > 0 {
            return None;
        }
        match &run.state {
            RunState::Active => {}
            RunState::Draining { reason } | RunState::Parked { reason } => {
                return Some(Settlement::Parked(*reason));
            }
            RunState::Paused { .. } => return None,
            RunState::Completed => return Some(Settlement::Completed),
            RunState::Failed => return Some(Settlement::Failed),
        }
        let unfinished = counts.open + counts.deferred;
        if unfinished == 0 {
            let all = counts.escalated == 0;
            return Some(if all { Settlement::Completed } else { Settlement::Failed });
        }
        if self.next_grant(now, run).is_some() || self.can_wait_for_time(now) {
            return None;
        }
        let ready: Vec<u32> = self.index.ready.values().flatten().map(|key| key.index).collect();
        if ready.is_empty() {
            return Some(Settlement::Failed);
        }
        let broke = |number: &u32| {
            let place = *number as usize;
            let stage = self.entries[place].pipeline.stage(self.tasks[place].stage);
            stage.is_some_and(|stage| reservation(run, stage).is_none())
        };
        let reason = ready.iter().any(broke).then_some(Settlement::Parked(ParkReason::Budget));
        Some(reason.unwrap_or(Settlement::Stalled))
    }

    /// Whether the passing of time alone may let something run.
    fn can_wait_for_time(&self, now: Timestamp) -> bool {
        let waiting_for_pool = self
            .index
            .ready
            .keys()
            .flat_map(std::collections::BTreeMap::keys)
            .filter_map(|pool| self.pools.get(pool))
            .any(|pool| pool.closed_until.is_some_and(|until| until > now));
        waiting_for_pool || !self.index.timers.is_empty()
    }

    /// What holds each task that is ready in a run that nothing moves any more; empty when
    /// something does.
    #[must_use]
    pub fn stall(&self, now: Timestamp) -> Vec<(TaskId, Vec<Reason>)> {
        if self.settlement(now) != Some(Settlement::Stalled) {
            return Vec::new();
        }
        let ready = self.index.ready.values().flatten().map(|key| key.index as usize);
        let tasks = ready.map(|place| self.tasks[place].id.clone());
        tasks.map(|task| (task.clone(), self.explain(now, &task))).collect()
    }

    pub(super) fn entry(&self, task: &TaskId) -> Option<&Entry> {
        self.numbers.get(task).and_then(|number| self.entries.get(*number as usize))
    }
}
