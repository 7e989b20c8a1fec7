//! The tasks that stand not far above in a plan, by their ids.

use crate::id::TaskId;
use crate::task::TaskSpec;

/// The last tasks by a mark of their ids, each in the place of one of the same lower bits: most
/// dependencies stand not far above what names them, and memory is slow where the table is large.
///
/// The mark has no key: ids that collide here are only looked up in the table then.
pub(super) struct Near(Vec<(u32, u32)>);

/// The place of no task.
const NOBODY: u32 = u32::MAX;

impl Near {
    pub(super) fn new(tasks: usize) -> Self {
        Self(vec![(0, NOBODY); tasks.next_power_of_two().min(1 << 15)])
    }

    /// The last eight bytes and the length, mixed.
    fn mark(id: &TaskId) -> u32 {
        let bytes = id.as_str().as_bytes();
        let last = match bytes.last_chunk() {
            Some(last) => u64::from_be_bytes(*last),
            None => bytes.iter().fold(0, |mark, byte| mark << 8 | u64::from(*byte)),
        };
        let mark = (last ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        u32::try_from(mark >> 32).unwrap_or(0)
    }

    fn place(&self, mark: u32) -> usize {
        // Truncation is what is wanted: the length is a power of two.
        mark as usize & (self.0.len() - 1)
    }

    pub(super) fn put(&mut self, id: &TaskId, task: u32) {
        let mark = Self::mark(id);
        let place = self.place(mark);
        self.0[place] = (mark, task);
    }

    pub(super) fn find(&self, tasks: &[TaskSpec], id: &TaskId) -> Option<u32> {
        let mark = Self::mark(id);
        let (of, task) = self.0[self.place(mark)];
        (of == mark && tasks.get(task as usize).is_some_and(|spec| spec.id == *id)).then_some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_found_near_until_one_with_the_same_lower_bits_takes_its_place() {
        let tasks: Vec<TaskSpec> = (0..2_000)
            .map(|at| TaskSpec::new(TaskId::parse(&format!("a-task-{at}")).unwrap()))
            .collect();
        let mut near = Near::new(tasks.len());
        let mut found = 0;
        for (place, spec) in (0_u32..).zip(&tasks) {
            assert_eq!(near.find(&tasks, &spec.id), None);
            near.put(&spec.id, place);
            assert_eq!(near.find(&tasks, &spec.id), Some(place));
            let before = place.saturating_sub(20);
            let was = near.find(&tasks, &tasks[before as usize].id);
            assert!(was.is_none_or(|was| was == before));
            found += u32::from(was.is_some());
        }
        assert!(found > 1_900, "{found}");
        // What only looks like one of them, and what is short.
        for id in ["b-task-1999", "9", "a-task-1999 "] {
            assert_eq!(near.find(&tasks, &TaskId::parse(id).unwrap()), None, "{id}");
        }
    }
}
