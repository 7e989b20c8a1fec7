//! Examining a file: whether its pages are whole, and whether records and log say the same.

use std::collections::BTreeSet;

use orchestrator_core::port::StoreError;
use orchestrator_core::{Engine, InvalidSnapshot, OwnerRecord, RunId, Snapshot, Timestamp};
use rusqlite::{Connection, Row, Transaction};

use crate::codec::{Shared, read_exact_task, read_owner, read_plan, read_pool, read_run};
use crate::error::{REMEDY_FILE, REMEDY_RECORD, read_error};
use crate::row::Fields;
use crate::table::SQL;
use crate::{read, rebuild, stored};

/// What an examination found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Health {
    /// The runs in the file.
    pub runs: Vec<RunId>,
    /// How many events were held against the records.
    pub events: u64,
    /// What is wrong; nothing when the file is sound.
    pub faults: Vec<FileFault>,
}

/// One thing that is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// SQLite finds the file damaged.
    #[error("the file is damaged: {what}: {}", remedy(.what))]
    Damaged {
        /// What SQLite says.
        what: String,
    },
    /// A part of the file cannot be examined; the others were.
    #[error("{what} cannot be examined")]
    Unexamined {
        /// Which part.
        what: String,
        /// Why, and what helps.
        #[source]
        cause: StoreError,
    },
    /// A row belongs to a run that is not there.
    #[error(
        "a row of table `{table}` belongs to no row of `{parent}`: remove it with the `sqlite3` shell, \
         or restore a backup (see docs/SCHEMA.md)"
    )]
    Stray {
        /// The table of the row.
        table: String,
        /// The table in which it has no counterpart.
        parent: String,
    },
    /// Something of a run cannot be read, or is missing.
    #[error("run `{run}` cannot be read whole")]
    Unreadable {
        /// The run.
        run: RunId,
        /// What, why, and what helps.
        #[source]
        cause: StoreError,
    },
    /// A run has a name that none can have, so that nobody can ask for it.
    #[error("a run has no name")]
    Unnamed {
        /// Which, why, and what helps.
        #[source]
        cause: StoreError,
    },
    /// The records of a run do not fit its plans.
    #[error("the records of run `{run}` do not fit its plans: {REMEDY_RECORD}")]
    Unfit {
        /// The run.
        run: RunId,
        /// How.
        #[source]
        cause: InvalidSnapshot,
    },
    /// A record is not what the log makes of it.
    #[error("{what} of run `{run}` is not what the log says: {REMEDY_RECORD}")]
    Differs {
        /// The run.
        run: RunId,
        /// Which record.
        what: String,
    },
}

/// What helps when SQLite finds something of the file damaged.
fn remedy(what: &str) -> &'static str {
    if is_of_a_value(what) { "see what is said of the rows of that table" } else { REMEDY_FILE }
}

/// Whether a value that is against the rules of its table is all that is wrong: nobody can write one
/// who has not switched the rules off, and the row is named beside.
fn is_of_a_value(what: &str) -> bool {
    what.starts_with("CHECK constraint failed") || what.starts_with("NULL value in")
}

/// Examines all that is in the file.
pub(crate) fn examine(conn: &mut Connection) -> Result<Health, StoreError> {
    // One state of the file, whatever is committed meanwhile.
    let tx = stored::reading(conn)?;
    let mut faults = damage(&tx);
    let mut events = 0;
    let mut runs = Vec::new();
    let names = stored::each_row(&tx, "SELECT id FROM runs ORDER BY id", [], |row| {
        // Names that are none were found by then.
        runs.extend(Fields::new("runs", row).parsed::<RunId>());
        Ok(())
    });
    note("the list of runs", names, &mut faults);
    for run in &runs {
        events += examine_run(&tx, run, &mut faults);
    }
    Ok(Health { runs, events, faults })
}

/// What cannot be examined takes nothing away that was found.
fn note(what: &str, end: Result<(), StoreError>, faults: &mut Vec<FileFault>) {
    let unexamined = |cause| FileFault::Unexamined { what: what.to_owned(), cause };
    faults.extend(end.err().map(unexamined));
}

