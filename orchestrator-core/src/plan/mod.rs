//! A plan: the tasks and dependencies as handed in, checked as a whole.
//!
//! The text form is read by [`Plan::parse`]; what is here is the checked form.

mod canonical;
mod check;
mod cycle;
mod error;
mod kinds;
mod links;
mod near;
mod nearest;
mod parse;
mod warning;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;

use serde::{Deserialize, Serialize};

pub(crate) use self::canonical::Canonical;
pub use self::error::{
    PLAN_BYTES_MAX, PLAN_DEPTH_MAX, PLAN_ERRORS_MAX, PLAN_VALUES_MAX, PlanError, PlanErrors,
    Position, TaskRef, TextFault,
};
pub(crate) use self::kinds::{Kinds, Rare};
pub(crate) use self::links::{Links, by_part};
pub use self::warning::{ESTIMATE_MAX, PlanWarning};
use crate::id::{PipelineName, PoolName, TaskId};
use crate::money::Usd;
use crate::pipeline::Pipeline;
use crate::record::PoolBounds;
use crate::task::TaskSpec;

/// The name under which a plan replaces the built-in pipeline.
const DEFAULT_PIPELINE: &str = "default";

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
    /// What holds pools back beside their limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pool_bounds: BTreeMap<PoolName, PoolBounds>,
    /// The most that the run may spend. A run that has a budget already keeps it: a plan that comes
    /// later has none, or the same.
    pub budget: Option<Usd>,
}

impl Plan {
    /// Everything that is wrong with the plan, if it is added to a run that has the `known` tasks.
    ///
    /// The faults are in the order of the tasks, and for a task in the order id, dependencies,
    /// pipeline, needs, verify command. Of each knot of tasks that depend on each other, one
    /// shortest circle is told, at the first task of it. A dependency that is listed twice is a
    /// fault too: whoever wrote it probably meant another task. The cost is about linear, and
    /// nothing here recurses, whatever the plan is like.
    #[must_use]
    pub fn check(&self, known: &dyn Fn(&TaskId) -> bool) -> Vec<PlanFault> {
        check::faults(self, known).into_iter().map(|(_, fault)| fault).collect()
    }

    /// [`check`](Self::check) with the dependencies, of a plan that has no fault; `known` gives the
    /// number of a task of the run, and `also` gets all tasks, some at a time, while they are at hand.
    pub(crate) fn links(
        &self,
        hasher: &RandomState,
        known: &dyn Fn(&TaskId) -> Option<u32>,
        also: &mut dyn FnMut(&[TaskSpec]),
    ) -> Result<Links, Vec<PlanFault>> {
        let (links, faults) = check::check(self, hasher, known, also);
        if faults.is_empty() {
            return Ok(links);
        }
        Err(faults.into_iter().map(|(_, fault)| fault).collect())
    }

    /// What works, but is probably not meant: a task without a scope, one that takes long, one
    /// command that judges many. First those of the tasks in their order, then those of the plan.
    #[must_use]
    pub fn warnings(&self) -> Vec<PlanWarning> {
        warning::warnings(self)
    }

    /// The faults that keep the tasks from being a graph; what is not in the plan is taken as known.
    pub(crate) fn faults_of_dependencies(&self) -> Vec<PlanFault> {
        let own: BTreeSet<&TaskId> = self.tasks.iter().map(|task| &task.id).collect();
        check::faults(self, &|id| !own.contains(id))
            .into_iter()
            .filter(|(place, _)| place.part < check::Part::Pipeline)
            .map(|(_, fault)| fault)
            .collect()
    }

    /// The pipeline that the task goes through, with the task's own time limit and model for its
    /// `run` stage; `None` when the task names one that the plan does not have.
    ///
    /// A pipeline of the plan called `default` takes the place of the built-in one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use orchestrator_core::{Plan, TaskId, TaskSpec};
    /// let mut task = TaskSpec::new(TaskId::parse("a").unwrap());
    /// task.timeout = Some(Duration::from_secs(60));
    /// let pipeline = Plan::default().pipeline_of(&task).unwrap();
    /// assert_eq!(pipeline.stages()[0].timeout, Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn pipeline_of(&self, task: &TaskSpec) -> Option<Pipeline> {
        let built_in = Pipeline::default();
        let default = self.default_pipeline().unwrap_or(&built_in);
        let pipeline = self.named_pipeline(task, default)?;
        Some(pipeline.for_task(task.timeout, task.model.as_deref()))
    }

    fn named_pipeline<'a>(
        &'a self,
        task: &TaskSpec,
        default: &'a Pipeline,
    ) -> Option<&'a Pipeline> {
        match &task.pipeline {
            Some(name) if name.as_str() != DEFAULT_PIPELINE => self.pipelines.get(name),
            Some(_) | None => Some(default),
        }
    }

    fn default_pipeline(&self) -> Option<&Pipeline> {
        let name = PipelineName::parse(DEFAULT_PIPELINE).ok()?;
        self.pipelines.get(&name)
    }
}

