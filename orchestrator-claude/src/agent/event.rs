//! What the output of an agent program says, in words that fit all of them.

use std::collections::BTreeMap;

use orchestrator_core::{SessionId, Usd, WallTime};
use serde_json::Value;

use super::Tokens;

/// Something that a line of output says.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Something that is of no account here; the program lives.
    Other,
    /// Nothing that can be read.
    Torn,
    /// The program is of this version.
    Version(String),
    /// It uses this model.
    Model(String),
    /// The conversation began, or began again, and this is its name.
    Session(SessionId),
    /// The model is asked once more; of account for a program that keeps no limit of turns by itself.
    Turn,
    /// The model said something.
    Text(String),
    /// The model uses a tool.
    Tool(ToolUse),
    /// A use of a tool was not allowed.
    Denied(Denial),
    /// What was used so far.
    Usage(Usage),
    /// How the account's usage windows stand.
    Limit(RateLimit),
    /// A request to the model's service is tried again.
    Retried(Retry),
    /// The last that was waited for: the program should end soon.
    End,
}

/// A use of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolUse {
    /// The tool.
    pub name: String,
    /// What it is to do.
    pub input: Value,
}

/// A use of a tool that was not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The tool.
    pub tool: String,
    /// What it was to do, shortened.
    pub input: String,
}

/// Tokens that were used, and money where the program says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Since the last time it was told.
    Delta {
        /// The tokens.
        tokens: Tokens,
        /// The money.
        cost: Option<Usd>,
    },
    /// Since the run of the program began.
    Total {
        /// The tokens.
        tokens: Tokens,
        /// The money.
        cost: Option<Usd>,
    },
}

impl Usage {
    /// Whether nothing was used.
    pub(crate) fn is_nothing(&self) -> bool {
        let (Self::Delta { tokens, cost } | Self::Total { tokens, cost }) = self;
        *tokens == Tokens::default() && cost.unwrap_or(Usd::ZERO) == Usd::ZERO
    }
}

/// A request that is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// How often it was tried again so far.
    pub attempt: u64,
    /// What went wrong, in the program's word.
    pub error: String,
    /// The status of the answer, where there was one.
    pub status: Option<u64>,
}

/// How the account's usage windows stand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RateLimit {
    /// Whether requests are refused until a window reopens.
    pub is_rejected: bool,
    /// When it reopens.
    pub resets_at: Option<WallTime>,
    /// Which window: `five_hour`, `seven_day` and so on.
    pub window: Option<String>,
    /// The windows by name, where the program tells of them.
    pub windows: BTreeMap<String, Window>,
}

/// A usage window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// The share of it that is used, from 0 to 1.
    pub used: f64,
    /// When it begins anew.
    pub resets_at: Option<WallTime>,
}
