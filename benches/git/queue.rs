//! The merge queue under load, on the engine's virtual clock.
//!
//! The engine, its grants, the proposals, turns and merges are real; the agents' work and the
//! verification of a merge are only time that passes. So a run of days takes seconds.

use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::port::{Applied, Integrator as _, Proposal};
use orchestrator_core::{
    AGENTS, Answer, Candidate, ChangeId, ClockReading, Command, CommandId, Engine, FencingToken,
    Grant, INTEGRATE, MergeIntent, Outcome, Owner, OwnerId, Pipeline, PipelineName, Plan, PoolName,
    Restart, RetryRules, RunId, StageKind, StageSpec, TaskId, TaskSpec, Timestamp, WallTime,
};
use orchestrator_git::GitRun;

/// Mean length of a task, in seconds.
const TASK_SECONDS: u64 = 601;
/// Length of a verification, in seconds.
const VERIFY_SECONDS: u64 = 300;
/// One in so many verifications fails.
const FAILS: u64 = 20;
/// Agents: more than the queue can feed, so that it is never idle.
const WORKERS: u32 = 96;
/// Longer than any run here.
const AGES: Duration = Duration::from_secs(10_000_000);

/// A run in virtual time.
pub(crate) struct Simulated {
    engine: Engine,
    run: GitRun,
    id: RunId,
    window: usize,
    base: String,
    /// A commit for each attempt at a task.
    tips: std::vec::IntoIter<String>,
    live: Vec<Live>,
    now: Timestamp,
    merged: usize,
    failed: usize,
}

/// A stage under way.
struct Live {
    grant: Grant,
    /// When it ends; `None` when it has passed and waits for its turn.
    ends: Option<Timestamp>,
    intent: Option<MergeIntent>,
}

impl Simulated {
    pub(crate) fn new(
        run: GitRun,
        id: RunId,
        window: usize,
        base: String,
        tips: Vec<String>,
    ) -> Self {
        let mut simulated = Self {
            engine: Engine::new(id.clone()),
            run,
            id,
            window,
            base,
            tips: tips.into_iter(),
            live: Vec::new(),
            now: Timestamp(1),
            merged: 0,
            failed: 0,
        };
        simulated.begin();
        simulated
    }

    fn begin(&mut self) {
        let rules = RetryRules { same_failure_escalates: false, ..RetryRules::default() };
        let limit =
            |pool: &str, limit| Command::LimitPool { pool: PoolName::parse(pool).unwrap(), limit };
        let (boot_id, wall) = ("boot".to_owned(), WallTime(0));
        for command in [
            Command::CreateRun { rules },
            limit(AGENTS, WORKERS),
            limit(INTEGRATE, u32::try_from(self.window).unwrap()),
            Command::OpenDriver {
                owner: owner(),
                reading: ClockReading { boot_id, boot_ms: 0, wall },
                ttl: AGES,
                token_floor: FencingToken(0),
                ended: None,
            },
            Command::AddPlan { plan: plan(self.tips.len() / 2) },
        ] {
            self.submit(&command);
        }
        self.engine.accept();
    }

    fn submit(&mut self, command: &Command) -> Answer {
        let id = CommandId::parse("bench").unwrap();
        self.engine.submit(self.now, &id, command).unwrap()
    }

    /// Runs until so many are merged. What the queue takes in a second, merged or not, is work that
    /// an agent did before; so that many agents are never held up by it.
    pub(crate) async fn workers_fed(mut self, merges: usize) -> f64 {
        let mut full_since = None;
        while self.merged < merges {
            self.claim().await;
            let integrating = self.live.iter().filter(|live| live.intent.is_some()).count();
            if full_since.is_none() && integrating == self.window {
                full_since = Some((self.now, self.merged + self.failed));
            }
            self.step().await;
        }
        let (since, before) = full_since.unwrap();
        #[expect(clippy::cast_precision_loss, reason = "they are small")]
        let (ended, millis) =
            ((self.merged + self.failed - before) as f64, self.now.since(since).as_millis() as f64);
        #[expect(clippy::cast_precision_loss, reason = "it is small")]
        let length = (TASK_SECONDS * 1_000) as f64;
        ended / millis * length
    }

    /// Begins every stage that can run.
    async fn claim(&mut self) {
        while let Answer::Granted { task, token, .. } =
            self.submit(&Command::Claim { owner: owner().id })
        {
            self.engine.accept();
            let grant = self.engine.grant(task).unwrap();
            self.run.fence(&self.id, &grant.task, token).await.unwrap();
            let mut live = Live { ends: None, intent: None, grant };
            if live.grant.stage == 0 {
                // From half of the mean to one and a half of it: a hash, not a die.
                let spread = mixed(&live.grant) % (TASK_SECONDS * 1_000);
                let length = TASK_SECONDS * 500 + spread;
                live.ends = Some(self.now.after(Duration::from_millis(length)));
            } else {
                self.propose(&mut live).await;
            }
            self.live.push(live);
        }
    }

