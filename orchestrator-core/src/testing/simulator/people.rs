//! What people ask of a run, and commits that are refused.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::checks::Check;
use super::plans::GPU;
use super::{World, interrupted};
use crate::command::{Command, Grant};
use crate::event::Resolution;
use crate::id::{PoolName, TaskId};
use crate::money::Usd;
use crate::outcome::{Interruption, Outcome};
use crate::pipeline::AGENTS;
use crate::record::{ParkReason, TaskRecord};
use crate::scope::Scope;
use crate::task::TaskSpec;

impl World {
    pub(super) fn person(&mut self) -> Check {
        let command = self.persons_command();
        // A refusal is an answer too; the check after it shows that it changed nothing.
        drop(self.commit(&command));
        self.check()
    }

    pub(super) fn persons_command(&mut self) -> Command {
        let tasks: Vec<TaskRecord> = self.engine.tasks().collect();
        let at = self.dice.below(u32::try_from(tasks.len()).unwrap_or(u32::MAX)) as usize;
        let task = tasks[at].id.clone();
        let (actor, reason) = ("sim".to_owned(), "chance".to_owned());
        match self.dice.below(10) {
            0..=2 => {
                let dependents = self.dice.once_in(2);
                Command::Retry { task, dependents, actor, reason }
            }
            3 => {
                let how = if self.dice.once_in(2) { Resolution::Skip } else { Resolution::Approve };
                Command::Resolve { task, how, actor, reason }
            }
            4 if self.dice.once_in(2) => Command::Cancel { task, actor, reason },
            5 => {
                let pool = PoolName::parse(AGENTS).expect("a valid name");
                Command::LimitPool { pool, limit: 1 + self.dice.below(3) }
            }
            6 => Command::Pause { actor, reason },
            7 => Command::SetBudget { budget: Some(Usd::dollars(self.dice.below(60))) },
            8 if self.dice.once_in(2) => self.edit(&task, actor, reason),
            8 => Command::Drain { reason: ParkReason::Asked },
            _ => Command::Resume { actor },
        }
    }

    /// The task with something of it changed, now and then something that must stay.
    pub(super) fn edit(&mut self, task: &TaskId, actor: String, reason: String) -> Command {
        let spec = self.engine.spec(task).cloned();
        let mut spec = spec.unwrap_or_else(|| TaskSpec::new(task.clone()));
        match self.dice.below(8) {
            0 => spec.priority = 7,
            1 => spec.max_retries += 1,
            2 => spec.estimate = Some(Duration::from_secs(60 * u64::from(self.dice.below(90)))),
            3 => {
                let path = ["src", "src/b", "docs"][self.dice.below(3) as usize];
                spec.scope = Scope::parse([path]).ok();
            }
            4 => {
                let gpu = PoolName::parse(GPU).expect("a valid name");
                spec.needs.extend(NonZeroU32::new(1 + self.dice.below(3)).map(|many| (gpu, many)));
            }
            5 => spec.timeout = Some(Duration::from_secs(600)),
            6 if self.dice.once_in(3) => spec.depends_on.clear(),
            6 => {
                let others: Vec<TaskId> = self.engine.tasks().map(|task| task.id).collect();
                let count = u32::try_from(others.len()).unwrap_or(u32::MAX);
                spec.depends_on.push(others[self.dice.below(count) as usize].clone());
            }
            _ => spec.needs.clear(),
        }
        Command::Edit { spec: Arc::new(spec), actor, reason }
    }

    /// A commit that the store refuses leaves the engine as it was.
    pub(super) fn refused_commit(&mut self) -> Check {
        let before = self.engine.clone();
        self.batch_of_anything();
        if let (Some(disk), Some(commit)) = (&self.disk, self.engine.batch()) {
            disk.refuses(self.engine.id(), &commit)?;
        }
        self.engine.undo();
        self.note(|| "the commit is refused".to_owned());
        if !super::checks::same(&self.engine, &before, self.time()) {
            return Err("P4: a refused commit left something behind".to_owned());
        }
        self.check()
    }

    /// Submits some commands of every kind, whether they make sense or not.
    pub(super) fn batch_of_anything(&mut self) {
        for _ in 0..=self.dice.below(6) {
            let command = self.anything();
            let (id, now) = (self.command_id(), self.time());
            let answer = self.engine.submit(now, &id, &command);
            self.note(|| format!("{now}: uncommitted {command:?} -> {answer:?}"));
        }
    }

    pub(super) fn anything(&mut self) -> Command {
        let owner = self.owner();
        let grant = (!self.grants.is_empty()).then(|| {
            let count = u32::try_from(self.grants.len()).unwrap_or(u32::MAX);
            self.grants[self.dice.below(count) as usize].clone()
        });
        match (self.dice.below(12), grant) {
            (0, Some(grant)) => {
                let passed = grant.report(self.engine.id().clone(), Outcome::Passed);
                Command::Report(Box::new(passed))
            }
            (1, Some(grant)) => {
                let limit = interrupted(Interruption::UsageLimit);
                Command::Report(Box::new(grant.report(self.engine.id().clone(), limit)))
            }
            (2, Some(grant)) => {
                let outcome = Outcome::Question { text: "which?".to_owned() };
                Command::Report(Box::new(grant.report(self.engine.id().clone(), outcome)))
            }
            (3, Some(Grant { number: task, token, .. })) => Command::Stopped { task, token },
            (4, _) => match self.later.first() {
                Some(plan) => Command::AddPlan { plan: Arc::clone(plan) },
                None => Command::Settle,
            },
            (5, _) => self.opening(Some(owner.id)),
            (6, _) => Command::CloseDriver { owner: owner.id },
            (7 | 8, _) => self.persons_command(),
            (9, _) => Command::Settle,
            (10, _) => Command::Tick,
            (0..=3 | 11.., _) => Command::Claim { owner: owner.id },
        }
    }

    pub(super) fn another_plan(&mut self) -> Check {
        let Some(plan) = self.later.pop() else { return Ok(()) };
        self.follower.offer(Arc::clone(&plan));
        self.must(&Command::AddPlan { plan: Arc::clone(&plan) })?;
        // Who does not know whether a plan was added sends it again.
        self.must(&Command::AddPlan { plan })
    }

    pub(super) fn clock_jumps_back(&mut self) -> Check {
        let now = self.now;
        self.now /= 2;
        self.note(|| "the clock jumps back".to_owned());
        let lived = self.must(&Command::Tick).and_then(|()| self.claim());
        let lived = lived.and_then(|()| self.person());
        self.now = now;
        lived
    }
}
