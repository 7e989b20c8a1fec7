//! Tokens, and what they cost.

use orchestrator_core::{Cost, Usd};

use super::Usage;

/// Tokens used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Sent, and not read from the cache.
    pub input: u64,
    /// Received; where a message's use is known only from its start, far too few.
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache.
    pub cache_write: u64,
}

impl Tokens {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }

    /// The more of each kind.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
        }
    }
}

/// What a million tokens of each kind cost.
///
/// A program that names no money is booked and stopped by them. One that does needs them only for the
/// lower bound of a run that was ended before it could say what it cost. The default is nothing:
/// such a run is then booked at what was reserved for it, and a check warns of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prices {
    /// A million tokens sent.
    pub input: Usd,
    /// A million tokens received.
    pub output: Usd,
    /// A million tokens read from the cache.
    pub cache_read: Usd,
    /// A million tokens written to the cache.
    pub cache_write: Usd,
}

impl Prices {
    /// What these tokens cost.
    #[must_use]
    pub fn of(&self, tokens: Tokens) -> Usd {
        let part = |price: Usd, count: u64| {
            let micros = u128::from(price.0) * u128::from(count) / 1_000_000;
            Usd(u64::try_from(micros).unwrap_or(u64::MAX))
        };
        [
            part(self.input, tokens.input),
            part(self.output, tokens.output),
            part(self.cache_read, tokens.cache_read),
            part(self.cache_write, tokens.cache_write),
        ]
        .into_iter()
        .sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn are_unset(&self) -> bool {
        *self == Self::default()
    }
}

/// What a run has used so far, as it tells it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ledger {
    cost: Usd,
    /// What was told without money.
    unpriced: Tokens,
}

impl Ledger {
    /// Takes what was told.
    pub(crate) fn take(&mut self, usage: Usage) {
        match usage {
            Usage::Delta { cost: Some(cost), .. } => self.cost = self.cost.plus(cost),
            Usage::Delta { tokens, cost: None } => self.unpriced = self.unpriced.plus(tokens),
            // A total never shrinks: one that is told out of order takes nothing back.
            Usage::Total { cost: Some(cost), .. } => self.cost = self.cost.max(cost),
            Usage::Total { tokens, cost: None } => self.unpriced = self.unpriced.max(tokens),
        }
    }

    /// What that comes to.
    pub(crate) fn spent(&self, prices: &Prices) -> Usd {
        self.cost.plus(prices.of(self.unpriced))
    }

    /// What a run cost that has ended, and told of all that it used if `is_whole`.
    pub(crate) fn cost(&self, prices: &Prices, is_whole: bool) -> Cost {
        let is_priced = self.unpriced == Tokens::default() || !prices.are_unset();
        let spent = self.spent(prices);
        if is_whole && is_priced { Cost::Known(spent) } else { Cost::AtLeast(spent) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        input: Usd::dollars(1),
        output: Usd::dollars(10),
        cache_read: Usd::ZERO,
        cache_write: Usd::ZERO,
    };

    fn tokens(input: u64, output: u64) -> Tokens {
        Tokens { input, output, ..Tokens::default() }
    }

    #[test]
    fn differences_add_up_and_totals_do_not() {
        let mut ledger = Ledger::default();
        ledger.take(Usage::Delta { tokens: tokens(100_000, 0), cost: None });
        ledger.take(Usage::Delta { tokens: tokens(100_000, 1_000), cost: None });
        assert_eq!(ledger.cost(&PRICES, true), Cost::Known(Usd(210_000)));
        ledger.take(Usage::Total { tokens: tokens(150_000, 2_000), cost: None });
        assert_eq!(ledger.cost(&PRICES, true), Cost::Known(Usd(220_000)));
        assert_eq!(ledger.cost(&PRICES, false), Cost::AtLeast(Usd(220_000)));
        // Without prices nobody knows.
        assert_eq!(ledger.cost(&Prices::default(), true), Cost::AtLeast(Usd::ZERO));
    }

    #[test]
    fn money_that_the_program_names_is_not_counted_from_tokens() {
        let mut ledger = Ledger::default();
        let cost = Some(Usd(5));
        ledger.take(Usage::Delta { tokens: tokens(1_000_000, 0), cost });
        ledger.take(Usage::Delta { tokens: tokens(1_000_000, 0), cost });
        assert_eq!(ledger.cost(&PRICES, true), Cost::Known(Usd(10)));
        assert_eq!(ledger.cost(&Prices::default(), true), Cost::Known(Usd(10)));
    }

    #[test]
    fn some_may_come_with_money_and_some_without() {
        let mut ledger = Ledger::default();
        ledger.take(Usage::Total { tokens: tokens(9, 9), cost: Some(Usd(7)) });
        ledger.take(Usage::Total { tokens: tokens(9, 9), cost: Some(Usd(5)) });
        ledger.take(Usage::Delta { tokens: tokens(1_000_000, 0), cost: None });
        assert_eq!(ledger.spent(&PRICES), Usd(1_000_007));
        assert_eq!(ledger.cost(&PRICES, false), Cost::AtLeast(Usd(1_000_007)));
    }
}
