//! What is written, each in one transaction that takes the write lock at its start.

use std::collections::BTreeSet;

use orchestrator_core::port::{Commit, CommitError, StoreError};
use orchestrator_core::{
    Answer, BlobHash, CommandId, OwnerId, OwnerRecord, PlanRef, PoolRecord, RunId, RunRecord, Seq,
    TaskRecord, Timestamp,
};
use rusqlite::{Connection, Transaction, TransactionBehavior, params, params_from_iter};

use crate::codec::{owner_row, plan_row, pool_row, run_row, task_row};
use crate::error::{corrupt, end_error, read_error, strays, write_error};
use crate::log;
use crate::mutant::{Mutant, is_on};
use crate::read;
use crate::row::{Bound, int, json};
use crate::schema;
use crate::stored;
use crate::table::{RUNS, SQL};

/// The first commit of a run came without the run's record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the first commit of run `{run}` must bring the run's record")]
struct NoRunRecord {
    run: RunId,
}

/// There is no greater one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no number is left")]
struct NoNumber;

const fn failed(err: StoreError) -> CommitError {
    CommitError::Failed(err)
}

/// Takes the write lock at once: a transaction that reads first and writes later could find that
/// another one wrote in between, and would fail without waiting.
pub(crate) fn writing(conn: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    if !conn.is_autocommit() {
        // One that failed as it began or ended: nothing more could ever be written beside it.
        conn.execute_batch("ROLLBACK")?;
    }
    let behavior = if is_on(Mutant::BeginsAsReader) {
        TransactionBehavior::Deferred
    } else {
        TransactionBehavior::Immediate
    };
    conn.transaction_with_behavior(behavior)
}

pub(crate) fn commit(
    conn: &mut Connection,
    run: &RunId,
    commit: &Commit,
) -> Result<Seq, CommitError> {
    let tx = writing(conn).map_err(write_error)?;
    schema::check(&tx).map_err(failed)?;
    let known = stored::run_number(&tx, run).map_err(write_error)?;
    if let Some(command) = repeated(&tx, known.map(|(run, _)| run), &commit.commands)? {
        return Err(CommitError::Repeated { command });
    }
    let now = known.map_or(Seq(0), |(_, seq)| seq);
    if let Some((number, seq)) = known {
        // Whatever were written now would stand beside a log that lacks events or has others.
        stored::check_end(&tx, run, number, seq).map_err(failed)?;
    }
    if now != commit.expected && !is_on(Mutant::ExpectedUnseen) {
        return Err(CommitError::Moved { now });
    }
    let seq = now.plus(commit.events.len() as u64);
    if i64::try_from(seq.0).is_err() {
        return Err(CommitError::Failed(corrupt(
            RUNS.name,
            format_args!("row `{run}`, column `seq`"),
            NoNumber,
        )));
    }
    log::draw_mark(&tx).map_err(write_error)?;
    let number = put_run(&tx, run, known.map(|(run, _)| run), seq, commit)?;
    put_all(&tx, number, seq, commit).map_err(write_error)?;
    log::end_mark(&tx).map_err(write_error)?;
    tx.commit().map_err(end_error)?;
    Ok(seq)
}

/// The first command that the run has had before, or that stands twice.
fn repeated(
    tx: &Transaction<'_>,
    run: Option<i64>,
    commands: &[(CommandId, Answer)],
) -> Result<Option<CommandId>, CommitError> {
    let mut seen = BTreeSet::new();
    for (id, _) in commands {
        let is_known = match run {
            _ if is_on(Mutant::RepeatUnseen) => false,
            Some(run) => stored::has_command(tx, run, id).map_err(write_error)?,
            None => false,
        };
        if is_known || !seen.insert(id) {
            return Ok(Some(id.clone()));
        }
    }
    Ok(None)
}

