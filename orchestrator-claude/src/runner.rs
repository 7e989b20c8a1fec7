//! The runner: an agent that works on a task.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::{Runner, StageContext};
use orchestrator_core::{Interruption, Outcome, StageEnd, TEXT_BYTES_MAX, TaskSpec, head_and_tail};
use tracing::warn;

use crate::blocked::Watch;
use crate::call::{Answer, Call, Called};
use crate::check::{self, Checked, SetupFault};
use crate::config::ClaudeConfig;
use crate::outcome::{Class, Refusal, classify};
use crate::prompt::Values;
use crate::unready::Unready;

/// Works on tasks with the `claude` program.
///
/// Each run is one process of the program with a prompt made of a template, in the task's
/// workspace; its conversation is kept beside the workspace, so that an interrupted stage goes on
/// where it was. Its output goes to files in the stage's directory, and nothing of it is left when
/// the stage ends.
#[derive(Debug, Clone)]
pub struct ClaudeRunner {
    config: Arc<ClaudeConfig>,
}

impl ClaudeRunner {
    /// A runner with this configuration.
    #[must_use]
    pub fn new(config: impl Into<Arc<ClaudeConfig>>) -> Self {
        Self { config: config.into() }
    }

    /// Finds whatever is missing, before anything is spent: the documents below `root` (a tree as
    /// the target has it), the prompts of all tasks for every attempt, and the program.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub async fn check(&self, tasks: &[TaskSpec], root: &Path) -> Result<Checked, Vec<SetupFault>> {
        let (documents, mut faults) = check::documents(&self.config.documents, root);
        let prompts = self.config.templates.check(tasks, &documents);
        faults.extend(prompts.into_iter().map(SetupFault::Prompt));
        check::program(&self.config, faults).await
    }

    async fn work(&self, cx: &StageContext) -> Result<StageEnd, Unready> {
        let config = &*self.config;
        Unready::unless_funded(cx)?;
        let documents = check::needed_documents(&config.documents, &cx.workspace.path)?;
        let values = Values {
            task: &cx.task,
            attempt: cx.attempt,
            feedback: &cx.feedback,
            documents: &documents,
            change: None,
        };
        let watch = Watch::begin(&cx.workspace.path, &cx.workspace.aside, cx.attempt)?;
        let rules = config.templates.render("rules", values)?;
        let home = cx.workspace.aside.join("claude");
        let call = Call {
            config,
            cx,
            policy: &config.policy,
            prompt: "",
            rules: Some(&rules),
            resume: None,
            answer: Answer::Text,
            home: &home,
            cap: cx.stage.cap,
            wall: cx.stage.timeout,
        };
        if let Some(session) = &cx.session {
            let prompt = config.templates.render("resume", values)?;
            let called = Call { prompt: &prompt, resume: Some(session), ..call }.make().await?;
            if called.class(Answer::Text) != Class::Refused(Refusal::NoConversation) {
                return Ok(self.end(cx, &called, &watch));
            }
            called.note(config, &Class::Refused(Refusal::NoConversation));
            warn!(task = %cx.task.id, "the conversation is not there any more; a new one begins");
        }
        let prompt = config.templates.render(&cx.task.prompt_template, values)?;
        let called = Call { prompt: &prompt, ..call }.make().await?;
        Ok(self.end(cx, &called, &watch))
    }

    fn end(&self, cx: &StageContext, called: &Called, watch: &Watch) -> StageEnd {
        let before = called.class(Answer::Text);
        let is_interrupted = matches!(
            before.outcome(&called.ending(None, Answer::Text)),
            Outcome::Interrupted { .. }
        );
        // The stage goes on in this workspace after an interruption, and is asked again at its end.
        let question = if is_interrupted { None } else { watch.take(&cx.dir) };
        let ending = called.ending(question.as_deref(), Answer::Text);
        let class = classify(&ending);
        let mut outcome = class.outcome(&ending);
        if let (Outcome::Rejected { feedback, .. }, Some(question)) = (&mut outcome, &question) {
            let both = format!("{feedback}\n\nIt left this question:\n{question}");
            *feedback = head_and_tail(&both, TEXT_BYTES_MAX);
        }
        if called.may_start_later {
            outcome = Outcome::Interrupted { reason: Interruption::Crashed, retry_at: None };
        }
        called.note(&self.config, &class);
        StageEnd {
            outcome: called.leftovers().unwrap_or(outcome),
            cost: called.cost(&self.config),
            session: called.transcript.session().cloned(),
        }
    }
}

#[async_trait]
impl Runner for ClaudeRunner {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        match self.work(cx).await {
            Ok(end) => end,
            Err(unready) => StageEnd::free(unready.outcome(cx)),
        }
    }
}
