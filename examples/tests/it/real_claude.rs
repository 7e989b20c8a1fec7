//! A small plan with the real `claude`, end to end, against a Messages API on the loopback device.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use orchestrator_claude::testing::{LoopbackApi, Reply, Rule};
use serde_json::json;

use crate::program::{Bench, git};

/// The program, or `None` after saying that the test is skipped.
fn claude() -> Option<PathBuf> {
    let installed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/claude-cli/node_modules/.bin/claude");
    let named = std::env::var_os("CLAUDE_BIN").map(PathBuf::from);
    let program = named.unwrap_or(installed);
    if program.exists() {
        return Some(program.canonicalize().unwrap());
    }
    let missing = format!("no `claude` at {}: run .ci/install-claude-cli", program.display());
    assert!(std::env::var_os("REQUIRE_CLAUDE_CLI").is_none_or(|it| it != "1"), "{missing}");
    // Past the harness, which keeps to itself what a test prints that passes.
    let skipped = format!("SKIPPED, not tested with the real program: {missing}\n");
    std::io::stderr().write_all(skipped.as_bytes()).unwrap();
    None
}

/// A repository whose one test wants a file that says hello.
fn repository(bench: &Bench) {
    let at = bench.path("user");
    fs::create_dir_all(at.join("tests")).unwrap();
    for document in ["CONVENTIONS.md", "INTERFACES.md", "DECISIONS.md"] {
        fs::write(at.join(document), format!("{document}: keep it short.\n")).unwrap();
    }
    fs::write(at.join("tests/hello.sh"), "grep -qx 'hello, world' hello.txt\n").unwrap();
    git(&at, &["init", "--quiet", "--initial-branch", "trunk"]);
    git(&at, &["add", "--all"]);
    git(&at, &["commit", "--quiet", "--message", "begin"]);
}

#[test]
fn a_plan_runs_end_to_end_with_the_real_program() {
    let Some(claude) = claude() else { return };
    let bench = Bench::new();
    repository(&bench);
    let plan = r#"[{
        "id": "say-hello", "prompt_template": "implement", "scope": ["hello.txt"],
        "verify": "sh tests/hello.sh",
    }]"#;
    fs::write(bench.path("plan.json"), plan).unwrap();
    let write = |text: &str| {
        Reply::tool("Write", json!({ "file_path": "${cwd}/hello.txt", "content": text }))
    };
    // The first attempt fails its test; the second one is told why, in the conversation that goes on
    // with two answers behind it, and does better.
    let approval = json!({ "verdict": "APPROVE", "findings": [] });
    let api = LoopbackApi::start(vec![
        Rule::new(Reply::structured(approval)).tool("StructuredOutput"),
        Rule::new(write("good morning\n")).user("say-hello").turn(0).times(1),
        Rule::new(write("hello, world\n")).user("exit code 1").turn(2),
        Rule::new(Reply::text("Done.")),
    ])
    .unwrap();
    let base_url = api.base_url();
    let ended = bench.run_with(
        &[
            "--repo",
            "user",
            "--plan",
            "plan.json",
            "--agent",
            "claude",
            "--model",
            "claude-opus-5-5",
            "--claude-bin",
            claude.to_str().unwrap(),
        ],
        &[("ANTHROPIC_BASE_URL", &base_url), ("ANTHROPIC_API_KEY", "no-key-of-anybody")],
    );
    ended.assert_code(0);

    let branch = format!("orchestrator/{}", bench.report()["run"].as_str().unwrap());
    let merged = git(&bench.path("user"), &["show", &format!("{branch}:hello.txt")]);
    assert_eq!(merged, "hello, world\n");
    let format = "--format=%(trailers:key=Orchestrator-Task,valueonly)";
    let log = git(&bench.path("user"), &["log", format, &branch]);
    assert_eq!(log.split_whitespace().collect::<Vec<_>>(), ["say-hello"]);
    assert_eq!(bench.report()["tasks"][0]["attempts"], 2);
    assert!(bench.report()["cost_usd"].as_f64().unwrap() > 0.0);

    let asked = api.requests();
    let reviews = asked.iter().filter(|it| it.tools.contains(&"StructuredOutput".to_owned()));
    assert!(reviews.count() > 0, "the verdict came from a review");
    let told = asked.iter().filter(|it| it.body.to_string().contains("exit code 1"));
    assert!(told.count() > 0, "the second attempt was not told why the first one failed");
    assert_eq!(bench.processes(), Vec::<String>::new());
}
