//! One run of the program, from its files and arguments to what it said.

mod arguments;
mod record;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use orchestrator_core::port::{ActivityKind, ActivitySink, StageContext};
use orchestrator_core::{Cost, Outcome, SessionId, Usd};
use orchestrator_process::{End, Flow, Limits, Line, Marker, Program, Watch, run};
use tracing::{info, warn};
use uuid::Uuid;

pub(crate) use self::arguments::Answer;
use crate::config::ClaudeConfig;
use crate::outcome::{Class, Ending, Exit, Stop, classify};
use crate::policy::{GUARD, Policy};
use crate::stream::{Heard, Transcript};

/// Versions of the program whose output is known.
pub const KNOWN_VERSIONS: &[&str] = &["2.1.197", "2.1.332"];

/// Longest line of output that is read, in bytes; a longer one counts as torn.
const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What is asked of the program.
pub(crate) struct Call<'a> {
    pub(crate) config: &'a ClaudeConfig,
    pub(crate) cx: &'a StageContext,
    pub(crate) policy: &'a Policy,
    pub(crate) prompt: &'a str,
    /// What is added to the program's own instructions.
    pub(crate) rules: Option<&'a str>,
    /// The conversation to take up.
    pub(crate) resume: Option<&'a SessionId>,
    /// How the answer is to be given.
    pub(crate) answer: Answer,
    /// Where the program keeps its configuration and conversations.
    pub(crate) home: &'a Path,
    pub(crate) cap: Usd,
    pub(crate) wall: Duration,
}

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) exit: Exit,
    pub(crate) stopped: Option<Stop>,
    pub(crate) was_ended_late: bool,
    pub(crate) transcript: Transcript,
    pub(crate) stderr: String,
    /// Processes that could not be ended.
    pub(crate) left: Vec<u32>,
    pub(crate) wall: Duration,
    /// Whether starting it may work the next time as things are.
    pub(crate) may_start_later: bool,
    files: Files,
    argv: Vec<String>,
}

impl Call<'_> {
    /// Runs the program to its end; afterwards nothing of it is left, or it says what is.
    ///
    /// # Errors
    /// When its files cannot be written; nothing was started then.
    pub(crate) async fn make(&self) -> io::Result<Called> {
        let files = Files::choose(&self.cx.dir)?;
        fs::write(&files.prompt, self.prompt)?;
        let settings = self.policy.settings(self.verify().as_deref(), &files.guard);
        fs::write(&files.settings, settings.to_string())?;
        if self.policy.guard {
            fs::write(&files.guard, GUARD)?;
        }
        if let Some(rules) = self.rules {
            fs::write(&files.rules, rules)?;
        }
        fs::create_dir_all(self.home)?;
        let arguments = self.arguments(&files);
        let argv: Vec<String> =
            arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let program = Program::new(self.config.program_path())
            .args(&self.config.leading_args)
            .args(&arguments)
            .cwd(&self.cx.workspace.path)
            .environment(self.environment())
            .stdin_file(&files.prompt)
            .stdout_file(&files.stdout)
            .stderr_file(&files.stderr)
            .marker(Marker::of(&self.cx.run, self.cx.token))
            .limits(self.limits());
        let mut listener = Listener {
            transcript: Transcript::new(),
            activity: &self.cx.activity,
            log: &files.stdout,
            grace: self.config.final_grace,
        };
        let ended = run(&program, &self.cx.cancel, &mut listener).await;
        let transcript = listener.transcript;
        let mut called = Called {
            exit: Exit::Unknown,
            stopped: None,
            was_ended_late: false,
            transcript,
            stderr: String::new(),
            left: Vec::new(),
            wall: Duration::ZERO,
            may_start_later: false,
            files,
            argv,
        };
        match ended {
            Err(err) => {
                called.exit = Exit::NotStarted { why: err.chain() };
                called.may_start_later = err.is_transient();
            }
            Ok(ended) => {
                called.ended(ended.how);
                (called.stderr, called.left, called.wall) =
                    (ended.stderr_tail, ended.left, ended.wall);
            }
        }
        Ok(called)
    }

    fn verify(&self) -> Option<String> {
        self.cx.task.verify.as_ref().map(ToString::to_string)
    }

    fn limits(&self) -> Limits {
        Limits::new(self.wall)
            .with_silence(self.config.silence_limit())
            .with_line_bytes_max(LINE_BYTES_MAX)
            .with_grace(self.config.kill_grace)
    }
}

impl Called {
    fn ended(&mut self, how: End) {
        let stop = match how {
            End::Exited(code) => {
                self.exit = Exit::Code(code);
                return;
            }
            End::Signalled(signal) => {
                self.exit = Exit::Signal(signal);
                return;
            }
            End::MemoryLimit => {
                const SIGKILL: i32 = 9;
                self.exit = Exit::Signal(SIGKILL);
                return;
            }
            End::WallLimit => Stop::WallLimit,
            End::SilenceLimit => Stop::Silence,
            End::OutputLimit => Stop::Output,
            End::Cancelled => Stop::Cancelled,
            End::Lingered => {
                self.was_ended_late = true;
                return;
            }
        };
        // What was finished stays finished, whatever ended the process after that.
        if self.transcript.last().is_some() {
            self.was_ended_late = true;
        } else {
            self.stopped = Some(stop);
        }
    }

