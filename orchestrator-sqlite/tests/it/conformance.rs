//! The suite that every store passes.

use orchestrator_core::store_conformance;

use crate::support::TempStore;

store_conformance!(TempStore::new());
