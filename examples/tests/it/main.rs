//! The `full_pipeline` example as a person uses it: the built program, real git, real processes.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod crash;
mod input;
mod outcome;
mod program;
mod real_claude;
mod repository;
mod stop;
