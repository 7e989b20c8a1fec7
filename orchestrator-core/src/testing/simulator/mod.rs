//! A seeded world around the engine: virtual time, workers that pass, fail, hang, answer late or
//! twice, also for a driver that is dead, plans that come later, usage limits, people, drivers that
//! die with a batch that was never committed, commits that are refused.
//!
//! The same seed gives the same history. After each step the engine is audited, and its state is held
//! against the log, against the records that were committed, and against the promises by definition
//! (`checks`); after `steps` the faults stop, and then the run must settle.

pub(super) mod checks;
mod coverage;
mod dice;
mod disk;
mod plans;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use self::checks::{Check, Kept, Log};
pub use self::coverage::Coverage;
pub use self::dice::Dice;
use self::disk::Disk;
use self::plans::GPU;
use crate::command::{Answer, Command, Grant, Refusal, StageReport};
use crate::engine::{Engine, Settlement};
use crate::event::Resolution;
use crate::id::{ChangeId, CommandId, FencingToken, OwnerId, PoolName, RunId, TaskId, TaskNo};
use crate::lease::Owner;
use crate::money::{Cost, Usd};
use crate::outcome::{Candidate, Interruption, MergeIntent, Outcome, Restart};
use crate::pipeline::{AGENTS, StageKind};
use crate::plan::Plan;
use crate::policy::{RemainingPath, SchedulingPolicy};
use crate::port::Store;
use crate::record::{ParkReason, Phase, RunState, TaskRecord};
use crate::retry::RetryRules;
use crate::scope::Scope;
use crate::task::TaskSpec;
use crate::testing::Model;
use crate::time::{ClockReading, Timestamp, WallTime};

/// Most worlds that are tried to make a failing one smaller.
const SHRINKS_MAX: usize = 2_000;
/// Where the dice stand for what is not a step.
const RULES_PLACE: u64 = 1 << 32;
const LATER_PLACE: u64 = 2 << 32;
const HEALED_PLACE: u64 = 3 << 32;

/// What the world is like.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// Decides everything that is left to chance.
    pub dice: Dice,
    /// Tasks in the plan.
    pub tasks: u32,
    /// Steps with faults.
    pub steps: u32,
    /// Steps that are left out.
    pub without: BTreeSet<u32>,
    /// Whether the faults go on to the end.
    pub mode: Mode,
    /// What goes first.
    pub policy: Arc<dyn SchedulingPolicy>,
}

/// What is asked of a world.
///
/// Faults that never stop hide that a run hangs, because the next fault often frees it; a world that
/// heals has fewer faults. So both are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The faults go on to the end: nothing that must not happen happens.
    Safety,
    /// The faults stop: then the run settles within a bound.
    Liveness,
}

