//! What failed, without what differs from one time to the next: to notice the same failure twice.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use crate::mutant::{Mutant, is_on};

/// A number that is the same for failures that differ only in numbers, addresses, times and paths.
///
/// Where the [tests that failed](failed_tests) are named, those are told apart by their whole names,
/// and neither the order of lines matters nor what passed.
///
/// ```
/// use orchestrator_core::signature;
/// let once = signature("test a ... ok\ntest b2 ... FAILED\nfinished in 0.31s");
/// assert_eq!(once, signature("test b2 ... FAILED\ntest a ... ok\nfinished in 980 ms"));
/// assert_ne!(once, signature("test a ... ok\ntest b3 ... FAILED\nfinished in 0.31s"));
/// ```
#[must_use]
pub fn signature(feedback: &str) -> u64 {
    let mut hasher = Sha256::new();
    if is_on(Mutant::SameFailureUnrecognized) {
        hasher.update(feedback.as_bytes());
    }
    let failed = failed_tests(feedback);
    if failed.is_empty() {
        hasher.update(normalized(feedback).as_bytes());
        return first_u64(&hasher.finalize());
    }
    let is_said = |line: &&str| !is_of_a_test(line);
    let said: BTreeSet<String> =
        feedback.lines().map(str::trim).filter(is_said).map(normalized).collect();
    for (kind, texts) in [(b'f', &failed), (b's', &said)] {
        for text in texts {
            hasher.update([kind]);
            hasher.update(text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        }
    }
    first_u64(&hasher.finalize())
}

/// The names of the tests that failed, as `cargo test`, nextest, pytest, `go test`, TAP and Jest print
/// them, one a line.
#[must_use]
pub fn failed_tests(output: &str) -> BTreeSet<String> {
    output.lines().filter_map(failed_test).map(str::to_owned).collect()
}

/// The failed test that a line names.
fn failed_test(line: &str) -> Option<&str> {
    let line = line.trim();
    let name = if let Some(rest) = line.strip_prefix("test ") {
        rest.strip_suffix(" ... FAILED")?
    } else if let Some(rest) = line.strip_prefix("FAILED ") {
        rest.split_once(" - ").map_or(rest, |(name, _)| name)
    } else if let Some(rest) = line.strip_prefix("--- FAIL: ") {
        rest.split_once(" (").map_or(rest, |(name, _)| name)
    } else if let Some(rest) = line.strip_prefix("not ok ") {
        let name = rest.split_once(" - ").map_or(rest, |(_, name)| name);
        if name.contains("# TODO") || name.contains("# SKIP") {
            return None;
        }
        name
    } else if let Some(rest) = line.strip_prefix("FAIL [") {
        rest.split_once("] ")?.1
    } else {
        line.strip_prefix("● ").filter(|name| name.contains(" › "))?
    };
    let name = name.trim();
    (!name.is_empty()).then_some(name)
}

/// Whether a line only says how one test went.
fn is_of_a_test(line: &str) -> bool {
    const PASSED: [&str; 8] =
        ["ok ", "--- PASS: ", "PASS ", "PASSED ", "not ok ", "\u{2713} ", "\u{2714} ", "\u{221a} "];
    let is_passed = PASSED.iter().any(|begins| line.starts_with(begins));
    is_passed
        || failed_test(line).is_some()
        || (line.starts_with("test ") && line.contains(" ... "))
}

/// The text in words of which each number, path and time is the same as any other.
fn normalized(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_path = word.contains('/') && word.len() > 1;
        let name = if is_path { word.rsplit('/').next().unwrap_or(word) } else { word };
        let word = without_numbers(name);
        let is_after_number = words.last().is_some_and(|last| last.ends_with('0'));
        let plain = word.trim_end_matches(|c: char| c.is_ascii_punctuation());
        if !(is_after_number && is_unit(plain)) {
            words.push(word);
        }
    }
    words.join(" ")
}

