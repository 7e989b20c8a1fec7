//! The names in a plan as places in it: each is looked up once, whether the plan is only checked or
//! also added to a run.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

use super::Plan;
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
    is_sound: bool,
}

impl Links {
    /// Looks up the names of a plan; `known` gives the number of a task of the run.
    pub(crate) fn new(
        plan: &Plan,
        hasher: &RandomState,
        known: &dyn Fn(&TaskId) -> Option<u32>,
    ) -> Self {
        let tasks = &plan.tasks;
        let mut links = Self {
            places: HashTable::with_capacity(tasks.len()),
            hasher: hasher.clone(),
            begins: Vec::with_capacity(tasks.len() + 1),
            inside: Vec::new(),
            outside: Vec::new(),
            following: Following::default(),
            sorted: Vec::new(),
            is_sound: true,
        };
        for (place, spec) in (0_u32..).zip(tasks) {
            links.name(tasks, place, spec);
            links.is_sound &= known(&spec.id).is_none();
        }
        links.begins.push(0);
        let mut near = Near::new(tasks.len());
        for (place, spec) in (0_u32..).zip(tasks) {
            near.put(links.hash(&spec.id), place);
            links.depend(tasks, place, spec, known, &near);
        }
        let following = Following::new(tasks.len(), links.pairs());
        let (sorted, reached) = following.sorted();
        links.is_sound &= reached == tasks.len();
        (links.following, links.sorted) = (following, sorted);
        links
    }

    fn name(&mut self, tasks: &[TaskSpec], place: u32, spec: &TaskSpec) {
        let hasher = &self.hasher;
        let hash = |place: &u32| hasher.hash_one(tasks[*place as usize].id.as_str());
        let is_it = |place: &u32| tasks[*place as usize].id == spec.id;
        let first = self.places.entry(hasher.hash_one(spec.id.as_str()), is_it, hash);
        self.is_sound &= *first.or_insert(place).get() == place;
    }

    fn depend(
        &mut self,
        tasks: &[TaskSpec],
        place: u32,
        spec: &TaskSpec,
        known: &dyn Fn(&TaskId) -> Option<u32>,
        near: &Near,
    ) {
        let (inside, outside) = (self.inside.len(), self.outside.len());
        for dependency in &spec.depends_on {
            let hash = self.hash(dependency);
            let near = near.at(hash).filter(|place| tasks[*place as usize].id == *dependency);
            if let Some(from) = near.or_else(|| self.find(tasks, hash, dependency)) {
                self.is_sound &= from != place;
                self.inside.push(from);
            } else if let Some(from) = known(dependency) {
                self.outside.push((from, place));
            } else {
                self.is_sound = false;
            }
        }
        let outside = self.outside[outside..].iter().map(|(from, _)| *from);
        self.is_sound &= !is_any_twice(self.inside[inside..].iter().copied());
        self.is_sound &= !is_any_twice(outside);
        self.begins.push(number(self.inside.len()));
    }

    /// Where the task of an id stands first in the plan, whose tasks these are.
    pub(crate) fn place(&self, tasks: &[TaskSpec], id: &TaskId) -> Option<u32> {
        self.find(tasks, self.hash(id), id)
    }

    fn hash(&self, id: &TaskId) -> u64 {
        self.hasher.hash_one(id.as_str())
    }

    fn find(&self, tasks: &[TaskSpec], hash: u64, id: &TaskId) -> Option<u32> {
        self.places.find(hash, |place| tasks[*place as usize].id == *id).copied()
    }

    /// Whether each name is there once, each dependency exists and is named once, and none goes in a
    /// circle.
    pub(crate) const fn are_sound(&self) -> bool {
        self.is_sound
    }

    /// What depends on each task, by place.
    pub(crate) const fn following(&self) -> &Following {
        &self.following
    }

    /// The places, each after those that it depends on; what goes in circles comes last.
    pub(crate) fn sorted(&self) -> &[u32] {
        &self.sorted
    }

    /// Dependencies on tasks of the run: their numbers, each with the place of one that depends on it.
    pub(crate) fn outside(&self) -> &[(u32, u32)] {
        &self.outside
    }

    /// What depends on each task where the tasks have these numbers, which are the `order` of places.
    pub(crate) fn renumbered(&self, order: &[u32], numbers: &[u32]) -> Following {
        let dependents = (0_u32..).zip(order);
        let pairs = dependents.flat_map(|(to, place)| {
            self.before(*place).iter().map(move |from| (numbers[*from as usize], to))
        });
        Following::new(order.len(), pairs)
    }