impl Simulation {
    /// A world of 1 to 8 tasks and 60 to 160 faulty steps, after this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_dice(Dice::new(seed))
    }

    /// A world of 1 to 8 tasks and 60 to 160 faulty steps, after these dice.
    #[must_use]
    pub fn with_dice(mut dice: Dice) -> Self {
        let tasks = 1 + dice.below(8);
        let steps = 60 + dice.below(100);
        let (without, mode) = (BTreeSet::new(), Mode::Liveness);
        Self { dice, tasks, steps, without, mode, policy: Arc::new(RemainingPath) }
    }

    /// The same world with faults to the end, and twice as many of them.
    #[must_use]
    pub fn safety(self) -> Self {
        Self { mode: Mode::Safety, steps: self.steps.saturating_mul(2), ..self }
    }

    /// The same world with another policy.
    #[must_use]
    pub fn with_policy(self, policy: Arc<dyn SchedulingPolicy>) -> Self {
        Self { policy, ..self }
    }

    /// Lets the world run until it settles, or through its steps.
    ///
    /// # Errors
    /// [`Violation`] with the history that led to it.
    pub fn run(&self) -> Result<Ended, Violation> {
        self.tell(false, None).0.map_err(|_| self.violation())
    }

    /// Lets the world run over a real store that has no run of the name `simulated`: each commit
    /// goes to it, a driver that dies is loaded from it, and in the end it must have what the engine
    /// has. Its faults are met as a driver meets them, so it may be a
    /// [`FaultStore`](crate::testing::FaultStore).
    ///
    /// # Errors
    /// [`Violation`] with the history that led to it.
    pub fn run_over(&self, store: Arc<dyn Store>) -> Result<Ended, Violation> {
        let live = || {
            let (lived, world) = self.tell(true, Some(Disk::new(store)));
            let disk = world.disk.as_ref().ok_or_else(|| "no store".to_owned());
            let kept = disk.and_then(|disk| disk.load(&world.engine).map(drop));
            lived.and_then(|ended| kept.map(|()| ended)).map_err(|what| {
                let World { step, history, .. } = world;
                Violation { seed: self.dice.seed, what, step, history }
            })
        };
        // On a thread of its own, since waiting for a store is not allowed on one of a runtime.
        std::thread::scope(|scope| match scope.spawn(live).join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// All that is done, a line each.
    #[must_use]
    pub fn history(&self) -> Vec<String> {
        self.tell(true, None).1.history
    }

    /// Runs the world; words cost more than all else, so they are made when somebody reads them.
    fn tell(&self, is_told: bool, disk: Option<Disk>) -> (Result<Ended, String>, World) {
        let mut world = World::new(self, is_told, disk);
        let lived = world.live(self);
        let ended = Ended {
            events: world.log.events,
            state: world.state(),
            coverage: world.coverage.clone(),
        };
        (lived.map(|()| ended), world)
    }

    fn violation(&self) -> Violation {
        let (lived, World { step, history, .. }) = self.tell(true, None);
        let what = lived.err().unwrap_or_else(|| "P13: it went well the second time".to_owned());
        Violation { seed: self.dice.seed, what, step, history }
    }

    /// The smallest world near this one that breaks the same promise, and how; `None` when this one
    /// breaks none.
    ///
    /// Leaves out steps, first many at once and then each by itself, and tasks, as long as the
    /// violation begins with the same word.
    #[must_use]
    pub fn minimal(&self) -> Option<(Self, Violation)> {
        let mut found = self.run().err()?;
        let mut world = self.clone();
        let promise = found.promise().to_owned();
        let mut tries = 0;
        let mut smaller = |world: &mut Self, found: &mut Violation, next: Self| {
            tries += 1;
            let broken = (tries < SHRINKS_MAX).then(|| next.run().err()).flatten();
            let broken = broken.filter(|violation| violation.promise() == promise);
            let is_smaller = broken.is_some();
            if let Some(violation) = broken {
                (*world, *found) = (next, violation);
            }
            is_smaller
        };
        let steps = found.step.saturating_add(1).min(world.steps);
        let next = Self { steps, ..world.clone() };
        smaller(&mut world, &mut found, next);
        for tasks in 1..world.tasks {
            let next = Self { tasks, ..world.clone() };
            if smaller(&mut world, &mut found, next) {
                break;
            }
        }
        let mut size = world.steps;
        while size > 0 {
            for first in (0..world.steps).step_by(size as usize) {
                let mut next = world.clone();
                next.without.extend(first..(first + size).min(world.steps));
                if next.without.len() > world.without.len() {
                    smaller(&mut world, &mut found, next);
                }
            }
            size /= 2;
        }
        Some((world, found))
    }
}

/// How a simulation ended when all went well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Events in the log.
    pub events: usize,
    /// What the run came to.
    pub state: RunState,
    /// What was asked of what.
    pub coverage: Coverage,
}

/// A promise that was broken, and how.
#[derive(Debug, Clone, thiserror::Error)]
pub struct Violation {
    /// The seed that shows it again.
    pub seed: u64,
    /// What was broken.
    pub what: String,
    /// The step in which it was noticed.
    pub step: u32,
    /// All that was done up to then.
    pub history: Vec<String>,
}

