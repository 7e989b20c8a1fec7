//! What the store answers, each in one transaction, put right from the log where a row is bad.

use std::thread::{self, ScopedJoinHandle};

use orchestrator_core::port::StoreError;
use orchestrator_core::{
    Answer, BlobHash, CommandId, PlanRef, RunId, RunRecord, Seq, Snapshot, StoredEvent, TaskId,
    TaskRecord,
};
use rusqlite::{Connection, Row, Transaction, params};

use crate::codec::{Shared, read_task};
use crate::error::{corrupt, read_error};
use crate::row::Fields;
use crate::stored::{
    NoRow, check_blob, checked_blob, each_row, events_within, log_end, owners, plan_blob, pools,
    read_answer, reading, rows, run_number, run_record,
};
use crate::table::{SQL, TASKS};
use crate::worker::Gone;
use crate::{fit, rebuild, stored};

/// For how many tasks memory is taken before they are read: whoever made the file may say anything.
const TASKS_AT_ONCE_MAX: usize = 2_000_000;

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
        stored::check_end(&tx, run, number, seq)?;
    }
    Ok(events)
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
        stored::check_end(&tx, run, number, seq)?;
    }
    Ok(Some((number, end)))
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
