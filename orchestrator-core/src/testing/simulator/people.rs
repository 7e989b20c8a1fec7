//! What people ask of a run, and commits that are refused.

use std::sync::Arc;

use super::checks::Check;
use super::plans::GPU;
use super::{World, interrupted};
use crate::command::{Command, Grant, Refusal};
use crate::event::Resolution;
use crate::id::PoolName;
use crate::money::Usd;
use crate::outcome::{Interruption, Outcome};
use crate::pipeline::AGENTS;
use crate::plan::PlanFault;
use crate::record::{ParkReason, PoolBounds, TaskRecord};
use crate::task::TaskSpec;
use crate::time::Timestamp;

impl World {
    pub(super) fn person(&mut self) -> Check {
        let command = self.persons_command();
        // A refusal is an answer too; the check after it shows that it changed nothing.
        drop(self.commit(&command));
        self.check()?;
        if command != Command::Prune {
            return Ok(());
        }
        // What was pruned is still what was added: who sends it again changes nothing.
        let plans = self.model.plans().to_vec();
        plans.into_iter().try_for_each(|plan| self.must(&Command::AddPlan { plan }))
    }

    pub(super) fn persons_command(&mut self) -> Command {
        let tasks: Vec<TaskRecord> = self.engine.tasks().collect();
        let at = self.one_of(tasks.len());
        let task = tasks[at].id.clone();
        let (actor, reason) = ("sim".to_owned(), "chance".to_owned());
        match self.dice.below(10) {
            0..=2 => {
                let dependents = self.dice.once_in(2);
                Command::Retry { task, dependents, actor, reason }
            }
            3 => {
                let ways = [Resolution::Skip, Resolution::ByHand, Resolution::Approve];
                let how = ways[self.one_of(3)];
                Command::Resolve { task, how, actor, reason }
            }
            4 if self.dice.once_in(2) => Command::Cancel { task, actor, reason },
            5 => {
                let pool = PoolName::parse(AGENTS).expect("a valid name");
                Command::LimitPool { pool, limit: 1 + self.dice.below(3) }
            }
            6 => Command::Pause { actor, reason },
            7 if self.dice.once_in(3) => self.bound(),
            7 if self.dice.once_in(3) => {
                Command::SetPilot { tasks: self.dice.once_in(3).then(|| 1 + self.dice.below(4)) }
            }
            7 => Command::SetBudget { budget: Some(Usd::dollars(self.dice.below(60))) },
            8 if self.dice.once_in(2) => {
                let change = self.any_change();
                let spec = self.engine.spec(&task).cloned();
                change.of(&spec.unwrap_or_else(|| TaskSpec::new(task)), &tasks)
            }
            8 if self.dice.once_in(2) => Command::Prune,
            8 => Command::Drain { reason: ParkReason::Asked },
            _ => Command::Resume { actor },
        }
    }

    /// A pool with other bounds than before, closed for a while, or open again.
    pub(super) fn bound(&mut self) -> Command {
        let pool = [AGENTS, GPU][self.dice.below(2) as usize];
        let pool = PoolName::parse(pool).expect("a valid name");
        let budget = self.dice.once_in(2).then(|| Usd::dollars(self.dice.below(40)));
        if self.dice.once_in(2) {
            let until = Timestamp(self.now + u64::from(self.dice.below(4_000_000)));
            let opens = self.dice.once_in(4);
            let closing = Command::ClosePool { pool: pool.clone(), until };
            return if opens { Command::OpenPool { pool } } else { closing };
        }
        let in_flight_max = self.dice.once_in(2).then(|| self.dice.below(4));
        Command::BoundPool { pool, bounds: PoolBounds { budget, in_flight_max } }
    }

    /// A commit that the store refuses leaves the engine as it was.
    pub(super) fn refused_commit(&mut self, submit: impl FnOnce(&mut Self)) -> Check {
        let before = self.engine.clone();
        submit(self);
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
            self.submit(&command);
        }
    }

    /// Submits a command that will not be committed.
    pub(super) fn submit(&mut self, command: &Command) {
        let (id, now) = (self.command_id(), self.time());
        let answer = self.engine.submit(now, &id, command);
        self.note(|| format!("{now}: uncommitted {command:?} -> {answer:?}"));
    }

    pub(super) fn anything(&mut self) -> Command {
        let owner = self.owner();
        let grant = (!self.grants.is_empty()).then(|| {
            let at = self.one_of(self.grants.len());
            self.grants[at].clone()
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
        let first = self.commit(&Command::AddPlan { plan: Arc::clone(&plan) });
        self.check()?;
        if let Err(Refusal::Plan(faults)) = &first {
            let is_other = |fault: &PlanFault| matches!(fault, PlanFault::OtherBudget { .. });
            let by_budget = faults.iter().all(is_other);
            return if by_budget { Ok(()) } else { Err(format!("a plan was refused: {faults:?}")) };
        }
        // Who does not know whether a plan was added sends it again.
        self.must(&Command::AddPlan { plan })
    }
}
