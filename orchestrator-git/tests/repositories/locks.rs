//! Locks that a killed git left: removed where they are ours and nobody holds them, named elsewhere.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use orchestrator_core::FencingToken;
use orchestrator_core::port::{Integrator as _, Start, Workspaces as _};

use crate::world::{World, clean, git, task, write};

#[tokio::test]
async fn stale_locks_of_our_own_are_removed() {
    let world = World::new().await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "x\n")]).await;
    world.fence(&task("t"), 1).await;
    let git_dir = world.repo.join(".git");
    for lock in ["refs/orchestrator/r/fence/t.lock", "refs/heads/orchestrator/r.lock"] {
        write(&git_dir, lock, "");
    }
    world.merge(&task("t"), 2, &sealed).await;
    assert_eq!(world.merges_of("t"), 1);
    let place = world.dir.path().join("work trees/r/t");
    for lock in ["index.lock", "../../../the repo é/.git/worktrees/tree/index.lock"] {
        write(&place, lock, "");
    }
    write(&git_dir, "worktrees/tree/HEAD.lock", "");
    let (_, workspace) = world.open(&task("t"), 3).await;
    git(&workspace.path, ["add", "-A"]);
    write(&git_dir, "worktrees/tree/index.lock", "");
    let again = Start::AsLeftBy { token: FencingToken(3), otherwise: Box::new(Start::OnTarget) };
    let workspace = world.run.open(&world.ask(&task("t"), 4, again)).await.unwrap();
    assert!(workspace.as_left);
    git(&workspace.path, ["add", "-A"]);
}

#[tokio::test]
async fn a_lock_left_while_the_branch_was_made_does_not_keep_the_run_from_opening() {
    let world = World::new().await;
    write(&world.repo, ".git/refs/heads/orchestrator/r.lock", "");
    let run = world.again().await;
    run.open(&world.ask(&task("t"), 1, Start::OnTarget)).await.unwrap();
}

#[tokio::test]
async fn the_lock_of_a_table_of_refs_is_waited_for() {
    let reftable = |repo: &std::path::Path| {
        fs::remove_dir_all(repo.join(".git/logs")).unwrap();
        git(repo, ["refs", "migrate", "--ref-format=reftable"]);
    };
    let world = World::with(reftable, |_| {}).await;
    world.fence(&task("t"), 1).await;
    let lock = world.repo.join(".git/reftable/tables.list.lock");
    fs::write(&lock, "").unwrap();
    let (run, id) = (world.run.clone(), world.run_id());
    let fence = async move { run.fence(&id, &task("t").id, FencingToken(2)).await };
    let mut fencing = tokio::spawn(fence);
    let begun = tokio::time::timeout(std::time::Duration::from_millis(300), &mut fencing).await;
    assert!(begun.is_err(), "somebody has the lock: {begun:?}");
    fs::remove_file(&lock).unwrap();
    fencing.await.unwrap().unwrap();
    let impatient = world.impatient().await;
    fs::write(&lock, "").unwrap();
    let err = impatient.fence(&world.run_id(), &task("t").id, FencingToken(3)).await.unwrap_err();
    assert!(err.chain().contains("tables.list.lock is in the way"), "{}", err.chain());
    assert!(lock.exists(), "nobody knows whose it is");
}

#[tokio::test]
async fn what_a_kill_leaves_of_the_directory_apart_is_made_whole() {
    let world = World::new().await;
    let apart = world.dir.path().join("work trees/r/.apart.git");
    for (lock, gone) in [("config.lock", "config"), ("HEAD.lock", "HEAD")] {
        write(&apart, lock, "");
        write(&apart, gone, "[core");
    }
    fs::remove_dir_all(apart.join("refs")).unwrap();
    let run = world.again().await;
    run.open(&world.ask(&task("t"), 1, Start::OnTarget)).await.unwrap();
    write(&apart, "config", "[diff]\n\texternal = touch /nowhere\n");
    drop(world.again().await);
    assert!(!fs::read_to_string(apart.join("config")).unwrap().contains("external"));
}

