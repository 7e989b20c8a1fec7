//! Endings and costs from output that two versions of the real program wrote.

use std::path::Path;

use orchestrator_claude::agent::Prices;
use orchestrator_claude::claude::stream::Transcript;
use orchestrator_claude::claude::{Ending, classify};
use orchestrator_claude::outcome::{Class, Doubt, Exit, Limit, Refusal, Stop, Unservable};
use orchestrator_core::{Cost, Interruption, Outcome, Usd, WallTime};

const OLD: &str = "2.1.197";
const NEW: &str = "2.1.332";

fn recorded(version: &str, scene: &str) -> Transcript {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(version)
        .join(format!("{scene}.jsonl"));
    Transcript::of(&std::fs::read(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display())))
}

fn ending(transcript: &Transcript, exit: i32) -> Ending<'_> {
    Ending {
        exit: Exit::Code(exit),
        stopped: None,
        was_ended_late: false,
        transcript,
        stderr: "",
        wants_structure: false,
        question: None,
        has_changes: Some(true),
    }
}

fn class(version: &str, scene: &str, exit: i32) -> Class {
    classify(&ending(&recorded(version, scene), exit))
}

fn usage_limit(resets_at_s: u64, window: &str) -> Class {
    Class::UsageLimit {
        resets_at: Some(WallTime(resets_at_s * 1_000)),
        window: Some(window.to_owned()),
    }
}

#[test]
fn every_recorded_ending_is_put_into_its_class_in_both_versions() {
    let cases: &[(&str, i32, Class)] = &[
        ("sigterm_bash", 143, Class::Killed),
        ("sigint_api", 0, Class::Malformed),
        ("429_plain_retries2", 1, Class::RateLimited),
        ("529_retries2", 1, Class::Overloaded),
        ("500_retries2", 1, Class::Overloaded),
        ("401_retries1", 1, Class::Auth),
        ("oauth_401", 1, Class::Auth),
        ("403", 1, Class::Auth),
        ("no_key", 1, Class::Auth),
        ("credit_low", 1, Class::Billing),
        ("model_404", 1, Class::UnknownModel),
        ("refused", 1, Class::Network),
        ("hang_api_timeout", 1, Class::Network),
        ("drop_before", 1, Class::Network),
        ("malformed_html", 1, Class::Network),
        ("max_turns", 1, Class::Limit(Limit::Turns)),
        ("max_budget", 1, Class::Limit(Limit::Budget)),
        ("schema_never_valid", 1, Class::Limit(Limit::Structure)),
        ("prompt_too_long", 1, Class::Unservable(Unservable::PromptTooLong)),
        ("refusal", 1, Class::Unservable(Unservable::Refusal)),
        ("max_tokens", 1, Class::Unservable(Unservable::AnswerTooLong)),
        ("400_other", 1, Class::Failed),
        ("sigint_bash", 0, Class::Failed),
        ("empty_content", 0, Class::Suspicious(Doubt::EmptyAnswer)),
        ("529_twice_then_ok", 0, Class::Success),
        ("schema_ok_stream", 0, Class::Success),
        ("background_finishes", 0, Class::Success),
        ("subagent", 0, Class::Success),
        ("deny_gitpush_yolo", 0, Class::Success),
    ];
    for version in [OLD, NEW] {
        for (scene, exit, expected) in cases {
            assert_eq!(&class(version, scene, *exit), expected, "{version} {scene}");
        }
    }
}

#[test]
fn each_of_the_sixteen_classes_has_a_recorded_ending_in_both_versions() {
    for version in [OLD, NEW] {
        let of = |scene: &str| recorded(version, scene);
        let (killed, gone) = (of("sigterm_bash"), of("no_conversation"));
        let (text_only, denied, well) =
            (of("schema_never_text"), of("deny_gitpush_yolo"), of("529_twice_then_ok"));
        let stderr = "No conversation found with session ID: 0\n";
        let rows = [
            Ending { stopped: Some(Stop::WallLimit), ..ending(&killed, 143) },
            Ending { stderr, ..ending(&gone, 1) },
            ending(&killed, 143),
            ending(&of("sigint_api"), 0),
            ending(&of("429_unified_oauth"), 1),
            ending(&of("529_retries2"), 1),
            ending(&of("401_retries1"), 1),
            ending(&of("model_404"), 1),
            ending(&of("refused"), 1),
            ending(&of("max_turns"), 1),
            ending(&of("refusal"), 1),
            ending(&of("sigint_bash"), 0),
            Ending { question: Some("which?"), ..ending(&well, 0) },
            Ending { wants_structure: true, ..ending(&text_only, 0) },
            Ending { has_changes: Some(false), ..ending(&denied, 0) },
            ending(&well, 0),
        ]
        .map(|ending| classify(&ending).row());
        assert_eq!(rows.to_vec(), (1..=16).collect::<Vec<u8>>(), "{version}");
    }
}

