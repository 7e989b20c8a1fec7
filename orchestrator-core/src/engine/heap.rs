//! A heap from which anything can be taken out, not only what is first.
//!
//! Four children a node: half as deep as with two, and the children of one lie side by side. What
//! comes in order, as most does, stands in a row beside it, where it need not move. Whoever uses it
//! keeps, for each id, the place that it is told, and hands that place back to remove it.

use std::iter::Peekable;

use crate::mutant::{Mutant, is_on};

/// Ids in the order of their keys, and of themselves where keys are equal.
#[derive(Debug, Clone)]
pub(super) struct Heap<K> {
    entries: Vec<(K, u32)>,
    /// In order, each after the one before it; neither the first from the front on nor the last is
    /// a [`HOLE`]. Empty when all are gone.
    row: Vec<(K, u32)>,
    /// The first of the row that is not gone.
    front: usize,
    /// How many were cut off before the row: what is in it keeps its place.
    cut: u32,
    holes: usize,
}

const CHILDREN: usize = 4;

/// Whether an entry comes before another one; without a branch, since nobody can foretell it.
#[inline]
fn is_before<K: Ord + Copy>(one: (K, u32), other: (K, u32)) -> bool {
    (one.0 < other.0) | ((one.0 == other.0) & (one.1 < other.1))
}

/// Which child comes first of those that these entries begin with.
#[inline]
fn least_child<K: Ord + Copy>(entries: &[(K, u32)]) -> Option<usize> {
    if let Some([one, two, three, four]) = entries.first_chunk::<CHILDREN>() {
        let left = usize::from(is_before(*two, *one));
        let right = usize::from(is_before(*four, *three)) + 2;
        return Some(if is_before(entries[right], entries[left]) { right } else { left });
    }
    let before = |one: &usize, other: &usize| entries[*one].cmp(&entries[*other]);
    (0..entries.len()).min_by(before)
}

/// The id of what was taken out of the middle of a row.
const HOLE: u32 = u32::MAX;
/// Tells places in the row from those in the heap.
const IN_ROW: u32 = 1 << 31;

/// A place as a number.
#[expect(clippy::cast_possible_truncation, reason = "ids are u32, and each is in a heap once")]
const fn number(place: usize) -> u32 {
    place as u32
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), row: Vec::new(), front: 0, cut: 0, holes: 0 }
    }
}

impl<K: Ord + Copy> Heap<K> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.row.is_empty()
    }

    /// What comes first.
    #[inline]
    pub(super) fn first(&self) -> Option<(K, u32)> {
        let (key, id) = match (self.entries.first(), self.row.get(self.front)) {
            (Some(one), Some(two)) => {
                if is_before(*two, *one) {
                    two
                } else {
                    one
                }
            }
            (one, two) => one.or(two)?,
        };
        Some((*key, *id))
    }

    /// All of it with its places, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, (K, u32))> + '_ {
        let row = self.row.iter().enumerate().skip(self.front).filter(|(_, (_, id))| *id != HOLE);
        let row = row.map(|(at, entry)| (self.place_in_row(at), *entry));
        (0_u32..).zip(self.entries.iter().copied()).chain(row)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.row.clear();
        self.front = 0;
        self.holes = 0;
    }

    /// Puts an id in; `placed` is told each place that changes.
    #[inline]
    pub(super) fn insert(&mut self, key: K, id: u32, placed: &mut impl FnMut(u32, u32)) {
        if self.row.last().is_none_or(|last| is_before(*last, (key, id))) {
            placed(id, self.place_in_row(self.row.len()));
            self.row.push((key, id));
            return;
        }
        self.insert_apart(key, id, placed);
    }

    #[inline(never)]
    fn insert_apart(&mut self, key: K, id: u32, placed: &mut impl FnMut(u32, u32)) {
        self.entries.push((key, id));
        self.rise(self.entries.len() - 1, placed);
    }

    /// Takes out what is at this place.
    #[inline]
    pub(super) fn remove(&mut self, place: u32, placed: &mut impl FnMut(u32, u32)) {
        if place & IN_ROW != 0 {
            self.remove_from_row(place, placed);
            return;
        }
        self.remove_apart(place as usize, placed);
    }

    #[inline(never)]
    fn remove_apart(&mut self, place: usize, placed: &mut impl FnMut(u32, u32)) {
        let Some(last) = self.entries.pop() else { return };
        if place < self.entries.len() {
            self.entries[place] = last;
            if is_on(Mutant::HeapLosesOrder) {
                self.put(place, last, placed);
                return;
            }
            // What goes down comes after all that is above it.
            if !self.sink(place, placed) {
                self.rise(place, placed);
            }
        }
    }

    /// Takes out what comes first.
    pub(super) fn pop(&mut self, placed: &mut impl FnMut(u32, u32)) -> Option<(K, u32)> {
        let first = self.first()?;
        let is_in_row = self.row.get(self.front) == Some(&first);
        self.remove(if is_in_row { self.place_in_row(self.front) } else { 0 }, placed);
        Some(first)
    }

    #[inline]
    fn place_in_row(&self, at: usize) -> u32 {
        self.cut.wrapping_add(number(at)) | IN_ROW
    }

    #[inline]
    fn remove_from_row(&mut self, place: u32, placed: &mut impl FnMut(u32, u32)) {
        let at = (place.wrapping_sub(self.cut) & !IN_ROW) as usize;
        if at == self.front {
            self.pop_front();
        } else if let Some(entry) = self.row.get_mut(at) {
            entry.1 = HOLE;
            self.holes += 1;
        }
        if self.holes > 0 {
            self.close_holes(placed);
        }
    }

    #[inline]
    fn pop_front(&mut self) {
        self.front += 1;
        if self.front == self.row.len() {
            self.row.clear();
            self.front = 0;
        } else if self.front > self.row.len() / 2 {
            self.cut_front();
        }
    }

    /// Cuts off what is gone; fewer are left to be moved than went since the last time.
    #[cold]
    #[inline(never)]
    fn cut_front(&mut self) {
        self.row.drain(..self.front);
        self.cut = self.cut.wrapping_add(u32::try_from(self.front).unwrap_or(u32::MAX));
        self.front = 0;
    }

    /// Takes holes away from both ends of the row, and all of them when they are most of it.
    #[cold]
    #[inline(never)]
    fn close_holes(&mut self, placed: &mut impl FnMut(u32, u32)) {
        while self.row.get(self.front).is_some_and(|(_, id)| *id == HOLE) {
            self.pop_front();
            self.holes -= 1;
        }
        while self.row.last().is_some_and(|(_, id)| *id == HOLE) {
            self.row.pop();
            self.holes -= 1;
        }
        // As much is moved as was taken out since the last time.
        if self.holes > (self.row.len() - self.front) / 2 {
            self.cut_front();
            self.row.retain(|(_, id)| *id != HOLE);
            self.holes = 0;
            for (at, (_, id)) in self.row.iter().enumerate() {
                placed(*id, self.place_in_row(at));
            }
        }
    }

    #[inline]
    fn rise(&mut self, mut place: usize, placed: &mut impl FnMut(u32, u32)) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            let above = self.entries[parent];
            if !is_before(entry, above) {
                break;
            }
            self.put(place, above, placed);
            place = parent;
        }
        self.put(place, entry, placed);
    }

    /// Moves an entry down to where it belongs; gives whether it moved.
    fn sink(&mut self, from: usize, placed: &mut impl FnMut(u32, u32)) -> bool {
        let (mut place, entry) = (from, self.entries[from]);
        loop {
            let first = place * CHILDREN + 1;
            let Some(least) = self.entries.get(first..).and_then(least_child) else { break };
            let below = self.entries[first + least];
            if !is_before(below, entry) {
                break;
            }
            self.put(place, below, placed);
            place = first + least;
        }
        if place == from {
            return false;
        }
        self.put(place, entry, placed);
        true
    }

    #[inline]
    fn put(&mut self, place: usize, entry: (K, u32), placed: &mut impl FnMut(u32, u32)) {
        self.entries[place] = entry;
        placed(entry.1, number(place));
    }

    /// The first that is as asked for: mostly the first of all.
    pub(super) fn first_that(&self, fits: impl Fn(u32) -> bool) -> Option<(K, u32)> {
        let first = self.first()?;
        if fits(first.1) {
            return Some(first);
        }
        self.in_order().skip(1).find(|(_, id)| fits(*id))
    }

    /// All of it in order, as far as it is asked for.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        let next = self.entries.first().map(|entry| (*entry, 0)).into_iter().collect();
        let row = self.row[self.front..].iter().copied();
        let row = row.filter(|(_, id)| *id != HOLE).peekable();
        InOrder { heap: self, next, row }
    }
}

