//! The loop: it takes what arrived, commits it, starts what was granted, and waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::capacity::Feed;
use super::ledger::{Aim, Ledger, Turn};
use super::message::{Message, ToLoop};
use super::releases::Releases;
use super::renewals::Renewals;
use super::room::RoomWatch;
use super::stage::Stage;
use super::stage_logs::StageLogs;
use super::underway::{Joined, UnderWay};
use super::{DriverConfig, Ports, RunEnd, RunError, view};
use crate::command::{Answer, Command, Grant, StageReport};
use crate::engine::Settlement;
use crate::event::{EventKind, StoredEvent};
use crate::id::TaskId;
use crate::mutant::{Mutant, is_on};
use crate::outcome::Outcome;
use crate::pipeline::StageSpec;
use crate::record::{ParkReason, Phase, RunState};

/// Longest sleep while only time can help, so that a clock that leapt is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// How soon it is looked again whether there is room for more work.
const ROOM_LOOK: Duration = Duration::from_secs(5);
/// The end of a run whose pilot is through.
const AFTER_PILOT: RunEnd = RunEnd::Parked(ParkReason::Pilot);

/// The loop and what it knows.
pub(super) struct Turns {
    ports: Ports,
    config: DriverConfig,
    ledger: Ledger,
    stop: CancellationToken,
    underway: UnderWay,
    logs: StageLogs,
    releases: Releases,
    to_loop: ToLoop,
    rx: mpsc::UnboundedReceiver<Message>,
    pending: Vec<Command>,
    replies: Vec<(usize, oneshot::Sender<Answer>)>,
    /// What says the limits of pools.
    feed: Feed,
    renewals: Renewals,
    /// Whether other processes may have committed something.
    is_behind: bool,
    room: RoomWatch,
}

impl Turns {
    pub(super) fn new(
        ports: Ports,
        config: DriverConfig,
        ledger: Ledger,
        stop: CancellationToken,
    ) -> Self {
        let (to_loop, rx) = mpsc::unbounded_channel();
        Self {
            underway: UnderWay::new(&ports, &config, to_loop.clone()),
            logs: StageLogs::of(&ports, &config),
            releases: Releases::default(),
            renewals: Renewals::begin(&config.run, &ledger, config.lease_ttl, to_loop.clone()),
            feed: Feed::new(config.capacity.clone(), &ledger.engine, ledger.now()),
            room: RoomWatch::new(&ports, config.run.clone()),
            ports,
            config,
            ledger,
            stop,
            to_loop,
            rx,
            pending: Vec::new(),
            replies: Vec::new(),
            is_behind: false,
        }
    }

    /// Takes turns until nothing more can happen.
    pub(super) async fn run(mut self) -> Result<RunEnd, RunError> {
        self.underway.end_leftovers(&self.ledger.engine);
        let ended = loop {
            if let Err(err) = self.turn().await {
                // Nothing new may start, and what runs ends.
                error!(error = %err, "the run cannot be driven on");
                self.halt().await;
                return Err(err);
            }
            if let Some(end) = self.over() {
                if !self.goes_on(&end).await? {
                    break end;
                }
                continue;
            }
            self.wait().await;
        };
        self.underway.end_chores(&self.stop).await;
        let close = Command::CloseDriver { owner: self.ledger.owner.clone() };
        let turn = self.ledger.turn(&[close], Aim::Winding).await?;
        self.tell(&turn.events);
        Ok(ended)
    }

