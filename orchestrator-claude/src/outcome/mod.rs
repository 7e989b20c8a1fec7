//! How a run of the program ended: first what happened, then what that means to a task.
//!
//! [`classify`] puts every ending into one of sixteen classes, by tests in a fixed order that was
//! measured with the real program (its exit code and its word `success` tell little). What the
//! engine is told about each class is [`Class::outcome`].

mod classify;
mod meaning;

use orchestrator_core::{WallTime, head_and_tail};

pub use self::classify::classify;
use crate::stream::Transcript;

/// How much of a message of the program is kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// All that an ending of `claude` is judged by.
#[derive(Debug)]
pub struct Ending<'a> {
    /// How the process ended.
    pub exit: Exit,
    /// Why this side ended the process, if it did before there was a final line.
    pub stopped: Option<Stop>,
    /// Whether this side ended the process after its final line.
    pub was_ended_late: bool,
    /// What it said.
    pub transcript: &'a Transcript,
    /// The end of what it wrote on standard error.
    pub stderr: &'a str,
    /// Whether an answer in a given form was asked for.
    pub wants_structure: bool,
    /// The question that the agent left.
    pub question: Option<&'a str>,
    /// Whether the workspace differs from what it was; `None` when nobody looked.
    pub has_changes: Option<bool>,
}

impl<'a> Ending<'a> {
    /// What the task is told of it.
    #[must_use]
    pub fn told(&'a self) -> Told<'a> {
        Told {
            exit: &self.exit,
            stderr: self.stderr,
            message: message(self.transcript),
            question: self.question,
        }
    }
}

/// What an ending tells besides its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told<'a> {
    /// How the process ended.
    pub exit: &'a Exit,
    /// The end of what it wrote on standard error.
    pub stderr: &'a str,
    /// What the program says went wrong.
    pub message: String,
    /// The question that the agent left.
    pub question: Option<&'a str>,
}

/// What the program says went wrong, at most 4 KiB of it.
#[must_use]
pub fn message(transcript: &Transcript) -> String {
    let last = transcript.last();
    let text = last.and_then(|last| last.result.clone().filter(|text| !text.is_empty()));
    let text = text.or_else(|| last.map(|last| last.errors.join("; "))).unwrap_or_default();
    head_and_tail(text.trim(), MESSAGE_BYTES_MAX)
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// It could not be started.
    NotStarted {
        /// Why.
        why: String,
    },
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It is gone, and how it ended was not seen.
    Unknown,
}

/// Why this side ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The stage's time was up.
    WallLimit,
    /// It gave no sign of life.
    Silence,
    /// It wrote more than a disk should hold.
    Output,
    /// It did the same again and again.
    Repeats,
    /// It had spent its cap, and does not stop at one by itself.
    Budget,
    /// The stage was cancelled.
    Cancelled,
}

/// What happened, in the order in which it is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// 1: this side ended it.
    Stopped(Stop),
    /// 2: it would not start with what it was given.
    Refused(Refusal),
    /// 3: a signal that nobody here sent ended it.
    Killed,
    /// 4: it ended without a final line, or in the middle of one.
    Malformed,
    /// 5: the account's usage window is used up.
    UsageLimit {
        /// When it reopens.
        resets_at: Option<WallTime>,
        /// Which window.
        window: Option<String>,
    },
    /// 5: the service asks to slow down.
    RateLimited,
    /// 6: the service is overloaded or failing.
    Overloaded,
    /// 7: signing in failed.
    Auth,
    /// 7: the account cannot pay.
    Billing,
    /// 8: there is no such model for this account.
    UnknownModel,
    /// 9: the service cannot be reached.
    Network,
    /// 10: a limit of the run was reached.
    Limit(Limit),
    /// 11: the request itself cannot be served.
    Unservable(Unservable),
    /// 12: the program failed in another way.
    Failed,
    /// 13: the agent left a question.
    Blocked,
    /// 14: the answer is not in the form that was asked for.
    Unstructured,
    /// 15: it says that it succeeded, and there is reason to doubt it.
    Suspicious(Doubt),
    /// 16: it says that it succeeded.
    Success,
}

/// Why the program would not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The process could not be started at all.
    NotStarted,
    /// The conversation to take up is not there; a new one can be begun.
    NoConversation,
    /// Anything else; its standard error says what.
    SetUp,
}

/// A limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Of turns.
    Turns,
    /// Of money.
    Budget,
    /// Of tries to answer in the form that was asked for.
    Structure,
}

/// Why a request cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unservable {
    /// The prompt is too long for the model.
    PromptTooLong,
    /// The model or its service refused.
    Refusal,
    /// The answer is longer than the model can give.
    AnswerTooLong,
}

/// Why a success is doubted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The final text is empty.
    EmptyAnswer,
    /// Tools were denied, and nothing was changed.
    DeniedWithoutChange,
}

impl Class {
    /// The place of its test in the order, from 1 to 16.
    #[must_use]
    pub const fn row(&self) -> u8 {
        match self {
            Self::Stopped(_) => 1,
            Self::Refused(_) => 2,
            Self::Killed => 3,
            Self::Malformed => 4,
            Self::UsageLimit { .. } | Self::RateLimited => 5,
            Self::Overloaded => 6,
            Self::Auth | Self::Billing => 7,
            Self::UnknownModel => 8,
            Self::Network => 9,
            Self::Limit(_) => 10,
            Self::Unservable(_) => 11,
            Self::Failed => 12,
            Self::Blocked => 13,
            Self::Unstructured => 14,
            Self::Suspicious(_) => 15,
            Self::Success => 16,
        }
    }
}
