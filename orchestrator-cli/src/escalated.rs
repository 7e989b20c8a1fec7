//! What waits for a person: each escalated task with all that is needed to decide.

use std::collections::BTreeSet;
use std::path::Path;

use orchestrator_core::{
    Cause, Engine, Escalation, EventKind, InvalidSnapshot, Phase, StageKind, TaskId, TaskRecord,
    head_and_tail,
};

use crate::history::History;
use crate::text::{add, add_line, code, fenced, harmless, shell_word};

/// Longest feedback of an earlier attempt that is shown whole, in bytes.
const FEEDBACK_BYTES_MAX: usize = 8 * 1024;
/// Longest question or failure that is shown whole, in bytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// What a person can do, in the terms of the program that runs the tasks.
#[derive(Clone, Copy)]
pub struct Advice<'a> {
    /// The repository that keeps the work.
    pub repository: &'a Path,
    /// The branch that the work is merged into.
    pub branch: &'a str,
    /// Where an answer belongs, so that the next attempt reads it.
    pub answer: &'a str,
    /// The command that does this with a task; `None` where the program has none.
    pub command: &'a (dyn Fn(&TaskId, Remedy) -> Option<String> + Sync),
}

/// What a person can do about an escalated task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Have it tried again: as often as its plan says.
    Retry,
    /// The same, with those that depend on it and were given up.
    RetryDependents,
    /// The same, with more retries than its plan says.
    MoreRetries,
    /// Say in the place of the stage that judged it that its change is good.
    Approve,
    /// Say that it was done by hand.
    ByHand,
    /// Let what depends on it go on without it.
    Skip,
    /// Give it up, and what depends on it with it.
    Cancel,
}

impl Remedy {
    /// All of them, in the order in which they are told.
    pub const ALL: &[Self] = &[
        Self::Retry,
        Self::RetryDependents,
        Self::MoreRetries,
        Self::Approve,
        Self::ByHand,
        Self::Skip,
        Self::Cancel,
    ];
}

impl std::fmt::Debug for Advice<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Advice").field("repository", &self.repository).finish_non_exhaustive()
    }
}

/// The content of `ESCALATED.md`: what waits for a person, what was tried, where the work is, and
/// how to go on. Says so when nothing waits.
///
/// # Errors
/// [`InvalidSnapshot`] when the run's records do not fit its plans.
pub fn escalated_md(history: &History, advice: &Advice<'_>) -> Result<String, InvalidSnapshot> {
    let engine = Engine::restore(&history.snapshot)?;
    let run = code(history.snapshot.run.id.as_str());
    let escalated: Vec<(TaskRecord, Escalation)> = engine
        .tasks_as_written()
        .filter_map(|task| match &task.phase {
            Phase::Escalated(escalation) => Some((task.clone(), escalation.clone())),
            Phase::Open
            | Phase::Deferred { .. }
            | Phase::Leased(_)
            | Phase::Stopping { .. }
            | Phase::Done(_)
            | Phase::Cancelled => None,
        })
        .collect();
    if escalated.is_empty() {
        return Ok(format!("# Nothing is escalated\n\nNo task of run {run} waits for a person.\n"));
    }
    let are = if escalated.len() == 1 { "task waits" } else { "tasks wait" };
    let mut text = format!("# {} {are} for a person\n\nRun {run}.\n", escalated.len());
    let page = Page { history, engine: &engine, advice };
    for (task, escalation) in &escalated {
        page.task(&mut text, task, escalation);
    }
    Ok(text)
}

struct Page<'a> {
    history: &'a History,
    engine: &'a Engine,
    advice: &'a Advice<'a>,
}

