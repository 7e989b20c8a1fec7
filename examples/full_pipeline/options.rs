//! What can be said on the command line.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use orchestrator_core::Usd;

use super::pace::Pace;
use super::person::Person;
use super::sandbox::InSandbox;
use super::watching::Watching;

/// Runs a plan of tasks to merged commits: agents in worktrees, verified, reviewed, merged.
///
/// Without options it makes a repository and a plan of its own, and a stand-in plays the agent, so
/// that no account is needed.
#[derive(Debug, Parser)]
#[command(name = "full_pipeline", after_help = AFTER)]
pub(crate) struct Options {
    /// Where the run is kept; otherwise a fresh directory, which is named.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Go on with the run that is in --dir.
    #[arg(long, requires = "dir")]
    pub(crate) resume: bool,
    /// Show how the run in --dir stands, also while it goes on, and do nothing else.
    #[arg(long, value_name = "FORMAT", value_enum, num_args = 0..=1, default_missing_value = "text",
          requires = "dir")]
    pub(crate) report: Option<Format>,
    #[command(flatten)]
    pub(crate) person: Person,
    #[command(flatten)]
    pub(crate) watching: Watching,
    #[command(flatten)]
    pub(crate) sandbox: InSandbox,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Who works.
    #[arg(long, value_enum, default_value = "stand-in")]
    pub(crate) agent: Agent,
    /// The program of the real agent.
    #[arg(long, value_name = "PATH", default_value = "claude")]
    pub(crate) claude_bin: PathBuf,
    /// The model of the real agent.
    #[arg(long, required_if_eq("agent", "claude"))]
    pub(crate) model: Option<String>,
    /// The agent runs in a container or VM and may do anything there.
    #[arg(long)]
    pub(crate) sandboxed: bool,
    /// A repository of yours. Its checkout is not touched; merges go to a branch.
    #[arg(long, value_name = "PATH", requires = "plan")]
    pub(crate) repo: Option<PathBuf>,
    /// The tasks for --repo, as JSON.
    #[arg(long, value_name = "FILE", requires = "repo")]
    pub(crate) plan: Option<PathBuf>,
    /// Templates of prompts, which take the place of the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: Option<PathBuf>,
    /// Write the built-in templates into this directory, to be edited, and do nothing else.
    #[arg(long, value_name = "DIR")]
    pub(crate) write_templates: Option<PathBuf>,
    /// A document of the repository that every agent gets, in place of CONVENTIONS.md, INTERFACES.md
    /// and DECISIONS.md; give it once for each.
    #[arg(long, value_name = "PATH", conflicts_with = "no_documents")]
    pub(crate) document: Vec<PathBuf>,
    /// Agents get no documents.
    #[arg(long)]
    pub(crate) no_documents: bool,
    /// A path that no task may change, whatever its scope says; give it once for each.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) protect: Vec<String>,
    /// Failures that the target had already do not count: they are found in the output of common test
    /// programs, and looked for once on the commit that the work stands on.
    #[arg(long)]
    pub(crate) baseline: bool,
    /// A task passes only if the tests among these paths that it changes fail without its other
    /// changes; give it once for each.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) prove: Vec<String>,
    /// How many merges are verified at once, each on top of the one before it.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) merge_window: NonZeroU32,
    /// A bare repository on this machine whose branch is merged into as well.
    #[arg(long, value_name = "PATH", requires = "repo")]
    pub(crate) remote: Option<PathBuf>,
    /// A file in which all runs of this machine share what is known of the account's usage windows.
    #[arg(long, value_name = "FILE")]
    pub(crate) account: Option<PathBuf>,
    /// The share of each usage window that is left to the person, from 0 to 1.
    #[arg(long, value_name = "SHARE", requires = "account", value_parser = share)]
    pub(crate) leave: Option<f64>,
    /// How many agents work at once.
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) max_concurrent: NonZeroU32,
    /// How long leases live after this process's last sign of life, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub(crate) lease: NonZeroU32,
    /// The most that the run may spend, in US dollars.
    #[arg(long, value_name = "X", value_parser = usd, allow_negative_numbers = true)]
    pub(crate) budget_usd: Option<Usd>,
}

