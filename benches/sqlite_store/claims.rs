//! Claims: the engine with the store, beside the queue in one table, in runs that are half done.
//!
//! A step is the result of a task's one stage and the next claim, in one durable commit. The figure
//! of the table is of two transactions, since its statement takes a task and can do nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orchestrator_core::port::{Commit, Store as _};
use orchestrator_core::testing::conformance::samples::run_id;
use orchestrator_core::{
    Answer, ClockReading, Command, CommandId, Cost, Engine, FencingToken, Grant, Outcome, Owner,
    OwnerId, Pipeline, Plan, RetryRules, StageKind, StageReport, StageSpec, TaskId, TaskSpec,
    Timestamp, WallTime,
};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};

use crate::naive::Naive;
use crate::shapes::{self, Graph, SHAPES};
use crate::{Options, median, short};

/// Steps in one round.
const STEPS: u32 = 40;
/// Steps that are committed at once on the way to the middle of a run.
const GROUP: u32 = 2_000;
/// How long a round of the table may take.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(options: &Options) {
    for (shape, graph) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let mut runs = Vec::new();
        for size in options.sizes().filter(|size| *size <= 100_000) {
            runs.push(Sized::new(dir.path(), size, &graph(size)).await);
        }
        for _ in 0..options.rounds.min(5) {
            for run in &mut runs {
                run.round().await;
            }
        }
        let costs: Vec<(u32, f64)> = runs.into_iter().map(|run| run.tell(shape)).collect();
        let of = |size| costs.iter().find(|(of, _)| *of == size).map(|(_, cost)| *cost);
        if let (Some(few), Some(many)) = (of(1_000), of(100_000)) {
            println!("{shape}_claim_cost_100k_to_1k: {:.2}", many / few);
        }
    }
}

/// Both ways to claim at one size, and what they have cost so far.
struct Sized {
    size: u32,
    table: Naive,
    driver: Driver,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Sized {
    async fn new(dir: &Path, size: u32, graph: &Graph) -> Self {
        let order = shapes::in_order(graph);
        let done = &order[..order.len() / 2];
        let table = Naive::new(&dir.join(format!("table-{size}.db")), graph, done);
        let driver = Driver::half_done(&dir.join(format!("store-{size}.db")), graph).await;
        Self { size, table, driver, ours: Vec::new(), theirs: Vec::new() }
    }

    async fn round(&mut self) {
        let steps = STEPS.min(self.size / 12);
        self.theirs.extend(self.table.steps(steps, PATIENCE));
        self.ours.push(self.driver.steps(steps).await);
    }

    /// Prints the figures; the size and what a step costs.
    fn tell(self, shape: &str) -> (u32, f64) {
        let [ours, theirs] = [self.ours, self.theirs].map(median);
        let name = format!("{shape}_{}", short(self.size));
        println!("{name}_claims_per_s: {:.0}", 1.0 / ours);
        println!("{name}_table_claims_per_s: {:.1}", 1.0 / theirs);
        println!("{name}_gain: {:.1}", theirs / ours);
        (self.size, ours)
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

impl Driver {
    /// A run in the middle of which a stage is under way.
    async fn half_done(path: &Path, graph: &Graph) -> Self {
        let store = SqliteStore::open(path, SqliteOptions::new()).await.unwrap();
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
        let tasks = u32::try_from(graph.len()).unwrap();
        for step in 1..=tasks / 2 {
            driver.step();
            if step % GROUP == 0 || step == tasks / 2 {
                driver.commit().await;
            }
        }
        driver
    }

    /// The cost of one step with its commit.
    async fn steps(&mut self, steps: u32) -> f64 {
        let start = Instant::now();
        for _ in 0..steps {
            self.step();
            self.commit().await;
        }
        start.elapsed().as_secs_f64() / f64::from(steps)
    }

    fn step(&mut self) {
        let grant = self.grant.take().unwrap();
        self.submit(&Command::Report(Box::new(report(&self.engine, grant))));
        self.claim();
    }

    fn claim(&mut self) {
        let answer = self.submit(&Command::Claim { owner: owner().id });
        let Answer::Granted(grant) = answer else { panic!("{answer:?}") };
        self.grant = Some(*grant);
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

fn report(engine: &Engine, grant: Grant) -> StageReport {
    StageReport {
        run: engine.id().clone(),
        task: grant.task,
        stage: grant.stage,
        attempt: grant.attempt,
        token: grant.token,
        outcome: Outcome::Passed,
        cost: Cost::NONE,
        session: None,
        candidate: None,
        merged: None,
        kept: None,
        retry_at: None,
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
