//! The port that gives each task a worktree of its own.

use async_trait::async_trait;
use orchestrator_core::port::{
    Change, OpenWorkspace, PortError, Room, Sealed, Workspace, Workspaces,
};
use orchestrator_core::{Candidate, ChangeId, RunId, TaskId};

use crate::run::GitRun;

#[async_trait]
impl Workspaces for GitRun {
    async fn open(&self, ask: &OpenWorkspace) -> Result<Workspace, PortError> {
        self.0.config.check_run(&ask.run)?;
        Ok(self.0.spaces.open_workspace(ask).await?)
    }

    async fn seal(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Sealed, PortError> {
        self.0.config.check_run(&ask.run)?;
        Ok(self.0.sealer.seal(ask, at).await?)
    }

    async fn differing(&self, at: &Workspace, from: &ChangeId) -> Result<Vec<String>, PortError> {
        Ok(self.0.spaces.differing_from(at, from).await?)
    }

    async fn change(&self, candidate: &Candidate) -> Result<Change, PortError> {
        let bytes_max = self.0.config.diff_bytes_max;
        Ok(self.0.apart.change_of(candidate, bytes_max).await?)
    }

    async fn keep(&self, ask: &OpenWorkspace, _: &Workspace) -> Result<Option<String>, PortError> {
        self.0.config.check_run(&ask.run)?;
        Ok(self.0.spaces.keep_work(ask).await?)
    }

    async fn release(&self, run: &RunId, task: &TaskId) -> Result<(), PortError> {
        self.0.config.check_run(run)?;
        Ok(self.0.spaces.release_place(&task.slug()).await?)
    }

    async fn retain(&self, run: &RunId, live: &[TaskId]) -> Result<(), PortError> {
        self.0.config.check_run(run)?;
        Ok(self.0.spaces.retain_places(live).await?)
    }

    async fn untouched(&self, run: &RunId) -> Result<Workspace, PortError> {
        self.0.config.check_run(run)?;
        Ok(self.0.spaces.open_untouched().await?)
    }

    async fn room(&self, run: &RunId) -> Result<Room, PortError> {
        self.0.config.check_run(run)?;
        Ok(self.0.spaces.disks.room()?)
    }
}
