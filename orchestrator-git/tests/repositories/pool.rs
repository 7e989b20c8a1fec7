//! Worktrees that go from one task to the next.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
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

/// Git's own directory of a worktree.
fn admin(tree: &Path) -> PathBuf {
    PathBuf::from(git(tree, ["rev-parse", "--absolute-git-dir"]))
}

/// What stays the same when a worktree is used again.
fn inode(tree: &Path) -> u64 {
    fs::metadata(tree.join("README.md")).unwrap().ino()
}

#[tokio::test]
async fn a_worktree_is_used_again_and_holds_nothing_of_the_task_before() {
    let world =
        World::with(|_| {}, |config| config.caches = vec!["/target/deps/".to_owned()]).await;
    let (_, one) = world.open(&task("one"), 1).await;
    let its_inode = inode(&one.path);
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
    git(&one.path, ["commit", "-qm", "its words", "--allow-empty"]);
    git(&one.path, ["update-ref", "refs/worktree/its", "HEAD"]);
    git(&one.path, ["worktree", "lock", "."]);
    let sealed = world.work(&task("other"), 2, &[("src/c.rs", "c\n")]).await;
    release(&world, "one").await;
    assert!(!one.path.exists());
    assert_eq!(world.show("refs/orchestrator/r/kept/one/1-1:new/file"), "untracked");
    // A target that moved meanwhile.
    world.merge(&task("other"), 2, &sealed).await;
    let (_, two) = world.open(&task("two"), 3).await;
    assert_eq!(inode(&two.path), its_inode, "it is the same worktree");
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
    assert!(!admin(&two.path).join("config.worktree").exists());
    assert!(!admin(&two.path).join("locked").exists());
    assert_eq!(git(&two.path, ["for-each-ref", "refs/worktree"]), "");
    let said = git(&two.path, ["log", "-g", "--format=%gs %s"]);
    assert!(!said.contains("its words"), "{said}");
}

#[tokio::test]
async fn a_worktree_on_another_disk_than_the_repository_is_used_again_too() {
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return };
    let root = other.path().join("trees");
    let world = World::with(|_| {}, |config| config.worktrees_root = root).await;
    let (_, one) = world.open(&task("one"), 1).await;
    let its_inode = inode(&one.path);
    write(&one.path, "src/a.rs", "work\n");
    release(&world, "one").await;
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 1, "git knows no spare");
    let (_, two) = world.open(&task("two"), 2).await;
    assert_eq!(inode(&two.path), its_inode);
    assert_eq!(git(&two.path, ["status", "--porcelain"]), "");
    assert_eq!(world.show("refs/orchestrator/r/kept/one/1-1:src/a.rs"), "work");
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
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 1, "git knows no spare");
    world.run.clear_spares().await.unwrap();
    assert_eq!(spares(&world).len(), 0);
}

#[tokio::test]
async fn a_worktree_whose_handing_over_broke_off_anywhere_is_made_anew() {
    let world = World::new().await;
    let root = world.dir.path().join("work trees/r");
    // In the middle of becoming spare: git still knows it, at a place where it is not.
    let (_, one) = world.open(&task("one"), 1).await;
    write(&one.path, "half", "work");
    fs::create_dir_all(root.join(".pool")).unwrap();
    let marker = fs::read_to_string(root.join("one/marker")).unwrap();
    fs::write(root.join("one/marker"), marker.replace("state ready", "state opening")).unwrap();
    fs::rename(root.join("one"), root.join(".pool/1")).unwrap();
    write(&root.join(".pool/2"), "tree/junk", "nobody's");
    let (_, two) = world.open(&task("two"), 2).await;
    assert_eq!(git(&two.path, ["status", "--porcelain"]), "");
    assert!(!two.path.join("junk").exists());
    // In the middle of being taken: it is at its new place, and git does not know it.
    release(&world, "two").await;
    let spare = spares(&world).pop().unwrap();
    write(&spare, "tree/target/old", "of the task before");
    fs::rename(&spare, root.join("three")).unwrap();
    let (_, three) = world.open(&task("three"), 3).await;
    assert_eq!(git(&three.path, ["status", "--porcelain"]), "");
    assert!(!three.path.join("target").exists());
    world.run.retain(&world.run_id(), &[TaskId::parse("three").unwrap()]).await.unwrap();
    assert_eq!(spares(&world).len(), 0);
    assert_eq!(git(&world.repo, ["worktree", "list"]).lines().count(), 2);
    assert!(!world.refs().contains("kept/three"), "nothing of it is work of that task");
}

#[tokio::test]
async fn a_worktree_is_made_and_used_again_though_its_directory_is_removed_whenever_it_is_empty() {
    let world = World::new().await;
    let worktrees = world.repo.join(".git/worktrees");
    // It ends with the repository.
    let remover = std::thread::spawn(move || {
        while worktrees.parent().is_some_and(Path::exists) {
            fs::remove_dir(&worktrees).ok();
        }
    });
    for token in 1..20 {
        let (_, workspace) = world.open(&task("t"), token).await;
        assert_eq!(git(&workspace.path, ["status", "--porcelain"]), "");
        release(&world, "t").await;
    }
    drop(world);
    remover.join().unwrap();
}
