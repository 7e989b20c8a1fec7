//! What every adapter that carries out a stage is told.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{ActivityKind, Workspace};
use crate::id::{FencingToken, RunId, SessionId};
use crate::pipeline::StageSpec;
use crate::task::TaskSpec;

/// A stage to carry out, and all that is known of it.
///
/// An adapter keeps to `stage.timeout` and `stage.cap` by itself, ends early when `cancel` is
/// cancelled, and leaves no process behind when it returns.
#[derive(Debug, Clone)]
pub struct StageContext {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: Arc<TaskSpec>,
    /// The stage, with the model, timeout and cap that hold for this task.
    pub stage: StageSpec,
    /// The attempt; the first is 1.
    pub attempt: u32,
    /// The lease's number.
    pub token: FencingToken,
    /// Where the work is.
    pub workspace: Workspace,
    /// Where logs of this grant go; the adapter makes it.
    pub dir: PathBuf,
    /// The feedback of earlier attempts, oldest first; the last is what the last one failed with.
    pub feedback: Vec<String>,
    /// The conversation to take up, when the workspace is as it was left.
    pub session: Option<SessionId>,
    /// Cancelled when the stage must end at once.
    pub cancel: CancellationToken,
    /// Where signs of life go.
    pub activity: ActivitySink,
}

impl StageContext {
    /// What the last attempt failed with.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.feedback.last().map(String::as_str)
    }
}

/// Takes signs of life of one stage; cheap to clone and to call.
#[derive(Clone)]
pub struct ActivitySink(Arc<dyn Fn(ActivityKind) + Send + Sync>);

impl ActivitySink {
    /// A sink that calls this function; it must not block.
    pub fn new(take: impl Fn(ActivityKind) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// A sink that drops everything.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|_| {})
    }

    /// Says that something went on.
    pub fn say(&self, kind: ActivityKind) {
        (self.0)(kind);
    }
}

impl fmt::Debug for ActivitySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ActivitySink")
    }
}
