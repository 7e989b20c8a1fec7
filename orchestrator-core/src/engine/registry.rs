//! Named things under dense numbers: a number stays with its name, whether the thing is there or
//! not.

use std::collections::BTreeMap;

/// Things of one kind, by name and by number.
#[derive(Debug, Clone)]
pub(super) struct Registry<K, V> {
    numbers: BTreeMap<K, u32>,
    entries: Vec<(K, Option<V>)>,
    /// The number that was asked for last: mostly it is asked for again.
    last: u32,
}

impl<K, V> Default for Registry<K, V> {
    fn default() -> Self {
        Self { numbers: BTreeMap::new(), entries: Vec::new(), last: 0 }
    }
}

impl<K: Ord + Clone, V> Registry<K, V> {
    /// The number of a name, given now if it has none.
    pub(super) fn number(&mut self, name: &K) -> u32 {
        if let Some(number) = self.find(name) {
            self.last = number;
            return number;
        }
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.clone(), number);
        self.entries.push((name.clone(), None));
        number
    }

    /// How many numbers there are.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn find(&self, name: &K) -> Option<u32> {
        if self.entries.get(self.last as usize).is_some_and(|(known, _)| known == name) {
            return Some(self.last);
        }
        self.numbers.get(name).copied()
    }

    /// The name of a number that was given.
    #[inline]
    pub(super) fn name(&self, number: u32) -> &K {
        &self.entries[number as usize].0
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&V> {
        self.entries.get(number as usize)?.1.as_ref()
    }

    pub(super) fn by_name(&self, name: &K) -> Option<&V> {
        self.get(self.find(name)?)
    }

    /// Puts a thing in the place of what has this name, or takes that out; gives what was there.
    pub(super) fn set(&mut self, name: &K, value: Option<V>) -> Option<V> {
        let number = self.number(name);
        std::mem::replace(&mut self.entries[number as usize].1, value)
    }

    /// What is there, by name.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.numbers.values().filter_map(|number| self.get(*number))
    }
}
