//! Lets the engine live through many seeded histories of faults, and holds its promises against each.
//!
//! `cargo run --release -p examples --example simulate -- --seeds 10000` ends with
//! `seeds: 10000 violations: 0`, and with exit code 1 when a promise was broken. Each seed is lived
//! through twice: with faults to the end (safety), and with faults that stop, after which the run
//! must settle (liveness). A violation is shown with the smallest history that was found for it;
//! `--seed 7` shows the whole history of one seed. `--explore 3` tries every history of every plan of
//! 1 to 3 tasks within the bound that it prints; 4 is the long form. `--coverage` prints which command
//! was given in which phase of a task and state of the run (`docs/TRANSITIONS.md`).
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use orchestrator_core::testing::{Coverage, Ended, Exploration, Explored, Simulation};

/// The head of the page of what was met.
const TRANSITIONS: &str = "# Transitions

Which commands the simulator gave to tasks in which phase, and to runs in which state. Printed by
`cargo run --release -p examples --example simulate -- --seeds 5000 --coverage`; CI compares it.

";

#[derive(Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this seed, with its history.
    #[arg(long)]
    seed: Option<u64>,
    /// Explore every plan of up to so many tasks instead.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    explore: Option<u8>,
    /// Print which commands were given in which phase and state, and say what was not met.
    #[arg(long)]
    coverage: bool,
    /// What is asked of each world.
    #[arg(long, value_enum, default_value_t = Asked::Both)]
    mode: Asked,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Asked {
    Safety,
    Liveness,
    Both,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(tasks) = args.explore {
        return explore(tasks);
    }
    let first = args.seed.unwrap_or(args.from);
    let count = if args.seed.is_some() { 1 } else { args.seeds };
    let mut violations = 0_u64;
    let mut met = Coverage::default();
    // As many as there are from the first one on: the greatest seed is a seed too.
    let seeds = (first..=u64::MAX).zip(0..count);
    let mut lived_through = 0_u64;
    for (seed, _) in seeds {
        lived_through += 1;
        let world = Simulation::new(seed);
        let worlds = match args.mode {
            Asked::Safety => vec![world.safety()],
            Asked::Liveness => vec![world],
            Asked::Both => vec![world.clone(), world.safety()],
        };
        for world in worlds {
            match lived(&world, args.seed.is_some()) {
                Some(ended) => met.absorb(ended.coverage),
                None => violations += 1,
            }
        }
    }
    let missing = if args.coverage { met.missing() } else { Vec::new() };
    if args.coverage {
        println!("{TRANSITIONS}{}", met.page());
        missing.iter().for_each(|pair| println!("not met: {pair:?}"));
    }
    println!("seeds: {lived_through} violations: {violations}");
    if violations == 0 && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn explore(most: u8) -> ExitCode {
    let mut violations = 0;
    for tasks in 1..=most {
        let bound = Exploration::of(tasks);
        println!("{bound}");
        match bound.run() {
            Ok(Explored { worlds, states, transitions }) => {
                println!("  {worlds} worlds, {states} states, {transitions} transitions");
            }
            Err(violation) => {
                violations += 1;
                println!("{violation}");
            }
        }
    }
    println!("explored: {most} violations: {violations}");
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How a world ended when all went well; prints what went wrong.
fn lived(world: &Simulation, with_history: bool) -> Option<Ended> {
    if with_history {
        println!("{:?}, {} tasks, {} steps:", world.mode, world.tasks, world.steps);
        world.history().iter().for_each(|line| println!("  {line}"));
    }
    match world.run() {
        Ok(ended) => {
            if with_history {
                println!("{ended:?}");
            }
            Some(ended)
        }
        Err(violation) => {
            let minimal = world.minimal();
            let left =
                minimal.as_ref().map_or(0, |(world, _)| world.steps as usize - world.without.len());
            let seed = violation.seed.map(|seed| format!(" (--seed {seed} shows all of it)"));
            let seed = seed.unwrap_or_default();
            println!("the smallest history found has {left} of {} steps{seed}:", world.steps);
            println!("{}", minimal.map_or(violation, |(_, smallest)| smallest));
            None
        }
    }
}
