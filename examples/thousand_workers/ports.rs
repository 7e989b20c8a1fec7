//! The adapters: real programs and a real store; workspaces that are one directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use orchestrator_core::port::{
    Activity, ActivityKind, Change, Observer, OpenWorkspace, PortError, Progress, Runner, Sealed,
    StageContext, Store, Workspace, Workspaces,
};
use orchestrator_core::testing::{MemoryTarget, Scripted};
use orchestrator_core::{Candidate, ChangeId, Ports, RunId, StageEnd, StoredEvent, TaskId};
use orchestrator_process::{CommandRunner, CommandVerifier, LocalHost};

use super::child::{self, Kind};

/// Programs of this kind, watched.
pub(crate) fn compose(
    watched: &Arc<Watched>,
    store: Arc<dyn Store>,
    dir: &Path,
    kind: Kind,
) -> anyhow::Result<Ports> {
    let exe = std::env::current_exe()?;
    let exe = exe.to_str().ok_or_else(|| anyhow::anyhow!("this program has an odd path"))?;
    let runner = CommandRunner::new(exe, [child::ARGUMENT, kind.argument()]);
    let target = MemoryTarget::default();
    Ok(Ports {
        store,
        runner: Arc::new(Timed { runner, watched: Arc::clone(watched) }),
        verifier: Arc::new(CommandVerifier::default()),
        reviewer: Arc::new(Scripted::passing()),
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(OnePlace { target, dir: dir.to_owned() }),
        host: Arc::new(LocalHost::new()?),
        observer: Arc::<Watched>::clone(watched),
    })
}

/// What was seen of a run.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    started: AtomicU32,
    bytes: AtomicU64,
    starts: Mutex<Vec<Instant>>,
    results: Mutex<Vec<Instant>>,
    grants: Mutex<Vec<Instant>>,
}

impl Watched {
    /// How many programs were started.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::Relaxed)
    }

    /// How often a program was seen to have written something, in bytes of its output so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How long each free place waited: from the moment that a result was known to that in which the
    /// program that took its place was started.
    pub(crate) fn dispatch_latencies(&self, places: u32) -> Vec<Duration> {
        Self::after(&self.results, &self.starts, places)
    }

    /// The part of it until the grant was durable and the stage began.
    pub(crate) fn grant_latencies(&self, places: u32) -> Vec<Duration> {
        Self::after(&self.results, &self.grants, places)
    }

    fn after(
        results: &Mutex<Vec<Instant>>,
        starts: &Mutex<Vec<Instant>>,
        places: u32,
    ) -> Vec<Duration> {
        let sorted = |times: &Mutex<Vec<Instant>>| {
            let mut times = times.lock().unwrap_or_else(PoisonError::into_inner).clone();
            times.sort_unstable();
            times
        };
        let starts = sorted(starts);
        let starts = starts.iter().skip(places as usize);
        starts.zip(sorted(results)).map(|(start, end)| start.duration_since(end)).collect()
    }

    fn note(times: &Mutex<Vec<Instant>>) {
        times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    }
}

impl Observer for Watched {
    fn committed(&self, _: &[StoredEvent], _: &Progress) {}

    fn activity(&self, activity: &Activity) {
        match &activity.kind {
            ActivityKind::Started { .. } => {
                Self::note(&self.starts);
                self.started.fetch_add(1, Ordering::Relaxed);
            }
            // Each line of these programs has about this length.
            ActivityKind::Output { .. } => {
                self.bytes.fetch_add(50, Ordering::Relaxed);
            }
            ActivityKind::Session(_) | ActivityKind::Said(_) => {}
        }
    }
}

/// Notes when a result is known.
#[derive(Debug)]
struct Timed {
    runner: CommandRunner,
    watched: Arc<Watched>,
}

#[async_trait]
impl Runner for Timed {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        Watched::note(&self.watched.grants);
        let end = self.runner.run(cx).await;
        Watched::note(&self.watched.results);
        end
    }
}

/// The same directory for everybody; nobody writes to it.
#[derive(Debug)]
struct OnePlace {
    target: MemoryTarget,
    dir: PathBuf,
}

#[async_trait]
impl Workspaces for OnePlace {
    async fn open(&self, ask: &OpenWorkspace) -> Result<Workspace, PortError> {
        let workspace = self.target.open(ask).await?;
        Ok(Workspace { path: self.dir.clone(), ..workspace })
    }

    async fn seal(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Sealed, PortError> {
        self.target.seal(ask, at).await
    }

    async fn differing(&self, at: &Workspace, from: &ChangeId) -> Result<Vec<String>, PortError> {
        self.target.differing(at, from).await
    }

    async fn change(&self, candidate: &Candidate) -> Result<Change, PortError> {
        Workspaces::change(&self.target, candidate).await
    }

    async fn keep(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Option<String>, PortError> {
        self.target.keep(ask, at).await
    }

    async fn release(&self, run: &RunId, task: &TaskId) -> Result<(), PortError> {
        self.target.release(run, task).await
    }

    async fn retain(&self, run: &RunId, live: &[TaskId]) -> Result<(), PortError> {
        self.target.retain(run, live).await
    }

    async fn untouched(&self, run: &RunId) -> Result<Workspace, PortError> {
        self.target.untouched(run).await
    }
}
