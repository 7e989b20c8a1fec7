//! A world in which drivers can be started.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Found, announced};
use crate::driver::{DriverConfig, Orchestrator, Ports, RunEnd, RunError};
use crate::event::EventKind;
use crate::id::{FencingToken, OwnerId, RunId, Seq, TaskId};
use crate::lease::Owner;
use crate::mask::Mask;
use crate::memory::MemoryStore;
use crate::outcome::{Interruption, StageEnd};
use crate::plan::Plan;
use crate::port::{Host, Liveness, PortError, Runner, StageContext, Store};
use crate::record::Phase;
use crate::task::{TaskSpec, VerifyCommand};
use crate::testing::{Fault, FaultStore, MemoryTarget, Recorder, Scripted, VirtualHost};
use crate::time::{ClockReading, millis};

pub(super) fn id(text: &str) -> TaskId {
    TaskId::parse(text).expect("a valid id")
}

fn run() -> RunId {
    RunId::parse("museum").expect("a valid id")
}

pub(super) fn plan(edges: &[(&str, &[&str])]) -> Arc<Plan> {
    let tasks = edges.iter().map(|(name, depends_on)| {
        let mut spec = TaskSpec::new(id(name));
        spec.depends_on = depends_on.iter().map(|name| id(name)).collect();
        spec.verify = Some(VerifyCommand::Shell("true".to_owned()));
        spec
    });
    Arc::new(Plan { tasks: tasks.collect(), ..Plan::default() })
}

/// What one process drives a run with.
#[derive(Clone)]
pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) target: MemoryTarget,
    pub(super) host: VirtualHost,
    /// The name of its machine.
    pub(super) machine: &'static str,
    pub(super) begun: Instant,
    pub(super) looks: Looks,
    pub(super) recorder: Recorder,
    pub(super) script: Scripted,
}

/// A drive in the background.
pub(super) struct Driving {
    pub(super) stop: CancellationToken,
    task: JoinHandle<Result<RunEnd, RunError>>,
}

impl Driving {
    /// How it ends.
    pub(super) async fn end(self) -> Result<RunEnd, RunError> {
        // A panic of the loop is one of the faults: it is passed on to whoever looks for them.
        self.task.await.unwrap_or_else(|err| std::panic::resume_unwind(err.into_panic()))
    }
}

impl World {
    pub(super) fn new(script: impl Fn(&StageContext) -> StageEnd + Send + Sync + 'static) -> Self {
        // A process of its own: all drives of one process know of each other.
        static PROCESSES: AtomicU32 = AtomicU32::new(1_000);
        let pid = PROCESSES.fetch_add(1_000, Ordering::Relaxed);
        Self {
            store: Arc::new(MemoryStore::new()),
            target: MemoryTarget::default(),
            host: VirtualHost::new().process(pid),
            machine: "host",
            begun: Instant::now(),
            looks: Looks::default(),
            recorder: Recorder::default(),
            script: Scripted::new(script),
        }
    }

    /// Another process of the same machine.
    pub(super) fn process(&self, number: u32) -> Self {
        let pid = self.host.this_process().pid + number;
        Self { host: self.host.process(pid), ..self.clone() }
    }

    /// A process of another machine, from which nobody can look at this one.
    pub(super) fn on(&self, machine: &'static str) -> Self {
        Self { machine, ..self.process(7) }
    }

    /// The same process, with these faults in front of its store.
    pub(super) fn failing(&self, faults: impl IntoIterator<Item = (u64, Fault)>) -> Self {
        let faulty = FaultStore::scripted(Arc::clone(&self.store), faults);
        Self { store: Arc::new(faulty), ..self.clone() }
    }

    pub(super) fn orchestrator(&self) -> Orchestrator {
        self.orchestrator_with(|_| {})
    }

    pub(super) fn orchestrator_with(&self, change: impl FnOnce(&mut Ports)) -> Orchestrator {
        let script = Arc::new(self.script.clone());
        let (looks, begun) = (self.looks.clone(), self.begun);
        let machine = Machine { host: self.host.clone(), name: self.machine, looks, begun };
        let mut ports = Ports {
            store: Arc::clone(&self.store),
            runner: Arc::<Scripted>::clone(&script),
            verifier: Arc::<Scripted>::clone(&script),
            reviewer: script,
            integrator: Arc::new(self.target.clone()),
            workspaces: Arc::new(self.target.clone()),
            host: Arc::new(machine),
            observer: Arc::new(self.recorder.clone()),
        };
        change(&mut ports);
        let mut config = DriverConfig::new(run(), "stages".into());
        config.resume = true;
        config.rules.backoff = Duration::from_secs(1);
        Orchestrator::new(ports, config)
    }

