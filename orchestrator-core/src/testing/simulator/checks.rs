//! The promises, by definition: slower than the engine, and written without its index.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::{Answer, Command, Grant, StageReport};
use crate::engine::{Engine, Reason};
use crate::event::{EVENT_BYTES_MAX, Event, EventKind};
use crate::id::{CommandId, FencingToken, PoolName, TaskId};
use crate::money::{Cost, Usd};
use crate::pipeline::StageSpec;
use crate::record::{
    OwnerRecord, PassedOver, Phase, PoolRecord, Records, RunRecord, RunState, TaskRecord,
};
use crate::task::TaskSpec;
use crate::time::Timestamp;

pub(in crate::testing) type Check = Result<(), String>;

/// What a store has: the records of all commits, each in the place of the one before.
#[derive(Debug, Default)]
pub(super) struct Kept {
    run: Option<RunRecord>,
    tasks: Vec<TaskRecord>,
    pools: Vec<PoolRecord>,
    owners: Vec<OwnerRecord>,
}

impl Kept {
    pub(super) fn take(&mut self, records: Records) {
        self.run = records.run.or_else(|| self.run.take());
        for (number, task) in records.tasks {
            match self.tasks.get_mut(number as usize) {
                Some(known) => *known = task,
                None => self.tasks.push(task),
            }
        }
        for pool in records.pools {
            self.pools.retain(|known| known.name != pool.name);
            self.pools.push(pool);
        }
        for owner in records.owners {
            self.owners.retain(|known| known.owner.id != owner.owner.id);
            self.owners.push(owner);
        }
        self.pools.sort_by(|one, two| one.name.cmp(&two.name));
        self.owners.sort_by(|one, two| one.owner.id.cmp(&two.owner.id));
    }

    /// P5: the records are the engine's.
    pub(super) fn check(&self, engine: &Engine) -> Check {
        let same = self.run.as_ref() == engine.run()
            && self.tasks.iter().cloned().eq(engine.tasks())
            && self.pools.iter().eq(engine.pools())
            && self.owners.iter().eq(engine.owners());
        if same { Ok(()) } else { Err("P5: a commit left out a record that changed".to_owned()) }
    }
}

/// P5: two engines are the same, as far as anyone can ask.
pub(super) fn same(one: &Engine, two: &Engine, now: Timestamp) -> bool {
    one.seq() == two.seq()
        && one.run() == two.run()
        && one.tasks().eq(two.tasks())
        && one.pools().eq(two.pools())
        && one.owners().eq(two.owners())
        && one.blocked() == two.blocked()
        && grants(one, now) == grants(two, now)
}

/// What an engine would grant, one after the other.
fn grants(engine: &Engine, now: Timestamp) -> Vec<Answer> {
    let mut engine = engine.clone();
    let Some(owner) = engine.run().and_then(|run| run.driver.clone()) else { return Vec::new() };
    let id = CommandId::parse("probe").expect("a valid id");
    let claim = Command::Claim { owner };
    let mut all = Vec::new();
    while let Ok(answer @ Answer::Granted { .. }) = engine.submit(now, &id, &claim) {
        all.push(answer);
    }
    all
}

/// P10: each lease is settled once. P14: time never goes back. P16: events are small.
#[derive(Debug, Default)]
pub(super) struct Log {
    last_at: Timestamp,
    live: BTreeSet<FencingToken>,
    /// For each lease, what may be booked for it at most, and what was.
    books: BTreeMap<FencingToken, (Usd, Usd)>,
    spent: Usd,
    pub(super) events: usize,
}

impl Log {
    /// Its holder says, rightly or not, that a lease cost this much.
    pub(super) fn is_reported(&mut self, report: &StageReport) {
        let (Cost::Known(cost) | Cost::AtLeast(cost)) = report.cost;
        if let Some((most, _)) = self.books.get_mut(&report.token) {
            *most = cost.max(*most);
        }
    }

