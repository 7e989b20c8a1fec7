//! The suite of stores on the SQLite store, a fresh file for each check, and what such a file adds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use orchestrator_core::Seq;
use orchestrator_core::port::Store;
use orchestrator_core::testing::StoreFixture;
use orchestrator_core::testing::conformance::samples::{first_commit, next_commit, run_id};
use orchestrator_core::testing::conformance::{
    a_repeated_command_is_refused_and_keeps_its_first_answer,
    a_stale_commit_is_refused_and_writes_nothing, a_touch_never_goes_back,
    two_runs_in_one_store_do_not_mix,
};
use orchestrator_sqlite::mutant::{Mutant, with};
use orchestrator_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use rusqlite::Connection;
use tempfile::TempDir;

/// The suite's name.
pub(crate) const NAME: &str = "sqlite";

/// How long a writer waits that must wait.
const HELD: Duration = Duration::from_secs(1);
/// When somebody who waits for another process has not heard it, also on a busy machine.
const UNHEARD: Duration = Duration::from_secs(30);

/// What the suite finds with a fault put in, or with none.
pub(crate) fn finds(mutant: Option<Mutant>) -> Option<String> {
    let outcome = with(mutant, || catch_unwind(AssertUnwindSafe(check)));
    match outcome {
        Ok(found) => found.err().map(|err| err.to_string()),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().cloned();
            Some(said.unwrap_or_else(|| "a panic without a text".to_owned()))
        }
    }
}

fn check() -> Result<()> {
    // One thread: a fault is put in on this one, and on those of the stores that it calls.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        a_stale_commit_is_refused_and_writes_nothing(&Fixture::new()?).await;
        a_repeated_command_is_refused_and_keeps_its_first_answer(&Fixture::new()?).await;
        two_runs_in_one_store_do_not_mix(&Fixture::new()?).await;
        a_touch_never_goes_back(&Fixture::new()?).await;
        a_row_that_cannot_be_read_is_told().await?;
        a_second_owner_is_refused().await?;
        another_process_is_heard().await?;
        a_writer_waits_for_another_one().await
    })
}

/// A file that is gone when this is dropped.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("run.db")
    }

    async fn sqlite(&self) -> Result<SqliteStore> {
        // No power is lost here.
        let options = SqliteOptions::new().with_synchronous(Synchronous::Normal);
        Ok(SqliteStore::open(self.path(), options).await?)
    }
}

#[async_trait]
impl StoreFixture for Fixture {
    async fn open(&self) -> Arc<dyn Store> {
        #[expect(clippy::expect_used, reason = "a suite says what it finds by a panic")]
        Arc::new(self.sqlite().await.expect("the store opens"))
    }
}

async fn a_row_that_cannot_be_read_is_told() -> Result<()> {
    let (file, run) = (Fixture::new()?, run_id("r"));
    let store = file.sqlite().await?;
    let at = store.commit(&run, &first_commit("r", "create")).await?;
    let at = store.commit(&run, &next_commit(at)).await?;
    store.commit(&run, &next_commit(at)).await?;
    let shell = Connection::open(file.path())?;
    shell.execute("UPDATE events SET body = '{}' WHERE seq = 2", [])?;
    let read = store.events(&run, Seq(0), 9).await;
    ensure!(read.is_err(), "P5: an event is missing, and nobody is told");
    Ok(())
}

async fn a_second_owner_is_refused() -> Result<()> {
    let file = Fixture::new()?;
    let options = SqliteOptions::new().with_exclusive(true);
    let _first = SqliteStore::open(file.path(), options.clone()).await?;
    let second = SqliteStore::open(file.path(), options).await;
    ensure!(second.is_err(), "P1: two have the file for themselves");
    Ok(())
}

/// Two stores on one file tell each other no more than two processes do.
async fn another_process_is_heard() -> Result<()> {
    let (file, run) = (Fixture::new()?, run_id("r"));
    let (here, there) = (file.sqlite().await?, file.sqlite().await?);
    let at = here.commit(&run, &first_commit("r", "create")).await?;
    let mut changed = here.changed(&run, at);
    // It has looked and waits when another one commits.
    let early = tokio::time::timeout(Duration::from_millis(50), &mut changed).await;
    ensure!(early.is_err(), "a change is told that never was");
    there.commit(&run, &next_commit(at)).await?;
    let heard = tokio::time::timeout(UNHEARD, changed).await;
    ensure!(heard.is_ok(), "P15: what another process commits is not noticed");
    heard??;
    Ok(())
}

async fn a_writer_waits_for_another_one() -> Result<()> {
    let (file, run) = (Fixture::new()?, run_id("r"));
    let store = file.sqlite().await?;
    let at = store.commit(&run, &first_commit("r", "create")).await?;
    let other = Connection::open(file.path())?;
    other.execute_batch("BEGIN IMMEDIATE")?;
    let next = next_commit(at);
    let mut committing = store.commit(&run, &next);
    let early = tokio::time::timeout(HELD, &mut committing).await;
    ensure!(early.is_err(), "P5: a commit beside another writer does not wait: {early:?}");
    other.execute_batch("ROLLBACK")?;
    committing.await?;
    Ok(())
}
