//! The runner: an agent that works on a task.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::{ActivityKind, Runner, StageContext};
use orchestrator_core::{
    Cost, Interruption, Outcome, Restart, SessionId, StageEnd, TEXT_BYTES_MAX, TaskSpec, Usd,
    head_and_tail,
};
use orchestrator_process::mask_log;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::agent::{Agent, AgentConfig, Answer};
use crate::blocked::{self, Watch};
use crate::call::{Call, Called, sum};
use crate::memory::{Left, Memory};
use crate::outcome::{Class, Refusal, Stop, Unservable};
use crate::outfit::{Begun, Checked, Outfit, SetupFault};
use crate::prompt::{Document, Templates, Values};
use crate::signals::{Looked, Signal};
use crate::tree::Tree;
use crate::unready::Unready;

/// Works on tasks with an agent program.
///
/// Each run is one process of the program with a prompt made of a template, in the task's
/// workspace; its conversation is kept beside the workspace, so that an interrupted stage goes on
/// where it was, and so does the attempt after a rejection while the workspace holds the work. Its
/// output goes to files in the stage's directory, and nothing of it is left when the stage ends.
#[derive(Debug, Clone)]
pub struct AgentRunner {
    outfit: Outfit,
}

/// What is known before the program starts.
struct Before {
    begun: Begun,
    watch: Watch,
    tree: Option<Tree>,
}

impl AgentRunner {
    /// A runner for this agent.
    #[must_use]
    pub fn new(agent: Arc<dyn Agent>, config: impl Into<Arc<AgentConfig>>) -> Self {
        Self::with(Outfit { agent, config: config.into() })
    }

    pub(crate) const fn with(outfit: Outfit) -> Self {
        Self { outfit }
    }

    /// Finds whatever is missing, before anything is spent: the documents below `root` (a tree as
    /// the target has it), the prompts of all tasks for every attempt, and the program.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub async fn check(&self, tasks: &[TaskSpec], root: &Path) -> Result<Checked, Vec<SetupFault>> {
        let prompts =
            |templates: &Templates, documents: &[Document]| templates.check(tasks, documents);
        self.outfit.check(root, prompts).await
    }

    async fn work(&self, cx: &StageContext) -> Result<StageEnd, Unready> {
        let Outfit { agent, config } = &self.outfit;
        let begun = self.outfit.begin(cx)?;
        let watch = Watch::begin(&cx.workspace.path, &cx.workspace.aside, cx.attempt)?;
        let before = Before { begun, watch, tree: tree(&cx.workspace.path).await };
        let begun = &before.begun;
        let noticed = begun.memory.as_ref().map(|memory| memory.signals(cx)).unwrap_or_default();
        let noticed: Vec<String> = noticed.iter().map(ToString::to_string).collect();
        let values = Values {
            task: &cx.task,
            attempt: cx.attempt,
            feedback: &cx.feedback,
            noticed: &noticed,
            documents: &begun.documents,
            change: None,
        };
        let rules = config.templates.render("rules", values)?;
        let home = cx.workspace.aside.join("agent");
        let call = Call {
            agent: &**agent,
            config,
            cx,
            prompt: "",
            rules: Some(&rules),
            resume: None,
            answer: Answer::Text,
            home: &home,
            cap: cx.stage.cap,
            wall: cx.stage.timeout,
        };
        let begun_at = Instant::now();
        let mut spent = Cost::NONE;
        if let Some(session) = &self.conversation(cx, begun) {
            let prompt = config.templates.render("resume", values)?;
            let called = Call { prompt: &prompt, resume: Some(session), ..call }.make().await?;
            let finish = called.finish(None, None);
            spent = called.cost(&finish);
            let has_money = spent.settle(Usd::ZERO) < cx.stage.cap;
            if !cannot_go_on(&finish.class) || !has_money || cx.cancel.is_cancelled() {
                return Ok(end(cx, &called, before).await);
            }
            called.note(&finish, &[]);
            warn!(task = %cx.task.id, class = ?finish.class, "a new conversation begins");
        }
        let prompt = config.templates.render(&cx.task.prompt_template, values)?;
        let cap = cx.stage.cap.minus(spent.settle(Usd::ZERO));
        let wall = cx.stage.timeout.saturating_sub(begun_at.elapsed());
        let end = match (Call { prompt: &prompt, cap, wall, ..call }).make().await {
            Ok(called) => end(cx, &called, before).await,
            Err(unready) => StageEnd::free(unready.outcome(cx)),
        };
        Ok(StageEnd { cost: sum(spent, end.cost), ..end })
    }

    /// The conversation to take up: the one that was interrupted, or the one of the attempt before.
    fn conversation(&self, cx: &StageContext, begun: &Begun) -> Option<SessionId> {
        let memory = begun.memory.as_ref();
        let is_outdated = memory.is_some_and(|memory| memory.is_outdated(&begun.documents));
        if !self.outfit.agent.capabilities().resume || is_outdated {
            return None;
        }
        let earlier = || memory.filter(|_| self.outfit.config.resume_rejected)?.conversation(cx);
        cx.session.clone().or_else(earlier)
    }
}

