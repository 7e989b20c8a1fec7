//! The engine under measurement: every call of its API that the bench makes.

use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{
    Answer, ClockReading, Command, CommandId, Cost, Engine, FencingToken, Outcome, Owner, OwnerId,
    Plan, RetryRules, RunId, StageReport, TaskId, TaskNo, Timestamp, WallTime,
};

/// What a claim gives, and a result needs.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Granted {
    task: TaskNo,
    stage: u8,
    attempt: u32,
    token: FencingToken,
}

impl Granted {
    /// What stands where there is none.
    pub(crate) const NONE: Self =
        Self { task: TaskNo(0), stage: 0, attempt: 0, token: FencingToken(0) };
}

/// An engine with a driver, and what the bench says again and again.
#[derive(Clone)]
pub(crate) struct Subject {
    engine: Engine,
    id: CommandId,
    claim: Command,
    /// Said again and again, with other numbers.
    report: Command,
}

impl Subject {
    /// An engine with a run and a driver, and no tasks yet.
    pub(crate) fn new() -> Self {
        let engine = Engine::new(RunId::parse("bench").expect("a valid id"));
        let id = CommandId::parse("bench").expect("a valid id");
        let owner = owner();
        let claim = Command::Claim { owner: owner.id.clone() };
        let report = Command::Report(Box::new(StageReport {
            run: engine.id().clone(),
            task: TaskNo(0),
            stage: 0,
            attempt: 0,
            token: FencingToken(0),
            content: None,
            outcome: Outcome::Passed,
            cost: Cost::NONE,
            session: None,
            candidate: None,
            merged: None,
            kept: None,
            retry_at: None,
        }));
        let mut subject = Self { engine, id, claim, report };
        let (boot_id, wall) = ("boot".to_owned(), WallTime(0));
        let opening = Command::OpenDriver {
            owner,
            reading: ClockReading { boot_id, boot_ms: 0, wall },
            ttl: Duration::from_secs(60),
            token_floor: FencingToken(0),
            ended: None,
        };
        subject.submit(&Command::CreateRun { rules: RetryRules::default() });
        subject.submit(&opening);
        subject.accept();
        subject
    }

    /// Adds a plan and makes it final.
    pub(crate) fn add(&mut self, plan: Arc<Plan>) {
        let answer = self.submit(&Command::AddPlan { plan });
        assert_eq!(answer, Some(Answer::Done), "the plan was not taken");
        self.accept();
    }

    pub(crate) fn with(plan: Arc<Plan>) -> Self {
        let mut subject = Self::new();
        subject.add(plan);
        subject
    }

    /// Takes the next stage that can run.
    #[inline]
    pub(crate) fn claim(&mut self) -> Option<Granted> {
        match self.engine.submit(Timestamp(1), &self.id, &self.claim) {
            Ok(Answer::Granted { task, stage, attempt, token }) => {
                Some(Granted { task, stage, attempt, token })
            }
            Ok(_) => None,
            Err(refusal) => panic!("a claim was refused: {refusal}"),
        }
    }

    /// Says that a stage passed.
    #[inline]
    pub(crate) fn pass(&mut self, grant: Granted) {
        let Command::Report(report) = &mut self.report else { return };
        report.task = grant.task;
        report.stage = grant.stage;
        report.attempt = grant.attempt;
        report.token = grant.token;
        match self.engine.submit(Timestamp(1), &self.id, &self.report) {
            Ok(answer) => assert!(matches!(answer, Answer::Done), "a result was not taken"),
            Err(refusal) => panic!("a result was refused: {refusal}"),
        }
    }

    /// Says that the agent of a stage lacks information.
    pub(crate) fn ask(&mut self, grant: Granted) {
        self.set_outcome(Outcome::Question { text: "which?".to_owned() });
        self.pass(grant);
        self.set_outcome(Outcome::Passed);
    }

    fn set_outcome(&mut self, outcome: Outcome) {
        if let Command::Report(report) = &mut self.report {
            report.outcome = outcome;
        }
    }

    /// Has a task tried again.
    pub(crate) fn retry(&mut self, task: TaskId) {
        let (actor, reason) = ("bench".to_owned(), "again".to_owned());
        self.submit(&Command::Retry { task, dependents: false, actor, reason });
    }

    /// Makes what was decided final, as a driver does once the store has it.
    pub(crate) fn accept(&mut self) {
        self.engine.accept();
    }

    pub(crate) fn blocked(&self) -> u32 {
        self.engine.blocked()
    }

    fn submit(&mut self, command: &Command) -> Option<Answer> {
        self.engine.submit(Timestamp(1), &self.id, command).ok()
    }
}

fn owner() -> Owner {
    let id = OwnerId::parse("bench").expect("a valid id");
    Owner { id, host: "here".to_owned(), boot_id: "boot".to_owned(), pid: 1, start_time: 1 }
}