/// Writes the run's row and plans, and returns the number of the run.
fn put_run(
    tx: &Transaction<'_>,
    run: &RunId,
    known: Option<i64>,
    seq: Seq,
    commit: &Commit,
) -> Result<i64, CommitError> {
    let number = match (known, &commit.records.run) {
        (Some(number), None) => {
            let mut sql = "UPDATE runs SET seq = ?2 WHERE run = ?1";
            if is_on(Mutant::RowsOfOthersWritten) {
                sql = "UPDATE runs SET seq = ?2";
            }
            let mut statement = tx.prepare_cached(sql).map_err(write_error)?;
            statement.execute(params![number, int(seq.0)]).map_err(write_error)?;
            return Ok(number);
        }
        (None, None) => {
            let cause = Box::new(NoRunRecord { run: run.clone() });
            return Err(CommitError::Failed(StoreError::Unavailable(cause)));
        }
        (Some(number), Some(record)) => {
            put_run_record(tx, seq, record).map_err(write_error)?;
            number
        }
        (None, Some(record)) => {
            let number = fresh_number(tx)?;
            let mut row = run_row(seq, record);
            row.push(Bound::from(number));
            put(tx, &SQL.new_run, row).map_err(write_error)?;
            number
        }
    };
    let plans = commit.records.run.as_ref().map_or(&[][..], |record| &record.plans);
    if stored::plans(tx, number).map_err(CommitError::Failed)? != plans {
        put_plans(tx, number, plans).map_err(write_error)?;
    }
    Ok(number)
}

/// A number that no row of any table has: those of a run that somebody deleted belong to no other.
fn fresh_number(tx: &Transaction<'_>) -> Result<i64, CommitError> {
    const TABLES: [&str; 8] =
        ["runs", "plans", "tasks", "pools", "owners", "events", "commands", "blobs"];
    let mut last = 0;
    for table in TABLES {
        let sql = format!("SELECT max(run) FROM {table}");
        let max = tx
            .prepare_cached(&sql)
            .and_then(|mut max| max.query_row([], |row| row.get::<_, Option<i64>>(0)));
        let max = max.map_err(write_error)?.unwrap_or(0);
        if max == i64::MAX {
            return Err(failed(strays(table, NoNumber)));
        }
        last = last.max(max);
    }
    Ok(last + 1)
}

pub(crate) fn put_plans(tx: &Transaction<'_>, run: i64, plans: &[PlanRef]) -> rusqlite::Result<()> {
    tx.execute("DELETE FROM plans WHERE run = ?1", [run])?;
    for (position, plan) in plans.iter().enumerate() {
        put(tx, &SQL.put_plan, plan_row(run, position, plan))?;
    }
    Ok(())
}

pub(crate) fn put_run_record(
    tx: &Transaction<'_>,
    seq: Seq,
    record: &RunRecord,
) -> rusqlite::Result<()> {
    put(tx, &SQL.put_run, run_row(seq, record))
}

pub(crate) fn put_task(
    tx: &Transaction<'_>,
    run: i64,
    place: u32,
    record: &TaskRecord,
) -> rusqlite::Result<()> {
    const REMOVE: &str = "DELETE FROM tasks WHERE run = ?1 AND place = ?2";
    let mut statement = tx.prepare_cached(&SQL.put_task)?;
    if statement.execute(params_from_iter(task_row(run, place, record)))? == 0 {
        // Another name was at this place.
        tx.execute(REMOVE, params![run, place])?;
        statement.execute(params_from_iter(task_row(run, place, record)))?;
    }
    Ok(())
}

pub(crate) fn put_pool(
    tx: &Transaction<'_>,
    run: i64,
    record: &PoolRecord,
) -> rusqlite::Result<()> {
    put(tx, &SQL.put_pool, pool_row(run, record))
}

fn put(tx: &Transaction<'_>, sql: &str, row: Vec<Bound<'_>>) -> rusqlite::Result<()> {
    tx.prepare_cached(sql)?.execute(params_from_iter(row))?;
    Ok(())
}

