//! What this machine can hold programs to: `cargo run --example doctor`.
//!
//! One thing a line, and what would help where something is missing. `--workers N` also checks that
//! this process may have enough open files for N programs at once; the exit code is 1 if it may not.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use orchestrator_process::{Confiner as _, LocalConfiner, raise_open_files};

/// What to look at.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Programs at once.
    #[arg(long, default_value_t = 64)]
    workers: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let files = raise_open_files(options.workers);
    let open_files = match &files {
        Ok(allowed) => format!("open files: {allowed}, enough for {} programs", options.workers),
        Err(err) => format!("open files: {err}"),
    };
    let confiner = LocalConfiner::detected();
    // Nobody may be there to read it; the exit code says it too.
    drop(writeln!(io::stdout(), "{}{open_files}", confiner.abilities()));
    if files.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
