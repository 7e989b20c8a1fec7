//! Checks of a store that fails before, in and after its calls.
#![expect(clippy::missing_panics_doc, reason = "a check panics when the store does not conform")]

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::StoreFixture;
use super::stamped::{assert_whole, run, stamped};
use crate::id::Seq;
use crate::port::{Commit, CommitError, Store, StoreError};
use crate::testing::{Fault, FaultStore};

/// Commits until it is known to be written, as a caller must: after anything but a yes it asks for
/// the command's answer, and stands by that.
async fn carry_through(store: &dyn Store, commit: &Commit) -> Seq {
    loop {
        match store.commit(&run(), commit).await {
            Ok(seq) => return seq,
            Err(CommitError::Repeated { .. }) => return commit.expected.plus(1),
            Err(CommitError::Moved { now }) => {
                panic!("somebody else moved the run from {} to {now}", commit.expected)
            }
            Err(CommitError::Busy(_) | CommitError::Full(_)) => {}
            Err(CommitError::Unknown(_)) => {
                if settled(store, commit).await {
                    return commit.expected.plus(1);
                }
            }
            Err(CommitError::Failed(err)) => panic!("{err:?}"),
        }
    }
}

/// Whether a commit was written, by the answer of its command.
async fn settled(store: &dyn Store, commit: &Commit) -> bool {
    let (command, _) = commit.commands.first().expect("a command");
    loop {
        match store.answer(&run(), command).await {
            Ok(answer) => return answer.is_some(),
            Err(StoreError::Busy(_) | StoreError::Unavailable(_)) => {}
            Err(err) => panic!("{err:?}"),
        }
    }
}

/// A commit that fails before it is written, whose answer is lost when it is written or not, or that
/// arrives twice: its command's answer says which, and the commit is there once or not at all.
pub async fn a_commit_whose_answer_is_lost_is_settled_by_its_command(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let mut at = Seq(0);
    for (fault, is_written) in [
        (Fault::Before, false),
        (Fault::Lost, false),
        (Fault::After, true),
        (Fault::Duplicate, true),
        (Fault::Delay(Duration::from_millis(1)), true),
    ] {
        let faulty = FaultStore::scripted(Arc::clone(&store), [(0, fault)]);
        let commit = stamped(at);
        let answer = faulty.commit(&run(), &commit).await;
        assert_eq!(settled(&faulty, &commit).await, is_written, "{fault:?}: {answer:?}");
        assert_eq!(assert_whole(&*store).await, if is_written { at.plus(1) } else { at });
        let again = store.commit(&run(), &commit).await;
        match again {
            Ok(seq) => assert!(!is_written && seq == at.plus(1), "{fault:?}: {seq}"),
            Err(CommitError::Repeated { .. }) => assert!(is_written, "{fault:?}"),
            Err(err) => panic!("{fault:?}: {err:?}"),
        }
        at = at.plus(1);
        assert_eq!(assert_whole(&*store).await, at);
    }
}

/// A caller that meets faults of all sorts again and again, and does what the errors ask for, leaves
/// what one without faults would have left.
pub async fn faults_at_many_calls_leave_each_commit_there_once(fixture: &dyn StoreFixture) {
    const COMMITS: u64 = 15;
    const FAULTS: [Fault; 4] = [Fault::Before, Fault::After, Fault::Lost, Fault::Duplicate];
    let store = fixture.open().await;
    let mut at = Seq(0);
    for seed in 0..3 {
        let faulty = FaultStore::seeded(Arc::clone(&store), seed, 400, &FAULTS);
        for _ in 0..COMMITS {
            at = carry_through(&faulty, &stamped(at)).await;
        }
        assert!(faulty.calls() > COMMITS, "seed {seed} made no faults");
        assert_eq!(assert_whole(&*store).await, at, "seed {seed}");
    }
}

/// Whoever stops waiting for a commit, at any moment, leaves all of it or nothing.
pub async fn a_commit_that_nobody_waits_for_any_more_is_whole_or_not_there(
    fixture: &dyn StoreFixture,
) {
    let store = fixture.open().await;
    let mut at = Seq(0);
    for polls in 0..12 {
        let commit = stamped(at);
        {
            let name = run();
            let mut future = store.commit(&name, &commit);
            let mut left = polls;
            poll_fn(|context| {
                let is_over = left == 0 || future.as_mut().poll(context).is_ready();
                left = u32::saturating_sub(left, 1);
                if is_over { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        // The answer waits for what is under way, so it stays true.
        let is_written = settled(&*store, &commit).await;
        assert_eq!(assert_whole(&*store).await, if is_written { at.plus(1) } else { at });
        at = carry_through(&*store, &commit).await;
    }
}
