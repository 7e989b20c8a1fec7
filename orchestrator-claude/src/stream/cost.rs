//! What a run cost, from what the program says of it.

use std::collections::BTreeMap;

use orchestrator_core::{Cost, Usd};
use serde_json::{Map, Value};

use super::MESSAGES_MAX;
use super::fields::{integer, map, text};

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
    fn read(usage: &Map<String, Value>) -> Self {
        let of = |key| integer(usage, key).unwrap_or(0);
        Self {
            input: of("input_tokens"),
            output: of("output_tokens"),
            cache_read: of("cache_read_input_tokens"),
            cache_write: of("cache_creation_input_tokens"),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
        }
    }
}

/// What a million tokens of each kind cost, for the lower bound of a run that was ended before it
/// could say what it cost.
///
/// The default is nothing, which is a lower bound too: such a run is then settled at what was
/// reserved for it.
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
}

/// What was heard about cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Costs {
    messages: BTreeMap<String, Tokens>,
    /// Messages that came after the last final line, which its total does not hold.
    since_final: BTreeMap<String, Tokens>,
    total: Option<Usd>,
    finals: u64,
    finals_with_part: u64,
    parts: Usd,
}

impl Costs {
    pub(super) fn message(&mut self, message: &Map<String, Value>) {
        let Some(usage) = map(message, "usage") else { return };
        let tokens = Tokens::read(usage);
        if tokens == Tokens::default() {
            return; // The program's own notices use none.
        }
        let id = text(message, "id").unwrap_or_default();
        // A message is repeated for each of its blocks, with the same use.
        add(&mut self.messages, id, tokens);
        add(&mut self.since_final, id, tokens);
    }

    pub(super) fn result(&mut self, event: &Map<String, Value>) {
        self.finals += 1;
        self.since_final.clear();
        let total = event.get("total_cost_usd").and_then(Value::as_f64);
        self.total = total.and_then(Usd::from_dollars).or(self.total);
        if let Some(models) = map(event, "model_usage_since_last_result") {
            let costs = models.values().filter_map(|model| model.get("costUSD")?.as_f64());
            self.finals_with_part += 1;
            self.parts = self.parts.plus(costs.filter_map(Usd::from_dollars).sum());
        }
    }

    pub(super) fn tokens(&self) -> Tokens {
        sum(&self.messages)
    }

    pub(super) fn of_run(&self, prices: &Prices) -> Cost {
        let unsaid = prices.of(sum(&self.since_final));
        match self.said() {
            Some(said) if self.since_final.is_empty() => Cost::Known(said),
            Some(said) => Cost::AtLeast(said.plus(unsaid)),
            None => Cost::AtLeast(unsaid),
        }
    }

    /// What the final lines say this run cost.
    ///
    /// 2.1.332 goes on with the total of the conversation when it is taken up or forked, and says
    /// what this run added; 2.1.197 begins anew. A version that goes on and does not say so would be
    /// booked with the total: too much is mended by a person, too little by nobody.
    fn said(&self) -> Option<Usd> {
        let says_parts = self.finals == self.finals_with_part;
        self.total.map(|total| if says_parts { self.parts } else { total })
    }
}

fn add(to: &mut BTreeMap<String, Tokens>, id: &str, tokens: Tokens) {
    if let Some(known) = to.get_mut(id) {
        *known = known.max(tokens);
    } else if to.len() < MESSAGES_MAX {
        to.insert(id.to_owned(), tokens);
    }
}

fn sum(messages: &BTreeMap<String, Tokens>) -> Tokens {
    messages.values().copied().fold(Tokens::default(), Tokens::plus)
}
