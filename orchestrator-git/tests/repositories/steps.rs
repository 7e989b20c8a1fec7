//! A driver's process that is killed, or held up, before and after each call of git that it makes,
//! with a branch here and with one in another repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orchestrator_git::GitRun;

use crate::killed::{Record, carry_out};
use crate::world::{World, git, program, task};

/// Tells the test that is started as a process of its own where the repository is, and for which
/// task.
const PLACE: &str = "ORCHESTRATOR_GIT_STEPS_PLACE";
const TASK: &str = "ORCHESTRATOR_GIT_STEPS_TASK";

/// The other repository.
const ORIGIN: &str = "origin.git";

/// A git that counts how often it is called, and at one call kills or holds up whoever called it. A
/// question is a call of its own, also where git would stay for the next.
const WRAPPED: &str = r#"#!/bin/sh
place=$(dirname "$0")
call() {
    case $1 in
    update-ref) sed -e '/^commit$/q' -e '/^abort$/q' | git "$@" ;;
    cat-file) head -n 1 | git "$@" ;;
    *) git "$@" ;;
    esac
}
[ -e "$place/plan" ] || { call "$@"; exit; }
read -r at what <"$place/plan"
echo x >>"$place/calls"
[ "$(grep -c x "$place/calls")" -eq "$at" ] || { call "$@"; exit; }
case $what in
before) kill -9 $PPID; exit 1 ;;
after) call "$@" >/dev/null 2>&1; kill -9 $PPID; exit 1 ;;
late)
    : >"$place/waits"
    until [ -e "$place/goes" ]; do sleep 0.02; done
    call "$@"
    exit
    ;;
esac
"#;

/// The driver's process: one task from wherever it stands to its merge.
#[tokio::test]
#[ignore = "is started by the tests below"]
async fn a_process_that_carries_out_one_task() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let name = std::env::var(TASK).unwrap();
    let mut config = World::config(&place.join("the repo é"), &place);
    config.program = place.join("wrapped").into();
    let remote = place.join(ORIGIN);
    config.remote = remote.exists().then_some(remote);
    let plan = fs::read(place.join("planned")).ok();
    let run = GitRun::open(config).await.unwrap();
    // From here on calls count.
    if let Some(plan) = plan {
        fs::remove_file(place.join("planned")).unwrap();
        fs::write(place.join("plan"), plan).unwrap();
    }
    carry_out(&run, &task(&name), &place.join(&name)).await;
}

struct Stage {
    world: World,
    branch: PathBuf,
}

impl Stage {
    async fn new(is_remote: bool) -> Self {
        let world = World::new().await;
        let dir = world.dir.path();
        program(&dir.join("wrapped"), WRAPPED);
        let mut branch = world.repo.clone();
        if is_remote {
            git(dir, ["init", "-q", "--bare", ORIGIN]);
            branch = dir.join(ORIGIN);
        }
        Self { world, branch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.dir.path().join(name)
    }

    /// Starts a driver for a task; `plan` is the call at which something happens to it, and what.
    fn start(&self, name: &str, plan: Option<(u32, &str)>) -> Child {
        for left in ["plan", "planned", "calls", "waits", "goes"] {
            drop(fs::remove_file(self.path(left)));
        }
        if let Some((at, what)) = plan {
            fs::write(self.path("planned"), format!("{at} {what}\n")).unwrap();
        }
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "steps::a_process_that_carries_out_one_task", "--ignored"])
            .env(PLACE, self.world.dir.path())
            .env(TASK, name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn merges_of(&self, name: &str) -> usize {
        let trailer = format!("Orchestrator-Task: {name}");
        let log = ["log", "--format=%B", "orchestrator/r"];
        git(&self.branch, log).lines().filter(|line| *line == trailer).count()
    }

    fn check(&self, name: &str, what: &str) {
        assert_eq!(self.merges_of(name), 1, "{name} {what}");
        assert_eq!(git(&self.branch, ["show", &format!("orchestrator/r:{name}")]), "done");
        assert!(Record::read(&self.path(name)).is_done);
    }

    fn check_whole(&self) {
        for repo in [&self.world.repo, &self.branch] {
            git(repo, ["fsck", "--strict", "--no-dangling"]);
        }
        let tip = |repo: &Path| git(repo, ["rev-parse", "orchestrator/r"]);
        assert_eq!(tip(&self.world.repo), tip(&self.branch));
        assert_eq!(git(&self.world.repo, ["status", "--porcelain"]), "");
    }
}

/// Kills a driver before and after each call; with less time, before one and after the next.
async fn killed_at_each_step(is_remote: bool, whats: &[&[&str]]) {
    let stage = Stage::new(is_remote).await;
    for (at, whats) in (1..).zip(whats.iter().cycle()) {
        let mut was_killed = false;
        for what in *whats {
            let name = format!("{what}-{at}");
            was_killed |= !stage.start(&name, Some((at, what))).wait().unwrap().success();
            let ended = stage.start(&name, None).wait().unwrap();
            assert!(ended.success(), "killed {what} call {at}");
            stage.check(&name, what);
        }
        if !was_killed {
            assert!(at > 8, "a task takes more calls than {at}");
            break;
        }
    }
    stage.check_whole();
}

#[tokio::test]
async fn p17_a_driver_killed_before_and_after_each_call_merges_once() {
    killed_at_each_step(false, &[&["before", "after"]]).await;
}

#[tokio::test]
async fn p17_a_driver_killed_before_and_after_each_call_merges_once_into_another_repository() {
    killed_at_each_step(true, &[&["after"], &["before"]]).await;
}

/// Waits until a driver is held up; `false` when it ended before.
fn is_held_up(stage: &Stage, driver: &mut Child) -> bool {
    let begun = Instant::now();
    while !stage.path("waits").exists() {
        if driver.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "it is neither held up nor ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

async fn late_at_each_step(is_remote: bool) {
    let stage = Stage::new(is_remote).await;
    for at in 1.. {
        let name = format!("late-{at}");
        let mut old = stage.start(&name, Some((at, "late")));
        if !is_held_up(&stage, &mut old) {
            assert!(at > 8, "a task takes more calls than {at}");
            break;
        }
        fs::remove_file(stage.path("plan")).unwrap();
        let ended = stage.start(&name, None).wait().unwrap();
        assert!(ended.success(), "the driver that took over, at call {at}");
        stage.check(&name, "by the new one");
        let after = git(&stage.branch, ["rev-parse", "orchestrator/r"]);
        fs::write(stage.path("goes"), "").unwrap();
        old.wait().unwrap();
        assert_eq!(git(&stage.branch, ["rev-parse", "orchestrator/r"]), after, "call {at}");
        assert_eq!(stage.merges_of(&name), 1);
    }
    stage.check_whole();
}

#[tokio::test]
async fn p17_an_old_merger_that_wakes_up_late_at_any_call_merges_nothing() {
    late_at_each_step(false).await;
}

#[tokio::test]
async fn p17_an_old_merger_that_wakes_up_late_merges_nothing_into_another_repository() {
    late_at_each_step(true).await;
}