    /// What the end is judged by.
    pub(crate) fn ending<'a>(&'a self, question: Option<&'a str>, answer: Answer) -> Ending<'a> {
        Ending {
            exit: self.exit.clone(),
            stopped: self.stopped,
            was_ended_late: self.was_ended_late,
            transcript: &self.transcript,
            stderr: &self.stderr,
            wants_structure: answer != Answer::Text,
            question,
            has_changes: None,
        }
    }

    /// The class of an end without a question.
    pub(crate) fn class(&self, answer: Answer) -> Class {
        classify(&self.ending(None, answer))
    }

    /// What it cost; nothing when it never started.
    pub(crate) fn cost(&self, config: &ClaudeConfig) -> Cost {
        match (&self.exit, self.class(Answer::Text)) {
            (Exit::NotStarted { .. }, _) | (_, Class::Refused(_)) => Cost::NONE,
            _ => self.transcript.cost(&config.prices),
        }
    }

    /// The final text, or nothing.
    pub(crate) fn text(&self) -> &str {
        self.transcript.last().and_then(|last| last.result.as_deref()).unwrap_or_default()
    }

    /// Processes that are left come before everything else: a person ends them.
    pub(crate) fn leftovers(&self) -> Option<Outcome> {
        if self.left.is_empty() {
            return None;
        }
        let pids: Vec<String> = self.left.iter().map(u32::to_string).collect();
        let error = format!("processes of the agent could not be ended: {}", pids.join(", "));
        Some(Outcome::Fatal { error })
    }

    /// Notes in the stage's directory how it went.
    pub(crate) fn note(&self, config: &ClaudeConfig, class: &Class) {
        if let Some(version) = self.transcript.version().filter(|it| !KNOWN_VERSIONS.contains(it)) {
            warn!(version, "this version of the program is not known; its output may be misread");
        }
        for denial in self.transcript.denials() {
            info!(tool = denial.tool, input = denial.input, "a use of a tool was not allowed");
        }
        info!(?class, row = class.row(), wall = ?self.wall, "a run of the program ended");
        let record = record::of(self, config, class);
        if let Err(err) = fs::write(&self.files.record, record) {
            warn!(path = %self.files.record.display(), error = %err, "the record was not written");
        }
    }
}

/// Both together: known only if both are.
pub(crate) const fn sum(one: Cost, two: Cost) -> Cost {
    match (one, two) {
        (Cost::Known(one), Cost::Known(two)) => Cost::Known(one.plus(two)),
        (Cost::Known(one) | Cost::AtLeast(one), Cost::Known(two) | Cost::AtLeast(two)) => {
            Cost::AtLeast(one.plus(two))
        }
    }
}

/// The files of one run of the program in the stage's directory.
#[derive(Debug)]
pub(crate) struct Files {
    prompt: PathBuf,
    rules: PathBuf,
    settings: PathBuf,
    guard: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
    record: PathBuf,
}

impl Files {
    /// Names that no earlier run has taken.
    fn choose(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        for number in 1_u32.. {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let named = |stem: &str, ending: &str| dir.join(format!("{stem}{suffix}.{ending}"));
            let prompt = named("prompt", "md");
            match fs::File::create_new(&prompt) {
                Ok(_) => {}
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(err) => return Err(err),
            }
            return Ok(Self {
                prompt,
                rules: named("rules", "md"),
                settings: named("settings", "json"),
                guard: named("guard", "sh"),
                stdout: named("stdout", "jsonl"),
                stderr: named("stderr", "txt"),
                record: named("run", "json"),
            });
        }
        Err(io::Error::other("every name is taken"))
    }
}

/// Reads what the program says while it runs.
struct Listener<'a> {
    transcript: Transcript,
    activity: &'a ActivitySink,
    log: &'a Path,
    grace: Duration,
}

impl Watch for Listener<'_> {
    fn started(&mut self, pid: u32) {
        self.activity.say(ActivityKind::Started { pid, log: self.log.to_owned() });
    }

    fn output(&mut self, bytes: u64) {
        self.activity.say(ActivityKind::Output { bytes });
    }

    fn line(&mut self, line: Line<'_>) -> Flow {
        match self.transcript.push_line(line.bytes) {
            Heard::Ended => return Flow::EndAfter(self.grace),
            Heard::Began => {
                let session = self.transcript.session().cloned();
                session.into_iter().for_each(|id| self.activity.say(ActivityKind::Session(id)));
            }
            Heard::Said(text) => self.activity.say(ActivityKind::Said(text)),
            Heard::Retried(retry) => {
                let said = format!("request tried again ({}): {}", retry.attempt, retry.error);
                self.activity.say(ActivityKind::Said(said));
            }
            Heard::Torn | Heard::Other | Heard::Limit => {}
        }
        Flow::Continue
    }
}

/// An id for a conversation that is begun.
fn new_conversation() -> String {
    Uuid::new_v4().to_string()
}
