//! What worktrees are set up with, and the room on the disk.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use orchestrator_core::VerifyCommand;
use orchestrator_core::port::{PortError, Room, Start, Trial, Verifier as _, Workspaces as _};
use orchestrator_git::{PortBlocks, SetUp};
use orchestrator_process::CommandVerifier;

use crate::world::{World, git, task, write};

fn run(line: &str) -> SetUp {
    let command = ["sh", "-c", line].map(str::to_owned).to_vec();
    SetUp::Run { command, timeout: Duration::from_secs(300) }
}

#[tokio::test]
async fn a_worktree_is_set_up_when_it_is_new_and_when_another_task_gets_it() {
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "env", "KEY=1\n");
    write(outside.path(), "deps/a/b", "lib\n");
    let world = World::with(
        |repo| write(repo, ".git/info/exclude", ".env.local\nvendor\ncache\nnoted\n"),
        |config| {
            let from = |path: &str| outside.path().join(path);
            config.set_up = vec![
                SetUp::Copy { from: from("env"), to: PathBuf::from(".env.local") },
                SetUp::Copy { from: from("deps"), to: PathBuf::from("src/vendor") },
                SetUp::Link { from: from("deps"), to: PathBuf::from("cache") },
                run("echo $ORCHESTRATOR_PORT $ORCHESTRATOR_PORT_LAST >>noted; test -d \"$TMPDIR\""),
            ];
            config.ports = Some(PortBlocks { first: 20_000, each: 10 });
        },
    )
    .await;
    for (id, token) in [("one", 1), ("two", 2)] {
        let (_, workspace) = world.open(&task(id), token).await;
        let read = |path: &str| fs::read_to_string(workspace.path.join(path)).unwrap();
        assert_eq!(read(".env.local"), "KEY=1\n");
        assert_eq!((read("src/vendor/a/b"), read("cache/a/b")), ("lib\n".into(), "lib\n".into()));
        assert!(workspace.path.join("cache").is_symlink());
        assert_eq!(read("noted"), "20000 20009\n", "once, and the ports of the one before");
        let variables = fs::read_to_string(workspace.path.join("../variables")).unwrap();
        assert!(variables.contains("export ORCHESTRATOR_PORT='20000'\n"), "{variables}");
        assert_eq!(git(&workspace.path, ["status", "--porcelain"]), "");
        // The next attempt finds it as it is.
        write(&workspace.path, ".env.local", "by the agent");
        let (_, again) = world.open(&task(id), token + 10).await;
        assert_eq!(fs::read(again.path.join(".env.local")).unwrap(), b"by the agent");
        world.run.release(&world.run_id(), &task(id).id).await.unwrap();
    }
    let (_, a) = world.open(&task("a"), 31).await;
    let (_, b) = world.open(&task("b"), 32).await;
    let port = |path: PathBuf| fs::read_to_string(path.join("noted")).unwrap();
    assert_ne!(port(a.path), port(b.path));
}

#[tokio::test]
async fn a_command_that_says_a_lot_is_let_finish() {
    let talk = "i=0; while [ $i -lt 3000 ]; do echo a line of many; i=$((i+1)); done; ";
    let steps = vec![run(&format!("{talk} echo done >src/a.rs"))];
    let world = World::with(|_| {}, |config| config.set_up = steps).await;
    let (_, workspace) = world.open(&task("t"), 1).await;
    assert_eq!(fs::read_to_string(workspace.path.join("src/a.rs")).unwrap(), "done\n");
    let said = fs::read_to_string(workspace.path.join("../set-up.out")).unwrap();
    assert_eq!(said.lines().count(), 3000);
    let steps = vec![run(&format!("{talk} exit 3"))];
    let world = World::with(|_| {}, |config| config.set_up = steps).await;
    let err = world.run.open(&world.ask(&task("t"), 1, Start::OnTarget)).await.unwrap_err();
    assert!(err.chain().contains("Exited(3)"), "{}", err.chain());
}

#[tokio::test]
async fn keys_that_a_command_says_are_masked_in_its_log_and_in_the_error() {
    // The command puts it together, so that it does not hold what looks like a key itself.
    let key = format!("ghp_{}", "a1B2".repeat(9));
    for end in [0, 3] {
        let steps = vec![run(&format!(
            "printf 'with ghp_'; for i in 1 2 3 4 5 6 7 8 9; do printf a1B2; done; echo; exit {end}"
        ))];
        let world = World::with(|_| {}, |config| config.set_up = steps).await;
        let opened = world.run.open(&world.ask(&task("t"), 1, Start::OnTarget)).await;
        let said = match opened {
            Ok(workspace) => fs::read_to_string(workspace.path.join("../set-up.out")).unwrap(),
            Err(err) => err.chain(),
        };
        let is_masked = said.contains("with ****") || said.contains("with [masked]");
        assert!(is_masked && !said.contains(&key), "{said}");
    }
}

