//! What the engine costs for each completed task, beside the leanest loop that could do the same.
//!
//! `cargo bench -p benches --bench engine` prints `name: value` a line: medians of interleaved runs
//! in one process, so that the ratios hold on a noisy machine. A completed task is a result and the
//! next grant, in a one-stage pipeline over a random graph with about three dependencies a task.
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::expect_used, reason = "a bench that cannot run has nothing to say")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orchestrator_core::{
    Answer, ClockReading, Command, CommandId, Cost, Engine, FencingToken, Outcome, Owner, OwnerId,
    Pipeline, Plan, PoolName, RetryRules, RunId, StageKind, StageReport, StageSpec, TaskId,
    TaskSpec, Timestamp, WallTime,
};

const RUNS: usize = 5;
/// Stages under way at once.
const AT_ONCE: u32 = 64;

fn main() {
    for (name, tasks) in [("1k", 1_000_u32), ("10k", 10_000), ("100k", 100_000)] {
        let graph = random_graph(tasks);
        let (mut engine, mut lean) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            engine.push(engine_run(&graph));
            lean.push(lean_run(&graph));
        }
        let (engine, lean) = (median(engine), median(lean));
        let per_task = |time: Duration| time.as_nanos() / u128::from(tasks);
        println!("engine_ns_per_task_{name}: {}", per_task(engine));
        println!("lean_ns_per_task_{name}: {}", per_task(lean));
        println!("ratio_{name}: {:.1}", engine.as_secs_f64() / lean.as_secs_f64());
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// For each task the earlier tasks that it depends on.
fn random_graph(tasks: u32) -> Vec<Vec<u32>> {
    let mut state = 1_u64;
    let mut roll = |limit: u32| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((state >> 33) % u64::from(limit)).unwrap_or(0)
    };
    let dependencies = |task: u32, roll: &mut dyn FnMut(u32) -> u32| {
        let mut earlier: Vec<u32> = (0..3).map(|_| task - 1 - roll(task.min(1_000))).collect();
        earlier.sort_unstable();
        earlier.dedup();
        earlier
    };
    (0..tasks).map(|task| if task == 0 { vec![] } else { dependencies(task, &mut roll) }).collect()
}

/// Indegree counters and a heap: no leases, records, pools, log or strings.
fn lean_run(graph: &[Vec<u32>]) -> Duration {
    let mut dependents = vec![Vec::new(); graph.len()];
    let mut waits: Vec<u32> = Vec::with_capacity(graph.len());
    for (task, dependencies) in (0_u32..).zip(graph) {
        waits.push(u32::try_from(dependencies.len()).unwrap_or(u32::MAX));
        for from in dependencies {
            dependents[*from as usize].push(task);
        }
    }
    let begun = Instant::now();
    let mut ready: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    ready.extend(
        (0_u32..).zip(&waits).filter(|(_, waits)| **waits == 0).map(|(task, _)| Reverse(task)),
    );
    let mut done = 0;
    while let Some(Reverse(task)) = ready.pop() {
        done += 1;
        for next in &dependents[task as usize] {
            waits[*next as usize] -= 1;
            if waits[*next as usize] == 0 {
                ready.push(Reverse(*next));
            }
        }
    }
    assert_eq!(done, graph.len(), "the lean loop did not finish");
    begun.elapsed()
}

fn engine_run(graph: &[Vec<u32>]) -> Duration {
    let mut engine = loaded(graph);
    let owner = owner().id;
    let claim = Command::Claim { owner };
    let mut live = Vec::new();
    let mut done = 0;
    let begun = Instant::now();
    loop {
        while let Some(Answer::Granted(grant)) = submit(&mut engine, &claim) {
            live.push(grant);
        }
        let Some(grant) = live.pop() else { break };
        let report = StageReport {
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
        };
        submit(&mut engine, &Command::Report(Box::new(report)));
        done += 1;
        engine.accept();
    }
    let time = begun.elapsed();
    assert_eq!(done, graph.len(), "the engine did not finish");
    time
}

fn submit(engine: &mut Engine, command: &Command) -> Option<Answer> {
    let id = CommandId::parse("bench").expect("a valid id");
    engine.submit(Timestamp(1), &id, command).ok()
}

fn owner() -> Owner {
    let id = OwnerId::parse("bench").expect("a valid id");
    Owner { id, host: "here".to_owned(), boot_id: "boot".to_owned(), pid: 1, start_time: 1 }
}

fn loaded(graph: &[Vec<u32>]) -> Engine {
    let id = |task: u32| TaskId::parse(&format!("task-{task}")).expect("a valid id");
    let mut plan = Plan::default();
    for (task, dependencies) in (0_u32..).zip(graph) {
        let mut spec = TaskSpec::new(id(task));
        spec.depends_on = dependencies.iter().copied().map(id).collect();
        plan.tasks.push(spec);
    }
    let one_stage = Pipeline::new(vec![StageSpec::of(StageKind::Run)]).expect("a valid pipeline");
    plan.pipelines.insert("default".parse().expect("a valid name"), one_stage);
    plan.pools.insert(PoolName::parse("agents").expect("a valid name"), AT_ONCE);
    let mut engine = Engine::new(RunId::parse("bench").expect("a valid id"));
    let (boot_id, wall) = ("boot".to_owned(), WallTime(0));
    let opening = Command::OpenDriver {
        owner: owner(),
        reading: ClockReading { boot_id, boot_ms: 0, wall },
        ttl: Duration::from_secs(60),
        token_floor: FencingToken(0),
        ended: None,
    };
    let create = Command::CreateRun { rules: RetryRules::default() };
    for command in [create, opening, Command::AddPlan { plan: Arc::new(plan) }] {
        submit(&mut engine, &command).expect("the run begins");
    }
    engine.accept();
    engine
}
