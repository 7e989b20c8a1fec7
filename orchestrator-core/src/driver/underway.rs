//! What runs: the stages of this driver, and what earlier ones left.
//!
//! A stage that is to end is asked first. One that does not end in time is broken off, and its
//! processes are ended from outside; its lease lives until they are known to be gone. What is not gone
//! when the driver stops is left, as a lease that is being stopped, to the driver that comes next.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::message::{Message, ToLoop};
use super::stage::Stage;
use super::stage_logs::StageLogs;
use super::{DriverConfig, Ports};
use crate::command::{Grant, StageReport};
use crate::engine::Engine;
use crate::id::{FencingToken, RunId, TaskId};
use crate::mutant::{Mutant, is_on};
use crate::outcome::Interruption;
use crate::port::Host;
use crate::record::Phase;

/// The wait before leftovers that could not be ended are tried again.
const LEFTOVERS_RETRY: Duration = Duration::from_secs(1);
/// How long nothing is granted beside what an earlier driver left.
const INHERITED_WITHIN: Duration = Duration::from_secs(60);
/// What a longer grace comes to: the end of a sum with the present has to be a time.
const STOP_GRACE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
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

/// A stage of this process that runs, or whose processes are being ended.
struct Live {
    grant: Grant,
    /// Where its logs are.
    dir: PathBuf,
    cancel: CancellationToken,
    abort: AbortHandle,
    /// When it is broken off whatever it does; set once it is asked to end.
    deadline: Option<Instant>,
    /// Whether it broke off or was broken off.
    is_broken_off: bool,
}

impl Live {
    /// Asks the stage to end, and says until when it may take.
    fn ask_to_end(&mut self, deadline: Instant) {
        self.cancel.cancel();
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
    }
}

/// What became of a stage's task.
pub(super) type Joined = Result<(Id, StageReport), JoinError>;

/// The stages of this driver, what earlier ones left, and work beside the stages.
pub(super) struct UnderWay {
    run: RunId,
    host: Arc<dyn Host>,
    logs: StageLogs,
    stop_grace: Duration,
    to_loop: ToLoop,
    pub(super) stages: JoinSet<StageReport>,
    live: BTreeMap<FencingToken, Live>,
    /// Work beside the stages: leftovers being ended, workspaces being removed.
    pub(super) chores: JoinSet<()>,
    pub(super) inherited: Inherited,
    /// Whether all stages were asked to end.
    pub(super) has_asked: bool,
}

impl UnderWay {
    pub(super) fn new(ports: &Ports, config: &DriverConfig, to_loop: ToLoop) -> Self {
        Self {
            run: config.run.clone(),
            host: Arc::clone(&ports.host),
            logs: StageLogs::of(ports, config),
            stop_grace: config.stop_grace.min(STOP_GRACE_MAX),
            to_loop,
            stages: JoinSet::new(),
            live: BTreeMap::new(),
            chores: JoinSet::new(),
            inherited: Inherited::default(),
            has_asked: false,
        }
    }

