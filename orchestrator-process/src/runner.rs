//! Carrying out a run stage by any program.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use orchestrator_core::port::{Runner, StageContext};
use orchestrator_core::{Interruption, Mask, Outcome, StageEnd};
use serde_json::json;

use crate::activity::Reporting;
use crate::confine::Confinement;
use crate::environment::Environment;
use crate::excerpt::{FEEDBACK_BYTES_MAX, excerpt, feedback, how};
use crate::marks::Marker;
use crate::masking::mask_log;
use crate::program::{Limits, Program};
use crate::question::{QUESTION_FILE, take_question};
use crate::run::{End, Ended, run};

/// Works on a task by starting a program in its workspace.
///
/// The program reads on its standard input one JSON object: `run`, `task` (its whole
/// specification), `stage`, `attempt`, `model`, `workspace`, `session` and `feedback` (a list, oldest
/// first). The same is in the file that `ORCHESTRATOR_TASK_FILE` names. Beside what it was given, its
/// environment holds `ORCHESTRATOR_RUN`, `ORCHESTRATOR_TASK`, `ORCHESTRATOR_STAGE`,
/// `ORCHESTRATOR_ATTEMPT`, `ORCHESTRATOR_WORKSPACE`, `ORCHESTRATOR_LEASE`; `ORCHESTRATOR_MODEL`
/// where there is one; and, where an earlier attempt failed, `ORCHESTRATOR_LAST_ERROR_FILE`.
///
/// | it ends | the stage |
/// | --- | --- |
/// | with a `BLOCKED.md` in the workspace, by itself or at a limit | `Question` |
/// | with 0 | `Passed` |
/// | with 75 (a temporary failure) | `Interrupted`, crashed |
/// | with 126 or 127 (a shell found no program) | `Fatal` |
/// | with 137 or 143, or by a signal | `Interrupted`, killed |
/// | with another code, at its wall or memory limit, or for too much output | `Rejected` |
/// | for its silence | `Interrupted`, no sign of life |
/// | because the stage was cancelled | `Interrupted`, shutdown |
///
/// Its outputs go to `stdout.log` and `stderr.log` in the directory of the grant.
#[derive(Debug, Clone)]
pub struct CommandRunner {
    program: Program,
    limits: Limits,
    mask: Mask,
}

impl CommandRunner {
    /// A runner that starts this program with these arguments, in the environment that tools
    /// commonly need.
    #[must_use]
    pub fn new<A: AsRef<str>>(program: &str, args: impl IntoIterator<Item = A>) -> Self {
        let program = Program::new(program)
            .args(args.into_iter().map(|arg| arg.as_ref().to_owned()))
            .environment(Environment::tools());
        Self { program, limits: Limits::default(), mask: Mask::keys() }
    }

    /// In this environment instead.
    #[must_use]
    pub fn with_environment(mut self, environment: Environment) -> Self {
        self.program = self.program.environment(environment);
        self
    }

    /// Interrupted when it gives no output for this long.
    #[must_use]
    pub const fn with_silence(mut self, silence: Duration) -> Self {
        self.limits = self.limits.with_silence(silence);
        self
    }

    /// With this long between being asked to end and being killed.
    #[must_use]
    pub const fn with_grace(mut self, grace: Duration) -> Self {
        self.limits = self.limits.with_grace(grace);
        self
    }

    /// Confined like this. In a sandbox it may write to its workspace, to the directory of the grant
    /// and to a `TMPDIR` in there, beside what the sandbox names.
    #[must_use]
    pub fn with_confinement(mut self, confinement: Confinement) -> Self {
        self.program = self.program.confinement(confinement);
        self
    }

