//! Leases under dense numbers.

use super::slab::NONE;
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

/// Leases under numbers that are given again once they are free.
///
/// One that ended stays as it was until [`Leases::forget`], so that its end can be undone without a
/// copy of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    all: Vec<Lease>,
    free: Vec<u32>,
    ended: Vec<u32>,
}

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

    /// Ends a lease.
    pub(super) fn end(&mut self, number: u32) {
        self.ended.push(number);
    }

    /// Makes a lease live again that ended last of those that did not do so since.
    pub(super) fn revive(&mut self, number: u32) {
        if let Some(at) = self.ended.iter().rposition(|ended| *ended == number) {
            self.ended.remove(at);
        }
    }

    /// Takes a lease back as if it had never been.
    pub(super) fn take_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Lets the numbers of leases that ended be given again.
    pub(super) fn forget(&mut self) {
        self.free.append(&mut self.ended);
    }
}
