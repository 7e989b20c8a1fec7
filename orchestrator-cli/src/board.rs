//! What there is to say about a run's events, in lines for people.

use std::collections::BTreeMap;

use orchestrator_core::port::{Activity, ActivityKind, Progress};
use orchestrator_core::{
    Event, EventKind, FencingToken, Interruption, StageName, StoredEvent, TaskId, Timestamp,
};

use crate::text::{harmless, span};

/// Characters of an id that are shown.
const ID_CHARS_MAX: usize = 60;
/// Characters of what an agent does that are shown.
const SAID_CHARS_MAX: usize = 160;

/// How much a line matters, and in which colour it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Only where nothing else shows it.
    Quiet,
    /// Worth knowing.
    Plain,
    /// Something got done.
    Good,
    /// Something has to be tried again.
    Warn,
    /// A person has to act.
    Bad,
}

/// One line for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// What is known of stages beyond what the events say.
#[derive(Debug, Default)]
pub(crate) struct Board {
    stages: BTreeMap<FencingToken, (StageName, u32)>,
    said: BTreeMap<FencingToken, String>,
}

impl Board {
    /// The lines that these events are worth.
    pub(crate) fn lines(&mut self, events: &[StoredEvent], progress: &Progress) -> Vec<Line> {
        for one in &progress.running {
            self.stages.insert(one.token, (one.stage.clone(), one.attempt));
        }
        let lines = events.iter().filter_map(|stored| self.line(&stored.event)).collect();
        let runs = |token: &FencingToken| progress.running.iter().any(|one| one.token == *token);
        self.stages.retain(|token, _| runs(token));
        self.said.retain(|token, _| runs(token));
        lines
    }

    /// Takes in a sign of life.
    pub(crate) fn activity(&mut self, activity: &Activity) {
        let said = match &activity.kind {
            ActivityKind::Started { pid, .. } => format!("process {pid}"),
            ActivityKind::Said(words) => harmless(words, SAID_CHARS_MAX),
            ActivityKind::Output { .. } | ActivityKind::Session(_) => return,
        };
        self.said.insert(activity.token, said);
    }

    /// What the stage of this lease did last.
    pub(crate) fn said(&self, token: FencingToken) -> &str {
        self.said.get(&token).map_or("", String::as_str)
    }

    fn line(&self, event: &Event) -> Option<Line> {
        let (tone, text) = self.about_task(event).or_else(|| about_run(event))?;
        Some(Line { tone, text })
    }

