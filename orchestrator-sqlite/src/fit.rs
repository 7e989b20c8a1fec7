//! Whether the tasks of a run are those that its plans name. In which order they stand is a matter of
//! the engine, that of whoever restores it.

use std::borrow::Cow;
use std::collections::HashSet;

use orchestrator_core::port::StoreError;
use orchestrator_core::{Counts, TaskId, TaskRecord};
use serde::Deserialize;

use crate::error::corrupt;
use crate::table::{PLANS, TASKS};

/// What a plan says of its tasks, as far as it is needed here; an edit brings none, and of a plan that
/// was pruned what is left lies one level deeper.
#[derive(Debug, Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    tasks: Vec<Name<'a>>,
    #[serde(borrow, default)]
    plan: Option<Box<Self>>,
}

#[derive(Debug, Deserialize)]
struct Name<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

/// The records and the plans name different tasks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Unfit {
    #[error("no plan of the run names task `{0}`")]
    Unplanned(TaskId),
    #[error("the row is missing: the plans of the run name {named} tasks, and there are {found}")]
    Task { named: usize, found: usize },
    #[error("a row is missing: the run counts {count} tasks, and its plans name {named}")]
    Plan { count: u64, named: usize },
}

/// The names of all tasks; `None` where a plan is none. A set: to look each of a million up in a
/// sorted list takes ten times as long, since nearly every step of it is out of the cache.
pub(crate) fn names(plans: &[Vec<u8>]) -> Option<HashSet<Cow<'_, str>>> {
    let mut all = HashSet::new();
    for plan in plans {
        let named: Named<'_> = serde_json::from_slice(plan).ok()?;
        let left = named.plan.map(|plan| plan.tasks).unwrap_or_default();
        all.extend(named.tasks.into_iter().chain(left).map(|task| task.id));
    }
    Some(all)
}

/// How many tasks a run counts; whoever made the file may have put any numbers there.
pub(crate) fn count(counts: &Counts) -> u64 {
    let Counts { open, deferred, leased, stopping, done, escalated, cancelled } = *counts;
    [open, deferred, leased, stopping, done, escalated, cancelled].map(u64::from).iter().sum()
}

/// The first row that does not fit; `count` is how many tasks the run itself counts.
pub(crate) fn unfit(
    names: &HashSet<Cow<'_, str>>,
    tasks: &[TaskRecord],
    count: u64,
) -> Option<StoreError> {
    let (named, found) = (names.len(), tasks.len());
    if named as u64 != count {
        let cause = Unfit::Plan { count, named };
        return Some(corrupt(PLANS.name, "the rows of the run", cause));
    }
    if count == 0 {
        // A run without plans says nothing of its tasks.
        return None;
    }
    let is_unplanned = |task: &TaskRecord| !names.contains(task.id.as_str());
    let cause = match tasks.iter().position(is_unplanned) {
        Some(place) => (place, Unfit::Unplanned(tasks.get(place)?.id.clone())),
        None if found < named => (found, Unfit::Task { named, found }),
        None => return None,
    };
    Some(corrupt(TASKS.name, format_args!("the row with place {}", cause.0), cause.1))
}
