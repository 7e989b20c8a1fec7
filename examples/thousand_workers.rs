//! What it costs to drive a thousand programs at once.
//!
//! `cargo run --release -p examples --example thousand_workers` runs 1,000 programs that print a
//! line each second, with driver and SQLite, then as many that sleep, then a thousand short ones
//! through 64 places, and prints what that took of this process, `name: value` a line. Figures that
//! begin with `empty_loop_` are of a bare loop of the same shape, measured before. With
//! `--workers N` and `--seconds N` it does less, or more.

#[path = "thousand_workers/child.rs"]
mod child;
#[path = "thousand_workers/empty_loop.rs"]
mod empty_loop;
#[path = "thousand_workers/figures.rs"]
mod figures;
#[path = "thousand_workers/ports.rs"]
mod ports;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser as _;
use orchestrator_core::{
    AGENTS, DriverConfig, Orchestrator, Pipeline, PipelineName, Plan, PoolName, RunEnd, RunId,
    StageKind, StageSpec, TaskId, TaskSpec, Usd,
};
use orchestrator_process::{Confiner as _, LocalConfiner, raise_open_files};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::child::Kind;
use self::figures::{Load, Own, open_files, percent, quantile, quotient, say, threads};
use self::ports::Watched;

/// How many, and for how long.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Programs at once.
    #[arg(long, default_value_t = 1_000)]
    workers: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// Places for the short programs, and how many of those there are.
const PLACES: u32 = 64;
const SHORT: u32 = 1_000;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == child::ARGUMENT
    {
        return Ok(child::main(rest));
    }
    let options = Options::parse();
    let allowed = raise_open_files(options.workers)?;
    say("open_files_allowed", allowed);
    for line in LocalConfiner::detected().abilities().to_string().lines() {
        let (what, how) = line.split_once(": ").unwrap_or((line, ""));
        say(&what.replace(' ', "_"), how);
    }
    let dir = tempfile::tempdir()?;
    empty_loop::measure(dir.path(), options.workers, Duration::from_secs(options.seconds))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(dir.path(), &options))?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(dir: &Path, options: &Options) -> anyhow::Result<()> {
    let window = Duration::from_secs(options.seconds);
    // Everything that is made once is made by one program, so that the others show what they cost.
    let one = Fleet::start(dir, "one", Kind::Sleeping, 1, 1).await?;
    one.all_started(1).await;
    let (before, files, at_one) = (Own::now()?, open_files()?, threads()?);
    one.stop().await?;

    let fleet = Fleet::start(dir, "chatty", Kind::Chatty, options.workers, options.workers).await?;
    let took = fleet.all_started(options.workers).await;
    say("starting_seconds", format_args!("{:.2}", took.as_secs_f64()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let bytes = fleet.watched.bytes();
    let load = Load::of(window).await;
    let workers = u64::from(options.workers);
    say("chatty_bytes_a_second", (fleet.watched.bytes() - bytes) / window.as_secs().max(1));
    say("chatty_cpu_percent_of_a_core", percent(load));
    let rss = Own::now()?.rss_bytes.saturating_sub(before.rss_bytes);
    say("memory_bytes_per_child", rss / workers);
    let more = open_files()?.saturating_sub(files);
    say("open_files_per_child", quotient(more + 3, workers));
    say("threads_with_one_child", at_one);
    say("threads_with_all_children", threads()?);
    say("ending_seconds", format_args!("{:.2}", fleet.stop().await?.as_secs_f64()));

    let fleet = Fleet::start(dir, "idle", Kind::Sleeping, options.workers, options.workers).await?;
    fleet.all_started(options.workers).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    say("idle_cpu_percent_of_a_core", percent(Load::of(window).await));
    say("ending_idle_seconds", format_args!("{:.2}", fleet.stop().await?.as_secs_f64()));

    let fleet = Fleet::start(dir, "short", Kind::Short, SHORT, PLACES).await?;
    let begun = Instant::now();
    let watched = Arc::clone(&fleet.watched);
    anyhow::ensure!(fleet.driving.await?? == RunEnd::Completed, "the short programs did not pass");
    let latencies = watched.dispatch_latencies(PLACES);
    say(
        "short_programs_a_second",
        format_args!("{:.0}", f64::from(SHORT) / begun.elapsed().as_secs_f64()),
    );
    let grants = watched.grant_latencies(PLACES);
    say("dispatch_latency_until_granted_p50_ms", quantile(&grants, 50));
    say("dispatch_latency_until_granted_p99_ms", quantile(&grants, 99));
    say("dispatch_latency_p50_ms", quantile(&latencies, 50));
    say("dispatch_latency_p99_ms", quantile(&latencies, 99));
    Ok(())
}

/// Programs that are being driven.
struct Fleet {
    watched: Arc<Watched>,
    stop: CancellationToken,
    begun: Instant,
    driving: JoinHandle<Result<RunEnd, orchestrator_core::RunError>>,
}

impl Fleet {
    /// Starts to drive this many programs, so many at once.
    async fn start(
        dir: &Path,
        name: &str,
        kind: Kind,
        programs: u32,
        at_once: u32,
    ) -> anyhow::Result<Self> {
        let watched = Arc::new(Watched::default());
        let store = SqliteStore::open(dir.join("run.db"), SqliteOptions::new()).await?;
        let work = dir.join(name);
        std::fs::create_dir(&work)?;
        let ports = ports::compose(&watched, Arc::new(store), &work, kind)?;
        let mut config = DriverConfig::new(RunId::parse(name)?, work.join("stages"));
        config.limits = [(PoolName::parse(AGENTS)?, at_once)].into();
        let orchestrator = Orchestrator::new(ports, config);
        let plan = Arc::new(plan(programs)?);
        let stop = CancellationToken::new();
        let (begun, token) = (Instant::now(), stop.clone());
        let driving = tokio::spawn(async move { orchestrator.drive(Some(plan), token).await });
        Ok(Self { watched, stop, begun, driving })
    }

    /// Returns when this many programs were started; says how long that took.
    async fn all_started(&self, programs: u32) -> Duration {
        while self.watched.started() < programs {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.begun.elapsed()
    }

    /// Ends all programs; says how long that took.
    async fn stop(self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.stop.cancel();
        let end = self.driving.await??;
        let took = begun.elapsed();
        anyhow::ensure!(end == RunEnd::Stopped, "the run ended by itself: {end:?}");
        let left = figures::children()?;
        anyhow::ensure!(left == 0, "{left} programs are left");
        Ok(took)
    }
}

/// Tasks of one stage each.
fn plan(programs: u32) -> anyhow::Result<Plan> {
    let run = StageSpec { cap: Usd::ZERO, ..StageSpec::of(StageKind::Run) };
    let pipeline = PipelineName::parse("default")?;
    let tasks = (0..programs).map(|number| {
        let id = TaskId::parse(&format!("task-{number}")).context("an id")?;
        Ok(TaskSpec::new(id))
    });
    Ok(Plan {
        tasks: tasks.collect::<anyhow::Result<_>>()?,
        pipelines: [(pipeline, Pipeline::new(vec![run])?)].into(),
        ..Plan::default()
    })
}
