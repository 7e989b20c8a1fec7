//! Where the time of a run went.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;
use std::time::Duration;

use orchestrator_cli::{History, Report};
use orchestrator_core::port::{StageContext, Store};
use orchestrator_core::testing::{MemoryTarget, Recorder, Scripted, VirtualHost};
use orchestrator_core::{
    AGENTS, Cost, DriverConfig, Interruption, MemoryStore, Orchestrator, Pipeline, PipelineName,
    Plan, PoolName, Ports, RunEnd, RunId, StageEnd, StageKind, StageSpec, TaskId, TaskSpec, Usd,
};
use tokio_util::sync::CancellationToken;

fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

/// Tasks of one stage.
fn plan() -> Arc<Plan> {
    let tasks = [("a", None), ("b", Some("a")), ("c", None)].map(|(name, before)| {
        let mut spec = TaskSpec::new(id(name));
        spec.depends_on = before.into_iter().map(id).collect();
        spec
    });
    let pipeline = Pipeline::new(vec![StageSpec::of(StageKind::Run)]).unwrap();
    let pipelines = [(PipelineName::parse("default").unwrap(), pipeline)].into();
    Arc::new(Plan { tasks: tasks.to_vec(), pipelines, ..Plan::default() })
}

/// Each stage takes its time by the clock of the host; nothing else does.
async fn report(agents: u32, host: &VirtualHost, script: Scripted) -> Report {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (script, target) = (Arc::new(script), MemoryTarget::default());
    let ports = Ports {
        store: Arc::clone(&store),
        runner: Arc::<Scripted>::clone(&script),
        verifier: Arc::<Scripted>::clone(&script),
        reviewer: script,
        integrator: Arc::new(target.clone()),
        workspaces: Arc::new(target),
        host: Arc::new(host.clone()),
        observer: Arc::new(Recorder::default()),
    };
    let run = RunId::parse("timed").unwrap();
    let mut config = DriverConfig::new(run.clone(), "stages".into());
    config.limits = [(PoolName::parse(AGENTS).unwrap(), agents)].into();
    config.rules.backoff = Duration::from_secs(4);
    let orchestrator = Orchestrator::new(ports, config);
    let end = orchestrator.drive(Some(plan()), CancellationToken::new()).await.unwrap();
    assert_eq!(end, RunEnd::Completed);
    Report::of(&History::read(store.as_ref(), &run).await.unwrap().unwrap()).unwrap()
}

fn seconds(cx: &StageContext) -> u64 {
    match cx.task.id.as_str() {
        "a" => 10,
        "b" => 20,
        _ => 5,
    }
}

#[tokio::test]
async fn the_report_says_how_busy_the_agents_were_and_what_was_waited_for() {
    let host = VirtualHost::new();
    let clock = host.clone();
    let script = Scripted::new(move |cx| {
        clock.advance(seconds(cx) * 1_000);
        StageEnd { cost: Cost::Known(Usd(1)), ..StageEnd::passed() }
    });
    let report = report(1, &host, script).await;
    assert_eq!(report.utilisation, Some(1.0));
    assert_eq!((report.driven_seconds, report.lower_bound_seconds), (35.0, 35.0));
    assert_eq!(report.makespan_over_lower_bound, Some(1.0));
    assert_eq!((report.slowest_chain_seconds, report.cost_estimated_usd), (30.0, 0.0));
    assert_eq!(report.slowest_chain, ["a", "b"]);
    let waits = report.waiting_seconds;
    // Whichever goes first, `b` waits for `a`, and `c` for the one place.
    assert!(waits.dependencies >= 10.0 && waits.capacity >= 5.0, "{waits:?}");
    assert_eq!((waits.backoff, waits.held, waits.not_driven), (0.0, 0.0, 0.0));
    assert!(report.summary(false).contains("agents 100 % busy, 1.00 × the lower bound"));
}

#[tokio::test(start_paused = true)]
async fn waits_after_an_interruption_and_costs_that_are_not_known_are_told_apart() {
    let host = VirtualHost::new();
    let clock = host.clone();
    let begun = std::sync::atomic::AtomicBool::new(false);
    let script = Scripted::new(move |cx| {
        clock.advance(seconds(cx) * 1_000);
        if cx.task.id.as_str() == "a" && !begun.swap(true, std::sync::atomic::Ordering::Relaxed) {
            let cost = Cost::AtLeast(Usd(1));
            return StageEnd { cost, ..StageEnd::interrupted(Interruption::Crashed) };
        }
        // What others wait for passes meanwhile.
        clock.advance(10_000);
        StageEnd::passed()
    });
    let report = report(1, &host, script).await;
    assert!(report.waiting_seconds.backoff >= 2.0, "{:?}", report.waiting_seconds);
    assert_eq!((report.cost_estimated_usd, report.cost_usd), (5.0, 5.0));
}
