//! Errors with their causes, in one line.

use std::error::Error;
use std::iter::successors;

/// The message with those of its causes, outermost first.
pub(crate) fn chain(err: &dyn Error) -> String {
    let causes = successors(err.source(), |&cause| cause.source());
    causes.fold(err.to_string(), |text, cause| format!("{text}: {cause}"))
}
