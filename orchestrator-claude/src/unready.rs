//! Why a stage could not begin.

use std::io;

use orchestrator_core::port::StageContext;
use orchestrator_core::{Interruption, Outcome, Usd, WallTime};

use crate::agent::AgentConfig;
use crate::chain::chain;
use crate::prompt::TemplateError;
use crate::wall::{reopened, wall_now};

/// Why a stage could not begin; nothing was spent.
#[derive(Debug)]
pub(crate) enum Unready {
    /// A person has to mend something.
    Fatal(String),
    /// It may work the next time.
    Transient(io::Error),
    /// The account is closed until then, as somebody found out before.
    Closed(WallTime),
}

impl Unready {
    /// Refuses a stage that may spend nothing.
    pub(crate) fn unless_funded(cx: &StageContext) -> Result<(), Self> {
        if cx.stage.cap == Usd::ZERO {
            let error = format!("stage `{}` may spend nothing: give it a cap", cx.stage.name);
            return Err(Self::Fatal(error));
        }
        Ok(())
    }

    /// Refuses a stage whose account is known to be closed, so that no start is spent on it.
    pub(crate) fn unless_open(config: &AgentConfig) -> Result<(), Self> {
        let account = config.account.as_ref();
        match account.and_then(|account| account.closed_until(wall_now())) {
            Some(until) => Err(Self::Closed(until)),
            None => Ok(()),
        }
    }

    /// How the stage ends.
    pub(crate) fn outcome(self, cx: &StageContext) -> Outcome {
        match self {
            Self::Fatal(error) => Outcome::Fatal { error },
            Self::Closed(until) => Outcome::Interrupted {
                reason: Interruption::UsageLimit,
                retry_at: Some(reopened(cx, until)),
            },
            Self::Transient(err) => {
                tracing::warn!(task = %cx.task.id, dir = %cx.dir.display(), error = %err,
                    "the stage's files could not be written");
                Outcome::Interrupted { reason: Interruption::Crashed, retry_at: None }
            }
        }
    }
}

impl From<io::Error> for Unready {
    fn from(err: io::Error) -> Self {
        Self::Transient(err)
    }
}

impl From<TemplateError> for Unready {
    fn from(err: TemplateError) -> Self {
        Self::Fatal(chain(&err))
    }
}
