//! What people ask of a run.

use super::Engine;
use super::draft::Draft;
use super::table::{Kind, View};
use crate::command::{Command, Refusal};
use crate::event::EventKind;
use crate::id::{TaskId, TaskNo};
use crate::outcome::in_one_line;
use crate::record::{RunRecord, RunState};

/// Longest name or reason that a person may give, in bytes; what is over it is left out.
const WORDS_BYTES_MAX: usize = 512;

impl Engine {
    /// Decides the commands that people give.
    pub(super) fn decide_people(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        command: &Command,
    ) -> Result<(), Refusal> {
        let kind = match command {
            Command::Retry { task, actor, reason } => {
                let task = self.can_be_retried(task)?;
                let (actor, reason) = (words(actor), words(reason));
                EventKind::Retried { task, actor, reason }
            }
            Command::Resolve { task: id, how, actor, reason } => {
                let (task, record) = self.idle(id, "its stage must end first")?;
                if record.hot().kind() == Kind::Done {
                    return Err(wrong(id, &record, "it needs no resolving"));
                }
                let (actor, reason) = (words(actor), words(reason));
                EventKind::Resolved { task, how: *how, actor, reason }
            }
            Command::Cancel { task: id, actor, reason } => {
                let (task, record) = self.idle(id, "its stage must end first")?;
                if matches!(record.hot().kind(), Kind::Done | Kind::Cancelled) {
                    return Err(wrong(id, &record, "there is nothing left to cancel"));
                }
                let (actor, reason) = (words(actor), words(reason));
                EventKind::Cancelled { task, actor, reason }
            }
            Command::Pause { actor, reason } => match run.state {
                RunState::Active => {
                    EventKind::Paused { actor: words(actor), reason: words(reason) }
                }
                RunState::Paused { .. } => return Ok(()),
                RunState::Draining { .. }
                | RunState::Parked { .. }
                | RunState::Completed
                | RunState::Failed => return Err(state(run, "only an active run can be paused")),
            },
            Command::Drain { reason } => match run.state {
                RunState::Active | RunState::Paused { .. } => {
                    EventKind::Draining { reason: *reason }
                }
                RunState::Draining { .. } | RunState::Parked { .. } => return Ok(()),
                RunState::Completed | RunState::Failed => {
                    return Err(state(run, "there is nothing left to drain"));
                }
            },
            Command::Resume { actor } => match run.state {
                RunState::Paused { .. } | RunState::Draining { .. } | RunState::Parked { .. } => {
                    EventKind::Resumed { actor: words(actor) }
                }
                RunState::Active | RunState::Completed | RunState::Failed => return Ok(()),
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
            | Command::Settle => return Ok(()),
        };
        draft.push(kind);
        Ok(())
    }

    fn can_be_retried(&self, id: &TaskId) -> Result<TaskNo, Refusal> {
        let number = self.number(id).ok_or_else(|| Refusal::UnknownTask(id.clone()))?;
        let task = self.table.view(number.0);
        match task.hot().kind() {
            Kind::Escalated | Kind::Cancelled => Ok(number),
            Kind::Done => Err(wrong(id, &task, "what is done is not tried again")),
            Kind::Open | Kind::Deferred | Kind::Leased | Kind::Stopping => {
                Err(wrong(id, &task, "it is tried as soon as it can be"))
            }
        }
    }

    /// The task, if no lease of it lives and no merge of it is in doubt.
    fn idle(&self, id: &TaskId, remedy: &'static str) -> Result<(TaskNo, View<'_>), Refusal> {
        let number = self.number(id).ok_or_else(|| Refusal::UnknownTask(id.clone()))?;
        let task = self.table.view(number.0);
        if task.hold().is_some() {
            Err(wrong(id, &task, remedy))
        } else if task.detail().intent.is_some() {
            Err(Refusal::MergeInDoubt(id.clone()))
        } else {
            Ok((number, task))
        }
    }
}

fn words(text: &str) -> String {
    in_one_line(text, WORDS_BYTES_MAX)
}

fn wrong(id: &TaskId, task: &View<'_>, remedy: &'static str) -> Refusal {
    Refusal::WrongPhase { task: id.clone(), phase: task.hot().kind().as_str(), remedy }
}

fn state(run: &RunRecord, remedy: &'static str) -> Refusal {
    Refusal::WrongState { state: run.state.as_str(), remedy }
}
