//! The reference store: the simplest code that keeps the contract of [`Store`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use async_trait::async_trait;

use crate::command::Answer;
use crate::event::{Event, StoredEvent};
use crate::id::{BlobHash, CommandId, OwnerId, PoolName, RunId, Seq, TaskId};
use crate::mutant::{Mutant, is_on};
use crate::port::{Commit, CommitError, Store, StoreError};
use crate::record::{OwnerRecord, PoolRecord, RunRecord, Snapshot, TaskRecord};
use crate::time::Timestamp;

/// A store in memory; its clones are handles on the same runs, which end with the last of them.
#[derive(Clone, Default)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    runs: BTreeMap<RunId, Run>,
    /// Who waits for a change of any run.
    waiting: Vec<Waker>,
}

struct Run {
    record: RunRecord,
    events: Vec<Event>,
    tasks: BTreeMap<u32, TaskRecord>,
    pools: BTreeMap<PoolName, PoolRecord>,
    owners: BTreeMap<OwnerId, OwnerRecord>,
    /// What each command got back, and where the run stood then.
    answers: BTreeMap<CommandId, (Seq, Answer)>,
    blobs: BTreeMap<BlobHash, Vec<u8>>,
}

/// The first commit of a run came without the run's record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the first commit of run `{run}` must bring the run's record")]
struct NoRunRecord {
    run: RunId,
}

/// Something that a record names is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not there")]
struct Missing;

impl MemoryStore {
    /// A store without runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing below panics between two writes, so a poisoned lock guards whole data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, run: &RunId, read: impl FnOnce(&Run) -> T) -> Option<T> {
        self.lock().runs.get(run).map(read)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("runs", &self.lock().runs.keys()).finish()
    }
}

impl Run {
    const fn new(record: RunRecord) -> Self {
        Self {
            record,
            events: Vec::new(),
            tasks: BTreeMap::new(),
            pools: BTreeMap::new(),
            owners: BTreeMap::new(),
            answers: BTreeMap::new(),
            blobs: BTreeMap::new(),
        }
    }

    fn seq(&self) -> Seq {
        Seq(self.events.len() as u64)
    }

    fn apply(&mut self, commit: &Commit) {
        let Commit { expected: _, commands, events, records, blobs } = commit;
        self.events.extend_from_slice(events);
        let seq = self.seq();
        for (id, answer) in commands {
            self.answers.insert(id.clone(), (seq, *answer));
        }
        if let Some(run) = &records.run {
            self.record.clone_from(run);
        }
        self.tasks.extend(records.tasks.iter().cloned());
        self.pools.extend(records.pools.iter().map(|pool| (pool.name.clone(), pool.clone())));
        for owner in &records.owners {
            let mut owner = owner.clone();
            if let Some(known) = self.owners.get(&owner.owner.id)
                && !is_on(Mutant::TouchUndoneByCommit)
            {
                owner.touched_at = owner.touched_at.max(known.touched_at);
            }
            self.owners.insert(owner.owner.id.clone(), owner);
        }
        for blob in blobs {
            if is_on(Mutant::BlobWrittenOver) && self.blobs.remove(&BlobHash::of(blob)).is_some() {
                continue;
            }
            self.blobs.entry(BlobHash::of(blob)).or_insert_with(|| blob.clone());
        }
    }

    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let place_is_wrong = |(at, (place, _)): &(usize, (&u32, &TaskRecord))| {
            u32::try_from(*at).is_ok_and(|at| at != **place)
        };
        if let Some((at, _)) = self.tasks.iter().enumerate().find(place_is_wrong) {
            return Err(missing(format!("task at place {at}")));
        }
        let plans = self.record.plans.iter().map(|plan| {
            let blob = self.blobs.get(&plan.blob).cloned();
            blob.ok_or_else(|| missing(format!("the plan with address {}", plan.blob)))
        });
        let mut plans = plans.collect::<Result<Vec<_>, _>>()?;
        if is_on(Mutant::PlansLoadedBackwards) {
            plans.reverse();
        }
        Ok(Snapshot {
            seq: self.seq(),
            run: self.record.clone(),
            tasks: self.tasks.values().cloned().collect(),
            pools: self.pools.values().cloned().collect(),
            owners: self.owners.values().cloned().collect(),
            plans,
        })
    }
}

fn missing(place: String) -> StoreError {
    let remedy = "commit what the records name together with them".to_owned();
    StoreError::Corrupt { place, remedy, cause: Box::new(Missing) }
}

