//! The loop between engine and ports.
//!
//! One loop owns the engine. Whatever arrived since its last turn becomes one batch and one durable
//! commit; all that takes time happens in stages outside the loop. The files: `ledger` (engine and
//! store in step), `log` (reading what others committed), `opening` (taking over a run), `turns` (the
//! loop), `message` (what it is told), `underway` (all that runs, and its end), `stage` (one stage
//! from grant to report), `integrate` (the stage that merges), `stage_logs` (where stages log),
//! `releases` (workspaces that go), `room` (whether there is any), `capacity` (limits that change by
//! themselves), `pilot` (what becomes of a run after it), `preflight` (what is tried before it),
//! `renewals` (the driver's own deadline), `view` (what observers see), `explain` (why a task does not
//! run), `shield` (adapters that panic). None of them needs `turns`, and `message` needs none of
//! them.

mod capacity;
mod explain;
mod integrate;
mod ledger;
mod log;
mod message;
mod opening;
mod pilot;
mod preflight;
mod releases;
mod renewals;
mod room;
mod shield;
mod stage;
mod stage_logs;
mod turns;
mod underway;
mod view;

pub use self::capacity::SharedCapacity;
pub use self::pilot::PilotRule;
pub use self::preflight::Tried;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::command::{Answer, Command, Refusal};
use crate::engine::{InvalidSnapshot, Reason};
use crate::id::{PoolName, RunId, TaskId};
use crate::lease::Owner;
use crate::mask::Mask;
use crate::money::Usd;
use crate::plan::Plan;
use crate::policy::{RemainingPath, SchedulingPolicy};
use crate::port::{
    CommitError, Host, Integrator, Observer, PortError, Reviewer, Runner, Store, StoreError,
    Verifier, Workspaces,
};
use crate::record::ParkReason;
use crate::retry::RetryRules;

/// The adapters that a run is carried out with.
#[derive(Clone)]
pub struct Ports {
    /// Keeps the run.
    pub store: Arc<dyn Store>,
    /// Works on tasks.
    pub runner: Arc<dyn Runner>,
    /// Judges by exit code.
    pub verifier: Arc<dyn Verifier>,
    /// Judges changes.
    pub reviewer: Arc<dyn Reviewer>,
    /// Merges.
    pub integrator: Arc<dyn Integrator>,
    /// Gives tasks a place to work in.
    pub workspaces: Arc<dyn Workspaces>,
    /// The machine.
    pub host: Arc<dyn Host>,
    /// Who watches.
    pub observer: Arc<dyn Observer>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ports")
    }
}

/// How a run is driven.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DriverConfig {
    /// The run's name.
    pub run: RunId,
    /// Where the logs of each stage go, a folder for each task.
    pub stages_dir: PathBuf,
    /// Limits of pools, in place of the plan's.
    pub limits: BTreeMap<PoolName, u32>,
    /// What says the limits of pools while the run goes on, in place of what is fixed.
    pub capacity: BTreeMap<PoolName, SharedCapacity>,
    /// A pilot, for a run that is created, and when a run goes on after one.
    pub pilot: Option<PilotRule>,
    /// The most that the run may spend, in place of the plan's.
    pub budget: Option<Usd>,
    /// The rules of retries, for a run that is created.
    pub rules: RetryRules,
    /// What goes first.
    pub policy: Arc<dyn SchedulingPolicy>,
    /// How long leases live after a renewal; they are renewed three times as often.
    pub lease_ttl: Duration,
    /// How long stages have to end when they are asked to; more than a year counts as a year.
    pub stop_grace: Duration,
    /// Whether a run that is paused or parked is resumed.
    pub resume: bool,
    /// What is taken out of feedback, questions, errors and signs of life before they are stored or
    /// shown; all that looks like a key, unless more is said.
    pub mask: Mask,
}

impl DriverConfig {
    /// The usual way to drive this run: leases of 60 s, 8 s to stop.
    #[must_use]
    pub fn new(run: RunId, stages_dir: PathBuf) -> Self {
        Self {
            run,
            stages_dir,
            limits: BTreeMap::new(),
            capacity: BTreeMap::new(),
            pilot: None,
            budget: None,
            rules: RetryRules::default(),
            policy: Arc::new(RemainingPath),
            lease_ttl: Duration::from_secs(60),
            stop_grace: Duration::from_secs(8),
            resume: false,
            mask: Mask::keys(),
        }
    }
}