    fn about_task(&self, event: &Event) -> Option<(Tone, String)> {
        let at = event.at;
        Some(match &event.kind {
            EventKind::Granted { task, attempt, token, .. } => {
                let stage = self.stage(*token);
                (Tone::Quiet, format!("starts     {} · {stage}, attempt {attempt}", name(task)))
            }
            EventKind::Passed { task, merged: Some(change), cost, .. } => {
                let change = short(change.as_str());
                (Tone::Good, format!("merged     {} as {change}{}", name(task), priced(*cost)))
            }
            EventKind::Passed { task, token, cost, .. } => {
                let stage = self.stage(*token);
                (Tone::Quiet, format!("passed     {} · {stage}{}", name(task), priced(*cost)))
            }
            EventKind::Rejected { task, token, cost, .. } => {
                let on = format!("{} · {}{}", name(task), self.stage(*token), priced(*cost));
                (Tone::Warn, format!("rejected   {on}: goes back with the feedback"))
            }
            EventKind::Suspended { task, token, until, .. } => {
                let wait = span(orchestrator_core::millis(until.since(at)));
                let stage = self.stage(*token);
                (Tone::Quiet, format!("waits      {} · {stage}: asked again in {wait}", name(task)))
            }
            EventKind::Interrupted { task, token, reason, until, .. } => {
                let stage = self.stage(*token);
                let again = again(*reason, until.since(at));
                (Tone::Warn, format!("broken off {} · {stage}: {reason}; {again}", name(task)))
            }
            EventKind::Stopping { task, token, reason } => {
                let stage = self.stage(*token);
                (Tone::Warn, format!("stopping   {} · {stage}: {reason}", name(task)))
            }
            EventKind::Cancelling { task, actor, reason, .. } => {
                asked("cancelling", task, actor, reason)
            }
            EventKind::Escalated { task, cause, .. } => {
                (Tone::Bad, format!("ESCALATED  {}: {}", name(task), cause.as_str()))
            }
            EventKind::ResultRefused { task, token, reason, .. } => (
                Tone::Warn,
                format!("refused    {}: late result of lease {token}: {reason}", name(task)),
            ),
            EventKind::Retried { task, actor, reason } => asked("again", task, actor, reason),
            EventKind::Resolved { task, actor, reason, .. } => {
                asked("resolved", task, actor, reason)
            }
            EventKind::Edited { task, actor, reason, .. } => asked("edited", task, actor, reason),
            EventKind::Cancelled { task, actor, reason } => asked("cancelled", task, actor, reason),
            EventKind::Due { .. }
            | EventKind::Dispatched { .. }
            | EventKind::MergeIntended { .. }
            | EventKind::RunCreated { .. }
            | EventKind::PlanAdded { .. }
            | EventKind::PlanPruned { .. }
            | EventKind::PoolLimited { .. }
            | EventKind::PoolClosed { .. }
            | EventKind::PoolOpened { .. }
            | EventKind::PoolBounded { .. }
            | EventKind::PilotSet { .. }
            | EventKind::BudgetSet { .. }
            | EventKind::DriverOpened { .. }
            | EventKind::DriverEnded { .. }
            | EventKind::Paused { .. }
            | EventKind::Draining { .. }
            | EventKind::Parked { .. }
            | EventKind::Resumed { .. }
            | EventKind::Completed
            | EventKind::Failed => return None,
        })
    }

    fn stage(&self, token: FencingToken) -> String {
        match self.stages.get(&token) {
            Some((stage, _)) => harmless(stage.as_str(), ID_CHARS_MAX),
            None => format!("lease {token}"),
        }
    }
}

/// What a person asked for.
/// When a stage that was broken off is carried out again.
fn again(reason: Interruption, wait: std::time::Duration) -> String {
    if reason == Interruption::Cancelled {
        "it is given up".to_owned()
    } else if wait.is_zero() {
        "again as soon as there is room".to_owned()
    } else {
        format!("again in {}", span(orchestrator_core::millis(wait)))
    }
}

fn asked(what: &str, task: &TaskId, actor: &str, reason: &str) -> (Tone, String) {
    (Tone::Plain, format!("{what:<10} {}: {}", name(task), by(actor, reason)))
}