/// Walks a heap in order without changing it.
struct InOrder<'a, K, R: Iterator> {
    heap: &'a Heap<K>,
    /// What may come next of the heap, ordered; small, as long as the walk is short.
    next: std::collections::BTreeSet<((K, u32), usize)>,
    row: Peekable<R>,
}

impl<K: Ord + Copy, R: Iterator<Item = (K, u32)>> Iterator for InOrder<'_, K, R> {
    type Item = (K, u32);

    fn next(&mut self) -> Option<(K, u32)> {
        let of_heap = self.next.first().map(|(entry, _)| *entry);
        if let Some(entry) = self.row.next_if(|entry| of_heap.is_none_or(|other| *entry < other)) {
            return Some(entry);
        }
        let (entry, place) = self.next.pop_first()?;
        let first = place * CHILDREN + 1;
        let end = (first + CHILDREN).min(self.heap.entries.len());
        self.next.extend((first..end).map(|child| (self.heap.entries[child], child)));
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_heap_is_a_sorted_set_from_which_anything_can_go(
            steps in prop::collection::vec((any::<bool>(), 0_u32..40, 0_u8..8), 0..400),
        ) {
            let (mut heap, mut plain) = (Heap::default(), BTreeSet::new());
            let (mut places, mut keys) = ([None; 40], [None; 40]);
            for (remove, id, key) in steps {
                let mut placed = |id: u32, place: u32| places[id as usize] = Some(place);
                match (keys[id as usize], remove) {
                    (None, _) => {
                        heap.insert(key, id, &mut placed);
                        plain.insert((key, id));
                        keys[id as usize] = Some(key);
                    }
                    (Some(old), true) => {
                        let place = places[id as usize].unwrap();
                        heap.remove(place, &mut |id, place| places[id as usize] = Some(place));
                        plain.remove(&(old, id));
                        keys[id as usize] = None;
                    }
                    (Some(_), false) => {}
                }
                prop_assert_eq!(heap.first(), plain.first().copied());
                let order: Vec<_> = heap.in_order().collect();
                prop_assert_eq!(order, plain.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(heap.is_empty(), plain.is_empty());
                let is_told = |(place, (_, id)): (u32, (u8, u32))| places[id as usize] == Some(place);
                prop_assert!(heap.entries().all(is_told));
                prop_assert_eq!(heap.entries().count(), plain.len());
            }
        }
    }
}
