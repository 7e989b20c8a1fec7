//! A small world at one moment, and all that can happen next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Exploration;
use crate::command::{Answer, Command, Grant, Refusal, StageReport};
use crate::engine::Engine;
use crate::event::Resolution;
use crate::id::{ChangeId, CommandId, FencingToken, OwnerId, RunId, TaskId};
use crate::lease::Owner;
use crate::money::{Cost, Usd};
use crate::outcome::{Candidate, Interruption, MergeIntent, Outcome, Restart};
use crate::pipeline::StageKind;
use crate::plan::Plan;
use crate::policy::RemainingPath;
use crate::record::Phase;
use crate::retry::RetryRules;
use crate::testing::Model;
use crate::testing::simulator::checks;
use crate::time::{ClockReading, Timestamp, WallTime};

/// Something that can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// The driver takes a stage.
    Claim,
    /// A driver that was taken for dead takes one.
    ClaimByFormer,
    /// A holder's stage ends, and it says so.
    End(FencingToken, End),
    /// A holder announces its merge.
    Intend(FencingToken),
    /// A holder merges what it announced.
    Merge(FencingToken),
    /// The last result of a task arrives again, or late.
    Again(TaskId),
    /// What ran under a stopping lease is ended.
    Stopped(TaskId),
    /// The driver dies, and another one takes over.
    Crash,
    /// Nothing happens until something is due.
    Wait,
    /// A person acts.
    Retry(TaskId),
    /// A person acts.
    Cancel(TaskId),
    /// A person acts.
    Skip(TaskId),
    /// A person acts.
    Edit(TaskId),
}

/// How a stage ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Passed,
    Rejected,
    Crashed,
    Question,
    /// The account is closed.
    UsageLimit,
    /// It passed, and nobody knows what that cost.
    Dearly,
}

/// A process that carries out a stage, whether or not its lease still lives.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) grant: Grant,
    pub(super) kind: StageKind,
    pub(super) intended: bool,
    pub(super) merged: bool,
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) engine: Engine,
    model: Model,
    pub(super) holders: Vec<Holder>,
    /// The last result of each task, which may come again.
    pub(super) sent: BTreeMap<TaskId, StageReport>,
    /// What the target holds.
    pub(super) merged: BTreeMap<TaskId, ChangeId>,
    pub(super) now: u64,
    pid: u32,
    pub(super) crashes: u8,
    pub(super) people: u8,
    again: bool,
    pub(super) edits: u8,
    pub(super) usage_limits: u8,
    pub(super) money: bool,
}

impl State {
    pub(super) fn new(
        plan: Arc<Plan>,
        rules: RetryRules,
        bound: &Exploration,
    ) -> Result<Self, String> {
        let Exploration { crashes, people, again, edits, usage_limits, money, .. } = *bound;
        let run = RunId::parse("explored").expect("a valid id");
        let (engine, model) = (Engine::new(run.clone()), Model::new(run));
        let (holders, sent, merged) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut state = Self {
            engine,
            model,
            holders,
            sent,
            merged,
            now: 0,
            pid: 1,
            crashes,
            people,
            again,
            edits,
            usage_limits,
            money,
        };
        for command in
            [Command::CreateRun { rules }, state.opening(None), Command::AddPlan { plan }]
        {
            state.tell(&command)?.map_err(|refusal| refusal.to_string())?;
        }
        Ok(state)
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        let mut all = vec![Action::Claim, Action::Wait];
        if self.pid > 1 {
            all.push(Action::ClaimByFormer);
        }
        if self.crashes > 0 {
            all.push(Action::Crash);
        }
        for holder in &self.holders {
            let token = holder.grant.token;
            if holder.kind != StageKind::Integrate {
                let ends = [End::Passed, End::Rejected, End::Crashed, End::Question].into_iter();
                let closes = (self.usage_limits > 0).then_some(End::UsageLimit);
                let is_dear = self.money && holder.grant.cap > Usd::ZERO;
                let dearly = is_dear.then_some(End::Dearly);
                all.extend(ends.chain(closes).chain(dearly).map(|end| Action::End(token, end)));
            } else if holder.merged {
                all.push(Action::End(token, End::Passed));
            } else {
                all.push(Action::Intend(token));
                all.extend([End::Rejected, End::Crashed].map(|end| Action::End(token, end)));
                if holder.intended {
                    all.push(Action::Merge(token));
                }
            }
        }
        all.extend(self.sent.keys().cloned().map(Action::Again));
        for task in self.engine.tasks() {
            if matches!(task.phase, Phase::Stopping { .. }) {
                all.push(Action::Stopped(task.id.clone()));
            }
            if self.people > 0 {
                let id = || task.id.clone();
                all.extend([Action::Retry(id()), Action::Cancel(id()), Action::Skip(id())]);
            }
            if self.edits > 0 {
                all.push(Action::Edit(task.id.clone()));
            }
        }
        all
    }

