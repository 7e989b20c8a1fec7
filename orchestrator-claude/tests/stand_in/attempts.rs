//! What an attempt learns from the one before: its conversation, what was noticed, loops.

use orchestrator_claude::ClaudeRunner;
use orchestrator_core::port::{ActivityKind, Runner as _};
use orchestrator_core::{ChangeId, Cost, Interruption, Outcome, StageKind, Usd};

use crate::{BEGIN, FINAL, read, set_up};

/// A line in which the model uses a tool.
const TOOL: &str = r#"echo '{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"make"}}]}}'"#;

#[tokio::test]
async fn after_a_rejection_the_conversation_goes_on_while_the_workspace_holds_its_work() {
    let body = format!("printf '%s\\n' \"$@\" > ../args; echo work > made.txt\n{BEGIN}\n{FINAL}");
    let (mut place, config) = set_up(StageKind::Run, "rejected", &body);
    let args = place.beside("args");
    let runner = ClaudeRunner::new(config.clone());
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert!(!read(&args).contains("--resume"));

    // The verify stage opened the workspace anew: the engine knows of no conversation.
    place.next_attempt("test `a` failed");
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert!(read(&args).contains("--resume\ns-1\n"));
    let prompt = read(&place.cx.dir.join("prompt.md"));
    assert!(prompt.starts_with("Go on") && prompt.contains("test `a` failed"), "{prompt}");

    // Its work is gone: what the conversation believes is not so any more.
    place.next_attempt("conflict");
    std::fs::remove_file(place.file("made.txt")).unwrap();
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert!(!read(&args).contains("--resume"));
    let prompt = read(&place.cx.dir.join("prompt.md"));
    assert!(prompt.contains("<last_error>\nconflict\n</last_error>"), "{prompt}");
    assert!(prompt.contains("<attempt_error>\ntest `a` failed\n</attempt_error>"), "{prompt}");

    // It stands on something else.
    place.next_attempt("conflict");
    place.cx.workspace.base = ChangeId::parse("moved").unwrap();
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert!(!read(&args).contains("--resume"));

    // Or nobody wants it.
    place.next_attempt("once more");
    let mut anew = config;
    anew.common.resume_rejected = false;
    assert_eq!(ClaudeRunner::new(anew).run(&place.cx).await.outcome, Outcome::Passed);
    assert!(!read(&args).contains("--resume"));
}

#[tokio::test]
async fn what_is_noticed_is_recorded_shown_and_told_to_the_next_attempt() {
    let report = r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"I wrote src/made.rs and src/imagined.rs.","total_cost_usd":0.25}'"#;
    let body = format!(
        "mkdir -p src tests; echo 1 > src/made.rs; echo 1 > tests/it.rs\n{BEGIN}\n{TOOL}\n{TOOL}\n{TOOL}\n{TOOL}\n{report}"
    );
    let (mut place, config) = set_up(StageKind::Run, "noticed", &body);
    let runner = ClaudeRunner::new(config);
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    let expected = [
        "the same use of Bash was repeated 4 times in a row: {\"command\":\"make\"}",
        "it changed tests that the task does not name: tests/it.rs",
        "its report names files that do not exist: src/imagined.rs",
    ];
    let record: serde_json::Value =
        serde_json::from_str(&read(&place.cx.dir.join("run.json"))).unwrap();
    assert_eq!(record["signals"].as_array().unwrap().len(), expected.len(), "{record:#}");
    assert_eq!(record["signals"][2]["signal"], "not_there");
    let said = place.said.lock().unwrap().clone();
    place.next_attempt("verify failed");
    runner.run(&place.cx).await;
    let prompt = read(&place.cx.dir.join("prompt.md"));
    for text in expected {
        assert!(said.contains(&ActivityKind::Said(format!("noticed: {text}"))), "{said:#?}");
        assert!(prompt.contains(&format!("- {text}\n")), "{prompt}");
    }
}

#[tokio::test]
async fn a_success_that_changed_nothing_is_doubted() {
    let denied = r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.25,"permission_denials":[{"tool_name":"Write","tool_use_id":"t","tool_input":{}}]}'"#;
    let (place, config) = set_up(StageKind::Run, "denied", &format!("{BEGIN}\n{denied}"));
    assert_eq!(ClaudeRunner::new(config).run(&place.cx).await.outcome, Outcome::Passed);
    let record = read(&place.cx.dir.join("run.json"));
    assert!(record.contains("\"class\": \"Suspicious(DeniedWithoutChange)\""), "{record}");
    assert!(record.contains("nothing_changed"), "{record}");
}