    /// With secrets that are overwritten in its logs when it has ended; otherwise what looks like a
    /// key is. [`Environment::mask`] makes one of variables.
    #[must_use]
    pub fn with_mask(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// With this limit of its output.
    #[must_use]
    pub const fn with_output_bytes_max(mut self, bytes: u64) -> Self {
        self.limits = self.limits.with_output_bytes_max(bytes);
        self
    }

    fn program(&self, cx: &StageContext) -> io::Result<Program> {
        std::fs::create_dir_all(&cx.dir)?;
        let order = json!({
            "run": cx.run,
            "task": *cx.task,
            "stage": cx.stage.name,
            "attempt": cx.attempt,
            "model": cx.stage.model,
            "workspace": cx.workspace.path.to_string_lossy(),
            "session": cx.session,
            "feedback": cx.feedback,
        });
        let order = serde_json::to_vec_pretty(&order)?;
        let task_file = cx.dir.join("task.json");
        std::fs::write(&task_file, &order)?;
        let mut limits = self.limits;
        limits.wall = cx.stage.timeout;
        let (confinement, temporary) = self.program.confinement.at_work(&cx.workspace, &cx.dir)?;
        let mut program = self
            .program
            .clone()
            .cwd(&cx.workspace.path)
            .stdin_bytes(order)
            .stdout_file(cx.dir.join("stdout.log"))
            .stderr_file(cx.dir.join("stderr.log"))
            .env("ORCHESTRATOR_RUN", cx.run.as_str())
            .env("ORCHESTRATOR_TASK", cx.task.id.as_str())
            .env("ORCHESTRATOR_STAGE", cx.stage.name.as_str())
            .env("ORCHESTRATOR_ATTEMPT", cx.attempt.to_string())
            .env("ORCHESTRATOR_WORKSPACE", &cx.workspace.path)
            .env("ORCHESTRATOR_TASK_FILE", task_file)
            .marker(Marker::of(&cx.run, cx.token))
            .confinement(confinement)
            .limits(limits);
        for (name, value) in &cx.workspace.environment {
            program = program.env(name, value);
        }
        if let Some(dir) = temporary {
            program = program.env("TMPDIR", dir);
        }
        if let Some(model) = &cx.stage.model {
            program = program.env("ORCHESTRATOR_MODEL", model);
        }
        if let Some(error) = cx.last_error() {
            let file = cx.dir.join("last_error.txt");
            std::fs::write(&file, error)?;
            program = program.env("ORCHESTRATOR_LAST_ERROR_FILE", file);
        }
        Ok(program)
    }
}

#[async_trait]
impl Runner for CommandRunner {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        let program = match self.program(cx) {
            Ok(program) => program,
            Err(err) => {
                tracing::warn!(task = %cx.task.id, %err, "the files of a stage cannot be written");
                return StageEnd::interrupted(Interruption::Crashed);
            }
        };
        let mut report = Reporting::new(cx, &cx.dir.join("stdout.log"));
        match run(&program, &cx.cancel, &mut report).await {
            Ok(ended) => {
                for log in ["stdout.log", "stderr.log"] {
                    mask_log(&cx.dir.join(log), &self.mask).await;
                }
                let end = self.end(cx, &ended);
                mask_log(&cx.dir.join(QUESTION_FILE), &self.mask).await;
                end
            }
            Err(err) => StageEnd::free(err.outcome()),
        }
    }
}

impl CommandRunner {
    fn end(&self, cx: &StageContext, ended: &Ended) -> StageEnd {
        match ended.how {
            End::Cancelled => return StageEnd::interrupted(Interruption::Shutdown),
            End::Signalled(_) => return StageEnd::interrupted(Interruption::Killed),
            End::Exited(_)
            | End::WallLimit
            | End::SilenceLimit
            | End::OutputLimit
            | End::MemoryLimit
            | End::Lingered => {}
        }
        if let Some(text) = take_question(&cx.workspace.path, &cx.dir) {
            return StageEnd::free(Outcome::Question { text });
        }
        match ended.how {
            End::Exited(0) => StageEnd::passed(),
            End::Exited(75) | End::Lingered => StageEnd::interrupted(Interruption::Crashed),
            End::Exited(126 | 127) => {
                StageEnd::free(Outcome::Fatal { error: self.what_went_wrong(cx, ended) })
            }
            End::Exited(137 | 143) | End::Signalled(_) => {
                StageEnd::interrupted(Interruption::Killed)
            }
            End::SilenceLimit => StageEnd::interrupted(Interruption::Silence),
            End::Cancelled => StageEnd::interrupted(Interruption::Shutdown),
            End::Exited(_) | End::WallLimit | End::OutputLimit | End::MemoryLimit => {
                StageEnd::rejected(self.what_went_wrong(cx, ended))
            }
        }
    }

    fn what_went_wrong(&self, cx: &StageContext, ended: &Ended) -> String {
        let half = (FEEDBACK_BYTES_MAX - 2048) / 2;
        let part =
            |name: &str, last: &str| excerpt(&cx.dir.join(name), half, &self.mask.text(last));
        let (stdout, stderr) = (&ended.stdout_tail, &ended.stderr_tail);
        let output = format!("{}\n{}", part("stdout.log", stdout), part("stderr.log", stderr));
        let command = self.program.to_string();
        feedback("The program", &command, &how(ended.how, cx.stage.timeout), &output)
    }
}
