//! The loop: it takes what arrived, commits it, starts what was granted, and waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::ledger::{Ledger, Turn};
use super::stage::Stage;
use super::{DriverConfig, Ports, RunEnd, RunError, view};
use crate::command::{Answer, Command, Grant, StageReport};
use crate::engine::Settlement;
use crate::event::{EventKind, StoredEvent};
use crate::id::{FencingToken, TaskId};
use crate::outcome::{Interruption, MergeIntent, Outcome};
use crate::record::{Phase, RunState};

/// Longest sleep while only time can help, so that a clock that leapt is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(30);
/// The wait before leftovers that could not be ended are tried again.
const LEFTOVERS_RETRY: Duration = Duration::from_secs(1);

/// What stages tell the loop.
pub(super) enum Message {
    /// A merge is about to happen; it may once this is committed.
    Intent {
        task: TaskId,
        token: FencingToken,
        intent: MergeIntent,
        reply: oneshot::Sender<Answer>,
    },
    /// Nothing of a lease runs any more.
    Stopped { task: TaskId, token: FencingToken },
}

/// A stage of this process that runs.
struct Live {
    grant: Grant,
    cancel: CancellationToken,
    abort: tokio::task::AbortHandle,
    id: tokio::task::Id,
}

/// The loop and what it knows.
pub(super) struct Turns {
    ports: Ports,
    config: DriverConfig,
    ledger: Ledger,
    stop: CancellationToken,
    stages: JoinSet<StageReport>,
    live: BTreeMap<FencingToken, Live>,
    /// Work beside the stages: leftovers being ended, workspaces being removed.
    chores: JoinSet<()>,
    tx: mpsc::UnboundedSender<Message>,
    rx: mpsc::UnboundedReceiver<Message>,
    pending: Vec<Command>,
    replies: Vec<(usize, oneshot::Sender<Answer>)>,
    touched: Instant,
    /// When stages that were asked to stop are ended whatever they do.
    deadline: Option<Instant>,
}

impl Turns {
    pub(super) fn new(
        ports: Ports,
        config: DriverConfig,
        ledger: Ledger,
        stop: CancellationToken,
    ) -> Self {
        let (tx, rx) = mpsc::unbounded_channel();
        Self {
            ports,
            config,
            ledger,
            stop,
            stages: JoinSet::new(),
            live: BTreeMap::new(),
            chores: JoinSet::new(),
            tx,
            rx,
            pending: Vec::new(),
            replies: Vec::new(),
            touched: Instant::now(),
            deadline: None,
        }
    }

    /// Takes turns until nothing more can happen.
    pub(super) async fn run(mut self) -> Result<RunEnd, RunError> {
        self.end_leftovers();
        let ended = loop {
            if let Err(err) = self.turn().await {
                // Nothing new may start, and what runs ends.
                error!(error = %err, "the run cannot be driven on");
                self.halt().await;
                return Err(err);
            }
            if let Some(end) = self.over() {
                break end;
            }
            self.wait().await;
        };
        while self.chores.join_next().await.is_some() {}
        let close = Command::CloseDriver { owner: self.ledger.owner.clone() };
        let turn = self.ledger.turn(&[close], false).await?;
        self.tell(&turn.events);
        Ok(ended)
    }

    /// One batch: what arrived, what time did, what can run.
    async fn turn(&mut self) -> Result<(), RunError> {
        let commands = std::mem::take(&mut self.pending);
        let turn = self.ledger.turn(&commands, !self.is_stopping()).await?;
        self.still_driving()?;
        self.answer(&turn);
        self.tell(&turn.events);
        for stored in &turn.events {
            self.follow(stored);
        }
        for grant in turn.grants {
            self.start(grant);
        }
        Ok(())
    }

    /// Another process may have taken over, being told that this one has ended.
    fn still_driving(&self) -> Result<(), RunError> {
        let engine = &self.ledger.engine;
        let driver = engine.run().and_then(|run| run.driver.as_ref());
        if driver == Some(&self.ledger.owner) {
            return Ok(());
        }
        let record = engine.owners().find(|record| Some(&record.owner.id) == driver);
        let owner = record.map_or_else(|| self.ports.host.this_process(), |one| one.owner.clone());
        Err(RunError::DriverRunning { run: self.config.run.clone(), owner: Box::new(owner) })
    }

    fn answer(&mut self, turn: &Turn) {
        for (place, reply) in self.replies.drain(..) {
            if let Some(Ok(answer)) = turn.answers.get(place) {
                // A stage that no longer waits needs no answer.
                drop(reply.send(answer.clone()));
            }
        }
    }

    fn tell(&self, events: &[StoredEvent]) {
        if !events.is_empty() {
            self.ports.observer.committed(events, &view::progress(&self.ledger));
        }
    }

