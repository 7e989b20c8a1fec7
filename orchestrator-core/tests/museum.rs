//! Every fault of the bug museum is noticed by some suite; without one, all suites pass.
#![cfg(feature = "mutants")]

use std::collections::BTreeSet;
use std::sync::Arc;

use orchestrator_core::mutant::{Mutant, with};
use orchestrator_core::testing::museum::{SUITES, killer};
use orchestrator_core::testing::strategies::histories;
use orchestrator_core::testing::{History, Simulation};
use orchestrator_core::{Plan, RemainingPath};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// With `MUSEUM_ONLY`, a list with commas, only those faults are put in.
#[test]
#[ignore = "takes minutes without optimisation; the example `bug_museum` does the same"]
fn every_fault_is_noticed_and_nothing_else_is() {
    #[expect(clippy::disallowed_methods, reason = "a test may be told what to look at")]
    let only = std::env::var("MUSEUM_ONLY").unwrap_or_default();
    let is_asked =
        |mutant: &&Mutant| only.is_empty() || only.split(',').any(|it| it == mutant.name());
    if only.is_empty() {
        for suite in SUITES {
            assert_eq!(suite.finds(None), None, "{}", suite.name);
        }
    }
    let missed: Vec<&str> = Mutant::ALL
        .iter()
        .filter(is_asked)
        .filter_map(|mutant| {
            let killer = killer(*mutant).map(|(suite, _)| suite);
            println!("{} {killer:?}", mutant.name());
            killer.is_none().then(|| mutant.name())
        })
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// Faults that take some doing to meet, each of another kind.
const SHRUNK: [Mutant; 4] = [
    Mutant::StaleTokenCounts,
    Mutant::WaitWithoutTimer,
    Mutant::ReservationLeaks,
    Mutant::EscalatedKeepsScope,
];

#[test]
fn a_failing_seed_comes_with_a_smallest_history_that_shows_the_fault_again() {
    for mutant in SHRUNK {
        let small = with(Some(mutant), || {
            let worlds = (0..400).map(Simulation::new);
            let mut worlds = worlds.flat_map(|world| [world.clone(), world.safety()]);
            let world = worlds.find(|world| world.run().is_err()).unwrap();
            let (small, violation) = world.minimal().unwrap();
            let kept: BTreeSet<u32> = small.kept().into_iter().collect();
            assert!(kept.len() <= 12, "{mutant:?}: {kept:?} of {}\n{violation}", world.steps);
            let again = small.clone().only(&kept).run().unwrap_err();
            assert_eq!((again.what, again.history), (violation.what.clone(), violation.history));
            // None of its steps can go.
            let promise = |what: &str| what.split(':').next().map(str::to_owned);
            for step in &kept {
                let less = kept.iter().copied().filter(|other| other != step).collect();
                let other = small.clone().only(&less).run().err().map(|violation| violation.what);
                assert_ne!(other.and_then(|what| promise(&what)), promise(&violation.what));
            }
            small
        });
        assert!(small.run().is_ok(), "{mutant:?}: without the fault it is a history like any");
    }
}

#[test]
fn a_drawn_history_that_fails_shrinks_to_a_few_steps() {
    for mutant in SHRUNK {
        let smallest = with(Some(mutant), || -> History {
            let config = Config { cases: 4_000, failure_persistence: None, ..Config::default() };
            let dice = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            let mut runner = TestRunner::new_with_rng(config, dice);
            let found = runner.run(&histories(4, 60), |history| {
                let lived = history.live(Arc::new(RemainingPath));
                lived.map(drop).map_err(|violation| TestCaseError::fail(violation.what))
            });
            match found {
                Err(TestError::Fail(_, history)) => history,
                other => panic!("{mutant:?} is not found: {other:?}"),
            }
        });
        let Plan { tasks, .. } = &smallest.plan;
        assert!(smallest.steps.len() <= 10 && tasks.len() <= 3, "{mutant:?}: {smallest:?}");
        assert!(smallest.live(Arc::new(RemainingPath)).is_ok(), "{mutant:?}");
    }
}
