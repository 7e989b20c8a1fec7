//! The suite that every store passes.

mod support;

use orchestrator_core::store_conformance;

store_conformance!(support::TempStore::new());
