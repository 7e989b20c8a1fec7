//! Run and verify stages carried out by any program.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orchestrator_core::port::{
    ActivityKind, ActivitySink, Runner as _, StageContext, Trial, Verifier as _, Workspace,
};
use orchestrator_core::{
    ChangeId, FencingToken, Interruption, Outcome, Restart, RunId, StageKind, StageSpec, TaskId,
    TaskSpec, VerifyCommand,
};
use orchestrator_process::{
    CommandRunner, CommandVerifier, Confinement, Confiner as _, Environment, LocalConfiner,
    Sandbox, SandboxMode,
};
use tempfile::{TempDir, tempdir};
use tokio_util::sync::CancellationToken;

use super::{LONG, STRETCHED, is_alive, pid_in, read};

/// What one test ends is not to be what another one started.
static TOKENS: AtomicU64 = AtomicU64::new(1);

/// A stage in a directory of its own: the tree in `tree`, the logs in `logs`.
fn stage(kind: StageKind, verify: Option<VerifyCommand>) -> (TempDir, StageContext) {
    let dir = tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut task = TaskSpec::new(TaskId::parse("Port/types").unwrap());
    task.verify = verify;
    let cx = StageContext {
        run: RunId::parse(&format!("it-{}", std::process::id())).unwrap(),
        task: Arc::new(task),
        stage: StageSpec { timeout: LONG, ..StageSpec::of(kind) },
        attempt: 2,
        token: FencingToken(TOKENS.fetch_add(1, Ordering::Relaxed)),
        workspace: Workspace::new(tree, ChangeId::parse("base").unwrap(), dir.path().join("aside")),
        dir: dir.path().join("logs"),
        feedback: vec!["first failure".to_owned(), "second failure".to_owned()],
        session: None,
        cancel: CancellationToken::new(),
        activity: ActivitySink::none(),
    };
    (dir, cx)
}

fn shell(line: &str) -> Option<VerifyCommand> {
    Some(VerifyCommand::Shell(line.to_owned()))
}

async fn verified(line: &str) -> Outcome {
    let (_dir, cx) = stage(StageKind::Verify, shell(line));
    CommandVerifier::default().verify(&cx).await.outcome
}

fn feedback(outcome: Outcome) -> String {
    let Outcome::Rejected { feedback, restart: Restart::OnCandidate } = outcome else {
        panic!("not rejected: {outcome:?}");
    };
    feedback
}

const fn interrupted(reason: Interruption) -> Outcome {
    Outcome::Interrupted { reason, retry_at: None }
}

#[tokio::test]
async fn a_gate_is_open_with_0_closed_with_75_and_rejects_with_anything_else() {
    for (line, expected) in [
        ("exit 0", Some(Outcome::Passed)),
        ("exit 75", Some(Outcome::Suspended { poll_at: None })),
        ("echo the build broke; exit 1", None),
    ] {
        let (_dir, cx) = stage(StageKind::Gate, shell(line));
        let outcome = CommandVerifier::default().verify(&cx).await.outcome;
        match expected {
            Some(expected) => assert_eq!(outcome, expected, "{line}"),
            None => assert!(feedback(outcome).contains("the build broke")),
        }
    }
    // For a command that judges the work it is a failure like any other.
    assert!(matches!(verified("exit 75").await, Outcome::Rejected { .. }));
}

