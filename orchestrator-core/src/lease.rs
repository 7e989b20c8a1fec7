//! The timed right to carry out a stage, and who holds it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{FencingToken, OwnerId};
use crate::money::Usd;
use crate::time::Timestamp;

/// The time to live of leases that nobody renews, for a supervisor that calls now and then and runs
/// the stages itself: they last until their hard stop.
///
/// Such a supervisor opens the run under the same name with each call, and keeps its leases. What it
/// finds not to run any more it takes back with [`Command::Supersede`](crate::Command::Supersede).
pub const HELD: Duration = Duration::from_millis(u64::MAX);

/// One process instance that holds leases, or a supervisor that calls now and then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its name, different for each process that ever was.
    pub id: OwnerId,
    /// The host it is on.
    pub host: String,
    /// The start of that host that it belongs to.
    pub boot_id: String,
    /// Its process id.
    pub pid: u32,
    /// When it started, in the kernel's own count, so that a reused pid is not taken for it.
    pub start_time: u64,
}

/// The right to carry out one stage of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its number.
    pub token: FencingToken,
    /// Who holds it.
    pub owner: OwnerId,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When it ends whatever happens: the stage's timeout and a grace.
    pub hard_stop: Timestamp,
    /// The money set aside for it.
    pub reserved: Usd,
}
