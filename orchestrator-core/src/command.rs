//! What is asked of the engine, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Resolution, Stale};
use crate::id::{
    BlobHash, ChangeId, FencingToken, OwnerId, PoolName, RunId, SessionId, TaskId, TaskNo,
};
use crate::lease::Owner;
use crate::money::{Cost, Usd};
use crate::outcome::{Candidate, MergeIntent, Outcome, Restart};
use crate::pipeline::StageSpec;
use crate::plan::{Plan, PlanFault};
use crate::record::{ParkReason, PoolBounds};
use crate::retry::RetryRules;
use crate::task::TaskSpec;
use crate::time::{ClockReading, Timestamp, millis};

/// What is asked of the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Begins the run.
    CreateRun {
        /// The rules of its retries.
        rules: RetryRules,
    },
    /// Adds a plan, all of it or nothing.
    AddPlan {
        /// The plan.
        plan: Arc<Plan>,
    },
    /// Gives a pool this limit.
    LimitPool {
        /// The pool.
        pool: PoolName,
        /// Its permits.
        limit: u32,
    },
    /// Closes a pool until a time, unless it is closed for longer.
    ClosePool {
        /// The pool.
        pool: PoolName,
        /// That time.
        until: Timestamp,
    },
    /// Opens a pool that is closed, before its time.
    OpenPool {
        /// The pool.
        pool: PoolName,
    },
    /// Gives a pool these bounds beside its limit, in the place of those that it has.
    BoundPool {
        /// The pool.
        pool: PoolName,
        /// What holds it back.
        bounds: PoolBounds,
    },
    /// Sets how many tasks are begun before the run parks to be judged by them.
    SetPilot {
        /// How many; `None` is all, without a stop.
        tasks: Option<u32>,
    },
    /// Sets the most that the run may spend.
    SetBudget {
        /// The amount; `None` is no limit.
        budget: Option<Usd>,
    },
    /// Makes a process the one that drives the run.
    OpenDriver {
        /// The process.
        owner: Owner,
        /// What its clocks show.
        reading: ClockReading,
        /// How long a lease lives after a renewal; [`HELD`](crate::HELD) for a supervisor that does not
        /// renew.
        ttl: Duration,
        /// No token up to this one is granted.
        token_floor: FencingToken,
        /// The former driver, when it is known to have ended without saying so.
        ended: Option<OwnerId>,
    },
    /// Ends a process's driving; leases that it still has must be stopped.
    CloseDriver {
        /// The process.
        owner: OwnerId,
    },
    /// Takes the next stage that can run.
    Claim {
        /// For whom.
        owner: OwnerId,
    },
    /// Takes the next stage of one task, if that can run now, whatever else could go first; for a
    /// supervisor that chooses by itself.
    ClaimTask {
        /// For whom.
        owner: OwnerId,
        /// The task.
        task: TaskId,
    },
    /// Says how a stage ended.
    Report(Box<StageReport>),
    /// Announces a merge, before it happens.
    IntendMerge {
        /// The task.
        task: TaskNo,
        /// The lease.
        token: FencingToken,
        /// The merge.
        intent: MergeIntent,
    },
    /// Says what is handed out under a lease; a result has to name the same.
    Dispatch {
        /// The task.
        task: TaskNo,
        /// The lease.
        token: FencingToken,
        /// See [`Grant::content`].
        content: BlobHash,
    },
    /// Takes back a lease that is not renewed ([`HELD`](crate::HELD)), or one that is being stopped:
    /// who says so knows that nothing of it runs any more. The stage is granted again at the same
    /// attempt.
    Supersede {
        /// The task.
        task: TaskNo,
        /// The lease.
        token: FencingToken,
    },
    /// Says that nothing of a stopping lease runs any more.
    Stopped {
        /// The task.
        task: TaskNo,
        /// The lease.
        token: FencingToken,
    },
    /// Lets time do its work.
    Tick,
    /// Has an escalated or cancelled task tried again.
    Retry {
        /// The task.
        task: TaskId,
        /// Whether also those that depend on it, directly or not, are, where they are escalated or
        /// cancelled. Those that it only blocks go on by themselves.
        dependents: bool,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// Settles a task without an agent.
    Resolve {
        /// The task.
        task: TaskId,
        /// How.
        how: Resolution,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// Gives a task up. One whose stage runs is stopped first; a result that comes after that is
    /// late.
    Cancel {
        /// The task.
        task: TaskId,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// Changes what a task is asked to be; it holds from its next grant on. Id and pipeline stay, and
    /// of a task that holds its scope that too; dependencies change only before the first grant.
    Edit {
        /// The whole specification that the task has then.
        spec: Arc<TaskSpec>,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// Stops granting until resumed.
    Pause {
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// Stops granting, and parks when nothing runs.
    Drain {
        /// Why.
        reason: ParkReason,
    },
    /// Lets a paused, draining or parked run grant again. One that parked after its pilot goes on
    /// with all of its tasks.
    Resume {
        /// Who.
        actor: String,
    },
    /// Forgets of each plan that is over what only tasks need that still run: prompts, inputs,
    /// dependencies, verify commands. A plan is over when all of its tasks are done or cancelled, nothing
    /// unfinished waits for a cancelled one, and what it depends on in other plans is done or pruned.
    ///
    /// The records stay, so that later plans can depend on such tasks, and so does the plan's text in
    /// the store, for the log names it; it is no longer loaded. The tasks cannot be retried, resolved
    /// or edited any more ([`Refusal::Pruned`]).
    Prune,
    /// Says that the run is over, parked or failed, when it is.
    Settle,
}

/// How a stage ended, as its holder says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    /// The run.
    pub run: RunId,
    /// The task, by the number in its grant.
    pub task: TaskNo,
    /// The stage, counted from 0.
    pub stage: u8,
    /// The attempt.
    pub attempt: u32,
    /// The lease.
    pub token: FencingToken,
    /// What it answers, where that was said with [`Command::Dispatch`].
    pub content: Option<BlobHash>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it cost.
    pub cost: Cost,
    /// The agent's conversation, where it can be taken up.
    pub session: Option<SessionId>,
    /// The change, when the stage made one.
    pub candidate: Option<Candidate>,
    /// What the target holds now, when the stage merged.
    pub merged: Option<ChangeId>,
    /// Where unsealed work is kept.
    pub kept: Option<String>,
    /// Not before this time again, by the run's own time.
    pub retry_at: Option<Timestamp>,
}

/// What a command gets back once its events are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done.
    Done,
    /// A stage to carry out; [`Engine::grant`](crate::Engine::grant) has the rest of it.
    Granted {
        /// The task.
        task: TaskNo,
        /// The stage, counted from 0.
        stage: u8,
        /// The attempt.
        attempt: u32,
        /// The lease.
        token: FencingToken,
    },
    /// Nothing can run now.
    Nothing,
    /// The result counts for nothing.
    Refused(Stale),
}

/// A stage to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The task's number in the run.
    pub number: TaskNo,
    /// The task.
    pub task: TaskId,
    /// The stage, counted from 0.
    pub stage: u8,
    /// The attempt.
    pub attempt: u32,
    /// How many grants the task has had, this one included.
    pub dispatch: u32,
    /// The lease.
    pub token: FencingToken,
    /// The most it may spend.
    pub cap: Usd,
    /// The feedback of its rejections, oldest first.
    pub feedback: Vec<BlobHash>,
    /// Where a run stage starts.
    pub restart: Restart,
    /// The lease that left the workspace, when this attempt began with it.
    pub workspace: Option<FencingToken>,
    /// The conversation that can be taken up.
    pub session: Option<SessionId>,
    /// The change to judge or to stand on.
    pub candidate: Option<Candidate>,
    /// The merge that may already have happened.
    pub intent: Option<MergeIntent>,
}

impl Grant {
    /// The report that this stage ended so, at no cost and with nothing made: what is more to say is
    /// set on it.
    ///
    /// `run` is the run that the grant is of.
    #[must_use]
    pub const fn report(&self, run: RunId, outcome: Outcome) -> StageReport {
        StageReport {
            run,
            task: self.number,
            stage: self.stage,
            attempt: self.attempt,
            token: self.token,
            content: None,
            outcome,
            cost: Cost::NONE,
            session: None,
            candidate: None,
            merged: None,
            kept: None,
            retry_at: None,
        }
    }
}

/// What defines a piece of work, in the order in which it is hashed.
#[derive(Serialize)]
struct Content<'a> {
    attempt: u32,
    cap_micros: u64,
    model: Option<&'a str>,
    prompt: &'a BlobHash,
    run: &'a RunId,
    stage: &'a str,
    task: &'a TaskId,
    timeout_ms: u64,
    token: u64,
}

