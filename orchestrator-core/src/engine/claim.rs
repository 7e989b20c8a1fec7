//! What a claim is granted.

use super::Engine;
use super::choice::Next;
use super::draft::Granted;
use super::kind::Kind;
use crate::command::{Answer, Command, Grant, Refusal};
use crate::id::{CommandId, OwnerId, TaskId, TaskNo};
use crate::mutant::{Mutant, is_on};
use crate::outcome::Restart;
use crate::record::RunRecord;
use crate::time::Timestamp;

impl Engine {
    /// What a claim is granted.
    #[inline(always)]
    pub(super) fn decide_claim(
        &self,
        now: Timestamp,
        run: &RunRecord,
        owner: &OwnerId,
    ) -> Result<Option<Granted>, Box<Refusal>> {
        let owner = self.claiming(run, owner)?;
        let Some(next) = self.next_grant(now, run) else { return Ok(None) };
        self.grant_to(now, run, owner, next).map(Some)
    }

    /// What a claim of this task is granted.
    pub(super) fn decide_claim_of(
        &self,
        now: Timestamp,
        run: &RunRecord,
        owner: &OwnerId,
        task: TaskNo,
    ) -> Result<Option<Granted>, Box<Refusal>> {
        let owner = self.claiming(run, owner)?;
        let Some(next) = self.grant_of(now, run, task.0) else { return Ok(None) };
        self.grant_to(now, run, owner, next).map(Some)
    }

    /// The number of the owner that claims, if it is the driver.
    #[inline(always)]
    fn claiming(&self, run: &RunRecord, owner: &OwnerId) -> Result<u32, Box<Refusal>> {
        let driver = self.index.driver.filter(|_| run.driver.as_ref() == Some(owner));
        let number = if is_on(Mutant::AnyoneClaims) { self.owners.find(owner) } else { driver };
        number.ok_or_else(|| Box::new(Refusal::NotDriver(owner.clone())))
    }

    /// The grant of the stage of the task whose turn it is, and which fits.
    #[inline(always)]
    fn grant_to(
        &self,
        now: Timestamp,
        run: &RunRecord,
        owner: u32,
        Next { task: number, class }: Next,
    ) -> Result<Granted, Box<Refusal>> {
        let hot = self.table.hot(number);
        let last = run.last_token;
        let mut token = last.next().ok_or_else(|| Box::new(Refusal::TokensUsedUp { last }))?;
        if is_on(Mutant::TokenUsedAgain) && hot.is_under_way() {
            token = self.table.view(number).last_token();
        }
        let (stage, attempt) = (hot.stage(), hot.attempt_of_grant());
        let profile = self.specs.profile(hot.profile());
        let hard_stop = Timestamp(now.0.saturating_add(profile.span(stage)));
        // There is one, or the stage would not have been admitted.
        let reserved = self.reservation(run, &self.index.classes[class as usize], number);
        let reserved = reserved.unwrap_or_default();
        Ok(Granted { task: TaskNo(number), stage, attempt, token, owner, hard_stop, reserved })
    }

    /// What claims would take now, one after the other, until nothing more can run or there are so
    /// many. Looks at every task.
    #[must_use]
    pub fn dispatchable(&self, now: Timestamp, at_most: usize) -> Vec<TaskId> {
        let mut ahead = self.clone();
        ahead.undo();
        let Some(owner) = ahead.run.as_ref().and_then(|run| run.driver.clone()) else {
            return Vec::new();
        };
        let Ok(id) = CommandId::parse("dispatchable") else { return Vec::new() };
        let claim = Command::Claim { owner };
        let mut tasks = Vec::new();
        while tasks.len() < at_most
            && let Ok(Answer::Granted { task, .. }) = ahead.submit(now, &id, &claim)
        {
            tasks.extend(ahead.name(task).cloned());
        }
        tasks
    }

    /// What the holder of a live lease needs to know; `None` when the task has none.
    #[must_use]
    pub fn grant(&self, task: TaskNo) -> Option<Grant> {
        if task.0 as usize >= self.table.len() || self.table.hot(task.0).kind() != Kind::Leased {
            return None;
        }
        let view = self.table.view(task.0);
        let (hold, detail, hot) = (*view.hold()?, view.detail(), view.hot());
        let restart = if detail.candidate.is_some() { hot.restart() } else { Restart::OnTarget };
        Some(Grant {
            number: task,
            task: self.specs.id(task.0).clone(),
            stage: hot.stage(),
            attempt: hot.attempt(),
            dispatch: hot.dispatches(),
            token: hold.token,
            cap: hold.reserved,
            feedback: detail.feedback.clone(),
            restart,
            workspace: view.workspace(),
            session: detail.session.clone(),
            candidate: detail.candidate.clone(),
            intent: detail.intent.clone().filter(|_| !is_on(Mutant::IntentForgotten)),
        })
    }
}
