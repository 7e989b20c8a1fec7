//! Puts faults of other systems into this one, one after the other, and shows which suite notices.
//!
//! `cargo run --release -p examples --features mutants --example bug_museum` prints a line for each
//! and ends with `mutants: N killed: N`; the exit code is 1 when one went unnoticed. `--markdown`
//! prints what `docs/MUSEUM.md` keeps; `--only NAME` shows one fault and all that the suite says.
#![expect(clippy::print_stdout, reason = "an example prints")]

#[path = "bug_museum/sqlite.rs"]
mod sqlite;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use orchestrator_core::mutant::Mutant;
use orchestrator_core::testing::museum::{SUITES, killer};
use orchestrator_sqlite::mutant::Mutant as SqliteMutant;

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

/// A fault of the engine, the driver and the reference store, or one of the SQLite store.
#[derive(Clone, Copy)]
enum Fault {
    Core(Mutant),
    Sqlite(SqliteMutant),
}

impl Fault {
    fn all() -> impl Iterator<Item = Self> {
        let core = Mutant::ALL.iter().copied().map(Self::Core);
        core.chain(SqliteMutant::ALL.iter().copied().map(Self::Sqlite))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Core(mutant) => mutant.name(),
            Self::Sqlite(mutant) => mutant.name(),
        }
    }

    const fn promise(self) -> &'static str {
        match self {
            Self::Core(mutant) => mutant.promise(),
            Self::Sqlite(mutant) => mutant.promise(),
        }
    }

    const fn seen(self) -> &'static str {
        match self {
            Self::Core(mutant) => mutant.seen(),
            Self::Sqlite(mutant) => mutant.seen(),
        }
    }

    const fn fault(self) -> &'static str {
        match self {
            Self::Core(mutant) => mutant.fault(),
            Self::Sqlite(mutant) => mutant.fault(),
        }
    }

    fn killer(self) -> Killed {
        match self {
            Self::Core(mutant) => killer(mutant),
            Self::Sqlite(mutant) => Some((sqlite::NAME, sqlite::finds(Some(mutant))?)),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    // Suites that notice a fault often do so by a panic, of which nobody needs to be told twice.
    std::panic::set_hook(Box::new(|_| {}));
    let is_asked = |fault: &Fault| args.only.as_ref().is_none_or(|name| name == fault.name());
    let asked: Vec<Fault> = Fault::all().filter(is_asked).collect();
    if asked.is_empty() {
        println!("there is no fault of this name: `docs/MUSEUM.md` lists them");
        return ExitCode::FAILURE;
    }
    if let Some((suite, found)) = without_any(&asked) {
        println!("without any fault the suite `{suite}` fails: {found}");
        return ExitCode::FAILURE;
    }
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

/// What a suite that is needed finds when there is nothing to be found.
fn without_any(asked: &[Fault]) -> Killed {
    let is_core = |fault: &Fault| matches!(fault, Fault::Core(_));
    let suites = if asked.iter().any(is_core) { SUITES } else { &[] };
    let core = suites.iter().find_map(|suite| Some((suite.name, suite.finds(None)?)));
    if core.is_some() || asked.iter().all(is_core) {
        return core;
    }
    Some((sqlite::NAME, sqlite::finds(None)?))
}

/// What kills each, looked for on all processors.
fn all(asked: &[Fault]) -> Vec<(Fault, Killed)> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(fault) = asked.get(at) else { break };
            let killed = fault.killer();
            found.lock().unwrap_or_else(PoisonError::into_inner).push((at, *fault, killed));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(at, ..)| *at);
    found.into_iter().map(|(_, fault, killed)| (fault, killed)).collect()
}

/// What the page says of reports that have no row.
const ELSEWHERE: &str = "\
A report without a row is about something that this engine does not have:

- ninja#2666: an edge that is turned later closes a circle. An edit of what a task depends on is refused
  when it would; `tests/engine/edits.rs` and the model hold that. With the check taken out the engine
  need not come back, so that no suite could tell.
- river#1358, in part: a message that only the database's notification brings. `Store::changed` is a
  hint; the driver's tests let it be lost.

What `sqlite` kills are faults of the SQLite store itself, tried on files. A statement with `RETURNING`
whose rows are left unread is not among them: the store has no such statement.

*Our own inside* are faults in what the engine computes beside its records (heaps, lists, counters, the
log of what to undo), which no report can be about.
";

fn by(killed: &Killed) -> &'static str {
    killed.as_ref().map_or("NOT KILLED", |(suite, _)| suite)
}

fn lines(shown: &[(Fault, Killed)], with_words: bool) {
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

fn page(shown: &[(Fault, Killed)]) {
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
