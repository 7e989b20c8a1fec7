//! Taking over what was merged.

use std::fs;
use std::path::Path;

use orchestrator_git::{Forwarded, GitError, GitRun};

use crate::world::{World, git, task, write};

async fn merged() -> World {
    let world = World::new().await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "merged\n"), ("new", "x\n")]).await;
    world.merge(&task("t"), 1, &sealed).await;
    world
}

#[tokio::test]
async fn a_clean_checkout_is_taken_along() {
    let world = merged().await;
    write(&world.repo, "untracked", "mine");
    assert_eq!(world.run.fast_forward().await.unwrap(), Forwarded::Moved);
    assert_eq!(fs::read(world.repo.join("src/a.rs")).unwrap(), b"merged\n");
    assert_eq!(git(&world.repo, ["status", "--porcelain"]), "?? untracked");
    assert_eq!(
        git(&world.repo, ["rev-parse", "main"]),
        git(&world.repo, ["rev-parse", "orchestrator/r"])
    );
    assert_eq!(world.run.fast_forward().await.unwrap(), Forwarded::AlreadyThere);
}

#[tokio::test]
async fn how_a_person_has_branches_merged_is_no_obstacle() {
    for (key, value) in [
        ("branch.main.mergeOptions", "--squash"),
        ("branch.main.mergeOptions", "-s ours --no-ff"),
        ("merge.verifySignatures", "true"),
        ("merge.ff", "false"),
    ] {
        let world = merged().await;
        git(&world.repo, ["config", key, value]);
        assert_eq!(world.run.fast_forward().await.unwrap(), Forwarded::Moved, "{key}");
        let [main, tip] = ["main", "orchestrator/r"].map(|it| git(&world.repo, ["rev-parse", it]));
        assert_eq!(main, tip, "{key} {value}");
    }
}

#[tokio::test]
async fn a_sparse_checkout_is_taken_along_and_stays_sparse() {
    let prepare = |repo: &Path| {
        write(repo, "big/one", "1\n");
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "big"]);
        git(repo, ["sparse-checkout", "set", "src"]);
    };
    let world = World::with(prepare, |_| {}).await;
    let files = [("src/a.rs", "merged\n"), ("big/one", "changed\n"), ("big/two", "2\n")];
    let sealed = world.work(&task("t"), 1, &files).await;
    world.merge(&task("t"), 1, &sealed).await;
    assert_eq!(world.run.fast_forward().await.unwrap(), Forwarded::Moved);
    assert_eq!(fs::read(world.repo.join("src/a.rs")).unwrap(), b"merged\n");
    assert!(!world.repo.join("big").exists());
    assert_eq!(git(&world.repo, ["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_checkout_whose_git_directory_lies_elsewhere_is_taken_along() {
    let move_it = |repo: &Path| {
        git(repo, ["init", "-q", "--separate-git-dir", "../git's own"]);
    };
    let world = World::with(move_it, |_| {}).await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "merged\n")]).await;
    world.merge(&task("t"), 1, &sealed).await;
    assert_eq!(world.run.fast_forward().await.unwrap(), Forwarded::Moved);
    assert_eq!(fs::read(world.repo.join("src/a.rs")).unwrap(), b"merged\n");
}

#[tokio::test]
async fn a_branch_that_is_not_checked_out_is_just_moved() {
    let world = merged().await;
    git(&world.repo, ["switch", "-q", "-c", "elsewhere"]);
    write(&world.repo, "src/a.rs", "dirty");
    assert_eq!(world.run.fast_forward().await.unwrap(), Forwarded::Moved);
    assert_eq!(fs::read(world.repo.join("src/a.rs")).unwrap(), b"dirty");
    assert_eq!(world.show("main:new"), "x");
}

#[tokio::test]
async fn a_target_by_another_name_is_the_branch_that_the_name_stands_for() {
    let prepare = |repo: &Path| {
        git(repo, ["branch", "-m", "main", "trunk"]);
        git(repo, ["symbolic-ref", "refs/heads/main", "refs/heads/trunk"]);
    };
    let world = World::with(prepare, |config| config.target = Some("main".to_owned())).await;
    assert_eq!(world.run.target_branch(), "trunk");
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "merged\n")]).await;
    world.merge(&task("t"), 1, &sealed).await;
    assert_eq!(world.run.fast_forward().await.unwrap(), Forwarded::Moved);
    assert_eq!(git(&world.repo, ["symbolic-ref", "refs/heads/main"]), "refs/heads/trunk");
    assert_eq!(fs::read(world.repo.join("src/a.rs")).unwrap(), b"merged\n");
    let mut config = World::config(&world.repo, world.dir.path());
    config.target = Some("main".to_owned());
    config.integration = Some("trunk".to_owned());
    let err = GitRun::open(config).await.unwrap_err();
    assert!(matches!(&err, GitError::BranchIsTarget { .. }), "{err}");
}

#[tokio::test]
async fn changes_and_other_commits_are_refused_with_a_way_on() {
    let world = merged().await;
    write(&world.repo, "src/b.rs", "dirty");
    let err = world.run.fast_forward().await.unwrap_err();
    assert!(err.to_string().contains("src/b.rs"), "{err}");
    git(&world.repo, ["commit", "-qam", "another way"]);
    let err = world.run.fast_forward().await.unwrap_err();
    assert!(matches!(&err, GitError::NoFastForward { .. }), "{err}");
    let command = world.run.merge_command();
    assert!(err.to_string().contains(&command), "{err}");
    let status = std::process::Command::new("sh")
        .args(["-c", &command])
        .env("GIT_AUTHOR_NAME", "p")
        .env("GIT_AUTHOR_EMAIL", "p@x")
        .env("GIT_COMMITTER_NAME", "p")
        .env("GIT_COMMITTER_EMAIL", "p@x")
        .status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read(world.repo.join("src/a.rs")).unwrap(), b"merged\n");
}
