//! What becomes of the work in a workspace.

use std::fmt::{self, Write as _};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};

use orchestrator_core::port::{Sealed, Start, Workspaces as _};
use orchestrator_core::{Candidate, ChangeId};
use tracing::field::Field;
use tracing::{Event, Metadata, Subscriber, span};

use crate::world::{World, candidate, git, refused, scoped, task, write};

#[tokio::test]
async fn all_the_work_becomes_one_commit_of_the_orchestrator() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 7).await;
    write(&workspace.path, "src/a.rs", "committed by the agent\n");
    git(&workspace.path, ["commit", "-qam", "mine\n\nOrchestrator-Task: other"]);
    write(&workspace.path, "a dir/ñ\nx", "untracked\n");
    fs::remove_file(workspace.path.join("src/b.rs")).unwrap();
    let sealed = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    assert_eq!(sealed.base, workspace.base);
    let commit = sealed.change.as_str();
    let format = "--format=%P|%an|%ce|%s|%(trailers:only,unfold)";
    let shown = git(&world.repo, ["log", "-1", format, commit]);
    assert_eq!(
        shown.trim(),
        format!(
            "{}|orchestrator|orchestrator@localhost|task t|Orchestrator-Task: t\n\
             Orchestrator-Run: r\nOrchestrator-Attempt: 1\nOrchestrator-Token: 7\nOrchestrator-Cost: $0.0000",
            workspace.base
        )
    );
    assert_eq!(world.show(&format!("{commit}:a dir/ñ\nx")), "untracked");
    let names = git(&world.repo, ["diff", "--name-status", workspace.base.as_str(), commit]);
    assert_eq!(names, "A\t\"a dir/\\303\\261\\nx\"\nM\tsrc/a.rs\nD\tsrc/b.rs");
    assert_eq!(world.show("refs/orchestrator/r/task/t:a dir/ñ\nx"), "untracked");
    let change = world.run.change(&sealed).await.unwrap();
    assert_eq!(change.files, ["a dir/ñ\\nx", "src/a.rs", "src/b.rs"]);
    assert!(change.diff.contains("+committed by the agent") && change.cut.is_none());
}

#[tokio::test]
async fn p18_a_change_outside_the_scope_is_refused_and_kept() {
    let configure = |config: &mut orchestrator_git::GitConfig| {
        config.protected = Some(orchestrator_core::Scope::parse(["src/tests"]).unwrap());
    };
    let world = World::with(|_| {}, configure).await;
    let spec = scoped("t", &["src"]);
    let (ask, workspace) = world.open(&spec, 1).await;
    write(&workspace.path, "src/a.rs", "fine\n");
    write(&workspace.path, "README.md", "not mine\n");
    write(&workspace.path, "src/tests/t.rs", "judges\n");
    git(&workspace.path, ["rm", "-q", "--cached", "README.md"]);
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(
        feedback.contains("`README.md`") && feedback.contains("`src/tests/t.rs`"),
        "{feedback}"
    );
    assert!(!feedback.contains("`src/a.rs`"), "{feedback}");
    let kept = "refs/orchestrator/r/kept/t/1-1";
    assert!(feedback.contains(kept) && world.show(&format!("{kept}:src/a.rs")) == "fine");
    assert!(!world.refs().contains("/task/"), "no candidate");
    let (ask, workspace) = world.open(&spec, 2).await;
    write(&workspace.path, "src/a.rs", "fine\n");
    candidate(world.run.seal(&ask, &workspace).await.unwrap());
}

#[tokio::test]
async fn an_empty_change_is_refused_unless_it_is_allowed() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "target/ignored", "x");
    assert!(refused(world.run.seal(&ask, &workspace).await.unwrap()).contains("Nothing"));
    let world = World::with(|_| {}, |config| config.allow_empty = true).await;
    let sealed = world.work(&task("t"), 1, &[]).await;
    world.merge(&task("t"), 1, &sealed).await;
    assert_eq!(world.merges_of("t"), 1);
}

