//! The Messages API of the tests as a program: it answers `claude` by rules from a file, so that a
//! set-up is tried without an account and without money. `--help` says how.

use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use orchestrator_claude::testing::{LoopbackApi, Reply, Request, Rule};
use serde_json::json;

const HELP: &str = r#"Answers `claude` on the loopback device by rules from a file.

  loopback_api [--rules FILE] [--log FILE] [-- COMMAND [ARGUMENTS]]

With a COMMAND it runs that with ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY set, and ends with its
exit code. Without one it prints the address and answers until it is ended.

  --rules FILE  the rules; without it every request gets the text "ok"
  --log FILE    one line of JSON for each request: the rule that answered, turn, tools, model

A rules file:

  {"rules": [
    {"user": "TASK-7", "turn": 0, "reply": {"tools": [
      {"name": "Write", "input": {"file_path": "${cwd}/a.txt", "content": "hi\n"}}]}},
    {"tool": "StructuredOutput", "reply": {"structured": {"verdict": "APPROVE", "findings": []}}},
    {"times": 2, "reply": {"error": 529}},
    {"reply": {"text": "Done."}}]}

The first rule that holds answers. A rule may have: user, tool_result (texts that must occur), turn
(answers of the model so far), tool (offered), model, times. A reply has one of: text, tools,
structured, error (with message), usage_limit {window, resets_at}, raw {status, content_type, body};
and may have: headers, stop_reason, input_tokens, output_tokens, delay_ms, fault (hang, drop, cut,
stall). ${cwd}, ${now} and ${now+SECONDS} are filled in. A request that no rule answers gets a 400.
"#;

struct Options {
    rules: Option<PathBuf>,
    log: Option<PathBuf>,
    command: Vec<String>,
}

fn options() -> Result<Option<Options>, String> {
    let mut options = Options { rules: None, log: None, command: Vec::new() };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value =
            || words.next().map(PathBuf::from).ok_or_else(|| format!("{word} needs a file"));
        match word.as_str() {
            "--rules" => options.rules = Some(value()?),
            "--log" => options.log = Some(value()?),
            "--" => {
                options.command = words.collect();
                break;
            }
            "-h" | "--help" => return Ok(None),
            other => return Err(format!("unknown option {other}; --help says which there are")),
        }
    }
    Ok(Some(options))
}

fn rules(options: &Options) -> Result<Vec<Rule>, Box<dyn Error>> {
    let Some(path) = &options.rules else { return Ok(vec![Rule::new(Reply::text("ok"))]) };
    let text = std::fs::read_to_string(path).map_err(|err| format!("{}: {err}", path.display()))?;
    Ok(Rule::parse_all(&text)
        .map_err(|err| format!("{}: {err}: {}", path.display(), err.source))?)
}

fn line(request: &Request) -> String {
    let Request { rule, turn, tools, body } = request;
    json!({ "rule": rule, "turn": turn, "model": body["model"], "tools": tools }).to_string()
}

fn log(options: &Options, requests: &[Request]) -> io::Result<()> {
    let Some(path) = &options.log else { return Ok(()) };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    requests.iter().try_for_each(|request| writeln!(file, "{}", line(request)))
}

fn serve(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let api = LoopbackApi::start(rules(options)?)?;
    if let Some((program, arguments)) = options.command.split_first() {
        let status = Command::new(program)
            .args(arguments)
            .env("ANTHROPIC_BASE_URL", api.base_url())
            .env("ANTHROPIC_API_KEY", "no-key-of-anybody")
            .status()
            .map_err(|err| format!("{program}: {err}"))?;
        log(options, &api.requests())?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
    }
    writeln!(io::stdout(), "ANTHROPIC_BASE_URL={}", api.base_url())?;
    let mut seen = 0;
    loop {
        let requests = api.wait_for_more(seen, Duration::from_secs(3600));
        log(options, requests.get(seen..).unwrap_or_default())?;
        seen = requests.len();
    }
}

fn main() -> ExitCode {
    let ended = match options() {
        Ok(Some(options)) => serve(&options),
        Ok(None) => write!(io::stdout(), "{HELP}").map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Err(why) => Err(why.into()),
    };
    ended.unwrap_or_else(|err| {
        // Whoever started it may be gone; the exit code says it too.
        drop(writeln!(io::stderr(), "error: {err}"));
        ExitCode::from(2)
    })
}
