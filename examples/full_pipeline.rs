//! A complete orchestrator: a plan in, merged commits out.
//!
//! `cargo run --example full_pipeline` makes a repository and a plan of 16 tasks and runs them with
//! several agents at once; a stand-in plays the agent, so that no account is needed. With
//! `--agent claude --model M --repo PATH --plan FILE` it is the real thing. What to copy is
//! [`compose`]: every adapter with its configuration, written out.

#[path = "full_pipeline/agent.rs"]
mod agent;
#[path = "full_pipeline/content.rs"]
mod content;
#[path = "full_pipeline/ending.rs"]
mod ending;
#[path = "full_pipeline/options.rs"]
mod options;
#[path = "full_pipeline/pace.rs"]
mod pace;
#[path = "full_pipeline/person.rs"]
mod person;
#[path = "full_pipeline/place.rs"]
mod place;
#[path = "full_pipeline/preflight.rs"]
mod preflight;
#[path = "full_pipeline/review.rs"]
mod review;
#[path = "full_pipeline/sandbox.rs"]
mod sandbox;
#[path = "full_pipeline/stop.rs"]
mod stop;
#[path = "full_pipeline/warnings.rs"]
mod warnings;
#[path = "full_pipeline/watching.rs"]
mod watching;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use orchestrator_claude::policy::Policy;
use orchestrator_claude::prompt::Documents;
use orchestrator_claude::{Account, ClaudeConfig, ClaudeReviewer, ClaudeRunner, FollowUps};
use orchestrator_core::port::{Store as _, Verifier, Workspaces as _};
use orchestrator_core::{
    AGENTS, DriverConfig, INTEGRATE, Orchestrator, Plan, PoolName, Ports, RetryRules, RunEnd,
    RunError, RunId, Scope, VERIFY,
};
use orchestrator_git::{Failures, GitConfig, GitRun, Judge};
use orchestrator_process::{CommandVerifier, Environment, LocalHost, raise_open_files};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};

use self::options::{Agent, Options};
use self::place::Place;
use self::watching::Watchers;

/// How it ended, as the exit code tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// Every task is done.
    Done = 0,
    /// What is left waits for a person.
    Waits = 1,
    /// The input cannot be used; nothing was started.
    Unusable = 2,
    /// The run broke off; `--resume` goes on.
    BrokeOff = 3,
    /// A person stopped it; `--resume` goes on.
    Stopped = 130,
}

fn main() -> ExitCode {
    // A path among them may be no text.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == agent::ARGUMENT) {
        let rest: Vec<String> = arguments.map(|one| one.to_string_lossy().into_owned()).collect();
        return agent::main(&rest);
    }
    let options = Options::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => return tell(&anyhow::Error::from(err), Exit::Unusable),
    };
    let code = match runtime.block_on(pipeline(&options)) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(err) if err.is::<RunError>() => tell(&err, exit_of(&err)),
        Err(err) => tell(&err, Exit::Unusable),
    };
    // A second Ctrl-C leaves stages behind: they end with this process, and are not waited for.
    runtime.shutdown_background();
    code
}

/// What an error while driving means: another driver or a plan that does not fit is unusable input.
fn exit_of(err: &anyhow::Error) -> Exit {
    match err.downcast_ref::<RunError>() {
        Some(RunError::DriverRunning { .. } | RunError::Refused(_)) => Exit::Unusable,
        _ => Exit::BrokeOff,
    }
}

fn tell(err: &anyhow::Error, exit: Exit) -> ExitCode {
    // The exit code says it to whoever does not read.
    drop(writeln!(io::stderr(), "error: {err:#}"));
    ExitCode::from(exit as u8)
}

