//! One stage, from its grant to its report. Runs outside the loop, beside other stages.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::message::ToLoop;
use super::{Ports, view};
use crate::command::{Grant, StageReport};
use crate::id::{ChangeId, RunId};
use crate::mask::Mask;
use crate::money::Cost;
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Candidate, Interruption, Outcome, Restart, StageEnd};
use crate::pipeline::{Pipeline, StageKind, StageSpec};
use crate::port::{
    Activity, ActivityKind, ActivitySink, OpenWorkspace, PortError, Sealed, StageContext, Start,
    Workspace,
};
use crate::task::{TaskSpec, VerifyCommand};
use crate::verdict::Verdict;

/// A stage to carry out, with all that it needs.
pub(super) struct Stage {
    pub(super) ports: Ports,
    pub(super) run: RunId,
    pub(super) task: Arc<TaskSpec>,
    pub(super) pipeline: Pipeline,
    pub(super) spec: StageSpec,
    pub(super) grant: Grant,
    /// The folder of its logs.
    pub(super) dir: PathBuf,
    pub(super) cancel: CancellationToken,
    pub(super) to_loop: ToLoop,
    /// What must not be stored or shown.
    pub(super) mask: Mask,
    /// Ends when the workspace that the task had before is removed.
    pub(super) released: Option<oneshot::Receiver<()>>,
}

/// What a stage came to.
pub(super) struct Ended {
    pub(super) end: StageEnd,
    pub(super) candidate: Option<Candidate>,
    pub(super) merged: Option<ChangeId>,
    pub(super) kept: Option<String>,
}

impl Ended {
    pub(super) const fn of(end: StageEnd) -> Self {
        Self { end, candidate: None, merged: None, kept: None }
    }
}

impl Stage {
    /// Carries the stage out and says how it ended.
    pub(super) async fn carry_out(mut self) -> StageReport {
        if let Some(released) = self.released.take() {
            // Its sender only ever goes away.
            drop(released.await);
        }
        let ended = match self.begin().await {
            Ok(Some(ended)) => ended,
            Ok(None) => self.by_kind().await.unwrap_or_else(|err| self.failed(&err)),
            Err(err) => self.failed(&err),
        };
        self.report(ended)
    }

    /// A report that the stage's part in this process broke off.
    pub(super) fn broken_off(run: RunId, grant: &Grant, reason: Interruption) -> StageReport {
        let end = StageEnd {
            cost: Cost::AtLeast(crate::money::Usd::ZERO),
            ..StageEnd::interrupted(reason)
        };
        report(run, grant, Ended::of(end))
    }

    fn report(self, mut ended: Ended) -> StageReport {
        match &mut ended.end.outcome {
            Outcome::Rejected { feedback: text, .. }
            | Outcome::Question { text }
            | Outcome::Fatal { error: text } => self.mask.apply(text),
            Outcome::Passed | Outcome::Interrupted { .. } | Outcome::Suspended { .. } => {}
        }
        report(self.run, &self.grant, ended)
    }

    /// Fences off every earlier lease of the task, and finds out what became of a merge that one of
    /// them announced.
    async fn begin(&self) -> Result<Option<Ended>, PortError> {
        if !self.pipeline.has(StageKind::Integrate) {
            return Ok(None);
        }
        let integrator = &self.ports.integrator;
        integrator.fence(&self.run, &self.task.id, self.grant.token).await?;
        if let Some(intent) = &self.grant.intent
            && !is_on(Mutant::MergedIsNotAsked)
            && integrator.is_merged(&intent.merged).await?
        {
            let merged = Some(intent.merged.clone());
            return Ok(Some(Ended { merged, ..Ended::of(StageEnd::passed()) }));
        }
        Ok(None)
    }

    async fn by_kind(&self) -> Result<Ended, PortError> {
        match self.spec.kind {
            StageKind::Run => self.work().await,
            StageKind::Verify => {
                let (candidate, command) = (self.candidate()?, self.spec.command.as_ref());
                Ok(Ended::of(self.verify(candidate, command, &self.cancel).await?))
            }
            StageKind::Review => self.review().await,
            StageKind::Gate => self.gate().await,
            StageKind::Integrate => self.integrate().await,
        }
    }

