//! The reviewer: an agent that judges a change and knows nothing of how it came to be.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::{Change, Review, Reviewer, StageContext};
use orchestrator_core::{Cost, Interruption, Judgement, Outcome, TaskSpec, Usd};
use tokio::time::Instant;
use tracing::warn;
use uuid::Uuid;

use crate::call::{Answer, Call, Called, sum};
use crate::check::{self, Checked, SetupFault};
use crate::config::ClaudeConfig;
use crate::outcome::{Class, Limit, Stop};
use crate::policy::Policy;
use crate::prompt::{ChangeText, Document, Values};
use crate::unready::Unready;
use crate::verdict::{self, VerdictError};

/// The template of a review.
const TEMPLATE: &str = "review";

/// Judges changes with the `claude` program.
///
/// Each review is a new process with a configuration of its own that the reviewed branch cannot
/// reach, with tools that only read. An answer that is no verdict is asked for once more; after
/// that it counts as a rejection.
#[derive(Debug, Clone)]
pub struct ClaudeReviewer {
    config: Arc<ClaudeConfig>,
}

impl ClaudeReviewer {
    /// A reviewer with this configuration; its policy is of no account.
    #[must_use]
    pub fn new(config: impl Into<Arc<ClaudeConfig>>) -> Self {
        Self { config: config.into() }
    }

    /// Finds whatever is missing, before anything is spent: the documents below `root` (a tree as
    /// the target has it), the prompt of a review of each task, and the program.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub async fn check(&self, tasks: &[TaskSpec], root: &Path) -> Result<Checked, Vec<SetupFault>> {
        let (documents, mut faults) = check::documents(&self.config.documents, root);
        let templates = &self.config.templates;
        let first = tasks.iter().find_map(|task| {
            templates.check_review(TEMPLATE, task, &documents).err().map(SetupFault::Template)
        });
        faults.extend(first);
        check::program(&self.config, faults).await
    }

    async fn judge(&self, cx: &StageContext, change: &Change) -> Result<Review, Unready> {
        Unready::unless_funded(cx)?;
        let documents = check::needed_documents(&self.config.documents, &cx.workspace.path)?;
        let mark = Uuid::new_v4().simple().to_string();
        let question = Question { cx, change, documents: &documents, mark: &mark };
        let until = Instant::now() + cx.stage.timeout;
        let first = self.ask(&question, None, cx.stage.cap, until).await?;
        let error = match read(&first) {
            Answered::Ended(judgement) => return Ok(self.review(judgement, &[&first])),
            Answered::Unreadable(error) => error,
        };
        warn!(task = %cx.task.id, %error, "the verdict could not be read");
        let left = cx.stage.cap.minus(first.cost(&self.config).settle(cx.stage.cap));
        if left == Usd::ZERO || Instant::now() >= until || cx.cancel.is_cancelled() {
            return Ok(self.review(Ok(verdict::unreadable(&error, first.text())), &[&first]));
        }
        let second = self.ask(&question, Some(&error), left, until).await?;
        let judgement = match read(&second) {
            Answered::Ended(judgement) => judgement,
            Answered::Unreadable(error) => Ok(verdict::unreadable(&error, second.text())),
        };
        Ok(self.review(judgement, &[&first, &second]))
    }

    /// Asks in a new process with a new configuration.
    async fn ask(
        &self,
        question: &Question<'_>,
        repeat: Option<&VerdictError>,
        cap: Usd,
        until: Instant,
    ) -> Result<Called, Unready> {
        let Question { cx, change, documents, mark } = *question;
        let repeat = repeat.map(ToString::to_string);
        let text = ChangeText {
            files: &change.files,
            diff: &change.diff,
            cut: change.cut.as_deref(),
            mark,
            repeat: repeat.as_deref(),
        };
        let values = Values {
            task: &cx.task,
            attempt: cx.attempt,
            feedback: &[],
            documents,
            change: Some(text),
        };
        let call = Call {
            config: &self.config,
            cx,
            policy: &Policy::reviewer(),
            prompt: &self.config.templates.render(TEMPLATE, values)?,
            rules: None,
            resume: None,
            answer: Answer::Verdict,
            // In the stage's own directory, where nothing that ran before could put anything.
            home: &cx.dir.join("home"),
            cap,
            wall: until.saturating_duration_since(Instant::now()),
        };
        let called = call.make().await?;
        called.note(&self.config, &called.class(Answer::Verdict));
        Ok(called)
    }

    fn review(&self, judgement: Result<Judgement, Outcome>, calls: &[&Called]) -> Review {
        let leftovers = calls.iter().find_map(|called| called.leftovers());
        let costs = calls.iter().map(|called| called.cost(&self.config));
        Review { judgement: leftovers.map_or(judgement, Err), cost: costs.fold(Cost::NONE, sum) }
    }
}

/// What is asked, apart from why it is asked again.
#[derive(Clone, Copy)]
struct Question<'a> {
    cx: &'a StageContext,
    change: &'a Change,
    documents: &'a [Document],
    mark: &'a str,
}

/// What came of a question.
enum Answered {
    /// A judgement, or an end without one.
    Ended(Result<Judgement, Outcome>),
    /// Something that is no verdict.
    Unreadable(VerdictError),
}

fn read(called: &Called) -> Answered {
    let class = called.class(Answer::Verdict);
    let ended = |outcome| Answered::Ended(Err(outcome));
    match class {
        Class::Success | Class::Suspicious(_) | Class::Unstructured => {
            let structured = called.transcript.last().and_then(|last| last.structured.as_ref());
            match verdict::parse(structured, called.text()) {
                Ok(judgement) => Answered::Ended(Ok(judgement)),
                Err(error) => Answered::Unreadable(error),
            }
        }
        Class::Limit(Limit::Structure) => Answered::Unreadable(VerdictError::Missing),
        // The change is not to blame for a review that does not come to an end.
        Class::Limit(Limit::Turns | Limit::Budget) => ended(Outcome::Fatal {
            error: "the review reached its limit of turns or money before it came to a verdict: \
                    raise it, or split the task"
                .to_owned(),
        }),
        Class::Stopped(Stop::WallLimit) => {
            let reason = Interruption::Expired;
            ended(Outcome::Interrupted { reason, retry_at: None })
        }
        Class::Refused(_) if called.may_start_later => {
            let reason = Interruption::Crashed;
            ended(Outcome::Interrupted { reason, retry_at: None })
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
        | Class::Unservable(_)
        | Class::Failed
        | Class::Blocked => ended(class.outcome(&called.ending(None, Answer::Verdict))),
    }
}

#[async_trait]
impl Reviewer for ClaudeReviewer {
    async fn review(&self, cx: &StageContext, change: &Change) -> Review {
        match self.judge(cx, change).await {
            Ok(review) => review,
            Err(unready) => Review { judgement: Err(unready.outcome(cx)), cost: Cost::NONE },
        }
    }
}
