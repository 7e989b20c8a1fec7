//! The format of the file, and how an older one becomes the present one.

use orchestrator_core::port::StoreError;
use rusqlite::{CachedStatement, Connection, Transaction, TransactionBehavior};

use crate::error::read_error;

/// Marks a file as ours: "Orch" in ASCII.
pub(crate) const APPLICATION_ID: i32 = 0x4f72_6368;

/// The format that this program writes.
pub(crate) const VERSION: u32 = 8;

/// The size of a file in which there is nothing yet.
pub(crate) const FRESH_BYTES: u64 = 18 * 4096;

/// Step `n` makes format `n + 1` of format `n`; format 0 is an empty file. A step that was released
/// is never changed.
const STEPS: [&str; VERSION as usize] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
    include_str!("schema/7.sql"),
    include_str!("schema/8.sql"),
];

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Nothing was ever written to it.
    Empty,
    /// It is ours, in this format.
    Ours(u32),
    /// It belongs to another program.
    Foreign,
}

/// Reads what the file is, and writes nothing.
pub(crate) fn identify(conn: &Connection) -> rusqlite::Result<Identity> {
    // In one transaction, or else a file that is being made looks half made.
    let tx = conn.unchecked_transaction()?;
    let id: i32 = tx.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 = tx.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (id, u32::try_from(version)) {
        (APPLICATION_ID, Ok(version)) => Identity::Ours(version),
        (0, Ok(0)) if objects == 0 => Identity::Empty,
        _ => Identity::Foreign,
    })
}

/// Brings the file to the present format in one transaction; a file in a newer one stays as it is.
/// Returns the format that it has then.
pub(crate) fn migrate(conn: &mut Connection) -> rusqlite::Result<u32> {
    if identify(conn)? == Identity::Ours(VERSION) {
        // No need to wait for who writes just now.
        return Ok(VERSION);
    }
    // Another process may do the same: the format counts that is there under the write lock.
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: u32 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found >= VERSION {
        return Ok(found);
    }
    let done = usize::try_from(found).unwrap_or(usize::MAX);
    for step in STEPS.iter().skip(done) {
        tx.execute_batch(step)?;
    }
    stamp(&tx)?;
    tx.commit()?;
    Ok(VERSION)
}

/// Refuses a file that a newer program brought to its own format since it was opened.
pub(crate) fn check(tx: &Connection) -> Result<(), StoreError> {
    let read = |mut version: CachedStatement<'_>| version.query_row([], |row| row.get::<_, i64>(0));
    let found = tx.prepare_cached("PRAGMA user_version").and_then(read).map_err(read_error)?;
    match u32::try_from(found) {
        Ok(found) if found > VERSION => Err(StoreError::TooNew { found, known: VERSION }),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn stamp(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", VERSION)
}
