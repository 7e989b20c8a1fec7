//! One run of an agent program, from its files and arguments to what it said.

mod listener;
mod record;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use orchestrator_core::port::{ActivityKind, StageContext};
use orchestrator_core::{Cost, Mask, Outcome, SessionId, Usd};
use orchestrator_process::{
    Confinement, End, Limits, Marker, Program, SandboxMode, SpawnError, mask_log, run,
};
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use self::listener::{Heard, Kept, Listener};
use crate::agent::{
    Agent, AgentConfig, Answer, Ask, Capabilities, Conversation, Ended, Files, Finish, Prepared,
    Prices, RateLimit, Reader,
};
use crate::outcome::{Class, Exit, Stop, Told};
use crate::placed;
use crate::signals::Signal;
use crate::unready::Unready;
use crate::wall::{closed_until, reopened};

/// Longest line of output that is read, in bytes; a longer one counts as torn.
const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What is asked of the program.
pub(crate) struct Call<'a> {
    pub(crate) agent: &'a dyn Agent,
    pub(crate) config: &'a AgentConfig,
    pub(crate) cx: &'a StageContext,
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
    exit: Exit,
    stopped: Option<Stop>,
    was_ended_late: bool,
    wants_structure: bool,
    capabilities: Capabilities,
    prices: Prices,
    reader: Box<dyn Reader>,
    pub(crate) heard: Heard,
    stderr: String,
    /// Processes that could not be ended.
    left: Vec<u32>,
    /// Files of the orchestrator that are not as they were written.
    pub(crate) changed: Vec<PathBuf>,
    wall: Duration,
    /// Whether starting it may work the next time as things are.
    pub(crate) may_start_later: bool,
    files: Files,
    program: String,
    argv: Vec<String>,
    /// What must not be shown.
    pub(crate) mask: Mask,
}

