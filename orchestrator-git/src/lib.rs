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
//! Where things are, each knowing only those before it: `git` calls git on one repository; `branch` is
//! what is merged into, and the fences of it; `worktrees` is where tasks are worked on; `change` makes
//! commits of work; `merge` brings them onto the branch. [`GitRun`] is made of these, `workspaces`
//! and `integrator` are its two ports, `judge`, `kept` and `forward` what else it can do. `names` and
//! `files` are for all of them.
//!
//! The refs of a run: `task/<slug>` is a task's last candidate, `fence/<slug>` a blob with the
//! number of its last lease, `kept/<slug>/…` what is not merged, `merged` where the branch stood after
//! the last merge, and `aside` a blob with the directory of what git cannot keep.

mod branch;
mod change;
mod config;
mod error;
mod files;
mod forward;
mod git;
mod integrator;
mod judge;
mod kept;
mod merge;
mod names;
mod run;
mod workspaces;
mod worktrees;

pub use self::{
    config::{GitConfig, PortBlocks, SetUp, Strategy},
    error::GitError,
    forward::Forwarded,
    judge::{failures::Failures, verifier::Judge},
    kept::{Kept, KeptAs, KeptWork, Retention, SetAside},
    run::GitRun,
};
