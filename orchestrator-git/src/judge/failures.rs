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
    fn failures_are_those_that_common_tools_print_or_what_a_users_function_finds() {
        let output = "test a::b ... ok\ntest a::c ... FAILED\n--- FAIL: TestZ (0.00s)\n";
        let found = |failures: Failures| failures.find(output).into_iter().collect::<Vec<_>>();
        assert_eq!(found(Failures::common()), ["TestZ", "a::c"]);
        let last = |output: &str| output.lines().last().map(str::to_owned).into_iter().collect();
        assert_eq!(found(Failures::by(last)), ["--- FAIL: TestZ (0.00s)"]);
    }
}
