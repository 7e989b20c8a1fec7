//! The store itself: the port, carried out by two connections on threads of their own.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{Commit, CommitError, Store, StoreError};
use orchestrator_core::{
    Answer, BlobHash, CommandId, OwnerId, RunId, RunRecord, Seq, Snapshot, StoredEvent, TaskId,
    TaskRecord, Timestamp,
};
use tokio::sync::watch;

use crate::doctor::{Health, examine};
use crate::error::read_error;
use crate::open::{OpenError, SqliteOptions, open};
use crate::place::FilePlace;
use crate::worker::Worker;
use crate::{read, write};

/// How often somebody who waits looks whether another process has committed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Keeps runs in one SQLite file of this host.
///
/// Writes go through one connection and reads through another, each on a thread of its own, so that
/// no async task is held up and a long load does not hold up a commit. A call whose future is
/// dropped is carried out all the same: ask [`answer`](Store::answer) about a commit that was
/// abandoned.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Worker,
    reader: Worker,
    place: FilePlace,
    /// Tells those who wait in this process of each commit.
    commits: watch::Sender<()>,
}

impl SqliteStore {
    /// Opens the file, or makes it when there is none; its folder must be there.
    ///
    /// # Errors
    /// [`OpenError`] names the path and what would help; the file is left as it is.
    pub async fn open(path: impl Into<PathBuf>, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = path.into();
        let failed = {
            let path = path.clone();
            move |source| OpenError::Path { path: path.clone(), source }
        };
        let opening = tokio::task::spawn_blocking(move || open(&path, &options)).await;
        let opened = opening.map_err(|err| failed(err.into()))??;
        Ok(Self {
            writer: Worker::spawn("sqlite-write", opened.writer).map_err(&failed)?,
            reader: Worker::spawn("sqlite-read", opened.reader).map_err(&failed)?,
            place: opened.place,
            commits: watch::Sender::new(()),
        })
    }

    /// Examines the file: its pages, and for each run whether the records are what the log says.
    ///
    /// Other reads through this store wait for it; commits and other processes do not.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be examined at all; what is wrong in it is in the report.
    pub async fn doctor(&self) -> Result<Health, StoreError> {
        self.reader.run(examine).await?
    }

    /// Finishes what was begun and closes the file. Without it, that is done in the background once
    /// the store is dropped.
    pub async fn close(self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn load(&self, run: &RunId) -> Result<Option<Snapshot>, StoreError> {
        let run = run.clone();
        self.reader.run(move |conn| read::load(conn, &run)).await?
    }

    async fn header(&self, run: &RunId) -> Result<Option<(Seq, RunRecord)>, StoreError> {
        let run = run.clone();
        self.reader.run(move |conn| read::header(conn, &run)).await?
    }

    async fn task(&self, run: &RunId, task: &TaskId) -> Result<Option<TaskRecord>, StoreError> {
        let (run, task) = (run.clone(), task.clone());
        self.reader.run(move |conn| read::task(conn, &run, &task)).await?
    }

    async fn commit(&self, run: &RunId, commit: &Commit) -> Result<Seq, CommitError> {
        let (run, commit, place) = (run.clone(), commit.clone(), self.place.clone());
        let write = move |conn: &mut _| {
            let displaced = |err| CommitError::Failed(StoreError::Unavailable(Box::new(err)));
            place.check().map_err(displaced)?;
            write::commit(conn, &run, &commit)
        };
        let done = self.writer.run(write).await;
        let seq = done.map_err(|gone| CommitError::Unknown(Box::new(gone)))??;
        self.commits.send_replace(());
        Ok(seq)
    }

    async fn answer(&self, run: &RunId, command: &CommandId) -> Result<Option<Answer>, StoreError> {
        let (run, command) = (run.clone(), command.clone());
        self.writer.run(move |conn| write::answer(conn, &run, &command)).await?
    }

    async fn events(
        &self,
        run: &RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let run = run.clone();
        self.reader.run(move |conn| read::events(conn, &run, after, limit)).await?
    }

    async fn blob(&self, run: &RunId, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        let (run, hash) = (run.clone(), hash.clone());
        self.reader.run(move |conn| read::blob(conn, &run, &hash)).await?
    }

    async fn touch(&self, run: &RunId, owner: &OwnerId, now: Timestamp) -> Result<(), StoreError> {
        let (run, owner) = (run.clone(), owner.clone());
        let done = self.writer.run(move |conn| write::touch(conn, &run, &owner, now)).await?;
        done.map_err(read_error)
    }

    async fn changed(&self, run: &RunId, after: Seq) -> Result<(), StoreError> {
        let mut commits = self.commits.subscribe();
        let mut seen = None;
        loop {
            let run = run.clone();
            let look = move |conn: &mut _| read::position_if_changed(conn, &run, seen);
            let (version, seq) = self.reader.run(look).await??;
            if seq.is_some_and(|seq| seq > after) {
                return Ok(());
            }
            seen = Some(version);
            // Another process tells nobody, so look from time to time. The sender cannot be gone:
            // it is in `self`.
            drop(tokio::time::timeout(LOOK_EVERY, commits.changed()).await);
        }
    }

    async fn prune(&self, run: &RunId, up_to: Seq) -> Result<(), StoreError> {
        let run = run.clone();
        let done = self.writer.run(move |conn| write::prune(conn, &run, up_to)).await?;
        done.map_err(read_error)
    }

    async fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.reader.run(read::runs).await?
    }
}
