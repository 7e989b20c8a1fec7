//! The port that judges by exit code.

use async_trait::async_trait;

use super::{StageContext, Workspace};
use crate::outcome::StageEnd;
use crate::task::VerifyCommand;

/// Judges a candidate by the task's verify command.
#[async_trait]
pub trait Verifier: Send + Sync {
    /// Runs the task's command in the workspace: `Passed` when it exits with 0, `Rejected` with
    /// what it printed otherwise.
    async fn verify(&self, cx: &StageContext) -> StageEnd;

    /// Runs a command on a tree that no task has touched, to find out whether it can run at all.
    async fn try_on(&self, command: &VerifyCommand, workspace: &Workspace) -> Trial;
}

/// What a verify command does on a tree that no task has touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    /// It runs and fails, as it should before the work is done.
    Fails,
    /// It passes already, so it judges nothing.
    Passes,
    /// It cannot run.
    NotRunnable {
        /// What it said.
        why: String,
    },
}
