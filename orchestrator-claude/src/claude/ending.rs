//! The table by which an ending is judged, in its order, with a function for each row.
//!
//! A row looks only at what it names; that none before it held is all that it may take for granted.

use orchestrator_core::head_and_tail;

use super::stream::{Final, Transcript};
use crate::outcome::{
    Class, Doubt, Exit, Limit, MESSAGE_BYTES_MAX, Refusal, Stop, Told, Unservable,
};

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

/// What the program says went wrong, at most 4 KiB of it.
#[must_use]
pub fn message(transcript: &Transcript) -> String {
    let last = transcript.last();
    let text = last.and_then(|last| last.result.clone().filter(|text| !text.is_empty()));
    let text = text.or_else(|| last.map(|last| last.errors.join("; "))).unwrap_or_default();
    head_and_tail(text.trim(), MESSAGE_BYTES_MAX)
}

/// A row: the class, when its test holds.
type Row = fn(&Ending<'_>) -> Option<Class>;

/// All rows but the last, which is [`Class::Success`].
const ROWS: [Row; 15] = [
    stopped,
    refused,
    killed,
    malformed,
    throttled,
    overloaded,
    locked_out,
    unknown_model,
    unreachable,
    limited,
    unservable,
    failed,
    blocked,
    unstructured,
    doubted,
];

/// Puts an ending into its class.
#[must_use]
pub fn classify(ending: &Ending<'_>) -> Class {
    ROWS.iter().find_map(|row| row(ending)).unwrap_or(Class::Success)
}

/// 1: this side ended it.
fn stopped(ending: &Ending<'_>) -> Option<Class> {
    ending.stopped.map(Class::Stopped)
}

/// 2: it could not be started, or said on standard error why it would not.
fn refused(ending: &Ending<'_>) -> Option<Class> {
    if let Exit::NotStarted { .. } = ending.exit {
        return Some(Class::Refused(Refusal::NotStarted));
    }
    // One that breaks down later was begun, and has cost something.
    if ending.transcript.has_begun() {
        return None;
    }
    let last = ending.transcript.last();
    // With stream output, a conversation that is not there is told in a final line as well: one of a
    // run that never began.
    let never_began = |last: &Final| last.subtype == DURING_EXECUTION && last.turns == Some(0);
    let says_why = ending.exit == Exit::Code(1) && !ending.stderr.trim().is_empty();
    if !says_why || !last.is_none_or(never_began) {
        return None;
    }
    let gone = ["No conversation found", "--resume requires a valid session ID"];
    let is_gone = gone.iter().any(|words| ending.stderr.contains(words));
    Some(Class::Refused(if is_gone { Refusal::NoConversation } else { Refusal::SetUp }))
}

/// 3: a signal that nobody here sent ended it.
fn killed(ending: &Ending<'_>) -> Option<Class> {
    let by_signal = match ending.exit {
        // What a shell makes of SIGHUP, SIGKILL and SIGTERM; the program itself ends so on two of
        // them, once it has begun.
        Exit::Code(code) => matches!(code, 129 | 137 | 143),
        Exit::Signal(signal) => matches!(signal, 1 | 9 | 15),
        Exit::NotStarted { .. } | Exit::Unknown => false,
    };
    (ending.transcript.last().is_none() && by_signal).then_some(Class::Killed)
}

/// 4: it ended without a final line, or in the middle of a line.
fn malformed(ending: &Ending<'_>) -> Option<Class> {
    // What this side cut off after the final line was not waited for.
    let is_cut = ending.transcript.is_last_line_torn() && !ending.was_ended_late;
    (ending.transcript.last().is_none() || is_cut).then_some(Class::Malformed)
}

/// The final line of a failure.
fn failure<'a>(ending: &Ending<'a>) -> Option<&'a Final> {
    ending.transcript.last().filter(|last| last.is_error)
}

impl Final {
    /// Whether the model's last message carried one of these errors.
    fn erred(&self, words: &[&str]) -> bool {
        self.error.as_deref().is_some_and(|error| words.contains(&error))
    }

    /// Whether the text for people holds one of these: the last resort, since the wording changes
    /// between versions.
    fn says(&self, words: &[&str]) -> bool {
        self.result.as_deref().is_some_and(|text| words.iter().any(|word| text.contains(word)))
    }

    fn has_status(&self, statuses: &[u64]) -> bool {
        self.api_status.is_some_and(|status| statuses.contains(&status))
    }
}