/// The whole way: look, compose, drive, report.
async fn pipeline(options: &Options) -> anyhow::Result<Exit> {
    if let Some(directory) = &options.write_templates {
        let written = preflight::write_templates(directory)?;
        say(&format!("{written} templates are written into {}.", directory.display()));
        return Ok(Exit::Done);
    }
    if let (Some(format), Some(dir)) = (options.report, &options.dir) {
        ending::report(dir, format).await?;
        return Ok(Exit::Done);
    }
    options.pace.check(options.account.is_some())?;
    // Nothing is made before the plan is known to be one.
    let given_plan = options.plan.as_deref().map(preflight::plan).transpose()?;
    let (agents, merges) = (options.max_concurrent.get(), options.merge_window.get());
    raise_open_files(agents.saturating_add(cores()?).saturating_add(merges))?;
    let place = Place::take(options.dir.as_deref(), options.repo.is_none())?;
    say(&format!("The run is kept in {}.", place.dir.display()));
    let store = Arc::new(SqliteStore::open(place.join("run.db"), SqliteOptions::new()).await?);
    let known = store.runs().await?.into_iter().next();
    if known.is_some() && !options.resume {
        anyhow::bail!(
            "{} holds a run already: add --resume to go on with it, or name another directory",
            place.dir.display()
        );
    }
    let run = match &known {
        Some(run) => run.clone(),
        None => RunId::parse(&place.run_name()?)?,
    };
    let repository = match &options.repo {
        Some(path) => path.clone(),
        None => place.make_repository()?,
    };
    let plan = match given_plan {
        Some(plan) => plan,
        None => preflight::plan(&place.join("tasks.json"))?,
    };
    // Before anything is said: whoever asks to stop after that is heard.
    let stop = stop::Stop::listen()?;
    let pipeline = compose(options, &place, run, &repository, store).await?;
    let outcome = drive(options, &pipeline, plan, known.is_none(), &stop).await;
    let end = outcome.as_ref().ok();
    pipeline.watchers.close(pipeline.store.as_ref(), &pipeline.run, end, &stop).await?;
    let end = outcome?;
    ending::tell(options, &place, &pipeline, &end).await
}

/// How many verify commands run at once.
fn cores() -> anyhow::Result<u32> {
    Ok(u32::try_from(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))?)
}

/// A run with all that carries it out.
struct Pipeline {
    run: RunId,
    repository: PathBuf,
    store: Arc<SqliteStore>,
    git: GitRun,
    runner: ClaudeRunner,
    reviewer: ClaudeReviewer,
    watchers: Watchers,
    orchestrator: Orchestrator,
}

/// The composition: each port with its adapter.
async fn compose(
    options: &Options,
    place: &Place,
    run: RunId,
    repository: &Path,
    store: Arc<SqliteStore>,
) -> anyhow::Result<Pipeline> {
    // Agents: `claude`, or the program that stands in for it.
    let claude = Arc::new(claude_config(options)?);
    let (mask, account) = (claude.common.mask.clone(), claude.common.account.clone());
    let runner = ClaudeRunner::new(Arc::clone(&claude));
    let reviewer = ClaudeReviewer::new(claude);

    // Git: a worktree for each task, merges into a branch of the run.
    let mut config = GitConfig::new(run.clone(), repository.to_owned(), place.join("worktrees"));
    config.protected = protected(options)?;
    config.window = usize::try_from(options.merge_window.get())?;
    config.remote.clone_from(&options.remote);
    let git = GitRun::open(config).await?;

    let watchers = options.watching.begin(place, store.as_ref(), &run).await?;
    warnings::show_on(&watchers.terminal);
    // Verify commands are as little trusted as the agents that they judge.
    let verifier = CommandVerifier::default()
        .with_confinement(options.sandbox.confinement())
        .with_mask(mask.clone());
    let verifier = judge(options, &git, verifier)?;
    let follow_ups = FollowUps::of(Arc::new(reviewer.clone()), place.join("follow-ups"));
    let ports = Ports {
        store: Arc::<SqliteStore>::clone(&store),
        runner: Arc::new(runner.clone()),
        verifier,
        reviewer: Arc::new(follow_ups.with_mask(mask.clone())),
        integrator: Arc::new(git.clone()),
        workspaces: Arc::new(git.clone()),
        host: Arc::new(LocalHost::new()?.with_grace(Duration::from_secs(2))),
        observer: watchers.observer(),
    };
    let mut config = DriverConfig::new(run.clone(), place.join("stages"));
    config.limits = [
        (PoolName::parse(AGENTS)?, options.max_concurrent.get()),
        (PoolName::parse(VERIFY)?, cores()?),
        (PoolName::parse(INTEGRATE)?, options.merge_window.get()),
    ]
    .into();
    config.capacity = options.pace.sources(
        PoolName::parse(AGENTS)?,
        options.max_concurrent.get(),
        account.as_ref(),
    );
    config.pilot = options.pace.pilot();
    config.budget = options.budget_usd;
    config.resume = options.resume;
    config.mask = mask;
    config.lease_ttl = Duration::from_secs(options.lease.get().into());
    // A person who pressed Ctrl-C waits.
    config.stop_grace = Duration::from_secs(5);
    let orchestrator = Orchestrator::new(ports, config);
    let repository = repository.to_owned();
    Ok(Pipeline { run, repository, store, git, runner, reviewer, watchers, orchestrator })
}

