//! Workspaces: what is in them, and that no work is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use orchestrator_core::port::{OpenWorkspace, Start, Workspaces as _};
use orchestrator_core::{FencingToken, TaskId};

use crate::world::{World, candidate, git, refused, task, write};

fn as_left(token: u64) -> Start {
    Start::AsLeftBy { token: FencingToken(token), otherwise: Box::new(Start::OnTarget) }
}

#[tokio::test]
async fn a_workspace_is_a_clean_worktree_outside_the_checkout() {
    let world = World::new().await;
    let (_, workspace) = world.open(&task("HTTP/types"), 1).await;
    assert!(!workspace.path.starts_with(&world.repo));
    assert_eq!(fs::read(workspace.path.join("src/a.rs")).unwrap(), b"fn a() {}\n");
    assert_eq!(git(&workspace.path, ["status", "--porcelain"]), "");
    assert_eq!(git(&workspace.path, ["rev-parse", "HEAD"]), workspace.base.as_str());
    assert!(!workspace.aside.starts_with(&workspace.path));
}

#[tokio::test]
async fn p19_leftover_work_is_kept_and_can_be_restored() {
    let world = World::new().await;
    let (_, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "src/a.rs", "half\n");
    write(&workspace.path, "new dir/ñew\nfile", "untracked\n");
    fs::remove_file(workspace.path.join("src/b.rs")).unwrap();
    write(&workspace.path, "target/cache", "ignored\n");
    let (_, again) = world.open(&task("t"), 2).await;
    assert_eq!(again.path, workspace.path);
    assert_eq!(fs::read(again.path.join("src/a.rs")).unwrap(), b"fn a() {}\n");
    assert!(again.path.join("src/b.rs").exists() && !again.path.join("new dir").exists());
    assert!(again.path.join("target/cache").exists(), "ignored files are left alone");
    assert_eq!(git(&again.path, ["status", "--porcelain"]), "");
    let kept = "refs/orchestrator/r/kept/t/1-1";
    assert_eq!(world.show(&format!("{kept}:src/a.rs")), "half");
    assert_eq!(world.show(&format!("{kept}:new dir/ñew\nfile")), "untracked");
    git(&again.path, ["checkout", kept, "--", "."]);
    assert_eq!(fs::read(again.path.join("src/a.rs")).unwrap(), b"half\n");
}

#[tokio::test]
async fn a_workspace_is_gone_on_with_where_the_lease_left_it() {
    let world = World::new().await;
    let (_, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "half", "x");
    let again = world.run.open(&world.ask(&task("t"), 2, as_left(1))).await.unwrap();
    assert!(again.as_left && again.path.join("half").exists());
    assert_eq!(again.base, workspace.base);
    // Another process, after a crash.
    let ask = world.ask(&task("t"), 3, as_left(2));
    assert!(world.again().await.open(&ask).await.unwrap().as_left);
    // What another lease left is something else.
    let other = world.run.open(&world.ask(&task("t"), 4, as_left(1))).await.unwrap();
    assert!(!other.as_left && !other.path.join("half").exists());
    assert_eq!(world.show("refs/orchestrator/r/kept/t/1-3:half"), "x");
}

#[tokio::test]
async fn keep_says_where_the_work_is_and_nothing_when_there_is_none() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    assert_eq!(world.run.keep(&ask, &workspace).await.unwrap(), None);
    write(&workspace.path, "a question", "?");
    let kept = world.run.keep(&ask, &workspace).await.unwrap().unwrap();
    assert_eq!(world.show(&format!("{kept}:a question")), "?");
    assert_eq!(world.run.keep(&ask, &workspace).await.unwrap(), Some(kept.clone()));
    write(&workspace.path, "a question", "??");
    assert_eq!(world.run.keep(&ask, &workspace).await.unwrap(), Some(kept.clone()));
    assert_eq!(world.show(&format!("{kept}:a question")), "??");
    assert_eq!(world.show(&format!("{kept}^2:a question")), "?");
}

