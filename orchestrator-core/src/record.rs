//! The records of a run: what a store keeps, and all that an engine needs to go on.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{
    BlobHash, ChangeId, FencingToken, OwnerId, PoolName, RunId, Seq, SessionId, TaskId, TaskNo,
};
use crate::lease::{HELD, Lease, Owner};
use crate::money::Usd;
use crate::outcome::{Candidate, Interruption, MergeIntent, Restart};
use crate::retry::RetryRules;
use crate::time::{Anchor, Timestamp};

/// The state of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Its name.
    pub id: TaskId,
    /// What it is doing; waiting, ready and blocked are computed and do not stand here.
    pub phase: Phase,
    /// The stage it is at, counted from 0.
    pub stage: u8,
    /// Attempts begun so far.
    pub attempt: u32,
    /// Whether the last of them is under way: neither rejected nor escalated.
    pub under_way: bool,
    /// Rejections so far: what the task's retries are spent on.
    pub rejections: u32,
    /// Rejections by each stage that has a bound of its own for them, in the order of the stages; of
    /// all others 0, or nothing after the last.
    pub rounds: Vec<u32>,
    /// Interruptions since the last stage that ended by itself.
    pub interruptions: u32,
    /// How often its gates were not open.
    pub deferrals: u32,
    /// Grants so far, of any stage.
    pub dispatches: u32,
    /// What people added to what the plan allows.
    pub extra: Extra,
    /// The feedback of its rejections, oldest first.
    pub feedback: Vec<BlobHash>,
    /// The normalised form of its last rejection, to notice the same failure twice in a row.
    pub signature: Option<u64>,
    /// Where the next run stage starts.
    pub restart: Restart,
    /// Whether it holds its scope.
    pub holds_scope: bool,
    /// The last lease of the first stage in the present attempt, which left the workspace.
    pub workspace: Option<FencingToken>,
    /// The conversation that an interrupted run stage can go on with.
    pub session: Option<SessionId>,
    /// The last change it made.
    pub candidate: Option<Candidate>,
    /// The merge that was announced last and is not yet known to have happened or not.
    pub intent: Option<MergeIntent>,
    /// Its last lease.
    pub last_token: FencingToken,
    /// What was handed out under that lease, where its holder said so.
    pub content: Option<BlobHash>,
    /// What was booked for that lease when it ended without its result.
    pub settled: Usd,
    /// Leases before the last one that ended without their result, those that ended last at the
    /// end; a result that still comes shows what they really cost.
    #[serde(default)]
    pub unheard: Vec<Unheard>,
    /// The last lease whose late result was refused.
    pub refused: Option<FencingToken>,
    /// What it has cost.
    pub spent: Usd,
    /// Since when it is in its phase.
    pub since: Timestamp,
}

/// A lease that ended without its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unheard {
    /// Its number.
    pub token: FencingToken,
    /// What was booked for it.
    pub booked: Usd,
}

/// What people allowed a task beyond its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Extra {
    /// Rejections.
    pub retries: u32,
    /// Grants.
    pub dispatches: u32,
    /// Deferrals.
    pub deferrals: u32,
}

/// What a task is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not leased: it waits for dependencies or capacity.
    Open,
    /// Not before a time.
    Deferred {
        /// That time.
        until: Timestamp,
        /// Why.
        why: Wait,
    },
    /// Somebody carries out its stage.
    Leased(Lease),
    /// Its lease ended without a result, and its processes are not yet known to be gone.
    Stopping {
        /// The lease.
        lease: Lease,
        /// Why it ended.
        why: Interruption,
    },
    /// It is done.
    Done(Completion),
    /// A person must act.
    Escalated(Escalation),
    /// A person gave it up.
    Cancelled,
}

/// Why a task is not granted before a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Wait {
    /// Its stage was interrupted.
    Interrupted(Interruption),
    /// Something else.
    Other(Delay),
}

/// A wait that no interruption began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delay {
    /// Its gate was not open when it was asked last.
    GateClosed,
    /// The rules have it wait after a rejection.
    Rejected,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted(reason) => reason.fmt(f),
            Self::Other(Delay::GateClosed) => f.write_str("its gate is not open"),
            Self::Other(Delay::Rejected) => f.write_str("it was rejected a moment ago"),
        }
    }
}

impl Phase {
    /// The phase in one word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Deferred { .. } => "deferred",
            Self::Leased(_) => "leased",
            Self::Stopping { .. } => "stopping",
            Self::Done(_) => "done",
            Self::Escalated(_) => "escalated",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How a task got done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// Its change is in the target.
    Merged(ChangeId),
    /// It passed a pipeline that does not merge.
    Verified,
    /// A person did it.
    ByHand,
    /// A person decided to go on without it.
    Skipped,
}

