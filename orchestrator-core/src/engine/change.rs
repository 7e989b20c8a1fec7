//! How one task is changed: every change goes through [`Engine::change_by`] or, within its phase,
//! [`Engine::touch`], which note how the task was; all that is computed comes in step in
//! [`Engine::rework`].

use std::hint::cold_path;

use super::Engine;
use super::kind::Kind;
use super::table::{Before, Row};
use crate::id::TaskNo;
use crate::specs::Profile;
use crate::time::Timestamp;

impl Engine {
    #[inline]
    pub(super) const fn has(&self, task: TaskNo) -> bool {
        (task.0 as usize) < self.table.len()
    }

    /// Changes a task and notes when its phase began; brings all that is computed in step.
    pub(super) fn change(
        &mut self,
        task: TaskNo,
        at: Timestamp,
        change: impl FnOnce(&mut Row<'_>, &Context<'_>),
    ) {
        self.change_by(None, task, at, change);
    }

    /// As [`Engine::change`]; it goes faster where the task is in the phase that is likely.
    #[inline(always)]
    pub(super) fn change_by(
        &mut self,
        likely: Option<Kind>,
        task: TaskNo,
        at: Timestamp,
        change: impl Change,
    ) {
        if !self.has(task) {
            return cold_path();
        }
        self.batch.task_changes(&self.table, task.0);
        self.rework(likely, task.0, Begin { at, change });
    }

    /// Makes a task what it was.
    pub(super) fn restore_task(&mut self, before: &Before<'_>) {
        let change = |row: &mut Row<'_>, _: &Context<'_>| row.restore(before);
        self.rework(None, before.task, change);
    }

    /// Changes a task within its phase.
    pub(super) fn touch(&mut self, task: TaskNo, change: impl FnOnce(&mut Row<'_>)) {
        if !self.has(task) {
            return;
        }
        self.batch.task_changes(&self.table, task.0);
        // What it has spent may decide whether it can run.
        if self.table.is_ready(task.0) && self.specs.budget(task.0).is_some() {
            let change = |row: &mut Row<'_>, _: &Context<'_>| change(row);
            self.rework(None, task.0, change);
        } else {
            change(&mut self.table.row(task.0));
        }
    }
}

/// A change of a task. Those that most tasks go through are not closures: they are to be put in where
/// they are called, once for the likely phase and once for the others, and say the phase that they lead
/// to, so that nothing asks for it again.
pub(super) trait Change {
    /// Makes it; gives the phase that the task is in then.
    fn make(self, row: &mut Row<'_>, cx: &Context<'_>) -> Kind;
}

impl<F: FnOnce(&mut Row<'_>, &Context<'_>)> Change for F {
    #[inline(always)]
    fn make(self, row: &mut Row<'_>, cx: &Context<'_>) -> Kind {
        self(row, cx);
        row.hot().kind()
    }
}

/// A change with which a phase begins.
struct Begin<C> {
    at: Timestamp,
    change: C,
}

impl<C: Change> Change for Begin<C> {
    #[inline(always)]
    fn make(self, row: &mut Row<'_>, cx: &Context<'_>) -> Kind {
        let kind = self.change.make(row, cx);
        row.set_since(self.at);
        kind
    }
}

/// What a change of a task may depend on beside its state.
pub(super) struct Context<'a> {
    pub(super) profile: &'a Profile,
    /// The stage that it was at.
    pub(super) stage: u8,
    pub(super) has_scope: bool,
}

impl Context<'_> {
    pub(super) const fn stages(&self) -> usize {
        self.profile.classes.len()
    }

    /// Whether its stage makes a change.
    pub(super) const fn makes(&self) -> bool {
        self.profile.makes(self.stage)
    }

    /// Whether a later stage makes another change.
    pub(super) const fn makes_more(&self) -> bool {
        self.profile.makes_more(self.stage)
    }

    /// Where a rejection by its stage goes.
    pub(super) fn back(&self) -> u8 {
        self.profile.back(self.stage)
    }

    /// Whether rejections by its stage are counted.
    pub(super) const fn has_rounds(&self) -> bool {
        self.profile.has_rounds(self.stage)
    }
}
