//! What people ask of a run.

use std::collections::BTreeSet;

use super::Engine;
use super::draft::Draft;
use super::kind::Kind;
use super::table::View;
use crate::command::{Command, Refusal};
use crate::event::{EventKind, Resolution};
use crate::id::{TaskId, TaskNo};
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Interruption, in_one_line};
use crate::pipeline::{StageKind, StageSpec};
use crate::record::{RunRecord, RunState};

/// Longest name or reason that a person may give, in bytes; what is over it is left out.
const WORDS_BYTES_MAX: usize = 512;
/// Why a task cannot be approved.
const NO_JUDGE: &str =
    "only a stage that judges can be approved; retry the task, or resolve it as done by hand";

impl Engine {
    /// Decides the commands that people give.
    pub(super) fn decide_people(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        command: &Command,
    ) -> Result<(), Refusal> {
        let kind = match command {
            Command::Retry { task, dependents, actor, reason } => {
                return self.retry(draft, task, *dependents, (actor, reason));
            }
            Command::Resolve { task, how, actor, reason } => {
                self.resolving(task, *how, words(actor), words(reason))?
            }
            Command::Cancel { task, actor, reason } => {
                let kind = self.cancelling(task, words(actor), words(reason))?;
                kind.into_iter().for_each(|kind| draft.push(kind));
                return Ok(());
            }
            Command::Edit { spec, actor, reason } => {
                return self.decide_edit(draft, spec, words(actor), words(reason));
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
            | Command::BoundPool { .. }
            | Command::ClosePool { .. }
            | Command::OpenPool { .. }
            | Command::SetPilot { .. }
            | Command::SetBudget { .. }
            | Command::OpenDriver { .. }
            | Command::CloseDriver { .. }
            | Command::Claim { .. }
            | Command::ClaimTask { .. }
            | Command::Report(_)
            | Command::IntendMerge { .. }
            | Command::Dispatch { .. }
            | Command::Supersede { .. }
            | Command::Stopped { .. }
            | Command::Tick
            | Command::Prune
            | Command::Settle => return Ok(()),
        };
        draft.push(kind);
        Ok(())
    }

    /// Whether the task waits at a stage that only judges, with a change to be judged.
    fn can_be_approved(&self, number: TaskNo, task: &View<'_>) -> bool {
        let stage = self.profile(number.0).pipeline.stage(task.hot().stage());
        let judges = |stage: &StageSpec| match stage.kind {
            StageKind::Verify | StageKind::Review | StageKind::Gate => true,
            StageKind::Run | StageKind::Integrate => false,
        };
        stage.is_some_and(judges) && task.hot().kind() != Kind::Cancelled
    }

    fn retry(
        &self,
        draft: &mut Draft,
        task: &TaskId,
        dependents: bool,
        (actor, reason): (&str, &str),
    ) -> Result<(), Refusal> {
        let task = self.can_be_retried(task)?;
        let others = if dependents { self.given_up_behind(task.0) } else { Vec::new() };
        for task in [task.0].into_iter().chain(others).map(TaskNo) {
            let (actor, reason) = (words(actor), words(reason));
            draft.push(EventKind::Retried { task, actor, reason });
        }
        Ok(())
    }

    /// The event of settling a task that nobody works at.
    fn resolving(
        &self,
        id: &TaskId,
        how: Resolution,
        actor: String,
        reason: String,
    ) -> Result<EventKind<TaskNo>, Refusal> {
        let (task, record) = self.idle(id, "its stage must end first")?;
        if record.hot().kind() == Kind::Done {
            return Err(wrong(id, &record, "it needs no resolving"));
        }
        if how == Resolution::Approve && !self.can_be_approved(task, &record) {
            return Err(wrong(id, &record, NO_JUDGE));
        }
        Ok(EventKind::Resolved { task, how, actor, reason })
    }

    /// What it takes to give a task up; nothing, when that is under way.
    fn cancelling(
        &self,
        id: &TaskId,
        actor: String,
        reason: String,
    ) -> Result<Option<EventKind<TaskNo>>, Refusal> {
        let (task, record) = self.settled_merge(id)?;
        Ok(match (record.hot().kind(), record.hold(), record.stopping()) {
            (Kind::Done | Kind::Cancelled, ..) => {
                return Err(wrong(id, &record, "there is nothing left to cancel"));
            }
            (_, _, Some((_, Interruption::Cancelled))) => None,
            (_, Some(hold), _) => {
                Some(EventKind::Cancelling { task, token: hold.token, actor, reason })
            }
            (_, None, _) => Some(EventKind::Cancelled { task, actor, reason }),
        })
    }

    fn can_be_retried(&self, id: &TaskId) -> Result<TaskNo, Refusal> {
        let (number, task) = self.known(id)?;
        match task.hot().kind() {
            Kind::Cancelled if is_on(Mutant::CancelledIsNeverRetried) => {
                Err(wrong(id, &task, "it was cancelled"))
            }
            Kind::Escalated | Kind::Cancelled => Ok(number),
            Kind::Done => Err(wrong(id, &task, "what is done is not tried again")),
            Kind::Open | Kind::Deferred | Kind::Leased | Kind::Stopping => {
                Err(wrong(id, &task, "it is tried as soon as it can be"))
            }
        }
    }

    /// Escalated and cancelled tasks that depend on this one, directly or not.
    fn given_up_behind(&self, task: u32) -> Vec<u32> {
        let is_given_up = |other: &u32| self.table.hot(*other).kind().is_dead_end();
        self.behind(task).into_iter().filter(is_given_up).collect()
    }

    /// The tasks that depend on this one, directly or not.
    fn behind(&self, task: u32) -> BTreeSet<u32> {
        let mut behind = BTreeSet::new();
        let mut open = vec![task];
        while let Some(from) = open.pop() {
            open.extend(self.specs.dependents(from).filter(|to| behind.insert(*to)));
        }
        behind
    }

    /// The task, if no lease of it lives and no merge of it is in doubt.
    fn idle(&self, id: &TaskId, remedy: &'static str) -> Result<(TaskNo, View<'_>), Refusal> {
        let (number, task) = self.known(id)?;
        if task.hold().is_some() {
            return Err(wrong(id, &task, remedy));
        }
        self.settled_merge(id).map(|_| (number, task))
    }

    /// The task, if no merge of it is in doubt.
    fn settled_merge(&self, id: &TaskId) -> Result<(TaskNo, View<'_>), Refusal> {
        let (number, task) = self.known(id)?;
        if task.detail().intent.is_some() {
            return Err(Refusal::MergeInDoubt(id.clone()));
        }
        Ok((number, task))
    }

    /// The task, if its plan is still there.
    pub(super) fn known(&self, id: &TaskId) -> Result<(TaskNo, View<'_>), Refusal> {
        let number = self.number(id).ok_or_else(|| Refusal::UnknownTask(id.clone()))?;
        if self.specs.is_pruned(number.0) && !is_on(Mutant::PrunedIsTakenUp) {
            return Err(Refusal::Pruned(id.clone()));
        }
        Ok((number, self.table.view(number.0)))
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
