//! The engine in a seeded world of faults.
#![cfg(feature = "testing")]

use orchestrator_core::testing::{Coverage, Simulation};

/// Histories in the tests; `cargo run --release -p examples --example simulate` lives through more.
const SEEDS: u64 = 400;

#[test]
fn every_history_keeps_the_promises_and_settles_once_the_faults_stop() {
    let mut events = 0;
    let mut coverage = Coverage::default();
    for seed in 0..SEEDS {
        for world in [Simulation::new(seed), Simulation::new(seed).safety()] {
            match world.run() {
                Ok(ended) => {
                    events += ended.events;
                    coverage.absorb(ended.coverage);
                }
                Err(violation) => panic!("{violation}"),
            }
        }
    }
    assert!(events > 5_000, "the histories are empty: {events} events");
    assert_eq!(coverage.missing(), [], "every command is given in every phase and state");
}

#[test]
fn p13_the_same_seed_gives_the_same_history() {
    for seed in 0..20 {
        assert_eq!(Simulation::new(seed).run().unwrap(), Simulation::new(seed).run().unwrap());
    }
}

#[test]
fn the_fuzz_bodies_hold_on_a_few_inputs() {
    use orchestrator_core::testing::{Dice, fuzz};
    let mut dice = Dice::new(1);
    for length in 0..60 {
        let bytes: Vec<u8> = (0..length * 4).map(|_| dice.roll().to_le_bytes()[7]).collect();
        fuzz::commands(&bytes);
        fuzz::plan(&bytes);
        fuzz::log(&bytes);
    }
    let log = br#"{"at":1,"event":"run_created","run":"r","rules":{}}
{"at":5,"event":"due","task":"nobody"}
{"at":2,"event":"completed"}"#;
    fuzz::log(log);
}