#[tokio::test]
async fn links_that_leave_submodules_repositories_and_large_files_are_refused() {
    let configure = |config: &mut orchestrator_git::GitConfig| {
        config.file_bytes_max = 1_000;
        config.files_max = 3;
    };
    let world = World::with(|_| {}, configure).await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    let tree = &workspace.path;
    symlink("../../../outside", tree.join("src/out")).unwrap();
    symlink("../README.md", tree.join("src/in")).unwrap();
    write(tree, "large", vec![b'x'; 2_000]);
    write(tree, ".gitmodules", "");
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains("`src/out`") && !feedback.contains("`src/in`"), "{feedback}");
    assert!(feedback.contains("`large`") && feedback.contains("`.gitmodules`"), "{feedback}");
    assert!(feedback.contains("4 files differ"), "{feedback}");
    for has_commit in [false, true] {
        let (ask, workspace) = world.open(&task("t"), 2 + u64::from(has_commit)).await;
        let nested = workspace.path.join("vendor/lib");
        write(&nested, "f", "x");
        git(&nested, ["init", "-q"]);
        if has_commit {
            git(&nested, ["add", "-A"]);
            git(&nested, ["commit", "-qm", "x"]);
        }
        let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
        assert!(feedback.contains("`vendor/lib`"), "{feedback}");
    }
}

#[tokio::test]
async fn names_that_differ_in_case_only_are_files_of_their_own_whatever_the_repository_says() {
    let prepare = |repo: &Path| drop(git(repo, ["config", "core.ignorecase", "true"]));
    let world = World::with(prepare, |_| {}).await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "src/A.rs", "another\n");
    if fs::read_to_string(workspace.path.join("src/a.rs")).unwrap() == "another\n" {
        // The disk does not tell them apart.
        return;
    }
    write(&workspace.path, "SRC/new.rs", "new\n");
    let sealed = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    let list = ["ls-tree", "-r", "--name-only", sealed.change.as_str(), "src", "SRC"];
    let names = git(&world.repo, list);
    assert_eq!(names, "SRC/new.rs\nsrc/A.rs\nsrc/a.rs\nsrc/b.rs");
    world.run.release(&world.run_id(), &task("t").id).await.unwrap();
    let (_, workspace) = world.open(&task("u"), 2).await;
    assert!(!workspace.path.join("src/A.rs").exists() && !workspace.path.join("SRC").exists());
}

#[tokio::test]
async fn how_large_a_file_is_counts_in_the_commit_and_not_as_it_is_checked_out() {
    let world = World::with(
        |repo| {
            write(
                repo,
                ".gitattributes",
                "*.txt text eol=crlf\n*.old working-tree-encoding=latin1\n",
            );
            git(repo, ["add", "-A"]);
            git(repo, ["commit", "-qm", "attributes"]);
        },
        |config| config.file_bytes_max = 10,
    )
    .await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "four.txt", "1\r\n2\r\n3\r\n4\r\n");
    candidate(world.run.seal(&ask, &workspace).await.unwrap());
    write(&workspace.path, "eight.old", [0xe9; 8]);
    let said = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(said.contains("larger than 10 bytes: `eight.old`"), "{said}");
}

#[tokio::test]
async fn what_an_agent_did_to_the_repository_itself_is_refused_and_named() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "src/a.rs", "x\n");
    git(&workspace.path, ["config", "filter.x.clean", "evil"]);
    git(&workspace.path, ["config", "branch.x.merge", "harmless"]);
    write(&world.repo, ".git/info/exclude", "*.rs\n");
    write(&world.repo, ".git/hooks/pre-commit", "#!/bin/sh\n");
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains("filter.x.clean") && feedback.contains("hooks/pre-commit"));
    assert!(feedback.contains("info/exclude"), "new files would go unseen: {feedback}");
    fs::remove_file(world.repo.join(".git/info/exclude")).unwrap();
    assert!(!feedback.contains("branch.x.merge"), "{feedback}");
    let (ask, workspace) = world.open(&task("t"), 2).await;
    git(&workspace.path, ["checkout", "-q", "--orphan", "nowhere"]);
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains("no commit"), "{feedback}");
    let (ask, workspace) = world.open(&task("t"), 3).await;
    write(&world.repo, "src/a.rs", "somewhere else\n");
    git(&world.repo, ["commit", "-q", "--amend", "-am", "other history"]);
    git(&workspace.path, ["checkout", "-q", "--detach", "main"]);
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains(workspace.base.as_str()), "{feedback}");
}

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn said(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = self.0.lock().unwrap();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            write!(text, "{field}={value:?} ").unwrap();
        });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn what_those_who_judge_did_to_the_repository_is_said_in_the_log() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let world = World::new().await;
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "x\n")]).await;
    let ask = world.ask(&task("t"), 2, Start::On(sealed.clone()));
    world.run.open(&ask).await.unwrap();
    assert!(!log.said().contains("set-up"));
    // A test beside this one that said the same for the first time just when the log was made has
    // switched it off for all: it is asked again who listens.
    tracing::callsite::rebuild_interest_cache();
    // A test of the task does this.
    write(&world.repo, ".git/hooks/pre-push", "#!/bin/sh\n");
    let ask = world.ask(&task("t"), 3, Start::On(sealed));
    world.run.open(&ask).await.unwrap();
    assert!(log.said().contains("hooks/pre-push"));
    git(&world.repo, ["config", "core.fsmonitor", "evil"]);
    world.run.release(&world.run_id(), &task("t").id).await.unwrap();
    let said = log.said();
    assert!(said.contains("core.fsmonitor") && !said.contains("pre-push"), "{said}");
}

