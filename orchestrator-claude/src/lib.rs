//! Runner and reviewer for `orchestrator-core` that drive an agent program: `claude`, or another one.
//!
//! [`ClaudeRunner`] works on a task and [`ClaudeReviewer`] judges a change, each with one process of
//! `claude -p` in the task's workspace. How it ended is put into one of sixteen classes
//! ([`outcome`]), and what it is told comes from strict templates ([`prompt`]).
//!
//! What any agent program needs is apart from what is Claude's. [`claude`] holds all of the latter:
//! its arguments, what it says line by line, the table by which its endings are judged, its settings
//! ([`policy`]). What was measured of the program stands in the comments; two versions of it are
//! known, [`KNOWN_VERSIONS`]. For another program see [`agent`].
//!
//! Several reviewers judge together in a [`Panel`], what they find and does not block becomes
//! [`FollowUps`], what is known of an [`Account`] is shared by all runs of a host and can
//! be the limit of a pool ([`AccountCapacity`]), and what is noticed
//! about a run besides how it ended is a [`Signal`].

mod account;
pub mod agent;
pub mod blocked;
mod call;
mod chain;
pub mod claude;
mod kept;
mod memory;
pub mod outcome;
mod outfit;
mod placed;
pub mod prompt;
mod reviewer;
mod runner;
mod signals;
mod starts;
#[cfg(feature = "testing")]
pub mod testing;
mod tree;
mod unready;
pub mod verdict;
mod wall;
mod window;

pub use self::{
    account::{Account, AccountError, AccountState},
    claude::{
        AUTH_VARIABLES, Claude, ClaudeConfig, ClaudeReviewer, ClaudeRunner, KNOWN_VERSIONS, policy,
    },
    outfit::{Checked, SetupFault, SetupWarning},
    reviewer::{AgentReviewer, FollowUps, Panel, PanelRule},
    runner::AgentRunner,
    signals::{REPEATS_NOTICED, Signal},
    starts::Starts,
    window::AccountCapacity,
};
