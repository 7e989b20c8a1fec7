//! How tasks were before they were changed.

use std::slice::from_ref;
use std::sync::Arc;

use super::{Hot, Table};
use crate::engine::detail::Detail;
use crate::engine::kind::Kind;
use crate::engine::slab::NONE;
use crate::outcome::Interruption;

/// How tasks were before each change, the first one first.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Saved {
    changes: Vec<Change>,
    /// What lay in the table at each change; apart, since it is copied from there as it is.
    hot: Vec<Hot>,
    details: Vec<Arc<Detail>>,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    task: u32,
    /// The place of its detail, if it had one, among the details.
    detail: u32,
    /// Why its lease was being stopped; meaningless unless it was. The lease itself is still there.
    why: Interruption,
}

/// How a task was before a change.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Before<'a> {
    pub(in crate::engine) task: u32,
    pub(super) hot: &'a Hot,
    pub(super) detail: Option<&'a Arc<Detail>>,
    pub(super) why: Interruption,
}

impl Saved {
    /// Adds how a task is now.
    #[inline]
    pub(in crate::engine) fn save(&mut self, table: &Table, task: u32) {
        let hot = &table.hot[task as usize];
        self.hot.extend_from_slice(from_ref(hot));
        if hot.detail != NONE || hot.kind == Kind::Stopping {
            self.save_more(table, task);
        } else {
            self.changes.push(Change { task, detail: NONE, why: Interruption::Crashed });
        }
    }

    #[cold]
    #[inline(never)]
    fn save_more(&mut self, table: &Table, task: u32) {
        let view = table.view(task);
        let why = view.stopping().map_or(Interruption::Crashed, |(_, why)| why);
        let mut detail = NONE;
        if let Some(had) = table.details.get(view.hot.detail) {
            detail = u32::try_from(self.details.len()).unwrap_or(NONE);
            self.details.push(Arc::clone(had));
        }
        self.changes.push(Change { task, detail, why });
    }

    /// How many changes there were.
    pub(in crate::engine) const fn len(&self) -> usize {
        self.changes.len()
    }

    /// How a task was before the change of this place.
    pub(in crate::engine) fn before(&self, place: usize) -> Before<'_> {
        let Change { task, detail, why } = self.changes[place];
        Before { task, hot: &self.hot[place], detail: self.details.get(detail as usize), why }
    }

    /// The tasks that were changed, each as often as it was.
    pub(in crate::engine) fn tasks(&self) -> impl Iterator<Item = u32> + '_ {
        self.changes.iter().map(|change| change.task)
    }

    #[inline]
    pub(in crate::engine) fn clear(&mut self) {
        self.changes.clear();
        self.hot.clear();
        if !self.details.is_empty() {
            self.forget_details();
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_details(&mut self) {
        self.details.clear();
    }
}
