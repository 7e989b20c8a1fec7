//! Every history of a small world, not only those of chance.
//!
//! From a plan of at most four tasks all that can happen is tried in every order: claims, results of
//! every kind, results sent again and by holders that were taken for dead, leases that run out, a
//! driver that dies, a person that acts. States are the same when no question tells them apart
//! (`fingerprint`), and each is looked at once. As the search goes by breadth, a violation comes with
//! a shortest history. The bounds are those of [`Exploration`]; what it leaves out (pauses, plans
//! that come later, refused commits) is in the simulator.

mod fingerprint;
mod state;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::state::State;
use crate::id::TaskId;
use crate::money::Usd;
use crate::pipeline::{AGENTS, Pipeline, StageKind, StageSpec};
use crate::plan::Plan;
use crate::retry::RetryRules;
use crate::scope::Scope;
use crate::task::{TaskSpec, VerifyCommand};

/// What is explored: every graph of so many tasks, each of two stages, and within it every order of
/// what can happen.
#[derive(Debug, Clone)]
pub struct Exploration {
    /// Tasks in each plan, at most 4.
    pub tasks: u8,
    /// Drivers that die; the next one takes over.
    pub crashes: u8,
    /// Commands that people give: retry, cancel, skip.
    pub people: u8,
    /// Retries of each task.
    pub retries: u32,
    /// Interruptions of an attempt after which it goes on.
    pub interruptions: u32,
    /// Grants of each task beyond its stages and retries.
    pub spare: u32,
    /// Whether results arrive again, and those of stopped leases late.
    pub again: bool,
    /// Edits by people, each of which gives a task priority and a retry more.
    pub edits: u8,
    /// Results which say that the account is closed.
    pub usage_limits: u8,
    /// Whether stages cost something, there is a budget, and what one has spent may be unknown.
    pub money: bool,
    /// Most states of one world, so that memory is bounded.
    pub states_max: usize,
}

impl Exploration {
    /// The bound that is explored, by CI for up to 3 tasks: with more tasks, less can happen to each.
    #[must_use]
    pub const fn of(tasks: u8) -> Self {
        let (alone, few, many) = (tasks == 1, tasks <= 2, tasks > 3);
        Self {
            tasks,
            crashes: 1,
            people: if alone { 1 } else { 0 },
            retries: if alone { 1 } else { 0 },
            interruptions: if many { 0 } else { 1 },
            spare: if few { 1 } else { 0 },
            again: few,
            edits: 0,
            usage_limits: 0,
            money: false,
            states_max: 20_000_000,
        }
    }

    /// The bound that CI explores with edits, money and usage limits, for one task or two.
    #[must_use]
    pub const fn dear(tasks: u8) -> Self {
        let alone = tasks == 1;
        Self {
            crashes: if alone { 1 } else { 0 },
            people: 0,
            retries: 0,
            spare: if alone { 1 } else { 0 },
            again: alone,
            edits: 1,
            usage_limits: 1,
            money: true,
            ..Self::of(tasks)
        }
    }

    /// Explores every world within the bound.
    ///
    /// # Errors
    /// The world, what was broken, and a shortest history that leads to it.
    pub fn run(&self) -> Result<Explored, String> {
        let mut sum = Explored::default();
        for graph in graphs(self.tasks) {
            for variant in [Variant::Plain, Variant::OneScope, Variant::Merging] {
                let one = self.world(&graph, variant)?;
                sum.worlds += one.worlds;
                sum.states += one.states;
                sum.transitions += one.transitions;
            }
        }
        Ok(sum)
    }

    fn world(&self, graph: &[Vec<u8>], variant: Variant) -> Result<Explored, String> {
        let rules = RetryRules {
            interruptions_max: self.interruptions,
            dispatches_spare: self.spare,
            backoff: Duration::from_secs(5),
            first_stage_failures_max: 0,
            ..RetryRules::default()
        };
        let budget = self.money.then(|| Usd::dollars(4 + 2 * u32::from(self.tasks)));
        let plan = Arc::new(Plan { budget, ..plan(graph, variant, self.retries) });
        let first = State::new(plan, rules, self)?;
        let mut seen = BTreeSet::from([first.fingerprint()]);
        // For each state the one before and what was done, to tell how it was reached.
        let mut reached: Vec<(usize, String)> = vec![(0, String::new())];
        let mut waiting = VecDeque::from([(0, first)]);
        let mut transitions = 0;
        while let Some((at, state)) = waiting.pop_front() {
            for action in state.actions() {
                transitions += 1;
                let next = state.after(&action).map_err(|what| {
                    let history = history(&reached, at, &format!("{action:?}"));
                    format!("{variant:?} {graph:?}: {what}\n{history}")
                })?;
                if !seen.insert(next.fingerprint()) {
                    continue;
                }
                if reached.len() >= self.states_max {
                    return Err(format!("{variant:?} {graph:?} has over {} states", reached.len()));
                }
                reached.push((at, format!("{action:?}")));
                waiting.push_back((reached.len() - 1, next));
            }
        }
        Ok(Explored { worlds: 1, states: reached.len(), transitions })
    }
}

impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tasks, crashes, people, retries, interruptions, spare, again, .. } = self;
        let owners = crashes + 1;
        write!(f, "tasks {tasks}, stages 2, owners {owners}, crashes {crashes}, ")?;
        write!(f, "retries {retries}, interruptions {interruptions}, spare grants {spare}, ")?;
        write!(f, "commands of people {people}, ")?;
        write!(f, "repeated results {again}, edits {}, ", self.edits)?;
        write!(f, "usage limits {}, money {}", self.usage_limits, self.money)
    }
}

/// How much was explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Explored {
    /// Plans.
    pub worlds: usize,
    /// Different states.
    pub states: usize,
    /// Things done in one of them.
    pub transitions: usize,
}

/// What the tasks of a world have beyond their dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// They run and are verified, two at once.
    Plain,
    /// They run and are verified in one scope.
    OneScope,
    /// They run and are merged, one at a time.
    Merging,
}

fn history(reached: &[(usize, String)], mut at: usize, last: &str) -> String {
    let mut lines = vec![last.to_owned()];
    while at > 0 {
        let (before, action) = &reached[at];
        lines.push(action.clone());
        at = *before;
    }
    lines.reverse();
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

/// Every graph of so many tasks, of those that differ only in numbers one: for each task those before
/// it that it depends on.
fn graphs(tasks: u8) -> Vec<Vec<Vec<u8>>> {
    let pairs: Vec<(u8, u8)> =
        (0..tasks).flat_map(|to| (0..to).map(move |from| (from, to))).collect();
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for chosen in 0_u32..1 << pairs.len() {
        let edges = pairs.iter().enumerate().filter(|(at, _)| chosen & (1 << at) != 0);
        let edges: Vec<(u8, u8)> = edges.map(|(_, edge)| *edge).collect();
        let least = orders(tasks).iter().map(|order| renamed(&edges, order)).min();
        if least.is_some_and(|least| seen.insert(least)) {
            let before =
                |task: u8| edges.iter().filter(move |edge| edge.1 == task).map(|edge| edge.0);
            all.push((0..tasks).map(|task| before(task).collect()).collect());
        }
    }
    all
}

fn renamed(edges: &[(u8, u8)], order: &[u8]) -> Vec<(u8, u8)> {
    let mut edges: Vec<(u8, u8)> = edges
        .iter()
        .map(|(from, to)| (order[usize::from(*from)], order[usize::from(*to)]))
        .collect();
    edges.sort_unstable();
    edges
}

fn orders(tasks: u8) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for _ in 0..tasks {
        let longer = |order: &Vec<u8>| {
            let order = order.clone();
            (0..tasks)
                .filter(|task| !order.contains(task))
                .map(|task| [&order[..], &[task]].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn plan(graph: &[Vec<u8>], variant: Variant, retries: u32) -> Plan {
    let id = |task: usize| TaskId::parse(&format!("t{task}")).expect("a valid id");
    let mut plan = Plan::default();
    for (task, before) in graph.iter().enumerate() {
        let mut spec = TaskSpec::new(id(task));
        spec.depends_on = before.iter().map(|from| id(usize::from(*from))).collect();
        spec.max_retries = retries;
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        if variant == Variant::OneScope {
            spec.scope = Scope::parse(["src"]).ok();
        }
        plan.tasks.push(spec);
    }
    let last = if variant == Variant::Merging { StageKind::Integrate } else { StageKind::Verify };
    let stage = |kind| StageSpec { timeout: Duration::from_secs(60), ..StageSpec::of(kind) };
    let stages = [StageKind::Run, last].map(stage).to_vec();
    let name = "default".parse().expect("a valid name");
    plan.pipelines.insert(name, Pipeline::new(stages).expect("a valid pipeline"));
    let agents = AGENTS.parse().expect("a valid name");
    plan.pools.insert(agents, if variant == Variant::Merging { 1 } else { 2 });
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_that_differ_only_in_numbers_are_explored_once() {
        assert_eq!([1, 2, 3, 4].map(|tasks| graphs(tasks).len()), [1, 2, 6, 31]);
    }

    #[test]
    fn p10_holds_in_every_history_of_one_task_that_is_edited_and_costs_something() {
        let explored = Exploration::dear(1).run();
        let explored = explored.unwrap_or_else(|violation| panic!("{violation}"));
        assert!(explored.states > 500, "{explored:?}");
    }

    #[test]
    fn p1_to_p7_hold_in_every_history_of_one_task_with_two_owners_and_a_crash() {
        let explored = Exploration::of(1).run();
        let explored = explored.unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(explored.worlds, 3);
        assert!(explored.states > 500, "{explored:?}");
    }
}
