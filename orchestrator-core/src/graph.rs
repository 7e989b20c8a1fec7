//! The dependencies of a plan by dense number: order, longest paths, a lower bound for the time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::time::Duration;

use petgraph::dot::{Config, Dot};
use petgraph::graph::{DiGraph, EdgeReference, NodeIndex};

use crate::id::TaskId;
use crate::plan::{Plan, PlanFault};
use crate::time::millis;

/// The tasks of a plan and how they depend on each other; a task's number is its place in the plan.
///
/// Dependencies on tasks that are not in the plan (but in its run) are left out.
///
/// ```
/// use orchestrator_core::{Graph, PathLength, Plan};
/// let plan = Plan::parse(r#"[
///     {"id": "types", "verify": "true"},
///     {"id": "client", "verify": "true", "depends_on": ["types"]},
///     {"id": "server", "verify": "true", "depends_on": ["types"]},
///     {"id": "docs", "verify": "true", "depends_on": ["server"]},
/// ]"#)?;
/// let graph = Graph::new(&plan).unwrap();
/// assert_eq!(graph.critical_path(), [0, 2, 3]);
/// assert_eq!(graph.makespan_bound(1), PathLength::Hops(4));
/// assert_eq!(graph.makespan_bound(8), PathLength::Hops(3));
/// # Ok::<(), orchestrator_core::PlanErrors>(())
/// ```
#[derive(Debug, Clone)]
pub struct Graph {
    ids: Vec<TaskId>,
    numbers: BTreeMap<TaskId, usize>,
    dependencies: Vec<Vec<usize>>,
    dependents: Vec<Vec<usize>>,
    order: Vec<usize>,
    /// What each task weighs: milliseconds, or 1.
    own: Vec<u64>,
    remaining: Vec<u64>,
    is_estimated: bool,
}

/// How long a chain of tasks is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathLength {
    /// In tasks, where no task of the plan has an estimate.
    Hops(u64),
    /// In time, by the estimates; a task without one counts as the mean of those that have one.
    Time(Duration),
}

impl fmt::Display for PathLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hops(1) => write!(f, "1 task"),
            Self::Hops(hops) => write!(f, "{hops} tasks"),
            Self::Time(time) => {
                let minutes = time.as_secs().div_ceil(60);
                match (minutes / 60, minutes % 60) {
                    (0, minutes) => write!(f, "{minutes} min"),
                    (hours, minutes) => write!(f, "{hours} h {minutes} min"),
                }
            }
        }
    }
}

impl Graph {
    /// The graph of a plan.
    ///
    /// # Errors
    /// The faults of the plan's names and dependencies, as [`Plan::check`] tells them.
    pub fn new(plan: &Plan) -> Result<Self, Vec<PlanFault>> {
        let faults = plan.faults_of_dependencies();
        if !faults.is_empty() {
            return Err(faults);
        }
        let ids: Vec<TaskId> = plan.tasks.iter().map(|task| task.id.clone()).collect();
        let numbers: BTreeMap<TaskId, usize> = ids.iter().cloned().zip(0..).collect();
        let number = |id: &TaskId| numbers.get(id).copied();
        let dependencies: Vec<Vec<usize>> = plan
            .tasks
            .iter()
            .map(|task| task.depends_on.iter().filter_map(number).collect())
            .collect();
        let mut dependents = vec![Vec::new(); ids.len()];
        for (task, dependencies) in dependencies.iter().enumerate() {
            for dependency in dependencies {
                dependents[*dependency].push(task);
            }
        }
        let order = order(&dependencies, &dependents);
        let (own, is_estimated) = weights(plan);
        let mut remaining = own.clone();
        for task in order.iter().rev() {
            let behind = dependents[*task].iter().map(|next| remaining[*next]).max().unwrap_or(0);
            remaining[*task] = own[*task].saturating_add(behind);
        }
        Ok(Self { ids, numbers, dependencies, dependents, order, own, remaining, is_estimated })
    }

    /// How many tasks there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The id of the task of this number.
    #[must_use]
    pub fn id(&self, task: usize) -> Option<&TaskId> {
        self.ids.get(task)
    }

    /// The number of the task of this id.
    #[must_use]
    pub fn number(&self, id: &TaskId) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    /// What the task depends on, as in the plan.
    #[must_use]
    pub fn dependencies(&self, task: usize) -> &[usize] {
        self.dependencies.get(task).map(Vec::as_slice).unwrap_or_default()
    }

    /// What depends on the task, in ascending order.
    #[must_use]
    pub fn dependents(&self, task: usize) -> &[usize] {
        self.dependents.get(task).map(Vec::as_slice).unwrap_or_default()
    }