impl Inner {
    fn commit(&mut self, run: &RunId, commit: &Commit) -> Result<Seq, CommitError> {
        let known = self.runs.get(run);
        let mut seen = BTreeSet::new();
        for (id, _) in &commit.commands {
            let is_known = known.is_some_and(|known| known.answers.contains_key(id));
            let is_known = is_known && !is_on(Mutant::RepeatedCommandTaken);
            let is_twice = !seen.insert(id) && !is_on(Mutant::RepeatWithinCommitTaken);
            if is_known || is_twice {
                return Err(CommitError::Repeated { command: id.clone() });
            }
        }
        let now = known.map_or(Seq(0), Run::seq);
        if now != commit.expected && !is_on(Mutant::CommitAnywhere) {
            return Err(CommitError::Moved { now });
        }
        match (self.runs.get_mut(run), &commit.records.run) {
            (Some(known), _) => known.apply(commit),
            (None, Some(record)) => {
                self.runs
                    .entry(run.clone())
                    .or_insert_with(|| Run::new(record.clone()))
                    .apply(commit);
            }
            (None, None) => {
                let cause = Box::new(NoRunRecord { run: run.clone() });
                return Err(CommitError::Failed(StoreError::Unavailable(cause)));
            }
        }
        let waiting = self.waiting.drain(..);
        waiting.filter(|_| !is_on(Mutant::ChangeWakesNobody)).for_each(Waker::wake);
        Ok(self.runs.get(run).map_or(Seq(0), Run::seq))
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn load(&self, run: &RunId) -> Result<Option<Snapshot>, StoreError> {
        self.with(run, Run::snapshot).transpose()
    }

    async fn header(&self, run: &RunId) -> Result<Option<(Seq, RunRecord)>, StoreError> {
        Ok(self.with(run, |run| (run.seq(), run.record.clone())))
    }

    async fn task(&self, run: &RunId, task: &TaskId) -> Result<Option<TaskRecord>, StoreError> {
        let find = |run: &Run| run.tasks.values().find(|record| record.id == *task).cloned();
        Ok(self.with(run, find).flatten())
    }

    async fn commit(&self, run: &RunId, commit: &Commit) -> Result<Seq, CommitError> {
        self.lock().commit(run, commit)
    }

    async fn answer(&self, run: &RunId, command: &CommandId) -> Result<Option<Answer>, StoreError> {
        let find = |run: &Run| run.answers.get(command).map(|(_, answer)| *answer);
        Ok(self.with(run, find).flatten())
    }

    async fn events(
        &self,
        run: &RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let skip = usize::try_from(after.0).unwrap_or(usize::MAX);
        let read = |run: &Run| {
            let lost = if is_on(Mutant::LogSkipsSilently) { 3 } else { u64::MAX };
            let rest = run.events.iter().cloned().zip(1..).skip(skip).take(limit);
            let rest = rest.filter(|(_, seq)| *seq != lost);
            rest.map(|(event, seq)| StoredEvent { seq: Seq(seq), event }).collect()
        };
        Ok(self.with(run, read).unwrap_or_default())
    }

    async fn blob(&self, run: &RunId, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.with(run, |run| run.blobs.get(hash).cloned()).flatten())
    }

    async fn touch(&self, run: &RunId, owner: &OwnerId, now: Timestamp) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if let Some(owner) = inner.runs.get_mut(run).and_then(|run| run.owners.get_mut(owner)) {
            let never_back = !is_on(Mutant::TouchGoesBack);
            owner.touched_at = if never_back { owner.touched_at.max(now) } else { now };
        }
        Ok(())
    }

    async fn changed(&self, run: &RunId, after: Seq) -> Result<(), StoreError> {
        poll_fn(|context| {
            let mut inner = self.lock();
            if inner.runs.get(run).is_some_and(|run| run.seq() > after) {
                return Poll::Ready(Ok(()));
            }
            if !inner.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                inner.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    async fn prune(&self, run: &RunId, up_to: Seq) -> Result<(), StoreError> {
        if let Some(run) = self.lock().runs.get_mut(run) {
            let all = is_on(Mutant::PruneForgetsTooMuch);
            run.answers.retain(|_, (seq, _)| *seq > up_to && !all);
        }
        Ok(())
    }

    async fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        Ok(self.lock().runs.keys().cloned().collect())
    }
}
