//! What is refused before anything starts, and what works.

use std::fs;
use std::path::Path;

use orchestrator_core::RunId;
use orchestrator_core::port::{Start, Workspaces as _};
use orchestrator_git::{GitConfig, GitError, GitRun};

use crate::world::{World, candidate, git, task, write};

fn repo(dir: &Path) -> std::path::PathBuf {
    let repo = dir.join("repo");
    fs::create_dir(&repo).unwrap();
    git(&repo, ["init", "-q", "-b", "main"]);
    repo
}

async fn error(config: GitConfig) -> GitError {
    GitRun::open(config).await.unwrap_err()
}

#[tokio::test]
async fn a_directory_that_is_no_repository_is_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["missing", "plain", "file"] {
        fs::create_dir_all(dir.path().join("plain")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let err = error(World::config(&dir.path().join(path), dir.path())).await;
        assert!(matches!(err, GitError::NoRepository { .. }), "{err}");
        assert!(err.to_string().contains(path) && err.to_string().contains("git init"), "{err}");
    }
    assert!(!dir.path().join("work trees").exists());
}

#[tokio::test]
async fn a_directory_inside_another_repository_is_not_mistaken_for_it() {
    let world = World::new().await;
    let err = error(World::config(&world.repo.join("src"), world.dir.path())).await;
    assert!(matches!(err, GitError::NotTopLevel { .. }), "{err}");
    let err = error(World::config(&world.repo.join(".git"), world.dir.path())).await;
    assert!(matches!(err, GitError::NotTopLevel { .. } | GitError::NoRepository { .. }), "{err}");
}

#[tokio::test]
async fn a_repository_without_a_commit_or_a_branch_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let repo = repo(dir.path());
    let err = error(World::config(&repo, dir.path())).await;
    assert!(matches!(err, GitError::NoCommit { .. }), "{err}");
    write(&repo, "a", "1");
    git(&repo, ["add", "-A"]);
    git(&repo, ["commit", "-qm", "one"]);
    git(&repo, ["checkout", "-q", "--detach"]);
    let err = error(World::config(&repo, dir.path())).await;
    assert!(matches!(err, GitError::NoTarget { .. }), "{err}");
    let mut config = World::config(&repo, dir.path());
    config.target = Some("main".to_owned());
    assert!(GitRun::open(config).await.is_ok());
}

#[tokio::test]
async fn a_branch_to_merge_into_must_be_free() {
    let dir = tempfile::tempdir().unwrap();
    let repo = repo(dir.path());
    git(&repo, ["commit", "-q", "--allow-empty", "-m", "one"]);
    let with = |branch: &str| {
        let mut config = World::config(&repo, dir.path());
        config.integration = Some(branch.to_owned());
        config
    };
    assert!(matches!(error(with("main")).await, GitError::BranchIsTarget { .. }));
    // Where somebody committed an answer, say, and left it checked out.
    let own = World::config(&repo, dir.path());
    let name = format!("orchestrator/{}", own.run.slug());
    git(&repo, ["checkout", "-q", "-b", &name]);
    let err = error(own).await;
    assert!(matches!(&err, GitError::BranchCheckedOut { .. }), "{err}");
    assert!(err.to_string().contains("switch that checkout to another branch"), "{err}");
    git(&repo, ["checkout", "-q", "main"]);
    git(&repo, ["branch", "-qD", &name]);
    for bad in ["-x", "a..b", "a b", "x.lock", "HEAD", "@"] {
        assert!(matches!(error(with(bad)).await, GitError::BranchName { .. }), "{bad}");
    }
    let other = dir.path().join("other");
    git(&repo, ["worktree", "add", "-q", "-b", "taken", other.to_str().unwrap()]);
    let err = error(with("taken")).await;
    assert!(matches!(&err, GitError::BranchCheckedOut { .. }), "{err}");
    assert!(err.to_string().contains("other"), "{err}");
    let before = git(&repo, ["for-each-ref"]);
    drop(GitRun::open(World::config(&repo, dir.path())).await.unwrap());
    assert_eq!(git(&repo, ["for-each-ref"]), before, "opening makes nothing");
    git(&repo, ["branch", "orchestrator"]);
    let err = error(World::config(&repo, dir.path())).await;
    assert!(matches!(err, GitError::BranchName { .. }), "{err}");
    git(&repo, ["update-ref", "refs/orchestrator", "main"]);
    let err = error(with("free")).await;
    assert!(matches!(&err, GitError::RefsTaken { .. }), "{err}");
    assert!(err.to_string().contains("'refs/orchestrator' exists"), "{err}");
}

