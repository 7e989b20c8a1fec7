//! A user's checkout that must not be touched, and a repository that must not be trusted.

use std::fs;
use std::path::{Path, PathBuf};

use orchestrator_core::port::{Start, Workspaces as _};
use orchestrator_git::{GitError, GitRun};
use tempfile::TempDir;

use crate::world::{World, conflict, git, listing, program, refused, task, write};

/// A whole round: work, judge, merge, conflict, leftovers, clean-up.
async fn round(world: &World) {
    let one = world.work(&task("one"), 1, &[("src/a.rs", "one\n"), ("x.dat", "1\n")]).await;
    let two = world.work(&task("two"), 2, &[("src/a.rs", "two\n")]).await;
    let ask = world.ask(&task("one"), 3, Start::On(one.clone()));
    let workspace = world.run.open(&ask).await.unwrap();
    assert!(world.run.differing(&workspace, &one.change).await.unwrap().is_empty());
    world.run.change(&one).await.unwrap();
    world.merge(&task("one"), 3, &one).await;
    conflict(world.propose(&task("two"), 2, &two).await);
    let (_, workspace) = world.open(&task("three"), 4).await;
    write(&workspace.path, "left.dat", "left\n");
    world.run.untouched(&world.run_id()).await.unwrap();
    world.run.retain(&world.run_id(), &[]).await.unwrap();
}

#[tokio::test]
async fn a_dirty_checkout_is_byte_identical_afterwards() {
    let prepare = |repo: &Path| {
        write(repo, "README.md", "stashed\n");
        git(repo, ["stash", "-q"]);
        write(repo, "README.md", "staged\n");
        git(repo, ["add", "README.md"]);
        write(repo, "README.md", "and changed again\n");
        write(repo, "src/b.rs", "changed\n");
        write(repo, "untracked é\nfile", "mine\n");
        fs::remove_file(repo.join("src/a.rs")).unwrap();
        git(repo, ["branch", "other"]);
    };
    let mut before = Vec::new();
    let mut refs = String::new();
    let list = |repo: &Path| {
        let mut files = listing(repo);
        let ours = |path: &Path| {
            let path = path.strip_prefix(repo).unwrap().to_string_lossy().into_owned();
            let places = [
                "objects/",
                "refs/orchestrator/",
                "refs/heads/orchestrator/",
                "logs/refs/heads/orchestrator/",
            ];
            places.iter().any(|place| path.starts_with(&format!(".git/{place}")))
        };
        files.retain(|(path, _)| !ours(path));
        files
    };
    let user_refs = |repo: &Path| git(repo, ["show-ref", "main", "other", "stash", "HEAD"]);
    let world = World::with(
        |repo| {
            prepare(repo);
            before = list(repo);
            refs = user_refs(repo);
        },
        |_| {},
    )
    .await;
    round(&world).await;
    let after = list(&world.repo);
    let names = |files: &[(PathBuf, Vec<u8>)]| -> Vec<_> {
        files.iter().map(|(path, _)| path.clone()).collect()
    };
    assert_eq!(names(&after), names(&before));
    assert_eq!(after, before);
    assert_eq!(user_refs(&world.repo), refs);
    assert_eq!(world.merges_of("one"), 1);
}

/// A program that leaves a proof when it is run: the directory of both, its path, and the proof's.
fn evil_program() -> (TempDir, String, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let evil = dir.path().join("evil.sh");
    let proof = dir.path().join("proof");
    let text = format!("#!/bin/sh\necho \"$0 $@\" >> '{}'\nexit 0\n", proof.display());
    program(&evil, &text);
    let command = evil.to_str().unwrap().to_owned();
    (dir, command, proof)
}

