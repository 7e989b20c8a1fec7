//! What a run of the program says on its standard output, read line by line.
//!
//! The lines are untyped JSON on purpose: types that nobody knows are skipped, the order of keys is
//! of no account, and a torn line loses only itself. [`Transcript`] keeps what an ending is judged
//! by; it judges nothing.

mod cost;
mod fields;

use std::collections::BTreeMap;

use orchestrator_core::{Cost, SessionId, Usd};
use serde::Deserialize;
use serde_json::{Map, Value};

use self::fields::{flag, integer, map, text, wall_seconds};
use crate::agent::{Denial, Event, Prices, RateLimit, Retry, Tokens, ToolUse, Usage, Window};
use crate::verdict::Strict;

/// Most denials that are kept of one run.
const DENIALS_MAX: usize = 64;
/// Longest excerpt of one tool call or text, in bytes.
const EXCERPT_BYTES_MAX: usize = 400;
/// Most messages whose use of tokens is counted; what is a lower bound stays one without the rest.
const MESSAGES_MAX: usize = 10_000;

/// A final line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Final {
    /// The kind of ending: `success` also for each failure of the service.
    pub subtype: String,
    /// Whether it is a failure: the only field that tells.
    pub is_error: bool,
    /// The status of the service's answer, where that was the failure.
    pub api_status: Option<u64>,
    /// The error that the model's last message carried.
    pub error: Option<String>,
    /// Why the model stopped.
    pub stop_reason: Option<String>,
    /// Why the program stopped.
    pub terminal_reason: Option<String>,
    /// The text for people; absent when a limit ended the run.
    pub result: Option<String>,
    /// The errors listed, when a limit ended the run.
    pub errors: Vec<String>,
    /// The answer in the form that was asked for.
    pub structured: Option<Value>,
    /// Turns taken.
    pub turns: Option<u64>,
    /// How long the run took, in milliseconds.
    pub duration_ms: Option<u64>,
    /// How long of that it waited for the service.
    pub duration_api_ms: Option<u64>,
    /// The tokens used, as the program says it.
    pub usage: Option<Map<String, Value>>,
    /// The same by model, of this run or of the whole conversation.
    pub models: Option<Map<String, Value>>,
}

/// All that is kept of a run's output.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    version: Option<String>,
    model: Option<String>,
    session: Option<SessionId>,
    last: Option<Final>,
    finals: u32,
    pending_error: Option<String>,
    limit: Option<RateLimit>,
    denials: BTreeMap<String, Denial>,
    retries: u64,
    last_line_torn: bool,
    torn: u64,
    has_message: bool,
    costs: cost::Costs,
}

impl Transcript {
    /// A transcript of which nothing was read.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a whole output.
    #[must_use]
    pub fn of(output: &[u8]) -> Self {
        let mut transcript = Self::new();
        for line in output.split(|&byte| byte == b'\n') {
            transcript.push_line(line);
        }
        transcript
    }

    /// Takes one line, without its line feed, and says what is in it.
    pub fn push_line(&mut self, line: &[u8]) -> Vec<Event> {
        if line.trim_ascii().is_empty() {
            return vec![Event::Other];
        }
        let Ok(Value::Object(event)) = serde_json::from_slice(line) else {
            self.last_line_torn = true;
            self.torn = self.torn.saturating_add(1);
            return vec![Event::Torn];
        };
        self.last_line_torn = false;
        let mut events = match text(&event, "type") {
            Some("system") => self.system(&event),
            Some("assistant") => self.assistant(&event),
            Some("rate_limit_event") => self.rate_limit(&event).into_iter().collect(),
            Some("result") => self.result(&event, structured(line)),
            _ => Vec::new(),
        };
        if events.is_empty() {
            events.push(Event::Other);
        }
        events
    }

    fn system(&mut self, event: &Map<String, Value>) -> Vec<Event> {
        match text(event, "subtype") {
            Some("init") => {
                let owned = |key| text(event, key).map(str::to_owned);
                self.version = owned("claude_code_version").or_else(|| self.version.take());
                self.model = owned("model").or_else(|| self.model.take());
                let session = text(event, "session_id").and_then(|id| SessionId::parse(id).ok());
                self.session = session.or_else(|| self.session.take());
                let version = self.version.clone().map(Event::Version);
                let model = self.model.clone().map(Event::Model);
                let session = self.session.clone().map(Event::Session);
                version.into_iter().chain(model).chain(session).collect()
            }
            Some("api_retry") => {
                self.retries = self.retries.saturating_add(1);
                vec![Event::Retried(Retry {
                    attempt: integer(event, "attempt").unwrap_or(0),
                    error: text(event, "error").unwrap_or("unknown").to_owned(),
                    status: integer(event, "error_status"),
                })]
            }
            _ => Vec::new(),
        }
    }

    fn assistant(&mut self, event: &Map<String, Value>) -> Vec<Event> {
        if let Some(error) = text(event, "error") {
            self.pending_error = Some(error.to_owned());
        }
        let Some(message) = map(event, "message") else { return Vec::new() };
        self.has_message = true;
        self.costs.message(message);
        said(message)
    }

