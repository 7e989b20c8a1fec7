//! What every policy owes to the tasks of a run.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::{Dice, Simulation};
use crate::id::TaskId;
use crate::plan::Plan;
use crate::policy::{SchedulingPolicy, TaskGraph};
use crate::specs::Specs;
use crate::task::TaskSpec;

/// Graphs that a policy is asked about.
const GRAPHS: u64 = 200;
/// Of so many of them one has more tasks than the others.
const LARGE_EVERY: u64 = 20;
/// Tasks of a large graph, and of a long or wide one.
const LARGE: u32 = 80;
const LONG: u32 = 3_000;
/// The longest estimate that the text of a plan may have.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Holds a policy against what every one of them owes, and lets worlds run by it.
///
/// It must be a pure function of the graph (P13), take any graph without a panic (P16), also a long, a
/// wide and a closely knit one with the longest estimates that there are, and know no task by its
/// name or its place: the same tasks under other names, in another order, have the same ranks, so
/// that nobody is favoured for nothing (P12). Then so many simulated worlds must keep all promises,
/// in safety and in liveness.
///
/// # Errors
/// What the policy does wrong.
pub fn check(policy: &Arc<dyn SchedulingPolicy>, worlds: u64) -> Result<(), String> {
    let mut dice = Dice::new(1);
    for number in 0..GRAPHS {
        let count = match number {
            0 => 0,
            _ if number % LARGE_EVERY == 0 => LARGE,
            _ => 1 + dice.below(12),
        };
        let drawn = Drawn::new(&mut dice, count);
        drawn.check(&**policy)?;
    }
    for (what, tasks) in extremes() {
        ranked(&**policy, &tasks).map_err(|err| format!("{err}: {what}"))?;
    }
    for seed in 0..worlds {
        let world = Simulation::new(seed).with_policy(Arc::clone(policy));
        for world in [world.clone(), world.safety()] {
            if let Some((_, violation)) = world.minimal() {
                return Err(violation.to_string());
            }
        }
    }
    Ok(())
}

/// A random plan, and where each of its tasks stands when they are in another order.
#[derive(Debug)]
struct Drawn {
    tasks: Vec<TaskSpec>,
    places: Vec<u32>,
}

impl Drawn {
    fn new(dice: &mut Dice, count: u32) -> Self {
        let mut tasks = Vec::new();
        for task in 0..count {
            let mut spec = TaskSpec::new(name(task));
            spec.priority = i32::from(dice.once_in(3));
            spec.max_retries = dice.below(4);
            let minutes = u64::from(dice.below(90));
            // Without them many tasks of a large plan are alike, and their place alone tells them apart.
            let is_estimated = count < LARGE && dice.once_in(2);
            spec.estimate = is_estimated.then(|| Duration::from_secs(60 * minutes));
            spec.depends_on =
                (0..task).filter(|_| dice.once_in(3.max(count / 2))).map(name).collect();
            tasks.push(spec);
        }
        let mut places: Vec<u32> = (0..count).collect();
        for at in (1..count).rev() {
            places.swap(at as usize, dice.below(at + 1) as usize);
        }
        Self { tasks, places }
    }

    fn check(&self, policy: &dyn SchedulingPolicy) -> Result<(), String> {
        let (ranks, again) = (ranked(policy, &self.tasks)?, ranked(policy, &self.tasks)?);
        if ranks != again {
            return Err(format!("P13: the same graph is ranked {ranks:?}, then {again:?}"));
        }
        let moved = ranked(policy, &self.in_another_order())?;
        let rank =
            |ranks: &BTreeMap<TaskId, u64>, task: &TaskId| ranks.get(task).copied().unwrap_or(0);
        for (spec, place) in self.tasks.iter().zip(&self.places) {
            let (id, other) = (&spec.id, other_name(*place));
            let (here, there) = (rank(&ranks, id), rank(&moved, &other));
            if here != there {
                return Err(format!(
                    "P12: a task is ranked {here} under the name `{id}`, and {there} under the \
                     name `{other}`"
                ));
            }
        }
        Ok(())
    }

    /// The same tasks in another order and under other names.
    fn in_another_order(&self) -> Vec<TaskSpec> {
        let mut tasks = self.tasks.clone();
        for (spec, to) in self.tasks.iter().zip(&self.places) {
            let place = |of: &TaskId| self.tasks.iter().position(|spec| spec.id == *of);
            let renamed = spec.depends_on.iter().filter_map(place);
            let depends_on = renamed.map(|at| other_name(self.places[at])).collect();
            tasks[*to as usize] = TaskSpec { id: other_name(*to), depends_on, ..spec.clone() };
        }
        tasks
    }
}

