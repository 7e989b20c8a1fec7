//! What a run cost, from what the program says of it.

use std::collections::BTreeMap;

use orchestrator_core::{Cost, Usd};
use serde_json::{Map, Value};

use super::MESSAGES_MAX;
use super::fields::{integer, map, text};
use crate::agent::{Prices, Tokens};

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
        let tokens = tokens(usage);
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
        // A total never shrinks: one that is told out of order takes nothing back.
        self.total = self.total.max(total.and_then(Usd::from_dollars));
        if let Some(part) = map(event, "model_usage_since_last_result").and_then(part) {
            self.finals_with_part += 1;
            self.parts = self.parts.plus(part);
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

/// What was used since the final line before; nothing is known where one model does not say its cost.
fn part(models: &Map<String, Value>) -> Option<Usd> {
    let costs = models.values().map(|model| Usd::from_dollars(model.get("costUSD")?.as_f64()?));
    costs.sum()
}

fn tokens(usage: &Map<String, Value>) -> Tokens {
    let of = |key| integer(usage, key).unwrap_or(0);
    Tokens {
        input: of("input_tokens"),
        output: of("output_tokens"),
        cache_read: of("cache_read_input_tokens"),
        cache_write: of("cache_creation_input_tokens"),
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
