//! Where the time of a run went: how much of its agents' time was used, what it could not have been
//! faster than, and what its tasks waited for.

use std::collections::BTreeMap;

use orchestrator_core::{
    AGENTS, Engine, EventKind, FencingToken, Interruption, PoolName, Resolution, Snapshot,
    StoredEvent, TaskId, Timestamp, Usd,
};

/// Where the time went, in milliseconds of the run's time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// During which some process drove the run.
    pub(crate) driven: u64,
    /// During which permits of the agents' pool were in use, added up, and its limit.
    pub(crate) agents_busy: u64,
    pub(crate) agents_limit: u32,
    /// No schedule of the same stages would have been faster.
    pub(crate) lower_bound: u64,
    /// The tasks of the slowest chain of dependencies, first to last, and what they took.
    pub(crate) chain: Vec<TaskId>,
    pub(crate) chain_took: u64,
    /// What tasks waited for.
    pub(crate) waits: Waits,
    /// What was booked at what had been set aside.
    pub(crate) estimated: Usd,
}

/// What tasks waited for, all of them added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) dependencies: u64,
    pub(crate) capacity: u64,
    pub(crate) backoff: u64,
    pub(crate) held: u64,
    pub(crate) not_driven: u64,
}

/// What a task does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Does {
    /// Waits for what it depends on.
    Waits,
    /// Waits for room.
    IsReady,
    /// Waits for a time.
    BacksOff,
    /// Carries out a stage that takes a permit of this pool.
    Runs(u8, PoolName),
    /// Is done, escalated or cancelled.
    IsOver,
}

/// Clocks of the run that stand still at times.
#[derive(Debug, Clone, Copy, Default)]
struct Clocks {
    wall: u64,
    /// Goes while some process drives the run.
    driven: u64,
    /// Goes while that is so and nothing new starts.
    held: u64,
}

struct Task<'a> {
    id: &'a TaskId,
    depends_on: Vec<usize>,
    dependents: Vec<usize>,
    stages: usize,
    /// How many stages of its present attempt it passed, at least.
    passed: usize,
    does: Does,
    since: Clocks,
    worked: u64,
    is_done: bool,
}

struct Sweep<'a> {
    engine: &'a Engine,
    tasks: Vec<Task<'a>>,
    places: BTreeMap<&'a TaskId, usize>,
    planned: usize,
    clocks: Clocks,
    is_driven: bool,
    is_held: bool,
    reserved: BTreeMap<FencingToken, Usd>,
    busy: BTreeMap<PoolName, u64>,
    times: Times,
}

impl Times {
    /// Where the time went of a run with this log.
    pub(crate) fn of(engine: &Engine, snapshot: &Snapshot, events: &[StoredEvent]) -> Self {
        let mut sweep = Sweep::new(engine, snapshot);
        for event in events {
            sweep.step(event.event.at, &event.event.kind);
        }
        sweep.finish(snapshot)
    }

    /// The part of the agents' permits that was in use while the run was driven.
    pub(crate) fn utilisation(&self) -> Option<f64> {
        ratio(self.agents_busy, u64::from(self.agents_limit) * self.driven)
    }

    /// How much longer than need be the run took.
    pub(crate) fn over_lower_bound(&self) -> Option<f64> {
        ratio(self.driven, self.lower_bound)
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of any run are far below 2^52")]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    // Thousandths are enough for a person, and are read back as they were written.
    (whole > 0).then(|| (part as f64 / whole as f64 * 1_000.0).round() / 1_000.0)
}

impl<'a> Sweep<'a> {
    fn new(engine: &'a Engine, snapshot: &'a Snapshot) -> Self {
        let ids = snapshot.tasks.iter().map(|task| &task.id);
        let places: BTreeMap<&TaskId, usize> =
            ids.clone().enumerate().map(|(place, id)| (id, place)).collect();
        let mut tasks: Vec<Task<'_>> = ids
            .map(|id| {
                let named = engine.spec(id).map(|spec| spec.depends_on.as_slice());
                let named = named.unwrap_or_default().iter();
                Task {
                    id,
                    depends_on: named.filter_map(|id| places.get(id).copied()).collect(),
                    dependents: Vec::new(),
                    stages: engine.pipeline(id).map_or(0, |pipeline| pipeline.stages().len()),
                    passed: 0,
                    does: Does::IsOver,
                    since: Clocks::default(),
                    worked: 0,
                    is_done: false,
                }
            })
            .collect();
        for place in 0..tasks.len() {
            for before in tasks[place].depends_on.clone() {
                tasks[before].dependents.push(place);
            }
        }
        Self {
            engine,
            tasks,
            places,
            planned: 0,
            clocks: Clocks::default(),
            is_driven: false,
            is_held: false,
            reserved: BTreeMap::new(),
            busy: BTreeMap::new(),
            times: Times::default(),
        }
    }