/// Plans that real ones come near, each of which is hard on a policy in another way.
fn extremes() -> [(&'static str, Vec<TaskSpec>); 3] {
    let plan = |count: u32, before: fn(u32) -> std::ops::Range<u32>| {
        let task = |number: u32| TaskSpec {
            depends_on: before(number).map(name).collect(),
            estimate: Some(LONGEST),
            ..TaskSpec::new(name(number))
        };
        (0..count).map(task).collect::<Vec<_>>()
    };
    [
        ("a chain of 3000 tasks", plan(LONG, |task| task.saturating_sub(1)..task)),
        ("3000 tasks that depend on one", plan(LONG, |task| 0..task.min(1))),
        // There are more ways through these than numbers.
        (
            "100 layers of 3 tasks, each on all before it",
            plan(300, |task| {
                let layer = task - task % 3;
                layer.saturating_sub(3)..layer
            }),
        ),
    ]
}

/// What a policy says of the tasks of a plan, unless it panics.
fn ranked(
    policy: &dyn SchedulingPolicy,
    tasks: &[TaskSpec],
) -> Result<BTreeMap<TaskId, u64>, String> {
    catch_unwind(AssertUnwindSafe(|| named_ranks(policy, tasks)))
        .map_err(|_| format!("P16: it panics at a plan of {} tasks", tasks.len()))
}

/// What a policy says of the tasks of a plan.
fn named_ranks(policy: &dyn SchedulingPolicy, tasks: &[TaskSpec]) -> BTreeMap<TaskId, u64> {
    let plan = Arc::new(Plan { tasks: tasks.to_vec(), ..Plan::default() });
    let mut specs = Specs::default();
    specs.add(&plan, None, None, |_, _, _| 0);
    let ranks = policy.ranks(&TaskGraph::new(&specs));
    let rank = |id: &TaskId| ranks.get(specs.number(id)? as usize).copied();
    tasks.iter().map(|spec| (spec.id.clone(), rank(&spec.id).unwrap_or(0))).collect()
}

fn name(task: u32) -> TaskId {
    TaskId::parse(&format!("t{task}")).expect("a valid id")
}

fn other_name(task: u32) -> TaskId {
    TaskId::parse(&format!("another-{}", 1_000 - task)).expect("a valid id")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Fifo, RemainingPath};

    #[test]
    fn the_built_in_policies_owe_nothing() {
        for policy in [Arc::new(RemainingPath) as Arc<dyn SchedulingPolicy>, Arc::new(Fifo)] {
            assert_eq!(check(&policy, 10), Ok(()), "{policy:?}");
        }
    }

    /// Who comes first in the alphabet goes first.
    #[derive(Debug)]
    struct Alphabet;

    impl SchedulingPolicy for Alphabet {
        fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
            let first =
                |task: usize| graph.task(task).and_then(|spec| spec.id.as_str().bytes().next());
            (0..graph.len()).map(|task| 256 - u64::from(first(task).unwrap_or(0))).collect()
        }
    }

    #[test]
    fn p12_a_policy_that_knows_tasks_by_name_is_caught() {
        let found = check(&(Arc::new(Alphabet) as Arc<dyn SchedulingPolicy>), 0).unwrap_err();
        assert!(found.starts_with("P12: a task is ranked"), "{found}");
    }

    /// Another answer each time.
    #[derive(Debug, Default)]
    struct Moody(std::sync::atomic::AtomicU64);

    impl SchedulingPolicy for Moody {
        fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
            let next = || self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (0..graph.len()).map(|_| next()).collect()
        }
    }

    #[test]
    fn p13_a_policy_that_answers_otherwise_each_time_is_caught() {
        let policy = Arc::new(Moody::default()) as Arc<dyn SchedulingPolicy>;
        let found = check(&policy, 0).unwrap_err();
        assert!(found.starts_with("P13: the same graph"), "{found}");
    }

    /// Counts all ways through what waits for a task.
    #[derive(Debug)]
    struct Ways;

    impl SchedulingPolicy for Ways {
        fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
            let mut ways = vec![1_u64; graph.len()];
            for task in graph.in_order().into_iter().rev() {
                let behind = graph.dependents(task).map(|next| ways[next]);
                ways[task] = behind.fold(1, |sum, more| sum.checked_add(more).expect("few"));
            }
            ways
        }
    }

    #[test]
    fn p16_a_policy_that_panics_at_a_closely_knit_plan_is_caught() {
        let found = check(&(Arc::new(Ways) as Arc<dyn SchedulingPolicy>), 0).unwrap_err();
        assert!(found.starts_with("P16: it panics at a plan of 300 tasks"), "{found}");
    }

    /// Whoever stands far behind in a long plan goes first.
    #[derive(Debug)]
    struct LateComers;

    impl SchedulingPolicy for LateComers {
        fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
            (0..graph.len()).map(|task| u64::from(task > 40)).collect()
        }
    }

    #[test]
    fn p12_a_policy_that_is_unfair_only_in_large_plans_is_caught() {
        let found = check(&(Arc::new(LateComers) as Arc<dyn SchedulingPolicy>), 0).unwrap_err();
        assert!(found.starts_with("P12: a task is ranked"), "{found}");
    }
}
