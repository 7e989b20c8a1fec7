//! Runner and reviewer for `claude`, made of those that any agent has.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::{Change, Review, Reviewer, Runner, StageContext};
use orchestrator_core::{StageEnd, TaskSpec};

use super::{Claude, ClaudeConfig};
use crate::outfit::{Checked, Outfit, SetupFault};
use crate::{AgentReviewer, AgentRunner};

/// Works on tasks with the `claude` program: an [`AgentRunner`] for it.
#[derive(Debug, Clone)]
pub struct ClaudeRunner(AgentRunner);

/// Judges changes with the `claude` program: an [`AgentReviewer`] for it.
#[derive(Debug, Clone)]
pub struct ClaudeReviewer(AgentReviewer);

fn outfit(config: impl Into<Arc<ClaudeConfig>>) -> Outfit {
    let config = config.into();
    let common = Arc::new(config.common.clone());
    Outfit { agent: Arc::new(Claude::new(config)), config: common }
}

impl ClaudeRunner {
    /// A runner with this configuration.
    #[must_use]
    pub fn new(config: impl Into<Arc<ClaudeConfig>>) -> Self {
        Self(AgentRunner::with(outfit(config)))
    }

    /// Finds whatever is missing, before anything is spent: see [`AgentRunner::check`].
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub async fn check(&self, tasks: &[TaskSpec], root: &Path) -> Result<Checked, Vec<SetupFault>> {
        self.0.check(tasks, root).await
    }
}

impl ClaudeReviewer {
    /// A reviewer with this configuration; its policy is of no account.
    #[must_use]
    pub fn new(config: impl Into<Arc<ClaudeConfig>>) -> Self {
        Self(AgentReviewer::with(outfit(config)))
    }

    /// Finds whatever is missing, before anything is spent: see [`AgentReviewer::check`].
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub async fn check(&self, tasks: &[TaskSpec], root: &Path) -> Result<Checked, Vec<SetupFault>> {
        self.0.check(tasks, root).await
    }
}

#[async_trait]
impl Runner for ClaudeRunner {
    async fn run(&self, cx: &StageContext) -> StageEnd {
        self.0.run(cx).await
    }
}

#[async_trait]
impl Reviewer for ClaudeReviewer {
    async fn review(&self, cx: &StageContext, change: &Change) -> Review {
        self.0.review(cx, change).await
    }
}
