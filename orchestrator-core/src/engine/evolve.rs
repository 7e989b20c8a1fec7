//! Applies events. How a task is changed is in `change`, what each event about one changes in it in
//! `steps`, how tasks come and go in `growth`.

use std::hint::cold_path;
use std::time::Duration;

use super::Engine;
use super::batch::Undo;
use super::body::Body;
use super::draft::{Draft, Happening, What};
use super::growth::limit_default;
use crate::event::{Event, EventKind};
use crate::id::{BlobHash, FencingToken, OwnerId, PoolName, RunId, TaskNo};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::outcome::Interruption;
use crate::record::{Counts, OwnerRecord, ParkReason, PlanRef, PoolRecord, RunRecord, RunState};
use crate::retry::RetryRules;
use crate::time::Timestamp;

impl Engine {
    /// Applies an event that this engine decided, or one that follows in its log.
    ///
    /// An event that does not fit the state (which only a damaged log holds) changes as much as
    /// makes sense; [`Engine::audit`] tells.
    pub fn evolve(&mut self, event: &Event) {
        let draft = self.taken_in(event);
        for event in &draft.events {
            self.happen(&draft, event);
        }
        if matches!(event.kind, EventKind::PlanPruned { .. }) {
            self.rank();
        }
        if !self.batch.is_open() {
            self.table.forget();
        }
    }

    /// Applies an event of a draft.
    #[inline(never)]
    pub(super) fn happen(&mut self, draft: &Draft, event: &Happening) {
        match &event.what {
            What::Granted(grant) => self.apply_grant(event.at, grant),
            What::Passed(passed) => self.apply_passed(event.at, passed, draft.made(passed)),
            What::Other(place) => self.apply(event.at, draft.other(*place)),
        }
        self.has_happened(event.at);
    }

    /// Notes that one more event was applied.
    #[inline(always)]
    pub(super) fn has_happened(&mut self, at: Timestamp) {
        self.change_sums(|run| run.last_at = run.last_at.max(at));
        self.seq = self.seq.plus(1);
    }

    #[cold]
    #[inline(never)]
    fn apply(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        match kind {
            EventKind::RunCreated { run, rules } => self.apply_created(at, run, rules),
            // These have a form of their own.
            EventKind::Granted { .. } | EventKind::Passed { .. } => {}
            EventKind::PlanAdded { plan, .. } => self.apply_plan(at, plan),
            EventKind::PlanPruned { plan, .. } => self.apply_pruned(plan),
            EventKind::PoolLimited { pool, limit } => {
                self.change_pool(pool, |record| record.limit = *limit);
            }
            EventKind::PoolClosed { pool, until } => {
                self.change_pool(pool, |record| record.closed_until = Some(*until));
            }
            EventKind::PoolOpened { pool } => {
                self.change_pool(pool, |record| record.closed_until = None);
            }
            EventKind::PoolBounded { pool, bounds } => self.bound_pool(pool, *bounds),
            EventKind::PilotSet { tasks } => self.change_run(|run| run.pilot = *tasks),
            EventKind::BudgetSet { budget } => self.change_run(|run| run.budget = *budget),
            EventKind::DriverOpened { .. } => self.apply_opened(at, kind),
            EventKind::DriverEnded { owner } => self.apply_driver_ended(owner),
            EventKind::Rejected { .. } => self.apply_rejected(at, kind),
            EventKind::Suspended { .. } => self.apply_suspended(at, kind),
            EventKind::Interrupted { .. } => self.apply_interrupted(at, kind),
            EventKind::Escalated { .. } => self.apply_escalated(at, kind),
            EventKind::Stopping { task, reason, .. } => {
                self.change(*task, at, |row, _| {
                    if is_on(Mutant::LostLeaseIsFreeAtOnce) {
                        row.open();
                    } else {
                        row.hear_again();
                        row.stop(*reason);
                    }
                });
            }
            EventKind::Cancelling { task, .. } => self.change(*task, at, |row, _| {
                row.hear_again();
                row.stop(Interruption::Cancelled);
            }),
            EventKind::ResultRefused { .. } => self.apply_refused(kind),
            EventKind::Dispatched { task, content, .. } => {
                self.touch(*task, |row| row.detail_mut().content = Some(content.clone()));
            }
            EventKind::MergeIntended { task, intent, .. } => {
                self.touch(*task, |row| row.detail_mut().intent = Some(intent.clone()));
            }
            EventKind::Due { task } => self.change(*task, at, |row, _| row.open()),
            EventKind::Edited { task, spec, .. } => self.apply_edited(*task, spec),
            EventKind::Retried { task, .. } => self.apply_retried(at, *task),
            EventKind::Resolved { task, how, .. } => self.apply_resolved(at, *task, *how),
            EventKind::Cancelled { task, .. } => self.apply_cancelled(at, *task),
            EventKind::Paused { reason, .. } => {
                self.change_run(|run| run.state = RunState::Paused { reason: reason.clone() });
            }
            EventKind::Draining { reason } => {
                self.change_run(|run| run.state = RunState::Draining { reason: *reason });
            }
            EventKind::Parked { reason } => {
                self.change_run(|run| run.state = RunState::Parked { reason: *reason });
            }
            EventKind::Resumed { .. } => self.change_run(|run| {
                if run.state == (RunState::Parked { reason: ParkReason::Pilot }) {
                    run.pilot = None;
                }
                run.state = RunState::Active;
                run.first_stage_failures = 0;
            }),
            EventKind::Completed => self.change_run(|run| run.state = RunState::Completed),
            EventKind::Failed => self.change_run(|run| run.state = RunState::Failed),
        }
    }

