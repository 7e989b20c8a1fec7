//! The pure rules: scopes, waits, bounds, money, time.

use std::time::Duration;

use crate::id::TaskId;
use crate::money::{Cost, Usd};
use crate::retry::RetryRules;
use crate::scope::Scope;
use crate::signature::signature;
use crate::time::{Anchor, ClockReading, SLEPT_MAX, Timestamp, WallTime, millis};

pub(super) fn check() -> Result<(), String> {
    scopes();
    retries();
    money();
    time();
    Ok(())
}

fn scopes() {
    let scope = |path: &str| Scope::parse([path]).expect("a valid scope");
    assert!(scope("src").overlaps(&scope("src/a.rs")), "P9: a folder holds its files");
    assert!(scope("src/a.rs").overlaps(&scope("src")), "P9: to overlap is mutual");
    assert!(scope("SRC").overlaps(&scope("src/a.rs")), "P9: case does not tell files apart");
    assert!(!scope("src/a.rs").overlaps(&scope("src/b.rs")), "P11: two files are apart");
    for path in ["src/../x", "docs/../x"] {
        assert!(!scope("src").allows(path), "P18: {path}");
        assert!(!scope("**").allows(path), "P18: {path}");
    }
}

fn retries() {
    let rules = RetryRules::default();
    let task = TaskId::parse("t").expect("a valid id");
    for interruptions in 0..=rules.interruptions_max + 40 {
        let wait = rules.backoff(Timestamp(0), &task, interruptions).0;
        assert!(wait <= millis(rules.backoff_max), "P6: interruption {interruptions}: {wait} ms");
    }
    for (stages, retries) in [(1, 0), (4, 3)] {
        let spare = rules.dispatches_spare;
        let max = u32::try_from(stages).expect("a small number") * (retries + 1) + spare;
        assert_eq!(rules.dispatches_max(stages, retries), max, "P6: {stages} stages");
    }
    let (one, two) = ("a.rs:7: took 3 s", "a.rs:91: took 12 s");
    assert_eq!(signature(one), signature(two), "P6: one failure at two lines");
    assert_ne!(signature(one), signature("b.rs:7: took 3 s"), "P6: failures of two files");
}

fn money() {
    let cap = Usd(5);
    for (cost, booked) in
        [(Cost::AtLeast(Usd(3)), 5), (Cost::AtLeast(Usd(8)), 8), (Cost::Known(Usd(1)), 1)]
    {
        assert_eq!(cost.settle(cap), Usd(booked), "P10: {cost:?}");
    }
}

fn time() {
    let reading = |boot: &str, boot_ms: u64, wall: u64| ClockReading {
        boot_id: boot.to_owned(),
        boot_ms,
        wall: WallTime(wall),
    };
    let anchor = Anchor { reading: reading("b", 1_000, 50_000), at: Timestamp(7) };
    for wall in [0, 50_000, u64::MAX] {
        assert_eq!(anchor.now(&reading("b", 1_500, wall)), Timestamp(507), "P14: wall {wall}");
    }
    assert_eq!(anchor.now(&reading("c", 3, 51_000)), Timestamp(1_007), "P14: across a boot");
    let year = millis(Duration::from_secs(366 * 86_400));
    let longest = Timestamp(7).after(SLEPT_MAX);
    assert_eq!(anchor.now(&reading("c", 3, year)), longest, "P14: a clock that leapt");
}
