//! What a task is asked to be: its specification, as a plan hands it in.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::{PipelineName, PoolName, TaskId};
use crate::money::Usd;
use crate::scope::Scope;

/// The specification of one task, with the plan's defaults applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its name within the run.
    pub id: TaskId,
    /// What must be done before its first stage may start.
    pub depends_on: Vec<TaskId>,
    /// What kind of work it is (`implement`, say), for estimates and prompts.
    pub role: String,
    /// The template that its prompt is rendered from.
    pub prompt_template: String,
    /// Free values for the template.
    pub inputs: Map<String, Value>,
    /// The command that judges it; a verify stage that has no command of its own needs one.
    pub verify: Option<VerifyCommand>,
    /// Rejections after the first attempt before the task escalates.
    pub max_retries: u32,
    /// The paths it may change; `None` allows every unprotected path.
    pub scope: Option<Scope>,
    /// Higher goes first among tasks of the same stage.
    pub priority: i32,
    /// How long one attempt is expected to take.
    pub estimate: Option<Duration>,
    /// The time limit of its `run` stage, when it differs from the pipeline's.
    pub timeout: Option<Duration>,
    /// The most that all of its stages together may spend; `None` is no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Usd>,
    /// Permits it needs while a stage of it runs; of the stage's own pool that is one where nothing
    /// is said.
    pub needs: BTreeMap<PoolName, NonZeroU32>,
    /// The pipeline it goes through; `None` is the default one.
    pub pipeline: Option<PipelineName>,
    /// The model for its `run` stage, when it differs from the pipeline's.
    pub model: Option<String>,
    /// Free values that nothing here looks at.
    pub metadata: Map<String, Value>,
}

impl TaskSpec {
    /// A task with this id and nothing else asked of it: 3 retries, no scope, no verify command.
    #[must_use]
    pub fn new(id: TaskId) -> Self {
        Self {
            id,
            depends_on: Vec::new(),
            role: "implement".to_owned(),
            prompt_template: "implement".to_owned(),
            inputs: Map::new(),
            verify: None,
            max_retries: Self::MAX_RETRIES_DEFAULT,
            scope: None,
            priority: 0,
            estimate: None,
            timeout: None,
            budget: None,
            needs: BTreeMap::new(),
            pipeline: None,
            model: None,
            metadata: Map::new(),
        }
    }

    /// Retries where a plan says nothing.
    pub const MAX_RETRIES_DEFAULT: u32 = 3;
}

/// A command that judges a task by its exit code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VerifyCommand {
    /// A line for `sh -c`.
    Shell(String),
    /// A program and its arguments, started without a shell.
    Argv(Vec<String>),
}

impl VerifyCommand {
    /// Whether it names no program.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Shell(line) => line.trim().is_empty(),
            Self::Argv(words) => words.first().is_none_or(String::is_empty),
        }
    }
}

impl fmt::Display for VerifyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shell(line) => f.write_str(line),
            Self::Argv(words) => f.write_str(&words.join(" ")),
        }
    }
}
