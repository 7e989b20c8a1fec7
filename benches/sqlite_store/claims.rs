//! Claims: the engine with the store, beside the queue in one table, in runs that are half done.
//!
//! A step is the result of a task's one stage and the next claim, in one durable commit. A step of
//! the table is two transactions, since its statement takes a task and can do nothing else. Figures
//! are medians over all steps.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orchestrator_core::port::{Commit, Store as _};
use orchestrator_core::testing::conformance::samples::run_id;
use orchestrator_core::{
    Answer, ClockReading, Command, CommandId, Engine, FencingToken, Grant, Outcome, Owner, OwnerId,
    Pipeline, Plan, RetryRules, StageKind, StageSpec, TaskId, TaskSpec, Timestamp, WallTime,
};
use orchestrator_sqlite::{SqliteOptions, SqliteStore, Synchronous};

use crate::naive::Naive;
use crate::shapes::{self, Graph, SHAPES};
use crate::{Options, in_turns, median, short};

/// Steps of each in one round.
const STEPS: usize = 20;
/// Steps that are committed at once on the way to the middle of a run.
const GROUP: u32 = 2_000;
/// How long the table may take at one size.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn measure(options: &Options) {
    for (shape, graph) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let mut runs = Vec::new();
        for size in options.sizes().filter(|size| *size <= 100_000) {
            runs.push(Sized::new(dir.path(), size, &graph(size)).await);
        }
        // Step by step in turns, so that whatever else the disk does hits all alike.
        for _ in 0..STEPS * options.rounds {
            for run in &mut runs {
                run.step().await;
            }
        }
        let of = |size| runs.iter().find(|run| run.size == size);
        let ratios = of(1_000).zip(of(100_000)).map(|(few, many)| {
            [in_turns(&many.ours, &few.ours), in_turns(&many.loose_ours, &few.loose_ours)]
        });
        for run in runs {
            run.tell(shape);
        }
        if let Some([durable, loose]) = ratios {
            println!("{shape}_claim_cost_100k_to_1k: {durable:.2}");
            println!("{shape}_claim_cost_100k_to_1k_without_sync: {loose:.2}");
        }
    }
}

/// Both ways to claim at one size, and what they have cost so far.
struct Sized {
    size: u32,
    table: Naive,
    driver: Driver,
    /// The same with commits that do not wait for the disk, whose noise hides what size does.
    loose: Driver,
    /// What each step cost.
    ours: Vec<f64>,
    loose_ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Sized {
    async fn new(dir: &Path, size: u32, graph: &Graph) -> Self {
        let order = shapes::in_order(graph);
        let done = &order[..order.len() / 2];
        let table = Naive::new(&dir.join(format!("table-{size}.db")), graph, done);
        let path = |kind: &str| dir.join(format!("{kind}-{size}.db"));
        let driver = Driver::half_done(&path("store"), Synchronous::Full, graph).await;
        let loose = Driver::half_done(&path("loose"), Synchronous::Normal, graph).await;
        let [ours, loose_ours, theirs] = [const { Vec::new() }; 3];
        Self { size, table, driver, loose, ours, loose_ours, theirs }
    }

    async fn step(&mut self) {
        // Few tasks are soon all done.
        if self.ours.len() >= self.size as usize / 12 {
            return;
        }
        self.ours.push(self.driver.timed_step().await);
        for _ in 0..4 {
            self.loose_ours.push(self.loose.timed_step().await);
        }
        if self.theirs.iter().sum::<f64>() < PATIENCE.as_secs_f64() {
            let start = Instant::now();
            self.table.step();
            self.theirs.push(start.elapsed().as_secs_f64());
        }
    }

    /// Prints the figures.
    fn tell(self, shape: &str) {
        let [ours, theirs] = [self.ours, self.theirs].map(median);
        let name = format!("{shape}_{}", short(self.size));
        println!("{name}_claims_per_s: {:.0}", 1.0 / ours);
        println!("{name}_table_claims_per_s: {:.1}", 1.0 / theirs);
        println!("{name}_gain: {:.1}", theirs / ours);
    }
}

/// An engine and its store.
struct Driver {
    engine: Engine,
    store: SqliteStore,
    commands: u64,
    /// The stage under way.
    grant: Option<Grant>,
}

/// A run of which the first stage is under way.
pub(crate) async fn begun(path: &Path, graph: &Graph) {
    Driver::begun(path, Synchronous::Full, graph).await.store.close().await;
}

impl Driver {
    async fn begun(path: &Path, synchronous: Synchronous, graph: &Graph) -> Self {
        let options = SqliteOptions::new().with_synchronous(synchronous);
        let store = SqliteStore::open(path, options).await.unwrap();
        let mut driver = Self { engine: Engine::new(run_id("r")), store, commands: 0, grant: None };
        let (boot_id, wall) = ("boot".to_owned(), WallTime(0));
        let opening = Command::OpenDriver {
            owner: owner(),
            reading: ClockReading { boot_id, boot_ms: 0, wall },
            ttl: Duration::from_secs(60),
            token_floor: FencingToken(0),
            ended: None,
        };
        driver.submit(&Command::CreateRun { rules: RetryRules::default() });
        driver.submit(&opening);
        driver.submit(&Command::AddPlan { plan: Arc::new(plan(graph)) });
        driver.claim();
        driver.commit().await;
        driver
    }

