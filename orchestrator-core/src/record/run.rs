//! The record of a run as a whole.

use serde::{Deserialize, Serialize};

use super::Phase;
use crate::id::{BlobHash, FencingToken, OwnerId, RunId, TaskNo};
use crate::money::Usd;
use crate::retry::RetryRules;
use crate::time::{Anchor, Timestamp};

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
/// [`RetryRules::passed_over_max`] grants what it needs is kept for it. So each waits for at most that
/// many grants for itself, and as many for each that was there before it. One that cannot be served
/// holds up no other: because a limit or what is left of a budget is too small for it, or a pool is
/// closed, or nothing new is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// The task.
    pub task: TaskNo,
    /// Grants to others that took a permit or a part of the scope that it needs.
    pub times: u32,
    /// Another one that was counted, so often, and could not be served; it goes on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<(TaskNo, u32)>,
}

impl PassedOver {
    /// The tasks that were counted, each with how often they were passed over: first the one that is
    /// counted now.
    pub fn counted(&self) -> impl Iterator<Item = (TaskNo, u32)> + use<> {
        [Some((self.task, self.times)), self.aside].into_iter().flatten()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p16_counts_that_somebody_put_into_a_file_can_be_added_up() {
        let counts = Counts { open: u32::MAX, done: 7, ..Counts::default() };
        assert_eq!(counts.total(), u32::MAX);
    }
}
