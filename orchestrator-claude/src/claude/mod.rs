//! The `claude` program: what is its own, and nothing that another agent would need too.

mod config;
mod ending;
pub mod policy;
mod ports;
pub mod stream;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{Usd, millis};
use orchestrator_process::Environment;
use serde_json::{Value, json};

pub use self::config::{AUTH_VARIABLES, ClaudeConfig};
pub use self::ending::{Ending, classify, message};
use self::policy::{GUARD, Permissions, Policy};
pub use self::ports::{ClaudeReviewer, ClaudeRunner};
use self::stream::{Final, Transcript};
use crate::SetupFault;
use crate::agent::{
    Agent, Answer, Ask, Capabilities, Conversation, Ended, Event, Finish, Prepared, Prices, Reader,
};

/// Versions of the program whose output is known.
pub const KNOWN_VERSIONS: &[&str] = &["2.1.197", "2.1.332"];

/// A stream that stalls is given up by the program itself after 302 s, measured; a run that is
/// silent for less may still be alive.
const STALL: Duration = Duration::from_secs(360);

/// The `claude` program.
#[derive(Debug, Clone)]
pub struct Claude {
    config: Arc<ClaudeConfig>,
}

impl Claude {
    /// The program as this says.
    #[must_use]
    pub fn new(config: impl Into<Arc<ClaudeConfig>>) -> Self {
        Self { config: config.into() }
    }
}

impl Agent for Claude {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            structured_answer: true,
            budget: true,
            turns_max: true,
            resume: true,
            names_conversation: true,
            cost: true,
            limit_reset: true,
        }
    }

    fn known_versions(&self) -> &[&str] {
        KNOWN_VERSIONS
    }

    fn faults(&self) -> Vec<SetupFault> {
        let is_named = !self.config.model.trim().is_empty();
        if is_named { Vec::new() } else { vec![SetupFault::Model] }
    }

    fn version(&self) -> Prepared {
        let mut args = self.config.leading_args.clone();
        args.push("--version".into());
        Prepared {
            program: self.config.program_path(),
            args,
            environment: self.config.environment.clone(),
            stdin: None,
            files: Vec::new(),
        }
    }

    fn silence(&self) -> Duration {
        STALL.saturating_add(self.config.command_timeout)
    }

    fn prepare(&self, ask: &Ask<'_>) -> Prepared {
        let config = &*self.config;
        // A reviewer only reads, whatever those that work may do.
        let reviewer = Policy::reviewer();
        let policy = match ask.answer {
            Answer::Text => &config.policy,
            Answer::Verdict { .. } => &reviewer,
        };
        let (settings, guard) = (ask.files.path("settings", "json"), ask.files.path("guard", "sh"));
        let rules = ask.files.path("rules", "md");
        let mut args = config.leading_args.clone();
        args.extend(arguments(config, policy, ask));
        let mut files = vec![(settings, policy.settings(ask.verify, &guard).to_string())];
        if policy.guard {
            files.push((guard, GUARD.to_owned()));
        }
        files.extend(ask.rules.map(|text| (rules, text.to_owned())));
        // The only settings that it reads beside those above: what an earlier run put there for itself
        // is not what this one may do.
        files.push((config_dir(ask.home).join("settings.json"), "{}".to_owned()));
        Prepared {
            program: config.program_path(),
            args,
            environment: environment(config, policy, ask),
            // One argument is limited to 128 KiB.
            stdin: Some(ask.prompt.to_owned()),
            files,
        }
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(ClaudeReader { transcript: Transcript::new(), prices: self.config.common.prices })
    }
}

/// Reads stream output of `claude`.
#[derive(Debug)]
struct ClaudeReader {
    transcript: Transcript,
    prices: Prices,
}

impl Reader for ClaudeReader {
    fn line(&mut self, line: &[u8]) -> Vec<Event> {
        self.transcript.push_line(line)
    }

    fn finish(&self, ended: &Ended<'_>) -> Finish {
        let transcript = &self.transcript;
        let class = classify(&Ending {
            exit: ended.exit.clone(),
            stopped: ended.stopped,
            was_ended_late: ended.was_ended_late,
            transcript,
            stderr: ended.stderr,
            wants_structure: ended.wants_structure,
            question: ended.question,
            has_changes: ended.has_changes,
        });
        let last = transcript.last();
        Finish {
            class,
            message: message(transcript),
            text: last.and_then(|last| last.result.clone()).unwrap_or_default(),
            structured: last.and_then(|last| last.structured.clone()),
            cost: Some(transcript.cost(&self.prices)),
        }
    }

    fn record(&self) -> Value {
        let transcript = &self.transcript;
        let tokens = transcript.tokens();
        json!({
            "tokens_of_messages": {
                "input": tokens.input,
                "output": tokens.output,
                "cache_read": tokens.cache_read,
                "cache_write": tokens.cache_write,
            },
            "final_lines": transcript.finals(),
            "final": transcript.last().map(of_final),
            "retries": transcript.retries(),
            "torn_lines": transcript.torn_lines(),
        })
    }
}

