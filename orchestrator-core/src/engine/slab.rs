//! Values that are rare, under dense numbers.

/// No detail, lease or place.
pub(super) const NONE: u32 = u32::MAX;

/// Values under numbers that are given again once they are free.
#[derive(Debug, Clone)]
pub(super) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.values.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.values.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.values[number as usize] = Some(value);
            return number;
        }
        self.values.push(Some(value));
        u32::try_from(self.values.len() - 1).unwrap_or(NONE)
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(place) = self.values.get_mut(number as usize)
            && place.take().is_some()
        {
            self.free.push(number);
        }
    }
}
