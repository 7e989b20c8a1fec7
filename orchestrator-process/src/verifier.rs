//! Judging a candidate by the exit code of a command.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{StageContext, Trial, Verifier, Workspace};
use orchestrator_core::{Interruption, Mask, Outcome, Restart, StageEnd, StageKind, VerifyCommand};
use tokio_util::sync::CancellationToken;

use crate::activity::Reporting;
use crate::confine::Confinement;
use crate::environment::Environment;
use crate::error::SpawnError;
use crate::excerpt::{FEEDBACK_BYTES_MAX, excerpt, feedback, how};
use crate::marks::Marker;
use crate::masking::mask_log;
use crate::program::{Limits, Program};
use crate::run::{End, run};

/// What the command of a gate exits with as long as the gate is not open (`EX_TEMPFAIL`).
const NOT_YET: i32 = 75;

/// Runs a task's verify command in its workspace: exit code 0 is `Passed`, any other is `Rejected`
/// with the command, its exit code and the head and tail of its output. Of a gate's command, exit
/// code 75 says that the gate is not open yet: it is asked again later.
///
/// The output of both kinds goes to `output.log` in the directory of the grant. The command finds
/// its end of input at once.
#[derive(Debug, Clone)]
pub struct CommandVerifier {
    environment: Environment,
    trial_wall: Duration,
    output_bytes_max: u64,
    grace: Duration,
    confinement: Confinement,
    mask: Mask,
}

impl Default for CommandVerifier {
    /// With the environment that tools commonly need.
    fn default() -> Self {
        Self::new(Environment::tools())
    }
}

impl CommandVerifier {
    /// A verifier whose commands find this environment and nothing else.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self {
            environment,
            trial_wall: Duration::from_secs(15 * 60),
            output_bytes_max: 256 << 20,
            grace: Duration::from_secs(5),
            confinement: Confinement::none(),
            mask: Mask::keys(),
        }
    }

    /// With secrets that are overwritten in the log and kept out of the feedback; otherwise what
    /// looks like a key is. [`Environment::mask`] makes one of variables.
    #[must_use]
    pub fn with_mask(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// With commands that are confined like this. In a sandbox they may write to the workspace, to
    /// the directory of the log and to a `TMPDIR` in there, beside what the sandbox names.
    #[must_use]
    pub fn with_confinement(mut self, confinement: Confinement) -> Self {
        self.confinement = confinement;
        self
    }

    /// With this wall limit for a trial on an untouched tree; 15 minutes otherwise.
    #[must_use]
    pub const fn with_trial_wall(mut self, wall: Duration) -> Self {
        self.trial_wall = wall;
        self
    }

    /// With this limit of a command's output; 256 MiB otherwise.
    #[must_use]
    pub const fn with_output_bytes_max(mut self, bytes: u64) -> Self {
        self.output_bytes_max = bytes;
        self
    }

    fn program(
        &self,
        command: &VerifyCommand,
        at: &Workspace,
        log: &Path,
        wall: Duration,
    ) -> io::Result<Program> {
        let program = match command {
            VerifyCommand::Shell(line) => Program::new("sh").args(["-c", line]),
            VerifyCommand::Argv(words) => {
                let program = words.first().map_or("", String::as_str);
                Program::new(program).args(words.iter().skip(1))
            }
        };
        let limits =
            Limits::new(wall).with_output_bytes_max(self.output_bytes_max).with_grace(self.grace);
        let logs = log.parent().unwrap_or_else(|| Path::new("."));
        let (confinement, temporary) = self.confinement.at_work(at, logs)?;
        let mut environment = self.environment.clone();
        for (name, value) in &at.environment {
            environment.set(name, value);
        }
        if let Some(dir) = temporary {
            environment.set("TMPDIR", dir);
        }
        Ok(program
            .cwd(&at.path)
            .environment(environment)
            .stdout_file(log)
            .stderr_file(log)
            .confinement(confinement)
            .limits(limits))
    }
}

