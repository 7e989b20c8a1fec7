//! Checks of commits: who wins, what is refused, and what a refusal leaves behind.
#![expect(clippy::missing_panics_doc, reason = "a check panics when the store does not conform")]

use std::sync::Arc;
use std::time::Duration;

use super::StoreFixture;
use super::samples::{
    command_id, event, first_commit, next_commit, owner_record, pool_records, run_id, run_record,
    task_record,
};
use crate::command::Answer;
use crate::id::{BlobHash, Seq};
use crate::port::{Commit, CommitError, Store};
use crate::record::Records;
use crate::time::Timestamp;

/// Longer than any store takes for one small step, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Many handles that commit at once: of those at one position exactly one gets through, the others
/// are told where the run stands, and in the end every commit has its place.
pub async fn racing_commits_have_one_winner_for_each_position(fixture: &dyn StoreFixture) {
    const WRITERS: u64 = 8;
    const COMMITS: u64 = 10;
    let run = run_id("r");
    fixture.open().await.commit(&run, &first_commit("r", "create")).await.expect("commit");
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let store = fixture.open().await;
        let run = run.clone();
        writers.push(tokio::spawn(async move {
            let mut at = Seq(1);
            let mut won = Vec::new();
            while let Some(round) = (0..COMMITS).nth(won.len()) {
                let stamp = writer * COMMITS + round;
                let commit = Commit { events: vec![event(stamp)], ..next_commit(at) };
                match store.commit(&run, &commit).await {
                    Ok(seq) => {
                        assert_eq!(seq, at.plus(1));
                        won.push((seq, stamp));
                        at = seq;
                    }
                    Err(CommitError::Moved { now }) => {
                        assert!(now > at, "moved from {at} to {now}");
                        at = now;
                    }
                    Err(CommitError::Busy(_)) => {}
                    Err(err) => panic!("{err:?}"),
                }
            }
            won
        }));
    }
    let mut won = Vec::new();
    for writer in writers {
        won.extend(writer.await.expect("a writer panicked"));
    }
    won.sort_unstable();
    let store = fixture.open().await;
    let read = store.events(&run, Seq(1), usize::MAX).await.expect("events");
    let read: Vec<_> = read.into_iter().map(|stored| (stored.seq, stored.event.at.0)).collect();
    assert_eq!(read, won, "each position has one winner, whose event stands there");
    assert_eq!(read.len() as u64, WRITERS * COMMITS);
}

/// One command, sent by many at once and again and again, has one effect and one answer.
pub async fn a_command_sent_by_many_is_committed_once(fixture: &dyn StoreFixture) {
    let run = run_id("r");
    fixture.open().await.commit(&run, &first_commit("r", "create")).await.expect("commit");
    let mut senders = Vec::new();
    for _ in 0..6 {
        let (store, run) = (fixture.open().await, run.clone());
        senders.push(tokio::spawn(async move {
            let mut at = Seq(1);
            loop {
                let commands = vec![(command_id("once"), Answer::Nothing)];
                match store.commit(&run, &Commit { commands, ..next_commit(at) }).await {
                    Ok(_) => return true,
                    Err(CommitError::Repeated { .. }) => return false,
                    Err(CommitError::Moved { now }) => at = now,
                    Err(CommitError::Busy(_)) => {}
                    Err(err) => panic!("{err:?}"),
                }
            }
        }));
    }
    let mut wins = 0;
    for sender in senders {
        wins += u32::from(sender.await.expect("a sender panicked"));
    }
    assert_eq!(wins, 1);
    let store = fixture.open().await;
    assert_eq!(store.events(&run, Seq(0), 10).await.expect("events").len(), 2);
}

/// All that a commit can bring, so that a refusal of it can be seen to write none of it.
fn rich_commit(expected: Seq, command: &str) -> Commit {
    Commit {
        expected,
        commands: vec![(command_id("fresh"), Answer::Done), (command_id(command), Answer::Nothing)],
        events: vec![event(90), event(91)],
        records: Records {
            run: Some(run_record("r")),
            tasks: vec![(0, task_record("new"))],
            pools: pool_records(),
            owners: vec![owner_record("new", 1)],
        },
        blobs: vec![b"new".to_vec()],
    }
}

