//! Which commands were given to tasks in which phase, and to runs in which state.

use std::collections::BTreeSet;

use crate::command::Command;
use crate::engine::Engine;
use crate::id::TaskNo;

/// The phases of a task.
const PHASES: &[&str] =
    &["open", "deferred", "leased", "stopping", "done", "escalated", "cancelled"];

/// The states of a run, before there is one too.
const STATES: &[&str] = &["none", "active", "paused", "draining", "parked", "completed", "failed"];

/// The commands about a task, which are given in each of its phases.
const OF_TASKS: &[&str] = &[
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
];

/// The commands about a run, which are given in each of its states.
const OF_RUNS: &[&str] = &[
    "create_run",
    "add_plan",
    "limit_pool",
    "close_pool",
    "open_pool",
    "bound_pool",
    "set_pilot",
    "set_budget",
    "open_driver",
    "close_driver",
    "claim",
    "tick",
    "pause",
    "drain",
    "resume",
    "prune",
    "settle",
];

/// What cannot be met, and why: phase or state, command, reason.
const IMPOSSIBLE: &[(&str, &str, &str)] = &[];

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

    /// The pairs that were not met, of those that can be.
    #[must_use]
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let known = |pair: &(&str, &str)| {
            IMPOSSIBLE.iter().any(|(phase, command, _)| (*phase, *command) == *pair)
        };
        Self::all().filter(|pair| !self.met.contains(pair) && !known(pair)).collect()
    }

    /// The pairs that were met and are listed as impossible.
    #[must_use]
    pub fn surprising(&self) -> Vec<(&'static str, &'static str)> {
        let listed = IMPOSSIBLE.iter().map(|(phase, command, _)| (*phase, *command));
        listed.filter(|pair| self.met.contains(pair)).collect()
    }

    fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        let pairs = |phases: &'static [&str], commands: &'static [&str]| {
            phases.iter().flat_map(|phase| commands.iter().map(|command| (*phase, *command)))
        };
        pairs(PHASES, OF_TASKS).chain(pairs(STATES, OF_RUNS))
    }

    /// The page of the documentation: for each phase and state the commands that were met there, and
    /// those that cannot be, with the reason.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = String::from("| phase or state | commands given to it | not, and why |\n");
        page.push_str("| --- | --- | --- |\n");
        for phase in PHASES.iter().chain(STATES) {
            let of = Self::all().filter(|(of, _)| of == phase);
            let met: Vec<&str> =
                of.filter(|pair| self.met.contains(pair)).map(|pair| pair.1).collect();
            let not = IMPOSSIBLE.iter().filter(|(of, ..)| of == phase);
            let not: Vec<String> =
                not.map(|(_, command, why)| format!("{command}: {why}")).collect();
            let is_run = STATES.contains(phase);
            let what = if is_run { "run" } else { "task" };
            let line = [format!("{what} {phase}"), met.join(" · "), not.join("; ")].join(" | ");
            page += &["| ", &line, " |\n"].concat();
        }
        page
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
        Command::ClosePool { .. } => (None, "close_pool"),
        Command::OpenPool { .. } => (None, "open_pool"),
        Command::BoundPool { .. } => (None, "bound_pool"),
        Command::SetPilot { .. } => (None, "set_pilot"),
        Command::SetBudget { .. } => (None, "set_budget"),
        Command::OpenDriver { .. } => (None, "open_driver"),
        Command::CloseDriver { .. } => (None, "close_driver"),
        Command::Claim { .. } => (None, "claim"),
        Command::ClaimTask { task, .. } => (engine.number(task), "claim_task"),
        Command::Tick => (None, "tick"),
        Command::Pause { .. } => (None, "pause"),
        Command::Drain { .. } => (None, "drain"),
        Command::Resume { .. } => (None, "resume"),
        Command::Prune => (None, "prune"),
        Command::Settle => (None, "settle"),
    }
}
