//! Applies events. Every change of a task's record goes through [`Engine::replace`], which keeps the
//! index and the neighbours in step.

use std::sync::Arc;
use std::time::Duration;

use super::batch::Undo;
use super::index::{is_dead_end, lease};
use super::{Engine, Entry};
use crate::event::{Event, EventKind, Resolution};
use crate::id::{BlobHash, FencingToken, PoolName, RunId, TaskId};
use crate::lease::Lease;
use crate::money::Usd;
use crate::outcome::{Interruption, Restart};
use crate::pipeline::{AGENTS, VERIFY};
use crate::plan::Plan;
use crate::policy::TaskGraph;
use crate::record::{
    Cause, Completion, Counts, Escalation, Extra, OwnerRecord, Phase, PlanRef, PoolRecord,
    RunRecord, RunState, TaskRecord,
};
use crate::retry::RetryRules;
use crate::time::Timestamp;

/// Agents, and verify commands, at once where nobody says how many.
const AT_ONCE_DEFAULT: u32 = 4;
/// Permits of any other pool that nobody limited: merges follow one another, and what a plan names
/// without a limit is taken for a thing that exists once.
const LIMIT_DEFAULT: u32 = 1;

impl Engine {
    /// Applies an event that this engine decided, or one that follows in its log.
    ///
    /// An event that does not fit the state (which only a damaged log holds) changes as much as
    /// makes sense; [`Engine::audit`] tells.
    pub fn evolve(&mut self, event: &Event) {
        if let EventKind::RunCreated { run, rules } = &event.kind {
            self.change_run(|_| {});
            self.run = Some(new_run(run, rules, event.at));
            self.seq = self.seq.plus(1);
            return;
        }
        self.apply(event.at, &event.kind);
        self.change_run(|run| run.last_at = run.last_at.max(event.at));
        self.seq = self.seq.plus(1);
    }

