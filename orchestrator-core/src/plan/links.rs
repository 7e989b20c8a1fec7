//! The names in a plan as places in it: each is looked up once, whether the plan is only checked or
//! also added to a run.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

use super::Plan;
use super::kinds::{Kinds, Sorter};
use super::near::Near;
use crate::id::TaskId;
use crate::task::TaskSpec;

/// What the tasks of a plan depend on, by number, and an order that respects it.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    /// Places by id. A table of hashes, since sorting the ids of a large plan costs more than all the
    /// rest of its check; ids come from outside, so that the hash has a key.
    places: HashTable<u32>,
    hasher: RandomState,
    /// For each task where its dependencies on tasks of the plan begin; one more at the end.
    begins: Vec<u32>,
    /// The places of those, task after task.
    inside: Vec<u32>,
    /// Numbers of tasks of the run, each with the place of one that depends on it.
    outside: Vec<(u32, u32)>,
    following: Following,
    sorted: Vec<u32>,
    kinds: Kinds,
    /// Whether every dependency on a task of the plan stands before what names it.
    goes_back: bool,
    is_sound: bool,
}

/// Tasks that are looked at from all sides before the next ones: few enough that they are still at
/// hand, as memory is slow.
const AT_ONCE: usize = 256;

/// What is kept of the tasks that were looked at.
struct Seen<'a> {
    near: Near,
    /// The hash of each id.
    hashes: Vec<u64>,
    /// Dependencies that do not stand near, each with its task.
    far: Vec<(u32, u32)>,
    sorter: Sorter<'a>,
}

/// The place of a dependency that is none of the plan, or not found yet.
const NOWHERE: u32 = u32::MAX;

impl Links {
    /// Looks up the names of a plan; `known` gives the number of a task of the run, and `also` gets
    /// all tasks, some at a time, while they are at hand.
    pub(crate) fn new(
        plan: &Plan,
        hasher: &RandomState,
        known: &dyn Fn(&TaskId) -> Option<u32>,
        also: &mut dyn FnMut(&[TaskSpec]),
    ) -> Self {
        let mut links = Self::named(plan, hasher, known, also);
        links.put_in_order();
        links
    }

    /// Whether each name of a plan is there once, each dependency exists and is named once, and none
    /// goes in a circle.
    pub(crate) fn are_sound_of(
        plan: &Plan,
        hasher: &RandomState,
        known: &dyn Fn(&TaskId) -> Option<u32>,
        also: &mut dyn FnMut(&[TaskSpec]),
    ) -> bool {
        let mut links = Self::named(plan, hasher, known, also);
        // What only goes back goes in no circle.
        if links.is_sound && !links.goes_back {
            links.put_in_order();
        }
        links.is_sound
    }

    /// Looks up the names, and leaves the order open.
    fn named(
        plan: &Plan,
        hasher: &RandomState,
        known: &dyn Fn(&TaskId) -> Option<u32>,
        also: &mut dyn FnMut(&[TaskSpec]),
    ) -> Self {
        let tasks = &plan.tasks;
        let mut links = Self {
            places: HashTable::with_capacity(tasks.len()),
            hasher: hasher.clone(),
            begins: Vec::with_capacity(tasks.len() + 1),
            inside: Vec::with_capacity(tasks.len()),
            outside: Vec::new(),
            following: Following::default(),
            sorted: Vec::new(),
            kinds: Kinds::default(),
            goes_back: true,
            is_sound: true,
        };
        let mut seen = Seen {
            near: Near::new(tasks.len()),
            hashes: Vec::with_capacity(tasks.len()),
            far: Vec::new(),
            sorter: Sorter::new(tasks.len()),
        };
        for (first, part) in (0..).step_by(AT_ONCE).zip(tasks.chunks(AT_ONCE)) {
            links.find_near(tasks, (first, part), known, &mut seen);
            also(part);
        }
        links.begins.push(number(links.inside.len()));
        let Seen { hashes, far, sorter, .. } = seen;
        links.kinds = sorter.into_kinds();
        links.name(tasks, &hashes);
        links.find_far(tasks, &far, known);
        links.is_sound &= !links.is_any_named_twice();
        links
    }

