//! Looks after the file of a run: `cargo run --example store -- doctor run.db`.
//!
//! `doctor` examines the file, prints what is wrong and what helps, and changes nothing; `repair`
//! writes the records anew that cannot be read or are not what the log says; `backup` and `export`
//! copy the file and the log of a run. All of them may be used while a run goes on. The exit code is
//! 1 when something is wrong with the file, and 2 when it could not be looked at.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use orchestrator_core::RunId;
use orchestrator_core::port::Store as _;
use orchestrator_sqlite::{Health, SqliteOptions, SqliteStore};

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Examine the file and print what is wrong.
    Doctor {
        /// The file of the run.
        file: PathBuf,
    },
    /// Write records anew from the log, then examine the file.
    Repair {
        /// The file of the run.
        file: PathBuf,
    },
    /// Copy the file as it stands at one moment.
    Backup {
        /// The file of the run.
        file: PathBuf,
        /// The copy, which must not be there yet.
        to: PathBuf,
    },
    /// Write the log of a run as lines of JSON.
    Export {
        /// The file of the run.
        file: PathBuf,
        /// The lines, in a file that must not be there yet.
        to: PathBuf,
        /// Which run, where the file has several.
        #[arg(long)]
        run: Option<RunId>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match carry_out(Args::parse().what).await {
        Ok(is_sound) => ExitCode::from(u8::from(!is_sound)),
        Err(err) => {
            eprintln!("{err:#}");
            ExitCode::from(2)
        }
    }
}

/// Does what was asked for; returns whether all is well with the file.
async fn carry_out(what: What) -> anyhow::Result<bool> {
    match what {
        What::Doctor { file } => examine(&open(&file).await?).await,
        What::Repair { file } => {
            let store = open(&file).await?;
            for run in store.runs().await? {
                // What the log cannot tell is among what the examination prints.
                for record in store.repair(&run).await.unwrap_or_default() {
                    println!("run `{run}`: {record} was written anew");
                }
            }
            examine(&store).await
        }
        What::Backup { file, to } => {
            open(&file).await?.backup(&to).await?;
            println!("copied to `{}`", to.display());
            Ok(true)
        }
        What::Export { file, to, run } => {
            let store = open(&file).await?;
            let run = run_of(&store, run).await?;
            let exported = store.export(&run, &to).await?;
            println!("{} events of run `{run}` written to `{}`", exported.events, to.display());
            for seq in &exported.unreadable {
                println!("event {seq} is no JSON and was written as it is");
            }
            Ok(exported.unreadable.is_empty())
        }
    }
}

async fn open(file: &Path) -> anyhow::Result<SqliteStore> {
    // A store that is not there would be made.
    std::fs::metadata(file).with_context(|| format!("cannot open `{}`", file.display()))?;
    Ok(SqliteStore::open(file, SqliteOptions::new()).await?)
}

/// The run that is asked for, or the only one.
async fn run_of(store: &SqliteStore, asked: Option<RunId>) -> anyhow::Result<RunId> {
    let runs = store.runs().await?;
    let names: Vec<&str> = runs.iter().map(RunId::as_str).collect();
    match (asked, &runs[..]) {
        (Some(run), runs) if runs.contains(&run) => Ok(run),
        (Some(run), _) => anyhow::bail!("the file has no run `{run}`, but: {}", names.join(", ")),
        (None, [run]) => Ok(run.clone()),
        (None, []) => anyhow::bail!("the file has no run"),
        (None, _) => anyhow::bail!("name one of the runs with `--run`: {}", names.join(", ")),
    }
}

async fn examine(store: &SqliteStore) -> anyhow::Result<bool> {
    let Health { runs, events, faults, .. } = store.doctor().await?;
    for fault in &faults {
        let fault: &dyn std::error::Error = fault;
        let chain = std::iter::successors(Some(fault), |err| err.source());
        println!("{}", chain.map(ToString::to_string).collect::<Vec<_>>().join(": "));
    }
    let verdict =
        if faults.is_empty() { "sound".to_owned() } else { format!("{} faults", faults.len()) };
    println!("{} runs, {events} events held against the records: {verdict}", runs.len());
    Ok(faults.is_empty())
}