    fn apply(&mut self, at: Timestamp, kind: &EventKind) {
        match kind {
            EventKind::RunCreated { .. } => {}
            EventKind::PlanAdded { plan, tasks } => self.apply_plan(at, plan, *tasks),
            EventKind::PoolLimited { pool, limit } => {
                self.change_pool(pool, |record| record.limit = *limit);
            }
            EventKind::PoolClosed { pool, until } => {
                self.change_pool(pool, |record| record.closed_until = Some(*until));
            }
            EventKind::PoolOpened { pool } => {
                self.change_pool(pool, |record| record.closed_until = None);
            }
            EventKind::BudgetSet { budget } => self.change_run(|run| run.budget = *budget),
            EventKind::DriverOpened { .. } => self.apply_opened(at, kind),
            EventKind::DriverEnded { owner } => {
                if let Some(known) = self.owners.get(owner) {
                    self.change_owner(OwnerRecord { ended: true, ..known.clone() });
                }
                self.change_run(|run| {
                    if run.driver.as_ref() == Some(owner) {
                        run.driver = None;
                    }
                });
            }
            EventKind::Granted { .. } => self.apply_grant(at, kind),
            EventKind::Passed { .. } => self.apply_passed(at, kind),
            EventKind::Rejected { .. } => self.apply_rejected(at, kind),
            EventKind::Interrupted { .. } => self.apply_interrupted(at, kind),
            EventKind::Escalated { .. } => self.apply_escalated(at, kind),
            EventKind::Stopping { .. } => self.apply_stopping(at, kind),
            EventKind::ResultRefused { .. } => self.apply_refused(kind),
            EventKind::MergeIntended { task, intent, .. } => {
                self.touch_task(task, |record| record.intent = Some(intent.clone()));
            }
            EventKind::Due { task } => {
                self.change_task(task, at, |record, _| record.phase = Phase::Open);
            }
            EventKind::Retried { task, .. } => self.apply_retried(at, task),
            EventKind::Resolved { task, how, .. } => self.apply_resolved(at, task, *how),
            EventKind::Cancelled { task, .. } => self.apply_cancelled(at, task),
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
                run.state = RunState::Active;
                run.first_stage_failures = 0;
            }),
            EventKind::Completed => self.change_run(|run| run.state = RunState::Completed),
            EventKind::Failed => self.change_run(|run| run.state = RunState::Failed),
        }
    }

    fn apply_plan(&mut self, at: Timestamp, plan: &BlobHash, tasks: u32) {
        if let Some(body) = self.plans.get(plan).cloned() {
            self.add_tasks(&body, at);
            self.rank();
        }
        self.change_run(|run| {
            run.plans.push(PlanRef { blob: plan.clone(), tasks });
            reopen(run);
        });
    }

    fn apply_opened(&mut self, at: Timestamp, kind: &EventKind) {
        let EventKind::DriverOpened { owner, anchor, ttl_ms, token_floor } = kind else { return };
        let ttl = Duration::from_millis(*ttl_ms);
        self.change_owner(OwnerRecord { owner: owner.clone(), touched_at: at, ttl, ended: false });
        self.change_run(|run| {
            run.driver = Some(owner.id.clone());
            run.anchor = Some(anchor.clone());
            run.last_token = run.last_token.max(*token_floor);
        });
    }

    fn apply_grant(&mut self, at: Timestamp, kind: &EventKind) {
        let EventKind::Granted { task, stage, attempt, token, owner, hard_stop, reserved } = kind
        else {
            return;
        };
        let lease = Lease {
            token: *token,
            owner: owner.clone(),
            granted_at: at,
            hard_stop: *hard_stop,
            reserved: *reserved,
        };
        self.change_task(task, at, |record, entry| {
            record.stage = *stage;
            record.attempt = *attempt;
            record.under_way = true;
            record.dispatches += 1;
            record.holds_scope = entry.spec.scope.is_some();
            record.last_token = *token;
            record.settled = Usd::ZERO;
            if *stage == 0 {
                record.workspace = Some(*token);
            }
            record.phase = Phase::Leased(lease);
        });
        self.change_run(|run| {
            run.last_token = run.last_token.max(*token);
            run.reserved = run.reserved.plus(*reserved);
        });
    }

    fn apply_passed(&mut self, at: Timestamp, kind: &EventKind) {
        let EventKind::Passed { task, cost, candidate, merged, session, .. } = kind else { return };
        self.settle(task, *cost);
        self.change_run(|run| run.first_stage_failures = 0);
        self.change_task(task, at, |record, entry| {
            record.stage = record.stage.saturating_add(1);
            record.interruptions = 0;
            record.intent = None;
            record.candidate = candidate.clone().or_else(|| record.candidate.take());
            record.session = session.clone().or_else(|| record.session.take());
            record.phase = Phase::Open;
            if usize::from(record.stage) >= entry.pipeline.stages().len() {
                let completion = merged.clone().map_or(Completion::Verified, Completion::Merged);
                record.phase = Phase::Done(completion);
                record.under_way = false;
                record.holds_scope = false;
            }
        });
    }

    fn apply_rejected(&mut self, at: Timestamp, kind: &EventKind) {
        let EventKind::Rejected { task, cost, feedback, signature, restart, .. } = kind else {
            return;
        };
        let EventKind::Rejected { candidate, session, .. } = kind else { return };
        self.settle(task, *cost);
        self.count_first_stage_failure(task);
        self.change_task(task, at, |record, _| {
            record.stage = 0;
            record.under_way = false;
            record.rejections += 1;
            record.interruptions = 0;
            record.intent = None;
            record.feedback.push(feedback.clone());
            record.signature = Some(*signature);
            record.restart = *restart;
            record.candidate = candidate.clone().or_else(|| record.candidate.take());
            record.session = session.clone();
            record.phase = Phase::Open;
        });
    }

    fn apply_interrupted(&mut self, at: Timestamp, kind: &EventKind) {
        let EventKind::Interrupted { task, cost, reason, until, session, .. } = kind else {
            return;
        };
        self.settle(task, *cost);
        self.change_task(task, at, |record, _| {
            if !matches!(reason, Interruption::Shutdown | Interruption::UsageLimit) {
                record.interruptions += 1;
            }
            record.settled = *cost;
            record.session = session.clone().or_else(|| record.session.take());
            record.phase = if *until > at {
                Phase::Deferred { until: *until, why: *reason }
            } else {
                Phase::Open
            };
        });
    }

    fn apply_escalated(&mut self, at: Timestamp, kind: &EventKind) {
        let EventKind::Escalated { task, token, cost, cause, text, kept } = kind else { return };
        self.settle(task, *cost);
        if token.is_some() && *cause == Cause::Fatal {
            self.count_first_stage_failure(task);
        }
        let escalation = Escalation { cause: *cause, text: text.clone(), kept: kept.clone() };
        self.change_task(task, at, |record, _| {
            record.under_way = false;
            record.holds_scope = false;
            record.phase = Phase::Escalated(escalation);
        });
    }

    fn apply_stopping(&mut self, at: Timestamp, kind: &EventKind) {
        let EventKind::Stopping { task, reason, .. } = kind else { return };
        self.change_task(task, at, |record, _| {
            if let Phase::Leased(lease) = &record.phase {
                record.phase = Phase::Stopping { lease: lease.clone(), why: *reason };
            }
        });
    }

    fn apply_refused(&mut self, kind: &EventKind) {
        let EventKind::ResultRefused { task, token, cost, .. } = kind else { return };
        self.change_run(|run| run.spent = run.spent.plus(*cost));
        self.touch_task(task, |record| {
            record.refused = record.refused.max(Some(*token));
            record.spent = record.spent.plus(*cost);
        });
    }

    fn apply_retried(&mut self, at: Timestamp, task: &TaskId) {
        self.change_task(task, at, |record, _| {
            if record.intent.is_none() {
                record.stage = 0;
            }
            record.extra.retries = record.rejections;
            record.extra.dispatches = record.dispatches;
            record.interruptions = 0;
            record.signature = None;
            record.phase = Phase::Open;
        });
        self.change_run(reopen);
    }

    fn apply_resolved(&mut self, at: Timestamp, task: &TaskId, how: Resolution) {
        self.change_task(task, at, |record, _| {
            record.holds_scope = false;
            record.under_way = false;
            record.phase = Phase::Done(match how {
                Resolution::ByHand => Completion::ByHand,
                Resolution::Skip => Completion::Skipped,
            });
        });
        self.change_run(reopen);
    }

    fn apply_cancelled(&mut self, at: Timestamp, task: &TaskId) {
        self.change_task(task, at, |record, _| {
            record.holds_scope = false;
            record.under_way = false;
            record.phase = Phase::Cancelled;
        });
        self.change_run(reopen);
    }

    /// Ends the money side of a task's lease.
    fn settle(&mut self, task: &TaskId, cost: Usd) {
        let reserved = self.record(task).and_then(|record| lease(&record.phase));
        let reserved = reserved.map_or(Usd::ZERO, |lease| lease.reserved);
        self.change_run(|run| {
            run.reserved = run.reserved.minus(reserved);
            run.spent = run.spent.plus(cost);
        });
        self.touch_task(task, |record| record.spent = record.spent.plus(cost));
    }

    fn count_first_stage_failure(&mut self, task: &TaskId) {
        if self.record(task).is_some_and(|record| record.stage == 0) {
            self.change_run(|run| run.first_stage_failures += 1);
        }
    }

    /// Changes a task and notes when its phase began.
    fn change_task(
        &mut self,
        task: &TaskId,
        at: Timestamp,
        change: impl FnOnce(&mut TaskRecord, &Entry),
    ) {
        let Some(number) = self.numbers.get(task).copied() else { return };
        let place = number as usize;
        let mut record = self.tasks[place].clone();
        change(&mut record, &self.entries[place]);
        record.since = at;
        self.replace(number, record);
    }

    /// Changes a task within its phase.
    fn touch_task(&mut self, task: &TaskId, change: impl FnOnce(&mut TaskRecord)) {
        let Some(number) = self.numbers.get(task).copied() else { return };
        let mut record = self.tasks[number as usize].clone();
        change(&mut record);
        self.replace(number, record);
    }

    /// Puts a record in the place of another and brings all that is computed in step.
    pub(super) fn replace(&mut self, number: u32, record: TaskRecord) {
        let place = number as usize;
        let old = std::mem::replace(&mut self.tasks[place], record);
        self.index.unlink(number, &self.entries[place], &old);
        self.index.link(number, &self.entries[place], &self.tasks[place]);
        self.tell_dependents(number, &old.phase);
        if let Some(batch) = &mut self.batch {
            batch.undo.push(Undo::Task(number, Box::new(old)));
        }
    }

    /// Tells the tasks that wait for this one what its new phase means for them.
    fn tell_dependents(&mut self, number: u32, old: &Phase) {
        let place = number as usize;
        let new = &self.tasks[place].phase;
        let was_done = matches!(old, Phase::Done(_));
        let is_done = matches!(new, Phase::Done(_));
        let blocked = self.entries[place].dead > 0;
        let was_dead = is_dead_end(old) || (blocked && !was_done);
        let is_dead = is_dead_end(new) || (blocked && !is_done);
        if was_done != is_done {
            for next in self.entries[place].dependents.clone() {
                self.change_entry(
                    next,
                    |entry| {
                        if is_done { entry.unmet -= 1 } else { entry.unmet += 1 }
                    },
                );
            }
        }
        if was_dead != is_dead {
            self.cascade(number, is_dead);
        }
    }

    /// Carries through the graph that a task became, or ceased to be, a dead end.
    fn cascade(&mut self, number: u32, is_dead: bool) {
        let mut stack: Vec<u32> = vec![number];
        while let Some(from) = stack.pop() {
            for next in self.entries[from as usize].dependents.clone() {
                let was = self.is_dead(next);
                self.change_entry(
                    next,
                    |entry| {
                        if is_dead { entry.dead += 1 } else { entry.dead -= 1 }
                    },
                );
                if was != self.is_dead(next) {
                    stack.push(next);
                }
            }
        }
    }

    fn is_dead(&self, number: u32) -> bool {
        let phase = &self.tasks[number as usize].phase;
        let blocked = self.entries[number as usize].dead > 0 && !matches!(phase, Phase::Done(_));
        blocked || is_dead_end(phase)
    }

    fn change_entry(&mut self, number: u32, change: impl FnOnce(&mut Entry)) {
        let place = number as usize;
        self.index.unlink(number, &self.entries[place], &self.tasks[place]);
        change(&mut self.entries[place]);
        self.index.link(number, &self.entries[place], &self.tasks[place]);
    }

    pub(super) fn change_run(&mut self, change: impl FnOnce(&mut RunRecord)) {
        if let Some(batch) = &mut self.batch {
            batch.undo.push(Undo::Run(self.run.clone().map(Box::new)));
        }
        if let Some(run) = &mut self.run {
            change(run);
            run.counts = self.index.counts;
        }
    }

    fn change_pool(&mut self, name: &PoolName, change: impl FnOnce(&mut PoolRecord)) {
        let old = self.pools.get(name).cloned();
        let mut record = old.clone().unwrap_or_else(|| PoolRecord {
            name: name.clone(),
            limit: LIMIT_DEFAULT,
            closed_until: None,
        });
        change(&mut record);
        self.pools.insert(name.clone(), record);
        if let Some(batch) = &mut self.batch {
            batch.undo.push(Undo::Pool(name.clone(), old));
        }
    }

    fn change_owner(&mut self, record: OwnerRecord) {
        let id = record.owner.id.clone();
        let old = self.owners.insert(id.clone(), record);
        if let Some(batch) = &mut self.batch {
            batch.undo.push(Undo::Owner(id, old.map(Box::new)));
        }
    }

    /// Adds the tasks of a checked plan behind those that are there.
    pub(super) fn add_tasks(&mut self, plan: &Plan, at: Timestamp) {
        if let Some(batch) = &mut self.batch {
            batch.undo.push(Undo::Tasks(self.tasks.len()));
        }
        let first = self.tasks.len();
        for spec in &plan.tasks {
            let number = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
            self.numbers.insert(spec.id.clone(), number);
            self.tasks.push(new_task(&spec.id, at));
            self.entries.push(Entry {
                spec: Arc::new(spec.clone()),
                pipeline: Arc::new(plan.pipeline_of(spec).unwrap_or_default()),
                depends_on: Vec::new(),
                dependents: Vec::new(),
                rank: 0,
                unmet: 0,
                dead: 0,
            });
        }
        for place in first..self.tasks.len() {
            self.connect(place);
        }
        let mentioned: Vec<PoolName> = self.entries[first..].iter().flat_map(pools_of).collect();
        for pool in mentioned.iter().chain(plan.pools.keys()) {
            let limit = plan.pools.get(pool).copied();
            if limit.is_some() || !self.pools.contains_key(pool) {
                let limit = limit.unwrap_or_else(|| limit_default(pool));
                self.change_pool(pool, |record| record.limit = limit);
            }
        }
        if plan.budget.is_some() {
            self.change_run(|run| run.budget = plan.budget);
        }
    }

    fn connect(&mut self, place: usize) {
        let number = u32::try_from(place).unwrap_or(u32::MAX);
        let names = self.entries[place].spec.depends_on.clone();
        let mut depends_on: Vec<u32> =
            names.iter().filter_map(|name| self.numbers.get(name).copied()).collect();
        depends_on.sort_unstable();
        depends_on.dedup();
        for from in &depends_on {
            self.entries[*from as usize].dependents.push(number);
        }
        let open = |from: &&u32| !matches!(self.tasks[**from as usize].phase, Phase::Done(_));
        let unmet = depends_on.iter().filter(open).count();
        let dead = depends_on.iter().filter(|from| self.is_dead(**from)).count();
        let entry = &mut self.entries[place];
        entry.unmet = u32::try_from(unmet).unwrap_or(u32::MAX);
        entry.depends_on = depends_on;
        self.index.link(number, &self.entries[place], &self.tasks[place]);
        if dead > 0 {
            // A task may come before those it depends on; what is dead then is told to it here.
            for _ in 0..dead {
                let was = self.is_dead(number);
                self.change_entry(number, |entry| entry.dead += 1);
                if was != self.is_dead(number) {
                    self.cascade(number, true);
                }
            }
        }
    }

    /// Takes out the tasks from this place on.
    pub(super) fn remove_tasks(&mut self, first: usize) {
        for place in (first..self.tasks.len()).rev() {
            let number = u32::try_from(place).unwrap_or(u32::MAX);
            self.index.unlink(number, &self.entries[place], &self.tasks[place]);
            for from in self.entries[place].depends_on.clone() {
                self.entries[from as usize].dependents.retain(|next| *next != number);
            }
            self.numbers.remove(&self.tasks[place].id);
        }
        self.tasks.truncate(first);
        self.entries.truncate(first);
    }

    /// Asks the policy for the ranks, and sorts what is ready by them.
    pub(super) fn rank(&mut self) {
        let views = self.entries.iter().map(|entry| (&*entry.spec, entry.dependents.as_slice()));
        let ranks = self.policy.ranks(&TaskGraph::new(views));
        for place in 0..self.entries.len() {
            let rank = ranks.get(place).copied().unwrap_or(0);
            if self.entries[place].rank != rank {
                let number = u32::try_from(place).unwrap_or(u32::MAX);
                self.change_entry(number, |entry| entry.rank = rank);
            }
        }
    }

    pub(super) fn record(&self, task: &TaskId) -> Option<&TaskRecord> {
        self.numbers.get(task).and_then(|number| self.tasks.get(*number as usize))
    }
}

