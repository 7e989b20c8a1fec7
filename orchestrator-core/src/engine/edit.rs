//! What a task is asked to be can be changed while nothing of it runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::Engine;
use super::batch::Undo;
use super::body::{Body, edit_text};
use super::draft::Draft;
use super::evolve::reopen;
use super::kind::Kind;
use crate::command::Refusal;
use crate::event::EventKind;
use crate::id::{BlobHash, PoolName, TaskId, TaskNo};
use crate::plan::PlanFault;
use crate::record::PlanRef;
use crate::task::TaskSpec;

impl Engine {
    pub(super) fn decide_edit(
        &self,
        draft: &mut Draft,
        spec: &TaskSpec,
        actor: String,
        reason: String,
    ) -> Result<(), Refusal> {
        let (task, view) = self.known(&spec.id)?;
        let old = self.specs.spec(task.0);
        if view.detail().intent.is_some() {
            return Err(Refusal::MergeInDoubt(spec.id.clone()));
        }
        let no = |why| Err(Refusal::NotEditable { task: spec.id.clone(), why });
        if view.hot().kind() == Kind::Done {
            return no("it is done");
        } else if view.hold().is_some() {
            return no("its stage must end first");
        } else if old.depends_on != spec.depends_on && view.hot().dispatches() > 0 {
            return no("what it depends on changes only before its first grant");
        } else if old.pipeline != spec.pipeline {
            return no("its pipeline stays the one it was planned with");
        } else if view.hot().holds_scope() && old.scope != spec.scope {
            return no("it holds its scope; cancel it first, and retry it then");
        }
        let mut faults = self.specs.faults_of(task.0, spec);
        if old.depends_on != spec.depends_on {
            faults.extend(self.circle(task.0, &spec.depends_on));
        }
        if !faults.is_empty() {
            return Err(Refusal::Plan(faults));
        }
        if old == spec {
            return Ok(());
        }
        let bytes = edit_text(spec);
        let spec = BlobHash::of(&bytes);
        draft.push(EventKind::Edited { task, spec, actor, reason });
        draft.blobs.push(bytes);
        Ok(())
    }

    /// A shortest circle that there would be if the task depended on these.
    fn circle(&self, task: u32, depends_on: &[TaskId]) -> Option<PlanFault> {
        let wanted: BTreeSet<u32> =
            depends_on.iter().filter_map(|id| self.number(id)).map(|on| on.0).collect();
        // For each task behind it one that this one waits for, on a shortest way back.
        let mut before: BTreeMap<u32, u32> = BTreeMap::new();
        let mut open = VecDeque::from([task]);
        while let Some(from) = open.pop_front() {
            if wanted.contains(&from) {
                let way = std::iter::successors(Some(from), |at| before.get(at).copied());
                let way = way.take_while(|at| *at != task);
                let tasks = [task].into_iter().chain(way).map(|at| self.specs.id(at).clone());
                return Some(PlanFault::Cycle { tasks: tasks.collect() });
            }
            for to in self.specs.dependents(from) {
                if to != task && !before.contains_key(&to) {
                    before.insert(to, from);
                    open.push_back(to);
                }
            }
        }
        None
    }

    pub(super) fn apply_edited(&mut self, task: TaskNo, spec: &BlobHash) {
        if let Some(Body::Amendment(body)) = self.bodies.get(spec).cloned()
            && self.has(task)
            && self.specs.id(task.0) == &body.id
            && !self.specs.is_pruned(task.0)
        {
            let before = self.specs.amended(task.0);
            let waits_for_others = self.specs.spec(task.0).depends_on != body.depends_on;
            self.amend(task.0, Some(body));
            self.batch.changed(Undo::Spec(task.0, before));
            let needs: Vec<PoolName> = self.specs.spec(task.0).needs.keys().cloned().collect();
            self.know_pools(&needs);
            self.rank();
            if waits_for_others {
                self.change_run(reopen);
            }
        }
        let entry = PlanRef { blob: spec.clone(), tasks: 0 };
        self.change_run(|run| run.plans.push(entry));
    }

    /// Gives a task this specification in the place of its plan's, or that one back. What is
    /// computed has to be computed anew then.
    pub(super) fn amend(&mut self, task: u32, spec: Option<Arc<TaskSpec>>) {
        let Self { specs, index, pools, table, .. } = self;
        let profile = specs
            .amend(task, spec, |pipeline, stage, needs| index.class(pools, pipeline, stage, needs));
        table.set_profile(task, profile);
        index.locks.set_scope(task, specs.spec(task).scope.as_ref());
    }
}
