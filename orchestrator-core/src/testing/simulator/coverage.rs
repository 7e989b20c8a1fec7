//! Which commands were given to tasks in which phase, and to runs in which state.

use std::collections::BTreeSet;

use crate::command::Command;
use crate::engine::Engine;
use crate::id::TaskNo;

/// The phases of a task, and the commands about one.
const OF_TASKS: (&[&str], &[&str]) = (
    &["open", "deferred", "leased", "stopping", "done", "escalated", "cancelled"],
    &[
        "report",
        "intend_merge",
        "dispatch",
        "supersede",
        "stopped",
        "retry",
        "resolve",
        "cancel",
        "edit",
        "claim_task",
    ],
);

/// The states of a run, and the commands about one.
const OF_RUNS: (&[&str], &[&str]) = (
    &["active", "paused", "draining", "parked", "completed", "failed"],
    &[
        "create_run",
        "add_plan",
        "limit_pool",
        "set_budget",
        "open_driver",
        "close_driver",
        "claim",
        "tick",
        "pause",
        "drain",
        "resume",
        "settle",
    ],
);

/// Pairs of a phase or state and a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    met: BTreeSet<(&'static str, &'static str)>,
}

impl Coverage {
    /// Notes a command that is about to be given.
    pub(super) fn note(&mut self, engine: &Engine, command: &Command) {
        let (task, name) = told(engine, command);
        let state = engine.run().map_or("none", |run| run.state.as_str());
        let phase = task.and_then(|task| engine.record(task)).map(|task| task.phase.as_str());
        self.met.insert((phase.unwrap_or(state), name));
    }

    /// Adds what another history met.
    pub fn absorb(&mut self, other: Self) {
        self.met.extend(other.met);
    }

    /// The pairs that were not met.
    #[must_use]
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let all = [OF_TASKS, OF_RUNS].into_iter().flat_map(|(phases, commands)| {
            phases.iter().flat_map(|phase| commands.iter().map(|command| (*phase, *command)))
        });
        all.filter(|pair| !self.met.contains(pair)).collect()
    }
}

/// The task that a command is about, and its name.
fn told(engine: &Engine, command: &Command) -> (Option<TaskNo>, &'static str) {
    match command {
        Command::Report(report) => (Some(report.task), "report"),
        Command::IntendMerge { task, .. } => (Some(*task), "intend_merge"),
        Command::Dispatch { task, .. } => (Some(*task), "dispatch"),
        Command::Supersede { task, .. } => (Some(*task), "supersede"),
        Command::Stopped { task, .. } => (Some(*task), "stopped"),
        Command::Retry { task, .. } => (engine.number(task), "retry"),
        Command::Resolve { task, .. } => (engine.number(task), "resolve"),
        Command::Cancel { task, .. } => (engine.number(task), "cancel"),
        Command::Edit { spec, .. } => (engine.number(&spec.id), "edit"),
        Command::CreateRun { .. } => (None, "create_run"),
        Command::AddPlan { .. } => (None, "add_plan"),
        Command::LimitPool { .. } => (None, "limit_pool"),
        Command::SetBudget { .. } => (None, "set_budget"),
        Command::OpenDriver { .. } => (None, "open_driver"),
        Command::CloseDriver { .. } => (None, "close_driver"),
        Command::Claim { .. } => (None, "claim"),
        Command::ClaimTask { task, .. } => (engine.number(task), "claim_task"),
        Command::Tick => (None, "tick"),
        Command::Pause { .. } => (None, "pause"),
        Command::Drain { .. } => (None, "drain"),
        Command::Resume { .. } => (None, "resume"),
        Command::Settle => (None, "settle"),
    }
}
