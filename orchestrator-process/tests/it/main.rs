//! Starts real programs and looks at what becomes of them.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod confined;
mod ending;
mod leftovers;
mod running;
mod scarce;
mod stages;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orchestrator_process::{
    Confiner, Ended, Environment, Limits, LocalConfiner, Program, SpawnError, Watch, run,
};
use tokio_util::sync::CancellationToken;

/// Far more than anything here takes, also where the machine has twenty times as much to do.
const LONG: Duration = Duration::from_secs(300);

/// By how much a limit is stretched that a program must keep, as long as the machine is too busy for it
/// to do so.
const STRETCHED: [u32; 3] = [1, 8, 64];

/// What a script says at the place where it is to reach a limit, and not before, however long it takes
/// to come there: more than it may under [`talkative`].
const TOO_MUCH: &str = "head -c 100000 /dev/zero >&2";

thread_local! {
    /// What holds programs that are started, in place of what the machine has.
    static CONFINER: RefCell<Option<Arc<dyn Confiner>>> = const { RefCell::new(None) };
}

/// Runs a test with what the machine has, with cgroups of version 2, and with none.
async fn with_and_without_cgroups(test: impl AsyncFn()) {
    test().await;
    for confiner in [LocalConfiner::with_cgroup_v2_only(), LocalConfiner::without_cgroups()] {
        CONFINER.set(Some(Arc::new(confiner)));
        test().await;
    }
    CONFINER.set(None);
}

/// A shell that runs this script in this directory, with its output in `out` and `err` there.
fn sh(dir: &Path, script: &str) -> Program {
    let program = Program::new("sh")
        .args(["-c", script])
        .cwd(dir)
        .environment(Environment::empty().passing(["PATH"]))
        .stdout_file(dir.join("out"))
        .stderr_file(dir.join("err"))
        .limits(Limits::new(LONG).with_grace(Duration::from_millis(300)));
    match CONFINER.with_borrow(Clone::clone) {
        Some(confiner) => program.confiner(confiner),
        None => program,
    }
}

/// Limits that a program reaches when it says [`TOO_MUCH`].
fn talkative(grace: Duration) -> Limits {
    Limits::new(LONG).with_output_bytes_max(50_000).with_grace(grace)
}

async fn ended(program: &Program, watch: &mut dyn Watch) -> Result<Ended, SpawnError> {
    run(program, &CancellationToken::new(), watch).await
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Waits until the condition holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool + Send) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a file holds a pid on its first line.
async fn pid_in(path: PathBuf) -> u32 {
    let pid = || read(&path).lines().next().and_then(|line| line.trim().parse().ok());
    until("a pid in a file", || read(&path).ends_with('\n') && pid().is_some()).await;
    pid().unwrap()
}

/// Whether a process lives; one that waits to be reaped does not.
fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}
