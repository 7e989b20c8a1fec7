//! The port that merges: fence, proposal, and one transaction that moves the branch.

use async_trait::async_trait;
use orchestrator_core::port::{Applied, Integrator, PortError, Proposal};
use orchestrator_core::{Candidate, ChangeId, FencingToken, MergeIntent, RunId, TaskId, TaskSpec};

use crate::git::oid::Oid;
use crate::merge::queue::Fate;
use crate::run::GitRun;

#[async_trait]
impl Integrator for GitRun {
    async fn fence(
        &self,
        run: &RunId,
        task: &TaskId,
        token: FencingToken,
    ) -> Result<(), PortError> {
        self.0.config.check_run(run)?;
        self.0.merger.queue.withdraw_before(&task.slug(), token);
        Ok(self.0.merger.fences.raise(task, token).await?)
    }

    async fn propose(
        &self,
        run: &RunId,
        task: &TaskSpec,
        token: FencingToken,
        candidate: &Candidate,
    ) -> Result<Proposal, PortError> {
        self.0.config.check_run(run)?;
        Ok(self.0.merger.propose(task, token, candidate).await?)
    }

    async fn turn(
        &self,
        run: &RunId,
        _: &TaskId,
        _: FencingToken,
        intent: &MergeIntent,
    ) -> Result<bool, PortError> {
        self.0.config.check_run(run)?;
        Ok(self.0.merger.queue.decided(&Oid::of(&intent.onto)?).await == Fate::Merged)
    }

    fn withdraw(&self, _: &RunId, _: &TaskId, token: FencingToken) {
        self.0.merger.queue.withdraw(token);
    }

    async fn apply(
        &self,
        run: &RunId,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<Applied, PortError> {
        self.0.config.check_run(run)?;
        Ok(self.0.merger.apply(task, token, intent).await?)
    }

    async fn is_merged(&self, change: &ChangeId) -> Result<bool, PortError> {
        Ok(self.0.merger.is_merged(&Oid::of(change)?).await?)
    }

    async fn greatest_fence(&self, run: &RunId) -> Result<FencingToken, PortError> {
        self.0.config.check_run(run)?;
        Ok(self.0.merger.fences.greatest().await?)
    }
}
