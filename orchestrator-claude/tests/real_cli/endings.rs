//! Each way in which the real program can be brought to end, and the class that it is put into.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_claude::policy::Policy;
use orchestrator_claude::testing::{LoopbackApi, Reply, Rule};
use orchestrator_claude::{Account, ClaudeConfig, ClaudeReviewer, ClaudeRunner};
use orchestrator_core::port::{ActivityKind, Reviewer as _, Runner as _};
use orchestrator_core::{Cost, Interruption, Outcome, StageKind, Usd, Verdict};
use orchestrator_process::{
    Confinement, Confiner as _, Environment, LocalConfiner, Sandbox, SandboxMode,
};
use serde_json::{Value, json};

use crate::record::{is_recording, record};
use crate::support::{Place, change};
use crate::{interrupted, set_up};

/// What the record of the stage's first run says.
pub(crate) fn noted(place: &Place) -> Value {
    let record = std::fs::read_to_string(place.cx.dir.join("run.json")).unwrap();
    serde_json::from_str(&record).unwrap()
}

/// The class that it names.
pub(crate) fn class(place: &Place) -> String {
    noted(place)["class"].as_str().unwrap().to_owned()
}

/// How its process ended.
fn exit(place: &Place) -> String {
    noted(place)["exit"].as_str().unwrap().to_owned()
}

pub(crate) fn bash(command: &str) -> Reply {
    Reply::tool("Bash", json!({ "command": command, "description": "d" }))
}

/// Signs in with a token in place of a key.
pub(crate) fn by_token(config: &mut ClaudeConfig, api: &LoopbackApi) {
    config.environment = Environment::empty()
        .passing(["PATH"])
        .with("ANTHROPIC_BASE_URL", api.base_url())
        .with("CLAUDE_CODE_OAUTH_TOKEN", "test-token");
}

/// What an answer of the service makes of a run.
struct Scene {
    name: &'static str,
    reply: Reply,
    class: &'static str,
    expected: fn(&Outcome) -> bool,
}

fn is_fatal(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Fatal { .. })
}

fn is_crash(outcome: &Outcome) -> bool {
    interrupted(outcome) == Some(Interruption::Crashed)
}

fn is_network(outcome: &Outcome) -> bool {
    interrupted(outcome) == Some(Interruption::Network)
}

fn is_overload(outcome: &Outcome) -> bool {
    interrupted(outcome) == Some(Interruption::Overload)
}

fn scenes() -> Vec<Scene> {
    let scene = |name, reply, class, expected| Scene { name, reply, class, expected };
    vec![
        scene(
            "throttled",
            Reply::error(429).header("retry-after", "1"),
            "RateLimited",
            |outcome| interrupted(outcome) == Some(Interruption::RateLimited),
        ),
        scene("failing", Reply::error(500), "Overloaded", is_overload),
        scene("overloaded", Reply::error(529), "Overloaded", is_overload),
        scene("key-refused", Reply::error(401), "Auth", |outcome| {
            interrupted(outcome) == Some(Interruption::Auth)
        }),
        scene("forbidden", Reply::error(403), "Auth", |outcome| {
            interrupted(outcome) == Some(Interruption::Auth)
        }),
        scene(
            "no-credit",
            Reply::error(400).saying("Your credit balance is too low to access the Anthropic API."),
            "Billing",
            |outcome| interrupted(outcome) == Some(Interruption::Billing),
        ),
        scene("no-model", Reply::error(404).saying("model: none"), "UnknownModel", is_fatal),
        scene("dropped", Reply::dropped(), "Network", is_network),
        scene("proxy", Reply::raw(200, "text/html", "<html>busy</html>"), "Network", is_network),
        scene(
            "long-prompt",
            Reply::error(400).saying("prompt is too long: 250000 tokens > 200000 maximum"),
            "Unservable(PromptTooLong)",
            is_fatal,
        ),
        scene("refusal", Reply::text("No.").stopping("refusal"), "Unservable(Refusal)", is_fatal),
        scene(
            "long-answer",
            Reply::text("and").stopping("max_tokens"),
            "Unservable(AnswerTooLong)",
            is_fatal,
        ),
        scene("invalid", Reply::error(400).saying("no such field"), "Failed", is_crash),
        scene("unprocessable", Reply::error(422), "Failed", is_crash),
        scene("empty", Reply::empty(), "Suspicious(EmptyAnswer)", |outcome| {
            *outcome == Outcome::Passed
        }),
        scene("well", Reply::text("Done."), "Success", |outcome| *outcome == Outcome::Passed),
    ]
}

