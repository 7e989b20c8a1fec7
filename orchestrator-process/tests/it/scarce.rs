//! A machine with no room left.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use orchestrator_core::{FencingToken, RunId};
use orchestrator_process::{End, Limits, Marker, capture, end_leftovers, raise_open_files};
use tempfile::tempdir;
use tokio_util::sync::CancellationToken;

use super::{LONG, ended, is_alive, pid_in, sh, until};

const FEW_FILES: &str = "IT_FEW_FILES";

#[test]
fn with_too_few_open_files_a_program_runs_whole_or_is_refused_for_now() {
    // The limit is of a process, so the test that takes all files has one of its own.
    let status = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "scarce::few_files", "--include-ignored"])
        .env(FEW_FILES, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
#[ignore = "the other one starts it"]
async fn few_files() {
    if std::env::var_os(FEW_FILES).is_none() {
        return;
    }
    let dir = tempdir().unwrap();
    let run = RunId::parse(&format!("few {}", std::process::id())).unwrap();
    let program = sh(dir.path(), "echo out; sleep 600 & echo $! > pid; exit 7")
        .marker(Marker::of(&run, FencingToken(1)))
        .limits(Limits::new(LONG).with_grace(Duration::from_millis(50)));
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    let blind = end_leftovers(&run, FencingToken(1), Duration::ZERO).await.unwrap_err();
    assert!(blind.to_string().contains("/proc"), "{blind}");
    let (mut refused, mut ran) = (0, 0);
    while taken.pop().is_some() && ran < 3 {
        match ended(&program, &mut ()).await {
            Ok(ended) => {
                assert_eq!(ended.how, End::Exited(7));
                let pid = pid_in(dir.path().join("pid")).await;
                until("the end of the child", || !is_alive(pid)).await;
                ran += 1;
            }
            Err(err) => {
                assert!(err.is_transient(), "{err:?}");
                refused += 1;
            }
        }
        match capture(&program, &CancellationToken::new(), 100).await {
            Ok(captured) => assert_eq!(captured.how, End::Exited(7)),
            Err(err) => assert!(err.is_transient(), "{err:?}"),
        }
    }
    assert!(refused > 0 && ran > 0, "{refused} {ran}");
}

const LOW_SOFT: &str = "IT_LOW_SOFT";

#[test]
fn the_limit_of_open_files_is_raised_here_and_programs_keep_theirs() {
    let status = Command::new("sh")
        .args(["-c", "ulimit -S -n 100; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "scarce::low_soft_limit", "--include-ignored"])
        .env(LOW_SOFT, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
#[ignore = "the other one starts it"]
async fn low_soft_limit() {
    if std::env::var_os(LOW_SOFT).is_none() {
        return;
    }
    let allowed = raise_open_files(10).unwrap();
    let mut taken = Vec::new();
    for _ in 0..150 {
        taken.push(File::open("/dev/null").unwrap());
    }
    let dir = tempdir().unwrap();
    let ended = ended(&sh(dir.path(), "ulimit -S -n"), &mut ()).await.unwrap();
    assert_eq!(ended.stdout_tail, "100\n");
    let err = raise_open_files(u32::MAX).unwrap_err();
    assert_eq!(err.allowed, allowed);
}
