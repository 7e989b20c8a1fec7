//! A scheduling policy of your own, tested with the kit: `cargo run -p examples --example custom_policy`.
//!
//! The kit asks it about random graphs and lets simulated worlds run by it, with workers that crash,
//! hang and answer twice. A second policy is unfair on purpose, and the kit says why.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::process::ExitCode;
use std::sync::Arc;

use orchestrator_core::testing::policies;
use orchestrator_core::{SchedulingPolicy, TaskGraph};

/// What lets most others go on goes first, directly or not; of equals, the shorter task.
#[derive(Debug)]
struct MostBehind;

impl SchedulingPolicy for MostBehind {
    fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
        let mut ranks = vec![0_u64; graph.len()];
        for task in graph.in_order().into_iter().rev() {
            let estimate = graph.task(task).and_then(|spec| spec.estimate);
            let minutes = estimate.map_or(500, |estimate| estimate.as_secs() / 60).min(999);
            // In a closely knit plan there are more ways through it than numbers.
            let behind = graph.dependents(task).map(|next| ranks[next].saturating_add(1_000));
            ranks[task] = behind.fold(999 - minutes, u64::saturating_add);
        }
        ranks
    }
}

/// Unfair: tasks of one prefix go first, whatever waits for the others.
#[derive(Debug)]
struct Favourites;

impl SchedulingPolicy for Favourites {
    fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
        let is_mine = |task| graph.task(task).is_some_and(|spec| spec.id.as_str().starts_with('t'));
        (0..graph.len()).map(|task| u64::from(is_mine(task))).collect()
    }
}

fn main() -> ExitCode {
    let (mine, unfair): (Arc<dyn SchedulingPolicy>, Arc<dyn SchedulingPolicy>) =
        (Arc::new(MostBehind), Arc::new(Favourites));
    let (of_mine, of_unfair) = (policies::check(&mine, 100), policies::check(&unfair, 100));
    match &of_mine {
        Ok(()) => println!("{mine:?}: keeps every promise, in 200 worlds"),
        Err(found) => println!("{mine:?}: {found}"),
    }
    match &of_unfair {
        Ok(()) => println!("{unfair:?}: nobody noticed"),
        Err(found) => println!("{unfair:?} is caught: {found}"),
    }
    if of_mine.is_ok() && of_unfair.is_err() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
