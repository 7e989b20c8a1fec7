//! A real store under a world: each commit goes to it, and a driver that dies is loaded from it.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::checks::Check;
use crate::engine::Engine;
use crate::id::{RunId, Seq};
use crate::port::{Commit, CommitError, Store, StoreError};
use crate::record::Snapshot;

/// How often a call is made again whose store says that it may work later.
const TRIES_MAX: u32 = 1_000;

/// The store, and what waits for it.
pub(super) struct Disk {
    store: Arc<dyn Store>,
    runtime: Runtime,
}

impl Disk {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let runtime = Builder::new_current_thread().enable_time().build();
        Self { store, runtime: runtime.expect("a runtime without IO needs nothing of the system") }
    }

    /// Writes a commit, and stands by what the store says, as a driver does: also when the answer
    /// is lost on the way.
    pub(super) fn commit(&self, run: &RunId, commit: &Commit) -> Check {
        let expected = commit.expected.plus(commit.events.len() as u64);
        for _ in 0..TRIES_MAX {
            match self.runtime.block_on(self.store.commit(run, commit)) {
                Ok(seq) if seq == expected => return Ok(()),
                Ok(seq) => return Err(format!("P4: a commit led to {seq}, not to {expected}")),
                Err(CommitError::Busy(_) | CommitError::Full(_)) => {}
                Err(CommitError::Unknown(_)) if !self.is_written(run, commit)? => {}
                Err(CommitError::Unknown(_)) => return Ok(()),
                Err(
                    err @ (CommitError::Moved { .. }
                    | CommitError::Repeated { .. }
                    | CommitError::Failed(_)),
                ) => return Err(format!("P4: a commit of the only driver was refused: {err:?}")),
            }
        }
        Err("the store takes no commit".to_owned())
    }

    fn is_written(&self, run: &RunId, commit: &Commit) -> Result<bool, String> {
        let Some((command, _)) = commit.commands.first() else {
            return Ok(self.position(run)? > commit.expected);
        };
        self.again(|| self.runtime.block_on(self.store.answer(run, command)))
            .map(|answer| answer.is_some())
    }

    fn position(&self, run: &RunId) -> Result<Seq, String> {
        let header = self.again(|| self.runtime.block_on(self.store.header(run)))?;
        Ok(header.map_or(Seq(0), |(seq, _)| seq))
    }

    /// A commit that was decided on another state than the present one.
    pub(super) fn refuses(&self, run: &RunId, commit: &Commit) -> Check {
        let stale = Commit { expected: commit.expected.plus(3), ..commit.clone() };
        for _ in 0..TRIES_MAX {
            match self.runtime.block_on(self.store.commit(run, &stale)) {
                Err(CommitError::Moved { now }) if now == commit.expected => return Ok(()),
                Err(CommitError::Busy(_) | CommitError::Full(_) | CommitError::Unknown(_)) => {}
                other => return Err(format!("P4: a stale commit was answered {other:?}")),
            }
        }
        Err("the store takes no commit".to_owned())
    }

    /// P5: the store has what the engine has.
    pub(super) fn load(&self, engine: &Engine) -> Result<Snapshot, String> {
        let loaded = self.again(|| self.runtime.block_on(self.store.load(engine.id())))?;
        let loaded = loaded.ok_or("P5: the store has no run")?;
        if Some(&loaded) == engine.snapshot().as_ref() {
            Ok(loaded)
        } else {
            Err(format!("P5: the store has other records: {loaded:?}"))
        }
    }

    fn again<T>(&self, call: impl Fn() -> Result<T, StoreError>) -> Result<T, String> {
        for _ in 0..TRIES_MAX {
            match call() {
                Ok(value) => return Ok(value),
                Err(StoreError::Busy(_) | StoreError::Unavailable(_)) => {}
                Err(err @ (StoreError::Corrupt { .. } | StoreError::TooNew { .. })) => {
                    return Err(format!("P16: {err:?}"));
                }
            }
        }
        Err("the store cannot be read".to_owned())
    }
}
