//! What runner and reviewer begin with, and what of it is looked at before anything is spent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::StageContext;
use orchestrator_process::{Limits, Program, SpawnError, capture};
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, AgentConfig, Prepared};
use crate::chain::chain;
use crate::memory::Memory;
use crate::prompt::{Document, DocumentError, PromptFault, Templates};
use crate::unready::Unready;

/// How long the program has to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of what it says is kept, in bytes.
const VERSION_BYTES_MAX: usize = 4 * 1024;

/// An agent, and what holds for it.
#[derive(Debug, Clone)]
pub(crate) struct Outfit {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) config: Arc<AgentConfig>,
}

/// What a stage begins with.
pub(crate) struct Begun {
    pub(crate) documents: Vec<Document>,
    pub(crate) memory: Option<Memory>,
}

/// Something that is missing or wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupFault {
    /// A document.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The prompt of tasks.
    #[error(transparent)]
    Prompt(#[from] PromptFault),
    /// The program cannot be started.
    #[error(transparent)]
    Program(#[from] SpawnError),
    /// The program does not say its version.
    #[error("`{program} --version` says no version: {said}")]
    Version {
        /// The program.
        program: String,
        /// What it says instead.
        said: String,
    },
    /// No model is named.
    #[error("no model is named, and the program's own choice depends on how one signed in")]
    Model,
}

/// Something that works, and not as well as it could.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupWarning {
    /// The output of this version of the program was not measured.
    #[error(
        "version {version} of the agent's program is not among those that were measured: what it \
         says may be misread"
    )]
    UnknownVersion {
        /// The version.
        version: String,
    },
    /// There are no prices for a program that names no money.
    #[error(
        "no prices are set (`AgentConfig::prices`), and the agent's program names no money: each run \
         is booked at all that was reserved for it, and none is ended for what it spends"
    )]
    NothingPriced,
    /// There are no prices for a program that names its cost at its end.
    #[error(
        "no prices are set (`AgentConfig::prices`): a run that is ended before it says what it cost \
         is booked at what was reserved for it, even where it has spent more"
    )]
    KilledUnpriced,
}

/// What was found in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The version of the program.
    pub version: String,
    /// What a person may want to change.
    pub warnings: Vec<SetupWarning>,
}

impl Outfit {
    /// Begins a stage, unless something speaks against it.
    pub(crate) fn begin(&self, cx: &StageContext) -> Result<Begun, Unready> {
        Unready::unless_funded(cx)?;
        Unready::unless_open(&self.config)?;
        let documents = self.config.documents.read(&cx.workspace.path).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(|err| chain(err)).collect();
            Unready::Fatal(errors.join("; "))
        })?;
        Ok(Begun { documents, memory: Memory::of(cx) })
    }

    /// Finds whatever is missing: documents below a root, prompts as `prompts` says of them, and the
    /// program.
    pub(crate) async fn check(
        &self,
        root: &Path,
        prompts: impl FnOnce(&Templates, &[Document]) -> Vec<PromptFault>,
    ) -> Result<Checked, Vec<SetupFault>> {
        let mut faults = Vec::new();
        let documents = self.config.documents.read(root).unwrap_or_else(|errors| {
            faults.extend(errors.into_iter().map(SetupFault::Document));
            Vec::new()
        });
        let prompts = prompts(&self.config.templates, &documents);
        faults.extend(prompts.into_iter().map(SetupFault::Prompt));
        faults.extend(self.agent.faults());
        match version(&self.agent.version()).await {
            Ok(version) if faults.is_empty() => Ok(self.checked(version)),
            Ok(_) => Err(faults),
            Err(fault) => {
                faults.push(fault);
                Err(faults)
            }
        }
    }

    fn checked(&self, version: String) -> Checked {
        let mut warnings = Vec::new();
        if !self.agent.known_versions().contains(&version.as_str()) {
            warnings.push(SetupWarning::UnknownVersion { version: version.clone() });
        }
        if self.config.prices.are_unset() {
            let says_cost = self.agent.capabilities().cost;
            warnings.push(if says_cost {
                SetupWarning::KilledUnpriced
            } else {
                SetupWarning::NothingPriced
            });
        }
        Checked { version, warnings }
    }
}

async fn version(asked: &Prepared) -> Result<String, SetupFault> {
    let program = Program::new(&asked.program)
        .args(&asked.args)
        .environment(asked.environment.clone())
        .limits(Limits::new(VERSION_TIMEOUT));
    let said = capture(&program, &CancellationToken::new(), VERSION_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&said.stdout);
    let mut words = text.split_whitespace();
    let version = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    if let Some(version) = version.filter(|_| said.is_success()) {
        return Ok(version.to_owned());
    }
    let said = format!("{} {}", text.trim(), String::from_utf8_lossy(&said.stderr).trim());
    Err(SetupFault::Version {
        program: asked.program.display().to_string(),
        said: said.trim().to_owned(),
    })
}
