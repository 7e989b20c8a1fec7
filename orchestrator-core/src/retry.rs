//! How often and how soon something is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::TaskId;
use crate::mutant::{Mutant, die, is_on};
use crate::signature::first_u64;
use crate::time::{Timestamp, millis};

/// The bounds and waits of a run's retries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRules {
    /// Interruptions in a row after which a task escalates.
    pub interruptions_max: u32,
    /// Grants of a task beyond what its retries and stages need, for interruptions of any kind.
    pub dispatches_spare: u32,
    /// The wait after a first interruption.
    pub backoff: Duration,
    /// The longest such wait.
    pub backoff_max: Duration,
    /// The wait after a first rejection, which grows like the other; none, unless said otherwise: the
    /// next attempt is another one.
    #[serde(default)]
    pub rejection_backoff: Duration,
    /// How often the gates of a task may be found closed before it escalates.
    #[serde(default = "deferrals_max")]
    pub deferrals_max: u32,
    /// The least wait after a gate was first found closed, which grows like the others.
    #[serde(default = "poll")]
    pub poll: Duration,
    /// Whether a task that fails twice in a row in the same way escalates, whatever its retries.
    pub same_failure_escalates: bool,
    /// Attempts in a row that fail at their first stage, of whatever tasks and with none passing it in
    /// between, after which the run parks; 0 is never. A question is neither, and what becomes of an
    /// attempt at a later stage does not count.
    pub first_stage_failures_max: u32,
    /// Grants that may take from a waiting task what it needs before that is kept for it; see
    /// [`PassedOver`](crate::PassedOver).
    #[serde(default = "passed_over_max")]
    pub passed_over_max: u32,
    /// Spreads the waits; the same seed gives the same waits.
    pub seed: u64,
}

impl Default for RetryRules {
    fn default() -> Self {
        Self {
            interruptions_max: 30,
            dispatches_spare: 60,
            backoff: Duration::from_secs(5),
            backoff_max: Duration::from_secs(600),
            rejection_backoff: Duration::ZERO,
            deferrals_max: deferrals_max(),
            poll: poll(),
            same_failure_escalates: true,
            first_stage_failures_max: 5,
            passed_over_max: passed_over_max(),
            seed: 0,
        }
    }
}

/// Where nobody says it.
const fn passed_over_max() -> u32 {
    32
}

/// Where nobody says it: two weeks of the longest wait.
const fn deferrals_max() -> u32 {
    2_000
}

/// Where nobody says it.
const fn poll() -> Duration {
    Duration::from_secs(30)
}

impl RetryRules {
    /// The most grants that a task with so many stages and retries gets, without those that found a
    /// gate closed.
    #[must_use]
    pub fn dispatches_max(&self, stages: usize, retries: u32) -> u32 {
        if is_on(Mutant::DispatchesWithoutBound) {
            return u32::MAX;
        }
        let stages = u32::try_from(stages).unwrap_or(u32::MAX);
        stages.saturating_mul(retries.saturating_add(1)).saturating_add(self.dispatches_spare)
    }

    /// When a task that was interrupted so many times in a row is tried again: exponential, capped,
    /// and spread over the upper half of the wait by a hash.
    #[must_use]
    pub fn backoff(&self, now: Timestamp, task: &TaskId, interruptions: u32) -> Timestamp {
        self.after(now, task, interruptions, self.backoff)
    }

    /// When a task that was rejected so many times is tried again.
    #[must_use]
    pub fn after_rejection(&self, now: Timestamp, task: &TaskId, rejections: u32) -> Timestamp {
        if self.rejection_backoff.is_zero() {
            return now;
        }
        self.after(now, task, rejections, self.rejection_backoff)
    }

    /// When the gate of a task that was found closed so many times is asked again at the earliest.
    #[must_use]
    pub fn next_poll(&self, now: Timestamp, task: &TaskId, deferrals: u32) -> Timestamp {
        self.after(now, task, deferrals, self.poll)
    }

    fn after(&self, now: Timestamp, task: &TaskId, count: u32, first: Duration) -> Timestamp {
        let doublings = count.saturating_sub(1).min(32);
        let uncapped = is_on(Mutant::BackoffWithoutCap);
        let cap = if uncapped { u64::MAX } else { millis(self.backoff_max) };
        let wait = millis(first).saturating_mul(1_u64 << doublings).min(cap);
        let half = wait / 2;
        let seed = if is_on(Mutant::JitterIsADie) { die() } else { self.seed };
        let spread = hash(seed, task.as_str(), count) % (wait - half + 1);
        now.after(Duration::from_millis(half + spread))
    }
}

fn hash(seed: u64, task: &str, count: u32) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(seed.to_le_bytes());
    hasher.update(count.to_le_bytes());
    hasher.update(task.as_bytes());
    first_u64(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_spread_over_their_upper_half() {
        let rules = RetryRules::default();
        let task = TaskId::parse("t").unwrap();
        for (count, least, most) in [(1, 2_500, 5_000), (2, 5_000, 10_000), (40, 300_000, 600_000)]
        {
            let wait = rules.backoff(Timestamp(0), &task, count).0;
            assert!((least..=most).contains(&wait), "{count}: {wait}");
        }
    }
}
