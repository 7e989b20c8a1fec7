//! What runs next.

use std::time::Duration;

use super::index::{Key, Needs, key, needs};
use super::{Engine, Entry};
use crate::command::{Answer, Decision, Grant, Refusal};
use crate::event::EventKind;
use crate::id::{FencingToken, OwnerId};
use crate::money::Usd;
use crate::outcome::Restart;
use crate::pipeline::StageSpec;
use crate::record::{RunRecord, RunState, TaskRecord};
use crate::time::Timestamp;

/// How long after its timeout a stage is ended whatever its holder does.
const HARD_STOP_GRACE: Duration = Duration::from_secs(60);

impl Engine {
    pub(super) fn decide_claim(
        &self,
        now: Timestamp,
        run: &RunRecord,
        owner: &OwnerId,
    ) -> Result<Decision, Refusal> {
        if run.driver.as_ref() != Some(owner) {
            return Err(Refusal::NotDriver(owner.clone()));
        }
        let Some((number, stage)) = self.next_grant(now, run) else {
            return Ok(Decision::answering(now, vec![], Answer::Nothing));
        };
        let place = number as usize;
        let (record, entry) = (&self.tasks[place], &self.entries[place]);
        let token = FencingToken(run.last_token.0.saturating_add(1));
        // There is one, or the stage would not have been admitted.
        let cap = reservation(run, stage).unwrap_or_default();
        let grant = grant(number, record, token, cap);
        let granted = EventKind::Granted {
            task: entry.spec.id.clone(),
            stage: record.stage,
            attempt: grant.attempt,
            token,
            owner: owner.clone(),
            hard_stop: now.after(stage.timeout).after(HARD_STOP_GRACE),
            reserved: cap,
        };
        Ok(Decision::answering(now, vec![granted], Answer::Granted(Box::new(grant))))
    }

    /// The stage that a claim would be given: the first in order that fits.
    ///
    /// What does not fit is passed over, so that nothing waits behind it. Tasks whose wait is over
    /// count, whether or not a tick has said so.
    pub(super) fn next_grant(&self, now: Timestamp, run: &RunRecord) -> Option<(u32, &StageSpec)> {
        if run.state != RunState::Active {
            return None;
        }
        let ready = self.index.ready.iter().filter(|(needs, _)| self.has_permits(now, needs));
        let ready = ready.filter_map(|(_, queue)| {
            queue.iter().find(|key| self.is_admissible(run, key.index)).copied()
        });
        let due = self.due(now).filter_map(|number| self.due_key(now, run, number));
        let first = ready.chain(due).min()?.index;
        let place = first as usize;
        let stage = self.entries[place].pipeline.stage(self.tasks[place].stage)?;
        Some((first, stage))
    }

    /// Deferred tasks whose wait is over.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = u32> {
        self.index.timers.range(..=(now, u32::MAX)).map(|(_, number)| *number)
    }

    fn due_key(&self, now: Timestamp, run: &RunRecord, number: u32) -> Option<Key> {
        let (record, entry) = (&self.tasks[number as usize], &self.entries[number as usize]);
        let fits = entry.unmet == 0
            && self.has_permits(now, &needs(entry, record))
            && self.is_admissible(run, number);
        fits.then(|| key(number, entry, record))
    }

    /// Whether every pool has the permits, and is open.
    pub(super) fn has_permits(&self, now: Timestamp, needs: &Needs) -> bool {
        needs.iter().all(|(name, permits)| {
            self.pools.get(name).is_some_and(|pool| {
                let used = self.index.in_use.get(name).copied().unwrap_or(0);
                let open = pool.closed_until.is_none_or(|until| until <= now);
                open && used.checked_add(*permits).is_some_and(|sum| sum <= pool.limit)
            })
        })
    }

    /// Whether budget and scopes let the task start its stage.
    fn is_admissible(&self, run: &RunRecord, number: u32) -> bool {
        let (record, entry) = (&self.tasks[number as usize], &self.entries[number as usize]);
        let Some(stage) = entry.pipeline.stage(record.stage) else { return false };
        reservation(run, stage).is_some()
            && (record.holds_scope || self.scope_holder(number, entry).is_none())
    }

    /// A task that holds a scope which overlaps this one's.
    pub(super) fn scope_holder(&self, number: u32, entry: &Entry) -> Option<u32> {
        let scope = entry.spec.scope.as_ref()?;
        let overlaps = |holder: &u32| {
            let held = self.entries[*holder as usize].spec.scope.as_ref();
            *holder != number && held.is_some_and(|held| held.overlaps(scope))
        };
        self.index.scopes.iter().copied().find(overlaps)
    }
}

/// The smallest share of the budget that a stage is started with, when less than its cap is left: one
/// that can get nowhere would only waste it.
const BUDGET_SHARE_MIN: u64 = 16;

/// What is set aside for the stage: its cap, or what is left of the budget when that is less; `None`
/// when too little is left to start it.
pub(super) fn reservation(run: &RunRecord, stage: &StageSpec) -> Option<Usd> {
    let Some(budget) = run.budget else { return Some(stage.cap) };
    let left = budget.minus(run.spent).minus(run.reserved);
    let least = stage.cap.min(Usd(budget.0 / BUDGET_SHARE_MIN));
    (stage.cap == Usd::ZERO || (left > Usd::ZERO && left >= least)).then(|| stage.cap.min(left))
}

fn grant(number: u32, record: &TaskRecord, token: FencingToken, cap: Usd) -> Grant {
    let restart = if record.candidate.is_some() { record.restart } else { Restart::OnTarget };
    Grant {
        index: number,
        task: record.id.clone(),
        stage: record.stage,
        attempt: if record.under_way { record.attempt } else { record.attempt.saturating_add(1) },
        dispatch: record.dispatches.saturating_add(1),
        token,
        cap,
        feedback: record.feedback.clone(),
        restart,
        // Only what this very attempt left can be gone on with.
        workspace: record.workspace.filter(|_| record.under_way),
        session: record.session.clone(),
        candidate: record.candidate.clone(),
        intent: record.intent.clone(),
    }
}
