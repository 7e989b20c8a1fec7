//! Limits of pools that change by themselves: pure rules, to which the driver says what happened and
//! which it asks for the limit.

use std::fmt;
use std::time::Duration;

use crate::time::Timestamp;

/// What happened to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// A stage that took a permit of it passed.
    Passed,
    /// The service behind it was overloaded, or asked to slow down.
    Overloaded,
    /// The account behind it has used so much of its usage window.
    Used {
        /// The share that is used, in thousandths.
        per_mille: u16,
        /// When the window begins anew, where that is known.
        reopens: Option<Timestamp>,
    },
}

/// How many permits a pool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// How many; 0 closes the pool until `until`. A person may open it before
    /// ([`Command::OpenPool`](crate::Command::OpenPool)): it stays open until a later time is said.
    pub limit: u32,
    /// Until when that holds at the longest; `None` is until something happens.
    pub until: Option<Timestamp>,
}

/// Says how many permits a pool has from now on.
///
/// The driver says each sign once, in the order of the log, and then asks; a limit that differs from
/// the pool's is set with a command, so that the log has it. So is a pool closed, and opened again
/// before its time when the source that closed it says so. A source is not stored: after a restart
/// it begins anew. It must not block.
///
/// ```
/// use orchestrator_core::{Capacity, CapacitySource, Sign, Timestamp};
///
/// /// By night more than by day, in hours of the run.
/// #[derive(Debug)]
/// struct NightShift;
///
/// impl CapacitySource for NightShift {
///     fn note(&mut self, _now: Timestamp, _sign: Sign) {}
///     fn capacity(&self, now: Timestamp) -> Capacity {
///         let hour = now.0 / 3_600_000;
///         let limit = if hour % 24 < 12 { 2 } else { 8 };
///         Capacity { limit, until: Some(Timestamp((hour / 12 + 1) * 12 * 3_600_000)) }
///     }
/// }
/// assert_eq!(NightShift.capacity(Timestamp(0)).limit, 2);
/// ```
pub trait CapacitySource: fmt::Debug + Send {
    /// Takes in what happened.
    fn note(&mut self, now: Timestamp, sign: Sign);

    /// The limit from now on.
    fn capacity(&self, now: Timestamp) -> Capacity;
}

/// Always the same limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed(pub u32);

impl CapacitySource for Fixed {
    fn note(&mut self, _now: Timestamp, _sign: Sign) {}

    fn capacity(&self, _now: Timestamp) -> Capacity {
        Capacity { limit: self.0, until: None }
    }
}

/// As many permits as fit what is left of an account's usage window: all of them while nothing is
/// used, one as long as something is left, none when the rest is kept for the person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageWindow {
    full: u32,
    kept: u16,
    used: u16,
    reopens: Option<Timestamp>,
}

/// A whole window, in thousandths.
const WHOLE: u16 = 1_000;

impl UsageWindow {
    /// A window of which so many thousandths are kept for the person, with the permits that a pool
    /// has while nothing of it is used.
    #[must_use]
    pub fn new(full: u32, kept_per_mille: u16) -> Self {
        Self { full, kept: kept_per_mille.min(WHOLE), used: 0, reopens: None }
    }

    /// The thousandths that are left for the run.
    fn left(&self, now: Timestamp) -> u16 {
        let is_anew = self.reopens.is_some_and(|at| at <= now);
        let used = if is_anew { 0 } else { self.used };
        WHOLE.saturating_sub(used).saturating_sub(self.kept)
    }
}

impl CapacitySource for UsageWindow {
    fn note(&mut self, _now: Timestamp, sign: Sign) {
        match sign {
            Sign::Used { per_mille, reopens } => {
                (self.used, self.reopens) = (per_mille.min(WHOLE), reopens);
            }
            Sign::Passed | Sign::Overloaded => {}
        }
    }

    fn capacity(&self, now: Timestamp) -> Capacity {
        let (left, whole) = (u64::from(self.left(now)), u64::from(WHOLE - self.kept));
        let share = (u64::from(self.full) * left).checked_div(whole).unwrap_or(0);
        let limit = u32::try_from(share).unwrap_or(u32::MAX);
        let until = self.reopens.filter(|at| *at > now);
        // A window of which nobody knows when it begins anew is tried with one stage at a time.
        let is_closed = left == 0 && (until.is_some() || whole == 0);
        let limit = if is_closed { 0 } else { limit.max(1).min(self.full) };
        Capacity { limit, until }
    }
}

