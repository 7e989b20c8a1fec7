//! Merging into a branch of another repository on disk.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use orchestrator_core::FencingToken;
use orchestrator_core::port::{Applied, Integrator as _};
use orchestrator_git::{GitError, GitRun, KeptWork};

use crate::world::{World, clean, conflict, git, program, task, write};

const BRANCH: &str = "orchestrator/r";

/// A run that merges into a bare repository, which has hooks that leave a trace.
async fn world() -> (World, PathBuf) {
    let mut bare = PathBuf::new();
    let prepare = |repo: &Path| {
        let dir = repo.parent().unwrap();
        git(dir, ["init", "-q", "--bare", "origin é.git"]);
        let hooks = dir.join("origin é.git/hooks");
        fs::create_dir_all(&hooks).unwrap();
        for hook in ["pre-receive", "update", "reference-transaction", "post-receive"] {
            let trace = "#!/bin/sh\ntouch \"$(git rev-parse --git-dir)/trace\"\nexit 1\n";
            program(&hooks.join(hook), trace);
        }
        // Nothing of the repository's configuration may lead a push elsewhere.
        let elsewhere = format!("url.{}/elsewhere.pushInsteadOf", dir.display());
        git(repo, ["config", &elsewhere, &dir.display().to_string()]);
    };
    let world = World::with(prepare, |config| {
        bare = config.repository.with_file_name("origin é.git");
        config.remote = Some(bare.clone());
    })
    .await;
    (world, bare)
}

fn tip(repo: &Path) -> String {
    git(repo, ["rev-parse", BRANCH])
}

#[tokio::test]
async fn p17_changes_are_merged_into_the_other_repository_and_the_branch_here_follows() {
    let (world, bare) = world().await;
    let one = world.work(&task("one"), 1, &[("one", "1\n")]).await;
    let two = world.work(&task("two"), 2, &[("two", "2\n")]).await;
    assert_eq!(tip(&bare), one.base.as_str(), "the branch is made there");
    for (name, token, sealed) in [("one", 3, &one), ("two", 4, &two)] {
        let intent = world.merge(&task(name), token, sealed).await;
        assert_eq!(tip(&bare), intent.merged.as_str());
        assert_eq!(tip(&world.repo), intent.merged.as_str());
        // The same once more, as after an answer that was lost.
        assert_eq!(world.apply(&task(name), token, &intent).await, Applied::Merged);
        assert!(world.run.is_merged(&intent.merged).await.unwrap());
    }
    assert_eq!((world.merges_of("one"), world.merges_of("two")), (1, 1));
    // Nobody who looks for kept work takes them for what was not merged, whatever the branch is called.
    git(&world.repo, ["branch", "-m", BRANCH, "theirs"]);
    let kept = KeptWork::open(&world.repo).await.unwrap().list().await.unwrap();
    assert!(kept.is_empty(), "{kept:?}");
    assert!(!bare.join("trace").exists(), "no hook runs");
    git(&bare, ["fsck", "--strict"]);
}

#[tokio::test]
async fn a_branch_that_somebody_moved_there_is_proposed_on_anew() {
    let (world, bare) = world().await;
    let one = world.work(&task("one"), 1, &[("README.md", "by one\n")]).await;
    let two = world.work(&task("two"), 2, &[("two", "2\n")]).await;
    world.fence(&task("two"), 3).await;
    let (intent, _) = clean(world.propose(&task("two"), 3, &two).await);
    let person = world.dir.path().join("a person's");
    fs::remove_dir_all(bare.join("hooks")).unwrap();
    git(world.dir.path(), ["clone", "-q", "-b", BRANCH, "origin é.git", "a person's"]);
    write(&person, "README.md", "by a person\n");
    git(&person, ["commit", "-qam", "meanwhile"]);
    git(&person, ["push", "-q", "origin", BRANCH]);
    assert_eq!(world.apply(&task("two"), 3, &intent).await, Applied::Moved);
    world.merge(&task("two"), 3, &two).await;
    assert_eq!(git(&bare, ["show", &format!("{BRANCH}:README.md")]), "by a person");
    assert_eq!(git(&bare, ["show", &format!("{BRANCH}:two")]), "2");
    world.fence(&task("one"), 4).await;
    assert!(conflict(world.propose(&task("one"), 4, &one).await).contains("meanwhile"));
}

