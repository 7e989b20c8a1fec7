//! The port that watches.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use crate::event::StoredEvent;
use crate::id::{FencingToken, SessionId, StageName, TaskId};
use crate::money::Usd;
use crate::port::Room;
use crate::record::{Counts, RunState};
use crate::time::Timestamp;

/// Watches a run. Calls come from the driver's loop and from stages, and must not block. One that
/// panics is said in the log and costs nothing but what it would have shown.
pub trait Observer: Send + Sync {
    /// These events were committed, and this is how the run stands then.
    fn committed(&self, events: &[StoredEvent], progress: &Progress);

    /// A stage gave a sign of life; it is stored nowhere.
    fn activity(&self, activity: &Activity) {
        // Most observers are about what is committed.
        _ = activity;
    }

    /// Whether there is room for more work changed: while there is none, nothing is granted.
    fn room(&self, room: &Room) {
        // It is in the log too.
        _ = room;
    }
}

/// Several that watch; each sees everything, also what another one panics at.
impl Observer for Vec<Arc<dyn Observer>> {
    fn committed(&self, events: &[StoredEvent], progress: &Progress) {
        show_each(self, |one| one.committed(events, progress));
    }

    fn activity(&self, activity: &Activity) {
        show_each(self, |one| one.activity(activity));
    }

    fn room(&self, room: &Room) {
        show_each(self, |one| one.room(room));
    }
}

fn show_each(all: &[Arc<dyn Observer>], show: impl Fn(&dyn Observer)) {
    let mut panicked = None;
    for one in all {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| show(&**one))) {
            panicked = Some(panic);
        }
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Whether it grants.
    pub state: RunState,
    /// The run's time.
    pub now: Timestamp,
    /// How many tasks are in which phase.
    pub counts: Counts,
    /// How many of the open ones can never run as things are.
    pub blocked: u32,
    /// What runs, oldest first.
    pub running: Vec<Running>,
    /// What it has spent.
    pub spent: Usd,
    /// What is set aside for what runs.
    pub reserved: Usd,
    /// The most it may spend.
    pub budget: Option<Usd>,
}

/// A stage that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The task.
    pub task: TaskId,
    /// The stage.
    pub stage: StageName,
    /// The attempt.
    pub attempt: u32,
    /// The lease's number.
    pub token: FencingToken,
    /// Since when.
    pub since: Timestamp,
}

/// A sign of life of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// The task.
    pub task: TaskId,
    /// The lease's number.
    pub token: FencingToken,
    /// What went on.
    pub kind: ActivityKind,
}

/// What went on in a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActivityKind {
    /// A program was started.
    Started {
        /// Its process.
        pid: u32,
        /// Where its output goes.
        log: PathBuf,
    },
    /// It gave this many bytes of output in all.
    Output {
        /// The bytes.
        bytes: u64,
    },
    /// The agent's conversation is known.
    Session(SessionId),
    /// Something a person may want to read: a tool that the agent uses, a retry.
    Said(String),
}