/// The pools that a task takes permits from.
fn pools_of(entry: &Entry) -> Vec<PoolName> {
    let stages = entry.pipeline.stages().iter().map(|stage| stage.pool.clone());
    stages.chain(entry.spec.needs.keys().cloned()).collect()
}

/// The limit of a pool that nobody limited.
fn limit_default(pool: &PoolName) -> u32 {
    match pool.as_str() {
        AGENTS | VERIFY => AT_ONCE_DEFAULT,
        _ => LIMIT_DEFAULT,
    }
}

/// A run that was over may have something to do again, or may be over in another way.
fn reopen(run: &mut RunRecord) {
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
        counts: Counts::default(),
    }
}

fn new_task(id: &TaskId, at: Timestamp) -> TaskRecord {
    TaskRecord {
        id: id.clone(),
        phase: Phase::Open,
        stage: 0,
        attempt: 0,
        under_way: false,
        rejections: 0,
        interruptions: 0,
        dispatches: 0,
        extra: Extra::default(),
        feedback: Vec::new(),
        signature: None,
        restart: Restart::OnTarget,
        holds_scope: false,
        workspace: None,
        session: None,
        candidate: None,
        intent: None,
        last_token: FencingToken(0),
        settled: Usd::ZERO,
        refused: None,
        spent: Usd::ZERO,
        since: at,
    }
}
