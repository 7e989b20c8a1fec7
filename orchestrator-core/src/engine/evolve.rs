//! Applies events. Every change of a task goes through [`Engine::change`], which keeps the index and
//! the neighbours in step.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::batch::Undo;
use super::draft::Happening;
use super::leases::Hold;
use super::table::{Row, Saved, Way};
use crate::event::{Event, EventKind, Resolution};
use crate::id::{BlobHash, FencingToken, OwnerId, PoolName, RunId, TaskNo};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Interruption, Restart};
use crate::pipeline::{AGENTS, GATES, VERIFY};
use crate::plan::{Links, Plan};
use crate::policy::TaskGraph;
use crate::record::{
    Cause, Counts, Delay, Escalation, OwnerRecord, ParkReason, PlanRef, PoolBounds, PoolRecord,
    RunRecord, RunState, Wait,
};
use crate::retry::RetryRules;
use crate::time::Timestamp;

/// Agents, verify commands, and gates asked, at once where nobody says how many.
const AT_ONCE_DEFAULT: u32 = 4;
/// Permits of any other pool that nobody limited: merges follow one another, and what a plan names
/// without a limit is taken for a thing that exists once.
const LIMIT_DEFAULT: u32 = 1;
/// The number of a task that the run does not have.
const UNKNOWN: TaskNo = TaskNo(u32::MAX);

impl Engine {
    /// Applies an event that this engine decided, or one that follows in its log.
    ///
    /// An event that does not fit the state (which only a damaged log holds) changes as much as
    /// makes sense; [`Engine::audit`] tells.
    pub fn evolve(&mut self, event: &Event) {
        let number = |id| self.specs.number(&id).map_or(UNKNOWN, TaskNo);
        let kind = event.kind.clone().named(number);
        self.happen(&Event { at: event.at, kind });
    }

    pub(super) fn happen(&mut self, event: &Happening) {
        if let EventKind::RunCreated { run, rules } = &event.kind {
            self.change_run(|_| {});
            self.run = Some(new_run(run, rules, event.at));
        } else {
            self.apply(event.at, &event.kind);
            let counts = self.index.counts;
            self.change_sums(|run| {
                run.last_at = run.last_at.max(event.at);
                run.counts = counts;
            });
        }
        self.seq = self.seq.plus(1);
    }

