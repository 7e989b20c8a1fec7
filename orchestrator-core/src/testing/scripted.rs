//! Adapters that do what a test tells them, and a target that lives in memory.
//!
//! They keep the contracts of the ports, so that a test of a policy, a store or a driver needs no
//! files, no processes and no git.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::id::{ChangeId, FencingToken, OwnerId, RunId, TaskId};
use crate::lease::Owner;
use crate::mask::Mask;
use crate::money::Cost;
use crate::outcome::{Candidate, MergeIntent, Outcome, StageEnd};
use crate::port::{
    Applied, Change, Host, Integrator, Liveness, Observer, OpenWorkspace, PortError, Progress,
    Proposal, Review, Reviewer, Room, Runner, Sealed, StageContext, Start, Trial, Verifier,
    Workspace, Workspaces,
};
use crate::task::{TaskSpec, VerifyCommand};
use crate::time::{ClockReading, WallTime};
use crate::verdict::{Finding, Judgement, Severity, Verdict};
use crate::{event::StoredEvent, port::ActivityKind};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Script = dyn Fn(&StageContext) -> StageEnd + Send + Sync;

/// A runner, verifier and reviewer in one, that answers each stage by a function.
///
/// The reviewer's `Passed` is an approval and its `Rejected` a rejection with the feedback as its
/// one finding. A stage whose outcome is [`Outcome::Interrupted`] by
/// [`Interruption::Silence`](crate::Interruption::Silence) hangs until it is cancelled.
#[derive(Clone)]
pub struct Scripted(Arc<Script>);

impl Scripted {
    /// An adapter that answers by this function.
    pub fn new(script: impl Fn(&StageContext) -> StageEnd + Send + Sync + 'static) -> Self {
        Self(Arc::new(script))
    }

    /// An adapter for which all goes well.
    #[must_use]
    pub fn passing() -> Self {
        Self::new(|_| StageEnd::passed())
    }

    async fn answer(&self, cx: &StageContext) -> StageEnd {
        cx.activity.say(ActivityKind::Said("scripted".to_owned()));
        tokio::task::yield_now().await;
        let end = (self.0)(cx);
        if end == StageEnd::interrupted(crate::Interruption::Silence) {
            cx.cancel.cancelled().await;
            return StageEnd::interrupted(crate::Interruption::Shutdown);
        }
        end
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

#[async_trait]
impl Runner for Scripted {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        self.answer(cx).await
    }
}

#[async_trait]
impl Verifier for Scripted {
    async fn verify(&self, cx: &StageContext) -> StageEnd {
        self.answer(cx).await
    }

    async fn try_on(&self, _command: &VerifyCommand, _workspace: &Workspace) -> Trial {
        Trial::Fails
    }
}

#[async_trait]
impl Reviewer for Scripted {
    async fn review(&self, cx: &StageContext, _change: &Change) -> Review {
        let end = self.answer(cx).await;
        let judgement = match end.outcome {
            Outcome::Passed => Ok(Judgement { verdict: Verdict::Approve, findings: Vec::new() }),
            Outcome::Rejected { feedback, .. } => {
                let severity = Severity::Blocking;
                let finding =
                    Finding { id: None, severity, file: None, line: None, message: feedback };
                Ok(Judgement { verdict: Verdict::Reject, findings: vec![finding] })
            }
            other @ (Outcome::Question { .. }
            | Outcome::Interrupted { .. }
            | Outcome::Suspended { .. }
            | Outcome::Fatal { .. }) => Err(other),
        };
        Review { judgement, cost: Cost::NONE }
    }
}

/// Workspaces and a target in memory: a change is the task and the token that made it.
///
/// A clone shows the same target, as two processes see one repository.
#[derive(Debug, Clone, Default)]
pub struct MemoryTarget(Arc<Mutex<Target>>);

#[derive(Debug, Default)]
struct Target {
    /// What was merged, in order; the head is the last.
    merged: Vec<ChangeId>,
    fences: BTreeMap<TaskId, FencingToken>,
    open: BTreeSet<TaskId>,
    /// Proposals that would conflict, by task.
    conflicts: BTreeMap<TaskId, u32>,
    /// What it says of the room that there is; otherwise that there is enough.
    room: Option<Room>,
}

impl MemoryTarget {
    /// What was merged, in order.
    #[must_use]
    pub fn merged(&self) -> Vec<ChangeId> {
        lock(&self.0).merged.clone()
    }