impl Violation {
    /// The word that tells what kind of violation it is.
    fn promise(&self) -> &str {
        self.what.split([':', ',']).next().unwrap_or_default()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step, self.what)?;
        self.history.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

struct World {
    dice: Dice,
    policy: Arc<dyn SchedulingPolicy>,
    engine: Engine,
    /// A second engine that sees only the log.
    follower: Engine,
    /// What the documents say.
    model: Model,
    log: Log,
    /// What a store has.
    kept: Kept,
    /// A real store beside it.
    disk: Option<Disk>,
    /// The plans that are still to come.
    later: Vec<Arc<Plan>>,
    /// Stages under way: what their holders know.
    grants: Vec<Grant>,
    /// Results already sent, that may be sent again.
    sent: Vec<StageReport>,
    /// What the target holds, by task.
    merged: BTreeMap<TaskId, ChangeId>,
    now: u64,
    commands: u64,
    pid: u32,
    greatest_token: FencingToken,
    healed: bool,
    is_told: bool,
    coverage: Coverage,
    step: u32,
    history: Vec<String>,
    /// The first promise that a commit broke.
    broken: Check,
}

impl World {
    fn new(of: &Simulation, is_told: bool, disk: Option<Disk>) -> Self {
        let run = RunId::parse("simulated").expect("a valid id");
        let mut dice = of.dice.clone();
        let plan = Arc::new(plans::plan(&mut dice, "t", of.tasks, &[]));
        let known: Vec<TaskId> = plan.tasks.iter().map(|task| task.id.clone()).collect();
        dice.at(LATER_PLACE);
        let count = dice.below(4);
        let later = vec![Arc::new(plans::plan(&mut dice, "u", count, &known))];
        let model = Model::new(run.clone());
        let engine = Engine::new(run).with_policy(Arc::clone(&of.policy));
        let mut world = Self {
            dice,
            policy: Arc::clone(&of.policy),
            follower: engine.clone(),
            engine,
            model,
            log: Log::default(),
            kept: Kept::default(),
            disk,
            later,
            grants: Vec::new(),
            sent: Vec::new(),
            merged: BTreeMap::new(),
            now: 0,
            commands: 0,
            pid: 1,
            greatest_token: FencingToken(0),
            healed: false,
            is_told,
            coverage: Coverage::default(),
            step: 0,
            history: Vec::new(),
            broken: Ok(()),
        };
        world.follower.offer(Arc::clone(&plan));
        world.dice.at(RULES_PLACE);
        let rules = RetryRules {
            first_stage_failures_max: 3 * world.dice.below(2),
            passed_over_max: world.dice.below(4),
            dispatches_spare: 60 / (1 + world.dice.below(60)),
            ..RetryRules::default()
        };
        world.begin(rules, plan);
        world
    }

    fn begin(&mut self, rules: RetryRules, plan: Arc<Plan>) {
        let commands =
            [Command::CreateRun { rules }, self.opening(None), Command::AddPlan { plan }];
        for command in commands {
            let outcome = self.commit(&command);
            debug_assert!(outcome.is_ok(), "{outcome:?}");
        }
    }

    fn state(&self) -> RunState {
        self.engine.run().map_or(RunState::Active, |run| run.state.clone())
    }

    fn owner(&self) -> Owner {
        let id = OwnerId::parse(&format!("sim/{}", self.pid)).expect("a valid id");
        let (host, boot_id) = ("sim".to_owned(), "boot".to_owned());
        Owner { id, host, boot_id, pid: self.pid, start_time: 0 }
    }

    fn opening(&self, ended: Option<OwnerId>) -> Command {
        let (boot_id, wall) = ("boot".to_owned(), WallTime(0));
        Command::OpenDriver {
            owner: self.owner(),
            reading: ClockReading { boot_id, boot_ms: self.now, wall },
            ttl: Duration::from_secs(3_600),
            token_floor: FencingToken(0),
            ended,
        }
    }

