//! Whether other processes have committed, seen by looking at the files from outside.
//!
//! SQLite tells nobody. While nothing changes, only the size and time of two files are read: an
//! idle process asks SQLite nothing.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use orchestrator_core::{RunId, Seq};

use crate::log;

/// A file that changed so recently may change again without looking any different: file systems
/// count time in steps.
const UNSURE_FOR: Duration = Duration::from_secs(1);

/// How file and log looked from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    files: [Option<(u64, SystemTime)>; 2],
    /// Whether any change after it would show.
    is_sure: bool,
}

/// What was found at the last look, by run.
#[derive(Debug)]
pub(crate) struct Watch {
    paths: [PathBuf; 2],
    seen: Mutex<BTreeMap<RunId, (Look, Option<Seq>)>>,
}

impl Watch {
    pub(crate) fn new(file: &Path) -> Self {
        Self { paths: [file.to_owned(), log::path_of(file)], seen: Mutex::default() }
    }

    pub(crate) fn look(&self) -> Look {
        let now = SystemTime::now();
        let of = |found: Metadata| Some((found.len(), found.modified().ok()?));
        let [file, log] = &self.paths;
        let files = [file, log].map(|path| fs::metadata(path).ok().and_then(of));
        let is_old = |time: SystemTime| {
            let apart = now.duration_since(time).unwrap_or_else(|err| err.duration());
            apart > UNSURE_FOR
        };
        let is_sure = files.iter().flatten().all(|(_, time)| is_old(*time));
        Look { files, is_sure }
    }

    /// Where the run stands, if that follows from what was seen before.
    pub(crate) fn position(&self, run: &RunId, now: &Look) -> Option<Option<Seq>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (look, seq) = seen.get(run)?;
        (look.is_sure && look == now).then_some(*seq)
    }

    /// Keeps what was found after a look.
    pub(crate) fn found(&self, run: RunId, look: Look, seq: Option<Seq>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(run, (look, seq));
    }
}