impl Call<'_> {
    /// Runs the program to its end; afterwards nothing of it is left, or it says what is.
    ///
    /// # Errors
    /// When its files cannot be written, or the account was closed while it waited for its turn;
    /// nothing was started then.
    pub(crate) async fn make(&self) -> Result<Called, Unready> {
        let files = Files::choose(&self.cx.dir)?;
        let prompt = files.path("prompt", "md");
        fs::write(&prompt, as_text(self.prompt).as_bytes())?;
        fs::create_dir_all(self.home)?;
        let asked = Instant::now();
        let turn = self.config.starts.turn(&self.cx.cancel).await;
        Unready::unless_open(self.config)?;
        let wall = self.wall.saturating_sub(asked.elapsed());
        let temporary = self.temporary()?;
        let prepared = self.prepared(&files, &prompt, temporary.as_deref(), wall);
        self.place(&prepared)?;
        let stdout = files.path("stdout", "jsonl");
        let can = self.agent.capabilities();
        let mut called = Called {
            exit: Exit::NotStarted { why: Stop::Cancelled.as_str().to_owned() },
            stopped: Some(Stop::Cancelled),
            was_ended_late: false,
            wants_structure: can.structured_answer && self.answer != Answer::Text,
            capabilities: can,
            prices: self.config.prices,
            reader: self.agent.reader(),
            heard: Heard::default(),
            stderr: String::new(),
            left: Vec::new(),
            changed: Vec::new(),
            wall: Duration::ZERO,
            may_start_later: false,
            program: prepared.program.display().to_string(),
            argv: prepared.args.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            files,
            mask: self.config.mask.clone(),
        };
        if turn.is_none() {
            return Ok(called);
        }
        let mut environment = prepared.environment;
        for (name, value) in &self.cx.workspace.environment {
            environment.set(name, value);
        }
        if let Some(temporary) = &temporary {
            environment.set("TMPDIR", temporary);
        }
        let mut program = Program::new(&prepared.program)
            .args(&prepared.args)
            .cwd(&self.cx.workspace.path)
            .environment(environment)
            .confinement(self.confinement(temporary))
            .stdout_file(&stdout)
            .stderr_file(called.files.path("stderr", "txt"))
            .marker(Marker::of(&self.cx.run, self.cx.token))
            .limits(self.limits(wall));
        if let Some(stdin) = &prepared.stdin {
            program = program.stdin_file(stdin);
        }
        let mut listener = Listener::new(self, &mut called, turn, &stdout, self.kept(can));
        let ended = run(&program, &self.cx.cancel, &mut listener).await;
        let stop = listener.stop();
        called.finished(ended, stop);
        called.changed = self.changed(&prepared.files);
        for log in [&stdout, &called.files.path("stderr", "txt")] {
            mask_log(log, &self.config.mask).await;
        }
        self.note_limit(&called);
        Ok(called)
    }

    /// How the agent wants it to be started.
    fn prepared(
        &self,
        files: &Files,
        prompt: &Path,
        temporary: Option<&Path>,
        wall: Duration,
    ) -> Prepared {
        let can = self.agent.capabilities();
        let name = Uuid::new_v4().to_string();
        let new =
            if can.names_conversation { Conversation::Named(&name) } else { Conversation::New };
        let verify = self.cx.task.verify.as_ref().map(ToString::to_string);
        self.agent.prepare(&Ask {
            workspace: &self.cx.workspace.path,
            home: self.home,
            temporary,
            prompt,
            files,
            rules: self.rules,
            conversation: self.resume.map_or(new, Conversation::Resume),
            answer: self.answer,
            model: self.cx.stage.model.as_deref(),
            budget: self.config.budget_of(self.cap),
            turns_max: self.config.turns_max,
            wall,
            verify: verify.as_deref(),
        })
    }

    /// Writes the files that it is started with, and says which of them somebody had changed.
    fn place(&self, prepared: &Prepared) -> io::Result<()> {
        for (path, text) in &prepared.files {
            if placed::put(path, text)? {
                let what = format!("{} was changed, and is as it should be again", path.display());
                warn!(task = %self.cx.task.id, "{what}");
                self.cx.activity.say(ActivityKind::Said(what));
            }
        }
        Ok(())
    }

    /// The files of the orchestrator that are not as they were written.
    fn changed(&self, files: &[(PathBuf, String)]) -> Vec<PathBuf> {
        let own = files.iter().filter(|(path, _)| path.starts_with(&self.cx.dir));
        own.filter(|(path, text)| !placed::is_there(path, text))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// The directory for temporary files, which a sandbox needs.
    fn temporary(&self) -> io::Result<Option<PathBuf>> {
        if self.config.confinement.sandbox.mode == SandboxMode::Off {
            return Ok(None);
        }
        let temporary = std::path::absolute(&self.cx.dir)?.join("tmp");
        fs::create_dir_all(&temporary)?;
        Ok(Some(temporary))
    }

    /// Where the program may write, in a sandbox: not to what the orchestrator keeps.
    fn confinement(&self, temporary: Option<PathBuf>) -> Confinement {
        let mut confinement = self.config.confinement.clone();
        if let Some(temporary) = temporary {
            let (workspace, home) = (self.cx.workspace.path.clone(), self.home.to_owned());
            let own = [workspace, home, temporary].into_iter();
            confinement.sandbox.write.extend(own.chain(self.cx.workspace.scratch.clone()));
        }
        confinement
    }

    /// The limits that are kept for the program, since it does not keep them by itself.
    fn kept(&self, can: Capabilities) -> Kept {
        Kept {
            budget: (!can.budget).then(|| self.config.budget_of(self.cap)),
            turns_max: (!can.turns_max).then_some(self.config.turns_max),
        }
    }

    fn limits(&self, wall: Duration) -> Limits {
        Limits::new(wall)
            .with_silence(self.config.silence.unwrap_or_else(|| self.agent.silence()))
            .with_line_bytes_max(LINE_BYTES_MAX)
            .with_grace(self.config.kill_grace)
    }

    /// Tells the other runs of this host of a limit of which the program only ends; what it says of
    /// the account was noted when it was heard.
    fn note_limit(&self, called: &Called) {
        let Some(account) = &self.config.account else { return };
        if !called.is_closed_without_a_time() {
            return;
        }
        let resets_at = Some(closed_until());
        let limit = RateLimit { is_rejected: true, resets_at, ..RateLimit::default() };
        account.hear(&limit);
    }
}

/// The prompt as no program takes it for a command of its own, which is what a slash at its very
/// beginning would make of it.
fn as_text(prompt: &str) -> Cow<'_, str> {
    if prompt.starts_with('/') { format!("\n{prompt}").into() } else { prompt.into() }
}

