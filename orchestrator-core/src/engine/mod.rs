//! The state machine: it decides what happens and applies what happened.
//!
//! No clock, no input or output, no threads, no randomness: [`Engine::decide`] is a pure function of
//! the state, the time and a command; [`Engine::evolve`] applies one event and cannot fail. The
//! files: `claim` (what runs next), `report` (how a stage ended), `people` (what people ask),
//! `owner` (who drives, and what time does), `evolve`, `batch` (several commands as one commit,
//! undone when it is refused), `index` (what is computed), `ask` (questions), `audit`.

mod ask;
mod audit;
mod batch;
mod claim;
mod evolve;
mod index;
mod owner;
mod people;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::ask::{Reason, Settlement};
use self::batch::Batch;
use self::index::Index;
use crate::command::{Answer, Command, Decision, Refusal};
use crate::event::{Event, EventKind};
use crate::id::{BlobHash, CommandId, OwnerId, PoolName, RunId, Seq, TaskId};
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::policy::{RemainingPath, SchedulingPolicy};
use crate::record::{OwnerRecord, PoolRecord, RunRecord, Snapshot, TaskRecord};
use crate::task::TaskSpec;
use crate::time::Timestamp;

/// The state of one run, and the rules by which it changes.
#[derive(Debug, Clone)]
pub struct Engine {
    id: RunId,
    seq: Seq,
    policy: Arc<dyn SchedulingPolicy>,
    /// `None` before the run is created.
    run: Option<RunRecord>,
    tasks: Vec<TaskRecord>,
    entries: Vec<Entry>,
    numbers: BTreeMap<TaskId, u32>,
    pools: BTreeMap<PoolName, PoolRecord>,
    owners: BTreeMap<OwnerId, OwnerRecord>,
    /// Plans whose content is known, by their address.
    plans: BTreeMap<BlobHash, Arc<Plan>>,
    index: Index,
    batch: Option<Batch>,
}

/// What of a task does not change with its events, and what is computed of its neighbours.
#[derive(Debug, Clone)]
struct Entry {
    spec: Arc<TaskSpec>,
    pipeline: Arc<Pipeline>,
    depends_on: Vec<u32>,
    dependents: Vec<u32>,
    rank: u64,
    /// Dependencies that are not done.
    unmet: u32,
    /// Dependencies that are escalated, cancelled or blocked.
    dead: u32,
}

/// What is wrong with a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSnapshot {
    /// A plan's blob is no plan.
    #[error("plan {plan} of run `{run}` cannot be read: {why}")]
    Plan {
        /// The run.
        run: RunId,
        /// The plan's address.
        plan: BlobHash,
        /// What is wrong with it.
        why: String,
    },
    /// The records and the plans name different tasks.
    #[error("run `{run}` has task `{found}` at place {place}, where its plans have `{expected}`")]
    Task {
        /// The run.
        run: RunId,
        /// The place, counted from 0.
        place: u32,
        /// What the records have there.
        found: String,
        /// What the plans have there.
        expected: String,
    },
}

impl Engine {
    /// An engine for a run that does not exist yet.
    #[must_use]
    pub fn new(id: RunId) -> Self {
        Self {
            id,
            seq: Seq(0),
            policy: Arc::new(RemainingPath),
            run: None,
            tasks: Vec::new(),
            entries: Vec::new(),
            numbers: BTreeMap::new(),
            pools: BTreeMap::new(),
            owners: BTreeMap::new(),
            plans: BTreeMap::new(),
            index: Index::default(),
            batch: None,
        }
    }

