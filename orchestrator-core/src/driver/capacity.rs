//! Limits of pools that change by themselves: says to their sources what was committed, and makes
//! commands of what they say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// What a source computes from another clock may differ by so much from one time to the next.
const ABOUT: Duration = Duration::from_secs(1);

/// The sources of a run, and what they must know.
pub(super) struct Feed {
    sources: BTreeMap<PoolName, SharedCapacity>,
    /// The pools of stages under way that have a source.
    pools: BTreeMap<FencingToken, Vec<PoolName>>,
    /// Until when their sources closed pools, also such as a person has opened since.
    claimed: BTreeMap<PoolName, Timestamp>,
}

impl Feed {
    /// The feed of a run; a source that says so has closed what is closed.
    pub(super) fn new(
        sources: BTreeMap<PoolName, SharedCapacity>,
        engine: &Engine,
        now: Timestamp,
    ) -> Self {
        let mut feed = Self { sources, pools: BTreeMap::new(), claimed: BTreeMap::new() };
        for pool in engine.pools() {
            if let Some(until) = pool.closed_until {
                feed.claims(&pool.name, now, until);
            }
        }
        feed
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
            self.claims(pool, at, *until);
        } else if let EventKind::PoolOpened { pool } = kind {
            self.claims(pool, at, at);
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

    /// Notes what the source of a pool says, which is closed until then.
    fn claims(&mut self, pool: &PoolName, now: Timestamp, closed: Timestamp) {
        let said = self.sources.get(pool).and_then(|source| ask(source, |it| it.capacity(now)));
        let said = said.and_then(|said| closing(said, now));
        match said.filter(|said| is_about(Some(said), closed)) {
            Some(said) => self.claimed.insert(pool.clone(), said),
            None => self.claimed.remove(pool),
        };
    }

    /// What makes the pools as the sources say.
    ///
    /// A pool that a source had closed opens when the source says so, unless it was closed for longer
    /// by something else. One that a person opened stays open until the source says a later time.
    pub(super) fn commands(&self, engine: &Engine, now: Timestamp) -> Vec<Command> {
        let mut commands = Vec::new();
        for (name, capacity) in self.capacities(now) {
            let known = engine.pools().find(|known| known.name == *name);
            let closed = known.and_then(|known| known.closed_until).filter(|until| *until > now);
            let claimed = self.claimed.get(name);
            let (pool, until) = (name.clone(), closing(capacity, now));
            let is_sooner = closed.is_some_and(|closed| {
                is_about(claimed, closed) && until.is_none_or(|until| until.after(ABOUT) < closed)
            });
            if is_sooner {
                commands.push(Command::OpenPool { pool: pool.clone() });
            }
            if let Some(until) = until {
                let is_waived = closed.is_none() && is_about(claimed, until);
                let closes = is_sooner || (closed < Some(until) && !is_waived);
                commands.extend(closes.then_some(Command::ClosePool { pool, until }));
            } else if known.is_none_or(|known| known.limit != capacity.limit) {
                commands.push(Command::LimitPool { pool, limit: capacity.limit });
            }
        }
        commands
    }

    /// When the sources say something else without anything happening.
    pub(super) fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        self.capacities(now).filter_map(|(_, capacity)| capacity.until).filter(|at| *at > now).min()
    }
}

/// Whether what was said covers another time, as far as clocks agree.
fn is_about(said: Option<&Timestamp>, other: Timestamp) -> bool {
    said.is_some_and(|said| other <= said.after(ABOUT))
}

/// Until when a pool is closed by what its source says.
fn closing(capacity: Capacity, now: Timestamp) -> Option<Timestamp> {
    capacity.until.filter(|until| capacity.limit == 0 && *until > now)
}

/// What a source answers; `None` when it panics.
fn ask<T>(source: &SharedCapacity, ask: impl FnOnce(&mut dyn CapacitySource) -> T) -> Option<T> {
    let ask = || ask(&mut *source.lock().unwrap_or_else(PoisonError::into_inner));
    caught_now("what says the limit of a pool", ask).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{CommandId, RunId};
    use crate::retry::RetryRules;

    /// Says what it is told to say.
    #[derive(Debug)]
    struct Said(Capacity);

    impl CapacitySource for Said {
        fn note(&mut self, _now: Timestamp, _sign: Sign) {}

        fn capacity(&self, _now: Timestamp) -> Capacity {
            self.0
        }
    }

    fn pool() -> PoolName {
        PoolName::parse("agents").unwrap()
    }

    struct World {
        engine: Engine,
        feed: Feed,
        source: Arc<Mutex<Said>>,
    }

    impl World {
        fn new() -> Self {
            let source = Arc::new(Mutex::new(Said(Capacity { limit: 4, until: None })));
            let shared: SharedCapacity = Arc::clone(&source) as _;
            let engine = Engine::new(RunId::parse("r").unwrap());
            let feed = Feed::new([(pool(), shared)].into(), &engine, Timestamp(0));
            let mut world = Self { engine, feed, source };
            world.tell(&Command::CreateRun { rules: RetryRules::default() });
            world.turn();
            world
        }

        fn tell(&mut self, command: &Command) {
            let id = CommandId::parse("c").unwrap();
            self.engine.submit(Timestamp(10), &id, command).unwrap();
            let seq = crate::id::Seq(0);
            for event in self.engine.batch().map(|commit| commit.events).unwrap_or_default() {
                self.feed.take(&StoredEvent { seq, event });
            }
            self.engine.accept();
        }

        /// Asks the source; until when the pool is closed after that.
        fn turn(&mut self) -> Option<u64> {
            let commands = self.feed.commands(&self.engine, Timestamp(10));
            commands.iter().for_each(|command| self.tell(command));
            assert_eq!(self.feed.commands(&self.engine, Timestamp(10)), [], "once is enough");
            self.engine.pools().next().and_then(|pool| pool.closed_until).map(|until| until.0)
        }

        /// Another driver takes over.
        fn restart(&mut self) {
            let sources = self.feed.sources.clone();
            self.feed = Feed::new(sources, &self.engine, Timestamp(10));
        }

        fn says(&self, limit: u32, until: Option<u64>) {
            *self.source.lock().unwrap() = Said(Capacity { limit, until: until.map(Timestamp) });
        }
    }

    #[test]
    fn a_source_takes_back_what_it_said_and_nothing_that_others_said() {
        let mut world = World::new();
        world.says(0, Some(90_000));
        assert_eq!(world.turn(), Some(90_000));
        world.says(0, Some(50_000));
        assert_eq!(world.turn(), Some(50_000), "sooner");
        world.says(0, Some(49_990));
        assert_eq!(world.turn(), Some(50_000), "its clock and the run's differ a little");
        world.restart();
        world.says(2, Some(60_000));
        assert_eq!(world.turn(), None);
        world.says(0, Some(50_000));
        assert_eq!(world.turn(), Some(50_000));
        world.tell(&Command::ClosePool { pool: pool(), until: Timestamp(80_000) });
        world.says(2, None);
        assert_eq!(world.turn(), Some(80_000), "somebody else closed it for longer");
    }

    #[test]
    fn what_a_person_opened_is_closed_again_only_for_longer_than_was_said_before() {
        let mut world = World::new();
        world.says(0, Some(50_000));
        world.turn();
        world.tell(&Command::OpenPool { pool: pool() });
        assert_eq!(world.turn(), None);
        world.says(0, Some(70_000));
        assert_eq!(world.turn(), Some(70_000));
        world.says(0, Some(50_000));
        assert_eq!(world.turn(), Some(50_000), "what was waived is over");
    }
}
