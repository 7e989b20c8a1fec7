//! The port that merges.

use async_trait::async_trait;

use super::PortError;
use crate::id::{ChangeId, FencingToken, RunId, TaskId};
use crate::outcome::{Candidate, MergeIntent};
use crate::task::TaskSpec;

/// Merges candidates into the target, each at most once.
///
/// Several may be under way at once, each built on the one before it, which is not merged yet: then
/// each waits for its [`turn`](Self::turn), and has to be proposed again when what it was built on is
/// given up.
///
/// The driver calls [`fence`](Self::fence) at the start of each grant of a task, commits the intent
/// between [`propose`](Self::propose) and [`apply`](Self::apply), and after an interruption asks
/// [`is_merged`](Self::is_merged) once the fence of the new lease stands.
#[async_trait]
pub trait Integrator: Send + Sync {
    /// Makes every merge of the task under an earlier lease impossible. Returns once that is so; a
    /// fence with a greater number stays as it is.
    ///
    /// # Errors
    /// [`PortError`] when the fence may not stand.
    async fn fence(&self, run: &RunId, task: &TaskId, token: FencingToken)
    -> Result<(), PortError>;

    /// Builds what the target would be with the candidate merged, and changes nothing.
    ///
    /// # Errors
    /// [`PortError`] when it could not be built; a conflict is [`Proposal::Conflict`].
    async fn propose(
        &self,
        run: &RunId,
        task: &TaskSpec,
        token: FencingToken,
        candidate: &Candidate,
    ) -> Result<Proposal, PortError>;

    /// Waits until all that the proposal was built on is merged. `false` when some of it was given up:
    /// the proposal has lapsed, and has to be made again.
    ///
    /// # Errors
    /// [`PortError`] when it cannot be found out.
    async fn turn(
        &self,
        run: &RunId,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<bool, PortError> {
        // Where each proposal is built on the target itself, its turn has come.
        let _ = (run, task, token, intent);
        Ok(true)
    }

    /// Gives up what was proposed under this lease, if it is not merged; what was built on it lapses.
    /// The driver calls this when a proposal turns out bad, and at the end of the stage in any case.
    fn withdraw(&self, run: &RunId, task: &TaskId, token: FencingToken) {
        let _ = (run, task, token);
    }

    /// Moves the target as intended, if the fence of the task is `token` and the target stands
    /// where the intent says.
    ///
    /// # Errors
    /// [`PortError`] when it is not known whether it moved.
    async fn apply(
        &self,
        run: &RunId,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<Applied, PortError>;

    /// Whether the target holds this change.
    ///
    /// # Errors
    /// [`PortError`] when it could not be found out.
    async fn is_merged(&self, change: &ChangeId) -> Result<bool, PortError>;

    /// The greatest fence of the run, or 0; no token up to it is ever granted again.
    ///
    /// # Errors
    /// [`PortError`] when it could not be found out.
    async fn greatest_fence(&self, run: &RunId) -> Result<FencingToken, PortError>;
}

/// What a merge would come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proposal {
    /// It is possible.
    Clean {
        /// The merge.
        intent: MergeIntent,
        /// Whether the merged tree is the very tree of the candidate, which was judged.
        is_judged: bool,
    },
    /// The target holds all of it already.
    AlreadyThere,
    /// The candidate and the target contradict each other; this is feedback for the next attempt.
    Conflict {
        /// Where, and with whose work.
        feedback: String,
    },
}

/// What became of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The target moved.
    Merged,
    /// The target stands elsewhere: propose again.
    Moved,
    /// A later lease has fenced this one off: stop.
    Fenced,
}
