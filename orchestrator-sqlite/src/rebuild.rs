//! Records made anew from the log, in the place of those that cannot be read.

use orchestrator_core::port::StoreError;
use orchestrator_core::{
    Engine, EventKind, OwnerRecord, RunId, RunRecord, Seq, Snapshot, TaskRecord, Timestamp,
};
use rusqlite::{Connection, params};
use tracing::warn;

use crate::codec::{Shared, read_task};
use crate::error::corrupt;
use crate::read;
use crate::table::SQL;

/// How many events are read at a time.
const PAGE: usize = 10_000;

/// The log cannot say what the records must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoLog {
    #[error("the event is missing")]
    Gap,
    #[error("the log makes no run")]
    Nothing,
}

fn log_fault(at: Seq, cause: NoLog) -> StoreError {
    corrupt("events", format_args!("row `{at}`"), cause)
}

/// All records as the log makes them, up to a position.
pub(crate) fn from_log(
    conn: &Connection,
    run: &RunId,
    number: i64,
    end: Seq,
) -> Result<Snapshot, StoreError> {
    let engine = replay(conn, run, number, end)?;
    engine.snapshot().ok_or_else(|| log_fault(Seq(1), NoLog::Nothing))
}

/// An engine that went through the whole log.
fn replay(conn: &Connection, run: &RunId, number: i64, end: Seq) -> Result<Engine, StoreError> {
    let mut engine = Engine::new(run.clone());
    while engine.seq() < end {
        let page = read::events_within(conn, run, engine.seq(), PAGE)?;
        if page.is_empty() {
            return Err(log_fault(engine.seq().plus(1), NoLog::Gap));
        }
        for stored in page.into_iter().take_while(|stored| stored.seq <= end) {
            let next = engine.seq().plus(1);
            if stored.seq != next {
                return Err(log_fault(next, NoLog::Gap));
            }
            offer_what_it_names(&mut engine, conn, number, &stored.event.kind)?;
            engine.evolve(&stored.event);
        }
    }
    Ok(engine)
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
    let bytes = read::checked_blob(conn, number, hash)?;
    engine.offer_entry(&bytes.ok_or_else(|| corrupt("blobs", row, read::NoRow))?);
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
    let Ok(must) = from_log(conn, run, number, end) else { return Err(unreadable) };
    tell(&unreadable);
    let tasks = (0..).zip(must.tasks);
    let tasks = tasks.map(|(place, must)| task_at(conn, number, place).unwrap_or(must)).collect();
    Ok(Snapshot {
        seq: end,
        run: read_run(conn, run, number).unwrap_or(must.run),
        tasks,
        pools: read::pools(conn, number).unwrap_or(must.pools),
        owners: read::owners(conn, number).unwrap_or_else(|_| touched(conn, number, must.owners)),
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
    let Ok(must) = from_log(conn, run, number, end) else { return Err(unreadable) };
    tell(&unreadable);
    Ok(must.run)
}

fn tell(unreadable: &StoreError) {
    let unreadable: &dyn std::error::Error = unreadable;
    warn!(error = unreadable, "what the log says is taken in the place of a record");
}

fn read_run(conn: &Connection, run: &RunId, number: i64) -> Option<RunRecord> {
    read::run_record(conn, run, number).ok().flatten().map(|(_, record)| record)
}

/// The task at a place, if there is one that can be read.
pub(crate) fn task_at(conn: &Connection, run: i64, place: i64) -> Option<TaskRecord> {
    let read = |row: &rusqlite::Row<'_>| read_task(row, &mut Shared::default());
    let found = read::rows(conn, &SQL.task_at, params![run, place], read);
    found.ok()?.pop().map(|(_, record)| record)
}

/// When an owner was last seen stands in no event: the later of what is there and what the log says
/// is kept.
pub(crate) fn touched(conn: &Connection, run: i64, must: Vec<OwnerRecord>) -> Vec<OwnerRecord> {
    let later = |record: OwnerRecord| {
        let touched = read::touched_at(conn, run, record.owner.id.as_str());
        let touched = Timestamp(touched.ok().flatten().unwrap_or(0));
        OwnerRecord { touched_at: record.touched_at.max(touched), ..record }
    };
    must.into_iter().map(later).collect()
}
