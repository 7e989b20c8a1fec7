//! What is allowed in a plan, but is probably not meant.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Plan;
use crate::id::{PipelineName, PoolName, TaskId};
use crate::pipeline::{AGENTS, Pipeline, StageKind, VERIFY};
use crate::task::{TaskSpec, VerifyCommand};

/// Longest estimate of a task that one agent finishes in one go.
pub const ESTIMATE_MAX: Duration = Duration::from_secs(30 * 60);
/// Tasks with one verify command from which on it is taken for too general.
const SAME_VERIFY_MIN: usize = 3;

/// Something in a plan that works, but is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanWarning {
    /// The plan has no tasks.
    #[error("the plan has no tasks")]
    NoTasks,
    /// A task may change any file, and runs beside others that do.
    #[error(
        "task `{task}` has no `scope`: it may change any file, also one that another task is changing"
    )]
    NoScope {
        /// The task.
        task: TaskId,
    },
    /// A scope allows nothing.
    #[error("task `{task}` has an empty `scope`: it may not change any file")]
    EmptyScope {
        /// The task.
        task: TaskId,
    },
    /// A scope overlaps every other.
    #[error(
        "task `{task}` has scope `{pattern}`, which begins with a wildcard: it runs beside no other task with a scope"
    )]
    ExclusiveScope {
        /// The task.
        task: TaskId,
        /// The pattern.
        pattern: String,
    },
    /// A task is longer than an agent works well.
    #[error("task `{task}` is estimated at {} min, more than {}: split it", minutes(*.estimate), minutes(ESTIMATE_MAX))]
    LongTask {
        /// The task.
        task: TaskId,
        /// Its estimate.
        estimate: Duration,
    },
    /// A task will probably be stopped before it is done.
    #[error("task `{task}` is estimated at {} min, but stopped after {} min", minutes(*.estimate), minutes(*.timeout))]
    TimeoutUnderEstimate {
        /// The task.
        task: TaskId,
        /// Its estimate.
        estimate: Duration,
        /// The limit of its run stage.
        timeout: Duration,
    },
    /// A task needs several permits of a pool that the plan gives no limit.
    #[error("task `{task}` needs {needs} permits of pool `{pool}`, which the plan gives no limit")]
    PoolWithoutLimit {
        /// The task.
        task: TaskId,
        /// The pool.
        pool: PoolName,
        /// What it needs.
        needs: u32,
    },
    /// A pool has no permits, so that what needs it waits until somebody raises the limit.
    #[error("pool `{pool}` has a limit of 0: nothing that needs it starts")]
    ClosedPool {
        /// The pool.
        pool: PoolName,
    },
    /// No task goes through a pipeline.
    #[error("no task goes through pipeline `{pipeline}`")]
    UnusedPipeline {
        /// The pipeline.
        pipeline: PipelineName,
    },
    /// One command judges many tasks, so it hardly tells whether one of them is done.
    #[error("{} tasks have the verify command `{command}` (`{}` first): does it fail before the task is done?", .tasks.len(), first(.tasks))]
    SameVerify {
        /// The command.
        command: VerifyCommand,
        /// The tasks.
        tasks: Vec<TaskId>,
    },
}

const fn minutes(span: Duration) -> u64 {
    span.as_secs().div_ceil(60)
}

fn first(tasks: &[TaskId]) -> &str {
    tasks.first().map_or("", TaskId::as_str)
}

/// The warnings of the tasks in their order, then those of the plan.
pub(super) fn warnings(plan: &Plan) -> Vec<PlanWarning> {
    let mut warnings = Vec::new();
    if plan.tasks.is_empty() {
        warnings.push(PlanWarning::NoTasks);
    }
    let built_in = Pipeline::default();
    for task in &plan.tasks {
        warnings.extend(of_scope(task));
        warnings.extend(of_times(plan, task, &built_in));
        warnings.extend(of_needs(plan, task));
    }
    let closed = plan.pools.iter().filter(|(_, limit)| **limit == 0);
    warnings.extend(closed.map(|(pool, _)| PlanWarning::ClosedPool { pool: pool.clone() }));
    warnings.extend(unused_pipelines(plan));
    warnings.extend(same_verify(plan, &built_in));
    warnings
}

fn of_scope(task: &TaskSpec) -> Option<PlanWarning> {
    let id = || task.id.clone();
    let Some(scope) = &task.scope else { return Some(PlanWarning::NoScope { task: id() }) };
    if scope.patterns().next().is_none() {
        return Some(PlanWarning::EmptyScope { task: id() });
    }
    let pattern = scope.exclusive_pattern()?.to_owned();
    Some(PlanWarning::ExclusiveScope { task: id(), pattern })
}

