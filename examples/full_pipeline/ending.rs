//! What is left behind and said at the end.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use orchestrator_cli::{Advice, History, Report, Terminal, escalated_md, harmless, write_whole};
use orchestrator_core::port::Store as _;
use orchestrator_core::{Assumptions, ParkReason, RunEnd};
use orchestrator_sqlite::{SqliteOptions, SqliteStore};

use super::options::{Format, Options};
use super::person::Person;
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
        "in a document that every agent gets (`DECISIONS.md`), committed on the branch `{}` (check \
         another one out after that)",
        harmless(branch, 200)
    );
    let command = |task: &orchestrator_core::TaskId, remedy| {
        Some(options.again(&place.dir, &[&Person::words(task, remedy)]))
    };
    let repository = &pipeline.repository;
    let advice = Advice { repository, branch, answer: &answer, command: &command };
    let page = escalated_md(&history, &advice)?;
    write_whole(&place.join("ESCALATED.md"), page.as_bytes())?;

    let has_color = Terminal::has_color(&io::stdout());
    let mut out = Unheard(io::stdout());
    writeln!(out, "{}", report.summary(has_color))?;
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
                | ParkReason::Asked
                | ParkReason::Pilot => &[],
            };
            if *reason == ParkReason::Pilot
                && let Some(known) =
                    pipeline.orchestrator.projection(Assumptions::default()).await?
            {
                writeln!(out, "By what the pilot took, the rest takes {}.", known.forecast)?;
            }
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
    if matches!(end, RunEnd::Completed | RunEnd::Failed) {
        // No task is left that would get them.
        pipeline.git.clear_spares().await.context("the spare worktrees cannot be removed")?;
    }
    hand_over(options, pipeline).await.context("the work is merged, but not handed over")?;
    Ok(exit)
}

/// What is said at the end, whether or not somebody is there to read it: the run is over all the same.
struct Unheard<W>(W);

impl<W: io::Write> io::Write for Unheard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().or(Ok(()))
    }
}

/// Shows how the run of a directory stands, whoever drives it.
pub(crate) async fn report(dir: &Path, format: Format) -> anyhow::Result<()> {
    let file = dir.join("run.db");
    anyhow::ensure!(file.exists(), "{} holds no run", dir.display());
    let store = SqliteStore::open(file, SqliteOptions::new()).await?;
    let run = store.runs().await?.into_iter().next();
    let history = match &run {
        Some(run) => History::read(&store, run).await?,
        None => None,
    };
    let history = history.with_context(|| format!("{} holds no run", dir.display()))?;
    let report = Report::of(&history)?;
    let mut out = io::stdout();
    match format {
        Format::Text => writeln!(out, "{}", report.summary(Terminal::has_color(&out)))?,
        Format::Json => write!(out, "{}", report.to_json())?,
    }
    Ok(())
}

/// Gives the merged work to whom it is for: the example's own `main` moves; for the repository of
/// somebody else the command is told.
async fn hand_over(options: &Options, pipeline: &Pipeline) -> anyhow::Result<()> {
    let git = &pipeline.git;
    if options.repo.is_some() {
        let (branch, command) = (git.integration_branch(), git.merge_command());
        writeln!(
            Unheard(io::stdout()),
            "The merged work is on `{branch}`. To take it:\n  {command}"
        )?;
        return Ok(());
    }
    git.fast_forward().await?;
    let (target, repository) = (git.target_branch(), pipeline.repository.display());
    writeln!(Unheard(io::stdout()), "`{target}` of {repository} holds the merged work.")?;
    Ok(())
}
