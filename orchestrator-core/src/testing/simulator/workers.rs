//! Who carries out what is granted: they pass, fail, hang, lie, answer late and twice, and die.

use std::sync::Arc;

use super::checks::Check;
use super::conduct::{Act, Amiss, Conduct};
use super::plans::GPU;
use super::{World, candidate};
use crate::command::{Answer, Command, Grant, StageReport};
use crate::engine::Engine;
use crate::id::{BlobHash, ChangeId, FencingToken, PoolName, RunId, SessionId, TaskId, TaskNo};
use crate::money::{Cost, Usd};
use crate::outcome::{MergeIntent, Outcome};
use crate::pipeline::StageKind;
use crate::plan::Plan;
use crate::record::{Phase, TaskRecord};
use crate::retry::RetryRules;
use crate::time::Timestamp;

impl World {
    pub(super) fn claim(&mut self) -> Check {
        let before = self.engine.clone();
        let owner = self.owner().id;
        let answer = self.commit(&Command::Claim { owner });
        match answer {
            Ok(Answer::Granted { task, token, .. }) => {
                let grant = self.engine.grant(task).ok_or("P1: a grant has no lease")?;
                if grant.token != token {
                    return Err(format!("P1: token {token} was granted, {} lives", grant.token));
                }
                self.check_grant(&before, &grant)?;
                self.grants.push(grant);
                Ok(())
            }
            Ok(Answer::Nothing) => self.check_nothing(&before),
            Ok(other) => Err(format!("a claim was answered {other:?}")),
            Err(refusal) => Err(format!("a claim was refused: {refusal}")),
        }
    }

    /// A supervisor claims what it chose by itself.
    pub(super) fn claim_one(&mut self) -> Check {
        let (before, owner) = (self.engine.clone(), self.owner().id);
        let tasks: Vec<TaskId> = before.tasks().map(|task| task.id).collect();
        let at = self.one_of(tasks.len());
        let task = tasks[at].clone();
        let is_ready =
            before.explain(self.time_of(&before), &task) == [crate::engine::Reason::Ready];
        let listed = before.dispatchable(self.time_of(&before), usize::MAX);
        if !is_ready && listed.contains(&task) {
            return Err(format!("P11: `{task}` was said to be next and is not ready"));
        }
        match self.commit(&Command::ClaimTask { owner, task: task.clone() }) {
            Ok(Answer::Granted { task: number, .. }) if is_ready => {
                let grant = self.engine.grant(number).ok_or("P1: a grant has no lease")?;
                self.greatest_token = grant.token;
                self.grants.push(grant);
                Ok(())
            }
            Ok(Answer::Nothing) if !is_ready => Ok(()),
            other => Err(format!("P11: `{task}` (ready: {is_ready}) was claimed: {other:?}")),
        }
    }

    /// A holder says what it hands out.
    pub(super) fn dispatch(&mut self, at: usize) -> Check {
        let Some(grant) = self.grants.get(at) else { return Ok(()) };
        let (task, token) = (grant.number, grant.token);
        let is_live = self.engine.grant(task).is_some_and(|live| live.token == token);
        if !is_live {
            return Ok(());
        }
        let content = BlobHash::of(&token.0.to_le_bytes());
        self.must(&Command::Dispatch { task, token, content })
    }

    /// P1, P3, P8, P9, P10, P11 at a grant.
    pub(super) fn check_grant(&mut self, before: &Engine, grant: &Grant) -> Check {
        if grant.token <= self.greatest_token {
            return Err(format!("P1: token {} is not greater than the last", grant.token));
        }
        self.greatest_token = grant.token;
        super::checks::grant(before, self.time_of(before), grant)
    }

    /// P11: nothing was granted, so nothing can run.
    pub(super) fn check_nothing(&self, before: &Engine) -> Check {
        let ready = |task: &TaskId| {
            before.explain(self.time_of(before), task) == [crate::engine::Reason::Ready]
        };
        match before.tasks().find(|task| ready(&task.id)) {
            Some(task) => Err(format!("P11: `{}` could run and was not granted", task.id)),
            None => Ok(()),
        }
    }

    /// One of the stages under way ends.
    pub(super) fn answer(&mut self) -> Check {
        if self.grants.is_empty() {
            return Ok(());
        }
        let at = self.one_of(self.grants.len());
        let grant = self.grants.swap_remove(at);
        let report = self.work(&grant)?;
        report.map_or(Ok(()), |report| self.first_report(report))
    }

    /// A result that may be sent again.
    pub(super) fn first_report(&mut self, report: StageReport) -> Check {
        self.sent.push(report.clone());
        self.report(report)
    }

