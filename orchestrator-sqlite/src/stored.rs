//! What the tables hold, row by row, as it is: nothing is put right here.

use orchestrator_core::port::StoreError;
use orchestrator_core::{
    Answer, BlobHash, CommandId, OwnerRecord, PlanRef, PoolRecord, RunId, RunRecord, Seq,
    StoredEvent,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, Transaction, params};

use crate::codec::{read_owner, read_plan, read_pool, read_run};
use crate::error::{corrupt, off_log, read_error};
use crate::mutant::{Mutant, is_on};
use crate::row::Fields;
use crate::schema;
use crate::table::{RUNS, SQL};

/// A blob has other bytes than its address says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its bytes have the address {found}")]
struct Altered {
    found: BlobHash,
}

/// Something is not there that must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the row is missing")]
pub(crate) struct NoRow;

/// How many rows of a table are named that cannot be understood.
const UNREADABLE_MAX: usize = 100;

/// Opens a transaction in which all reads see one state.
pub(crate) fn reading(conn: &mut Connection) -> Result<Transaction<'_>, StoreError> {
    if !conn.is_autocommit() {
        // One that failed as it began or ended would show the same state for ever.
        conn.execute_batch("ROLLBACK").map_err(read_error)?;
    }
    let tx = conn.transaction().map_err(read_error)?;
    schema::check(&tx)?;
    Ok(tx)
}

/// Reads all rows of a statement.
pub(crate) fn rows<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    each_row(conn, sql, params, |row| {
        all.push(read(row)?);
        Ok(())
    })?;
    Ok(all)
}

/// What keeps the rows of a statement from being understood, up to a number of them.
pub(crate) fn unreadable<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Vec<StoreError> {
    let mut all = Vec::new();
    let end = each_row(conn, sql, params, |row| {
        if all.len() < UNREADABLE_MAX {
            all.extend(read(row).err());
        }
        Ok(())
    });
    all.extend(end.err());
    all
}

/// Hands over the rows of a statement, those before one that cannot be read too.
pub(crate) fn each_row(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    mut take: impl FnMut(&Row<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(sql).map_err(read_error)?;
    let mut rows = statement.query(params).map_err(read_error)?;
    while let Some(row) = rows.next().map_err(read_error)? {
        take(row)?;
    }
    Ok(())
}

/// The number by which all other tables name a run.
pub(crate) fn run_number(conn: &Connection, run: &RunId) -> rusqlite::Result<Option<(i64, Seq)>> {
    let mut statement = conn.prepare_cached("SELECT run, seq FROM runs WHERE id = ?1")?;
    let number = |row: &Row<'_>| Ok((row.get(0)?, Seq(row.get::<_, i64>(1)?.cast_unsigned())));
    statement.query_row([run.as_str()], number).optional()
}

pub(crate) fn run_record(
    conn: &Connection,
    run: &RunId,
    number: i64,
) -> Result<Option<(Seq, RunRecord)>, StoreError> {
    let Some((seq, mut record)) = rows(conn, &SQL.run, [run.as_str()], read_run)?.pop() else {
        return Ok(None);
    };
    record.plans = rows(conn, &SQL.plans, [number], read_plan)?;
    Ok(Some((seq, record)))
}

pub(crate) fn pools(conn: &Connection, run: i64) -> Result<Vec<PoolRecord>, StoreError> {
    rows(conn, &SQL.pools, [run], read_pool)
}

pub(crate) fn owners(conn: &Connection, run: i64) -> Result<Vec<OwnerRecord>, StoreError> {
    rows(conn, &SQL.owners, [run], read_owner)
}

/// The same within a transaction; none may be missing between two that are there.
pub(crate) fn events_within(
    conn: &Connection,
    run: i64,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreError> {
    const SQL: &str =
        "SELECT seq, body FROM events WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let read = |row: &Row<'_>| match read_event(row) {
        Err(_) if is_on(Mutant::BadRowSkipped) => {
            Ok((Seq(Fields::new("events", row).u64()?), None))
        }
        event => event.map(|stored| (stored.seq, Some(stored))),
    };
    Ok(log_rows(conn, SQL, run, after, limit, read)?.into_iter().flatten().collect())
}

/// Reads rows of the log, each of which must follow the one before it.
fn log_rows<T>(
    conn: &Connection,
    sql: &str,
    run: i64,
    after: Seq,
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> Result<(Seq, T), StoreError>,
) -> Result<Vec<T>, StoreError> {
    let from = i64::try_from(after.0).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut expected = after.plus(1);
    rows(conn, sql, params![run, from, limit], |row| {
        let (seq, read) = read(row)?;
        if seq != expected {
            return Err(log_fault(expected, NoLog::Gap));
        }
        expected = seq.plus(1);
        Ok(read)
    })
}

/// Where the log of a run ends.
pub(crate) fn log_end(conn: &Connection, run: i64) -> rusqlite::Result<Seq> {
    const SQL: &str = "SELECT max(seq) FROM events WHERE run = ?1";
    let end: Option<i64> = conn.prepare_cached(SQL)?.query_row([run], |row| row.get(0))?;
    Ok(Seq(end.and_then(|end| u64::try_from(end).ok()).unwrap_or(0)))
}

/// An event, of its position and its body.
pub(crate) fn read_event(row: &Row<'_>) -> Result<StoredEvent, StoreError> {
    let fields = &mut Fields::new("events", row);
    Ok(StoredEvent { seq: Seq(fields.u64()?), event: fields.json()? })
}

/// Reads events as they are stored, understood or not.
pub(crate) fn raw_events(
    conn: &Connection,
    run: i64,
    after: Seq,
    limit: usize,
) -> Result<Vec<(Seq, Vec<u8>)>, StoreError> {
    const SQL: &str = "SELECT seq, CAST(body AS BLOB) FROM events \
                       WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    log_rows(conn, SQL, run, after, limit, |row| {
        let fields = &mut Fields::new("events", row);
        let seq = Seq(fields.u64()?);
        Ok((seq, (seq, fields.raw()?)))
    })
}

