//! A store that fails on purpose.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use crate::command::Answer;
use crate::event::StoredEvent;
use crate::id::{BlobHash, CommandId, OwnerId, RunId, Seq, TaskId};
use crate::port::{Cause, Commit, CommitError, Store, StoreError};
use crate::record::{RunRecord, Snapshot, TaskRecord};
use crate::time::Timestamp;

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and had no effect: the store was busy.
    Before,
    /// The call had its effect, and its answer is lost: a commit becomes
    /// [`CommitError::Unknown`], any other call unavailable.
    After,
    /// A commit's answer is lost, and it had no effect either. Any other call is unavailable.
    Lost,
    /// The call takes effect this much later.
    Delay(Duration),
    /// The call reaches the store twice; the first answer is given.
    Duplicate,
    /// The call panics, and had no effect.
    Panic,
}

/// The cause of an error that was put in on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fault put in on purpose: {0:?}")]
struct OnPurpose(Fault);

#[derive(Debug, Clone)]
enum Plan {
    Script(BTreeMap<u64, Fault>),
    Seeded { seed: u64, per_mille: u16, faults: Vec<Fault> },
}

/// Any store with faults in front of it, each call counted from 0 over all methods but
/// [`changed`](Store::changed), which is a hint and never fails here.
///
/// The same script or seed and the same order of calls give the same faults.
#[derive(Debug)]
pub struct FaultStore<S: ?Sized> {
    plan: Plan,
    calls: AtomicU64,
    inner: Arc<S>,
}

impl<S: Store + ?Sized> FaultStore<S> {
    /// Puts each fault before the call of its number.
    #[must_use]
    pub fn scripted(inner: Arc<S>, faults: impl IntoIterator<Item = (u64, Fault)>) -> Self {
        Self::new(inner, Plan::Script(faults.into_iter().collect()))
    }

    /// Puts one of `faults` before about `per_mille` of a thousand calls.
    #[must_use]
    pub fn seeded(inner: Arc<S>, seed: u64, per_mille: u16, faults: &[Fault]) -> Self {
        Self::new(inner, Plan::Seeded { seed, per_mille, faults: faults.to_vec() })
    }

    const fn new(inner: Arc<S>, plan: Plan) -> Self {
        Self { plan, calls: AtomicU64::new(0), inner }
    }

    /// The store behind the faults.
    #[must_use]
    pub const fn inner(&self) -> &Arc<S> {
        &self.inner
    }

    /// How many calls there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn next_fault(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        match &self.plan {
            Plan::Script(faults) => faults.get(&call).copied(),
            Plan::Seeded { seed, per_mille, faults } => {
                let [die, choice] = dice(*seed, call);
                let count = u64::try_from(faults.len()).ok().filter(|count| *count > 0)?;
                let at = usize::try_from(choice % count).ok()?;
                (die % 1000 < u64::from(*per_mille)).then(|| faults.get(at).copied())?
            }
        }
    }

    /// Makes a call with the next fault in front of it.
    async fn call<T, F>(&self, make: impl Fn() -> F + Send) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let fault = self.next_fault();
        match fault {
            Some(Fault::Before) => return Err(StoreError::Busy(cause(Fault::Before))),
            Some(Fault::Lost) => return Err(StoreError::Unavailable(cause(Fault::Lost))),
            Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::Panic) => panic(),
            Some(Fault::After | Fault::Duplicate) | None => {}
        }
        let answer = make().await?;
        match fault {
            Some(Fault::After) => return Err(StoreError::Unavailable(cause(Fault::After))),
            Some(Fault::Duplicate) => drop(make().await?),
            Some(Fault::Before | Fault::Lost | Fault::Delay(_) | Fault::Panic) | None => {}
        }
        Ok(answer)
    }
}

#[expect(clippy::panic, reason = "this is what is put in on purpose")]
fn panic() -> ! {
    panic!("{}", OnPurpose(Fault::Panic))
}

fn cause(fault: Fault) -> Cause {
    Box::new(OnPurpose(fault))
}

/// Two numbers that look random and follow from the seed and the call.
fn dice(seed: u64, call: u64) -> [u64; 2] {
    let mut hasher = Sha256::new();
    hasher.update(seed.to_le_bytes());
    hasher.update(call.to_le_bytes());
    let digest = hasher.finalize();
    let number =
        |skip| digest.iter().skip(skip).take(8).fold(0, |n: u64, byte| n << 8 | u64::from(*byte));
    [number(0), number(8)]
}

#[async_trait]
impl<S: Store + ?Sized> Store for FaultStore<S> {
    async fn load(&self, run: &RunId) -> Result<Option<Snapshot>, StoreError> {
        self.call(|| self.inner.load(run)).await
    }