async fn assert_nothing_of_it_is_there(store: &dyn Store, command: Option<Answer>) {
    let run = run_id("r");
    let loaded = store.load(&run).await.expect("load").expect("the run is there");
    assert_eq!(loaded.seq, Seq(1));
    assert!(loaded.tasks.is_empty() && loaded.pools.is_empty() && loaded.owners.is_empty());
    assert_eq!(store.events(&run, Seq(0), 10).await.expect("events").len(), 1);
    assert_eq!(store.blob(&run, &BlobHash::of(b"new")).await.expect("blob"), None);
    assert_eq!(store.answer(&run, &command_id("fresh")).await.expect("answer"), None);
    assert_eq!(store.answer(&run, &command_id("create")).await.expect("answer"), command);
}

/// A commit that expects another position, before or after the present one.
pub async fn a_stale_commit_is_refused_and_writes_nothing(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let early = store.commit(&run, &rich_commit(Seq(3), "c")).await;
    assert!(matches!(early, Err(CommitError::Moved { now: Seq(0) })), "{early:?}");
    assert_eq!(store.load(&run).await.expect("load"), None);
    store.commit(&run, &first_commit("r", "create")).await.expect("commit");
    for expected in [0, 2, u64::MAX] {
        let answer = store.commit(&run, &rich_commit(Seq(expected), "c")).await;
        assert!(matches!(answer, Err(CommitError::Moved { now: Seq(1) })), "{answer:?}");
        assert_nothing_of_it_is_there(&*store, Some(Answer::Done)).await;
    }
}

/// A command of an earlier commit, whether the position fits or not.
pub async fn a_repeated_command_is_refused_and_keeps_its_first_answer(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    store.commit(&run, &first_commit("r", "create")).await.expect("commit");
    for expected in [0, 1, 5] {
        let answer = store.commit(&run, &rich_commit(Seq(expected), "create")).await;
        let Err(CommitError::Repeated { command }) = answer else { panic!("{answer:?}") };
        assert_eq!(command, command_id("create"));
        assert_nothing_of_it_is_there(&*store, Some(Answer::Done)).await;
    }
}

/// A commit that names one command twice.
pub async fn a_command_twice_in_one_commit_is_refused(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    store.commit(&run, &first_commit("r", "create")).await.expect("commit");
    let answer = store.commit(&run, &rich_commit(Seq(1), "fresh")).await;
    let Err(CommitError::Repeated { command }) = answer else { panic!("{answer:?}") };
    assert_eq!(command, command_id("fresh"));
    assert_nothing_of_it_is_there(&*store, Some(Answer::Done)).await;
}

/// A run without its record cannot be, and trying leaves nothing behind.
pub async fn the_first_commit_brings_the_record_of_the_run(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut commit = first_commit("r", "create");
    commit.records.run = None;
    let answer = store.commit(&run, &commit).await;
    assert!(matches!(answer, Err(CommitError::Failed(_))), "{answer:?}");
    assert_eq!(store.runs().await.expect("runs"), []);
    assert_eq!(store.answer(&run, &command_id("create")).await.expect("answer"), None);
    store.commit(&run, &first_commit("r", "create")).await.expect("with its record it can");
}

/// Answers can be kept of commands that changed nothing.
pub async fn a_commit_without_events_keeps_the_position(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let at = store.commit(&run, &first_commit("r", "create")).await.expect("commit");
    let quiet = |command| Commit {
        expected: at,
        commands: vec![(command_id(command), Answer::Nothing)],
        ..Commit::default()
    };
    for command in ["one", "two"] {
        assert_eq!(store.commit(&run, &quiet(command)).await.expect("commit"), at);
        let answer = store.answer(&run, &command_id(command)).await.expect("answer");
        assert_eq!(answer, Some(Answer::Nothing));
    }
    assert_eq!(store.events(&run, Seq(0), 10).await.expect("events").len(), 1);
}

