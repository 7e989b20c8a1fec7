//! The merges under way, in the order in which they reach the branch.
//!
//! With a window of more than one a candidate is built on the result of the one before it, which is
//! still being verified. Each waits for its turn. When one is given up, all that were built on it
//! lapse, and are built anew on the nearest one that stands.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orchestrator_core::FencingToken;
use tokio::sync::Notify;

use crate::git::oid::Oid;

/// Most results of proposals that were given up are remembered.
const DROPPED_MAX: usize = 4096;

/// A merge under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The task, by its slug.
    pub(crate) task: String,
    pub(crate) token: FencingToken,
    /// What it is built on.
    pub(crate) onto: Oid,
    /// What the branch will be.
    pub(crate) head: Oid,
}

/// What became of what a proposal was built on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It waits to be merged.
    Open,
    /// It is on the branch.
    Merged,
    /// It was given up.
    Dropped,
}

/// The merges under way.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Each is built on the one before it, and the first one on the branch.
    chain: Vec<Entry>,
    dropped: VecDeque<Oid>,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are under way, and the result of the last one.
    pub(crate) fn last(&self) -> (usize, Option<Oid>) {
        let state = self.state();
        (state.chain.len(), state.chain.last().map(|entry| entry.head.clone()))
    }

    /// Adds a merge; `false` when what it is built on is not the last one any more.
    pub(crate) fn push(&self, entry: Entry, is_on_branch: bool) -> bool {
        let mut state = self.state();
        let is_next = match state.chain.last() {
            Some(last) => last.head == entry.onto,
            None => is_on_branch || !state.dropped.contains(&entry.onto),
        };
        if is_next {
            // The same merge may be proposed again, and is the same commit then.
            state.dropped.retain(|head| *head != entry.head);
            state.chain.push(entry);
        }
        is_next
    }

    /// What became of what a proposal was built on.
    pub(crate) fn fate(&self, onto: &Oid) -> Fate {
        let state = self.state();
        if state.chain.iter().any(|entry| entry.head == *onto) {
            Fate::Open
        } else if state.dropped.contains(onto) {
            Fate::Dropped
        } else {
            Fate::Merged
        }
    }

    /// Waits until it is known.
    pub(crate) async fn decided(&self, onto: &Oid) -> Fate {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.fate(onto) {
                Fate::Open => changed.await,
                known @ (Fate::Merged | Fate::Dropped) => return known,
            }
        }
    }

    /// Waits until fewer than this many are under way.
    pub(crate) async fn room(&self, window: usize) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.last().0 < window {
                return;
            }
            changed.await;
        }
    }

    /// A merge happened.
    pub(crate) fn merged(&self, token: FencingToken) {
        let mut state = self.state();
        state.chain.retain(|entry| entry.token != token);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Gives up what was proposed under a lease, and all that was built on it.
    pub(crate) fn withdraw(&self, token: FencingToken) {
        self.drop_from(|entry| entry.token == token);
    }

    /// Gives up what earlier leases of a task proposed.
    pub(crate) fn withdraw_before(&self, task: &str, token: FencingToken) {
        self.drop_from(|entry| entry.task == task && entry.token < token);
    }

    fn drop_from(&self, is_meant: impl Fn(&Entry) -> bool) {
        let mut state = self.state();
        let Some(at) = state.chain.iter().position(is_meant) else { return };
        let dropped: Vec<Oid> = state.chain.drain(at..).map(|entry| entry.head).collect();
        state.dropped.extend(dropped);
        let excess = state.dropped.len().saturating_sub(DROPPED_MAX);
        state.dropped.drain(..excess);
        drop(state);
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(number: u64) -> Oid {
        Oid::parse(&format!("{number:040}")).unwrap()
    }

    fn queue(entries: u64) -> Queue {
        let queue = Queue::default();
        for number in 1..=entries {
            let entry = Entry {
                task: format!("t{number}"),
                token: FencingToken(number),
                onto: oid(number - 1),
                head: oid(number),
            };
            assert!(queue.push(entry, number == 1));
        }
        queue
    }

    #[test]
    fn what_was_built_on_one_that_is_given_up_lapses_and_what_stood_before_stays() {
        let queue = queue(4);
        queue.withdraw(FencingToken(2));
        let fates = [0, 1, 2, 3].map(|onto| queue.fate(&oid(onto)));
        assert_eq!(fates, [Fate::Merged, Fate::Open, Fate::Dropped, Fate::Dropped]);
        assert_eq!(
            queue.last(),
            (1, Some(oid(1))),
            "the next one is built on the nearest good one"
        );
        queue.merged(FencingToken(1));
        assert_eq!(queue.fate(&oid(1)), Fate::Merged);
    }

    #[test]
    fn a_later_lease_of_a_task_ends_what_an_earlier_one_proposed() {
        let queue = queue(3);
        queue.withdraw_before("t3", FencingToken(3));
        assert_eq!(queue.last().0, 3, "its own lease is no earlier one");
        queue.withdraw_before("t2", FencingToken(9));
        assert_eq!(queue.last().0, 1);
    }

    #[test]
    fn a_merge_that_is_proposed_again_is_no_longer_given_up() {
        let queue = queue(1);
        queue.withdraw(FencingToken(1));
        assert_eq!(queue.fate(&oid(1)), Fate::Dropped);
        let entry =
            Entry { task: "t".to_owned(), token: FencingToken(2), onto: oid(0), head: oid(1) };
        assert!(queue.push(entry, true));
        queue.merged(FencingToken(2));
        assert_eq!(queue.fate(&oid(1)), Fate::Merged);
    }

    #[tokio::test]
    async fn whoever_waits_learns_what_became_of_the_one_before() {
        let queue = std::sync::Arc::new(queue(2));
        let waiter = std::sync::Arc::clone(&queue);
        let waiting = tokio::spawn(async move { waiter.decided(&oid(1)).await });
        tokio::task::yield_now().await;
        queue.merged(FencingToken(1));
        assert_eq!(waiting.await.unwrap(), Fate::Merged);
    }
}