#[tokio::test]
async fn a_candidate_is_judged_in_a_workspace_that_holds_it_and_nothing_else() {
    let world = World::new().await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "new\n"), ("src/c.rs", "c\n")]).await;
    let judge = || world.ask(&task("t"), 2, Start::On(sealed.clone()));
    let workspace = world.run.open(&judge()).await.unwrap();
    assert_eq!(workspace.base, sealed.base);
    assert_eq!(git(&workspace.path, ["rev-parse", "HEAD"]), sealed.change.as_str());
    assert_eq!(git(&workspace.path, ["status", "--porcelain"]), "");
    assert!(world.run.differing(&workspace, &sealed.change).await.unwrap().is_empty());
    // Files made by the judges are theirs, and are not kept as work.
    write(&workspace.path, "report.txt", "made by verify");
    assert!(world.run.differing(&workspace, &sealed.change).await.unwrap().is_empty());
    write(&workspace.path, "src/a.rs", "changed by verify\n");
    let differing = world.run.differing(&workspace, &sealed.change).await.unwrap();
    assert_eq!(differing, ["src/a.rs"]);
    let workspace = world.run.open(&judge()).await.unwrap();
    assert!(!workspace.path.join("report.txt").exists());
    assert!(world.run.differing(&workspace, &sealed.change).await.unwrap().is_empty());
    assert!(!world.refs().contains("/kept/"), "{}", world.refs());
}

#[tokio::test]
async fn line_endings_that_git_converts_are_no_difference() {
    let prepare = |repo: &std::path::Path| {
        write(repo, "plain.txt", "kept as it is\r\n");
        git(repo, ["-c", "core.autocrlf=false", "add", "-A"]);
        git(repo, ["commit", "-qm", "crlf in the blob"]);
        write(repo, ".gitattributes", "*.txt text\n*.bat text eol=crlf\n");
        write(repo, "run.bat", "one\ntwo\n");
        git(repo, ["add", ".gitattributes", "run.bat"]);
        git(repo, ["commit", "-qm", "attributes"]);
    };
    let world = World::with(prepare, |_| {}).await;
    let sealed = world.work(&task("t"), 1, &[("x.bat", "mine\n"), ("src/a.rs", "new\r\n")]).await;
    let ask = world.ask(&task("t"), 2, Start::On(sealed.clone()));
    let workspace = world.run.open(&ask).await.unwrap();
    assert_eq!(fs::read(workspace.path.join("run.bat")).unwrap(), b"one\r\ntwo\r\n");
    assert_eq!(fs::read(workspace.path.join("x.bat")).unwrap(), b"mine\r\n", "as a checkout is");
    for touched in ["run.bat", "plain.txt", "src/a.rs"] {
        let bytes = fs::read(workspace.path.join(touched)).unwrap();
        fs::write(workspace.path.join(touched), bytes).unwrap();
    }
    let differing = world.run.differing(&workspace, &sealed.change).await.unwrap();
    assert!(differing.is_empty(), "{differing:?}");
}

#[tokio::test]
async fn p19_repositories_inside_a_workspace_are_set_aside_not_removed() {
    let world = World::new().await;
    let (_, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "half", "x");
    for (name, commits) in [("empty", false), ("full", true)] {
        let nested = workspace.path.join(name);
        write(&nested, "file", "precious");
        git(&nested, ["init", "-q"]);
        if commits {
            git(&nested, ["add", "-A"]);
            git(&nested, ["commit", "-qm", "inner"]);
        }
    }
    let (_, again) = world.open(&task("t"), 2).await;
    assert!(!again.path.join("empty").exists() && !again.path.join("full").exists());
    assert_eq!(world.show("refs/orchestrator/r/kept/t/1-1:half"), "x");
    let aside = world.dir.path().join("work trees/r/.kept");
    let kept = crate::world::listing(&aside);
    let files = kept.iter().filter(|(path, text)| path.ends_with("file") && text == b"precious");
    assert_eq!(files.count(), 2);
}