fn of_final(last: &Final) -> Value {
    json!({
        "subtype": last.subtype,
        "is_error": last.is_error,
        "api_status": last.api_status,
        "error": last.error,
        "stop_reason": last.stop_reason,
        "terminal_reason": last.terminal_reason,
        "turns": last.turns,
        "duration_ms": last.duration_ms,
        "duration_api_ms": last.duration_api_ms,
        "usage": last.usage.clone().map(Value::Object),
        "models": last.models.clone().map(Value::Object),
    })
}

/// The arguments after the leading ones.
fn arguments(config: &ClaudeConfig, policy: &Policy, ask: &Ask<'_>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut put = |flag: &str, value: Option<OsString>| {
        words.push(flag.into());
        words.extend(value);
    };
    put("-p", None);
    put("--output-format", Some("stream-json".into()));
    put("--verbose", None);
    put("--model", Some(ask.model.unwrap_or(&config.model).into()));
    if let Some(fallback) = &config.fallback_model {
        put("--fallback-model", Some(fallback.into()));
    }
    match ask.conversation {
        Conversation::Resume(session) => put("--resume", Some(session.as_str().into())),
        Conversation::Named(name) => put("--session-id", Some(name.into())),
        Conversation::New => {}
    }
    put("--permission-mode", Some(policy.mode().into()));
    put("--settings", Some(ask.files.path("settings", "json").into()));
    // The repository under work must not configure the program: its hooks would run, and its
    // servers start.
    put("--setting-sources", Some("user".into()));
    put("--strict-mcp-config", None);
    put("--max-turns", Some(ask.turns_max.to_string().into()));
    put("--max-budget-usd", Some(decimal(ask.budget).into()));
    if ask.rules.is_some() {
        put("--append-system-prompt-file", Some(ask.files.path("rules", "md").into()));
    }
    if let Answer::Verdict { schema } = ask.answer {
        put("--json-schema", Some(schema.into()));
        put("--tools", Some("Read,Grep,Glob".into()));
    }
    words
}

/// The environment: what the configuration passes on, and what the program needs to run unattended.
fn environment(config: &ClaudeConfig, policy: &Policy, ask: &Ask<'_>) -> Environment {
    let mut env = config.environment.clone();
    keep_tool_homes(&mut env);
    // A private home, so that no credential helper, key or setting of the person is found.
    env.set("HOME", ask.home);
    env.set("CLAUDE_CONFIG_DIR", config_dir(ask.home));
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
        // Else the content of each file that a prompt names as `@path` is put beside it, wherever
        // that file is: text in a change, a document or an error would read for whoever wrote it.
        "CLAUDE_CODE_DISABLE_ATTACHMENTS",
    ] {
        env.set(name, "1");
    }
    // The scheduler waits, not the program: left alone it retries for three minutes.
    env.set("CLAUDE_CODE_MAX_RETRIES", "2");
    env.set("API_TIMEOUT_MS", "600000");
    let command_ms = millis(config.command_timeout).to_string();
    env.set("BASH_DEFAULT_TIMEOUT_MS", &command_ms);
    env.set("BASH_MAX_TIMEOUT_MS", &command_ms);
    if let Some(temporary) = ask.temporary {
        env.set("CLAUDE_CODE_TMPDIR", temporary);
    }
    if needs_sandbox_word(policy, rustix::process::geteuid().is_root()) {
        env.set("IS_SANDBOX", "1");
    }
    if ask.answer != Answer::Text {
        // The instructions of the reviewed branch are no instructions to its reviewer.
        env.set("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1");
    }
    env
}

/// Where the program keeps its configuration and conversations.
fn config_dir(home: &std::path::Path) -> std::path::PathBuf {
    home.join(".claude")
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
    use std::path::{Path, PathBuf};

    use super::*;

    /// The sources below a directory.
    fn sources(dir: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        dirs.iter().flat_map(|dir| sources(dir)).chain(files).collect()
    }

    #[test]
    fn what_any_agent_needs_knows_nothing_of_this_program() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        // The names that the crate gives out, and the service that tests need, are the exceptions.
        let is_neutral = |path: &PathBuf| {
            let own = ["claude", "testing", "lib.rs"];
            let is_source = path.extension().is_some_and(|ending| ending != "snap");
            is_source && !own.iter().any(|name| path.starts_with(root.join(name)))
        };
        for path in sources(&root).into_iter().filter(is_neutral) {
            let text = std::fs::read_to_string(&path).unwrap().to_lowercase();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let speaks = |line: &&str| line.contains("claude") || line.contains("anthropic");
            assert_eq!(code.into_iter().find(speaks), None, "{}", path.display());
        }
    }

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
