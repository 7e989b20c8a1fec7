//! The stage that merges: what is merged is what was tested, and it is merged once.

use tokio::sync::oneshot;

use super::stage::{Ended, Stage};
use super::turns::Message;
use crate::command::Answer;
use crate::outcome::{Candidate, Interruption, MergeIntent, Outcome, Restart, StageEnd};
use crate::port::{Applied, PortError, Proposal};

/// How often a merge is proposed anew because the target moved in between.
const PROPOSALS_MAX: u32 = 10;

impl Stage {
    /// Merges the candidate: builds the result, verifies it where it is not what was judged,
    /// announces it, and moves the target.
    pub(super) async fn integrate(&self) -> Result<Ended, PortError> {
        let candidate = self.candidate()?;
        for _ in 0..PROPOSALS_MAX {
            if self.cancel.is_cancelled() {
                return Ok(Ended::of(StageEnd::interrupted(Interruption::Shutdown)));
            }
            let integrator = &self.ports.integrator;
            let proposal =
                integrator.propose(&self.run, &self.task, self.grant.token, candidate).await?;
            let (intent, is_judged) = match proposal {
                Proposal::Clean { intent, is_judged } => (intent, is_judged),
                Proposal::AlreadyThere => return Ok(Ended::of(StageEnd::passed())),
                Proposal::Conflict { feedback } => {
                    let outcome = Outcome::Rejected { feedback, restart: Restart::OnTarget };
                    return Ok(Ended::of(StageEnd::free(outcome)));
                }
            };
            if !is_judged && let Some(ended) = self.judge_merged(&intent).await? {
                return Ok(ended);
            }
            if !self.announce(&intent).await {
                return Ok(Ended::of(StageEnd::interrupted(Interruption::Expired)));
            }
            let (run, task, token) = (&self.run, &self.task.id, self.grant.token);
            match integrator.apply(run, task, token, &intent).await? {
                Applied::Merged => {
                    let merged = Some(intent.merged);
                    return Ok(Ended { merged, ..Ended::of(StageEnd::passed()) });
                }
                Applied::Moved => {}
                Applied::Fenced => {
                    return Ok(Ended::of(StageEnd::interrupted(Interruption::Expired)));
                }
            }
        }
        Ok(Ended::of(StageEnd::interrupted(Interruption::Crashed)))
    }

    /// Verifies the merged tree, since the target moved after the candidate was judged; how the
    /// stage ends when it does not pass.
    async fn judge_merged(&self, intent: &MergeIntent) -> Result<Option<Ended>, PortError> {
        if self.task.verify.is_none() {
            return Ok(None);
        }
        let (change, base) = (intent.merged.clone(), intent.onto.clone());
        let merged = Candidate { change, base };
        let mut end = self.verify(&merged).await?;
        match &mut end.outcome {
            Outcome::Passed => Ok(None),
            Outcome::Rejected { feedback, restart } => {
                *feedback = format!(
                    "The change passed by itself, but not together with what others merged \
                     meanwhile. The workspace now holds both.\n{feedback}"
                );
                *restart = Restart::OnCandidate;
                Ok(Some(Ended { candidate: Some(merged), ..Ended::of(end) }))
            }
            Outcome::Question { .. } | Outcome::Interrupted { .. } | Outcome::Fatal { .. } => {
                Ok(Some(Ended::of(end)))
            }
        }
    }

    /// Has the intent committed; whether the lease still holds.
    async fn announce(&self, intent: &MergeIntent) -> bool {
        let (reply, committed) = oneshot::channel();
        let (task, token) = (self.grant.number, self.grant.token);
        let message = Message::Intent { task, token, intent: intent.clone(), reply };
        // A loop that is gone answers nothing, and then nothing is merged.
        self.loop_tx.send(message).is_ok() && matches!(committed.await, Ok(Answer::Done))
    }
}
