//! Drawn histories: the engine against the reference model and the promises, and what the kit's
//! strategies are good for.
#![cfg(feature = "testing")]

use std::sync::Arc;

use orchestrator_core::testing::strategies::{commands, histories, plans};
use orchestrator_core::testing::{Act, Conduct, Coverage, History, Step};
use orchestrator_core::{Plan, RemainingPath, RetryRules, RunState, TaskId, TaskSpec};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn the_engine_does_in_every_drawn_history_what_the_model_does(history in histories(6, 80)) {
        let lived = history.live(Arc::new(RemainingPath));
        prop_assert!(lived.is_ok(), "{}", lived.unwrap_err());
    }

    #[test]
    fn a_drawn_plan_can_be_carried_out(plan in plans(12)) {
        prop_assert_eq!(plan.check(&|_| false), []);
        let done = Step::Work { which: 0, conduct: Conduct::good() };
        let steps = (0..50).flat_map(|_| [Step::Claim, done.clone()]).collect();
        let history = History { plan: Plan { budget: None, ..plan }, rules: RetryRules::default(), steps };
        let ended = history.live(Arc::new(RemainingPath)).unwrap();
        prop_assert_eq!(ended.state, RunState::Completed);
    }
}

/// Where each kind of fault is drawn often enough, every command meets most phases and states.
#[test]
fn drawn_histories_reach_nearly_every_phase_and_state() {
    let mut runner = TestRunner::deterministic();
    let mut coverage = Coverage::default();
    for _ in 0..150 {
        let history = histories(6, 120).new_tree(&mut runner).unwrap().current();
        coverage.absorb(history.live(Arc::new(RemainingPath)).unwrap().coverage);
    }
    let missing = coverage.missing();
    assert!(missing.len() < 60, "{missing:?}");
}

#[test]
fn a_history_reads_as_its_plan_and_a_line_for_each_step() {
    let task = TaskSpec::new(TaskId::parse("a").unwrap());
    let plan = Plan { tasks: vec![task], ..Plan::default() };
    let hangs = Conduct { act: Act::Hangs, ..Conduct::good() };
    let steps = vec![Step::Claim, Step::Work { which: 0, conduct: hangs }];
    let told = format!("{:?}", History { plan, rules: RetryRules::default(), steps });
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[1].contains(r#""id":"a""#), "{told}");
    assert_eq!(lines[2], "Claim");
    assert!(lines[3].contains("Hangs"), "{told}");
}

#[test]
fn commands_that_are_drawn_differ() {
    let mut runner = TestRunner::deterministic();
    let drawn: Vec<String> = (0..200)
        .map(|_| format!("{:?}", commands(3).new_tree(&mut runner).unwrap().current()))
        .collect();
    let words = |text: &String| text.split([' ', '(']).next().unwrap_or_default().to_owned();
    let kinds: std::collections::BTreeSet<String> = drawn.iter().map(words).collect();
    assert!(kinds.len() >= 13, "{kinds:?}");
}
