//! Writing records anew from the log: what the log says is what they must be.

use orchestrator_core::port::StoreError;
use orchestrator_core::{OwnerRecord, RunId, Seq, Snapshot, TaskRecord};
use rusqlite::{Connection, Row, Transaction, params};

use crate::codec::{Shared, read_exact_task};
use crate::doctor::differences;
use crate::error::{corrupt, end_error, read_error};
use crate::table::{RUNS, SQL};
use crate::{log, read, rebuild, schema, stored, write};

/// Two runs have one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log of another row says that its run has this name")]
struct NameTaken;

/// Writes each record that is not what the log says anew; the names of those.
pub(crate) fn repair(conn: &mut Connection, run: &RunId) -> Result<Vec<String>, StoreError> {
    let tx = write::writing(conn).map_err(read_error)?;
    schema::check(&tx)?;
    let known = stored::run_number(&tx, run).map_err(read_error)?;
    let Some((number, seq)) = known else { return Ok(Vec::new()) };
    let must = rebuild::from_log(&tx, run, number)?;
    check_behind(&tx, number, seq, &must)?;
    let mut mended = Vec::new();
    log::draw_mark(&tx).map_err(read_error)?;
    mend_run(&tx, number, &must, &mut mended)?;
    mend_tasks(&tx, number, &must.tasks, &mut mended)?;
    mend_pools(&tx, number, &must, &mut mended)?;
    mend_owners(&tx, number, &must.owners, &mut mended)?;
    log::end_mark(&tx).map_err(read_error)?;
    tx.commit().map_err(|err| StoreError::Unavailable(Box::new(end_error(err))))?;
    Ok(mended)
}

/// A run ahead of its log has lost events, of which the records still tell: those are not undone.
/// Where the records are what the log makes of them, only its position is wrong.
fn check_behind(
    tx: &Transaction<'_>,
    number: i64,
    seq: Seq,
    must: &Snapshot,
) -> Result<(), StoreError> {
    let is_ahead = seq > must.seq && i64::try_from(seq.0).is_ok();
    if !is_ahead {
        return Ok(());
    }
    match read::load_as_it_is(tx, &must.run.id, number) {
        Ok(Some((found, _))) if differences(must, &found).is_empty() => Ok(()),
        _ => stored::check_end(tx, &must.run.id, number, seq),
    }
}

/// Gives a run the name that it has in its log: records are written by name, and under another one
/// would be those of another run.
fn name_run(tx: &Transaction<'_>, number: i64, name: &RunId) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE runs SET id = ?2 WHERE run = ?1";
    match stored::run_number(tx, name).map_err(read_error)? {
        Some((other, _)) if other != number => {
            Err(corrupt(RUNS.name, format_args!("row `{name}`, column `id`"), NameTaken))
        }
        Some(_) => Ok(()),
        None => tx.execute(SQL, params![number, name.as_str()]).map(drop).map_err(read_error),
    }
}

fn mend_run(
    tx: &Transaction<'_>,
    number: i64,
    must: &Snapshot,
    mended: &mut Vec<String>,
) -> Result<(), StoreError> {
    let found = stored::run_record(tx, &must.run.id, number);
    if matches!(&found, Ok(Some((seq, run))) if (*seq, run) == (must.seq, &must.run)) {
        return Ok(());
    }
    name_run(tx, number, &must.run.id)?;
    write::put_run_record(tx, must.seq, &must.run).map_err(read_error)?;
    write::put_plans(tx, number, &must.run.plans).map_err(read_error)?;
    mended.push("the run".to_owned());
    Ok(())
}

fn mend_tasks(
    tx: &Transaction<'_>,
    number: i64,
    must: &[TaskRecord],
    mended: &mut Vec<String>,
) -> Result<(), StoreError> {
    const REMOVE: &str = "DELETE FROM tasks WHERE run = ?1 AND place = ?2";
    const PLACES: &str = "SELECT place FROM tasks WHERE run = ?1";
    let places =
        stored::rows(tx, PLACES, [number], |row| row.get::<_, i64>(0).map_err(read_error))?;
    let mut is_there = vec![false; must.len()];
    for place in places {
        let at = usize::try_from(place).ok().filter(|at| *at < must.len());
        let found = exact_task_at(tx, number, place);
        match at.and_then(|at| Some((at, must.get(at)?))) {
            Some((at, expected)) if found.as_ref() == Some(expected) => {
                is_there.iter_mut().skip(at).take(1).for_each(|there| *there = true);
            }
            // All that is wrong goes first, or else two that have each other's names could not be
            // put right.
            Some(_) | None => {
                tx.execute(REMOVE, params![number, place]).map_err(read_error)?;
            }
        }
    }
    for ((place, record), is_there) in (0..).zip(must).zip(is_there) {
        if !is_there {
            write::put_task(tx, number, place, record).map_err(read_error)?;
            mended.push(format!("task `{}`", record.id));
        }
    }
    Ok(())
}

/// The task at a place, if nothing of its row is wrong.
fn exact_task_at(conn: &Connection, run: i64, place: i64) -> Option<TaskRecord> {
    let read = |row: &Row<'_>| read_exact_task(row, &mut Shared::default());
    let found = stored::rows(conn, &SQL.task_at, params![run, place], read);
    found.ok()?.pop().map(|(_, record)| record)
}

fn mend_pools(
    tx: &Transaction<'_>,
    number: i64,
    must: &Snapshot,
    mended: &mut Vec<String>,
) -> Result<(), StoreError> {
    if stored::pools(tx, number).is_ok_and(|found| found == must.pools) {
        return Ok(());
    }
    tx.execute("DELETE FROM pools WHERE run = ?1", [number]).map_err(read_error)?;
    for record in &must.pools {
        write::put_pool(tx, number, record).map_err(read_error)?;
    }
    mended.push("the pools".to_owned());
    Ok(())
}

/// When an owner was last seen is no matter of the log.
fn mend_owners(
    tx: &Transaction<'_>,
    number: i64,
    must: &[OwnerRecord],
    mended: &mut Vec<String>,
) -> Result<(), StoreError> {
    let found = stored::owners(tx, number);
    let same = |found: &[OwnerRecord]| {
        found.len() == must.len()
            && found.iter().zip(must).all(|(found, must)| {
                OwnerRecord { touched_at: must.touched_at, ..found.clone() } == *must
            })
    };
    if found.is_ok_and(|found| same(&found)) {
        return Ok(());
    }
    let touched = rebuild::touched(tx, number, must.to_vec());
    tx.execute("DELETE FROM owners WHERE run = ?1", [number]).map_err(read_error)?;
    for record in &touched {
        write::put_owner(tx, number, record).map_err(read_error)?;
    }
    mended.push("the owners".to_owned());
    Ok(())
}