    async fn work(&self) -> Result<Ended, PortError> {
        let fresh = match (&self.grant.candidate, self.grant.restart) {
            (Some(candidate), Restart::OnCandidate) => Start::On(candidate.clone()),
            (Some(_), Restart::OnTarget) | (None, _) => Start::OnTarget,
        };
        let start = match (self.grant.workspace, &self.grant.session) {
            (Some(token), Some(_)) => Start::AsLeftBy { token, otherwise: Box::new(fresh) },
            (Some(_), None) | (None, _) => fresh,
        };
        let ask = self.ask(start);
        let workspace = self.ports.workspaces.open(&ask).await?;
        let cx = self.context(workspace.clone()).await?;
        let end = self.ports.runner.run(&cx).await;
        let ask = OpenWorkspace { cost: end.cost, ..ask };
        let mut ended = Ended::of(end);
        if let Err(err) = self.put_away(&ask, &workspace, &mut ended).await {
            // What it cost is known, and its conversation can go on.
            ended.end.outcome = self.failed(&err).end.outcome;
        }
        Ok(ended)
    }

    /// Keeps what the runner left.
    async fn put_away(
        &self,
        ask: &OpenWorkspace,
        workspace: &Workspace,
        ended: &mut Ended,
    ) -> Result<(), PortError> {
        match &ended.end.outcome {
            Outcome::Passed => self.seal(ask, workspace, ended).await?,
            Outcome::Question { .. } | Outcome::Fatal { .. } => {
                ended.kept = self.ports.workspaces.keep(ask, workspace).await?;
            }
            // What is left in the workspace is gone on with, or kept when the next attempt opens it.
            Outcome::Rejected { .. } | Outcome::Interrupted { .. } | Outcome::Suspended { .. } => {}
        }
        Ok(())
    }

    async fn seal(
        &self,
        ask: &OpenWorkspace,
        workspace: &Workspace,
        ended: &mut Ended,
    ) -> Result<(), PortError> {
        match self.ports.workspaces.seal(ask, workspace).await? {
            Sealed::Candidate(candidate) => ended.candidate = Some(candidate),
            Sealed::Refused { feedback } => {
                let restart = self.grant.restart;
                ended.end.outcome = Outcome::Rejected { feedback, restart };
            }
        }
        Ok(())
    }

    /// Asks the gate's command whether the change may go on; without one, a person.
    async fn gate(&self) -> Result<Ended, PortError> {
        let candidate = self.candidate()?;
        let Some(command) = &self.spec.command else {
            let text = format!(
                "Stage `{}` waits for a person. Look at change {}, then approve it, so that the \
                 task goes on; retry it, so that it begins anew; or cancel it.",
                self.spec.name, candidate.change
            );
            return Ok(Ended::of(StageEnd::free(Outcome::Question { text })));
        };
        Ok(Ended::of(self.verify(candidate, Some(command), &self.cancel).await?))
    }

    /// Judges a change by this command, or else the task's, in a workspace that holds it and nothing
    /// else.
    pub(super) async fn verify(
        &self,
        candidate: &Candidate,
        command: Option<&VerifyCommand>,
        cancel: &CancellationToken,
    ) -> Result<StageEnd, PortError> {
        let workspace = self.ports.workspaces.open(&self.ask(Start::On(candidate.clone()))).await?;
        let cx = self.context(workspace.clone()).await?;
        let mut cx = StageContext { cancel: cancel.clone(), ..cx };
        if let Some(command) = command {
            Arc::make_mut(&mut cx.task).verify = Some(command.clone());
        }
        let end = self.ports.verifier.verify(&cx).await;
        if end.outcome != Outcome::Passed {
            return Ok(end);
        }
        let changed = self.ports.workspaces.differing(&workspace, &candidate.change).await?;
        if changed.is_empty() {
            return Ok(end);
        }
        Ok(StageEnd::rejected(format!(
            "The verify command passed, but it changed files that are part of the change, so it \
             judged something else than what would be merged: {}",
            changed.join(", ")
        )))
    }

