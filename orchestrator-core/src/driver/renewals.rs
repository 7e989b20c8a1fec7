//! Renewing leases, beside the loop: it may be waiting for the store just then.
//!
//! A driver that cannot renew ends what it runs before anybody else may take its leases for lapsed,
//! by its own monotonic clock. One that stood still renews first when it goes on: what it runs is
//! ended only when that fails.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::ledger::Ledger;
use super::message::{Message, ToLoop};
use crate::id::{OwnerId, RunId};
use crate::mutant::{Mutant, is_on};
use crate::port::{Host, Store};
use crate::time::{Anchor, Timestamp};

/// The stages of a driver, as far as its leases go.
pub(super) struct Renewals {
    /// Whether something runs; otherwise nothing is renewed.
    is_busy: watch::Sender<bool>,
    stages: Stages,
    /// Renews; ends with this.
    _task: JoinSet<()>,
}

/// What all stages that began under the present leases are cancelled by.
#[derive(Clone, Default)]
struct Stages(Arc<Mutex<CancellationToken>>);

impl Stages {
    fn now(&self) -> CancellationToken {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn begin_anew(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = CancellationToken::new();
    }
}

impl Renewals {
    /// The leases are fresh, and renewed from now on.
    pub(super) fn begin(run: &RunId, ledger: &Ledger, ttl: Duration, to_loop: ToLoop) -> Self {
        let (is_busy, busy) = watch::channel(false);
        let stages = Stages::default();
        let renewing = Renewing {
            run: run.clone(),
            owner: ledger.owner.clone(),
            anchor: ledger.engine.run().and_then(|run| run.anchor.clone()),
            store: Arc::clone(&ledger.store),
            host: Arc::clone(&ledger.host),
            ttl,
            stages: stages.clone(),
            to_loop,
        };
        let mut task = JoinSet::new();
        task.spawn(renewing.renew(busy));
        Self { is_busy, stages, _task: task }
    }

    /// What a stage that begins now is cancelled by.
    pub(super) fn stage(&self) -> CancellationToken {
        self.stages.now().child_token()
    }

    /// Says whether something runs.
    pub(super) fn set_busy(&self, is_busy: bool) {
        self.is_busy.send_if_modified(|was| std::mem::replace(was, is_busy) != is_busy);
    }

    /// Whether the stages had to end, and none may begin.
    pub(super) fn have_lapsed(&self) -> bool {
        self.stages.now().is_cancelled()
    }
}

struct Renewing {
    run: RunId,
    owner: OwnerId,
    anchor: Option<Anchor>,
    store: Arc<dyn Store>,
    host: Arc<dyn Host>,
    ttl: Duration,
    stages: Stages,
    to_loop: ToLoop,
}

impl Renewing {
    async fn renew(self, mut busy: watch::Receiver<bool>) {
        let period = self.ttl / 3;
        let mut renewed = Instant::now();
        let mut next = renewed + period;
        loop {
            let is_due = *busy.borrow_and_update() || self.have_lapsed();
            tokio::select! {
                changed = busy.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // While nothing ran nothing was renewed, and nothing failed.
                    let now = Instant::now();
                    renewed = renewed.max(now.checked_sub(period).unwrap_or(now));
                    continue;
                }
                () = sleep_until(next), if is_due => {}
            }
            let now = Instant::now();
            next = now + period;
            if self.touch(period).await {
                renewed = now;
                self.go_on();
            } else if renewed.elapsed() >= period * 2 && !is_on(Mutant::LapsedStagesRunOn) {
                self.end_all();
            }
        }
    }

    async fn touch(&self, patience: Duration) -> bool {
        if is_on(Mutant::LeasesNotRenewed) {
            return true;
        }
        let now = self.anchor.as_ref().map(|anchor| anchor.now(&self.host.reading()));
        let touch = self.store.touch(&self.run, &self.owner, now.unwrap_or(Timestamp(0)));
        match timeout(patience, touch).await {
            Ok(Ok(())) => return true,
            Ok(Err(err)) => warn!(error = %err, "the leases could not be renewed"),
            Err(_) => warn!("the leases could not be renewed: the store does not answer"),
        }
        false
    }

    fn have_lapsed(&self) -> bool {
        self.stages.now().is_cancelled()
    }

    fn end_all(&self) {
        if !self.have_lapsed() {
            error!("the leases cannot be renewed: what runs under them is ended");
            self.stages.now().cancel();
            self.tell(Message::Lapsed);
        }
    }

    fn go_on(&self) {
        if self.have_lapsed() {
            self.stages.begin_anew();
            self.tell(Message::Renewed);
        }
    }

    fn tell(&self, message: Message) {
        // A loop that is gone has nothing left to end or to grant.
        drop(self.to_loop.send(message));
    }
}
