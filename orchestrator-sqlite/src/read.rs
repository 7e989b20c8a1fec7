//! What is read, each in one transaction.

use std::thread::{self, ScopedJoinHandle};

use orchestrator_core::port::StoreError;
use orchestrator_core::{
    Answer, BlobHash, CommandId, OwnerRecord, PlanRef, PoolRecord, RunId, RunRecord, Seq, Snapshot,
    StoredEvent, TaskId, TaskRecord,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, Transaction, params};

use crate::codec::{Shared, read_owner, read_plan, read_pool, read_run, read_task};
use crate::error::{corrupt, read_error};
use crate::fit;
use crate::mutant::{Mutant, is_on};
use crate::rebuild;
use crate::row::Fields;
use crate::schema;
use crate::table::{SQL, TASKS};
use crate::worker::Gone;

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

/// For how many tasks memory is taken before they are read: whoever made the file may say anything.
const TASKS_AT_ONCE_MAX: usize = 2_000_000;

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

pub(crate) fn load(conn: &mut Connection, run: &RunId) -> Result<Option<Snapshot>, StoreError> {
    let tx = reading(conn)?;
    let Some((number, seq)) = run_number(&tx, run).map_err(read_error)? else { return Ok(None) };
    match load_as_it_is(&tx, run, number) {
        Ok(Some((snapshot, Some(unfit)))) => {
            rebuild::fitting(&tx, number, snapshot, unfit).map(Some)
        }
        Ok(loaded) => Ok(loaded.map(|(snapshot, _)| snapshot)),
        // What the log knows too stops nobody.
        Err(unreadable @ StoreError::Corrupt { .. }) => {
            rebuild::snapshot(&tx, run, number, seq, unreadable).map(Some)
        }
        Err(err) => Err(err),
    }
}

/// Reads a run whose rows can all be understood, and which of them does not fit its plans.
pub(crate) fn load_as_it_is(
    tx: &Transaction<'_>,
    run: &RunId,
    number: i64,
) -> Result<Option<(Snapshot, Option<StoreError>)>, StoreError> {
    let Some((seq, run)) = run_record(tx, run, number)? else { return Ok(None) };
    let plans = run.plans.iter().map(|plan| plan_blob(tx, number, plan));
    let plans: Vec<_> = plans.collect::<Result<_, _>>()?;
    // The plans of a large run are large too, and their hashes take a good part of the time.
    let check = || {
        plans.iter().zip(&run.plans).try_for_each(check_plan)?;
        Ok::<_, StoreError>(fit::names(&plans))
    };
    let (tasks, checked) = thread::scope(|scope| {
        let checking = thread::Builder::new().spawn_scoped(scope, check);
        let tasks = all_tasks(tx, number);
        // Where there is no thread to be had, this one does both.
        (tasks, checking.map_or_else(|_| Ok(check()), ScopedJoinHandle::join))
    });
    let tasks = tasks?;
    let names = checked.map_err(|_| StoreError::Unavailable(Box::new(Gone)))??;
    let unfit = names.and_then(|names| fit::unfit(&names, &tasks, fit::count(&run.counts)));
    let (pools, owners) = (pools(tx, number)?, owners(tx, number)?);
    Ok(Some((Snapshot { seq, run, tasks, pools, owners, plans }, unfit)))
}

