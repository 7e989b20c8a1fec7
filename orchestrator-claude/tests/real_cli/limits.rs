//! Runs that this side ends, and rights: commands that go on, work that is left, who it runs as.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use orchestrator_claude::policy::Policy;
use orchestrator_claude::testing::{Reply, Rule};
use orchestrator_claude::{ClaudeConfig, ClaudeRunner};
use orchestrator_core::port::Runner as _;
use orchestrator_core::{Cost, Interruption, Outcome, StageEnd, StageKind, Usd};
use serde_json::{Value, json};

use crate::endings::{bash, class, noted};
use crate::support::Place;
use crate::{claude, interrupted, set_up};

/// Runs an agent whose command never ends, with a process in a session of its own beside it, under a
/// limit that `set` puts there. A machine that was too busy for the command to begin within the limit
/// gets a longer one.
async fn ended_at_work(
    task: &str,
    set: fn(&mut Place, &mut ClaudeConfig, Duration),
) -> Option<(Place, StageEnd)> {
    for seconds in [4, 24, 144] {
        let command = "touch started; setsid sleep 3333 & sleep 3333";
        let task = format!("{task}-{seconds}");
        let rules = vec![Rule::new(bash(command))];
        let (mut place, _api, mut config) = set_up(StageKind::Run, &task, rules)?;
        config.policy = Policy::sandboxed();
        set(&mut place, &mut config, Duration::from_secs(seconds));
        let end = ClaudeRunner::new(config).run(&place.cx).await;
        assert!(place.processes().is_empty(), "{:?}", place.processes());
        if place.file("started").exists() {
            return Some((place, end));
        }
    }
    panic!("no command began within 144 s")
}

#[tokio::test]
async fn a_command_that_never_ends_is_ended_with_its_agent_when_the_time_is_up() {
    let limited = ended_at_work("wall", |place, _, limit| place.cx.stage.timeout = limit).await;
    let Some((place, end)) = limited else { return };
    assert_eq!(class(&place), "Stopped(WallLimit)");
    let Outcome::Rejected { feedback, .. } = end.outcome else { panic!("{:?}", end.outcome) };
    assert!(feedback.contains("ran out of time"), "{feedback}");
    assert!(matches!(end.cost, Cost::AtLeast(_)), "{:?}", end.cost);
}

#[tokio::test]
async fn a_command_that_says_nothing_is_ended_with_its_agent_when_it_was_silent_too_long() {
    let limited =
        ended_at_work("silence", |_, config, limit| config.common.silence = Some(limit)).await;
    let Some((place, end)) = limited else { return };
    assert_eq!(class(&place), "Stopped(Silence)");
    assert_eq!(interrupted(&end.outcome), Some(Interruption::Silence));
    // What the attempt was about is known, and it can be taken up.
    assert!(end.session.is_some());
}

/// Lets the agent start commands in the background, which its environment keeps it from.
fn allow_background(config: &mut ClaudeConfig) {
    let program = std::mem::replace(&mut config.program, "/usr/bin/env".into());
    let words = ["-u".into(), "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS".into(), program.into()];
    config.leading_args.splice(0..0, words);
}

fn in_background(command: &str) -> Reply {
    let input = json!({ "command": command, "description": "d", "run_in_background": true });
    Reply::tool("Bash", input)
}

/// Whether the program stays for what runs in the background; the older one ends that by itself.
fn waits_for_background(place: &Place) -> bool {
    noted(place)["version"] != "2.1.197"
}

#[tokio::test]
async fn a_program_that_goes_on_after_its_final_line_is_ended_and_what_it_said_counts() {
    let rules = vec![
        Rule::new(in_background("touch started; sleep 3333")).turn(0),
        Rule::new(Reply::text("Done.")),
    ];
    let Some((place, _api, mut config)) = set_up(StageKind::Run, "lingers", rules) else { return };
    allow_background(&mut config);
    config.policy = Policy::sandboxed();
    config.common.final_grace = Duration::from_secs(1);
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!((&end.outcome, class(&place).as_str()), (&Outcome::Passed, "Success"));
    assert!(matches!(end.cost, Cost::Known(_)), "{:?}", end.cost);
    assert_eq!(noted(&place)["ended_after_final_line"], Value::Bool(waits_for_background(&place)));
    assert!(place.processes().is_empty(), "{:?}", place.processes());
}

