//! Reading fields of untyped JSON; what is not there or of another type is `None`.

use orchestrator_core::WallTime;
use serde_json::{Map, Value};

pub(super) fn text<'a>(from: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    from.get(key).and_then(Value::as_str)
}

pub(super) fn map<'a>(from: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    from.get(key).and_then(Value::as_object)
}

pub(super) fn flag(from: &Map<String, Value>, key: &str) -> Option<bool> {
    from.get(key).and_then(Value::as_bool)
}

/// A number that is not negative; one version writes some whole numbers with a fraction.
pub(super) fn integer(from: &Map<String, Value>, key: &str) -> Option<u64> {
    from.get(key).and_then(whole)
}

/// The same for a value.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let fits = number.is_finite() && (0.0..=9e15).contains(&number);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range was checked, and the fraction is of no account"
        )]
        fits.then_some(number as u64)
    })
}

/// A moment that is given in seconds since 1970; so many of them that nobody means it are milliseconds.
pub(super) fn wall_seconds(from: &Map<String, Value>, key: &str) -> Option<WallTime> {
    // The year 5138.
    const SECONDS_MAX: u64 = 100_000_000_000;
    let count = integer(from, key)?;
    Some(WallTime(if count < SECONDS_MAX { count * 1_000 } else { count }))
}