impl Page<'_> {
    fn task(&self, text: &mut String, task: &TaskRecord, escalation: &Escalation) {
        let (id, cause) = (harmless(task.id.as_str(), 300), escalation.cause.as_str());
        add_line(text, format_args!("\n## {id}: {cause}\n"));
        let (attempts, dispatches) = (task.attempt, task.dispatches);
        add_line(
            text,
            format_args!(
                "{} begun, {} started, {} spent.\n",
                counted(attempts, "attempt"),
                counted(dispatches, "stage"),
                task.spent
            ),
        );
        self.cause(text, escalation);
        self.tried(text, task, escalation);
        self.work(text, task, escalation);
        self.blocks(text, &task.id);
        self.go_on(text, task, escalation.cause);
    }

    fn cause(&self, text: &mut String, escalation: &Escalation) {
        let title = match escalation.cause {
            Cause::Question => "The question",
            Cause::RetriesUsed | Cause::SameFailure | Cause::RoundsUsed => "The last failure",
            Cause::Fatal => "The error",
            Cause::InterruptionsUsed
            | Cause::DispatchesUsed
            | Cause::DeferralsUsed
            | Cause::BudgetUsed => "What happened last",
        };
        add_line(text, format_args!("### {title}\n"));
        let known = escalation.text.as_ref().and_then(|hash| self.history.texts.get(hash));
        match known {
            Some(words) => text.push_str(&fenced(&head_and_tail(words, TEXT_BYTES_MAX))),
            None => text.push_str("There is no text to it; see the logs of its stages.\n"),
        }
    }

    fn tried(&self, text: &mut String, task: &TaskRecord, escalation: &Escalation) {
        let earlier: Vec<_> = task
            .feedback
            .iter()
            .filter(|hash| escalation.text.as_ref() != Some(hash))
            .filter_map(|hash| self.history.texts.get(hash))
            .collect();
        let interruptions = self.interruptions(&task.id);
        text.push_str("\n### What was tried\n\n");
        if earlier.is_empty() && interruptions.is_empty() {
            text.push_str("Nothing else: this is how its first attempt ended.\n");
        }
        for (at, feedback) in earlier.into_iter().enumerate() {
            let gap = if at > 0 { "\n" } else { "" };
            add_line(text, format_args!("{gap}An attempt was rejected with:\n"));
            text.push_str(&fenced(&head_and_tail(feedback, FEEDBACK_BYTES_MAX)));
        }
        for (reason, count) in interruptions {
            let times = counted(count, "time");
            add_line(text, format_args!("- Interrupted {times}: {reason}."));
        }
    }

    /// Why the task was interrupted, and how often.
    fn interruptions(&self, id: &TaskId) -> std::collections::BTreeMap<String, u32> {
        let mut counts = std::collections::BTreeMap::new();
        for event in &self.history.events {
            if let EventKind::Interrupted { task, reason, .. } = &event.event.kind
                && task == id
            {
                *counts.entry(reason.to_string()).or_insert(0) += 1;
            }
        }
        counts
    }

    fn work(&self, text: &mut String, task: &TaskRecord, escalation: &Escalation) {
        text.push_str("\n### Where the work is\n\n");
        let repository = shell_word(&self.advice.repository.display().to_string());
        if let Some(candidate) = &task.candidate {
            let change = candidate.change.as_str();
            add_line(
                text,
                format_args!("The last sealed change is {}. To take it up:\n", code(change)),
            );
            let place = format!("../{}", task.id.slug());
            text.push_str(&shell(&worktree(&repository, &place, change)));
            if escalation.kept.is_some() {
                text.push('\n');
            }
        }
        if let Some(kept) = &escalation.kept {
            add(text, format_args!("What was not sealed is kept: {}.", code(kept)));
            if kept.starts_with("refs/") {
                text.push_str(" To take it up:\n\n");
                let place = format!("../{}-kept", task.id.slug());
                text.push_str(&shell(&worktree(&repository, &place, kept)));
            } else {
                text.push('\n');
            }
        }
        if task.candidate.is_none() && escalation.kept.is_none() {
            text.push_str("It left no change behind.\n");
        }
    }

    fn blocks(&self, text: &mut String, root: &TaskId) {
        let blocked = self.dependents(root);
        text.push_str("\n### What waits for it\n\n");
        if blocked.is_empty() {
            text.push_str("No other task.\n");
        }
        for id in blocked {
            add_line(text, format_args!("- {}", code(id.as_str())));
        }
    }

    /// The blocked tasks that depend on this one, directly or not, in the order of the plan.
    fn dependents(&self, root: &TaskId) -> Vec<TaskId> {
        let mut reached: BTreeSet<TaskId> = BTreeSet::from([root.clone()]);
        // Each task has a greater number than those it depends on.
        for task in self.engine.tasks() {
            let spec = self.engine.spec(&task.id);
            if spec.is_some_and(|spec| spec.depends_on.iter().any(|id| reached.contains(id))) {
                reached.insert(task.id);
            }
        }
        let blocked =
            |id: &TaskId| id != root && reached.contains(id) && self.engine.is_blocked(id);
        self.engine.tasks_as_written().map(|task| task.id).filter(blocked).collect()
    }

    fn go_on(&self, text: &mut String, task: &TaskRecord, cause: Cause) {
        text.push_str("\n### How to go on\n\n");
        let first = match cause {
            Cause::Question => format!("Answer the question {}", self.advice.answer),
            Cause::RetriesUsed | Cause::SameFailure | Cause::RoundsUsed => {
                format!("Find out what the agent does not know, and say it {}", self.advice.answer)
            }
            Cause::Fatal => "Mend what the error names".to_owned(),
            Cause::DeferralsUsed => "Find out why its gate did not open".to_owned(),
            Cause::InterruptionsUsed | Cause::DispatchesUsed => {
                "Find out what ended its stages (their logs are in the run's folder)".to_owned()
            }
            Cause::BudgetUsed => "Edit it to have a larger `budget`, or to be less".to_owned(),
        };
        let then = format!("{first}. Then have the task tried again");
        let dependents = "Have those tried again too that depend on it and were given up";
        let by_hand =
            format!("Or finish it by hand, on branch {}, and say so", code(self.advice.branch));
        let told = [
            (Remedy::Retry, then.as_str()),
            (Remedy::RetryDependents, dependents),
            (Remedy::MoreRetries, "Give it more retries than the plan does"),
            (Remedy::Approve, "Or say yourself that its change is good"),
            (Remedy::ByHand, by_hand.as_str()),
            (Remedy::Skip, "Let what waits for it go on without it"),
            (Remedy::Cancel, "Give it up; what waits for it stays blocked"),
        ];
        let mut gap = "";
        for (remedy, words) in told {
            if remedy == Remedy::Approve && !self.waits_for_a_judge(task) {
                continue;
            }
            if let Some(command) = (self.advice.command)(&task.id, remedy) {
                add_line(text, format_args!("{gap}{words}:\n"));
                text.push_str(&shell(&command));
                gap = "\n";
            }
        }
    }
}

impl Page<'_> {
    /// Whether it is at a stage that judges, so that a person can do that.
    fn waits_for_a_judge(&self, task: &TaskRecord) -> bool {
        let pipeline = self.engine.pipeline(&task.id);
        let stage = pipeline.and_then(|pipeline| pipeline.stage(task.stage));
        stage.is_some_and(|stage| match stage.kind {
            StageKind::Verify | StageKind::Review | StageKind::Gate => true,
            StageKind::Run | StageKind::Integrate => false,
        })
    }
}

/// The command that puts a change into a worktree of its own.
fn worktree(repository: &str, place: &str, change: &str) -> String {
    let (place, change) = (shell_word(place), shell_word(change));
    format!("git -C {repository} worktree add --detach {place} {change}")
}

fn shell(command: &str) -> String {
    format!("```sh\n{}\n```\n", harmless(command, 4_000))
}

fn counted(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