/// Plays a scene; nothing when there is no program.
async fn play(scene: Scene) {
    let Scene { name, reply, class: expected, expected: is_expected } = scene;
    let rules = vec![Rule::new(reply)];
    let Some((place, _api, config)) = set_up(StageKind::Run, name, rules) else { return };
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!(class(&place), expected, "{name}: {end:?}");
    assert!(is_expected(&end.outcome), "{name}: {end:?}");
    assert!(matches!(end.cost, Cost::Known(_)), "{name}: {end:?}");
    assert!(place.processes().is_empty(), "{name}");
}

#[tokio::test]
async fn every_answer_of_the_service_is_understood() {
    // Some wait before they try again, and leave the machine to others meanwhile.
    let mut playing = tokio::task::JoinSet::new();
    let turns = Arc::new(tokio::sync::Semaphore::new(4));
    for scene in scenes() {
        let turns = Arc::clone(&turns);
        playing.spawn(async move {
            let _turn = turns.acquire().await;
            play(scene).await;
        });
    }
    playing.join_all().await;
}

#[tokio::test]
async fn a_service_that_is_not_there_is_a_fault_of_the_network() {
    let Some((place, api, mut config)) = set_up(StageKind::Run, "refused", Vec::new()) else {
        return;
    };
    // The API has the port to itself, and listens at another address: nobody else can answer.
    let nowhere = api.base_url().replace("127.0.0.1", "127.0.0.77");
    config.environment.set("ANTHROPIC_BASE_URL", nowhere);
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!((class(&place).as_str(), is_network(&end.outcome)), ("Network", true), "{end:?}");
}

#[tokio::test]
async fn a_usage_limit_in_the_middle_of_the_work_is_waited_for_and_the_work_goes_on() {
    let write = json!({ "file_path": "${cwd}/a.txt", "content": "a\n" });
    let rules = vec![
        Rule::new(Reply::tool("Write", write)).turn(0),
        Rule::new(Reply::usage_limit("five_hour", "${now+3600}")).times(1),
        Rule::new(Reply::text("Finished.")).user("Go on with the task"),
    ];
    let name = "limit-midway";
    let Some((mut place, api, mut config)) = set_up(StageKind::Run, name, rules) else { return };
    by_token(&mut config, &api);
    let runner = ClaudeRunner::new(config);
    let end = runner.run(&place.cx).await;
    let Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: Some(_) } = end.outcome
    else {
        panic!("{end:?}")
    };
    // The same attempt, in the workspace as it was left, in the same conversation.
    place.next_grant(end.session.clone());
    let again = runner.run(&place.cx).await;
    assert_eq!((again.outcome, again.session), (Outcome::Passed, end.session));
    assert!(api.requests().last().unwrap().turn >= 1);
    assert!(place.file("a.txt").exists());
}

