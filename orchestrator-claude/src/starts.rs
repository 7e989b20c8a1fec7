//! Starts that do not all happen at once.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How many programs may be starting at the same time; clones share it.
///
/// A program that is asked for its first line needs most of a second of processor time before it
/// sends its first request. Sixteen of them at once on two cores took 15 to 22 s each, measured, so
/// starting is what limits many agents on one machine, and not memory.
#[derive(Debug, Clone)]
pub struct Starts(Arc<Semaphore>);

/// How long a program may be starting before others no longer wait for it: it hangs.
const STARTING_MAX: Duration = Duration::from_secs(60);

/// The right to start; it is given back when the program has begun to work, or hangs.
#[derive(Debug)]
pub(crate) struct Turn(JoinHandle<()>);

impl Turn {
    fn holding(permit: OwnedSemaphorePermit) -> Self {
        Self(tokio::spawn(async move {
            let _permit = permit;
            tokio::time::sleep(STARTING_MAX).await;
        }))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Starts {
    /// So many at the same time.
    #[must_use]
    pub fn at_once(count: NonZeroUsize) -> Self {
        Self(Arc::new(Semaphore::new(count.get().min(Semaphore::MAX_PERMITS))))
    }

    /// Waits for a turn; `None` when that was cancelled.
    pub(crate) async fn turn(&self, cancel: &CancellationToken) -> Option<Turn> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            // It is never closed.
            turn = Arc::clone(&self.0).acquire_owned() => turn.ok().map(Turn::holding),
        }
    }
}

impl Default for Starts {
    /// Two for each core.
    fn default() -> Self {
        let cores = available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self::at_once(cores.saturating_mul(NonZeroUsize::MIN.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_start_at_once_than_allowed() {
        let starts = Starts::at_once(NonZeroUsize::MIN);
        let never = CancellationToken::new();
        let first = starts.turn(&never).await.unwrap();
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert!(starts.turn(&cancelled).await.is_none());
        let other = starts.clone();
        let waiting = tokio::spawn(async move { other.turn(&never).await.is_some() });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_at_its_start_keeps_nobody_else_from_starting() {
        let starts = Starts::at_once(NonZeroUsize::MIN);
        let never = CancellationToken::new();
        let _hangs = starts.turn(&never).await.unwrap();
        // Time jumps on when nothing else can happen.
        assert!(starts.turn(&never).await.is_some());
    }
}
