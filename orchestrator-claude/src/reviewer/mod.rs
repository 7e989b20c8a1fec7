//! The reviewer: an agent that judges a change and knows nothing of how it came to be.

mod follow_ups;
mod panel;
mod readable;
mod rounds;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{Change, Review, Reviewer, StageContext};
use orchestrator_core::{Cost, Finding, Interruption, Judgement, Outcome, TaskSpec, Usd, Verdict};
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

pub use self::follow_ups::FollowUps;
pub use self::panel::{Panel, PanelRule};
use self::readable::readable;
use self::rounds::{New, Rounds};
use crate::agent::{Agent, AgentConfig, Answer, Finish};
use crate::call::{Call, Called, sum};
use crate::outcome::{Class, Limit, Stop, Unservable};
use crate::outfit::{Begun, Checked, Outfit, SetupFault};
use crate::prompt::{ChangeText, Document, Templates, Values};
use crate::unready::Unready;
use crate::verdict::{self, VerdictError};

/// The template of a review.
const TEMPLATE: &str = "review";

/// Judges changes with an agent program.
///
/// Each review is a new process with a configuration of its own that the reviewed branch cannot
/// reach, with tools that only read. An answer that is no verdict is asked for once more; after
/// that it counts as a rejection. Findings get names; after a rejection the next round reads only
/// what is new, and judges of each earlier finding whether it is met. After so many rounds without
/// an approval a person is asked.
#[derive(Debug, Clone)]
pub struct AgentReviewer {
    outfit: Outfit,
}

impl AgentReviewer {
    /// A reviewer for this agent.
    #[must_use]
    pub fn new(agent: Arc<dyn Agent>, config: impl Into<Arc<AgentConfig>>) -> Self {
        Self::with(Outfit { agent, config: config.into() })
    }

    pub(crate) const fn with(outfit: Outfit) -> Self {
        Self { outfit }
    }