#[tokio::test]
async fn work_in_the_background_that_ends_is_waited_for_and_the_last_final_line_counts() {
    let rules = vec![
        Rule::new(in_background("until [ -e said ]; do sleep 0.1; done")).turn(0),
        Rule::new(Reply::text("I wrote src/first.rs.")).turn(1),
        Rule::new(Reply::text("I wrote src/last.rs.")),
    ];
    let Some((place, _api, mut config)) = set_up(StageKind::Run, "several", rules) else { return };
    allow_background(&mut config);
    config.policy = Policy::sandboxed();
    let (output, said) = (place.cx.dir.join("stdout.jsonl"), place.file("said"));
    let has_final_line = move || {
        std::fs::read_to_string(&output).is_ok_and(|text| text.contains(r#""type":"result""#))
    };
    let lets_go = tokio::task::spawn_blocking(move || {
        while !has_final_line() {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::fs::write(said, "").unwrap();
    });
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    lets_go.await.unwrap();
    assert_eq!((&end.outcome, class(&place).as_str()), (&Outcome::Passed, "Success"));
    if !waits_for_background(&place) {
        return;
    }
    // Of its two reports the one that counts names a file that is not there; the cost is of both.
    let record = noted(&place);
    assert_eq!(
        (&record["final_lines"], &record["ended_after_final_line"]),
        (&json!(2), &json!(false))
    );
    assert!(record["signals"].to_string().contains("src/last.rs"), "{:#}", record["signals"]);
    assert!(!record["signals"].to_string().contains("src/first.rs"), "{:#}", record["signals"]);
    let known = [Usd(15_000), Usd(18_750)].map(Cost::Known);
    assert!(known.contains(&end.cost), "{:?}", end.cost);
}

#[tokio::test]
async fn nothing_is_offered_that_goes_on_in_the_background_or_in_another_tree() {
    let rules = vec![Rule::new(Reply::text("Done."))];
    let Some((place, api, mut config)) = set_up(StageKind::Run, "front", rules) else { return };
    config.policy = Policy::sandboxed();
    config.policy.deny.clear();
    ClaudeRunner::new(config).run(&place.cx).await;
    let body = &api.requests()[0].body;
    let tools = body["tools"].as_array().unwrap();
    let bash = tools.iter().find(|tool| tool["name"] == "Bash").unwrap();
    assert!(!bash.to_string().contains("run_in_background"), "{bash:#}");
    // Some are not in the request, and can still be found by the model.
    let output = std::fs::read_to_string(place.cx.dir.join("stdout.jsonl")).unwrap();
    let begin = output.lines().find(|line| line.contains(r#""subtype":"init""#)).unwrap();
    let begin: Value = serde_json::from_str(begin).unwrap();
    let has = |name: &str| begin["tools"].as_array().unwrap().contains(&json!(name));
    assert!(has("Bash") && has("CronDelete"), "{begin:#}");
    for name in ["CronCreate", "EnterWorktree", "Monitor", "ScheduleWakeup", "Workflow"] {
        assert!(!has(name), "{name}");
    }
    assert_eq!(std::fs::read_to_string(place.cx.dir.join("stderr.txt")).unwrap(), "");
}

#[tokio::test]
async fn p10_a_turn_that_costs_more_than_is_held_back_is_booked_in_full() {
    let dear = Rule::new(bash("true").tokens(400_000, 2_000));
    let Some((place, api, config)) = set_up(StageKind::Run, "dear", vec![dear]) else { return };
    let held_back = config.common.turn_overshoot;
    let end = ClaudeRunner::new(config).run(&place.cx).await;
    assert_eq!(class(&place), "Limit(Budget)");
    let Cost::Known(cost) = end.cost else { panic!("{:?}", end.cost) };
    // A dollar was reserved, and the one turn cost more.
    assert_eq!(api.requests().len(), 1);
    assert!(cost > place.cx.stage.cap && cost > held_back.plus(Usd::dollars(1)), "{cost}");
}

/// The user as whom a test is started once more, when root runs it.
const SOMEBODY: &str = "65534";

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

#[tokio::test]
async fn as_root_and_as_anybody_else_it_works_without_asking() {
    let say = "id -u > who; echo ${IS_SANDBOX:-unsaid} >> who";
    let rules = vec![Rule::new(bash(say)).turn(0), Rule::new(Reply::text("Done."))];
    let Some((place, api, mut config)) = set_up(StageKind::Run, "who", rules) else { return };
    config.policy = Policy::sandboxed();
    let end = ClaudeRunner::new(config.clone()).run(&place.cx).await;
    assert_eq!(end.outcome, Outcome::Passed);
    let who = std::fs::read_to_string(place.file("who")).unwrap();
    // Only to root it has to be said that this is a place for it.
    assert_eq!(who.ends_with("\n1\n"), is_root(), "{who}");
    assert_eq!(who.starts_with("0\n"), is_root(), "{who}");

    // Without that word root is refused, and nobody else.
    let refused = Place::new(StageKind::Run, "unsaid");
    config.policy = Policy::default();
    config.leading_args = vec!["--dangerously-skip-permissions".into()];
    ClaudeRunner::new(config).run(&refused.cx).await;
    assert_eq!(class(&refused) == "Refused(SetUp)", is_root(), "{}", class(&refused));
    drop(api);
    if is_root() {
        as_somebody("limits::as_root_and_as_anybody_else_it_works_without_asking");
    }
}

/// Runs a test of this program once more as a user who may do nothing special.
fn as_somebody(test: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let tests = reachable(&std::env::current_exe().unwrap(), dir.path());
    let program = reachable(&claude().unwrap().canonicalize().unwrap(), dir.path());
    let user = ["--reuid", SOMEBODY, "--regid", SOMEBODY, "--clear-groups"];
    let said = Command::new("setpriv")
        .args(user)
        .arg(tests)
        .args(["--exact", test, "--nocapture"])
        .current_dir(dir.path())
        .env("CLAUDE_BIN", program)
        .env("TMPDIR", dir.path())
        .env("HOME", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("1 passed"), "{said:?}");
}

/// The file, or a copy of it where others have no way to it.
fn reachable(file: &Path, dir: &Path) -> PathBuf {
    let is_open = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o001 != 0;
    if file.ancestors().all(is_open) {
        return file.to_owned();
    }
    let copy = dir.join(file.file_name().unwrap());
    // Not by this process: a child that another test is just starting would have it open to write,
    // and a program that is being written does not start.
    let done = Command::new("install").args(["-m", "755"]).arg(file).arg(&copy).status().unwrap();
    assert!(done.success());
    copy
}