impl Grant {
    /// The address of what is handed out under this grant: SHA-256, as 64 hex digits, of canonical
    /// JSON (names in order, no blanks) of run, task, stage, attempt, token, prompt, model and limits.
    ///
    /// `prompt` is the address of the rendered prompt, `stage` the stage with the limits that hold.
    ///
    /// ```
    /// # use orchestrator_core::*;
    /// # fn show(grant: &Grant, run: &RunId, stage: &StageSpec) {
    /// let content = grant.content(run, stage, &BlobHash::of(b"port the parser"));
    /// let handed_out = Command::Dispatch { task: grant.number, token: grant.token, content };
    /// # }
    /// ```
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "texts and numbers have a form in JSON")]
    pub fn content(&self, run: &RunId, stage: &StageSpec, prompt: &BlobHash) -> BlobHash {
        let content = Content {
            attempt: self.attempt,
            cap_micros: self.cap.0,
            model: stage.model.as_deref(),
            prompt,
            run,
            stage: stage.name.as_str(),
            task: &self.task,
            timeout_ms: millis(stage.timeout),
            token: self.token.0,
        };
        let json = serde_json::to_vec(&content).expect("texts and numbers have a form in JSON");
        BlobHash::of(&json)
    }
}

/// What a command causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What happens, in order; nothing when the command changes nothing.
    pub events: Vec<Event>,
    /// What the command gets back.
    pub answer: Answer,
    /// Texts that the events name by their address.
    pub blobs: Vec<Vec<u8>>,
}