    pub(super) fn take(&mut self, event: &Event) -> Check {
        self.events += 1;
        if event.at < self.last_at {
            return Err(format!("P14: time went back in the log: {event:?}"));
        }
        self.last_at = event.at;
        let bytes = serde_json::to_vec(event).map_or(usize::MAX, |bytes| bytes.len());
        if bytes > EVENT_BYTES_MAX {
            return Err(format!("P16: an event of {bytes} bytes: {event:?}"));
        }
        let (ended, token, cost) = match &event.kind {
            EventKind::Granted { token, reserved, .. } => {
                self.live.insert(*token);
                self.books.insert(*token, (*reserved, Usd::ZERO));
                return Ok(());
            }
            EventKind::Passed { token, cost, .. }
            | EventKind::Rejected { token, cost, .. }
            | EventKind::Suspended { token, cost, .. }
            | EventKind::Interrupted { token, cost, .. } => (true, Some(*token), *cost),
            EventKind::Escalated { token, cost, .. } => (token.is_some(), *token, *cost),
            EventKind::ResultRefused { token, cost, .. } => (false, Some(*token), *cost),
            EventKind::RunCreated { .. }
            | EventKind::PlanAdded { .. }
            | EventKind::PoolLimited { .. }
            | EventKind::PoolClosed { .. }
            | EventKind::PoolOpened { .. }
            | EventKind::PoolBounded { .. }
            | EventKind::PlanPruned { .. }
            | EventKind::PilotSet { .. }
            | EventKind::BudgetSet { .. }
            | EventKind::DriverOpened { .. }
            | EventKind::DriverEnded { .. }
            | EventKind::Stopping { .. }
            | EventKind::Cancelling { .. }
            | EventKind::Dispatched { .. }
            | EventKind::MergeIntended { .. }
            | EventKind::Due { .. }
            | EventKind::Edited { .. }
            | EventKind::Retried { .. }
            | EventKind::Resolved { .. }
            | EventKind::Cancelled { .. }
            | EventKind::Paused { .. }
            | EventKind::Draining { .. }
            | EventKind::Parked { .. }
            | EventKind::Resumed { .. }
            | EventKind::Completed
            | EventKind::Failed => return Ok(()),
        };
        self.spent = self.spent.plus(cost);
        let Some(token) = token else { return Ok(()) };
        if ended && !self.live.remove(&token) {
            return Err(format!("P10: token {token} was settled twice: {event:?}"));
        }
        let (most, booked) = self.books.entry(token).or_default();
        *booked = booked.plus(cost);
        if *booked <= *most {
            return Ok(());
        }
        Err(format!("P10: {booked} was booked for token {token}, and at most {most} was spent"))
    }

    /// The leases and the money of the records are those of the log.
    pub(super) fn check(&self, engine: &Engine) -> Check {
        let held: BTreeSet<FencingToken> = engine.held().map(|task| task.last_token).collect();
        if held != self.live {
            return Err(format!("P4: {held:?} are held, {:?} were granted", self.live));
        }
        let spent = engine.run().map(|run| run.spent).unwrap_or_default();
        if spent == self.spent {
            return Ok(());
        }
        Err(format!("P10: the run spent {spent}, its log {}", self.spent))
    }
}

/// P6: no task was granted more often than its plan and its people allow.
pub(in crate::testing) fn dispatches(engine: &Engine) -> Check {
    let Some(run) = engine.run() else { return Ok(()) };
    for task in engine.tasks() {
        let retries = engine.spec(&task.id).map_or(0, |spec| spec.max_retries);
        let stages = engine.pipeline(&task.id).map_or(0, |pipeline| pipeline.stages().len());
        let max = run.rules.dispatches_max(stages, retries) + task.extra.dispatches;
        let polls = run.rules.deferrals_max + task.extra.deferrals + 1;
        if task.deferrals > polls {
            return Err(format!("P6: `{}` found a gate closed {polls} times", task.id));
        }
        let max = max + task.deferrals;
        if task.dispatches > max {
            return Err(format!("P6: `{}` was granted {} of {max}", task.id, task.dispatches));
        }
    }
    Ok(())
}

