//! What is left of a plan that is over.

use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

use super::Model;
use crate::command::Command;
use crate::id::{BlobHash, TaskId};
use crate::plan::Plan;
use crate::record::Phase;
use crate::task::TaskSpec;

/// The form in which it is kept.
#[derive(Serialize)]
struct Left<'a> {
    pruned: &'a BlobHash,
    plan: Plan,
}

impl Model {
    /// The task that a command would take up again though its plan was pruned.
    pub(super) fn taken_up(&self, command: &Command) -> Option<TaskId> {
        let task = if let Command::Retry { task, .. }
        | Command::Resolve { task, .. }
        | Command::Cancel { task, .. } = command
        {
            task
        } else if let Command::Edit { spec, .. } = command {
            &spec.id
        } else {
            return None;
        };
        self.pruned.values().flatten().find(|pruned| *pruned == task).cloned()
    }

    /// Of each plan that is over nothing stays that only tasks need that run.
    pub(super) fn prune(&mut self) {
        let mut places = 0..0;
        for at in 0..self.run_mut().plans.len() {
            let entry = self.run_mut().plans[at].clone();
            places = places.end..places.end + entry.tasks as usize;
            if places.is_empty() || self.left.contains(&entry.blob) || !self.is_over(places.clone())
            {
                continue;
            }
            for place in places.clone() {
                let (spec, pipeline) = &*self.specs[place];
                let spec = TaskSpec {
                    role: spec.role.clone(),
                    prompt_template: String::new(),
                    max_retries: spec.max_retries,
                    priority: spec.priority,
                    estimate: spec.estimate,
                    timeout: spec.timeout,
                    budget: spec.budget,
                    needs: spec.needs.clone(),
                    pipeline: spec.pipeline.clone(),
                    model: spec.model.clone(),
                    ..TaskSpec::new(spec.id.clone())
                };
                self.specs[place] = (spec, pipeline.clone()).into();
            }
            let mut sorted: Vec<usize> = places.clone().collect();
            sorted.sort_by_key(|place| self.numbers[*place]);
            let tasks = sorted.into_iter().map(|place| self.specs[place].0.clone()).collect();
            let first = &self.tasks[places.start].id;
            let is_it = |plan: &&Arc<Plan>| plan.tasks.iter().any(|task| task.id == *first);
            let whole = self.plans.iter().find(is_it).cloned().unwrap_or_default();
            let plan = Plan { tasks, pipelines: whole.pipelines.clone(), ..Plan::default() };
            let left = Left { pruned: &entry.blob, plan };
            let blob = BlobHash::of(&serde_json::to_vec(&left).unwrap_or_default());
            let ids = places.clone().map(|place| self.tasks[place].id.clone()).collect();
            self.pruned.insert(entry.blob, ids);
            self.left.insert(blob.clone());
            self.run_mut().plans[at].blob = blob;
        }
    }

    fn is_over(&self, mut places: Range<usize>) -> bool {
        let is_finished = |phase: &Phase| matches!(phase, Phase::Done(_) | Phase::Cancelled);
        let is_waited_for = |id: &TaskId| {
            self.specs
                .iter()
                .zip(&self.tasks)
                .any(|(spec, task)| spec.0.depends_on.contains(id) && !is_finished(&task.phase))
        };
        let ids: Vec<&TaskId> = self.tasks[places.clone()].iter().map(|task| &task.id).collect();
        let is_final = |on: &TaskId| {
            let task = self.tasks.iter().find(|task| task.id == *on);
            ids.contains(&on)
                || task.is_some_and(|task| matches!(task.phase, Phase::Done(_)))
                || self.pruned.values().flatten().any(|pruned| pruned == on)
        };
        places.all(|place| {
            let task = &self.tasks[place];
            let is_given_up = task.phase == Phase::Cancelled;
            is_finished(&task.phase)
                && !(is_given_up && is_waited_for(&task.id))
                && self.specs[place].0.depends_on.iter().all(is_final)
        })
    }
}
