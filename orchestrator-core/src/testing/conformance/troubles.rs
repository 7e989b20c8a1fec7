//! Checks of a store in trouble, which the fixture makes; what it has no way to make is not tried,
//! and said so past whatever keeps the output of tests.
#![expect(clippy::missing_panics_doc, reason = "a check panics when the store does not conform")]

use std::io::{self, Write as _};
use std::sync::Arc;

use super::StoreFixture;
use super::samples::owner_id;
use super::stamped::{assert_whole, run, stamped};
use crate::id::{Seq, TaskId};
use crate::money::Usd;
use crate::port::{Commit, CommitError, Store};
use crate::record::Phase;
use crate::time::Timestamp;

/// What a store can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// What is there may be read and not written. Begins and ends while no handle is open.
    ReadOnly,
    /// There is room for a megabyte at most. Begins and ends while no handle is open.
    NoRoom,
    /// Each commit that changes the eighth task fails when part of it was written. Begins and ends
    /// while a handle is open.
    FailsInCommit,
    /// All that is there stands in an older format, as an earlier program would have left it. Begins
    /// while no handle is open, and ends by itself when one is opened.
    OlderFormat,
    /// A newer program was here. Begins and ends while no handle is open.
    NewerFormat,
}

/// Makes the trouble, or says that this is not tried.
async fn begins(fixture: &dyn StoreFixture, trouble: Trouble) -> bool {
    let is_made = fixture.trouble(trouble, true).await;
    if !is_made {
        // There may be nobody to tell.
        drop(writeln!(io::stderr(), "NOT TRIED: {trouble:?}, which this fixture cannot make"));
    }
    is_made
}

async fn ends(fixture: &dyn StoreFixture, trouble: Trouble) {
    assert!(fixture.trouble(trouble, false).await, "{trouble:?} does not end");
}

/// Some commits in a store that nobody has open then; where it stands.
async fn some_commits(fixture: &dyn StoreFixture) -> Seq {
    let store = fixture.open().await;
    let mut at = Seq(0);
    for _ in 0..3 {
        at = store.commit(&run(), &stamped(at)).await.expect("commit");
    }
    at
}

/// As before the trouble, and it goes on.
async fn assert_as_before(fixture: &dyn StoreFixture, at: Seq) {
    let store = fixture.open().await;
    assert_eq!(assert_whole(&*store).await, at);
    assert_eq!(store.commit(&run(), &stamped(at)).await.expect("commit"), at.plus(1));
    assert_eq!(assert_whole(&*store).await, at.plus(1));
}

fn assert_says_why(refused: &dyn std::error::Error) {
    let said = refused.to_string();
    assert!(said.len() > 10, "`{said}` helps nobody");
}

/// Opening is refused with a reason, or all can be read and nothing is taken; nothing is changed.
pub async fn a_store_that_may_only_be_read_is_not_written(fixture: &dyn StoreFixture) {
    let at = some_commits(fixture).await;
    if !begins(fixture, Trouble::ReadOnly).await {
        return;
    }
    match fixture.try_open().await {
        Err(refused) => assert_says_why(&*refused),
        Ok(store) => {
            assert_eq!(assert_whole(&*store).await, at);
            let refused = store.commit(&run(), &stamped(at)).await;
            assert!(
                matches!(refused, Err(CommitError::Failed(_) | CommitError::Full(_))),
                "{refused:?}"
            );
            store.touch(&run(), &owner_id("o"), Timestamp(99)).await.expect_err("a touch writes");
            assert_eq!(assert_whole(&*store).await, at);
        }
    }
    ends(fixture, Trouble::ReadOnly).await;
    assert_as_before(fixture, at).await;
}

/// The next commit, made large.
fn large(expected: Seq) -> Commit {
    let mut commit = stamped(expected);
    commit.blobs.push(format!("{expected} {}", "x".repeat(100_000)).into_bytes());
    commit
}

/// Commits until there is no room, of which nothing is left then; where it stands.
async fn fill(store: &dyn Store, mut at: Seq) -> Seq {
    let full = loop {
        assert!(at < Seq(1_000), "there is no end to the room");
        match store.commit(&run(), &large(at)).await {
            Ok(seq) => at = seq,
            Err(err) => break err,
        }
    };
    assert!(matches!(full, CommitError::Full(_)), "{full:?}");
    assert_eq!(assert_whole(store).await, at);
    at
}

/// A commit without room says so, nothing is lost, and once there is room it goes on.
pub async fn a_full_store_loses_nothing_and_goes_on_when_there_is_room(fixture: &dyn StoreFixture) {
    let at = some_commits(fixture).await;
    if !begins(fixture, Trouble::NoRoom).await {
        return;
    }
    let store = fixture.try_open().await.expect("there is a little room");
    let at = fill(&*store, at).await;
    assert_eq!(fill(&*store, at).await, at, "it is full");
    drop(store);
    ends(fixture, Trouble::NoRoom).await;
    let store = fixture.open().await;
    assert_eq!(assert_whole(&*store).await, at);
    assert_eq!(store.commit(&run(), &large(at)).await.expect("there is room"), at.plus(1));
    assert_eq!(assert_whole(&*store).await, at.plus(1));
}

/// Whatever fails when a part of a commit is written takes that part back.
pub async fn a_commit_that_fails_in_its_middle_leaves_nothing(fixture: &dyn StoreFixture) {
    let at = some_commits(fixture).await;
    let store: Arc<dyn Store> = fixture.open().await;
    if !begins(fixture, Trouble::FailsInCommit).await {
        return;
    }
    for _ in 0..3 {
        let failed = store.commit(&run(), &stamped(at)).await;
        let is_told = matches!(failed, Err(CommitError::Failed(_) | CommitError::Unknown(_)));
        assert!(is_told, "{failed:?}");
        assert_eq!(assert_whole(&*store).await, at);
        assert_eq!(assert_whole(&*fixture.open().await).await, at);
    }
    ends(fixture, Trouble::FailsInCommit).await;
    assert_eq!(store.commit(&run(), &stamped(at)).await.expect("commit"), at.plus(1));
    assert_eq!(assert_whole(&*store).await, at.plus(1));
}

async fn phases(fixture: &dyn StoreFixture) -> Vec<(TaskId, Phase, Usd)> {
    let loaded = fixture.open().await.load(&run()).await.expect("load");
    let tasks = loaded.expect("the run is there").tasks.into_iter();
    tasks.map(|task| (task.id, task.phase, task.spent)).collect()
}

/// What an earlier program wrote is there after opening; fields that it did not know may be empty.
pub async fn an_older_format_is_brought_to_the_present_one_with_all_that_is_in_it(
    fixture: &dyn StoreFixture,
) {
    let at = some_commits(fixture).await;
    let before = phases(fixture).await;
    if !begins(fixture, Trouble::OlderFormat).await {
        return;
    }
    assert_eq!(phases(fixture).await, before);
    assert_as_before(fixture, at).await;
}

/// What a newer program wrote is refused with a reason, and not changed.
pub async fn a_newer_format_is_refused_unharmed(fixture: &dyn StoreFixture) {
    let at = some_commits(fixture).await;
    if !begins(fixture, Trouble::NewerFormat).await {
        return;
    }
    for _ in 0..2 {
        let Err(refused) = fixture.try_open().await else { panic!("a newer format is opened") };
        assert_says_why(&*refused);
    }
    ends(fixture, Trouble::NewerFormat).await;
    assert_as_before(fixture, at).await;
}