    pub(super) fn report(&mut self, report: StageReport) -> Check {
        let before = self.engine.record(report.task);
        let counts = before.as_ref().is_some_and(|task| match &task.phase {
            Phase::Leased(lease) => {
                lease.token == report.token
                    && task.stage == report.stage
                    && task.attempt == report.attempt
                    && task.content == report.content
            }
            Phase::Open
            | Phase::Deferred { .. }
            | Phase::Stopping { .. }
            | Phase::Done(_)
            | Phase::Escalated(_)
            | Phase::Cancelled => false,
        });
        let task = report.task;
        self.log.is_reported(&report);
        let answer = self.commit(&Command::Report(Box::new(report)));
        let after = self.engine.record(task).map(|task| task.phase);
        match answer {
            Ok(Answer::Done) if counts => Ok(()),
            Ok(Answer::Refused(_)) if !counts && after == before.map(|task| task.phase) => Ok(()),
            other => Err(format!("P2: a result (current: {counts}) was answered {other:?}")),
        }
    }

    /// What the holder of a grant comes to; `None` when it never says.
    pub(super) fn work(&mut self, grant: &Grant) -> Result<Option<StageReport>, String> {
        let mut conduct = self.any_conduct();
        if self.healed {
            conduct.act = Act::Passes;
        }
        self.carry_out(grant, &conduct)
    }

    /// What the holder of a grant comes to that behaves like this.
    pub(super) fn carry_out(
        &mut self,
        grant: &Grant,
        conduct: &Conduct,
    ) -> Result<Option<StageReport>, String> {
        let mut report = grant.report(self.engine.id().clone(), Outcome::Passed);
        report.content = self.engine.record(grant.number).and_then(|task| task.content);
        if let Some(intent) = &grant.intent
            && self.merged.get(&grant.task) == Some(&intent.merged)
        {
            // A holder asks what became of an announced merge before it does anything else.
            report.merged = Some(intent.merged.clone());
            return Ok(Some(report));
        }
        let Some(outcome) = conduct.outcome() else {
            self.note(|| format!("token {} hangs", grant.token));
            return Ok(None);
        };
        report.outcome = outcome;
        if let Act::UsageLimit { minutes: Some(minutes) } = conduct.act {
            let at = self.now.saturating_add_signed(i64::from(minutes) * 60_000);
            report.retry_at = Some(Timestamp(at));
        } else if let Act::Suspended { minutes: Some(minutes) } = conduct.act {
            report.retry_at = Some(Timestamp(self.now + 60_000 * u64::from(minutes)));
        }
        let spent = Usd(grant.cap.0.min(1_000_000) * u64::from(conduct.spent) / 1_000);
        report.cost = if conduct.is_part { Cost::AtLeast(spent) } else { Cost::Known(spent) };
        let pipeline = self.engine.pipeline(&grant.task);
        let kind = pipeline.and_then(|line| line.stage(grant.stage)).map(|stage| stage.kind);
        if kind == Some(StageKind::Run) && conduct.spent.is_multiple_of(2) {
            report.session = SessionId::parse(&format!("said-{}", grant.token)).ok();
        }
        if report.outcome == Outcome::Passed {
            match kind {
                Some(StageKind::Run) => report.candidate = Some(candidate(grant)?),
                Some(StageKind::Integrate) => return self.merge(grant, report, &conduct.act),
                Some(StageKind::Verify | StageKind::Review | StageKind::Gate) | None => {}
            }
        }
        Ok(Some(report))
    }

    /// Merges as the driver does: announce, move; the holder may die between any two.
    fn merge(
        &mut self,
        grant: &Grant,
        mut report: StageReport,
        act: &Act,
    ) -> Result<Option<StageReport>, String> {
        let merged =
            ChangeId::parse(&format!("merged-{}", grant.token)).map_err(|e| e.to_string())?;
        let onto = ChangeId::parse("onto").map_err(|e| e.to_string())?;
        let intent = MergeIntent { onto, merged: merged.clone() };
        let (task, token) = (grant.number, grant.token);
        let answer = self.commit(&Command::IntendMerge { task, token, intent });
        if answer != Ok(Answer::Done) {
            return Ok(None);
        }
        if *act == Act::DiesBeforeMerge {
            self.note(|| format!("token {token} dies before it merges"));
            return Ok(None);
        }
        if let Some(first) = self.merged.insert(grant.task.clone(), merged.clone()) {
            return Err(format!("P17: `{}` was merged as {first} and as {merged}", grant.task));
        }
        if *act == Act::DiesAfterMerge {
            self.note(|| format!("token {token} dies after it merged"));
            return Ok(None);
        }
        report.merged = Some(merged);
        Ok(Some(report))
    }

    pub(super) fn answer_again(&mut self, at: usize) -> Check {
        let Some(report) = self.sent.get(at).cloned() else { return Ok(()) };
        self.note(|| format!("token {} answers again", report.token));
        self.report(report)
    }

