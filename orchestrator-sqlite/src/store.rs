//! The store itself: the port, carried out by two connections on threads of their own.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{Commit, CommitError, Store, StoreError};
use orchestrator_core::{
    Answer, BlobHash, CommandId, OwnerId, RunId, RunRecord, Seq, Snapshot, StoredEvent, TaskId,
    TaskRecord, Timestamp,
};
use rusqlite::Connection;
use tokio::sync::watch;
use tokio::task::JoinError;

use crate::copy::{CopyError, Exported, LogCopy, backup};
use crate::doctor::{Health, examine};
use crate::error::OpenError;
use crate::mutant::{self, Mutant, is_on};
use crate::open::open;
use crate::options::SqliteOptions;
use crate::place::FilePlace;
use crate::read;
use crate::stored::raw_events;
use crate::watch::Watch;
use crate::worker::Worker;
use crate::writer::Writer;

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
    writer: Worker<Writer>,
    reader: Worker<Connection>,
    watch: Watch,
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
        let mutant = mutant::now();
        let opening = move || mutant::with(mutant, || open(&path, &options));
        let opening = tokio::task::spawn_blocking(opening).await;
        let opened = opening.map_err(|err| failed(err.into()))??;
        Ok(Self {
            writer: Worker::spawn("sqlite-write", opened.writer).map_err(&failed)?,
            reader: Worker::spawn("sqlite-read", opened.reader).map_err(&failed)?,
            watch: Watch::new(opened.place.path()),
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

    /// Writes those records of a run anew that cannot be read or are not what its log says; returns
    /// which. A run that the store does not have has none.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the log itself cannot say what they must be; nothing is changed
    /// then.
    pub async fn repair(&self, run: &RunId) -> Result<Vec<String>, StoreError> {
        let run = run.clone();
        let mended = self.writer.run(move |writer| writer.repair(&run)).await??;
        self.commits.send_replace(());
        Ok(mended)
    }

    /// Writes a copy of the whole file, as it stands at one moment, that can be opened as a store.
    /// Commits go on meanwhile.
    ///
    /// # Errors
    /// [`CopyError`], also when there is something of this name, or the file was removed or replaced;
    /// nothing of the copy is left then.
    pub async fn backup(&self, to: impl Into<PathBuf>) -> Result<(), CopyError> {
        let (file, to) = (self.place.clone(), to.into());
        let path = to.clone();
        let copying = tokio::task::spawn_blocking(move || backup(&file, &to)).await;
        copying.map_err(|source| CopyError::Write { path, source: source.into() })?
    }

    /// Writes the log of a run, up to where it stands now, to a file of JSON lines: an event a
    /// line, with its place as `seq`. An event that cannot be understood is written all the same.
    ///
    /// # Errors
    /// [`CopyError`], also when there is something of this name, no such run, or an event of the log
    /// is missing; nothing of the copy is left then.
    pub async fn export(&self, run: &RunId, to: impl Into<PathBuf>) -> Result<Exported, CopyError> {
        let mut copy = LogCopy::new(&to.into())?;
        let name = run.clone();
        let whole = self.reader.run(move |conn| read::whole_log(conn, &name)).await;
        let found = whole.map_err(StoreError::from)??;
        let (number, end) = found.ok_or_else(|| CopyError::NoRun { run: run.clone() })?;
        let mut at = Seq(0);
        while at < end {
            // Page by page, so that nobody else waits for long. Each begins where the one before
            // it ended, or else it is an error: so this ends, whatever is in the file.
            let after = at;
            let read = move |conn: &mut Connection| raw_events(conn, number, after, PAGE);
            let page = self.reader.run(read).await.map_err(StoreError::from)??;
            let Some((last, _)) = page.last() else { break };
            at = *last;
            let write = move || {
                let mut up_to = page.iter().take_while(|(seq, _)| *seq <= end);
                up_to.try_for_each(|(seq, body)| copy.write(*seq, body))?;
                Ok::<_, CopyError>(copy)
            };
            copy = tokio::task::spawn_blocking(write).await.map_err(gone)??;
        }
        tokio::task::spawn_blocking(move || copy.finish()).await.map_err(gone)?
    }

    /// Finishes what was begun and closes the file. Without it, that is done in the background once
    /// the store is dropped.
    pub async fn close(self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

#[cfg(test)]
impl SqliteStore {
    /// Has SQLite tell of each statement that the store issues.
    pub(crate) async fn trace(
        &self,
        which: rusqlite::trace::TraceEventCodes,
        tell: fn(rusqlite::trace::TraceEvent<'_>),
    ) {
        self.writer
            .run(move |writer| writer.conn().trace_v2(which, Some(tell)))
            .await
            .unwrap()
            .unwrap();
        self.reader.run(move |conn| conn.trace_v2(which, Some(tell))).await.unwrap().unwrap();
    }
}

/// How many events are exported at a time.
const PAGE: usize = 10_000;

fn gone(err: JoinError) -> CopyError {
    CopyError::Store(StoreError::Unavailable(Box::new(err)))
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
        let (run, commit) = (run.clone(), commit.clone());
        let done = self.writer.run(move |writer| writer.commit(&run, &commit)).await;
        let seq = done.map_err(|gone| CommitError::Unknown(Box::new(gone)))??;
        self.commits.send_replace(());
        Ok(seq)
    }

    async fn answer(&self, run: &RunId, command: &CommandId) -> Result<Option<Answer>, StoreError> {
        let (run, command) = (run.clone(), command.clone());
        self.writer.run(move |writer| writer.answer(&run, &command)).await?
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
        self.writer.run(move |writer| writer.touch(&run, &owner, now)).await?
    }

    async fn changed(&self, run: &RunId, after: Seq) -> Result<(), StoreError> {
        let mut commits = self.commits.subscribe();
        loop {
            let look = self.watch.look();
            let seq = match self.watch.position(run, &look) {
                Some(seq) => seq,
                None => {
                    let name = run.clone();
                    let seq = self.reader.run(move |conn| read::position(conn, &name)).await??;
                    self.watch.found(run.clone(), look, seq);
                    seq
                }
            };
            if seq.is_some_and(|seq| seq > after) {
                return Ok(());
            }
            // Another process tells nobody, so look from time to time. The sender cannot be gone:
            // it is in `self`.
            let wait = if is_on(Mutant::OtherProcessUnheard) { Duration::MAX } else { LOOK_EVERY };
            drop(tokio::time::timeout(wait, commits.changed()).await);
        }
    }

    async fn prune(&self, run: &RunId, up_to: Seq) -> Result<(), StoreError> {
        let run = run.clone();
        self.writer.run(move |writer| writer.prune(&run, up_to)).await?
    }

    async fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.reader.run(|conn| read::runs(conn)).await?
    }
}