    fn live(&mut self, of: &Simulation) -> Check {
        for step in (0..of.steps).filter(|step| !of.without.contains(step)) {
            self.step = step;
            self.dice.at(u64::from(step));
            self.faulty_step()?;
        }
        match of.mode {
            Mode::Safety => self.check(),
            Mode::Liveness => self.heal(),
        }
    }

    /// The faults stop, and the run settles within a bound.
    fn heal(&mut self) -> Check {
        self.healed = true;
        self.dice.at(HEALED_PLACE);
        self.note(|| "the faults stop".to_owned());
        self.must(&Command::Resume { actor: "sim".to_owned() })?;
        self.must(&Command::SetBudget { budget: None })?;
        for pool in [AGENTS, GPU] {
            let pool = PoolName::parse(pool).map_err(|err| err.to_string())?;
            self.must(&Command::LimitPool { pool, limit: 3 })?;
        }
        for _ in 0..self.healed_steps_max() {
            if self.grants.is_empty() && self.engine.settlement(self.time()).is_some() {
                self.must(&Command::Settle)?;
                return self.ended_well();
            }
            self.healed_step()?;
        }
        Err(format!("P15: the run does not settle: {:?}", self.explain_all()))
    }

    /// Each task passes each of its stages once; each lease that was lost, and each wait, ends once.
    fn healed_steps_max(&self) -> usize {
        let stages = |task: TaskRecord| {
            self.engine.pipeline(&task.id).map_or(0, |pipeline| pipeline.stages().len())
        };
        let passes: usize = self.engine.tasks().map(stages).sum();
        2 * passes + 2 * self.engine.tasks().count() + 8
    }

    fn ended_well(&self) -> Check {
        match self.engine.settlement(self.time()) {
            Some(Settlement::Completed | Settlement::Failed) => {}
            other => return Err(format!("P15: a healed run came to {other:?}")),
        }
        for task in self.engine.tasks() {
            let open = matches!(task.phase, Phase::Open | Phase::Deferred { .. });
            if open && !self.engine.is_blocked(&task.id) {
                return Err(format!("P11: `{}` could run, and nobody says why not", task.id));
            }
        }
        Ok(())
    }

    fn explain_all(&self) -> Vec<String> {
        let tasks = self.engine.tasks();
        tasks.map(|t| format!("{}: {:?}", t.id, self.engine.explain(self.time(), &t.id))).collect()
    }

    fn time(&self) -> Timestamp {
        Timestamp(self.now)
    }

    /// The time that a decision counts with.
    fn time_of(&self, engine: &Engine) -> Timestamp {
        self.time().max(engine.run().map(|run| run.last_at).unwrap_or_default())
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.is_told {
            self.history.push(what());
        }
    }

    fn faulty_step(&mut self) -> Check {
        match self.dice.below(20) {
            0..=6 => self.claim(),
            7..=12 => self.answer(),
            13 if self.dice.once_in(3) => self.answer_amiss(),
            13 => self.answer_again(),
            14 => self.pass_time(),
            15 if self.dice.once_in(2) => self.driver_dies(),
            16 if self.dice.once_in(4) => self.stray(),
            16 => self.person(),
            17 => self.refused_commit(),
            18 if self.dice.once_in(2) => self.clock_jumps_back(),
            18 => self.another_plan(),
            15 => self.another_driver(),
            _ if self.dice.once_in(2) => self.must(&Command::Settle),
            _ => self.must(&Command::Tick),
        }
    }

    fn healed_step(&mut self) -> Check {
        self.must(&Command::Tick)?;
        self.end_stopping()?;
        self.claim()?;
        if !self.grants.is_empty() {
            return self.answer();
        }
        if let Some(wake) = self.engine.next_wake() {
            self.now = self.now.max(wake.0);
        }
        Ok(())
    }