#[async_trait]
impl Verifier for CommandVerifier {
    async fn verify(&self, cx: &StageContext) -> StageEnd {
        let Some(command) = &cx.task.verify else {
            let error = format!("task `{}` has no verify command: give it one", cx.task.id);
            return StageEnd::free(Outcome::Fatal { error });
        };
        let log = cx.dir.join("output.log");
        let program = match self.program(command, &cx.workspace, &log, cx.stage.timeout) {
            Ok(program) => program.marker(Marker::of(&cx.run, cx.token)),
            Err(err) => {
                tracing::warn!(task = %cx.task.id, %err, "the files of a stage cannot be written");
                return StageEnd::interrupted(Interruption::Crashed);
            }
        };
        let mut report = Reporting::new(cx, &log);
        let ended = match run(&program, &cx.cancel, &mut report).await {
            Ok(ended) => ended,
            Err(err) => return StageEnd::free(refused(command, &err)),
        };
        mask_log(&log, &self.mask).await;
        match ended.how {
            End::Exited(0) => StageEnd::passed(),
            End::Exited(NOT_YET) if cx.stage.kind == StageKind::Gate => {
                StageEnd::free(Outcome::Suspended { poll_at: None })
            }
            End::Cancelled => StageEnd::interrupted(Interruption::Shutdown),
            // Nobody but the system or a person sends these; they say nothing about the work.
            End::Signalled(libc::SIGKILL | libc::SIGTERM | libc::SIGINT | libc::SIGHUP) => {
                StageEnd::interrupted(Interruption::Killed)
            }
            end @ (End::Exited(_)
            | End::Signalled(_)
            | End::WallLimit
            | End::SilenceLimit
            | End::OutputLimit
            | End::MemoryLimit
            | End::Lingered) => StageEnd::rejected(feedback(
                "The verify command",
                &command.to_string(),
                &how(end, cx.stage.timeout),
                &excerpt(&log, FEEDBACK_BYTES_MAX - 2048, &self.mask.text(&ended.stdout_tail)),
            )),
        }
    }

    async fn try_on(&self, command: &VerifyCommand, workspace: &Workspace) -> Trial {
        let log = trial_log(&workspace.aside);
        let program = match self.program(command, workspace, &log, self.trial_wall) {
            Ok(program) => program,
            Err(err) => return Trial::NotRunnable { why: err.to_string() },
        };
        let ended = match run(&program, &CancellationToken::new(), &mut ()).await {
            Ok(ended) => ended,
            Err(err) => return Trial::NotRunnable { why: err.chain() },
        };
        mask_log(&log, &self.mask).await;
        match ended.how {
            End::Exited(0) => Trial::Passes,
            end @ End::Exited(126 | 127) => Trial::NotRunnable {
                why: feedback(
                    "The command",
                    &command.to_string(),
                    &how(end, self.trial_wall),
                    &self.mask.text(&ended.stdout_tail),
                ),
            },
            End::Exited(_)
            | End::Signalled(_)
            | End::WallLimit
            | End::SilenceLimit
            | End::OutputLimit
            | End::MemoryLimit
            | End::Cancelled
            | End::Lingered => Trial::Fails,
        }
    }
}

/// How a stage ends whose command cannot be started. One that is a file of the tree is the work of
/// the task, which left it out or broke it; any other is a matter of the machine.
fn refused(command: &VerifyCommand, err: &SpawnError) -> Outcome {
    let is_of_tree = match command {
        VerifyCommand::Shell(_) => false,
        VerifyCommand::Argv(words) => {
            words.first().is_some_and(|word| word.contains('/') && !word.starts_with('/'))
        }
    };
    let is_missing = matches!(err, SpawnError::NotFound { .. } | SpawnError::NotExecutable { .. });
    if !(is_of_tree && is_missing) {
        return err.outcome();
    }
    let text = feedback("The verify command", &command.to_string(), "cannot run", &err.chain());
    Outcome::Rejected { feedback: text, restart: Restart::OnCandidate }
}

/// A file of its own for each trial: several may share a place.
fn trial_log(dir: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (pid, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    dir.join(format!("trial-{pid}-{count}.log"))
}
