//! A reference model: what the documents say that a command does, in the plainest code.
//!
//! It keeps the same records as the engine and nothing else: every question is answered by looking
//! at all tasks. It shares with the engine the pure rules (plans, scopes, waits, money, time), which
//! have tests of their own, and no line of the engine. Where the documents leave a choice open (which
//! of equals a claim takes) it follows the engine and checks that the choice was allowed.

mod claim;
mod ends;
mod fairness;
mod leases;
mod money;
mod people;
mod prune;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::sync::Arc;

use crate::command::{Answer, Command, Refusal};
use crate::engine::Engine;
use crate::event::Stale;
use crate::id::{BlobHash, OwnerId, PoolName, RunId, TaskId, TaskNo};
use crate::lease::HELD;
use crate::money::Usd;
use crate::outcome::{Interruption, Restart};
use crate::pipeline::{AGENTS, GATES, Pipeline, VERIFY};
use crate::plan::Plan;
use crate::policy::{SchedulingPolicy, TaskGraph};
use crate::record::{Counts, Extra, Phase, PlanRef, PoolRecord, RunRecord, RunState, TaskRecord};
use crate::retry::RetryRules;
use crate::specs::Specs;
use crate::task::TaskSpec;
use crate::time::{Anchor, Timestamp};

/// What the model gives back for a command, before it is known what the engine gave.
type Given = Result<Answer, Refusal>;

/// The state of a run by the documents.
#[derive(Debug, Clone)]
pub struct Model {
    id: RunId,
    run: Option<RunRecord>,
    tasks: Vec<TaskRecord>,
    specs: Vec<Arc<(TaskSpec, Pipeline)>>,
    plans: Vec<Arc<Plan>>,
    /// What tasks were made by edits, in order.
    edits: Vec<Arc<TaskSpec>>,
    /// The tasks of the plans that were pruned, by the address that each had.
    pruned: BTreeMap<BlobHash, Vec<TaskId>>,
    /// The addresses of what is left of them.
    left: BTreeSet<BlobHash>,
    pools: BTreeMap<PoolName, PoolRecord>,
    /// Supervisors that do not renew their leases.
    held: BTreeSet<OwnerId>,
    /// What the policy says of each task.
    ranks: Vec<u64>,
    /// The number of each task in the run.
    numbers: Vec<TaskNo>,
}