    /// Does what a committed event asks for.
    fn follow(&mut self, stored: &StoredEvent) {
        match &stored.event.kind {
            EventKind::Stopping { task, token, .. } => match self.live.get(token) {
                Some(live) => live.cancel.cancel(),
                None => self.end_lease(task.clone(), *token),
            },
            EventKind::Passed { task, .. }
            | EventKind::Escalated { task, .. }
            | EventKind::Cancelled { task, .. }
            | EventKind::Resolved { task, .. } => self.release_if_settled(task.clone()),
            EventKind::RunCreated { .. }
            | EventKind::PlanAdded { .. }
            | EventKind::PoolLimited { .. }
            | EventKind::PoolClosed { .. }
            | EventKind::PoolOpened { .. }
            | EventKind::BudgetSet { .. }
            | EventKind::DriverOpened { .. }
            | EventKind::DriverEnded { .. }
            | EventKind::Granted { .. }
            | EventKind::Rejected { .. }
            | EventKind::Interrupted { .. }
            | EventKind::ResultRefused { .. }
            | EventKind::MergeIntended { .. }
            | EventKind::Due { .. }
            | EventKind::Retried { .. }
            | EventKind::Paused { .. }
            | EventKind::Draining { .. }
            | EventKind::Parked { .. }
            | EventKind::Resumed { .. }
            | EventKind::Completed
            | EventKind::Failed => {}
        }
    }

    /// Removes the workspace of a task that needs none any more.
    fn release_if_settled(&mut self, task: TaskId) {
        let record = self.ledger.engine.task(&task);
        let settled = record.is_some_and(|record| match record.phase {
            Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled => true,
            Phase::Open | Phase::Deferred { .. } | Phase::Leased(_) | Phase::Stopping { .. } => {
                false
            }
        });
        if settled {
            let (workspaces, run) = (Arc::clone(&self.ports.workspaces), self.config.run.clone());
            self.chores.spawn(async move {
                if let Err(err) = workspaces.release(&run, &task).await {
                    warn!(%task, error = %err.chain(), "a workspace could not be removed");
                }
            });
        }
    }

