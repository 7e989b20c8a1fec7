//! Where the logs of stages are, and taking secrets out of those that nobody took them out of.
//!
//! Who writes a log masks it when its program has ended. Where that was cut off, because the stage
//! broke off or the whole orchestrator was killed, it is done here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use super::{DriverConfig, Ports};
use crate::command::Grant;
use crate::engine::Engine;
use crate::id::{StageName, TaskId};
use crate::mask::Mask;
use crate::port::Host;

/// The logs of all stages of a run.
#[derive(Clone)]
pub(super) struct StageLogs {
    stages_dir: PathBuf,
    host: Arc<dyn Host>,
    mask: Mask,
}

impl StageLogs {
    pub(super) fn of(ports: &Ports, config: &DriverConfig) -> Self {
        // Programs stand in other directories, where a relative path would mean another place.
        let stages_dir = std::path::absolute(&config.stages_dir);
        let stages_dir = stages_dir.unwrap_or_else(|_| config.stages_dir.clone());
        Self { stages_dir, host: Arc::clone(&ports.host), mask: config.mask.clone() }
    }

    /// The directory of a grant's logs.
    pub(super) fn of_grant(&self, engine: &Engine, grant: &Grant) -> Option<PathBuf> {
        self.dir(engine, &grant.task, grant.stage, grant.dispatch)
    }

    /// The directory of the logs of a task's last lease.
    pub(super) fn of_last(&self, engine: &Engine, task: &TaskId) -> Option<PathBuf> {
        let record = engine.task(task)?;
        self.dir(engine, task, record.stage, record.dispatches)
    }

    fn dir(&self, engine: &Engine, task: &TaskId, stage: u8, dispatch: u32) -> Option<PathBuf> {
        let name: &StageName = &engine.pipeline(task)?.stage(stage)?.name;
        Some(self.stages_dir.join(task.slug()).join(format!("{dispatch:02}-{name}")))
    }

    /// Takes secrets out of what is logged there, once nothing writes to it any more.
    pub(super) async fn mask(&self, dir: &Path) {
        if let Err(err) = self.host.mask_logs(dir, &self.mask).await {
            warn!(dir = %dir.display(), error = %err.chain(), "secrets may be left in logs");
        }
    }

    /// The same for all stages that were under way when an earlier driver ended.
    pub(super) async fn mask_left(&self, engine: &Engine) {
        for task in engine.held() {
            if let Some(dir) = self.of_last(engine, &task.id) {
                self.mask(&dir).await;
            }
        }
    }
}