#[tokio::test]
async fn a_step_that_fails_or_leaves_the_worktree_is_named_and_nobody_works_there() {
    let steps = [
        (run("echo no such package >&2; exit 7"), "no such package"),
        (SetUp::Copy { from: "/etc/hostname".into(), to: "../x".into() }, "../x"),
        (SetUp::Copy { from: "/etc/hostname".into(), to: ".git/hooks/x".into() }, ".git/hooks/x"),
    ];
    for (step, said) in steps {
        let world = World::with(|_| {}, |config| config.set_up = vec![step]).await;
        let err = world.run.open(&world.ask(&task("t"), 1, Start::OnTarget)).await.unwrap_err();
        assert!(err.chain().contains(said), "{}", err.chain());
    }
}

#[tokio::test]
async fn what_is_derived_for_a_worktree_reaches_whoever_works_and_judges_there() {
    let world = World::with(
        |_| {},
        |config| {
            config.ports = Some(PortBlocks { first: 30_000, each: 3 });
            config.variables = [
                ("DATABASE", "postgres://localhost:{port_last}/{none}"),
                ("CARGO_TARGET_DIR", "{scratch}/it's a target"),
                ("AT", "{tree}{"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
            config.set_up =
                vec![run("printf %s \"$DATABASE\" >\"$ORCHESTRATOR_SCRATCH/by set-up\"")];
        },
    )
    .await;
    let seen = "test \"$CARGO_TARGET_DIR\" = \"$ORCHESTRATOR_SCRATCH/it's a target\" && \
        test \"$AT\" = \"$PWD{\" && test \"$DATABASE\" = \"postgres://localhost:$((ORCHESTRATOR_PORT + 2))/{none}\" && \
        test \"$TMPDIR\" = \"$ORCHESTRATOR_SCRATCH\" && \
        test \"$(cat \"$TMPDIR/by set-up\")\" = \"$DATABASE\" && touch \"$TMPDIR/x\"";
    let seen = VerifyCommand::Shell(format!("{seen} && ( . ../variables && {seen} )"));
    let verifier = CommandVerifier::default();
    let mut ports = BTreeSet::new();
    for (id, token) in [("one", 1), ("two", 2)] {
        let (ask, workspace) = world.open(&task(id), token).await;
        assert_eq!(verifier.try_on(&seen, &workspace).await, Trial::Passes);
        let again = Start::AsLeftBy { token: ask.token, otherwise: Box::new(Start::OnTarget) };
        fs::remove_dir_all(workspace.scratch.as_ref().unwrap()).unwrap();
        let left = world.run.open(&world.ask(&task(id), token + 10, again)).await.unwrap();
        assert!(left.as_left && left.scratch.as_ref().is_some_and(|scratch| scratch.is_dir()));
        assert_eq!(left.environment, workspace.environment);
        ports.extend(left.environment.into_iter().filter(|(name, _)| name == "ORCHESTRATOR_PORT"));
    }
    assert_eq!(ports.len(), 2, "each has ports of its own");
    let untouched = world.run.untouched(&world.run_id()).await.unwrap();
    assert_eq!(verifier.try_on(&seen, &untouched).await, Trial::Passes);
}

#[tokio::test]
async fn whether_there_is_room_is_said_with_the_place_and_the_numbers() {
    let world = World::with(|_| {}, |config| config.free_bytes_min = Some(u64::MAX)).await;
    let room = world.run.room(&world.run_id()).await.unwrap();
    let Room::Short { place, free_bytes, wanted_bytes: u64::MAX } = room else {
        panic!("{room:?}")
    };
    assert!(place.ends_with("work trees/r") && free_bytes > 0);
    let world = World::with(|_| {}, |config| config.free_bytes_min = Some(1)).await;
    assert_eq!(world.run.room(&world.run_id()).await.unwrap(), Room::Enough);
}

#[tokio::test]
async fn nobody_gets_a_new_worktree_while_the_disk_is_nearly_full() {
    let world = World::with(|_| {}, |config| config.free_bytes_min = Some(u64::MAX)).await;
    let err = world.run.open(&world.ask(&task("t"), 1, Start::OnTarget)).await.unwrap_err();
    assert!(matches!(&err, PortError::Transient(_)), "it may pass: {}", err.chain());
    assert!(err.chain().contains("free_bytes_min"), "{}", err.chain());
}
