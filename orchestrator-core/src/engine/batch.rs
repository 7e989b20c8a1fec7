//! Several commands as one commit, undone as a whole when the commit is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use super::body::Body;
use super::draft::Draft;
use super::table::{Saved, Table};
use crate::command::Answer;
use crate::id::{BlobHash, CommandId, FencingToken, OwnerId, PoolName, Seq};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::plan::Links;
use crate::port::Commit;
use crate::record::{Counts, OwnerRecord, PassedOver, PoolRecord, Records, RunRecord};
use crate::specs::Specs;
use crate::task::TaskSpec;
use crate::time::Timestamp;

/// What was decided since the last commit.
#[derive(Debug, Clone, Default)]
pub(super) struct Batch {
    /// Whether anything was.
    is_open: bool,
    expected: Seq,
    /// Commands with what they get back, and behind them some of earlier batches, whose room is used
    /// again.
    commands: Vec<(CommandId, Answer)>,
    /// How many of the commands are of this batch.
    noted: usize,
    pub(super) draft: Draft,
    /// The dependencies of a plan whose event is about to be applied.
    pub(super) links: Option<Box<Links>>,
    /// How tasks were before each change.
    tasks: Saved,
    /// How other things were. Tasks come back before them: where these change what is computed of
    /// tasks, all of that is computed anew.
    undo: Vec<Undo>,
    /// What the run added up to at the start, if there was one.
    sums: Sums,
    had_run: bool,
    /// The whole run at the start, if more than its sums changed.
    run: Option<Option<Box<RunRecord>>>,
}

/// How something that is no task was before a change.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Pool(PoolName, Option<PoolRecord>),
    Owner(OwnerId, Option<Box<OwnerRecord>>),
    /// How many tasks there were.
    Tasks(usize),
    /// What an earlier edit had made of a task.
    Spec(u32, Option<Arc<TaskSpec>>),
    /// What was known before a plan was pruned; of all plans before the first of them.
    Pruned(Option<Box<Specs>>, Option<(BlobHash, Body)>),
}

/// What of a run changes with each event.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    last_at: Timestamp,
    last_token: FencingToken,
    spent: Usd,
    reserved: Usd,
    first_stage_failures: u32,
    passed_over: Option<PassedOver>,
    counts: Counts,
}

impl Sums {
    /// Notes what a run adds up to.
    const fn note(&mut self, run: &RunRecord) {
        // One by one: as a whole it would be put together elsewhere first.
        self.last_at = run.last_at;
        self.last_token = run.last_token;
        self.spent = run.spent;
        self.reserved = run.reserved;
        self.first_stage_failures = run.first_stage_failures;
        self.passed_over = run.passed_over;
        self.counts = run.counts;
    }

    const fn restore(self, run: &mut RunRecord) {
        run.last_at = self.last_at;
        run.last_token = self.last_token;
        run.spent = self.spent;
        run.reserved = self.reserved;
        run.first_stage_failures = self.first_stage_failures;
        run.passed_over = self.passed_over;
        run.counts = self.counts;
    }
}

impl Batch {
    /// Whether anything was decided since the last commit.
    #[inline]
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Begins a batch, if there is none.
    #[inline(always)]
    pub(super) fn open(&mut self, seq: Seq, run: Option<&RunRecord>) {
        if !self.is_open {
            self.is_open = true;
            self.expected = seq;
            self.had_run = run.is_some();
            if let Some(run) = run {
                self.sums.note(run);
            }
        }
    }

    /// Notes a command; what it gets back is to be put where this says, so that it is put together
    /// there.
    #[inline(always)]
    pub(super) fn note(&mut self, id: &CommandId) -> &mut Answer {
        if self.noted >= self.commands.len() {
            self.note_more(id);
        }
        let (known, answer) = &mut self.commands[self.noted];
        self.noted += 1;
        known.clone_from(id);
        answer
    }

    #[cold]
    #[inline(never)]
    fn note_more(&mut self, id: &CommandId) {
        self.commands.push((id.clone(), Answer::Done));
    }

    /// Notes how a task was before a change.
    #[inline]
    pub(super) fn task_changes(&mut self, table: &Table, task: u32) {
        if self.is_open {
            self.tasks.save(table, task);
        }
    }

    /// Notes how something was before a change.
    pub(super) fn changed(&mut self, before: Undo) {
        if self.is_open {
            self.undo.push(before);
        }
    }

