//! What becomes of a run whose pilot is through.

use std::time::Duration;

use tracing::{info, warn};

use super::ledger::{Ledger, TRIES_MAX, wait};
use super::{Orchestrator, RunError, log, opening};
use crate::engine::Engine;
use crate::forecast::{Assumptions, Projection};
use crate::id::{RunId, Seq};
use crate::money::Usd;
use crate::port::Store;
use crate::time::Timestamp;

/// Most tasks that are drawn for a projection, over all samples: it takes a few seconds then.
const TASKS_DRAWN_MAX: u32 = 400_000;

/// A pilot, and when its run goes on by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PilotRule {
    /// How many tasks are begun before the run is judged by them.
    pub tasks: u32,
    /// The longest that the rest may take.
    pub makespan_max: Option<Duration>,
    /// The most that the rest may cost.
    pub cost_max: Option<Usd>,
    /// What holds where the pilot shows nothing.
    pub assumed: Assumptions,
}

impl PilotRule {
    /// A pilot of so many tasks, after which a person decides.
    #[must_use]
    pub fn new(tasks: u32) -> Self {
        let assumed = Assumptions::default();
        Self { tasks, makespan_max: None, cost_max: None, assumed }
    }

    /// Whether the run goes on by itself: it has bounds, and will probably keep them.
    pub(super) fn goes_on(&self, projection: &Projection) -> bool {
        let has_bounds = self.makespan_max.is_some() || self.cost_max.is_some();
        has_bounds && projection.forecast.is_within(self.makespan_max, self.cost_max)
    }
}

/// What the tasks of a run that ended came to, and what that says of the rest.
async fn projection(
    (engine, now): (&Engine, Timestamp),
    store: &dyn Store,
    run: &RunId,
    assumed: Assumptions,
) -> Result<Option<Projection>, RunError> {
    let log = log::readable(store, run, Seq(0), engine.seq()).await?;
    let mut measured = assumed.measured(engine, &log);
    let tasks = engine.run().map_or(0, |run| run.counts.total());
    let samples_max = TASKS_DRAWN_MAX.checked_div(tasks).unwrap_or(u32::MAX).max(1);
    measured.samples = measured.samples.min(samples_max);
    let forecast = engine.forecast(now, &measured);
    Ok(forecast.map(|forecast| Projection { measured, forecast }))
}

impl Ledger {
    /// Whether the run, whose pilot is through, goes on by itself: by what word.
    pub(super) async fn goes_on(&self, rule: &PilotRule) -> Result<Option<String>, RunError> {
        let (engine, now) = (&self.engine, self.now());
        let mut tries = 0;
        let known = loop {
            let assumed = rule.assumed.clone();
            match projection((engine, now), &*self.store, engine.id(), assumed).await {
                Err(RunError::Store(err)) if tries < TRIES_MAX => {
                    tries += 1;
                    warn!(error = %err, tries, "what the pilot came to could not be read");
                    tokio::time::sleep(wait(tries)).await;
                }
                known => break known?,
            }
        };
        let Some(known) = known else { return Ok(None) };
        let goes_on = rule.goes_on(&known);
        info!(forecast = %known.forecast, goes_on, "the pilot is through");
        Ok(goes_on.then(|| format!("the pilot: {} to go", known.forecast)))
    }
}

impl Orchestrator {
    /// What the tasks that ended so far came to, and what that says of the rest of the run: what a
    /// person looks at when the run has parked after its pilot. `None` when there is no such run.
    ///
    /// # Errors
    /// [`RunError`] when the store does not answer.
    pub async fn projection(&self, assumed: Assumptions) -> Result<Option<Projection>, RunError> {
        let Self { ports, config } = self.shielded()?;
        let ledger = opening::load(&ports, &config).await?.0;
        let of = (&ledger.engine, ledger.now());
        projection(of, &*ledger.store, &config.run, assumed).await
    }
}