#[tokio::test]
async fn nothing_that_the_repository_brings_is_run() {
    let (_dir, command, proof) = evil_program();
    let prepare = |repo: &Path| {
        write(repo, ".gitattributes", "*.dat filter=evil diff=evil merge=evil\n*.rs merge=evil\n");
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "attributes"]);
        write(repo, ".git/info/attributes", "*.rs filter=evil diff=evil\n");
        for key in [
            "core.fsmonitor",
            "core.editor",
            "core.pager",
            "core.sshCommand",
            "core.askPass",
            "core.alternateRefsCommand",
            "filter.evil.clean",
            "filter.evil.smudge",
            "filter.evil.process",
            "diff.external",
            "diff.evil.textconv",
            "diff.evil.command",
            "merge.evil.driver",
            "gpg.program",
            "credential.helper",
        ] {
            git(repo, ["config", key, &command]);
        }
        for (key, value) in [
            ("filter.evil.required", "true"),
            ("commit.gpgSign", "true"),
            ("log.showSignature", "true"),
            ("merge.default", "evil"),
            ("core.ignoreStat", "true"),
            ("core.sparseCheckout", "true"),
        ] {
            git(repo, ["config", key, value]);
        }
        let aliased = format!("!{command}");
        for verb in ["add", "commit-tree", "update-ref", "worktree", "merge-tree"] {
            git(repo, ["config", &format!("alias.{verb}"), &aliased]);
        }
        for hook in ["post-checkout", "pre-commit", "reference-transaction", "post-index-change"] {
            fs::create_dir_all(repo.join(".git/hooks")).unwrap();
            fs::copy(&command, repo.join(".git/hooks").join(hook)).unwrap();
        }
        let hooks = repo.join(".git/hooks");
        git(repo, ["config", "core.hooksPath", hooks.to_str().unwrap()]);
        if proof.exists() {
            fs::remove_file(&proof).unwrap();
        }
    };
    let world = World::with(prepare, |_| {}).await;
    // A repository that says so from the beginning is refused.
    git(&world.repo, ["config", "core.worktree", "/nonexistent"]);
    let again = GitRun::open(World::config(&world.repo, world.dir.path())).await;
    assert!(matches!(again, Err(GitError::NotTopLevel { .. })));
    round(&world).await;
    assert!(!proof.exists(), "{}", fs::read_to_string(&proof).unwrap());
    fs::remove_dir_all(world.repo.join(".git/hooks")).unwrap();
    let config = world.repo.join(".git/config");
    git(world.dir.path(), ["config", "-f", config.to_str().unwrap(), "--unset", "core.worktree"]);
    assert_eq!(world.show("refs/orchestrator/r/task/one:x.dat"), "1", "stored as it is");
}

#[tokio::test]
async fn nothing_that_included_configuration_brings_is_run() {
    let (_dir, command, proof) = evil_program();
    let prepare = |repo: &Path| {
        write(repo, ".gitattributes", "*.dat filter=evil\n*.rs filter=worse merge=evil\n");
        git(repo, ["add", "-A"]);
        git(repo, ["commit", "-qm", "attributes"]);
        let filter = |name| format!("[filter \"{name}\"]\nclean = {command}\nsmudge = {command}\n");
        let merge = format!("[merge \"evil\"]\ndriver = {command}\n");
        write(repo, ".git/more", filter("evil") + &merge);
        write(repo, ".git/yet more", filter("worse"));
        git(repo, ["config", "include.path", "more"]);
        git(repo, ["config", "includeIf.gitdir:**.path", "yet more"]);
    };
    let world = World::with(prepare, |_| {}).await;
    round(&world).await;
    assert!(!proof.exists(), "{}", fs::read_to_string(&proof).unwrap());
}

#[tokio::test]
async fn configuration_that_is_there_only_while_git_works_runs_nothing() {
    let (dir, command, proof) = evil_program();
    let attributes = "*.dat filter=evil\n*.rs filter=evil merge=evil\n";
    // The repository looks harmless to whoever asks, and to nobody else.
    let git_program = dir.path().join("git");
    let world = World::with(
        |repo| {
            write(repo, ".gitattributes", attributes);
            git(repo, ["add", "-A"]);
            git(repo, ["commit", "-qm", "attributes"]);
            let config = repo.join(".git/config");
            let plain = dir.path().join("plain");
            fs::copy(&config, &plain).unwrap();
            let filter = format!("[filter \"evil\"]\nclean = {command}\nsmudge = {command}\n");
            let merge = format!("[merge \"evil\"]\ndriver = {command}\n");
            let bad = fs::read_to_string(&plain).unwrap() + &filter + &merge;
            write(dir.path(), "bad", bad);
            let script = format!(
                "#!/bin/sh\nif [ \"$1\" = config ]; then c=plain; else c=bad; fi\n\
                 cp '{0}'/$c '{1}' && exec git \"$@\"\n",
                dir.path().display(),
                config.display()
            );
            program(&git_program, &script);
        },
        |config| config.program = git_program.clone().into_os_string(),
    )
    .await;
    let one = world.work(&task("one"), 1, &[("src/a.rs", "one\n"), ("x.dat", "1\n")]).await;
    world.run.change(&one).await.unwrap();
    world.merge(&task("one"), 2, &one).await;
    assert!(!proof.exists(), "{}", fs::read_to_string(&proof).unwrap());
}