#[test]
fn a_usage_limit_carries_the_time_at_which_the_window_reopens() {
    let cases = [
        (NEW, "429_unified_oauth", usage_limit(1_795_969_431, "five_hour")),
        (OLD, "429_unified_oauth", usage_limit(1_795_969_696, "five_hour")),
        (NEW, "429_weekly_oauth", usage_limit(1_796_264_635, "seven_day")),
        (OLD, "429_weekly_oauth", usage_limit(1_796_264_902, "seven_day")),
    ];
    for (version, scene, expected) in cases {
        let transcript = recorded(version, scene);
        let ending = ending(&transcript, 1);
        let class = classify(&ending);
        assert_eq!(class, expected, "{version} {scene}");
        let Class::UsageLimit { resets_at, .. } = class.clone() else { unreachable!() };
        assert_eq!(
            class.outcome(&ending.told()),
            Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: resets_at }
        );
    }
    // One that comes in the middle of the work is the same.
    for version in [OLD, NEW] {
        assert_eq!(class(version, "429_midrun_oauth", 1).row(), 5, "{version}");
    }
}

#[test]
fn a_time_that_cannot_be_meant_in_seconds_is_one_in_milliseconds_or_none() {
    let resets_at = |said: &str| {
        let info = format!(r#"{{"status":"rejected","resetsAt":{said}}}"#);
        let line = format!(r#"{{"type":"rate_limit_event","rate_limit_info":{info}}}"#);
        Transcript::of(line.as_bytes()).limit().unwrap().resets_at
    };
    for said in ["1796000000", "1796000000.25", "1796000000000"] {
        assert_eq!(resets_at(said), Some(WallTime(1_796_000_000_000)), "{said}");
    }
    for said in ["-5", "\"soon\"", "null", "1e300", "[]"] {
        assert_eq!(resets_at(said), None, "{said}");
    }
}

#[test]
fn what_is_asked_besides_decides_about_a_success() {
    for version in [OLD, NEW] {
        let text_only = recorded(version, "schema_never_text");
        let asked = Ending { wants_structure: true, ..ending(&text_only, 0) };
        assert_eq!(classify(&asked), Class::Unstructured, "{version}");

        let denied = recorded(version, "deny_gitpush_yolo");
        let no_changes = Ending { has_changes: Some(false), ..ending(&denied, 0) };
        assert_eq!(classify(&no_changes), Class::Suspicious(Doubt::DeniedWithoutChange));

        let question = Ending { question: Some("which?"), ..ending(&denied, 0) };
        assert_eq!(classify(&question), Class::Blocked);
        let text = "which?".to_owned();
        assert_eq!(Class::Blocked.outcome(&question.told()), Outcome::Question { text });

        // A failure of the service comes before the question.
        let overloaded = recorded(version, "529_retries2");
        let question = Ending { question: Some("which?"), ..ending(&overloaded, 1) };
        assert_eq!(classify(&question), Class::Overloaded);
    }
}

#[test]
fn without_a_final_line_the_exit_and_standard_error_decide() {
    let silent = Transcript::new();
    let with = |exit, stderr| classify(&Ending { exit, stderr, ..ending(&silent, 0) });
    let set_up = Class::Refused(Refusal::SetUp);
    for stderr in [
        "error: unknown option '--no-such-flag'\n",
        "--dangerously-skip-permissions cannot be used with root/sudo privileges for security \
         reasons\n",
        "Error: piped stdin input exceeds 10MB. Pass large content as a file path in your prompt \
         instead.\n",
    ] {
        assert_eq!(with(Exit::Code(1), stderr), set_up);
    }
    assert_eq!(
        with(Exit::Code(1), "No conversation found with session ID: 0\n"),
        Class::Refused(Refusal::NoConversation)
    );
    // The same with stream output.
    let gone = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,
        "errors":["No conversation found with session ID: 0"]}"#;
    let mut told = Transcript::new();
    told.push_line(gone.replace('\n', " ").as_bytes());
    let stderr = "No conversation found with session ID: 0\n";
    let told = Ending { stderr, ..ending(&told, 1) };
    assert_eq!(classify(&told), Class::Refused(Refusal::NoConversation));
    let not_started = Exit::NotStarted { why: "no such file".to_owned() };
    assert_eq!(with(not_started, ""), Class::Refused(Refusal::NotStarted));
    for exit in [Exit::Code(143), Exit::Code(129), Exit::Code(137), Exit::Signal(9)] {
        assert_eq!(with(exit, "words"), Class::Killed);
    }
    for exit in [Exit::Code(0), Exit::Code(1), Exit::Code(7), Exit::Unknown] {
        assert_eq!(with(exit, ""), Class::Malformed);
    }
    // That this side ended it comes before all else.
    let stopped = Ending { stopped: Some(Stop::Silence), ..ending(&silent, 143) };
    assert_eq!(classify(&stopped), Class::Stopped(Stop::Silence));
}

#[test]
fn a_torn_last_line_is_no_success_unless_this_side_tore_it() {
    let mut transcript = recorded(NEW, "subagent");
    transcript.push_line(br#"{"type":"system","sub"#);
    assert_eq!(classify(&ending(&transcript, 0)), Class::Malformed);
    let late = Ending { was_ended_late: true, ..ending(&transcript, 143) };
    assert_eq!(classify(&late), Class::Success);
}

#[test]
fn lines_that_are_torn_unknown_or_no_objects_lose_only_themselves() {
    let mut transcript = Transcript::new();
    for line in [
        r#"{"session_id":"s","type":"system","claude_code_version":"9.9.9","subtype":"init"}"#,
        r#"{"type":"assist{"type":"rate_limit_event","rate_limit_info":{}}"#,
        r#"{"type":"of_tomorrow","subtype":7}"#,
        r#"[1,2]"#,
        "",
        r#"{"type":"assistant","message":"no object"}"#,
        r#"{"type":"result","is_error":"no flag"}"#,
    ] {
        transcript.push_line(line.as_bytes());
    }
    assert_eq!((transcript.torn_lines(), transcript.is_last_line_torn()), (2, false));
    assert_eq!(transcript.version(), Some("9.9.9"));
    // A final line that does not say whether it is a failure is one.
    assert_eq!(classify(&ending(&transcript, 0)), Class::Failed);
}

#[test]
fn the_cost_is_that_of_this_run_in_both_versions() {
    let none = Prices::default();
    let cost = |version, scene| recorded(version, scene).cost(&none);
    let first = [(NEW, 6_000), (OLD, 7_500)];
    for (version, micros) in first {
        let known = Cost::Known(Usd(micros));
        assert_eq!(cost(version, "resume_cost_stream.1"), known, "{version}");
        // The new version's total has doubled then, the old one's has not.
        assert_eq!(cost(version, "resume_cost_stream.2"), known, "{version}");
    }
    // A fork of a conversation that costs as much again: $0.54, and $0.55 by the old prices.
    assert_eq!(cost(OLD, "fork_cost_stream"), Cost::Known(Usd(550_000)));
    assert_eq!(cost(NEW, "fork_cost_stream"), Cost::Known(Usd(540_000)));
    // Several final lines.
    assert_eq!(cost(NEW, "background_finishes"), Cost::Known(Usd(2_400)));
    assert_eq!(cost(OLD, "background_finishes"), Cost::Known(Usd(3_000)));
    assert_eq!(cost(NEW, "subagent"), Cost::Known(Usd(3_200)));
    // One turn past the limit of $0.30.
    assert_eq!(cost(NEW, "max_budget"), Cost::Known(Usd(420_000)));
    assert_eq!(cost(OLD, "max_budget"), Cost::Known(Usd(350_000)));
    assert_eq!(cost(NEW, "401_retries1"), Cost::Known(Usd::ZERO));
}

#[test]
fn a_run_that_was_ended_costs_at_least_what_its_messages_cost() {
    let prices = Prices { input: Usd::dollars(4), output: Usd::dollars(20), ..Prices::default() };
    for version in [OLD, NEW] {
        let killed = recorded(version, "sigterm_bash");
        // One message: 100 tokens sent, 1 known to be received.
        assert_eq!(killed.cost(&prices), Cost::AtLeast(Usd(420)), "{version}");
        assert_eq!(killed.cost(&Prices::default()), Cost::AtLeast(Usd::ZERO));
        assert_eq!(killed.tokens().input, 100);
    }
    // Messages after the last final line make its total a lower bound.
    let mut transcript = recorded(NEW, "resume_cost_stream.1");
    let message = r#"{"type":"assistant","message":{"id":"m","usage":{"input_tokens":1000}}}"#;
    transcript.push_line(message.as_bytes());
    transcript.push_line(message.as_bytes());
    assert_eq!(transcript.cost(&prices), Cost::AtLeast(Usd(10_000)));
}

#[test]
fn a_cost_that_is_told_out_of_order_or_in_part_is_never_too_low() {
    let cost = |finals: &[&str]| {
        let lines: Vec<String> = finals
            .iter()
            .map(|fields| format!(r#"{{"type":"result","is_error":false,"result":"ok",{fields}}}"#))
            .collect();
        Transcript::of(lines.join("\n").as_bytes()).cost(&Prices::default())
    };
    let known = |micros| Cost::Known(Usd(micros));
    let totals = [r#""total_cost_usd":0.5"#, r#""total_cost_usd":0.2"#];
    assert_eq!(cost(&totals), known(500_000));
    let part = |models: &str| {
        format!(r#""total_cost_usd":0.5,"model_usage_since_last_result":{{{models}}}"#)
    };
    assert_eq!(cost(&[&part(r#""a":{"costUSD":0.1},"b":{"costUSD":0.2}"#)]), known(300_000));
    assert_eq!(cost(&[&part("")]), known(0));
    // Of one of the models nobody knows.
    for unknown in [r#"{"cost":0.2}"#, "{}", "0.2", r#"{"costUSD":-1}"#, r#"{"costUSD":"0.2"}"#] {
        let models = format!(r#""a":{{"costUSD":0.1}},"b":{unknown}"#);
        assert_eq!(cost(&[&part(&models)]), known(500_000), "{unknown}");
    }
}

#[test]
fn of_two_recorded_final_lines_the_last_one_is_the_answer() {
    for version in [OLD, NEW] {
        let transcript = recorded(version, "background_finishes");
        let last = transcript.last().and_then(|last| last.result.as_deref());
        assert_eq!((transcript.finals(), last), (2, Some("second answer, turn 2")), "{version}");
    }
    // What comes after the first one may be cut off by this side, and does not undo it.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/2.1.332");
    let output = std::fs::read_to_string(path.join("background_finishes.jsonl")).unwrap();
    let end = output.find(r#""result":"started it""#).unwrap();
    let end = end + output[end..].find('\n').unwrap();
    let mut transcript = Transcript::of(&output.as_bytes()[..end + 40]);
    assert!(transcript.is_last_line_torn());
    let late = Ending { was_ended_late: true, ..ending(&transcript, 143) };
    assert_eq!(classify(&late), Class::Success);
    transcript.push_line(b"{}");
    assert_eq!(transcript.last().and_then(|last| last.result.as_deref()), Some("started it"));
}

#[test]
fn the_rest_of_what_a_run_says_is_kept() {
    let denied = recorded(NEW, "deny_gitpush_yolo");
    let denials: Vec<_> = denied.denials().collect();
    assert_eq!(denials.len(), 1);
    assert!(denials[0].tool == "Bash" && denials[0].input.contains("git push"), "{denials:?}");
    assert_eq!(denied.version(), Some(NEW));
    assert!(denied.session().is_some() && denied.model().is_some());
    for version in [OLD, NEW] {
        assert_eq!(recorded(version, "529_twice_then_ok").retries(), 2, "{version}");
        assert_eq!(recorded(version, "background_finishes").finals(), 2, "{version}");
    }
    let window = recorded(NEW, "200_allowed_oauth");
    let limit = window.limit().expect("an event tells of it");
    assert!(!limit.is_rejected);
    let week = limit.windows["seven_day"];
    assert!((0.39..0.41).contains(&week.used) && week.resets_at.is_some(), "{week:?}");
}