/// Days and months, as dates name them.
const DATES: [&str; 19] = [
    "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar", "Apr", "May", "Jun",
    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The longest of what a time is counted in.
const UNIT_CHARS_MAX: usize = "milliseconds".len();

/// Whether this is what a time is counted in.
fn is_unit(word: &str) -> bool {
    const UNITS: [&str; 22] = [
        "ns",
        "us",
        "\u{b5}s",
        "\u{3bc}s",
        "ms",
        "s",
        "sec",
        "secs",
        "second",
        "seconds",
        "m",
        "min",
        "mins",
        "minute",
        "minutes",
        "h",
        "hr",
        "hrs",
        "hour",
        "hours",
        "msec",
        "milliseconds",
    ];
    UNITS.contains(&word)
}

/// The word with each number as one `0`: a run of hex digits that holds a decimal digit or is as long as an
/// address, with its sign, what follows it after points (`0.31`, `1.2.3`) and the time's unit.
fn without_numbers(word: &str) -> String {
    if DATES.contains(&word.trim_end_matches(',')) {
        return "0".to_owned();
    }
    let mut kept = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = after_number(rest) {
            without_sign(&mut kept);
            // The parts of a time (`1m32s`) are one number.
            if !kept.ends_with('0') {
                kept.push('0');
            }
            rest = after_unit(after);
        } else {
            let run = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
            let (plain, after) = rest.split_at(run.max(first.len_utf8()));
            kept.push_str(plain);
            rest = after;
        }
    }
    kept
}