pub(crate) fn checked_blob(
    conn: &Connection,
    run: i64,
    hash: &BlobHash,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(bytes) = unchecked_blob(conn, run, hash)? else { return Ok(None) };
    check_blob(&bytes, hash)?;
    Ok(Some(bytes))
}

pub(crate) fn unchecked_blob(
    conn: &Connection,
    run: i64,
    hash: &BlobHash,
) -> Result<Option<Vec<u8>>, StoreError> {
    const SQL: &str = "SELECT rowid FROM blobs WHERE run = ?1 AND hash = ?2";
    let mut statement = conn.prepare_cached(SQL).map_err(read_error)?;
    let number = statement.query_row(params![run, hash.as_str()], |row| row.get(0)).optional();
    let Some(number) = number.map_err(read_error)? else { return Ok(None) };
    blob_bytes(conn, number).map(Some).map_err(read_error)
}

/// Reads a blob piece by piece to where it stays: as a row's value it would be in memory twice.
fn blob_bytes(conn: &Connection, number: i64) -> rusqlite::Result<Vec<u8>> {
    let blob = conn.blob_open("main", "blobs", "bytes", number, true)?;
    let mut bytes = vec![0; blob.len()];
    blob.read_at_exact(&mut bytes, 0)?;
    Ok(bytes)
}

pub(crate) fn check_blob(bytes: &[u8], hash: &BlobHash) -> Result<(), StoreError> {
    let found = BlobHash::of(bytes);
    if found == *hash {
        return Ok(());
    }
    Err(corrupt("blobs", format_args!("row `{hash}`, column `bytes`"), Altered { found }))
}

pub(crate) fn plan_blob(
    conn: &Connection,
    run: i64,
    plan: &PlanRef,
) -> Result<Vec<u8>, StoreError> {
    let row = format_args!("row `{}`", plan.blob);
    unchecked_blob(conn, run, &plan.blob)?.ok_or_else(|| corrupt("blobs", row, NoRow))
}

/// An answer, of its command's name and the answer.
pub(crate) fn read_answer(row: &Row<'_>) -> Result<Answer, StoreError> {
    let fields = &mut Fields::new("commands", row);
    fields.parsed::<CommandId>()?;
    fields.json()
}

/// Whether a command of a run is there.
pub(crate) fn has_command(
    conn: &Connection,
    run: i64,
    command: &CommandId,
) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT 1 FROM commands WHERE run = ?1 AND id = ?2";
    conn.prepare_cached(SQL)?.exists(params![run, command.as_str()])
}

/// When an owner showed last that it lives.
pub(crate) fn touched_at(
    conn: &Connection,
    run: i64,
    owner: &str,
) -> rusqlite::Result<Option<u64>> {
    const SQL: &str = "SELECT touched_at_ms FROM owners WHERE run = ?1 AND id = ?2";
    let mut statement = conn.prepare_cached(SQL)?;
    let touched = statement.query_row(params![run, owner], |row| row.get::<_, i64>(0));
    Ok(touched.optional()?.map(i64::cast_unsigned))
}

/// The plans that are named now.
pub(crate) fn plans(conn: &Connection, run: i64) -> Result<Vec<PlanRef>, StoreError> {
    rows(conn, &SQL.plans, [run], read_plan)
}

/// The log cannot say what the records must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoLog {
    #[error("the event is missing")]
    Gap,
    #[error("the event is missing: the run stands at {seq}, and its log ends at {end}")]
    Short { seq: Seq, end: Seq },
    #[error("the run stands at {seq}, and its log ends at {end}")]
    Long { seq: i64, end: Seq },
    #[error("the log makes no run")]
    Nothing,
}

pub(crate) fn log_fault(at: Seq, cause: NoLog) -> StoreError {
    corrupt("events", format_args!("row `{at}`"), cause)
}

/// Whether a run stands where its log ends.
///
/// # Errors
/// [`StoreError::Corrupt`] with what helps, when it does not.
pub(crate) fn check_end(
    conn: &Connection,
    run: &RunId,
    number: i64,
    seq: Seq,
) -> Result<(), StoreError> {
    let end = log_end(conn, number).map_err(read_error)?;
    match i64::try_from(seq.0) {
        Ok(_) if seq == end => Ok(()),
        Ok(_) if seq > end => {
            Err(off_log("events", format_args!("row `{}`", end.plus(1)), NoLog::Short { seq, end }))
        }
        Ok(_) | Err(_) => {
            let cause = NoLog::Long { seq: seq.0.cast_signed(), end };
            Err(off_log(RUNS.name, format_args!("row `{run}`, column `seq`"), cause))
        }
    }
}
