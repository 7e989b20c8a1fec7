//! The record of a task.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{BlobHash, ChangeId, FencingToken, SessionId, TaskId};
use crate::lease::Lease;
use crate::money::Usd;
use crate::outcome::{Candidate, Interruption, MergeIntent, Restart};
use crate::time::Timestamp;

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
    /// The last 64 leases that ended without their result, those that ended last at the end; a
    /// result that still comes shows what they really cost. The very last one is among them only if
    /// nothing was booked for it: of any other `settled` says so.
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