#[tokio::test]
async fn workspaces_inside_the_repository_are_refused() {
    let world = World::new().await;
    for root in [world.repo.join("trees"), world.repo.join(".git/trees")] {
        let mut config = World::config(&world.repo, world.dir.path());
        config.worktrees_root = root.clone();
        assert!(matches!(error(config).await, GitError::Root { .. }));
        assert!(!root.exists());
    }
    let other = world.dir.path().join("other");
    git(&world.repo, ["worktree", "add", "-q", "--detach", other.to_str().unwrap()]);
    let mut config = World::config(&world.repo, world.dir.path());
    config.worktrees_root = other.join("trees");
    assert!(matches!(error(config).await, GitError::Root { .. }));
    let link = world.dir.path().join("link");
    std::os::unix::fs::symlink(&world.repo, &link).unwrap();
    let mut config = World::config(&world.repo, world.dir.path());
    config.worktrees_root = link.join("trees");
    assert!(matches!(error(config).await, GitError::Root { .. }));
}

#[tokio::test]
async fn bare_shallow_and_linked_repositories_work() {
    let world = World::new().await;
    let dir = world.dir.path();
    let from = format!("file://{}", world.repo.display());
    git(dir, ["clone", "-q", "--bare", &from, "bare.git"]);
    git(dir, ["clone", "-q", "--depth", "1", &from, "shallow"]);
    git(&world.repo, ["worktree", "add", "-q", "-b", "side", dir.join("linked").to_str().unwrap()]);
    for (name, run) in [("bare.git", "x"), ("shallow", "y"), ("linked", "z")] {
        let mut config = World::config(&dir.join(name), dir);
        config.run = RunId::parse(run).unwrap();
        let run = GitRun::open(config).await.unwrap();
        let mut ask = world.ask(&task("t"), 1, Start::OnTarget);
        ask.run = RunId::parse(run.integration_branch().rsplit('/').next().unwrap()).unwrap();
        let workspace = run.open(&ask).await.unwrap();
        write(&workspace.path, "new", "x");
        candidate(run.seal(&ask, &workspace).await.unwrap());
    }
}

#[tokio::test]
async fn repositories_of_other_formats_work() {
    for format in ["--object-format=sha256", "--ref-format=reftable"] {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("repo");
        fs::create_dir(&repo).unwrap();
        let init = std::process::Command::new("git")
            .args(["init", "-q", "-b", "main", format])
            .current_dir(&repo)
            .status();
        if !init.unwrap().success() {
            // This git does not know the format yet.
            continue;
        }
        write(&repo, "a", "1\n");
        git(&repo, ["add", "-A"]);
        git(&repo, ["commit", "-qm", "one"]);
        let run = GitRun::open(World::config(&repo, dir.path())).await.unwrap();
        let world = World { dir, repo, run };
        let one = world.work(&task("one"), 1, &[("a", "2\n")]).await;
        let two = world.work(&task("two"), 2, &[("b", "2\n")]).await;
        world.merge(&task("one"), 1, &one).await;
        world.merge(&task("two"), 2, &two).await;
        world.open(&task("two"), 3).await;
        world.run.retain(&world.run_id(), &[]).await.unwrap();
        assert_eq!((world.merges_of("one"), world.merges_of("two")), (1, 1), "{format}");
        world.run.fast_forward().await.unwrap();
        assert_eq!(world.show("main:b"), "2");
    }
}

#[tokio::test]
async fn a_repository_of_another_user_works() {
    let dir = tempfile::tempdir().unwrap();
    let repo = repo(dir.path());
    write(&repo, "a", "1");
    git(&repo, ["add", "-A"]);
    git(&repo, ["commit", "-qm", "one"]);
    // Only root can give it away; elsewhere there is nothing to see.
    if std::os::unix::fs::chown(&repo, Some(1), Some(1)).is_err() {
        return;
    }
    let run = GitRun::open(World::config(&repo, dir.path())).await.unwrap();
    let untouched = run.untouched(&RunId::parse("r").unwrap()).await.unwrap();
    assert_eq!(fs::read(untouched.path.join("a")).unwrap(), b"1");
}

#[tokio::test]
async fn a_branch_that_tracks_the_file_of_questions_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let repo = repo(dir.path());
    write(&repo, "BLOCKED.md", "our policy on blocking\n");
    git(&repo, ["add", "-A"]);
    git(&repo, ["commit", "-qm", "one"]);
    let err = error(World::config(&repo, dir.path())).await;
    assert!(matches!(&err, GitError::QuestionFile { .. }), "{err}");
    assert!(err.to_string().contains("git mv BLOCKED.md"), "{err}");
    fs::create_dir(repo.join("docs")).unwrap();
    git(&repo, ["mv", "BLOCKED.md", "docs/BLOCKED.md"]);
    git(&repo, ["commit", "-qm", "two"]);
    drop(GitRun::open(World::config(&repo, dir.path())).await.unwrap());
    // Also where only the branch has it that is merged into.
    git(&repo, ["switch", "-q", "-c", "orchestrator/r"]);
    write(&repo, "BLOCKED.md", "by a person\n");
    git(&repo, ["add", "-A"]);
    git(&repo, ["commit", "-qm", "three"]);
    git(&repo, ["switch", "-q", "main"]);
    let err = error(World::config(&repo, dir.path())).await;
    assert!(err.to_string().contains("branch `orchestrator/r` has"), "{err}");
}

