//! The table by which endings are judged, row by row: what each row takes, and what comes close and
//! belongs to another one.

#![expect(clippy::needless_pass_by_value, reason = "a table of cases reads better without signs")]

use orchestrator_claude::claude::stream::Transcript;
use orchestrator_claude::claude::{Ending, classify};
use orchestrator_claude::outcome::{Class, Doubt, Exit, Limit, Refusal, Stop, Unservable};
use serde_json::{Value, json};

/// An ending in the making; at first a success.
#[derive(Clone)]
struct Case {
    lines: Vec<String>,
    exit: Exit,
    stderr: &'static str,
    stopped: Option<Stop>,
    was_ended_late: bool,
    wants_structure: bool,
    question: Option<&'static str>,
    has_changes: Option<bool>,
}

fn init() -> Value {
    json!({ "type": "system", "subtype": "init", "session_id": "s", "claude_code_version": "0" })
}

/// A run that said these things and ended with code 0.
fn said(lines: impl IntoIterator<Item = Value>) -> Case {
    Case {
        lines: lines.into_iter().map(|line| line.to_string()).collect(),
        exit: Exit::Code(0),
        stderr: "",
        stopped: None,
        was_ended_late: false,
        wants_structure: false,
        question: None,
        has_changes: Some(true),
    }
}

fn merged(mut base: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    base
}

/// A success, with these fields of its final line in place of the usual ones.
fn success(fields: Value) -> Case {
    let usual =
        json!({ "type": "result", "subtype": "success", "is_error": false, "result": "ok" });
    said([init(), merged(usual, &fields)])
}

/// A failure, with these fields.
fn failure(fields: Value) -> Case {
    let usual =
        json!({ "type": "result", "subtype": "success", "is_error": true, "result": "bad" });
    Case { exit: Exit::Code(1), ..said([init(), merged(usual, &fields)]) }
}

impl Case {
    /// The same with an error in the model's last message.
    fn error(mut self, error: &str) -> Self {
        let message = json!({ "type": "assistant", "error": error, "message": { "content": [] } });
        self.lines.insert(1, message.to_string());
        self
    }

    /// The same with an event that tells of the account.
    fn account(mut self, status: &str) -> Self {
        let info = json!({ "status": status, "resetsAt": 2_000, "rateLimitType": "five_hour" });
        let event = json!({ "type": "rate_limit_event", "rate_limit_info": info });
        self.lines.insert(1, event.to_string());
        self
    }

    fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    fn stderr(self, stderr: &'static str) -> Self {
        Self { stderr, ..self }
    }

    fn class(&self) -> Class {
        let transcript = Transcript::of(self.lines.join("\n").as_bytes());
        classify(&Ending {
            exit: self.exit.clone(),
            stopped: self.stopped,
            was_ended_late: self.was_ended_late,
            transcript: &transcript,
            stderr: self.stderr,
            wants_structure: self.wants_structure,
            question: self.question,
            has_changes: self.has_changes,
        })
    }
}

