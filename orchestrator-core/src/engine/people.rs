//! What people ask of a run.

use super::Engine;
use super::index::lease;
use crate::command::{Command, Decision, Refusal};
use crate::event::EventKind;
use crate::id::TaskId;
use crate::outcome::in_one_line;
use crate::record::{Phase, RunRecord, RunState, TaskRecord};
use crate::time::Timestamp;

/// Longest name or reason that a person may give, in bytes; what is over it is left out.
const WORDS_BYTES_MAX: usize = 512;

impl Engine {
    /// Decides the commands that people give.
    pub(super) fn decide_people(
        &self,
        now: Timestamp,
        run: &RunRecord,
        command: &Command,
    ) -> Result<Decision, Refusal> {
        let kinds = match command {
            Command::Retry { task, actor, reason } => {
                self.can_be_retried(task)?;
                let (task, actor, reason) = (task.clone(), words(actor), words(reason));
                vec![EventKind::Retried { task, actor, reason }]
            }
            Command::Resolve { task, how, actor, reason } => {
                let record = self.idle(task, "its stage must end first")?;
                if matches!(record.phase, Phase::Done(_)) {
                    return Err(wrong(record, "it needs no resolving"));
                }
                let (task, actor, reason) = (task.clone(), words(actor), words(reason));
                vec![EventKind::Resolved { task, how: *how, actor, reason }]
            }
            Command::Cancel { task, actor, reason } => {
                let record = self.idle(task, "its stage must end first")?;
                if matches!(record.phase, Phase::Done(_) | Phase::Cancelled) {
                    return Err(wrong(record, "there is nothing left to cancel"));
                }
                let (task, actor, reason) = (task.clone(), words(actor), words(reason));
                vec![EventKind::Cancelled { task, actor, reason }]
            }
            Command::Pause { actor, reason } => match run.state {
                RunState::Active => {
                    vec![EventKind::Paused { actor: words(actor), reason: words(reason) }]
                }
                RunState::Paused { .. } => vec![],
                RunState::Draining { .. }
                | RunState::Parked { .. }
                | RunState::Completed
                | RunState::Failed => return Err(state(run, "only an active run can be paused")),
            },
            Command::Drain { reason } => match run.state {
                RunState::Active | RunState::Paused { .. } => {
                    vec![EventKind::Draining { reason: *reason }]
                }
                RunState::Draining { .. } | RunState::Parked { .. } => vec![],
                RunState::Completed | RunState::Failed => {
                    return Err(state(run, "there is nothing left to drain"));
                }
            },
            Command::Resume { actor } => match run.state {
                RunState::Paused { .. } | RunState::Draining { .. } | RunState::Parked { .. } => {
                    vec![EventKind::Resumed { actor: words(actor) }]
                }
                RunState::Active | RunState::Completed | RunState::Failed => vec![],
            },
            Command::CreateRun { .. }
            | Command::AddPlan { .. }
            | Command::LimitPool { .. }
            | Command::SetBudget { .. }
            | Command::OpenDriver { .. }
            | Command::CloseDriver { .. }
            | Command::Claim { .. }
            | Command::Report(_)
            | Command::IntendMerge { .. }
            | Command::Stopped { .. }
            | Command::Tick
            | Command::Settle => vec![],
        };
        Ok(Decision::of(now, kinds))
    }

    fn can_be_retried(&self, task: &TaskId) -> Result<(), Refusal> {
        let record = self.record(task).ok_or_else(|| Refusal::UnknownTask(task.clone()))?;
        match &record.phase {
            Phase::Escalated(_) | Phase::Cancelled => Ok(()),
            Phase::Done(_) => Err(wrong(record, "what is done is not tried again")),
            Phase::Open | Phase::Deferred { .. } | Phase::Leased(_) | Phase::Stopping { .. } => {
                Err(wrong(record, "it is tried as soon as it can be"))
            }
        }
    }

    /// The task, if no lease of it lives and no merge of it is in doubt.
    fn idle(&self, task: &TaskId, remedy: &'static str) -> Result<&TaskRecord, Refusal> {
        let record = self.record(task).ok_or_else(|| Refusal::UnknownTask(task.clone()))?;
        if lease(&record.phase).is_some() {
            Err(wrong(record, remedy))
        } else if record.intent.is_some() {
            Err(Refusal::MergeInDoubt(task.clone()))
        } else {
            Ok(record)
        }
    }
}

fn words(text: &str) -> String {
    in_one_line(text, WORDS_BYTES_MAX)
}

fn wrong(record: &TaskRecord, remedy: &'static str) -> Refusal {
    Refusal::WrongPhase { task: record.id.clone(), phase: record.phase.as_str(), remedy }
}

fn state(run: &RunRecord, remedy: &'static str) -> Refusal {
    Refusal::WrongState { state: run.state.as_str(), remedy }
}
