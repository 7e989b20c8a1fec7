//! What many tasks of a plan have in common, and whether any has what most have not.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::id::{PipelineName, PoolName};
use crate::task::TaskSpec;

/// Whether any task has what most have not: where none does, the tasks need not be looked up for it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rare {
    pub(crate) budget: bool,
    pub(crate) estimate: bool,
    pub(crate) priority: bool,
    pub(crate) scope: bool,
}

impl Rare {
    /// Notes what one task has.
    pub(crate) const fn note(&mut self, spec: &TaskSpec) {
        self.budget |= spec.budget.is_some();
        self.estimate |= spec.estimate.is_some();
        self.priority |= spec.priority != 0;
        self.scope |= spec.scope.is_some();
    }

    /// Notes what others have.
    pub(crate) const fn add(&mut self, other: Self) {
        self.budget |= other.budget;
        self.estimate |= other.estimate;
        self.priority |= other.priority;
        self.scope |= other.scope;
    }
}

/// The tasks of a plan by kind: those of one kind go through the same stages with the same needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    /// For each task its kind.
    pub(crate) of: Vec<u32>,
    /// For each kind the place of the first task of it.
    pub(crate) firsts: Vec<u32>,
    pub(crate) rare: Rare,
}

/// What makes two tasks be of one kind.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    timeout: Option<Duration>,
    pipeline: Option<&'a PipelineName>,
    model: Option<&'a str>,
    /// Where there are any: two that are empty are the same without being gone through.
    needs: Option<&'a BTreeMap<PoolName, NonZeroU32>>,
}

impl<'a> Key<'a> {
    fn of(spec: &'a TaskSpec) -> Self {
        let (pipeline, model) = (spec.pipeline.as_ref(), spec.model.as_deref());
        let needs = Some(&spec.needs).filter(|needs| !needs.is_empty());
        Self { timeout: spec.timeout, pipeline, model, needs }
    }
}

/// Finds the kinds of tasks one by one.
#[derive(Debug, Default)]
pub(super) struct Sorter<'a> {
    kinds: Kinds,
    known: BTreeMap<Key<'a>, u32>,
    /// The kind of the task before: most tasks are of that too.
    last: Option<(Key<'a>, u32)>,
}

impl<'a> Sorter<'a> {
    pub(super) fn new(tasks: usize) -> Self {
        let kinds = Kinds { of: Vec::with_capacity(tasks), ..Kinds::default() };
        Self { kinds, ..Self::default() }
    }

    /// Adds the task of this place, which is the next.
    pub(super) fn add(&mut self, place: u32, spec: &'a TaskSpec) {
        self.kinds.rare.note(spec);
        let key = Key::of(spec);
        let kind = match &self.last {
            Some((last, kind)) if *last == key => *kind,
            Some(_) | None => {
                let firsts = &mut self.kinds.firsts;
                let kind = *self.known.entry(Key::of(spec)).or_insert_with(|| {
                    firsts.push(place);
                    u32::try_from(firsts.len() - 1).unwrap_or(u32::MAX)
                });
                self.last = Some((key, kind));
                kind
            }
        };
        self.kinds.of.push(kind);
    }

    pub(super) fn into_kinds(self) -> Kinds {
        self.kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;

    #[test]
    fn tasks_with_the_same_stages_and_needs_are_of_one_kind_wherever_they_stand() {
        let task = || TaskSpec::new(TaskId::parse("a").unwrap());
        let (mut quick, mut large, mut other) = (task(), task(), task());
        quick.timeout = Some(Duration::from_secs(1));
        large.model = Some("large".to_owned());
        other.needs.insert(PoolName::parse("gpu").unwrap(), NonZeroU32::MIN);
        other.priority = 1;
        let tasks = [task(), quick.clone(), quick, task(), large, other, task()];
        let mut sorter = Sorter::new(tasks.len());
        tasks.iter().zip(0..).for_each(|(spec, place)| sorter.add(place, spec));
        let kinds = sorter.into_kinds();
        assert_eq!(kinds.of, [0, 1, 1, 0, 2, 3, 0]);
        assert_eq!(kinds.firsts, [0, 1, 4, 5]);
        assert!(kinds.rare.priority && !kinds.rare.scope);
    }
}
