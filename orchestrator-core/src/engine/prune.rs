//! Plans that are over can be pruned: what only those tasks need that still run is forgotten.
//!
//! Of each task its record stays and, of what its plan said, what others may be judged by: its id,
//! estimate, pipeline, needs. So a task of a later plan can depend on it, a late result is refused as
//! before, and nothing else is granted in another order.

use std::ops::Range;
use std::sync::Arc;

use super::Engine;
use super::batch::Undo;
use super::body::Body;
use super::draft::Draft;
use super::kind::Kind;
use crate::event::EventKind;
use crate::id::BlobHash;
use crate::mutant::{Mutant, is_on};
use crate::record::{PlanRef, RunRecord};
use crate::specs::{Pruned, Specs};

impl Engine {
    /// Has each plan pruned that is over.
    pub(super) fn decide_prune(&self, draft: &mut Draft, run: &RunRecord) {
        let (mut first, mut gone) = (0, Vec::new());
        for entry in &run.plans {
            if self.is_over(first, entry, &gone) {
                gone.push(first..first + entry.tasks);
                let bytes = Body::Pruned(self.remains(first, entry)).canonical();
                let (plan, left) = (entry.blob.clone(), BlobHash::of(&bytes));
                draft.push(EventKind::PlanPruned { plan, left });
                draft.blobs.push(bytes);
            }
            first += entry.tasks;
        }
    }

    /// Whether a plan whose first task this is can be pruned: all of it is done or cancelled, nothing
    /// that is not waits for what was cancelled, since that could not be taken up any more, and what
    /// it depends on can never run again, since its rank would be another one then. What is `gone` is
    /// pruned before it.
    fn is_over(&self, first: u32, entry: &PlanRef, gone: &[Range<u32>]) -> bool {
        let kind = |task: u32| self.table.hot(task).kind();
        let is_over = |task: u32| match kind(task) {
            Kind::Done => true,
            Kind::Cancelled => {
                is_on(Mutant::PrunedUnderOpenTasks)
                    || self.specs.dependents(task).all(|next| kind(next).is_finished())
            }
            Kind::Escalated => is_on(Mutant::EscalatedIsPruned),
            Kind::Open | Kind::Deferred | Kind::Leased | Kind::Stopping => false,
        };
        let tasks = first..first + entry.tasks;
        let is_final = |on: u32| {
            let is_gone = || self.specs.is_pruned(on) || gone.iter().any(|gone| gone.contains(&on));
            tasks.contains(&on) || kind(on) == Kind::Done || is_gone()
        };
        entry.tasks > 0
            && (first as usize + entry.tasks as usize) <= self.table.len()
            && !self.specs.is_pruned(first)
            && tasks.clone().all(is_over)
            && tasks.clone().flat_map(|task| self.specs.dependencies(task)).all(is_final)
    }

    fn remains(&self, first: u32, entry: &PlanRef) -> Arc<Pruned> {
        let plan = Arc::new(self.specs.remains(first));
        Arc::new(Pruned { pruned: entry.blob.clone(), plan })
    }

    /// Applies the event; the ranks are to be asked for anew after the last of them.
    pub(super) fn apply_pruned(&mut self, plan: &BlobHash) {
        let entries = self.run.as_ref().map(|run| run.plans.as_slice()).unwrap_or_default();
        let mut first = 0;
        let found = entries.iter().enumerate().find_map(|(at, entry)| {
            let begins = first;
            first += entry.tasks;
            (entry.blob == *plan && self.is_over(begins, entry, &[])).then_some((at, begins))
        });
        let Some((at, first)) = found else { return };
        let left = self.remains(first, &entries[at]);
        let body = Body::Pruned(Arc::clone(&left));
        let blob = BlobHash::of(&body.canonical());
        let was = self.bodies.remove(plan).map(|was| (plan.clone(), was));
        if self.batch.is_open() {
            // What was there before the first of several is what there was before all.
            let specs = (!self.batch.has_pruned()).then(|| Box::new(self.specs.clone()));
            self.batch.changed(Undo::Pruned(specs, was));
        }
        let tasks = self.specs.prune(first, &left);
        tasks.for_each(|task| self.index.locks.set_scope(task, None));
        self.bodies.insert(blob.clone(), body);
        self.change_run(|run| run.plans[at].blob = blob);
    }

    /// Makes what the plans say what it was before one was pruned.
    pub(super) fn unprune(&mut self, specs: Option<Box<Specs>>, body: Option<(BlobHash, Body)>) {
        self.bodies.extend(body);
        let Some(specs) = specs else { return };
        self.specs = *specs;
        for task in (0..).take(self.specs.len()) {
            self.index.locks.set_scope(task, self.specs.spec(task).scope.as_ref());
        }
        self.rank();
    }
}
