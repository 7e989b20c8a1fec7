//! Real repositories in temporary directories, worked on as a driver does.
#![expect(clippy::unwrap_used, reason = "what fails in a test has to end it")]

mod driven;
mod forward;
mod hostile;
mod judging;
mod kept;
mod killed;
mod locks;
mod merging;
mod opening;
mod pool;
mod remote;
mod rights;
mod sealing;
mod setting_up;
mod steps;
mod submodules;
mod window;
mod workspaces;
mod world;