#[tokio::test]
async fn what_somebody_did_to_the_repository_costs_nobody_an_attempt_while_several_are_at_work() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    let (other_ask, other) = world.open(&task("other"), 2).await;
    write(&workspace.path, "src/a.rs", "x\n");
    write(&other.path, "src/b.rs", "y\n");
    // A package manager of one task does this, say.
    git(&other.path, ["config", "core.hooksPath", ".husky"]);
    candidate(world.run.seal(&ask, &workspace).await.unwrap());
    candidate(world.run.seal(&other_ask, &other).await.unwrap());
    world.run.release(&world.run_id(), &task("other").id).await.unwrap();
    let (ask, workspace) = world.open(&task("t"), 3).await;
    write(&workspace.path, "src/a.rs", "z\n");
    git(&workspace.path, ["config", "core.hooksPath", ".mine"]);
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains("core.hookspath"), "{feedback}");
}

#[tokio::test]
async fn a_lease_that_is_over_seals_nothing() {
    let world = World::new().await;
    let (old, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "x", "x");
    let (new, _) = world.open(&task("t"), 2).await;
    assert!(world.run.seal(&old, &workspace).await.is_err());
    assert!(world.run.keep(&old, &workspace).await.is_err());
    let err = world.run.open(&old).await.unwrap_err();
    assert!(err.chain().contains("does not belong to lease 1"), "{}", err.chain());
    write(&workspace.path, "x", "x");
    world.fence(&task("t"), 3).await;
    let err = world.run.seal(&new, &workspace).await.unwrap_err();
    assert!(err.chain().contains("does not belong to lease 2"), "{}", err.chain());
    assert!(!world.refs().contains("/task/"));
}

#[tokio::test]
async fn an_attempt_on_top_of_its_candidate_replaces_it_and_the_old_one_is_kept() {
    let world = World::new().await;
    let first = world.work(&task("t"), 1, &[("src/a.rs", "first\n"), ("one", "1\n")]).await;
    let mut ask = world.ask(&task("t"), 2, Start::On(first.clone()));
    ask.attempt = 2;
    let workspace = world.run.open(&ask).await.unwrap();
    assert_eq!(fs::read(workspace.path.join("one")).unwrap(), b"1\n");
    write(&workspace.path, "src/a.rs", "second\n");
    let second = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    assert_eq!(second.base, first.base);
    assert_eq!(
        git(&world.repo, ["rev-parse", "refs/orchestrator/r/task/t"]),
        second.change.as_str()
    );
    let kept = format!("refs/orchestrator/r/kept/t/candidate-{}", &first.change.as_str()[..12]);
    assert_eq!(git(&world.repo, ["rev-parse", &kept]), first.change.as_str());
    world.merge(&task("t"), 2, &second).await;
    assert_eq!(world.merges_of("t"), 1);
    // Work on top of a candidate that breaks off is work.
    let mut ask = world.ask(&task("t"), 3, Start::On(second.clone()));
    ask.attempt = 3;
    let workspace = world.run.open(&ask).await.unwrap();
    write(&workspace.path, "half", "x");
    world.open(&task("t"), 4).await;
    assert_eq!(world.show("refs/orchestrator/r/kept/t/3-3:half"), "x");
}