    /// The engine with another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Arc<dyn SchedulingPolicy>) -> Self {
        self.policy = policy;
        self.rank();
        self
    }

    /// An engine that stands where a store does.
    ///
    /// # Errors
    /// [`InvalidSnapshot`] when the records do not fit the plans.
    pub fn restore(snapshot: &Snapshot) -> Result<Self, InvalidSnapshot> {
        let mut engine = Self::new(snapshot.run.id.clone());
        let id = &snapshot.run.id;
        for (at, reference) in snapshot.run.plans.iter().enumerate() {
            let bytes = snapshot.plans.get(at).map(Vec::as_slice).unwrap_or_default();
            let plan: Plan = serde_json::from_slice(bytes).map_err(|err| {
                let (run, plan) = (id.clone(), reference.blob.clone());
                InvalidSnapshot::Plan { run, plan, why: err.to_string() }
            })?;
            engine.add_tasks(&plan, Timestamp(0));
            engine.plans.insert(reference.blob.clone(), Arc::new(plan));
        }
        let places = engine.tasks.len().max(snapshot.tasks.len());
        for place in 0..places {
            let found = snapshot.tasks.get(place).map(|task| &task.id);
            let expected = engine.tasks.get(place).map(|task| &task.id);
            if found != expected {
                let name = |id: Option<&TaskId>| id.map_or("nothing", TaskId::as_str).to_owned();
                return Err(InvalidSnapshot::Task {
                    run: id.clone(),
                    place: u32::try_from(place).unwrap_or(u32::MAX),
                    found: name(found),
                    expected: name(expected),
                });
            }
        }
        engine.run = Some(snapshot.run.clone());
        for (number, record) in (0_u32..).zip(&snapshot.tasks) {
            engine.replace(number, record.clone());
        }
        engine.pools =
            snapshot.pools.iter().map(|pool| (pool.name.clone(), pool.clone())).collect();
        engine.owners =
            snapshot.owners.iter().map(|one| (one.owner.id.clone(), one.clone())).collect();
        engine.seq = snapshot.seq;
        engine.rank();
        Ok(engine)
    }

    /// Decides what a command causes; changes nothing, and is the same whenever state, time and
    /// command are.
    ///
    /// The time never goes back: a `now` before the run's last event counts as that event's time.
    ///
    /// # Errors
    /// [`Refusal`] when the command makes no sense now; nothing is to be written then.
    pub fn decide(
        &self,
        now: Timestamp,
        _id: &CommandId,
        command: &Command,
    ) -> Result<Decision, Refusal> {
        if let Command::CreateRun { rules } = command {
            if self.run.is_some() {
                return Err(Refusal::RunExists(self.id.clone()));
            }
            let created = EventKind::RunCreated { run: self.id.clone(), rules: rules.clone() };
            return Ok(Decision::of(now, vec![created]));
        }
        let run = self.run.as_ref().ok_or_else(|| Refusal::NoRun(self.id.clone()))?;
        let now = now.max(run.last_at);
        match command {
            Command::CreateRun { .. } => Err(Refusal::RunExists(self.id.clone())),
            Command::AddPlan { plan } => self.decide_plan(now, run, plan),
            Command::LimitPool { pool, limit } => {
                let set = EventKind::PoolLimited { pool: pool.clone(), limit: *limit };
                let same = self.pools.get(pool).is_some_and(|known| known.limit == *limit);
                Ok(Decision::of(now, if same { vec![] } else { vec![set] }))
            }
            Command::SetBudget { budget } => {
                let set = EventKind::BudgetSet { budget: *budget };
                Ok(Decision::of(now, if run.budget == *budget { vec![] } else { vec![set] }))
            }
            Command::OpenDriver { owner, reading, ttl, token_floor, ended } => {
                let opening = owner::Opening { owner, reading, ttl: *ttl, floor: *token_floor };
                self.decide_open(now, run, &opening, ended.as_ref())
            }
            Command::CloseDriver { owner } => self.decide_close(now, run, owner),
            Command::Claim { owner } => self.decide_claim(now, run, owner),
            Command::Report(report) => Ok(self.decide_report(now, run, report)),
            Command::IntendMerge { task, token, intent } => {
                Ok(self.decide_intent(now, task, *token, intent))
            }
            Command::Stopped { task, token } => Ok(self.decide_stopped(now, run, task, *token)),
            Command::Tick => Ok(Decision::of(now, self.time_events(now, run))),
            Command::Retry { .. }
            | Command::Resolve { .. }
            | Command::Cancel { .. }
            | Command::Pause { .. }
            | Command::Drain { .. }
            | Command::Resume { .. } => self.decide_people(now, run, command),
            Command::Settle => Ok(Decision::of(now, self.settling(now, run))),
        }
    }

    fn decide_plan(
        &self,
        now: Timestamp,
        run: &RunRecord,
        plan: &Plan,
    ) -> Result<Decision, Refusal> {
        let bytes = canonical(plan);
        let blob = BlobHash::of(&bytes);
        if run.plans.iter().any(|known| known.blob == blob) {
            // The very same plan again: a caller that does not know whether it was added.
            return Ok(Decision::of(now, vec![]));
        }
        let faults = plan.check(&|id| self.numbers.contains_key(id));
        if !faults.is_empty() {
            return Err(Refusal::Plan(faults));
        }
        let tasks = u32::try_from(plan.tasks.len()).unwrap_or(u32::MAX);
        let mut decision = Decision::of(now, vec![EventKind::PlanAdded { plan: blob, tasks }]);
        decision.blobs.push(bytes);
        Ok(decision)
    }

    /// Makes a plan's content known, so that the event that adds it can be applied.
    pub fn offer(&mut self, plan: Arc<Plan>) {
        self.plans.insert(BlobHash::of(&canonical(&plan)), plan);
    }
}

/// The form of a plan that its address is taken of.
fn canonical(plan: &Plan) -> Vec<u8> {
    serde_json::to_vec(plan).expect("a plan holds nothing that JSON cannot say")
}

impl Decision {
    /// These events at this time, and nothing to say about them.
    fn of(at: Timestamp, kinds: Vec<EventKind>) -> Self {
        Self::answering(at, kinds, Answer::Done)
    }

    fn answering(at: Timestamp, kinds: Vec<EventKind>, answer: Answer) -> Self {
        let events = kinds.into_iter().map(|kind| Event { at, kind }).collect();
        Self { events, answer, blobs: Vec::new() }
    }
}
