//! The bug museum: each fault of [`Mutant`], and the suite that notices it.
//!
//! A suite is a check of this crate that passes; with a fault put in, one of them must fail. The
//! example `bug_museum` shows them all.

mod driving;
mod gates;
mod plans;
mod rules;
mod stores;
mod worlds;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mutant::{Mutant, with};

/// A check that passes as long as no fault is put in.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    check: fn() -> Result<(), String>,
}

/// All suites, those that take longest at the end.
pub const SUITES: &[Suite] = &[
    Suite { name: "rules", check: rules::check },
    Suite { name: "plans", check: plans::check },
    Suite { name: "gates", check: gates::check },
    Suite { name: "stores", check: stores::check },
    Suite { name: "driver", check: driving::check },
    Suite { name: "simulator", check: worlds::simulated },
    Suite { name: "explorer", check: worlds::explored },
];

impl Suite {
    /// Runs it with a fault put in on this thread, or with none; `Some` is what it found.
    #[must_use]
    pub fn finds(&self, mutant: Option<Mutant>) -> Option<String> {
        let outcome = with(mutant, || catch_unwind(AssertUnwindSafe(self.check)));
        match outcome {
            Ok(found) => found.err(),
            Err(panic) => Some(said(&*panic)),
        }
    }
}

/// The first suite that notices a fault, and what it says.
#[must_use]
pub fn killer(mutant: Mutant) -> Option<(&'static str, String)> {
    SUITES.iter().find_map(|suite| Some((suite.name, suite.finds(Some(mutant))?)))
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}