    /// Finds whatever is missing, before anything is spent: the documents below `root` (a tree as
    /// the target has it), the prompt of each review of each task, and the program.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub async fn check(&self, tasks: &[TaskSpec], root: &Path) -> Result<Checked, Vec<SetupFault>> {
        let prompts = |templates: &Templates, documents: &[Document]| {
            templates.check_review(TEMPLATE, tasks, documents)
        };
        self.outfit.check(root, prompts).await
    }

    async fn judge(&self, cx: &StageContext, change: &Change) -> Result<Review, Unready> {
        let rounds = Rounds::of(cx);
        if let Some(judgement) = rounds.unheard(cx, change) {
            info!(task = %cx.task.id, "the verdict on this change was given before it was lost");
            let judgement = self.ended(cx, rounds.count, Ok(judgement.clone()));
            return Ok(Review { judgement, cost: Cost::NONE });
        }
        let Begun { documents, memory } = self.outfit.begin(cx)?;
        let mark = Uuid::new_v4().simple().to_string();
        let new = rounds.new_part(change);
        let question = Question {
            cx,
            change,
            documents: &documents,
            mark: &mark,
            rounds: &rounds,
            new: &new,
            answer: memory.as_ref().and_then(|memory| memory.said(cx)),
        };
        let answer = self.ask_twice(&question).await?;
        let count = rounds.count.saturating_add(1);
        let judgement = match answer.judgement {
            // What nobody could read is no finding that a later round could judge.
            Ok(judgement) if answer.is_read => Ok(Self::named(cx, change, rounds, judgement)),
            other => other,
        };
        Ok(Review { judgement: self.ended(cx, count, judgement), cost: answer.cost })
    }

    /// Asks, and once more when the answer is no verdict.
    async fn ask_twice(&self, question: &Question<'_>) -> Result<Verdicts, Unready> {
        let cx = question.cx;
        let begun = Instant::now();
        let time_left = || cx.stage.timeout.saturating_sub(begun.elapsed());
        let first = self.ask(question, None, cx.stage.cap, time_left()).await?;
        let error = match first.read(question).await {
            Answered::Ended(judgement) => {
                return Ok(Verdicts { judgement, cost: first.cost(), is_read: true });
            }
            Answered::Unreadable(error) => error,
        };
        warn!(task = %cx.task.id, %error, "the verdict could not be read");
        let left = cx.stage.cap.minus(first.cost().settle(cx.stage.cap));
        if left == Usd::ZERO || time_left().is_zero() || cx.cancel.is_cancelled() {
            return Ok(Verdicts::unreadable(&error, &first.finish.text, first.cost()));
        }
        let second = match self.ask(question, Some(&error), left, time_left()).await {
            Ok(second) => second,
            Err(unready) => {
                let judgement = Err(unready.outcome(cx));
                return Ok(Verdicts { judgement, cost: first.cost(), is_read: false });
            }
        };
        let cost = sum(first.cost(), second.cost());
        Ok(match second.read(question).await {
            Answered::Ended(judgement) => Verdicts { judgement, cost, is_read: true },
            Answered::Unreadable(error) => Verdicts::unreadable(&error, &second.finish.text, cost),
        })
    }

    /// Asks in a new process with a new configuration.
    async fn ask(
        &self,
        question: &Question<'_>,
        repeat: Option<&VerdictError>,
        cap: Usd,
        wall: Duration,
    ) -> Result<Asked, Unready> {
        let cx = question.cx;
        let schema =
            if question.rounds.open.is_empty() { verdict::SCHEMA } else { verdict::SCHEMA_AGAIN };
        let call = Call {
            agent: &*self.outfit.agent,
            config: &self.outfit.config,
            cx,
            prompt: &self.prompt(question, repeat)?,
            rules: None,
            resume: None,
            answer: Answer::Verdict { schema },
            // In the stage's own directory, where nothing that ran before could put anything.
            home: &cx.dir.join("home"),
            cap,
            wall,
        };
        let called = call.make().await?;
        let finish = called.finish(None, None);
        called.note(&finish, &[]);
        Ok(Asked { called, finish })
    }

    fn prompt(
        &self,
        question: &Question<'_>,
        repeat: Option<&VerdictError>,
    ) -> Result<String, Unready> {
        let Question { cx, change, documents, mark, rounds, new, answer } = *question;
        let repeat = repeat.map(ToString::to_string);
        let earlier: Vec<String> = rounds.open.iter().map(Finding::to_string).collect();
        let altered: Vec<String> = documents
            .iter()
            .filter(|document| change.files.contains(&document.name))
            .map(|document| document.name.clone())
            .collect();
        let text = ChangeText {
            files: &change.files,
            diff: &new.diff,
            cut: change.cut.as_deref(),
            known: &new.known,
            documents: &altered,
            earlier: &earlier,
            answer: answer.filter(|_| !earlier.is_empty()),
            mark,
            repeat: repeat.as_deref(),
        };
        let values = Values {
            task: &cx.task,
            attempt: cx.attempt,
            feedback: &[],
            noticed: &[],
            documents,
            change: Some(text),
        };
        Ok(self.outfit.config.templates.render(TEMPLATE, values)?)
    }

    /// Names the findings, and keeps what the next round needs of them.
    fn named(
        cx: &StageContext,
        change: &Change,
        mut rounds: Rounds,
        mut judgement: Judgement,
    ) -> Judgement {
        rounds.name(&mut judgement.findings);
        if let Err(err) = rounds.keep(cx, change, &judgement) {
            warn!(task = %cx.task.id, error = %err, "the next round reads everything again");
        }
        judgement
    }

    /// The end of the review: a rejection of the last round is a question to a person.
    fn ended(
        &self,
        cx: &StageContext,
        count: u32,
        judgement: Result<Judgement, Outcome>,
    ) -> Result<Judgement, Outcome> {
        let judgement = judgement?;
        if judgement.verdict == Verdict::Approve
            || count < self.outfit.config.review_rounds_max.get()
        {
            return Ok(judgement);
        }
        info!(task = %cx.task.id, count, "no round of review is left");
        Err(Outcome::Question { text: rounds::question(count, &judgement.findings) })
    }
}

