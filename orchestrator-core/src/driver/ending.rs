//! Stages that are to end, and what they left running.
//!
//! A stage is asked first. One that does not end in time is broken off, and its processes are ended
//! from outside; its lease lives until they are known to be gone. What is not gone when the driver
//! stops is left, as a lease that is being stopped, to the driver that comes next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::stage::Stage;
use super::turns::{Live, Message, Turns};
use crate::id::{FencingToken, RunId, TaskId};
use crate::mutant::{Mutant, is_on};
use crate::outcome::Interruption;
use crate::port::Host;
use crate::record::Phase;

/// The wait before leftovers that could not be ended are tried again.
const LEFTOVERS_RETRY: Duration = Duration::from_secs(1);
/// How long nothing is granted beside what an earlier driver left.
const INHERITED_WITHIN: Duration = Duration::from_secs(60);
/// The part of the grace that is left, when a driver stops, to end what was broken off.
const LAST_GRACE_SHARE: u32 = 8;

/// Leases that an earlier driver left, of which something may still run. Nothing is granted beside
/// that, unless it cannot be ended: then it holds up its own task only.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    tokens: BTreeSet<FencingToken>,
    until: Option<Instant>,
}

impl Inherited {
    fn add(&mut self, token: FencingToken) {
        self.tokens.insert(token);
        self.until = Some(Instant::now() + INHERITED_WITHIN);
    }

    /// Nothing of a lease runs any more.
    pub(super) fn ended(&mut self, token: FencingToken) {
        self.tokens.remove(&token);
    }

    /// Until when they are waited for, as long as they are.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.filter(|until| !self.tokens.is_empty() && Instant::now() < *until)
    }
}

impl Live {
    /// Asks the stage to end, and says until when it may take.
    pub(super) fn ask_to_end(&mut self, deadline: Instant) {
        self.cancel.cancel();
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
    }
}

impl Turns {
    /// Ends what earlier drivers left running.
    pub(super) fn end_leftovers(&mut self) {
        let left: Vec<(TaskId, FencingToken)> = self
            .ledger
            .engine
            .held()
            .filter_map(|task| match &task.phase {
                Phase::Stopping { lease, .. } => Some((task.id.clone(), lease.token)),
                Phase::Open
                | Phase::Deferred { .. }
                | Phase::Leased(_)
                | Phase::Done(_)
                | Phase::Escalated(_)
                | Phase::Cancelled => None,
            })
            .collect();
        for (task, token) in left {
            if is_on(Mutant::LeftoversForgotten) {
                continue;
            }
            self.inherited.add(token);
            self.end_lease(task, token);
        }
    }

    /// Ends the processes of a lease, however often it takes, and says so.
    pub(super) fn end_lease(&mut self, task: TaskId, token: FencingToken) {
        let (host, run) = (Arc::clone(&self.ports.host), self.config.run.clone());
        let tx = self.tx.clone();
        self.chores.spawn(async move {
            end_processes(&*host, &run, token).await;
            // A loop that is gone leaves the lease to the next one.
            drop(tx.send(Message::Stopped { task, token }));
        });
    }

    /// Reports a stage that broke off, once nothing that it started runs any more.
    pub(super) fn report_when_gone(&mut self, mut live: Live, reason: Interruption) {
        let report = Stage::broken_off(self.config.run.clone(), &live.grant, reason);
        let (host, run) = (Arc::clone(&self.ports.host), self.config.run.clone());
        live.abort = self.stages.spawn(async move {
            if !is_on(Mutant::CrashedStageIsFreeAtOnce) {
                end_processes(&*host, &run, report.token).await;
            }
            report
        });
        live.is_broken_off = true;
        live.deadline = self.has_asked.then(|| Instant::now() + self.last_grace());
        self.live.insert(live.grant.token, live);
    }

    /// Asks every stage to end.
    pub(super) fn ask_to_stop(&mut self) {
        self.has_asked = true;
        let deadline = Instant::now() + self.config.stop_grace;
        for live in self.live.values_mut() {
            live.ask_to_end(deadline);
        }
    }

    /// Breaks off the stages that had their time.
    pub(super) fn break_off_overdue(&mut self, now: Instant) {
        let (last_grace, is_stopping) = (self.last_grace(), self.is_stopping());
        self.live.retain(|token, live| {
            let is_due = live.deadline.is_some_and(|deadline| now >= deadline);
            if !is_due || is_on(Mutant::DeafStageWaitedFor) {
                return true;
            }
            if live.is_broken_off && is_stopping {
                warn!(task = %live.grant.task, %token, "left to the next driver to end");
                live.abort.abort();
                return false;
            }
            if !live.is_broken_off {
                live.abort.abort();
            }
            live.deadline = (!live.is_broken_off).then(|| now + last_grace);
            live.is_broken_off = true;
            true
        });
    }

    /// Waits for the work beside the stages; not for long when the driver is to stop.
    pub(super) async fn end_chores(&mut self) {
        let (stop, last_grace) = (self.stop.clone(), self.last_grace());
        let impatient = async {
            stop.cancelled().await;
            tokio::time::sleep(last_grace).await;
        };
        let all = async { while self.chores.join_next().await.is_some() {} };
        tokio::select! {
            () = all => return,
            () = impatient => {}
        }
        self.chores.abort_all();
    }

    /// Ends all stages without writing anything: the next driver takes up what is committed.
    pub(super) async fn halt(&mut self) {
        self.ask_to_stop();
        // Nobody answers announcements of merges any more, so none may wait.
        self.rx.close();
        while self.rx.try_recv().is_ok() {}
        self.replies.clear();
        let all = async { while self.stages.join_next().await.is_some() {} };
        if tokio::time::timeout(self.config.stop_grace, all).await.is_err() {
            // One that never yields cannot be broken off, and must not hold up the others.
            drop(tokio::time::timeout(self.last_grace(), self.stages.shutdown()).await);
        }
        let run = &self.config.run;
        for token in self.live.keys() {
            let ended = self.ports.host.end_leftovers(run, *token);
            match tokio::time::timeout(self.config.stop_grace, ended).await {
                Ok(Ok(_)) => {}
                Ok(Err(err)) => warn!(%token, error = %err.chain(), "processes may still run"),
                Err(_) => warn!(%token, "processes may still run"),
            }
        }
    }

    fn last_grace(&self) -> Duration {
        self.config.stop_grace / LAST_GRACE_SHARE
    }
}

/// Returns once nothing of a lease runs any more, however often it takes.
async fn end_processes(host: &dyn Host, run: &RunId, token: FencingToken) {
    loop {
        match host.end_leftovers(run, token).await {
            Ok(_) => return,
            Err(err) => {
                warn!(%token, error = %err.chain(), "processes of a lost lease still run");
            }
        }
        tokio::time::sleep(LEFTOVERS_RETRY).await;
    }
}
