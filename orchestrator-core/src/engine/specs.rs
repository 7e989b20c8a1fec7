//! What the plans say of the tasks, by number: specifications, pipelines, dependencies, ids.
//!
//! The tasks of a plan get their numbers here, in an order in which each comes after those it
//! depends on: what is granted together lies together, and whoever goes through the numbers goes
//! through the graph in order.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use serde_json::Map;

use super::body::Pruned;
use super::order::order;
use super::table::Hot;
use crate::id::{BlobHash, PipelineName, PoolName, TaskId};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::pipeline::{Pipeline, STAGES_MAX, StageKind, StageSpec};
use crate::plan::{Kinds, Links, Plan, PlanFault, Rare};
use crate::task::TaskSpec;
use crate::time::millis;

/// How long after its timeout a stage is ended whatever its holder does.
const HARD_STOP_GRACE: Duration = Duration::from_secs(60);

/// The specifications of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Specs {
    plans: Vec<Part>,
    /// For each task its place in its plan.
    places: Vec<u32>,
    /// For each task its profile.
    profiles_of: Vec<u32>,
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

/// What many tasks have in common.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) pipeline: Arc<Pipeline>,
    /// The class of tasks that were never begun.
    fresh: u32,
    /// For each stage the class of tasks that wait for it.
    pub(super) classes: Box<[u32]>,
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
    pub(super) const fn makes(&self, stage: u8) -> bool {
        (self.runs as u32).wrapping_shr(stage as u32) & 1 == 1
    }

    /// Whether the stage rejects a task so often and no more.
    #[inline]
    pub(super) const fn has_rounds(&self, stage: u8) -> bool {
        (self.bounded as u32).wrapping_shr(stage as u32) & 1 == 1
    }

    /// The stage that a rejection by this one goes to.
    pub(super) fn back(&self, stage: u8) -> u8 {
        self.back.get(usize::from(stage)).copied().unwrap_or(0)
    }

    /// The class of a task at the stage that it is at.
    #[inline]
    pub(super) fn class(&self, hot: &Hot) -> Option<u32> {
        if hot.attempt() == 0 {
            return Some(self.fresh);
        }
        self.classes.get(usize::from(hot.stage())).copied()
    }

    /// How long after its grant a lease of this stage ends at the latest, in milliseconds.
    pub(super) fn span(&self, stage: u8) -> u64 {
        self.spans.get(usize::from(stage)).copied().unwrap_or(0)
    }

    /// Whether a stage after this one makes another change.
    #[inline]
    pub(super) const fn makes_more(&self, stage: u8) -> bool {
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

/// How long each task of a plan is expected to take, in milliseconds: a task without an estimate
/// like the mean of those that have one.
fn weights(plan: &Plan) -> Vec<u64> {
    let estimates: Vec<Option<u64>> =
        plan.tasks.iter().map(|task| task.estimate.map(millis)).collect();
    let known = || estimates.iter().flatten();
    let sum = known().fold(0_u64, |sum, one| sum.saturating_add(*one));
    let mean = sum.checked_div(known().count() as u64).unwrap_or(1);
    estimates.iter().map(|estimate| estimate.unwrap_or(mean)).collect()
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

    /// What a task was made by an edit.
    pub(super) fn amended(&self, task: u32) -> Option<Arc<TaskSpec>> {
        self.amended.get(&task).cloned()
    }

    /// What is wrong with this specification in the place of a task's own, which has the same id.
    pub(super) fn faults_of(&self, task: u32, spec: &TaskSpec) -> Vec<PlanFault> {
        let plan = &self.part(task).plan;
        let alone = Plan {
            tasks: vec![spec.clone()],
            pipelines: plan.pipelines.clone(),
            pools: plan.pools.clone(),
            pool_bounds: BTreeMap::new(),
            budget: None,
        };
        alone.check(&|id| *id != spec.id && self.number(id).is_some())
    }

    /// Gives a task this specification in the place of its plan's, or that one back.
    pub(crate) fn amend(
        &mut self,
        task: u32,
        spec: Option<Arc<TaskSpec>>,
        class: impl FnMut(&Pipeline, Option<u8>, &BTreeMap<PoolName, NonZeroU32>) -> u32,
    ) {
        spec.iter().for_each(|spec| self.rare.note(spec));
        match spec {
            Some(spec) => self.amended.insert(task, spec),
            None => self.amended.remove(&task),
        };
        self.rewire(task);
        let number = self.plans.partition_point(|part| part.first <= task) - 1;
        let (plan, spec) = (Arc::clone(&self.plans[number].plan), self.spec(task).clone());
        self.profiles_of[task as usize] = self.profile_for(number, &plan, &spec, class);
    }

    /// Adds what edges there are to a task after an edit.
    fn rewire(&mut self, task: u32) {
        let number = |id| self.number(id);
        let mut now: Vec<u32> = self.spec(task).depends_on.iter().filter_map(number).collect();
        let is_new = |from: &&u32| !self.edges_from(**from).any(|to| to == task);
        let new: Vec<u32> = now.iter().filter(is_new).copied().collect();
        let planned = &self.part(task).plan.tasks[self.places[task as usize] as usize];
        let differs = planned.depends_on != self.spec(task).depends_on;
        if differs || self.rewired.contains_key(&task) {
            now.sort_unstable();
            self.rewired.insert(task, now);
        }
        for from in new {
            self.later.entry(from).or_default().push(task);
        }
    }

    /// Whether this edge counts.
    #[inline]
    pub(super) fn is_edge(&self, from: u32, to: u32) -> bool {
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
                unmet[to as usize] -= 1;
                if unmet[to as usize] == 0 {
                    order.push(to);
                }
            }
        }
        order.extend(all.filter(|task| unmet[*task as usize] > 0));
        order
    }

    pub(super) fn id(&self, task: u32) -> &TaskId {
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
    pub(super) fn as_written(&self) -> Vec<u32> {
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
    pub(super) fn profile(&self, task: u32) -> &Profile {
        &self.profiles[self.profiles_of[task as usize] as usize]
    }

    /// The class of a task at the stage that it is at.
    #[inline]
    pub(super) fn class(&self, task: u32, hot: &Hot) -> Option<u32> {
        self.profile(task).class(hot)
    }

    /// The class that a task is first in.
    #[inline]
    pub(super) fn fresh_class(&self, task: u32) -> u32 {
        self.profile(task).fresh
    }

    /// The most that all stages of a task together may spend.
    #[inline]
    pub(super) fn budget(&self, task: u32) -> Option<Usd> {
        if self.rare.budget { self.spec(task).budget } else { None }
    }

    /// How long one attempt of a task is expected to take.
    pub(crate) fn estimate(&self, task: u32) -> Option<Duration> {
        if self.rare.estimate { self.spec(task).estimate } else { None }
    }

    /// A task's priority.
    pub(super) fn priority(&self, task: u32) -> i32 {
        if self.rare.priority { self.spec(task).priority } else { 0 }
    }

    /// Whether a task may have a scope.
    pub(super) const fn has_scopes(&self) -> bool {
        self.rare.scope
    }

    /// The edges from a task to those that came with its own plan, by number.
    #[inline]
    pub(super) fn edges(&self, task: u32) -> Range<usize> {
        let at = |place: usize| self.begins.get(place).map_or(self.edges.len(), |at| *at as usize);
        at(task as usize)..at(task as usize + 1)
    }

    /// The task that waits at the end of an edge of this number, whether it counts or not.
    #[inline]
    pub(super) fn end(&self, edge: usize) -> u32 {
        self.edges[edge]
    }

    /// The one of this place among the dependents of a task that came later, whether it counts or
    /// not.
    #[inline]
    pub(super) fn later_dependent(&self, task: u32, place: usize) -> Option<u32> {
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
    pub(super) fn dependencies(&self, task: u32) -> impl Iterator<Item = u32> + '_ {
        self.spec(task).depends_on.iter().filter_map(|id| self.number(id))
    }

    /// The dependencies of a plan that could be added, or what is wrong with it.
    ///
    /// Also `also` gets all of its tasks, some at a time, while they are at hand.
    pub(super) fn check(
        &self,
        plan: &Plan,
        also: &mut dyn FnMut(&[TaskSpec]),
    ) -> Result<Links, Vec<PlanFault>> {
        plan.links(&self.hasher, &|id| self.number(id), also)
    }

    /// Adds the tasks of a checked plan, whose dependencies are looked up anew unless they are given;
    /// `class` gives the class of a stage of a pipeline for tasks with these needs, and of the first one
    /// (`None`) for tasks that were never begun.
    ///
    /// Of a plan that was `pruned` this is what is left, with its tasks in the order of their numbers.
    pub(crate) fn add(
        &mut self,
        plan: &Arc<Plan>,
        pruned: Option<&BlobHash>,
        links: Option<Box<Links>>,
        class: impl FnMut(&Pipeline, Option<u8>, &BTreeMap<PoolName, NonZeroU32>) -> u32,
    ) {
        let (first, edges) = (number(self.len()), number(self.edges.len()));
        let known = |id: &TaskId| self.number(id);
        let look_up = || Links::new(plan, &self.hasher, &known, &mut |_| {});
        let links = links.map_or_else(look_up, |links| *links);
        self.plans.push(Part { plan: Arc::clone(plan), first, edges, pruned: pruned.cloned() });
        let profiles = self.profiles(plan, links.kinds(), class);
        let order = match pruned {
            Some(_) => (0..number(plan.tasks.len())).collect(),
            None => match links.kinds().rare.estimate.then(|| weights(plan)) {
                Some(weights) => order(|place| weights[place as usize], &links),
                None => order(|_| 1, &links),
            },
        };
        let mut numbers = vec![0_u32; order.len()];
        for (at, place) in (first..).zip(&order) {
            numbers[*place as usize] = at;
        }
        self.profiles_of.reserve_exact(order.len());
        let profile = |place: &u32| profiles[links.kinds().of[*place as usize] as usize];
        self.profiles_of.extend(order.iter().map(profile));
        self.link(&links, &order, &numbers);
        self.places.reserve_exact(order.len());
        self.places.extend_from_slice(&order);
        self.name(links.into_places(), &numbers);
    }

    /// Adds the edges to the tasks of the last plan, whose places are these in the `order` of their
    /// numbers.
    fn link(&mut self, links: &Links, order: &[u32], numbers: &[u32]) {
        self.begins.reserve_exact(order.len());
        self.edges.reserve_exact(links.len());
        for place in order {
            let begin = self.edges.len();
            self.begins.push(number(begin));
            let following = links.following().of(*place).iter();
            self.edges.extend(following.map(|next| numbers[*next as usize]));
            self.edges[begin..].sort_unstable();
        }
        let outside = links.outside().iter();
        let mut later: Vec<(u32, u32)> =
            outside.map(|(from, to)| (*from, numbers[*to as usize])).collect();
        later.sort_unstable();
        for (from, to) in later {
            self.later.entry(from).or_default().push(to);
        }
    }

    /// Names the tasks of the last plan: `places` are theirs by the hash of their ids.
    fn name(&mut self, mut places: HashTable<u32>, numbers: &[u32]) {
        for task in &mut places {
            *task = numbers[*task as usize];
        }
        let mut ids = std::mem::take(&mut self.ids);
        if ids.is_empty() {
            self.ids = places;
            return;
        }
        let hash = |task: &u32| self.hasher.hash_one(self.id(*task).as_str());
        ids.reserve(places.len(), hash);
        for task in places {
            ids.insert_unique(hash(&task), task, hash);
        }
        self.ids = ids;
    }

    /// The profile of each kind of the last plan's tasks; notes what they have.
    fn profiles(
        &mut self,
        plan: &Plan,
        kinds: &Kinds,
        mut class: impl FnMut(&Pipeline, Option<u8>, &BTreeMap<PoolName, NonZeroU32>) -> u32,
    ) -> Vec<u32> {
        self.rare.add(kinds.rare);
        let part = self.plans.len() - 1;
        let specs = kinds.firsts.iter().map(|first| &plan.tasks[*first as usize]);
        specs.map(|spec| self.profile_for(part, plan, spec, &mut class)).collect()
    }

    /// The profile of a task of a plan, made if there is none.
    fn profile_for(
        &mut self,
        part: usize,
        plan: &Plan,
        spec: &TaskSpec,
        mut class: impl FnMut(&Pipeline, Option<u8>, &BTreeMap<PoolName, NonZeroU32>) -> u32,
    ) -> u32 {
        let key = ProfileKey::of(part, spec);
        if let Some(known) = self.known_profiles.get(&key) {
            return *known;
        }
        let pipeline = plan.pipeline_of(spec).unwrap_or_default();
        let stages = (0..).take(pipeline.stages().len());
        let fresh = class(&pipeline, None, &spec.needs);
        let classes = stages.map(|stage| class(&pipeline, Some(stage), &spec.needs)).collect();
        let span = |stage: &StageSpec| {
            let early = is_on(Mutant::HardStopBeforeTimeout);
            let timeout = if early { Duration::ZERO } else { stage.timeout };
            millis(timeout).saturating_add(millis(HARD_STOP_GRACE))
        };
        let spans = pipeline.stages().iter().map(span).collect();
        let bits = |is_it: fn(&StageSpec) -> bool| {
            let stages = pipeline.stages().iter().map(is_it).enumerate();
            stages.fold(0, |bits, (at, is)| bits | u16::from(is) << at)
        };
        let runs = bits(|stage| stage.kind == StageKind::Run);
        let bounded = bits(|stage| stage.rounds.is_some());
        let mut back = [0; STAGES_MAX];
        for (stage, to) in (0..).zip(&mut back) {
            *to = pipeline.after_rejection(stage);
        }
        let pipeline = Arc::new(pipeline);
        self.profiles.push(Profile { pipeline, fresh, classes, spans, runs, bounded, back });
        let profile = number(self.profiles.len() - 1);
        self.known_profiles.insert(key, profile);
        profile
    }

    /// Whether the task's plan was pruned.
    pub(super) fn is_pruned(&self, task: u32) -> bool {
        self.part(task).pruned.is_some()
    }

    /// The addresses that the pruned plans had.
    pub(super) fn pruned(&self) -> impl Iterator<Item = &BlobHash> {
        self.plans.iter().filter_map(|part| part.pruned.as_ref())
    }

    /// What stays of the plan whose first task this is when it is pruned: what others are counted and
    /// ranked by, and what late costs are booked by.
    pub(super) fn remains(&self, first: u32) -> Plan {
        let plan = &self.part(first).plan;
        let tasks = (first..first + number(plan.tasks.len())).map(|task| TaskSpec {
            depends_on: Vec::new(),
            prompt_template: String::new(),
            inputs: Map::new(),
            verify: None,
            scope: None,
            metadata: Map::new(),
            ..self.spec(task).clone()
        });
        Plan { tasks: tasks.collect(), pipelines: plan.pipelines.clone(), ..Plan::default() }
    }

    /// Puts what is left of it in the place of the plan whose first task this is; gives its tasks.
    pub(super) fn prune(&mut self, first: u32, left: &Pruned) -> Range<u32> {
        let tasks = first..first + number(left.plan.tasks.len());
        let at = self.plans.partition_point(|part| part.first <= first) - 1;
        let gone = self.edges(first).start..self.edges(tasks.end - 1).end;
        let count = number(gone.len());
        self.begins[first as usize..tasks.end as usize].fill(number(gone.start));
        self.begins[tasks.end as usize..].iter_mut().for_each(|begin| *begin -= count);
        self.plans[at + 1..].iter_mut().for_each(|part| part.edges -= count);
        self.edges.drain(gone);
        self.later.retain(|_, dependents| {
            dependents.retain(|task| !tasks.contains(task));
            !dependents.is_empty()
        });
        self.amended.retain(|task, _| !tasks.contains(task));
        self.rewired.retain(|task, _| !tasks.contains(task));
        for (place, task) in (0..).zip(tasks.clone()) {
            self.places[task as usize] = place;
        }
        self.plans[at].plan = Arc::clone(&left.plan);
        self.plans[at].pruned = Some(left.pruned.clone());
        tasks
    }

    /// Takes out the last plan.
    pub(super) fn remove_last(&mut self) {
        let Some(part) = self.plans.last() else { return };
        let (first, edges) = (part.first, part.edges);
        for task in first..number(self.len()) {
            let hash = self.hasher.hash_one(self.id(task).as_str());
            if let Ok(entry) = self.ids.find_entry(hash, |known| *known == task) {
                entry.remove();
            }
        }
        let plan = self.plans.len() - 1;
        self.known_profiles.retain(|key, _| key.plan < plan);
        self.plans.pop();
        self.places.truncate(first as usize);
        self.profiles_of.truncate(first as usize);
        self.begins.truncate(first as usize);
        self.edges.truncate(edges as usize);
        self.amended.retain(|task, _| *task < first);
        self.rewired.retain(|task, _| *task < first);
        self.later.retain(|_, dependents| {
            dependents.retain(|task| *task < first);
            !dependents.is_empty()
        });
    }
}

/// A count as a number; a run never has more tasks or edges than fit, since a plan's text is bounded.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