/// Why driving ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// All tasks are done or cancelled.
    Completed,
    /// Nothing more can happen, and some task is escalated or blocked.
    Failed,
    /// The run stands still for this reason, until it is resumed.
    Parked(ParkReason),
    /// Some task could run, but what it needs will never be there.
    Stalled(Vec<(TaskId, Vec<Reason>)>),
    /// The run is paused.
    Paused,
    /// It was asked to stop; driving the run again goes on.
    Stopped,
}

/// Why a run could not be driven on. What was committed stands; driving the run again goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another process drives the run.
    #[error(
        "run `{run}` is driven by process {} on host `{}`: wait for it, or end it first",
        .owner.pid, .owner.host
    )]
    DriverRunning {
        /// The run.
        run: RunId,
        /// The process.
        owner: Box<Owner>,
    },
    /// The store does not answer, or not understandably.
    #[error("the run cannot be read")]
    Store(#[from] StoreError),
    /// The store does not take what happened.
    #[error("what happened cannot be written")]
    Commit(#[from] CommitError),
    /// What the store has makes no sense.
    #[error("what the store has makes no sense")]
    Snapshot(#[from] InvalidSnapshot),
    /// The engine refused what the run begins with: a plan that does not fit, say.
    #[error("the run cannot begin like this")]
    Refused(#[from] Refusal),
    /// An adapter failed before anything was granted.
    #[error("the run cannot be taken over")]
    Port(#[from] PortError),
}

/// Drives a run to its end: the ready composition of engine, store and adapters.
#[derive(Debug, Clone)]
pub struct Orchestrator {
    ports: Ports,
    config: DriverConfig,
}

impl Orchestrator {
    /// An orchestrator with these adapters.
    #[must_use]
    pub const fn new(ports: Ports, config: DriverConfig) -> Self {
        Self { ports, config }
    }

    /// Drives the run until nothing more can happen, or until `stop` is cancelled.
    ///
    /// A run that the store does not have is created. The plan is added unless the run has it; a run
    /// that goes on needs none. When this returns, no stage runs, and this process no longer holds
    /// the run.
    ///
    /// # Errors
    /// [`RunError`]; what was committed stands, and driving the run again goes on.
    pub async fn drive(
        &self,
        plan: Option<Arc<Plan>>,
        stop: CancellationToken,
    ) -> Result<RunEnd, RunError> {
        let Self { ports, config } = self.shielded()?;
        let driving = opening::Driving::new(&ports, &config);
        let ledger = opening::open(&ports, &config, plan, &driving).await?;
        turns::Turns::new(ports, config, ledger, stop).run().await
    }

    /// The same, with adapters whose panics are errors.
    fn shielded(&self) -> Result<Self, PortError> {
        let policy = Arc::new(shield::ShieldedPolicy(Arc::clone(&self.config.policy)));
        let config = DriverConfig { policy, ..self.config.clone() };
        Ok(Self { ports: shield::shielded(&self.ports)?, config })
    }

    /// The adapters.
    #[must_use]
    pub const fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Has a command decided and committed, whether or not some process drives the run: a person's
    /// retry, say. A driver notices within about a second.
    ///
    /// # Errors
    /// [`RunError::Refused`] when the command makes no sense now, or the run does not exist; the
    /// other variants when the store does not answer.
    pub async fn ask(&self, command: &Command) -> Result<Answer, RunError> {
        let Self { ports, config } = self.shielded()?;
        let mut ledger = opening::load(&ports, &config).await?.0;
        let turn = ledger.turn(std::slice::from_ref(command), ledger::Aim::Commands).await?;
        if !turn.events.is_empty() {
            view::show(&*ports.observer, &turn.events, &ledger);
        }
        let answer = turn.answers.into_iter().next();
        Ok(answer.unwrap_or(Ok(Answer::Nothing))?)
    }
}
