//! The order in which the tasks of a plan get their numbers.
//!
//! Each after those it depends on, and before them the longest path that still waits behind a task:
//! roughly the order in which they will run, so that what is used together lies together.

use std::cmp::Reverse;

/// What follows each of so many places, as one array with bounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Following {
    begins: Vec<u32>,
    ends: Vec<u32>,
}

impl Following {
    /// From pairs of a place and one that follows it; those of a place stay in the pairs' order.
    pub(super) fn new(places: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut begins = vec![0_u32; places + 1];
        for (from, _) in pairs.clone() {
            begins[from as usize + 1] += 1;
        }
        for place in 0..places {
            begins[place + 1] += begins[place];
        }
        let mut next = begins.clone();
        let mut ends = vec![0; begins[places] as usize];
        for (from, to) in pairs {
            let at = &mut next[from as usize];
            ends[*at as usize] = to;
            *at += 1;
        }
        Self { begins, ends }
    }

    pub(super) fn of(&self, place: u32) -> &[u32] {
        let bounds = self.begins[place as usize] as usize..self.begins[place as usize + 1] as usize;
        &self.ends[bounds]
    }

    /// The bounds of each place but the end of the last, and all that follows.
    pub(super) fn into_parts(mut self) -> (Vec<u32>, Vec<u32>) {
        self.begins.pop();
        (self.begins, self.ends)
    }
}

/// The places in the order of their numbers. What goes in circles (no checked plan does) comes last.
pub(super) fn order(weights: &[u64], following: &Following) -> Vec<u32> {
    let sorted = sorted(weights.len(), following);
    let mut paths = vec![0_u64; weights.len()];
    let mut turn = vec![0_usize; weights.len()];
    for (before, place) in sorted.iter().enumerate().rev() {
        let behind = following.of(*place).iter().map(|next| paths[*next as usize]).max();
        paths[*place as usize] =
            weights[*place as usize].max(1).saturating_add(behind.unwrap_or(0));
        turn[*place as usize] = before;
    }
    let mut order = sorted;
    order.sort_unstable_by_key(|place| (Reverse(paths[*place as usize]), turn[*place as usize]));
    order
}

/// The places, each after those that it follows.
fn sorted(places: usize, following: &Following) -> Vec<u32> {
    let mut waits = vec![0_u32; places];
    for next in &following.ends {
        waits[*next as usize] += 1;
    }
    let all = || (0_u32..).take(places);
    let mut sorted: Vec<u32> = Vec::with_capacity(places);
    sorted.extend(all().filter(|place| waits[*place as usize] == 0));
    let mut at = 0;
    while let Some(place) = sorted.get(at).copied() {
        for next in following.of(place) {
            waits[*next as usize] -= 1;
            if waits[*next as usize] == 0 {
                sorted.push(*next);
            }
        }
        at += 1;
    }
    if sorted.len() < places {
        sorted.extend(all().filter(|place| waits[*place as usize] > 0));
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_comes_first_and_nothing_before_what_it_follows() {
        // 0 → 3, 1 → 2 → 3, 4 alone.
        let pairs = [(0, 3), (1, 2), (2, 3)];
        let following = Following::new(5, pairs.iter().copied());
        assert_eq!(order(&[1, 1, 1, 1, 9], &following), [4, 1, 0, 2, 3]);
        assert_eq!(order(&[u64::MAX; 5], &following), [0, 1, 4, 2, 3]);
    }

    #[test]
    fn what_goes_in_circles_comes_last_and_is_not_lost() {
        let following = Following::new(3, [(0, 1), (1, 0)].into_iter());
        assert_eq!(order(&[1; 3], &following).len(), 3);
    }
}
