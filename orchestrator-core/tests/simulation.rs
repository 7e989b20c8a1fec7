//! The engine in a seeded world of faults.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;

use orchestrator_core::testing::{
    Change, Coverage, Dice, Fault, FaultStore, History, Simulation, Step, fuzz,
};
use orchestrator_core::{
    MemoryStore, Plan, RemainingPath, RetryRules, TaskId, TaskSpec, VerifyCommand,
};

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
    coverage.absorb(seldom());
    assert!(events > 5_000, "the histories are empty: {events} events");
    assert_eq!(coverage.missing(), [], "every command is given in every phase and state");
    assert_eq!(coverage.surprising(), [], "what is listed as impossible is not met");
}

/// What chance seldom comes to: an edit of a task whose stage is being stopped.
fn seldom() -> Coverage {
    let mut task = TaskSpec::new(TaskId::parse("a").unwrap());
    task.verify = Some(VerifyCommand::Shell("true".to_owned()));
    let plan = Plan { tasks: vec![task], ..Plan::default() };
    let edit = Step::Edit { which: 0, change: Change::MoreRetries };
    let steps = vec![Step::Claim, Step::NextDriver, edit];
    let history = History { plan, rules: RetryRules::default(), steps };
    history.live(Arc::new(RemainingPath)).unwrap().coverage
}

#[test]
fn what_chance_seldom_comes_to_is_met_by_hand() {
    assert!(!seldom().missing().contains(&("stopping", "edit")));
}

#[test]
fn p4_faults_of_the_store_change_nothing_in_a_history() {
    const FAULTS: [Fault; 4] = [Fault::Before, Fault::After, Fault::Lost, Fault::Duplicate];
    for seed in 0..40 {
        for world in [Simulation::new(seed), Simulation::new(seed).safety()] {
            let store = Arc::new(MemoryStore::new());
            let faulty = FaultStore::seeded(store, seed, 200, &FAULTS);
            let ended = world.run_over(Arc::new(faulty)).unwrap_or_else(|v| panic!("{v}"));
            assert_eq!(ended, world.run().unwrap(), "seed {seed}");
        }
    }
}

#[test]
fn p13_the_same_seed_gives_the_same_history() {
    for seed in 0..20 {
        assert_eq!(Simulation::new(seed).run().unwrap(), Simulation::new(seed).run().unwrap());
    }
}

#[test]
fn the_fuzz_bodies_hold_on_a_few_inputs() {
    let mut dice = Dice::new(1);
    for length in 0..60 {
        let bytes: Vec<u8> = (0..length * 4).map(|_| dice.roll().to_le_bytes()[7]).collect();
        fuzz::commands(&bytes);
        fuzz::plan(&bytes);
        fuzz::log(&bytes);
    }
}

#[test]
fn p16_a_log_that_is_fuzzed_brings_tasks_and_says_what_became_of_them() {
    let kept = include_bytes!("../../fuzz/seeds/log/run");
    assert_eq!(fuzz::log(kept), 8);
    // Contents of its own are taken in too, under whatever name.
    let named = |digit: &str| digit.repeat(64);
    let own = Plan::parse(r#"[{"id": "z", "verify": "true"}]"#).unwrap();
    let own = serde_json::to_string(&own).unwrap();
    let added = |digit| {
        let blob = named(digit);
        format!("{{\"at\":1,\"event\":\"plan_added\",\"plan\":\"{blob}\",\"tasks\":9}}")
    };
    let created = kept.split(|byte| *byte == b'\n').next().unwrap();
    let created = std::str::from_utf8(created).unwrap();
    let of = |lines: &[&str]| fuzz::log(lines.join("\n").as_bytes());
    assert_eq!(of(&[created]), 0);
    assert_eq!(of(&[created, &added("0")]), 4);
    assert_eq!(of(&[created, &added("0"), &added("1"), &own, &added("3")]), 9);
}

/// What the fuzzers are begun with, and what they found worth keeping: each as it is, cut short, and
/// with one byte changed.
#[test]
fn p16_the_fuzz_bodies_hold_on_the_inputs_that_are_kept() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    type Body = fn(&[u8]);
    let bodies: [(&str, Body); 3] =
        [("plan", fuzz::plan), ("commands", fuzz::commands), ("log", |bytes| _ = fuzz::log(bytes))];
    let mut dice = Dice::new(1);
    for (name, body) in bodies {
        let mut tried = 0;
        for entry in std::fs::read_dir(seeds.join(name)).unwrap() {
            let mut bytes = std::fs::read(entry.unwrap().path()).unwrap();
            body(&bytes);
            let len = u32::try_from(bytes.len()).unwrap();
            body(&bytes[..dice.below(len) as usize]);
            if let Some(byte) = bytes.get_mut(dice.below(len) as usize) {
                *byte ^= 1 << dice.below(8);
            }
            body(&bytes);
            tried += 1;
        }
        assert!(tried > 0, "no input is kept for `{name}`");
    }
}