/// Why a command makes no sense now; nothing is written for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The run was created before.
    #[error("run `{0}` exists already")]
    RunExists(RunId),
    /// The run was not created yet.
    #[error("run `{0}` does not exist")]
    NoRun(RunId),
    /// The plan does not fit the run.
    #[error("the plan has {} faults, the first: {}", .0.len(), .0.first().map(ToString::to_string).unwrap_or_default())]
    Plan(Vec<PlanFault>),
    /// Another process drives the run.
    #[error("process {} on host `{}` drives this run", .0.pid, .0.host)]
    DriverRunning(Box<Owner>),
    /// What a process says of itself cannot be kept.
    #[error(
        "`{owner}` cannot drive the run: its {what} is over 256 bytes, or holds a control character"
    )]
    InvalidOwner {
        /// The process.
        owner: OwnerId,
        /// What of it.
        what: &'static str,
    },
    /// Hardly a token is left to grant: somebody says that so many were granted, in a fence say, which
    /// nobody did.
    #[error(
        "a token as great as {last} leaves none to grant: find out who wrote it, and take it away"
    )]
    TokensUsedUp {
        /// The greatest that is to be taken as granted.
        last: FencingToken,
    },
    /// The process does not drive the run.
    #[error("`{0}` does not drive this run")]
    NotDriver(OwnerId),
    /// The run has no such task.
    #[error("the run has no task `{0}`")]
    UnknownTask(TaskId),
    /// The task's plan was over, and was pruned.
    #[error("task `{0}` is finished and its plan pruned: add another task for what is still to do")]
    Pruned(TaskId),
    /// The task is in a phase where this makes no sense.
    #[error("task `{task}` is {phase}: {remedy}")]
    WrongPhase {
        /// The task.
        task: TaskId,
        /// What it is doing.
        phase: &'static str,
        /// What would help.
        remedy: &'static str,
    },
    /// The run is in a state where this makes no sense.
    #[error("the run is {state}: {remedy}")]
    WrongState {
        /// What it is.
        state: &'static str,
        /// What would help.
        remedy: &'static str,
    },
    /// The task cannot be changed, or not in this way.
    #[error("task `{task}` cannot be edited like that: {why}")]
    NotEditable {
        /// The task.
        task: TaskId,
        /// Why not.
        why: &'static str,
    },
    /// A merge of the task may have happened; its integrate stage must find out first.
    #[error("task `{0}` may have been merged: let its integrate stage find out first")]
    MergeInDoubt(TaskId),
}
