//! What a person decides about tasks.

use anyhow::Context as _;
use clap::Args;
use orchestrator_cli::Remedy;
use orchestrator_core::port::Store as _;
use orchestrator_core::{Command, Engine, Resolution, TaskId};

use super::Pipeline;

/// Retries that the `--more-retries` gives which a person is told of.
const MORE: u32 = 3;

/// Of the command line, what a person decides.
#[derive(Debug, Args)]
pub(crate) struct Person {
    /// Try an escalated or cancelled task again.
    #[arg(long, value_name = "TASK", requires = "resume")]
    retry: Vec<String>,
    /// The same, with those that depend on it and were given up.
    #[arg(long, value_name = "TASK", requires = "resume")]
    retry_dependents: Vec<String>,
    /// The same, with so many retries more than the plan gives it.
    #[arg(long, value_name = "TASK=N", requires = "resume")]
    more_retries: Vec<String>,
    /// Say in the place of the stage that judges a task that its change is good.
    #[arg(long, value_name = "TASK", requires = "resume")]
    approve: Vec<String>,
    /// A task was done by hand: what depends on it goes on.
    #[arg(long, value_name = "TASK", requires = "resume")]
    by_hand: Vec<String>,
    /// What depends on a task goes on without it.
    #[arg(long, value_name = "TASK", requires = "resume")]
    skip: Vec<String>,
    /// Give a task up.
    #[arg(long, value_name = "TASK", requires = "resume")]
    cancel: Vec<String>,
}

impl Person {
    /// The words of the command line that do this with a task.
    pub(crate) fn words(task: &TaskId, remedy: Remedy) -> String {
        match remedy {
            Remedy::Retry => format!("--retry={task}"),
            Remedy::RetryDependents => format!("--retry-dependents={task}"),
            Remedy::MoreRetries => format!("--more-retries={task}={MORE}"),
            Remedy::Approve => format!("--approve={task}"),
            Remedy::ByHand => format!("--by-hand={task}"),
            Remedy::Skip => format!("--skip={task}"),
            Remedy::Cancel => format!("--cancel={task}"),
        }
    }

    /// Has all of it committed.
    pub(crate) async fn decide(&self, pipeline: &Pipeline) -> anyhow::Result<()> {
        for words in &self.more_retries {
            more_retries(pipeline, words).await?;
        }
        let retries = self.retry.iter().map(|task| (task, false));
        let retries = retries.chain(self.retry_dependents.iter().map(|task| (task, true)));
        for (task, dependents) in retries {
            ask(pipeline, task, |task, actor, reason| Command::Retry {
                task,
                dependents,
                actor,
                reason,
            })
            .await?;
        }
        let resolved = self.by_hand.iter().map(|task| (task, Resolution::ByHand));
        let resolved = resolved.chain(self.approve.iter().map(|task| (task, Resolution::Approve)));
        let resolved = resolved.chain(self.skip.iter().map(|task| (task, Resolution::Skip)));
        for (task, how) in resolved {
            ask(pipeline, task, |task, actor, reason| Command::Resolve {
                task,
                how,
                actor,
                reason,
            })
            .await?;
        }
        for task in &self.cancel {
            ask(pipeline, task, |task, actor, reason| Command::Cancel { task, actor, reason })
                .await?;
        }
        Ok(())
    }
}

async fn ask(
    pipeline: &Pipeline,
    task: &str,
    command: impl FnOnce(TaskId, String, String) -> Command,
) -> anyhow::Result<()> {
    let (actor, reason) = ("the command line".to_owned(), "a person asked for it".to_owned());
    pipeline.orchestrator.ask(&command(TaskId::parse(task)?, actor, reason)).await?;
    Ok(())
}

/// Changes what the task may be retried, and has it tried again.
async fn more_retries(pipeline: &Pipeline, words: &str) -> anyhow::Result<()> {
    let (task, more) = words.rsplit_once('=').context("--more-retries takes TASK=N")?;
    let more: u32 = more.parse().context("--more-retries takes TASK=N")?;
    let id = TaskId::parse(task)?;
    let snapshot = pipeline.store.load(&pipeline.run).await?.context("there is no run yet")?;
    let engine = Engine::restore(&snapshot)?;
    let mut spec = engine.spec(&id).with_context(|| format!("there is no task `{id}`"))?.clone();
    spec.max_retries = spec.max_retries.saturating_add(more);
    let spec = std::sync::Arc::new(spec);
    ask(pipeline, task, |_, actor, reason| Command::Edit { spec, actor, reason }).await?;
    ask(pipeline, task, |task, actor, reason| Command::Retry {
        task,
        dependents: false,
        actor,
        reason,
    })
    .await
}
