//! What each class means to a task.

use orchestrator_core::{Interruption, Outcome, Restart, TEXT_BYTES_MAX, head_and_tail};

use super::{Class, Ending, Exit, Limit, Refusal, Stop, Unservable};

/// How much of a message of the program is kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

impl Class {
    /// What the engine is told.
    ///
    /// A success that is doubted is passed on: the verify stage judges the work, and an empty change
    /// is no candidate. The order of the classes decides before this does, so that a question is
    /// only asked when nothing else went wrong.
    #[must_use]
    pub fn outcome(&self, ending: &Ending<'_>) -> Outcome {
        match self {
            Self::Stopped(Stop::WallLimit) => rejected(
                "The attempt ran out of time before it was finished. Do the essential part first, \
                 in small steps, and stop when it is done.",
            ),
            Self::Stopped(Stop::Silence) => interrupted(Interruption::Silence),
            Self::Stopped(Stop::Cancelled) => interrupted(Interruption::Shutdown),
            Self::Killed => interrupted(Interruption::Killed),
            Self::Malformed | Self::Failed | Self::Stopped(Stop::Output) => {
                interrupted(Interruption::Crashed)
            }
            Self::UsageLimit { resets_at, .. } => {
                Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: *resets_at }
            }
            Self::RateLimited => interrupted(Interruption::RateLimited),
            Self::Overloaded => interrupted(Interruption::Overload),
            Self::Auth => interrupted(Interruption::Auth),
            Self::Billing => interrupted(Interruption::Billing),
            Self::Network => interrupted(Interruption::Network),
            Self::Refused(refusal) => fatal(&refused(*refusal, ending)),
            Self::UnknownModel => fatal(&format!(
                "the model is not there for this account: {}; name another one",
                message(ending)
            )),
            Self::Unservable(why) => fatal(&unservable(*why, ending)),
            Self::Limit(limit) => rejected(&limited(*limit, ending)),
            Self::Unstructured => rejected(
                "The answer was not given in the form that was asked for. Give it by the tool that \
                 takes the structured answer.",
            ),
            Self::Blocked => Outcome::Question {
                text: head_and_tail(ending.question.unwrap_or_default(), TEXT_BYTES_MAX),
            },
            Self::Suspicious(_) | Self::Success => Outcome::Passed,
        }
    }
}

const fn interrupted(reason: Interruption) -> Outcome {
    Outcome::Interrupted { reason, retry_at: None }
}

fn rejected(feedback: &str) -> Outcome {
    Outcome::Rejected { feedback: feedback.to_owned(), restart: Restart::OnCandidate }
}

fn fatal(error: &str) -> Outcome {
    Outcome::Fatal { error: error.to_owned() }
}

fn refused(refusal: Refusal, ending: &Ending<'_>) -> String {
    let said = head_and_tail(ending.stderr.trim(), MESSAGE_BYTES_MAX);
    match (refusal, &ending.exit) {
        (_, Exit::NotStarted { why }) => format!("the agent could not be started: {why}"),
        (Refusal::NoConversation, _) => format!("the conversation is not there any more: {said}"),
        (Refusal::NotStarted | Refusal::SetUp, _) => {
            format!("the agent would not start with what it was given: {said}")
        }
    }
}

fn unservable(why: Unservable, ending: &Ending<'_>) -> String {
    let hint = match why {
        Unservable::PromptTooLong => {
            "the prompt is too long for the model: shorten the documents or inputs, or split the \
             task"
        }
        Unservable::Refusal => "the model refused: rephrase the task, or give it to another model",
        Unservable::AnswerTooLong => "the answer is longer than the model can give: split the task",
        Unservable::Invalid => "the model's service calls the request invalid",
    };
    format!("{hint}: {}", message(ending))
}

fn limited(limit: Limit, ending: &Ending<'_>) -> String {
    let hint = match limit {
        Limit::Turns => {
            "The attempt reached its limit of turns before it was finished. Go straight to the \
             point, with fewer and larger steps."
        }
        Limit::Budget => {
            "The attempt reached its limit of money before it was finished. Read less, and do the \
             essential part first."
        }
        Limit::Structure => "The answer was never given in the form that was asked for.",
    };
    format!("{hint}\n{}", message(ending))
}

/// What the program says went wrong.
fn message(ending: &Ending<'_>) -> String {
    let last = ending.transcript.last();
    let text = last.and_then(|last| last.result.clone().filter(|text| !text.is_empty()));
    let text = text.or_else(|| last.map(|last| last.errors.join("; "))).unwrap_or_default();
    head_and_tail(text.trim(), MESSAGE_BYTES_MAX)
}
