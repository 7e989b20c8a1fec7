//! The order of the tests.

use super::{Class, Doubt, Ending, Exit, Limit, Refusal, Stop, Unservable};
use crate::stream::{Final, Transcript};

/// Puts an ending into its class.
#[must_use]
pub fn classify(ending: &Ending<'_>) -> Class {
    if let Some(stop) = ending.stopped {
        return Class::Stopped(stop);
    }
    let Some(last) = ending.transcript.last() else { return without_final(ending) };
    // With stream output, a conversation that is not there is told in a final line as well.
    let never_began = ending.transcript.version().is_none() && last.turns == Some(0);
    if never_began && last.is_error {
        return without_final(ending);
    }
    if ending.transcript.is_last_line_torn() && !ending.was_ended_late {
        return Class::Malformed;
    }
    if let Some(class) = of_service(last, ending.transcript) {
        return class;
    }
    if let Some(class) = of_run(last) {
        return class;
    }
    of_success(ending, last)
}

fn without_final(ending: &Ending<'_>) -> Class {
    match ending.exit {
        Exit::NotStarted { .. } => Class::Refused(Refusal::NotStarted),
        Exit::Code(1) if !ending.stderr.trim().is_empty() => {
            let gone = ["No conversation found", "--resume requires a valid session ID"];
            if gone.iter().any(|words| ending.stderr.contains(words)) {
                Class::Refused(Refusal::NoConversation)
            } else {
                Class::Refused(Refusal::SetUp)
            }
        }
        // What a shell makes of SIGHUP, SIGKILL and SIGTERM; the program itself ends so on two.
        Exit::Code(129 | 137 | 143) | Exit::Signal(_) => Class::Killed,
        Exit::Code(_) | Exit::Unknown => Class::Malformed,
    }
}

/// Failures of the model's service. Structured fields come first; texts are the last resort, since
/// their wording changes between versions.
fn of_service(last: &Final, transcript: &Transcript) -> Option<Class> {
    if !last.is_error {
        return None;
    }
    let error = last.error.as_deref().unwrap_or_default();
    let text = last.result.as_deref().unwrap_or_default();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if error == "rate_limit" || last.api_status == Some(429) {
        return Some(match transcript.limit() {
            Some(limit) if limit.is_rejected => {
                Class::UsageLimit { resets_at: limit.resets_at, window: limit.window.clone() }
            }
            _ => Class::RateLimited,
        });
    }
    if error == "overloaded"
        || last.api_status.is_some_and(|status| (500..600).contains(&status))
        || says(&["Overloaded"])
    {
        return Some(Class::Overloaded);
    }
    if error == "billing_error"
        || last.api_status == Some(402)
        || says(&["Credit balance is too low"])
    {
        return Some(Class::Billing);
    }
    if matches!(error, "authentication_failed" | "oauth_org_not_allowed")
        || matches!(last.api_status, Some(401 | 403))
        || says(&["Not logged in", "Invalid API key"])
    {
        return Some(Class::Auth);
    }
    if error == "model_not_found" || last.api_status == Some(404) {
        return Some(Class::UnknownModel);
    }
    let unreachable = matches!(error, "server_error" | "unknown")
        || says(&[
            "Connection refused",
            "Connection dropped",
            "Unable to connect to API",
            "Can't reach the API server",
            "Request timed out",
            "empty or malformed response",
        ]);
    (last.api_status.is_none() && unreachable).then_some(Class::Network)
}

/// Endings of the run itself that are no success.
fn of_run(last: &Final) -> Option<Class> {
    match last.subtype.as_str() {
        "error_max_turns" => return Some(Class::Limit(Limit::Turns)),
        "error_max_budget_usd" => return Some(Class::Limit(Limit::Budget)),
        "error_max_structured_output_retries" => return Some(Class::Limit(Limit::Structure)),
        "error_during_execution" => return Some(Class::Failed),
        _ => {}
    }
    if !last.is_error {
        return None;
    }
    let is_too_long = last.terminal_reason.as_deref() == Some("prompt_too_long")
        || last.result.as_deref().is_some_and(|text| text.contains("Prompt is too long"));
    Some(if is_too_long {
        Class::Unservable(Unservable::PromptTooLong)
    } else if last.stop_reason.as_deref() == Some("refusal") {
        Class::Unservable(Unservable::Refusal)
    } else if last.error.as_deref() == Some("max_output_tokens") {
        Class::Unservable(Unservable::AnswerTooLong)
    } else if last.api_status == Some(400) {
        Class::Unservable(Unservable::Invalid)
    } else {
        Class::Failed
    })
}

fn of_success(ending: &Ending<'_>, last: &Final) -> Class {
    if ending.question.is_some() {
        return Class::Blocked;
    }
    if ending.wants_structure && last.structured.is_none() {
        return Class::Unstructured;
    }
    if last.result.as_deref().unwrap_or_default().is_empty() && last.structured.is_none() {
        return Class::Suspicious(Doubt::EmptyAnswer);
    }
    if ending.transcript.denials().next().is_some() && ending.has_changes == Some(false) {
        return Class::Suspicious(Doubt::DeniedWithoutChange);
    }
    Class::Success
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
            Self::Cancelled => "the stage was cancelled",
        }
    }
}
