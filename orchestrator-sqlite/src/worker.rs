//! A thread that owns a connection: the only one that blocks on it.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use crate::mutant;

type Job<C> = Box<dyn FnOnce(&mut C) + Send>;

/// A handle on the thread. Jobs are done one after another in the order they came; one that was
/// handed in is done even if nobody waits for it any more.
#[derive(Debug)]
pub(crate) struct Worker<C> {
    jobs: mpsc::Sender<Job<C>>,
    /// Ends when the connection is closed.
    closed: oneshot::Receiver<()>,
}

/// The thread is gone, because a job panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store's thread has ended")]
pub(crate) struct Gone;

impl<C: Send + 'static> Worker<C> {
    pub(crate) fn spawn(name: &str, mut conn: C) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job<C>>();
        let (open, closed) = oneshot::channel::<()>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            for job in queue {
                job(&mut conn);
            }
            drop(conn);
            drop(open);
        })?;
        Ok(Self { jobs, closed })
    }

    /// Has the thread do this, and waits for what comes of it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut C) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (tell, told) = oneshot::channel();
        let mutant = mutant::now();
        let job: Job<C> = Box::new(move |conn| {
            // Nobody listens when the caller gave up waiting; the job is done all the same.
            drop(tell.send(mutant::with(mutant, || job(conn))));
        });
        self.jobs.send(job).map_err(|_| Gone)?;
        told.await.map_err(|_| Gone)
    }

    /// Lets the thread finish what it has, close its connection and end.
    pub(crate) async fn close(self) {
        drop(self.jobs);
        // The sender is never used: an error is the sign that it was dropped.
        drop(self.closed.await);
    }
}