    /// Ends what earlier drivers left running.
    fn end_leftovers(&mut self) {
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
            self.end_lease(task, token);
        }
    }

    /// Ends the processes of a lease, however often it takes, and says so.
    fn end_lease(&mut self, task: TaskId, token: FencingToken) {
        let (host, run, tx, stop) = (
            Arc::clone(&self.ports.host),
            self.config.run.clone(),
            self.tx.clone(),
            self.stop.clone(),
        );
        self.chores.spawn(async move {
            while let Err(err) = host.end_leftovers(&run, token).await {
                warn!(%task, %token, error = %err.chain(), "processes of a lost lease still run");
                tokio::select! {
                    () = tokio::time::sleep(LEFTOVERS_RETRY) => {}
                    () = stop.cancelled() => return,
                }
            }
            // A loop that is gone leaves the lease to the next one.
            drop(tx.send(Message::Stopped { task, token }));
        });
    }

    fn start(&mut self, grant: Grant) {
        let engine = &self.ledger.engine;
        let (Some(task), Some(pipeline)) = (engine.spec(&grant.task), engine.pipeline(&grant.task))
        else {
            return;
        };
        let Some(spec) = pipeline.stage(grant.stage) else { return };
        let cancel = CancellationToken::new();
        let stage = Stage {
            ports: self.ports.clone(),
            run: self.config.run.clone(),
            task: Arc::clone(task),
            pipeline: pipeline.clone(),
            spec: spec.clone(),
            grant: grant.clone(),
            task_dir: self.config.stages_dir.join(grant.task.slug()),
            cancel: cancel.clone(),
            loop_tx: self.tx.clone(),
        };
        let abort = self.stages.spawn(stage.carry_out());
        let id = abort.id();
        self.live.insert(grant.token, Live { grant, cancel, abort, id });
    }

    fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Why the loop is over, if it is.
    fn over(&mut self) -> Option<RunEnd> {
        if !self.pending.is_empty() || !self.live.is_empty() {
            return None;
        }
        if self.is_stopping() {
            return Some(RunEnd::Stopped);
        }
        let engine = &self.ledger.engine;
        let counts = engine.run()?.counts;
        if counts.leased + counts.stopping > 0 {
            return None;
        }
        if let RunState::Paused { .. } = engine.run()?.state {
            return Some(RunEnd::Paused);
        }
        let now = self.ledger.now();
        Some(match engine.settlement(now)? {
            Settlement::Completed => RunEnd::Completed,
            Settlement::Failed => RunEnd::Failed,
            Settlement::Parked(reason) => RunEnd::Parked(reason),
            Settlement::Stalled => RunEnd::Stalled(engine.stall(now)),
        })
    }

    /// Waits for something to happen, and takes in all that has.
    async fn wait(&mut self) {
        let wake = self.next_wake();
        tokio::select! {
            Some(ended) = self.stages.join_next_with_id() => self.stage_ended(ended),
            Some(message) = self.rx.recv() => self.take(message),
            () = self.stop.cancelled(), if self.deadline.is_none() => self.ask_to_stop(),
            () = tokio::time::sleep_until(wake) => self.woke().await,
        }
        while let Some(ended) = self.stages.try_join_next_with_id() {
            self.stage_ended(ended);
        }
        while let Ok(message) = self.rx.try_recv() {
            self.take(message);
        }
        while self.chores.try_join_next().is_some() {}
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Intent { task, token, intent, reply } => {
                self.replies.push((self.pending.len(), reply));
                self.pending.push(Command::IntendMerge { task, token, intent });
            }
            Message::Stopped { task, token } => self.pending.push(Command::Stopped { task, token }),
        }
    }

    fn stage_ended(&mut self, ended: Result<(tokio::task::Id, StageReport), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(err) => err.id(),
        };
        let Some(token) = self.live.iter().find(|(_, live)| live.id == id).map(|(token, _)| *token)
        else {
            return;
        };
        let Some(live) = self.live.remove(&token) else { return };
        match ended {
            Ok((_, mut report)) => {
                if let Outcome::Interrupted { retry_at: Some(wall), .. } = report.outcome {
                    report.retry_at = Some(self.ledger.at_wall(wall));
                }
                self.report(report);
            }
            Err(err) => {
                // A panic of an adapter, or a stage that was ended: its processes may still run.
                let reason = if err.is_panic() {
                    error!(task = %live.grant.task, "an adapter panicked");
                    Interruption::Crashed
                } else {
                    Interruption::Shutdown
                };
                self.report_when_gone(live, reason);
            }
        }
    }

    fn report(&mut self, report: StageReport) {
        let (task, token) = (report.task.clone(), report.token);
        self.pending.push(Command::Report(Box::new(report)));
        let record = self.ledger.engine.task(&task);
        if record.is_some_and(|record| matches!(record.phase, Phase::Stopping { .. })) {
            // The result comes too late, but with it nothing of the lease runs any more.
            self.pending.push(Command::Stopped { task, token });
        }
    }

    /// Reports a stage that broke off, once nothing that it started runs any more.
    fn report_when_gone(&mut self, mut live: Live, reason: Interruption) {
        let report = Stage::broken_off(self.config.run.clone(), &live.grant, reason);
        let (host, run) = (Arc::clone(&self.ports.host), self.config.run.clone());
        live.abort = self.stages.spawn(async move {
            if let Err(err) = host.end_leftovers(&run, report.token).await {
                warn!(task = %report.task, error = %err.chain(), "processes may still run");
            }
            report
        });
        live.id = live.abort.id();
        self.live.insert(live.grant.token, live);
    }

    /// Asks every stage to end.
    fn ask_to_stop(&mut self) {
        self.deadline = Some(Instant::now() + self.config.stop_grace);
        for live in self.live.values() {
            live.cancel.cancel();
        }
    }

    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        let mut wake = now + SLEEP_MAX;
        if let Some(at) = self.ledger.engine.next_wake() {
            wake = wake.min(now + at.since(self.ledger.now()));
        }
        if !self.live.is_empty() {
            wake = wake.min(self.touched + self.config.lease_ttl / 3);
        }
        self.deadline.map_or(wake, |deadline| wake.min(deadline))
    }

    async fn woke(&mut self) {
        let now = Instant::now();
        if !self.live.is_empty() && now >= self.touched + self.config.lease_ttl / 3 {
            self.touched = now;
            let (run, owner) = (&self.config.run, &self.ledger.owner);
            if let Err(err) = self.ports.store.touch(run, owner, self.ledger.now()).await {
                warn!(error = %err, "the leases could not be renewed");
            }
        }
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            // They had their time; what they started is ended by other means.
            self.deadline = Some(now + self.config.stop_grace);
            for live in self.live.values() {
                live.abort.abort();
            }
        }
    }

    /// Ends all stages without writing anything: the next driver takes up what is committed.
    async fn halt(&mut self) {
        self.ask_to_stop();
        let all = async { while self.stages.join_next().await.is_some() {} };
        if tokio::time::timeout(self.config.stop_grace, all).await.is_err() {
            self.stages.shutdown().await;
        }
        for token in self.live.keys() {
            if let Err(err) = self.ports.host.end_leftovers(&self.config.run, *token).await {
                warn!(%token, error = %err.chain(), "processes may still run");
            }
        }
    }
}
