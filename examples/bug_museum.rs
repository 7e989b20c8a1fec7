//! Puts faults of other systems into this one, one after the other, and shows which suite notices.
//!
//! `cargo run --release -p examples --features mutants --example bug_museum` prints a line for each
//! and ends with `mutants: N killed: N`; the exit code is 1 when one went unnoticed. `--markdown`
//! prints what `docs/MUSEUM.md` keeps; `--only NAME` shows one fault and all that the suite says.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use orchestrator_core::mutant::Mutant;
use orchestrator_core::testing::museum::{SUITES, killer};

#[derive(Parser)]
struct Args {
    /// Print the page of the documentation.
    #[arg(long)]
    markdown: bool,
    /// Only the fault of this name, with what the suite says.
    #[arg(long)]
    only: Option<String>,
}

type Killed = Option<(&'static str, String)>;

fn main() -> ExitCode {
    let args = Args::parse();
    // Suites that notice a fault often do so by a panic, of which nobody needs to be told twice.
    std::panic::set_hook(Box::new(|_| {}));
    for suite in SUITES {
        if let Some(found) = suite.finds(None) {
            println!("without any fault the suite `{}` fails: {found}", suite.name);
            return ExitCode::FAILURE;
        }
    }
    let is_asked = |mutant: &&Mutant| args.only.as_ref().is_none_or(|name| name == mutant.name());
    let asked: Vec<Mutant> = Mutant::ALL.iter().filter(is_asked).copied().collect();
    let shown = all(&asked);
    if args.markdown {
        page(&shown);
    } else {
        lines(&shown, args.only.is_some());
    }
    let killed = shown.iter().filter(|(_, killer)| killer.is_some()).count();
    println!("mutants: {} killed: {killed}", shown.len());
    if killed == shown.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What kills each, looked for on all processors.
fn all(asked: &[Mutant]) -> Vec<(Mutant, Killed)> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some(mutant) = asked.get(next.fetch_add(1, Ordering::Relaxed)) {
            let killed = killer(*mutant);
            found.lock().unwrap_or_else(PoisonError::into_inner).push((*mutant, killed));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(mutant, _)| Mutant::ALL.iter().position(|other| other == mutant));
    found
}

/// What the page says of reports that have no row.
const ELSEWHERE: &str = "\
A report without a row is about something that this engine does not have:

- jentic-one#529, profilarr#519, ouroboros-consensus#2233: a transaction that begins as a reader and
  must become a writer. No rule of scheduling is in a store here, and the SQLite store begins every
  transaction that may write as a writer; its own tests hold that.
- ninja#2666: an edge that is turned later closes a circle. An edit of what a task depends on is refused
  when it would; `tests/engine/edits.rs` and the model hold that. With the check taken out the engine
  need not come back, so that no suite could tell.
- river#1358, in part: a message that only the database's notification brings. `Store::changed` is a
  hint; the driver's tests let it be lost.

*Our own inside* are faults in what the engine computes beside its records (heaps, lists, counters, the
log of what to undo), which no report can be about.
";

fn by(killed: &Killed) -> &'static str {
    killed.as_ref().map_or("NOT KILLED", |(suite, _)| suite)
}

fn lines(shown: &[(Mutant, Killed)], with_words: bool) {
    for (mutant, killed) in shown {
        println!(
            "{}: {} ({}, like {})",
            mutant.name(),
            by(killed),
            mutant.promise(),
            mutant.seen()
        );
        if with_words {
            println!("  {}", mutant.fault());
            println!("  {}", killed.as_ref().map_or("nobody noticed", |(_, words)| words));
        }
    }
}

fn page(shown: &[(Mutant, Killed)]) {
    println!("# The bug museum");
    println!();
    println!("Faults that did harm in systems of this kind, each put into this one on purpose");
    println!("(feature `mutants`, which no product build reaches), and the suite that notices it:");
    println!(
        "`cargo run --release -p examples --features mutants --example bug_museum -- --markdown`"
    );
    println!("prints this page.");
    println!();
    println!("| mutant | what goes wrong | breaks | like | killed by |");
    println!("| --- | --- | --- | --- | --- |");
    for (mutant, killed) in shown {
        let (name, fault) = (mutant.name(), mutant.fault());
        let (promise, seen) = (mutant.promise(), mutant.seen());
        println!("| {name} | {fault} | {promise} | {seen} | {} |", by(killed));
    }
    println!();
    println!("{ELSEWHERE}");
}