#[tokio::test]
async fn a_lock_of_somebody_else_is_named_and_left() {
    let world = World::new().await;
    let lock = world.repo.join(".git/packed-refs.lock");
    git(&world.repo, ["pack-refs", "--all"]);
    let (_, workspace) = world.open(&task("t"), 1).await;
    let sealed = world.work(&task("t"), 2, &[("src/a.rs", "x\n")]).await;
    fs::write(&lock, "").unwrap();
    // Deleting a packed ref is the only thing that needs this lock; nothing here does.
    world.merge(&task("t"), 2, &sealed).await;
    assert!(lock.exists() && workspace.path.exists());
    let other = world.repo.join(".git/HEAD.lock");
    fs::write(&other, "").unwrap();
    let err = world.run.fast_forward().await.unwrap_err();
    assert!(err.to_string().contains("HEAD.lock") && other.exists(), "{err}");
}

/// A program that git's name is given to, so that it may hold a lock.
fn holder(world: &World) -> Child {
    let program = world.dir.path().join("git");
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    Command::new(program).arg("3600").current_dir(&world.repo).stdin(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn a_lock_that_may_be_held_is_waited_for_and_not_removed() {
    let world = World::new().await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "x\n")]).await;
    world.fence(&task("t"), 1).await;
    let (intent, _) = clean(world.propose(&task("t"), 1, &sealed).await);
    let impatient = world.impatient().await;
    let lock = world.repo.join(".git/refs/heads/orchestrator/r.lock");
    fs::write(&lock, "").unwrap();
    let mut elsewhere = holder(&World::new().await);
    let mut held = holder(&world);
    let (id, token) = (task("t").id, FencingToken(1));
    let applied = impatient.apply(&world.run_id(), &id, token, &intent).await;
    let err = applied.unwrap_err().chain();
    assert!(err.contains(&held.id().to_string()) && lock.exists(), "{err}");
    held.kill().unwrap();
    held.wait().unwrap();
    let applied = world.run.apply(&world.run_id(), &id, token, &intent).await.unwrap();
    assert_eq!(applied, orchestrator_core::port::Applied::Merged);
    assert!(!lock.exists());
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
}

/// A git that has prepared a transaction on these refs, and holds their locks.
fn prepared(world: &World, lines: &str) -> Child {
    let mut child = Command::new("git");
    child.args(["update-ref", "--stdin"]).current_dir(&world.repo);
    child.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let input = format!("start\n{lines}prepare\n");
    child.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
    let mut answers = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert_eq!(answers.next().unwrap().unwrap(), "start: ok");
    assert_eq!(answers.next().unwrap().unwrap(), "prepare: ok");
    child
}

#[tokio::test]
async fn p17_a_git_killed_in_the_middle_of_a_merge_neither_merges_nor_blocks() {
    let world = World::new().await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "x\n")]).await;
    world.fence(&task("t"), 1).await;
    let (intent, _) = clean(world.propose(&task("t"), 1, &sealed).await);
    let fence = git(&world.repo, ["rev-parse", "refs/orchestrator/r/fence/t"]);
    let mut old = prepared(
        &world,
        &format!(
            "verify refs/orchestrator/r/fence/t {fence}\n\
             update refs/heads/orchestrator/r {} {}\n",
            intent.merged, intent.onto
        ),
    );
    let git_dir = world.repo.join(".git");
    assert!(git_dir.join("refs/heads/orchestrator/r.lock").exists());
    // While it lives it may still go through: nobody passes it.
    let run = world.again().await;
    let (id, token) = (task("t").id, FencingToken(2));
    let impatient = world.impatient().await;
    let err = impatient.fence(&world.run_id(), &id, token).await.unwrap_err().chain();
    assert!(err.contains(&old.id().to_string()), "{err}");
    old.kill().unwrap();
    old.wait().unwrap();
    run.fence(&world.run_id(), &id, token).await.unwrap();
    assert!(!run.is_merged(&intent.merged).await.unwrap());
    world.merge(&task("t"), 2, &sealed).await;
    assert_eq!(world.merges_of("t"), 1);
    let locks = crate::world::listing(&git_dir);
    let locks = locks.iter().filter(|(path, _)| path.extension().is_some_and(|ext| ext == "lock"));
    assert_eq!(locks.count(), 0);
}