/// What a person must look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// Why the task cannot go on by itself.
    pub cause: Cause,
    /// The question, feedback or error in full.
    pub text: Option<BlobHash>,
    /// Where the work is kept that is not in the candidate, in the words of the workspaces.
    pub kept: Option<String>,
}

/// Why a task cannot go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Rejected more often than it may be retried.
    RetriesUsed,
    /// Rejected twice in a row for the same reason.
    SameFailure,
    /// The agent asks something.
    Question,
    /// The set-up is at fault.
    Fatal,
    /// Interrupted too often in a row.
    InterruptionsUsed,
    /// Granted as often as it may be.
    DispatchesUsed,
    /// Rejected by one stage more often than that may.
    RoundsUsed,
    /// A gate was not open as often as it may be asked.
    DeferralsUsed,
    /// What is left of its own budget does not cover its next stage.
    BudgetUsed,
}

impl Cause {
    /// The cause in a few words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetriesUsed => "all retries are used",
            Self::SameFailure => "failed twice in a row for the same reason",
            Self::Question => "the agent has a question",
            Self::Fatal => "the set-up is at fault",
            Self::InterruptionsUsed => "interrupted too often in a row",
            Self::DispatchesUsed => "started as often as allowed",
            Self::RoundsUsed => "rejected by one stage as often as allowed",
            Self::DeferralsUsed => "its gate did not open in time",
            Self::BudgetUsed => "its budget is used up",
        }
    }
}

/// The state of a run as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its name.
    pub id: RunId,
    /// Whether it grants, and if not, why.
    pub state: RunState,
    /// The rules of its retries.
    pub rules: RetryRules,
    /// The time of its last event.
    pub last_at: Timestamp,
    /// The greatest token that was ever granted or must be taken as granted.
    pub last_token: FencingToken,
    /// The most it may spend; `None` is no limit.
    pub budget: Option<Usd>,
    /// What it has spent.
    pub spent: Usd,
    /// What is set aside for live leases.
    pub reserved: Usd,
    /// The process that drives it.
    pub driver: Option<OwnerId>,
    /// How its time follows from the clocks.
    pub anchor: Option<Anchor>,
    /// Its plans in the order they came.
    pub plans: Vec<PlanRef>,
    /// Attempts in a row that failed at their first stage, with none that passed it in between; a
    /// question is neither.
    pub first_stage_failures: u32,
    /// The task that has waited longest among those that others may keep from what they need, and
    /// how often that happened.
    pub passed_over: Option<PassedOver>,
    /// How many tasks are begun before the run parks, so that a person, or a rule, can judge by them
    /// what the rest will come to; `None` when there is no such pilot, or no longer.
    #[serde(default)]
    pub pilot: Option<u32>,
    /// How many tasks are in which phase.
    pub counts: Counts,
}

/// A task that waits while others are granted what it needs.
///
/// Only a task that needs several things at once can wait without end while they come and go: more
/// than one permit, or a scope with parts that others hold one by one. Of those that are ready the
/// one that has been in its phase for longest is counted, and after
/// [`RetryRules::passed_over_max`] grants what it needs is kept for it. So each waits for at most that many grants for itself, and as many for
/// each that was there before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// The task.
    pub task: TaskNo,
    /// Grants to others that took a permit or a part of the scope that it needs.
    pub times: u32,
}

/// A plan of a run, or an edit of a task, which brings none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRef {
    /// The canonical JSON of the plan, or of what the task is since the edit.
    pub blob: BlobHash,
    /// How many tasks it brought; they follow those of the plans before it.
    pub tasks: u32,
}

/// How many tasks are in which phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Not leased.
    pub open: u32,
    /// Not before a time.
    pub deferred: u32,
    /// Being carried out.
    pub leased: u32,
    /// Being stopped.
    pub stopping: u32,
    /// Done.
    pub done: u32,
    /// Escalated.
    pub escalated: u32,
    /// Cancelled.
    pub cancelled: u32,
}

impl Counts {
    /// The counter of a phase.
    pub fn of(&mut self, phase: &Phase) -> &mut u32 {
        match phase {
            Phase::Open => &mut self.open,
            Phase::Deferred { .. } => &mut self.deferred,
            Phase::Leased(_) => &mut self.leased,
            Phase::Stopping { .. } => &mut self.stopping,
            Phase::Done(_) => &mut self.done,
            Phase::Escalated(_) => &mut self.escalated,
            Phase::Cancelled => &mut self.cancelled,
        }
    }