/// Ends the stage: looks at what the program left, and remembers it.
async fn end(cx: &StageContext, called: &Called, before: Before) -> StageEnd {
    let Before { begun: Begun { documents, memory }, watch, tree: before } = before;
    let first = called.finish(None, None);
    let is_interrupted = matches!(called.outcome(cx, &first, None), Outcome::Interrupted { .. });
    // The stage goes on in this workspace after an interruption, and is asked again at its end.
    let question = if is_interrupted { None } else { watch.take(&cx.dir) };
    mask_log(&cx.dir.join(blocked::FILE_NAME), &called.mask).await;
    let after = tree(&cx.workspace.path).await;
    let changed = before.as_ref().zip(after.as_ref()).map(|(one, two)| one.changed(two));
    let goes_on = memory.as_ref().filter(|memory| memory.is_of_this_attempt(cx));
    let has_changes = has_changes(cx, changed.as_deref(), goes_on);
    let finish = called.finish(question.as_deref(), has_changes);
    let mut signals = Looked {
        task: &cx.task,
        root: &cx.workspace.path,
        repeats: &called.heard.repeats,
        mask: &called.mask,
        denied: called.heard.denied,
        said: is_success(&finish.class).then_some(finish.text.as_str()),
        has_changes,
        before: before.as_ref(),
        after: after.as_ref(),
    }
    .signals();
    if !called.changed.is_empty() {
        let names = called.changed.iter().filter_map(|file| file.file_name());
        let files = names.map(|name| name.to_string_lossy().into_owned()).collect();
        signals.push(Signal::OwnFilesChanged { files });
    }
    for signal in &signals {
        info!(task = %cx.task.id, %signal, "noticed about the run");
        cx.activity.say(ActivityKind::Said(format!("noticed: {signal}")));
    }
    called.note(&finish, &signals);
    let mut outcome = called.outcome(cx, &finish, question.as_deref());
    if called.may_start_later {
        outcome = Outcome::Interrupted { reason: Interruption::Crashed, retry_at: None };
    }
    if outcome == Outcome::Passed && !called.changed.is_empty() {
        // It was not held to what it may do.
        let feedback = "The attempt changed files that are none of its business, and is not taken.";
        outcome =
            Outcome::Rejected { feedback: feedback.to_owned(), restart: Restart::OnCandidate };
    }
    add_to_feedback(&mut outcome, question.as_deref(), &signals);
    // A rejection tells the next attempt of them by itself.
    // One that went in circles would go on in them.
    let is_worth_it = finish.class != Class::Stopped(Stop::Repeats);
    let left = Left {
        session: called.heard.session.clone().filter(|_| is_worth_it),
        signals: if outcome == Outcome::Passed { signals } else { Vec::new() },
        said: &called.mask.text(&finish.text),
        documents: &documents,
        changed: changed.as_deref(),
    };
    let noted = Memory::keep(cx, left, memory.as_ref());
    if let Err(err) = noted {
        warn!(task = %cx.task.id, error = %err, "the next attempt begins a new conversation");
    }
    let outcome = called.leftovers().unwrap_or(outcome);
    StageEnd { outcome, cost: called.cost(&finish), session: called.heard.session.clone() }
}

/// Whether a conversation is gone, or has become too long for the model; a new one may go better.
const fn cannot_go_on(class: &Class) -> bool {
    matches!(
        class,
        Class::Refused(Refusal::NoConversation) | Class::Unservable(Unservable::PromptTooLong)
    )
}

/// Whether the attempt has changed anything, as far as that is known.
fn has_changes(
    cx: &StageContext,
    changed: Option<&[PathBuf]>,
    goes_on: Option<&Memory>,
) -> Option<bool> {
    let changed = !changed?.is_empty();
    let earlier = goes_on.is_some_and(Memory::has_changes);
    // What a part of the attempt did that nobody noted is not known.
    let is_known = goes_on.is_some() || !cx.workspace.as_left;
    if changed || earlier { Some(true) } else { is_known.then_some(false) }
}

const fn is_success(class: &Class) -> bool {
    matches!(class, Class::Success | Class::Suspicious(_))
}

fn add_to_feedback(outcome: &mut Outcome, question: Option<&str>, signals: &[Signal]) {
    let Outcome::Rejected { feedback, .. } = outcome else { return };
    if let Some(question) = question {
        feedback.push_str("\n\nIt left this question:\n");
        feedback.push_str(question);
    }
    if !signals.is_empty() {
        feedback.push_str("\n\nNoticed about the attempt:\n");
        let lines: Vec<String> = signals.iter().map(|signal| format!("- {signal}")).collect();
        feedback.push_str(&lines.join("\n"));
    }
    *feedback = head_and_tail(feedback, TEXT_BYTES_MAX);
}

/// Looks at a tree, beside the loop: a large one takes a while.
async fn tree(root: &Path) -> Option<Tree> {
    let root = root.to_owned();
    tokio::task::spawn_blocking(move || Tree::of(&root)).await.ok().flatten()
}

#[async_trait]
impl Runner for AgentRunner {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        match self.work(cx).await {
            Ok(end) => end,
            Err(unready) => StageEnd::free(unready.outcome(cx)),
        }
    }
}
