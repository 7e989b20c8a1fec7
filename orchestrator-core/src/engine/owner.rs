//! Who drives the run, and what time does: leases that end, waits that are over, a run that is.

use std::time::Duration;

use super::Engine;
use super::ask::Settlement;
use super::index::lease;
use crate::command::{Decision, Refusal};
use crate::event::EventKind;
use crate::id::{FencingToken, OwnerId};
use crate::lease::Owner;
use crate::outcome::Interruption;
use crate::record::{Phase, RunRecord, RunState};
use crate::time::{Anchor, ClockReading, Timestamp, millis};

/// Waits that one tick ends at most; the next tick goes on.
const DUE_AT_ONCE_MAX: usize = 256;

/// What a process says of itself when it begins to drive.
pub(super) struct Opening<'a> {
    pub(super) owner: &'a Owner,
    pub(super) reading: &'a ClockReading,
    pub(super) ttl: Duration,
    pub(super) floor: FencingToken,
}

impl Engine {
    pub(super) fn decide_open(
        &self,
        now: Timestamp,
        run: &RunRecord,
        opening: &Opening<'_>,
        ended: Option<&OwnerId>,
    ) -> Result<Decision, Refusal> {
        let mut events = Vec::new();
        if let Some(driver) = &run.driver {
            let known = self.owners.get(driver);
            match known {
                Some(record) if ended != Some(driver) => {
                    return Err(Refusal::DriverRunning(Box::new(record.owner.clone())));
                }
                Some(_) | None => events.push(EventKind::DriverEnded { owner: driver.clone() }),
            }
        }
        let now = run.anchor.as_ref().map_or(now, |anchor| anchor.now(opening.reading).max(now));
        events.push(EventKind::DriverOpened {
            owner: opening.owner.clone(),
            anchor: Anchor { reading: opening.reading.clone(), at: now },
            ttl_ms: millis(opening.ttl),
            token_floor: opening.floor,
        });
        // Its own among them: a process may drive again after it had to give up.
        events.extend(self.stopping_of(|_| true));
        Ok(Decision::of(now, events))
    }

    pub(super) fn decide_close(
        &self,
        now: Timestamp,
        run: &RunRecord,
        owner: &OwnerId,
    ) -> Result<Decision, Refusal> {
        if run.driver.as_ref() != Some(owner) {
            return Err(Refusal::NotDriver(owner.clone()));
        }
        let mut events = self.stopping_of(|held_by| held_by == owner);
        events.push(EventKind::DriverEnded { owner: owner.clone() });
        Ok(Decision::of(now, events))
    }

    /// Live leases of these owners end: what runs under them must be stopped.
    fn stopping_of(&self, of: impl Fn(&OwnerId) -> bool) -> Vec<EventKind> {
        let live = self.index.hard_stops.iter().map(|(_, number)| *number);
        live.filter_map(|number| self.stopping(number, Interruption::OwnerLost, &of)).collect()
    }

    fn stopping(
        &self,
        number: u32,
        reason: Interruption,
        of: impl Fn(&OwnerId) -> bool,
    ) -> Option<EventKind> {
        let record = self.tasks.get(number as usize)?;
        let lease = lease(&record.phase).filter(|lease| of(&lease.owner))?;
        let (task, token) = (record.id.clone(), lease.token);
        matches!(record.phase, Phase::Leased(_)).then_some(EventKind::Stopping {
            task,
            token,
            reason,
        })
    }

    /// What happens because it is `now`: leases past their end, and waits that are over.
    pub(super) fn time_events(&self, now: Timestamp, run: &RunRecord) -> Vec<EventKind> {
        let past = self.index.hard_stops.range(..=(now, u32::MAX)).map(|(_, number)| *number);
        let mut events: Vec<EventKind> = past
            .filter_map(|number| self.stopping(number, Interruption::Expired, |_| true))
            .collect();
        for record in self.owners.values() {
            let id = &record.owner.id;
            if !record.ended && run.driver.as_ref() != Some(id) && record.renew_by() <= now {
                events.extend(self.stopping_of(|owner| owner == id));
                events.push(EventKind::DriverEnded { owner: id.clone() });
            }
        }
        let reopening =
            self.pools.values().filter(|pool| pool.closed_until.is_some_and(|at| at <= now));
        events.extend(reopening.map(|pool| EventKind::PoolOpened { pool: pool.name.clone() }));
        let due = self.due(now).take(DUE_AT_ONCE_MAX);
        events.extend(due.map(|number| {
            let task = self.tasks[number as usize].id.clone();
            EventKind::Due { task }
        }));
        events
    }

    /// What the run comes to when nothing more can happen.
    pub(super) fn settling(&self, now: Timestamp, run: &RunRecord) -> Vec<EventKind> {
        match self.settlement(now) {
            Some(Settlement::Completed) if run.state == RunState::Active => {
                vec![EventKind::Completed]
            }
            Some(Settlement::Failed) if run.state == RunState::Active => vec![EventKind::Failed],
            Some(Settlement::Parked(reason)) => match run.state {
                RunState::Active | RunState::Draining { .. } => vec![EventKind::Parked { reason }],
                RunState::Paused { .. }
                | RunState::Parked { .. }
                | RunState::Completed
                | RunState::Failed => vec![],
            },
            Some(Settlement::Completed | Settlement::Failed | Settlement::Stalled) | None => {
                vec![]
            }
        }
    }
}
