//! Runner and reviewer for `orchestrator-core` that drive the `claude` program.

pub mod blocked;
pub mod outcome;
pub mod prompt;
pub mod stream;
pub mod verdict;
