//! What an error of SQLite means to the caller of a store.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use orchestrator_core::port::{CommitError, StoreError};
use rusqlite::{ErrorCode, ffi};

use crate::worker::Gone;

/// Why a file could not be opened as a store. It was left as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There can be no file at this path.
    #[error("cannot open `{}`", .path.display())]
    Path {
        /// The path, or the folder of it that is missing.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The file may be read but not written.
    #[error("`{}` is read-only: make the file and its folder writable", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to another program.
    #[error("`{}` is not a store of this program: name another file", .path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer version of this program.
    #[error("`{}` has format {found}, this program knows up to {known}: use a newer program", .path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// The format it has.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// Somebody else held the file for too long.
    #[error("`{}` is held by another program: try again when it has ended", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// There is no room to set the file up.
    #[error("no room to write `{}`: make some and try again", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// The place of the file does not allow a write-ahead log.
    #[error("`{}` cannot have a write-ahead log (it has mode `{mode}`): put it on a local disk", .path.display())]
    NoLog {
        /// The file.
        path: PathBuf,
        /// The mode that it has instead.
        mode: String,
    },
    /// The file is on a disk of another host, where a write-ahead log is not safe.
    #[error("`{}` is on a network file system ({kind}): put it on a local disk", .path.display())]
    NetworkDisk {
        /// The file.
        path: PathBuf,
        /// The kind of file system.
        kind: String,
    },
    /// Another process has the file open as its only owner.
    #[error("`{}` has an owner: {owner}; end it first", .path.display())]
    Owned {
        /// The file.
        path: PathBuf,
        /// What the owner says of itself.
        owner: String,
    },
    /// The write-ahead log beside the file is of another one, or of the same at another time: a
    /// backup took its place, say, and the log was left. Opening both would mix them.
    #[error(
        "`{}` does not belong to `{}`: put back the file that it belongs to, or move the log away \
         to open the file as it is",
        .log.display(), .path.display()
    )]
    ForeignLog {
        /// The file.
        path: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// SQLite cannot open it for another reason.
    #[error(
        "cannot open `{}` as a database: restore a backup, or save what can be read with \
         `sqlite3 FILE .recover`",
        .path.display()
    )]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
}

/// What helps when a row of a table cannot be understood.
fn remedy(table: &str) -> &'static str {
    match table {
        "events" => {
            "the run goes on without it; to have it again restore a backup, or put it right with the \
             `sqlite3` shell (see docs/SCHEMA.md)"
        }
        "commands" => {
            "the command was carried out, and the log says what it did; to have its answer again \
             restore a backup"
        }
        "blobs" => "restore a backup, or put back the bytes that have this SHA-256",
        _ => REMEDY_RECORD,
    }
}

/// What helps when a record is wrong.
pub(crate) const REMEDY_RECORD: &str = "have the record written anew from the log (`cargo run \
    --example store -- repair FILE`, or `SqliteStore::repair`), restore a backup, or put the value \
    right with the `sqlite3` shell (see docs/SCHEMA.md)";

/// What helps when the file itself is damaged.
pub(crate) const REMEDY_FILE: &str =
    "restore a backup, or save what can be read with `sqlite3 FILE .recover`";

/// What helps when a run stands elsewhere than its log ends.
const REMEDY_END: &str = "have it put right from the log (`cargo run --example store -- repair FILE`, \
                          or `SqliteStore::repair`), or restore a backup (see docs/SCHEMA.md)";

/// What kind of failure an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Busy,
    Full,
    ReadOnly,
    NotADatabase,
    Corrupt,
    Other,
}

pub(crate) fn failure(err: &rusqlite::Error) -> Failure {
    // SQLite tells only of a disk without room, and not of a quota or a limit that was reached.
    let took_nothing = ffi::SQLITE_IOERR_WRITE;
    if err.sqlite_error().is_some_and(|err| err.extended_code == took_nothing) {
        return Failure::Full;
    }
    match err.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failure::Busy,
        Some(ErrorCode::DiskFull) => Failure::Full,
        Some(ErrorCode::ReadOnly) => Failure::ReadOnly,
        Some(ErrorCode::NotADatabase) => Failure::NotADatabase,
        Some(ErrorCode::DatabaseCorrupt) => Failure::Corrupt,
        _ => Failure::Other,
    }
}