    pub(super) async fn drive(&self, plan: Arc<Plan>) -> Result<RunEnd, RunError> {
        self.start(plan).end().await
    }

    pub(super) fn start(&self, plan: Arc<Plan>) -> Driving {
        self.start_with(self.orchestrator(), plan)
    }

    pub(super) fn start_with(&self, orchestrator: Orchestrator, plan: Arc<Plan>) -> Driving {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let restless = self.looks.1.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = restless.cancelled() => panic!("P15: the loop does not come to rest"),
                end = orchestrator.drive(Some(plan), stopped) => end,
            }
        });
        Driving { stop, task }
    }

    /// The tasks that were granted.
    pub(super) fn granted(&self) -> Vec<TaskId> {
        let events = self.recorder.events().into_iter();
        let granted =
            |kind| if let EventKind::Granted { task, .. } = kind { Some(task) } else { None };
        events.filter_map(|stored| granted(stored.event.kind)).collect()
    }

    pub(super) async fn has_run(&self) -> bool {
        matches!(self.store.load(&run()).await, Ok(Some(_)))
    }

    /// The tasks that have begun and not ended, and have a workspace.
    pub(super) async fn under_way(&self) -> Vec<TaskId> {
        let Ok(Some(snapshot)) = self.store.load(&run()).await else { return Vec::new() };
        let open = self.target.open_workspaces();
        let tasks = snapshot.tasks.into_iter();
        let tasks = tasks.filter(|task| task.attempt > 0 && open.contains(&task.id));
        let is_over = |phase: &Phase| {
            matches!(phase, Phase::Done(_) | Phase::Escalated(_) | Phase::Cancelled)
        };
        tasks.filter(|task| !is_over(&task.phase)).map(|task| task.id).collect()
    }

    pub(super) async fn merges_were_announced(&self) -> Found {
        let events = self.store.events(&run(), Seq(0), 10_000).await;
        let events = events.map_err(|err| err.to_string())?;
        announced(&events.into_iter().map(|stored| stored.event.kind).collect::<Vec<_>>())
    }
}

/// A machine whose clocks go with the runtime's.
#[derive(Debug)]
struct Machine {
    host: VirtualHost,
    name: &'static str,
    begun: Instant,
    looks: Looks,
}

/// More looks at the clocks than any scene takes: a loop that does not come to rest never waits, so
/// that no time goes by for it.
const LOOKS_MAX: u32 = 20_000;

/// How often somebody looked at the clocks; cancelled once that is too often.
#[derive(Debug, Clone, Default)]
pub(super) struct Looks(Arc<AtomicU32>, CancellationToken);

impl Looks {
    fn count(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) >= LOOKS_MAX {
            self.1.cancel();
        }
    }
}

#[async_trait]
impl Host for Machine {
    fn reading(&self) -> ClockReading {
        self.looks.count();
        let gone = millis(self.begun.elapsed());
        let mut reading = self.host.reading();
        reading.boot_ms += gone;
        reading.wall.0 += gone;
        reading
    }

    fn this_process(&self) -> Owner {
        let owner = self.host.this_process();
        let name = format!("{}/{}", self.name, owner.id);
        let id = OwnerId::parse(&name).expect("a short name");
        Owner { id, host: self.name.to_owned(), ..owner }
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        if owner.host == self.name { self.host.liveness(owner) } else { Liveness::Unknown }
    }

    async fn end_leftovers(&self, run: &RunId, token: FencingToken) -> Result<u32, PortError> {
        self.host.end_leftovers(run, token).await
    }

    async fn mask_logs(&self, dir: &Path, mask: &Mask) -> Result<(), PortError> {
        self.host.mask_logs(dir, mask).await
    }
}

/// A runner whose stages go on until they are told to end, and that notes when that was.
#[derive(Debug, Default)]
pub(super) struct Listens(Mutex<Option<Instant>>);

impl Listens {
    /// When the last one was told.
    pub(super) fn told(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Runner for Listens {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        cx.cancel.cancelled().await;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        StageEnd::interrupted(Interruption::Shutdown)
    }
}

/// A runner whose first stage neither ends nor listens.
#[derive(Debug, Default)]
pub(super) struct Deaf(AtomicU32);

#[async_trait]
impl Runner for Deaf {
    async fn run(&self, _: &StageContext) -> StageEnd {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            std::future::pending::<()>().await;
        }
        StageEnd::passed()
    }
}
