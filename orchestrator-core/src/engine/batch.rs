//! Several commands as one commit, undone as a whole when the commit is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use super::body::Body;
use super::draft::{Draft, Happening, What};
use super::specs::Specs;
use super::table::{Saved, Table};
use crate::command::{Answer, Command, Refusal};
use crate::event::EventKind;
use crate::id::{BlobHash, CommandId, FencingToken, OwnerId, PoolName, Seq};
use crate::money::Usd;
use crate::mutant::{Mutant, is_on};
use crate::plan::Links;
use crate::port::Commit;
use crate::record::{Counts, OwnerRecord, PassedOver, PoolRecord, Records, RunRecord};
use crate::task::TaskSpec;
use crate::time::Timestamp;

/// What was decided since the last commit.
#[derive(Debug, Clone, Default)]
pub(super) struct Batch {
    /// Whether anything was.
    is_open: bool,
    expected: Seq,
    commands: Vec<(CommandId, Answer)>,
    /// There is one from the first command on; apart, so that it is lent to a decision by its address.
    draft: Option<Box<Draft>>,
    /// The dependencies of a plan whose event is about to be applied.
    pub(super) links: Option<Box<Links>>,
    undo: Vec<Undo>,
    /// What the run added up to at the start.
    sums: Option<Sums>,
    /// The whole run at the start, if more than its sums changed.
    run: Option<Option<Box<RunRecord>>>,
}

/// How something was before a change.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Task(u32, Saved),
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
#[derive(Debug, Clone, Copy)]
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
    const fn of(run: &RunRecord) -> Self {
        Self {
            last_at: run.last_at,
            last_token: run.last_token,
            spent: run.spent,
            reserved: run.reserved,
            first_stage_failures: run.first_stage_failures,
            passed_over: run.passed_over,
            counts: run.counts,
        }
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
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Notes how a task was before a change.
    pub(super) fn task_changes(&mut self, table: &Table, task: u32) {
        if self.is_open {
            self.undo.push(Undo::Task(task, table.save(task)));
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

    pub(super) fn sums_change(&mut self, run: &RunRecord) {
        if self.is_open && self.sums.is_none() {
            self.sums = Some(Sums::of(run));
        }
    }

    pub(super) fn run_changes(&mut self, run: Option<&RunRecord>) {
        if let Some(run) = run {
            self.sums_change(run);
        }
        if self.is_open && self.run.is_none() {
            self.run = Some(run.cloned().map(Box::new));
        }
    }
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
        if matches!(command, Command::Claim { .. }) {
            self.park(now);
        }
        let mut draft = self.batch.draft.take().unwrap_or_default();
        let before = draft.lengths();
        let answer = self.decide_into(&mut draft, now, command);
        if answer.is_err() {
            draft.cut(before);
        }
        if draft.lengths() == before {
            self.batch.draft = Some(draft);
            return answer;
        }
        if matches!(command, Command::AddPlan { .. } | Command::Edit { .. }) {
            self.keep_content(&draft.events[before.0..], command);
        }
        if !self.batch.is_open {
            self.batch.is_open = true;
            self.batch.expected = self.seq;
        }
        self.batch.links = draft.links.take();
        for event in &draft.events[before.0..] {
            self.happen(event);
        }
        if matches!(command, Command::Prune) {
            self.rank();
        }
        self.batch.draft = Some(draft);
        if let Ok(answer) = &answer {
            self.batch.commands.push((id.clone(), *answer));
        }
        answer
    }

    /// Keeps the plan or the edit that a command brings under the address that its event names.
    fn keep_content(&mut self, events: &[Happening], command: &Command) {
        for event in events {
            let What::Other(kind) = &event.what else { continue };
            match (&**kind, command) {
                (EventKind::PlanAdded { plan: hash, .. }, Command::AddPlan { plan }) => {
                    self.bodies.insert(hash.clone(), Body::Plan(Arc::clone(plan)));
                }
                (EventKind::Edited { spec: hash, .. }, Command::Edit { spec, .. }) => {
                    self.bodies.insert(hash.clone(), Body::Amendment(Arc::clone(spec)));
                }
                _ => {}
            }
        }
    }

    /// The present batch as a commit; `None` when there is nothing to write.
    #[must_use]
    pub fn batch(&self) -> Option<Commit> {
        let batch = self.batch.is_open.then_some(&self.batch)?;
        let draft = batch.draft.as_ref()?;
        Some(Commit {
            expected: batch.expected,
            commands: batch.commands.clone(),
            events: draft.events.iter().map(|event| self.published(event)).collect(),
            records: self.touched(&batch.undo),
            blobs: draft.blobs.clone(),
        })
    }

    /// Makes the present batch final: the store has it.
    pub fn accept(&mut self) {
        let batch = &mut self.batch;
        batch.is_open = false;
        batch.commands.clear();
        if let Some(draft) = &mut batch.draft {
            draft.cut((0, 0));
        }
        self.table.forget();
        if !is_on(Mutant::CommittedIsUndone) {
            batch.undo.clear();
        }
        (batch.sums, batch.run) = (None, None);
    }

    /// Takes the present batch back: the engine is as it was before.
    pub fn undo(&mut self) {
        if !std::mem::take(&mut self.batch.is_open) {
            return;
        }
        let mut undo = std::mem::take(&mut self.batch.undo);
        if is_on(Mutant::UndoneForwards) {
            undo.reverse();
        }
        for change in undo.drain(..).rev() {
            match change {
                Undo::Task(number, saved) => {
                    if !is_on(Mutant::RefusedCommitLeavesIndex) {
                        self.restore_task(number, saved);
                    }
                }
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
        }
        if let (Some(sums), Some(run)) = (self.batch.sums.take(), &mut self.run)
            && !is_on(Mutant::SumsNotUndone)
        {
            sums.restore(run);
        }
        self.seq = self.batch.expected;
        self.accept();
    }

    /// The present form of each record that was changed.
    fn touched(&self, changes: &[Undo]) -> Records {
        let mut tasks = BTreeSet::new();
        let mut pools = BTreeSet::new();
        let mut owners = BTreeSet::new();
        for change in changes {
            match change {
                Undo::Task(number, _) => {
                    tasks.insert(*number);
                }
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
