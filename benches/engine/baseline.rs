//! What the engine is measured against.

use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::clock::Stopwatch;
use crate::graphs::Graph;

/// The leanest loop: adjacency in one array, counters, a heap by remaining path. No leases, records,
/// pools, log or names.
pub(crate) struct Csr {
    offsets: Vec<u32>,
    dependents: Vec<u32>,
    waits: Vec<u32>,
    path: Vec<u32>,
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("fewer than 2^32 tasks")
}

impl Csr {
    pub(crate) fn new(graph: &Graph) -> Self {
        let mut offsets = vec![0_u32; graph.len() + 1];
        for from in graph.iter().flatten() {
            offsets[*from as usize + 1] += 1;
        }
        for at in 0..graph.len() {
            offsets[at + 1] += offsets[at];
        }
        let mut next = offsets.clone();
        let mut dependents = vec![0; graph.iter().map(Vec::len).sum()];
        for (task, dependencies) in (0_u32..).zip(graph) {
            for from in dependencies {
                let slot = &mut next[*from as usize];
                dependents[*slot as usize] = task;
                *slot += 1;
            }
        }
        let waits: Vec<u32> = graph.iter().map(|from| count(from.len())).collect();
        let mut csr = Self { offsets, dependents, waits, path: vec![1; graph.len()] };
        for task in csr.order().into_iter().rev() {
            let behind = csr.dependents(task).iter().map(|next| csr.path[*next as usize]).max();
            csr.path[task as usize] += behind.unwrap_or(0);
        }
        csr
    }

    fn dependents(&self, task: u32) -> &[u32] {
        let task = task as usize;
        &self.dependents[self.offsets[task] as usize..self.offsets[task + 1] as usize]
    }

    fn order(&self) -> Vec<u32> {
        let mut waits = self.waits.clone();
        let mut order: Vec<u32> =
            (0..count(waits.len())).filter(|task| waits[*task as usize] == 0).collect();
        let mut at = 0;
        while let Some(task) = order.get(at).copied() {
            at += 1;
            for next in self.dependents(task) {
                waits[*next as usize] -= 1;
                if waits[*next as usize] == 0 {
                    order.push(*next);
                }
            }
        }
        order
    }

    /// Completes all tasks, one after the other.
    pub(crate) fn run(&self) -> Duration {
        let mut waits = self.waits.clone();
        let begun = Stopwatch::start();
        let mut ready: BinaryHeap<(u32, u32)> = BinaryHeap::new();
        ready.extend(
            (0_u32..)
                .zip(&waits)
                .filter(|(_, waits)| **waits == 0)
                .map(|(task, _)| (self.path[task as usize], u32::MAX - task)),
        );
        let mut done = 0;
        while let Some((_, inverted)) = ready.pop() {
            done += 1;
            for next in self.dependents(u32::MAX - inverted) {
                let waits = &mut waits[*next as usize];
                *waits -= 1;
                if *waits == 0 {
                    ready.push((self.path[*next as usize], u32::MAX - *next));
                }
            }
        }
        let time = begun.elapsed();
        assert_eq!(done, self.waits.len(), "the lean loop did not finish");
        time
    }
}

/// As it is often written: a graph of names, and maps by name.
pub(crate) struct Maps {
    graph: DiGraph<String, ()>,
    nodes: HashMap<String, NodeIndex>,
    waits: HashMap<String, usize>,
    path: HashMap<String, u32>,
}

impl Maps {
    pub(crate) fn new(of: &Graph) -> Self {
        let name = |task: u32| format!("task-{task}");
        let mut graph = DiGraph::new();
        let mut nodes = HashMap::new();
        for task in 0..count(of.len()) {
            nodes.insert(name(task), graph.add_node(name(task)));
        }
        let mut waits = HashMap::new();
        for (task, dependencies) in (0_u32..).zip(of) {
            waits.insert(name(task), dependencies.len());
            for from in dependencies {
                graph.add_edge(nodes[&name(*from)], nodes[&name(task)], ());
            }
        }
        let csr = Csr::new(of);
        let path = (0_u32..).zip(&csr.path).map(|(task, path)| (name(task), *path)).collect();
        Self { graph, nodes, waits, path }
    }

    /// Completes all tasks, one after the other.
    pub(crate) fn run(&self) -> Duration {
        let mut waits = self.waits.clone();
        let begun = Stopwatch::start();
        let mut ready: BinaryHeap<(u32, String)> = waits
            .iter()
            .filter(|(_, waits)| **waits == 0)
            .map(|(name, _)| (self.path[name], name.clone()))
            .collect();
        let mut done = 0;
        while let Some((_, name)) = ready.pop() {
            done += 1;
            let node = self.nodes[&name];
            for next in self.graph.neighbors_directed(node, Direction::Outgoing) {
                let next = &self.graph[next];
                let Some(waits) = waits.get_mut(next) else { continue };
                *waits -= 1;
                if *waits == 0 {
                    ready.push((self.path[next], next.clone()));
                }
            }
        }
        let time = begun.elapsed();
        assert_eq!(done, self.waits.len(), "the loop with maps did not finish");
        time
    }
}
