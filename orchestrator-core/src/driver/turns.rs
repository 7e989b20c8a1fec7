//! The loop: it takes what arrived, commits it, starts what was granted, and waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::capacity::Feed;
use super::ending::Inherited;
use super::ledger::{Aim, Ledger, Turn};
use super::renewals::Renewals;
use super::shield::{WORKSPACES, caught};
use super::stage::Stage;
use super::{DriverConfig, Ports, RunEnd, RunError, view};
use crate::command::{Answer, Command, Grant, StageReport};
use crate::engine::Settlement;
use crate::event::{EventKind, StoredEvent};
use crate::id::{FencingToken, TaskId, TaskNo};
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Interruption, MergeIntent, Outcome};
use crate::pipeline::StageSpec;
use crate::port::{PortError, Room};
use crate::record::{ParkReason, Phase, RunState};

/// Longest sleep while only time can help, so that a clock that leapt is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// How soon it is looked again whether there is room for more work.
const ROOM_LOOK: Duration = Duration::from_secs(5);
/// The end of a run whose pilot is through.
const AFTER_PILOT: RunEnd = RunEnd::Parked(ParkReason::Pilot);

/// What is told to the loop.
pub(super) enum Message {
    /// A merge is about to happen; it may once this is committed.
    Intent {
        task: TaskNo,
        token: FencingToken,
        intent: MergeIntent,
        reply: oneshot::Sender<Answer>,
    },
    /// Nothing of a lease runs any more.
    Stopped { task: TaskId, token: FencingToken },
    /// The leases cannot be renewed, and all stages were asked to end.
    Lapsed,
    /// They could be renewed again.
    Renewed,
}

/// A stage of this process that runs, or whose processes are being ended.
pub(super) struct Live {
    pub(super) grant: Grant,
    pub(super) cancel: CancellationToken,
    pub(super) abort: AbortHandle,
    /// When it is broken off whatever it does; set once it is asked to end.
    pub(super) deadline: Option<Instant>,
    /// Whether it broke off or was broken off.
    pub(super) is_broken_off: bool,
}

/// The loop and what it knows.
pub(super) struct Turns {
    pub(super) ports: Ports,
    pub(super) config: DriverConfig,
    pub(super) ledger: Ledger,
    pub(super) stop: CancellationToken,
    pub(super) stages: JoinSet<StageReport>,
    pub(super) live: BTreeMap<FencingToken, Live>,
    /// Work beside the stages: leftovers being ended, workspaces being removed.
    pub(super) chores: JoinSet<()>,
    /// Workspaces being removed, so that none is taken from a task that runs again.
    releases: BTreeMap<TaskId, oneshot::Receiver<()>>,
    pub(super) tx: mpsc::UnboundedSender<Message>,
    pub(super) rx: mpsc::UnboundedReceiver<Message>,
    pending: Vec<Command>,
    pub(super) replies: Vec<(usize, oneshot::Sender<Answer>)>,
    /// What says the limits of pools.
    feed: Feed,
    renewals: Renewals,
    /// Whether all stages were asked to end.
    pub(super) has_asked: bool,
    /// Whether other processes may have committed something.
    is_behind: bool,
    /// Whether there was room for more work when it was last looked.
    has_room: bool,
    pub(super) inherited: Inherited,
}

