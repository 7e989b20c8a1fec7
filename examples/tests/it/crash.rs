//! `kill -9` at any moment, then the same command with `--resume`: the same outcome.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::Signal;

use crate::outcome::assert_outcome;
use crate::program::{Bench, git};

/// Kills one start after another, each once it has printed so many lines and so many milliseconds
/// more have passed, then lets the last one finish.
fn killed_at(moments: &[(usize, u64)]) {
    let bench = Bench::new();
    for (killed, (lines, delay)) in moments.iter().enumerate() {
        let resume: &[&str] = if killed > 0 { &["--resume"] } else { &[] };
        let mut start = bench.start(resume);
        if start.until(|said| said.lines().count() >= *lines) {
            // The moment lies between two lines: what it is about cannot be waited for.
            std::thread::sleep(Duration::from_millis(*delay));
            start.signal(Signal::KILL);
        }
        let ended = start.wait();
        assert!(ended.code().is_none_or(|code| code == 1), "{}", ended.stderr);
    }
    bench.run(&["--resume"]).assert_code(1);
    assert_outcome(&bench);
}

#[test]
fn p5_killed_while_it_sets_up_and_as_it_begins() {
    killed_at(&[
        (0, 0),
        (0, 5),
        (0, 10),
        (0, 20),
        (0, 40),
        (1, 0),
        (1, 10),
        (1, 30),
        (1, 60),
        (2, 0),
        (2, 20),
        (2, 60),
        (2, 120),
        (2, 250),
        (2, 500),
        (3, 0),
        (4, 0),
        (5, 0),
        (6, 0),
        (7, 0),
    ]);
}

#[test]
fn p5_killed_after_every_few_events() {
    killed_at(&[
        (8, 0),
        (10, 10),
        (12, 0),
        (14, 30),
        (15, 0),
        (16, 20),
        (17, 0),
        (18, 50),
        (20, 0),
        (22, 10),
        (24, 0),
        (26, 30),
    ]);
}

#[test]
fn p5_killed_late_and_between_merges() {
    killed_at(&[(30, 0), (30, 15), (40, 0), (25, 5), (25, 25), (20, 45), (15, 0), (15, 15)]);
}

#[test]
fn secrets_that_a_killed_stage_had_logged_are_gone_before_the_next_start_shows_it() {
    const KEY: &str = "sk-ant-api03-0123456789abcdefghij";
    let bench = Bench::new();
    let (repo, plan, agent) = (bench.path("mine"), bench.path("plan.json"), bench.path("agent"));
    fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "-q", "-b", "main"]);
    git(&repo, &["commit", "-q", "--allow-empty", "-m", "begin"]);
    fs::write(&plan, r#"[{"id": "a", "verify": "test -e a"}]"#).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo '2.1.332 (Claude Code)' && exit\n\
         echo tries {KEY}; echo fails with {KEY} >&2; exec sleep 600\n"
    );
    fs::write(&agent, script).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let [repo, plan, agent] = [&repo, &plan, &agent].map(|path| path.to_str().unwrap());
    let given = ["--agent", "claude", "--claude-bin", agent, "--model", "none", "--no-documents"];
    let given = [&given[..], &["--repo", repo, "--plan", plan]].concat();
    let log = |name: &str| {
        let tasks = fs::read_dir(bench.dir().join("stages")).into_iter().flatten().flatten();
        let mut stages = tasks.map(|task| task.path().join("01-run"));
        stages.find_map(|stage| fs::read_to_string(stage.join(name)).ok()).unwrap_or_default()
    };
    let mut start = bench.start(&given);
    let is_logged = |_: &str| log("stdout.jsonl").contains(KEY) && log("stderr.txt").contains(KEY);
    assert!(start.until(is_logged));
    start.signal(Signal::KILL);
    start.wait();
    assert!(is_logged(""));
    let mut start = bench.start(&[&given[..], &["--resume"]].concat());
    assert!(start.until(|said| said.contains("stopping")));
    let (out, err) = (log("stdout.jsonl"), log("stderr.txt"));
    assert!(out.starts_with("tries ***") && !out.contains(KEY), "{out}");
    assert!(err.starts_with("fails with ***") && !err.contains(KEY), "{err}");
    start.signal(Signal::INT);
    start.wait().assert_code(130);
    assert_eq!(bench.processes(), Vec::<String>::new());
}
