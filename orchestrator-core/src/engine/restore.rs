//! An engine from what a store has, or what is wrong with that.

use std::sync::Arc;

use super::Engine;
use super::body::Body;
use crate::id::{BlobHash, RunId, TaskId};
use crate::record::{Phase, PlanRef, Snapshot, TaskRecord};
use crate::time::Timestamp;

/// What is wrong with a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSnapshot {
    /// A plan's blob is no plan.
    #[error("plan {plan} of run `{run}` cannot be read: {why}")]
    Plan {
        /// The run.
        run: RunId,
        /// The plan's address.
        plan: BlobHash,
        /// What is wrong with it.
        why: String,
    },
    /// The records and the plans name different tasks.
    #[error("run `{run}` has task `{found}` at place {place}, where its plans have `{expected}`")]
    Task {
        /// The run.
        run: RunId,
        /// The place, counted from 0.
        place: u32,
        /// What the records have there.
        found: String,
        /// What the plans have there.
        expected: String,
    },
    /// A task is at a stage that its pipeline does not have.
    #[error("task `{task}` of run `{run}` is at stage {stage}, counted from 0, of {stages}")]
    Stage {
        /// The run.
        run: RunId,
        /// The task.
        task: TaskId,
        /// The stage, counted from 0.
        stage: u8,
        /// How many there are.
        stages: usize,
    },
}

impl Engine {
    /// An engine that stands where a store does.
    ///
    /// # Errors
    /// [`InvalidSnapshot`] when the records do not fit the plans.
    pub fn restore(snapshot: &Snapshot) -> Result<Self, InvalidSnapshot> {
        let mut engine = Self::new(snapshot.run.id.clone());
        for (at, entry) in snapshot.run.plans.iter().enumerate() {
            engine.take_in(entry, snapshot.plans.get(at).map(Vec::as_slice).unwrap_or_default())?;
        }
        engine.check_records(&snapshot.tasks)?;
        engine.run = Some(snapshot.run.clone());
        for pool in &snapshot.pools {
            engine.index.has_budgets |= pool.bounds.budget.is_some();
            engine.pools.set(&pool.name, Some(pool.clone()));
        }
        for owner in &snapshot.owners {
            engine.owners.set(&owner.owner.id, Some(owner.clone()));
        }
        engine.note_run();
        for (number, record) in (0_u32..).zip(&snapshot.tasks) {
            engine.set_record(number, record);
        }
        engine.seq = snapshot.seq;
        engine.rank();
        Ok(engine)
    }

    /// Takes in an entry of a run's plans, in their order.
    fn take_in(&mut self, entry: &PlanRef, bytes: &[u8]) -> Result<(), InvalidSnapshot> {
        let invalid = |why: String| {
            let (run, plan) = (self.id.clone(), entry.blob.clone());
            InvalidSnapshot::Plan { run, plan, why }
        };
        let body = Body::read(bytes).map_err(|err| invalid(err.to_string()))?;
        let tasks = body.tasks();
        if tasks != entry.tasks as usize {
            return Err(invalid(format!("it has {tasks} tasks, and the run says {}", entry.tasks)));
        }
        match &body {
            Body::Plan(plan) => drop(self.add_specs(plan, None, None, Timestamp(0))),
            Body::Pruned(left) => {
                drop(self.add_specs(&left.plan, Some(&left.pruned), None, Timestamp(0)));
            }
            Body::Amendment(spec) => match self.specs.number(&spec.id) {
                Some(task) if !self.specs.is_pruned(task) => {
                    self.amend(task, Some(Arc::clone(spec)));
                }
                Some(_) | None => {}
            },
        }
        self.bodies.insert(entry.blob.clone(), body);
        Ok(())
    }

    /// Whether these are the records of the tasks that the plans have.
    fn check_records(&self, records: &[TaskRecord]) -> Result<(), InvalidSnapshot> {
        let places = self.specs.len().max(records.len());
        for (place, number) in (0..places).zip(0_u32..) {
            let found = records.get(place).map(|task| &task.id);
            let expected = (place < self.specs.len()).then(|| self.specs.id(number));
            if found != expected {
                let name = |id: Option<&TaskId>| id.map_or("nothing", TaskId::as_str).to_owned();
                return Err(InvalidSnapshot::Task {
                    run: self.id.clone(),
                    place: number,
                    found: name(found),
                    expected: name(expected),
                });
            }
        }
        for (number, record) in (0_u32..).zip(records) {
            let stages = self.profile(number).classes.len();
            // What is done has passed them all.
            let is_past = matches!(record.phase, Phase::Done(_));
            if usize::from(record.stage) >= stages + usize::from(is_past) {
                let (run, task, stage) = (self.id.clone(), record.id.clone(), record.stage);
                return Err(InvalidSnapshot::Stage { run, task, stage, stages });
            }
        }
        Ok(())
    }
}
