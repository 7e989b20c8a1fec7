//! Questions to the engine: what runs, what holds a task, when something will happen by itself.

use super::Engine;
use super::index::Class;
use super::kind::Kind;
use super::reason::Reason;
use crate::budget::allowance;
use crate::id::{PoolName, RunId, Seq, TaskId, TaskNo};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::pipeline::Pipeline;
use crate::record::{OwnerRecord, ParkReason, PoolRecord, RunRecord, RunState, TaskRecord};
use crate::task::TaskSpec;
use crate::time::Timestamp;

/// Most holders of overlapping scopes that [`Engine::explain`] names for one task.
const HOLDERS_TOLD_MAX: usize = 32;

/// What a run comes to when nothing happens by itself any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// All tasks are done or cancelled.
    Completed,
    /// Some task is escalated or blocked, and nothing else is left.
    Failed,
    /// It stands still for this reason.
    Parked(ParkReason),
    /// Some task could run, but what it needs will never be there; [`Engine::stall`] says what.
    Stalled,
}

impl Engine {
    /// The run's name.
    #[must_use]
    pub const fn id(&self) -> &RunId {
        &self.id
    }

    /// Where the run's log stands, the present batch included.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// The run's record; `None` before it is created.
    #[must_use]
    pub const fn run(&self) -> Option<&RunRecord> {
        self.run.as_ref()
    }

    /// The number of a task.
    #[must_use]
    pub fn number(&self, task: &TaskId) -> Option<TaskNo> {
        self.specs.number(task).map(TaskNo)
    }

    /// The id of the task of this number.
    #[must_use]
    pub fn name(&self, task: TaskNo) -> Option<&TaskId> {
        self.has(task).then(|| self.specs.id(task.0))
    }

    /// A task's record, as it is now.
    #[must_use]
    pub fn task(&self, task: &TaskId) -> Option<TaskRecord> {
        self.specs.number(task).map(|number| self.to_record(number))
    }

    /// The record of the task of this number, as it is now.
    #[must_use]
    pub fn record(&self, task: TaskNo) -> Option<TaskRecord> {
        self.has(task).then(|| self.to_record(task.0))
    }

