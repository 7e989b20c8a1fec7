//! What an edit of a task changes in what the plans say.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::Specs;
use crate::id::PoolName;
use crate::pipeline::Pipeline;
use crate::plan::{Plan, PlanFault};
use crate::task::TaskSpec;

impl Specs {
    /// What a task was made by an edit.
    pub(crate) fn amended(&self, task: u32) -> Option<Arc<TaskSpec>> {
        self.amended.get(&task).cloned()
    }

    /// What is wrong with this specification in the place of a task's own, which has the same id.
    pub(crate) fn faults_of(&self, task: u32, spec: &TaskSpec) -> Vec<PlanFault> {
        let plan = &self.part(task).plan;
        let alone = Plan {
            tasks: vec![spec.clone()],
            pipelines: plan.pipelines.clone(),
            pools: plan.pools.clone(),
            pool_bounds: BTreeMap::new(),
            budget: None,
        };
        alone.check(&|id| *id != spec.id && self.number(id).is_some())
    }

    /// Gives a task this specification in the place of its plan's, or that one back; gives the number
    /// of its profile.
    pub(crate) fn amend(
        &mut self,
        task: u32,
        spec: Option<Arc<TaskSpec>>,
        class: impl FnMut(&Pipeline, Option<u8>, &BTreeMap<PoolName, NonZeroU32>) -> u32,
    ) -> u32 {
        spec.iter().for_each(|spec| self.rare.note(spec));
        match spec {
            Some(spec) => self.amended.insert(task, spec),
            None => self.amended.remove(&task),
        };
        self.rewire(task);
        let number = self.plans.partition_point(|part| part.first <= task) - 1;
        let (plan, spec) = (Arc::clone(&self.plans[number].plan), self.spec(task).clone());
        self.profile_for(number, &plan, &spec, class)
    }

    /// Adds what edges there are to a task after an edit.
    fn rewire(&mut self, task: u32) {
        let number = |id| self.number(id);
        let mut now: Vec<u32> = self.spec(task).depends_on.iter().filter_map(number).collect();
        let is_new = |from: &&u32| !self.edges_from(**from).any(|to| to == task);
        let new: Vec<u32> = now.iter().filter(is_new).copied().collect();
        let planned = &self.part(task).plan.tasks[self.places[task as usize] as usize];
        let differs = planned.depends_on != self.spec(task).depends_on;
        if differs || self.rewired.contains_key(&task) {
            now.sort_unstable();
            self.rewired.insert(task, now);
        }
        for from in new {
            self.later.entry(from).or_default().push(task);
        }
    }
}