    /// All tasks, each after what it depends on, and otherwise in the order of the plan.
    #[must_use]
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The longest chain that begins with this task, itself included.
    #[must_use]
    pub fn remaining(&self, task: usize) -> Option<PathLength> {
        self.remaining.get(task).map(|length| self.length(*length))
    }

    /// A longest chain of the plan: no number of agents makes it end sooner. Of equal ones it is
    /// that of the first tasks.
    #[must_use]
    pub fn critical_path(&self) -> Vec<usize> {
        let longest = |tasks: &mut dyn Iterator<Item = usize>| {
            tasks.min_by_key(|task| (Reverse(self.remaining[*task]), *task))
        };
        let mut path = Vec::new();
        let mut next = longest(&mut (0..self.len()));
        while let Some(task) = next {
            path.push(task);
            next = longest(&mut self.dependents[task].iter().copied());
        }
        path
    }

    /// The work of all tasks together, one attempt each.
    #[must_use]
    pub fn work(&self) -> PathLength {
        self.length(self.work_sum())
    }

    /// What the plan takes at least with so many tasks at once, one attempt each: its critical path,
    /// or its work shared evenly, whichever is longer. For `at_once` 0, as for 1.
    #[must_use]
    pub fn makespan_bound(&self, at_once: usize) -> PathLength {
        let longest = self.remaining.iter().max().copied().unwrap_or(0);
        let shares = u64::try_from(at_once.max(1)).unwrap_or(u64::MAX);
        self.length(longest.max(self.work_sum().div_ceil(shares)))
    }

    /// The graph in the language of Graphviz: arrows lead from a task to what waits for it, and the
    /// critical path is drawn bold.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut graph: DiGraph<String, bool> = DiGraph::new();
        // For each task of the critical path the one after it.
        let path = self.critical_path();
        let mut after: Vec<Option<Option<usize>>> = vec![None; self.len()];
        for (at, task) in path.iter().enumerate() {
            after[*task] = Some(path.get(at + 1).copied());
        }
        for (id, after) in self.ids.iter().zip(&after) {
            let bold = if after.is_some() { ", penwidth = 3" } else { "" };
            graph.add_node(format!("label = \"{}\"{bold}", quoted(id.as_str())));
        }
        for (task, dependencies) in self.dependencies.iter().enumerate() {
            for dependency in dependencies {
                let is_step = after[*dependency] == Some(Some(task));
                graph.add_edge(NodeIndex::new(*dependency), NodeIndex::new(task), is_step);
            }
        }
        let config = [Config::NodeNoLabel, Config::EdgeNoLabel];
        let edge = |_, edge: EdgeReference<'_, bool>| {
            if *edge.weight() { "penwidth = 3".to_owned() } else { String::new() }
        };
        let node = |_, (_, attributes): (NodeIndex, &String)| attributes.clone();
        Dot::with_attr_getters(&graph, &config, &edge, &node).to_string()
    }

    fn work_sum(&self) -> u64 {
        self.own.iter().fold(0, |sum, one| sum.saturating_add(*one))
    }

    const fn length(&self, length: u64) -> PathLength {
        if self.is_estimated {
            PathLength::Time(Duration::from_millis(length))
        } else {
            PathLength::Hops(length)
        }
    }
}

/// The weight of each task, and whether it is time.
fn weights(plan: &Plan) -> (Vec<u64>, bool) {
    let estimates = || plan.tasks.iter().map(|task| task.estimate.map(millis));
    let known: Vec<u64> = estimates().flatten().collect();
    let sum = known.iter().fold(0_u64, |sum, one| sum.saturating_add(*one));
    let mean = sum.checked_div(known.len() as u64).unwrap_or(1);
    (estimates().map(|estimate| estimate.unwrap_or(mean)).collect(), !known.is_empty())
}

fn order(dependencies: &[Vec<usize>], dependents: &[Vec<usize>]) -> Vec<usize> {
    let mut waits: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut free: BinaryHeap<Reverse<usize>> =
        (0..waits.len()).filter(|task| waits[*task] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(Reverse(task)) = free.pop() {
        order.push(task);
        for next in &dependents[task] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                free.push(Reverse(*next));
            }
        }
    }
    order
}