    /// Finds an order in which each task comes after those that it depends on.
    fn put_in_order(&mut self) {
        self.following = Following::new(&self.begins, &self.inside);
        let reached = self.sort();
        self.is_sound &= reached == self.sorted.len();
    }

    /// Looks at a part of the tasks, of which the first has this place: finds the dependencies that
    /// stand near what depends on them.
    fn find_near<'a>(
        &mut self,
        tasks: &'a [TaskSpec],
        (first, part): (u32, &'a [TaskSpec]),
        known: &dyn Fn(&TaskId) -> Option<u32>,
        seen: &mut Seen<'a>,
    ) {
        let Self { hasher, begins, inside, is_sound, .. } = self;
        for (place, spec) in (first..).zip(part) {
            seen.hashes.push(hasher.hash_one(spec.id.as_str()));
            seen.sorter.add(place, spec);
            *is_sound &= known(&spec.id).is_none();
            begins.push(number(inside.len()));
            for dependency in &spec.depends_on {
                let from = seen.near.find(tasks, dependency);
                if from.is_none() {
                    seen.far.push((number(inside.len()), place));
                }
                inside.push(from.unwrap_or(NOWHERE));
            }
            seen.near.put(&spec.id, place);
        }
    }

    /// Names the tasks, part by part of the table: its memory is gone through then, and not jumped
    /// about in.
    fn name(&mut self, tasks: &[TaskSpec], hashes: &[u64]) {
        let Self { places, hasher, is_sound, .. } = self;
        // The table puts a hash where its lower bits say.
        let (mask, size) = (places.num_buckets() - 1, places.num_buckets().div_ceil(PARTS));
        let part = |(hash, _): &(u64, u32)| (usize::try_from(*hash).unwrap_or(0) & mask) / size;
        let named = by_part(hashes.iter().copied().zip(0_u32..), PARTS, part);
        let rehash = |place: &u32| hasher.hash_one(tasks[*place as usize].id.as_str());
        for (hash, place) in named {
            let id = &tasks[place as usize].id;
            let is_it = |of: &u32| hashes[*of as usize] == hash && tasks[*of as usize].id == *id;
            *is_sound &= *places.entry(hash, is_it, rehash).or_insert(place).get() == place;
        }
    }

    /// Looks up dependencies in the plan and in the run, and leaves only those on tasks of the plan
    /// inside.
    fn find_far(
        &mut self,
        tasks: &[TaskSpec],
        far: &[(u32, u32)],
        known: &dyn Fn(&TaskId) -> Option<u32>,
    ) {
        let mut is_any_outside = false;
        for (at, place) in far {
            let entry = *at - self.begins[*place as usize];
            let dependency = &tasks[*place as usize].depends_on[entry as usize];
            if let Some(from) = self.place(tasks, dependency) {
                self.goes_back &= from < *place;
                self.inside[*at as usize] = from;
                continue;
            }
            is_any_outside = true;
            match known(dependency) {
                Some(from) => self.outside.push((from, *place)),
                None => self.is_sound = false,
            }
        }
        if is_any_outside {
            let mut gone = 0;
            for place in 0..tasks.len() {
                let begin = self.begins[place] as usize;
                self.begins[place] -= gone;
                let own = &self.inside[begin..self.begins[place + 1] as usize];
                gone += number(own.iter().filter(|from| **from == NOWHERE).count());
            }
            self.begins[tasks.len()] -= gone;
            self.inside.retain(|from| *from != NOWHERE);
        }
    }

    /// Whether a task names itself or one dependency twice.
    fn is_any_named_twice(&self) -> bool {
        let mut outside = self.outside.clone();
        outside.sort_unstable();
        let mut all = (0_u32..).zip(self.begins.windows(2));
        outside.windows(2).any(|pair| pair[0] == pair[1])
            || all.any(|(place, bounds)| {
                let own = &self.inside[bounds[0] as usize..bounds[1] as usize];
                own.contains(&place) || is_any_twice(own)
            })
    }

