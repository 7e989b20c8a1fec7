//! The stand-in for an agent: a program that speaks the protocol of `claude -p`, without a model.
//!
//! It knows the tasks of this example and no others. What it does follows from its prompt alone, as
//! with a model: which task it is, what the documents say, and what the last attempt was rejected
//! for. It makes two mistakes on purpose, each of which it mends when it is told of it, and asks
//! one question, which an answer in `DECISIONS.md` settles.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use orchestrator_claude::agent::Prices;
use orchestrator_core::Usd;
use serde_json::{Value, json};

use super::content::{DRAFTS, PORTS};
use super::review;

/// The first argument with which the example is started as the agent.
pub(crate) const ARGUMENT: &str = "stand-in-agent";
/// What it is called where a model is named.
pub(crate) const MODEL: &str = "stand-in";
/// What it would cost by the token, if it cost anything.
pub(crate) const PRICES: Prices = Prices {
    input: Usd::dollars(3),
    output: Usd::dollars(15),
    cache_read: Usd::ZERO,
    cache_write: Usd::ZERO,
};

/// Options that are followed by a value.
const WITH_VALUE: &[&str] = &[
    "--append-system-prompt-file",
    "--fallback-model",
    "--json-schema",
    "--max-budget-usd",
    "--max-turns",
    "--model",
    "--output-format",
    "--permission-mode",
    "--resume",
    "--session-id",
    "--setting-sources",
    "--settings",
    "--tools",
];
/// Options that stand alone.
const ALONE: &[&str] = &["-p", "--print", "--verbose", "--strict-mcp-config"];

/// What the agent asks, when the documents do not say it.
const QUESTION: &str = "\
# Which comes first in a date, the day or the month?

`awk/dates.awk` takes the order from its variable `order`, which whoever calls it sets. Nothing in the repository calls it, and no document says how
dates are written. `tests/dates.sh` has only dates in which day and month are the same, so that both ways pass.

`03/04/2024` is the 3rd of April or the 4th of March. A guess would pass every check and be wrong half of the time.

Please add a decision to `DECISIONS.md`: either \"the day comes first\" or \"the month comes first\".
";

/// Does what one start of the program does.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    match Call::read(arguments).and_then(|call| call.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // Whoever started it may be gone; the exit code says it too.
            drop(writeln!(io::stderr(), "error: {err:#}"));
            ExitCode::FAILURE
        }
    }
}

/// One start of the program.
struct Call {
    is_version: bool,
    model: String,
    session: String,
    is_resumed: bool,
    is_review: bool,
}