#[tokio::test]
async fn a_run_that_does_the_same_again_and_again_is_ended_and_told() {
    let body = format!("{BEGIN}\nwhile :; do {TOOL}; sleep 0.01; done");
    let (place, config) = set_up(StageKind::Run, "loops", &body);
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!(end.cost, Cost::AtLeast(Usd::ZERO));
    let Outcome::Rejected { feedback, .. } = end.outcome else { panic!("{:?}", end.outcome) };
    assert!(feedback.contains("again and again"), "{feedback}");
    assert!(feedback.contains("the same use of Bash was repeated 2"), "{feedback}");
    assert!(place.processes().is_empty());
}

#[tokio::test]
async fn a_program_that_breaks_down_while_it_works_is_booked_and_tried_again() {
    let message = r#"echo '{"type":"assistant","message":{"id":"m1","usage":{"input_tokens":900000,"output_tokens":9000},"content":[{"type":"text","text":"working"}]}}'"#;
    let crash = "echo 'TypeError: x is not a function' >&2\nexit 1";
    let crashed = Outcome::Interrupted { reason: Interruption::Crashed, retry_at: None };
    for (name, body, outcome, cost) in [
        (
            "spoke",
            format!("{BEGIN}\n{message}\n{crash}"),
            Some(&crashed),
            Cost::AtLeast(Usd(4_725_000)),
        ),
        ("began", format!("{BEGIN}\n{crash}"), Some(&crashed), Cost::AtLeast(Usd::ZERO)),
        ("never", crash.to_owned(), None, Cost::NONE),
    ] {
        let (place, mut config) = set_up(StageKind::Run, name, &body);
        config.common.prices.input = Usd::dollars(5);
        config.common.prices.output = Usd::dollars(25);
        let end = ClaudeRunner::new(config).run(&place.cx).await;
        assert_eq!(end.cost, cost, "{name}");
        match outcome {
            Some(outcome) => assert_eq!(&end.outcome, outcome, "{name}"),
            None => assert!(matches!(end.outcome, Outcome::Fatal { .. }), "{:?}", end.outcome),
        }
    }
}

#[tokio::test]
async fn an_attempt_that_changes_what_looks_at_its_commands_is_not_taken() {
    let guard = r#"for word; do [ "$before" = --settings ] && settings=$word; before=$word; done
        echo 'exit 0' > "${settings%settings.json}guard.sh""#;
    let body = format!("{guard}; echo work > made.txt\n{BEGIN}\n{FINAL}");
    let (place, config) = set_up(StageKind::Run, "guard", &body);
    let Outcome::Rejected { feedback, .. } = ClaudeRunner::new(config).run(&place.cx).await.outcome
    else {
        panic!("it is taken")
    };
    assert!(feedback.contains("it changed files of the orchestrator: guard.sh"), "{feedback}");
}

#[tokio::test]
async fn what_an_attempt_settles_for_the_next_one_is_undone_and_said() {
    let settings = r#"cat "$CLAUDE_CONFIG_DIR/settings.json" > ../seen
        echo '{"permissions":{"allow":["Bash"]}}' > "$CLAUDE_CONFIG_DIR/settings.json""#;
    let body = format!("{settings}; echo work > made.txt\n{BEGIN}\n{FINAL}");
    let (mut place, config) = set_up(StageKind::Run, "settled", &body);
    let runner = ClaudeRunner::new(config);
    let is_said = |place: &crate::support::Place| {
        let said = place.said.lock().unwrap();
        said.iter().any(|it| matches!(it, ActivityKind::Said(text) if text.contains("settings.json was changed")))
    };
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert!(!is_said(&place));
    place.next_attempt("once more");
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert_eq!(read(&place.beside("seen")), "{}");
    assert!(is_said(&place));
}

#[tokio::test]
async fn what_is_remembered_of_an_attempt_is_not_believed_when_somebody_changed_it() {
    let body = format!("printf '%s\\n' \"$@\" > ../args; echo work > made.txt\n{BEGIN}\n{FINAL}");
    let (mut place, config) = set_up(StageKind::Run, "believed", &body);
    let runner = ClaudeRunner::new(config);
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    let kept = place.beside("aside/last-attempt.json");
    let text = read(&kept);
    assert!(text.contains("\"s-1\""), "{text}");
    std::fs::write(&kept, text.replace("\"s-1\"", "\"of-another\"")).unwrap();
    place.next_attempt("test failed");
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert!(!read(&place.beside("args")).contains("--resume"));
}