/// P21: a command about one task leaves the records of all others as they were.
pub(in crate::testing) fn frame(command: &Command, before: &Engine, after: &Engine) -> Check {
    let about = match command {
        Command::Report(report) => Some(report.task),
        Command::IntendMerge { task, .. }
        | Command::Dispatch { task, .. }
        | Command::Supersede { task, .. }
        | Command::Stopped { task, .. } => Some(*task),
        Command::Retry { dependents: true, .. } => return Ok(()),
        Command::Edit { spec, .. } => after.number(&spec.id),
        Command::Retry { task, .. }
        | Command::Resolve { task, .. }
        | Command::Cancel { task, .. } => after.number(task),
        Command::CreateRun { .. }
        | Command::AddPlan { .. }
        | Command::LimitPool { .. }
        | Command::BoundPool { .. }
        | Command::ClosePool { .. }
        | Command::OpenPool { .. }
        | Command::SetPilot { .. }
        | Command::SetBudget { .. }
        | Command::OpenDriver { .. }
        | Command::CloseDriver { .. }
        | Command::Claim { .. }
        | Command::ClaimTask { .. }
        | Command::Tick
        | Command::Pause { .. }
        | Command::Drain { .. }
        | Command::Resume { .. }
        | Command::Prune
        | Command::Settle => return Ok(()),
    };
    let about = about.and_then(|task| after.name(task));
    let mut pairs = before.tasks().zip(after.tasks());
    match pairs.find(|(was, is)| Some(&was.id) != about && was != is) {
        Some((was, is)) => Err(format!("P21: {command:?} changed {was:?} to {is:?}")),
        None => Ok(()),
    }
}

/// P3, P8, P9, P10, P11: the task that was granted could run, and nothing that goes before it could.
pub(super) fn grant(before: &Engine, now: Timestamp, grant: &Grant) -> Check {
    let place = |task: &TaskRecord| {
        let priority = before.spec(&task.id).map_or(0, |spec| spec.priority);
        (task.stage, priority)
    };
    let granted = before.task(&grant.task).ok_or("a grant of an unknown task")?;
    if !can_run(before, now, &granted) {
        return Err(format!("P3, P8, P9, P10: `{}` was granted and cannot run", granted.id));
    }
    let run = before.run().ok_or("a grant of no run")?;
    let is_over = |budget| run.spent.plus(run.reserved).plus(grant.cap) > budget;
    if grant.cap > Usd::ZERO && run.budget.is_some_and(is_over) {
        return Err(format!("P10: {} is more than what is left", grant.cap));
    }
    let own = before.spec(&grant.task).and_then(|spec| spec.budget);
    let is_over = |budget| granted.spent.plus(grant.cap) > budget;
    if grant.cap > Usd::ZERO && own.is_some_and(is_over) {
        return Err(format!("P10: {} is more than what the task may spend", grant.cap));
    }
    for pool in before.pools().filter(|pool| permits(before, &granted, &pool.name) > 0) {
        let gone = pool.spent.plus(reserved(before, &pool.name));
        let is_over = |budget| gone.plus(grant.cap) > budget;
        if grant.cap > Usd::ZERO && pool.bounds.budget.is_some_and(is_over) {
            return Err(format!("P10: {} is more than what `{}` may spend", grant.cap, pool.name));
        }
    }
    let is_due = |passed: PassedOver| {
        let mut counted = passed.counted();
        counted.any(|(task, times)| task == grant.number && times >= run.rules.passed_over_max)
    };
    if run.passed_over.is_some_and(is_due) {
        return Ok(());
    }
    let mut others = before.tasks();
    match others.find(|task| can_run(before, now, task) && place(task) > place(&granted)) {
        Some(task) => Err(format!("`{}` was granted before `{}`", granted.id, task.id)),
        None => Ok(()),
    }
}

/// P11: what can run is said to be ready, and nothing else is.
pub(super) fn reasons(engine: &Engine, now: Timestamp) -> Check {
    for task in engine.tasks() {
        let reasons = engine.explain(now, &task.id);
        let is_ready = reasons == [Reason::Ready];
        if is_ready != can_run(engine, now, &task) || reasons.is_empty() {
            return Err(format!("P11: `{}` is held by {reasons:?}", task.id));
        }
    }
    Ok(())
}

