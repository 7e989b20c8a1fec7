//! What each class means to a task.

use orchestrator_core::{Interruption, Outcome, Restart, TEXT_BYTES_MAX, head_and_tail};

use super::{Class, Exit, Limit, MESSAGE_BYTES_MAX, Refusal, Stop, Told, Unservable};

impl Class {
    /// What the engine is told.
    ///
    /// A success that is doubted is passed on: the verify stage judges the work, and an empty change
    /// is no candidate. The order of the classes decides before this does, so that a question is
    /// only asked when nothing else went wrong.
    #[must_use]
    pub fn outcome(&self, told: &Told<'_>) -> Outcome {
        match self {
            Self::Stopped(Stop::WallLimit) => rejected(
                "The attempt ran out of time before it was finished. Do the essential part first, \
                 in small steps, and stop when it is done.",
            ),
            Self::Stopped(Stop::Repeats) => rejected(
                "The attempt was ended because it did the same again and again, with nothing in \
                 between. If a command does not get you further, find out why before you run it \
                 again.",
            ),
            Self::Stopped(Stop::Budget) => rejected(&limited(Limit::Budget, told)),
            Self::Stopped(Stop::Turns) => rejected(&limited(Limit::Turns, told)),
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
            Self::Refused(refusal) => fatal(&refused(*refusal, told)),
            Self::UnknownModel => fatal(&format!(
                "the model is not there for this account: {}; name another one",
                told.message
            )),
            Self::Unservable(why) => fatal(&unservable(*why, told)),
            Self::Limit(limit) => rejected(&limited(*limit, told)),
            Self::Unstructured => rejected(
                "The answer was not given in the form that was asked for. Give it by the tool that \
                 takes the structured answer.",
            ),
            Self::Blocked => Outcome::Question {
                text: head_and_tail(told.question.unwrap_or_default(), TEXT_BYTES_MAX),
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

fn refused(refusal: Refusal, told: &Told<'_>) -> String {
    let said = head_and_tail(told.stderr.trim(), MESSAGE_BYTES_MAX);
    match (refusal, told.exit) {
        (_, Exit::NotStarted { why }) => format!("the agent could not be started: {why}"),
        (Refusal::NoConversation, _) => format!("the conversation is not there any more: {said}"),
        (Refusal::NotStarted | Refusal::SetUp, _) => {
            format!("the agent would not start with what it was given: {said}")
        }
    }
}

fn unservable(why: Unservable, told: &Told<'_>) -> String {
    let hint = match why {
        Unservable::PromptTooLong => {
            "the prompt is too long for the model: shorten the documents or inputs, or split the \
             task"
        }
        Unservable::Refusal => "the model refused: rephrase the task, or give it to another model",
        Unservable::AnswerTooLong => "the answer is longer than the model can give: split the task",
    };
    format!("{hint}: {}", told.message)
}

fn limited(limit: Limit, told: &Told<'_>) -> String {
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
    format!("{hint}\n{}", told.message)
}
