//! A plan: the tasks and dependencies as handed in, checked as a whole.
//!
//! The text form is read by [`Plan::parse`]; what is here is the checked form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{PipelineName, PoolName, TaskId};
use crate::money::Usd;
use crate::pipeline::Pipeline;
use crate::task::TaskSpec;

/// A set of tasks with what they share.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The tasks, in the order in which they were written.
    pub tasks: Vec<TaskSpec>,
    /// Pipelines that tasks name; the default one needs no entry, and one called `default` takes
    /// its place.
    pub pipelines: BTreeMap<PipelineName, Pipeline>,
    /// Pools and their limits.
    pub pools: BTreeMap<PoolName, u32>,
    /// The most that the run may spend.
    pub budget: Option<Usd>,
}

/// One thing that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFault {
    /// Two tasks have one id.
    #[error("task `{task}` is there twice")]
    DuplicateTask {
        /// The id.
        task: TaskId,
    },
    /// A dependency exists neither in the plan nor in the run.
    #[error("task `{task}` depends on `{dependency}`, which does not exist{}", near(.nearest.as_ref()))]
    UnknownDependency {
        /// The task.
        task: TaskId,
        /// What it names.
        dependency: TaskId,
        /// The known id that looks most like it.
        nearest: Option<TaskId>,
    },
    /// A task depends on itself.
    #[error("task `{task}` depends on itself")]
    SelfDependency {
        /// The task.
        task: TaskId,
    },
    /// Tasks wait for each other for ever.
    #[error("tasks depend on each other in a circle: {}", circle(.tasks))]
    Cycle {
        /// A shortest circle, each task depending on the next and the last on the first.
        tasks: Vec<TaskId>,
    },
    /// A task names a pipeline that the plan does not have.
    #[error("task `{task}` names pipeline `{pipeline}`, which the plan does not have")]
    UnknownPipeline {
        /// The task.
        task: TaskId,
        /// What it names.
        pipeline: PipelineName,
    },
    /// A task needs more permits than its pool will ever have.
    #[error("task `{task}` needs {needs} permits of pool `{pool}`, which has {limit}")]
    NeedsTooMuch {
        /// The task.
        task: TaskId,
        /// The pool.
        pool: PoolName,
        /// What it needs.
        needs: u32,
        /// What there is.
        limit: u32,
    },
    /// A task has to be verified, but says by what.
    #[error("task `{task}` has no `verify` command, but its pipeline verifies")]
    NoVerifyCommand {
        /// The task.
        task: TaskId,
    },
}

fn near(nearest: Option<&TaskId>) -> String {
    nearest.map(|id| format!("; is `{id}` meant?")).unwrap_or_default()
}

fn circle(tasks: &[TaskId]) -> String {
    let names: Vec<&str> = tasks.iter().chain(tasks.first()).map(TaskId::as_str).collect();
    names.join(" → ")
}