impl Model {
    /// A model of a run that does not exist yet.
    #[must_use]
    pub const fn new(id: RunId) -> Self {
        Self {
            id,
            run: None,
            tasks: Vec::new(),
            specs: Vec::new(),
            plans: Vec::new(),
            edits: Vec::new(),
            pruned: BTreeMap::new(),
            left: BTreeSet::new(),
            pools: BTreeMap::new(),
            held: BTreeSet::new(),
            ranks: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// The plans as they were added.
    pub(in crate::testing) fn plans(&self) -> &[Arc<Plan>] {
        &self.plans
    }

    /// Carries out a command that the engine has answered; from the engine come the tasks' names and
    /// the rest of a grant.
    ///
    /// # Errors
    /// What is wrong with the engine's answer.
    pub fn step(
        &mut self,
        now: Timestamp,
        command: &Command,
        policy: &dyn SchedulingPolicy,
        answer: &Result<Answer, Refusal>,
        engine: &Engine,
    ) -> Result<(), String> {
        let given = match (command, answer) {
            (
                Command::Claim { owner } | Command::ClaimTask { owner, .. },
                Ok(Answer::Granted { task, token, .. }),
            ) => {
                let now = self.time(now);
                let grant = engine.grant(*task).filter(|grant| grant.token == *token);
                let grant =
                    grant.ok_or_else(|| format!("token {token} was granted and is none"))?;
                if let Command::ClaimTask { task, .. } = command {
                    return self.granted_alone(now, owner, task, &grant);
                }
                return self.granted(now, owner, &grant);
            }
            (command, _) => self.given(now, command, policy, engine),
        };
        let is_same = match (&given, answer) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            // How a refusal is worded is the engine's business.
            (Err(ours), Err(theirs)) => discriminant(ours) == discriminant(theirs),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        };
        if is_same { Ok(()) } else { Err(format!("{answer:?} was answered, expected {given:?}")) }
    }

    /// What of the engine's records is not as the model has it; empty when all is.
    #[must_use]
    pub fn differences(&self, engine: &Engine) -> Vec<String> {
        let mut told = Vec::new();
        for ours in &self.tasks {
            let theirs = engine.task(&ours.id);
            if theirs.as_ref() != Some(ours) {
                told.push(format!("task is {theirs:?}, expected {ours:?}"));
            }
            let is_blocked = engine.is_blocked(&ours.id);
            if is_blocked != self.is_blocked(ours) {
                told.push(format!("P7: `{}` blocked: {is_blocked}", ours.id));
            }
        }
        let count = engine.tasks().count();
        if count != self.tasks.len() {
            told.push(format!("{count} tasks, expected {}", self.tasks.len()));
        }
        let ours = self.run.as_ref().map(|run| RunRecord { counts: self.counts(), ..run.clone() });
        if engine.run() != ours.as_ref() {
            told.push(format!("run is {:?}, expected {ours:?}", engine.run()));
        }
        if !engine.pools().eq(self.pools.values()) {
            let theirs: Vec<_> = engine.pools().collect();
            told.push(format!("pools are {theirs:?}, expected {:?}", self.pools));
        }
        for pool in self.pools.keys() {
            let (theirs, ours) = (u64::from(engine.in_use(pool)), self.in_use(pool));
            if theirs != ours {
                told.push(format!("P8: {theirs} permits of `{pool}` in use, expected {ours}"));
            }
        }
        told
    }

    fn given(
        &mut self,
        now: Timestamp,
        command: &Command,
        policy: &dyn SchedulingPolicy,
        engine: &Engine,
    ) -> Given {
        if let Command::CreateRun { rules } = command {
            return self.create(now, rules);
        }
        if self.run.is_none() {
            return Err(Refusal::NoRun(self.id.clone()));
        }
        if let Some(task) = self.taken_up(command) {
            return Err(Refusal::Pruned(task));
        }
        let now = self.time(now);
        let before = self.clone();
        let answer = match command {
            Command::CreateRun { .. } => Err(Refusal::RunExists(self.id.clone())),
            Command::AddPlan { plan } => self.add(now, plan, policy),
            Command::LimitPool { .. }
            | Command::ClosePool { .. }
            | Command::OpenPool { .. }
            | Command::BoundPool { .. }
            | Command::SetBudget { .. }
            | Command::SetPilot { .. } => self.hold_back(now, command),
            Command::OpenDriver { .. } => return self.open(now, command),
            Command::CloseDriver { owner } => self.close(now, owner),
            Command::Claim { owner } => self.nothing(now, owner, |_| true),
            Command::ClaimTask { owner, task } => match self.place(task) {
                Some(only) => self.nothing(now, owner, |place| place == only),
                None => Err(Refusal::UnknownTask(task.clone())),
            },
            Command::Report(report) => Ok(self.reported(now, engine.name(report.task), report)),
            Command::IntendMerge { task, token, intent } => {
                Ok(self.intended(engine.name(*task), *token, intent))
            }
            Command::Dispatch { task, token, content } => {
                Ok(self.dispatched(engine.name(*task), *token, content))
            }
            Command::Supersede { task, token } => {
                Ok(self.superseded(now, engine.name(*task), *task, *token))
            }
            Command::Stopped { task, token } => {
                Ok(self.stopped(now, engine.name(*task), *task, *token))
            }
            Command::Tick => {
                self.tick(now);
                Ok(Answer::Done)
            }
            Command::Retry { .. }
            | Command::Resolve { .. }
            | Command::Cancel { .. }
            | Command::Pause { .. }
            | Command::Drain { .. }
            | Command::Resume { .. } => self.person(now, command),
            Command::Edit { spec, .. } => {
                let answer = self.edit(spec);
                self.rank(policy);
                answer
            }
            Command::Prune => {
                self.prune();
                Ok(Answer::Done)
            }
            Command::Settle => {
                self.settle(now);
                Ok(Answer::Done)
            }
        };
        self.note_time(now, &before);
        answer
    }

    /// The run's time is that of its last event; nothing happened when nothing changed.
    fn note_time(&mut self, now: Timestamp, before: &Self) {
        let is_same =
            self.run == before.run && self.tasks == before.tasks && self.pools == before.pools;
        if !is_same && let Some(run) = &mut self.run {
            run.last_at = now;
        }
    }

    fn create(&mut self, now: Timestamp, rules: &RetryRules) -> Given {
        if self.run.is_some() {
            return Err(Refusal::RunExists(self.id.clone()));
        }
        self.run = Some(RunRecord {
            id: self.id.clone(),
            state: RunState::Active,
            rules: rules.clone(),
            last_at: now,
            last_token: crate::id::FencingToken(0),
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
        });
        Ok(Answer::Done)
    }

    fn add(&mut self, now: Timestamp, plan: &Arc<Plan>, policy: &dyn SchedulingPolicy) -> Given {
        let blob = BlobHash::of(&serde_json::to_vec(&**plan).unwrap_or_default());
        let is_known = self.run_mut().plans.iter().any(|known| known.blob == blob);
        if is_known || self.pruned.contains_key(&blob) {
            return Ok(Answer::Done);
        }
        let mut faults = plan.check(&|id| self.place(id).is_some());
        faults.extend(self.other_budgets(plan));
        if !faults.is_empty() {
            return Err(Refusal::Plan(faults));
        }
        for spec in &plan.tasks {
            let pipeline = plan.pipeline_of(spec).unwrap_or_default();
            for pool in pipeline.stages().iter().map(|stage| &stage.pool).chain(spec.needs.keys()) {
                let _known = self.pool(pool);
            }
            self.tasks.push(new_task(&spec.id, now));
            self.specs.push(Arc::new((spec.clone(), pipeline)));
        }
        for (pool, limit) in &plan.pools {
            self.pool(pool).limit = *limit;
        }
        for (pool, bounds) in &plan.pool_bounds {
            let known = &mut self.pool(pool).bounds;
            known.budget = bounds.budget.or(known.budget);
            known.in_flight_max = bounds.in_flight_max.or(known.in_flight_max);
        }
        let tasks = u32::try_from(plan.tasks.len()).unwrap_or(u32::MAX);
        let run = self.run_mut();
        run.plans.push(PlanRef { blob, tasks });
        run.budget = plan.budget.or(run.budget);
        self.reopen();
        self.plans.push(Arc::clone(plan));
        self.rank(policy);
        Ok(Answer::Done)
    }

    fn rank(&mut self, policy: &dyn SchedulingPolicy) {
        let mut specs = Specs::default();
        for plan in &self.plans {
            specs.add(plan, None, None, |_, _, _| 0);
        }
        for edit in &self.edits {
            if let Some(number) = specs.number(&edit.id) {
                specs.amend(number, Some(Arc::clone(edit)), |_, _, _| 0);
            }
        }
        let ranks = policy.ranks(&TaskGraph::new(&specs));
        let number = |task: &TaskRecord| specs.number(&task.id).unwrap_or(u32::MAX);
        let numbers: Vec<u32> = self.tasks.iter().map(number).collect();
        let rank = |number: &u32| ranks.get(*number as usize).copied().unwrap_or(0);
        self.ranks = numbers.iter().map(rank).collect();
        self.numbers = numbers.into_iter().map(TaskNo).collect();
    }

    /// A pool that nobody limited has 4 permits where agents or commands work, else 1.
    fn pool(&mut self, name: &PoolName) -> &mut PoolRecord {
        let limit = if matches!(name.as_str(), AGENTS | VERIFY | GATES) { 4 } else { 1 };
        self.pools.entry(name.clone()).or_insert_with(|| PoolRecord::new(name.clone(), limit))
    }

    fn open(&mut self, now: Timestamp, command: &Command) -> Given {
        let Command::OpenDriver { owner, reading, ttl, token_floor, ended } = command else {
            return Ok(Answer::Done);
        };
        let is_bad = |text: &String| text.len() > 256 || text.contains(char::is_control);
        if [&owner.host, &owner.boot_id, &reading.boot_id].into_iter().any(is_bad) {
            return Err(Refusal::InvalidOwner { owner: owner.id.clone(), what: "" });
        }
        if token_floor.0 > u64::MAX / 2 {
            return Err(Refusal::TokensUsedUp { last: *token_floor });
        }
        let is_held = *ttl >= HELD;
        // A supervisor that calls again keeps what it holds.
        let calls_again = is_held && self.held.contains(&owner.id);
        let run = self.run_mut();
        let calls_again = calls_again && run.driver.as_ref() == Some(&owner.id);
        if !calls_again && run.driver.is_some() && run.driver.as_ref() != ended.as_ref() {
            return Err(Refusal::DriverRunning(Box::new(owner.clone())));
        }
        let at = run.anchor.as_ref().map_or(now, |anchor| anchor.now(reading).max(now));
        run.driver = Some(owner.id.clone());
        run.anchor = Some(Anchor { reading: reading.clone(), at });
        run.last_token = run.last_token.max(*token_floor);
        run.last_at = at;
        // Whoever held a lease is gone; what it started may not be.
        self.stop_leases(at, Interruption::OwnerLost, |_| !calls_again);
        if is_held {
            self.held.insert(owner.id.clone());
        } else {
            self.held.remove(&owner.id);
        }
        Ok(Answer::Done)
    }

    fn close(&mut self, now: Timestamp, owner: &OwnerId) -> Given {
        if self.run_mut().driver.as_ref() != Some(owner) {
            return Err(Refusal::NotDriver(owner.clone()));
        }
        self.stop_leases(now, Interruption::OwnerLost, |lease| lease.owner == *owner);
        self.run_mut().driver = None;
        Ok(Answer::Done)
    }

    fn time(&self, now: Timestamp) -> Timestamp {
        now.max(self.run.as_ref().map(|run| run.last_at).unwrap_or_default())
    }

    fn run_mut(&mut self) -> &mut RunRecord {
        self.run.as_mut().expect("commands to a run that does not exist are refused before")
    }

    fn place(&self, task: &TaskId) -> Option<usize> {
        self.tasks.iter().position(|record| record.id == *task)
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for task in &self.tasks {
            *counts.of(&task.phase) += 1;
        }
        counts
    }

    /// A run that was over may have something to do again.
    fn reopen(&mut self) {
        let run = self.run_mut();
        if matches!(run.state, RunState::Completed | RunState::Failed) {
            run.state = RunState::Active;
        }
    }
}

/// The answer for what counts for nothing.
const fn refused(why: Stale) -> Answer {
    Answer::Refused(why)
}

fn new_task(id: &TaskId, at: Timestamp) -> TaskRecord {
    TaskRecord {
        id: id.clone(),
        phase: Phase::Open,
        stage: 0,
        attempt: 0,
        under_way: false,
        rejections: 0,
        rounds: Vec::new(),
        interruptions: 0,
        deferrals: 0,
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
        last_token: crate::id::FencingToken(0),
        content: None,
        settled: Usd::ZERO,
        unheard: Vec::new(),
        refused: None,
        spent: Usd::ZERO,
        since: at,
    }
}
