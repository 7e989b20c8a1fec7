//! What a run came to, for programs and in a few lines for people.

use orchestrator_core::{
    Completion, Engine, EventKind, InvalidSnapshot, Phase, StoredEvent, TaskRecord,
};
use owo_colors::{OwoColorize as _, Style};
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::text::{add, add_line, harmless};
use crate::times::Times;

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
    /// The part of it that programs said.
    #[serde(default)]
    pub cost_known_usd: f64,
    /// The part of it that is an estimate: a program ended without saying what it cost, so what had
    /// been set aside for it was booked.
    #[serde(default)]
    pub cost_estimated_usd: f64,
    /// Money that is set aside for what runs.
    #[serde(default)]
    pub cost_reserved_usd: f64,
    /// The most that it may spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// From the first event to the last.
    pub wall_seconds: f64,
    /// The part of it during which some process drove the run.
    pub driven_seconds: f64,
    /// The part of the agents' permits that was in use meanwhile; 1 is all of them, all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// What no schedule of the same stages would have been faster than: the slowest chain, or the
    /// work that one pool had to do with all of its permits.
    #[serde(default)]
    pub lower_bound_seconds: f64,
    /// How many times as long the run was driven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub makespan_over_lower_bound: Option<f64>,
    /// The chain of dependencies whose stages took longest together, first to last.
    #[serde(default)]
    pub slowest_chain: Vec<String>,
    /// What its stages took.
    #[serde(default)]
    pub slowest_chain_seconds: f64,
    /// What tasks waited for.
    #[serde(default)]
    pub waiting_seconds: Waiting,
    /// The tasks in the order of the plan.
    pub tasks: Vec<TaskReport>,
}

/// How long tasks waited, by what they waited for; all tasks added up, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// For what they depend on.
    pub dependencies: f64,
    /// For a permit, their scope, money, or the next turn.
    pub capacity: f64,
    /// For the end of a wait after an interruption.
    pub backoff: f64,
    /// Because the run was paused, draining or parked.
    pub held: f64,
    /// Because no process drove the run.
    pub not_driven: f64,
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
        let times = Times::of(&engine, &history.snapshot, &history.events);
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
            cost_known_usd: run.spent.minus(times.estimated).as_dollars(),
            cost_estimated_usd: times.estimated.as_dollars(),
            cost_reserved_usd: run.reserved.as_dollars(),
            budget_usd: run.budget.map(orchestrator_core::Usd::as_dollars),
            wall_seconds: seconds(wall(&history.events)),
            driven_seconds: seconds(times.driven),
            utilisation: times.utilisation(),
            lower_bound_seconds: seconds(times.lower_bound),
            makespan_over_lower_bound: times.over_lower_bound(),
            slowest_chain: times.chain.iter().map(|id| id.as_str().to_owned()).collect(),
            slowest_chain_seconds: seconds(times.chain_took),
            waiting_seconds: Waiting {
                dependencies: seconds(times.waits.dependencies),
                capacity: seconds(times.waits.capacity),
                backoff: seconds(times.waits.backoff),
                held: seconds(times.waits.held),
                not_driven: seconds(times.waits.not_driven),
            },
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
        self.time(text);
        if let Some(reason) = &self.reason {
            add_line(text, format_args!("The run is {}: {}", self.state, harmless(reason, 200)));
        }
    }
}

impl Report {
    /// Where the time went, when there is something to say of it.
    fn time(&self, text: &mut String) {
        let (Some(used), Some(ratio)) = (self.utilisation, self.makespan_over_lower_bound) else {
            return;
        };
        add(text, format_args!("agents {:.0} % busy, {ratio:.2} × the lower bound", used * 100.0));
        if !self.slowest_chain.is_empty() {
            let chain = harmless(&self.slowest_chain.join(" → "), 200);
            let took = self.slowest_chain_seconds;
            add(text, format_args!(" · slowest chain {took:.1} s: {chain}"));
        }
        text.push('\n');
        let waits = &self.waiting_seconds;
        let waits = [
            (waits.dependencies, "dependencies"),
            (waits.capacity, "room"),
            (waits.backoff, "the end of a backoff"),
            (waits.held, "the run to be resumed"),
            (waits.not_driven, "somebody to drive the run"),
        ];
        let waits = waits.iter().filter(|(seconds, _)| *seconds > 0.0);
        let waits: Vec<String> =
            waits.map(|(seconds, what)| format!("{seconds:.1} s for {what}")).collect();
        if !waits.is_empty() {
            add_line(text, format_args!("tasks waited {}", waits.join(", ")));
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
        stage.is_some_and(|stage| !stage.kind.is_deterministic())
    };
    u32::try_from(events.iter().filter(starts_agent).count()).unwrap_or(u32::MAX)
}

fn wall(events: &[StoredEvent]) -> u64 {
    match (events.first(), events.last()) {
        (Some(first), Some(last)) => last.event.at.0.saturating_sub(first.event.at.0),
        (None, _) | (_, None) => 0,
    }
}

fn seconds(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}