/// Says what is wrong of all that is.
fn expect<'a>(cases: impl IntoIterator<Item = (&'a str, Case, Class)>) {
    let wrong: Vec<String> = cases
        .into_iter()
        .filter_map(|(what, case, expected)| {
            let class = case.class();
            (class != expected).then(|| format!("{what}: {class:?} in place of {expected:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A limit that closes the account until then.
fn closed() -> Class {
    let resets_at = Some(orchestrator_core::WallTime(2_000_000));
    Class::UsageLimit { resets_at, window: Some("five_hour".to_owned()) }
}

const WALL: Option<Stop> = Some(Stop::WallLimit);

#[test]
fn row_1_what_this_side_ended_is_that_whatever_else_it_is() {
    let stopped = Class::Stopped(Stop::WallLimit);
    expect([
        ("nothing said", Case { stopped: WALL, ..said([]) }.exit(Exit::Code(143)), stopped.clone()),
        ("killed", Case { stopped: WALL, ..said([init()]) }.exit(Exit::Signal(9)), stopped.clone()),
        (
            "a failure",
            Case { stopped: WALL, ..failure(json!({ "api_error_status": 429 })) },
            stopped,
        ),
        (
            "its final line was there before",
            Case { was_ended_late: true, ..success(json!({})) }.exit(Exit::Unknown),
            Class::Success,
        ),
    ]);
}

#[test]
fn row_2_a_start_that_was_refused_says_why_and_exits_with_1() {
    let (set_up, gone) = (Class::Refused(Refusal::SetUp), Class::Refused(Refusal::NoConversation));
    let one = || said([]).exit(Exit::Code(1));
    let why = "no such file".to_owned();
    let told_gone = json!({
        "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 0,
        "errors": ["No conversation found with session ID: 0"],
    });
    let gone_text = "No conversation found with session ID: 0\n";
    expect([
        (
            "not started",
            said([]).exit(Exit::NotStarted { why }),
            Class::Refused(Refusal::NotStarted),
        ),
        ("unknown option", one().stderr("error: unknown option '--x'"), set_up.clone()),
        ("in use", one().stderr("Error: Session ID 0 is already in use."), set_up.clone()),
        ("schema", one().stderr("Error: --json-schema is not valid JSON"), set_up.clone()),
        ("settings", one().stderr("Error: Settings file not found: /x"), set_up.clone()),
        ("root", one().stderr("--dangerously-skip-permissions cannot be used with root"), set_up),
        ("gone", one().stderr(gone_text), gone.clone()),
        (
            "gone, told with stream output",
            said([told_gone.clone()]).exit(Exit::Code(1)).stderr(gone_text),
            gone,
        ),
        // What comes close.
        ("says nothing", one().stderr(" \n"), Class::Malformed),
        ("exit code 2", said([]).exit(Exit::Code(2)).stderr("error: x"), Class::Malformed),
        ("exit code 0", said([]).stderr("error: x"), Class::Malformed),
        ("a warning beside a failure", failure(json!({})).stderr("warning: x"), Class::Failed),
        (
            "broke down after it had begun",
            said([init()]).exit(Exit::Code(1)).stderr("TypeError: x is not a function"),
            Class::Malformed,
        ),
        (
            "broke down after the model had spoken",
            said([json!({ "type": "assistant", "message": { "content": [] } })])
                .exit(Exit::Code(1))
                .stderr("ENOSPC: no space left on device"),
            Class::Malformed,
        ),
        (
            "broke off after it had begun",
            said([init(), told_gone]).exit(Exit::Code(1)).stderr("warning: x"),
            Class::Failed,
        ),
        (
            "a failure before its first turn that names a status",
            said([json!({
                "type": "result", "subtype": "success", "is_error": true, "num_turns": 0,
                "api_error_status": 401,
            })])
            .exit(Exit::Code(1))
            .stderr("warning: x"),
            Class::Auth,
        ),
    ]);
}

#[test]
fn row_3_killed_is_what_a_signal_ended_before_the_final_line() {
    expect([
        ("143", said([init()]).exit(Exit::Code(143)), Class::Killed),
        ("129", said([init()]).exit(Exit::Code(129)), Class::Killed),
        ("137", said([]).exit(Exit::Code(137)).stderr("Killed"), Class::Killed),
        ("SIGKILL", said([init()]).exit(Exit::Signal(9)), Class::Killed),
        ("SIGTERM before it had a handler", said([]).exit(Exit::Signal(15)), Class::Killed),
        // What comes close.
        ("130", said([init()]).exit(Exit::Code(130)), Class::Malformed),
        ("a fault of its own", said([init()]).exit(Exit::Signal(11)), Class::Malformed),
        ("after its final line", success(json!({})).exit(Exit::Code(143)), Class::Success),
        ("after a failure", failure(json!({})).exit(Exit::Signal(9)), Class::Failed),
    ]);
}

#[test]
fn row_4_without_a_whole_final_line_nothing_is_believed() {
    let torn = r#"{"type":"result","subtype":"suc"#;
    expect([
        ("exit code 0, and nothing", said([]), Class::Malformed),
        ("exit code 0 after it had begun", said([init()]), Class::Malformed),
        ("exit code 1, silent", said([init()]).exit(Exit::Code(1)), Class::Malformed),
        ("unseen", said([init()]).exit(Exit::Unknown), Class::Malformed),
        ("the final line is torn", said([init()]).line(torn), Class::Malformed),
        ("a torn line after it", success(json!({})).line(torn), Class::Malformed),
        (
            "a torn line after a failure",
            failure(json!({ "api_error_status": 429 })).line(torn),
            Class::Malformed,
        ),
        // What comes close.
        (
            "a torn line before it",
            said([init()]).line(torn).line(r#"{"type":"result","is_error":false,"result":"ok"}"#),
            Class::Success,
        ),
        ("an empty line after it", success(json!({})).line(""), Class::Success),
        (
            "a line of another kind after it",
            success(json!({})).line(r#"{"type":"x"}"#),
            Class::Success,
        ),
        (
            "a line that this side tore",
            Case { was_ended_late: true, ..success(json!({})).line(torn) },
            Class::Success,
        ),
    ]);
}

#[test]
fn row_5_a_refused_window_is_a_usage_limit_and_all_else_a_request_to_slow_down() {
    let by_status = || failure(json!({ "api_error_status": 429 }));
    let by_error = || failure(json!({})).error("rate_limit");
    expect([
        ("status, refused", by_status().account("rejected"), closed()),
        ("error, refused", by_error().account("rejected"), closed()),
        ("status alone", by_status(), Class::RateLimited),
        ("error alone", by_error(), Class::RateLimited),
        ("a warning is no refusal", by_status().account("allowed_warning"), Class::RateLimited),
        ("allowed again", by_status().account("allowed").account("rejected"), Class::RateLimited),
        ("before the text of row 6", by_status().error("overloaded"), Class::RateLimited),
        // What comes close.
        ("served in spite of it", success(json!({})).account("rejected"), Class::Success),
        (
            "another failure of a closed account",
            failure(json!({})).account("rejected"),
            Class::Failed,
        ),
        ("an error that was got over", success(json!({})).error("rate_limit"), Class::Success),
    ]);
}

#[test]
fn rows_6_to_9_go_by_error_then_status_then_text() {
    let status = |status: u64| failure(json!({ "api_error_status": status }));
    let text = |text: &str| failure(json!({ "result": text }));
    let error = |error: &str| failure(json!({})).error(error);
    let dear = "Credit balance is too low";
    expect([
        ("500", status(500), Class::Overloaded),
        ("529", status(529), Class::Overloaded),
        ("599", status(599), Class::Overloaded),
        ("overloaded", error("overloaded"), Class::Overloaded),
        ("text of 6", text("API Error: Repeated 529 Overloaded errors"), Class::Overloaded),
        ("before row 9", status(503).error("server_error"), Class::Overloaded),
        ("600", status(600), Class::Failed),
        ("499", status(499), Class::Failed),
        ("a small letter", text("the method is overloaded"), Class::Failed),
        ("a success that says it", success(json!({ "result": "Overloaded" })), Class::Success),
        ("401", status(401), Class::Auth),
        ("403", status(403), Class::Auth),
        ("402", status(402), Class::Billing),
        ("authentication_failed", error("authentication_failed"), Class::Auth),
        ("oauth_org_not_allowed", error("oauth_org_not_allowed"), Class::Auth),
        ("billing_error", error("billing_error"), Class::Billing),
        ("text of 7", text("Not logged in · Please run /login"), Class::Auth),
        ("text of 7", text("Invalid API key · Fix external API key"), Class::Auth),
        (
            "low credit, told as 400",
            failure(json!({ "api_error_status": 400, "result": dear })),
            Class::Billing,
        ),
        ("a success that says it", success(json!({ "result": dear })), Class::Success),
        ("404", status(404), Class::UnknownModel),
        ("model_not_found", error("model_not_found"), Class::UnknownModel),
        ("405", status(405), Class::Failed),
        ("server_error", error("server_error"), Class::Network),
        ("unknown", error("unknown"), Class::Network),
        ("refused", text("API Error: Connection refused — (ECONNREFUSED)"), Class::Network),
        ("dropped", text("API Error: Connection dropped (ECONNRESET)."), Class::Network),
        ("as 2.1.197 says it", text("API Error: Unable to connect to API (X)"), Class::Network),
        ("out of reach", text("Can't reach the API server"), Class::Network),
        ("late", text("Request timed out"), Class::Network),
        ("garbled", text("API returned an empty or malformed response"), Class::Network),
        // With a status the service was reached.
        ("unknown, with a status", status(418).error("unknown"), Class::Failed),
        (
            "text, with a status",
            failure(json!({ "api_error_status": 422,
            "result": "Connection refused" })),
            Class::Failed,
        ),
        ("another error", error("invalid_request"), Class::Failed),
    ]);
}

#[test]
fn row_10_a_limit_of_the_run_comes_before_what_the_last_message_was() {
    let ended = |subtype: &str| failure(json!({ "subtype": subtype, "result": null }));
    expect([
        ("turns", ended("error_max_turns"), Class::Limit(Limit::Turns)),
        ("money", ended("error_max_budget_usd"), Class::Limit(Limit::Budget)),
        ("form", ended("error_max_structured_output_retries"), Class::Limit(Limit::Structure)),
        (
            "with a refusal",
            failure(json!({ "subtype": "error_max_turns", "stop_reason": "refusal" })),
            Class::Limit(Limit::Turns),
        ),
        (
            "whatever else it says",
            success(json!({ "subtype": "error_max_turns" })),
            Class::Limit(Limit::Turns),
        ),
        // What comes close.
        (
            "overloaded at its last turn",
            ended("error_max_turns").error("overloaded"),
            Class::Overloaded,
        ),
        ("a limit of tomorrow", ended("error_max_hours"), Class::Failed),
    ]);
}

#[test]
fn row_11_only_what_stays_so_goes_to_a_person() {
    let too_long = Class::Unservable(Unservable::PromptTooLong);
    let refusal = Class::Unservable(Unservable::Refusal);
    let text = "Prompt is too long · the request is ~212345 tokens";
    let broke_off = |fields: Value| {
        failure(merged(json!({ "subtype": "error_during_execution", "result": null }), &fields))
    };
    expect([
        (
            "by its reason",
            failure(json!({ "api_error_status": 400, "terminal_reason": "prompt_too_long" })),
            too_long.clone(),
        ),
        (
            "by its text",
            failure(json!({ "api_error_status": 400, "result": text })),
            too_long.clone(),
        ),
        (
            "a refusal",
            failure(json!({ "stop_reason": "refusal" })).error("invalid_request"),
            refusal.clone(),
        ),
        (
            "the longest answer",
            failure(json!({})).error("max_output_tokens"),
            Class::Unservable(Unservable::AnswerTooLong),
        ),
        // That it broke off is told only after all of these.
        (
            "too long, and broke off",
            broke_off(json!({ "api_error_status": 400, "terminal_reason": "prompt_too_long" })),
            too_long,
        ),
        ("refused, and broke off", broke_off(json!({ "stop_reason": "refusal" })), refusal),
        (
            "the longest answer, and broke off",
            broke_off(json!({})).error("max_output_tokens"),
            Class::Unservable(Unservable::AnswerTooLong),
        ),
        // What comes close.
        ("too long, without a status", failure(json!({ "result": text })), Class::Failed),
        (
            "too long, with another status",
            failure(json!({ "api_error_status": 413, "terminal_reason": "prompt_too_long" })),
            Class::Failed,
        ),
        ("invalid in another way", failure(json!({ "api_error_status": 400 })), Class::Failed),
        ("a success that speaks of it", success(json!({ "result": text })), Class::Success),
        ("another reason to stop", failure(json!({ "stop_reason": "max_tokens" })), Class::Failed),
        (
            "a long answer that was gone on with",
            success(json!({})).error("max_output_tokens"),
            Class::Success,
        ),
    ]);
}

#[test]
fn row_12_every_other_failure_is_tried_again() {
    let no_flag = |fields: Value| {
        said([init(), merged(json!({ "type": "result", "result": "ok" }), &fields)])
    };
    let broke_off = json!({ "subtype": "error_during_execution" });
    expect([
        ("broke off", failure(broke_off.clone()), Class::Failed),
        ("broke off, and calls it no error", success(broke_off), Class::Failed),
        ("a new kind", success(json!({ "subtype": "error_of_a_new_kind" })), Class::Failed),
        ("any failure", failure(json!({})), Class::Failed),
        ("exit code 0", failure(json!({})).exit(Exit::Code(0)), Class::Failed),
        ("does not say whether it failed", no_flag(json!({})), Class::Failed),
        ("says it in another way", no_flag(json!({ "is_error": "false" })), Class::Failed),
        ("before the question", Case { question: Some("?"), ..failure(json!({})) }, Class::Failed),
        // What comes close.
        ("exit code 1", success(json!({})).exit(Exit::Code(1)), Class::Success),
        ("a success by an unknown name", success(json!({ "subtype": "done" })), Class::Success),
    ]);
}

#[test]
fn rows_13_to_16_of_what_says_that_it_succeeded() {
    let denied = |fields: Value| {
        let denial = json!([{ "tool_name": "Bash", "tool_use_id": "t", "tool_input": {} }]);
        success(merged(json!({ "permission_denials": denial }), &fields))
    };
    let asked = |case: Case| Case { wants_structure: true, ..case };
    let question = |case: Case| Case { question: Some("which?"), ..case };
    let unchanged = |has_changes, case: Case| Case { has_changes, ..case };
    let answer = json!({ "structured_output": { "verdict": "APPROVE" } });
    let empty = || success(json!({ "result": "" }));
    let doubt = |doubt| Class::Suspicious(doubt);
    expect([
        ("a question", question(success(json!({}))), Class::Blocked),
        (
            "a question before all of these",
            question(asked(unchanged(Some(false), denied(json!({ "result": "" }))))),
            Class::Blocked,
        ),
        ("no answer of the form", asked(success(json!({}))), Class::Unstructured),
        ("none, and empty", asked(empty()), Class::Unstructured),
        ("null is none", asked(success(json!({ "structured_output": null }))), Class::Unstructured),
        ("empty", empty(), doubt(Doubt::EmptyAnswer)),
        ("nothing at all", success(json!({ "result": null })), doubt(Doubt::EmptyAnswer)),
        (
            "empty, with an answer of the form",
            asked(success(merged(json!({ "result": "" }), &answer))),
            doubt(Doubt::EmptyAnswer),
        ),
        (
            "denied, nothing done",
            unchanged(Some(false), denied(json!({}))),
            doubt(Doubt::DeniedWithoutChange),
        ),
        // What comes close.
        ("not asked for", success(json!({ "structured_output": null })), Class::Success),
        ("an answer of the form", asked(success(answer.clone())), Class::Success),
        (
            "the same without a text",
            asked(success(merged(json!({ "result": null }), &answer))),
            Class::Success,
        ),
        ("a space", success(json!({ "result": " " })), Class::Success),
        ("denied, something done", unchanged(Some(true), denied(json!({}))), Class::Success),
        ("denied, and nobody knows", unchanged(None, denied(json!({}))), Class::Success),
        (
            "nothing denied, nothing done",
            unchanged(Some(false), success(json!({}))),
            Class::Success,
        ),
        (
            "a list of denials without any",
            unchanged(Some(false), success(json!({ "permission_denials": [] }))),
            Class::Success,
        ),
    ]);
}

#[test]
fn of_several_final_lines_the_last_one_counts_and_denials_of_all() {
    let result = |fields: Value| {
        merged(json!({ "type": "result", "subtype": "success", "is_error": false }), &fields)
    };
    let good = || result(json!({ "result": "ok" }));
    let bad = || result(json!({ "is_error": true, "result": "Overloaded" }));
    let denied = json!({ "result": "ok",
        "permission_denials": [{ "tool_name": "Bash", "tool_use_id": "t" }] });
    let error = json!({ "type": "assistant", "error": "rate_limit", "message": {} });
    expect([
        ("better at last", said([init(), bad(), init(), good()]), Class::Success),
        ("worse at last", said([init(), good(), init(), bad()]), Class::Overloaded),
        (
            "denied at first",
            Case { has_changes: Some(false), ..said([init(), result(denied), init(), good()]) },
            Class::Suspicious(Doubt::DeniedWithoutChange),
        ),
        (
            "an error belongs to the final line after it",
            said([init(), error, good(), init(), result(json!({ "is_error": true }))]),
            Class::Failed,
        ),
    ]);
}