/// Whether a table, a column or a row is gone or changed, or has a value of a type that it never takes.
fn is_altered(err: &rusqlite::Error) -> bool {
    let is_odd_value = matches!(
        err,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
    );
    let code = if let rusqlite::Error::SqliteFailure(err, _)
    | rusqlite::Error::SqlInputError { error: err, .. } = err
    {
        Some(err.extended_code)
    } else {
        None
    };
    // What is written here keeps all rules of the tables, unless somebody changed these.
    let is_new_rule = matches!(
        code,
        Some(
            ffi::SQLITE_CONSTRAINT_DATATYPE
                | ffi::SQLITE_CONSTRAINT_CHECK
                | ffi::SQLITE_CONSTRAINT_NOTNULL
                | ffi::SQLITE_CONSTRAINT_UNIQUE
                | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                | ffi::SQLITE_CONSTRAINT_ROWID
        )
    );
    // SQLite has no code of its own for what is not there.
    let said = err.to_string();
    let is_gone = ["no such table:", "no such column:", "has no column named", "no such rowid:"]
        .iter()
        .any(|gone| said.contains(gone));
    is_odd_value || is_new_rule || (code == Some(ffi::SQLITE_ERROR) && is_gone)
}

/// An error of opening a file.
pub(crate) fn open_error(path: &Path, source: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match failure(&source) {
        Failure::Busy => OpenError::Busy { path, source },
        Failure::Full => OpenError::Full { path, source },
        Failure::ReadOnly => OpenError::ReadOnly { path },
        Failure::NotADatabase => OpenError::NotOurs { path },
        Failure::Corrupt | Failure::Other => OpenError::Database { path, source },
    }
}

/// An error of a read.
pub(crate) fn read_error(err: rusqlite::Error) -> StoreError {
    match failure(&err) {
        Failure::Busy => StoreError::Busy(Box::new(err)),
        Failure::Corrupt | Failure::NotADatabase => damaged(err),
        Failure::Other if is_altered(&err) => damaged(err),
        Failure::Full | Failure::ReadOnly | Failure::Other => {
            StoreError::Unavailable(Box::new(err))
        }
    }
}

fn damaged(err: rusqlite::Error) -> StoreError {
    StoreError::Corrupt {
        place: "the database file".to_owned(),
        remedy: REMEDY_FILE.to_owned(),
        cause: Box::new(err),
    }
}

/// An error of a statement within a transaction that is rolled back: nothing was written.
pub(crate) fn write_error(err: rusqlite::Error) -> CommitError {
    match failure(&err) {
        Failure::Busy => CommitError::Busy(Box::new(err)),
        Failure::Full => CommitError::Full(Box::new(err)),
        Failure::ReadOnly | Failure::NotADatabase | Failure::Corrupt | Failure::Other => {
            CommitError::Failed(read_error(err))
        }
    }
}

/// An error of `COMMIT` itself.
///
/// A busy or full store wrote no whole commit record to its log, of which that is the end. After anything else, a failed sync
/// say, the record may be in the file and count once the log is read anew.
pub(crate) fn end_error(err: rusqlite::Error) -> CommitError {
    match failure(&err) {
        Failure::Busy => CommitError::Busy(Box::new(err)),
        Failure::Full => CommitError::Full(Box::new(err)),
        Failure::ReadOnly | Failure::NotADatabase | Failure::Corrupt | Failure::Other => {
            CommitError::Unknown(Box::new(err))
        }
    }
}

/// Something of a table cannot be understood.
pub(crate) fn corrupt(
    table: &str,
    row: impl Display,
    cause: impl Error + Send + Sync + 'static,
) -> StoreError {
    let place = format!("table `{table}`, {row}");
    StoreError::Corrupt { place, remedy: remedy(table).to_owned(), cause: Box::new(cause) }
}

/// A run stands elsewhere than its log ends.
pub(crate) fn off_log(
    table: &str,
    row: impl Display,
    cause: impl Error + Send + Sync + 'static,
) -> StoreError {
    let (place, remedy) = (format!("table `{table}`, {row}"), REMEDY_END.to_owned());
    StoreError::Corrupt { place, remedy, cause: Box::new(cause) }
}

/// Rows of a run that is not there any more are in the way.
pub(crate) fn strays(table: &str, cause: impl Error + Send + Sync + 'static) -> StoreError {
    let place = format!("table `{table}`, the rows that belong to no row of `runs`");
    let remedy = "restore a backup, or remove them with the `sqlite3` shell (see docs/SCHEMA.md)";
    StoreError::Corrupt { place, remedy: remedy.to_owned(), cause: Box::new(cause) }
}

impl From<Gone> for StoreError {
    fn from(gone: Gone) -> Self {
        Self::Unavailable(Box::new(gone))
    }
}