    pub(super) fn pass_time(&mut self) -> Check {
        self.now += u64::from(self.dice.below(4_000_000));
        self.must(&Command::Tick)?;
        self.end_stopping()
    }

    /// A holder's result names something that its lease is not for, or nothing that there is.
    pub(super) fn answer_amiss(&mut self, at: usize, how: Amiss) -> Check {
        let Some(grant) = self.grants.get(at).cloned() else { return Ok(()) };
        let mut report = grant.report(self.engine.id().clone(), Outcome::Passed);
        match how {
            Amiss::Stage => report.stage = report.stage.wrapping_add(1),
            Amiss::Attempt => report.attempt += 1,
            Amiss::Task => report.task = TaskNo(u32::MAX),
            Amiss::Content => report.content = Some(BlobHash::of(b"something else")),
            Amiss::Run => report.run = RunId::parse("another").map_err(|err| err.to_string())?,
        }
        self.note(|| format!("token {} answers amiss", report.token));
        match self.commit(&Command::Report(Box::new(report))) {
            Ok(Answer::Refused(_)) => self.check(),
            other => Err(format!("P2: a result that fits no lease was answered {other:?}")),
        }
    }

    /// A message that nobody of this world sends: about a task that has no such lease, or has ended.
    pub(super) fn stray(&mut self) -> Check {
        let tasks: Vec<TaskRecord> = self.engine.tasks().collect();
        let at = self.one_of(tasks.len());
        let Some(number) = self.engine.number(&tasks[at].id) else { return Ok(()) };
        let (phase, token) = (tasks[at].phase.as_str(), tasks[at].last_token);
        let onto = ChangeId::parse("onto").map_err(|err| err.to_string())?;
        let intent = MergeIntent { merged: onto.clone(), onto };
        let command = match (self.dice.below(5), phase) {
            (3, _) => Command::Supersede { task: number, token },
            (4, _) => Command::Dispatch { task: number, token, content: BlobHash::of(b"stray") },
            (0, "leased") | (1, "open" | "deferred" | "done" | "escalated" | "cancelled") => {
                Command::Stopped { task: number, token }
            }
            (0, _) => Command::IntendMerge { task: number, token, intent },
            _ => self.run_command(),
        };
        // Whatever is answered: the model says whether that is right.
        drop(self.commit(&command));
        self.check()
    }

    /// A command about the run as a whole.
    pub(super) fn run_command(&mut self) -> Command {
        match self.dice.below(12) {
            9 | 10 => self.bound(),
            11 => Command::SetPilot { tasks: Some(self.dice.below(6)) },
            0 | 2 => Command::CreateRun { rules: RetryRules::default() },
            3 => Command::Pause { actor: "sim".to_owned(), reason: "chance".to_owned() },
            1 => Command::SetBudget { budget: Some(Usd::dollars(20 + self.dice.below(60))) },
            4 => Command::Resume { actor: "sim".to_owned() },
            5 => Command::AddPlan { plan: Arc::new(Plan::default()) },
            6 => {
                let pool = PoolName::parse(GPU).expect("a valid name");
                Command::LimitPool { pool, limit: 2 + self.dice.below(2) }
            }
            _ => Command::Settle,
        }
    }

    /// The processes of lost leases are found and ended.
    pub(super) fn end_stopping(&mut self) -> Check {
        for (task, token) in self.stopping() {
            if !self.healed && self.dice.once_in(4) {
                // Nobody has come to it yet.
                continue;
            }
            let spent = Usd(u64::from(self.dice.below(9_000_000)));
            let says = self.dice.once_in(3);
            self.end_one(task, token, spent, says)?;
        }
        Ok(())
    }

    /// The leases that are being stopped.
    pub(super) fn stopping(&self) -> Vec<(TaskNo, FencingToken)> {
        let held = self.engine.held();
        let stopping = held.filter(|task| matches!(task.phase, Phase::Stopping { .. }));
        stopping.filter_map(|task| Some((self.engine.number(&task.id)?, task.last_token))).collect()
    }

    /// What ran under a lease is found and ended. Its holder may still say something, before it is
    /// stopped or long after.
    pub(super) fn end_one(
        &mut self,
        task: TaskNo,
        token: FencingToken,
        spent: Usd,
        says: bool,
    ) -> Check {
        let at = self.grants.iter().position(|grant| grant.token == token);
        if let Some(grant) = at.map(|at| self.grants.swap_remove(at)) {
            let mut late = grant.report(self.engine.id().clone(), Outcome::Passed);
            late.cost = Cost::Known(spent);
            self.sent.push(late.clone());
            if says {
                self.report(late)?;
            }
        }
        self.must(&Command::Stopped { task, token })
    }
}