/// Only answers up to the position are forgotten, and a forgotten command counts as new.
pub async fn prune_forgets_answers_and_nothing_else(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut first = first_commit("r", "c1");
    first.blobs = vec![b"kept".to_vec()];
    first.records.tasks = vec![(0, task_record("t"))];
    let mut at = store.commit(&run, &first).await.expect("commit");
    for command in ["c2", "c3"] {
        let commands = vec![(command_id(command), Answer::Done)];
        at = store.commit(&run, &Commit { commands, ..next_commit(at) }).await.expect("commit");
    }
    let before = store.load(&run).await.expect("load");
    for (up_to, kept) in [(0, [true, true, true]), (2, [false, false, true]), (9, [false; 3])] {
        store.prune(&run, Seq(up_to)).await.expect("prune");
        let mut found = Vec::new();
        for command in ["c1", "c2", "c3"] {
            let answer = store.answer(&run, &command_id(command)).await.expect("answer");
            found.push(answer.is_some());
        }
        assert_eq!(found, kept, "pruned up to {up_to}");
    }
    assert_eq!(store.load(&run).await.expect("load"), before);
    assert_eq!(store.events(&run, Seq(0), 10).await.expect("events").len(), 3);
    assert!(store.blob(&run, &BlobHash::of(b"kept")).await.expect("blob").is_some());
    let commands = vec![(command_id("c1"), Answer::Done)];
    store.commit(&run, &Commit { commands, ..next_commit(at) }).await.expect("as a new one");
}

/// Waiting ends with a commit by the same handle or another one, at once when it lies behind.
pub async fn a_change_wakes_who_waits_for_it(fixture: &dyn StoreFixture) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let run = run_id("r");
    let mut at = Seq(0);
    for writer in [&store, &other] {
        let (waiting, name) = (Arc::clone(&store), run.clone());
        let waiter = tokio::spawn(async move {
            // A hint may come early: ask again until the position is past.
            while waiting.header(&name).await.expect("header").is_none_or(|(seq, _)| seq <= at) {
                waiting.changed(&name, at).await.expect("changed");
            }
        });
        tokio::task::yield_now().await;
        let commit = Commit {
            expected: at,
            commands: Vec::new(),
            events: vec![event(at.0)],
            ..first_commit("r", "unused")
        };
        at = writer.commit(&run, &commit).await.expect("commit");
        let waited = tokio::time::timeout(PATIENCE, waiter).await;
        waited.expect("the change was not noticed").expect("the waiter panicked");
    }
    let behind = tokio::time::timeout(PATIENCE, store.changed(&run, Seq(0))).await;
    behind.expect("waited for what lies behind").expect("changed");
}

/// Every load sees one commit whole: its position, the run, the tasks and the owners of that commit.
pub async fn loading_is_consistent_while_commits_go_on(fixture: &dyn StoreFixture) {
    const COMMITS: u64 = 60;
    let (writer, reader) = (fixture.open().await, fixture.open().await);
    let run = run_id("r");
    let name = run.clone();
    let writing = tokio::spawn(async move {
        for at in 0..COMMITS {
            let mut commit = stamped_commit(Seq(at));
            commit.commands = vec![(command_id(&format!("c{at}")), Answer::Done)];
            writer.commit(&name, &commit).await.expect("commit");
        }
    });
    let mut last = Seq(0);
    while last < Seq(COMMITS) {
        // A store that never waits would keep the writer's thread, where there is no other.
        tokio::task::yield_now().await;
        let Some(loaded) = reader.load(&run).await.expect("load") else { continue };
        assert!(loaded.seq >= last, "went back from {last} to {}", loaded.seq);
        let stamp = Timestamp(loaded.seq.0);
        assert_eq!(loaded.run.last_at, stamp);
        assert_eq!(loaded.tasks.len(), 40);
        assert!(loaded.tasks.iter().all(|task| task.since == stamp), "tasks of {stamp}");
        assert!(loaded.owners.iter().all(|owner| owner.touched_at == stamp), "owners of {stamp}");
        let log = reader.events(&run, Seq(0), usize::MAX).await.expect("events");
        assert!(log.len() as u64 >= stamp.0, "the log has at least what the records have");
        last = loaded.seq;
    }
    writing.await.expect("the writer panicked");
}

fn stamped_commit(expected: Seq) -> Commit {
    let stamp = expected.plus(1).0;
    let mut run = run_record("r");
    run.last_at = Timestamp(stamp);
    let task = |place: u32| {
        let mut task = task_record(&format!("t{place}"));
        task.since = Timestamp(stamp);
        (place, task)
    };
    Commit {
        events: vec![event(stamp)],
        records: Records {
            run: Some(run),
            tasks: (0..40).map(task).collect(),
            pools: pool_records(),
            owners: vec![owner_record("a", stamp), owner_record("b", stamp)],
        },
        ..next_commit(expected)
    }
}