#[tokio::test]
async fn files_that_a_filter_stores_are_refused_or_left_as_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let repo = repo(dir.path());
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
    write(&repo, "assets/big.bin", pointer);
    write(&repo, "assets/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    git(&repo, ["add", "-A"]);
    git(&repo, ["commit", "-qm", "one"]);
    let err = error(World::config(&repo, dir.path())).await;
    assert!(matches!(&err, GitError::StoredOtherwise { .. }), "{err}");
    assert!(err.to_string().contains("assets/.gitattributes"), "{err}");
    let mut config = World::config(&repo, dir.path());
    config.takes_stored = true;
    let world = World { run: GitRun::open(config).await.unwrap(), dir, repo };
    let sealed = world.work(&task("fine"), 1, &[("code", "x\n")]).await;
    world.merge(&task("fine"), 1, &sealed).await;
    assert_eq!(world.show("orchestrator/r:assets/big.bin"), pointer.trim_end());
    let (ask, workspace) = world.open(&task("bad"), 2).await;
    write(&workspace.path, "assets/big.bin", "the real thing");
    write(&workspace.path, "assets/.gitattributes", "");
    let feedback = crate::world::refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains("stored by a filter") && feedback.contains("`assets/big.bin`"));
    // Attributes that are in no commit count too.
    let world = World::new().await;
    write(&world.repo, ".git/info/attributes", "*.psd filter=lfs -text\n");
    let err = error(World::config(&world.repo, world.dir.path())).await;
    assert!(matches!(&err, GitError::StoredOtherwise { .. }), "{err}");
    assert!(err.to_string().contains("info/attributes"), "{err}");
}

#[tokio::test]
async fn a_partial_clone_works_once_it_is_complete() {
    let world = World::new().await;
    git(&world.repo, ["config", "uploadpack.allowFilter", "true"]);
    let from = format!("file://{}", world.repo.display());
    let dir = world.dir.path();
    git(dir, ["clone", "-q", "--no-checkout", "--filter=blob:none", &from, "partial"]);
    let partial = dir.join("partial");
    let err = error(World::config(&partial, dir)).await;
    assert!(matches!(&err, GitError::Incomplete { missing: 4, .. }), "{err}");
    assert!(err.to_string().contains("git fetch --refetch --no-filter"), "{err}");
    git(&partial, ["fetch", "-q", "--refetch", "--no-filter"]);
    drop(GitRun::open(World::config(&partial, dir)).await.unwrap());
}

#[tokio::test]
async fn a_repository_whose_borrowed_objects_are_gone_is_refused_with_a_remedy() {
    let world = World::new().await;
    let dir = world.dir.path();
    git(dir, ["clone", "-q", "--shared", world.repo.to_str().unwrap(), "borrower"]);
    let borrower = dir.join("borrower");
    write(&borrower, "own", "1");
    git(&borrower, ["add", "-A"]);
    git(&borrower, ["commit", "-qm", "own"]);
    drop(GitRun::open(World::config(&borrower, dir)).await.unwrap());
    fs::rename(&world.repo, dir.join("elsewhere")).unwrap();
    let err = error(World::config(&borrower, dir)).await;
    assert!(matches!(&err, GitError::Incomplete { .. }), "{err}");
    assert!(err.to_string().contains("objects/info/alternates"), "{err}");
}

#[tokio::test]
async fn a_sparse_checkout_stays_sparse_and_workspaces_have_all_files() {
    let prepare = |repo: &Path| {
        write(repo, "docs/far/away.md", "text\n");
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "more"]);
        git(repo, ["sparse-checkout", "set", "--cone", "--sparse-index", "src"]);
    };
    let world = World::with(prepare, |_| {}).await;
    let index = fs::read(world.repo.join(".git/index")).unwrap();
    assert!(!world.repo.join("docs").exists());
    let (_, workspace) = world.open(&task("t"), 1).await;
    assert!(workspace.path.join("docs/far/away.md").exists());
    let sealed = world.work(&task("u"), 2, &[("docs/far/away.md", "other\n")]).await;
    world.merge(&task("u"), 2, &sealed).await;
    assert_eq!(world.show("orchestrator/r:docs/far/away.md"), "other");
    assert_eq!(world.show("orchestrator/r:src/a.rs"), "fn a() {}");
    assert_eq!(fs::read(world.repo.join(".git/index")).unwrap(), index);
    assert!(!world.repo.join("docs").exists());
}
