//! What holds a task, in words for programs and people, and who moves it on.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::kind::Kind;
use crate::id::{FencingToken, PoolName, TaskId};
use crate::money::Usd;
use crate::record::{Cause, Wait};
use crate::time::Timestamp;

/// What holds a task, or that nothing does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// The run has no such task.
    Unknown,
    /// Nothing more is to be done.
    Settled {
        /// The phase.
        phase: &'static str,
    },
    /// A person must act.
    Escalated {
        /// Why it cannot go on by itself.
        cause: Cause,
    },
    /// It runs.
    Running {
        /// The lease.
        token: FencingToken,
        /// When it is ended, whatever its holder does.
        hard_stop: Timestamp,
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
        why: Wait,
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
    /// The budget of a pool does not cover its stage.
    PoolBudget {
        /// The pool.
        pool: PoolName,
        /// What the stage may spend.
        needs: Usd,
        /// What is left.
        left: Usd,
    },
    /// Its own budget does not cover its stage; the next tick hands it to a person.
    TaskBudget {
        /// What the stage may spend.
        needs: Usd,
        /// What is left.
        left: Usd,
    },
    /// Back-pressure: as many tasks as may be are past their first stage and not finished.
    BackPressure {
        /// The pool that begins no more of them.
        pool: PoolName,
        /// How many there are.
        in_flight: u32,
        /// How many there may be.
        max: u32,
    },
    /// The pilot has begun all of its tasks, and the rest waits until those are judged.
    Pilot {
        /// How many tasks it has.
        tasks: u32,
    },
    /// What it needs is kept for another task, which others were granted too often before.
    KeptFor {
        /// The other task.
        task: TaskId,
    },
    /// The run grants nothing.
    RunNotActive {
        /// What the run is.
        state: &'static str,
    },
    /// The disk of the workspaces is nearly full. The engine does not know of it: see
    /// [`Orchestrator::explain`](crate::Orchestrator::explain).
    NoRoom {
        /// A place on that disk.
        place: PathBuf,
        /// How much is free.
        free_bytes: u64,
        /// How much has to be.
        wanted_bytes: u64,
    },
    /// Nothing holds it: the next claims take it.
    Ready,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "the run has no such task"),
            Self::Settled { phase } => write!(f, "it is {phase}"),
            Self::Escalated { cause } => {
                write!(f, "it waits for a person: {}", cause.as_str())
            }
            Self::Running { token, hard_stop } => {
                write!(f, "it runs under token {token}, until {hard_stop} at the latest")
            }
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
            Self::PoolBudget { pool, needs, left } => {
                write!(
                    f,
                    "its stage may spend {needs}, pool `{pool}` has {left} of its budget left"
                )
            }
            Self::TaskBudget { needs, left } => {
                write!(f, "its stage may spend {needs}, and {left} of its own budget is left")
            }
            Self::BackPressure { pool, in_flight, max } => write!(
                f,
                "pool `{pool}` begins none while {in_flight} of {max} tasks wait to be finished"
            ),
            Self::Pilot { tasks } => {
                write!(f, "the pilot of {tasks} tasks comes first, and all of them are begun")
            }
            Self::KeptFor { task } => {
                write!(f, "what it needs is kept for `{task}`, which has waited for too long")
            }
            Self::RunNotActive { state } => write!(f, "the run is {state}"),
            Self::NoRoom { place, free_bytes, wanted_bytes } => write!(
                f,
                "the disk of {} has {free_bytes} bytes free, and {wanted_bytes} are wanted",
                place.display()
            ),
            Self::Ready => write!(f, "nothing holds it"),
        }
    }
}

/// Who moves a task on that something holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "mover", rename_all = "snake_case")]
pub enum Mover {
    /// Nobody: there is nothing left to do.
    Nobody,
    /// A person.
    Person {
        /// By what.
        by: &'static str,
    },
    /// Whoever drives the run, without delay.
    Driver,
    /// The holder of its lease, by a result.
    Holder {
        /// The lease.
        token: FencingToken,
        /// When the driver does it instead.
        hard_stop: Timestamp,
    },
    /// The passing of time.
    Time {
        /// When.
        at: Timestamp,
    },
    /// Another task, once it is done or gives back what it holds; that one may be asked about in turn.
    Task {
        /// That task.
        task: TaskId,
    },
    /// Whichever of the tasks of a pool gets on first.
    Pool {
        /// The pool.
        pool: PoolName,
    },
}

/// What helps a task that a person has to look at, or one behind it.
const LOOK: &str = "look at why, then edit, retry or resolve it";

impl Reason {
    /// Who moves the task on, as far as this reason is concerned, and when.
    #[must_use]
    pub fn mover(&self) -> Mover {
        let person = |by| Mover::Person { by };
        match self {
            Self::Unknown => Mover::Nobody,
            Self::Settled { phase } if *phase == Kind::Done.as_str() => Mover::Nobody,
            Self::Settled { .. } => person("retry it, if it is to be done after all"),
            Self::Escalated { .. } => person(LOOK),
            Self::Running { token, hard_stop } => {
                Mover::Holder { token: *token, hard_stop: *hard_stop }
            }
            Self::WaitsFor { task }
            | Self::BlockedBy { task }
            | Self::ScopeHeld { by: task }
            | Self::KeptFor { task } => Mover::Task { task: task.clone() },
            Self::Deferred { until, .. } | Self::PoolClosed { until, .. } => {
                Mover::Time { at: *until }
            }
            Self::PoolFull { needs, limit, .. } if needs > limit => {
                person("give the pool more permits")
            }
            Self::BackPressure { max: 0, .. } => person("let the pool begin tasks"),
            Self::PoolFull { pool, .. } | Self::BackPressure { pool, .. } => {
                Mover::Pool { pool: pool.clone() }
            }
            Self::Budget { .. } => person("raise the run's budget"),
            Self::PoolBudget { .. } => person("raise the pool's budget"),
            Self::Pilot { .. } => person("look at what the pilot came to, then resume"),
            Self::RunNotActive { .. } => person("resume the run"),
            Self::NoRoom { .. } => person("free some room on that disk"),
            Self::Stopping { .. } | Self::TaskBudget { .. } | Self::Ready => Mover::Driver,
        }
    }
}