#[tokio::test]
async fn a_candidate_passes_when_its_command_exits_with_0_and_only_then() {
    assert_eq!(verified("exit 0").await, Outcome::Passed);
    let (_dir, cx) = stage(
        StageKind::Verify,
        Some(VerifyCommand::Argv(["test", "-d", "."].map(str::to_owned).to_vec())),
    );
    assert_eq!(CommandVerifier::default().verify(&cx).await.outcome, Outcome::Passed);
    let text = feedback(verified("echo to stdout; echo to stderr >&2; exit 3").await);
    for part in ["exit code 3", "$ echo to stdout", "\nto stdout\nto stderr\n"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(feedback(verified("exit 1").await).contains("(none)"));
    assert!(feedback(verified("kill -11 $$").await).contains("signal 11"));
    assert_eq!(verified("kill -9 $$").await, interrupted(Interruption::Killed));
}

#[tokio::test]
async fn long_output_is_cut_in_the_feedback_and_whole_in_the_log() {
    let line = "echo begin; head -c 3000000 /dev/zero | tr '\\0' '\\377'; echo end; exit 1";
    let (_dir, cx) = stage(StageKind::Verify, shell(line));
    let text = feedback(CommandVerifier::default().verify(&cx).await.outcome);
    assert!(text.len() <= 16 * 1024 && text.contains("begin") && text.ends_with("end\n"));
    assert_eq!(fs::metadata(cx.dir.join("output.log")).unwrap().len(), 3_000_010);
}

#[tokio::test]
async fn limits_and_cancellation_of_a_verify_command_are_told_apart() {
    let (_dir, mut cx) = stage(StageKind::Verify, shell("echo started; sleep 600"));
    let mut text = String::new();
    for stretched in STRETCHED {
        cx.stage.timeout = Duration::from_millis(300) * stretched;
        text = feedback(CommandVerifier::default().verify(&cx).await.outcome);
        assert!(text.contains(&format!("time limit of {:?}", cx.stage.timeout)), "{text}");
        // The command itself is shown, too.
        if text.contains("\nstarted") {
            break;
        }
    }
    assert!(text.contains("\nstarted"), "{text}");
    cx.cancel.cancel();
    let end = CommandVerifier::default().verify(&cx).await;
    assert_eq!(end.outcome, interrupted(Interruption::Shutdown));
    let (_dir, flood) = stage(StageKind::Verify, shell("cat /dev/zero"));
    let verifier = CommandVerifier::default().with_output_bytes_max(100_000);
    assert!(feedback(verifier.verify(&flood).await.outcome).contains("too much output"));
}

#[tokio::test]
async fn a_verify_command_that_cannot_start_is_a_fault_of_the_setup() {
    let argv = VerifyCommand::Argv(vec!["no-such-tool".to_owned()]);
    for verify in [Some(argv), Some(VerifyCommand::Argv(Vec::new())), None] {
        let (_dir, cx) = stage(StageKind::Verify, verify);
        let outcome = CommandVerifier::default().verify(&cx).await.outcome;
        assert!(matches!(outcome, Outcome::Fatal { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_verify_command_of_the_tree_that_the_task_removed_or_broke_is_a_rejection() {
    for is_there in [false, true] {
        let (_dir, cx) =
            stage(StageKind::Verify, Some(VerifyCommand::Argv(vec!["./check.sh".to_owned()])));
        if is_there {
            fs::write(cx.workspace.path.join("check.sh"), "#!/bin/sh\n").unwrap();
        }
        let text = feedback(CommandVerifier::default().verify(&cx).await.outcome);
        assert!(text.contains("cannot run") && text.contains("./check.sh"), "{text}");
    }
}

#[tokio::test]
async fn a_trial_says_whether_a_command_can_run_at_all() {
    let (_dir, cx) = stage(StageKind::Verify, None);
    let argv = |word: &str| VerifyCommand::Argv(vec![word.to_owned()]);
    let shell = |line: &str| VerifyCommand::Shell(line.to_owned());
    let verifier = CommandVerifier::default().with_trial_wall(LONG);
    let hurried = CommandVerifier::default().with_trial_wall(Duration::from_millis(500));
    assert_eq!(hurried.try_on(&shell("sleep 600"), &cx.workspace).await, Trial::Fails);
    for (command, expected) in [
        (shell("true"), Trial::Passes),
        (shell("exit 1"), Trial::Fails),
        (argv("false"), Trial::Fails),
    ] {
        assert_eq!(verifier.try_on(&command, &cx.workspace).await, expected, "{command}");
    }
    for command in [argv("no-such-tool"), shell("no-such-tool --check"), shell("/etc/passwd")] {
        let trial = verifier.try_on(&command, &cx.workspace).await;
        let Trial::NotRunnable { why } = trial else { panic!("{command}: {trial:?}") };
        assert!(why.contains("no-such-tool") || why.contains("/etc/passwd"), "{why}");
    }
    let key = format!("ghp_{}", "0".repeat(36));
    let leaks = shell("echo ghp_$(printf %036d 0); exit 127");
    let trial = verifier.try_on(&leaks, &cx.workspace).await;
    let Trial::NotRunnable { why } = trial else { panic!("it ran") };
    assert!(why.contains("[masked]") && !why.contains(&key), "{why}");
    let trials = fs::read_dir(&cx.workspace.aside).unwrap();
    assert!(trials.map(|log| read(log.unwrap().path())).all(|log| !log.contains(&key)));
    assert_eq!(fs::read_dir(&cx.workspace.path).unwrap().count(), 0);
}

#[tokio::test]
async fn verify_commands_see_no_variable_that_was_not_allowed() {
    let environment = Environment::empty().passing(["PATH"]).with("ONLY", "this");
    let (_dir, cx) = stage(StageKind::Verify, shell("env; exit 1"));
    let text = feedback(CommandVerifier::new(environment).verify(&cx).await.outcome);
    assert!(text.contains("ONLY=this"), "{text}");
    let lease = format!("ORCHESTRATOR_LEASE=it-{}/{}\n", std::process::id(), cx.token);
    assert!(text.contains(&lease), "{text}");
    assert!(!text.contains("CARGO") && !text.contains("HOME="), "{text}");
}

#[tokio::test]
async fn what_belongs_to_a_workspace_is_in_the_environment_of_all_that_works_and_judges_there() {
    let line = "test \"$PORT\" = 4000 && test \"$TMPDIR\" = /own && test -n \"$PATH\"";
    let (_dir, mut cx) = stage(StageKind::Verify, shell(line));
    let environment = Environment::tools().with("PORT", "1").with("TMPDIR", "/of all");
    let verifier = CommandVerifier::new(environment.clone());
    let runner = CommandRunner::new("sh", ["-c", line]).with_environment(environment);
    assert!(matches!(verifier.verify(&cx).await.outcome, Outcome::Rejected { .. }));
    let own = [("PORT", "4000"), ("TMPDIR", "/own")];
    cx.workspace.environment = own.map(|(name, value)| (name.to_owned(), value.into())).to_vec();
    assert_eq!(verifier.verify(&cx).await.outcome, Outcome::Passed);
    assert_eq!(runner.run(&cx).await.outcome, Outcome::Passed);
    let command = cx.task.verify.clone().unwrap();
    assert_eq!(verifier.try_on(&command, &cx.workspace).await, Trial::Passes);
}

async fn ran(script: &str) -> (TempDir, StageContext, Outcome) {
    let (dir, cx) = stage(StageKind::Run, None);
    let runner = CommandRunner::new("sh", ["-c", script]);
    let end = runner.run(&cx).await;
    (dir, cx, end.outcome)
}

#[tokio::test]
async fn a_program_is_told_its_task_on_stdin_in_a_file_and_in_variables() {
    let script = r#"cat > ../stdin; env > ../env; cat "$ORCHESTRATOR_LAST_ERROR_FILE" > ../error;
        cmp ../stdin "$ORCHESTRATOR_TASK_FILE" && [ "$PWD" -ef "$ORCHESTRATOR_WORKSPACE" ]"#;
    let (dir, _cx, outcome) = ran(script).await;
    assert_eq!(outcome, Outcome::Passed);
    let order: serde_json::Value = serde_json::from_str(&read(dir.path().join("stdin"))).unwrap();
    assert_eq!(order["task"]["id"], "Port/types");
    assert_eq!((&order["attempt"], &order["feedback"][1]), (&2.into(), &"second failure".into()));
    assert_eq!(read(dir.path().join("error")), "second failure");
    let env = read(dir.path().join("env"));
    for line in ["ORCHESTRATOR_TASK=Port/types", "ORCHESTRATOR_ATTEMPT=2", "ORCHESTRATOR_STAGE=run"]
    {
        assert!(env.lines().any(|it| it == line), "{env}");
    }
}

#[tokio::test]
async fn the_end_of_a_program_is_the_end_of_its_stage() {
    for (script, expected) in [
        ("exit 0", Outcome::Passed),
        ("exit 75", interrupted(Interruption::Crashed)),
        ("exit 143", interrupted(Interruption::Killed)),
        ("kill -9 $$", interrupted(Interruption::Killed)),
    ] {
        assert_eq!(ran(script).await.2, expected, "{script}");
    }
    let text = feedback(ran("echo said; echo why >&2; exit 1").await.2);
    assert!(text.contains("said\n") && text.contains("why") && text.contains("exit code 1"));
    assert!(matches!(ran("no-such-agent").await.2, Outcome::Fatal { .. }));
    let (_dir, cx) = stage(StageKind::Run, None);
    let end = CommandRunner::new("no-such-agent", [""; 0]).run(&cx).await;
    assert!(matches!(end.outcome, Outcome::Fatal { error } if error.contains("no-such-agent")));
}

#[tokio::test]
async fn a_blocked_file_is_a_question_whatever_the_exit_code_and_leaves_the_tree() {
    for code in [0, 1] {
        let (dir, cx, outcome) =
            ran(&format!("echo 'which port?' > BLOCKED.md; exit {code}")).await;
        assert_eq!(outcome, Outcome::Question { text: "which port?\n".to_owned() });
        assert!(!cx.workspace.path.join("BLOCKED.md").exists());
        assert_eq!(read(dir.path().join("logs/BLOCKED.md")), "which port?\n");
    }
}

#[tokio::test]
async fn a_silent_program_is_interrupted_and_a_cancelled_one_leaves_its_question() {
    let (_dir, cx) = stage(StageKind::Run, None);
    let silent = CommandRunner::new("sleep", ["600"]).with_silence(Duration::from_millis(200));
    assert_eq!(silent.run(&cx).await.outcome, interrupted(Interruption::Silence));
    let script = "echo q > BLOCKED.md; echo $$ > ../pid; sleep 600";
    let (dir, cx) = stage(StageKind::Run, None);
    let runner = CommandRunner::new("sh", ["-c", script]).with_grace(Duration::from_secs(1));
    let pid_file = dir.path().join("pid");
    let (end, pid) = tokio::join!(runner.run(&cx), async {
        let pid = pid_in(pid_file).await;
        cx.cancel.cancel();
        pid
    });
    assert_eq!(end.outcome, interrupted(Interruption::Shutdown));
    assert!(!is_alive(pid) && Path::exists(&cx.workspace.path.join("BLOCKED.md")));
}

#[tokio::test]
async fn whoever_watches_the_run_hears_of_the_start_and_of_output() {
    let (_dir, mut cx) = stage(StageKind::Run, None);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    cx.activity = ActivitySink::new(move |kind| sink.lock().unwrap().push(kind));
    CommandRunner::new("sh", ["-c", "echo hello"]).run(&cx).await;
    let heard = heard.lock().unwrap();
    assert!(
        matches!(&heard[0], ActivityKind::Started { pid, log } if *pid > 0 && log.ends_with("stdout.log"))
    );
    assert_eq!(heard.last(), Some(&ActivityKind::Output { bytes: 6 }));
}

#[tokio::test]
async fn a_stage_in_a_sandbox_works_in_its_workspace_and_nowhere_else() {
    if LocalConfiner::detected().abilities().write.is_err() {
        return;
    }
    let (dir, cx) = stage(StageKind::Run, None);
    let outside = dir.path().join("outside");
    let script = r#"echo > made && : > "$(mktemp)" && ! echo x > ../outside"#;
    let sandbox = Sandbox::new(SandboxMode::Require);
    let confinement = Confinement::none().with_sandbox(sandbox);
    let runner = CommandRunner::new("sh", ["-c", script]).with_confinement(confinement.clone());
    assert_eq!(runner.run(&cx).await.outcome, Outcome::Passed);
    assert!(cx.workspace.path.join("made").exists() && !outside.exists());

    let (dir, cx) = stage(StageKind::Verify, shell("echo > made && ! echo x > ../outside"));
    let verifier = CommandVerifier::default().with_confinement(confinement);
    assert_eq!(verifier.verify(&cx).await.outcome, Outcome::Passed);
    assert!(!dir.path().join("outside").exists());
}

#[tokio::test]
async fn a_stage_that_needs_too_much_memory_is_rejected_and_told_why() {
    if LocalConfiner::detected().abilities().memory.is_err() {
        return;
    }
    let (_dir, cx) = stage(StageKind::Run, None);
    let script = "head -c 400000000 /dev/zero | tail -n 1 > /dev/null";
    let confinement = Confinement::none().with_memory_bytes_max(48 << 20);
    let runner = CommandRunner::new("sh", ["-c", script]).with_confinement(confinement);
    let Outcome::Rejected { feedback, .. } = runner.run(&cx).await.outcome else { panic!() };
    assert!(feedback.contains("needed more memory than it may have"), "{feedback}");
}

#[tokio::test]
async fn secrets_are_in_no_log_and_no_feedback() {
    let environment = Environment::tools().with("MY_PASS", "open sesame");
    let mask = environment.mask(["MY_PASS", "NO_SUCH_VARIABLE"]);
    let script = "echo \"$MY_PASS\"; echo ghp_0123456789abcdefghij0123456789abcdef >&2; exit 3";
    let (_dir, cx) = stage(StageKind::Run, None);
    let runner = CommandRunner::new("sh", ["-c", script])
        .with_environment(environment.clone())
        .with_mask(mask.clone());
    let Outcome::Rejected { feedback, .. } = runner.run(&cx).await.outcome else { panic!() };
    assert!(feedback.contains("***********") && !feedback.contains("sesame"), "{feedback}");
    for log in ["stdout.log", "stderr.log"] {
        let log = read(cx.dir.join(log));
        assert!(log.starts_with("****") && log.ends_with("*\n"), "{log}");
    }
    let asks = "printf \"$MY_PASS\" > BLOCKED.md";
    let (_dir, cx) = stage(StageKind::Run, None);
    let runner = CommandRunner::new("sh", ["-c", asks])
        .with_environment(environment.clone())
        .with_mask(mask.clone());
    assert!(matches!(runner.run(&cx).await.outcome, Outcome::Question { .. }));
    assert_eq!(read(cx.dir.join("BLOCKED.md")), "***********");
    let (_dir, cx) = stage(StageKind::Verify, shell(script));
    let verifier = CommandVerifier::new(environment).with_mask(mask);
    let Outcome::Rejected { feedback, .. } = verifier.verify(&cx).await.outcome else { panic!() };
    // The command itself is shown as the plan has it.
    assert!(!feedback.contains("sesame"), "{feedback}");
    let log = read(cx.dir.join("output.log"));
    assert!(!log.contains("sesame") && !log.contains("ghp_"), "{log}");
}

#[tokio::test]
async fn a_log_that_the_program_replaced_is_neither_waited_for_nor_followed() {
    let secret = tempdir().unwrap();
    fs::write(secret.path().join("secret"), "none of its business").unwrap();
    let link = format!("ln -s {}/secret", secret.path().display());
    for replace in ["mkfifo", &link, "mkdir"] {
        let script = |log| format!("echo said; rm ../logs/{log}; {replace} ../logs/{log}; exit 3");
        let (_dir, cx) = stage(StageKind::Verify, shell(&script("output.log")));
        let verified = feedback(CommandVerifier::default().verify(&cx).await.outcome);
        let (_dir, cx) = stage(StageKind::Run, None);
        let runner = CommandRunner::new("sh", ["-c", &script("stdout.log")]);
        let ran = feedback(runner.run(&cx).await.outcome);
        for feedback in [verified, ran] {
            assert!(feedback.contains("cannot be read") && feedback.contains("\nsaid\n"));
            assert!(!feedback.contains("none of its business"), "{feedback}");
        }
    }
}
