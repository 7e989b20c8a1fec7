//! Workspaces of tasks that are over, while they are removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::warn;

use super::shield::{WORKSPACES, caught};
use crate::id::{RunId, TaskId};
use crate::port::{PortError, Workspaces};

/// Workspaces that are being removed, so that none is taken from a task that runs again.
#[derive(Default)]
pub(super) struct Releases(BTreeMap<TaskId, oneshot::Receiver<()>>);

impl Releases {
    /// Has the workspace of a task removed.
    pub(super) fn begin(
        &mut self,
        chores: &mut JoinSet<()>,
        workspaces: Arc<dyn Workspaces>,
        (run, task): (RunId, TaskId),
    ) {
        let (done, released) = oneshot::channel();
        self.0.insert(task.clone(), released);
        chores.spawn(async move {
            let _done: oneshot::Sender<()> = done;
            let asked = caught(WORKSPACES, async { workspaces.release(&run, &task).await });
            if let Err(err) = asked.await.map_err(PortError::from).flatten() {
                warn!(%task, error = %err.chain(), "a workspace could not be removed");
            }
        });
    }

    /// What ends when the workspace that a task had before is removed.
    pub(super) fn of(&mut self, task: &TaskId) -> Option<oneshot::Receiver<()>> {
        self.0.remove(task)
    }
}
