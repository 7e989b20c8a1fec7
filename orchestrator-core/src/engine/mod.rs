//! The state machine: it decides what happens and applies what happened.
//!
//! No clock, no input or output, no threads, no randomness: [`Engine::decide`] is a pure function of
//! the state, the time and a command; [`Engine::evolve`] applies one event and cannot fail. The
//! files: `claim` (what is granted) with `choice` (whose turn it is), `report` (how a stage ended) with
//! `late` (whether that counts) and `holder` (what else is said of a lease), `people` (what people ask),
//! `owner` (who drives, and what time does), `submit` (a command is decided and applied) with `batch`
//! (several of them as one commit, undone when it is refused), `evolve` with `steps` (of one task),
//! `change` (how that is made) and `growth` (of the run), `prune` (what is over), `fairness` (what is
//! kept for whom), `money` (budgets, and what is held back), `ask` (questions) with `reason` (what
//! holds a task), `audit`, `restore` (from a store).
//!
//! Inside, tasks are numbers: `table` (their records in dense form; what the plans say of them is in
//! [`Specs`]), `index` (what is computed; `places` and `neighbours` keep it), `locks` (scopes). Names are
//! for the edge.

mod ask;
mod audit;
mod batch;
mod body;
mod change;
mod choice;
mod claim;
mod detail;
mod draft;
mod edit;
mod evolve;
mod fairness;
mod growth;
mod heap;
mod holder;
mod index;
mod kind;
mod late;
mod leases;
mod locks;
mod money;
mod neighbours;
mod owner;
mod people;
mod places;
mod prune;
mod reason;
mod record;
mod registry;
mod report;
mod restore;
mod slab;
mod steps;
mod submit;
mod table;

use std::sync::Arc;

