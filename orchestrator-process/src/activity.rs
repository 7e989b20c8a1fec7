//! Passing on signs of life of a program to whoever watches the run.

use std::path::{Path, PathBuf};

use orchestrator_core::port::{ActivityKind, ActivitySink, StageContext};

use crate::run::Watch;

/// Reports that a program was started, and how much it writes.
#[derive(Debug)]
pub(crate) struct Reporting {
    sink: ActivitySink,
    log: PathBuf,
}

impl Reporting {
    pub(crate) fn new(cx: &StageContext, log: &Path) -> Self {
        Self { sink: cx.activity.clone(), log: log.to_owned() }
    }
}

impl Watch for Reporting {
    fn started(&mut self, pid: u32) {
        self.sink.say(ActivityKind::Started { pid, log: self.log.clone() });
    }

    fn output(&mut self, bytes: u64) {
        self.sink.say(ActivityKind::Output { bytes });
    }
}