    /// The world after something happened.
    pub(super) fn after(&self, action: &Action) -> Result<Self, String> {
        let mut next = self.clone();
        next.act(action)?;
        next.check()?;
        Ok(next)
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Claim => self.claim(),
            Action::ClaimByFormer => {
                let owner = owner(self.pid - 1).id;
                match self.tell(&Command::Claim { owner })? {
                    Err(Refusal::NotDriver(_)) => Ok(()),
                    other => Err(format!("P1: a former driver's claim is answered {other:?}")),
                }
            }
            Action::End(token, end) => self.end(*token, *end),
            Action::Intend(token) => self.intend(*token),
            Action::Merge(token) => self.merge(*token),
            Action::Again(task) => {
                let report = self.sent[task].clone();
                self.report(report)
            }
            Action::Stopped(task) => self.stopped(task),
            Action::Crash => self.crash(),
            Action::Wait => {
                let wake = self.engine.next_wake().map_or(self.now, |wake| wake.0);
                self.now = self.now.max(wake);
                self.must(&Command::Tick)
            }
            Action::Retry(task) => {
                let (actor, reason) = words();
                self.person(&Command::Retry {
                    task: task.clone(),
                    dependents: false,
                    actor,
                    reason,
                })
            }
            Action::Cancel(task) => {
                let (actor, reason) = words();
                self.person(&Command::Cancel { task: task.clone(), actor, reason })
            }
            Action::Edit(task) => self.edit(task),
            Action::Skip(task) => {
                let ((actor, reason), how) = (words(), Resolution::Skip);
                self.person(&Command::Resolve { task: task.clone(), how, actor, reason })
            }
        }
    }

    /// As many retries are left then as before, so that worlds stay small.
    fn edit(&mut self, task: &TaskId) -> Result<(), String> {
        let spec = self.engine.spec(task).cloned();
        let mut spec = spec.ok_or("a task without a specification")?;
        spec.priority += 1;
        let before = self.engine.seq();
        let (actor, reason) = words();
        let answer = self.tell(&Command::Edit { spec: Arc::new(spec), actor, reason })?;
        self.edits -= u8::from(answer.is_ok() && self.engine.seq() > before);
        Ok(())
    }

    /// P10: what a grant sets aside is there.
    fn can_pay(&self, grant: &Grant) -> Result<(), String> {
        let run = self.engine.run().ok_or("no run")?;
        match run.budget {
            Some(budget) if grant.cap > Usd::ZERO && run.spent.plus(run.reserved) > budget => {
                Err(format!("P10: {} spent, {} set aside", run.spent, run.reserved))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn claim(&mut self) -> Result<(), String> {
        let owner = owner(self.pid).id;
        let answer = self.tell(&Command::Claim { owner })?;
        let grant = match answer {
            Ok(Answer::Granted { task, .. }) => {
                self.engine.grant(task).ok_or("P1: a grant has no lease")?
            }
            Ok(Answer::Nothing) => return Ok(()),
            other => return Err(format!("a claim is answered {other:?}")),
        };
        if self.holders.iter().any(|holder| holder.grant.task == grant.task) {
            return Err(format!("P1, P20: `{}` is granted while it still runs", grant.task));
        }
        self.can_pay(&grant)?;
        let stage = self.engine.pipeline(&grant.task).and_then(|line| line.stage(grant.stage));
        let kind = stage.map(|stage| stage.kind).ok_or("a stage was granted that is none")?;
        // Who is to merge asks first whether what was announced has happened.
        let merged = grant
            .intent
            .as_ref()
            .is_some_and(|intent| self.merged.get(&grant.task) == Some(&intent.merged));
        self.holders.push(Holder { grant, kind, intended: false, merged });
        Ok(())
    }

    fn holder(&self, token: FencingToken) -> Result<usize, String> {
        let at = self.holders.iter().position(|holder| holder.grant.token == token);
        at.ok_or_else(|| "no such holder".to_owned())
    }

    fn end(&mut self, token: FencingToken, end: End) -> Result<(), String> {
        let at = self.holder(token)?;
        let holder = self.holders.remove(at);
        self.usage_limits -= u8::from(end == End::UsageLimit);
        let report = self.report_of(&holder, end);
        self.may_come_again(&report, holder.grant.task);
        self.report(report)
    }

    fn may_come_again(&mut self, report: &StageReport, task: TaskId) {
        if self.again {
            self.sent.insert(task, report.clone());
        }
    }

    /// P2: a result counts under the live lease only.
    fn report(&mut self, report: StageReport) -> Result<(), String> {
        let counts = self.engine.record(report.task).is_some_and(
            |task| matches!(&task.phase, Phase::Leased(lease) if lease.token == report.token),
        );
        match self.tell(&Command::Report(Box::new(report)))? {
            Ok(Answer::Done) if counts => Ok(()),
            Ok(Answer::Refused(_)) if !counts => Ok(()),
            other => Err(format!("P2: a result (current: {counts}) is answered {other:?}")),
        }
    }

    fn intend(&mut self, token: FencingToken) -> Result<(), String> {
        let at = self.holder(token)?;
        let task = self.holders[at].grant.number;
        let answer = self.tell(&Command::IntendMerge { task, token, intent: intent(token) })?;
        self.holders[at].intended = answer == Ok(Answer::Done);
        Ok(())
    }

    /// The target takes a merge under the task's last token only: whoever comes later fences it.
    fn merge(&mut self, token: FencingToken) -> Result<(), String> {
        let at = self.holder(token)?;
        let task = self.holders[at].grant.task.clone();
        if self.engine.task(&task).is_some_and(|task| task.last_token != token) {
            return Ok(());
        }
        let merged = intent(token).merged;
        if let Some(first) = self.merged.insert(task.clone(), merged.clone())
            && first != merged
        {
            return Err(format!("P17: `{task}` is merged as {first} and as {merged}"));
        }
        self.holders[at].merged = true;
        Ok(())
    }

    fn stopped(&mut self, task: &TaskId) -> Result<(), String> {
        let token = self.engine.task(task).map(|task| task.last_token).unwrap_or_default();
        let number = self.engine.number(task).ok_or("a task without a number")?;
        if let Ok(at) = self.holder(token) {
            let holder = self.holders.remove(at);
            // Its last words may still be under way.
            let report = self.report_of(&holder, End::Passed);
            self.may_come_again(&report, holder.grant.task);
        }
        self.must(&Command::Stopped { task: number, token })
    }

    /// P5: the next driver knows what the store has, and what the last one started still runs.
    fn crash(&mut self) -> Result<(), String> {
        let snapshot = self.engine.snapshot().ok_or("no snapshot")?;
        self.engine = Engine::restore(&snapshot).map_err(|err| format!("P5: {err}"))?;
        self.crashes -= 1;
        let former = owner(self.pid).id;
        self.pid += 1;
        let opening = self.opening(Some(former));
        self.must(&opening)
    }

    fn person(&mut self, command: &Command) -> Result<(), String> {
        let before = self.engine.seq();
        let answer = self.tell(command)?;
        if answer.is_ok() && self.engine.seq() > before {
            self.people -= 1;
        }
        Ok(())
    }

    fn must(&mut self, command: &Command) -> Result<(), String> {
        self.tell(command)?.map(drop).map_err(|refusal| format!("{command:?}: {refusal}"))
    }

    /// Has the engine and the model do the same.
    fn tell(&mut self, command: &Command) -> Result<Result<Answer, Refusal>, String> {
        let id = CommandId::parse("explored").expect("a valid id");
        let now = Timestamp(self.now);
        let before = self.engine.clone();
        let answer = self.engine.submit(now, &id, command);
        self.engine.accept();
        if answer.is_err() && self.engine.seq() != before.seq() {
            return Err(format!("{command:?} is refused and changes something"));
        }
        checks::frame(command, &before, &self.engine)?;
        let modelled = self.model.step(now, command, &RemainingPath, &answer, &self.engine);
        modelled.map_err(|what| format!("by the model, {command:?}: {what}"))?;
        Ok(answer)
    }

    fn check(&self) -> Result<(), String> {
        let faults = [self.engine.audit(), self.model.differences(&self.engine)].concat();
        if let Some(fault) = faults.first() {
            return Err(fault.clone());
        }
        checks::dispatches(&self.engine)?;
        self.hangs()
    }

    /// P15: where nothing can happen, the run says so.
    fn hangs(&self) -> Result<(), String> {
        let is_quiet = self.engine.held().next().is_none() && self.engine.next_wake().is_none();
        if is_quiet && self.engine.settlement(Timestamp(self.now)).is_none() {
            let can_run = |task: &TaskId| {
                let reasons = self.engine.explain(Timestamp(self.now), task);
                reasons == [crate::engine::Reason::Ready]
            };
            if !self.engine.tasks().any(|task| can_run(&task.id)) {
                return Err("P15: nothing can happen, and the run does not say so".to_owned());
            }
        }
        Ok(())
    }

    fn report_of(&self, holder: &Holder, end: End) -> StageReport {
        let grant = &holder.grant;
        let merged = self.merged.get(&grant.task);
        let outcome = match end {
            End::Passed | End::Dearly => Outcome::Passed,
            End::Rejected => {
                // Each failure another one, or the second would end the task.
                let feedback = "x".repeat(grant.feedback.len() + 1);
                Outcome::Rejected { feedback, restart: Restart::OnCandidate }
            }
            End::Crashed => Outcome::Interrupted { reason: Interruption::Crashed, retry_at: None },
            End::UsageLimit => {
                Outcome::Interrupted { reason: Interruption::UsageLimit, retry_at: None }
            }
            End::Question => Outcome::Question { text: "which?".to_owned() },
        };
        let candidate =
            (outcome == Outcome::Passed && holder.kind == StageKind::Run).then(|| Candidate {
                change: change("change", grant.token),
                base: change("base", FencingToken(0)),
            });
        let cost = match end {
            End::Dearly => Cost::AtLeast(Usd::ZERO),
            End::Passed | End::Rejected | End::Crashed | End::Question | End::UsageLimit => {
                let is_dear = self.money && grant.cap > Usd::ZERO;
                if is_dear { Cost::Known(Usd::dollars(1)) } else { Cost::NONE }
            }
        };
        StageReport {
            candidate,
            cost,
            merged: merged
                .filter(|_| end == End::Passed && holder.kind == StageKind::Integrate)
                .cloned(),
            ..grant.report(self.engine.id().clone(), outcome)
        }
    }

    fn opening(&self, ended: Option<OwnerId>) -> Command {
        let (boot_id, wall) = ("boot".to_owned(), WallTime(0));
        Command::OpenDriver {
            owner: owner(self.pid),
            reading: ClockReading { boot_id, boot_ms: self.now, wall },
            ttl: Duration::from_secs(3_600),
            token_floor: FencingToken(0),
            ended,
        }
    }
}

fn owner(pid: u32) -> Owner {
    let id = OwnerId::parse(&format!("explorer/{pid}")).expect("a valid id");
    Owner { id, host: "here".to_owned(), boot_id: "boot".to_owned(), pid, start_time: 0 }
}

fn words() -> (String, String) {
    ("me".to_owned(), "why not".to_owned())
}

fn change(name: &str, token: FencingToken) -> ChangeId {
    ChangeId::parse(&format!("{name}-{token}")).expect("a valid id")
}

fn intent(token: FencingToken) -> MergeIntent {
    MergeIntent { onto: change("onto", FencingToken(0)), merged: change("merged", token) }
}