#[tokio::test]
async fn a_long_difference_is_cut_and_that_is_said() {
    let world = World::with(|_| {}, |config| config.diff_bytes_max = 1_000).await;
    let long = "line\n".repeat(2_000);
    let sealed = world.work(&task("t"), 1, &[("long", &long), ("short", "x\n")]).await;
    let change = world.run.change(&sealed).await.unwrap();
    assert!(change.diff.len() <= 1_000, "{}", change.diff.len());
    assert_eq!(change.files, ["long", "short"]);
    assert!(change.cut.unwrap().contains("a/long"));
}

#[tokio::test]
async fn a_repository_with_submodules_and_paths_that_are_no_text_works() {
    let prepare = |repo: &Path| {
        let head = git(repo, ["rev-parse", "HEAD"]);
        git(repo, ["update-index", "--add", "--cacheinfo", &format!("160000,{head},vendor/sub")]);
        write(repo, ".gitmodules", "[submodule \"sub\"]\n\tpath = vendor/sub\n\turl = ../x\n");
        git(repo, ["add", ".gitmodules"]);
        git(repo, ["commit", "-qm", "a submodule"]);
    };
    let world = World::with(prepare, |_| {}).await;
    let spec = scoped("t", &["src"]);
    let (ask, workspace) = world.open(&spec, 1).await;
    let odd = std::ffi::OsStr::from_bytes(b"src/\xff\xfe");
    write(&workspace.path, odd, "x\n");
    let sealed = candidate(world.run.seal(&ask, &workspace).await.unwrap());
    assert_eq!(world.run.change(&sealed).await.unwrap().files.len(), 1);
    let ask = world.ask(&spec, 2, Start::On(sealed.clone()));
    let workspace = world.run.open(&ask).await.unwrap();
    assert!(workspace.path.join(odd).exists() && workspace.path.join("vendor/sub").is_dir());
    assert!(world.run.differing(&workspace, &sealed.change).await.unwrap().is_empty());
    world.merge(&spec, 2, &sealed).await;
}

#[tokio::test]
async fn a_reviewer_sees_every_line_whatever_attributes_the_agent_or_the_target_sets() {
    let hides = |repo: &Path| {
        write(repo, ".gitattributes", "*.rs -diff\n");
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "hides"]);
    };
    let world = World::with(hides, |_| {}).await;
    write(&world.repo, ".git/.gitattributes", "* -diff\n");
    let sealed = world.work(&task("t"), 1, &[("src/a.rs", "evil();\n")]).await;
    let change = world.run.change(&sealed).await.unwrap();
    assert!(change.diff.contains("+evil();"), "{}", change.diff);
}

#[tokio::test]
async fn a_change_that_has_files_stored_by_a_filter_is_refused() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "sub/.gitattributes", "*.txt text\n*.bin filter=lfs -text\n");
    let said = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(said.contains("LFS") && said.contains("`sub/.gitattributes`"), "{said}");
    write(&workspace.path, "sub/.gitattributes", "*.txt text\n");
    candidate(world.run.seal(&ask, &workspace).await.unwrap());
}

#[tokio::test]
async fn a_reviewer_sees_every_line_whatever_configuration_the_agent_sets() {
    for (key, value) in [("core.bigFileThreshold", "1"), ("diff.default.binary", "true")] {
        let world = World::new().await;
        git(&world.repo, ["config", key, value]);
        let sealed = world.work(&task("t"), 1, &[("src/a.rs", "evil();\n")]).await;
        let change = world.run.change(&sealed).await.unwrap();
        assert!(change.diff.contains("+evil();"), "{key}: {}", change.diff);
    }
}

