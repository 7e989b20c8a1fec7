//! Finding the names of failed tests in what a command printed.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use orchestrator_core::failed_tests;

/// From the output of a command to the names of what failed.
type Find = dyn Fn(&str) -> BTreeSet<String> + Send + Sync;

/// How failures are found in the output of a verify command.
#[derive(Clone)]
pub struct Failures(Arc<Find>);

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failures")
    }
}

impl Failures {
    /// Finds them by a function from the output to their names.
    pub fn by(find: impl Fn(&str) -> BTreeSet<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// Finds those that `cargo test`, nextest, pytest, `go test`, TAP and Jest print, one a line.
    #[must_use]
    pub fn common() -> Self {
        Self::by(failed_tests)
    }

    /// The names of what failed.
    #[must_use]
    pub fn find(&self, output: &str) -> BTreeSet<String> {
        (self.0)(output)
    }
}

/// Reads a log, as far as it is looked at.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_found_as_common_tools_print_them() {
        let output = "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\
            FAILED tests/test_x.py::test_y[1] - assert 1 == 2\n--- FAIL: TestZ (0.00s)\n\
            ok 1 - fine\nnot ok 2 - broken\nnot ok 3 - later # TODO\n\
            \x20       FAIL [   0.01s] crate::it module::test\n  ● Suite › does it\n\
            test result: FAILED. 1 passed\n";
        let found = Failures::common().find(output);
        let expected = [
            "Suite › does it",
            "TestZ",
            "a::c",
            "broken",
            "crate::it module::test",
            "tests/test_x.py::test_y[1]",
        ];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
