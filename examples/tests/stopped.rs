//! A driver that is stopped by a signal, as when a laptop sleeps or a person presses Ctrl-Z.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

#[test]
fn p14_a_driver_that_stood_still_for_longer_than_its_leases_live_goes_on_and_finishes() {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "examples", "--example", "full_pipeline"]);
    build.arg("--target-dir").arg(profile.parent().unwrap());
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());

    let dir = tempfile::tempdir().unwrap();
    let mut driver = Command::new(profile.join("examples").join("full_pipeline"))
        .arg("--dir")
        .arg(dir.path().join("run"))
        .args(["--lease", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&driver);
    // Three times in the course of the run, whatever it does then; its agents work on meanwhile.
    let mut stops = 0;
    for _ in 0..3 {
        sleep(Duration::from_millis(800));
        if driver.try_wait().unwrap().is_some() {
            break;
        }
        kill_process(pid, Signal::STOP).unwrap();
        sleep(Duration::from_millis(1_200));
        kill_process(pid, Signal::CONT).unwrap();
        stops += 1;
    }
    assert!(stops > 0, "it was over before it could be stopped");
    // One task of the example asks a question, so that 1 is how it ends when all went well.
    assert_eq!(driver.wait().unwrap().code(), Some(1));
    // Nobody had taken anything from it, so that nothing was done twice.
    let report = std::fs::read(dir.path().join("run").join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!((&report["done"], &report["attempts"]), (&13.into(), &16.into()), "{report}");
    let mut log = Command::new("git");
    log.args(["log", "--format=%(trailers:key=Orchestrator-Task)", "main"]);
    let log = log.current_dir(dir.path().join("run").join("repo")).output();
    let log = String::from_utf8(log.unwrap().stdout).unwrap();
    let mut merged: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    merged.sort_unstable();
    merged.dedup();
    assert_eq!(merged.len(), 13, "{log}");
    assert_eq!(log.lines().filter(|line| !line.is_empty()).count(), 13, "{log}");
}
