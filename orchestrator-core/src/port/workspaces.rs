//! The port that gives each task a place of its own to work in.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Change, PortError};
use crate::id::{ChangeId, FencingToken, RunId, TaskId};
use crate::money::Cost;
use crate::outcome::Candidate;
use crate::task::TaskSpec;

/// Gives each task a place of its own to work in, and makes a change of what is there.
///
/// Nothing here removes the only copy of work: what would be lost is kept first.
#[async_trait]
pub trait Workspaces: Send + Sync {
    /// Makes the task's workspace as asked. What an earlier attempt left there is kept first.
    ///
    /// # Errors
    /// [`PortError`] when it cannot be made.
    async fn open(&self, ask: &OpenWorkspace) -> Result<Workspace, PortError>;

    /// Makes a change of all that differs in the workspace from its base, and checks it against the
    /// task's scope.
    ///
    /// # Errors
    /// [`PortError`] when it could not be found out; a change that breaks the rules is
    /// [`Sealed::Refused`].
    async fn seal(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Sealed, PortError>;

    /// The tracked paths in the workspace that differ from the change.
    ///
    /// # Errors
    /// [`PortError`] when it could not be found out.
    async fn differing(&self, at: &Workspace, from: &ChangeId) -> Result<Vec<String>, PortError>;

    /// The change as a reviewer gets it.
    ///
    /// # Errors
    /// [`PortError`] when it cannot be read.
    async fn change(&self, candidate: &Candidate) -> Result<Change, PortError>;

    /// Keeps what is in the workspace and not in a change, and says where, so that a person finds
    /// it; `None` when there is nothing.
    ///
    /// # Errors
    /// [`PortError`] when it could not be kept.
    async fn keep(&self, ask: &OpenWorkspace, at: &Workspace) -> Result<Option<String>, PortError>;

    /// Removes the workspace of a task, if it has one; what it holds and is in no change is kept.
    ///
    /// # Errors
    /// [`PortError`] when it could not be removed.
    async fn release(&self, run: &RunId, task: &TaskId) -> Result<(), PortError>;

    /// Removes the workspaces of all tasks but these; what they hold and is in no change is kept.
    ///
    /// # Errors
    /// [`PortError`] when some could not be removed; the others are.
    async fn retain(&self, run: &RunId, live: &[TaskId]) -> Result<(), PortError>;

    /// Makes a place with the target as it is, that belongs to no task; each call makes it anew.
    ///
    /// # Errors
    /// [`PortError`] when it cannot be made.
    async fn untouched(&self, run: &RunId) -> Result<Workspace, PortError>;

    /// Whether there is room for more work. The driver asks before it grants; while there is none it
    /// grants nothing, and asks again. What runs goes on.
    ///
    /// # Errors
    /// [`PortError`] when it cannot be found out; that holds nothing up.
    async fn room(&self, run: &RunId) -> Result<Room, PortError> {
        // A place that knows of no limit has none.
        let _ = run;
        Ok(Room::Enough)
    }
}

/// Whether there is room for more work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// There is.
    Enough,
    /// The disk is nearly full.
    Short {
        /// A place on that disk.
        place: PathBuf,
        /// How much is free.
        free_bytes: u64,
        /// How much has to be.
        wanted_bytes: u64,
    },
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enough => f.write_str("there is room"),
            Self::Short { place, free_bytes, wanted_bytes } => write!(
                f,
                "the disk of {} has {free_bytes} bytes free, and {wanted_bytes} are wanted",
                place.display()
            ),
        }
    }
}

/// For whom a workspace is, and what is to be in it.
#[derive(Debug, Clone)]
pub struct OpenWorkspace {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: Arc<TaskSpec>,
    /// The attempt.
    pub attempt: u32,
    /// The lease that it is opened under.
    pub token: FencingToken,
    /// What is to be in it.
    pub start: Start,
    /// What the stage has cost so far; a change that is made of the workspace says it.
    pub cost: Cost,
}

/// What is in a workspace when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The target as it is now.
    OnTarget,
    /// This change, and nothing else.
    On(Candidate),
    /// What the lease of this number left there, if it is still there; else as `otherwise` says.
    AsLeftBy {
        /// The lease that made the workspace.
        token: FencingToken,
        /// What is to be in it when that is gone.
        otherwise: Box<Self>,
    },
}

/// A place to work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Its directory.
    pub path: PathBuf,
    /// What the work in it stands on.
    pub base: ChangeId,
    /// Whether it is as an earlier lease left it.
    pub as_left: bool,
    /// A directory outside the tree that lives as long as the workspace: an agent's configuration
    /// goes there. The adapter that uses it makes it.
    pub aside: PathBuf,
    /// A directory for what is of no worth, which programs in the workspace may write to.
    pub scratch: Option<PathBuf>,
    /// Variables that belong to it, such as ports that no other workspace has: every program that
    /// works or judges there finds them in its environment, before all others of the same name.
    pub environment: Vec<(String, OsString)>,
}

impl Workspace {
    /// A place without variables of its own.
    #[must_use]
    pub const fn new(path: PathBuf, base: ChangeId, aside: PathBuf) -> Self {
        let environment = Vec::new();
        Self { path, base, as_left: false, aside, scratch: None, environment }
    }
}

/// What became of the work in a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sealed {
    /// A change to judge.
    Candidate(Candidate),
    /// It breaks a rule; this is feedback for the next attempt.
    Refused {
        /// What is wrong, with the paths.
        feedback: String,
    },
}