    /// One batch: what arrived, what time did, what can run.
    async fn turn(&mut self) -> Result<(), RunError> {
        if std::mem::take(&mut self.is_behind) {
            self.ledger.catch_up().await?;
        }
        let mut commands = std::mem::take(&mut self.pending);
        let grants_nothing = is_on(Mutant::ResultGrantsNothing) && !commands.is_empty();
        commands.extend(self.feed.commands(&self.ledger.engine, self.ledger.now()));
        let has_room = self.room.look().await;
        let winds_up = self.is_stopping() || self.renewals.have_lapsed() || grants_nothing;
        let aim = match (winds_up, has_room && self.underway.inherited.until().is_none()) {
            (true, _) => Aim::Winding,
            (false, true) => Aim::Granting,
            (false, false) => Aim::Holding,
        };
        let turn = self.ledger.turn(&commands, aim).await?;
        self.still_driving()?;
        self.answer(&turn);
        self.tell(&turn.events);
        for stored in &turn.events {
            self.feed.take(stored);
            self.follow(stored);
        }
        for grant in turn.grants {
            self.start(grant);
        }
        Ok(())
    }

    /// Ends all stages without writing anything: the next driver takes up what is committed.
    async fn halt(&mut self) {
        // Nobody answers announcements of merges any more, so none may wait.
        self.rx.close();
        while self.rx.try_recv().is_ok() {}
        self.replies.clear();
        self.underway.halt().await;
    }

