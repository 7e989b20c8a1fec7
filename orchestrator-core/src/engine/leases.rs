//! Leases under dense numbers.

use super::table::NONE;
use crate::id::FencingToken;
use crate::money::Usd;
use crate::outcome::Interruption;
use crate::time::Timestamp;

/// A lease, with its owner by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) token: FencingToken,
    pub(super) owner: u32,
    pub(super) granted_at: Timestamp,
    pub(super) hard_stop: Timestamp,
    pub(super) reserved: Usd,
}

/// A lease in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) hold: Hold,
    /// Whose it is.
    pub(super) task: u32,
    /// Its place among the hard stops.
    pub(super) place: u32,
    /// Why it is being stopped, once it is.
    pub(super) why: Interruption,
}

/// Leases under numbers that are given again once they are free; a free one is stale, not gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    all: Vec<Lease>,
    free: Vec<u32>,
}

/// What stands for a lease where there is none.
pub(super) const NO_LEASE: Lease = Lease {
    hold: Hold {
        token: FencingToken(0),
        owner: NONE,
        granted_at: Timestamp(0),
        hard_stop: Timestamp(0),
        reserved: Usd::ZERO,
    },
    task: NONE,
    place: NONE,
    why: Interruption::Crashed,
};

impl Leases {
    pub(super) fn get(&self, number: u32) -> Option<&Lease> {
        self.all.get(number as usize)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Lease> {
        self.all.get_mut(number as usize)
    }

    pub(super) fn insert(&mut self, lease: Lease) -> u32 {
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = lease;
            return number;
        }
        self.all.push(lease);
        u32::try_from(self.all.len() - 1).unwrap_or(NONE)
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.free.push(number);
    }
}
