//! Records made anew from the log, in the place of those that cannot be read.

use orchestrator_core::port::StoreError;
use orchestrator_core::{
    Engine, EventKind, OwnerRecord, RunId, RunRecord, Seq, Snapshot, TaskRecord, Timestamp,
};
use rusqlite::{Connection, params};
use tracing::warn;

use crate::codec::{Shared, read_task};
use crate::error::corrupt;
use crate::table::SQL;
use crate::{fit, stored};

/// How many events are read at a time.
const PAGE: usize = 10_000;

/// All records as the log makes them, to its end.
pub(crate) fn from_log(
    conn: &Connection,
    run: &RunId,
    number: i64,
) -> Result<Snapshot, StoreError> {
    let engine = replay(conn, run, number)?;
    engine.snapshot().ok_or_else(|| stored::log_fault(Seq(1), stored::NoLog::Nothing))
}

/// An engine that went through the whole log.
fn replay(conn: &Connection, run: &RunId, number: i64) -> Result<Engine, StoreError> {
    let mut engine = Engine::new(run.clone());
    loop {
        let page = stored::events_within(conn, number, engine.seq(), PAGE)?;
        if page.is_empty() {
            return Ok(engine);
        }
        for stored in page {
            offer_what_it_names(&mut engine, conn, number, &stored.event.kind)?;
            engine.evolve(&stored.event);
        }
    }
}

/// A run whose tasks are not those of its plans, as the log makes it.
///
/// # Errors
/// What does not fit, when the log cannot say how it must be.
pub(crate) fn fitting(
    conn: &Connection,
    number: i64,
    found: Snapshot,
    unfit: StoreError,
) -> Result<Snapshot, StoreError> {
    let count = fit::count(&found.run.counts);
    let Ok(engine) = replay(conn, &found.run.id, number) else { return Err(unfit) };
    match engine.snapshot().filter(|must| must.tasks.len() as u64 == count) {
        Some(must) => as_log_has_it(conn, number, found.seq, must, unfit),
        // Whoever wrote the records did not make them of the log.
        None => Ok(found),
    }
}

/// Makes the plan or the edit known that an event names.
fn offer_what_it_names(
    engine: &mut Engine,
    conn: &Connection,
    number: i64,
    event: &EventKind,
) -> Result<(), StoreError> {
    let (EventKind::PlanAdded { plan: hash, .. } | EventKind::Edited { spec: hash, .. }) = event
    else {
        return Ok(());
    };
    let row = format_args!("row `{hash}`");
    let bytes = stored::checked_blob(conn, number, hash)?;
    engine.offer_entry(&bytes.ok_or_else(|| corrupt("blobs", row, stored::NoRow))?);
    Ok(())
}

/// A run of which something cannot be read: that is as the log makes it, all else as it stands.
///
/// # Errors
/// What could not be read, when the log cannot say it either.
pub(crate) fn snapshot(
    conn: &Connection,
    run: &RunId,
    number: i64,
    end: Seq,
    unreadable: StoreError,
) -> Result<Snapshot, StoreError> {
    let Ok(must) = from_log(conn, run, number) else { return Err(unreadable) };
    as_log_has_it(conn, number, end, must, unreadable)
}

fn as_log_has_it(
    conn: &Connection,
    number: i64,
    end: Seq,
    must: Snapshot,
    unreadable: StoreError,
) -> Result<Snapshot, StoreError> {
    // Records of two positions would fit neither.
    if must.seq != end {
        return Err(unreadable);
    }
    tell(&unreadable);
    let as_found = |(place, must): (i64, TaskRecord)| {
        task_at(conn, number, place).filter(|found| found.id == must.id).unwrap_or(must)
    };
    let run = read_run(conn, &must.run.id, number).filter(|found| found.plans == must.run.plans);
    Ok(Snapshot {
        seq: end,
        run: run.unwrap_or(must.run),
        tasks: (0..).zip(must.tasks).map(as_found).collect(),
        pools: stored::pools(conn, number).unwrap_or(must.pools),
        owners: stored::owners(conn, number).unwrap_or_else(|_| touched(conn, number, must.owners)),
        plans: must.plans,
    })
}

/// A run's own record in the same way.
///
/// # Errors
/// As [`snapshot`].
pub(crate) fn run_record(
    conn: &Connection,
    run: &RunId,
    number: i64,
    end: Seq,
    unreadable: StoreError,
) -> Result<RunRecord, StoreError> {
    let Ok(must) = from_log(conn, run, number) else { return Err(unreadable) };
    if must.seq != end {
        return Err(unreadable);
    }
    tell(&unreadable);
    Ok(must.run)
}

fn tell(unreadable: &StoreError) {
    let unreadable: &dyn std::error::Error = unreadable;
    warn!(error = unreadable, "what the log says is taken in the place of a record");
}

fn read_run(conn: &Connection, run: &RunId, number: i64) -> Option<RunRecord> {
    stored::run_record(conn, run, number).ok().flatten().map(|(_, record)| record)
}

/// The task at a place, if there is one that can be read.
pub(crate) fn task_at(conn: &Connection, run: i64, place: i64) -> Option<TaskRecord> {
    let read = |row: &rusqlite::Row<'_>| read_task(row, &mut Shared::default());
    let found = stored::rows(conn, &SQL.task_at, params![run, place], read);
    found.ok()?.pop().map(|(_, record)| record)
}

/// When an owner was last seen stands in no event: the later of what is there and what the log says
/// is kept.
pub(crate) fn touched(conn: &Connection, run: i64, must: Vec<OwnerRecord>) -> Vec<OwnerRecord> {
    let later = |record: OwnerRecord| {
        let touched = stored::touched_at(conn, run, record.owner.id.as_str());
        let touched = Timestamp(touched.ok().flatten().unwrap_or(0));
        OwnerRecord { touched_at: record.touched_at.max(touched), ..record }
    };
    must.into_iter().map(later).collect()
}
