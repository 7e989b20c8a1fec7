//! What the stages that ran came to, as assumptions about those that will.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Assumptions, Forecast};
use crate::engine::Engine;
use crate::event::{EventKind, StoredEvent};
use crate::id::TaskId;
use crate::money::Usd;
use crate::pipeline::StageKind;
use crate::time::Timestamp;

/// What some of a run's tasks came to, and what that says of the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// What the stages that ended took and cost on average.
    pub measured: Assumptions,
    /// What the rest of the run will come to if it goes on like that.
    pub forecast: Forecast,
}

/// A stage that was granted and has not ended.
struct Begun {
    kind: StageKind,
    at: Timestamp,
    reserved: Usd,
    estimate: Option<Duration>,
}

/// Sums over stages that ended.
#[derive(Default)]
struct Sums {
    /// Milliseconds and how many, by kind.
    times: BTreeMap<StageKind, (u64, u64)>,
    /// Milliseconds that run stages took which had an estimate, and those estimates.
    estimated: (u64, u64),
    /// Judgements, and those that rejected.
    judged: (u64, u64),
    /// Money spent, and money set aside for it.
    money: (u64, u64),
}

impl Assumptions {
    /// These assumptions with what the log of a run shows in their place: how long stages of each
    /// kind took, also in proportion to their estimates, how many changes were rejected, and what was
    /// spent of what was set aside. What the log says nothing of stays as it is.
    #[must_use]
    pub fn measured<'a>(
        self,
        engine: &Engine,
        log: impl IntoIterator<Item = &'a StoredEvent>,
    ) -> Self {
        let (mut begun, mut sums) = (BTreeMap::new(), Sums::default());
        for stored in log {
            let at = stored.event.at;
            let kind = &stored.event.kind;
            if let EventKind::Granted { task, stage, token, reserved, .. } = kind {
                let stage = (*stage, *reserved);
                begun.extend(beginning(engine, task, stage, at).map(|one| (*token, one)));
            } else if let EventKind::Passed { token, cost, .. } = kind {
                sums.ended(begun.remove(token), at, *cost, false);
            } else if let EventKind::Rejected { token, cost, .. } = kind {
                sums.ended(begun.remove(token), at, *cost, true);
            } else if let EventKind::Interrupted { token, cost, .. }
            | EventKind::Escalated { token: Some(token), cost, .. } = kind
                && let Some(begun) = begun.remove(token)
            {
                // What it took says nothing, but it was paid for.
                sums.paid(begun.reserved, *cost);
            }
        }
        sums.over(self)
    }
}

fn beginning(
    engine: &Engine,
    task: &TaskId,
    (stage, reserved): (u8, Usd),
    at: Timestamp,
) -> Option<Begun> {
    let kind = engine.pipeline(task)?.stage(stage)?.kind;
    let estimate = engine.spec(task).and_then(|spec| spec.estimate);
    Some(Begun { kind, at, reserved, estimate })
}

impl Sums {
    fn ended(&mut self, begun: Option<Begun>, at: Timestamp, cost: Usd, is_rejected: bool) {
        let Some(begun) = begun else { return };
        let took = crate::time::millis(at.since(begun.at));
        let (sum, count) = self.times.entry(begun.kind).or_default();
        (*sum, *count) = (sum.saturating_add(took), *count + 1);
        match begun.kind {
            StageKind::Run => {
                if let Some(estimate) = begun.estimate {
                    self.estimated.0 = self.estimated.0.saturating_add(took);
                    self.estimated.1 =
                        self.estimated.1.saturating_add(crate::time::millis(estimate));
                }
            }
            StageKind::Verify | StageKind::Review => {
                self.judged.0 += 1;
                self.judged.1 += u64::from(is_rejected);
            }
            StageKind::Gate | StageKind::Integrate => {}
        }
        self.paid(begun.reserved, cost);
    }

    fn paid(&mut self, reserved: Usd, cost: Usd) {
        if reserved > Usd::ZERO {
            self.money.0 = self.money.0.saturating_add(cost.0);
            self.money.1 = self.money.1.saturating_add(reserved.0);
        }
    }

    fn over(&self, mut assumed: Assumptions) -> Assumptions {
        for (kind, (sum, count)) in &self.times {
            let mean = Duration::from_millis(sum.checked_div(*count).unwrap_or(0));
            match kind {
                StageKind::Run => assumed.run = mean,
                StageKind::Verify => assumed.verify = mean,
                StageKind::Review => assumed.review = mean,
                StageKind::Integrate => assumed.integrate = mean,
                // How long one is asked says nothing of how long it stays closed.
                StageKind::Gate => {}
            }
        }
        let (took, estimated) = self.estimated;
        assumed.estimate_per_mille =
            per_mille(took, estimated).unwrap_or(assumed.estimate_per_mille);
        let (judged, rejected) = self.judged;
        assumed.rejected_per_mille =
            per_mille(rejected, judged).unwrap_or(assumed.rejected_per_mille);
        let (spent, reserved) = self.money;
        assumed.spent_per_mille = per_mille(spent, reserved).unwrap_or(assumed.spent_per_mille);
        assumed
    }
}

fn per_mille(part: u64, whole: u64) -> Option<u32> {
    let share = (u128::from(part) * 1_000).checked_div(u128::from(whole))?;
    Some(u32::try_from(share).unwrap_or(u32::MAX))
}