fn of_times(plan: &Plan, task: &TaskSpec, built_in: &Pipeline) -> Vec<PlanWarning> {
    let Some(estimate) = task.estimate else { return Vec::new() };
    let mut warnings = Vec::new();
    if estimate > ESTIMATE_MAX {
        warnings.push(PlanWarning::LongTask { task: task.id.clone(), estimate });
    }
    let stages = plan.named_pipeline(task, built_in).map_or(&[][..], Pipeline::stages);
    let run = stages.iter().find(|stage| stage.kind == StageKind::Run);
    let timeout = task.timeout.or_else(|| run.map(|stage| stage.timeout));
    if let Some(timeout) = timeout.filter(|timeout| *timeout < estimate) {
        let task = task.id.clone();
        warnings.push(PlanWarning::TimeoutUnderEstimate { task, estimate, timeout });
    }
    warnings
}

/// A pool that nobody limits is taken to exist once: one permit is fine, more may never be there.
/// Agents and verify commands are limited by whoever runs the plan.
fn of_needs(plan: &Plan, task: &TaskSpec) -> Vec<PlanWarning> {
    let is_limited = |pool: &PoolName| {
        plan.pools.contains_key(pool) || [AGENTS, VERIFY].contains(&pool.as_str())
    };
    let needs = task.needs.iter().map(|(pool, own)| (pool, own.get()));
    needs
        .filter(|(pool, needs)| *needs > 1 && !is_limited(pool))
        .map(|(pool, needs)| PlanWarning::PoolWithoutLimit {
            task: task.id.clone(),
            pool: pool.clone(),
            needs,
        })
        .collect()
}

fn unused_pipelines(plan: &Plan) -> Vec<PlanWarning> {
    let used: std::collections::BTreeSet<&str> =
        plan.tasks.iter().map(TaskSpec::pipeline_name).collect();
    let unused = plan.pipelines.keys().filter(|name| !used.contains(name.as_str()));
    unused.map(|name| PlanWarning::UnusedPipeline { pipeline: name.clone() }).collect()
}

/// Commands that judge many tasks, in the order of the first of these.
fn same_verify(plan: &Plan, built_in: &Pipeline) -> Vec<PlanWarning> {
    let mut by_command: BTreeMap<&VerifyCommand, Vec<usize>> = BTreeMap::new();
    for (at, task) in plan.tasks.iter().enumerate() {
        let pipeline = plan.named_pipeline(task, built_in).unwrap_or(built_in);
        if let Some(command) = task.verify.as_ref().filter(|_| pipeline.has(StageKind::Verify)) {
            by_command.entry(command).or_default().push(at);
        }
    }
    let mut many: Vec<(&VerifyCommand, Vec<usize>)> =
        by_command.into_iter().filter(|(_, tasks)| tasks.len() >= SAME_VERIFY_MIN).collect();
    many.sort_by_key(|(_, tasks)| tasks.first().copied());
    let id = |at: &usize| plan.tasks.get(*at).map(|task| task.id.clone());
    many.into_iter()
        .map(|(command, tasks)| PlanWarning::SameVerify {
            command: command.clone(),
            tasks: tasks.iter().filter_map(id).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_small_scoped_tasks_has_no_warnings() {
        let plan = Plan::parse(
            r#"[{"id": "a", "verify": "test a", "scope": "a", "estimate": "20m", "needs": {"gpu": 1}},
                {"id": "b", "verify": "test b", "scope": "b/*.rs"}]"#,
        );
        assert_eq!(plan.unwrap().warnings(), []);
    }

    #[test]
    fn a5_each_oddity_is_told_with_its_task() {
        let plan = Plan::parse(
            r#"{
                "tasks": [
                    {"id": "a"},
                    {"id": "b", "scope": ["src", "**/x"], "estimate": "50m"},
                    {"id": "c", "scope": [], "estimate": "10m", "timeout": "5m"},
                    {"id": "d", "scope": "d", "needs": {"gpu": 2, "agents": 1, "cpu": 1}},
                ],
                "defaults": {"verify": "cargo test"},
                "pools": {"shut": 0},
                "pipelines": {"spare": ["run"]},
            }"#,
        );
        let told: Vec<String> = plan.unwrap().warnings().iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(told.join("\n"));
        let told: Vec<String> =
            Plan::default().warnings().iter().map(ToString::to_string).collect();
        assert_eq!(told, ["the plan has no tasks"]);
    }
}