#[tokio::test]
async fn an_agents_tricks_with_its_own_worktree_lead_nowhere() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    git(&outside, ["init", "-q", "-b", "main"]);
    write(&outside, "precious", "x");
    // The link now leads to another repository, and the worktree's HEAD and files elsewhere.
    let link = format!("gitdir: {}\n", outside.join(".git").display());
    write(&workspace.path, ".git", link);
    write(&workspace.path, "src/a.rs", "work\n");
    let sealed = crate::world::candidate(world.run.seal(&ask, &workspace).await.unwrap());
    assert_eq!(world.show(&format!("{}:src/a.rs", sealed.change)), "work");
    fs::remove_dir_all(workspace.path.join("src")).unwrap();
    std::os::unix::fs::symlink(&outside, workspace.path.join("src")).unwrap();
    let (_, again) = world.open(&task("t"), 2).await;
    assert!(again.path.join("src").is_dir() && outside.join("precious").exists());
    assert!(!fs::symlink_metadata(again.path.join("src")).unwrap().is_symlink());
    assert_eq!(git(&again.path, ["rev-parse", "HEAD"]), again.base.as_str());
}

#[tokio::test]
async fn links_in_place_of_a_workspace_lead_nowhere() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    let outside = world.dir.path().join("outside");
    write(&outside, "precious", "x");
    // The link file of the worktree is a link to a file outside.
    fs::remove_file(workspace.path.join(".git")).unwrap();
    std::os::unix::fs::symlink(outside.join("precious"), workspace.path.join(".git")).unwrap();
    world.open(&task("t"), 2).await;
    assert_eq!(fs::read(outside.join("precious")).unwrap(), b"x");
    // The worktree itself is one.
    fs::rename(&workspace.path, world.dir.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(&outside, &workspace.path).unwrap();
    assert!(world.run.seal(&ask, &workspace).await.is_err());
    let (_, again) = world.open(&task("t"), 3).await;
    assert!(again.path.join("src/a.rs").exists() && again.path.join(".git").is_file());
    assert_eq!(listing(&outside).len(), 1);
}

fn pipe(path: &Path) {
    if path.exists() {
        fs::remove_file(path).unwrap();
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR).unwrap();
}

#[tokio::test]
async fn pipes_and_links_without_end_in_the_place_of_files_hold_up_nobody() {
    let world = World::new().await;
    let (ask, workspace) = world.open(&task("t"), 1).await;
    // What git reads by itself, wherever it lies.
    pipe(&workspace.path.join(".gitignore"));
    pipe(&workspace.path.join("src/.gitattributes"));
    pipe(&workspace.path.join(".git"));
    write(&workspace.path, "src/new.rs", "new\n");
    let said = refused(world.run.seal(&ask, &workspace).await.unwrap());
    assert!(said.contains("pipes") && said.contains("`.gitignore`"), "{said}");
    assert!(!said.contains("src/.gitattributes"), "{said}");
    fs::remove_file(workspace.path.join(".git")).ok();
    std::os::unix::fs::symlink("/dev/zero", workspace.path.join(".git")).unwrap();
    let (ask, workspace) = world.open(&task("t"), 2).await;
    assert_eq!(fs::read_to_string(workspace.path.join(".gitignore")).unwrap(), "target/\n");
    write(&workspace.path, "src/a.rs", "work\n");
    let _socket = std::os::unix::net::UnixListener::bind(workspace.path.join("socket")).unwrap();
    let sealed = crate::world::candidate(world.run.seal(&ask, &workspace).await.unwrap());
    // Those who judge may do it too.
    let ask = world.ask(&task("t"), 3, Start::On(sealed.clone()));
    let workspace = world.run.open(&ask).await.unwrap();
    pipe(&workspace.path.join("src/b.rs"));
    pipe(&workspace.path.join(".gitattributes"));
    pipe(&workspace.path.join("pipe"));
    let differing = world.run.differing(&workspace, &sealed.change).await.unwrap();
    assert_eq!(differing, ["src/b.rs"]);
    pipe(&workspace.path.join("pipe"));
    world.run.release(&world.run_id(), &task("t").id).await.unwrap();
    let (_, workspace) = world.open(&task("u"), 4).await;
    assert!(!workspace.path.join("pipe").exists() && !workspace.path.join("socket").exists());
}

/// Runs another test of this file with git's variables set as somebody may have them set.
#[tokio::test]
async fn variables_of_git_that_are_inherited_steer_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let proof = dir.path().join("proof");
    let evil = dir.path().join("evil");
    program(&evil, &format!("#!/bin/sh\necho \"$@\" >> '{}'\n", proof.display()));
    let name = "hostile::a_dirty_checkout_is_byte_identical_afterwards";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name]);
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
        child.env(variable, dir.path().join("nowhere"));
    }
    for variable in ["GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_PAGER", "GIT_EDITOR"] {
        child.env(variable, &evil);
    }
    child.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "core.fsmonitor");
    child.env("GIT_CONFIG_VALUE_0", &evil).env("GIT_TRACE", dir.path().join("trace"));
    child.env("GIT_AUTHOR_NAME", "somebody").env("LC_ALL", "de_DE.UTF-8");
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
