//! What is kept: listed, restored, and let go of by rule.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use orchestrator_core::port::{OpenWorkspace, Start, Workspaces as _};
use orchestrator_core::{RunId, Scope};
use orchestrator_git::{GitConfig, GitError, GitRun, KeptAs, KeptWork, Retention};

use crate::world::{World, git, task, write};

#[tokio::test]
async fn kept_work_is_listed_and_restored_with_all_its_files() {
    let world = World::new().await;
    let (_, workspace) = world.open(&task("HTTP/types"), 1).await;
    write(&workspace.path, "src/a.rs", "half\n");
    write(&workspace.path, "new dir/ñew", "untracked\n");
    fs::remove_file(workspace.path.join("src/b.rs")).unwrap();
    world.run.release(&world.run_id(), &task("HTTP/types").id).await.unwrap();
    let kept = world.again().await.kept().await.unwrap();
    let [kept] = kept.as_slice() else { panic!("{kept:?}") };
    assert_eq!((kept.what, kept.is_of_merged_task), (KeptAs::Leftover, false));
    assert_eq!(kept.task, task("HTTP/types").id.slug());
    let into = world.dir.path().join("restored here");
    world.run.restore(&kept.name, &into).await.unwrap();
    assert_eq!(fs::read(into.join("src/a.rs")).unwrap(), b"half\n");
    assert_eq!(fs::read(into.join("new dir/ñew")).unwrap(), b"untracked\n");
    assert!(!into.join("src/b.rs").exists() && !into.join(".git").exists());
    let err = world.run.restore(&kept.name, &into).await.unwrap_err();
    assert!(matches!(err, GitError::NotEmpty { .. }), "{err}");
    let err = world.run.restore("refs/heads/main", &into).await.unwrap_err();
    assert!(matches!(err, GitError::NotKept { .. }), "{err}");
}

#[tokio::test]
async fn only_what_a_rule_names_is_let_go_of() {
    let world = World::new().await;
    for (id, token) in [("done", 1), ("open", 2)] {
        let (_, workspace) = world.open(&task(id), token).await;
        write(&workspace.path, "half", id);
        let sealed = world.work(&task(id), token + 10, &[(id, "1\n")]).await;
        let again = world.work(&task(id), token + 20, &[(id, "2\n")]).await;
        assert_ne!(sealed, again);
        if id == "done" {
            // Another one is merged first, so that this one is made anew on top of it.
            let other = world.work(&task("other"), 5, &[("other", "x\n")]).await;
            world.merge(&task("other"), 6, &other).await;
            world.merge(&task(id), 40, &again).await;
        }
    }
    let names = |what: &str| world.refs().lines().filter(|name| name.contains(what)).count();
    assert_eq!((names("kept/done/"), names("kept/open/")), (2, 2));
    assert_eq!(world.run.prune_kept(Retention::default()).await.unwrap(), []);
    let rule = Retention { older_than: Some(Duration::from_secs(3600)), ..Retention::default() };
    assert_eq!(world.run.prune_kept(rule).await.unwrap(), []);
    let rule = Retention { of_merged_tasks: true, ..Retention::default() };
    let gone = world.run.prune_kept(rule).await.unwrap();
    assert!(gone.iter().all(|kept| kept.task == "done" && kept.is_of_merged_task), "{gone:?}");
    assert_eq!((names("kept/done/"), names("kept/open/")), (0, 2));
    let left: Vec<_> = world.run.kept().await.unwrap().into_iter().map(|kept| kept.what).collect();
    let expected = [KeptAs::Leftover, KeptAs::FormerCandidate, KeptAs::Candidate];
    assert!(expected.iter().all(|what| left.contains(what)) && left.len() == 3, "{left:?}");
    let rule = Retention { older_than: Some(Duration::ZERO), ..Retention::default() };
    world.run.prune_kept(rule).await.unwrap();
    let left: Vec<_> = world.run.kept().await.unwrap().into_iter().map(|kept| kept.what).collect();
    assert_eq!(left, [KeptAs::Candidate], "it may still be merged");
}

#[tokio::test]
async fn what_git_cannot_keep_is_found_in_the_repository_too() {
    let world = World::new().await;
    for (id, token) in [("a", 1), ("b", 2)] {
        let (_, workspace) = world.open(&task(id), token).await;
        write(&workspace.path, "nested/file", id);
        git(&workspace.path.join("nested"), ["init", "-q"]);
        world.run.release(&world.run_id(), &task(id).id).await.unwrap();
    }
    let work = KeptWork::open(&world.repo).await.unwrap();
    let aside = work.set_aside().await.unwrap();
    assert_eq!(aside, world.run.set_aside());
    let found: Vec<_> =
        aside.iter().map(|aside| (aside.run.as_str(), aside.task.as_str())).collect();
    assert_eq!(found, [("r", "a"), ("r", "b")]);
    assert_eq!(fs::read(aside[1].dir.join("tree/nested/file")).unwrap(), b"b");
    assert!(aside[1].at.elapsed().unwrap() < Duration::from_secs(600));
    fs::remove_dir_all(&aside[0].dir).unwrap();
    assert_eq!(work.set_aside().await.unwrap(), aside[1..], "what a person removed is gone");
}