    async fn review(&self) -> Result<Ended, PortError> {
        let candidate = self.candidate()?;
        let workspace = self.ports.workspaces.open(&self.ask(Start::On(candidate.clone()))).await?;
        let change = self.ports.workspaces.change(candidate).await?;
        let cx = self.context(workspace).await?;
        let review = self.ports.reviewer.review(&cx, &change).await;
        let outcome = match review.judgement {
            Ok(judgement) => match judgement.verdict {
                Verdict::Approve => Outcome::Passed,
                Verdict::Reject => Outcome::Rejected {
                    feedback: judgement.feedback(),
                    restart: Restart::OnCandidate,
                },
            },
            Err(outcome) => outcome,
        };
        Ok(Ended::of(StageEnd { outcome, cost: review.cost, session: None }))
    }

    /// The change that the stage judges.
    pub(super) fn candidate(&self) -> Result<&Candidate, PortError> {
        self.grant
            .candidate
            .as_ref()
            .ok_or_else(|| PortError::Fatal("there is no change to judge".into()))
    }

    pub(super) fn ask(&self, start: Start) -> OpenWorkspace {
        OpenWorkspace {
            run: self.run.clone(),
            task: Arc::clone(&self.task),
            attempt: self.grant.attempt,
            token: self.grant.token,
            start,
            cost: Cost::NONE,
        }
    }

    async fn context(&self, workspace: Workspace) -> Result<StageContext, PortError> {
        let (observer, task, token) =
            (Arc::clone(&self.ports.observer), self.task.id.clone(), self.grant.token);
        let mask = self.mask.clone();
        Ok(StageContext {
            run: self.run.clone(),
            task: Arc::clone(&self.task),
            stage: self.spec.clone(),
            attempt: self.grant.attempt,
            token,
            // A conversation goes on only where its files are as it left them.
            session: self.grant.session.clone().filter(|_| workspace.as_left),
            workspace,
            dir: self.dir.clone(),
            feedback: self.feedback().await?,
            cancel: self.cancel.clone(),
            activity: ActivitySink::new(move |mut kind| {
                if let ActivityKind::Said(words) = &mut kind {
                    mask.apply(words);
                }
                let activity = Activity { task: task.clone(), token, kind };
                view::show_activity(&*observer, &activity);
            }),
        })
    }

    async fn feedback(&self) -> Result<Vec<String>, PortError> {
        let mut texts = Vec::with_capacity(self.grant.feedback.len());
        for hash in &self.grant.feedback {
            let blob = self.ports.store.blob(&self.run, hash).await;
            let blob = blob.map_err(|err| PortError::Transient(Box::new(err)))?;
            let bytes = blob.unwrap_or_else(|| b"(the text of this feedback is lost)".to_vec());
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(texts)
    }

    /// How a stage ends that an adapter kept from asking for anything that costs.
    fn failed(&self, err: &PortError) -> Ended {
        let text = self.mask.text(&err.chain()).into_owned();
        warn!(task = %self.task.id, stage = %self.spec.name, error = %text, "an adapter failed");
        let outcome = match err {
            PortError::Transient(_) => {
                let reason = if self.cancel.is_cancelled() {
                    Interruption::Shutdown
                } else {
                    Interruption::Crashed
                };
                Outcome::Interrupted { reason, retry_at: None }
            }
            PortError::Fatal(_) => Outcome::Fatal { error: text },
        };
        Ended::of(StageEnd::free(outcome))
    }
}

fn report(run: RunId, grant: &Grant, ended: Ended) -> StageReport {
    StageReport {
        cost: ended.end.cost,
        session: ended.end.session,
        candidate: ended.candidate,
        merged: ended.merged,
        kept: ended.kept,
        ..grant.report(run, ended.end.outcome)
    }
}
