//! When two states are the same: no question to the engine, now or later, is decided otherwise.
//!
//! Tokens are only ever compared with those of the same task, times since which something is so with
//! each other, and other times with now; so the results of those comparisons stand for them. Counts
//! stand for what is left of their bounds: how many attempts there were decides nothing. The
//! position in the log does not count, and money does only where there is some.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use super::state::{Holder, State};
use crate::command::StageReport;
use crate::id::FencingToken;
use crate::lease::Lease;
use crate::money::Cost;
use crate::record::{PassedOver, Phase, RunRecord, TaskRecord};
use crate::time::Timestamp;

impl State {
    /// A number that is the same for states that are the same.
    pub(super) fn fingerprint(&self) -> u128 {
        let mut writer = Writer::new(self);
        writer.run(self);
        for task in self.engine.tasks() {
            writer.task(&task);
            let priority = self.engine.spec(&task.id).map_or(0, |spec| spec.priority);
            writer.number(u64::from(priority.unsigned_abs()));
            if self.money {
                writer.money(&task, self.sent.get(&task.id));
            }
            let late = self.sent.get(&task.id).map(|report| report.token);
            writer.number(late.map_or(9, |token| relation(&task, token)));
            let intent = task.intent.as_ref().map(|intent| &intent.merged);
            let merged = self.merged.get(&task.id);
            let flags = [intent.is_some(), merged.is_some(), intent == merged];
            writer.number(flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag)));
            let holders = self.holders.iter().filter(|holder| holder.grant.task == task.id);
            holders.for_each(|holder| writer.holder(holder, relation(&task, holder.grant.token)));
        }
        if self.money
            && let Some(run) = self.engine.run()
        {
            [run.spent, run.reserved].iter().for_each(|sum| writer.number(sum.0));
        }
        for pool in self.engine.pools() {
            writer.number(u64::from(pool.limit));
            writer.time_left(pool.closed_until);
        }
        let left = [self.crashes, self.people, self.edits, self.usage_limits];
        writer.number(left.iter().fold(0, |bits, left| bits << 8 | u64::from(*left)));
        writer.digest()
    }
}

/// What the engine can find out when it compares a token with those of its task.
fn relation(task: &TaskRecord, token: FencingToken) -> u64 {
    let lives = matches!(&task.phase, Phase::Leased(lease) if lease.token == token);
    let is_last = token == task.last_token;
    let is_unheard = task.unheard.iter().any(|lease| lease.token == token);
    let is_known = task.refused.is_some_and(|refused| refused >= token) && !is_unheard;
    u64::from(lives) << 2 | u64::from(is_last) << 1 | u64::from(is_known)
}

struct Writer {
    bytes: Vec<u8>,
    now: u64,
    since: Vec<Timestamp>,
}

impl Writer {
    fn new(state: &State) -> Self {
        let since: BTreeSet<Timestamp> = state.engine.tasks().map(|task| task.since).collect();
        Self { bytes: Vec::with_capacity(512), now: state.now, since: since.into_iter().collect() }
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn time_left(&mut self, at: Option<Timestamp>) {
        self.number(at.map_or(u64::MAX, |at| at.0.saturating_sub(self.now)));
    }

    fn run(&mut self, state: &State) {
        let Some(run) = state.engine.run() else { return };
        let RunRecord {
            id: _,
            state: kind,
            rules: _,
            last_at: _,
            last_token: _,
            budget: _,
            spent: _,
            reserved: _,
            driver,
            anchor: _,
            plans: _,
            first_stage_failures,
            passed_over,
            // Nobody sets one here.
            pilot: _,
            counts: _,
        } = run;
        self.text(kind.as_str());
        self.number(u64::from(driver.is_some()));
        self.number(u64::from(*first_stage_failures));
        for (task, times) in passed_over.iter().flat_map(PassedOver::counted) {
            self.number(u64::from(task.0) << 32 | u64::from(times));
        }
        self.number(u64::MAX);
    }

    fn task(&mut self, task: &TaskRecord) {
        let TaskRecord {
            id: _,
            phase,
            stage,
            attempt: _,
            under_way,
            rejections,
            rounds,
            interruptions,
            deferrals,
            dispatches,
            extra,
            feedback: _,
            signature,
            restart,
            holds_scope,
            workspace,
            session: _,
            candidate,
            intent: _,
            last_token: _,
            content: _,
            settled: _,
            unheard: _,
            refused: _,
            spent: _,
            since,
        } = task;
        self.phase(phase);
        self.number(u64::from(*stage) << 2 | u64::from(*under_way) << 1 | u64::from(*holds_scope));
        // Counts stand for what is left of their bounds.
        self.number(u64::from(rejections.saturating_sub(extra.retries)));
        let met = dispatches.saturating_sub(*deferrals);
        self.number(u64::from(met.saturating_sub(extra.dispatches)));
        self.number(u64::from(deferrals.saturating_sub(extra.deferrals)));
        rounds.iter().for_each(|rounds| self.number(u64::from(*rounds)));
        self.number(rounds.len() as u64);
        self.number(u64::from(*interruptions) << 1 | u64::from(signature.is_some()));
        self.number(u64::from(*restart == crate::outcome::Restart::OnTarget));
        self.number(u64::from(workspace.is_some()) << 1 | u64::from(candidate.is_some()));
        self.number(self.since.partition_point(|other| other < since) as u64);
    }

    /// What was booked for the task's last lease, and what its holder may say yet.
    fn money(&mut self, task: &TaskRecord, late: Option<&StageReport>) {
        self.number(task.settled.0);
        let unheard = late.and_then(|late| {
            task.unheard.iter().find(|lease| lease.token == late.token).map(|lease| lease.booked.0)
        });
        self.number(unheard.map_or(0, |booked| booked << 1 | 1));
        let (Phase::Leased(lease) | Phase::Stopping { lease, .. }) = &task.phase else {
            self.number(u64::MAX);
            return self.late_money(late);
        };
        self.number(lease.reserved.0);
        self.late_money(late);
    }

    fn late_money(&mut self, late: Option<&StageReport>) {
        let cost = late.map_or(Cost::NONE, |report| report.cost);
        let (Cost::Known(seen) | Cost::AtLeast(seen)) = cost;
        self.number(seen.0 << 1 | u64::from(matches!(cost, Cost::Known(_))));
    }

    fn phase(&mut self, phase: &Phase) {
        self.text(phase.as_str());
        match phase {
            Phase::Deferred { until, .. } => self.time_left(Some(*until)),
            Phase::Leased(lease) => self.lease(lease),
            Phase::Stopping { lease, why } => {
                self.lease(lease);
                self.number(u64::from(*why == crate::outcome::Interruption::Expired));
            }
            Phase::Escalated(escalation) => self.text(escalation.cause.as_str()),
            Phase::Open | Phase::Done(_) | Phase::Cancelled => {}
        }
    }

    fn lease(&mut self, lease: &Lease) {
        self.time_left(Some(lease.hard_stop));
        self.text(lease.owner.as_str());
    }

    fn holder(&mut self, holder: &Holder, relation: u64) {
        // What it was granted is what its task's record says while its lease lives, and counts for
        // nothing later.
        let Holder { grant: _, kind, intended, merged } = holder;
        self.text(kind.as_str());
        self.number(relation << 2 | u64::from(*intended) << 1 | u64::from(*merged));
    }

    fn digest(&self) -> u128 {
        let digest = Sha256::digest(&self.bytes);
        digest.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
    }
}