    /// Whether no stage runs.
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// When something is to be broken off, or no longer waited for.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.live.values().filter_map(|live| live.deadline).chain(self.inherited.until())
    }

    /// Begins a stage.
    pub(super) fn begin(&mut self, stage: Stage) {
        let (grant, dir) = (stage.grant.clone(), stage.dir.clone());
        let cancel = stage.cancel.clone();
        let abort = self.stages.spawn(stage.carry_out());
        let live = Live { grant, dir, cancel, abort, deadline: None, is_broken_off: false };
        self.live.insert(live.grant.token, live);
    }

    /// What a stage that ended reports; one that broke off does that once it is known to be gone.
    pub(super) fn ended(&mut self, joined: Joined) -> Option<StageReport> {
        let id = match &joined {
            Ok((id, _)) => *id,
            Err(err) => err.id(),
        };
        let mut live = self.live.iter();
        let token = live.find(|(_, live)| live.abort.id() == id).map(|(token, _)| *token)?;
        let live = self.live.remove(&token)?;
        match joined {
            Ok((_, report)) => return Some(report),
            // A panic of an adapter, or a stage that was ended: its processes may still run.
            Err(err) if err.is_panic() => {
                assert!(!is_on(Mutant::AdapterPanicEndsRun), "an adapter panicked");
                error!(task = %live.grant.task, "an adapter panicked");
                self.report_when_gone(live, Interruption::Crashed);
            }
            Err(_) => self.report_when_gone(live, Interruption::Shutdown),
        }
        None
    }

    /// Ends what earlier drivers left running.
    pub(super) fn end_leftovers(&mut self, engine: &Engine) {
        if is_on(Mutant::LeftoversForgotten) {
            return;
        }
        for task in engine.held() {
            if let Phase::Stopping { lease, .. } = &task.phase {
                self.inherited.add(lease.token);
                self.end_lease(engine, &task.id, lease.token);
            }
        }
    }

    /// Has a stage end that the engine wants to end, whoever began it.
    pub(super) fn stop(&mut self, engine: &Engine, task: &TaskId, token: FencingToken) {
        let deadline = Instant::now() + self.stop_grace;
        match self.live.get_mut(&token) {
            Some(_) if is_on(Mutant::StopNotTold) => {}
            Some(live) => live.ask_to_end(deadline),
            None => self.end_lease(engine, task, token),
        }
    }

    /// Ends the processes of a lease, however often it takes, and says so.
    fn end_lease(&mut self, engine: &Engine, task: &TaskId, token: FencingToken) {
        let (host, run) = (Arc::clone(&self.host), self.run.clone());
        let (logs, dir) = (self.logs.clone(), self.logs.of_last(engine, task));
        let (to_loop, task) = (self.to_loop.clone(), task.clone());
        self.chores.spawn(async move {
            end_processes(&*host, &run, token).await;
            if let Some(dir) = dir {
                logs.mask(&dir).await;
            }
            // A loop that is gone leaves the lease to the next one.
            drop(to_loop.send(Message::Stopped { task, token }));
        });
    }

    /// Reports a stage that broke off, once nothing that it started runs any more.
    fn report_when_gone(&mut self, mut live: Live, reason: Interruption) {
        let report = Stage::broken_off(self.run.clone(), &live.grant, reason);
        let (host, run) = (Arc::clone(&self.host), self.run.clone());
        let (logs, dir) = (self.logs.clone(), live.dir.clone());
        live.abort = self.stages.spawn(async move {
            if !is_on(Mutant::CrashedStageIsFreeAtOnce) {
                end_processes(&*host, &run, report.token).await;
            }
            logs.mask(&dir).await;
            report
        });
        live.is_broken_off = true;
        live.deadline = self.has_asked.then(|| Instant::now() + self.last_grace());
        self.live.insert(live.grant.token, live);
    }

    /// Asks every stage to end, and nothing is to follow.
    pub(super) fn ask_to_stop(&mut self) {
        self.has_asked = true;
        self.ask_all_to_end();
    }

    /// Asks every stage to end.
    pub(super) fn ask_all_to_end(&mut self) {
        let deadline = Instant::now() + self.stop_grace;
        self.live.values_mut().for_each(|live| live.ask_to_end(deadline));
    }

    /// Breaks off the stages that had their time.
    pub(super) fn break_off_overdue(&mut self, now: Instant, is_stopping: bool) {
        let last_grace = self.last_grace();
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
    pub(super) async fn end_chores(&mut self, stop: &CancellationToken) {
        let last_grace = self.last_grace();
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
        let all = async { while self.stages.join_next().await.is_some() {} };
        if tokio::time::timeout(self.stop_grace, all).await.is_err() {
            // One that never yields cannot be broken off, and must not hold up the others.
            drop(tokio::time::timeout(self.last_grace(), self.stages.shutdown()).await);
        }
        for token in self.live.keys() {
            let ended = self.host.end_leftovers(&self.run, *token);
            match tokio::time::timeout(self.stop_grace, ended).await {
                Ok(Ok(_)) => {}
                Ok(Err(err)) => warn!(%token, error = %err.chain(), "processes may still run"),
                Err(_) => warn!(%token, "processes may still run"),
            }
        }
    }

    fn last_grace(&self) -> Duration {
        self.stop_grace / LAST_GRACE_SHARE
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
