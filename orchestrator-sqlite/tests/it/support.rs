//! A store in a folder of its own.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::Store;
use orchestrator_core::testing::StoreFixture;
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

/// A fresh file that is gone when this is dropped.
pub(crate) struct TempStore {
    dir: TempDir,
}

impl TempStore {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder for the test") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("run.db")
    }

    pub(crate) async fn sqlite(&self) -> SqliteStore {
        SqliteStore::open(self.path(), SqliteOptions::new()).await.expect("the store opens")
    }
}

#[async_trait]
impl StoreFixture for TempStore {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.sqlite().await)
    }
}