/// A text within the quotes of Graphviz, where a backslash begins an escape.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::task::TaskSpec;

    fn id(task: usize) -> TaskId {
        TaskId::parse(&format!("t{task}")).unwrap()
    }

    fn plan(dependencies: &[(Vec<usize>, Option<u64>)]) -> Plan {
        let tasks = dependencies.iter().enumerate().map(|(task, (depends_on, minutes))| TaskSpec {
            depends_on: depends_on.iter().copied().map(id).collect(),
            estimate: minutes.map(|minutes| Duration::from_secs(minutes * 60)),
            ..TaskSpec::new(id(task))
        });
        Plan { tasks: tasks.collect(), ..Plan::default() }
    }

    fn minutes(minutes: u64) -> PathLength {
        PathLength::Time(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn paths_are_sums_of_estimates_with_the_mean_where_there_is_none() {
        let plan = plan(&[
            (vec![], Some(10)),
            (vec![0], None),
            (vec![0], Some(30)),
            (vec![1, 2], Some(20)),
        ]);
        let graph = Graph::new(&plan).unwrap();
        let remaining: Vec<PathLength> = (0..4).filter_map(|task| graph.remaining(task)).collect();
        assert_eq!(remaining, [60, 40, 50, 20].map(minutes));
        assert_eq!(graph.critical_path(), [0, 2, 3]);
        assert_eq!(graph.work(), minutes(80));
        assert_eq!([1, 2].map(|at_once| graph.makespan_bound(at_once)), [80, 60].map(minutes));
        assert_eq!(graph.makespan_bound(1).to_string(), "1 h 20 min");
        assert_eq!(graph.dependents(0), [1, 2]);
        assert_eq!((graph.number(&id(2)), graph.id(2)), (Some(2), Some(&id(2))));
    }

    #[test]
    fn a_plan_with_a_circle_or_an_id_twice_is_no_graph() {
        let faults = Graph::new(&plan(&[(vec![1], None), (vec![0], None)])).unwrap_err();
        assert!(matches!(faults.as_slice(), [PlanFault::Cycle { tasks }] if tasks.len() == 2));
        let mut twice = plan(&[(vec![], None), (vec![], None)]);
        twice.tasks[1].id = id(0);
        let faults = Graph::new(&twice).unwrap_err();
        assert_eq!(faults, [PlanFault::DuplicateTask { task: id(0) }]);
    }

    #[test]
    fn dependencies_on_other_plans_and_missing_verify_commands_do_not_matter() {
        let graph = Graph::new(&plan(&[(vec![7], None)])).unwrap();
        assert_eq!((graph.len(), graph.dependencies(0)), (1, [].as_slice()));
        assert!(Graph::new(&Plan::default()).unwrap().is_empty());
    }

    #[test]
    fn the_export_quotes_ids_and_shows_the_critical_path() {
        let mut plan = plan(&[(vec![], None), (vec![0], None), (vec![], None)]);
        plan.tasks[2].id = TaskId::parse("a\"b\\n").unwrap();
        insta::assert_snapshot!(Graph::new(&plan).unwrap().to_dot());
    }

    #[test]
    fn a_chain_of_100_000_is_ordered_without_recursion() {
        let chain: Vec<_> = (0..100_000_usize)
            .map(|task| (task.checked_sub(1).into_iter().collect(), None))
            .collect();
        let graph = Graph::new(&plan(&chain)).unwrap();
        assert_eq!(graph.makespan_bound(64), PathLength::Hops(100_000));
        assert_eq!(graph.critical_path().len(), 100_000);
        assert!(graph.to_dot().len() > 100_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        #[test]
        fn p3_the_order_respects_dependencies_and_paths_agree_with_a_plain_search(
            raw in prop::collection::vec(
                (prop::collection::btree_set(0_usize..12, 0..4), prop::option::of(1_u64..90)),
                0..12,
            ),
        ) {
            let raw: Vec<(Vec<usize>, Option<u64>)> = raw
                .into_iter()
                .enumerate()
                .map(|(task, (before, estimate))| {
                    (before.into_iter().filter(|other| *other < task).collect(), estimate)
                })
                .collect();
            let graph = Graph::new(&plan(&raw)).unwrap();
            let place = |task: usize| graph.order().iter().position(|other| *other == task);
            for (task, (before, _)) in raw.iter().enumerate() {
                prop_assert!(before.iter().all(|other| place(*other) < place(task)));
            }
            let longest = (0..raw.len()).map(|task| naive(&graph, task)).max().unwrap_or(0);
            let path = graph.critical_path();
            prop_assert_eq!(path.iter().map(|task| graph.own[*task]).sum::<u64>(), longest);
            for step in path.windows(2) {
                prop_assert!(graph.dependents(step[0]).contains(&step[1]));
            }
            prop_assert_eq!(graph.makespan_bound(usize::MAX), graph.length(longest));
            prop_assert_eq!(graph.makespan_bound(0), graph.work());
        }
    }

    fn naive(graph: &Graph, task: usize) -> u64 {
        let behind = graph.dependents(task).iter().map(|next| naive(graph, *next)).max();
        graph.own[task] + behind.unwrap_or(0)
    }
}
