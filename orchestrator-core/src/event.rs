//! What happened: the entries of a run's log.

use serde::{Deserialize, Serialize};

use crate::id::{
    BlobHash, ChangeId, FencingToken, OwnerId, PoolName, RunId, Seq, SessionId, TaskId,
};
use crate::lease::Owner;
use crate::money::Usd;
use crate::outcome::{Candidate, Interruption, MergeIntent, Restart};
use crate::record::{Cause, ParkReason, PoolBounds};
use crate::retry::RetryRules;
use crate::time::{Anchor, Timestamp};

/// Largest event in a log, in bytes of JSON; longer texts are blobs.
pub const EVENT_BYTES_MAX: usize = 4 * 1024;

/// One thing that happened, and when.
///
/// In a log a task is named by its id; inside the engine (`T` is [`TaskNo`](crate::TaskNo)) by its
/// number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event<T = TaskId> {
    /// When, by the run's own time.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind<T>,
}

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Its place.
    pub seq: Seq,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind<T = TaskId> {
    /// A run began.
    RunCreated {
        /// Its name.
        run: RunId,
        /// The rules of its retries.
        rules: RetryRules,
    },
    /// A plan was added; its tasks follow those that were there.
    PlanAdded {
        /// The plan's canonical JSON.
        plan: BlobHash,
        /// How many tasks it has.
        tasks: u32,
    },
    /// A plan that was over was pruned.
    PlanPruned {
        /// Its address.
        plan: BlobHash,
        /// The address of what is left of it.
        left: BlobHash,
    },
    /// A pool got this limit.
    PoolLimited {
        /// The pool.
        pool: PoolName,
        /// Its permits.
        limit: u32,
    },
    /// A pool gives no permits until a time.
    PoolClosed {
        /// The pool.
        pool: PoolName,
        /// That time.
        until: Timestamp,
    },
    /// A pool gives permits again.
    PoolOpened {
        /// The pool.
        pool: PoolName,
    },
    /// A pool got these bounds beside its limit.
    PoolBounded {
        /// The pool.
        pool: PoolName,
        /// What holds it back.
        bounds: PoolBounds,
    },
    /// It was set how many tasks are begun before the run parks.
    PilotSet {
        /// How many; `None` is all.
        tasks: Option<u32>,
    },
    /// The run's budget was set.
    BudgetSet {
        /// The most it may spend.
        budget: Option<Usd>,
    },
    /// A process began to drive the run.
    DriverOpened {
        /// The process; apart, since it would make all events larger.
        owner: Box<Owner>,
        /// How the run's time follows from the clocks from here on.
        anchor: Anchor,
        /// How long a lease lives after a renewal, in milliseconds.
        ttl_ms: u64,
        /// No token up to this one is ever granted again.
        token_floor: FencingToken,
    },
    /// A process ceased to drive the run.
    DriverEnded {
        /// The process.
        owner: OwnerId,
    },
    /// A stage was granted.
    Granted {
        /// The task.
        task: T,
        /// The stage, counted from 0.
        stage: u8,
        /// The attempt.
        attempt: u32,
        /// The lease's number.
        token: FencingToken,
        /// Who holds it.
        owner: OwnerId,
        /// When it ends whatever happens.
        hard_stop: Timestamp,
        /// The money set aside.
        reserved: Usd,
    },
    /// A stage passed.
    Passed {
        /// The task.
        task: T,
        /// The lease.
        token: FencingToken,
        /// What was booked for it.
        cost: Usd,
        /// The change, when the stage made one.
        candidate: Option<Candidate>,
        /// What the target holds now, when the stage merged.
        merged: Option<ChangeId>,
        /// The agent's conversation.
        session: Option<SessionId>,
    },
    /// A stage judged the work not good enough.
    Rejected {
        /// The task.
        task: T,
        /// The lease.
        token: FencingToken,
        /// What was booked for it.
        cost: Usd,
        /// What the next attempt must know.
        feedback: BlobHash,
        /// The feedback's normalised form.
        signature: u64,
        /// Where the next attempt starts.
        restart: Restart,
        /// A candidate that takes the place of the old one.
        candidate: Option<Candidate>,
        /// The agent's conversation.
        session: Option<SessionId>,
        /// The next attempt begins no sooner than this.
        #[serde(default)]
        until: Timestamp,
    },
    /// A gate was asked and is not open yet.
    Suspended {
        /// The task.
        task: T,
        /// The lease.
        token: FencingToken,
        /// What was booked for it.
        cost: Usd,
        /// It is asked again no sooner than this.
        until: Timestamp,
    },
    /// A stage ended through no fault of the task.
    Interrupted {
        /// The task.
        task: T,
        /// The lease.
        token: FencingToken,
        /// What was booked for it.
        cost: Usd,
        /// Why.
        reason: Interruption,
        /// Not before this time again.
        until: Timestamp,
        /// The conversation that can be taken up.
        session: Option<SessionId>,
    },
    /// A lease ended, and its processes are not yet known to be gone.
    Stopping {
        /// The task.
        task: T,
        /// The lease.
        token: FencingToken,
        /// Why.
        reason: Interruption,
    },
    /// A person must act. Ends the lease, where there is one.
    Escalated {
        /// The task.
        task: T,
        /// The lease that ended with it.
        token: Option<FencingToken>,
        /// What was booked for it.
        cost: Usd,
        /// Why.
        cause: Cause,
        /// The question, feedback or error in full.
        text: Option<BlobHash>,
        /// Where unsealed work is kept.
        kept: Option<String>,
    },
    /// A result under a lease that is not the task's was refused.
    ResultRefused {
        /// The task.
        task: T,
        /// The lease it named.
        token: FencingToken,
        /// The stage it named; what it cost is booked to the pools of this one.
        #[serde(default)]
        stage: u8,
        /// Why.
        reason: Stale,
        /// What was booked on top.
        cost: Usd,
    },
    /// The holder of a lease said what it hands out under it.
    Dispatched {
        /// The task.
        task: T,
        /// The lease.
        token: FencingToken,
        /// The content: see [`Grant::content`](crate::Grant::content).
        content: BlobHash,
    },
    /// A merge is about to happen.
    MergeIntended {
        /// The task.
        task: T,
        /// The lease.
        token: FencingToken,
        /// The merge.
        intent: MergeIntent,
    },
    /// The wait of a task is over.
    Due {
        /// The task.
        task: T,
    },
    /// A person changed what a task is asked to be.
    Edited {
        /// The task.
        task: T,
        /// What it is from now on; it is among the plans of the run.
        spec: BlobHash,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// A person had a task tried again.
    Retried {
        /// The task.
        task: T,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// A person settled a task.
    Resolved {
        /// The task.
        task: T,
        /// How.
        how: Resolution,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// A person gave a task up whose stage runs: that is stopped first, and ends as cancelled.
    Cancelling {
        /// The task.
        task: T,
        /// The lease.
        token: FencingToken,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// A person gave a task up.
    Cancelled {
        /// The task.
        task: T,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// A person paused the run.
    Paused {
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
    /// The run grants nothing more and parks when nothing runs.
    Draining {
        /// Why.
        reason: ParkReason,
    },
    /// The run stands still.
    Parked {
        /// Why.
        reason: ParkReason,
    },
    /// The run grants again.
    Resumed {
        /// Who.
        actor: String,
    },
    /// All tasks are done or cancelled.
    Completed,
    /// Nothing more can happen, and some task is escalated or blocked.
    Failed,
}

impl<T> EventKind<T> {
    /// The same with the task named in another way.
    #[must_use]
    pub fn named<U>(self, name: impl FnOnce(T) -> U) -> EventKind<U> {
        macro_rules! convert {
            (
                named: [$($named:ident { $($field:ident),* }),* $(,)?],
                other: [$($other:ident $({ $($part:ident),* })?),* $(,)?]
            ) => {
                match self {
                    $(Self::$named { task, $($field),* } => {
                        EventKind::$named { task: name(task), $($field),* }
                    })*
                    $(Self::$other $({ $($part),* })? => EventKind::$other $({ $($part),* })?,)*
                }
            };
        }
        convert! {
            named: [
                Granted { stage, attempt, token, owner, hard_stop, reserved },
                Passed { token, cost, candidate, merged, session },
                Rejected { token, cost, feedback, signature, restart, candidate, session, until },
                Suspended { token, cost, until },
                Interrupted { token, cost, reason, until, session },
                Stopping { token, reason },
                Escalated { token, cost, cause, text, kept },
                ResultRefused { token, stage, reason, cost },
                Dispatched { token, content },
                MergeIntended { token, intent },
                Due {},
                Edited { spec, actor, reason },
                Retried { actor, reason },
                Resolved { how, actor, reason },
                Cancelling { token, actor, reason },
                Cancelled { actor, reason },
            ],
            other: [
                RunCreated { run, rules },
                PlanAdded { plan, tasks },
                PlanPruned { plan, left },
                PoolLimited { pool, limit },
                PoolClosed { pool, until },
                PoolOpened { pool },
                PoolBounded { pool, bounds },
                PilotSet { tasks },
                BudgetSet { budget },
                DriverOpened { owner, anchor, ttl_ms, token_floor },
                DriverEnded { owner },
                Paused { actor, reason },
                Draining { reason },
                Parked { reason },
                Resumed { actor },
                Completed,
                Failed,
            ]
        }
    }

    /// The task that the event is about.
    #[must_use]
    pub const fn task(&self) -> Option<&T> {
        match self {
            Self::Granted { task, .. }
            | Self::Passed { task, .. }
            | Self::Rejected { task, .. }
            | Self::Suspended { task, .. }
            | Self::Interrupted { task, .. }
            | Self::Stopping { task, .. }
            | Self::Escalated { task, .. }
            | Self::ResultRefused { task, .. }
            | Self::Dispatched { task, .. }
            | Self::MergeIntended { task, .. }
            | Self::Due { task }
            | Self::Edited { task, .. }
            | Self::Retried { task, .. }
            | Self::Resolved { task, .. }
            | Self::Cancelling { task, .. }
            | Self::Cancelled { task, .. } => Some(task),
            Self::RunCreated { .. }
            | Self::PlanAdded { .. }
            | Self::PlanPruned { .. }
            | Self::PoolLimited { .. }
            | Self::PoolClosed { .. }
            | Self::PoolOpened { .. }
            | Self::PoolBounded { .. }
            | Self::PilotSet { .. }
            | Self::BudgetSet { .. }
            | Self::DriverOpened { .. }
            | Self::DriverEnded { .. }
            | Self::Paused { .. }
            | Self::Draining { .. }
            | Self::Parked { .. }
            | Self::Resumed { .. }
            | Self::Completed
            | Self::Failed => None,
        }
    }
}

/// How a person settles a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// It was done by hand.
    ByHand,
    /// What depends on it goes on without it.
    Skip,
    /// A person says what the stage at which it waits would have said: it passed, and the task goes
    /// on at the next stage, with as many retries and grants as a new one. Only a stage that judges
    /// can be passed like that.
    Approve,
}

/// Why a result, an announcement or a stop counts for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Stale {
    /// It is for another run.
    #[error("it is for another run")]
    OtherRun,
    /// The run has no such task.
    #[error("the run has no such task")]
    UnknownTask,
    /// The task has no live lease.
    #[error("the task has no live lease")]
    NoLease,
    /// The task's lease is another one.
    #[error("the task's lease has token {current}")]
    OtherToken {
        /// The number of the live lease.
        current: FencingToken,
    },
    /// The lease was ended before.
    #[error("the lease was ended and is being stopped")]
    Stopping,
    /// The lease is for another stage.
    #[error("the lease is for another stage")]
    OtherStage,
    /// The lease is for another attempt.
    #[error("the lease is for another attempt")]
    OtherAttempt,
    /// The result answers something else than what was handed out under the lease.
    #[error("it answers something else than what was handed out")]
    OtherContent,
    /// The lease is renewed by a process that lives, and not for others to take back.
    #[error("its holder renews the lease; only one that is not renewed can be taken back")]
    Renewed,
}