    /// Where the task of an id stands first in the plan, whose tasks these are.
    pub(crate) fn place(&self, tasks: &[TaskSpec], id: &TaskId) -> Option<u32> {
        let hash = self.hasher.hash_one(id.as_str());
        self.places.find(hash, |place| tasks[*place as usize].id == *id).copied()
    }

    /// Whether each name is there once, each dependency exists and is named once, and none goes in a
    /// circle.
    pub(crate) const fn are_sound(&self) -> bool {
        self.is_sound
    }

    /// What the task of a place depends on in the plan, by place.
    pub(crate) fn inside_of(&self, place: u32) -> &[u32] {
        part_of(&self.begins, &self.inside, place)
    }

    /// What depends on each task, by place.
    pub(crate) const fn following(&self) -> &Following {
        &self.following
    }

    /// The places, each after those that it depends on; what goes in circles comes last.
    pub(crate) fn sorted(&self) -> &[u32] {
        &self.sorted
    }

    /// The places, each before those that it depends on.
    pub(crate) fn backwards(&self) -> impl Iterator<Item = u32> + '_ {
        // As they stand, where that is such an order: memory is gone through and not jumped about in.
        let (as_they_stand, sorted) =
            if self.goes_back { (number(self.sorted.len()), &[][..]) } else { (0, self.sorted()) };
        (0..as_they_stand).rev().chain(sorted.iter().rev().copied())
    }

    /// Dependencies on tasks of the run: their numbers, each with the place of one that depends on it.
    pub(crate) fn outside(&self) -> &[(u32, u32)] {
        &self.outside
    }

    /// The tasks by kind.
    pub(crate) const fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// How many dependencies there are on tasks of the plan.
    pub(crate) const fn len(&self) -> usize {
        self.inside.len()
    }

    /// The places by the hash of their ids.
    pub(crate) fn into_places(self) -> HashTable<u32> {
        self.places
    }

    /// Finds the order; gives how many are on or behind no circle.
    fn sort(&mut self) -> usize {
        let places = self.begins.len() - 1;
        let mut waits: Vec<u32> =
            self.begins.windows(2).map(|bounds| bounds[1] - bounds[0]).collect();
        let all = || (0_u32..).take(places);
        let mut sorted: Vec<u32> = all().filter(|place| waits[*place as usize] == 0).collect();
        let mut reached = sorted.len();
        sorted.resize(places + 1, 0);
        let mut at = 0;
        while at < reached {
            for next in self.following.of(sorted[at]) {
                let waits = &mut waits[*next as usize];
                *waits -= 1;
                // Put in anyway, and kept if it waits for no more: which does cannot be foreseen.
                sorted[reached] = *next;
                reached += usize::from(*waits == 0);
            }
            at += 1;
        }
        sorted.truncate(reached);
        if reached < places {
            sorted.extend(all().filter(|place| waits[*place as usize] > 0));
        }
        self.sorted = sorted;
        reached
    }
}

/// Parts of the table of names that are filled one after the other.
const PARTS: usize = 256;

/// Sorts into parts; what is in one part stays in its order.
pub(crate) fn by_part<T: Copy + Default>(
    all: impl Iterator<Item = T> + Clone,
    parts: usize,
    part: impl Fn(&T) -> usize,
) -> Vec<T> {
    let mut next = vec![0_usize; parts];
    for one in all.clone() {
        next[part(&one)] += 1;
    }
    let mut sum = 0;
    for count in &mut next {
        sum += std::mem::replace(count, sum);
    }
    let mut sorted = vec![T::default(); sum];
    for one in all {
        let at = &mut next[part(&one)];
        sorted[*at] = one;
        *at += 1;
    }
    sorted
}

/// Dependencies up to which each is held against those before it.
const FEW: usize = 16;