/// What comes after the number that a text begins with.
fn after_number(text: &str) -> Option<&str> {
    const ADDRESS_DIGITS: usize = 8;
    let is_end = |c: char| !c.is_ascii_hexdigit();
    let prefixed = text.strip_prefix("0x").filter(|rest| !rest.starts_with(is_end));
    let rest = prefixed.unwrap_or(text);
    let (digits, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
    if prefixed.is_some() {
        return Some(after).filter(|_| !digits.is_empty());
    }
    let is_number = digits.contains(|c: char| c.is_ascii_digit()) || digits.len() >= ADDRESS_DIGITS;
    is_number.then(|| after_exponent(digits, after_fraction(after)))
}

/// What comes after a number's points and commas, and the digits behind them.
fn after_fraction(mut rest: &str) -> &str {
    while let Some(behind) = rest.strip_prefix(['.', ',']) {
        let run = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        if run == 0 {
            break;
        }
        rest = &behind[run..];
    }
    rest
}

/// What comes after the exponent of a number, of which the `e` may stand among its digits.
fn after_exponent<'a>(digits: &str, rest: &'a str) -> &'a str {
    let is_e = ['e', 'E'];
    let whole = digits.strip_suffix(is_e);
    let is_whole = whole.is_some_and(|whole| whole.bytes().all(|byte| byte.is_ascii_digit()));
    let behind = if is_whole { Some(rest) } else { rest.strip_prefix(is_e) };
    let behind = behind.map(|behind| behind.strip_prefix(['-', '+']).unwrap_or(behind));
    let behind = behind.filter(|behind| behind.starts_with(|c: char| c.is_ascii_digit()));
    behind.map_or(rest, |behind| behind.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// What comes after the unit of a time.
fn after_unit(rest: &str) -> &str {
    // What is longer is none, and need not be read to its end for each number before it.
    let run = rest.char_indices().take(UNIT_CHARS_MAX + 1).find(|(_, c)| !c.is_alphabetic());
    let Some((run, _)) = run else { return if is_unit(rest) { "" } else { rest } };
    let (unit, after) = rest.split_at(run);
    if is_unit(unit) { after } else { rest }
}

/// Takes away the sign of a number that follows.
fn without_sign(kept: &mut String) {
    let before = kept.strip_suffix(['-', '+']);
    if before.is_some_and(|before| !before.ends_with(char::is_alphanumeric)) {
        kept.pop();
    }
}

/// The first 64 bits of a digest.
pub(crate) fn first_u64(digest: &[u8]) -> u64 {
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_same_failure_at_other_lines_times_and_paths_has_the_same_signature() {
        for (one, two) in [
            (
                "FAIL /tmp/a1/src/x.rs:12: got 0x7ffe12 in 0.31s",
                "FAIL /home/b/src/x.rs:94: got 0xdeadbeef in 12.7s",
            ),
            ("in 12s", "in 980ms"),
            ("took 1.2 s.", "took 45 ms."),
            ("took 1m32s", "took 9h"),
            ("took 2 minutes, then died", "took 980 ms, then died"),
            ("at Mon Nov 30 23:59:59 2026", "at Tue Dec 1 00:00:03 2026"),
            ("2026-11-30T06:00:00.123Z lost", "2026-12-01T07:00:00Z lost"),
            ("left: -5", "left: 7"),
            ("1,234 of 5 bytes", "99 of 12,000,000 bytes"),
            ("off by 1e-9", "off by 2.5e+10"),
            ("needs v1.2.3", "needs v10.0"),
            ("at 3f2a9c1e-1b2c-4d5e-8f90-123456789abc", "at deadbeef-1b2c-4d5e-8f90-abcdefabcdef"),
        ] {
            assert_eq!(signature(one), signature(two), "{one} | {two}");
        }
        for (one, two) in [
            ("FAIL /tmp/a1/src/x.rs:12", "FAIL /tmp/a1/src/y.rs:12"),
            ("needs x1.rs", "needs x1.txt"),
            ("expected 3 files", "expected 3 folders"),
            ("no s here", "no m here"),
            ("a-b", "a+b"),
            ("one two", "two one"),
        ] {
            assert_ne!(signature(one), signature(two), "{one} | {two}");
        }
    }

    #[test]
    fn tests_that_failed_are_told_apart_by_name_in_whatever_order_all_are_printed() {
        let one = "running 3 tests\ntest a ... ok\ntest b_1 ... FAILED\ntest c ... FAILED\n\
            thread 'b_1' panicked at src/lib.rs:10:9:\nleft: 3\nfinished in 0.31s";
        let order = "running 4 tests\ntest c ... FAILED\ntest d ... ignored\n\
            test b_1 ... FAILED\nthread 'b_1' panicked at src/lib.rs:12:9:\nleft: 4\n\
            test a ... ok\nfinished in 2m";
        assert_eq!(signature(one), signature(order));
        for other in [
            one.replace("test b_1 ...", "test b_2 ..."),
            one.replace("test c ... FAILED", "test c ... ok"),
            one.replace("left: 3", "left: nothing"),
        ] {
            assert_ne!(signature(one), signature(&other), "{other}");
        }
        let pytest = ["FAILED t.py::x[1] - assert 1 == 2", "FAILED t.py::x[2] - assert 1 == 2"];
        assert_ne!(signature(pytest[0]), signature(pytest[1]));
    }

    #[test]
    fn failed_tests_are_found_as_common_tools_print_them() {
        let output = "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\
            FAILED tests/test_x.py::test_y[1] - assert 1 == 2\n--- FAIL: TestZ (0.00s)\n\
            ok 1 - fine\nnot ok 2 - broken\nnot ok 3 - later # TODO\n\
            \x20       FAIL [   0.01s] crate::it module::test\n  ● Suite › does it\n\
            test result: FAILED. 1 passed\n";
        let expected = [
            "Suite › does it",
            "TestZ",
            "a::c",
            "broken",
            "crate::it module::test",
            "tests/test_x.py::test_y[1]",
        ];
        assert_eq!(failed_tests(output).iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_word_of_the_greatest_length_is_read_in_one_pass() {
        // A pass for each character would take very long.
        for part in ["g", "xyz", "1g", "abcdefabq"] {
            let long = part.repeat(1 << 16);
            assert_ne!(signature(&long), signature(&format!("{long}z")));
        }
    }

    proptest! {
        #[test]
        fn p16_any_text_has_a_signature_and_numbers_make_no_difference(
            text in "[a-f0-9xs.,e+: /\\n-]{0,40}|\\PC{0,40}",
            number in any::<i32>(),
        ) {
            let of = |number: i32| signature(&format!("{text} at {number} in"));
            prop_assert_eq!(of(number), of(7));
        }
    }
}
