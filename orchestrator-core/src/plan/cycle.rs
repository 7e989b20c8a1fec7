//! Finds a shortest circle in each knot of a dependency graph, without recursion.

use std::collections::VecDeque;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

/// Edges that the search for shorter circles looks at before it takes the shortest so far.
///
/// A few hundredths of a second; only knots of many thousand tasks without a short circle get here.
const STEPS_MAX: usize = 20_000_000;

/// A shortest circle for each knot (strongly connected part of more than one node).
///
/// Each begins at its least node; they are ordered by that node. Edges from a node to itself are
/// ignored. After [`STEPS_MAX`] edges a circle may be longer than the shortest.
pub(crate) fn shortest_cycles(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let knots = knots(successors);
    if knots.is_empty() {
        return Vec::new();
    }
    let mut search = Search::new(successors);
    let mut cycles: Vec<Vec<usize>> =
        knots.iter().filter_map(|knot| search.shortest_in(knot)).collect();
    cycles.sort_unstable();
    cycles
}

/// The strongly connected parts of more than one node, each in ascending order.
fn knots(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let edges = successors.iter().map(Vec::len).sum();
    let mut graph: DiGraph<(), (), usize> = DiGraph::with_capacity(successors.len(), edges);
    for _ in successors {
        graph.add_node(());
    }
    for (from, targets) in successors.iter().enumerate() {
        for to in targets {
            graph.add_edge(NodeIndex::new(from), NodeIndex::new(*to), ());
        }
    }
    // Not Tarjan's: petgraph's is recursive, and a chain of 100 000 tasks ends it.
    let parts = kosaraju_scc(&graph);
    let mut knots: Vec<Vec<usize>> = parts
        .into_iter()
        .filter(|part| part.len() > 1)
        .map(|part| part.into_iter().map(NodeIndex::index).collect())
        .collect();
    for knot in &mut knots {
        knot.sort_unstable();
    }
    knots
}

struct Search<'a> {
    successors: &'a [Vec<usize>],
    predecessors: Vec<Vec<usize>>,
    /// The nodes of the present knot that a circle may still pass through.
    alive: Vec<bool>,
    live_in: Vec<usize>,
    live_out: Vec<usize>,
    /// The last start (plus one) whose search came to the node, so that nothing has to be cleared.
    seen_from: Vec<usize>,
    parent: Vec<usize>,
    steps: usize,
}

impl<'a> Search<'a> {
    fn new(successors: &'a [Vec<usize>]) -> Self {
        let nodes = successors.len();
        let mut predecessors = vec![Vec::new(); nodes];
        for (from, targets) in successors.iter().enumerate() {
            for to in targets.iter().filter(|to| **to != from) {
                predecessors[*to].push(from);
            }
        }
        Self {
            successors,
            predecessors,
            alive: vec![false; nodes],
            live_in: vec![0; nodes],
            live_out: vec![0; nodes],
            seen_from: vec![0; nodes],
            parent: vec![0; nodes],
            steps: 0,
        }
    }

    /// A shortest circle of the knot: that through its least node, unless one of the others has a
    /// shorter one. A node whose circles are known is taken out, and with it all that is then on
    /// none.
    fn shortest_in(&mut self, knot: &[usize]) -> Option<Vec<usize>> {
        self.enter(knot);
        let mut best: Option<Vec<usize>> = None;
        for start in knot {
            let length = best.as_ref().map_or(usize::MAX, Vec::len);
            // Two is the least: edges from a node to itself do not count.
            if length == 2 || (best.is_some() && self.steps > STEPS_MAX) {
                break;
            }
            if !self.alive[*start] {
                continue;
            }
            if let Some(shorter) = self.through(*start, length) {
                best = Some(shorter);
            }
            self.take_out(*start);
        }
        for node in knot {
            self.alive[*node] = false;
        }
        best
    }

    fn enter(&mut self, knot: &[usize]) {
        for node in knot {
            self.alive[*node] = true;
        }
        let live = |nodes: &[usize], node: usize, alive: &[bool]| {
            nodes.iter().filter(|other| **other != node && alive[**other]).count()
        };
        for node in knot {
            self.live_in[*node] = live(&self.predecessors[*node], *node, &self.alive);
            self.live_out[*node] = live(&self.successors[*node], *node, &self.alive);
        }
    }