fn is_any_twice(numbers: &[u32]) -> bool {
    if numbers.len() <= FEW {
        return (1..numbers.len()).any(|at| numbers[..at].contains(&numbers[at]));
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// What follows each place, as one array with bounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Following {
    /// For each place where what follows it begins; one more at the end.
    begins: Vec<u32>,
    ends: Vec<u32>,
}

impl Following {
    /// The same edges from the other side: `inside` has from `begins` on what each place follows.
    fn new(begins: &[u32], inside: &[u32]) -> Self {
        let places = begins.len() - 1;
        // Each count stands two places behind its own, so that the sum before it stands one behind,
        // and is the place's end once all that follows it was put in.
        let mut next = vec![0_u32; places + 2];
        for from in inside {
            next[*from as usize + 2] += 1;
        }
        let mut sum = 0;
        for count in &mut next {
            sum += *count;
            *count = sum;
        }
        let mut ends = vec![0; inside.len()];
        for (to, bounds) in (0_u32..).zip(begins.windows(2)) {
            for from in &inside[bounds[0] as usize..bounds[1] as usize] {
                let at = &mut next[*from as usize + 1];
                ends[*at as usize] = to;
                *at += 1;
            }
        }
        next.truncate(places + 1);
        Self { begins: next, ends }
    }

    /// Ascending.
    pub(crate) fn of(&self, place: u32) -> &[u32] {
        part_of(&self.begins, &self.ends, place)
    }
}

/// Of an array with bounds what belongs to a place.
fn part_of<'a>(begins: &[u32], all: &'a [u32], place: u32) -> &'a [u32] {
    &all[begins[place as usize] as usize..begins[place as usize + 1] as usize]
}

/// A count as a number; a run never has more tasks or edges than fit, since a plan's text is bounded.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The links of these tasks; whether they are sound is the same where nobody asks for the order.
    fn links(tasks: &[(&str, &[&str])], known: &[&str]) -> Links {
        let id = |name: &str| TaskId::parse(name).unwrap();
        let tasks = tasks.iter().map(|(name, depends_on)| TaskSpec {
            depends_on: depends_on.iter().map(|name| id(name)).collect(),
            ..TaskSpec::new(id(name))
        });
        let plan = Plan { tasks: tasks.collect(), ..Plan::default() };
        let number = |id: &TaskId| known.iter().zip(0..).find(|(name, _)| id.as_str() == **name);
        let (hasher, known) = (RandomState::new(), |id: &TaskId| Some(number(id)?.1));
        let links = Links::new(&plan, &hasher, &known, &mut |_| {});
        let are_sound = Links::are_sound_of(&plan, &hasher, &known, &mut |_| {});
        assert_eq!(are_sound, links.are_sound());
        links
    }

    #[test]
    fn p3_names_and_dependencies_are_sound_only_if_nothing_is_wrong_with_them() {
        let known = ["old", "older"];
        assert!(links(&[("a", &["b", "old"]), ("b", &[])], &known).are_sound());
        let many: Vec<String> = (0..40).map(|at| format!("t{at}")).collect();
        let all: Vec<&str> = many.iter().map(String::as_str).collect();
        let twice = [all.as_slice(), &[all[3]]].concat();
        for (depends_on, is_sound) in [(&all, true), (&twice, false)] {
            let others = all.iter().map(|name| (*name, [].as_slice()));
            let tasks: Vec<(&str, &[&str])> =
                others.chain([("last", depends_on.as_slice())]).collect();
            assert_eq!(links(&tasks, &known).are_sound(), is_sound);
        }
        for wrong in [
            [("a", [].as_slice()), ("a", &[])],
            [("a", &["a"]), ("b", &[])],
            [("a", &["b", "b"]), ("b", &[])],
            [("a", &["old", "older", "old"]), ("b", &[])],
            [("a", &["c"]), ("b", &[])],
            [("a", &["b"]), ("b", &["a"])],
            [("old", &[]), ("b", &[])],
        ] {
            assert!(!links(&wrong, &known).are_sound(), "{wrong:?}");
        }
    }

    #[test]
    fn what_goes_in_circles_comes_last_and_is_not_lost() {
        let links = links(&[("a", &["b"]), ("b", &["a"]), ("c", &[])], &[]);
        assert_eq!(links.sorted(), [2, 0, 1]);
    }
}
