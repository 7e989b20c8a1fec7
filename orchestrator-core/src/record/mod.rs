//! The records of a run: what a store keeps, and all that an engine needs to go on.

mod run;
mod task;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::run::{Counts, ParkReason, PassedOver, PlanRef, RunRecord, RunState};
pub use self::task::{
    Cause, Completion, Delay, Escalation, Extra, Phase, TaskRecord, Unheard, Wait,
};
use crate::id::{PoolName, Seq};
use crate::lease::{HELD, Owner};
use crate::money::Usd;
use crate::time::Timestamp;

/// A pool of permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Its name.
    pub name: PoolName,
    /// How many permits it has; lowering it takes none away from who holds one.
    pub limit: u32,
    /// Until when it gives none, because the account behind it is used up.
    pub closed_until: Option<Timestamp>,
    /// What else holds it back.
    #[serde(default)]
    pub bounds: PoolBounds,
    /// What stages that took permits of it have cost since it has a budget.
    #[serde(default)]
    pub spent: Usd,
}

impl PoolRecord {
    /// A pool with this many permits, open, and with nothing else to hold it back.
    #[must_use]
    pub fn new(name: PoolName, limit: u32) -> Self {
        Self { name, limit, closed_until: None, bounds: PoolBounds::default(), spent: Usd::ZERO }
    }
}

/// What holds a pool back beside its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolBounds {
    /// The most that stages which take permits of it may spend; `None` is no limit. What late
    /// results show to have been spent counts where the task is then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Usd>,
    /// Back-pressure: as long as so many tasks that it began are past their first stage and not
    /// finished, it begins none; `None` is no bound. Tasks that it began before go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max: Option<u32>,
}

/// An owner, and when it last showed that it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// The process.
    pub owner: Owner,
    /// When it last renewed its leases.
    pub touched_at: Timestamp,
    /// How long after that its leases live.
    pub ttl: Duration,
    /// Whether it is known to have ended.
    pub ended: bool,
}

impl OwnerRecord {
    /// Whether nobody renews its leases.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.ttl >= HELD
    }

    /// When its leases end unless it renews them.
    #[must_use]
    pub fn renew_by(&self) -> Timestamp {
        self.touched_at.after(self.ttl)
    }
}

/// The records that a batch of events changed, each in its final form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Records {
    /// The run's, when it changed (it does with each commit).
    pub run: Option<RunRecord>,
    /// Tasks with their place in the run, counted from 0.
    pub tasks: Vec<(u32, TaskRecord)>,
    /// Pools.
    pub pools: Vec<PoolRecord>,
    /// Owners.
    pub owners: Vec<OwnerRecord>,
}

/// A whole run as a store has it at one position of its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The position.
    pub seq: Seq,
    /// The run.
    pub run: RunRecord,
    /// Its tasks in their order.
    pub tasks: Vec<TaskRecord>,
    /// Its pools, by name.
    pub pools: Vec<PoolRecord>,
    /// Its owners, by id.
    pub owners: Vec<OwnerRecord>,
    /// The plans' blobs, in the order of [`RunRecord::plans`].
    pub plans: Vec<Vec<u8>>,
}
