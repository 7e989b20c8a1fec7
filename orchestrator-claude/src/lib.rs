//! Runner and reviewer for `orchestrator-core` that drive the `claude` program.
//!
//! [`ClaudeRunner`] works on a task and [`ClaudeReviewer`] judges a change, each with one process of
//! `claude -p` in the task's workspace. What the program says is read line by line ([`stream`]), how
//! it ended is put into one of sixteen classes ([`outcome`]), what it is told comes from strict
//! templates ([`prompt`]), and what it may do from typed values ([`policy`]). What was measured of
//! the program stands in the comments; two versions of it are known, [`KNOWN_VERSIONS`].
//!
//! What any agent program needs is apart from what is Claude's: see [`agent`]. Several reviewers
//! judge together in a [`Panel`], what is known of an [`Account`] is shared by all runs of a host,
//! and what is noticed about a run besides how it ended is a [`Signal`].

mod account;
pub mod agent;
pub mod blocked;
mod call;
mod check;
mod claude;
mod config;
mod memory;
pub mod outcome;
pub mod policy;
pub mod prompt;
mod reviewer;
mod runner;
mod signals;
mod starts;
pub mod stream;
#[cfg(feature = "testing")]
pub mod testing;
mod tree;
mod unready;
pub mod verdict;

pub use self::{
    account::{Account, AccountError, AccountState},
    check::{Checked, SetupFault},
    claude::{Claude, KNOWN_VERSIONS},
    config::{AUTH_VARIABLES, ClaudeConfig},
    reviewer::{AgentReviewer, ClaudeReviewer, Panel, PanelRule},
    runner::{AgentRunner, ClaudeRunner},
    signals::{REPEATS_NOTICED, Signal},
    starts::Starts,
};