impl Called {
    fn finished(
        &mut self,
        ended: Result<orchestrator_process::Ended, SpawnError>,
        stop: Option<Stop>,
    ) {
        self.stopped = None;
        match ended {
            Err(err) => {
                self.exit = Exit::NotStarted { why: err.chain() };
                self.may_start_later = err.is_transient();
            }
            Ok(ended) => {
                self.exit = Exit::Unknown;
                self.ended(ended.how, stop);
                (self.stderr, self.left, self.wall) = (ended.stderr_tail, ended.left, ended.wall);
            }
        }
    }

    fn ended(&mut self, how: End, stop: Option<Stop>) {
        let stop = match (how, stop) {
            (End::Exited(code), _) => {
                self.exit = Exit::Code(code);
                return;
            }
            (End::Signalled(signal), _) => {
                self.exit = Exit::Signal(signal);
                return;
            }
            (End::MemoryLimit, _) => {
                const SIGKILL: i32 = 9;
                self.exit = Exit::Signal(SIGKILL);
                return;
            }
            (End::WallLimit, _) => Stop::WallLimit,
            (End::SilenceLimit, _) => Stop::Silence,
            (End::OutputLimit, _) => Stop::Output,
            (End::Cancelled, _) => Stop::Cancelled,
            (End::Lingered, Some(stop)) => stop,
            (End::Lingered, None) => {
                self.was_ended_late = true;
                return;
            }
        };
        // What was finished stays finished, whatever ended the process after that.
        if self.heard.has_ended {
            self.was_ended_late = true;
        } else {
            self.stopped = Some(stop);
        }
    }

    /// What it came to, with what is known besides.
    pub(crate) fn finish(&self, question: Option<&str>, has_changes: Option<bool>) -> Finish {
        let finish = self.reader.finish(&Ended {
            exit: &self.exit,
            stopped: self.stopped,
            was_ended_late: self.was_ended_late,
            stderr: &self.stderr,
            wants_structure: self.wants_structure,
            question,
            has_changes,
        });
        let structured = finish.structured.filter(|_| self.capabilities.structured_answer);
        Finish { structured, ..finish }
    }

    /// What it cost.
    pub(crate) fn cost(&self, finish: &Finish) -> Cost {
        let was_started = !matches!(self.exit, Exit::NotStarted { .. });
        let is_whole = match finish.class {
            Class::Refused(_) if !self.heard.has_begun => return Cost::NONE,
            Class::Refused(_) | Class::Stopped(_) | Class::Killed | Class::Malformed => false,
            Class::UsageLimit { .. }
            | Class::RateLimited
            | Class::Overloaded
            | Class::Auth
            | Class::Billing
            | Class::UnknownModel
            | Class::Network
            | Class::Limit(_)
            | Class::Unservable(_)
            | Class::Failed
            | Class::Blocked
            | Class::Unstructured
            | Class::Suspicious(_)
            | Class::Success => true,
        };
        let said = finish.cost.filter(|_| self.capabilities.cost);
        let told = || self.heard.ledger.cost(&self.prices, is_whole);
        if was_started { said.unwrap_or_else(told) } else { Cost::NONE }
    }

    /// Whether the account is closed, and this program never says for how long.
    fn is_closed_without_a_time(&self) -> bool {
        let is_limit = |class| matches!(class, Class::UsageLimit { resets_at: None, .. });
        !self.capabilities.limit_reset && is_limit(self.finish(None, None).class)
    }

    /// What the task is told of it.
    pub(crate) fn outcome(
        &self,
        cx: &StageContext,
        finish: &Finish,
        question: Option<&str>,
    ) -> Outcome {
        let message = finish.message.clone();
        let told = Told { exit: &self.exit, stderr: &self.stderr, message, question };
        let mut outcome = finish.class.outcome(&told);
        if let Outcome::Interrupted { retry_at: retry_at @ None, .. } = &mut outcome
            && self.is_closed_without_a_time()
        {
            *retry_at = Some(closed_until());
        }
        if let Outcome::Interrupted { retry_at: Some(at), .. } = &mut outcome {
            *at = reopened(cx, *at);
        }
        outcome
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
    pub(crate) fn note(&self, finish: &Finish, signals: &[Signal]) {
        for denial in &self.heard.denials {
            info!(tool = denial.tool, input = denial.input, "a use of a tool was not allowed");
        }
        let class = &finish.class;
        info!(?class, row = class.row(), wall = ?self.wall, "a run of the program ended");
        let path = self.files.path("run", "json");
        let record = record::of(self, finish, signals);
        if let Err(err) = placed::put(&path, self.mask.text(&record).as_bytes()) {
            warn!(path = %path.display(), error = %err, "the record was not written");
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