    /// Another process may have taken over, being told that this one has ended.
    fn still_driving(&self) -> Result<(), RunError> {
        let engine = &self.ledger.engine;
        let driver = engine.run().and_then(|run| run.driver.as_ref());
        if driver == Some(&self.ledger.owner) || is_on(Mutant::DrivesOnAfterTakeover) {
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
                let _waits: bool = reply.send(*answer).is_ok();
            }
        }
    }

    fn tell(&self, events: &[StoredEvent]) {
        if !events.is_empty() {
            view::show(&*self.ports.observer, events, &self.ledger);
        }
    }

    /// Does what a committed event asks for.
    fn follow(&mut self, stored: &StoredEvent) {
        match &stored.event.kind {
            EventKind::Stopping { task, token, .. } | EventKind::Cancelling { task, token, .. } => {
                self.underway.stop(&self.ledger.engine, task, *token);
            }
            EventKind::Passed { task, .. }
            | EventKind::Interrupted { task, .. }
            | EventKind::Escalated { task, .. }
            | EventKind::Cancelled { task, .. }
            | EventKind::Resolved { task, .. } => self.release_if_settled(task.clone()),
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
            | EventKind::Granted { .. }
            | EventKind::Rejected { .. }
            | EventKind::Suspended { .. }
            | EventKind::ResultRefused { .. }
            | EventKind::Dispatched { .. }
            | EventKind::MergeIntended { .. }
            | EventKind::Due { .. }
            | EventKind::Edited { .. }
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
            self.releases.begin(&mut self.underway.chores, workspaces, (run, task));
        }
    }

    fn start(&mut self, grant: Grant) {
        let engine = &self.ledger.engine;
        self.feed.granted(engine, &grant);
        let (Some(task), Some(pipeline)) = (engine.spec(&grant.task), engine.pipeline(&grant.task))
        else {
            return;
        };
        let Some(spec) = pipeline.stage(grant.stage) else { return };
        let Some(dir) = self.logs.of_grant(engine, &grant) else { return };
        self.underway.begin(Stage {
            ports: self.ports.clone(),
            run: self.config.run.clone(),
            task: Arc::new(task.clone()),
            pipeline: pipeline.clone(),
            spec: StageSpec { cap: grant.cap, ..spec.clone() },
            dir,
            cancel: self.renewals.stage(),
            to_loop: self.to_loop.clone(),
            mask: self.config.mask.clone(),
            released: self.releases.of(&grant.task),
            grant,
        });
    }

    fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Why the loop is over, if it is.
    fn over(&mut self) -> Option<RunEnd> {
        if !self.pending.is_empty() || !self.underway.is_empty() {
            return None;
        }
        if self.is_stopping() {
            return Some(RunEnd::Stopped);
        }
        let engine = &self.ledger.engine;
        let counts = engine.run()?.counts;
        if counts.leased > 0 || counts.stopping > 0 {
            return None;
        }
        if let RunState::Paused { .. } = engine.run()?.state {
            return Some(RunEnd::Paused);
        }
        let now = self.ledger.now();
        if !self.feed.commands(engine, now).is_empty() {
            return None;
        }
        Some(match engine.settlement(now)? {
            Settlement::Completed => RunEnd::Completed,
            Settlement::Failed => RunEnd::Failed,
            Settlement::Parked(reason) => RunEnd::Parked(reason),
            Settlement::Stalled => RunEnd::Stalled(engine.stall(now)),
        })
    }

    /// Whether a run that is over goes on: its pilot is through, and the rest will probably keep
    /// within the bounds that it was given.
    async fn goes_on(&mut self, end: &RunEnd) -> Result<bool, RunError> {
        let Some(rule) = self.config.pilot.as_ref().filter(|_| *end == AFTER_PILOT) else {
            return Ok(false);
        };
        let word = self.ledger.goes_on(rule).await?;
        let goes_on = word.is_some();
        self.pending.extend(word.map(|actor| Command::Resume { actor }));
        Ok(goes_on)
    }

    /// Waits for something to happen, and takes in all that has.
    async fn wait(&mut self) {
        self.renewals.set_busy(!self.underway.is_empty());
        let wake = self.next_wake();
        let (store, seq) = (Arc::clone(&self.ledger.store), self.ledger.engine.seq());
        let run = &self.config.run;
        let others_committed = async {
            if let Err(err) = store.changed(run, seq).await {
                debug!(error = %err, "the store cannot say what others commit");
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            Some(ended) = self.underway.stages.join_next_with_id() => self.stage_ended(ended),
            Some(message) = self.rx.recv() => self.take(message),
            () = self.stop.cancelled(), if !self.underway.has_asked => self.underway.ask_to_stop(),
            () = others_committed, if !is_on(Mutant::OthersUnheard) => self.is_behind = true,
            () = tokio::time::sleep_until(wake) => {
                let is_stopping = self.stop.is_cancelled();
                self.underway.break_off_overdue(Instant::now(), is_stopping);
            }
        }
        while let Some(ended) = self.underway.stages.try_join_next_with_id() {
            self.stage_ended(ended);
        }
        while let Ok(message) = self.rx.try_recv() {
            self.take(message);
        }
        while self.underway.chores.try_join_next().is_some() {}
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Intent { task, token, intent, reply } => {
                self.replies.push((self.pending.len(), reply));
                self.pending.push(Command::IntendMerge { task, token, intent });
            }
            Message::Stopped { task, token } => {
                self.underway.inherited.ended(token);
                if let Some(task) = self.ledger.engine.number(&task) {
                    self.pending.push(Command::Stopped { task, token });
                }
            }
            Message::Lapsed => self.underway.ask_all_to_end(),
            // What can run is granted in the turn that follows.
            Message::Renewed => {}
        }
    }

    fn stage_ended(&mut self, joined: Joined) {
        let Some(mut report) = self.underway.ended(joined) else { return };
        if let Outcome::Interrupted { retry_at: Some(wall), .. }
        | Outcome::Suspended { poll_at: Some(wall) } = report.outcome
        {
            report.retry_at = Some(self.ledger.at_wall(wall));
        }
        self.report(report);
    }

    fn report(&mut self, report: StageReport) {
        let (task, token) = (report.task, report.token);
        self.pending.push(Command::Report(Box::new(report)));
        if self.ledger.engine.grant(task).is_none() {
            // The result comes too late, but with it nothing of the lease runs any more.
            self.pending.push(Command::Stopped { task, token });
        }
    }

    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        let mut wake = now + if self.room.has_room { SLEEP_MAX } else { ROOM_LOOK };
        if let Some(at) = self.ledger.engine.next_wake()
            && !is_on(Mutant::TimerNotSet)
        {
            wake = wake.min(now + at.since(self.ledger.now()));
        }
        let run_now = self.ledger.now();
        if !self.feed.commands(&self.ledger.engine, run_now).is_empty() {
            return now;
        }
        if let Some(at) = self.feed.next_wake(run_now) {
            wake = wake.min(now + at.since(run_now));
        }
        self.underway.deadlines().fold(wake, Instant::min)
    }
}
