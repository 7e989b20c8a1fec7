//! The order in which the tasks of a plan get their numbers.
//!
//! Each after those it depends on, and before them the longest path that still waits behind a task:
//! roughly the order in which they will run, so that what is used together lies together.

use crate::plan::{Links, by_part};

/// The places in the order of their numbers, where tasks weigh so much. What goes in circles (no
/// checked plan does) comes last.
pub(crate) fn order(weight: impl Fn(u32) -> u64, links: &Links) -> Vec<u32> {
    let mut paths = vec![0_u64; links.sorted().len()];
    let mut longest = 0;
    for place in links.backwards() {
        let path = weight(place).max(1).saturating_add(paths[place as usize]);
        paths[place as usize] = path;
        longest = longest.max(path);
        for before in links.inside_of(place) {
            let behind = &mut paths[*before as usize];
            *behind = path.max(*behind);
        }
    }
    descending(links.sorted().to_vec(), &paths, longest)
}

/// Sorts places by their paths, the longest first; those of equal length stay as they are.
///
/// Digit by digit, from the last on, so that each round leaves what the rounds before it did. A digit
/// has about as many values as there are places: so most plans take one round.
fn descending(mut places: Vec<u32>, paths: &[u64], longest: u64) -> Vec<u32> {
    let bits = places.len().max(16).ilog2().min(16);
    let mask = (1_u64 << bits) - 1;
    let mut shift = 0;
    while longest.checked_shr(shift).unwrap_or(0) > 0 {
        let digit =
            |place: &u32| usize::try_from(!(paths[*place as usize] >> shift) & mask).unwrap_or(0);
        places = by_part(places.iter().copied(), 1 << bits, digit);
        shift += bits;
    }
    places
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;
    use crate::id::TaskId;
    use crate::plan::Plan;
    use crate::task::TaskSpec;

    fn id(task: usize) -> TaskId {
        TaskId::parse(&task.to_string()).unwrap()
    }

    fn links(depends_on: &[&[usize]]) -> Links {
        let tasks = depends_on.iter().enumerate().map(|(task, depends_on)| TaskSpec {
            depends_on: depends_on.iter().copied().map(id).collect(),
            ..TaskSpec::new(id(task))
        });
        let plan = Plan { tasks: tasks.collect(), ..Plan::default() };
        Links::new(&plan, &RandomState::new(), &|_| None, &mut |_| {})
    }

    #[test]
    fn the_longest_path_comes_first_and_nothing_before_what_it_follows() {
        // 0 → 3, 1 → 2 → 3, 4 alone.
        let ordered = links(&[&[], &[], &[1], &[0, 2], &[]]);
        assert_eq!(order(|place| if place == 4 { 9 } else { 1 }, &ordered), [4, 1, 0, 2, 3]);
        assert_eq!(order(|_| u64::MAX, &ordered), [0, 1, 4, 2, 3]);
        // 2 → 0 → 1, 3 alone: what is followed stands below.
        assert_eq!(order(|_| 1, &links(&[&[2], &[0], &[], &[]])), [2, 0, 3, 1]);
    }

    #[test]
    fn paths_of_any_length_are_sorted_and_equal_ones_stay_as_they_are() {
        let mut path = 1_u64;
        let mut paths: Vec<u64> = vec![u64::MAX, 0, 1 << 63];
        for at in 0..1_000 {
            path = path.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at);
            paths.push(path >> (at % 64));
        }
        let mut places: Vec<u32> = (0_u32..).take(paths.len()).collect();
        places.reverse();
        let mut expected = places.clone();
        expected.sort_by_key(|place| std::cmp::Reverse(paths[*place as usize]));
        assert_eq!(descending(places, &paths, u64::MAX), expected);
    }
}