impl TaskSpec {
    /// The name of its pipeline, also where it names none.
    pub(crate) fn pipeline_name(&self) -> &str {
        self.pipeline.as_ref().map_or(DEFAULT_PIPELINE, PipelineName::as_str)
    }
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
    /// The run has a task of this id from an earlier plan.
    #[error("task `{task}` is in the run already")]
    KnownTask {
        /// The id.
        task: TaskId,
    },
    /// A dependency is listed twice.
    #[error("task `{task}` depends on `{dependency}` twice")]
    RepeatedDependency {
        /// The task.
        task: TaskId,
        /// What it names.
        dependency: TaskId,
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
    /// A task may spend nothing, but has a stage that costs.
    #[error("task `{task}` has a budget of nothing, but its pipeline has a stage that costs")]
    NoBudget {
        /// The task.
        task: TaskId,
    },
    /// The run, or a pool of it, has another budget from an earlier plan or a person. It stays:
    /// leave the plan's out, or set the run's to the same first.
    #[error(
        "the plan has a budget of {plan}{}, and the run has one of {run}: leave it out, or set the run's first",
        of_pool(.pool.as_ref())
    )]
    OtherBudget {
        /// The pool; `None` is the run as a whole.
        pool: Option<PoolName>,
        /// What the plan says.
        plan: Usd,
        /// What there is.
        run: Usd,
    },
    /// A task has to be verified, but says by what.
    #[error("task `{task}` has no `verify` command, but its pipeline verifies")]
    NoVerifyCommand {
        /// The task.
        task: TaskId,
    },
}

fn of_pool(pool: Option<&PoolName>) -> String {
    pool.map(|pool| format!(" for pool `{pool}`")).unwrap_or_default()
}

fn near(nearest: Option<&TaskId>) -> String {
    nearest.map(|id| format!("; is `{id}` meant?")).unwrap_or_default()
}

/// Names of a circle that are told before the rest is only counted.
const CIRCLE_SHOWN_MAX: usize = 20;

fn circle(tasks: &[TaskId]) -> String {
    let mut names: Vec<&str> = tasks.iter().take(CIRCLE_SHOWN_MAX).map(TaskId::as_str).collect();
    let more = format!("… ({} more)", tasks.len().saturating_sub(CIRCLE_SHOWN_MAX));
    if tasks.len() > CIRCLE_SHOWN_MAX {
        names.push(&more);
    }
    names.extend(tasks.first().map(TaskId::as_str));
    names.join(" → ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pipeline::{StageKind, StageSpec};

    #[test]
    fn a_pipeline_called_default_replaces_the_built_in_one_and_the_task_adjusts_its_run_stage() {
        let mut task = TaskSpec::new(TaskId::parse("a").unwrap());
        let mut plan = Plan::default();
        assert_eq!(plan.pipeline_of(&task), Some(Pipeline::default()));
        let bare =
            Pipeline::new([StageKind::Run, StageKind::Verify].map(StageSpec::of).to_vec()).unwrap();
        plan.pipelines.insert(PipelineName::parse("default").unwrap(), bare.clone());
        assert_eq!(plan.pipeline_of(&task), Some(bare));
        task.model = Some("small".to_owned());
        task.timeout = Some(Duration::from_secs(9));
        let adjusted = plan.pipeline_of(&task).unwrap();
        assert_eq!(adjusted.stages()[0].model.as_deref(), Some("small"));
        assert_eq!(adjusted.stages()[0].timeout, Duration::from_secs(9));
        assert_eq!(adjusted.stages()[1], StageSpec::of(StageKind::Verify));
        task.pipeline = PipelineName::parse("missing").ok();
        assert_eq!(plan.pipeline_of(&task), None);
    }
}
