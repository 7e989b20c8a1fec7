//! Examining a file: whether its pages are whole, and whether records and log say the same.

use orchestrator_core::port::StoreError;
use orchestrator_core::{
    BlobHash, Engine, InvalidSnapshot, OwnerRecord, RunId, Seq, Snapshot, Timestamp,
};
use rusqlite::{Connection, Row};

use crate::error::read_error;
use crate::read;

/// How many events are read at a time.
const PAGE: usize = 10_000;

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
    #[error("the file is damaged: {what}")]
    Damaged {
        /// What SQLite says.
        what: String,
    },
    /// A row belongs to a run that is not there.
    #[error("a row of table `{table}` belongs to no row of `{parent}`")]
    Stray {
        /// The table of the row.
        table: String,
        /// The table in which it has no counterpart.
        parent: String,
    },
    /// Something of a run cannot be read.
    #[error("run `{run}` cannot be read whole")]
    Unreadable {
        /// The run.
        run: RunId,
        /// What, why, and what helps.
        #[source]
        cause: StoreError,
    },
    /// The records of a run do not fit its plans.
    #[error("the records of run `{run}` do not fit its plans")]
    Unfit {
        /// The run.
        run: RunId,
        /// How.
        #[source]
        cause: InvalidSnapshot,
    },
    /// An event is missing.
    #[error("run `{run}` stands at {seq}, but its log has no event {missing}")]
    Gap {
        /// The run.
        run: RunId,
        /// Where it stands.
        seq: Seq,
        /// The first event that is not there.
        missing: Seq,
    },
    /// A record is not what the log makes of it.
    #[error("{what} of run `{run}` is not what the log says")]
    Differs {
        /// The run.
        run: RunId,
        /// Which record.
        what: String,
    },
}

/// Examines all that is in the file.
pub(crate) fn examine(conn: &mut Connection) -> Result<Health, StoreError> {
    let mut faults = damage(conn)?;
    let mut health = Health { runs: read::runs(conn)?, events: 0, faults: Vec::new() };
    for run in &health.runs {
        match read::load(conn, run) {
            Ok(Some(snapshot)) => health.events += examine_run(conn, run, &snapshot, &mut faults),
            // It was there when the runs were listed, and runs do not vanish.
            Ok(None) => {}
            Err(cause) => faults.push(FileFault::Unreadable { run: run.clone(), cause }),
        }
    }
    health.faults = faults;
    Ok(health)
}

fn damage(conn: &Connection) -> Result<Vec<FileFault>, StoreError> {
    let damaged = |row: &Row<'_>| Ok(FileFault::Damaged { what: text(row, 0)? });
    let mut faults = read::rows(conn, "PRAGMA integrity_check", [], damaged)?;
    faults.retain(|fault| !matches!(fault, FileFault::Damaged { what } if what == "ok"));
    let stray =
        |row: &Row<'_>| Ok(FileFault::Stray { table: text(row, 0)?, parent: text(row, 1)? });
    const STRAYS: &str = r#"SELECT "table", parent FROM pragma_foreign_key_check LIMIT 100"#;
    faults.extend(read::rows(conn, STRAYS, [], stray)?);
    Ok(faults)
}

fn text(row: &Row<'_>, column: usize) -> Result<String, StoreError> {
    row.get(column).map_err(read_error)
}

/// Holds a run's records against its log; returns how many events were read.
fn examine_run(
    conn: &mut Connection,
    run: &RunId,
    snapshot: &Snapshot,
    faults: &mut Vec<FileFault>,
) -> u64 {
    if let Err(cause) = Engine::restore(snapshot) {
        faults.push(FileFault::Unfit { run: run.clone(), cause });
        return 0;
    }
    match replay(conn, run, snapshot) {
        Ok(engine) if engine.seq() == snapshot.seq => {
            let differs = |what| FileFault::Differs { run: run.clone(), what };
            faults.extend(differences(&engine, snapshot).into_iter().map(differs));
            engine.seq().0
        }
        Ok(engine) => {
            let (seq, missing) = (snapshot.seq, engine.seq().plus(1));
            faults.push(FileFault::Gap { run: run.clone(), seq, missing });
            engine.seq().0
        }
        Err(cause) => {
            faults.push(FileFault::Unreadable { run: run.clone(), cause });
            0
        }
    }
}

/// An engine that went through the log, up to the snapshot or the first gap.
fn replay(conn: &mut Connection, run: &RunId, snapshot: &Snapshot) -> Result<Engine, StoreError> {
    let mut engine = Engine::new(run.clone());
    for plan in &snapshot.plans {
        // A plan that is none was found by then.
        engine.offer_entry(plan);
    }
    loop {
        let page = read::events(conn, run, engine.seq(), PAGE)?;
        let before = engine.seq();
        for stored in page {
            if stored.seq > snapshot.seq || stored.seq != engine.seq().plus(1) {
                return Ok(engine);
            }
            engine.evolve(&stored.event);
        }
        if engine.seq() == before {
            return Ok(engine);
        }
    }
}

/// The records that differ, by name. When an owner was last seen is no event.
fn differences(engine: &Engine, stored: &Snapshot) -> Vec<String> {
    let Some(replayed) = engine.snapshot() else { return vec!["the record".to_owned()] };
    let untouched = |owner: &OwnerRecord| OwnerRecord { touched_at: Timestamp(0), ..owner.clone() };
    let mut found = Vec::new();
    if replayed.run != stored.run {
        found.push("the record".to_owned());
    }
    let address =
        |plans: &[Vec<u8>]| plans.iter().map(|plan| BlobHash::of(plan)).collect::<Vec<_>>();
    if address(&replayed.plans) != address(&stored.plans) {
        found.push("a plan".to_owned());
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
