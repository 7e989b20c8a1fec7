//! Worktrees that go from one task to the next.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use orchestrator_core::TaskId;
use orchestrator_core::port::Workspaces as _;

use crate::world::{World, git, listing, task, write};

async fn release(world: &World, id: &str) {
    world.run.release(&world.run_id(), &TaskId::parse(id).unwrap()).await.unwrap();
}

fn spares(world: &World) -> Vec<PathBuf> {
    let dir = world.dir.path().join("work trees/r/.pool");
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The inode of git's own directory of a worktree: it stays when the worktree is used again.
fn admin(tree: &Path) -> String {
    git(tree, ["rev-parse", "--absolute-git-dir"])
}

#[tokio::test]
async fn a_worktree_is_used_again_and_holds_nothing_of_the_task_before() {
    let world = World::with(|_| {}, |config| config.caches = vec!["/target/deps/".to_owned()]).await;
    let (_, one) = world.open(&task("one"), 1).await;
    let its_admin = admin(&one.path);
    git(&one.path, ["switch", "-q", "-c", "mine"]);
    write(&one.path, "src/a.rs", "changed\n");
    write(&one.path, "new/file", "untracked\n");
    write(&one.path, "target/out", "ignored\n");
    write(&one.path, "target/deps/lib", "a cache\n");
    write(&one.path, "target/read only/x", "ignored\n");
    fs::remove_file(one.path.join("src/b.rs")).unwrap();
    let locked = one.path.join("target/read only");
    fs::set_permissions(locked, fs::Permissions::from_mode(0o500)).unwrap();
    write(&one.aside, "session", "of the agent");
    git(&one.path, ["config", "extensions.worktreeConfig", "true"]);
    git(&one.path, ["config", "--worktree", "core.hooksPath", "/nowhere"]);
    let sealed = world.work(&task("other"), 2, &[("src/c.rs", "c\n")]).await;
    release(&world, "one").await;
    assert!(!one.path.exists());
    assert_eq!(world.show("refs/orchestrator/r/kept/one/1-1:new/file"), "untracked");
    // A target that moved meanwhile.
    world.merge(&task("other"), 2, &sealed).await;
    let (_, two) = world.open(&task("two"), 3).await;
    assert_eq!(admin(&two.path), its_admin, "it is the same worktree");
    let files: Vec<PathBuf> = listing(&two.path)
        .into_iter()
        .map(|(path, _)| path.strip_prefix(&two.path).unwrap().to_owned())
        .collect();
    let expected =
        [".git", ".gitignore", "README.md", "src/a.rs", "src/b.rs", "src/c.rs", "target/deps/lib"];
    assert_eq!(files, expected.map(PathBuf::from));
    assert_eq!(fs::read(two.path.join("src/a.rs")).unwrap(), b"fn a() {}\n");
    assert_eq!(git(&two.path, ["status", "--porcelain"]), "");
    assert_eq!(git(&two.path, ["branch", "--show-current"]), "");
    assert!(!two.aside.join("session").exists());
    assert!(!Path::new(&its_admin).join("config.worktree").exists());
}

#[tokio::test]
async fn spares_have_a_limit_and_are_removed_in_the_end() {
    let world = World::with(|_| {}, |config| config.spares_max = 1).await;
    for (id, token) in [("a", 1), ("b", 2)] {
        world.open(&task(id), token).await;
    }
    for id in ["a", "b"] {
        release(&world, id).await;
    }
    assert_eq!(spares(&world).len(), 1);
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 2);
    world.run.clear_spares().await.unwrap();
    assert_eq!(spares(&world).len(), 0);
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 1);
}

#[tokio::test]
async fn a_spare_that_git_does_not_know_is_not_used_and_one_moved_half_way_neither() {
    let world = World::new().await;
    let (_, one) = world.open(&task("one"), 1).await;
    let gitdir = Path::new(&admin(&one.path)).join("gitdir");
    let before = fs::read(&gitdir).unwrap();
    release(&world, "one").await;
    // The process died after the move and before git was told.
    fs::write(&gitdir, before).unwrap();
    let root = world.dir.path().join("work trees/r");
    write(&root.join(".pool/0"), "tree/junk", "nobody's");
    let (_, two) = world.open(&task("two"), 2).await;
    assert_eq!(git(&two.path, ["status", "--porcelain"]), "");
    assert!(!two.path.join("junk").exists());
    // The process died after a spare was moved to its new place and before git was told.
    release(&world, "two").await;
    let spare = spares(&world).pop().unwrap();
    write(&spare, "tree/target/old", "of the task before");
    fs::rename(&spare, root.join("three")).unwrap();
    let (_, three) = world.open(&task("three"), 3).await;
    assert_eq!(git(&three.path, ["status", "--porcelain"]), "");
    assert!(!three.path.join("target").exists());
    world.run.retain(&world.run_id(), &[TaskId::parse("three").unwrap()]).await.unwrap();
    world.run.clear_spares().await.unwrap();
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 2);
    assert!(!world.refs().contains("kept/three"), "nothing of it is work of that task");
}
