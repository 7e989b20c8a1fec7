//! Arguments and environment of the program.

use std::ffi::OsString;

use orchestrator_core::{Usd, millis};
use orchestrator_process::Environment;

use super::{Call, Files, new_conversation};
use crate::policy::{Permissions, Policy};
use crate::verdict;

/// How an answer is to be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As text, with all tools.
    Text,
    /// As a verdict, with tools that read.
    Verdict,
}

impl Call<'_> {
    /// The arguments after the leading ones.
    pub(super) fn arguments(&self, files: &Files) -> Vec<OsString> {
        let config = self.config;
        let mut words: Vec<OsString> = Vec::new();
        let mut put = |flag: &str, value: Option<OsString>| {
            words.push(flag.into());
            words.extend(value);
        };
        put("-p", None);
        put("--output-format", Some("stream-json".into()));
        put("--verbose", None);
        let model = self.cx.stage.model.as_deref().unwrap_or(&config.model);
        put("--model", Some(model.into()));
        if let Some(fallback) = &config.fallback_model {
            put("--fallback-model", Some(fallback.into()));
        }
        match self.resume {
            Some(session) => put("--resume", Some(session.as_str().into())),
            None => put("--session-id", Some(new_conversation().into())),
        }
        put("--permission-mode", Some(self.policy.mode().into()));
        put("--settings", Some((&files.settings).into()));
        // The repository under work must not configure the program: its hooks would run, and its
        // servers start.
        put("--setting-sources", Some("user".into()));
        put("--strict-mcp-config", None);
        put("--max-turns", Some(config.turns_max.to_string().into()));
        put("--max-budget-usd", Some(decimal(self.cap).into()));
        if self.rules.is_some() {
            put("--append-system-prompt-file", Some((&files.rules).into()));
        }
        if self.answer == Answer::Verdict {
            put("--json-schema", Some(verdict::SCHEMA.into()));
            put("--tools", Some("Read,Grep,Glob".into()));
        }
        words
    }

    /// The environment: what the configuration passes on, and what the program needs to run
    /// unattended.
    pub(super) fn environment(&self) -> Environment {
        let config = self.config;
        let mut env = config.environment.clone();
        keep_tool_homes(&mut env);
        // A private home, so that no credential helper, key or setting of the person is found.
        env.set("HOME", self.home);
        env.set("CLAUDE_CONFIG_DIR", self.home.join(".claude"));
        for (name, value) in [("LANG", "C.UTF-8"), ("TZ", "UTC")] {
            if env.get(name).is_none() {
                env.set(name, value);
            }
        }
        for name in [
            "DISABLE_AUTOUPDATER",
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            // Work that goes on after the final line keeps the process alive for as long.
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
        ] {
            env.set(name, "1");
        }
        // The scheduler waits, not the program: left alone it retries for three minutes.
        env.set("CLAUDE_CODE_MAX_RETRIES", "2");
        env.set("API_TIMEOUT_MS", "600000");
        let command_ms = millis(config.command_timeout).to_string();
        env.set("BASH_DEFAULT_TIMEOUT_MS", &command_ms);
        env.set("BASH_MAX_TIMEOUT_MS", &command_ms);
        if needs_sandbox_word(self.policy, rustix::process::geteuid().is_root()) {
            env.set("IS_SANDBOX", "1");
        }
        if self.answer == Answer::Verdict {
            // The instructions of the reviewed branch are no instructions to its reviewer.
            env.set("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1");
        }
        env
    }
}

/// As root the program takes full permission only in a sandbox, and has to be told that it is in
/// one; a policy says so by its permissions.
fn needs_sandbox_word(policy: &Policy, is_root: bool) -> bool {
    is_root && policy.permissions == Permissions::Sandboxed
}

/// Tools that look for their files below `HOME` go on finding them when it is another one.
fn keep_tool_homes(env: &mut Environment) {
    let Some(home) = env.get("HOME").map(std::path::PathBuf::from) else { return };
    for (name, below) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let path = home.join(below);
        if env.get(name).is_none() && path.is_dir() {
            env.set(name, path);
        }
    }
}

/// An amount of dollars in full, without rounding.
fn decimal(amount: Usd) -> String {
    format!("{}.{:06}", amount.0 / 1_000_000, amount.0 % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_written_in_full() {
        assert_eq!(decimal(Usd(1)), "0.000001");
        assert_eq!(decimal(Usd(12_345_678)), "12.345678");
    }

    #[test]
    fn only_root_in_a_sandbox_says_that_it_is_in_one() {
        assert!(needs_sandbox_word(&Policy::sandboxed(), true));
        assert!(!needs_sandbox_word(&Policy::sandboxed(), false));
        assert!(!needs_sandbox_word(&Policy::default(), true));
    }

    #[test]
    fn tools_are_found_after_home_has_moved() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".cargo")).unwrap();
        let mut env = Environment::empty().with("HOME", home.path());
        keep_tool_homes(&mut env);
        assert_eq!(env.get("CARGO_HOME"), Some(home.path().join(".cargo").as_os_str()));
        assert_eq!(env.get("RUSTUP_HOME"), None);
    }
}