/// Who works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// A program of this example that speaks the protocol of `claude`, without a model.
    StandIn,
    /// The real `claude`.
    Claude,
}

/// How a report is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A few lines for a person.
    Text,
    /// What report.json holds.
    Json,
}

const AFTER: &str = "\
What a person decides about a task is said with --resume: --retry, --retry-dependents, --more-retries,
--approve, --by-hand, --skip or --cancel, each once for each task. --report shows a run as it stands.

It leaves in the directory: repo/ (its own repository), run.db (the run), report.json, ESCALATED.md, the
logs of each stage in stages/<task>/, and in follow-ups/ what reviewers found that did not block a merge.

Exit codes: 0 all done, 1 finished with tasks that wait for a person, 2 unusable input and nothing was started,
3 the run broke off (it can go on with --resume), 130 stopped by a person (--resume goes on).";

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().map_err(|err| err.to_string())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("not from 0 to 1".to_owned()) }
}

/// An amount in dollars.
pub(crate) fn usd(text: &str) -> Result<Usd, String> {
    let dollars = text.parse::<f64>().map_err(|err| err.to_string())?;
    Usd::from_dollars(dollars).ok_or_else(|| "not an amount of dollars".to_owned())
}

/// A path that means the same wherever one stands.
pub(crate) fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl Options {
    /// The command that started this, to be given wherever one stands, with `--resume` and whatever else is to be added, for people
    /// to copy.
    pub(crate) fn again(&self, dir: &Path, more: &[&str]) -> String {
        let mut words: Vec<String> = vec!["cargo run --example full_pipeline --".to_owned()];
        let mut put = |flag: &str, value: &std::ffi::OsStr| {
            words.push(flag.to_owned());
            words.push(orchestrator_cli::shell_word(&value.to_string_lossy()));
        };
        put("--dir", whole(dir).as_os_str());
        put("--max-concurrent", self.max_concurrent.to_string().as_ref());
        if self.agent == Agent::Claude {
            put("--agent", "claude".as_ref());
            // A bare name is looked for; anything else is a place.
            let is_name = self.claude_bin.components().count() == 1;
            let program = if is_name { self.claude_bin.clone() } else { whole(&self.claude_bin) };
            put("--claude-bin", program.as_os_str());
        }
        if let Some(model) = &self.model {
            put("--model", model.as_ref());
        }
        if let (Some(repo), Some(plan)) = (&self.repo, &self.plan) {
            put("--repo", whole(repo).as_os_str());
            put("--plan", whole(plan).as_os_str());
        }
        if let Some(templates) = &self.templates {
            put("--templates", whole(templates).as_os_str());
        }
        if let Some(account) = &self.account {
            put("--account", whole(account).as_os_str());
        }
        if let Some(share) = self.leave {
            put("--leave", share.to_string().as_ref());
        }
        if self.merge_window.get() > 1 {
            put("--merge-window", self.merge_window.to_string().as_ref());
        }
        if let Some(remote) = &self.remote {
            put("--remote", remote.as_os_str());
        }
        self.prove.iter().for_each(|pattern| put("--prove", pattern.as_ref()));
        self.watching.again(&mut put);
        self.sandbox.again(&mut put);
        self.pace.again(&mut put);
        self.document.iter().for_each(|path| put("--document", path.as_os_str()));
        self.protect.iter().for_each(|pattern| put("--protect", pattern.as_ref()));
        for (given, flag) in [
            (self.no_documents, "--no-documents"),
            (self.sandboxed, "--sandboxed"),
            (self.baseline, "--baseline"),
        ] {
            if given {
                words.push(flag.to_owned());
            }
        }
        words.push("--resume".to_owned());
        words.extend(more.iter().map(|word| orchestrator_cli::shell_word(word)));
        words.join(" ")
    }
}