    /// A run in the middle of which a stage is under way.
    async fn half_done(path: &Path, synchronous: Synchronous, graph: &Graph) -> Self {
        let mut driver = Self::begun(path, synchronous, graph).await;
        let tasks = u32::try_from(graph.len()).unwrap();
        for step in 1..=tasks / 2 {
            driver.step();
            if step % GROUP == 0 || step == tasks / 2 {
                driver.commit().await;
            }
        }
        driver
    }

    async fn timed_step(&mut self) -> f64 {
        let start = Instant::now();
        self.step();
        self.commit().await;
        start.elapsed().as_secs_f64()
    }

    fn step(&mut self) {
        let grant = self.grant.take().unwrap();
        self.submit(&Command::Report(Box::new(
            grant.report(self.engine.id().clone(), Outcome::Passed),
        )));
        self.claim();
    }

    fn claim(&mut self) {
        let answer = self.submit(&Command::Claim { owner: owner().id });
        let Answer::Granted { task, .. } = answer else { panic!("{answer:?}") };
        self.grant = self.engine.grant(task);
    }

    fn submit(&mut self, command: &Command) -> Answer {
        self.commands += 1;
        let id = CommandId::parse(&format!("c{}", self.commands)).unwrap();
        self.engine.submit(Timestamp(1), &id, command).unwrap()
    }

    async fn commit(&mut self) {
        let commit: Commit = self.engine.batch().unwrap();
        self.store.commit(self.engine.id(), &commit).await.unwrap();
        self.engine.accept();
    }
}

fn owner() -> Owner {
    let id = OwnerId::parse("bench").unwrap();
    Owner { id, host: "here".to_owned(), boot_id: "boot".to_owned(), pid: 1, start_time: 1 }
}

fn id(task: u32) -> TaskId {
    TaskId::parse(&format!("task-{task}")).unwrap()
}

/// A plan of this graph in which each task has one stage.
pub(crate) fn plan(graph: &Graph) -> Plan {
    let mut plan = Plan::default();
    for (task, on) in (0_u32..).zip(graph) {
        let mut spec = TaskSpec::new(id(task));
        spec.depends_on = on.iter().copied().map(id).collect();
        plan.tasks.push(spec);
    }
    let run = Pipeline::new(vec![StageSpec::of(StageKind::Run)]).unwrap();
    plan.pipelines.insert("default".parse().unwrap(), run);
    plan
}