/// What is asked, apart from why it is asked again.
#[derive(Clone, Copy)]
struct Question<'a> {
    cx: &'a StageContext,
    change: &'a Change,
    documents: &'a [Document],
    mark: &'a str,
    rounds: &'a Rounds,
    new: &'a New,
    answer: Option<&'a str>,
}

/// What one or two questions came to.
struct Verdicts {
    judgement: Result<Judgement, Outcome>,
    cost: Cost,
    /// Whether the judgement is the reviewer's own.
    is_read: bool,
}

impl Verdicts {
    fn unreadable(error: &VerdictError, text: &str, cost: Cost) -> Self {
        Self { judgement: Ok(verdict::unreadable(error, text)), cost, is_read: false }
    }
}

/// A run of the program that was asked for a verdict.
struct Asked {
    called: Called,
    finish: Finish,
}

/// What came of a question.
enum Answered {
    /// A judgement, or an end without one.
    Ended(Result<Judgement, Outcome>),
    /// Something that is no verdict.
    Unreadable(VerdictError),
}

impl Asked {
    fn cost(&self) -> Cost {
        self.called.cost(&self.finish)
    }

    async fn read(&self, question: &Question<'_>) -> Answered {
        match self.called.leftovers() {
            Some(outcome) => Answered::Ended(Err(outcome)),
            None => self.by_class(question).await,
        }
    }

    async fn by_class(&self, question: &Question<'_>) -> Answered {
        let Self { called, finish } = self;
        let ended = |outcome| Answered::Ended(Err(outcome));
        let interrupted = |reason| Outcome::Interrupted { reason, retry_at: None };
        match &finish.class {
            Class::Success | Class::Suspicious(_) | Class::Unstructured => {
                let open = &question.rounds.open;
                let read = match &finish.structured {
                    Some(answer) => verdict::parse_again(Some(answer), "", open),
                    None => {
                        let others = readable(&question.cx.workspace.path, question.change).await;
                        verdict::parse_text(&finish.text, &others, open)
                    }
                };
                match read {
                    Ok(judgement) => Answered::Ended(Ok(judgement)),
                    Err(error) => Answered::Unreadable(error),
                }
            }
            Class::Limit(Limit::Structure) => Answered::Unreadable(VerdictError::Missing),
            // An answer that the model could not bring to its end is a verdict cut short.
            Class::Unservable(Unservable::AnswerTooLong) => {
                Answered::Unreadable(VerdictError::Truncated)
            }
            // The change is not to blame for a review that does not come to an end.
            Class::Limit(Limit::Turns | Limit::Budget)
            | Class::Stopped(Stop::Repeats | Stop::Budget | Stop::Turns) => ended(Outcome::Fatal {
                error: "the review came to no verdict within its limits of turns, money and \
                        repetition: raise them, or split the task"
                    .to_owned(),
            }),
            Class::Stopped(Stop::WallLimit) => ended(interrupted(Interruption::Expired)),
            Class::Refused(_) if called.may_start_later => {
                ended(interrupted(Interruption::Crashed))
            }
            Class::Stopped(Stop::Silence | Stop::Output | Stop::Cancelled)
            | Class::Refused(_)
            | Class::Killed
            | Class::Malformed
            | Class::UsageLimit { .. }
            | Class::RateLimited
            | Class::Overloaded
            | Class::Auth
            | Class::Billing
            | Class::UnknownModel
            | Class::Network
            | Class::Unservable(Unservable::PromptTooLong | Unservable::Refusal)
            | Class::Failed
            | Class::Blocked => ended(called.outcome(question.cx, finish, None)),
        }
    }
}

#[async_trait]
impl Reviewer for AgentReviewer {
    async fn review(&self, cx: &StageContext, change: &Change) -> Review {
        match self.judge(cx, change).await {
            Ok(review) => review,
            Err(unready) => Review { judgement: Err(unready.outcome(cx)), cost: Cost::NONE },
        }
    }
}