#[tokio::test]
async fn p19_a_file_that_git_would_read_for_minutes_is_said_and_set_aside() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "half", "x");
    for path in ["disk.img", "target/ignored.img"] {
        write(&workspace.path, path, "");
        let file = fs::File::options().write(true).open(workspace.path.join(path)).unwrap();
        file.set_len(1 << 40).unwrap();
    }
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains("too large") && feedback.contains("`disk.img`"), "{feedback}");
    assert!(!feedback.contains("ignored"), "{feedback}");
    let (_, again) = world.open(&task("t"), 2).await;
    assert!(!again.path.join("disk.img").exists());
    assert_eq!(world.show("refs/orchestrator/r/kept/t/1-1:half"), "x");
    let aside = world.run.set_aside();
    assert_eq!(fs::metadata(aside[0].dir.join("tree/disk.img")).unwrap().len(), 1 << 40);
}

#[tokio::test]
async fn p19_an_index_whose_objects_were_collected_is_made_anew() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "new", "of the task\n");
    // So old that the index is believed.
    let file = fs::File::options().write(true).open(workspace.path.join("new")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1)).unwrap();
    let nested = workspace.path.join("nested");
    write(&nested, "file", "x");
    git(&nested, ["init", "-q"]);
    git(&nested, ["commit", "-q", "--allow-empty", "-m", "inner"]);
    refused(world.run.seal(&ask, &workspace).await.unwrap());
    fs::remove_dir_all(&nested).unwrap();
    git(&world.repo, ["gc", "-q", "--prune=now"]);
    let sealed = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    assert_eq!(world.show(&format!("{}:new", sealed.change)), "of the task");
}

#[tokio::test]
async fn p19_releasing_and_retaining_keep_what_is_in_no_change() {
    let world = World::new().await;
    for (id, token) in [("a", 1), ("b", 2), ("c", 3)] {
        let (_, workspace) = world.open(&task(id), token).await;
        write(&workspace.path, "half", id);
        let locked = workspace.path.join("target/locked");
        write(&locked, "x", "");
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    }
    let live = [TaskId::parse("b").unwrap()];
    world.run.release(&world.run_id(), &TaskId::parse("a").unwrap()).await.unwrap();
    world.run.release(&world.run_id(), &TaskId::parse("never").unwrap()).await.unwrap();
    world.again().await.retain(&world.run_id(), &live).await.unwrap();
    let root = world.dir.path().join("work trees/r");
    assert!(!root.join("a").exists() && root.join("b/tree/half").exists());
    assert!(!root.join("c").exists());
    assert_eq!(world.show("refs/orchestrator/r/kept/a/1-1:half"), "a");
    assert_eq!(world.show("refs/orchestrator/r/kept/c/1-3:half"), "c");
    let worktrees = git(&world.repo, ["worktree", "list"]);
    assert_eq!(worktrees.lines().count(), 2, "{worktrees}");
}

#[tokio::test]
async fn a_removal_that_broke_off_is_finished() {
    let world = World::new().await;
    world.open(&task("a"), 1).await;
    let (_, other) = world.open(&task("b"), 2).await;
    let root = world.dir.path().join("work trees/r");
    fs::rename(root.join("a"), root.join(".trash-a-1")).unwrap();
    world.run.retain(&world.run_id(), &[TaskId::parse("b").unwrap()]).await.unwrap();
    assert!(!root.join(".trash-a-1").exists() && other.path.exists());
    let worktrees = git(&world.repo, ["worktree", "list"]);
    assert_eq!(worktrees.lines().count(), 2, "{worktrees}");
}

#[tokio::test]
async fn the_untouched_place_is_the_target_as_it_is() {
    let world = World::new().await;
    let one = world.run.untouched(&world.run_id()).await.unwrap();
    write(&one.path, "src/a.rs", "by a trial");
    write(&one.path, "junk", "by a trial");
    let sealed = world.work(&task("t"), 1, &[("src/c.rs", "c\n")]).await;
    world.merge(&task("t"), 1, &sealed).await;
    let two = world.run.untouched(&world.run_id()).await.unwrap();
    assert_eq!(fs::read(two.path.join("src/a.rs")).unwrap(), b"fn a() {}\n");
    assert!(two.path.join("src/c.rs").exists() && !two.path.join("junk").exists());
    assert_eq!(two.base, sealed.change);
}

