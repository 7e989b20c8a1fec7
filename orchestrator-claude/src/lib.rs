//! Runner and reviewer for `orchestrator-core` that drive the `claude` program.

pub mod outcome;
pub mod stream;
pub mod verdict;
