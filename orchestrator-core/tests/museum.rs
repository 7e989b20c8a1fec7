//! Every fault of the bug museum is noticed by some suite; without one, all suites pass.
#![cfg(feature = "mutants")]

use orchestrator_core::mutant::Mutant;
use orchestrator_core::testing::museum::{SUITES, killer};

#[test]
#[ignore = "takes minutes without optimisation; the example `bug_museum` does the same"]
fn every_fault_is_noticed_and_nothing_else_is() {
    for suite in SUITES {
        assert_eq!(suite.finds(None), None, "{}", suite.name);
    }
    let killed = |mutant: &Mutant| killer(*mutant).map(|(suite, _)| (mutant.name(), suite));
    let all: Vec<(&str, Option<&str>)> = std::thread::scope(|scope| {
        let halves = Mutant::ALL
            .chunks(Mutant::ALL.len().div_ceil(2))
            .map(|half| scope.spawn(move || half.iter().map(killed).collect::<Vec<_>>()));
        let halves: Vec<_> = halves.collect();
        let found =
            halves.into_iter().flat_map(|half| half.join().expect("no suite ends a thread"));
        let found = found.zip(Mutant::ALL);
        found.map(|(killer, mutant)| (mutant.name(), killer.map(|(_, suite)| suite))).collect()
    });
    for (name, killer) in &all {
        println!("{name} {killer:?}");
    }
    assert!(all.iter().all(|(_, killer)| killer.is_some()));
}
