//! How a run of an agent program ended: first what happened, then what that means to a task.
//!
//! The sixteen classes are those that were needed for a program that says little by its exit code and
//! its own word; each [`Reader`](crate::agent::Reader) puts what it has read into one of them. What the
//! engine is told about each class is [`Class::outcome`].

mod meaning;

use orchestrator_core::WallTime;

/// How much of a message of the program is kept, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 * 1024;

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
    /// It had taken its turns, and does not stop after so many by itself.
    Turns,
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

impl Stop {
    /// The reason in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WallLimit => "its time was up",
            Self::Silence => "it gave no sign of life",
            Self::Output => "it wrote too much",
            Self::Repeats => "it did the same again and again",
            Self::Budget => "it had spent its cap",
            Self::Turns => "it had taken its turns",
            Self::Cancelled => "the stage was cancelled",
        }
    }
}
