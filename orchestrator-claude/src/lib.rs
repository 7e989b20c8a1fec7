//! Runner and reviewer for `orchestrator-core` that drive the `claude` program.
//!
//! [`ClaudeRunner`] works on a task and [`ClaudeReviewer`] judges a change, each with one process of
//! `claude -p` in the task's workspace. What the program says is read line by line ([`stream`]), how
//! it ended is put into one of sixteen classes ([`outcome`]), what it is told comes from strict
//! templates ([`prompt`]), and what it may do from typed values ([`policy`]). What was measured of
//! the program stands in the comments; two versions of it are known, [`KNOWN_VERSIONS`].

pub mod blocked;
mod call;
mod check;
mod config;
pub mod outcome;
pub mod policy;
pub mod prompt;
mod reviewer;
mod runner;
pub mod stream;
#[cfg(feature = "testing")]
pub mod testing;
mod unready;
pub mod verdict;

pub use self::{
    call::KNOWN_VERSIONS,
    check::{Checked, SetupFault},
    config::{AUTH_VARIABLES, ClaudeConfig},
    reviewer::ClaudeReviewer,
    runner::ClaudeRunner,
};
