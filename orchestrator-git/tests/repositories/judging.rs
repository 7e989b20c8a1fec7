//! Flaky results, failures that were there before, and tests that prove something.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::{ActivitySink, StageContext, Start, Verifier as _, Workspaces as _};
use orchestrator_core::{
    FencingToken, Outcome, Pipeline, Scope, StageEnd, StageKind, TaskSpec, VerifyCommand,
};
use orchestrator_git::{Failures, Judge};
use orchestrator_process::CommandVerifier;
use tokio_util::sync::CancellationToken;

use crate::world::{World, git, task, write};

fn spec(command: &str) -> TaskSpec {
    TaskSpec { verify: Some(VerifyCommand::Shell(command.to_owned())), ..task("t") }
}

/// Verifies what these files make of the target.
async fn verify(
    world: &World,
    judge: &Judge,
    spec: &TaskSpec,
    kind: StageKind,
    files: &[(&str, &str)],
) -> StageEnd {
    let sealed = world.work(spec, 1, files).await;
    let mut ask = world.ask(spec, 2, Start::On(sealed));
    ask.token = FencingToken(2);
    let workspace = world.run.open(&ask).await.unwrap();
    let pipeline = Pipeline::default();
    let mut stage = pipeline.stages().iter().find(|stage| stage.kind == kind).unwrap().clone();
    stage.timeout = Duration::from_secs(300);
    let cx = StageContext {
        run: world.run_id(),
        task: Arc::new(spec.clone()),
        stage,
        attempt: 1,
        token: FencingToken(2),
        workspace,
        dir: world.dir.path().join("logs"),
        feedback: Vec::new(),
        session: None,
        cancel: CancellationToken::new(),
        activity: ActivitySink::none(),
    };
    judge.verify(&cx).await
}

fn judge(world: &World) -> Judge {
    Judge::new(world.run.clone(), Arc::new(CommandVerifier::default()))
}

fn feedback(end: &StageEnd) -> &str {
    let Outcome::Rejected { feedback, .. } = &end.outcome else { panic!("{end:?}") };
    feedback
}

#[tokio::test]
async fn a_flaky_failure_is_told_from_a_real_one_by_one_repeat_on_the_same_tree() {
    let world = World::new().await;
    let count = world.dir.path().join("count");
    let count = count.display();
    // Spoils a tracked file, which the repeat must not see.
    let flaky = spec(&format!(
        "echo x >>'{count}'; grep -q spoiled README.md && exit 3; echo spoiled >README.md; \
         test $(wc -l <'{count}') -ne 1"
    ));
    let judge = judge(&world).with_repeat();
    let files = [("new", "x\n")];
    let end = verify(&world, &judge, &flaky, StageKind::Integrate, &files).await;
    assert_eq!(end.outcome, Outcome::Passed);
    assert!(world.dir.path().join("logs/flaky.txt").exists(), "it is said");
    let world = World::new().await;
    let real = spec("exit 4");
    let judge = Judge::new(world.run.clone(), Arc::new(CommandVerifier::default())).with_repeat();
    let end = verify(&world, &judge, &real, StageKind::Integrate, &files).await;
    assert!(feedback(&end).contains("failed twice on the same tree"), "{end:?}");
}

const PRINTS: &str = "code=0; for f in *.test; do read -r result <\"$f\"; \
    test \"$result\" = ok && echo \"test $f ... ok\" && continue; \
    echo \"test $f ... FAILED\"; code=1; done; exit $code";

fn with_old_failure(repo: &Path) {
    write(repo, "old.test", "bad\n");
    write(repo, "fine.test", "ok\n");
    git(repo, ["add", "-A"]);
    git(repo, ["commit", "-qm", "red"]);
}

#[tokio::test]
async fn only_failures_that_the_target_did_not_have_count() {
    let world = World::with(with_old_failure, |_| {}).await;
    let judge = judge(&world).with_baseline(Failures::common());
    let spec = spec(PRINTS);
    let files = [("code", "x\n")];
    let end = verify(&world, &judge, &spec, StageKind::Verify, &files).await;
    assert_eq!(end.outcome, Outcome::Passed, "it failed before");
    let record = world.dir.path().join("work trees/r/.baseline");
    assert_eq!(std::fs::read_dir(record).unwrap().count(), 1, "it is recorded");
    let world = World::with(with_old_failure, |_| {}).await;
    let judge = Judge::new(world.run.clone(), Arc::new(CommandVerifier::default()))
        .with_baseline(Failures::common());
    let end = verify(&world, &judge, &spec, StageKind::Verify, &[("fine.test", "bad\n")]).await;
    let said = feedback(&end);
    assert!(said.contains("New failures: `fine.test`") && said.contains("1 others"), "{said}");
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 2);
}

#[tokio::test]
async fn a_command_that_breaks_off_after_an_old_failure_does_not_pass_for_it() {
    let command = "echo 'test old ... FAILED'; if [ -f breaks ]; then kill -SEGV $$; fi; exit 1";
    for (file, said) in [("fine", None), ("breaks", Some("ended otherwise"))] {
        let world = World::new().await;
        let judge = judge(&world).with_baseline(Failures::common()).with_repeat();
        let kind = StageKind::Verify;
        let end = verify(&world, &judge, &spec(command), kind, &[(file, "x\n")]).await;
        match said {
            None => assert_eq!(end.outcome, Outcome::Passed),
            Some(said) => assert!(feedback(&end).contains(said), "{end:?}"),
        }
    }
}

#[tokio::test]
async fn a_tasks_test_has_to_fail_without_its_work_and_to_pass_with_it() {
    let command = spec("test ! -e tests/new || grep -q \"$(cat tests/new)\" code");
    let tests = Scope::parse(["tests"]).unwrap();
    for (files, said) in [
        (&[("code", "works\n"), ("tests/new", "works")][..], None),
        (&[("code", "works\n")][..], Some("changes none (tests)")),
        (&[("code", "works\n"), ("tests/new", "begin")][..], Some("prove nothing")),
    ] {
        let prepare = |repo: &Path| {
            write(repo, "code", "begin\n");
            git(repo, ["add", "-A"]);
            git(repo, ["commit", "-qm", "code"]);
        };
        let world = World::with(prepare, |_| {}).await;
        let judge = judge(&world).with_proof(tests.clone());
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (*path, if *path == "code" { "begin works\n" } else { *text }))
            .collect();
        let end = verify(&world, &judge, &command, StageKind::Verify, &files).await;
        match said {
            None => assert_eq!(end.outcome, Outcome::Passed),
            Some(said) => assert!(feedback(&end).contains(said), "{end:?}"),
        }
    }
}