    fn rate_limit(&mut self, event: &Map<String, Value>) -> Option<Event> {
        let info = map(event, "rate_limit_info")?;
        let windows = map(info, "unifiedWindows").into_iter().flatten().filter_map(|(name, it)| {
            let it = it.as_object()?;
            let used = it.get("utilization")?.as_f64()?;
            Some((name.clone(), Window { used, resets_at: wall_seconds(it, "resetsAt") }))
        });
        let mut limit = RateLimit {
            is_rejected: text(info, "status") == Some("rejected"),
            resets_at: wall_seconds(info, "resetsAt"),
            window: text(info, "rateLimitType").map(str::to_owned),
            windows: windows.collect(),
        };
        // One version tells of the window in question only.
        if let (Some(window), Some(used)) =
            (&limit.window, info.get("utilization").and_then(Value::as_f64))
        {
            let window = window.clone();
            let known = Window { used, resets_at: limit.resets_at };
            limit.windows.entry(window).or_insert(known);
        }
        self.limit = Some(limit.clone());
        Some(Event::Limit(limit))
    }

    fn result(&mut self, event: &Map<String, Value>, structured: Option<Value>) -> Vec<Event> {
        self.finals = self.finals.saturating_add(1);
        self.costs.result(event);
        let mut events = self.deny(event);
        let owned = |key| text(event, key).map(str::to_owned);
        let errors = event.get("errors").and_then(Value::as_array).into_iter().flatten();
        self.last = Some(Final {
            subtype: owned("subtype").unwrap_or_default(),
            // A final line that does not say so is not a success.
            is_error: flag(event, "is_error").unwrap_or(true),
            api_status: integer(event, "api_error_status"),
            error: self.pending_error.take(),
            stop_reason: owned("stop_reason"),
            terminal_reason: owned("terminal_reason"),
            result: owned("result"),
            errors: errors.filter_map(|error| error.as_str().map(str::to_owned)).collect(),
            structured,
            turns: integer(event, "num_turns"),
            duration_ms: integer(event, "duration_ms"),
            duration_api_ms: integer(event, "duration_api_ms"),
            usage: map(event, "usage").cloned(),
            models: map(event, "modelUsage").cloned(),
        });
        events.push(Event::Usage(Usage::Total {
            tokens: self.costs.tokens(),
            cost: event.get("total_cost_usd").and_then(Value::as_f64).and_then(Usd::from_dollars),
        }));
        events.push(Event::End);
        events
    }

    fn deny(&mut self, event: &Map<String, Value>) -> Vec<Event> {
        let mut new = Vec::new();
        let denials = event.get("permission_denials").and_then(Value::as_array);
        for denial in denials.into_iter().flatten().filter_map(Value::as_object) {
            if self.denials.len() >= DENIALS_MAX {
                break;
            }
            let tool = text(denial, "tool_name").unwrap_or("unknown").to_owned();
            let input = denial.get("tool_input").map(Value::to_string).unwrap_or_default();
            let input = orchestrator_core::head_and_tail(&input, EXCERPT_BYTES_MAX);
            let id = text(denial, "tool_use_id").unwrap_or(&input).to_owned();
            let denial = Denial { tool, input };
            if self.denials.insert(id, denial.clone()).is_none() {
                new.push(Event::Denied(denial));
            }
        }
        new
    }

    /// The program's version.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The model that it uses.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The conversation.
    #[must_use]
    pub const fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// Whether the run was begun: it told of itself, or the model said something.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.version.is_some() || self.session.is_some() || self.has_message
    }

    /// The last final line.
    #[must_use]
    pub const fn last(&self) -> Option<&Final> {
        self.last.as_ref()
    }

    /// How many final lines there were.
    #[must_use]
    pub const fn finals(&self) -> u32 {
        self.finals
    }

    /// How the account's usage windows stood when last heard of.
    #[must_use]
    pub const fn limit(&self) -> Option<&RateLimit> {
        self.limit.as_ref()
    }

    /// The uses of tools that were not allowed, up to 64 of them.
    pub fn denials(&self) -> impl Iterator<Item = &Denial> {
        self.denials.values()
    }

    /// How often a request was tried again.
    #[must_use]
    pub const fn retries(&self) -> u64 {
        self.retries
    }

    /// Whether the last line could not be read.
    #[must_use]
    pub const fn is_last_line_torn(&self) -> bool {
        self.last_line_torn
    }

    /// How many lines could not be read.
    #[must_use]
    pub const fn torn_lines(&self) -> u64 {
        self.torn
    }

    /// What this run cost, as far as its output tells; see [`Prices`] for a run without a final
    /// line.
    #[must_use]
    pub fn cost(&self, prices: &Prices) -> Cost {
        self.costs.of_run(prices)
    }

    /// The tokens used, by distinct messages.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.costs.tokens()
    }
}

/// The answer in the form that was asked for. One in which a key stands twice says two things: what
/// is wrong with it takes its place, which is of no form that is asked for.
fn structured(line: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(default)]
        structured_output: Option<Strict>,
    }
    match serde_json::from_slice::<Line>(line) {
        Ok(line) => line.structured_output.map(|Strict(value)| value).filter(|it| !it.is_null()),
        Err(err) => Some(Value::String(err.to_string())),
    }
}

/// What the model says and does in a message.
fn said(message: &Map<String, Value>) -> Vec<Event> {
    let blocks = message.get("content").and_then(Value::as_array).into_iter().flatten();
    let events =
        blocks.filter_map(Value::as_object).filter_map(|block| match text(block, "type")? {
            "text" => Some(Event::Text(text(block, "text")?.to_owned())),
            "tool_use" => Some(Event::Tool(ToolUse {
                name: text(block, "name")?.to_owned(),
                input: block.get("input").cloned().unwrap_or_default(),
            })),
            _ => None,
        });
    events.collect()
}
