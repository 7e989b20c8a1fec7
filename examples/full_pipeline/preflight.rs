//! What is looked at before anything is spent or changed.

use std::path::Path;

use anyhow::{Context as _, bail};
use orchestrator_claude::prompt::Templates;
use orchestrator_claude::{ClaudeReviewer, ClaudeRunner};
use orchestrator_cli::harmless;
use orchestrator_core::port::Trial;
use orchestrator_core::{Orchestrator, Plan, RunId};

/// Reads the plan; what is wrong with it is told with file, line and column.
pub(crate) fn plan(path: &Path) -> anyhow::Result<Plan> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    match Plan::parse_bytes(&text) {
        Ok(plan) => Ok(plan),
        Err(errors) => {
            let lines: Vec<String> = errors
                .to_string()
                .lines()
                .map(|line| format!("  {}", harmless(line, 600)))
                .collect();
            bail!("{} cannot be used:\n{}", path.display(), lines.join("\n"))
        }
    }
}

/// The built-in templates, with those of a directory in their place.
pub(crate) fn templates(directory: Option<&Path>) -> anyhow::Result<Templates> {
    let Some(directory) = directory else { return Ok(Templates::built_in()) };
    Templates::with_directory(directory).map_err(|errors| all("templates cannot be used", &errors))
}

/// Writes the built-in templates for people to edit; a file that is there stays as it is. Says how
/// many were written.
pub(crate) fn write_templates(directory: &Path) -> anyhow::Result<usize> {
    let written = Templates::write_out(directory);
    Ok(written.map_err(|err| all("templates cannot be written", &[err]))?.len())
}

/// Tries everything that a stage will need on the target as it is: documents, prompts, the agent's
/// program, and each verify command. Gives what may be wrong, and refuses what is.
pub(crate) async fn check(
    orchestrator: &Orchestrator,
    (runner, reviewer): (&ClaudeRunner, &ClaudeReviewer),
    run: &RunId,
    plan: &Plan,
) -> anyhow::Result<Vec<String>> {
    let mut warnings: Vec<String> = plan.warnings().iter().map(ToString::to_string).collect();
    let untouched = orchestrator.ports().workspaces.untouched(run).await;
    let root = untouched.map_err(|err| anyhow::anyhow!(err.chain()))?.path;
    let mut faults: Vec<String> = Vec::new();
    match runner.check(&plan.tasks, &root).await {
        Ok(checked) => {
            let found = checked.warnings.iter();
            warnings.extend(found.map(|warning| harmless(&warning.to_string(), 400)));
        }
        Err(found) => faults.extend(found.iter().map(ToString::to_string)),
    }
    if let Err(found) = reviewer.check(&plan.tasks, &root).await {
        let found = found.iter().map(ToString::to_string);
        faults.extend(found.filter(|fault| !faults.contains(fault)).collect::<Vec<_>>());
    }
    let tried = orchestrator.try_verify_commands(plan).await;
    for one in tried.map_err(|err| anyhow::anyhow!(err.chain()))? {
        let command = harmless(&one.command.to_string(), 200);
        let tasks = one.tasks.iter().map(|id| harmless(id.as_str(), 60)).collect::<Vec<_>>();
        let of = format!("verify command `{command}` of {}", tasks.join(", "));
        match one.trial {
            Trial::Fails => {}
            Trial::Passes => warnings.push(format!("{of} passes already, before the work is done")),
            Trial::NotRunnable { why } => {
                faults.push(format!("{of} cannot run: {}", harmless(&why, 600)));
            }
        }
    }
    if faults.is_empty() { Ok(warnings) } else { Err(all("the run cannot begin", &faults)) }
}

fn all(what: &str, faults: &[impl ToString]) -> anyhow::Error {
    let lines: Vec<String> =
        faults.iter().map(|fault| format!("  {}", harmless(&fault.to_string(), 900))).collect();
    anyhow::anyhow!("{what}:\n{}", lines.join("\n"))
}