#[tokio::test]
async fn worktrees_in_any_state_are_recovered() {
    let world = World::new().await;
    let admin = world.repo.join(".git/worktrees");
    let tree = world.dir.path().join("work trees/r/t/tree");
    let check = |ask: OpenWorkspace| {
        let run = world.run.clone();
        async move {
            let workspace = run.open(&ask).await.unwrap();
            assert!(!workspace.as_left || workspace.path.join("src/a.rs").exists());
            assert_eq!(git(&workspace.path, ["status", "--porcelain"]), "");
        }
    };
    check(world.ask(&task("t"), 1, Start::OnTarget)).await;
    // Missing, though git knows it.
    fs::remove_dir_all(&tree).unwrap();
    check(world.ask(&task("t"), 2, as_left(1))).await;
    // There, though git has forgotten it; with work in it.
    write(&tree, "half", "x");
    fs::remove_dir_all(&admin).unwrap();
    check(world.ask(&task("t"), 3, as_left(2))).await;
    assert_eq!(world.show("refs/orchestrator/r/kept/t/1-2:half"), "x");
    // Locked by somebody.
    git(&world.repo, ["worktree", "lock", tree.to_str().unwrap()]);
    fs::remove_dir_all(&tree).unwrap();
    check(world.ask(&task("t"), 4, as_left(3))).await;
    // Its opening broke off half-way.
    let marker = tree.with_file_name("marker");
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, text.replace("state ready", "state opening")).unwrap();
    fs::remove_file(tree.with_file_name("index")).unwrap();
    fs::remove_dir_all(tree.join("src")).unwrap();
    check(world.ask(&task("t"), 5, as_left(4))).await;
    // A damaged index, and no marker.
    write(&tree, "more", "y");
    fs::write(tree.with_file_name("index"), "damaged").unwrap();
    fs::remove_file(&marker).unwrap();
    check(world.ask(&task("t"), 6, as_left(5))).await;
    assert_eq!(world.show("refs/orchestrator/r/kept/t/1-6:more"), "y");
    // The agent made a repository of it.
    fs::remove_file(tree.join(".git")).unwrap();
    git(&tree, ["init", "-q"]);
    check(world.ask(&task("t"), 7, Start::OnTarget)).await;
    assert!(tree.join(".git").is_file());
}

#[tokio::test]
async fn a_worktree_that_was_never_finished_is_cleared_away() {
    let world = World::new().await;
    let (_, workspace) = world.open(&task("t"), 1).await;
    // What `git worktree add` leaves when it is killed in the middle.
    let admin = world.repo.join(".git/worktrees/tree7");
    let gitdir = workspace.path.parent().unwrap().with_file_name("u").join("tree/.git");
    write(&admin, "locked", "initializing");
    write(&admin, "gitdir", format!("{}\n", gitdir.display()));
    write(&admin, "commondir", "");
    world.open(&task("u"), 2).await;
    let worktrees = git(&world.repo, ["worktree", "list"]);
    assert_eq!(worktrees.lines().count(), 3, "{worktrees}");
    // Somebody else's is named and left.
    write(&admin, "gitdir", "/elsewhere/.git\n");
    write(&admin, "commondir", "");
    let err = world.run.open(&world.ask(&task("v"), 3, Start::OnTarget)).await.unwrap_err();
    assert!(err.chain().contains("tree7") && admin.exists(), "{}", err.chain());
}

#[tokio::test]
async fn eight_workspaces_are_opened_at_once() {
    let world = World::new().await;
    let opens = (0..8).map(|number| {
        let (run, ask) =
            (world.run.clone(), world.ask(&task(&format!("T {number}")), number, Start::OnTarget));
        tokio::spawn(async move { run.open(&ask).await })
    });
    let opens: Vec<_> = opens.collect();
    let mut paths = std::collections::BTreeSet::new();
    for open in opens {
        let workspace = open.await.unwrap().unwrap();
        assert_eq!(git(&workspace.path, ["status", "--porcelain"]), "");
        paths.insert(workspace.path);
    }
    assert_eq!(paths.len(), 8);
}