    /// Proposes a merge, and begins to verify it: also what was judged before, so that the queue is
    /// seen at its slowest.
    async fn propose(&self, live: &mut Live) {
        let (task, token) = (TaskSpec::new(live.grant.task.clone()), live.grant.token);
        let candidate = live.grant.candidate.as_ref().unwrap();
        let proposal = self.run.propose(&self.id, &task, token, candidate).await.unwrap();
        let Proposal::Clean { intent, .. } = proposal else { panic!("{proposal:?}") };
        live.intent = Some(intent);
        live.ends = Some(self.now.after(Duration::from_secs(VERIFY_SECONDS)));
    }

    /// Goes to the next end of a stage, and does what follows from it.
    async fn step(&mut self) {
        let now = self.live.iter().filter_map(|live| live.ends).min().unwrap_or(self.now);
        self.now = now;
        let ended = |live: &mut Live| live.ends.take_if(|ends| *ends <= now).is_some();
        let mut at = 0;
        while at < self.live.len() {
            let has_ended = ended(&mut self.live[at]);
            let is_work = self.live[at].intent.is_none();
            if has_ended && is_work {
                let change = |text: &str| ChangeId::parse(text).unwrap();
                let tip = self.tips.next().expect("there is a commit for each attempt");
                let candidate = Candidate { change: change(&tip), base: change(&self.base) };
                self.report(at, Outcome::Passed, Some(candidate), None);
            } else if has_ended && mixed(&self.live[at].grant).is_multiple_of(FAILS) {
                let grant = &self.live[at].grant;
                self.run.withdraw(&self.id, &grant.task, grant.token);
                let (feedback, restart) = ("it fails".to_owned(), Restart::OnCandidate);
                self.report(at, Outcome::Rejected { feedback, restart }, None, None);
                self.failed += 1;
            } else {
                at += 1;
            }
        }
        self.settle().await;
    }

    fn report(
        &mut self,
        at: usize,
        outcome: Outcome,
        candidate: Option<Candidate>,
        merged: Option<ChangeId>,
    ) {
        let live = self.live.remove(at);
        let mut report = live.grant.report(self.id.clone(), outcome);
        (report.candidate, report.merged) = (candidate, merged);
        assert_eq!(self.submit(&Command::Report(Box::new(report))), Answer::Done);
        self.engine.accept();
    }

    /// Proposes anew what lapsed, and merges what has passed and whose turn it is.
    async fn settle(&mut self) {
        let mut at = 0;
        while at < self.live.len() {
            let Some(intent) = self.live[at].intent.clone() else {
                at += 1;
                continue;
            };
            let (task, token) = (self.live[at].grant.task.clone(), self.live[at].grant.token);
            let turn = self.run.turn(&self.id, &task, token, &intent);
            // It waits for nothing but others.
            match tokio::time::timeout(Duration::ZERO, turn).await.map(Result::unwrap) {
                Ok(false) => {
                    let mut live = self.live.remove(at);
                    self.propose(&mut live).await;
                    self.live.push(live);
                }
                Ok(true) if self.live[at].ends.is_none() => {
                    let number = self.live[at].grant.number;
                    self.submit(&Command::IntendMerge {
                        task: number,
                        token,
                        intent: intent.clone(),
                    });
                    self.engine.accept();
                    let applied = self.run.apply(&self.id, &task, token, &intent).await.unwrap();
                    assert_eq!(applied, Applied::Merged);
                    self.report(at, Outcome::Passed, None, Some(intent.merged));
                    self.merged += 1;
                    at = 0;
                }
                Ok(true) | Err(_) => at += 1,
            }
        }
    }
}

fn owner() -> Owner {
    let id = OwnerId::parse("bench").unwrap();
    Owner { id, host: "here".to_owned(), boot_id: "boot".to_owned(), pid: 1, start_time: 1 }
}

/// Independent tasks that are worked on and merged.
fn plan(tasks: usize) -> Arc<Plan> {
    let stage = |kind| StageSpec { timeout: AGES, ..StageSpec::of(kind) };
    let pipeline =
        Pipeline::new([StageKind::Run, StageKind::Integrate].map(stage).to_vec()).unwrap();
    let task = |number: usize| TaskSpec {
        max_retries: 20,
        ..TaskSpec::new(TaskId::parse(&format!("queue-{number}")).unwrap())
    };
    Arc::new(Plan {
        tasks: (0..tasks).map(task).collect(),
        pipelines: [(PipelineName::parse("default").unwrap(), pipeline)].into(),
        ..Plan::default()
    })
}

/// A number that differs from grant to grant.
fn mixed(grant: &Grant) -> u64 {
    (grant.token.0 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}