    /// All tasks.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.open
            .saturating_add(self.deferred)
            .saturating_add(self.leased)
            .saturating_add(self.stopping)
            .saturating_add(self.done)
            .saturating_add(self.escalated)
            .saturating_add(self.cancelled)
    }
}

/// Whether a run grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It grants.
    Active,
    /// A person paused it.
    Paused {
        /// Why.
        reason: String,
    },
    /// It grants nothing more, finishes what runs, then parks.
    Draining {
        /// Why.
        reason: ParkReason,
    },
    /// It stands still until a person resumes it.
    Parked {
        /// Why.
        reason: ParkReason,
    },
    /// All tasks are done or cancelled.
    Completed,
    /// Nothing more can happen, and some task is escalated or blocked.
    Failed,
}

impl RunState {
    /// The state in one word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused { .. } => "paused",
            Self::Draining { .. } => "draining",
            Self::Parked { .. } => "parked",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// Why a run stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// What is left of the budget does not cover the next stage.
    Budget,
    /// Signing in failed.
    Auth,
    /// The account cannot pay.
    Billing,
    /// Several tasks in a row failed at their first stage.
    Breaker,
    /// A person asked for it.
    Asked,
    /// The tasks of the pilot are through.
    Pilot,
}

impl ParkReason {
    /// The reason in a few words, with what lets the run go on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "the budget is used up; raise it and resume",
            Self::Auth => {
                "signing in to the model's service failed; mend the credentials and resume"
            }
            Self::Billing => "the account cannot pay; mend it and resume",
            Self::Breaker => {
                "several tasks in a row failed at their first stage; look at why, then resume"
            }
            Self::Asked => "parked on request; resume when ready",
            Self::Pilot => "the pilot is through; look at what it came to, then resume",
        }
    }
}

/// A pool of permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Its name.
    pub name: PoolName,
    /// How many permits it has; lowering it takes none away from who holds one.
    pub limit: u32,
    /// Until when it gives none, because the account behind it is used up.
    pub closed_until: Option<Timestamp>,
    /// What else holds it back.
    #[serde(default)]
    pub bounds: PoolBounds,
    /// What stages that took permits of it have cost since it has a budget.
    #[serde(default)]
    pub spent: Usd,
}

impl PoolRecord {
    /// A pool with this many permits, open, and with nothing else to hold it back.
    #[must_use]
    pub fn new(name: PoolName, limit: u32) -> Self {
        Self { name, limit, closed_until: None, bounds: PoolBounds::default(), spent: Usd::ZERO }
    }
}

/// What holds a pool back beside its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolBounds {
    /// The most that stages which take permits of it may spend; `None` is no limit. What late
    /// results show to have been spent counts where the task is then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Usd>,
    /// Back-pressure: as long as so many tasks that it began are past their first stage and not
    /// finished, it begins none; `None` is no bound. Tasks that it began before go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max: Option<u32>,
}

/// An owner, and when it last showed that it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// The process.
    pub owner: Owner,
    /// When it last renewed its leases.
    pub touched_at: Timestamp,
    /// How long after that its leases live.
    pub ttl: Duration,
    /// Whether it is known to have ended.
    pub ended: bool,
}

impl OwnerRecord {
    /// Whether nobody renews its leases.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.ttl >= HELD
    }

    /// When its leases end unless it renews them.
    #[must_use]
    pub fn renew_by(&self) -> Timestamp {
        self.touched_at.after(self.ttl)
    }
}

/// The records that a batch of events changed, each in its final form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Records {
    /// The run's, when it changed (it does with each commit).
    pub run: Option<RunRecord>,
    /// Tasks with their place in the run, counted from 0.
    pub tasks: Vec<(u32, TaskRecord)>,
    /// Pools.
    pub pools: Vec<PoolRecord>,
    /// Owners.
    pub owners: Vec<OwnerRecord>,
}

/// A whole run as a store has it at one position of its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The position.
    pub seq: Seq,
    /// The run.
    pub run: RunRecord,
    /// Its tasks in their order.
    pub tasks: Vec<TaskRecord>,
    /// Its pools, by name.
    pub pools: Vec<PoolRecord>,
    /// Its owners, by id.
    pub owners: Vec<OwnerRecord>,
    /// The plans' blobs, in the order of [`RunRecord::plans`].
    pub plans: Vec<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p16_counts_that_somebody_put_into_a_file_can_be_added_up() {
        let counts = Counts { open: u32::MAX, done: 7, ..Counts::default() };
        assert_eq!(counts.total(), u32::MAX);
    }
}
