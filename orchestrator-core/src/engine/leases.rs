//! Leases under dense numbers.

use super::heap::Heap;
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
    /// Those that nobody has: first the ones whose numbers can be given again, then those that ended
    /// since.
    free: Vec<u32>,
    /// How many of them are of the first kind.
    forgotten: usize,
}

impl Leases {
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Lease> {
        self.all.get(number as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Lease> {
        self.all.get_mut(number as usize)
    }

    #[inline]
    pub(super) fn insert(&mut self, lease: Lease) -> u32 {
        if let Some(last) = self.forgotten.checked_sub(1) {
            self.forgotten = last;
            let number = self.free.swap_remove(last);
            self.all[number as usize] = lease;
            return number;
        }
        self.all.push(lease);
        u32::try_from(self.all.len() - 1).unwrap_or(NONE)
    }

    /// Ends a lease.
    #[inline]
    pub(super) fn end(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Makes a lease live again that ended since the last time that those were forgotten.
    pub(super) fn revive(&mut self, number: u32) {
        if let Some(at) = self.free.iter().rposition(|ended| *ended == number) {
            self.free.swap_remove(at);
        }
    }

    /// Takes a lease back as if it had never been.
    pub(super) fn take_back(&mut self, number: u32) {
        self.free.push(number);
        let last = self.free.len() - 1;
        self.free.swap(self.forgotten, last);
        self.forgotten += 1;
    }

    /// Lets the numbers of leases that ended be given again.
    #[inline]
    pub(super) const fn forget(&mut self) {
        self.forgotten = self.free.len();
    }
}

/// When live leases, by their number in the table, end at the latest.
///
/// Apart by stage: the limits of one are mostly the same, so that what is granted later ends later,
/// and stands in a row.
#[derive(Debug, Clone, Default)]
pub(super) struct HardStops {
    of_stage: Vec<Heap<Stop>>,
}

/// When a lease ends at the latest and, among those of one time, which was granted first: both as one
/// number, since they are compared at each grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stop(u128);

impl Stop {
    #[inline]
    pub(super) fn of(hold: &Hold) -> Self {
        Self(u128::from(hold.hard_stop.0) << 64 | u128::from(hold.token.0))
    }

    fn is_until(self, then: Timestamp) -> bool {
        self.0 >> 64 <= u128::from(then.0)
    }

    fn time(self) -> Timestamp {
        Timestamp(u64::try_from(self.0 >> 64).unwrap_or(u64::MAX))
    }
}

impl HardStops {
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        stage: u8,
        stop: Stop,
        lease: u32,
        placed: &mut impl FnMut(u32, u32),
    ) {
        let stage = usize::from(stage);
        if let Some(stops) = self.of_stage.get_mut(stage) {
            stops.insert(stop, lease, placed);
        } else {
            self.make_room(stage).insert(stop, lease, placed);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, stage: usize) -> &mut Heap<Stop> {
        self.of_stage.resize_with(stage + 1, Heap::default);
        &mut self.of_stage[stage]
    }

    #[inline]
    pub(super) fn remove(&mut self, stage: u8, place: u32, placed: &mut impl FnMut(u32, u32)) {
        if let Some(heap) = self.of_stage.get_mut(usize::from(stage)) {
            heap.remove(place, placed);
        }
    }

    /// The first of all.
    pub(super) fn first(&self) -> Option<Timestamp> {
        self.of_stage.iter().filter_map(Heap::first).map(|(stop, _)| stop.time()).min()
    }

    /// The leases that end until then, those of one stage after those of another.
    pub(super) fn until(&self, then: Timestamp) -> impl Iterator<Item = u32> + '_ {
        let of_stage = self.of_stage.iter().map(Heap::in_order);
        of_stage
            .flat_map(move |stops| stops.take_while(move |(stop, _)| stop.is_until(then)))
            .map(|(_, lease)| lease)
    }

    /// All of them with their places, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, (Stop, u32))> {
        self.of_stage.iter().flat_map(Heap::entries)
    }

    pub(super) fn clear(&mut self) {
        self.of_stage.iter_mut().for_each(Heap::clear);
    }
}
