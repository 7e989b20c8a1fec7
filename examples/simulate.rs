//! Lets the engine live through many seeded histories of faults, and holds its promises against each.
//!
//! `cargo run --release -p examples --example simulate -- --seeds 10000` ends with
//! `seeds: 10000 violations: 0`, and with exit code 1 when a promise was broken; `--seed 7` shows
//! one history.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::process::ExitCode;

use clap::Parser;
use orchestrator_core::testing::Simulation;

#[derive(Parser)]
struct Args {
    /// How many seeds, counted from 0.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// Only this seed.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seeds = args.seed.map_or(0..args.seeds, |seed| seed..seed.saturating_add(1));
    let (mut count, mut violations) = (0_u64, 0_u64);
    for seed in seeds {
        count += 1;
        match Simulation::new(seed).run() {
            Ok(ended) if args.seed.is_some() => println!("{ended:?}"),
            Ok(_) => {}
            Err(violation) => {
                violations += 1;
                println!("{violation}");
            }
        }
    }
    println!("seeds: {count} violations: {violations}");
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