/// Who judges: each task's own command, and what more the options ask for.
fn judge(
    options: &Options,
    git: &GitRun,
    commands: CommandVerifier,
) -> anyhow::Result<Arc<dyn Verifier>> {
    // A merge that fails is verified once more, so that a flaky test sends no task back.
    let mut judge = Judge::new(git.clone(), Arc::new(commands)).with_repeat();
    if options.baseline {
        judge = judge.with_baseline(Failures::common());
    }
    if !options.prove.is_empty() {
        judge = judge.with_proof(Scope::parse(&options.prove).context("--prove")?);
    }
    Ok(Arc::new(judge))
}

/// How agents are started, what they are told, and what they may do.
fn claude_config(options: &Options) -> anyhow::Result<ClaudeConfig> {
    let model = options.model.as_deref().unwrap_or(agent::MODEL);
    let mut config = match options.agent {
        Agent::Claude => ClaudeConfig::new(&options.claude_bin, model),
        Agent::StandIn => {
            say(
                "The agent is a stand-in that speaks the protocol of `claude`: no model is asked, and the costs are made up.",
            );
            let mut config = ClaudeConfig::new(std::env::current_exe()?, model);
            config.leading_args = vec![agent::ARGUMENT.into()];
            config.environment = Environment::tools();
            config.common.prices = agent::PRICES;
            config
        }
    };
    config.common.templates = Arc::new(preflight::templates(options.templates.as_deref())?);
    if options.no_documents {
        config.common.documents = Documents::none();
    } else if !options.document.is_empty() {
        config.common.documents = Documents::new(options.document.iter().cloned());
    }
    config.common.account = options
        .account
        .as_ref()
        .map(|path| Account::at(path).leaving(options.leave.unwrap_or_default()));
    if options.sandboxed {
        config.policy = Policy::sandboxed();
    }
    config.common.confinement = options.sandbox.confinement();
    config.common.kill_grace = Duration::from_secs(3);
    Ok(config)
}

/// Paths that no task may change: of the example's own repository, the tests that judge and what
/// people decide.
fn protected(options: &Options) -> anyhow::Result<Option<Scope>> {
    let own = ["awk", "bin", "tests", "CONVENTIONS.md", "INTERFACES.md", "DECISIONS.md"];
    let patterns: Vec<String> = match &options.repo {
        Some(_) => options.protect.clone(),
        None => own.map(str::to_owned).to_vec(),
    };
    if patterns.is_empty() {
        return Ok(None);
    }
    Scope::parse(&patterns).map(Some).context("--protect")
}

/// Checks what must be checked, then drives the run to its end or to a person's Ctrl-C.
async fn drive(
    options: &Options,
    pipeline: &Pipeline,
    plan: Plan,
    is_new: bool,
    stop: &stop::Stop,
) -> anyhow::Result<RunEnd> {
    let Pipeline { orchestrator, runner, reviewer, run, git, .. } = pipeline;
    if is_new {
        let checking = preflight::check(orchestrator, (runner, reviewer), run, &plan);
        let checked = tokio::select! {
            checked = checking => checked.map(Some),
            () = stop.asked() => Ok(None),
        };
        // The place in which things were tried goes away, whatever comes next.
        git.retain(run, &[]).await.map_err(|err| anyhow::anyhow!(err.chain()))?;
        let Some(warnings) = checked? else { return Ok(RunEnd::Stopped) };
        warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
        let most = plan.bounds(&RetryRules::default());
        let (starts, spend) = (most.dispatches, most.spend.min(plan.budget.unwrap_or(most.spend)));
        say(&format!("whatever goes wrong: at most {starts} starts of stages and {spend}"));
    }
    options.person.decide(pipeline).await?;
    tokio::select! {
        end = orchestrator.drive(Some(Arc::new(plan)), stop.token()) => Ok(end?),
        // Whoever asks twice does not want to wait; what runs ends with this process.
        () = stop.asked_twice() => Ok(RunEnd::Stopped),
    }
}

/// Says something to the person who started this.
fn say(text: &str) {
    // Nobody may be there to read it.
    drop(writeln!(io::stderr(), "{text}"));
}
