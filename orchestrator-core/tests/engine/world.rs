//! An engine whose every command is committed at once, and short words for what is asked of it.

use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{
    Answer, Candidate, Cause, ChangeId, ClockReading, Command, CommandId, Engine, EventKind,
    FencingToken, Grant, Interruption, Outcome, Owner, OwnerId, Phase, Plan, Restart, RetryRules,
    RunId, RunState, StageReport, TaskId, TaskSpec, Timestamp, VerifyCommand, WallTime,
};

pub(crate) fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

pub(crate) fn owner(pid: u32) -> Owner {
    let id = OwnerId::parse(&format!("host/{pid}")).unwrap();
    Owner { id, host: "host".into(), boot_id: "boot".into(), pid, start_time: 0 }
}

pub(crate) fn plan(edges: &[(&str, &[&str])]) -> Plan {
    let tasks = edges.iter().map(|(name, depends_on)| {
        let mut spec = TaskSpec::new(id(name));
        spec.depends_on = depends_on.iter().map(|name| id(name)).collect();
        spec.verify = Some(VerifyCommand::Shell("true".into()));
        spec
    });
    Plan { tasks: tasks.collect(), ..Plan::default() }
}

/// An engine whose every command is committed at once.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) now: u64,
    pub(crate) commands: u64,
    pub(crate) events: Vec<EventKind>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        Self::with_rules(plan, RetryRules::default())
    }

    pub(crate) fn with_rules(plan: Plan, rules: RetryRules) -> Self {
        let engine = Engine::new(RunId::parse("test").unwrap());
        let mut world = Self { engine, now: 0, commands: 0, events: Vec::new() };
        world.tell(&Command::CreateRun { rules });
        world.open(1, None);
        world.tell(&Command::AddPlan { plan: Arc::new(plan) });
        world
    }

    pub(crate) fn tell(&mut self, command: &Command) -> Answer {
        self.commands += 1;
        let name = CommandId::parse(&format!("c{}", self.commands)).unwrap();
        let answer = self.engine.submit(Timestamp(self.now), &name, command).unwrap();
        if let Some(commit) = self.engine.batch() {
            self.events.extend(commit.events.into_iter().map(|event| event.kind));
            self.engine.accept();
        }
        assert_eq!(self.engine.audit(), Vec::<String>::new(), "after {command:?}");
        answer
    }

    pub(crate) fn open(&mut self, pid: u32, ended: Option<OwnerId>) {
        let reading = ClockReading { boot_id: "boot".into(), boot_ms: self.now, wall: WallTime(0) };
        let (ttl, token_floor) = (Duration::from_secs(60), FencingToken(0));
        self.tell(&Command::OpenDriver { owner: owner(pid), reading, ttl, token_floor, ended });
    }

    pub(crate) fn claim(&mut self) -> Option<Grant> {
        match self.tell(&Command::Claim { owner: owner(1).id }) {
            Answer::Granted { task, .. } => self.engine.grant(task),
            Answer::Done | Answer::Nothing | Answer::Refused(_) => None,
        }
    }

    pub(crate) fn report(&mut self, grant: &Grant, outcome: Outcome) -> Answer {
        self.report_with(grant, outcome, |_| {})
    }

    pub(crate) fn report_with(
        &mut self,
        grant: &Grant,
        outcome: Outcome,
        with: impl FnOnce(&mut StageReport),
    ) -> Answer {
        let change = |name: &str| ChangeId::parse(name).unwrap();
        let passed = outcome == Outcome::Passed && grant.stage == 0;
        let mut report = grant.report(self.engine.id().clone(), outcome);
        report.candidate =
            passed.then(|| Candidate { change: change("change"), base: change("base") });
        with(&mut report);
        self.tell(&Command::Report(Box::new(report)))
    }

    pub(crate) fn phase(&self, task: &str) -> Phase {
        self.engine.task(&id(task)).unwrap().phase
    }

    pub(crate) fn cause(&self, task: &str) -> Option<Cause> {
        if let Phase::Escalated(escalation) = self.phase(task) {
            return Some(escalation.cause);
        }
        None
    }

    pub(crate) fn state(&self) -> &RunState {
        &self.engine.run().unwrap().state
    }
}

pub(crate) fn interrupted(reason: Interruption) -> Outcome {
    Outcome::Interrupted { reason, retry_at: None }
}

pub(crate) fn rejected(feedback: &str) -> Outcome {
    Outcome::Rejected { feedback: feedback.into(), restart: Restart::OnCandidate }
}