    /// All tasks' records, in the order of their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = TaskRecord> + '_ {
        (0_u32..).take(self.table.len()).map(|number| self.to_record(number))
    }

    /// All tasks' records, in the order in which the plans have them.
    pub fn tasks_as_written(&self) -> impl Iterator<Item = TaskRecord> + '_ {
        self.specs.as_written().into_iter().map(|number| self.to_record(number))
    }

    /// A task's specification.
    #[must_use]
    pub fn spec(&self, task: &TaskId) -> Option<&TaskSpec> {
        self.specs.number(task).map(|number| self.specs.spec(number))
    }

    /// The stages that a task goes through.
    #[must_use]
    pub fn pipeline(&self, task: &TaskId) -> Option<&Pipeline> {
        self.specs.number(task).map(|number| &*self.profile(number).pipeline)
    }

    /// The pools, by name.
    pub fn pools(&self) -> impl Iterator<Item = &PoolRecord> {
        self.pools.values()
    }

    /// Permits of a pool in use.
    #[must_use]
    pub fn in_use(&self, pool: &PoolName) -> u32 {
        self.pools.find(pool).map_or(0, |pool| self.index.in_use(pool))
    }

    /// The owners, by id.
    pub fn owners(&self) -> impl Iterator<Item = &OwnerRecord> {
        self.owners.values()
    }

    /// Tasks with a live lease or one that is being stopped, in the order of their numbers.
    pub fn held(&self) -> impl Iterator<Item = TaskRecord> + '_ {
        let live = self.index.hard_stops.entries();
        let mut numbers: Vec<u32> =
            live.filter_map(|(_, (_, lease))| Some(self.table.lease(lease)?.task)).collect();
        numbers.extend(&self.index.stopping);
        numbers.sort_unstable();
        numbers.into_iter().map(|number| self.to_record(number))
    }

    /// Whether the task can never run as things are, though nobody gave it up.
    #[must_use]
    pub fn is_blocked(&self, task: &TaskId) -> bool {
        self.specs.number(task).is_some_and(|number| self.table.hot(number).is_blocked())
    }

    /// How many tasks are blocked.
    #[must_use]
    pub const fn blocked(&self) -> u32 {
        self.index.blocked
    }

    /// The next time at which something happens by itself; `None` when nothing will.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        let timer = self.index.timers.first().map(|(at, _)| *at);
        let stop = self.index.hard_stops.first();
        let closed = self.pools.values().filter_map(|pool| pool.closed_until);
        let closed = closed.filter(|_| !is_on(Mutant::PoolOpensUnannounced));
        let timer = timer.filter(|_| !is_on(Mutant::WaitWithoutTimer));
        let spent = self.index.overdrawn.first().and(self.run.as_ref()).map(|run| run.last_at);
        closed.chain(timer).chain(stop).chain(spent).min()
    }

    /// Everything that holds a task; each reason can be checked against the records, and says
    /// [who moves it on](Reason::mover).
    #[must_use]
    pub fn explain(&self, now: Timestamp, task: &TaskId) -> Vec<Reason> {
        match (self.specs.number(task), self.run.as_ref()) {
            (Some(number), Some(run)) => self.explain_number(now, run, number),
            _ => vec![Reason::Unknown],
        }
    }

    fn explain_number(&self, now: Timestamp, run: &RunRecord, number: u32) -> Vec<Reason> {
        let task = self.table.view(number);
        let kind = task.hot().kind();
        if let Some((hold, _)) = task.stopping() {
            return vec![Reason::Stopping { token: hold.token }];
        } else if let Some(hold) = task.hold() {
            return vec![Reason::Running { token: hold.token, hard_stop: hold.hard_stop }];
        } else if let Some(escalation) = &task.detail().escalation {
            return vec![Reason::Escalated { cause: escalation.cause }];
        } else if kind.is_settled() {
            return vec![Reason::Settled { phase: kind.as_str() }];
        }
        let mut reasons = self.unmet(number);
        if let Some((until, why)) = task.detail().deferred
            && until > now
        {
            reasons.push(Reason::Deferred { until, why });
        }
        if run.state != RunState::Active {
            reasons.push(Reason::RunNotActive { state: run.state.as_str() });
        }
        reasons.extend(self.short_of(now, run, number));
        if reasons.is_empty() {
            reasons.push(Reason::Ready);
        }
        reasons
    }

    fn unmet(&self, number: u32) -> Vec<Reason> {
        let mut dependencies: Vec<u32> = self.specs.dependencies(number).collect();
        dependencies.sort_unstable();
        let open = |from: &u32| self.table.hot(*from).kind() != Kind::Done;
        let reason = |from: u32| {
            let task = self.specs.id(from).clone();
            if self.table.hot(from).is_dead() {
                Reason::BlockedBy { task }
            } else {
                Reason::WaitsFor { task }
            }
        };
        dependencies.into_iter().filter(open).map(reason).collect()
    }

    /// The capacity that the task's stage lacks.
    fn short_of(&self, now: Timestamp, run: &RunRecord, number: u32) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let Some(class) = self.class(number) else { return reasons };
        let needs = self.needs_by_name(class);
        for (pool, needs) in &needs {
            let name = self.pools.name(*pool);
            let known = self.pools.get(*pool);
            if let Some(until) = known.and_then(|known| known.closed_until).filter(|at| *at > now) {
                reasons.push(Reason::PoolClosed { pool: name.clone(), until });
            }
            let (in_use, limit) = (self.index.in_use(*pool), known.map_or(0, |known| known.limit));
            if in_use.saturating_add(*needs) > limit {
                let (pool, needs) = (name.clone(), *needs);
                reasons.push(Reason::PoolFull { pool, needs, in_use, limit });
            }
        }
        if !self.table.hot(number).holds_scope() {
            let holders = self.scope_holders(number);
            let holders = holders.take(HOLDERS_TOLD_MAX);
            reasons.extend(holders.map(|by| Reason::ScopeHeld { by: self.specs.id(by).clone() }));
        }
        if let Some(other) = self.kept_for(now, run)
            && self.is_kept_from(number, class, other)
        {
            reasons.push(Reason::KeptFor { task: self.specs.id(other).clone() });
        }
        reasons.extend(self.unpaid(run, number, class.cap, &needs));
        if self.is_held_back(run, class) {
            let tasks = run.pilot.filter(|_| self.is_pilot_full(run));
            reasons.extend(tasks.map(|tasks| Reason::Pilot { tasks }));
            reasons.extend(needs.iter().filter_map(|(pool, _)| {
                let (in_flight, max) = self.pressed(*pool)?;
                Some(Reason::BackPressure { pool: self.pools.name(*pool).clone(), in_flight, max })
            }));
        }
        reasons
    }

    /// What a class needs in the order of the pools' names, as their numbers are other ones after a
    /// restart.
    fn needs_by_name(&self, class: &Class) -> Vec<(u32, u32)> {
        let mut needs = class.needs.to_vec();
        needs.sort_by_key(|(pool, _)| self.pools.name(*pool));
        needs
    }

    /// The budgets that do not cover the task's stage.
    fn unpaid(
        &self,
        run: &RunRecord,
        number: u32,
        needs: Usd,
        pools: &[(u32, u32)],
    ) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if allowance(run.budget, run.spent.plus(run.reserved), needs).is_none() {
            let left = run.budget.unwrap_or_default().minus(run.spent).minus(run.reserved);
            reasons.push(Reason::Budget { needs, left });
        }
        for (pool, _) in pools {
            if let Some(record) = self.pools.get(*pool)
                && self.allowance_of(*pool, needs).is_none()
            {
                let gone = record.spent.plus(self.index.used(*pool).reserved);
                let left = record.bounds.budget.unwrap_or_default().minus(gone);
                reasons.push(Reason::PoolBudget { pool: record.name.clone(), needs, left });
            }
        }
        let (budget, spent) = (self.specs.budget(number), self.table.view(number).spent());
        if allowance(budget, spent, needs).is_none() {
            let left = budget.unwrap_or_default().minus(spent);
            reasons.push(Reason::TaskBudget { needs, left });
        }
        reasons
    }

    /// What the run comes to, when nothing happens by itself any more; `None` while something does
    /// or can.
    #[must_use]
    pub fn settlement(&self, now: Timestamp) -> Option<Settlement> {
        let run = self.run.as_ref()?;
        let counts = run.counts;
        if counts.leased + counts.stopping > 0 {
            return None;
        }
        match &run.state {
            RunState::Active => {}
            RunState::Draining { reason } | RunState::Parked { reason } => {
                return Some(Settlement::Parked(*reason));
            }
            RunState::Paused { .. } => return None,
            RunState::Completed => return Some(Settlement::Completed),
            RunState::Failed => return Some(Settlement::Failed),
        }
        let unfinished = counts.open + counts.deferred;
        if unfinished == 0 {
            let all = counts.escalated == 0;
            return Some(if all { Settlement::Completed } else { Settlement::Failed });
        }
        if self.next_grant(now, run).is_some() || self.can_wait_for_time(now) {
            return None;
        }
        let ready = self.ready();
        if ready.is_empty() {
            return Some(Settlement::Failed);
        }
        let classes = || ready.iter().filter_map(|number| self.class(*number));
        Some(if classes().any(|class| self.allowance(run, class).is_none()) {
            Settlement::Parked(ParkReason::Budget)
        } else if self.is_pilot_full(run) && classes().any(|class| class.is_fresh) {
            Settlement::Parked(ParkReason::Pilot)
        } else {
            Settlement::Stalled
        })
    }

    /// All tasks that could run if there were capacity, in order of their numbers. Looks at every
    /// task.
    fn ready(&self) -> Vec<u32> {
        (0_u32..).take(self.table.len()).filter(|number| self.table.is_ready(*number)).collect()
    }

    /// Whether the passing of time alone may let something run.
    fn can_wait_for_time(&self, now: Timestamp) -> bool {
        let is_closed = |pool: u32| {
            let pool = self.pools.get(pool);
            pool.and_then(|pool| pool.closed_until).is_some_and(|until| until > now)
        };
        let needs_closed = |class: &Class| class.needs.iter().any(|(pool, _)| is_closed(*pool));
        let all = (0_u32..).zip(&self.index.classes);
        let mut held_up = all.filter(|(_, class)| needs_closed(class));
        // What is parked follows from what was looked at, and must not change what the run comes to.
        let has_parked = |number| self.index.locks.parked(number).any(|heap| !heap.is_empty());
        !self.index.timers.is_empty()
            || !self.index.overdrawn.is_empty()
            || held_up.any(|(number, class)| !class.ready.is_empty() || has_parked(number))
    }

    /// What holds each task that is ready in a run that nothing moves any more; empty when
    /// something does.
    #[must_use]
    pub fn stall(&self, now: Timestamp) -> Vec<(TaskId, Vec<Reason>)> {
        if self.settlement(now) != Some(Settlement::Stalled) {
            return Vec::new();
        }
        let name = |number: u32| self.specs.id(number).clone();
        let ready = self.ready().into_iter().map(name);
        ready.map(|task| (task.clone(), self.explain(now, &task))).collect()
    }
}
