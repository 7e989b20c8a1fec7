//! Scopes as locks on a tree of paths, and the tasks that wait for one.
//!
//! A task whose scope is held is not looked at again with each claim: it is parked at what stops
//! it, either a path that is held, or a path below which something is. When that becomes free, one
//! task of each class, the first in order, *stands* for all that wait there: it goes back to what is
//! ready. The next one follows when it is gone from there and the path is still free. What is parked
//! where is no part of the records: it follows from what was looked at, and changes nothing that is
//! granted.

use std::collections::{BTreeMap, BTreeSet};

use super::heap::Heap;
use super::slab::NONE;
use crate::scope::Scope;

/// The scopes of a run's tasks.
#[derive(Debug, Clone)]
pub(super) struct Locks {
    /// The tree of paths; the first node is the repository's root.
    nodes: Vec<Node>,
    children: BTreeMap<(u32, Box<str>), u32>,
    /// Different scopes, each as the nodes it covers.
    scopes: Vec<Box<[u32]>>,
    known: BTreeMap<Box<[u32]>, u32>,
    /// For each task its scope; empty as long as no task has one.
    scope_of: Vec<u32>,
    /// For each task the list that it waits in.
    waits_in: Vec<u32>,
    lists: BTreeMap<u32, List>,
    /// The lists that tasks stand for.
    stands_for: BTreeMap<u32, u32>,
    /// Tasks that hold their scope.
    holders: BTreeSet<u32>,
}

#[derive(Debug, Clone)]
struct Node {
    parent: u32,
    /// How often it is held.
    held: u32,
    /// How often it, or something below it, is held.
    below: u32,
    /// Whether a task's scope covers something below it.
    has_parts: bool,
}

/// What waits for one path: for the path itself (an even number), or for all that is below it.
#[derive(Debug, Clone, Default)]
struct List {
    classes: Vec<Waiting>,
}

#[derive(Debug, Clone)]
struct Waiting {
    class: u32,
    heap: Heap<u64>,
    /// The task that stands for those in the heap, with its key.
    stands: Option<(u64, u32)>,
}

const ROOT: u32 = 0;

impl Node {
    const fn new(parent: u32) -> Self {
        Self { parent, held: 0, below: 0, has_parts: false }
    }
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            nodes: vec![Node::new(NONE)],
            children: BTreeMap::new(),
            scopes: Vec::new(),
            known: BTreeMap::new(),
            scope_of: Vec::new(),
            waits_in: Vec::new(),
            lists: BTreeMap::new(),
            stands_for: BTreeMap::new(),
            holders: BTreeSet::new(),
        }
    }
}

impl Locks {
    /// Adds the next task, which is the one of this number.
    pub(super) fn add(&mut self, task: u32, scope: Option<&Scope>) {
        let scope = scope.map(|scope| self.number(scope));
        if !self.scope_of.is_empty() || scope.is_some() {
            self.scope_of.resize(task as usize, NONE);
            self.waits_in.resize(task as usize, NONE);
        }
        if scope.is_some() || !self.scope_of.is_empty() {
            self.scope_of.push(scope.unwrap_or(NONE));
            self.waits_in.push(NONE);
        }
    }

    /// Gives a task another scope, which it must not hold.
    pub(super) fn set_scope(&mut self, task: u32, scope: Option<&Scope>) {
        let scope = scope.map(|scope| self.number(scope));
        let len = task as usize + 1;
        if scope.is_some() && self.scope_of.len() < len {
            self.scope_of.resize(len, NONE);
            self.waits_in.resize(len, NONE);
        }
        if let Some(place) = self.scope_of.get_mut(task as usize) {
            *place = scope.unwrap_or(NONE);
        }
    }

    pub(super) fn truncate(&mut self, tasks: usize) {
        self.scope_of.truncate(tasks);
        self.waits_in.truncate(tasks);
    }

    fn number(&mut self, scope: &Scope) -> u32 {
        let nodes: Box<[u32]> = scope.prefixes().map(|prefix| self.node(prefix)).collect();
        if let Some(known) = self.known.get(&nodes) {
            return *known;
        }
        let number = u32::try_from(self.scopes.len()).unwrap_or(NONE);
        self.scopes.push(nodes.clone());
        self.known.insert(nodes, number);
        number
    }

    fn node(&mut self, path: &[String]) -> u32 {
        let mut node = ROOT;
        for part in path {
            let next = u32::try_from(self.nodes.len()).unwrap_or(NONE);
            let found = *self.children.entry((node, part.as_str().into())).or_insert(next);
            if found == next {
                self.nodes.push(Node::new(node));
            }
            node = found;
        }
        node
    }

    fn nodes_of(&self, task: u32) -> &[u32] {
        let scope = self.scope_of.get(task as usize).copied().unwrap_or(NONE);
        self.scopes.get(scope as usize).map(|nodes| &**nodes).unwrap_or_default()
    }