impl Turns {
    pub(super) fn new(
        ports: Ports,
        config: DriverConfig,
        ledger: Ledger,
        stop: CancellationToken,
    ) -> Self {
        let (tx, rx) = mpsc::unbounded_channel();
        let renewals = Renewals::begin(&config.run, &ledger, config.lease_ttl, tx.clone());
        let feed = Feed::new(config.capacity.clone());
        Self {
            ports,
            config,
            ledger,
            stop,
            stages: JoinSet::new(),
            live: BTreeMap::new(),
            chores: JoinSet::new(),
            releases: BTreeMap::new(),
            tx,
            rx,
            pending: Vec::new(),
            replies: Vec::new(),
            feed,
            renewals,
            has_asked: false,
            is_behind: false,
            has_room: true,
            inherited: Inherited::default(),
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
                if !self.goes_on(&end).await? {
                    break end;
                }
                continue;
            }
            self.wait().await;
        };
        self.end_chores().await;
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
        let has_room = self.has_room().await;
        let winds_up = self.is_stopping() || self.renewals.have_lapsed() || grants_nothing;
        let aim = match (winds_up, has_room && self.inherited.until().is_none()) {
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

    /// Whether there is room for more work; tells when that changes.
    async fn has_room(&mut self) -> bool {
        let (workspaces, run) = (&self.ports.workspaces, &self.config.run);
        let asked = caught(WORKSPACES, async { workspaces.room(run).await }).await;
        // As the port has it, what cannot be found out holds nothing up.
        let room = asked.map_err(PortError::from).flatten().unwrap_or_else(|err| {
            debug!(error = %err.chain(), "it is not known whether there is room");
            Room::Enough
        });
        let has_room = room == Room::Enough;
        if has_room != self.has_room {
            self.has_room = has_room;
            if has_room {
                warn!("there is room again: the run goes on");
            } else {
                warn!(%room, "nothing is granted until there is room");
            }
            view::show_room(&*self.ports.observer, &room);
        }
        has_room
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
                let deadline = Instant::now() + self.config.stop_grace;
                match self.live.get_mut(token) {
                    Some(_) if is_on(Mutant::StopNotTold) => {}
                    Some(live) => live.ask_to_end(deadline),
                    None => self.end_lease(task.clone(), *token),
                }
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
            let (done, released) = oneshot::channel();
            self.releases.insert(task.clone(), released);
            self.chores.spawn(async move {
                let _done: oneshot::Sender<()> = done;
                let asked = caught(WORKSPACES, async { workspaces.release(&run, &task).await });
                if let Err(err) = asked.await.map_err(PortError::from).flatten() {
                    warn!(%task, error = %err.chain(), "a workspace could not be removed");
                }
            });
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
        let cancel = self.renewals.stage();
        let stage = Stage {
            ports: self.ports.clone(),
            run: self.config.run.clone(),
            task: Arc::new(task.clone()),
            pipeline: pipeline.clone(),
            spec: StageSpec { cap: grant.cap, ..spec.clone() },
            grant: grant.clone(),
            task_dir: self.config.stages_dir.join(grant.task.slug()),
            cancel: cancel.clone(),
            loop_tx: self.tx.clone(),
            mask: self.config.mask.clone(),
            released: self.releases.remove(&grant.task),
        };
        let abort = self.stages.spawn(stage.carry_out());
        let live = Live { cancel, abort, deadline: None, is_broken_off: false, grant };
        self.live.insert(live.grant.token, live);
    }

    pub(super) fn is_stopping(&self) -> bool {
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
        self.renewals.set_busy(!self.live.is_empty());
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
            Some(ended) = self.stages.join_next_with_id() => self.stage_ended(ended),
            Some(message) = self.rx.recv() => self.take(message),
            () = self.stop.cancelled(), if !self.has_asked => self.ask_to_stop(),
            () = others_committed, if !is_on(Mutant::OthersUnheard) => self.is_behind = true,
            () = tokio::time::sleep_until(wake) => self.break_off_overdue(Instant::now()),
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
            Message::Stopped { task, token } => {
                self.inherited.ended(token);
                if let Some(task) = self.ledger.engine.number(&task) {
                    self.pending.push(Command::Stopped { task, token });
                }
            }
            Message::Lapsed => {
                let deadline = Instant::now() + self.config.stop_grace;
                self.live.values_mut().for_each(|live| live.ask_to_end(deadline));
            }
            // What can run is granted in the turn that follows.
            Message::Renewed => {}
        }
    }

    fn stage_ended(&mut self, ended: Result<(tokio::task::Id, StageReport), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(err) => err.id(),
        };
        let Some(token) =
            self.live.iter().find(|(_, live)| live.abort.id() == id).map(|(token, _)| *token)
        else {
            return;
        };
        let Some(live) = self.live.remove(&token) else { return };
        match ended {
            Ok((_, mut report)) => {
                if let Outcome::Interrupted { retry_at: Some(wall), .. }
                | Outcome::Suspended { poll_at: Some(wall) } = report.outcome
                {
                    report.retry_at = Some(self.ledger.at_wall(wall));
                }
                self.report(report);
            }
            Err(err) => {
                // A panic of an adapter, or a stage that was ended: its processes may still run.
                let reason = if err.is_panic() {
                    assert!(!is_on(Mutant::AdapterPanicEndsRun), "an adapter panicked");
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
        let (task, token) = (report.task, report.token);
        self.pending.push(Command::Report(Box::new(report)));
        if self.ledger.engine.grant(task).is_none() {
            // The result comes too late, but with it nothing of the lease runs any more.
            self.pending.push(Command::Stopped { task, token });
        }
    }

    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        let mut wake = now + if self.has_room { SLEEP_MAX } else { ROOM_LOOK };
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
        let deadlines = self.live.values().filter_map(|live| live.deadline);
        let deadlines = deadlines.chain(self.inherited.until());
        deadlines.fold(wake, Instant::min)
    }
}