fn put_all(tx: &Transaction<'_>, run: i64, seq: Seq, commit: &Commit) -> rusqlite::Result<()> {
    const COMMAND: &str = "INSERT INTO commands (run, id, seq, answer) VALUES (?1, ?2, ?3, ?4)";
    const EVENT: &str = "INSERT INTO events (run, seq, body) VALUES (?1, ?2, ?3)";
    const BLOB: &str =
        "INSERT INTO blobs (run, hash, bytes) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let mut statement = tx.prepare_cached(COMMAND)?;
    for (id, answer) in &commit.commands {
        statement.execute(params![run, id.as_str(), int(seq.0), json(answer)])?;
    }
    let mut statement = tx.prepare_cached(EVENT)?;
    for (event, at) in commit.events.iter().zip(commit.expected.0 + 1..) {
        statement.execute(params![run, int(at), json(event)])?;
    }
    let mut statement = tx.prepare_cached(BLOB)?;
    for bytes in &commit.blobs {
        statement.execute(params![run, BlobHash::of(bytes).as_str(), bytes])?;
    }
    for (place, record) in &commit.records.tasks {
        put_task(tx, run, *place, record)?;
    }
    for record in &commit.records.pools {
        put_pool(tx, run, record)?;
    }
    for record in &commit.records.owners {
        put_owner(tx, run, record)?;
    }
    Ok(())
}

pub(crate) fn put_owner(
    tx: &Transaction<'_>,
    run: i64,
    record: &OwnerRecord,
) -> rusqlite::Result<()> {
    let mut before = stored::touched_at(tx, run, record.owner.id.as_str())?;
    if is_on(Mutant::RecordOverTouch) {
        before = None;
    }
    let touched_at = record.touched_at.max(Timestamp(before.unwrap_or(0)));
    put(tx, &SQL.put_owner, owner_row(run, record, touched_at))
}

/// Reads what a command got back, once nobody is writing any more.
pub(crate) fn answer(
    conn: &mut Connection,
    run: &RunId,
    command: &CommandId,
) -> Result<Option<Answer>, StoreError> {
    let tx = writing(conn).map_err(read_error)?;
    schema::check(&tx)?;
    read::answer(&tx, run, command)
}

pub(crate) fn touch(
    conn: &mut Connection,
    run: &RunId,
    owner: &OwnerId,
    now: Timestamp,
) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE owners SET touched_at_ms = ?3 WHERE run = ?1 AND id = ?2";
    const ALL: &str = "UPDATE owners SET touched_at_ms = ?3 WHERE run = ?1 AND ?2 <> ''";
    let tx = writing(conn).map_err(read_error)?;
    schema::check(&tx)?;
    let Some((run, _)) = stored::run_number(&tx, run).map_err(read_error)? else { return Ok(()) };
    let before = stored::touched_at(&tx, run, owner.as_str()).map_err(read_error)?;
    if before.is_none_or(|before| before >= now.0 && !is_on(Mutant::LateTouchWritten)) {
        return Ok(());
    }
    let sql = if is_on(Mutant::OwnersOfOthersTouched) { ALL } else { SQL };
    let write = || {
        log::draw_mark(&tx)?;
        tx.prepare_cached(sql)?.execute(params![run, owner.as_str(), int(now.0)])?;
        log::end_mark(&tx)
    };
    write().map_err(read_error)?;
    let end = if is_on(Mutant::TouchRolledBack) { tx.rollback() } else { tx.commit() };
    end.map_err(read_error)
}

pub(crate) fn prune(conn: &mut Connection, run: &RunId, up_to: Seq) -> Result<(), StoreError> {
    const SQL: &str = "DELETE FROM commands WHERE run = ?1 AND seq <= ?2";
    const ALL: &str = "DELETE FROM commands WHERE ?1 > 0 AND seq <= ?2";
    let up_to = i64::try_from(up_to.0).unwrap_or(i64::MAX);
    let tx = writing(conn).map_err(read_error)?;
    schema::check(&tx)?;
    let Some((run, _)) = stored::run_number(&tx, run).map_err(read_error)? else { return Ok(()) };
    let sql = if is_on(Mutant::RowsOfOthersDeleted) { ALL } else { SQL };
    let write = || {
        log::draw_mark(&tx)?;
        tx.prepare_cached(sql)?.execute(params![run, up_to])?;
        log::end_mark(&tx)
    };
    write().and_then(|()| tx.commit()).map_err(read_error)
}

#[cfg(test)]
mod tests {
    use orchestrator_core::testing::conformance::samples::{
        first_commit, next_commit, owner_record, run_id, task_record,
    };

