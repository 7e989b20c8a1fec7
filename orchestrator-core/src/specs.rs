//! What the plans say of the tasks, by number: specifications, pipelines, dependencies, ids.
//!
//! The tasks of a plan get their numbers when it is added (`plans`), in an order in which each comes
//! after those it depends on: what is granted together lies together, and whoever goes through the
//! numbers goes through the graph in order. What a person changes of a task later is in `edits`.

mod edits;
mod order;
mod plans;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::id::{BlobHash, PipelineName, PoolName, TaskId};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::pipeline::{Pipeline, STAGES_MAX};
use crate::plan::{Plan, Rare};
use crate::task::TaskSpec;

/// The specifications of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Specs {
    plans: Vec<Part>,
    /// For each task its place in its plan.
    places: Vec<u32>,
    profiles: Vec<Profile>,
    known_profiles: BTreeMap<ProfileKey, u32>,
    /// Numbers by id.
    ids: HashTable<u32>,
    /// Ids come from outside: with a key of their own, nobody can choose them so that they collide.
    hasher: RandomState,
    /// For each task where its dependents begin among the edges; one more at the end.
    begins: Vec<u32>,
    edges: Vec<u32>,
    /// Dependents that came with later plans.
    later: BTreeMap<u32, Vec<u32>>,
    /// Tasks whose dependencies were edited, with those that they have since, in order: of the edges
    /// to them no others count.
    rewired: BTreeMap<u32, Vec<u32>>,
    /// Tasks that were edited.
    amended: BTreeMap<u32, Arc<TaskSpec>>,
    /// What a task may have.
    rare: Rare,
}

/// The tasks of one plan.
#[derive(Debug, Clone)]
struct Part {
    plan: Arc<Plan>,
    /// The number of its first task.
    first: u32,
    edges: u32,
    /// The address that it had, where this is what is left of it.
    pruned: Option<BlobHash>,
}

/// What is left of a plan that was pruned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pruned {
    /// The address of the plan as it was added.
    pub(crate) pruned: BlobHash,
    /// Its tasks in the order of their numbers, without what only those need that run.
    pub(crate) plan: Arc<Plan>,
}

/// What many tasks have in common.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) pipeline: Arc<Pipeline>,
    /// The class of tasks that were never begun.
    pub(crate) fresh: u32,
    /// For each stage the class of tasks that wait for it.
    pub(crate) classes: Box<[u32]>,
    /// For each stage how long after its grant its lease ends at the latest, in milliseconds.
    spans: Box<[u64]>,
    /// A bit for each stage that makes a change.
    runs: u16,
    /// A bit for each stage that rejects so often and no more.
    bounded: u16,
    /// For each stage the one that its rejections go to.
    back: [u8; STAGES_MAX],
}

impl Profile {
    /// Whether the stage makes a change.
    #[inline]
    pub(crate) const fn makes(&self, stage: u8) -> bool {
        (self.runs as u32).wrapping_shr(stage as u32) & 1 == 1
    }

    /// Whether the stage rejects a task so often and no more.
    #[inline]
    pub(crate) const fn has_rounds(&self, stage: u8) -> bool {
        (self.bounded as u32).wrapping_shr(stage as u32) & 1 == 1
    }

    /// The stage that a rejection by this one goes to.
    pub(crate) fn back(&self, stage: u8) -> u8 {
        self.back.get(usize::from(stage)).copied().unwrap_or(0)
    }

    /// The class of a task at this stage; all that were never begun have one of their own.
    #[inline]
    pub(crate) fn class(&self, is_begun: bool, stage: u8) -> Option<u32> {
        if !is_begun {
            return Some(self.fresh);
        }
        self.classes.get(usize::from(stage)).copied()
    }

    /// How long after its grant a lease of this stage ends at the latest, in milliseconds.
    pub(crate) fn span(&self, stage: u8) -> u64 {
        self.spans.get(usize::from(stage)).copied().unwrap_or(0)
    }

    /// Whether a stage after this one makes another change.
    #[inline]
    pub(crate) const fn makes_more(&self, stage: u8) -> bool {
        (self.runs as u32).wrapping_shr(stage as u32) > 1
    }
}

/// What makes two tasks of a plan have one profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ProfileKey {
    plan: usize,
    pipeline: Option<PipelineName>,
    timeout: Option<Duration>,
    model: Option<String>,
    needs: BTreeMap<PoolName, NonZeroU32>,
}

impl ProfileKey {
    fn of(plan: usize, spec: &TaskSpec) -> Self {
        Self {
            plan,
            pipeline: spec.pipeline.clone(),
            timeout: spec.timeout,
            model: spec.model.clone(),
            needs: spec.needs.clone(),
        }
    }
}

impl Specs {
    pub(crate) const fn len(&self) -> usize {
        self.places.len()
    }

    /// A task's specification.
    pub(crate) fn spec(&self, task: u32) -> &TaskSpec {
        if !self.amended.is_empty()
            && let Some(spec) = self.amended.get(&task)
        {
            return spec;
        }
        &self.part(task).plan.tasks[self.places[task as usize] as usize]
    }

    fn part(&self, task: u32) -> &Part {
        &self.plans[self.plans.partition_point(|part| part.first <= task) - 1]
    }

