//! The stage that merges: what is merged is what was tested, and it is merged once.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::message::Message;
use super::shield::{INTEGRATOR, caught_now};
use super::stage::{Ended, Stage};
use crate::command::Answer;
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Candidate, Interruption, MergeIntent, Outcome, Restart, StageEnd};
use crate::pipeline::StageKind;
use crate::port::{Applied, PortError, Proposal};
use crate::task::VerifyCommand;

/// How often a merge is proposed anew because the target moved in between.
const PROPOSALS_MAX: u32 = 10;

/// That a proposal is given up when the stage ends, whatever way it does.
struct Proposed<'a>(&'a Stage);

impl Drop for Proposed<'_> {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// What judging a proposal came to.
enum Judged {
    Good,
    /// What it was built on is gone.
    Lapsed,
    /// The stage ends like this, if what it was built on is merged.
    Bad(Ended),
}

impl Stage {
    /// Merges the candidate: builds the result, verifies it where it is not what was judged,
    /// announces it, and moves the target.
    pub(super) async fn integrate(&self) -> Result<Ended, PortError> {
        let _proposed = Proposed(self);
        for _ in 0..PROPOSALS_MAX {
            if let Some(ended) = self.try_to_merge().await? {
                return Ok(ended);
            }
        }
        Ok(Ended::of(StageEnd::interrupted(Interruption::Crashed)))
    }

    /// Proposes once; `None` when that has to be done again.
    async fn try_to_merge(&self) -> Result<Option<Ended>, PortError> {
        let shut_down = || Ok(Some(Ended::of(StageEnd::interrupted(Interruption::Shutdown))));
        let integrator = &self.ports.integrator;
        let (run, task, token) = (&self.run, &self.task.id, self.grant.token);
        let proposing = integrator.propose(run, &self.task, token, self.candidate()?);
        let Some(proposal) = self.cancel.run_until_cancelled(proposing).await else {
            return shut_down();
        };
        let (intent, is_judged) = match proposal? {
            Proposal::Clean { intent, is_judged } => (intent, is_judged),
            Proposal::AlreadyThere => return Ok(Some(Ended::of(StageEnd::passed()))),
            Proposal::Conflict { feedback } => {
                let outcome = Outcome::Rejected { feedback, restart: Restart::OnTarget };
                return Ok(Some(Ended::of(StageEnd::free(outcome))));
            }
        };
        let judged =
            if is_judged { Judged::Good } else { self.judge_while_it_stands(&intent).await? };
        if let Judged::Bad(ended) = judged {
            return self.to_blame(&intent, ended).await;
        }
        let turn = integrator.turn(run, task, token, &intent);
        let Some(turn) = self.cancel.run_until_cancelled(turn).await else { return shut_down() };
        if matches!(judged, Judged::Lapsed) || !turn? {
            return Ok(None);
        }
        if !self.announce(&intent).await {
            return Ok(Some(Ended::of(StageEnd::interrupted(Interruption::Expired))));
        }
        Ok(match integrator.apply(run, task, token, &intent).await? {
            Applied::Merged => {
                let merged = Some(intent.merged);
                Some(Ended { merged, ..Ended::of(StageEnd::passed()) })
            }
            Applied::Moved => None,
            Applied::Fenced => Some(Ended::of(StageEnd::interrupted(Interruption::Expired))),
        })
    }

    /// Judges a proposal, and leaves off as soon as what it was built on is gone.
    async fn judge_while_it_stands(&self, intent: &MergeIntent) -> Result<Judged, PortError> {
        let leave_off = self.cancel.child_token();
        let judging = self.judge_merged(intent, &leave_off);
        tokio::pin!(judging);
        let (run, task, token) = (&self.run, &self.task.id, self.grant.token);
        let turn = tokio::select! {
            biased;
            judged = &mut judging => return Ok(judged?.map_or(Judged::Good, Judged::Bad)),
            turn = self.ports.integrator.turn(run, task, token, intent) => turn?,
        };
        if turn {
            return Ok(judging.await?.map_or(Judged::Good, Judged::Bad));
        }
        leave_off.cancel();
        // What it says now is of no use, but its programs have to be gone.
        judging.await.map(|_| Judged::Lapsed)
    }

    /// How the stage ends whose proposal is bad; `None` when what it was built on was bad instead.
    async fn to_blame(
        &self,
        intent: &MergeIntent,
        ended: Ended,
    ) -> Result<Option<Ended>, PortError> {
        if !matches!(ended.end.outcome, Outcome::Rejected { .. }) {
            return Ok(Some(ended));
        }
        // Those behind it need not wait to be built anew without it.
        self.withdraw();
        let (run, task, token) = (&self.run, &self.task.id, self.grant.token);
        let turn = self.ports.integrator.turn(run, task, token, intent);
        let Some(turn) = self.cancel.run_until_cancelled(turn).await else {
            return Ok(Some(Ended::of(StageEnd::interrupted(Interruption::Shutdown))));
        };
        Ok(turn?.then_some(ended))
    }

    fn withdraw(&self) {
        let withdraw =
            || self.ports.integrator.withdraw(&self.run, &self.task.id, self.grant.token);
        // Also on the way out of a panic, where a second one would end the process.
        caught_now(INTEGRATOR, withdraw).ok();
    }

    /// Verifies the merged tree, since the target moved after the candidate was judged; how the
    /// stage ends when it does not pass.
    async fn judge_merged(
        &self,
        intent: &MergeIntent,
        cancel: &CancellationToken,
    ) -> Result<Option<Ended>, PortError> {
        let (change, base) = (intent.merged.clone(), intent.onto.clone());
        let merged = Candidate { change, base };
        for command in self.judging() {
            let end = self.verify(&merged, Some(command), cancel).await?;
            if end.outcome != Outcome::Passed {
                return Ok(Some(spoilt(merged, end)));
            }
        }
        Ok(None)
    }

    /// The commands that judged the candidate.
    fn judging(&self) -> impl Iterator<Item = &VerifyCommand> {
        let own = self.task.verify.as_ref();
        let stages = self.pipeline.stages().iter();
        let verify = stages.filter(|stage| stage.kind == StageKind::Verify);
        let by_itself = own.filter(|_| !self.pipeline.has(StageKind::Verify));
        verify.filter_map(move |stage| stage.command.as_ref().or(own)).chain(by_itself)
    }

    /// Has the intent committed; whether the lease still holds.
    async fn announce(&self, intent: &MergeIntent) -> bool {
        if is_on(Mutant::MergesUnannounced) {
            return true;
        }
        let (reply, committed) = oneshot::channel();
        let (task, token) = (self.grant.number, self.grant.token);
        let message = Message::Intent { task, token, intent: intent.clone(), reply };
        // A loop that is gone answers nothing, and then nothing is merged.
        self.to_loop.send(message).is_ok() && matches!(committed.await, Ok(Answer::Done))
    }
}

/// How the stage ends when the merged tree, or what was asked of it, does not pass.
fn spoilt(merged: Candidate, mut end: StageEnd) -> Ended {
    match &mut end.outcome {
        Outcome::Rejected { feedback, restart } => {
            *feedback = format!(
                "The change passed by itself, but not together with what others merged \
                 meanwhile. The workspace now holds both.\n{feedback}"
            );
            *restart = Restart::OnCandidate;
            Ended { candidate: Some(merged), ..Ended::of(end) }
        }
        Outcome::Passed
        | Outcome::Question { .. }
        | Outcome::Interrupted { .. }
        | Outcome::Suspended { .. }
        | Outcome::Fatal { .. } => Ended::of(end),
    }
}
