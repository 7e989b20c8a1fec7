//! The ports: what the engine's world must offer, and what each adapter may rely on.

#[cfg(feature = "driver")]
mod host;
#[cfg(feature = "driver")]
mod integrator;
#[cfg(feature = "driver")]
mod observer;
#[cfg(feature = "driver")]
mod reviewer;
#[cfg(feature = "driver")]
mod runner;
#[cfg(feature = "driver")]
mod stage;
mod store;
#[cfg(feature = "driver")]
mod verifier;
#[cfg(feature = "driver")]
mod workspaces;

use std::error::Error;

pub use self::store::{Commit, CommitError, Store, StoreError};
#[cfg(feature = "driver")]
pub use self::{
    host::{Host, Liveness},
    integrator::{Applied, Integrator, Proposal},
    observer::{Activity, ActivityKind, Observer, Progress, Running},
    reviewer::{Change, Review, Reviewer},
    runner::Runner,
    stage::{ActivitySink, StageContext},
    verifier::{Trial, Verifier},
    workspaces::{OpenWorkspace, Room, Sealed, Start, Workspace, Workspaces},
};

/// The cause of an adapter's failure.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why an adapter could not do its part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// It may work the next time: the stage is interrupted and granted again.
    #[error("it did not work this time")]
    Transient(#[source] Cause),
    /// It will not work before a person mends something: the task escalates.
    #[error("the set-up is at fault")]
    Fatal(#[source] Cause),
}

impl PortError {
    /// The message with those of its causes, outermost first.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(err) = cause {
            text.push_str(": ");
            text.push_str(&err.to_string());
            cause = err.source();
        }
        text
    }
}
