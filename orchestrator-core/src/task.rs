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
///
/// Written down, it leaves out what is as in [`TaskSpec::new`]: most is, and a plan is hashed whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its name within the run.
    pub id: TaskId,
    /// What must be done before its first stage may start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskId>,
    /// What kind of work it is (`implement`, say), for estimates and prompts.
    #[serde(default = "implement", skip_serializing_if = "is_implement")]
    pub role: String,
    /// The template that its prompt is rendered from.
    #[serde(default = "implement", skip_serializing_if = "is_implement")]
    pub prompt_template: String,
    /// Free values for the template.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Value>,
    /// The command that judges it; a verify stage that has no command of its own needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyCommand>,
    /// Rejections after the first attempt before the task escalates.
    #[serde(default = "retries", skip_serializing_if = "is_retries")]
    pub max_retries: u32,
    /// The paths it may change; `None` allows every unprotected path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Higher goes first among tasks of the same stage.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// How long one attempt is expected to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Duration>,
    /// The time limit of its `run` stage, when it differs from the pipeline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The most that all of its stages together may spend; `None` is no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Usd>,
    /// Permits it needs while a stage of it runs; of the stage's own pool that is one where nothing
    /// is said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub needs: BTreeMap<PoolName, NonZeroU32>,
    /// The pipeline it goes through; `None` is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineName>,
    /// The model for its `run` stage, when it differs from the pipeline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Free values that nothing here looks at.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl TaskSpec {
    /// A task with this id and nothing else asked of it: 3 retries, no scope, no verify command.
    #[must_use]
    pub fn new(id: TaskId) -> Self {
        Self {
            id,
            depends_on: Vec::new(),
            role: implement(),
            prompt_template: implement(),
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

/// The role, and the template, where a plan says nothing.
const IMPLEMENT: &str = "implement";

fn implement() -> String {
    IMPLEMENT.to_owned()
}

pub(crate) fn is_implement(text: &str) -> bool {
    text == IMPLEMENT
}

const fn retries() -> u32 {
    TaskSpec::MAX_RETRIES_DEFAULT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
pub(crate) const fn is_retries(max: &u32) -> bool {
    *max == TaskSpec::MAX_RETRIES_DEFAULT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(priority: &i32) -> bool {
    *priority == 0
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
            Self::Shell(line) => line.chars().all(char::is_whitespace),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_in_a_new_task_is_left_out_and_read_back() {
        let plain = TaskSpec::new("a".parse().unwrap());
        assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"id":"a"}"#);
        let full = TaskSpec {
            depends_on: vec!["b".parse().unwrap()],
            role: "port".to_owned(),
            prompt_template: "port".to_owned(),
            inputs: Map::from_iter([("file".to_owned(), Value::from("a.rs"))]),
            verify: Some(VerifyCommand::Shell("true".to_owned())),
            max_retries: 0,
            scope: Scope::parse(["src"]).ok(),
            priority: -1,
            estimate: Some(Duration::from_secs(1)),
            timeout: Some(Duration::from_secs(2)),
            budget: Some(Usd::dollars(1)),
            needs: BTreeMap::from([("gpu".parse().unwrap(), NonZeroU32::MIN)]),
            pipeline: "quick".parse().ok(),
            model: Some("small".to_owned()),
            metadata: Map::from_iter([("owner".to_owned(), Value::from("me"))]),
            ..plain.clone()
        };
        for spec in [plain, full] {
            let text = serde_json::to_vec(&spec).unwrap();
            assert_eq!(serde_json::from_slice::<TaskSpec>(&text).unwrap(), spec);
        }
    }
}
