//! A heap from which anything can be taken out, not only what is first.
//!
//! Four children a node: half as deep as with two, and the children of one lie side by side. Whoever
//! uses it keeps, for each id, the place that it is told, and hands that place back to remove it.

use crate::mutant::{Mutant, is_on};

/// Ids in the order of their keys, and of themselves where keys are equal.
#[derive(Debug, Clone)]
pub(super) struct Heap<K> {
    entries: Vec<(K, u32)>,
}

const CHILDREN: usize = 4;

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Ord + Copy> Heap<K> {
    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What comes first.
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// All of it, in no order.
    pub(super) fn entries(&self) -> &[(K, u32)] {
        &self.entries
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Puts an id in; `placed` is told each place that changes.
    pub(super) fn insert(&mut self, key: K, id: u32, placed: &mut impl FnMut(u32, u32)) {
        self.entries.push((key, id));
        self.rise(self.entries.len() - 1, placed);
    }

    /// Takes out what is at this place.
    pub(super) fn remove(&mut self, place: u32, placed: &mut impl FnMut(u32, u32)) {
        let place = place as usize;
        let Some(last) = self.entries.pop() else { return };
        if place < self.entries.len() {
            self.entries[place] = last;
            if is_on(Mutant::HeapLosesOrder) {
                self.put(place, last, placed);
                return;
            }
            let place = self.sink(place, placed);
            self.rise(place, placed);
        }
    }

    fn rise(&mut self, mut place: usize, placed: &mut impl FnMut(u32, u32)) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            let above = self.entries[parent];
            if above <= entry {
                break;
            }
            self.put(place, above, placed);
            place = parent;
        }
        self.put(place, entry, placed);
    }

    fn sink(&mut self, mut place: usize, placed: &mut impl FnMut(u32, u32)) -> usize {
        let entry = self.entries[place];
        loop {
            let first = place * CHILDREN + 1;
            let end = (first + CHILDREN).min(self.entries.len());
            let Some(least) = (first..end).min_by_key(|child| self.entries[*child]) else { break };
            let below = self.entries[least];
            if entry <= below {
                break;
            }
            self.put(place, below, placed);
            place = least;
        }
        self.entries[place] = entry;
        place
    }

    fn put(&mut self, place: usize, entry: (K, u32), placed: &mut impl FnMut(u32, u32)) {
        self.entries[place] = entry;
        // A place fits: ids are u32, and each is in a heap once.
        placed(entry.1, u32::try_from(place).unwrap_or(u32::MAX));
    }

    /// All of it in order, as far as it is asked for.
    pub(super) fn in_order(&self) -> InOrder<'_, K> {
        let next = self.entries.first().map(|entry| (*entry, 0)).into_iter().collect();
        InOrder { heap: self, next }
    }
}

/// Walks a heap in order without changing it.
pub(super) struct InOrder<'a, K> {
    heap: &'a Heap<K>,
    /// What may come next, ordered; small, as long as the walk is short.
    next: std::collections::BTreeSet<((K, u32), usize)>,
}

impl<K: Ord + Copy> Iterator for InOrder<'_, K> {
    type Item = (K, u32);

    fn next(&mut self) -> Option<(K, u32)> {
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
            steps in prop::collection::vec((any::<bool>(), 0_u32..40, 0_u8..8), 0..200),
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
            }
        }
    }
}
