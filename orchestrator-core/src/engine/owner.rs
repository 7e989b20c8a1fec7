//! Who drives the run, and what time does: leases that end, waits that are over, tasks that have
//! spent their budget, a run that is over.

use std::time::Duration;

use super::Engine;
use super::ask::Settlement;
use super::draft::Draft;
use crate::command::Refusal;
use crate::event::EventKind;
use crate::id::{FencingToken, OwnerId, TaskNo};
use crate::lease::{HELD, Owner};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::outcome::Interruption;
use crate::record::{Cause, OwnerRecord, RunRecord, RunState};
use crate::time::{Anchor, ClockReading, millis};

/// Waits that one tick ends at most; the next tick goes on.
const DUE_AT_ONCE_MAX: usize = 256;

/// What a process says of itself when it begins to drive.
pub(super) struct Opening<'a> {
    pub(super) owner: &'a Owner,
    pub(super) reading: &'a ClockReading,
    pub(super) ttl: Duration,
    pub(super) floor: FencingToken,
}

/// Longest host or boot id of an owner, in bytes: an event names the boot twice.
const HOST_BYTES_MAX: usize = 256;

/// Whether what a process says of itself fits into an event.
fn check_owner(opening: &Opening<'_>) -> Result<(), Refusal> {
    let texts = [
        ("host", &opening.owner.host),
        ("boot id", &opening.owner.boot_id),
        ("boot id of its clock", &opening.reading.boot_id),
    ];
    let is_bad = |text: &str| text.len() > HOST_BYTES_MAX || text.contains(char::is_control);
    match texts.into_iter().find(|(_, text)| is_bad(text)) {
        Some((what, _)) => Err(Refusal::InvalidOwner { owner: opening.owner.id.clone(), what }),
        None => Ok(()),
    }
}

impl Engine {
    pub(super) fn decide_open(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        opening: &Opening<'_>,
        ended: Option<&OwnerId>,
    ) -> Result<(), Refusal> {
        check_owner(opening)?;
        if !opening.floor.leaves_enough() {
            return Err(Refusal::TokensUsedUp { last: opening.floor });
        }
        let anchor = run.anchor.as_ref();
        draft.now = anchor.map_or(draft.now, |anchor| anchor.now(opening.reading).max(draft.now));
        let calls_again = self.calls_again(run, opening);
        if let Some(driver) = run.driver.as_ref().filter(|_| !calls_again) {
            match self.owners.by_name(driver) {
                Some(record) if ended != Some(driver) && !is_on(Mutant::SecondDriverOpens) => {
                    return Err(Refusal::DriverRunning(Box::new(record.owner.clone())));
                }
                Some(_) | None => draft.push(EventKind::DriverEnded { owner: driver.clone() }),
            }
        }
        let anchor = Anchor { reading: opening.reading.clone(), at: draft.now };
        draft.push(EventKind::DriverOpened {
            owner: Box::new(opening.owner.clone()),
            anchor,
            ttl_ms: millis(opening.ttl),
            token_floor: opening.floor,
        });
        // Its own among them: a process may drive again after it had to give up.
        self.stop_leases(draft, |_| !calls_again && !is_on(Mutant::LeaseOfLostOwnerLives));
        Ok(())
    }

    /// Whether this is the supervisor that drives the run already, in another call.
    fn calls_again(&self, run: &RunRecord, opening: &Opening<'_>) -> bool {
        let is_it = run.driver.as_ref() == Some(&opening.owner.id) && opening.ttl >= HELD;
        is_it && self.owners.by_name(&opening.owner.id).is_some_and(OwnerRecord::is_held)
    }

    pub(super) fn decide_close(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        owner: &OwnerId,
    ) -> Result<(), Refusal> {
        if run.driver.as_ref() != Some(owner) {
            return Err(Refusal::NotDriver(owner.clone()));
        }
        let number = self.owners.find(owner);
        let leaves = is_on(Mutant::ClosingLeavesLeases);
        self.stop_leases(draft, |held_by| Some(held_by) == number && !leaves);
        draft.push(EventKind::DriverEnded { owner: owner.clone() });
        Ok(())
    }

