//! What is left after a process was killed while it wrote.

use std::thread;
use std::time::Duration;

use orchestrator_core::Seq;
use orchestrator_core::port::Store as _;

use crate::child::Process;
use crate::support::{TempStore, assert_whole, run, stamped};

/// Kills a writer again and again, at moments spread over its work by a fixed sequence.
#[tokio::test(flavor = "multi_thread")]
async fn p5_a_killed_writer_leaves_whole_commits_and_every_acknowledged_one() {
    const KILLS: u64 = 12;
    let fixture = TempStore::new();
    let mut last = Seq(0);
    for kill in 0..KILLS {
        let mut process = Process::start("write for ever", &fixture.path());
        let mut acknowledged = Seq(0);
        for _ in 0..=kill % 4 {
            acknowledged = process.next_acknowledged().expect("the writer lives");
        }
        // Somewhere in the next commits, which take about a millisecond each.
        thread::sleep(Duration::from_micros(kill * 7_919 % 3_000));
        process.child.kill().unwrap();
        while let Some(seq) = process.next_acknowledged() {
            acknowledged = seq;
        }
        drop(process);
        let store = fixture.sqlite().await;
        let found = assert_whole(&store).await;
        assert!(found >= acknowledged, "{acknowledged} was acknowledged, {found} is there");
        assert!(found > last);
        last = found;
        store.close().await;
        let verdict: String =
            fixture.shell().pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }
}

/// Kills a process at moments spread over its start, while it makes the file and after.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_while_it_makes_the_file_leaves_one_that_can_be_opened() {
    for kill in 0..16 {
        let fixture = TempStore::new();
        let mut process = Process::start("write for ever", &fixture.path());
        thread::sleep(Duration::from_micros(kill * 1_500));
        process.child.kill().unwrap();
        drop(process);
        let store = fixture.sqlite().await;
        let at = assert_whole(&store).await;
        assert_eq!(store.commit(&run(), &stamped(at)).await.unwrap(), at.plus(1));
    }
}