    /// Time passes up to an event.
    fn pass(&mut self, at: Timestamp, kind: &EventKind) {
        let gone = at.0.saturating_sub(self.clocks.wall);
        self.clocks.wall = self.clocks.wall.max(at.0);
        // A driver that died is taken to have driven up to the last event before its successor.
        if self.is_driven && !matches!(kind, EventKind::DriverOpened { .. }) {
            self.clocks.driven += gone;
            self.clocks.held += if self.is_held { gone } else { 0 };
        }
    }

    fn step(&mut self, at: Timestamp, kind: &EventKind) {
        self.pass(at, kind);
        match kind {
            EventKind::DriverOpened { .. } => self.is_driven = true,
            EventKind::DriverEnded { .. } => self.is_driven = false,
            EventKind::Paused { .. } | EventKind::Draining { .. } | EventKind::Parked { .. } => {
                self.is_held = true;
            }
            EventKind::Resumed { .. } => self.is_held = false,
            EventKind::PlanAdded { tasks, .. } => self.plan(*tasks as usize),
            EventKind::Granted { task, stage, token, reserved, .. } => {
                self.reserved.insert(*token, *reserved);
                let pipeline = self.engine.pipeline(task);
                let pool =
                    pipeline.and_then(|pipeline| pipeline.stage(*stage)).map(|stage| &stage.pool);
                if let Some(pool) = pool {
                    self.turn(task, Does::Runs(*stage, pool.clone()));
                }
            }
            EventKind::Passed { task, token, cost, .. } => {
                self.settle(*token, *cost);
                self.passed(task);
            }
            EventKind::Rejected { task, token, cost, until, .. } => {
                self.settle(*token, *cost);
                self.turn(task, wait(at, *until));
            }
            EventKind::Suspended { task, token, cost, .. } => {
                self.settle(*token, *cost);
                self.turn(task, Does::BacksOff);
            }
            EventKind::Interrupted { task, token, cost, until, reason, .. } => {
                self.settle(*token, *cost);
                let is_over = *reason == Interruption::Cancelled;
                self.turn(task, if is_over { Does::IsOver } else { wait(at, *until) });
            }
            EventKind::Due { task } => self.turn(task, Does::IsReady),
            EventKind::Escalated { task, token, cost, .. } => {
                token.iter().for_each(|token| self.settle(*token, *cost));
                self.turn(task, Does::IsOver);
            }
            EventKind::Cancelled { task, .. } => self.turn(task, Does::IsOver),
            EventKind::Resolved { task, how: Resolution::ByHand | Resolution::Skip, .. } => {
                self.done(task);
            }
            EventKind::Resolved { task, how: Resolution::Approve, .. } => self.passed(task),
            EventKind::Retried { task, .. } => {
                if let Some(place) = self.places.get(task).copied() {
                    let next = self.next(place);
                    self.turn(task, next);
                }
            }
            EventKind::RunCreated { .. }
            | EventKind::PoolLimited { .. }
            | EventKind::PoolClosed { .. }
            | EventKind::PoolOpened { .. }
            | EventKind::PoolBounded { .. }
            | EventKind::PlanPruned { .. }
            | EventKind::PilotSet { .. }
            | EventKind::BudgetSet { .. }
            | EventKind::Stopping { .. }
            | EventKind::Cancelling { .. }
            | EventKind::Edited { .. }
            | EventKind::ResultRefused { .. }
            | EventKind::Dispatched { .. }
            | EventKind::MergeIntended { .. }
            | EventKind::Completed
            | EventKind::Failed => {}
        }
    }

    /// More tasks are there; they stand in the order in which they came.
    fn plan(&mut self, count: usize) {
        let until = (self.planned + count).min(self.tasks.len());
        for place in self.planned..until {
            let does = self.next(place);
            (self.tasks[place].does, self.tasks[place].since) = (does, self.clocks);
        }
        self.planned = until;
    }

    /// What a task does that does not run.
    fn next(&self, place: usize) -> Does {
        let is_done = |before: &usize| self.tasks[*before].is_done;
        if self.tasks[place].depends_on.iter().all(is_done) { Does::IsReady } else { Does::Waits }
    }

