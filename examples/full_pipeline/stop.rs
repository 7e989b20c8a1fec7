//! Ctrl-C: once to stop cleanly, twice to stop at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Whether a person asked to stop.
#[derive(Debug)]
pub(crate) struct Stop {
    token: CancellationToken,
    times: watch::Receiver<u32>,
}

impl Stop {
    /// Listens from now on: to Ctrl-C, to an end that was asked for, and to a terminal that is gone.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let token = CancellationToken::new();
        let (told, times) = watch::channel(0);
        let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        for kind in signals {
            tokio::spawn(follow(signal(kind)?, told.clone(), token.clone()));
        }
        Ok(Self { token, times })
    }

    /// Cancelled when a person asks to stop.
    pub(crate) fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Returns when a person asks to stop.
    pub(crate) async fn asked(&self) {
        self.token.cancelled().await;
    }

    /// Returns when a person has asked twice.
    pub(crate) async fn asked_twice(&self) {
        let mut times = self.times.clone();
        if times.wait_for(|times| *times > 1).await.is_err() {
            // Nobody can ask any more.
            std::future::pending::<()>().await;
        }
    }
}

async fn follow(mut signal: Signal, told: watch::Sender<u32>, token: CancellationToken) {
    while signal.recv().await.is_some() {
        told.send_modify(|times| *times += 1);
        if token.is_cancelled() {
            super::say("Stopping at once.");
        } else {
            super::say("Stopping; once more to stop at once.");
        }
        token.cancel();
    }
}
