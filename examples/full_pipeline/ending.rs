//! What is left behind and said at the end.

use std::io::{self, Write as _};

use anyhow::Context as _;
use orchestrator_cli::{Advice, History, Report, Terminal, escalated_md, harmless, write_whole};
use orchestrator_core::{ParkReason, RunEnd};

use super::options::Options;
use super::place::Place;
use super::{Exit, Pipeline, say};

/// Writes the report and what waits for a person, and says how it ended.
pub(crate) async fn tell(
    options: &Options,
    place: &Place,
    pipeline: &Pipeline,
    end: &RunEnd,
) -> anyhow::Result<Exit> {
    let Some(history) = History::read(pipeline.store.as_ref(), &pipeline.run).await? else {
        say("Stopped before the run began; nothing was started.");
        return Ok(Exit::Stopped);
    };
    let report = Report::of(&history)?;
    write_whole(&place.join("report.json"), report.to_json().as_bytes())?;
    let branch = pipeline.git.integration_branch();
    let answer = format!(
        "in a document that every agent gets (`DECISIONS.md`), committed on the branch `{}`",
        harmless(branch, 200)
    );
    let again =
        |task: &orchestrator_core::TaskId| options.again(&place.dir, &[&format!("--retry={task}")]);
    let advice = Advice { repository: &pipeline.repository, answer: &answer, retry: &again };
    let page = escalated_md(&history, &advice)?;
    write_whole(&place.join("ESCALATED.md"), page.as_bytes())?;

    let mut out = io::stdout();
    writeln!(out, "{}", report.summary(Terminal::has_color(&out)))?;
    let exit = match end {
        RunEnd::Completed => Exit::Done,
        RunEnd::Failed => {
            writeln!(out, "What waits for a person: {}", place.join("ESCALATED.md").display())?;
            Exit::Waits
        }
        RunEnd::Parked(reason) => {
            writeln!(out, "Parked: {}.", reason.as_str())?;
            let more: &[&str] = match reason {
                ParkReason::Budget => &["--budget-usd", "MORE"],
                ParkReason::Auth
                | ParkReason::Billing
                | ParkReason::Breaker
                | ParkReason::Asked => &[],
            };
            writeln!(out, "To go on: {}", options.again(&place.dir, more))?;
            Exit::Waits
        }
        RunEnd::Paused => Exit::Waits,
        RunEnd::Stalled(tasks) => {
            for (task, reasons) in tasks {
                let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                let task = harmless(task.as_str(), 200);
                writeln!(out, "{task} cannot run: {}", harmless(&reasons.join("; "), 600))?;
            }
            Exit::Waits
        }
        RunEnd::Stopped => {
            writeln!(out, "Stopped. To go on: {}", options.again(&place.dir, &[]))?;
            return Ok(Exit::Stopped);
        }
    };
    hand_over(options, pipeline).await.context("the work is merged, but not handed over")?;
    Ok(exit)
}

/// Gives the merged work to whom it is for: the example's own `main` moves; for the repository of
/// somebody else the command is told.
async fn hand_over(options: &Options, pipeline: &Pipeline) -> anyhow::Result<()> {
    let git = &pipeline.git;
    if options.repo.is_some() {
        let (branch, command) = (git.integration_branch(), git.merge_command());
        writeln!(io::stdout(), "The merged work is on `{branch}`. To take it:\n  {command}")?;
        return Ok(());
    }
    git.fast_forward().await?;
    let (target, repository) = (git.target_branch(), pipeline.repository.display());
    writeln!(io::stdout(), "`{target}` of {repository} holds the merged work.")?;
    Ok(())
}
