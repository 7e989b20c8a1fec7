//! What goes first among tasks that could run at the same stage.

use std::fmt;
use std::time::Duration;

use crate::specs::Specs;
use crate::task::TaskSpec;
use crate::time::millis;

/// Ranks the tasks of a run: a pure function of the graph and the tasks.
///
/// ```
/// use orchestrator_core::{SchedulingPolicy, TaskGraph};
///
/// /// What most others wait for goes first.
/// #[derive(Debug)]
/// struct MostDependents;
///
/// impl SchedulingPolicy for MostDependents {
///     fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
///         (0..graph.len()).map(|task| graph.dependents(task).count() as u64).collect()
///     }
/// }
/// ```
pub trait SchedulingPolicy: fmt::Debug + Send + Sync {
    /// A rank for each task, in the graph's order; a greater one goes first. What is missing counts
    /// as 0.
    fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64>;
}

/// The tasks of a run and what waits for them, by number.
#[derive(Debug)]
pub struct TaskGraph<'a> {
    specs: &'a Specs,
}

impl<'a> TaskGraph<'a> {
    pub(crate) const fn new(specs: &'a Specs) -> Self {
        Self { specs }
    }

    /// How many tasks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The task of this number.
    #[must_use]
    pub fn task(&self, number: usize) -> Option<&'a TaskSpec> {
        let number = u32::try_from(number).ok().filter(|number| (*number as usize) < self.len());
        number.map(|number| self.specs.spec(number))
    }

    /// How long one attempt of a task is expected to take, if somebody said so. This is cheaper than to
    /// look at all that is known of the [`task`](Self::task).
    #[must_use]
    pub fn estimate(&self, number: usize) -> Option<Duration> {
        let number = u32::try_from(number).ok().filter(|number| (*number as usize) < self.len());
        number.and_then(|number| self.specs.estimate(number))
    }

    /// All numbers, each after those of the tasks that it depends on.
    #[must_use]
    pub fn in_order(&self) -> Vec<usize> {
        self.specs.in_order().map(|number| number as usize).collect()
    }

    /// The numbers of the tasks that wait for this one.
    pub fn dependents(&self, number: usize) -> impl Iterator<Item = usize> + 'a {
        let specs = self.specs;
        let number = u32::try_from(number).ok().filter(|number| (*number as usize) < specs.len());
        let dependents = number.into_iter().flat_map(|number| specs.dependents(number));
        dependents.map(|next| next as usize)
    }
}

/// The longest chain of work that still waits behind a task goes first: its estimate and those of
/// what depends on it. A task without an estimate counts as the mean of those that have one; where
/// nobody estimated, tasks are counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct RemainingPath;

impl SchedulingPolicy for RemainingPath {
    fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
        let specs = graph.specs;
        let estimate = |task: u32| specs.estimate(task).map(millis);
        let known = specs.in_order().filter_map(estimate);
        let (sum, count) =
            known.fold((0_u64, 0_u64), |(sum, count), one| (sum.saturating_add(one), count + 1));
        let mean = sum.checked_div(count).unwrap_or(1).max(1);
        let mut ranks = vec![0_u64; graph.len()];
        for task in specs.in_order().rev() {
            let behind = specs.dependents(task);
            let longest = behind.fold(0, |longest, next| ranks[next as usize].max(longest));
            ranks[task as usize] = estimate(task).unwrap_or(mean).saturating_add(longest);
        }
        ranks
    }
}

/// First come, first served.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fifo;

impl SchedulingPolicy for Fifo {
    fn ranks(&self, _graph: &TaskGraph<'_>) -> Vec<u64> {
        Vec::new()
    }
}