    fn claim(&mut self) -> Check {
        let before = self.engine.clone();
        let answer = self.commit(&Command::Claim { owner: self.owner().id });
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

    /// P1, P3, P8, P9, P10, P11 at a grant.
    fn check_grant(&mut self, before: &Engine, grant: &Grant) -> Check {
        if grant.token <= self.greatest_token {
            return Err(format!("P1: token {} is not greater than the last", grant.token));
        }
        self.greatest_token = grant.token;
        checks::grant(before, self.time_of(before), grant)
    }

    /// P11: nothing was granted, so nothing can run.
    fn check_nothing(&self, before: &Engine) -> Check {
        let ready = |task: &TaskId| {
            before.explain(self.time_of(before), task) == [crate::engine::Reason::Ready]
        };
        match before.tasks().find(|task| ready(&task.id)) {
            Some(task) => Err(format!("P11: `{}` could run and was not granted", task.id)),
            None => Ok(()),
        }
    }

    /// One of the stages under way ends.
    fn answer(&mut self) -> Check {
        if self.grants.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(u32::try_from(self.grants.len()).unwrap_or(u32::MAX)) as usize;
        let grant = self.grants.swap_remove(at);
        let Some(report) = self.work(&grant)? else { return Ok(()) };
        self.sent.push(report.clone());
        self.report(report)
    }

    fn report(&mut self, report: StageReport) -> Check {
        let before = self.engine.record(report.task);
        let counts = before.as_ref().is_some_and(|task| match &task.phase {
            Phase::Leased(lease) => {
                lease.token == report.token
                    && task.stage == report.stage
                    && task.attempt == report.attempt
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
    fn work(&mut self, grant: &Grant) -> Result<Option<StageReport>, String> {
        let kind =
            self.engine.pipeline(&grant.task).and_then(|p| p.stage(grant.stage)).map(|s| s.kind);
        let mut report = report_of(&self.engine, grant, Outcome::Passed);
        if let Some(intent) = &grant.intent
            && self.merged.get(&grant.task) == Some(&intent.merged)
        {
            // A holder asks what became of an announced merge before it does anything else.
            report.merged = Some(intent.merged.clone());
            return Ok(Some(report));
        }
        let luck = if self.healed { 12 } else { self.dice.below(24) };
        match luck {
            0..=2 => {
                let feedback = format!("failed {}", ["here", "there", "elsewhere"][luck as usize]);
                report.outcome = Outcome::Rejected { feedback, restart: Restart::OnCandidate };
            }
            3 | 4 => report.outcome = interrupted(Interruption::Overload),
            5 => {
                report.outcome = interrupted(Interruption::UsageLimit);
                let span = u64::from(self.dice.below(8_000_000));
                report.retry_at = self
                    .dice
                    .once_in(2)
                    .then(|| Timestamp((self.now + span).saturating_sub(1_000_000)));
            }
            6 => report.outcome = Outcome::Question { text: "which?".to_owned() },
            7 => report.outcome = Outcome::Fatal { error: "no such program".to_owned() },
            8 => {
                self.note(|| format!("token {} hangs", grant.token));
                return Ok(None);
            }
            9 => report.outcome = interrupted(Interruption::Auth),
            _ => {}
        }
        let share = u64::from(self.dice.below(1_000));
        let spent = Usd(grant.cap.0.min(1_000_000) * share / 1_000);
        let cost = if self.dice.once_in(3) { Cost::AtLeast } else { Cost::Known };
        report.cost = cost(spent);
        if report.outcome == Outcome::Passed {
            match kind {
                Some(StageKind::Run) => report.candidate = Some(candidate(grant)?),
                Some(StageKind::Integrate) => return self.merge(grant, report),
                Some(StageKind::Verify | StageKind::Review) | None => {}
            }
        }
        Ok(Some(report))
    }

    /// Merges as the driver does: announce, move; the holder may die between any two.
    fn merge(
        &mut self,
        grant: &Grant,
        mut report: StageReport,
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
        if !self.healed && self.dice.once_in(6) {
            self.note(|| format!("token {token} dies before it merges", token = grant.token));
            return Ok(None);
        }
        if let Some(first) = self.merged.insert(grant.task.clone(), merged.clone()) {
            return Err(format!("P17: `{}` was merged as {first} and as {merged}", grant.task));
        }
        if !self.healed && self.dice.once_in(6) {
            self.note(|| format!("token {} dies after it merged", grant.token));
            return Ok(None);
        }
        report.merged = Some(merged);
        Ok(Some(report))
    }

    fn answer_again(&mut self) -> Check {
        if self.sent.is_empty() {
            return Ok(());
        }
        let at = self.dice.below(u32::try_from(self.sent.len()).unwrap_or(u32::MAX)) as usize;
        let report = self.sent[at].clone();
        self.note(|| format!("token {} answers again", report.token));
        self.report(report)
    }

    fn pass_time(&mut self) -> Check {
        self.now += u64::from(self.dice.below(4_000_000));
        self.must(&Command::Tick)?;
        self.end_stopping()
    }

    /// A holder's result names something that its lease is not for, or nothing that there is.
    fn answer_amiss(&mut self) -> Check {
        let Some(grant) = self.grants.first().cloned() else { return Ok(()) };
        let mut report = report_of(&self.engine, &grant, Outcome::Passed);
        match self.dice.below(4) {
            0 => report.stage = report.stage.wrapping_add(1),
            1 => report.attempt += 1,
            2 => report.task = TaskNo(u32::MAX),
            _ => report.run = RunId::parse("another").map_err(|err| err.to_string())?,
        }
        self.note(|| format!("token {} answers amiss", report.token));
        match self.commit(&Command::Report(Box::new(report))) {
            Ok(Answer::Refused(_)) => self.check(),
            other => Err(format!("P2: a result that fits no lease was answered {other:?}")),
        }
    }

    /// A message that nobody of this world sends: about a task that has no such lease, or has ended.
    fn stray(&mut self) -> Check {
        let tasks: Vec<TaskRecord> = self.engine.tasks().collect();
        let at = self.dice.below(u32::try_from(tasks.len()).unwrap_or(u32::MAX)) as usize;
        let Some(number) = self.engine.number(&tasks[at].id) else { return Ok(()) };
        let (phase, token) = (tasks[at].phase.as_str(), tasks[at].last_token);
        let onto = ChangeId::parse("onto").map_err(|err| err.to_string())?;
        let intent = MergeIntent { merged: onto.clone(), onto };
        let command = match (self.dice.below(3), phase) {
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
    fn run_command(&mut self) -> Command {
        match self.dice.below(9) {
            0 | 2 | 3 => Command::CreateRun { rules: RetryRules::default() },
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
    fn end_stopping(&mut self) -> Check {
        let stopping: Vec<(TaskNo, FencingToken)> = self
            .engine
            .held()
            .filter(|task| matches!(task.phase, Phase::Stopping { .. }))
            .filter_map(|task| Some((self.engine.number(&task.id)?, task.last_token)))
            .collect();
        for (task, token) in stopping {
            if !self.healed && self.dice.once_in(4) {
                // Nobody has come to it yet.
                continue;
            }
            let at = self.grants.iter().position(|grant| grant.token == token);
            if let Some(grant) = at.map(|at| self.grants.swap_remove(at)) {
                // Its holder may still say something, before it is stopped or long after.
                let mut late = report_of(&self.engine, &grant, Outcome::Passed);
                late.cost = Cost::Known(Usd(u64::from(self.dice.below(9_000_000))));
                self.sent.push(late.clone());
                if self.dice.once_in(3) {
                    self.report(late)?;
                }
            }
            self.must(&Command::Stopped { task, token })?;
        }
        Ok(())
    }

    /// A second process wants to drive while the first one lives; then that one ends as it should.
    fn another_driver(&mut self) -> Check {
        let former = self.pid;
        self.pid += 1;
        let opening = self.opening(None);
        let answer = self.commit(&opening);
        if !matches!(answer, Err(Refusal::DriverRunning(_))) {
            return Err(format!("P1: a second driver was answered {answer:?}"));
        }
        self.pid = former;
        let owner = self.owner().id;
        self.must(&Command::CloseDriver { owner: owner.clone() })?;
        match self.commit(&Command::Claim { owner }) {
            Err(Refusal::NotDriver(_)) => {}
            other => return Err(format!("P1: who drives no longer was answered {other:?}")),
        }
        self.pid += 1;
        let opening = self.opening(None);
        self.must(&opening)?;
        self.end_stopping()
    }

    fn driver_dies(&mut self) -> Check {
        self.note(|| "the driver dies".to_owned());
        let snapshot = match &self.disk {
            Some(disk) => disk.load(&self.engine)?,
            None => self.engine.snapshot().ok_or("no snapshot")?,
        };
        let restored = Engine::restore(&snapshot)
            .map_err(|err| format!("P5: {err}"))?
            .with_policy(Arc::clone(&self.policy));
        if !checks::same(&restored, &self.engine, self.time()) {
            return Err("P5: a restored engine is another one".to_owned());
        }
        // What was decided and not committed is lost with the driver.
        self.batch_of_anything();
        self.engine = restored;
        let former = self.owner().id;
        self.pid += 1;
        let opening = self.opening(Some(former));
        self.must(&opening)?;
        self.end_stopping()
    }

    fn person(&mut self) -> Check {
        let command = self.persons_command();
        // A refusal is an answer too; the check after it shows that it changed nothing.
        drop(self.commit(&command));
        self.check()
    }

    fn persons_command(&mut self) -> Command {
        let tasks: Vec<TaskRecord> = self.engine.tasks().collect();
        let at = self.dice.below(u32::try_from(tasks.len()).unwrap_or(u32::MAX)) as usize;
        let task = tasks[at].id.clone();
        let (actor, reason) = ("sim".to_owned(), "chance".to_owned());
        match self.dice.below(10) {
            0..=2 => {
                let dependents = self.dice.once_in(2);
                Command::Retry { task, dependents, actor, reason }
            }
            3 => Command::Resolve { task, how: Resolution::Skip, actor, reason },
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
    fn edit(&mut self, task: &TaskId, actor: String, reason: String) -> Command {
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
            6 => spec.depends_on.clear(),
            _ => spec.needs.clear(),
        }
        Command::Edit { spec: Arc::new(spec), actor, reason }
    }

    /// A commit that the store refuses leaves the engine as it was.
    fn refused_commit(&mut self) -> Check {
        let before = self.engine.clone();
        self.batch_of_anything();
        if let (Some(disk), Some(commit)) = (&self.disk, self.engine.batch()) {
            disk.refuses(self.engine.id(), &commit)?;
        }
        self.engine.undo();
        self.note(|| "the commit is refused".to_owned());
        if !checks::same(&self.engine, &before, self.time()) {
            return Err("P4: a refused commit left something behind".to_owned());
        }
        self.check()
    }

    /// Submits some commands of every kind, whether they make sense or not.
    fn batch_of_anything(&mut self) {
        for _ in 0..=self.dice.below(6) {
            let command = self.anything();
            let (id, now) = (self.command_id(), self.time());
            let answer = self.engine.submit(now, &id, &command);
            self.note(|| format!("{now}: uncommitted {command:?} -> {answer:?}"));
        }
    }

    fn anything(&mut self) -> Command {
        let owner = self.owner();
        let grant = (!self.grants.is_empty()).then(|| {
            let count = u32::try_from(self.grants.len()).unwrap_or(u32::MAX);
            self.grants[self.dice.below(count) as usize].clone()
        });
        match (self.dice.below(12), grant) {
            (0, Some(grant)) => {
                let passed = report_of(&self.engine, &grant, Outcome::Passed);
                Command::Report(Box::new(passed))
            }
            (1, Some(grant)) => {
                let limit = interrupted(Interruption::UsageLimit);
                Command::Report(Box::new(report_of(&self.engine, &grant, limit)))
            }
            (2, Some(grant)) => {
                let outcome = Outcome::Question { text: "which?".to_owned() };
                Command::Report(Box::new(report_of(&self.engine, &grant, outcome)))
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

    fn another_plan(&mut self) -> Check {
        let Some(plan) = self.later.pop() else { return Ok(()) };
        self.follower.offer(Arc::clone(&plan));
        self.must(&Command::AddPlan { plan: Arc::clone(&plan) })?;
        // Who does not know whether a plan was added sends it again.
        self.must(&Command::AddPlan { plan })
    }

    fn clock_jumps_back(&mut self) -> Check {
        let now = self.now;
        self.now /= 2;
        self.note(|| "the clock jumps back".to_owned());
        let lived = self.must(&Command::Tick).and_then(|()| self.claim());
        let lived = lived.and_then(|()| self.person());
        self.now = now;
        lived
    }

    fn must(&mut self, command: &Command) -> Check {
        match self.commit(command) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(format!("{command:?} was refused: {refusal}")),
        }
        .and_then(|()| self.check())
    }

    fn command_id(&mut self) -> CommandId {
        self.commands += 1;
        CommandId::parse(&format!("c{}", self.commands)).expect("a valid id")
    }

    fn commit(&mut self, command: &Command) -> Result<Answer, Refusal> {
        let (id, now) = (self.command_id(), self.time());
        self.coverage.note(&self.engine, command);
        let answer = self.engine.submit(now, &id, command);
        self.note(|| format!("{now}: {command:?} -> {answer:?}"));
        let policy = Arc::clone(&self.policy);
        let modelled = self.model.step(now, command, &*policy, &answer, &self.engine);
        let modelled = modelled.map_err(|what| format!("by the model, {command:?}: {what}"));
        self.broken = self.broken.clone().and(modelled);
        if let Some(commit) = self.engine.batch() {
            self.engine.accept();
            if let Some(disk) = &self.disk {
                let written = disk.commit(self.engine.id(), &commit);
                self.broken = self.broken.clone().and(written);
            }
            let framed = checks::frame(command, &self.follower, &self.engine);
            self.kept.take(commit.records);
            commit.blobs.iter().for_each(|blob| self.follower.offer_entry(blob));
            for event in commit.events {
                self.follower.evolve(&event);
                let logged = self.log.take(&event);
                self.broken = self.broken.clone().and(logged);
            }
            self.broken = self.broken.clone().and(framed);
        }
        answer
    }

    /// The audit, the promises, and P5: the log alone leads to the same engine.
    fn check(&self) -> Check {
        self.broken.clone()?;
        let faults = self.engine.audit();
        if !faults.is_empty() {
            return Err(format!("audit: {faults:?}"));
        }
        let (one, two) = (&self.engine, &self.follower);
        if one.seq() != two.seq() || one.run() != two.run() || !one.tasks().eq(two.tasks()) {
            return Err("P5: the log leads to other records than the store has".to_owned());
        }
        self.kept.check(one)?;
        let differences = self.model.differences(one);
        if !differences.is_empty() {
            return Err(format!("by the model: {differences:#?}"));
        }
        self.log.check(one)?;
        checks::dispatches(one)?;
        checks::reasons(one, self.time_of(one))
    }
}

fn interrupted(reason: Interruption) -> Outcome {
    Outcome::Interrupted { reason, retry_at: None }
}

fn candidate(grant: &Grant) -> Result<Candidate, String> {
    let change = ChangeId::parse(&format!("change-{}", grant.token)).map_err(|e| e.to_string())?;
    let base = ChangeId::parse("base").map_err(|e| e.to_string())?;
    Ok(Candidate { change, base })
}

fn report_of(engine: &Engine, grant: &Grant, outcome: Outcome) -> StageReport {
    StageReport {
        run: engine.id().clone(),
        task: grant.number,
        stage: grant.stage,
        attempt: grant.attempt,
        token: grant.token,
        outcome,
        cost: Cost::NONE,
        session: None,
        candidate: None,
        merged: None,
        kept: None,
        retry_at: None,
    }
}