    use super::*;
    use crate::open::open;
    use crate::options::SqliteOptions;

    #[test]
    fn a_file_that_must_not_grow_is_full_and_keeps_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = open(&dir.path().join("run.db"), &SqliteOptions::new()).unwrap();
        let (conn, run) = (opened.writer.conn(), run_id("r"));
        let at = commit(conn, &run, &first_commit("r", "create")).unwrap();
        let large = Commit { blobs: vec![vec![7; 500_000]], ..next_commit(at) };
        let pages: i64 = conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let limit = |conn: &Connection, pages: i64| {
            conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        };
        limit(conn, pages + 10);
        for _ in 0..2 {
            let full = commit(conn, &run, &large);
            assert!(matches!(full, Err(CommitError::Full(_))), "{full:?}");
            let now = stored::run_number(conn, &run).unwrap().map(|(_, seq)| seq);
            assert_eq!(now, Some(at));
        }
        limit(conn, pages + 1_000);
        assert_eq!(commit(conn, &run, &large).unwrap(), at.plus(1));
    }

    #[test]
    fn a_task_of_another_name_takes_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = open(&dir.path().join("run.db"), &SqliteOptions::new()).unwrap();
        let run = run_id("r");
        let mut first = first_commit("r", "create");
        first.records.tasks = vec![(0, task_record("a")), (1, task_record("b"))];
        let at = commit(opened.writer.conn(), &run, &first).unwrap();
        let mut next = next_commit(at);
        next.records.tasks = vec![(1, task_record("c"))];
        commit(opened.writer.conn(), &run, &next).unwrap();
        let loaded = read::load(&mut opened.reader, &run).unwrap().unwrap();
        assert_eq!(loaded.tasks, [task_record("a"), task_record("c")]);
    }

    /// What SQLite breaks off at any of its steps leaves nothing behind, or all where that is said
    /// to be unknown.
    #[test]
    fn a_commit_that_is_broken_off_at_any_step_leaves_all_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = open(&dir.path().join("run.db"), &SqliteOptions::new()).unwrap();
        let run = run_id("r");
        let mut at = commit(opened.writer.conn(), &run, &first_commit("r", "create")).unwrap();
        let mut next = next_commit(at);
        next.records.tasks = (0..3).map(|place| (place, task_record(&place.to_string()))).collect();
        next.records.owners = vec![owner_record("o", 1)];
        next.blobs = vec![b"blob".to_vec()];
        let before = read::load(&mut opened.reader, &run).unwrap();
        let conn = opened.writer.conn();
        let mut broken_off = 0;
        for steps in 1..100_000 {
            let mut left = steps;
            let stop = move || {
                left -= 1;
                left == 0
            };
            conn.progress_handler(1, Some(stop)).unwrap();
            let answer = commit(conn, &run, &next);
            conn.progress_handler(1, None::<fn() -> bool>).unwrap();
            let now = read::position(&mut opened.reader, &run).unwrap().unwrap();
            match answer {
                Ok(seq) => assert_eq!(seq, now),
                Err(CommitError::Failed(_)) => assert_eq!(now, at, "step {steps}"),
                // Broken off at the very last step, it is written.
                Err(CommitError::Unknown(_)) => {}
                Err(err) => panic!("step {steps}: {err:?}"),
            }
            if now > at {
                at = now;
                break;
            }
            assert_eq!(read::load(&mut opened.reader, &run).unwrap(), before, "step {steps}");
            broken_off += 1;
        }
        next.expected = at;
        assert!(broken_off > 100, "{broken_off}");

        assert!(at > Seq(1), "it gets through in the end");
        let before = read::load(&mut opened.reader, &run).unwrap();
        conn.commit_hook(Some(|| true)).unwrap();
        let refused = commit(conn, &run, &next);
        assert!(matches!(refused, Err(CommitError::Unknown(_))), "{refused:?}");
        assert_eq!(read::load(&mut opened.reader, &run).unwrap(), before);
        conn.commit_hook(None::<fn() -> bool>).unwrap();
        assert_eq!(commit(conn, &run, &next).unwrap(), at.plus(1));
    }
}
