//! What a run came to, for programs and in a few lines for people.

use orchestrator_core::{
    Completion, Engine, EventKind, InvalidSnapshot, Phase, StageKind, StoredEvent, TaskRecord,
    Timestamp,
};
use owo_colors::{OwoColorize as _, Style};
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::text::{add, add_line, harmless};

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The run's name.
    pub run: String,
    /// Its state: `completed`, `failed`, `active` (it was stopped), `paused`, `parked`, `draining`.
    pub state: String,
    /// Why it is parked or paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Tasks that are done.
    pub done: u32,
    /// Tasks that a person must decide on.
    pub escalated: u32,
    /// Tasks that wait for one of those, or for a cancelled one.
    pub blocked: u32,
    /// Tasks that were given up.
    pub cancelled: u32,
    /// Tasks that can still go on.
    pub open: u32,
    /// Attempts of all tasks.
    pub attempts: u32,
    /// Stages that were started.
    pub dispatches: u32,
    /// Stages among them that start an agent: runs and reviews.
    pub agent_runs: u32,
    /// Money spent, in US dollars.
    pub cost_usd: f64,
    /// The most that it may spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// From the first event to the last.
    pub wall_seconds: f64,
    /// The part of it during which some process drove the run.
    pub driven_seconds: f64,
    /// The tasks in the order of the plan.
    pub tasks: Vec<TaskReport>,
}

/// What became of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Its name.
    pub id: String,
    /// What became of it.
    pub state: TaskState,
    /// Why it is escalated, or how it got done without a merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Attempts that were begun.
    pub attempts: u32,
    /// Stages that were started.
    pub dispatches: u32,
    /// What it cost, in US dollars.
    pub cost_usd: f64,
    /// The commit that holds it, when it is merged.
    pub merge_commit: Option<String>,
    /// Where the work is kept of a task that is escalated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It is done.
    Done,
    /// A person must decide.
    Escalated,
    /// It waits for something that is escalated or cancelled.
    Blocked,
    /// A person gave it up.
    Cancelled,
    /// It can still go on.
    Open,
}

impl TaskState {
    /// The state in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Escalated => "escalated",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
            Self::Open => "open",
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Done => Style::new().green(),
            Self::Escalated => Style::new().red().bold(),
            Self::Blocked => Style::new().yellow(),
            Self::Cancelled | Self::Open => Style::new().dimmed(),
        }
    }
}

impl Report {
    /// What the run came to.
    ///
    /// # Errors
    /// [`InvalidSnapshot`] when the run's records do not fit its plans.
    pub fn of(history: &History) -> Result<Self, InvalidSnapshot> {
        let engine = Engine::restore(&history.snapshot)?;
        let run = &history.snapshot.run;
        let tasks: Vec<TaskReport> =
            engine.tasks_as_written().map(|task| row(&engine, &task)).collect();
        let count = |state| {
            u32::try_from(tasks.iter().filter(|t| t.state == state).count()).unwrap_or(u32::MAX)
        };
        Ok(Self {
            run: run.id.as_str().to_owned(),
            state: run.state.as_str().to_owned(),
            reason: reason(&run.state),
            done: count(TaskState::Done),
            escalated: count(TaskState::Escalated),
            blocked: count(TaskState::Blocked),
            cancelled: count(TaskState::Cancelled),
            open: count(TaskState::Open),
            attempts: tasks.iter().map(|task| task.attempts).sum(),
            dispatches: tasks.iter().map(|task| task.dispatches).sum(),
            agent_runs: agent_runs(&engine, &history.events),
            cost_usd: run.spent.as_dollars(),
            budget_usd: run.budget.map(orchestrator_core::Usd::as_dollars),
            wall_seconds: seconds(wall(&history.events)),
            driven_seconds: seconds(driven(&history.events)),
            tasks,
        })
    }

    /// The report as the content of a JSON file.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Every field is a number, a text or a list of those.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }

    /// The report in a few lines for a person.
    #[must_use]
    pub fn summary(&self, color: bool) -> String {
        let width = self.tasks.iter().map(|t| t.id.chars().count()).max().unwrap_or(0).min(40);
        let mut text = String::new();
        for task in &self.tasks {
            let state = format!("{:<9}", task.state.as_str());
            let state = if color { state.style(task.state.style()).to_string() } else { state };
            let id = harmless(&task.id, width);
            let note = match (&task.merge_commit, &task.why) {
                (Some(commit), _) => harmless(commit, 10).replace('…', ""),
                (None, Some(why)) => harmless(why, 80),
                (None, None) => String::new(),
            };
            let (attempts, cost) = (task.attempts, task.cost_usd);
            let line = format!("  {state} {id:<width$}  {attempts} att.  ${cost:.4}  {note}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        self.total(&mut text);
        text
    }

    fn total(&self, text: &mut String) {
        let total = self.tasks.len();
        add(text, format_args!("{}/{total} done", self.done));
        let others = [
            (self.escalated, "escalated"),
            (self.blocked, "blocked"),
            (self.cancelled, "cancelled"),
            (self.open, "open"),
        ];
        for (count, name) in others.into_iter().filter(|(count, _)| *count > 0) {
            add(text, format_args!(", {count} {name}"));
        }
        add(
            text,
            format_args!(
                " · {} attempts, {} agent runs · ${:.4}",
                self.attempts, self.agent_runs, self.cost_usd
            ),
        );
        if let Some(budget) = self.budget_usd {
            add(text, format_args!(" of ${budget:.2}"));
        }
        add_line(text, format_args!(" · {:.1} s", self.wall_seconds));
        if let Some(reason) = &self.reason {
            add_line(text, format_args!("The run is {}: {}", self.state, harmless(reason, 200)));
        }
    }
}

fn reason(state: &orchestrator_core::RunState) -> Option<String> {
    use orchestrator_core::RunState::{Active, Completed, Draining, Failed, Parked, Paused};
    match state {
        Paused { reason } => Some(reason.clone()),
        Draining { reason } | Parked { reason } => Some(reason.as_str().to_owned()),
        Active | Completed | Failed => None,
    }
}

fn row(engine: &Engine, task: &TaskRecord) -> TaskReport {
    let mut report = TaskReport {
        id: task.id.as_str().to_owned(),
        state: TaskState::Open,
        why: None,
        attempts: task.attempt,
        dispatches: task.dispatches,
        cost_usd: task.spent.as_dollars(),
        merge_commit: None,
        kept: None,
    };
    match &task.phase {
        Phase::Done(completion) => {
            report.state = TaskState::Done;
            match completion {
                Completion::Merged(change) => {
                    report.merge_commit = Some(change.as_str().to_owned());
                }
                Completion::Verified => report.why = Some("verified".to_owned()),
                Completion::ByHand => report.why = Some("done by hand".to_owned()),
                Completion::Skipped => report.why = Some("skipped by a person".to_owned()),
            }
        }
        Phase::Escalated(escalation) => {
            report.state = TaskState::Escalated;
            report.why = Some(escalation.cause.as_str().to_owned());
            report.kept.clone_from(&escalation.kept);
        }
        Phase::Cancelled => report.state = TaskState::Cancelled,
        Phase::Open | Phase::Deferred { .. } | Phase::Leased(_) | Phase::Stopping { .. } => {
            if engine.is_blocked(&task.id) {
                report.state = TaskState::Blocked;
            }
        }
    }
    report
}

fn agent_runs(engine: &Engine, events: &[StoredEvent]) -> u32 {
    let starts_agent = |event: &&StoredEvent| {
        let EventKind::Granted { task, stage, .. } = &event.event.kind else { return false };
        let stage = engine.pipeline(task).and_then(|pipeline| pipeline.stage(*stage));
        stage.is_some_and(|stage| match stage.kind {
            StageKind::Run | StageKind::Review => true,
            StageKind::Verify | StageKind::Integrate => false,
        })
    };
    u32::try_from(events.iter().filter(starts_agent).count()).unwrap_or(u32::MAX)
}

fn wall(events: &[StoredEvent]) -> u64 {
    match (events.first(), events.last()) {
        (Some(first), Some(last)) => last.event.at.0.saturating_sub(first.event.at.0),
        (None, _) | (_, None) => 0,
    }
}

/// The milliseconds during which some process drove the run. One that died is taken to have driven
/// it up to the last event before its successor.
fn driven(events: &[StoredEvent]) -> u64 {
    let mut total = 0;
    let mut since: Option<Timestamp> = None;
    let mut last = Timestamp(0);
    for event in events {
        let at = event.event.at;
        let opens = matches!(event.event.kind, EventKind::DriverOpened { .. });
        let ends = matches!(event.event.kind, EventKind::DriverEnded { .. });
        if opens || ends {
            let until = if ends { at } else { last };
            total += since.take().map_or(0, |since| until.0.saturating_sub(since.0));
        }
        if opens {
            since = Some(at);
        }
        last = at;
    }
    total + since.map_or(0, |since| last.0.saturating_sub(since.0))
}

fn seconds(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}