#[tokio::test]
async fn who_looks_at_the_branch_there_while_it_moves_does_not_take_it_for_one_that_was_moved_back()
{
    let (world, bare) = world().await;
    let names = ["one", "two", "three"];
    let mut sealed = Vec::new();
    for (token, name) in (1..).zip(names) {
        sealed.push(world.work(&task(name), token, &[(name, "done\n")]).await);
    }
    let is_over = Cell::new(false);
    let merge = async {
        for ((token, name), sealed) in (11..).zip(names).zip(&sealed) {
            world.merge(&task(name), token, sealed).await;
        }
        is_over.set(true);
    };
    let look = async || {
        while !is_over.get() {
            assert!(world.run.is_merged(&sealed[0].base).await.unwrap());
        }
    };
    tokio::join!(merge, look(), look());
    assert_eq!(tip(&bare), tip(&world.repo));
}

#[tokio::test]
async fn p17_an_old_merger_is_fenced_off_there_too_also_from_another_clone() {
    let (world, bare) = world().await;
    let one = world.work(&task("one"), 1, &[("one", "1\n")]).await;
    world.fence(&task("one"), 3).await;
    let (intent, _) = clean(world.propose(&task("one"), 3, &one).await);
    // Another host took over: its repository is another one, and only the remote knows both.
    let dir = world.dir.path().join("other host");
    fs::create_dir(&dir).unwrap();
    let from = world.repo.to_str().unwrap();
    git(&dir, ["clone", "-q", "--no-local", from, "repo"]);
    let mut config = World::config(&dir.join("repo"), &dir);
    config.target = Some("main".to_owned());
    config.remote = Some(bare.clone());
    let other = GitRun::open(config).await.unwrap();
    let greatest = other.greatest_fence(&world.run_id()).await.unwrap();
    assert_eq!(greatest, FencingToken(3));
    other.fence(&world.run_id(), &task("one").id, FencingToken(4)).await.unwrap();
    let before = tip(&bare);
    assert_eq!(world.apply(&task("one"), 3, &intent).await, Applied::Fenced);
    assert_eq!(tip(&bare), before);
}

#[tokio::test]
async fn what_is_no_repository_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let repo = dir.path().join("repo");
    fs::create_dir(&repo).unwrap();
    git(&repo, ["init", "-q", "-b", "main"]);
    git(&repo, ["commit", "-q", "--allow-empty", "-m", "one"]);
    let make = |args: &[&str]| git(dir.path(), ["init", "-q"].iter().chain(args));
    make(&["with a checkout"]);
    make(&["--bare", "--object-format=sha256", "other.git"]);
    for path in
        ["missing", "repo/.git/refs", "with a checkout", "with a checkout/.git", "other.git"]
    {
        let mut config = World::config(&repo, dir.path());
        config.remote = Some(dir.path().join(path));
        let err = GitRun::open(config).await.unwrap_err();
        assert!(matches!(&err, GitError::Remote { .. }), "{err}");
    }
}

#[tokio::test]
async fn a_branch_there_that_is_checked_out_or_another_name_is_refused_before_anything_starts() {
    let (world, bare) = world().await;
    let config = || {
        let mut config = World::config(&world.repo, world.dir.path());
        config.remote = Some(bare.clone());
        config
    };
    fs::remove_dir_all(bare.join("hooks")).unwrap();
    git(&bare, ["fetch", "-q", world.repo.to_str().unwrap(), "main:main"]);
    git(&bare, ["symbolic-ref", "refs/heads/orchestrator/r", "refs/heads/main"]);
    let err = GitRun::open(config()).await.unwrap_err();
    let is_meant =
        matches!(&err, GitError::BranchSymbolic { repository, .. } if *repository == bare);
    assert!(is_meant, "{err}");
    git(&bare, ["symbolic-ref", "-d", "refs/heads/orchestrator/r"]);
    git(&bare, ["worktree", "add", "-q", "-b", BRANCH, "../theirs", "main"]);
    let err = GitRun::open(config()).await.unwrap_err();
    let is_meant =
        matches!(&err, GitError::BranchCheckedOut { worktree, .. } if worktree.ends_with("theirs"));
    assert!(is_meant, "{err}");
    git(&bare, ["worktree", "remove", "../theirs"]);
    // A bare repository may have it as its HEAD, in which nothing is checked out.
    git(&bare, ["symbolic-ref", "HEAD", "refs/heads/orchestrator/r"]);
    drop(GitRun::open(config()).await.unwrap());
}

#[tokio::test]
async fn what_somebody_makes_of_the_branch_there_meanwhile_moves_nothing_else() {
    let (world, bare) = world().await;
    let one = world.work(&task("one"), 1, &[("one", "1\n")]).await;
    world.fence(&task("one"), 3).await;
    let (intent, _) = clean(world.propose(&task("one"), 3, &one).await);
    fs::remove_dir_all(bare.join("hooks")).unwrap();
    git(&bare, ["branch", "theirs", BRANCH]);
    git(&bare, ["symbolic-ref", "refs/heads/orchestrator/r", "refs/heads/theirs"]);
    let (run, id) = (&world.run, world.run_id());
    let err = run.apply(&id, &task("one").id, FencingToken(3), &intent).await.unwrap_err();
    assert!(err.chain().contains("another name of `theirs`"), "{}", err.chain());
    assert_eq!(git(&bare, ["rev-parse", "theirs"]), one.base.as_str());
}

