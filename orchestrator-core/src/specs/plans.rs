//! How the tasks of a plan come and go.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use serde_json::Map;

use super::order::order;
use super::{Part, Profile, ProfileKey, Pruned, Specs, number};
use crate::id::{BlobHash, PoolName, TaskId};
use crate::mutant::{Mutant, is_on};
use crate::pipeline::{Pipeline, STAGES_MAX, StageKind, StageSpec};
use crate::plan::{Kinds, Links, Plan, PlanFault};
use crate::task::TaskSpec;
use crate::time::millis;

/// How long after its timeout a stage is ended whatever its holder does.
const HARD_STOP_GRACE: Duration = Duration::from_secs(60);

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
    /// The dependencies of a plan that could be added, or what is wrong with it.
    ///
    /// Also `also` gets all of its tasks, some at a time, while they are at hand.
    pub(crate) fn check(
        &self,
        plan: &Plan,
        also: &mut dyn FnMut(&[TaskSpec]),
    ) -> Result<Links, Vec<PlanFault>> {
        plan.links(&self.hasher, &|id| self.number(id), also)
    }

    /// Adds the tasks of a checked plan, whose dependencies are looked up anew unless they are given;
    /// `class` gives the class of a stage of a pipeline for tasks with these needs, and of the first one
    /// (`None`) for tasks that were never begun. Gives the number of each task's profile.
    ///
    /// Of a plan that was `pruned` this is what is left, with its tasks in the order of their numbers.
    pub(crate) fn add(
        &mut self,
        plan: &Arc<Plan>,
        pruned: Option<&BlobHash>,
        links: Option<Box<Links>>,
        class: impl FnMut(&Pipeline, Option<u8>, &BTreeMap<PoolName, NonZeroU32>) -> u32,
    ) -> Vec<u32> {
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
        let profile = |place: &u32| profiles[links.kinds().of[*place as usize] as usize];
        let profiles = order.iter().map(profile).collect();
        self.link(&links, &order, &numbers);
        self.places.reserve_exact(order.len());
        self.places.extend_from_slice(&order);
        self.name(links.into_places(), &numbers);
        profiles
    }

    /// Adds the edges to the tasks of the last plan, whose places are these in the `order` of their
    /// numbers.
    fn link(&mut self, links: &Links, order: &[u32], numbers: &[u32]) {
        let first = self.begins.len();
        let mut end = self.edges.len();
        self.begins.reserve_exact(order.len());
        for place in order {
            self.begins.push(number(end));
            end += links.following().of(*place).len();
        }
        self.edges.reserve_exact(links.len());
        self.edges.resize(end, 0);
        // By the number of who depends, so that those are in order at each that they depend on.
        let mut next = self.begins[first..].to_vec();
        for (to, place) in (number(first)..).zip(order) {
            for from in links.inside_of(*place) {
                let at = &mut next[numbers[*from as usize] as usize - first];
                self.edges[*at as usize] = to;
                *at += 1;
            }
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
    pub(crate) fn profile_for(
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

    /// What stays of the plan whose first task this is when it is pruned: what others are counted and
    /// ranked by, and what late costs are booked by.
    pub(crate) fn remains(&self, first: u32) -> Plan {
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
    pub(crate) fn prune(&mut self, first: u32, left: &Pruned) -> Range<u32> {
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
    pub(crate) fn remove_last(&mut self) {
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
