//! Several processes on one file.

use orchestrator_core::Seq;
use orchestrator_core::port::Store as _;

use crate::child::{Process, RACE_COMMITS};
use crate::support::{PATIENCE, TempStore, run};

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_make_one_file_and_commit_at_once_each_win_their_own_positions() {
    const PROCESSES: u64 = 4;
    let fixture = TempStore::new();
    let mut processes: Vec<_> = (0..PROCESSES)
        .map(|number| Process::start(&format!("race {number}"), &fixture.path()))
        .collect();
    let mut won = Vec::new();
    for process in &mut processes {
        let mut count = 0;
        while let Some(seq) = process.next_acknowledged() {
            won.push(seq);
            count += 1;
        }
        assert_eq!(count, RACE_COMMITS);
        assert!(process.child.wait().unwrap().success());
    }
    won.sort_unstable();
    let all = PROCESSES * RACE_COMMITS;
    assert_eq!(won, (1..=all).map(Seq).collect::<Vec<_>>(), "each position has one winner");
    let store = fixture.sqlite().await;
    let log = store.events(&run(), Seq(0), usize::MAX).await.unwrap();
    let mut stamps: Vec<_> = log.into_iter().map(|stored| stored.event.at.0).collect();
    stamps.sort_unstable();
    assert_eq!(stamps, (0..all).collect::<Vec<_>>(), "no event is lost or there twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_another_process_is_noticed() {
    let fixture = TempStore::new();
    let store = fixture.sqlite().await;
    let process = Process::start("write once", &fixture.path());
    let waited = tokio::time::timeout(PATIENCE, store.changed(&run(), Seq(0))).await;
    waited.expect("the commit was not noticed").unwrap();
    assert_eq!(store.header(&run()).await.unwrap().map(|(seq, _)| seq), Some(Seq(1)));
    drop(process);
}
