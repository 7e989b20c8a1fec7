//! How tasks were before they were changed.

use std::slice::{from_mut, from_ref};
use std::sync::Arc;

use super::{Hot, Table};
use crate::engine::detail::Detail;
use crate::engine::kind::Kind;
use crate::engine::slab::NONE;
use crate::outcome::Interruption;

/// How tasks were before each change, the first one first.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Saved {
    /// Changes, and behind them some that were forgotten, whose room is used again.
    changes: Vec<Change>,
    /// How many there were.
    len: usize,
    details: Vec<Arc<Detail>>,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    /// What lay in the table.
    hot: Hot,
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
    #[inline(always)]
    pub(in crate::engine) fn save(&mut self, table: &Table, task: u32) {
        let hot = &table.hot[task as usize];
        if self.len >= self.changes.len() {
            self.make_room(*hot);
        }
        let change = &mut self.changes[self.len];
        self.len += 1;
        // One by one, and the first as it lies in the table: as a whole it would be put together
        // elsewhere first.
        from_mut(&mut change.hot).copy_from_slice(from_ref(hot));
        change.task = task;
        change.detail = NONE;
        change.why = Interruption::Crashed;
        if hot.detail != NONE || hot.kind == Kind::Stopping {
            self.save_more(table, task);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, hot: Hot) {
        self.changes.push(Change { hot, task: NONE, detail: NONE, why: Interruption::Crashed });
    }

    #[cold]
    #[inline(never)]
    fn save_more(&mut self, table: &Table, task: u32) {
        let view = table.view(task);
        let Some(change) = self.changes.get_mut(self.len - 1) else { return };
        change.why = view.stopping().map_or(Interruption::Crashed, |(_, why)| why);
        if let Some(had) = table.details.get(view.hot.detail) {
            change.detail = u32::try_from(self.details.len()).unwrap_or(NONE);
            self.details.push(Arc::clone(had));
        }
    }

    /// How many changes there were.
    pub(in crate::engine) const fn len(&self) -> usize {
        self.len
    }

    /// How a task was before the change of this place.
    pub(in crate::engine) fn before(&self, place: usize) -> Before<'_> {
        let Change { hot, task, detail, why } = &self.changes[place];
        Before { task: *task, hot, detail: self.details.get(*detail as usize), why: *why }
    }

    /// The tasks that were changed, each as often as it was.
    pub(in crate::engine) fn tasks(&self) -> impl Iterator<Item = u32> + '_ {
        self.changes[..self.len].iter().map(|change| change.task)
    }

    #[inline]
    pub(in crate::engine) fn clear(&mut self) {
        self.len = 0;
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
