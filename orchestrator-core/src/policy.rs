//! What goes first among tasks that could run at the same stage.

use std::collections::BTreeSet;
use std::fmt;

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
///         (0..graph.len()).map(|task| graph.dependents(task).len() as u64).collect()
///     }
/// }
/// ```
pub trait SchedulingPolicy: fmt::Debug + Send + Sync {
    /// A rank for each task, in the graph's order; a greater one goes first. What is missing counts
    /// as 0.
    fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64>;
}

/// The tasks of a run and what waits for them, by dense number.
#[derive(Debug)]
pub struct TaskGraph<'a> {
    specs: Vec<&'a TaskSpec>,
    dependents: Vec<&'a [u32]>,
}

impl<'a> TaskGraph<'a> {
    pub(crate) fn new(tasks: impl Iterator<Item = (&'a TaskSpec, &'a [u32])>) -> Self {
        let (specs, dependents) = tasks.unzip();
        Self { specs, dependents }
    }

    /// How many tasks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// The task of this number.
    #[must_use]
    pub fn task(&self, number: usize) -> Option<&'a TaskSpec> {
        self.specs.get(number).copied()
    }

    /// The numbers of the tasks that wait for this one.
    #[must_use]
    pub fn dependents(&self, number: usize) -> &'a [u32] {
        self.dependents.get(number).copied().unwrap_or_default()
    }

    /// All numbers, each after those of the tasks it waits for.
    #[must_use]
    pub fn in_order(&self) -> Vec<usize> {
        let mut waits = vec![0_u32; self.len()];
        let following = |task: usize| self.dependents(task).iter().map(|next| *next as usize);
        for next in (0..self.len()).flat_map(following) {
            waits[next] += 1;
        }
        let mut free: BTreeSet<usize> = (0..self.len()).filter(|task| waits[*task] == 0).collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(task) = free.pop_first() {
            order.push(task);
            for next in following(task) {
                waits[next] -= 1;
                if waits[next] == 0 {
                    free.insert(next);
                }
            }
        }
        order
    }
}

/// The longest chain of work that still waits behind a task goes first: its estimate and those of
/// what depends on it. A task without an estimate counts as the mean of those that have one; where
/// nobody estimated, tasks are counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct RemainingPath;

impl SchedulingPolicy for RemainingPath {
    fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
        let estimate = |task: usize| graph.task(task).and_then(|spec| spec.estimate).map(millis);
        let known: Vec<u64> = (0..graph.len()).filter_map(estimate).collect();
        let sum = known.iter().fold(0_u64, |sum, one| sum.saturating_add(*one));
        let mean = sum.checked_div(known.len() as u64).unwrap_or(1).max(1);
        let mut ranks = vec![0_u64; graph.len()];
        for task in graph.in_order().into_iter().rev() {
            let behind = graph.dependents(task).iter().map(|next| ranks[*next as usize]).max();
            let own = estimate(task).unwrap_or(mean);
            ranks[task] = own.saturating_add(behind.unwrap_or(0));
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