#[tokio::test]
async fn an_agent_may_leave_git_in_any_state() {
    let world = World::new().await;
    let (_, workspace) = world.open(&task("t"), 1).await;
    let tree = &workspace.path;
    git(tree, ["switch", "-q", "-c", "mine"]);
    write(tree, "src/a.rs", "committed\n");
    git(tree, ["commit", "-qam", "mine"]);
    git(tree, ["update-index", "--assume-unchanged", "src/b.rs"]);
    write(tree, "src/b.rs", "hidden\n");
    let (_, again) = world.open(&task("t"), 2).await;
    assert_eq!(git(&again.path, ["rev-parse", "HEAD"]), again.base.as_str());
    assert_eq!(git(&again.path, ["branch", "--show-current"]), "");
    assert_eq!(git(&again.path, ["status", "--porcelain"]), "");
    let kept = "refs/orchestrator/r/kept/t/1-1";
    assert_eq!(world.show(&format!("{kept}:src/b.rs")), "hidden");
    assert_eq!(world.show(&format!("{kept}^2:src/a.rs")), "committed");
    assert_eq!(world.show("mine:src/a.rs"), "committed", "the agent's branch stays");
    let (ask, workspace) = world.open(&task("t"), 3).await;
    write(&workspace.path, "x", "x");
    candidate(world.run.seal(&ask, &workspace).await.unwrap());
}

#[tokio::test]
async fn p19_an_opening_that_is_killed_at_any_moment_loses_nothing() {
    let world = World::with(
        |repo| {
            for number in 0..200 {
                write(repo, format!("lib/{number}"), "x\n".repeat(number));
            }
            git(repo, ["add", "-A"]);
            git(repo, ["commit", "-qm", "many files"]);
        },
        |_| {},
    )
    .await;
    let mut token = 1;
    for delay in (0..120).step_by(5) {
        let (_, workspace) = world.open(&task("t"), token).await;
        let work = format!("work {token}");
        write(&workspace.path, "src/a.rs", &work);
        // Git is killed, and what it left stays.
        let ask = world.ask(&task("t"), token + 1, Start::OnTarget);
        let limit = std::time::Duration::from_millis(delay);
        drop(tokio::time::timeout(limit, world.run.open(&ask)).await);
        let (_, again) = world.open(&task("t"), token + 2).await;
        assert_eq!(git(&again.path, ["status", "--porcelain"]), "");
        let kept = world.show(&format!("refs/orchestrator/r/kept/t/1-{token}:src/a.rs"));
        assert_eq!(kept, work, "killed after {delay} ms");
        token += 3;
    }
    let wrong = world.refs().lines().filter(|name| name.contains("/kept/")).count();
    assert_eq!(wrong, 24, "nothing else was taken for work: {}", world.refs());
}

#[tokio::test]
async fn tasks_with_odd_names_have_places_and_refs_of_their_own() {
    let world = World::new().await;
    let long = "very long ".repeat(25);
    let ids =
        ["a", "A", "a/b", "a-b", "a.lock", "con", "..", "-x", "é", "e\u{301}", "a b~^:?*[", "@{1}"];
    let mut trees = std::collections::BTreeSet::new();
    for (token, id) in (1..).zip(ids.into_iter().chain([long.trim()])) {
        let sealed = world.work(&task(id), token, &[(&format!("file{token}"), id)]).await;
        world.merge(&task(id), token, &sealed).await;
        let (_, workspace) = world.open(&task(id), 100 + token).await;
        trees.insert(workspace.path.to_str().unwrap().to_lowercase());
    }
    assert_eq!(trees.len(), ids.len() + 1, "also where names have no case");
    let refs = world.refs();
    let of = |what: &str| refs.lines().filter(|name| name.contains(what)).count();
    assert_eq!((of("/task/"), of("/fence/")), (trees.len(), trees.len()));
}
