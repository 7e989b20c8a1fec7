//! The seam between what any agent program needs and what one of them is.
//!
//! [`AgentRunner`](crate::AgentRunner) and [`AgentReviewer`](crate::AgentReviewer) do what is the
//! same for all of them: prompts, documents, questions, files, limits, processes, what is noticed
//! about a run, the account, money. An [`Agent`] is the rest: how its program is started
//! ([`Agent::prepare`]), what a line of its output says ([`Reader::line`]), and what an ending
//! means ([`Reader::finish`]). [`Claude`](crate::Claude) is one; another is a file of its own.
//!
//! What a program cannot do by itself is done for it, as [`Capabilities`] says of each.

mod config;
mod event;
mod money;

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orchestrator_core::{Cost, SessionId, Usd};
use orchestrator_process::Environment;
use serde_json::Value;

pub use self::config::AgentConfig;
pub use self::event::{Denial, Event, RateLimit, Retry, ToolUse, Usage, Window};
pub(crate) use self::money::Ledger;
pub use self::money::{Prices, Tokens};
use crate::SetupFault;
use crate::outcome::{Class, Exit, Stop};

/// An agent program: how it is started, and how its output is read.
pub trait Agent: fmt::Debug + Send + Sync {
    /// What the program can do by itself.
    fn capabilities(&self) -> Capabilities;

    /// Versions of the program whose output is known; another one is warned about.
    fn known_versions(&self) -> &[&str];

    /// What is wrong with how it was configured, as far as it shows without starting it.
    fn faults(&self) -> Vec<SetupFault>;

    /// How the program is asked for its version: the first word of its answer that begins with a
    /// digit.
    fn version(&self) -> Prepared;

    /// How long the program may write nothing and still be at work, where the configuration names
    /// nothing.
    fn silence(&self) -> Duration;

    /// How the program is started for this; writes nothing.
    fn prepare(&self, ask: &Ask<'_>) -> Prepared;

    /// A reader for the output of one run of the program.
    fn reader(&self) -> Box<dyn Reader>;
}

/// Reads what one run of an agent program writes on its standard output.
pub trait Reader: fmt::Debug + Send + Sync {
    /// Takes one line, without its line feed, and says what is in it. Whatever cannot be read is
    /// [`Event::Torn`]; nothing makes it panic.
    fn line(&mut self, line: &[u8]) -> Vec<Event>;

    /// What the run came to. May be called more than once, with more known of the end.
    fn finish(&self, ended: &Ended<'_>) -> Finish;

    /// What else a person may want to read in the record of the run, as a JSON object.
    fn record(&self) -> Value;
}

/// What an agent program can do by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct Capabilities {
    /// Give an answer in the form of a JSON schema. Without it a verdict is read from its text.
    pub structured_answer: bool,
    /// Stop at a limit of money. Without it the program is ended once what it tells of its use has
    /// come to its cap.
    pub budget: bool,
    /// Stop at a limit of turns. Without it the program is ended when it begins one turn more
    /// ([`Event::Turn`]).
    pub turns_max: bool,
    /// Take up an earlier conversation. Without it each stage begins a new one.
    pub resume: bool,
    /// Take the name of a new conversation from its caller. Without it the program names it, in
    /// [`Event::Session`].
    pub names_conversation: bool,
    /// Say at its end what a run cost in money. Without it that is counted from what it tells of its
    /// use, by [`AgentConfig::prices`].
    pub cost: bool,
    /// Say when a usage window reopens. Without it the account is taken to be closed for half an
    /// hour.
    pub limit_reset: bool,
}

/// What is asked of the program.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Where it works.
    pub workspace: &'a Path,
    /// Where it keeps its configuration and conversations; exists.
    pub home: &'a Path,
    /// Where it has to keep its temporary files, when a sandbox keeps it from other places; exists.
    pub temporary: Option<&'a Path>,
    /// The file with the prompt.
    pub prompt: &'a Path,
    /// Names files of this run, for what [`Agent::prepare`] wants to be written.
    pub files: &'a Files,
    /// What is added to its own instructions.
    pub rules: Option<&'a str>,
    /// The conversation.
    pub conversation: Conversation<'a>,
    /// How the answer is to be given.
    pub answer: Answer,
    /// The model that the stage names.
    pub model: Option<&'a str>,
    /// The most it may spend, for a program that can stop at a limit of money.
    pub budget: Usd,
    /// The most turns, for a program that can stop at a limit of turns.
    pub turns_max: NonZeroU32,
    /// How long it may run; it is ended then from outside.
    pub wall: Duration,
    /// The command that will judge the work, for a program that needs leave to run it.
    pub verify: Option<&'a str>,
}

/// Which conversation is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation<'a> {
    /// A new one, which the program names.
    New,
    /// A new one of this name, for a program that takes names.
    Named(&'a str),
    /// This one goes on, for a program that can take it up.
    Resume(&'a SessionId),
}

/// How an answer is to be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// As text; all tools that the policy allows.
    Text,
    /// As a verdict in the form of this JSON schema; only tools that read.
    Verdict {
        /// The schema, for a program that takes one; the prompt describes the same.
        schema: &'static str,
    },
}

/// How the program is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub environment: Environment,
    /// The file that is its standard input, such as [`Ask::prompt`]; nothing where there is none.
    pub stdin: Option<PathBuf>,
    /// Files that are written before it starts, in its home or in the stage's directory. Those in the
    /// latter are the orchestrator's: one that is another after the run gives the run away.
    pub files: Vec<(PathBuf, String)>,
}

/// How a run of the program ended, as far as it shows from outside.
#[derive(Debug, Clone)]
pub struct Ended<'a> {
    /// How the process ended.
    pub exit: &'a Exit,
    /// Why this side ended it, if it did before there was a final line.
    pub stopped: Option<Stop>,
    /// Whether this side ended it after its final line.
    pub was_ended_late: bool,
    /// The end of what it wrote on standard error.
    pub stderr: &'a str,
    /// Whether an answer in a given form was asked for.
    pub wants_structure: bool,
    /// The question that the agent left.
    pub question: Option<&'a str>,
    /// Whether the workspace differs from what it was; `None` when nobody knows.
    pub has_changes: Option<bool>,
}

/// What a run of the program came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// The class of its end.
    pub class: Class,
    /// What the program says went wrong.
    pub message: String,
    /// The final text.
    pub text: String,
    /// The answer in the form that was asked for.
    pub structured: Option<Value>,
    /// What it cost, where the program says so at its end; else it is counted from what it told of
    /// its use while it ran.
    pub cost: Option<Cost>,
}

/// The files of one run of a program in the stage's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    dir: PathBuf,
    suffix: String,
}

impl Files {
    /// Takes names that no earlier run has taken, and makes the file for the prompt.
    pub(crate) fn choose(dir: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        for number in 1_u32.. {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let files = Self { dir: dir.to_owned(), suffix };
            match std::fs::File::create_new(files.path("prompt", "md")) {
                Ok(_) => return Ok(files),
                Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(err) => return Err(err),
            }
        }
        Err(std::io::Error::other("every name is taken"))
    }

    /// The path of a file of this run: `settings` and `json` make `settings.json` of the first
    /// run in a stage, and `settings-2.json` of the second.
    #[must_use]
    pub fn path(&self, stem: &str, ending: &str) -> PathBuf {
        self.dir.join(format!("{stem}{}.{ending}", self.suffix))
    }
}