    /// Live leases of these owners end: what runs under them must be stopped.
    fn stop_leases(&self, draft: &mut Draft, of: impl Fn(u32) -> bool) {
        let live = self.live_leases();
        for (_, task) in live.into_iter().filter(|(owner, _)| of(*owner)) {
            self.stop_lease(draft, task, Interruption::OwnerLost);
        }
    }

    /// Owner and task of each live lease, in the order of their hard stops.
    fn live_leases(&self) -> Vec<(u32, u32)> {
        let all = self.index.hard_stops.entries();
        let of = |lease: &super::leases::Lease| (lease.hold.owner, lease.task);
        let mut live: Vec<_> =
            all.filter_map(|(_, (_, number))| self.table.lease(number)).collect();
        live.sort_by_key(|lease| (lease.hold.hard_stop, lease.task));
        live.into_iter().map(of).collect()
    }

    fn stop_lease(&self, draft: &mut Draft, task: u32, reason: Interruption) {
        if let Some(hold) = self.table.view(task).hold() {
            let (task, token) = (TaskNo(task), hold.token);
            draft.push(EventKind::Stopping { task, token, reason });
        }
    }

    /// What happens because of the time: leases past their end, and waits that are over.
    pub(super) fn time_events(&self, draft: &mut Draft, run: &RunRecord) {
        let now = draft.now;
        let stops = self.index.hard_stops.until(now);
        let mut past: Vec<u32> =
            stops.filter_map(|lease| Some(self.table.lease(lease)?.task)).collect();
        past.sort_unstable();
        if is_on(Mutant::ExpiryLooksAtFirstOnly) {
            past.truncate(1);
        }
        for task in &past {
            self.stop_lease(draft, *task, Interruption::Expired);
        }
        for record in self.owners.values() {
            let id = &record.owner.id;
            if !record.ended && run.driver.as_ref() != Some(id) && record.renew_by() <= now {
                let number = self.owners.find(id);
                for (owner, task) in self.live_leases() {
                    if Some(owner) == number && past.binary_search(&task).is_err() {
                        self.stop_lease(draft, task, Interruption::OwnerLost);
                    }
                }
                draft.push(EventKind::DriverEnded { owner: id.clone() });
            }
        }
        let closed = self.pools.values();
        let again = is_on(Mutant::CleaningUpTwice);
        for pool in closed.filter(|pool| pool.closed_until.map_or(again, |at| at <= now)) {
            draft.push(EventKind::PoolOpened { pool: pool.name.clone() });
        }
        for task in self.index.overdrawn.iter().take(DUE_AT_ONCE_MAX) {
            draft.push(EventKind::Escalated {
                task: TaskNo(*task),
                token: None,
                cost: Usd::ZERO,
                cause: Cause::BudgetUsed,
                text: None,
                kept: None,
            });
        }
        for task in self.due(now).take(DUE_AT_ONCE_MAX) {
            draft.push(EventKind::Due { task: TaskNo(task) });
        }
    }

    /// What the run comes to when nothing more can happen.
    pub(super) fn settling(&self, draft: &mut Draft, run: &RunRecord) {
        match self.settlement(draft.now) {
            Some(Settlement::Completed) if run.state == RunState::Active => {
                draft.push(EventKind::Completed);
            }
            Some(Settlement::Failed)
                if run.state == RunState::Active && !is_on(Mutant::FailureIsSilent) =>
            {
                draft.push(EventKind::Failed);
            }
            Some(Settlement::Parked(reason)) => match run.state {
                RunState::Active | RunState::Draining { .. } => {
                    draft.push(EventKind::Parked { reason });
                }
                RunState::Paused { .. }
                | RunState::Parked { .. }
                | RunState::Completed
                | RunState::Failed => {}
            },
            Some(Settlement::Completed | Settlement::Failed | Settlement::Stalled) | None => {}
        }
    }
}
