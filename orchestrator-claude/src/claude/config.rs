//! How the program is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orchestrator_process::Environment;

use super::policy::Policy;
use crate::agent::AgentConfig;

/// Variables by which the program signs in and reaches its service, to be passed on where the
/// caller has them.
pub const AUTH_VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
];

/// Those of them whose values are secret.
const SECRET_VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
];

/// How the program is started: for each agent that works, and for each that reviews.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClaudeConfig {
    /// The program: a path, or a name that is looked for in the `PATH` of the environment.
    pub program: PathBuf,
    /// Arguments before all others, for a program that is started through another one.
    pub leading_args: Vec<OsString>,
    /// The model where a stage names none. The program's own default depends on how one signed in,
    /// so it is never left open.
    pub model: String,
    /// The model to use while the other one is overloaded.
    pub fallback_model: Option<String>,
    /// What the program finds in its environment, apart from what is always set: tools such as
    /// `PATH`, and the variables that sign it in. Commands that the agent runs see it too.
    pub environment: Environment,
    /// What an agent that works may do; a reviewer only reads.
    pub policy: Policy,
    /// How long a command of the agent may run; it is ended then, and the agent told.
    pub command_timeout: Duration,
    /// What holds for every agent program: prompts, limits, money, the account.
    pub common: AgentConfig,
}

impl ClaudeConfig {
    /// A program and a model, with everything else at its default: what tools need and
    /// [`AUTH_VARIABLES`] passed on from this process, the default [`Policy`], commands of up to 10
    /// minutes, and [`AgentConfig::default`] with the values of the variables that sign it in kept
    /// out of its logs.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, model: &str) -> Self {
        let environment = Environment::tools().passing(AUTH_VARIABLES);
        let mask = environment.mask(SECRET_VARIABLES);
        Self {
            program: program.into(),
            leading_args: Vec::new(),
            model: model.to_owned(),
            fallback_model: None,
            environment,
            policy: Policy::default(),
            command_timeout: Duration::from_secs(600),
            common: AgentConfig { mask, ..AgentConfig::default() },
        }
    }

    /// The program as it is started: a relative path is one from this process's directory, not from
    /// the workspace that the program is started in.
    pub(crate) fn program_path(&self) -> PathBuf {
        let is_name = self.program.components().count() < 2;
        if is_name { self.program.clone() } else { absolute(&self.program) }
    }
}

fn absolute(path: &Path) -> PathBuf {
    // It fails for an empty path and where this process's own directory is gone.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_is_not_looked_for_in_the_workspace() {
        let path = |program: &str| ClaudeConfig::new(program, "m").program_path();
        assert_eq!(path("claude"), Path::new("claude"));
        assert_eq!(path("/bin/claude"), Path::new("/bin/claude"));
        assert!(path("./claude").is_absolute() && path("bin/claude").is_absolute());
    }
}
