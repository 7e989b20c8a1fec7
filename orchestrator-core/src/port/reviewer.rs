//! The port that judges a diff.

use async_trait::async_trait;

use super::StageContext;
use crate::money::Cost;
use crate::outcome::{Candidate, Outcome};
use crate::verdict::Judgement;

/// Judges a change without knowing how it came to be.
#[async_trait]
pub trait Reviewer: Send + Sync {
    /// Judges the change; reads the workspace and writes nothing there.
    async fn review(&self, cx: &StageContext, change: &Change) -> Review;
}

/// A change as a reviewer gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The change.
    pub candidate: Candidate,
    /// The paths that differ, relative to the repository's root.
    pub files: Vec<String>,
    /// The difference as text, at most as long as the workspaces allow.
    pub diff: String,
    /// What was left out of it, in words; `None` when it is whole.
    pub cut: Option<String>,
}

/// How a review ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The judgement, or how the stage ended without one.
    pub judgement: Result<Judgement, Outcome>,
    /// What it cost.
    pub cost: Cost,
}