    /// Whether a plan was pruned.
    pub(super) fn has_pruned(&self) -> bool {
        self.undo.iter().rev().any(|change| matches!(change, Undo::Pruned(..)))
    }

    /// Forgets how all but the tasks was.
    #[cold]
    #[inline(never)]
    fn forget_rest(&mut self) {
        self.undo.clear();
        self.run = None;
    }

    pub(super) fn run_changes(&mut self, run: Option<&RunRecord>) {
        if self.is_open && self.run.is_none() {
            self.run = Some(run.cloned().map(Box::new));
        }
    }
}

impl Engine {
    /// The present batch as a commit; `None` when there is nothing to write.
    #[must_use]
    pub fn batch(&self) -> Option<Commit> {
        let batch = self.batch.is_open.then_some(&self.batch)?;
        let draft = &batch.draft;
        Some(Commit {
            expected: batch.expected,
            commands: batch.commands[..batch.noted].to_vec(),
            events: self.published(draft),
            records: self.touched(batch),
            blobs: draft.blobs.clone(),
        })
    }

    /// Makes the present batch final: the store has it.
    pub fn accept(&mut self) {
        let batch = &mut self.batch;
        batch.is_open = false;
        batch.noted = 0;
        batch.draft.clear();
        self.table.forget();
        if is_on(Mutant::CommittedIsUndone) {
            batch.run = None;
            return;
        }
        batch.tasks.clear();
        if !batch.undo.is_empty() || batch.run.is_some() {
            batch.forget_rest();
        }
    }

    /// Takes the present batch back: the engine is as it was before.
    pub fn undo(&mut self) {
        if !std::mem::take(&mut self.batch.is_open) {
            return;
        }
        self.undo_tasks();
        let mut undo = std::mem::take(&mut self.batch.undo);
        for change in undo.drain(..).rev() {
            match change {
                Undo::Pool(name, record) => {
                    if !is_on(Mutant::PoolsNotUndone) {
                        self.pools.set(&name, record);
                    }
                }
                Undo::Owner(id, record) => {
                    self.owners.set(&id, record.map(|record| *record));
                }
                Undo::Tasks(first) => self.remove_tasks(first),
                Undo::Spec(task, spec) => {
                    if !is_on(Mutant::EditNotUndone) {
                        self.amend(task, spec);
                        self.rank();
                    }
                }
                Undo::Pruned(specs, body) => self.unprune(specs, body),
            }
        }
        self.batch.undo = undo;
        if let Some(run) = self.batch.run.take() {
            self.run = run.map(|run| *run);
            self.note_run();
        }
        if let Some(run) = &mut self.run
            && self.batch.had_run
            && !is_on(Mutant::SumsNotUndone)
        {
            self.batch.sums.restore(run);
        }
        self.seq = self.batch.expected;
        self.accept();
    }

    fn undo_tasks(&mut self) {
        let mut tasks = std::mem::take(&mut self.batch.tasks);
        for place in 0..tasks.len() {
            let last_first = tasks.len() - 1 - place;
            let place = if is_on(Mutant::UndoneForwards) { place } else { last_first };
            if !is_on(Mutant::RefusedCommitLeavesIndex) {
                self.restore_task(&tasks.before(place));
            }
        }
        tasks.clear();
        self.batch.tasks = tasks;
    }

    /// The present form of each record that was changed.
    fn touched(&self, batch: &Batch) -> Records {
        let mut tasks: BTreeSet<u32> = batch.tasks.tasks().collect();
        let mut pools = BTreeSet::new();
        let mut owners = BTreeSet::new();
        for change in &batch.undo {
            match change {
                Undo::Pool(name, _) => {
                    if !is_on(Mutant::PoolsNotKept) {
                        pools.insert(name);
                    }
                }
                Undo::Owner(id, _) => {
                    owners.insert(id);
                }
                // What the plans say is no record.
                Undo::Spec(..) | Undo::Pruned(..) => {}
                Undo::Tasks(first) => {
                    let all = *first..self.table.len();
                    tasks.extend(all.filter_map(|place| u32::try_from(place).ok()));
                }
            }
        }
        Records {
            run: self.run.clone(),
            tasks: tasks.into_iter().map(|number| (number, self.to_record(number))).collect(),
            pools: pools.into_iter().filter_map(|name| self.pools.by_name(name).cloned()).collect(),
            owners: owners.into_iter().filter_map(|id| self.owners.by_name(id).cloned()).collect(),
        }
    }
}
