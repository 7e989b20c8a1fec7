//! Spans of time as people write them.

use std::time::Duration;

/// What a plan may give as a span of time.
pub(super) const EXPECTED: &str =
    "a time such as \"90s\", \"45m\" or \"1h30m\", or a number of seconds, up to a year";

const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads `1h30m`: whole numbers with units, each unit once and the greater ones first.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut units = UNITS.as_slice();
    let mut rest = text.trim();
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_where(after.trim_start(), |c| !c.is_ascii_alphabetic());
        let place = units.iter().position(|(name, _)| *name == unit)?;
        let (_, millis) = units.get(place)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*millis)?)?;
        units = units.get(place + 1..)?;
        rest = after.trim_start();
    }
    usable(Duration::from_millis(sum))
}

/// Takes a number of seconds, to the nearest millisecond.
pub(super) fn of_seconds(seconds: f64) -> Option<Duration> {
    let span = Duration::try_from_secs_f64((seconds * 1e3).round() / 1e3).ok()?;
    usable(Duration::from_millis(u64::try_from(span.as_millis()).ok()?))
}

fn usable(span: Duration) -> Option<Duration> {
    (!span.is_zero() && span <= LONGEST).then_some(span)
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_whole_numbers_with_units_in_descending_order() {
        for (text, seconds) in
            [("45m", 2_700), ("90s", 90), ("1h30m", 5_400), ("1h 30 m", 5_400), ("2d", 172_800)]
        {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("1s500ms"), Some(Duration::from_millis(1_500)));
        let huge = "99999999999999999999h";
        for bad in ["", "45", "m", "1.5h", "-1m", "30m1h", "1m1m", "0s", "1y", "367d", huge] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn seconds_may_be_a_fraction_and_must_be_positive() {
        assert_eq!(of_seconds(90.0), Some(Duration::from_secs(90)));
        assert_eq!(of_seconds(0.25), Some(Duration::from_millis(250)));
        for bad in [0.0, 0.0001, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(of_seconds(bad), None, "{bad}");
        }
    }
}
