//! A store in a folder of its own.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::Store;
use orchestrator_core::testing::StoreFixture;
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

/// A fresh file that is gone when this is dropped.
pub struct TempStore {
    dir: TempDir,
}

impl TempStore {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("run.db")
    }

    pub async fn sqlite(&self) -> SqliteStore {
        SqliteStore::open(self.path(), SqliteOptions::new()).await.unwrap()
    }
}

#[async_trait]
impl StoreFixture for TempStore {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.sqlite().await)
    }
}