    /// Begins the run, once: only a damaged log says it again, or after something else.
    fn apply_created(&mut self, at: Timestamp, run: &RunId, rules: &RetryRules) {
        if self.run.is_none() {
            self.change_run(|_| {});
            self.run = Some(new_run(run, rules, at));
            self.reindex();
        }
    }

    fn apply_plan(&mut self, at: Timestamp, plan: &BlobHash) {
        let mut entries = self.run.iter().flat_map(|run| &run.plans).map(|entry| &entry.blob);
        if entries.any(|known| known == plan) || self.specs.pruned().any(|known| known == plan) {
            // Only a damaged log adds a plan twice; its tasks would have the names of others.
            return;
        }
        let first = self.table.len();
        if let Some(Body::Plan(body)) = self.bodies.get(plan).cloned() {
            self.add_tasks(&body, at);
        }
        // As many as came, whatever a damaged log says: prunes go by it.
        let tasks = u32::try_from(self.table.len() - first).unwrap_or(u32::MAX);
        self.change_run(|run| {
            run.plans.push(PlanRef { blob: plan.clone(), tasks });
            reopen(run);
        });
    }

    fn apply_opened(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::DriverOpened { owner, anchor, ttl_ms, token_floor } = kind else { return };
        let ttl = Duration::from_millis(*ttl_ms);
        self.change_owner(OwnerRecord {
            owner: (**owner).clone(),
            touched_at: at,
            ttl,
            ended: false,
        });
        self.change_run(|run| {
            run.driver = Some(owner.id.clone());
            run.anchor = Some(anchor.clone());
            let floor = if is_on(Mutant::FloorIgnored) { FencingToken(0) } else { *token_floor };
            run.last_token = run.last_token.max(floor);
        });
    }

    fn apply_driver_ended(&mut self, owner: &OwnerId) {
        if let Some(known) = self.owners.by_name(owner).cloned() {
            self.change_owner(OwnerRecord { ended: true, ..known });
        }
        self.change_run(|run| {
            if run.driver.as_ref() == Some(owner) {
                run.driver = None;
            }
        });
    }

    /// Changes what the run adds up.
    #[inline]
    pub(super) fn change_sums(&mut self, change: impl FnOnce(&mut RunRecord)) {
        let Some(run) = &mut self.run else { return cold_path() };
        change(run);
    }

    /// Changes anything of the run.
    pub(super) fn change_run(&mut self, change: impl FnOnce(&mut RunRecord)) {
        self.batch.run_changes(self.run.as_ref());
        if let Some(run) = &mut self.run {
            change(run);
        }
        self.note_run();
    }

    /// Notes what each claim asks of the run.
    pub(super) fn note_run(&mut self) {
        let run = self.run.as_ref();
        let driver = run.and_then(|run| run.driver.as_ref());
        self.index.driver = driver.and_then(|driver| self.owners.find(driver));
        self.index.has_budgets |= run.is_some_and(|run| run.budget.is_some());
    }

    pub(super) fn change_pool(&mut self, name: &PoolName, change: impl FnOnce(&mut PoolRecord)) {
        let old = self.pools.by_name(name).cloned();
        let mut record =
            old.clone().unwrap_or_else(|| PoolRecord::new(name.clone(), limit_default(name)));
        change(&mut record);
        self.index.has_budgets |= record.bounds.budget.is_some();
        self.pools.set(name, Some(record));
        self.batch.changed(Undo::Pool(name.clone(), old));
    }

    fn change_owner(&mut self, record: OwnerRecord) {
        let id = record.owner.id.clone();
        let old = self.owners.set(&id, Some(record));
        self.batch.changed(Undo::Owner(id, old.map(Box::new)));
    }
}

/// A run that was over may have something to do again, or may be over in another way.
pub(super) fn reopen(run: &mut RunRecord) {
    if matches!(run.state, RunState::Completed | RunState::Failed) {
        run.state = RunState::Active;
    }
}

fn new_run(id: &RunId, rules: &RetryRules, at: Timestamp) -> RunRecord {
    RunRecord {
        id: id.clone(),
        state: RunState::Active,
        rules: rules.clone(),
        last_at: at,
        last_token: FencingToken(0),
        budget: None,
        spent: Usd::ZERO,
        reserved: Usd::ZERO,
        driver: None,
        anchor: None,
        plans: Vec::new(),
        first_stage_failures: 0,
        passed_over: None,
        pilot: None,
        counts: Counts::default(),
    }
}