fn about_run(event: &Event) -> Option<(Tone, String)> {
    Some(match &event.kind {
        EventKind::RunCreated { run, .. } => {
            (Tone::Plain, format!("run `{}` begins", harmless(run.as_str(), ID_CHARS_MAX)))
        }
        EventKind::PlanAdded { tasks, .. } => (Tone::Plain, format!("plan of {tasks} tasks added")),
        EventKind::PlanPruned { .. } => (Tone::Plain, "a finished plan is pruned".to_owned()),
        EventKind::DriverOpened { owner, .. } => {
            (Tone::Plain, format!("driven by process {}", owner.pid))
        }
        EventKind::PoolClosed { pool, until } => {
            let wait = span(orchestrator_core::millis(until.since(event.at)));
            let pool = harmless(pool.as_str(), ID_CHARS_MAX);
            (Tone::Warn, format!("pool `{pool}` is closed for {wait}"))
        }
        EventKind::PoolOpened { pool } => {
            (Tone::Plain, format!("pool `{}` is open again", harmless(pool.as_str(), ID_CHARS_MAX)))
        }
        EventKind::BudgetSet { budget: Some(budget) } => {
            (Tone::Plain, format!("the budget is {budget}"))
        }
        EventKind::PoolBounded { pool, bounds } => {
            let pool = harmless(pool.as_str(), ID_CHARS_MAX);
            let budget = bounds.budget.map_or_else(|| "none".to_owned(), |usd| usd.to_string());
            let most = bounds.in_flight_max.map_or_else(|| "any".to_owned(), |max| max.to_string());
            (Tone::Plain, format!("pool `{pool}`: budget {budget}, tasks in flight {most}"))
        }
        EventKind::PilotSet { tasks: Some(tasks) } => {
            (Tone::Plain, format!("a pilot of {tasks} tasks comes first"))
        }
        EventKind::Paused { actor, reason } => {
            (Tone::Warn, format!("paused: {}", by(actor, reason)))
        }
        EventKind::Draining { reason } => {
            (Tone::Warn, format!("nothing new starts: {}", reason.as_str()))
        }
        EventKind::Parked { reason } => (Tone::Bad, format!("parked: {}", reason.as_str())),
        EventKind::Resumed { actor } => {
            (Tone::Plain, format!("resumed by {}", harmless(actor, ID_CHARS_MAX)))
        }
        EventKind::Completed => (Tone::Good, "completed: every task is done".to_owned()),
        EventKind::Failed => (Tone::Bad, "finished: what is left waits for a person".to_owned()),
        EventKind::PoolLimited { .. }
        | EventKind::BudgetSet { budget: None }
        | EventKind::PilotSet { tasks: None }
        | EventKind::DriverEnded { .. }
        | EventKind::Granted { .. }
        | EventKind::Passed { .. }
        | EventKind::Rejected { .. }
        | EventKind::Suspended { .. }
        | EventKind::Interrupted { .. }
        | EventKind::Stopping { .. }
        | EventKind::Cancelling { .. }
        | EventKind::Escalated { .. }
        | EventKind::ResultRefused { .. }
        | EventKind::Dispatched { .. }
        | EventKind::MergeIntended { .. }
        | EventKind::Due { .. }
        | EventKind::Edited { .. }
        | EventKind::Retried { .. }
        | EventKind::Resolved { .. }
        | EventKind::Cancelled { .. } => return None,
    })
}

fn name(task: &TaskId) -> String {
    harmless(task.as_str(), ID_CHARS_MAX)
}

fn by(actor: &str, reason: &str) -> String {
    format!("{} ({})", harmless(reason, SAID_CHARS_MAX), harmless(actor, ID_CHARS_MAX))
}

fn priced(cost: orchestrator_core::Usd) -> String {
    if cost == orchestrator_core::Usd::ZERO { String::new() } else { format!(" ({cost})") }
}

fn short(change: &str) -> String {
    harmless(change, ID_CHARS_MAX).chars().take(10).collect()
}

/// How the run stands, in one line.
pub(crate) fn standing(progress: &Progress) -> String {
    let counts = progress.counts;
    let waiting = counts.open.saturating_sub(progress.blocked);
    let mut text = format!("{}/{} done", counts.done, counts.total());
    let parts = [
        (counts.leased.saturating_add(counts.stopping), "running"),
        (waiting, "waiting"),
        (counts.deferred, "backing off"),
        (progress.blocked, "blocked"),
        (counts.escalated, "escalated"),
        (counts.cancelled, "cancelled"),
    ];
    for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
        text.extend([", ", &count.to_string(), " ", what]);
    }
    text.extend([" · ", &progress.spent.to_string()]);
    if let Some(budget) = progress.budget {
        text.extend([" of ", &budget.to_string()]);
    }
    text
}

/// The run's time as a clock.
pub(crate) fn clock(now: Timestamp) -> String {
    let seconds = now.0 / 1_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes:02}:{seconds:02}")
    }
}
