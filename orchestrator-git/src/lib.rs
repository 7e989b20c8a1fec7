//! Workspaces and a merge queue on git, for `orchestrator-core`.
//!
//! [`GitRun`] is one run on one repository: it implements
//! [`Workspaces`](orchestrator_core::port::Workspaces) (a worktree for each task, outside the
//! repository) and [`Integrator`](orchestrator_core::port::Integrator) (candidates are merged into a
//! branch of the run, each once). It calls the `git` program, 2.39 or newer.
//!
//! What it keeps to:
//!
//! - The user's checkout, index, stash, hooks and configuration are neither read nor written, dirty
//!   or not. What is written: the branch of the run, refs below `refs/orchestrator/<run>`, objects,
//!   and git's entries of the run's worktrees.
//! - The repository is not trusted: its hooks, filters, fsmonitor, drivers and aliases do not run in
//!   the calls made here.
//! - The orchestrator commits. What an agent committed is part of the one commit that becomes of its
//!   work.
//! - Before a workspace is reset or removed, what is in it and in no change is kept under
//!   `refs/orchestrator/<run>/kept/<task>/<attempt>-<token>`; ignored files are kept where they are
//!   declared, and go when another task gets the worktree.
//!
//! The refs of a run: `task/<slug>` is a task's last candidate, `fence/<slug>` a blob with the
//! number of its last lease, `kept/<slug>/…` what is not merged, `merged` where the branch stood after
//! the last merge, and `aside` a blob with the directory of what git cannot keep.

mod apart;
mod branch;
mod config;
mod conflict;
mod convert;
mod diff;
mod error;
mod exec;
mod failures;
mod fence;
mod files;
mod forward;
mod integrator;
mod judge;
mod keep;
mod kept;
mod locks;
mod marker;
mod merger;
mod names;
mod objects;
mod oid;
mod place;
mod pool;
mod preflight;
mod programs;
mod queue;
mod refs;
mod remote;
mod repository;
mod room;
mod rules;
mod run;
mod seal;
mod secrets;
mod server;
mod setup;
mod shield;
mod spaces;
mod submodules;
mod trailers;
mod workspaces;
mod worktree;

pub use self::{
    config::{GitConfig, PortBlocks, SetUp, Strategy},
    error::GitError,
    failures::Failures,
    forward::Forwarded,
    judge::Judge,
    kept::{Kept, KeptAs, KeptWork, Retention, SetAside},
    run::GitRun,
};
