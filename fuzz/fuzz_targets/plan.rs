//! Any bytes as a plan: a plan or typed faults, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orchestrator_core::testing::fuzz::plan(bytes));