    /// Whether a task's scope has parts that others may hold one by one.
    pub(super) fn has_parts(&self, task: u32) -> bool {
        let nodes = self.nodes_of(task);
        nodes.len() > 1 || nodes.iter().any(|node| self.nodes[*node as usize].has_parts)
    }

    /// Whether no task has a scope.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.scope_of.is_empty()
    }

    #[inline]
    pub(super) fn has_scope(&self, task: u32) -> bool {
        self.scope_of.get(task as usize).is_some_and(|scope| *scope != NONE)
    }

    /// Tasks that hold their scope, ascending.
    pub(super) fn holders(&self) -> impl Iterator<Item = u32> + '_ {
        self.holders.iter().copied()
    }

    fn upwards(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let step = |node: &u32| Some(self.nodes[*node as usize].parent).filter(|up| *up != NONE);
        std::iter::successors(Some(node), step)
    }

    /// Gives a task its scope.
    pub(super) fn hold(&mut self, task: u32) {
        self.holders.insert(task);
        self.count(task, |count| *count += 1);
    }

    /// Takes a task's scope from it, and adds to `freed` the lists that need wait no longer.
    pub(super) fn release(&mut self, task: u32, freed: &mut Vec<u32>) {
        self.holders.remove(&task);
        self.count(task, |count| *count = count.saturating_sub(1));
        if self.lists.is_empty() {
            return;
        }
        for node in self.nodes_of(task) {
            let lists = self.upwards(*node).flat_map(|node| [node * 2, node * 2 + 1]);
            freed.extend(lists.filter(|list| self.lists.contains_key(list) && self.is_free(*list)));
        }
    }

    fn count(&mut self, task: u32, change: impl Fn(&mut u32)) {
        let scope = self.scope_of.get(task as usize).copied().unwrap_or(NONE);
        let Self { scopes, nodes, .. } = self;
        let Some(covered) = scopes.get(scope as usize) else { return };
        for node in covered {
            change(&mut nodes[*node as usize].held);
            let mut at = *node;
            while at != NONE {
                change(&mut nodes[at as usize].below);
                at = nodes[at as usize].parent;
            }
        }
    }

    fn is_free(&self, list: u32) -> bool {
        let node = &self.nodes[(list / 2) as usize];
        if list.is_multiple_of(2) { node.held == 0 } else { node.below == 0 }
    }

    /// The list of what keeps a task from its scope, which it does not hold.
    pub(super) fn obstacle(&self, task: u32) -> Option<u32> {
        self.nodes_of(task).iter().find_map(|node| {
            let above = self.upwards(*node).find(|up| self.nodes[*up as usize].held > 0);
            let below = (self.nodes[*node as usize].below > 0).then_some(*node * 2 + 1);
            above.map(|up| up * 2).or(below)
        })
    }

    /// Whether two tasks have scopes that overlap.
    pub(super) fn overlap(&self, one: u32, other: u32) -> bool {
        let is_above = |up: u32, node: u32| self.upwards(node).any(|at| at == up);
        self.nodes_of(one).iter().any(|ours| {
            let mut theirs = self.nodes_of(other).iter();
            theirs.any(|theirs| is_above(*ours, *theirs) || is_above(*theirs, *ours))
        })
    }

    /// The list that a task waits in.
    #[inline]
    pub(super) fn waits_in(&self, task: u32) -> Option<u32> {
        self.waits_in.get(task as usize).copied().filter(|list| *list != NONE)
    }

    /// The tasks of a class that are parked, by what they wait for.
    pub(super) fn parked(&self, class: u32) -> impl Iterator<Item = &Heap<u64>> {
        let waiting = self.lists.values().flat_map(|list| &list.classes);
        waiting.filter(move |waiting| waiting.class == class).map(|waiting| &waiting.heap)
    }

    /// Parks a task at a list.
    pub(super) fn park(
        &mut self,
        (task, class, key): (u32, u32, u64),
        list: u32,
        placed: &mut impl FnMut(u32, u32),
    ) {
        self.waits_in[task as usize] = list;
        let entry = self.lists.entry(list).or_default();
        if entry.of_class(class).is_none() {
            entry.classes.push(Waiting { class, heap: Heap::default(), stands: None });
        }
        if let Some(waiting) = entry.of_class(class) {
            waiting.heap.insert(key, task, placed);
        }
    }

    /// Takes a parked task, which is at this place, out of its list.
    pub(super) fn unpark(
        &mut self,
        task: u32,
        class: u32,
        place: u32,
        placed: &mut impl FnMut(u32, u32),
    ) {
        let list = std::mem::replace(&mut self.waits_in[task as usize], NONE);
        let entry = self.lists.get_mut(&list);
        if let Some(waiting) = entry.and_then(|entry| entry.of_class(class)) {
            waiting.heap.remove(place, placed);
        }
        self.drop_if_empty(list);
    }

    /// Lets the first of a class that waits in a free list stand for the others, unless one that goes
    /// before it does already; it is parked no longer.
    pub(super) fn promote(
        &mut self,
        list: u32,
        class: u32,
        placed: &mut impl FnMut(u32, u32),
    ) -> Option<(u64, u32)> {
        if !self.is_free(list) {
            return None;
        }
        let waiting = self.lists.get_mut(&list)?.of_class(class)?;
        let (key, task) = waiting.heap.first()?;
        // One that came since, and goes first, takes the place of the one that stands, which goes on
        // as any task that is ready.
        if let Some(stands) = waiting.stands {
            if stands < (key, task) {
                return None;
            }
            self.stands_for.remove(&stands.1);
        }
        waiting.heap.pop(placed);
        waiting.stands = Some((key, task));
        self.stands_for.insert(task, list);
        self.waits_in[task as usize] = NONE;
        Some((key, task))
    }

    /// The classes of which something waits in a list.
    pub(super) fn classes(&self, list: u32) -> Vec<u32> {
        let classes = self.lists.get(&list).map(|list| list.classes.as_slice()).unwrap_or_default();
        classes.iter().map(|waiting| waiting.class).collect()
    }

    /// Ends that a task, which is gone from what is ready, stands for a list; says which.
    pub(super) fn stand_down(&mut self, task: u32, class: u32) -> Option<u32> {
        if self.stands_for.is_empty() {
            return None;
        }
        let list = self.stands_for.remove(&task)?;
        let entry = self.lists.get_mut(&list);
        if let Some(waiting) = entry.and_then(|entry| entry.of_class(class)) {
            waiting.stands = None;
        }
        self.drop_if_empty(list);
        Some(list)
    }

    fn drop_if_empty(&mut self, list: u32) {
        if let Some(entry) = self.lists.get_mut(&list) {
            entry.classes.retain(|waiting| waiting.stands.is_some() || !waiting.heap.is_empty());
            if entry.classes.is_empty() {
                self.lists.remove(&list);
            }
        }
    }

    /// Forgets who holds and who waits, and looks at what the tasks' scopes cover now.
    pub(super) fn clear(&mut self) {
        for node in &mut self.nodes {
            (node.held, node.below, node.has_parts) = (0, 0, false);
        }
        let Self { nodes, scopes, scope_of, .. } = self;
        for covered in scope_of.iter().filter_map(|scope| scopes.get(*scope as usize)) {
            for node in covered {
                let mut up = nodes[*node as usize].parent;
                while up != NONE && !nodes[up as usize].has_parts {
                    nodes[up as usize].has_parts = true;
                    up = nodes[up as usize].parent;
                }
            }
        }
        self.waits_in.fill(NONE);
        self.lists.clear();
        self.stands_for.clear();
        self.holders.clear();
    }

    /// What does not add up; `holders` are the tasks that hold their scope.
    pub(super) fn audit(&self, holders: impl Iterator<Item = u32>, faults: &mut Vec<String>) {
        let mut anew = Self {
            nodes: self.nodes.iter().map(|node| Node { held: 0, below: 0, ..*node }).collect(),
            scopes: self.scopes.clone(),
            scope_of: self.scope_of.clone(),
            ..Self::default()
        };
        holders.for_each(|task| anew.hold(task));
        if anew.holders != self.holders {
            faults.push(format!("{:?} hold scopes, counted {:?}", anew.holders, self.holders));
        }
        for (at, (node, anew)) in self.nodes.iter().zip(&anew.nodes).enumerate() {
            if (node.held, node.below) != (anew.held, anew.below) {
                faults.push(format!("path {at} is held {anew:?}, counted {node:?}"));
            }
        }
        let stand = self.lists.iter().flat_map(|(number, list)| {
            list.classes.iter().filter_map(|waiting| Some((waiting.stands?.1, *number)))
        });
        if stand.collect::<BTreeMap<u32, u32>>() != self.stands_for {
            faults.push(format!("{:?} stand for lists that do not know", self.stands_for));
        }
        for (number, list) in &self.lists {
            for waiting in &list.classes {
                let parked = waiting.heap.entries().map(|(_, (_, task))| task);
                for task in parked.filter(|task| self.waits_in(*task) != Some(*number)) {
                    faults.push(format!("task {task} is parked at list {number} and not there"));
                }
                let first = waiting.heap.first();
                let goes_before = |stands: (u64, u32)| first.is_none_or(|first| stands < first);
                if self.is_free(*number) && !waiting.stands.is_some_and(goes_before) {
                    faults.push(format!("list {number} is free, and its first does not stand"));
                }
            }
        }
    }
}

impl List {
    /// The part that is of one class.
    fn of_class(&mut self, class: u32) -> Option<&mut Waiting> {
        self.classes.iter_mut().find(|waiting| waiting.class == class)
    }
}