    /// Whether this edge counts.
    #[inline]
    pub(crate) fn is_edge(&self, from: u32, to: u32) -> bool {
        self.rewired.is_empty()
            || is_on(Mutant::RemovedDependencyStillHeld)
            || self.rewired.get(&to).is_none_or(|now| now.binary_search(&from).is_ok())
    }

    /// The tasks, each after all that it depends on.
    pub(crate) fn in_order(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let all = 0..number(self.len());
        let sorted = if self.rewired.is_empty() { Vec::new() } else { self.sorted(all.clone()) };
        let as_numbered = if self.rewired.is_empty() { all } else { 0..0 };
        as_numbered.chain(sorted)
    }

    /// The tasks, where those of a lower number may depend on others; what goes in circles (which no
    /// edit that was taken does) comes last.
    fn sorted(&self, all: Range<u32>) -> Vec<u32> {
        let mut unmet: Vec<usize> =
            all.clone().map(|task| self.dependencies(task).count()).collect();
        let mut order: Vec<u32> = all.clone().filter(|task| unmet[*task as usize] == 0).collect();
        let mut at = 0;
        while let Some(from) = order.get(at).copied() {
            at += 1;
            for to in self.dependents(from) {
                // A damaged log may have it wait for fewer than there are edges.
                let Some(left) = unmet[to as usize].checked_sub(1) else { continue };
                unmet[to as usize] = left;
                if left == 0 {
                    order.push(to);
                }
            }
        }
        order.extend(all.filter(|task| unmet[*task as usize] > 0));
        order
    }

    pub(crate) fn id(&self, task: u32) -> &TaskId {
        &self.spec(task).id
    }

    /// The number of the task of this id.
    pub(crate) fn number(&self, id: &TaskId) -> Option<u32> {
        if self.ids.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(id.as_str());
        self.ids.find(hash, |task| self.id(*task) == id).copied()
    }

    /// All tasks in the order in which the plans were written.
    pub(crate) fn as_written(&self) -> Vec<u32> {
        let mut numbers = vec![0; self.places.len()];
        for (at, part) in self.plans.iter().enumerate() {
            let end = self.plans.get(at + 1).map_or(self.len(), |next| next.first as usize);
            for (number, place) in (part.first..).zip(&self.places[part.first as usize..end]) {
                numbers[(part.first + place) as usize] = number;
            }
        }
        numbers
    }

    #[inline]
    pub(crate) fn profile(&self, number: u32) -> &Profile {
        &self.profiles[number as usize]
    }

    /// The number of the profile that a task has by its specification.
    pub(crate) fn profile_by_spec(&self, task: u32) -> Option<u32> {
        let part = self.plans.partition_point(|part| part.first <= task) - 1;
        self.known_profiles.get(&ProfileKey::of(part, self.spec(task))).copied()
    }

    /// The most that all stages of a task together may spend.
    #[inline]
    pub(crate) fn budget(&self, task: u32) -> Option<Usd> {
        if self.rare.budget { self.spec(task).budget } else { None }
    }

    /// How long one attempt of a task is expected to take.
    pub(crate) fn estimate(&self, task: u32) -> Option<Duration> {
        if self.rare.estimate { self.spec(task).estimate } else { None }
    }

    /// A task's priority.
    pub(crate) fn priority(&self, task: u32) -> i32 {
        if self.rare.priority { self.spec(task).priority } else { 0 }
    }

    /// Whether a task may have a scope.
    pub(crate) const fn has_scopes(&self) -> bool {
        self.rare.scope
    }

    /// The edges from a task to those that came with its own plan, by number.
    #[inline]
    pub(crate) fn edges(&self, task: u32) -> Range<usize> {
        let at = |place: usize| self.begins.get(place).map_or(self.edges.len(), |at| *at as usize);
        at(task as usize)..at(task as usize + 1)
    }

    /// The task that waits at the end of an edge of this number, whether it counts or not.
    #[inline]
    pub(crate) fn end(&self, edge: usize) -> u32 {
        self.edges[edge]
    }

    /// The one of this place among the dependents of a task that came later, whether it counts or
    /// not.
    #[inline]
    pub(crate) fn later_dependent(&self, task: u32, place: usize) -> Option<u32> {
        if self.later.is_empty() {
            return None;
        }
        self.later.get(&task)?.get(place).copied()
    }

    /// The tasks that wait for this one.
    pub(crate) fn dependents(&self, task: u32) -> impl Iterator<Item = u32> + '_ {
        self.edges_from(task).filter(move |to| self.is_edge(task, *to))
    }

    /// The edges from a task, whether they count or not.
    fn edges_from(&self, task: u32) -> impl Iterator<Item = u32> + '_ {
        let later = self.later.get(&task).map(Vec::as_slice).unwrap_or_default();
        self.edges[self.edges(task)].iter().chain(later).copied()
    }

    /// What a task depends on, in the order of its specification.
    pub(crate) fn dependencies(&self, task: u32) -> impl Iterator<Item = u32> + '_ {
        self.spec(task).depends_on.iter().filter_map(|id| self.number(id))
    }

    /// Whether the task's plan was pruned.
    pub(crate) fn is_pruned(&self, task: u32) -> bool {
        self.part(task).pruned.is_some()
    }

    /// The addresses that the pruned plans had.
    pub(crate) fn pruned(&self) -> impl Iterator<Item = &BlobHash> {
        self.plans.iter().filter_map(|part| part.pruned.as_ref())
    }
}

/// A count as a number; a run never has more tasks or edges than fit, since a plan's text is bounded.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
