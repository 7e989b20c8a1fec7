//! The port that carries out a run stage by an agent or program.

use async_trait::async_trait;

use super::StageContext;
use crate::outcome::StageEnd;

/// Works on a task in its workspace.
///
/// `Passed` means that the agent says it is finished; whether the work is any good, others judge.
/// The runner commits nothing: what is in the workspace afterwards becomes the candidate.
#[async_trait]
pub trait Runner: Send + Sync {
    /// Works on the task until it is finished or cannot go on.
    async fn run(&self, cx: &StageContext) -> StageEnd;
}
