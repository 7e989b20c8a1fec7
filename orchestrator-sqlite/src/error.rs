//! What an error of SQLite means to the caller of a store.

use std::error::Error;
use std::fmt::Display;

use orchestrator_core::port::{CommitError, StoreError};
use rusqlite::{ErrorCode, ffi};

use crate::worker::Gone;

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