    /// The places by the hash of their ids.
    pub(crate) fn into_places(self) -> HashTable<u32> {
        self.places
    }

    fn before(&self, place: u32) -> &[u32] {
        let bounds = self.begins[place as usize] as usize..self.begins[place as usize + 1] as usize;
        &self.inside[bounds]
    }

    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + Clone + '_ {
        let places = (0_u32..).take(self.begins.len() - 1);
        places.flat_map(|to| self.before(to).iter().map(move |from| (*from, to)))
    }
}

/// The last tasks by the hash of their ids, each in the place of one of the same lower bits: most
/// dependencies stand not far above what names them, and memory is slow where the table is large.
struct Near(Vec<(u64, u32)>);

impl Near {
    fn new(tasks: usize) -> Self {
        Self(vec![(0, 0); tasks.next_power_of_two().min(8_192)])
    }

    fn place(&self, hash: u64) -> usize {
        // Truncation is what is wanted: the length is a power of two.
        usize::try_from(hash & (self.0.len() as u64 - 1)).unwrap_or(0)
    }

    fn put(&mut self, hash: u64, task: u32) {
        let place = self.place(hash);
        self.0[place] = (hash, task);
    }

    fn at(&self, hash: u64) -> Option<u32> {
        let (of, task) = self.0[self.place(hash)];
        (of == hash).then_some(task)
    }
}

/// Dependencies up to which each is held against those before it.
const FEW: usize = 16;

fn is_any_twice(numbers: impl ExactSizeIterator<Item = u32> + Clone) -> bool {
    if numbers.len() <= FEW {
        let mut later = numbers;
        return std::iter::from_fn(|| later.next().map(|one| later.clone().any(|two| two == one)))
            .any(|is_twice| is_twice);
    }
    let mut sorted: Vec<u32> = numbers.collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// What follows each of so many places, as one array with bounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Following {
    begins: Vec<u32>,
    ends: Vec<u32>,
}

impl Following {
    /// From pairs of a place and one that follows it; those of a place stay in the pairs' order.
    pub(crate) fn new(places: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut begins = vec![0_u32; places + 1];
        for (from, _) in pairs.clone() {
            begins[from as usize + 1] += 1;
        }
        for place in 0..places {
            begins[place + 1] += begins[place];
        }
        let mut next = begins.clone();
        let mut ends = vec![0; begins[places] as usize];
        for (from, to) in pairs {
            let at = &mut next[from as usize];
            ends[*at as usize] = to;
            *at += 1;
        }
        Self { begins, ends }
    }

    pub(crate) fn of(&self, place: u32) -> &[u32] {
        let bounds = self.begins[place as usize] as usize..self.begins[place as usize + 1] as usize;
        &self.ends[bounds]
    }

    /// The bounds of each place but the end of the last, and all that follows.
    pub(crate) fn into_parts(mut self) -> (Vec<u32>, Vec<u32>) {
        self.begins.pop();
        (self.begins, self.ends)
    }

    /// The places, each after those that it follows, and how many are on or behind no circle; the
    /// others come last.
    fn sorted(&self) -> (Vec<u32>, usize) {
        let places = self.begins.len() - 1;
        let mut waits = vec![0_u32; places];
        for next in &self.ends {
            waits[*next as usize] += 1;
        }
        let all = || (0_u32..).take(places);
        let mut sorted: Vec<u32> = Vec::with_capacity(places);
        sorted.extend(all().filter(|place| waits[*place as usize] == 0));
        let mut at = 0;
        while let Some(place) = sorted.get(at).copied() {
            for next in self.of(place) {
                waits[*next as usize] -= 1;
                if waits[*next as usize] == 0 {
                    sorted.push(*next);
                }
            }
            at += 1;
        }
        let reached = sorted.len();
        if reached < places {
            sorted.extend(all().filter(|place| waits[*place as usize] > 0));
        }
        (sorted, reached)
    }
}

/// A count as a number; a run never has more tasks or edges than fit, since a plan's text is bounded.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(tasks: &[(&str, &[&str])], known: &[&str]) -> Links {
        let id = |name: &str| TaskId::parse(name).unwrap();
        let tasks = tasks.iter().map(|(name, depends_on)| TaskSpec {
            depends_on: depends_on.iter().map(|name| id(name)).collect(),
            ..TaskSpec::new(id(name))
        });
        let plan = Plan { tasks: tasks.collect(), ..Plan::default() };
        let number = |id: &TaskId| known.iter().zip(0..).find(|(name, _)| id.as_str() == **name);
        Links::new(&plan, &RandomState::new(), &|id| number(id).map(|(_, number)| number))
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