/// One permit more for each round of stages that passed, half of them when the service is overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    least: u32,
    most: u32,
    limit: u32,
    /// Stages that passed since the limit changed.
    passed: u32,
    /// Until then what is overloaded is what the last limit did.
    settles: Timestamp,
}

/// How long a new limit takes to show whether it is low enough.
const SETTLES_AFTER: Duration = Duration::from_secs(60);

impl Adaptive {
    /// Begins with `first` permits and stays between `least`, at least 1, and `most`.
    #[must_use]
    pub fn new(least: u32, first: u32, most: u32) -> Self {
        let least = least.max(1);
        let most = most.max(least);
        Self { least, most, limit: first.clamp(least, most), passed: 0, settles: Timestamp(0) }
    }
}

impl CapacitySource for Adaptive {
    fn note(&mut self, now: Timestamp, sign: Sign) {
        match sign {
            Sign::Passed => {
                self.passed = self.passed.saturating_add(1);
                if self.passed >= self.limit && self.limit < self.most {
                    (self.limit, self.passed) = (self.limit + 1, 0);
                }
            }
            // All that were under way meet the same overload: it counts once.
            Sign::Overloaded if now >= self.settles => {
                (self.limit, self.passed) = ((self.limit / 2).max(self.least), 0);
                self.settles = now.after(SETTLES_AFTER);
            }
            Sign::Overloaded | Sign::Used { .. } => {}
        }
    }

    fn capacity(&self, _now: Timestamp) -> Capacity {
        Capacity { limit: self.limit, until: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_usage_window_is_the_limit_and_nothing_waits_until_it_begins_anew() {
        let mut window = UsageWindow::new(8, 200);
        let mut limit = |per_mille, reopens: Option<u64>| {
            let reopens = reopens.map(Timestamp);
            window.note(Timestamp(0), Sign::Used { per_mille, reopens });
            let Capacity { limit, until } = window.capacity(Timestamp(5));
            (limit, until.map(|at| at.0))
        };
        assert_eq!(limit(0, None), (8, None));
        assert_eq!(limit(400, Some(9)), (4, Some(9)));
        assert_eq!(limit(790, Some(9)), (1, Some(9)), "one as long as something is left");
        assert_eq!(limit(800, Some(9)), (0, Some(9)), "the rest is the person's");
        assert_eq!(limit(2_000, Some(9)), (0, Some(9)));
        assert_eq!(limit(1_000, None), (1, None), "nobody knows until when");
        assert_eq!(limit(1_000, Some(5)), (8, None), "it begins anew at that time");
        assert_eq!(UsageWindow::new(8, 1_000).capacity(Timestamp(0)).limit, 0);
        assert_eq!(UsageWindow::new(0, 0).capacity(Timestamp(0)).limit, 0);
        assert_eq!(UsageWindow::new(u32::MAX, 1).capacity(Timestamp(0)).limit, u32::MAX);
    }

    #[test]
    fn overload_halves_the_limit_once_and_each_round_that_passes_adds_one() {
        let mut source = Adaptive::new(0, 8, 9);
        let limit = |source: &Adaptive| source.capacity(Timestamp(0)).limit;
        for at in [0, 10, 59_999] {
            source.note(Timestamp(at), Sign::Overloaded);
        }
        assert_eq!(limit(&source), 4, "what was under way meets the same overload");
        source.note(Timestamp(60_000), Sign::Overloaded);
        assert_eq!(limit(&source), 2);
        for _ in 0..2 + 3 {
            source.note(Timestamp(60_001), Sign::Passed);
        }
        assert_eq!(limit(&source), 4);
        for at in (1..20).map(|minute| minute * 120_000) {
            source.note(Timestamp(at), Sign::Overloaded);
        }
        assert_eq!(limit(&source), 1, "and never less");
        (0..1_000).for_each(|_| source.note(Timestamp(0), Sign::Passed));
        assert_eq!(limit(&source), 9, "and never more");
        assert_eq!(Fixed(3).capacity(Timestamp(0)), Capacity { limit: 3, until: None });
    }
}