    async fn header(&self, run: &RunId) -> Result<Option<(Seq, RunRecord)>, StoreError> {
        self.call(|| self.inner.header(run)).await
    }

    async fn task(&self, run: &RunId, task: &TaskId) -> Result<Option<TaskRecord>, StoreError> {
        self.call(|| self.inner.task(run, task)).await
    }

    async fn commit(&self, run: &RunId, commit: &Commit) -> Result<Seq, CommitError> {
        let fault = self.next_fault();
        match fault {
            Some(Fault::Before) => return Err(CommitError::Busy(cause(Fault::Before))),
            Some(Fault::Lost) => return Err(CommitError::Unknown(cause(Fault::Lost))),
            Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::Panic) => panic(),
            Some(Fault::After | Fault::Duplicate) | None => {}
        }
        let answer = self.inner.commit(run, commit).await;
        match fault {
            Some(Fault::After) => Err(CommitError::Unknown(cause(Fault::After))),
            Some(Fault::Duplicate) => {
                // Whatever the store says the second time: the caller has its first answer.
                drop(self.inner.commit(run, commit).await);
                answer
            }
            Some(Fault::Before | Fault::Lost | Fault::Delay(_) | Fault::Panic) | None => answer,
        }
    }

    async fn answer(&self, run: &RunId, command: &CommandId) -> Result<Option<Answer>, StoreError> {
        self.call(|| self.inner.answer(run, command)).await
    }

    async fn events(
        &self,
        run: &RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.call(|| self.inner.events(run, after, limit)).await
    }

    async fn blob(&self, run: &RunId, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        self.call(|| self.inner.blob(run, hash)).await
    }

    async fn touch(&self, run: &RunId, owner: &OwnerId, now: Timestamp) -> Result<(), StoreError> {
        self.call(|| self.inner.touch(run, owner, now)).await
    }

    async fn changed(&self, run: &RunId, after: Seq) -> Result<(), StoreError> {
        self.inner.changed(run, after).await
    }

    async fn prune(&self, run: &RunId, up_to: Seq) -> Result<(), StoreError> {
        self.call(|| self.inner.prune(run, up_to)).await
    }

    async fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.call(|| self.inner.runs()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::testing::conformance::samples;

    fn store(fault: Fault) -> FaultStore<MemoryStore> {
        FaultStore::scripted(Arc::new(MemoryStore::new()), [(0, fault)])
    }

    #[tokio::test]
    async fn a_commit_whose_answer_is_lost_is_settled_by_its_command() {
        for (fault, is_written) in [(Fault::After, true), (Fault::Lost, false)] {
            let store = store(fault);
            let (run, commit) = (samples::run_id("r"), samples::first_commit("r", "create"));
            let answer = store.commit(&run, &commit).await;
            assert!(matches!(answer, Err(CommitError::Unknown(_))), "{answer:?}");
            let settled = store.answer(&run, &samples::command_id("create")).await.unwrap();
            assert_eq!(settled.is_some(), is_written, "{fault:?}");
            let again = store.commit(&run, &commit).await;
            assert_eq!(matches!(again, Err(CommitError::Repeated { .. })), is_written, "{again:?}");
        }
    }

    #[tokio::test]
    async fn a_commit_that_fails_before_it_starts_writes_nothing() {
        let store = store(Fault::Before);
        let (run, commit) = (samples::run_id("r"), samples::first_commit("r", "create"));
        let answer = store.commit(&run, &commit).await;
        assert!(matches!(answer, Err(CommitError::Busy(_))), "{answer:?}");
        assert_eq!(store.load(&run).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_commit_that_arrives_twice_is_written_once() {
        let store = store(Fault::Duplicate);
        let (run, commit) = (samples::run_id("r"), samples::first_commit("r", "create"));
        assert_eq!(store.commit(&run, &commit).await.unwrap(), Seq(1));
        assert_eq!(store.events(&run, Seq(0), 10).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn the_same_seed_gives_the_same_faults_at_about_the_rate_asked_for() {
        let faults = async |seed| {
            let store =
                FaultStore::seeded(Arc::new(MemoryStore::new()), seed, 250, &[Fault::Before]);
            let mut failed = Vec::new();
            for _ in 0..400 {
                failed.push(store.runs().await.is_err());
            }
            failed
        };
        let first = faults(7).await;
        assert_eq!(first, faults(7).await);
        assert_ne!(first, faults(8).await);
        let count = first.iter().filter(|failed| **failed).count();
        assert!((60..140).contains(&count), "{count}");
    }
}