#[tokio::test]
async fn the_account_file_learns_how_much_of_its_windows_is_used() {
    let reply = Reply::text("Done.")
        .header("anthropic-ratelimit-unified-status", "allowed")
        .header("anthropic-ratelimit-unified-reset", "${now+7200}")
        .header("anthropic-ratelimit-unified-representative-claim", "five_hour")
        .header("anthropic-ratelimit-unified-5h-status", "allowed")
        .header("anthropic-ratelimit-unified-5h-reset", "${now+7200}")
        .header("anthropic-ratelimit-unified-5h-utilization", "0.85")
        .header("anthropic-ratelimit-unified-7d-status", "allowed")
        .header("anthropic-ratelimit-unified-7d-reset", "${now+302400}")
        .header("anthropic-ratelimit-unified-7d-utilization", "0.4");
    let rules = vec![Rule::new(reply)];
    let Some((place, api, mut config)) = set_up(StageKind::Run, "windows", rules) else { return };
    by_token(&mut config, &api);
    let account = Account::at(place.beside("account.json"));
    config.common.account = Some(account.clone().leaving(0.2));
    let runner = ClaudeRunner::new(config);
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    let state = account.state().unwrap();
    let windows: Vec<_> = state.windows().map(|(name, window)| (name, window.used)).collect();
    if noted(&place)["version"] == "2.1.197" {
        // It tells how much is used only once that is nearly all.
        return assert_eq!(windows, []);
    }
    assert_eq!(windows, [("five_hour", 0.85), ("seven_day", 0.4)]);
    // A fifth of each is the person's, and of one of them less is left.
    let end = runner.run(&place.cx).await;
    assert_eq!(interrupted(&end.outcome), Some(Interruption::UsageLimit), "{end:?}");
    assert_eq!(api.requests().len(), 1);
}

#[tokio::test]
async fn a_limit_of_turns_or_money_is_told_to_the_next_attempt() {
    let rules = || vec![Rule::new(bash("true")).turn(0), Rule::new(bash("echo x"))];
    let Some((place, _api, mut config)) = set_up(StageKind::Run, "turns", rules()) else { return };
    config.policy = Policy::sandboxed();
    config.common.turns_max = NonZeroU32::MIN.saturating_add(1);
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!(class(&place), "Limit(Turns)", "{end:?}");
    let Outcome::Rejected { feedback, .. } = end.outcome else { panic!("{:?}", end.outcome) };
    assert!(feedback.contains("limit of turns"), "{feedback}");

    let dear = vec![Rule::new(bash("true").tokens(40_000, 2_000))];
    let Some((place, _api, mut config)) = set_up(StageKind::Run, "money", dear) else { return };
    config.policy = Policy::sandboxed();
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!(class(&place), "Limit(Budget)", "{end:?}");
    let Outcome::Rejected { feedback, .. } = end.outcome else { panic!("{:?}", end.outcome) };
    assert!(feedback.contains("limit of money"), "{feedback}");
    // One turn past half a dollar, and so within the dollar that was reserved.
    let Cost::Known(cost) = end.cost else { panic!("{:?}", end.cost) };
    assert!(Usd(500_000) <= cost && cost <= place.cx.stage.cap, "{cost}");
}

#[tokio::test]
async fn a_verdict_that_is_never_as_asked_for_is_a_rejection() {
    let wrong = json!({ "verdict": "MAYBE" });
    let rules = vec![Rule::new(Reply::structured(wrong))];
    let Some((place, _api, config)) = set_up(StageKind::Review, "schema", rules) else { return };
    let review = ClaudeReviewer::new(config).review(&place.cx, &change()).await;
    assert_eq!(class(&place), "Limit(Structure)");
    let judgement = review.judgement.unwrap();
    assert!(judgement.feedback().contains("no verdict that could be read"), "{judgement:?}");
}

#[tokio::test]
async fn a_verdict_that_is_cut_off_is_asked_for_once_more_and_then_a_rejection() {
    let cut = Reply::text("{\"verdict\": \"APPROVE\", \"findi").stopping("max_tokens");
    let rules = vec![Rule::new(cut)];
    let Some((place, api, config)) = set_up(StageKind::Review, "cut", rules) else { return };
    let review = ClaudeReviewer::new(config).review(&place.cx, &change()).await;
    assert_eq!(class(&place), "Unservable(AnswerTooLong)");
    let judgement = review.judgement.unwrap();
    assert_eq!(judgement.verdict, Verdict::Reject);
    assert!(judgement.feedback().contains("ends in the middle of a verdict"), "{judgement:?}");
    let asked = api.requests();
    assert!(asked.last().unwrap().body.to_string().contains("could not be read"));
    assert!(place.cx.dir.join("run-2.json").exists() && !place.cx.dir.join("run-3.json").exists());
}

