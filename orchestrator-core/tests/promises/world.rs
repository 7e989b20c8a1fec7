//! An engine whose every command is committed at once, and audited.

use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{
    Answer, Candidate, ChangeId, ClockReading, Command, CommandId, Cost, Engine, FencingToken,
    Grant, Interruption, Outcome, Owner, OwnerId, Phase, Pipeline, Plan, Refusal, Restart,
    RetryRules, RunId, RunState, StageKind, StageReport, StageSpec, TaskId, TaskRecord, TaskSpec,
    Timestamp, Usd, VerifyCommand, WallTime,
};

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) now: u64,
    pub(crate) boot: &'static str,
    pub(crate) wall: u64,
    pid: u32,
    commands: u64,
    /// All that was committed, as a log has it.
    pub(crate) log: Vec<String>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        Self::with_rules(plan, RetryRules::default())
    }

    pub(crate) fn with_rules(plan: Plan, rules: RetryRules) -> Self {
        let engine = Engine::new(RunId::parse("promised").unwrap());
        let mut world =
            Self { engine, now: 0, boot: "boot", wall: 0, pid: 1, commands: 0, log: Vec::new() };
        world.tell(&Command::CreateRun { rules });
        world.tell(&world.opening(1, 0, None));
        world.tell(&Command::AddPlan { plan: Arc::new(plan) });
        world
    }

    /// Decides a command without committing it.
    pub(crate) fn submit(&mut self, command: &Command) -> Result<Answer, Refusal> {
        self.commands += 1;
        let id = CommandId::parse(&format!("c{}", self.commands)).unwrap();
        self.engine.submit(Timestamp(self.now), &id, command)
    }

    /// Decides a command and commits what it causes.
    pub(crate) fn try_tell(&mut self, command: &Command) -> Result<Answer, Refusal> {
        let answer = self.submit(command);
        if let Some(commit) = self.engine.batch() {
            let lines = commit.events.iter().map(|event| serde_json::to_string(event).unwrap());
            self.log.extend(lines);
            self.engine.accept();
        }
        self.audit();
        answer
    }

    fn audit(&self) {
        assert_eq!(self.engine.audit(), Vec::<String>::new(), "the index is what the tasks say");
    }

    pub(crate) fn tell(&mut self, command: &Command) -> Answer {
        self.try_tell(command).unwrap()
    }

    pub(crate) fn owner(pid: u32) -> Owner {
        let id = OwnerId::parse(&format!("host/{pid}")).unwrap();
        Owner { id, host: "host".into(), boot_id: "boot".into(), pid, start_time: 0 }
    }

    pub(crate) fn opening(&self, pid: u32, floor: u64, ended: Option<u32>) -> Command {
        let (boot_id, wall) = (self.boot.to_owned(), WallTime(self.wall));
        Command::OpenDriver {
            owner: Self::owner(pid),
            reading: ClockReading { boot_id, boot_ms: self.now, wall },
            ttl: Duration::from_secs(60),
            token_floor: FencingToken(floor),
            ended: ended.map(|pid| Self::owner(pid).id),
        }
    }

    /// The driver dies; the next one knows what was committed.
    pub(crate) fn crash(&mut self, floor: u64) {
        self.engine = Engine::restore(&self.engine.snapshot().unwrap()).unwrap();
        self.pid += 1;
        let opening = self.opening(self.pid, floor, Some(self.pid - 1));
        self.tell(&opening);
    }

    pub(crate) fn claim(&mut self) -> Option<Grant> {
        match self.tell(&Command::Claim { owner: Self::owner(self.pid).id }) {
            Answer::Granted { task, .. } => self.engine.grant(task),
            Answer::Done | Answer::Nothing | Answer::Refused(_) => None,
        }
    }

    pub(crate) fn claim_all(&mut self) -> Vec<Grant> {
        std::iter::from_fn(|| self.claim()).collect()
    }

    pub(crate) fn report_of(&self, grant: &Grant, outcome: Outcome) -> StageReport {
        let change = |name: &str| ChangeId::parse(name).unwrap();
        let made = outcome == Outcome::Passed && grant.stage == 0;
        let candidate = made.then(|| Candidate { change: change("change"), base: change("base") });
        StageReport { candidate, ..grant.report(self.engine.id().clone(), outcome) }
    }

    pub(crate) fn report(&mut self, grant: &Grant, outcome: Outcome) -> Answer {
        let report = self.report_of(grant, outcome);
        self.tell(&Command::Report(Box::new(report)))
    }

    pub(crate) fn costs(&mut self, grant: &Grant, outcome: Outcome, cost: Cost) -> Answer {
        let report = StageReport { cost, ..self.report_of(grant, outcome) };
        self.tell(&Command::Report(Box::new(report)))
    }

    pub(crate) fn stopped(&mut self, grant: &Grant) -> Answer {
        self.tell(&Command::Stopped { task: grant.number, token: grant.token })
    }

    /// Grants and passes whatever can run, until nothing can; who was granted what, in order.
    pub(crate) fn pass_all(&mut self) -> Vec<TaskId> {
        let mut granted = Vec::new();
        while let Some(grant) = self.claim() {
            self.report(&grant, Outcome::Passed);
            granted.push(grant.task);
        }
        granted
    }

    pub(crate) fn task(&self, task: &str) -> TaskRecord {
        self.engine.task(&id(task)).unwrap()
    }

    pub(crate) fn tasks(&self) -> Vec<TaskRecord> {
        self.engine.tasks().collect()
    }

    pub(crate) fn is_stopping(&self, task: &str) -> bool {
        matches!(self.task(task).phase, Phase::Stopping { .. })
    }

    pub(crate) fn state(&self) -> RunState {
        self.engine.run().unwrap().state.clone()
    }

    pub(crate) fn spent_and_reserved(&self) -> Usd {
        let run = self.engine.run().unwrap();
        run.spent.plus(run.reserved)
    }
}

pub(crate) fn id(text: &str) -> TaskId {
    TaskId::parse(text).unwrap()
}

/// Tasks of one stage.
pub(crate) fn plan(edges: &[(&str, &[&str])]) -> Plan {
    staged(edges, &[StageKind::Run])
}

pub(crate) fn staged(edges: &[(&str, &[&str])], kinds: &[StageKind]) -> Plan {
    let tasks = edges.iter().map(|(name, depends_on)| {
        let mut spec = TaskSpec::new(id(name));
        spec.depends_on = depends_on.iter().map(|name| id(name)).collect();
        spec.verify = Some(VerifyCommand::Shell("true".into()));
        spec
    });
    let mut plan = Plan { tasks: tasks.collect(), ..Plan::default() };
    let stages = kinds.iter().map(|kind| StageSpec::of(*kind)).collect();
    plan.pipelines.insert("default".parse().unwrap(), Pipeline::new(stages).unwrap());
    plan
}

pub(crate) fn crashed() -> Outcome {
    Outcome::Interrupted { reason: Interruption::Crashed, retry_at: None }
}

pub(crate) fn question() -> Outcome {
    Outcome::Question { text: "which?".into() }
}

pub(crate) fn rejected(feedback: &str) -> Outcome {
    Outcome::Rejected { feedback: feedback.into(), restart: Restart::OnCandidate }
}

pub(crate) fn retry(task: &str) -> Command {
    let (actor, reason) = ("ann".into(), "why not".into());
    Command::Retry { task: id(task), dependents: false, actor, reason }
}

pub(crate) fn cancel(task: &str) -> Command {
    Command::Cancel { task: id(task), actor: "ann".into(), reason: "why not".into() }
}
