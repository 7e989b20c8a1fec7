//! Money is an integer: millionths of a US dollar.

use std::fmt;
use std::iter::Sum;

use serde::{Deserialize, Serialize};

use crate::mutant::{Mutant, is_on};

/// An amount of US dollars in millionths; never negative.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Usd(pub u64);

impl Usd {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Whole dollars.
    #[must_use]
    pub const fn dollars(dollars: u32) -> Self {
        Self(dollars as u64 * 1_000_000)
    }

    /// The amount nearest to a number of dollars; `None` when it is negative, not a number, or over
    /// a thousand million.
    #[must_use]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let fits = dollars.is_finite() && (0.0..=1e9).contains(&dollars);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range was checked: at most 1e15, which both types hold exactly"
        )]
        fits.then(|| Self((dollars * 1e6).round() as u64))
    }

    /// The amount as dollars, for people and programs that want a fraction.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "for display; exact below nine thousand million"
    )]
    pub fn as_dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Both together; the greatest amount when they do not fit.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left after `other` is taken away; nothing when it is more.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::plus)
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}.{:04}", self.0 / 1_000_000, self.0 % 1_000_000 / 100)
    }
}

/// What an attempt cost, as far as its adapter could tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// The whole cost is known.
    Known(Usd),
    /// The program ended without saying; at least this much was seen.
    AtLeast(Usd),
}

impl Cost {
    /// The cost of something that spends no money.
    pub const NONE: Self = Self::Known(Usd::ZERO);

    /// What is booked for an attempt that had reserved `reserved`: a known cost as it is, an unknown
    /// one at the larger of the reservation and what was seen.
    #[must_use]
    pub fn settle(self, reserved: Usd) -> Usd {
        match self {
            Self::Known(cost) => cost,
            Self::AtLeast(seen) if is_on(Mutant::UnknownCostIsWhatWasSeen) => seen,
            Self::AtLeast(seen) => seen.max(reserved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_outside_the_range_are_refused() {
        assert_eq!(Usd::from_dollars(0.42), Some(Usd(420_000)));
        for bad in [f64::NAN, f64::INFINITY, -0.01, 1e10] {
            assert_eq!(Usd::from_dollars(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_unknown_cost_settles_at_the_larger_of_reserved_and_seen() {
        assert_eq!(Cost::AtLeast(Usd(3)).settle(Usd(5)), Usd(5));
        assert_eq!(Cost::AtLeast(Usd(8)).settle(Usd(5)), Usd(8));
        assert_eq!(Cost::Known(Usd(1)).settle(Usd(5)), Usd(1));
    }
}