/// Whether a claim may grant the task, by definition.
fn can_run(engine: &Engine, now: Timestamp, task: &TaskRecord) -> bool {
    let (Some(run), Some(spec)) = (engine.run(), engine.spec(&task.id)) else { return false };
    let Some(stage) = stage(engine, task) else { return false };
    let waits = match task.phase {
        Phase::Open => false,
        Phase::Deferred { until, .. } => until > now,
        Phase::Leased(_)
        | Phase::Stopping { .. }
        | Phase::Done(_)
        | Phase::Escalated(_)
        | Phase::Cancelled => true,
    };
    let is_done = |id: &TaskId| engine.task(id).is_some_and(|t| matches!(t.phase, Phase::Done(_)));
    let has_permits = |pool: &PoolRecord| {
        let used: u64 = engine.held().map(|held| permits(engine, &held, &pool.name)).sum();
        let needs = permits(engine, task, &pool.name);
        let is_open = pool.closed_until.is_none_or(|until| until <= now);
        needs == 0 || is_open && used + needs <= u64::from(pool.limit)
    };
    let overlaps = |other: &TaskRecord| {
        let scope = |spec: &TaskSpec| spec.scope.clone();
        let theirs = engine.spec(&other.id).and_then(scope);
        let both = scope(spec).zip(theirs);
        other.id != task.id && other.holds_scope && both.is_some_and(|(a, b)| a.overlaps(&b))
    };
    let covers = |budget: Usd, gone: Usd| {
        let left = budget.minus(gone);
        stage.cap == Usd::ZERO || left > Usd::ZERO && left >= stage.cap.min(Usd(budget.0 / 16))
    };
    let pays = |pool: &PoolRecord| {
        let gone = || pool.spent.plus(reserved(engine, &pool.name));
        permits(engine, task, &pool.name) == 0
            || pool.bounds.budget.is_none_or(|budget| covers(budget, gone()))
    };
    run.state == RunState::Active
        && !waits
        && spec.depends_on.iter().all(is_done)
        && engine.pools().all(has_permits)
        && (task.holds_scope || !engine.tasks().any(|other| overlaps(&other)))
        && run.budget.is_none_or(|budget| covers(budget, run.spent.plus(run.reserved)))
        && spec.budget.is_none_or(|budget| covers(budget, task.spent))
        && engine.pools().all(pays)
        && !(task.attempt == 0 && is_held_back(engine, run, task))
        && !is_kept_from(engine, now, task)
}

/// Money that the leases which hold permits of a pool have set aside.
fn reserved(engine: &Engine, pool: &PoolName) -> Usd {
    let of = |task: TaskRecord| match &task.phase {
        Phase::Leased(lease) | Phase::Stopping { lease, .. } => {
            if permits(engine, &task, pool) > 0 { lease.reserved } else { Usd::ZERO }
        }
        Phase::Open
        | Phase::Deferred { .. }
        | Phase::Done(_)
        | Phase::Escalated(_)
        | Phase::Cancelled => Usd::ZERO,
    };
    engine.held().map(of).sum()
}

/// P11: whether no task like this may be begun, for the pilot or for back-pressure.
fn is_held_back(engine: &Engine, run: &RunRecord, task: &TaskRecord) -> bool {
    let begun = || engine.tasks().filter(|task| task.attempt > 0).count();
    let at_first = |of: &TaskRecord| TaskRecord { stage: 0, ..of.clone() };
    let is_flying = |of: &TaskRecord, pool: &PoolName| {
        let is_settled =
            matches!(of.phase, Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled);
        of.stage > 0 && !is_settled && permits(engine, &at_first(of), pool) > 0
    };
    let is_pressed = |pool: &PoolRecord| {
        let flying = || engine.tasks().filter(|of| is_flying(of, &pool.name)).count();
        permits(engine, task, &pool.name) > 0
            && pool.bounds.in_flight_max.is_some_and(|max| flying() >= max as usize)
    };
    run.pilot.is_some_and(|tasks| begun() >= tasks as usize) || engine.pools().any(is_pressed)
}

/// P12: whether what the task needs is kept for another; what that means by definition, the model
/// checks.
fn is_kept_from(engine: &Engine, now: Timestamp, task: &TaskRecord) -> bool {
    let reasons = engine.explain(now, &task.id);
    reasons.iter().any(|reason| matches!(reason, Reason::KeptFor { .. }))
}

fn stage<'a>(engine: &'a Engine, task: &TaskRecord) -> Option<&'a StageSpec> {
    engine.pipeline(&task.id)?.stage(task.stage)
}

/// Permits of the pool that the task's present stage takes.
fn permits(engine: &Engine, task: &TaskRecord, pool: &PoolName) -> u64 {
    let asked = engine.spec(&task.id).and_then(|spec| spec.needs.get(pool).copied());
    let own = stage(engine, task).is_some_and(|stage| stage.pool == *pool);
    asked.map_or_else(|| u64::from(own), |permits| u64::from(permits.get()))
}
