//! Submodules that an agent, or the set-up, filled.

use std::fs;
use std::path::Path;
use std::time::Duration;

use orchestrator_core::port::{Start, Workspaces as _};
use orchestrator_git::SetUp;
use tempfile::TempDir;

use crate::world::{World, candidate, git, program, refused, task, write};

const FILL: [&str; 6] = ["-c", "protocol.file.allow=always", "submodule", "update", "--init", "-q"];

/// A world whose repository has a submodule.
async fn world(set_up: Vec<SetUp>) -> (TempDir, World) {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), ["init", "-q", "-b", "main"]);
    write(dir.path(), "f", "recorded\n");
    git(dir.path(), ["add", "-A"]);
    git(dir.path(), ["commit", "-qm", "begin"]);
    let from = dir.path().to_str().unwrap().to_owned();
    let prepare = move |repo: &Path| {
        git(repo, ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &from, "lib/sub"]);
        git(repo, ["commit", "-qm", "submodule"]);
    };
    (dir, World::with(prepare, |config| config.set_up = set_up).await)
}

fn inside(tree: &Path) -> Option<String> {
    fs::read_to_string(tree.join("lib/sub/f")).ok()
}

#[tokio::test]
async fn p19_what_was_done_in_a_submodule_is_said_and_set_aside_with_its_history() {
    let (_from, world) = world(Vec::new()).await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    git(&workspace.path, FILL);
    write(&workspace.path, "src/a.rs", "work\n");
    candidate(world.run.seal(&ask, &workspace).await.unwrap());
    let (ask, workspace) = world.open(&task("t"), 2).await;
    assert_eq!(inside(&workspace.path).as_deref(), Some("recorded\n"), "it may stay");
    let sub = workspace.path.join("lib/sub");
    write(&sub, "f", "committed\n");
    git(&sub, ["commit", "-qam", "theirs"]);
    git(&sub, ["checkout", "-q", "HEAD^"]);
    write(&sub, "f", "changed\n");
    write(&workspace.path, "src/a.rs", "work\n");
    let said = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(said.contains("submodules") && said.contains("`lib/sub`"), "{said}");
    let (_, workspace) = world.open(&task("t"), 3).await;
    assert_eq!(inside(&workspace.path), None);
    let aside = world.run.set_aside();
    let kept = aside[0].dir.join("tree/lib/sub");
    assert_eq!(fs::read_to_string(kept.join("f")).unwrap(), "changed\n");
    let log = git(&kept, ["log", "--all", "--reflog", "--format=%s"]);
    assert!(log.contains("theirs"), "{log}");
}

#[tokio::test]
async fn the_next_task_gets_a_submodule_as_the_set_up_fills_it() {
    let command = ["git"].into_iter().chain(FILL).map(str::to_owned).collect();
    let step = SetUp::Run { command, timeout: Duration::from_secs(300) };
    let (_from, world) = world(vec![step]).await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    assert_eq!(inside(&workspace.path).as_deref(), Some("recorded\n"));
    write(&workspace.path, "src/a.rs", "work\n");
    let sealed = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    write(&workspace.path, "lib/sub/f", "by a process that went on\n");
    let ask = world.ask(&task("t"), 2, Start::On(sealed));
    let workspace = world.run.open(&ask).await.unwrap();
    assert_eq!(inside(&workspace.path).as_deref(), Some("recorded\n"), "who judges sees it too");
    world.run.release(&world.run_id(), &task("t").id).await.unwrap();
    let (ask, workspace) = world.open(&task("u"), 3).await;
    assert_eq!(inside(&workspace.path).as_deref(), Some("recorded\n"));
    assert_eq!(git(&workspace.path, ["status", "--porcelain"]), "");
    write(&workspace.path, "src/b.rs", "work\n");
    candidate(world.run.seal(&ask, &workspace).await.unwrap());
    let spares = world.dir.path().join("work trees/r/.pool");
    assert!(fs::read_dir(spares).unwrap().next().is_none(), "it was used again");
}

#[tokio::test]
async fn a_link_in_the_place_of_a_submodule_leads_nowhere() {
    let (_from, world) = world(Vec::new()).await;
    let (_, workspace) = world.open(&task("t"), 1).await;
    let outside = world.dir.path().join("outside");
    write(&outside, "sub/precious", "x");
    fs::remove_dir_all(workspace.path.join("lib")).unwrap();
    std::os::unix::fs::symlink(&outside, workspace.path.join("lib")).unwrap();
    world.open(&task("t"), 2).await;
    assert_eq!(fs::read(outside.join("sub/precious")).unwrap(), b"x");
}

/// Has a submodule run a program wherever git looks whether its files are changed.
fn poison(sub: &Path, command: &str) {
    for key in ["filter.evil.clean", "core.fsmonitor"] {
        git(sub, ["config", key, command]);
    }
    let own = git(sub, ["rev-parse", "--absolute-git-dir"]);
    write(Path::new(&own), "info/attributes", "* filter=evil\n");
}

#[tokio::test]
async fn nothing_that_a_submodule_is_configured_to_run_is_run() {
    let (from, world) = world(Vec::new()).await;
    let (evil, proof) = (from.path().join("evil"), from.path().join("proof"));
    program(&evil, &format!("#!/bin/sh\ncat\necho >> '{}'\n", proof.display()));
    let command = evil.to_str().unwrap();
    let (ask, workspace) = world.open(&task("t"), 1).await;
    git(&workspace.path, FILL);
    let sub = workspace.path.join("lib/sub");
    poison(&sub, command);
    // As it was, and to be read to see that.
    write(&sub, "f", "recorded\n");
    write(&workspace.path, "src/a.rs", "work\n");
    let sealed = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(!proof.exists(), "a seal ran it");
    // The same where only the index knows that there is a repository.
    let (ask, workspace) = world.open(&task("u"), 2).await;
    let inner = workspace.path.join("inner");
    git(&workspace.path, ["clone", "-q", from.path().to_str().unwrap(), "inner"]);
    assert!(refused(world.run.seal(&ask, &workspace).await.unwrap()).contains("`inner`"));
    poison(&inner, command);
    write(&inner, "f", "recorded\n");
    assert!(refused(world.run.seal(&ask, &workspace).await.unwrap()).contains("`inner`"));
    assert!(!proof.exists(), "a second seal ran it");
    world.merge(&task("t"), 3, &sealed).await;
    let sub = world.repo.join("lib/sub");
    poison(&sub, command);
    write(&sub, "f", "recorded\n");
    world.run.fast_forward().await.unwrap();
    assert!(!proof.exists(), "a fast-forward ran it");
}