#[tokio::test]
async fn kept_work_of_all_runs_is_found_in_the_repository_whatever_became_of_them() {
    let world = World::new().await;
    for (id, token) in [("done", 1), ("open", 2)] {
        let (_, workspace) = world.open(&task(id), token).await;
        write(&workspace.path, "half", id);
        let sealed = world.work(&task(id), token + 10, &[(id, "1\n")]).await;
        if id == "done" {
            world.merge(&task(id), 40, &sealed).await;
        }
    }
    let other = RunId::parse("Other run").unwrap();
    let mut config = World::config(&world.repo, world.dir.path());
    config.run = other.clone();
    let run = GitRun::open(config).await.unwrap();
    let ask = world.ask(&task("t"), 1, Start::OnTarget);
    let ask = OpenWorkspace { run: other.clone(), ..ask };
    let workspace = run.open(&ask).await.unwrap();
    write(&workspace.path, "left", "x");
    run.release(&other, &ask.task.id).await.unwrap();
    // None of the runs could be opened like this.
    git(&world.repo, ["switch", "-q", "orchestrator/r"]);
    fs::remove_dir_all(world.dir.path().join("work trees")).unwrap();
    let work = KeptWork::open(&world.repo).await.unwrap();
    let kept = work.list().await.unwrap();
    let found: Vec<_> = kept
        .iter()
        .map(|kept| (kept.run.as_str(), kept.task.as_str(), kept.what, kept.is_of_merged_task))
        .collect();
    assert_eq!(
        found,
        [
            (other.slug().as_str(), "t", KeptAs::Leftover, false),
            ("r", "done", KeptAs::Leftover, true),
            ("r", "open", KeptAs::Leftover, false),
            ("r", "open", KeptAs::Candidate, false),
        ]
    );
    let into = world.dir.path().join("restored");
    work.restore(&kept[0].name, &into).await.unwrap();
    assert_eq!(fs::read(into.join("left")).unwrap(), b"x");
    let rule = Retention { of_merged_tasks: true, older_than: Some(Duration::ZERO) };
    assert_eq!(work.named_by(rule, Some("r")).await.unwrap(), kept[1..3]);
    assert_eq!(work.prune(rule, Some("r")).await.unwrap(), kept[1..3]);
    assert_eq!(work.list().await.unwrap().len(), 2, "what the rule does not name stays");
}

#[tokio::test]
async fn p19_ignored_repositories_and_paths_that_are_no_text_are_kept_where_they_are_declared() {
    let configure =
        |config: &mut GitConfig| config.keep_ignored = Some(Scope::parse(["target/**"]).unwrap());
    let world = World::with(|_| {}, configure).await;
    let (_, workspace) = world.open(&task("t"), 1).await;
    let odd = OsStr::from_bytes(b"target/\xff");
    write(&workspace.path, odd, "odd");
    write(&workspace.path, "target/nested/f", "x");
    git(&workspace.path.join("target/nested"), ["init", "-q"]);
    world.run.release(&world.run_id(), &task("t").id).await.unwrap();
    let kept = git(&world.repo, ["ls-tree", "-r", "refs/orchestrator/r/kept/t/1-1"]);
    assert!(kept.contains("target/\\377"), "{kept}");
    assert!(world.run.set_aside()[0].dir.join("tree/target/nested/f").exists());
}

#[tokio::test]
async fn p19_ignored_files_that_are_declared_are_kept_and_no_others() {
    let configure = |config: &mut GitConfig| {
        config.keep_ignored = Some(Scope::parse(["target/report", "**/*.sqlite"]).unwrap());
    };
    let world = World::with(|repo| write(repo, ".git/info/exclude", "*.sqlite\n"), configure).await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    for path in ["target/report/a.xml", "target/debug/x", "data/runs.sqlite"] {
        write(&workspace.path, path, "text");
    }
    // Also when all else is in the sealed change.
    let sealed = world.run.seal(&ask, &workspace).await.unwrap();
    assert!(
        matches!(sealed, orchestrator_core::port::Sealed::Refused { .. }),
        "ignored is no work"
    );
    write(&workspace.path, "src/c.rs", "work\n");
    let sealed = world.run.seal(&ask, &workspace).await.unwrap();
    let sealed = crate::world::candidate(sealed);
    world.run.release(&world.run_id(), &task("t").id).await.unwrap();
    let kept = "refs/orchestrator/r/kept/t/1-1";
    assert_eq!(world.show(&format!("{kept}:target/report/a.xml")), "text");
    assert_eq!(world.show(&format!("{kept}:data/runs.sqlite")), "text");
    let files = git(&world.repo, ["ls-tree", "-r", "--name-only", kept]);
    assert!(!files.contains("target/debug"), "{files}");
    let files = git(&world.repo, ["ls-tree", "-r", "--name-only", sealed.change.as_str()]);
    assert!(files.contains("src/c.rs") && !files.contains("sqlite"), "{files}");
}