    /// The tasks that have a workspace.
    #[must_use]
    pub fn open_workspaces(&self) -> Vec<TaskId> {
        lock(&self.0).open.iter().cloned().collect()
    }

    /// Has it say this of the room that there is for more work.
    pub fn set_room(&self, room: Room) {
        lock(&self.0).room = Some(room);
    }

    /// Lets the next `times` proposals of a task conflict.
    pub fn conflict(&self, task: TaskId, times: u32) {
        lock(&self.0).conflicts.insert(task, times);
    }
}

fn change(text: &str) -> Result<ChangeId, PortError> {
    ChangeId::parse(text).map_err(|err| PortError::Fatal(Box::new(err)))
}

fn head(target: &Target) -> Result<ChangeId, PortError> {
    target.merged.last().cloned().map_or_else(|| change("root"), Ok)
}

#[async_trait]
impl Workspaces for MemoryTarget {
    async fn open(&self, ask: &OpenWorkspace) -> Result<Workspace, PortError> {
        let mut target = lock(&self.0);
        target.open.insert(ask.task.id.clone());
        let base = match &ask.start {
            Start::On(candidate) => candidate.base.clone(),
            Start::OnTarget | Start::AsLeftBy { .. } => head(&target)?,
        };
        let path = PathBuf::from(ask.task.id.slug());
        let aside = path.join("aside");
        Ok(Workspace::new(path, base, aside))
    }

    async fn seal(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Sealed, PortError> {
        let change = change(&format!("{}@{}", ask.task.id.slug(), ask.token))?;
        Ok(Sealed::Candidate(Candidate { change, base: at.base.clone() }))
    }

    async fn differing(&self, _: &Workspace, _: &ChangeId) -> Result<Vec<String>, PortError> {
        Ok(Vec::new())
    }

    async fn change(&self, candidate: &Candidate) -> Result<Change, PortError> {
        let diff = candidate.change.to_string();
        Ok(Change { candidate: candidate.clone(), files: Vec::new(), diff, cut: None })
    }

    async fn keep(&self, ask: &OpenWorkspace, _: &Workspace) -> Result<Option<String>, PortError> {
        Ok(Some(format!("kept of {}", ask.task.id)))
    }

    async fn release(&self, _: &RunId, task: &TaskId) -> Result<(), PortError> {
        lock(&self.0).open.remove(task);
        Ok(())
    }

    async fn retain(&self, _: &RunId, live: &[TaskId]) -> Result<(), PortError> {
        lock(&self.0).open.retain(|task| live.contains(task));
        Ok(())
    }

    async fn untouched(&self, _: &RunId) -> Result<Workspace, PortError> {
        let base = head(&lock(&self.0))?;
        let path = PathBuf::from("untouched");
        let aside = path.join("aside");
        Ok(Workspace::new(path, base, aside))
    }

    async fn room(&self, _: &RunId) -> Result<Room, PortError> {
        Ok(lock(&self.0).room.clone().unwrap_or(Room::Enough))
    }
}

#[async_trait]
impl Integrator for MemoryTarget {
    async fn fence(&self, _: &RunId, task: &TaskId, token: FencingToken) -> Result<(), PortError> {
        let mut target = lock(&self.0);
        let fence = target.fences.entry(task.clone()).or_default();
        *fence = token.max(*fence);
        Ok(())
    }

    async fn propose(
        &self,
        _: &RunId,
        task: &TaskSpec,
        token: FencingToken,
        candidate: &Candidate,
    ) -> Result<Proposal, PortError> {
        let mut target = lock(&self.0);
        if let Some(left) = target.conflicts.get_mut(&task.id).filter(|left| **left > 0) {
            *left -= 1;
            return Ok(Proposal::Conflict { feedback: format!("{} conflicts", candidate.change) });
        }
        let onto = head(&target)?;
        let is_judged = onto == candidate.base;
        let merged = change(&format!("{}#{token}", candidate.change))?;
        Ok(Proposal::Clean { intent: MergeIntent { onto, merged }, is_judged })
    }

