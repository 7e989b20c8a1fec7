//! Starts, watches, limits and ends programs, whole trees of them.
//!
//! [`run`] is for programs that work for long: their output goes to files, which are followed while
//! they grow. [`capture`] is for short ones whose output is wanted in memory. Either way the program
//! gets an environment that starts empty, no input that it was not given, a session of its own and a
//! time limit; and when it ends, by itself or not, what it started is ended too.
//!
//! How far that reaches: every process of the program's session or group, every one that bears its
//! [`Marker`] in the environment, and all of their children. A process that leaves all three behind
//! at once (a new session, an emptied environment, and a parent that is gone) is out of reach.
//!
//! On top of that stand [`CommandRunner`] and [`CommandVerifier`], which carry out stages by any
//! program, and [`LocalHost`]. Only Linux is supported: what is left of a tree is found in `/proc`.

#[cfg(not(target_os = "linux"))]
compile_error!("orchestrator-process finds processes in /proc and holds them by pidfd: Linux only");

mod capture;
mod environment;
mod error;
mod follow;
mod program;
mod run;
mod spawn;
mod sweep;
mod table;

pub use self::{
    capture::{Captured, capture},
    environment::{Environment, Marker},
    error::SpawnError,
    follow::Line,
    program::{Limits, Program},
    run::{End, Ended, Flow, Watch, run},
};
