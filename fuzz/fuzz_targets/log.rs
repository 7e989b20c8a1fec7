//! Any bytes as lines of a log: an event or a typed error, and an engine that takes what it gets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    orchestrator_core::testing::fuzz::log(bytes);
});
