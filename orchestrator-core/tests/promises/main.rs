//! The promises that the engine keeps, each with tests named after it; what is promised of a run's
//! merges, files and processes is tested where those are.
//!
//! With the feature `mutants` it is shown that each of them can fail: for every promise, faults that
//! break it are put in, and a test of that promise must notice.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod leases;
mod runs;
mod tasks;
mod world;

type Test = fn();

/// The tests of each promise, also for those who want to run them with a fault put in.
const PROMISES: &[(&str, &[Test])] = &[
    ("P1", &[leases::p1_one_holder_at_a_time_under_tokens_that_only_grow]),
    ("P2", &[leases::p2_what_comes_under_another_token_changes_nothing_but_the_books]),
    (
        "P3",
        &[
            tasks::p3_a_task_begins_when_all_that_it_depends_on_is_done,
            tasks::p3_a_plan_that_is_no_graph_is_refused_whole,
        ],
    ),
    (
        "P4",
        &[
            leases::p4_a_result_takes_effect_once_however_often_it_comes,
            leases::p4_a_commit_that_is_refused_leaves_nothing,
        ],
    ),
    ("P5", &[leases::p5_after_a_crash_the_run_goes_on_from_what_was_committed]),
    ("P6", &[tasks::p6_each_end_is_counted_in_one_class_and_each_class_has_a_bound]),
    ("P7", &[tasks::p7_what_is_blocked_follows_from_the_graph_in_whatever_order]),
    ("P8", &[runs::p8_permits_in_use_are_those_of_the_leases]),
    ("P9", &[tasks::p9_scopes_that_overlap_are_never_held_together]),
    ("P10", &[runs::p10_what_is_spent_and_set_aside_stays_within_the_budget]),
    ("P11", &[runs::p11_what_can_run_is_granted_and_the_rest_says_why_not]),
    (
        "P12",
        &[
            tasks::p12_a_task_that_needs_much_is_overtaken_so_often_and_no_more,
            tasks::p12_a_task_that_cannot_be_served_holds_up_no_other_and_keeps_its_count,
        ],
    ),
    ("P13", &[runs::p13_the_same_commands_give_the_same_bytes]),
    ("P14", &[leases::p14_no_jump_of_a_clock_loses_freezes_or_revives_anything]),
    ("P15", &[runs::p15_a_run_in_which_nothing_can_happen_says_so]),
    ("P16", &[runs::p16_no_message_however_odd_ends_the_process]),
    ("P21", &[tasks::p21_a_command_about_one_task_leaves_all_others_as_they_were]),
];

#[test]
fn each_promise_of_the_engine_has_tests_of_its_own_that_pass() {
    let numbers: Vec<&str> = PROMISES.iter().map(|(promise, _)| &promise[1..]).collect();
    let expected: Vec<String> =
        (1..=16).chain([21]).map(|number: u32| number.to_string()).collect();
    assert_eq!(numbers, expected);
    PROMISES.iter().flat_map(|(_, tests)| *tests).for_each(|test| test());
}

#[cfg(feature = "mutants")]
#[test]
fn each_promise_has_a_test_that_fails_without_it() {
    use std::panic::catch_unwind;

    use orchestrator_core::mutant::{Mutant, with};
    let mut told = Vec::new();
    for (promise, tests) in PROMISES {
        let faults = Mutant::ALL.iter().filter(|mutant| mutant.promise() == *promise);
        let notices = |mutant: &&Mutant| {
            let fails = |test: &Test| with(Some(**mutant), || catch_unwind(*test)).is_err();
            tests.iter().any(fails)
        };
        let (noticed, missed): (Vec<&Mutant>, Vec<&Mutant>) = faults.partition(notices);
        println!("{promise}: notices {noticed:?}, leaves to the other suites {missed:?}");
        if noticed.is_empty() {
            told.push(*promise);
        }
    }
    assert!(told.is_empty(), "no test of {told:?} fails with a fault put in");
}