/// 5: the account's usage window is used up, or the service asks to slow down.
fn throttled(ending: &Ending<'_>) -> Option<Class> {
    let last = failure(ending)?;
    if !last.erred(&["rate_limit"]) && !last.has_status(&[429]) {
        return None;
    }
    Some(match ending.transcript.limit() {
        Some(limit) if limit.is_rejected => {
            Class::UsageLimit { resets_at: limit.resets_at, window: limit.window.clone() }
        }
        _ => Class::RateLimited,
    })
}

/// 6: the service is overloaded or failing.
fn overloaded(ending: &Ending<'_>) -> Option<Class> {
    let last = failure(ending)?;
    let holds = last.erred(&["overloaded"])
        || last.api_status.is_some_and(|status| (500..600).contains(&status))
        || last.says(&["Overloaded"]);
    holds.then_some(Class::Overloaded)
}

/// 7: signing in failed, or the account cannot pay.
fn locked_out(ending: &Ending<'_>) -> Option<Class> {
    let last = failure(ending)?;
    let cannot_pay = last.erred(&["billing_error"])
        || last.has_status(&[402])
        || last.says(&["Credit balance is too low"]);
    if cannot_pay {
        return Some(Class::Billing);
    }
    let is_signed_out = last.erred(&["authentication_failed", "oauth_org_not_allowed"])
        || last.has_status(&[401, 403])
        || last.says(&["Not logged in", "Invalid API key"]);
    is_signed_out.then_some(Class::Auth)
}

/// 8: there is no such model for this account.
fn unknown_model(ending: &Ending<'_>) -> Option<Class> {
    let last = failure(ending)?;
    (last.erred(&["model_not_found"]) || last.has_status(&[404])).then_some(Class::UnknownModel)
}

/// 9: the service cannot be reached, so that there is no status.
fn unreachable(ending: &Ending<'_>) -> Option<Class> {
    let last = failure(ending).filter(|last| last.api_status.is_none())?;
    let holds = last.erred(&["server_error", "unknown"])
        || last.says(&[
            "Connection refused",
            "Connection dropped",
            // What 2.1.197 says of both.
            "Unable to connect to API",
            "Can't reach the API server",
            "Request timed out",
            "empty or malformed response",
        ]);
    holds.then_some(Class::Network)
}

/// 10: a limit of the run was reached.
fn limited(ending: &Ending<'_>) -> Option<Class> {
    Some(Class::Limit(match ending.transcript.last()?.subtype.as_str() {
        "error_max_turns" => Limit::Turns,
        "error_max_budget_usd" => Limit::Budget,
        "error_max_structured_output_retries" => Limit::Structure,
        _ => return None,
    }))
}

/// 11: the request itself cannot be served. Of what the service calls invalid only a prompt that is
/// too long is known to stay so.
fn unservable(ending: &Ending<'_>) -> Option<Class> {
    let last = failure(ending)?;
    let is_too_long = last.has_status(&[400])
        && (last.terminal_reason.as_deref() == Some("prompt_too_long")
            || last.says(&["Prompt is too long"]));
    if is_too_long {
        Some(Class::Unservable(Unservable::PromptTooLong))
    } else if last.stop_reason.as_deref() == Some("refusal") {
        Some(Class::Unservable(Unservable::Refusal))
    } else if last.erred(&["max_output_tokens"]) {
        Some(Class::Unservable(Unservable::AnswerTooLong))
    } else {
        None
    }
}

/// The subtype of a run that broke off.
const DURING_EXECUTION: &str = "error_during_execution";

/// 12: it failed in another way.
fn failed(ending: &Ending<'_>) -> Option<Class> {
    let last = ending.transcript.last()?;
    // One that nobody knows yet is a failure too, by its name.
    (last.is_error || last.subtype.starts_with("error")).then_some(Class::Failed)
}

/// 13: the agent left a question.
fn blocked(ending: &Ending<'_>) -> Option<Class> {
    ending.question.map(|_| Class::Blocked)
}

/// 14: the answer is not in the form that was asked for.
fn unstructured(ending: &Ending<'_>) -> Option<Class> {
    let is_missing = ending.transcript.last()?.structured.is_none();
    (ending.wants_structure && is_missing).then_some(Class::Unstructured)
}

/// 15: it says that it succeeded, and there is reason to doubt it.
fn doubted(ending: &Ending<'_>) -> Option<Class> {
    let last = ending.transcript.last()?;
    let is_empty = match last.result.as_deref() {
        Some(text) => text.is_empty(),
        // An answer in the form that was asked for needs no text beside it.
        None => last.structured.is_none(),
    };
    if is_empty {
        return Some(Class::Suspicious(Doubt::EmptyAnswer));
    }
    let was_denied = ending.transcript.denials().next().is_some();
    (was_denied && ending.has_changes == Some(false))
        .then_some(Class::Suspicious(Doubt::DeniedWithoutChange))
}
