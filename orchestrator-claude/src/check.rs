//! What is looked at before anything is spent.

use std::path::Path;
use std::time::Duration;

use orchestrator_process::{Limits, Program, SpawnError, capture};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::claude::KNOWN_VERSIONS;
use crate::config::ClaudeConfig;
use crate::prompt::{Document, DocumentError, Documents, PromptFault, TemplateError};
use crate::unready::{Unready, chain};

/// How long the program has to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of what it says is kept, in bytes.
const VERSION_BYTES_MAX: usize = 4 * 1024;

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
    /// A template.
    #[error(transparent)]
    Template(#[from] TemplateError),
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

/// What was found in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The version of the program.
    pub version: String,
    /// Whether the output of this version is known; a warning is logged when it is not.
    pub is_known: bool,
}

/// The documents that can be read, and what is wrong with the others.
pub(crate) fn documents(documents: &Documents, root: &Path) -> (Vec<Document>, Vec<SetupFault>) {
    match documents.read(root) {
        Ok(documents) => (documents, Vec::new()),
        Err(errors) => (Vec::new(), errors.into_iter().map(SetupFault::Document).collect()),
    }
}

/// The documents, for a stage that cannot do without.
pub(crate) fn needed_documents(
    documents: &Documents,
    root: &Path,
) -> Result<Vec<Document>, Unready> {
    documents.read(root).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(|err| chain(err)).collect();
        Unready::Fatal(errors.join("; "))
    })
}

/// Finishes a check with the model and the program.
pub(crate) async fn program(
    config: &ClaudeConfig,
    mut faults: Vec<SetupFault>,
) -> Result<Checked, Vec<SetupFault>> {
    if config.model.trim().is_empty() {
        faults.push(SetupFault::Model);
    }
    match version(config).await {
        Ok(version) if faults.is_empty() => {
            let is_known = KNOWN_VERSIONS.contains(&version.as_str());
            if !is_known {
                warn!(version, "this version of the program is not known");
            }
            Ok(Checked { version, is_known })
        }
        Ok(_) => Err(faults),
        Err(fault) => {
            faults.push(fault);
            Err(faults)
        }
    }
}

async fn version(config: &ClaudeConfig) -> Result<String, SetupFault> {
    let program = Program::new(config.program_path())
        .args(&config.leading_args)
        .arg("--version")
        .environment(config.environment.clone())
        .limits(Limits::new(VERSION_TIMEOUT));
    let said = capture(&program, &CancellationToken::new(), VERSION_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&said.stdout);
    let first = text.split_whitespace().next().unwrap_or_default();
    if said.is_success() && first.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(first.to_owned());
    }
    let said = format!("{} {}", text.trim(), String::from_utf8_lossy(&said.stderr).trim());
    Err(SetupFault::Version {
        program: config.program.display().to_string(),
        said: said.trim().to_owned(),
    })
}
