//! How a stage ends.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{ChangeId, SessionId};
use crate::money::Cost;
use crate::time::WallTime;

/// Longest text that is kept whole of a feedback, question or error, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The one way in which a stage ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The stage did what it is there for.
    Passed,
    /// The work is not good enough: a failed check, a reviewer's rejection, a conflict, a limit
    /// reached, an empty change. Spends one of the task's retries.
    Rejected {
        /// What the next attempt must know.
        feedback: String,
        /// Where the next attempt starts.
        restart: Restart,
    },
    /// The agent lacks information; a person answers.
    Question {
        /// What the agent asks.
        text: String,
    },
    /// Not the task's fault; the stage is granted again at the same attempt.
    Interrupted {
        /// What happened.
        reason: Interruption,
        /// When it can go on by the wall clock, where that is known.
        retry_at: Option<WallTime>,
    },
    /// The gate is not open yet; it is asked again later. A stage of another kind that says so
    /// counts as interrupted.
    Suspended {
        /// When to ask again by the wall clock, where that is known; never sooner than the waits of
        /// [`RetryRules`](crate::RetryRules) allow.
        poll_at: Option<WallTime>,
    },
    /// The set-up is at fault, so that trying again would not help; a person mends it.
    Fatal {
        /// What is wrong and what would mend it.
        error: String,
    },
}

/// Where the attempt after a rejection starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// On top of the candidate, or on the present target where there is none.
    OnCandidate,
    /// On the present target; the old candidate stays under its ref.
    OnTarget,
}

/// Why a stage ended without a judgement of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interruption {
    /// No sign of life for too long.
    Silence,
    /// Ended by a signal that nobody here sent.
    Killed,
    /// Ended without an answer, or the adapter itself failed.
    Crashed,
    /// The model's service is overloaded or failing.
    Overload,
    /// The model's service asks to slow down.
    RateLimited,
    /// The account's usage window is used up; closes the stage's pool until it reopens.
    UsageLimit,
    /// The model's service cannot be reached.
    Network,
    /// Signing in failed; parks the run.
    Auth,
    /// The account cannot pay; parks the run.
    Billing,
    /// The process that held the lease is gone.
    OwnerLost,
    /// The lease ran past its limits and was ended.
    Expired,
    /// The supervisor that held the lease took it back.
    Superseded,
    /// The orchestrator was asked to stop.
    Shutdown,
    /// A person gave the task up while its stage ran. Only the engine says so.
    Cancelled,
}

impl Interruption {
    /// Whether nothing on this account can go on before a person acts.
    #[must_use]
    pub const fn parks_run(self) -> bool {
        matches!(self, Self::Auth | Self::Billing)
    }

    /// Whether it counts towards the interruptions in a row that a task may have: not where a person,
    /// or a whole account, is what ended it.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        !self.parks_run() && !matches!(self, Self::Shutdown | Self::UsageLimit | Self::Cancelled)
    }

    /// Whether the stage may be granted again at once: what ended it says nothing about how it would
    /// go the next time.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::OwnerLost | Self::Superseded | Self::Shutdown | Self::Cancelled)
    }
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silence => "no sign of life",
            Self::Killed => "killed by a signal",
            Self::Crashed => "ended without an answer",
            Self::Overload => "service overloaded",
            Self::RateLimited => "rate limited",
            Self::UsageLimit => "usage limit reached",
            Self::Network => "service out of reach",
            Self::Auth => "signing in failed",
            Self::Billing => "billing problem",
            Self::OwnerLost => "its orchestrator ended",
            Self::Expired => "lease ran out",
            Self::Superseded => "taken back by its supervisor",
            Self::Shutdown => "stopped on request",
            Self::Cancelled => "cancelled while it ran",
        })
    }
}

/// The change that a run stage made, sealed by the orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The sealed change.
    pub change: ChangeId,
    /// What it stands on.
    pub base: ChangeId,
}

/// A merge that is about to happen, recorded before it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeIntent {
    /// Where the target stands.
    pub onto: ChangeId,
    /// Where it is to stand.
    pub merged: ChangeId,
}

/// What an adapter says when its part of a stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageEnd {
    /// How it ended.
    pub outcome: Outcome,
    /// What it cost.
    pub cost: Cost,
    /// The agent's conversation, where it can be taken up again.
    pub session: Option<SessionId>,
}

impl StageEnd {
    /// An end that cost nothing.
    #[must_use]
    pub const fn free(outcome: Outcome) -> Self {
        Self { outcome, cost: Cost::NONE, session: None }
    }

    /// An end of a stage that did what it is there for, at no cost.
    #[must_use]
    pub const fn passed() -> Self {
        Self::free(Outcome::Passed)
    }

    /// An end that sends the task back with this feedback, at no cost.
    #[must_use]
    pub const fn rejected(feedback: String) -> Self {
        Self::free(Outcome::Rejected { feedback, restart: Restart::OnCandidate })
    }

    /// An end that is not the task's fault, at no cost.
    #[must_use]
    pub const fn interrupted(reason: Interruption) -> Self {
        Self::free(Outcome::Interrupted { reason, retry_at: None })
    }
}

/// The text within `bytes_max` bytes: whole, or its head and tail with a line between them that says
/// how much was left out.
#[must_use]
pub fn head_and_tail(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let room = bytes_max.saturating_sub(48);
    let head = floor(text, room / 3);
    let tail = ceil(text, text.len() - (room - room / 3));
    let cut = tail - head;
    format!("{}\n[… {cut} bytes left out …]\n{}", &text[..head], &text[tail..])
}

/// The text in one line within `bytes_max` bytes, without control characters: they would grow
/// sixfold in a log, and a terminal obeys them.
pub(crate) fn in_one_line(text: &str, bytes_max: usize) -> String {
    head_and_tail(text, bytes_max).replace(char::is_control, " ")
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_head_and_its_tail_within_the_limit() {
        let text = format!("first {} last", "é".repeat(5_000));
        let kept = head_and_tail(&text, 1_000);
        assert!(kept.len() <= 1_000 && kept.starts_with("first") && kept.ends_with("last"));
        assert_eq!(head_and_tail("short", 1_000), "short");
    }
}
