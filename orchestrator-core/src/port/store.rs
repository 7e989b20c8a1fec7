//! The port that keeps a run.

use async_trait::async_trait;

use super::Cause;
use crate::command::Answer;
use crate::event::{Event, StoredEvent};
use crate::id::{BlobHash, CommandId, OwnerId, RunId, Seq, TaskId};
use crate::record::{Records, RunRecord, Snapshot, TaskRecord};
use crate::time::Timestamp;

/// What is written at once: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// The position at which the run must stand.
    pub expected: Seq,
    /// The commands behind the events, with what each gets back.
    pub commands: Vec<(CommandId, Answer)>,
    /// The events; they take the positions after `expected`.
    pub events: Vec<Event>,
    /// The records that the events changed; each replaces the one of its name.
    pub records: Records,
    /// Texts that the events name by their address; one that is there already stays as it is.
    pub blobs: Vec<Vec<u8>>,
}

/// Keeps runs: the records of each, and its log.
///
/// A store knows no rules of scheduling. Many processes may use one store; each call is atomic and
/// sees a consistent state.
#[async_trait]
pub trait Store: Send + Sync {
    /// Reads a whole run at one position; `None` when the store has no such run.
    ///
    /// # Errors
    /// [`StoreError`] when nothing could be read, or what is there cannot be understood.
    async fn load(&self, run: &RunId) -> Result<Option<Snapshot>, StoreError>;

    /// Reads a run's record and position without its tasks.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn header(&self, run: &RunId) -> Result<Option<(Seq, RunRecord)>, StoreError>;

    /// Reads one task.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn task(&self, run: &RunId, task: &TaskId) -> Result<Option<TaskRecord>, StoreError>;

    /// Appends events and replaces records, all or nothing, if the run still stands at
    /// `commit.expected`; returns where it stands then. `Ok` means durable.
    ///
    /// A commit with a command that the run has had before, or with the same one twice, is refused
    /// as [`CommitError::Repeated`], wherever the run stands. The first commit of a run brings its
    /// record. An owner's record replaces the one before except that `touched_at` never goes back,
    /// so that a commit does not undo a [`touch`](Store::touch).
    ///
    /// # Errors
    /// [`CommitError`]; only [`CommitError::Unknown`] leaves open whether it was written.
    async fn commit(&self, run: &RunId, commit: &Commit) -> Result<Seq, CommitError>;

    /// What a command got back when it was committed; `None` when it never was. Waits for commits
    /// under way, so that the answer stays true.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn answer(&self, run: &RunId, command: &CommandId) -> Result<Option<Answer>, StoreError>;

    /// Reads at most `limit` events after a position, in order and without gaps.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn events(
        &self,
        run: &RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError>;

    /// Reads a blob; `None` when the run has none of this address.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn blob(&self, run: &RunId, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError>;

    /// Renews all leases of an owner; not an event, and never back to an earlier time. An owner
    /// that the run does not have is left alone.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn touch(&self, run: &RunId, owner: &OwnerId, now: Timestamp) -> Result<(), StoreError>;

    /// Returns when the run stands past `after`, as a hint: it may return early, and it may be up to
    /// a second late.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn changed(&self, run: &RunId, after: Seq) -> Result<(), StoreError>;

    /// Forgets the answers of commands whose events are not past `up_to`; records, events and
    /// blobs stay.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn prune(&self, run: &RunId, up_to: Seq) -> Result<(), StoreError>;

    /// The runs that the store has, by name.
    ///
    /// # Errors
    /// As [`Store::load`].
    async fn runs(&self) -> Result<Vec<RunId>, StoreError>;
}

/// Why a store could not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else holds the store for too long; try again.
    #[error("the store is busy")]
    Busy(#[source] Cause),
    /// The store cannot be reached or read.
    #[error("the store is unavailable")]
    Unavailable(#[source] Cause),
    /// Something in it cannot be understood.
    #[error("{place} cannot be understood: {remedy}")]
    Corrupt {
        /// Where: table and row, say.
        place: String,
        /// What can be done.
        remedy: String,
        /// What is wrong.
        #[source]
        cause: Cause,
    },
    /// It was written by a newer version of this program.
    #[error("the store has format {found}, this program knows up to {known}: use a newer program")]
    TooNew {
        /// The format it has.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
}

/// Why a commit was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The run stands elsewhere: read what is new and decide again.
    #[error("the run stands at {now}, not where the commit expects it")]
    Moved {
        /// Where it stands.
        now: Seq,
    },
    /// One of the commands was committed before: its answer stands.
    #[error("command `{command}` was committed before")]
    Repeated {
        /// The command.
        command: CommandId,
    },
    /// Somebody else holds the store for too long; nothing was written.
    #[error("the store is busy")]
    Busy(#[source] Cause),
    /// There is no room; nothing was written.
    #[error("no room to write: make some and try again")]
    Full(#[source] Cause),
    /// It may have been written or not: ask [`Store::answer`].
    #[error("it is not known whether the commit was written")]
    Unknown(#[source] Cause),
    /// Nothing was written, and trying again would not help.
    #[error("the store refused to write")]
    Failed(#[source] StoreError),
}