#[tokio::test]
async fn what_was_merged_and_is_gone_there_is_not_quietly_begun_anew() {
    let (world, bare) = world().await;
    fs::remove_dir_all(bare.join("hooks")).unwrap();
    let one = world.work(&task("one"), 1, &[("one", "1\n")]).await;
    let two = world.work(&task("two"), 2, &[("two", "2\n")]).await;
    let intent = world.merge(&task("one"), 3, &one).await;
    let config = || {
        let mut config = World::config(&world.repo, world.dir.path());
        config.remote = Some(bare.clone());
        config
    };
    let propose = async || {
        let run = GitRun::open(config()).await?;
        let id = world.run_id();
        run.fence(&id, &task("two").id, FencingToken(4)).await.unwrap();
        run.propose(&id, &task("two"), FencingToken(4), &two).await.map(drop).map_err(|err| {
            let said = err.chain();
            assert!(said.contains("has not all that the run merged"), "{said}");
            GitError::NoChange { text: said }
        })
    };
    git(&bare, ["branch", "-f", BRANCH, one.base.as_str()]);
    propose().await.unwrap_err();
    assert_eq!(tip(&world.repo), intent.merged.as_str(), "it is not followed there");
    git(&bare, ["branch", "-D", BRANCH]);
    git(&world.repo, ["branch", "-D", BRANCH]);
    let err = propose().await.unwrap_err();
    assert!(matches!(&err, GitError::BranchGone { .. }), "{err}");
    // Where one side has it, the other one gets it back.
    git(&bare, ["branch", BRANCH, intent.merged.as_str()]);
    propose().await.unwrap();
    assert_eq!(tip(&world.repo), intent.merged.as_str());
    git(&bare, ["branch", "-D", BRANCH]);
    propose().await.unwrap();
    assert_eq!(tip(&bare), intent.merged.as_str());
}

#[tokio::test]
async fn what_the_other_side_is_configured_to_run_for_its_alternates_does_not_run() {
    let mut bare = PathBuf::new();
    let prepare = |repo: &Path| {
        let dir = repo.parent().unwrap();
        git(dir, ["clone", "-q", "--bare", repo.to_str().unwrap(), "lender.git"]);
        git(dir, ["clone", "-q", "--bare", "--shared", "lender.git", "origin.git"]);
        let trace = format!("touch '{}/trace'; true", dir.display());
        for key in ["core.alternateRefsCommand", "uploadpack.packObjectsHook", "core.fsmonitor"] {
            git(&dir.join("origin.git"), ["config", key, &trace]);
        }
    };
    let world = World::with(prepare, |config| {
        bare = config.repository.with_file_name("origin.git");
        config.remote = Some(bare.clone());
    })
    .await;
    let one = world.work(&task("one"), 1, &[("one", "1\n")]).await;
    let intent = world.merge(&task("one"), 3, &one).await;
    assert_eq!(tip(&bare), intent.merged.as_str());
    assert!(!world.dir.path().join("trace").exists());
}

#[tokio::test]
async fn what_the_other_side_says_against_a_push_is_said() {
    let (world, bare) = world().await;
    git(&bare, ["config", "receive.hideRefs", "refs/orchestrator"]);
    let fenced = world.run.fence(&world.run_id(), &task("t").id, FencingToken(1)).await;
    let said = format!("{:?}", fenced.unwrap_err());
    assert!(said.contains("hidden ref"), "{said}");
}

#[tokio::test]
async fn a_branch_that_somebody_checks_out_here_is_moved_on_neither_side() {
    let (world, bare) = world().await;
    let one = world.work(&task("one"), 1, &[("one", "1\n")]).await;
    world.fence(&task("one"), 3).await;
    let (intent, _) = clean(world.propose(&task("one"), 3, &one).await);
    let elsewhere = world.dir.path().join("elsewhere");
    git(&world.repo, ["worktree", "add", "-q", elsewhere.to_str().unwrap(), BRANCH]);
    let (run, id) = (&world.run, world.run_id());
    let err = run.apply(&id, &task("one").id, FencingToken(3), &intent).await.unwrap_err();
    assert!(err.chain().contains("elsewhere"), "{}", err.chain());
    assert_eq!(tip(&bare), one.base.as_str());
    git(&world.repo, ["worktree", "remove", elsewhere.to_str().unwrap()]);
    assert_eq!(world.apply(&task("one"), 3, &intent).await, Applied::Merged);
}
