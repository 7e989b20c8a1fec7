//! What stages, renewals and chores tell the loop.

use tokio::sync::{mpsc, oneshot};

use crate::command::Answer;
use crate::id::{FencingToken, TaskId, TaskNo};
use crate::outcome::MergeIntent;

/// What is told to the loop.
pub(super) enum Message {
    /// A merge is about to happen; it may once this is committed.
    Intent {
        task: TaskNo,
        token: FencingToken,
        intent: MergeIntent,
        reply: oneshot::Sender<Answer>,
    },
    /// Nothing of a lease runs any more.
    Stopped { task: TaskId, token: FencingToken },
    /// The leases cannot be renewed, and all stages were asked to end.
    Lapsed,
    /// They could be renewed again.
    Renewed,
}

/// Where it is told.
pub(super) type ToLoop = mpsc::UnboundedSender<Message>;
