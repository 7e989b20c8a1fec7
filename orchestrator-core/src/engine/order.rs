//! The order in which the tasks of a plan get their numbers.
//!
//! Each after those it depends on, and before them the longest path that still waits behind a task:
//! roughly the order in which they will run, so that what is used together lies together.

use std::cmp::Reverse;

use crate::plan::Links;

/// The places in the order of their numbers. What goes in circles (no checked plan does) comes last.
pub(super) fn order(weights: &[u64], links: &Links) -> Vec<u32> {
    let mut paths = vec![0_u64; weights.len()];
    for place in links.sorted().iter().rev() {
        let following = links.following().of(*place).iter();
        let behind = following.map(|next| paths[*next as usize]).max();
        paths[*place as usize] =
            weights[*place as usize].max(1).saturating_add(behind.unwrap_or(0));
    }
    let mut order = links.sorted().to_vec();
    order.sort_by_cached_key(|place| Reverse(paths[*place as usize]));
    order
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

    #[test]
    fn the_longest_path_comes_first_and_nothing_before_what_it_follows() {
        // 0 → 3, 1 → 2 → 3, 4 alone.
        let depends_on = [vec![], vec![], vec![1], vec![0, 2], vec![]];
        let tasks = depends_on.into_iter().enumerate().map(|(task, depends_on)| TaskSpec {
            depends_on: depends_on.into_iter().map(id).collect(),
            ..TaskSpec::new(id(task))
        });
        let plan = Plan { tasks: tasks.collect(), ..Plan::default() };
        let links = Links::new(&plan, &RandomState::new(), &|_| None);
        assert_eq!(order(&[1, 1, 1, 1, 9], &links), [4, 1, 0, 2, 3]);
        assert_eq!(order(&[u64::MAX; 5], &links), [0, 1, 4, 2, 3]);
    }
}