    async fn apply(
        &self,
        _: &RunId,
        task: &TaskId,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Result<Applied, PortError> {
        let mut target = lock(&self.0);
        if target.fences.get(task) != Some(&token) {
            return Ok(Applied::Fenced);
        }
        if head(&target)? != intent.onto {
            return Ok(Applied::Moved);
        }
        target.merged.push(intent.merged.clone());
        Ok(Applied::Merged)
    }

    async fn is_merged(&self, change: &ChangeId) -> Result<bool, PortError> {
        Ok(lock(&self.0).merged.contains(change))
    }

    async fn greatest_fence(&self, _: &RunId) -> Result<FencingToken, PortError> {
        Ok(lock(&self.0).fences.values().copied().max().unwrap_or_default())
    }
}

/// A host whose clocks and processes a test sets.
#[derive(Debug, Clone)]
pub struct VirtualHost {
    pid: u32,
    state: Arc<Mutex<HostState>>,
}

#[derive(Debug)]
struct HostState {
    reading: ClockReading,
    dead: BTreeSet<u32>,
    ended: Vec<FencingToken>,
    masked: Vec<PathBuf>,
}

impl VirtualHost {
    /// The first process of a new host.
    #[must_use]
    pub fn new() -> Self {
        let reading = ClockReading {
            boot_id: "boot-1".to_owned(),
            boot_ms: 1_000,
            wall: WallTime(1_000_000),
        };
        let (dead, ended, masked) = (BTreeSet::new(), Vec::new(), Vec::new());
        let state = HostState { reading, dead, ended, masked };
        Self { pid: 1, state: Arc::new(Mutex::new(state)) }
    }

    /// Another process of the same host.
    #[must_use]
    pub fn process(&self, pid: u32) -> Self {
        Self { pid, state: Arc::clone(&self.state) }
    }

    /// Says that this process has died.
    pub fn die(&self) {
        lock(&self.state).dead.insert(self.pid);
    }

    /// Lets the clocks go on.
    pub fn advance(&self, millis: u64) {
        let reading = &mut lock(&self.state).reading;
        reading.boot_ms = reading.boot_ms.saturating_add(millis);
        reading.wall.0 = reading.wall.0.saturating_add(millis);
    }

    /// Sets the clocks.
    pub fn set(&self, reading: ClockReading) {
        lock(&self.state).reading = reading;
    }

    /// The leases whose processes were ended from outside.
    #[must_use]
    pub fn ended(&self) -> Vec<FencingToken> {
        lock(&self.state).ended.clone()
    }

    /// The directories of stages out of whose logs secrets were taken, in order.
    #[must_use]
    pub fn masked(&self) -> Vec<PathBuf> {
        lock(&self.state).masked.clone()
    }
}

impl Default for VirtualHost {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Host for VirtualHost {
    fn reading(&self) -> ClockReading {
        lock(&self.state).reading.clone()
    }

    fn this_process(&self) -> Owner {
        let boot_id = self.reading().boot_id;
        let id = OwnerId::parse(&format!("host/{boot_id}/{}", self.pid))
            .expect("a boot id of a test is a short name");
        Owner { id, host: "host".to_owned(), boot_id, pid: self.pid, start_time: 1 }
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        let state = lock(&self.state);
        if owner.host != "host" {
            Liveness::Unknown
        } else if owner.boot_id != state.reading.boot_id {
            Liveness::Gone
        } else if state.dead.contains(&owner.pid) {
            Liveness::Dead
        } else {
            Liveness::Alive
        }
    }

    async fn end_leftovers(&self, _: &RunId, token: FencingToken) -> Result<u32, PortError> {
        lock(&self.state).ended.push(token);
        Ok(0)
    }

    async fn mask_logs(&self, dir: &Path, _: &Mask) -> Result<(), PortError> {
        lock(&self.state).masked.push(dir.to_owned());
        Ok(())
    }
}

/// An observer that keeps what it sees.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<StoredEvent>>>);

impl Recorder {
    /// What was committed so far.
    #[must_use]
    pub fn events(&self) -> Vec<StoredEvent> {
        lock(&self.0).clone()
    }
}

impl Observer for Recorder {
    fn committed(&self, events: &[StoredEvent], _: &Progress) {
        lock(&self.0).extend_from_slice(events);
    }
}
