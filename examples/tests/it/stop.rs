//! Ctrl-C, and two starts at once.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;

use rustix::process::Signal;

use crate::outcome::assert_outcome;
use crate::program::Bench;

#[test]
fn p20_a_stop_is_clean_and_leaves_no_process_and_the_run_goes_on() {
    let bench = Bench::new();
    let cues =
        ["passed already", "port-chars · run", "port-num · verify", "merged", "port-box · run"];
    for (at, (cue, signal)) in cues
        .iter()
        .zip([Signal::INT, Signal::INT, Signal::TERM, Signal::HUP, Signal::INT])
        .enumerate()
    {
        let mut start = bench.start(if at == 0 { &[] } else { &["--resume"] });
        let still_runs = start.until(|said| said.contains(cue) || said.lines().count() > 12);
        assert!(still_runs, "it ended before `{cue}`");
        start.signal(signal);
        start.wait().assert_code(130);
        assert_eq!(bench.processes(), Vec::<String>::new());
    }
    bench.run(&["--resume"]).assert_code(1);
    assert_outcome(&bench);
}

#[test]
fn a_stop_before_anything_ran_leaves_a_run_that_begins_later() {
    let bench = Bench::new();
    let mut start = bench.start(&[]);
    assert!(start.until(|said| said.contains("stand-in")));
    start.signal(Signal::INT);
    start.wait().assert_code(130);
    bench.run(&["--resume"]).assert_code(1);
    assert_outcome(&bench);
}

#[test]
fn p20_asked_twice_it_ends_at_once_and_what_it_left_is_ended_by_the_next_start() {
    let bench = Bench::new();
    let mut start = bench.start(&[]);
    assert!(start.until(|said| said.contains("starts     port-num")));
    start.signal(Signal::INT);
    start.until(|said| said.contains("once more"));
    start.signal(Signal::INT);
    start.wait().assert_code(130);
    bench.run(&["--resume"]).assert_code(1);
    assert_outcome(&bench);
}

#[test]
fn asked_twice_it_waits_for_nobody_who_watches_and_says_how_to_go_on_from_anywhere() {
    let bench = Bench::new();
    let pipe = bench.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Full from the beginning, and nobody reads it.
    let mut full = File::options().read(true).write(true).open(&pipe).unwrap();
    full.write_all(&[b' '; 64 * 1024]).unwrap();
    // Told of the question, it does not end, and there would be hours for it.
    let patient = ["--notify", "sleep 9999", "--notify-within", "9999"];
    let mut start = bench.start(&[&["--events", "pipe"], &patient[..]].concat());
    assert!(start.until(|said| said.contains("ESCALATED")));
    start.signal(Signal::INT);
    start.until(|said| said.contains("once more"));
    start.signal(Signal::INT);
    let ended = start.wait();
    ended.assert_code(130);
    let again = format!("--events {}", pipe.display());
    assert!(ended.stdout.contains(&again), "{}", ended.stdout);
    assert!(ended.stdout.contains("--notify-within 9999"), "{}", ended.stdout);
}

#[test]
fn p1_a_second_start_on_the_same_run_is_told_who_has_it_and_changes_nothing() {
    let bench = Bench::new();
    let mut first = bench.start(&[]);
    assert!(first.until(|said| said.contains("starts")));
    // It is there for as long as the others take.
    first.signal(Signal::STOP);
    for arguments in [&[] as &[&str], &["--resume"]] {
        let second = bench.run(arguments);
        second.assert_code(2);
        let holder = format!("process {}", first.pid());
        assert!(
            second.stderr.contains(&holder) && second.stderr.contains("run.db"),
            "{}",
            second.stderr
        );
    }
    first.signal(Signal::CONT);
    first.wait().assert_code(1);
    assert_outcome(&bench);
}
