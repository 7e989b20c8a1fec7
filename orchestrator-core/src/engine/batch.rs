//! Several commands as one commit, undone as a whole when the commit is refused.

use std::collections::BTreeSet;

use super::Engine;
use crate::command::{Answer, Command, Refusal};
use crate::event::Event;
use crate::id::{CommandId, OwnerId, PoolName, Seq};
use crate::port::Commit;
use crate::record::{OwnerRecord, PoolRecord, Records, RunRecord, TaskRecord};
use crate::time::Timestamp;

/// What was decided since the last commit.
#[derive(Debug, Clone, Default)]
pub(super) struct Batch {
    expected: Seq,
    commands: Vec<(CommandId, Answer)>,
    events: Vec<Event>,
    blobs: Vec<Vec<u8>>,
    pub(super) undo: Vec<Undo>,
}

/// How something was before a change.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Run(Option<Box<RunRecord>>),
    Task(u32, Box<TaskRecord>),
    Pool(PoolName, Option<PoolRecord>),
    Owner(OwnerId, Option<Box<OwnerRecord>>),
    /// How many tasks there were.
    Tasks(usize),
}

impl Engine {
    /// Decides a command and applies what it causes, as part of the present batch.
    ///
    /// The answer must not be acted on before the batch is committed: take it with
    /// [`Engine::batch`], and say what became of it with [`Engine::accept`] or [`Engine::undo`].
    ///
    /// # Errors
    /// [`Refusal`] when the command makes no sense now; the batch stays as it was.
    pub fn submit(
        &mut self,
        now: Timestamp,
        id: &CommandId,
        command: &Command,
    ) -> Result<Answer, Refusal> {
        let decision = self.decide(now, id, command)?;
        if decision.events.is_empty() {
            return Ok(decision.answer);
        }
        if let Command::AddPlan { plan } = command {
            self.offer(std::sync::Arc::clone(plan));
        }
        let seq = self.seq;
        let batch = self.batch.get_or_insert_with(|| Batch { expected: seq, ..Batch::default() });
        batch.commands.push((id.clone(), decision.answer.clone()));
        batch.events.extend(decision.events.iter().cloned());
        batch.blobs.extend(decision.blobs);
        for event in &decision.events {
            self.evolve(event);
        }
        Ok(decision.answer)
    }

    /// The present batch as a commit; `None` when there is nothing to write.
    #[must_use]
    pub fn batch(&self) -> Option<Commit> {
        let batch = self.batch.as_ref()?;
        Some(Commit {
            expected: batch.expected,
            commands: batch.commands.clone(),
            events: batch.events.clone(),
            records: self.touched(&batch.undo),
            blobs: batch.blobs.clone(),
        })
    }

    /// Makes the present batch final: the store has it.
    pub fn accept(&mut self) {
        self.batch = None;
    }

    /// Takes the present batch back: the engine is as it was before.
    pub fn undo(&mut self) {
        let Some(batch) = self.batch.take() else { return };
        self.seq = batch.expected;
        for change in batch.undo.into_iter().rev() {
            match change {
                Undo::Run(run) => self.run = run.map(|run| *run),
                Undo::Task(number, record) => self.replace(number, *record),
                Undo::Pool(name, Some(record)) => {
                    self.pools.insert(name, record);
                }
                Undo::Pool(name, None) => {
                    self.pools.remove(&name);
                }
                Undo::Owner(id, Some(record)) => {
                    self.owners.insert(id, *record);
                }
                Undo::Owner(id, None) => {
                    self.owners.remove(&id);
                }
                Undo::Tasks(first) => {
                    self.remove_tasks(first);
                    self.rank();
                }
            }
        }
    }

    /// The present form of each record that was changed.
    fn touched(&self, changes: &[Undo]) -> Records {
        let mut tasks = BTreeSet::new();
        let mut pools = BTreeSet::new();
        let mut owners = BTreeSet::new();
        for change in changes {
            match change {
                Undo::Run(_) => {}
                Undo::Task(number, _) => {
                    tasks.insert(*number);
                }
                Undo::Pool(name, _) => {
                    pools.insert(name);
                }
                Undo::Owner(id, _) => {
                    owners.insert(id);
                }
                Undo::Tasks(first) => {
                    let all = *first..self.tasks.len();
                    tasks.extend(all.filter_map(|place| u32::try_from(place).ok()));
                }
            }
        }
        let task = |number: u32| Some((number, self.tasks.get(number as usize)?.clone()));
        Records {
            run: self.run.clone(),
            tasks: tasks.into_iter().filter_map(task).collect(),
            pools: pools.into_iter().filter_map(|name| self.pools.get(name).cloned()).collect(),
            owners: owners.into_iter().filter_map(|id| self.owners.get(id).cloned()).collect(),
        }
    }
}
