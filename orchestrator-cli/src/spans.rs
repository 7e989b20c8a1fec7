//! An observer that makes a `tracing` span of each stage.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use orchestrator_core::port::{Activity, ActivityKind, Observer, Progress};
use orchestrator_core::{EventKind, FencingToken, RunId, StoredEvent, Usd};
use tracing::field::Empty;
use tracing::{Span, info, info_span};

/// Makes a span `stage` of each grant, from the grant to its end, whoever subscribes.
///
/// Its fields: `run.id`, `task.id`, `stage.name`, `attempt`, `token`; at the end `outcome` (`passed`,
/// `rejected`, `interrupted`, `escalated`, `cancelled`), `cost_micro_usd`, and, as the conventions of
/// OpenTelemetry have it, `otel.name`, `otel.status_code` and `error.type`. What happens to the run
/// as a whole, and what an agent says, are events; those of an agent are within its span.
#[derive(Debug)]
pub struct Spans {
    run: RunId,
    open: Mutex<BTreeMap<FencingToken, Span>>,
}

impl Spans {
    /// Spans of this run.
    #[must_use]
    pub const fn new(run: RunId) -> Self {
        Self { run, open: Mutex::new(BTreeMap::new()) }
    }

    fn begin(&self, event: &StoredEvent, progress: &Progress) {
        let EventKind::Granted { task, attempt, token, .. } = &event.event.kind else { return };
        let stage = progress.running.iter().find(|one| one.token == *token);
        let stage = stage.map_or("", |one| one.stage.as_str());
        let span = info_span!(
            parent: None,
            "stage",
            otel.name = %format_args!("stage {stage}"),
            run.id = %self.run,
            task.id = %task,
            stage.name = stage,
            attempt,
            token = token.0,
            outcome = Empty,
            cost_micro_usd = Empty,
            otel.status_code = Empty,
            error.r#type = Empty,
        );
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(*token, span);
    }

    fn end(&self, token: FencingToken, outcome: &str, cost: Usd, error: Option<&str>) {
        let span = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        let Some(span) = span else { return };
        span.record("outcome", outcome).record("cost_micro_usd", cost.0);
        match error {
            None => span.record("otel.status_code", "OK"),
            Some(error) => span.record("otel.status_code", "ERROR").record("error.type", error),
        };
    }

    fn event(&self, event: &StoredEvent, progress: &Progress) {
        match &event.event.kind {
            EventKind::Granted { .. } => self.begin(event, progress),
            EventKind::Passed { token, cost, .. } => self.end(*token, "passed", *cost, None),
            EventKind::Rejected { token, cost, .. } => {
                self.end(*token, "rejected", *cost, Some("rejected"));
            }
            EventKind::Suspended { token, cost, .. } => self.end(*token, "suspended", *cost, None),
            EventKind::Interrupted { token, cost, reason, .. } => {
                self.end(*token, "interrupted", *cost, Some(&reason.to_string()));
            }
            EventKind::Escalated { task, token, cost, cause, .. } => {
                info!(run.id = %self.run, task.id = %task, cause = cause.as_str(), "escalated");
                if let Some(token) = token {
                    self.end(*token, "escalated", *cost, Some(cause.as_str()));
                }
            }
            EventKind::Parked { reason } => {
                info!(run.id = %self.run, reason = reason.as_str(), "parked");
            }
            EventKind::Paused { reason, .. } => info!(run.id = %self.run, reason, "paused"),
            EventKind::Resumed { .. } => info!(run.id = %self.run, "resumed"),
            EventKind::Completed => info!(run.id = %self.run, "completed"),
            EventKind::Failed => info!(run.id = %self.run, "failed"),
            EventKind::RunCreated { .. }
            | EventKind::PlanAdded { .. }
            | EventKind::PoolLimited { .. }
            | EventKind::PoolClosed { .. }
            | EventKind::PoolOpened { .. }
            | EventKind::PoolBounded { .. }
            | EventKind::PlanPruned { .. }
            | EventKind::PilotSet { .. }
            | EventKind::BudgetSet { .. }
            | EventKind::DriverOpened { .. }
            | EventKind::DriverEnded { .. }
            | EventKind::Stopping { .. }
            | EventKind::Cancelling { .. }
            | EventKind::ResultRefused { .. }
            | EventKind::Dispatched { .. }
            | EventKind::MergeIntended { .. }
            | EventKind::Due { .. }
            | EventKind::Edited { .. }
            | EventKind::Retried { .. }
            | EventKind::Resolved { .. }
            | EventKind::Cancelled { .. }
            | EventKind::Draining { .. } => {}
        }
    }
}

impl Observer for Spans {
    fn committed(&self, events: &[StoredEvent], progress: &Progress) {
        events.iter().for_each(|event| self.event(event, progress));
        // A lease that ended in another way, by a person's word say, runs no more.
        let runs = |token: &FencingToken| progress.running.iter().any(|one| one.token == *token);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|token, span| {
            let runs = runs(token);
            if !runs {
                span.record("outcome", "cancelled");
            }
            runs
        });
    }

    fn activity(&self, activity: &Activity) {
        let span = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.get(&activity.token).cloned()
        };
        let Some(span) = span else { return };
        match &activity.kind {
            ActivityKind::Started { pid, .. } => info!(parent: &span, pid, "a program was started"),
            ActivityKind::Said(words) => info!(parent: &span, words, "said"),
            ActivityKind::Session(session) => info!(parent: &span, session = %session, "session"),
            ActivityKind::Output { .. } => {}
        }
    }
}
