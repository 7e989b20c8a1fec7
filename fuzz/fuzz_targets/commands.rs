//! Any bytes as the chances of a simulated world: the promises hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orchestrator_core::testing::fuzz::commands(bytes));