fn damage(conn: &Connection) -> Vec<FileFault> {
    const STRAYS: &str = r#"SELECT "table", parent FROM pragma_foreign_key_check LIMIT 100"#;
    let mut faults = Vec::new();
    let mut damages = BTreeSet::new();
    let end = stored::each_row(conn, "PRAGMA integrity_check", [], |row| {
        damages.insert(text(row, 0)?);
        Ok(())
    });
    damages.remove("ok");
    faults.extend(damages.into_iter().map(|what| FileFault::Damaged { what }));
    note("the pages of the file", end, &mut faults);
    let end = stored::each_row(conn, STRAYS, [], |row| {
        faults.push(FileFault::Stray { table: text(row, 0)?, parent: text(row, 1)? });
        Ok(())
    });
    note("to which run each row belongs", end, &mut faults);
    let unnamed = |row: &Row<'_>| Fields::new("runs", row).parsed::<RunId>();
    let unnamed = stored::unreadable(conn, "SELECT id FROM runs", [], unnamed);
    faults.extend(unnamed.into_iter().map(|cause| FileFault::Unnamed { cause }));
    faults
}

fn text(row: &Row<'_>, column: usize) -> Result<String, StoreError> {
    row.get(column).map_err(read_error)
}

/// Holds a run's records against its log; returns how many events were read.
fn examine_run(tx: &Transaction<'_>, run: &RunId, faults: &mut Vec<FileFault>) -> u64 {
    let (number, seq) = match stored::run_number(tx, run).map_err(read_error) {
        Ok(Some(found)) => found,
        Ok(None) => return 0,
        Err(cause) => {
            faults.push(FileFault::Unreadable { run: run.clone(), cause });
            return 0;
        }
    };
    let mut unreadable = unreadable_rows(tx, run, number);
    unreadable.extend(stored::check_end(tx, run, number, seq).err());
    let loaded = read::load_as_it_is(tx, run, number);
    let must = rebuild::from_log(tx, run, number);
    let events = must.as_ref().map_or(0, |must| must.seq.0);
    match (loaded, must) {
        (Ok(Some((snapshot, _))), must) => {
            if let Err(cause) = Engine::restore(&snapshot) {
                faults.push(FileFault::Unfit { run: run.clone(), cause });
            }
            match must {
                Ok(must) => {
                    let differs = |what| FileFault::Differs { run: run.clone(), what };
                    faults.extend(differences(&must, &snapshot).into_iter().map(differs));
                }
                Err(cause) => unreadable.push(cause),
            }
        }
        (Ok(None), _) => {}
        (Err(cause), must) => unreadable.extend([Some(cause), must.err()].into_iter().flatten()),
    }
    // What stops loading is often one of the rows that were named by then.
    let mut named = BTreeSet::new();
    unreadable.retain(|cause| named.insert(cause.to_string()));
    let unreadable = unreadable.into_iter();
    faults.extend(unreadable.map(|cause| FileFault::Unreadable { run: run.clone(), cause }));
    events
}

/// Each row of a run that cannot be understood.
fn unreadable_rows(tx: &Transaction<'_>, run: &RunId, number: i64) -> Vec<StoreError> {
    const EVENTS: &str = "SELECT seq, body FROM events WHERE run = ?1 ORDER BY seq";
    const ANSWERS: &str = "SELECT id, answer FROM commands WHERE run = ?1 ORDER BY id";
    let shared = &mut Shared::default();
    [
        stored::unreadable(tx, &SQL.run, [run.as_str()], read_run),
        stored::unreadable(tx, &SQL.plans, [number], read_plan),
        stored::unreadable(tx, &SQL.tasks, [number], |row| read_exact_task(row, shared)),
        stored::unreadable(tx, &SQL.pools, [number], read_pool),
        stored::unreadable(tx, &SQL.owners, [number], read_owner),
        stored::unreadable(tx, EVENTS, [number], stored::read_event),
        stored::unreadable(tx, ANSWERS, [number], stored::read_answer),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The records that differ, by name. When an owner was last seen is no event.
pub(crate) fn differences(replayed: &Snapshot, stored: &Snapshot) -> Vec<String> {
    let untouched = |owner: &OwnerRecord| OwnerRecord { touched_at: Timestamp(0), ..owner.clone() };
    let mut found = Vec::new();
    // The addresses of the plans are part of it; what is loaded is what they are the addresses of.
    if replayed.run != stored.run {
        found.push("the record".to_owned());
    }
    for (task, expected) in stored.tasks.iter().zip(&replayed.tasks) {
        if task != expected {
            found.push(format!("task `{}`", task.id));
        }
    }
    if stored.tasks.len() != replayed.tasks.len() {
        found.push("the number of tasks".to_owned());
    }
    if replayed.pools != stored.pools {
        found.push("a pool".to_owned());
    }
    if !replayed.owners.iter().map(untouched).eq(stored.owners.iter().map(untouched)) {
        found.push("an owner".to_owned());
    }
    found
}
