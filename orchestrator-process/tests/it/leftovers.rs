//! What survives the process that started it is found by the next one.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use orchestrator_core::port::{Host as _, Liveness};
use orchestrator_core::{FencingToken, Owner, RunId};
use orchestrator_process::{
    Confiner as _, LocalConfiner, LocalHost, Marker, TreeEnds, end_leftovers, run,
};
use tempfile::tempdir;
use tokio_util::sync::CancellationToken;

use super::{is_alive, pid_in, read, sh, until};

/// A run that nobody else has, who may run the same tests at the same time.
fn this_run() -> RunId {
    RunId::parse(&format!("Leftovers of {}", std::process::id())).unwrap()
}

/// The variable by which this test program knows that it is to be the parent that is killed.
const PARENT_IN: &str = "IT_PARENT_IN";

/// Starts this test program again as a parent that runs `script` under lease `token`.
fn start_parent(dir: &Path, token: u64, script: &str) -> Child {
    start_parent_by(&mut Command::new(std::env::current_exe().unwrap()), dir, token, script)
}

/// The same by a command that becomes this test program with the arguments that it is given.
fn start_parent_by(command: &mut Command, dir: &Path, token: u64, script: &str) -> Child {
    std::fs::write(dir.join("script"), script).unwrap();
    command
        .args(["--exact", "leftovers::parent_that_is_killed", "--include-ignored"])
        .env(PARENT_IN, dir)
        .env("IT_TOKEN", token.to_string())
        .env("IT_RUN", this_run().as_str())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
#[ignore = "the others start it"]
async fn parent_that_is_killed() {
    let Some(dir) = std::env::var_os(PARENT_IN) else { return };
    let dir = Path::new(&dir);
    let token = std::env::var("IT_TOKEN").unwrap().parse().unwrap();
    let host = LocalHost::new().unwrap();
    let owner = serde_json::to_string(&host.this_process()).unwrap();
    std::fs::write(dir.join("owner"), owner).unwrap();
    let run_id = RunId::parse(&std::env::var("IT_RUN").unwrap()).unwrap();
    let marker = Marker::of(&run_id, FencingToken(token));
    let program = sh(dir, &read(dir.join("script"))).marker(marker);
    run(&program, &CancellationToken::new(), &mut ()).await.unwrap();
}

#[tokio::test]
async fn p20_a_child_dies_with_the_process_that_started_it() {
    let dir = tempdir().unwrap();
    let mut parent = start_parent(dir.path(), 70, "echo $$ > pid; exec sleep 600");
    let pid = pid_in(dir.path().join("pid")).await;
    assert!(is_alive(pid));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the end of the child", || !is_alive(pid)).await;
}

#[tokio::test]
async fn p20_what_survives_a_killed_parent_is_ended_by_the_next_start_and_no_other_lease() {
    let dirs = [tempdir().unwrap(), tempdir().unwrap()];
    let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; echo $$ > deaf; sleep 600' &); \
                  while ! [ -s deaf ]; do sleep 0.01; done; echo $$ > pid; sleep 600; sleep 600";
    let mut pids = Vec::new();
    let host = LocalHost::new().unwrap();
    for (dir, token) in dirs.iter().zip([71, 72]) {
        let mut parent = start_parent(dir.path(), token, script);
        let pid = pid_in(dir.path().join("pid")).await;
        let owner: Owner = serde_json::from_str(&read(dir.path().join("owner"))).unwrap();
        assert_eq!(host.liveness(&owner), Liveness::Alive);
        parent.kill().unwrap();
        until("the end of the parent", || host.liveness(&owner) == Liveness::Dead).await;
        parent.wait().unwrap();
        assert_eq!(host.liveness(&owner), Liveness::Dead);
        pids.push([pid, pid_in(dir.path().join("deaf")).await]);
    }
    let grace = Duration::from_millis(100);
    if LocalConfiner::detected().abilities().tree == TreeEnds::Guardian {
        // Its guardian ends all of it when the parent dies, so that nothing is left to find.
        until("the end of all", || pids.iter().flatten().all(|pid| !is_alive(*pid))).await;
        assert_eq!(end_leftovers(&this_run(), FencingToken(71), grace).await.unwrap(), 0);
        return;
    }
    let ended = end_leftovers(&this_run(), FencingToken(71), grace).await.unwrap();
    assert!(ended >= 2, "{ended}");
    assert!(pids[0].iter().all(|pid| !is_alive(*pid)));
    assert!(pids[1].iter().all(|pid| is_alive(*pid)));
    assert_eq!(end_leftovers(&this_run(), FencingToken(71), grace).await.unwrap(), 0);
    assert_eq!(end_leftovers(&this_run(), FencingToken(7), grace).await.unwrap(), 0);
    let host = LocalHost::new().unwrap().with_grace(grace);
    assert!(host.end_leftovers(&this_run(), FencingToken(72)).await.unwrap() >= 2);
    assert!(pids[1].iter().all(|pid| !is_alive(*pid)));
}

/// A cgroup for a driver that stands elsewhere than this process; removed with all in it.
struct Elsewhere(PathBuf);

impl Elsewhere {
    /// In the hierarchy that trees are held by, where one can be made there.
    fn new() -> Option<Self> {
        let tree = LocalConfiner::detected().abilities().tree;
        if !matches!(tree, TreeEnds::CgroupKill | TreeEnds::CgroupFreeze) {
            return None;
        }
        let tops = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let name = format!("elsewhere-{}", std::process::id());
        let made = tops.iter().map(|top| Path::new(top).join(&name));
        made.into_iter().find(|dir| std::fs::create_dir(dir).is_ok()).map(Self)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        for dir in [&self.0.join("orchestrator"), &self.0] {
            std::fs::remove_dir(dir).ok();
        }
    }
}

#[tokio::test]
async fn p20_what_a_driver_in_another_cgroup_left_is_found_whatever_it_hides_behind() {
    let Some(elsewhere) = Elsewhere::new() else { return };
    let dir = tempdir().unwrap();
    let script = "trap '' TERM; (setsid env -i sh -c 'trap \"\" TERM; echo $$ > deaf; sleep 600' &); \
                  while ! [ -s deaf ]; do sleep 0.01; done; sleep 600";
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0/cgroup.procs\"; exec \"$@\""]);
    command.arg(&elsewhere.0).arg(std::env::current_exe().unwrap());
    let mut parent = start_parent_by(&mut command, dir.path(), 73, script);
    let deaf = pid_in(dir.path().join("deaf")).await;
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(is_alive(deaf));
    let grace = Duration::from_millis(100);
    assert!(end_leftovers(&this_run(), FencingToken(73), grace).await.unwrap() >= 2);
    assert!(!is_alive(deaf));
}
