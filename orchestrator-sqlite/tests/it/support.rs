//! A store in a folder of its own; the commits that show whether they are whole are the suite's.

use std::env;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::Store;
use orchestrator_core::testing::StoreFixture;
use orchestrator_core::testing::conformance::SharedFixture;
pub(crate) use orchestrator_core::testing::conformance::stamped::{assert_whole, run, stamped};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

/// Set where a check that cannot be made is a failure.
const SKIP_NOTHING: &str = "STORE_TEST_SKIP_NOTHING";

/// Says that something could not be checked here, past whatever keeps the output of tests.
pub(crate) fn not_checked(why: &str) {
    assert!(env::var_os(SKIP_NOTHING).is_none(), "not checked: {why}");
    // There may be nobody to tell.
    drop(writeln!(io::stderr(), "\nNOT CHECKED: {why}"));
}

/// A fresh file that is gone when this is dropped.
pub(crate) struct TempStore {
    dir: TempDir,
}

impl TempStore {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder for the test") }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("run.db")
    }

    pub(crate) async fn sqlite(&self) -> SqliteStore {
        SqliteStore::open(self.path(), SqliteOptions::new()).await.expect("the store opens")
    }

    /// A connection of somebody who looks at the file, or spoils it, without the store.
    pub(crate) fn shell(&self) -> Connection {
        Connection::open(self.path()).expect("the shell opens")
    }
}

#[async_trait]
impl StoreFixture for TempStore {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.sqlite().await)
    }
}

impl SharedFixture for TempStore {
    fn address(&self) -> String {
        self.path().to_str().expect("a folder for tests has a plain name").to_owned()
    }
}
