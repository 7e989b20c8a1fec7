//! `kill -9` at any moment, then the same command with `--resume`: the same outcome.

use std::time::Duration;

use rustix::process::Signal;

use crate::outcome::assert_outcome;
use crate::program::Bench;

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
