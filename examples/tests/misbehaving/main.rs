//! What becomes of an agent that misbehaves: the `misbehaving_agent` example, driven by the real
//! driver on a real repository. Each test says in its name what the product does. The agent
//! misbehaves once; whatever that was, the task is done and merged in the end.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod world;

use std::fs;
use std::time::Duration;

use orchestrator_core::{EventKind, Interruption, Usd};
use orchestrator_process::{
    CommandRunner, Confinement, Confiner as _, LocalConfiner, Sandbox, SandboxMode, TreeEnds,
};

use self::world::{First, Story, World, git};

/// The reason of the one interruption, when there was one and no rejection.
fn interrupted(story: &Story) -> Option<Interruption> {
    assert_eq!(story.rejections, Vec::<String>::new(), "{:?}", story.events);
    let mut reasons = story.events.iter().filter_map(|kind| {
        if let EventKind::Interrupted { reason, .. } = kind { Some(*reason) } else { None }
    });
    let reason = reasons.next();
    assert_eq!(reasons.next(), None);
    reason
}

/// The feedback of the one rejection, when there was one and no interruption.
fn rejected(story: &Story) -> &str {
    let is_interrupted = |kind: &EventKind| matches!(kind, EventKind::Interrupted { .. });
    assert!(!story.events.iter().any(is_interrupted), "{:?}", story.events);
    assert_eq!(story.rejections.len(), 1, "{:?}", story.events);
    &story.rejections[0]
}

#[tokio::test]
async fn one_that_hangs_is_interrupted_for_its_silence() {
    let world = World::new();
    let silent = world.any_program("hang").with_silence(Duration::from_secs(2));
    let runner = First::new(silent, world::TIMEOUT, world.any_program("hang"));
    assert_eq!(interrupted(&world.drive(runner).await), Some(Interruption::Silence));
}

#[tokio::test]
async fn one_that_floods_is_rejected_and_told_so() {
    let world = World::new();
    let runner = world.any_program("flood").with_output_bytes_max(1 << 20);
    let story = world.drive(runner).await;
    assert!(rejected(&story).contains("too much output"), "{story:?}");
}

#[tokio::test]
async fn one_that_dies_within_its_answer_has_not_answered() {
    for is_claude in [false, true] {
        let world = World::new();
        let story = if is_claude {
            world.drive(world.claude("half-a-line")).await
        } else {
            world.drive(world.any_program("half-a-line")).await
        };
        assert_eq!(interrupted(&story), Some(Interruption::Killed), "{is_claude}");
    }
}

#[tokio::test]
async fn p20_the_orphans_of_one_end_with_it_and_its_work_counts() {
    if LocalConfiner::detected().abilities().tree == TreeEnds::Walk {
        return;
    }
    let world = World::new();
    let story = world.drive(world.any_program("orphans")).await;
    assert_eq!(interrupted(&story), None);
    let pids = fs::read_to_string(world.outside()).unwrap();
    assert_eq!(pids.lines().count(), 3);
    for pid in pids.lines() {
        assert!(!world::is_alive(pid), "{pid}");
    }
}

#[tokio::test]
async fn one_that_does_not_end_when_it_is_asked_to_is_killed_at_its_time_limit() {
    // A machine that is too busy for it to have begun by then gives it longer.
    for seconds in [3, 24, 192] {
        let world = World::new();
        let deaf = || world.any_program("ignore-term").with_grace(Duration::from_millis(200));
        let story = world.drive(First::new(deaf(), Duration::from_secs(seconds), deaf())).await;
        assert!(rejected(&story).contains("time limit"), "{story:?}");
        if let Some(deaf) = fs::read_to_string(world.outside()).ok().filter(|it| it.ends_with('\n'))
        {
            assert!(!world::is_alive(deaf.trim()), "{deaf}");
            return;
        }
    }
    panic!("it never began");
}

#[tokio::test]
async fn one_that_ends_well_and_did_nothing_is_rejected_for_its_empty_change() {
    let world = World::new();
    let story = world.drive(world.any_program("no-answer")).await;
    assert!(rejected(&story).contains("Nothing was changed"), "{story:?}");
}

#[tokio::test]
async fn one_that_ends_well_without_an_answer_where_one_is_due_is_interrupted() {
    let world = World::new();
    let story = world.drive(world.claude("no-answer")).await;
    assert_eq!(interrupted(&story), Some(Interruption::Crashed));
}

#[tokio::test]
async fn one_that_answers_twice_is_taken_at_its_word_once_and_paid_once() {
    let world = World::new();
    let story = world.drive(world.claude("answer-twice")).await;
    assert_eq!(interrupted(&story), None);
    assert_eq!(story.spent, Usd(250_000));
}

#[tokio::test]
async fn one_that_lingers_after_its_answer_is_ended_and_its_answer_stands() {
    let world = World::new();
    let story = world.drive(world.claude("linger")).await;
    assert_eq!(interrupted(&story), None);
    assert!(story.took < world::TIMEOUT, "it had all the time that a stage may take");
}

#[tokio::test]
async fn one_that_changes_files_outside_its_scope_is_rejected_and_none_of_that_is_merged() {
    let world = World::new();
    let story = world.drive(world.any_program("outside")).await;
    assert!(rejected(&story).contains("README.md"), "{story:?}");
    assert_eq!(git(&world.repo, ["show", "orchestrator/misbehaving:README.md"]), "ours");
}

#[tokio::test]
async fn in_a_sandbox_one_cannot_even_write_outside_its_workspace() {
    if LocalConfiner::detected().abilities().write.is_err() {
        return;
    }
    let world = World::new();
    let sandbox = Sandbox::new(SandboxMode::Require).with_write(world.state());
    let confinement = Confinement::none().with_sandbox(sandbox);
    world.drive(world.any_program("outside").with_confinement(confinement)).await;
    assert!(!world.outside().exists());
}

#[tokio::test]
async fn in_a_sandbox_one_cannot_touch_the_branches_of_the_repository() {
    if LocalConfiner::detected().abilities().write.is_err() {
        return;
    }
    let world = World::new();
    let before = git(&world.repo, ["rev-parse", "main"]);
    let sandbox = Sandbox::new(SandboxMode::Require).with_write(world.state());
    let confinement = Confinement::none().with_sandbox(sandbox);
    world.drive(world.any_program("move-branch").with_confinement(confinement)).await;
    assert_eq!(git(&world.repo, ["rev-parse", "main"]), before);
}

#[tokio::test]
async fn the_commits_of_one_are_not_what_is_merged_and_its_branch_is_not_the_target() {
    let world = World::new();
    let before = git(&world.repo, ["rev-parse", "main"]);
    let story = world.drive(world.any_program("commit")).await;
    assert!(story.rejections.len() <= 1, "{story:?}");
    let authors = git(&world.repo, ["log", "--format=%an", "orchestrator/misbehaving"]);
    assert!(!authors.lines().any(|author| author == "agent"), "{authors}");
    assert_eq!(git(&world.repo, ["merge-base", "orchestrator/misbehaving", &before]), before);
    assert_eq!(git(&world.repo, ["rev-parse", "main"]), before, "nobody moves the branch itself");
}

#[tokio::test]
async fn one_that_eats_memory_is_ended_at_its_limit_and_told_so() {
    if LocalConfiner::detected().abilities().memory.is_err() {
        return;
    }
    let world = World::new();
    let confinement = Confinement::none().with_memory_bytes_max(64 << 20);
    let runner: CommandRunner = world.any_program("eat-memory").with_confinement(confinement);
    let story = world.drive(runner).await;
    assert!(rejected(&story).contains("more memory than it may have"), "{story:?}");
}
