//! The wall clock, and when an account that is closed is tried again.

use std::time::{SystemTime, UNIX_EPOCH};

use orchestrator_core::port::StageContext;
use orchestrator_core::{BlobHash, WallTime, millis};

/// How long after a usage window reopens the first request is sent: clocks differ a little.
const REOPEN_MARGIN_MS: u64 = 3_000;
/// How long an account is taken to be closed, when the program does not say when a window reopens.
const CLOSED_MS: u64 = 30 * 60 * 1_000;
/// Over how long what waited for a window is spread when it reopens.
const REOPEN_SPREAD_MS: u64 = 10_000;

/// The wall clock.
pub(crate) fn wall_now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(millis(since))
}

/// Until when an account is taken to be closed of which nobody said it.
pub(crate) fn closed_until() -> WallTime {
    WallTime(wall_now().0.saturating_add(CLOSED_MS))
}

/// A moment a little after a window reopens, not the same for all that wait for it.
pub(crate) fn reopened(cx: &StageContext, at: WallTime) -> WallTime {
    let hash = BlobHash::of(format!("{}/{}", cx.run, cx.task.id).as_bytes());
    let digits = hash.as_str().get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let spread = digits.unwrap_or(0) % REOPEN_SPREAD_MS;
    WallTime(at.0.saturating_add(REOPEN_MARGIN_MS).saturating_add(spread))
}
