//! Limits of pools that change by themselves: says to their sources what was committed, and makes
//! commands of what they say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::shield::caught_now;
use crate::capacity::{Capacity, CapacitySource, Sign};
use crate::command::{Command, Grant};
use crate::engine::Engine;
use crate::event::{EventKind, StoredEvent};
use crate::id::{FencingToken, PoolName};
use crate::outcome::Interruption;
use crate::time::Timestamp;

/// A source that the program may share with others, and tell things itself.
pub type SharedCapacity = Arc<Mutex<dyn CapacitySource>>;

/// The sources of a run, and what they must know.
pub(super) struct Feed {
    sources: BTreeMap<PoolName, SharedCapacity>,
    /// The pools of stages under way that have a source.
    pools: BTreeMap<FencingToken, Vec<PoolName>>,
}

impl Feed {
    pub(super) const fn new(sources: BTreeMap<PoolName, SharedCapacity>) -> Self {
        Self { sources, pools: BTreeMap::new() }
    }

    /// Notes which pools a stage takes permits of.
    pub(super) fn granted(&mut self, engine: &Engine, grant: &Grant) {
        let stage = engine.pipeline(&grant.task).and_then(|all| all.stage(grant.stage));
        let own = stage.map(|stage| &stage.pool);
        let needs = engine.spec(&grant.task).into_iter().flat_map(|spec| spec.needs.keys());
        let pools = needs.chain(own).filter(|pool| self.sources.contains_key(*pool));
        let pools: Vec<PoolName> = pools.cloned().collect();
        if !pools.is_empty() {
            self.pools.insert(grant.token, pools);
        }
    }

    /// Takes in what was committed.
    pub(super) fn take(&mut self, stored: &StoredEvent) {
        let at = stored.event.at;
        let kind = &stored.event.kind;
        if let EventKind::PoolClosed { pool, until } = kind {
            self.say(pool, at, Sign::Used { per_mille: 1_000, reopens: Some(*until) });
        } else if let EventKind::Passed { token, .. } | EventKind::Rejected { token, .. } = kind {
            self.ended(*token, at, Some(Sign::Passed));
        } else if let EventKind::Interrupted { token, reason, .. } = kind {
            let slows = matches!(reason, Interruption::Overload | Interruption::RateLimited);
            self.ended(*token, at, slows.then_some(Sign::Overloaded));
        } else if let EventKind::Escalated { token: Some(token), .. } = kind {
            self.ended(*token, at, None);
        }
    }

    fn ended(&mut self, token: FencingToken, at: Timestamp, sign: Option<Sign>) {
        for pool in self.pools.remove(&token).unwrap_or_default() {
            if let Some(sign) = sign {
                self.say(&pool, at, sign);
            }
        }
    }

    fn say(&self, pool: &PoolName, at: Timestamp, sign: Sign) {
        if let Some(source) = self.sources.get(pool) {
            ask(source, |source| source.note(at, sign));
        }
    }

    /// What each source says; the limit of one that panics stays as it is.
    fn capacities(&self, now: Timestamp) -> impl Iterator<Item = (&PoolName, Capacity)> {
        self.sources
            .iter()
            .filter_map(move |(pool, source)| Some((pool, ask(source, |it| it.capacity(now))?)))
    }

    /// What makes the pools as the sources say.
    pub(super) fn commands(&self, engine: &Engine, now: Timestamp) -> Vec<Command> {
        let of = |(pool, Capacity { limit, until }): (&PoolName, Capacity)| {
            let known = engine.pools().find(|known| known.name == *pool);
            let pool = pool.clone();
            if let Some(until) = until.filter(|until| limit == 0 && *until > now) {
                let closed = known.and_then(|known| known.closed_until);
                return (closed < Some(until)).then_some(Command::ClosePool { pool, until });
            }
            let is_so = known.is_some_and(|known| known.limit == limit);
            (!is_so).then_some(Command::LimitPool { pool, limit })
        };
        self.capacities(now).filter_map(of).collect()
    }

    /// When the sources say something else without anything happening.
    pub(super) fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        self.capacities(now).filter_map(|(_, capacity)| capacity.until).filter(|at| *at > now).min()
    }
}

/// What a source answers; `None` when it panics.
fn ask<T>(source: &SharedCapacity, ask: impl FnOnce(&mut dyn CapacitySource) -> T) -> Option<T> {
    let ask = || ask(&mut *source.lock().unwrap_or_else(PoisonError::into_inner));
    caught_now("what says the limit of a pool", ask).ok()
}