/// Reads all tasks of a run; each must be at its place.
fn all_tasks(conn: &Connection, run: i64) -> Result<Vec<TaskRecord>, StoreError> {
    const LAST: &str = "SELECT max(place) FROM tasks WHERE run = ?1";
    let last =
        conn.prepare_cached(LAST).and_then(|mut last| last.query_row([run], |row| row.get(0)));
    let last: Option<i64> = last.map_err(read_error)?;
    // A list that grows while it is filled is copied again and again.
    let count = last.and_then(|last| usize::try_from(last).ok()).map_or(0, |last| last + 1);
    let mut tasks = Vec::with_capacity(count.min(TASKS_AT_ONCE_MAX));
    let mut shared = Shared::default();
    each_row(conn, &SQL.tasks, [run], |row| {
        let (found, task) = read_task(row, &mut shared)?;
        let expected = tasks.len();
        if usize::try_from(found) != Ok(expected) {
            let row = format_args!("the row with place {expected}");
            return Err(corrupt(TASKS.name, row, NoRow));
        }
        tasks.push(task);
        Ok(())
    })?;
    Ok(tasks)
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

pub(crate) fn header(
    conn: &mut Connection,
    run: &RunId,
) -> Result<Option<(Seq, RunRecord)>, StoreError> {
    let tx = reading(conn)?;
    let Some((number, seq)) = run_number(&tx, run).map_err(read_error)? else { return Ok(None) };
    match run_record(&tx, run, number) {
        Err(unreadable @ StoreError::Corrupt { .. }) => {
            let record = rebuild::run_record(&tx, run, number, seq, unreadable)?;
            Ok(Some((seq, record)))
        }
        read => read,
    }
}

pub(crate) fn task(
    conn: &mut Connection,
    run: &RunId,
    task: &TaskId,
) -> Result<Option<TaskRecord>, StoreError> {
    let tx = reading(conn)?;
    let Some((number, _)) = run_number(&tx, run).map_err(read_error)? else { return Ok(None) };
    let read = |row: &Row<'_>| read_task(row, &mut Shared::default());
    let mut found = rows(&tx, &SQL.task, params![number, task.as_str()], read)?;
    Ok(found.pop().map(|(_, record)| record))
}

pub(crate) fn events(
    conn: &mut Connection,
    run: &RunId,
    after: Seq,
    limit: usize,
) -> Result<Vec<StoredEvent>, StoreError> {
    let tx = reading(conn)?;
    let Some((number, seq)) = run_number(&tx, run).map_err(read_error)? else {
        return Ok(Vec::new());
    };
    let events = events_within(&tx, number, after, limit)?;
    let end = events.last().map_or(after, |last| last.seq);
    if events.len() < limit && end < seq {
        // The last ones are missing, where no event after them can tell.
        rebuild::check_end(&tx, run, number, seq)?;
    }
    Ok(events)
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
            return Err(rebuild::log_fault(expected, rebuild::NoLog::Gap));
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

/// The number of a run and where its log ends; `None` when there is no such run.
pub(crate) fn whole_log(
    conn: &mut Connection,
    run: &RunId,
) -> Result<Option<(i64, Seq)>, StoreError> {
    let tx = reading(conn)?;
    let Some((number, seq)) = run_number(&tx, run).map_err(read_error)? else { return Ok(None) };
    let end = log_end(&tx, number).map_err(read_error)?;
    if end < seq {
        rebuild::check_end(&tx, run, number, seq)?;
    }
    Ok(Some((number, end)))
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

pub(crate) fn blob(
    conn: &mut Connection,
    run: &RunId,
    hash: &BlobHash,
) -> Result<Option<Vec<u8>>, StoreError> {
    let tx = reading(conn)?;
    match run_number(&tx, run).map_err(read_error)? {
        Some((number, _)) => checked_blob(&tx, number, hash),
        None => Ok(None),
    }
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

fn unchecked_blob(
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

fn check_blob(bytes: &[u8], hash: &BlobHash) -> Result<(), StoreError> {
    let found = BlobHash::of(bytes);
    if found == *hash {
        return Ok(());
    }
    Err(corrupt("blobs", format_args!("row `{hash}`, column `bytes`"), Altered { found }))
}

fn plan_blob(conn: &Connection, run: i64, plan: &PlanRef) -> Result<Vec<u8>, StoreError> {
    let row = format_args!("row `{}`", plan.blob);
    unchecked_blob(conn, run, &plan.blob)?.ok_or_else(|| corrupt("blobs", row, NoRow))
}

fn check_plan((bytes, plan): (&Vec<u8>, &PlanRef)) -> Result<(), StoreError> {
    check_blob(bytes, &plan.blob)
}

pub(crate) fn answer(
    conn: &Connection,
    run: &RunId,
    command: &CommandId,
) -> Result<Option<Answer>, StoreError> {
    const SQL: &str = "SELECT commands.id, answer FROM commands JOIN runs USING (run) \
                       WHERE runs.id = ?1 AND commands.id = ?2";
    Ok(rows(conn, SQL, [run.as_str(), command.as_str()], read_answer)?.pop())
}

/// An answer, of its command's name and the answer.
pub(crate) fn read_answer(row: &Row<'_>) -> Result<Answer, StoreError> {
    let fields = &mut Fields::new("commands", row);
    fields.parsed::<CommandId>()?;
    fields.json()
}

/// The runs whose names are names; others cannot be asked for.
pub(crate) fn runs(conn: &Connection) -> Result<Vec<RunId>, StoreError> {
    const SQL: &str = "SELECT id FROM runs ORDER BY id";
    let names = rows(conn, SQL, [], |row| Ok(Fields::new("runs", row).parsed::<RunId>().ok()))?;
    Ok(names.into_iter().flatten().collect())
}

/// Where a run stands.
pub(crate) fn position(conn: &mut Connection, run: &RunId) -> Result<Option<Seq>, StoreError> {
    let number = run_number(conn, run).map_err(read_error)?;
    Ok(number.map(|(_, seq)| seq))
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