    /// A task does something else from now on.
    fn turn(&mut self, task: &TaskId, does: Does) {
        let Some(task) = self.places.get(task).and_then(|place| self.tasks.get_mut(*place)) else {
            return;
        };
        let (since, now) = (task.since, self.clocks);
        let (wall, driven) = (now.wall - since.wall, now.driven - since.driven);
        let held = now.held - since.held;
        let waits = &mut self.times.waits;
        match std::mem::replace(&mut task.does, does) {
            Does::Runs(_, pool) => {
                task.worked += wall;
                *self.busy.entry(pool).or_insert(0) += wall;
            }
            Does::Waits => {
                waits.dependencies += driven;
                waits.not_driven += wall - driven;
            }
            Does::BacksOff => {
                waits.backoff += driven;
                waits.not_driven += wall - driven;
            }
            Does::IsReady => {
                waits.held += held;
                waits.capacity += driven - held;
                waits.not_driven += wall - driven;
            }
            Does::IsOver => {}
        }
        task.since = now;
    }

    fn passed(&mut self, id: &TaskId) {
        let task = self.places.get(id).and_then(|place| self.tasks.get_mut(*place));
        let Some(task) = task else { return };
        if let Does::Runs(stage, _) = task.does {
            task.passed = usize::from(stage);
        }
        task.passed += 1;
        let is_last = task.passed >= task.stages;
        if is_last { self.done(id) } else { self.turn(id, Does::IsReady) }
    }

    fn done(&mut self, id: &TaskId) {
        self.turn(id, Does::IsOver);
        let Some(place) = self.places.get(id).copied() else { return };
        self.tasks[place].is_done = true;
        for dependent in self.tasks[place].dependents.clone() {
            if self.tasks[dependent].does == Does::Waits && self.next(dependent) == Does::IsReady {
                let id = self.tasks[dependent].id;
                self.turn(id, Does::IsReady);
            }
        }
    }

    /// A cost that is exactly what was set aside is an estimate: the program did not say.
    fn settle(&mut self, token: FencingToken, cost: Usd) {
        let reserved = self.reserved.remove(&token).unwrap_or_default();
        if reserved > Usd::ZERO && reserved == cost {
            self.times.estimated = self.times.estimated.plus(cost);
        }
    }

    fn finish(mut self, snapshot: &Snapshot) -> Times {
        // What goes on still counts up to the last event.
        for id in snapshot.tasks.iter().map(|task| &task.id) {
            self.turn(id, Does::IsOver);
        }
        let limit = |name: &PoolName| {
            snapshot.pools.iter().find(|pool| pool.name == *name).map_or(0, |pool| pool.limit)
        };
        let by_pool = self.busy.iter().filter_map(|(pool, busy)| {
            let limit = u64::from(limit(pool));
            (limit > 0).then(|| busy.div_ceil(limit))
        });
        let (chain, chain_took) = self.slowest_chain();
        let agents = PoolName::parse(AGENTS).ok();
        Times {
            driven: self.clocks.driven,
            agents_busy: agents.as_ref().and_then(|pool| self.busy.get(pool)).copied().unwrap_or(0),
            agents_limit: agents.as_ref().map_or(0, limit),
            lower_bound: by_pool.fold(chain_took, u64::max),
            chain,
            chain_took,
            ..self.times
        }
    }

    /// The chain of dependencies whose stages took longest together.
    fn slowest_chain(&self) -> (Vec<TaskId>, u64) {
        let mut unmet: Vec<usize> = self.tasks.iter().map(|task| task.depends_on.len()).collect();
        let mut best: Vec<(u64, Option<usize>)> = vec![(0, None); self.tasks.len()];
        let mut todo: Vec<usize> =
            unmet.iter().enumerate().filter(|(_, unmet)| **unmet == 0).map(|(at, _)| at).collect();
        let mut last: Option<usize> = None;
        while let Some(place) = todo.pop() {
            best[place].0 += self.tasks[place].worked;
            if last.is_none_or(|last| best[last].0 < best[place].0) {
                last = Some(place);
            }
            for &dependent in &self.tasks[place].dependents {
                if best[dependent].1.is_none() || best[dependent].0 < best[place].0 {
                    best[dependent] = (best[place].0, Some(place));
                }
                unmet[dependent] -= 1;
                if unmet[dependent] == 0 {
                    todo.push(dependent);
                }
            }
        }
        let took = last.map_or(0, |last| best[last].0);
        if took == 0 {
            return (Vec::new(), 0);
        }
        let mut chain = Vec::new();
        while let Some(place) = last {
            chain.push(self.tasks[place].id.clone());
            last = best[place].1;
        }
        chain.reverse();
        (chain, took)
    }
}

/// What a task does that is not granted before a time.
fn wait(at: Timestamp, until: Timestamp) -> Does {
    if until > at { Does::BacksOff } else { Does::IsReady }
}