impl Call {
    fn read(arguments: &[String]) -> anyhow::Result<Self> {
        let mut call = Self {
            is_version: false,
            model: MODEL.to_owned(),
            session: "00000000-0000-4000-8000-000000000000".to_owned(),
            is_resumed: false,
            is_review: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--version" {
                call.is_version = true;
                continue;
            }
            if ALONE.contains(&word.as_str()) {
                continue;
            }
            if !WITH_VALUE.contains(&word.as_str()) {
                bail!("unknown option '{word}'");
            }
            let value = words.next().with_context(|| format!("option '{word}' lacks its value"))?;
            match word.as_str() {
                "--model" => call.model.clone_from(value),
                "--session-id" => call.session.clone_from(value),
                "--resume" => {
                    call.session.clone_from(value);
                    call.is_resumed = true;
                }
                "--json-schema" => call.is_review = true,
                _ => {}
            }
        }
        Ok(call)
    }

    fn run(&self) -> anyhow::Result<()> {
        if self.is_version {
            writeln!(
                io::stdout(),
                "2.1.332 (Claude Code) - a stand-in, there is no model behind it"
            )?;
            return Ok(());
        }
        let prompt = self.conversation()?;
        self.say(&json!({
            "type": "system", "subtype": "init", "session_id": self.session, "model": self.model,
            "claude_code_version": "2.1.332", "tools": ["Read", "Write"], "mcp_servers": [],
            "cwd": std::env::current_dir()?.to_string_lossy(), "permissionMode": "acceptEdits",
        }))?;
        if self.is_review { self.review(&prompt) } else { self.work(&prompt) }
    }

    /// The whole conversation so far; it is kept where the real program keeps its own.
    fn conversation(&self) -> anyhow::Result<String> {
        let mut prompt = String::new();
        io::stdin().read_to_string(&mut prompt).context("the prompt cannot be read")?;
        let Some(home) = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from) else {
            return Ok(prompt);
        };
        let kept = home.join("stand-in").join(format!("{}.md", self.session));
        if self.is_resumed {
            let before = std::fs::read_to_string(&kept).map_err(|_| {
                anyhow::anyhow!("No conversation found with session ID: {}", self.session)
            })?;
            prompt = format!("{before}\n{prompt}");
        }
        std::fs::create_dir_all(home.join("stand-in"))?;
        std::fs::write(&kept, &prompt)?;
        Ok(prompt)
    }

    fn work(&self, prompt: &str) -> anyhow::Result<()> {
        let module = task(prompt).and_then(|task| task.strip_prefix("port-")).unwrap_or_default();
        let Some((_, port)) = PORTS.iter().find(|(name, _)| *name == module) else {
            std::fs::write(
                "BLOCKED.md",
                "This is a stand-in for an agent; it knows only the tasks of the example. \
                 Start the pipeline with `--agent claude` for a real one.\n",
            )?;
            return self.result("I only know the tasks of the example.", None);
        };
        self.pause(module, 1);
        self.tool("Read", &json!({ "file_path": format!("awk/{module}.awk") }))?;
        self.pause(module, 2);
        if module == "dates" && !prompt.contains("the day comes first") {
            self.tool("Write", &json!({ "file_path": "BLOCKED.md" }))?;
            std::fs::write("BLOCKED.md", QUESTION)?;
            return self.result("A decision is missing; I wrote what it is into BLOCKED.md.", None);
        }
        let target = Path::new("sh").join(format!("{module}.sh"));
        self.tool("Write", &json!({ "file_path": target }))?;
        std::fs::create_dir_all("sh")?;
        std::fs::write(&target, draft(module, prompt).unwrap_or(port))?;
        self.pause(module, 3);
        self.result(&format!("sh/{module}.sh is written."), None)
    }

    fn review(&self, prompt: &str) -> anyhow::Result<()> {
        let module = task(prompt).unwrap_or_default();
        self.pause(module, 1);
        self.tool("Grep", &json!({ "pattern": "=" }))?;
        self.pause(module, 2);
        let verdict = review::judge(prompt);
        self.tool("StructuredOutput", &verdict)?;
        self.result(&verdict.to_string(), Some(&verdict))
    }

    /// A tool is used.
    fn tool(&self, name: &str, input: &Value) -> anyhow::Result<()> {
        self.message(&json!({ "type": "tool_use", "id": "toolu_1", "name": name, "input": input }))
    }

    fn message(&self, content: &Value) -> anyhow::Result<()> {
        self.say(&json!({
            "type": "assistant", "session_id": self.session, "parent_tool_use_id": null,
            "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": self.model,
                "content": [content], "stop_reason": null,
                "usage": { "input_tokens": 1200, "output_tokens": 1 },
            },
        }))
    }

    fn result(&self, text: &str, structured: Option<&Value>) -> anyhow::Result<()> {
        // A review reads more and writes less; the amounts are made up, and always the same.
        let cost = if self.is_review { 0.006 } else { 0.0185 };
        let usage = json!({ "input_tokens": 4200, "output_tokens": 310 });
        let mut result = json!({
            "type": "result", "subtype": "success", "is_error": false, "num_turns": 3,
            "result": text, "session_id": self.session, "stop_reason": "end_turn",
            "total_cost_usd": cost, "usage": usage, "permission_denials": [],
            "api_error_status": null, "terminal_reason": "completed", "duration_ms": 600,
            "modelUsage": {
                &self.model: { "inputTokens": 4200, "outputTokens": 310, "costUSD": cost },
            },
        });
        result["model_usage_since_last_result"] = result["modelUsage"].clone();
        if let Some(structured) = structured {
            result["structured_output"] = structured.clone();
        }
        self.say(&result)
    }

    fn say(&self, event: &Value) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{event}")?;
        out.flush().context("the output cannot be written")
    }

    /// Takes a plausible time, different for each task and part, and the same in every run.
    fn pause(&self, task: &str, part: u64) {
        let letters: u64 = task.bytes().map(u64::from).sum();
        let quick = if self.is_review { 2 } else { 1 };
        std::thread::sleep(Duration::from_millis((100 + (letters * part) % 180) / quick));
    }
}

/// The task that a prompt is about, from its heading.
fn task(prompt: &str) -> Option<&str> {
    let heading = prompt.lines().find(|line| line.starts_with("# "))?;
    heading.rsplit_once("ask ").map(|(_, task)| task.trim())
}

/// The mistake that is made before somebody points it out.
fn draft(module: &str, prompt: &str) -> Option<&'static str> {
    let told = prompt.rsplit_once("<last_error>").map_or("", |(_, error)| error);
    let (_, cue, draft) = DRAFTS.iter().find(|(name, _, _)| *name == module)?;
    (!told.contains(cue)).then_some(*draft)
}
