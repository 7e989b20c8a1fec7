//! How the program is started.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::Usd;
use orchestrator_process::{Confinement, Environment};

use crate::account::Account;
use crate::agent::AgentConfig;
use crate::policy::Policy;
use crate::prompt::{Documents, Templates};
use crate::starts::Starts;
use crate::stream::Prices;

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

/// A stream that stalls is given up by the program itself after 302 s, measured; a run that is
/// silent for less may still be alive.
const STALL: Duration = Duration::from_secs(360);

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
    /// The templates of the prompts.
    pub templates: Arc<Templates>,
    /// The documents that every agent gets.
    pub documents: Documents,
    /// The most turns in one run of the program.
    pub turns_max: NonZeroU32,
    /// How long a command of the agent may run; it is ended then, and the agent told.
    pub command_timeout: Duration,
    /// How long the program may write nothing; `None` is 360 s and `command_timeout` together.
    pub silence: Option<Duration>,
    /// How long the program has to end after its final line.
    pub final_grace: Duration,
    /// How long it has between being asked to end and being killed.
    pub kill_grace: Duration,
    /// Prices, for the lower bound of a run that is ended before it says what it cost.
    pub prices: Prices,
    /// What one turn may cost past a limit of money: the program is given that much less than what
    /// is reserved for it, or half of it where that is less still.
    pub turn_overshoot: Usd,
    /// How often in a row the same tool may be used in the same way before the run is ended; `None`
    /// is without end.
    pub repeats_max: Option<NonZeroU32>,
    /// Whether the attempt after a rejection takes up the conversation of the one before, where the
    /// workspace still holds its work.
    pub resume_rejected: bool,
    /// How often a change of one task is reviewed before a person is asked.
    pub review_rounds_max: NonZeroU32,
    /// Where findings go that do not block a merge: a file for each.
    pub follow_ups: Option<PathBuf>,
    /// What the program, with all that it starts, may use and where it may reach. In a sandbox it
    /// may write to the workspace, to its own home and to a directory for temporary files, and to
    /// what is named here.
    pub confinement: Confinement,
    /// How many programs start at the same time; clones share it.
    pub starts: Starts,
    /// What is known of the account, shared by all runs of the host.
    pub account: Option<Account>,
}

impl ClaudeConfig {
    /// A program and a model, with everything else at its default: what tools need and
    /// [`AUTH_VARIABLES`] passed on from this process, the default [`Policy`], the built-in
    /// templates, the three usual documents, 200 turns, commands of up to 10 minutes.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "200 is not zero")]
    pub fn new(program: impl Into<PathBuf>, model: &str) -> Self {
        let common = AgentConfig::default();
        Self {
            program: program.into(),
            leading_args: Vec::new(),
            model: model.to_owned(),
            fallback_model: None,
            environment: Environment::tools().passing(AUTH_VARIABLES),
            policy: Policy::default(),
            templates: common.templates,
            documents: common.documents,
            turns_max: NonZeroU32::new(200).expect("200 is not zero"),
            command_timeout: Duration::from_secs(600),
            silence: None,
            final_grace: common.final_grace,
            kill_grace: common.kill_grace,
            prices: common.prices,
            turn_overshoot: common.turn_overshoot,
            repeats_max: common.repeats_max,
            resume_rejected: common.resume_rejected,
            review_rounds_max: common.review_rounds_max,
            follow_ups: None,
            confinement: common.confinement,
            starts: common.starts,
            account: None,
        }
    }

    /// The part of it that holds for every agent program.
    #[must_use]
    pub fn agent_config(&self) -> AgentConfig {
        AgentConfig {
            templates: Arc::clone(&self.templates),
            documents: self.documents.clone(),
            silence: self.silence_limit(),
            final_grace: self.final_grace,
            kill_grace: self.kill_grace,
            turn_overshoot: self.turn_overshoot,
            prices: self.prices,
            repeats_max: self.repeats_max,
            resume_rejected: self.resume_rejected,
            review_rounds_max: self.review_rounds_max,
            follow_ups: self.follow_ups.clone(),
            confinement: self.confinement.clone(),
            starts: self.starts.clone(),
            account: self.account.clone(),
        }
    }

    /// The program as it is started: a relative path is one from this process's directory, not from
    /// the workspace that the program is started in.
    pub(crate) fn program_path(&self) -> PathBuf {
        let is_name = self.program.components().count() < 2;
        if is_name { self.program.clone() } else { absolute(&self.program) }
    }

    /// How long the program may write nothing.
    #[must_use]
    pub fn silence_limit(&self) -> Duration {
        self.silence.unwrap_or_else(|| STALL.saturating_add(self.command_timeout))
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