#[tokio::test]
async fn a_set_up_that_the_program_refuses_is_fatal() {
    let Some((place, _api, mut config)) = set_up(StageKind::Run, "option", Vec::new()) else {
        return;
    };
    config.leading_args = vec!["--no-such-option".into()];
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!((class(&place).as_str(), is_fatal(&end.outcome)), ("Refused(SetUp)", true));
    assert_eq!(end.cost, Cost::NONE);
}

/// When a program gets a signal.
#[derive(Clone, Copy)]
enum When {
    /// While a command of its agent runs.
    Works,
    /// While it waits for an answer of the service.
    Waits,
}

/// Sends a signal to the program; gives its place and how the stage ended.
async fn signalled(signal: &str, task: &str, when: When) -> Option<(Place, Outcome)> {
    let reply = match when {
        When::Works => bash("touch started; tail -f /dev/null"),
        When::Waits => Reply::hang(),
    };
    let (place, api, mut config) = set_up(StageKind::Run, task, vec![Rule::new(reply)])?;
    config.policy = Policy::sandboxed();
    let (said, started) = (Arc::clone(&place.said), place.file("started"));
    let signal = signal.to_owned();
    let killer = tokio::task::spawn_blocking(move || {
        let has_begun = || match when {
            When::Works => started.exists(),
            When::Waits => !api.requests().is_empty(),
        };
        while !has_begun() {
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_recording() {
            // What comes at once is not what a person sees who presses a key after a while.
            std::thread::sleep(Duration::from_secs(5));
        }
        let pid = said.lock().unwrap().iter().find_map(|it| {
            if let ActivityKind::Started { pid, .. } = it { Some(*pid) } else { None }
        });
        let mut kill = std::process::Command::new("kill");
        let killed = kill.args([signal, pid.unwrap().to_string()]).status().unwrap();
        assert!(killed.success());
        // It answers nothing until then.
        api
    });
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    drop(killer.await.unwrap());
    // The command that it had started would live on, and does not.
    assert!(place.processes().is_empty(), "{:?}", place.processes());
    Some((place, end.outcome))
}

#[tokio::test]
async fn a_program_that_somebody_kills_is_interrupted_and_its_commands_end_with_it() {
    for (signal, task) in [("-KILL", "killed"), ("-TERM", "terminated")] {
        let Some((place, outcome)) = signalled(signal, task, When::Works).await else { return };
        assert_eq!(class(&place), "Killed", "{signal}");
        assert_eq!(interrupted(&outcome), Some(Interruption::Killed), "{signal}");
    }
}

#[tokio::test]
async fn a_program_that_breaks_down_says_nothing_and_is_not_believed() {
    let Some((place, outcome)) = signalled("-QUIT", "breaks", When::Waits).await else { return };
    assert_eq!(class(&place), "Malformed", "{}", exit(&place));
    assert_eq!(interrupted(&outcome), Some(Interruption::Crashed));
}

/// Looks at how an interrupted program was understood; says whether it still wrote a final line.
/// The moment decides that: it mostly does soon after it has begun something, and not when it has
/// waited for seconds.
fn is_interrupted(place: &Place, outcome: &Outcome) -> bool {
    let output = std::fs::read_to_string(place.cx.dir.join("stdout.jsonl")).unwrap();
    let has_final_line = output.contains(r#""type":"result""#);
    assert_eq!(class(place), if has_final_line { "Failed" } else { "Malformed" });
    assert_eq!(interrupted(outcome), Some(Interruption::Crashed));
    has_final_line
}

#[tokio::test]
async fn an_exit_code_of_0_after_an_interrupt_is_no_success() {
    let Some((place, outcome)) = signalled("-INT", "waits", When::Waits).await else { return };
    assert_eq!(exit(&place), "Code(0)");
    if !is_interrupted(&place, &outcome) {
        record(&place, "sigint_api");
    }
}

#[tokio::test]
async fn a_program_that_is_interrupted_at_its_work_is_not_believed_either() {
    let Some((place, outcome)) = signalled("-INT", "works", When::Works).await else { return };
    is_interrupted(&place, &outcome);
}

#[tokio::test]
async fn denied_tools_without_a_change_are_doubted_and_noticed() {
    let write = json!({ "file_path": "/etc/orchestrator-test", "content": "a\n" });
    let rules =
        vec![Rule::new(Reply::tool("Write", write)).turn(0), Rule::new(Reply::text("Written."))];
    let Some((place, _api, config)) = set_up(StageKind::Run, "denied", rules) else { return };
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!(end.outcome, Outcome::Passed);
    assert_eq!(class(&place), "Suspicious(DeniedWithoutChange)");
    let said = place.said.lock().unwrap();
    let noticed = |text: &str| said.contains(&ActivityKind::Said(format!("noticed: {text}")));
    assert!(noticed("it said it was finished and had changed no file"), "{said:#?}");
    assert!(noticed("uses of tools that were not allowed: 1"), "{said:#?}");
}

#[tokio::test]
async fn a_question_that_the_documents_answer_is_settled_by_a_retry() {
    let write = json!({ "file_path": "${cwd}/BLOCKED.md", "content": "Which port?\n" });
    let rules = vec![
        Rule::new(Reply::text("Port 80 it is.")).user("the port is 80"),
        Rule::new(Reply::tool("Write", write)).turn(0).times(1),
        Rule::new(Reply::text("I am blocked.")).turn(1).times(1),
    ];
    let Some((mut place, _api, config)) = set_up(StageKind::Run, "asks", rules) else { return };
    let runner = ClaudeRunner::new(config);
    let end = runner.run(&place.cx).await;
    assert_eq!(end.outcome, Outcome::Question { text: "Which port?".to_owned() });
    // A person completes the documents; the retry is a new attempt.
    std::fs::write(place.file("DECISIONS.md"), "Decided: the port is 80.\n").unwrap();
    place.next_grant(None);
    place.cx.attempt += 1;
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
}

#[tokio::test]
async fn work_that_is_left_running_holds_nothing_up_and_is_ended() {
    let rules = vec![
        Rule::new(bash("setsid sleep 3333 >/dev/null 2>&1 & echo left")).turn(0),
        Rule::new(Reply::text("Done.")),
    ];
    let Some((place, _api, mut config)) = set_up(StageKind::Run, "leaves", rules) else { return };
    config.policy = Policy::sandboxed();
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!(end.outcome, Outcome::Passed);
    assert!(place.processes().is_empty(), "{:?}", place.processes());
}

#[tokio::test]
async fn a_conversation_that_has_become_too_long_is_begun_anew() {
    let too_long = Reply::error(400).saying("prompt is too long: 250000 tokens > 200000 maximum");
    let rules = vec![
        Rule::new(too_long).user("Go on with the task"),
        Rule::new(Reply::text("Done.")).user("# Task long"),
    ];
    let Some((mut place, api, config)) = set_up(StageKind::Run, "long", rules) else { return };
    let runner = ClaudeRunner::new(config);
    let first = runner.run(&place.cx).await;
    place.next_attempt("it failed");
    let second = runner.run(&place.cx).await;
    assert_eq!(second.outcome, Outcome::Passed);
    assert_ne!(second.session, first.session);
    let last = api.requests().pop().unwrap();
    assert!(last.turn == 0 && last.body.to_string().contains("it failed"), "{}", last.turn);
}

#[tokio::test]
async fn in_a_sandbox_the_kernel_keeps_it_from_writing_elsewhere() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("escaped");
    let rules = vec![
        Rule::new(bash("echo inside > made.txt && mktemp")).turn(0),
        Rule::new(bash(&format!("echo outside > {}", target.display()))).turn(1),
        Rule::new(Reply::text("Done.")),
    ];
    let Some((place, api, mut config)) = set_up(StageKind::Run, "sandbox", rules) else { return };
    config.policy = Policy::sandboxed();
    config.common.confinement = Confinement::none().with_sandbox(Sandbox::new(SandboxMode::Prefer));
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!(end.outcome, Outcome::Passed);
    assert_eq!(std::fs::read_to_string(place.file("made.txt")).unwrap(), "inside\n");
    let last = api.requests().last().unwrap().body["messages"].to_string();
    if LocalConfiner::detected().abilities().write.is_ok() {
        assert!(!target.exists(), "{last}");
        assert!(last.contains("Permission denied"), "{last}");
    }
}
