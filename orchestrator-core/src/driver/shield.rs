//! Adapters that panic: whoever asks one outside a stage gets an error, and the run goes on.
//!
//! A panic inside a stage ends that stage's task, which the loop notices and takes for an
//! interruption, once nothing that the stage started runs any more; so the ports that work in stages
//! are left as they are. What panics stays usable: whether it is in order again is its own business.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use tracing::error;

use super::Ports;
use crate::command::Answer;
use crate::event::StoredEvent;
use crate::id::{BlobHash, CommandId, FencingToken, OwnerId, RunId, Seq, TaskId};
use crate::lease::Owner;
use crate::mask::Mask;
use crate::policy::{SchedulingPolicy, TaskGraph};
use crate::port::{Commit, CommitError, Host, Liveness, PortError, Store, StoreError};
use crate::record::{RunRecord, Snapshot, TaskRecord};
use crate::time::{ClockReading, Timestamp};

/// An adapter panicked when it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{who} panicked: {words}")]
pub(super) struct Panicked {
    who: &'static str,
    words: String,
}

impl Panicked {
    fn told(who: &'static str, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let words = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let words = words.unwrap_or("it does not say why").to_owned();
        error!(who, panic = %words, "an adapter panicked");
        Self { who, words }
    }
}

impl From<Panicked> for PortError {
    fn from(panicked: Panicked) -> Self {
        Self::Transient(Box::new(panicked))
    }
}

impl From<Panicked> for StoreError {
    fn from(panicked: Panicked) -> Self {
        Self::Unavailable(Box::new(panicked))
    }
}

impl From<Panicked> for CommitError {
    fn from(panicked: Panicked) -> Self {
        // It may have written before it panicked.
        Self::Unknown(Box::new(panicked))
    }
}

/// What the one that gives workspaces is called in errors.
pub(super) const WORKSPACES: &str = "what gives workspaces";
/// And the one that merges.
pub(super) const INTEGRATOR: &str = "the integrator";

/// What an adapter answers at once.
pub(super) fn caught_now<T>(who: &'static str, ask: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(ask)).map_err(|panic| Panicked::told(who, &*panic))
}

/// What an adapter answers.
pub(super) async fn caught<T>(
    who: &'static str,
    asking: impl Future<Output = T>,
) -> Result<T, Panicked> {
    let mut asking = pin!(asking);
    poll_fn(|cx| match caught_now(who, || asking.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// The ports for a driver: what it asks of the store and the host outside stages never panics.
///
/// Fails when the host panics before anything is done, for without a clock nothing can be.
pub(super) fn shielded(ports: &Ports) -> Result<Ports, PortError> {
    let host = ShieldedHost::of(Arc::clone(&ports.host))?;
    let store = ShieldedStore(Arc::clone(&ports.store));
    Ok(Ports { store: Arc::new(store), host: Arc::new(host), ..ports.clone() })
}

/// A host with a clock that stands still while it panics.
struct ShieldedHost {
    host: Arc<dyn Host>,
    this_process: Owner,
    last: Mutex<ClockReading>,
}

const HOST: &str = "the host";

impl ShieldedHost {
    fn of(host: Arc<dyn Host>) -> Result<Self, Panicked> {
        let this_process = caught_now(HOST, || host.this_process())?;
        let last = Mutex::new(caught_now(HOST, || host.reading())?);
        Ok(Self { host, this_process, last })
    }
}

#[async_trait]
impl Host for ShieldedHost {
    fn reading(&self) -> ClockReading {
        let reading = caught_now(HOST, || self.host.reading());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(reading) = reading {
            *last = reading;
        }
        last.clone()
    }

    fn this_process(&self) -> Owner {
        self.this_process.clone()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        caught_now(HOST, || self.host.liveness(owner)).unwrap_or(Liveness::Unknown)
    }

    async fn end_leftovers(&self, run: &RunId, token: FencingToken) -> Result<u32, PortError> {
        caught(HOST, async { self.host.end_leftovers(run, token).await }).await?
    }

    async fn mask_logs(&self, dir: &Path, mask: &Mask) -> Result<(), PortError> {
        caught(HOST, async { self.host.mask_logs(dir, mask).await }).await?
    }
}

struct ShieldedStore(Arc<dyn Store>);

const STORE: &str = "the store";

#[async_trait]
impl Store for ShieldedStore {
    async fn load(&self, run: &RunId) -> Result<Option<Snapshot>, StoreError> {
        caught(STORE, async { self.0.load(run).await }).await?
    }

    async fn header(&self, run: &RunId) -> Result<Option<(Seq, RunRecord)>, StoreError> {
        caught(STORE, async { self.0.header(run).await }).await?
    }

    async fn task(&self, run: &RunId, task: &TaskId) -> Result<Option<TaskRecord>, StoreError> {
        caught(STORE, async { self.0.task(run, task).await }).await?
    }

    async fn commit(&self, run: &RunId, commit: &Commit) -> Result<Seq, CommitError> {
        caught(STORE, async { self.0.commit(run, commit).await }).await?
    }

    async fn answer(&self, run: &RunId, command: &CommandId) -> Result<Option<Answer>, StoreError> {
        caught(STORE, async { self.0.answer(run, command).await }).await?
    }

    async fn events(
        &self,
        run: &RunId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        caught(STORE, async { self.0.events(run, after, limit).await }).await?
    }

    async fn blob(&self, run: &RunId, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        caught(STORE, async { self.0.blob(run, hash).await }).await?
    }

    async fn touch(&self, run: &RunId, owner: &OwnerId, now: Timestamp) -> Result<(), StoreError> {
        caught(STORE, async { self.0.touch(run, owner, now).await }).await?
    }

    async fn changed(&self, run: &RunId, after: Seq) -> Result<(), StoreError> {
        caught(STORE, async { self.0.changed(run, after).await }).await?
    }

    async fn prune(&self, run: &RunId, up_to: Seq) -> Result<(), StoreError> {
        caught(STORE, async { self.0.prune(run, up_to).await }).await?
    }

    async fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        caught(STORE, async { self.0.runs().await }).await?
    }
}

/// A policy after whose panics tasks go first come, first served.
#[derive(Debug)]
pub(super) struct ShieldedPolicy(pub(super) Arc<dyn SchedulingPolicy>);

impl SchedulingPolicy for ShieldedPolicy {
    fn ranks(&self, graph: &TaskGraph<'_>) -> Vec<u64> {
        caught_now("the policy", || self.0.ranks(graph)).unwrap_or_default()
    }
}