pub use self::ask::Settlement;
use self::batch::Batch;
use self::body::{Bodies, Body};
use self::draft::Draft;
use self::index::Index;
pub use self::reason::{Mover, Reason};
use self::registry::Registry;
pub use self::restore::InvalidSnapshot;
use self::table::Table;
use crate::command::{Answer, Command, Decision, Refusal};
use crate::event::EventKind;
use crate::id::{BlobHash, CommandId, OwnerId, PoolName, RunId, Seq};
use crate::mutant::{Mutant, is_on};
use crate::plan::{Canonical, Plan, PlanFault};
use crate::policy::{RemainingPath, SchedulingPolicy};
use crate::record::{OwnerRecord, PoolBounds, PoolRecord, RunRecord};
use crate::specs::{Profile, Specs};
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
    specs: Specs,
    table: Table,
    pools: Registry<PoolName, PoolRecord>,
    owners: Registry<OwnerId, OwnerRecord>,
    /// Plans and edits whose content is known.
    bodies: Bodies,
    index: Index,
    batch: Batch,
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
            specs: Specs::default(),
            table: Table::default(),
            pools: Registry::default(),
            owners: Registry::default(),
            bodies: Bodies::new(),
            index: Index::default(),
            batch: Batch::default(),
        }
    }

    /// The engine with another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Arc<dyn SchedulingPolicy>) -> Self {
        self.policy = policy;
        self.rank();
        self
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
        let mut draft = Draft::default();
        let answer = self.decide_into(&mut draft, now, command).map_err(|refusal| *refusal)?;
        Ok(Decision { events: self.published(&draft), answer, blobs: draft.blobs })
    }

    /// Adds to the draft what the command causes; gives its answer.
    fn decide_into(
        &self,
        draft: &mut Draft,
        now: Timestamp,
        command: &Command,
    ) -> Result<Answer, Box<Refusal>> {
        draft.now = self.not_before(now);
        match &self.run {
            Some(run) => self.decide_more(draft, run, command),
            None => self.decide_first(draft, command),
        }
    }

    /// The time as this run has it.
    #[inline(always)]
    fn not_before(&self, now: Timestamp) -> Timestamp {
        let last = self.run.as_ref().map_or(now, |run| run.last_at);
        if is_on(Mutant::TimeGoesBack) { now } else { now.max(last) }
    }

    /// The first command of a run creates it.
    fn decide_first(&self, draft: &mut Draft, command: &Command) -> Result<Answer, Box<Refusal>> {
        let Command::CreateRun { rules } = command else {
            return Err(Box::new(Refusal::NoRun(self.id.clone())));
        };
        draft.push(EventKind::RunCreated { run: self.id.clone(), rules: rules.clone() });
        Ok(Answer::Done)
    }

    fn decide_more(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        command: &Command,
    ) -> Result<Answer, Box<Refusal>> {
        match command {
            Command::CreateRun { .. } => {
                return Err(Box::new(Refusal::RunExists(self.id.clone())));
            }
            Command::AddPlan { plan } => self.decide_plan(draft, run, plan)?,
            Command::LimitPool { .. }
            | Command::ClosePool { .. }
            | Command::OpenPool { .. }
            | Command::BoundPool { .. }
            | Command::SetPilot { .. }
            | Command::SetBudget { .. } => self.decide_bounds(draft, run, command),
            Command::OpenDriver { owner, reading, ttl, token_floor, ended } => {
                let opening = owner::Opening { owner, reading, ttl: *ttl, floor: *token_floor };
                self.decide_open(draft, run, &opening, ended.as_ref())?;
            }
            Command::CloseDriver { owner } => self.decide_close(draft, run, owner)?,
            Command::ClaimTask { owner, task } => {
                let only = self.number(task).ok_or_else(|| Refusal::UnknownTask(task.clone()))?;
                let grant = self.decide_claim_of(draft.now, run, owner, only)?;
                return Ok(draft.grants(grant));
            }
            Command::Claim { owner } => {
                let grant = self.decide_claim(draft.now, run, owner)?;
                return Ok(draft.grants(grant));
            }
            Command::Report(report) => {
                let is_taken = self.decide_report(draft, report);
                return Ok(is_taken.map_or_else(Answer::Refused, |()| Answer::Done));
            }
            Command::IntendMerge { task, token, intent } => {
                return Ok(self.decide_intent(draft, *task, *token, intent));
            }
            Command::Dispatch { task, token, content } => {
                return Ok(self.decide_dispatch(draft, *task, *token, content));
            }
            Command::Supersede { task, token } => {
                return Ok(self.decide_supersede(draft, run, *task, *token));
            }
            Command::Stopped { task, token } => {
                return Ok(self.decide_stopped(draft, run, *task, *token));
            }
            Command::Tick => self.time_events(draft, run),
            Command::Retry { .. }
            | Command::Resolve { .. }
            | Command::Cancel { .. }
            | Command::Edit { .. }
            | Command::Pause { .. }
            | Command::Drain { .. }
            | Command::Resume { .. } => self.decide_people(draft, run, command)?,
            Command::Prune => self.decide_prune(draft, run),
            Command::Settle => self.settling(draft, run),
        }
        Ok(Answer::Done)
    }

    fn decide_plan(&self, draft: &mut Draft, run: &RunRecord, plan: &Plan) -> Result<(), Refusal> {
        let mut canonical = Canonical::new(plan.tasks.len());
        let checked = self.specs.check(plan, &mut |tasks| canonical.tasks(tasks));
        let (bytes, blob) = canonical.finish(plan);
        let is_pruned = self.specs.pruned().any(|known| *known == blob);
        let is_pruned = is_pruned && !is_on(Mutant::PrunedPlanIsNew);
        let is_known = is_pruned || run.plans.iter().any(|known| known.blob == blob);
        if is_known && !is_on(Mutant::PlanConflictsWithItself) {
            // The very same plan again: a caller that does not know whether it was added.
            return Ok(());
        }
        let (links, mut faults) = match checked {
            Ok(links) => (Some(Box::new(links)), Vec::new()),
            Err(faults) => (None, faults),
        };
        faults.extend(self.other_budgets(run, plan));
        if !faults.is_empty() {
            return Err(Refusal::Plan(faults));
        }
        draft.links = links;
        let tasks = u32::try_from(plan.tasks.len()).unwrap_or(u32::MAX);
        draft.push(EventKind::PlanAdded { plan: blob, tasks });
        draft.blobs.push(bytes);
        Ok(())
    }

    /// The budgets of a plan that are other ones than those that there are.
    fn other_budgets(&self, run: &RunRecord, plan: &Plan) -> Vec<PlanFault> {
        let of_pool = |(pool, bounds): (&PoolName, &PoolBounds)| {
            let known = self.pools.by_name(pool).and_then(|known| known.bounds.budget);
            (Some(pool.clone()), bounds.budget, known)
        };
        let all = plan.pool_bounds.iter().map(of_pool);
        let all = [(None, plan.budget, run.budget)].into_iter().chain(all);
        let fault =
            |(pool, plan, run)| Some(PlanFault::OtherBudget { pool, plan: plan?, run: run? });
        let replaces = is_on(Mutant::LaterPlanReplacesBudget);
        all.filter(|(_, plan, run)| plan != run && !replaces).filter_map(fault).collect()
    }

    /// Makes a plan's content known, so that the event that adds it can be applied.
    pub fn offer(&mut self, plan: Arc<Plan>) {
        self.know(Body::Plan(plan));
    }

    /// Makes an edit's content known, so that the event that makes it can be applied.
    pub fn offer_edit(&mut self, spec: Arc<TaskSpec>) {
        self.know(Body::Amendment(spec));
    }

    /// Makes the content of an entry of [`Snapshot::plans`](crate::Snapshot::plans) known, whatever it
    /// is; one that is neither a plan nor an edit is left alone.
    pub fn offer_entry(&mut self, bytes: &[u8]) {
        if let Ok(body) = Body::read(bytes) {
            self.bodies.insert(BlobHash::of(bytes), body);
        }
    }

    /// What a task has in common with others.
    #[inline]
    fn profile(&self, number: u32) -> &Profile {
        self.specs.profile(self.table.hot(number).profile())
    }

    /// The class of a task at the stage that it is at.
    #[inline]
    fn class_of(&self, number: u32) -> Option<u32> {
        let hot = self.table.hot(number);
        hot.class(self.specs.profile(hot.profile()))
    }

    fn know(&mut self, body: Body) {
        self.bodies.insert(BlobHash::of(&body.canonical()), body);
    }
}
