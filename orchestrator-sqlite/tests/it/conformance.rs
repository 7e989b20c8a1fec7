//! The suite that every store passes.

use std::sync::Arc;

use orchestrator_core::port::Store;
use orchestrator_core::{store_conformance, store_process_conformance};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};

use crate::support::TempStore;

store_conformance!(TempStore::new());

async fn open(path: String) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, SqliteOptions::new()).await.expect("the store opens"))
}

store_process_conformance!(TempStore::new(), open);