    /// A shortest circle through `start` of fewer than `limit` nodes.
    fn through(&mut self, start: usize, limit: usize) -> Option<Vec<usize>> {
        let mark = start + 1;
        self.seen_from[start] = mark;
        let mut queue = VecDeque::from([(start, 1_usize)]);
        while let Some((node, length)) = queue.pop_front() {
            if length >= limit {
                return None;
            }
            for next in &self.successors[node] {
                self.steps += 1;
                if *next == start && node != start {
                    return Some(self.path(start, node));
                }
                if self.alive[*next] && self.seen_from[*next] != mark {
                    self.seen_from[*next] = mark;
                    self.parent[*next] = node;
                    queue.push_back((*next, length + 1));
                }
            }
        }
        None
    }

    /// The nodes from `start`, which is the least that is still alive, to `end`.
    fn path(&self, start: usize, end: usize) -> Vec<usize> {
        let mut path = vec![end];
        let mut node = end;
        while node != start {
            node = self.parent[node];
            path.push(node);
        }
        path.reverse();
        path
    }

    fn take_out(&mut self, node: usize) {
        let mut rest = vec![node];
        while let Some(node) = rest.pop() {
            if !std::mem::replace(&mut self.alive[node], false) {
                continue;
            }
            for next in self.successors[node].iter().filter(|next| **next != node) {
                if self.alive[*next] {
                    self.live_in[*next] -= 1;
                    if self.live_in[*next] == 0 {
                        rest.push(*next);
                    }
                }
            }
            for before in &self.predecessors[node] {
                if self.alive[*before] {
                    self.live_out[*before] -= 1;
                    if self.live_out[*before] == 0 {
                        rest.push(*before);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The length of a shortest circle through each node, by plain search.
    fn naive(successors: &[Vec<usize>], start: usize) -> Option<usize> {
        let mut reached = vec![false; successors.len()];
        let mut front = vec![start];
        for length in 1..=successors.len() {
            let next: Vec<usize> =
                front.iter().flat_map(|node| successors[*node].clone()).collect();
            if length > 1 && next.contains(&start) {
                return Some(length);
            }
            front = next.into_iter().filter(|node| *node != start).collect();
            front.sort_unstable();
            front.dedup();
            front.retain(|node| !std::mem::replace(&mut reached[*node], true));
        }
        None
    }

    fn graphs() -> impl Strategy<Value = Vec<Vec<usize>>> {
        (1_usize..24).prop_flat_map(|nodes| {
            prop::collection::vec(prop::collection::vec(0..nodes, 0..3), nodes)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        #[test]
        fn p3_each_cycle_is_real_and_a_shortest_of_its_knot(graph in graphs()) {
            let cycles = shortest_cycles(&graph);
            for cycle in &cycles {
                prop_assert_eq!(cycle.iter().min(), cycle.first());
                for (at, node) in cycle.iter().enumerate() {
                    let next = cycle[(at + 1) % cycle.len()];
                    prop_assert!(graph[*node].contains(&next));
                }
            }
            let knots = knots(&graph);
            prop_assert_eq!(cycles.len(), knots.len());
            for knot in knots {
                let shortest = knot.iter().filter_map(|node| naive(&graph, *node)).min();
                let found = cycles.iter().find(|cycle| knot.contains(&cycle[0])).map(Vec::len);
                prop_assert_eq!(found, shortest);
            }
        }
    }

    #[test]
    fn p16_a_search_that_takes_too_long_tells_the_shortest_circle_so_far() {
        // 0 is on a circle of three, 2 and 3 are one of two.
        let graph = [vec![1], vec![2], vec![0, 3], vec![2]];
        let mut search = Search::new(&graph);
        search.steps = STEPS_MAX;
        assert_eq!(search.shortest_in(&[0, 1, 2, 3]), Some(vec![0, 1, 2]));
        assert_eq!(shortest_cycles(&graph), [[2, 3]]);
    }

    #[test]
    fn a_ring_of_100_000_and_a_chain_of_100_000_are_searched_in_linear_time() {
        let nodes = 100_000;
        let mut edges: Vec<Vec<usize>> = (0..nodes).map(|node| vec![(node + 1) % nodes]).collect();
        assert_eq!(shortest_cycles(&edges)[0].len(), nodes);
        edges[nodes - 1].clear();
        assert!(shortest_cycles(&edges).is_empty());
    }
}