    fn apply(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
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
            EventKind::PoolBounded { pool, bounds } => self.bound_pool(pool, *bounds),
            EventKind::PilotSet { tasks } => self.change_run(|run| run.pilot = *tasks),
            EventKind::BudgetSet { budget } => self.change_run(|run| run.budget = *budget),
            EventKind::DriverOpened { .. } => self.apply_opened(at, kind),
            EventKind::DriverEnded { owner } => self.apply_driver_ended(owner),
            EventKind::Granted { .. } => self.apply_grant(at, kind),
            EventKind::Passed { .. } => self.apply_passed(at, kind),
            EventKind::Rejected { .. } => self.apply_rejected(at, kind),
            EventKind::Suspended { .. } => self.apply_suspended(at, kind),
            EventKind::Interrupted { .. } => self.apply_interrupted(at, kind),
            EventKind::Escalated { .. } => self.apply_escalated(at, kind),
            EventKind::Stopping { task, reason, .. } => {
                self.change(*task, at, |row, _| {
                    if is_on(Mutant::LostLeaseIsFreeAtOnce) {
                        row.open();
                    } else {
                        row.stop(*reason);
                    }
                });
            }
            EventKind::Cancelling { task, .. } => {
                self.change(*task, at, |row, _| row.stop(Interruption::Cancelled));
            }
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

    fn apply_plan(&mut self, at: Timestamp, plan: &BlobHash, tasks: u32) {
        if let Some(body) = self.plans.get(plan).cloned() {
            self.add_tasks(&body, at);
        }
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

    fn apply_grant(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Granted { task, stage, attempt, token, owner, hard_stop, reserved } = kind
        else {
            return;
        };
        let hold = Hold {
            token: *token,
            owner: self.owners.number(owner),
            granted_at: at,
            hard_stop: *hard_stop,
            reserved: *reserved,
        };
        let had_scope = self.has(*task) && self.table.hot(task.0).holds_scope();
        self.change(*task, at, |row, cx| {
            row.set_stage(*stage);
            row.set_attempt(*attempt);
            if !row.hot().is_under_way() {
                // Only what the same attempt left can be gone on with.
                row.set_workspace(None);
            }
            let is_free = is_on(Mutant::RegrantIsNoDispatch) && row.hot().is_under_way();
            row.set_under_way(true);
            row.set_dispatches(row.hot().dispatches() + u32::from(!is_free));
            row.set_holds_scope(cx.has_scope);
            let last = row.last_token();
            row.set_last_token(*token);
            row.set_back(|detail| {
                detail.forget_settled(last);
                detail.content = None;
            });
            row.lease(hold);
        });
        self.change_sums(|run| {
            run.last_token = run.last_token.max(*token);
            run.reserved = run.reserved.plus(*reserved);
        });
        if self.has(*task) {
            self.note_passed_over(task.0, had_scope);
        }
    }

    fn apply_passed(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Passed { task, cost, candidate, merged, session, .. } = kind else { return };
        if self.has(*task) && self.table.hot(task.0).stage() == 0 {
            self.change_sums(|run| run.first_stage_failures = 0);
        }
        self.end_lease(*task, at, *cost, |row, cx| {
            row.set_stage(row.hot().stage().saturating_add(1));
            row.set_back(|detail| {
                detail.interruptions = 0;
                detail.intent = None;
            });
            if candidate.is_some() {
                row.detail_mut().candidate.clone_from(candidate);
            }
            if session.is_some() {
                row.detail_mut().session.clone_from(session);
            }
            if cx.makes && cx.makes_more {
                // The next one goes on with the change, in a conversation of its own.
                row.set_restart(Restart::OnCandidate);
                row.set_back(|detail| detail.session = None);
            }
            if usize::from(row.hot().stage()) < cx.stages {
                row.open();
                return;
            }
            if merged.is_some() {
                row.detail_mut().merged.clone_from(merged);
            }
            row.finish(if merged.is_some() { Way::Merged } else { Way::Verified });
            row.set_under_way(false);
            row.set_holds_scope(false);
        });
    }

    fn apply_rejected(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Rejected { task, cost, feedback, signature, restart, .. } = kind else {
            return;
        };
        let EventKind::Rejected { candidate, session, until, .. } = kind else { return };
        self.count_first_stage_failure(*task);
        self.end_lease(*task, at, *cost, |row, cx| {
            let is_free = is_on(Mutant::ReviewRejectionIsFree) && row.hot().stage() > 0;
            let rejected_at = usize::from(row.hot().stage());
            if *until > at {
                row.defer(*until, Wait::Other(Delay::Rejected));
            } else {
                row.open();
            }
            // What begins anew on the target begins with the first stage.
            let anew = *restart == Restart::OnTarget || is_on(Mutant::RejectionGoesToFirst);
            row.set_stage(if anew { 0 } else { cx.back });
            row.set_under_way(false);
            row.set_restart(*restart);
            let detail = row.detail_mut();
            detail.rejections += u32::from(!is_free);
            if cx.has_rounds {
                let length = detail.rounds.len().max(rejected_at + 1);
                detail.rounds.resize(length, 0);
                detail.rounds[rejected_at] += 1;
            }
            detail.interruptions = 0;
            detail.intent = None;
            detail.feedback.push(feedback.clone());
            detail.signature = Some(*signature);
            if candidate.is_some() {
                detail.candidate.clone_from(candidate);
            }
            detail.session.clone_from(session);
        });
    }

    fn apply_suspended(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Suspended { task, cost, until, .. } = kind else { return };
        self.end_lease(*task, at, *cost, |row, _| {
            row.detail_mut().deferrals += 1;
            row.defer(*until, Wait::Other(Delay::GateClosed));
        });
    }

    fn apply_interrupted(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Interrupted { task, cost, reason, until, session, .. } = kind else {
            return;
        };
        self.end_lease(*task, at, *cost, |row, _| {
            let detail = row.detail_mut();
            let is_counted = !matches!(
                reason,
                Interruption::Shutdown | Interruption::UsageLimit | Interruption::Cancelled
            );
            let burns = is_on(Mutant::UsageLimitBurnsInterruptions);
            detail.interruptions += u32::from(is_counted || burns);
            detail.settled = *cost;
            if session.is_some() {
                detail.session.clone_from(session);
            }
            if *reason == Interruption::Cancelled {
                row.set_holds_scope(false);
                row.set_under_way(false);
                row.cancel();
            } else if *until > at {
                row.defer(*until, Wait::Interrupted(*reason));
            } else {
                row.open();
            }
            if is_on(Mutant::InterruptionStartsAnew) {
                row.set_stage(0);
            }
            if is_on(Mutant::InterruptionSpendsAttempt) {
                row.set_under_way(false);
            }
        });
        if *reason == Interruption::Cancelled {
            self.change_run(reopen);
        }
    }

    fn apply_escalated(&mut self, at: Timestamp, kind: &EventKind<TaskNo>) {
        let EventKind::Escalated { task, token, cost, cause, text, kept } = kind else { return };
        if token.is_some() && *cause == Cause::Fatal {
            self.count_first_stage_failure(*task);
        }
        let escalation = Escalation { cause: *cause, text: text.clone(), kept: kept.clone() };
        self.end_lease(*task, at, *cost, |row, _| {
            row.set_under_way(false);
            let keeps = is_on(Mutant::EscalatedKeepsScope) && row.hot().holds_scope();
            row.set_holds_scope(keeps);
            row.escalate(escalation);
        });
    }

    fn apply_refused(&mut self, kind: &EventKind<TaskNo>) {
        let EventKind::ResultRefused { task, token, cost, .. } = kind else { return };
        self.change_sums(|run| run.spent = run.spent.plus(*cost));
        self.book_to_pools(*task, *cost);
        self.touch(*task, |row| {
            row.spend(*cost);
            let detail = row.detail_mut();
            detail.refused = detail.refused.max(Some(*token));
            detail.unheard.retain(|lease| lease.token != *token);
        });
    }

    fn apply_retried(&mut self, at: Timestamp, task: TaskNo) {
        if is_on(Mutant::RetryHitsOthers) {
            let all = (0_u32..).zip(self.table.all_hot());
            let others = all.filter(|(other, hot)| *other != task.0 && hot.kind().is_dead_end());
            let other = others.map(|(other, _)| TaskNo(other)).last();
            other.into_iter().for_each(|other| self.change(other, at, |row, _| row.open()));
        }
        self.change(task, at, |row, _| {
            let escalation = row.detail().escalation.as_ref();
            let cause = escalation.map(|escalation| escalation.cause);
            // A merge in doubt is found out about, and a gate that stayed closed is asked again:
            // what was judged before is as it was.
            if row.detail().intent.is_none() && cause != Some(Cause::DeferralsUsed) {
                row.set_stage(0);
            }
            row.open();
            allow_anew(row);
        });
        self.change_run(reopen);
    }

    fn apply_resolved(&mut self, at: Timestamp, task: TaskNo, how: Resolution) {
        self.change(task, at, |row, cx| {
            let way = match how {
                Resolution::ByHand => Way::ByHand,
                Resolution::Skip => Way::Skipped,
                Resolution::Approve => {
                    row.set_stage(row.hot().stage().saturating_add(1));
                    allow_anew(row);
                    if usize::from(row.hot().stage()) < cx.stages {
                        row.set_under_way(true);
                        row.open();
                        return;
                    }
                    Way::Verified
                }
            };
            row.set_holds_scope(false);
            row.set_under_way(false);
            row.finish(way);
        });
        self.change_run(reopen);
    }

    fn apply_cancelled(&mut self, at: Timestamp, task: TaskNo) {
        self.change(task, at, |row, _| {
            let keeps = is_on(Mutant::CancelledKeepsScope) && row.hot().holds_scope();
            row.set_holds_scope(keeps);
            row.set_under_way(false);
            row.cancel();
        });
        self.change_run(reopen);
    }

    /// Changes a task whose lease ends, and books what that cost.
    fn end_lease(
        &mut self,
        task: TaskNo,
        at: Timestamp,
        cost: Usd,
        change: impl FnOnce(&mut Row<'_>, &Context),
    ) {
        let mut reserved = Usd::ZERO;
        self.book_to_pools(task, cost);
        self.change(task, at, |row, cx| {
            if let Some(hold) = row.hold() {
                reserved = hold.reserved;
                if cx.makes {
                    row.set_workspace(Some(hold.token));
                }
            }
            row.spend(cost);
            change(row, cx);
        });
        self.change_sums(|run| {
            let is_given_back = !is_on(Mutant::ReservationLeaks);
            run.reserved = if is_given_back { run.reserved.minus(reserved) } else { run.reserved };
            run.spent = run.spent.plus(cost);
        });
    }

    fn count_first_stage_failure(&mut self, task: TaskNo) {
        if self.has(task) && self.table.hot(task.0).stage() == 0 {
            self.change_sums(|run| run.first_stage_failures += 1);
        }
    }

    pub(super) const fn has(&self, task: TaskNo) -> bool {
        (task.0 as usize) < self.table.len()
    }

    /// Changes a task and notes when its phase began; brings all that is computed in step.
    fn change(&mut self, task: TaskNo, at: Timestamp, change: impl FnOnce(&mut Row<'_>, &Context)) {
        if !self.has(task) {
            return;
        }
        let number = task.0;
        let (profile, stage) = (self.specs.profile(number), self.table.hot(number).stage());
        let cx = Context {
            has_scope: self.index.locks.has_scope(number),
            stages: profile.classes.len(),
            makes: profile.makes(stage),
            makes_more: profile.makes_more(stage),
            back: profile.back(stage),
            has_rounds: profile.has_rounds(stage),
        };
        self.batch.task_changes(&self.table, number);
        let before = *self.table.hot(number);
        self.unlink(number);
        let mut row = self.table.row(number);
        change(&mut row, &cx);
        row.set_since(at);
        self.changed(number, before.kind(), before.holds_scope());
    }

    /// Makes a task what it was.
    pub(super) fn restore_task(&mut self, number: u32, saved: Saved) {
        let before = *self.table.hot(number);
        self.unlink(number);
        self.table.restore(number, saved);
        self.changed(number, before.kind(), before.holds_scope());
    }

    /// Changes a task within its phase.
    fn touch(&mut self, task: TaskNo, change: impl FnOnce(&mut Row<'_>)) {
        if !self.has(task) {
            return;
        }
        self.batch.task_changes(&self.table, task.0);
        // What it has spent may decide whether it can run.
        let is_queued = self.table.hot(task.0).is_ready() && self.specs.budget(task.0).is_some();
        if is_queued {
            self.unlink(task.0);
        }
        change(&mut self.table.row(task.0));
        if is_queued {
            let hot = *self.table.hot(task.0);
            self.changed(task.0, hot.kind(), hot.holds_scope());
        }
    }

    /// Changes what the run adds up.
    pub(super) fn change_sums(&mut self, change: impl FnOnce(&mut RunRecord)) {
        if let Some(run) = &mut self.run {
            self.batch.sums_change(run);
            change(run);
        }
    }

    /// Changes anything of the run.
    pub(super) fn change_run(&mut self, change: impl FnOnce(&mut RunRecord)) {
        self.batch.run_changes(self.run.as_ref());
        if let Some(run) = &mut self.run {
            change(run);
        }
    }

    pub(super) fn change_pool(&mut self, name: &PoolName, change: impl FnOnce(&mut PoolRecord)) {
        let old = self.pools.by_name(name).cloned();
        let mut record =
            old.clone().unwrap_or_else(|| PoolRecord::new(name.clone(), LIMIT_DEFAULT));
        change(&mut record);
        self.pools.set(name, Some(record));
        self.batch.changed(Undo::Pool(name.clone(), old));
    }

    fn change_owner(&mut self, record: OwnerRecord) {
        let id = record.owner.id.clone();
        let old = self.owners.set(&id, Some(record));
        self.batch.changed(Undo::Owner(id, old.map(Box::new)));
    }

    /// Adds the tasks of a checked plan behind those that are there.
    fn add_tasks(&mut self, plan: &Arc<Plan>, at: Timestamp) {
        self.batch.changed(Undo::Tasks(self.table.len()));
        let links = self.batch.links.take();
        let mentioned = self.add_specs(plan, links);
        self.table.reserve(plan.tasks.len());
        for _ in &plan.tasks {
            self.table.push(at);
        }
        for (pool, limit) in &plan.pools {
            self.change_pool(pool, |record| record.limit = *limit);
        }
        self.know_pools(mentioned.iter().chain(plan.pool_bounds.keys()));
        for (pool, bounds) in &plan.pool_bounds {
            self.change_pool(pool, |record| {
                let known = record.bounds;
                record.bounds = PoolBounds {
                    budget: known.budget.or(bounds.budget),
                    in_flight_max: bounds.in_flight_max.or(known.in_flight_max),
                };
            });
        }
        if plan.budget.is_some() {
            self.change_run(|run| run.budget = plan.budget);
        }
        self.rank();
    }

    /// Makes pools that nobody limited with the limits that they have then.
    pub(super) fn know_pools<'a>(&mut self, pools: impl IntoIterator<Item = &'a PoolName>) {
        for pool in pools {
            if self.pools.by_name(pool).is_none() {
                self.change_pool(pool, |record| record.limit = limit_default(pool));
            }
        }
    }

    /// Takes in what a plan says of its tasks; gives the pools that they need.
    pub(super) fn add_specs(
        &mut self,
        plan: &Arc<Plan>,
        links: Option<Box<Links>>,
    ) -> BTreeSet<PoolName> {
        let mut mentioned = BTreeSet::new();
        let first = self.specs.len();
        let Self { specs, index, pools, .. } = self;
        specs.add(plan, links, |pipeline, stage, needs| {
            let spec = stage.and_then(|stage| pipeline.stage(stage));
            mentioned.extend(spec.map(|stage| stage.pool.clone()));
            mentioned.extend(needs.keys().cloned());
            index.class(pools, pipeline, stage, needs)
        });
        for number in (0_u32..).take(specs.len()).skip(first) {
            index.locks.add(number, specs.spec(number).scope.as_ref());
        }
        mentioned
    }

    /// Takes out the tasks from this one on, which are those of the last plan.
    pub(super) fn remove_tasks(&mut self, first: usize) {
        self.table.truncate(first);
        self.specs.remove_last();
        self.index.locks.truncate(first);
        self.rank();
    }

    /// Asks the policy for the ranks, and sorts what is ready by them.
    pub(super) fn rank(&mut self) {
        let graph = TaskGraph::new(&self.specs);
        let ranks = self.policy.ranks(&graph);
        let rank = |task: u32| ranks.get(task as usize).copied().unwrap_or(0);
        let mut turns: Vec<(i32, u64, u32)> = (0_u32..)
            .take(self.specs.len())
            // Greater ones go first, and `!` turns the order around.
            .map(|task| (!self.specs.spec(task).priority, !rank(task), task))
            .collect();
        turns.sort_unstable();
        self.index.order = vec![0; turns.len()];
        let (mut place, mut last) = (0_u32, None);
        for (priority, rank, task) in turns {
            if last.is_some_and(|last| last != (priority, rank)) {
                place += 1;
            }
            last = Some((priority, rank));
            self.index.order[task as usize] = place;
        }
        self.reindex();
    }
}

/// What a change of a task may depend on beside its state.
pub(super) struct Context {
    has_scope: bool,
    stages: usize,
    /// Whether its stage makes a change, and whether a later one makes another.
    makes: bool,
    makes_more: bool,
    /// Where a rejection by its stage goes, and whether those are counted.
    back: u8,
    has_rounds: bool,
}

/// Gives a task that a person has go on all that a new one may use.
fn allow_anew(row: &mut Row<'_>) {
    let dispatches = row.hot().dispatches();
    let detail = row.detail_mut();
    detail.extra.retries = detail.rejections;
    detail.extra.dispatches = dispatches.saturating_sub(detail.deferrals);
    detail.extra.deferrals = detail.deferrals;
    detail.rounds.clear();
    detail.interruptions = 0;
    detail.signature = None;
}

/// The limit of a pool that nobody limited.
fn limit_default(pool: &PoolName) -> u32 {
    match pool.as_str() {
        AGENTS | VERIFY | GATES => AT_ONCE_DEFAULT,
        _ => LIMIT_DEFAULT,
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
