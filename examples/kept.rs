//! Work that runs kept: what it is, getting it back, letting go of it.
//!
//! `cargo run --example kept -- list --repo PATH` lists all that is kept below `refs/orchestrator` of
//! a repository and in no merged change: what attempts left in their worktrees, untracked files
//! included, changes that later ones replaced, and changes that were not merged; and the directories
//! with what git cannot keep. It needs nothing but the repository, whatever became of the run.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use clap::Parser as _;
use orchestrator_cli::{harmless, shell_word};
use orchestrator_git::{Kept, KeptAs, KeptWork, Retention, SetAside};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Work that runs kept: what it is, getting it back, letting go of it.
#[derive(Debug, clap::Parser)]
enum Options {
    /// List what is kept, one a line: its ref, its age, what it is. What git cannot keep is in
    /// directories, which stay until you remove them.
    List {
        /// The repository, by the path of its top level.
        #[arg(long, value_name = "PATH", default_value = ".")]
        repo: PathBuf,
        /// Only what this run kept.
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
    },
    /// Write all the files of something kept into a new directory.
    Restore {
        /// The repository, by the path of its top level.
        #[arg(long, value_name = "PATH", default_value = ".")]
        repo: PathBuf,
        /// The ref, as the list has it.
        name: String,
        /// The directory; made where it is missing, and nothing may be in it.
        into: PathBuf,
    },
    /// Let go of what a rule names, and of nothing else. A task's last change that is not merged
    /// always stays.
    Prune {
        /// The repository, by the path of its top level.
        #[arg(long, value_name = "PATH", default_value = ".")]
        repo: PathBuf,
        /// Only what this run kept.
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// Work of tasks that were merged.
        #[arg(long)]
        merged: bool,
        /// Work that is older than so many days, whatever became of its task.
        #[arg(long, value_name = "DAYS")]
        older_than: Option<u32>,
        /// Only say what would go.
        #[arg(long)]
        dry_run: bool,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match carry_out(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // The exit code says it to whoever does not read.
            drop(writeln!(io::stderr(), "error: {err:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn carry_out(options: Options) -> anyhow::Result<()> {
    let mut out = io::stdout();
    match options {
        Options::List { repo, run } => {
            let mut kept = KeptWork::open(&repo).await?.list().await?;
            kept.retain(|kept| run.as_ref().is_none_or(|run| kept.run == *run));
            kept.iter().try_for_each(|kept| writeln!(out, "{}", line(kept)))?;
            let mut aside = KeptWork::open(&repo).await?.set_aside().await?;
            aside.retain(|aside| run.as_ref().is_none_or(|run| aside.run == *run));
            aside.iter().try_for_each(|aside| writeln!(out, "{}", line_aside(aside)))?;
        }
        Options::Restore { repo, name, into } => {
            KeptWork::open(&repo).await?.restore(&name, &into).await?;
            writeln!(out, "{}", shell_word(&into.to_string_lossy()))?;
        }
        Options::Prune { repo, run, merged, older_than, dry_run } => {
            ensure!(
                merged || older_than.is_some(),
                "no rule says what may go: give --merged, --older-than DAYS, or both"
            );
            let older_than = older_than.map(|days| DAY.saturating_mul(days));
            let rule = Retention { of_merged_tasks: merged, older_than };
            let work = KeptWork::open(&repo).await?;
            let gone = if dry_run {
                work.named_by(rule, run.as_deref()).await?
            } else {
                work.prune(rule, run.as_deref()).await?
            };
            gone.iter().try_for_each(|kept| writeln!(out, "{}", line(kept)))?;
            let word = if dry_run { "would go" } else { "let go of" };
            writeln!(io::stderr(), "{} {word}", gone.len())?;
        }
    }
    Ok(())
}

/// One thing as people and programs read it: fields with tabs between them.
fn line(kept: &Kept) -> String {
    let what = match kept.what {
        KeptAs::Leftover => "left in the worktree",
        KeptAs::FormerCandidate => "change that was replaced",
        KeptAs::Candidate => "change that is not merged",
        _ => "kept",
    };
    let age = age(kept.at);
    let of = if kept.is_of_merged_task { "task merged" } else { "task not merged" };
    let name = harmless(&kept.name, 1_000);
    format!("{name}\t{age}\t{what}\t{of}")
}

/// The same of what is in no ref, but in a directory.
fn line_aside(aside: &SetAside) -> String {
    let dir = harmless(&aside.dir.to_string_lossy(), 10_000);
    let (age, task) = (age(aside.at), harmless(&aside.task, 1_000));
    format!("{dir}\t{age}\tset aside, since git cannot keep it\ttask {task}")
}

fn age(since: SystemTime) -> String {
    let age = SystemTime::now().duration_since(since).unwrap_or_default().as_secs();
    format!("{} d {} h", age / 86_400, age % 86_400 / 3_600)
}