#[tokio::test]
async fn p18_a_submodule_that_git_is_told_to_ignore_does_not_change_unseen() {
    let prepare = |repo: &Path| {
        let head = git(repo, ["rev-parse", "HEAD"]);
        let entry = format!("160000,{head},sub");
        git(repo, ["update-index", "--add", "--cacheinfo", &entry]);
        let text = "[submodule \"s\"]\n\tpath = sub\n\turl = ./x\n\tignore = all\n";
        write(repo, ".gitmodules", text);
        git(repo, ["add", ".gitmodules"]);
        git(repo, ["commit", "-qm", "submodule"]);
        git(repo, ["config", "submodule.s.ignore", "all"]);
    };
    let world = World::with(prepare, |_| {}).await;
    // Whoever is told of it sees it: this is what the rules look at.
    let base = git(&world.repo, ["rev-parse", "HEAD"]);
    let entry = format!("160000,{base},sub");
    git(&world.repo, ["update-index", "--cacheinfo", &entry]);
    git(&world.repo, ["commit", "-qm", "moved"]);
    let id = |text: &str| ChangeId::parse(text).unwrap();
    let change = id(&git(&world.repo, ["rev-parse", "HEAD"]));
    let candidate_of = Candidate { change: change.clone(), base: id(&base) };
    let seen = world.run.change(&candidate_of).await.unwrap();
    assert_eq!(seen.files, ["sub"]);
    // And this is what an agent can do.
    let spec = task("t");
    let (ask, workspace) = world.open(&spec, 1).await;
    let sub = workspace.path.join("sub");
    git(&sub, ["init", "-q"]);
    git(&sub, ["commit", "-q", "--allow-empty", "-m", "mine"]);
    write(&workspace.path, "src/a.rs", "work\n");
    match world.run.seal(&ask, &workspace).await.unwrap() {
        Sealed::Refused { feedback } => assert!(feedback.contains("sub"), "{feedback}"),
        Sealed::Candidate(sealed) => {
            let tree = |of: &str| git(&world.repo, ["ls-tree", of, "sub"]);
            assert_eq!(tree(sealed.change.as_str()), tree(workspace.base.as_str()));
        }
    }
}

#[tokio::test]
async fn a_key_or_token_that_a_change_adds_anywhere_in_a_file_is_refused_and_one_that_was_there_stays()
 {
    let old = format!("{}\nkey = ghp_{}\n", "line\n".repeat(9_000), "a1B2".repeat(9));
    let had = |repo: &Path| {
        write(repo, "settings.toml", &old);
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "had"]);
    };
    let world = World::with(had, |_| {}).await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    write(&workspace.path, "settings.toml", format!("# more\n{old}"));
    let pem = "-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----\n";
    write(&workspace.path, "src/a.rs", format!("{}{pem}", "// line\n".repeat(9_000)));
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains("`src/a.rs`") && !feedback.contains("settings"), "{feedback}");
    write(&workspace.path, "src/a.rs", "clean\n");
    write(&workspace.path, "far", format!("{}{pem}", "a line\n".repeat(300_000)));
    write(&workspace.path, ".gitattributes", "*.wide working-tree-encoding=UTF-16LE\n");
    let wide: Vec<u8> = pem.encode_utf16().flat_map(u16::to_le_bytes).collect();
    write(&workspace.path, "a.wide", wide);
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(feedback.contains("`a.wide`, `far`"), "{feedback}");
    fs::remove_file(workspace.path.join("far")).unwrap();
    fs::remove_file(workspace.path.join("a.wide")).unwrap();
    candidate(world.run.seal(&ask, &workspace).await.unwrap());
}

#[tokio::test]
async fn secrets_build_outputs_and_changed_modes_are_refused_and_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    let tree = &workspace.path;
    write(tree, "config/.env", "TOKEN=1\n");
    write(tree, "node_modules/x/index.js", "x\n");
    write(tree, "notes/deploy", "text\n-----BEGIN OPENSSH PRIVATE KEY-----\nx\n");
    write(tree, "run.sh", "#!/bin/sh\n");
    for path in ["src/a.rs", "run.sh"] {
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let feedback = refused(world.run.seal(&ask, &workspace).await.unwrap());
    for path in ["`config/.env`", "`node_modules/x/index.js`", "`notes/deploy`", "`src/a.rs`"] {
        assert!(feedback.contains(path), "{path}: {feedback}");
    }
    assert!(!feedback.contains("run.sh"), "a new file may be executable: {feedback}");
    assert_eq!(world.show("refs/orchestrator/r/kept/t/1-1:run.sh"), "#!/bin/sh");
}
