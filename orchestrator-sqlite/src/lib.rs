//! A durable store for `orchestrator-core` on SQLite.
//!
//! One file keeps any number of runs, and any number of processes of one host may have it open.
//! Every commit is one transaction, on disk when it returns. The tables have readable columns, so
//! that `sqlite3 run.db 'SELECT * FROM v_progress'` works while a run goes on; `docs/SCHEMA.md`
//! explains them.
//!
//! ```
//! use orchestrator_core::port::Store;
//! use orchestrator_sqlite::{SqliteOptions, SqliteStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("run.db");
//! let store = SqliteStore::open(path, SqliteOptions::new()).await?;
//! assert!(store.runs().await?.is_empty());
//! # Ok(())
//! # }
//! ```

mod codec;
mod copy;
mod doctor;
mod error;
mod fit;
mod log;
#[cfg(feature = "mutants")]
pub mod mutant;
#[cfg(not(feature = "mutants"))]
mod mutant;
mod open;
mod options;
mod owner;
mod place;
#[cfg(test)]
mod quiet;
mod read;
mod rebuild;
mod repair;
mod row;
mod schema;
mod store;
mod stored;
mod table;
mod watch;
mod worker;
mod write;
mod writer;

pub use self::{
    copy::{CopyError, Exported},
    doctor::{FileFault, Health},
    error::OpenError,
    options::{SqliteOptions, Synchronous},
    store::SqliteStore,
};
