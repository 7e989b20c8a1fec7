//! How a world begins, goes on and heals, and what is checked after each step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::checks::{Check, Kept, Log};
use super::coverage::Coverage;
use super::disk::Disk;
use super::plans::GPU;
use super::{HEALED_PLACE, LATER_PLACE, Mode, RULES_PLACE, Simulation, World};
use crate::command::{Answer, Command, Refusal};
use crate::engine::{Engine, Settlement};
use crate::id::{CommandId, FencingToken, OwnerId, PoolName, RunId, TaskId};
use crate::lease::{HELD, Owner};
use crate::pipeline::AGENTS;
use crate::plan::Plan;
use crate::record::{Phase, RunState, TaskRecord};
use crate::retry::RetryRules;
use crate::testing::Model;
use crate::time::{ClockReading, Timestamp, WallTime};

impl World {
    pub(super) fn new(of: &Simulation, is_told: bool, disk: Option<Disk>) -> Self {
        let run = RunId::parse("simulated").expect("a valid id");
        let mut dice = of.dice.clone();
        let plan = Arc::new(super::plans::plan(&mut dice, "t", of.tasks, &[]));
        let known: Vec<TaskId> = plan.tasks.iter().map(|task| task.id.clone()).collect();
        dice.at(LATER_PLACE);
        let count = dice.below(4);
        let later = vec![Arc::new(super::plans::plan(&mut dice, "u", count, &known))];
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
            is_held: false,
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
            dispatches_spare: 60 / (1 + world.dice.below(80)),
            deferrals_max: [0, 1, 3, 20][world.dice.below(4) as usize],
            rejection_backoff: Duration::from_secs(u64::from(world.dice.below(2)) * 30),
            ..RetryRules::default()
        };
        world.is_held = world.dice.once_in(4);
        world.begin(rules, plan);
        world
    }

    pub(super) fn begin(&mut self, rules: RetryRules, plan: Arc<Plan>) {
        let commands =
            [Command::CreateRun { rules }, self.opening(None), Command::AddPlan { plan }];
        for command in commands {
            let outcome = self.commit(&command);
            debug_assert!(outcome.is_ok(), "{outcome:?}");
        }
    }

    pub(super) fn state(&self) -> RunState {
        self.engine.run().map_or(RunState::Active, |run| run.state.clone())
    }

    pub(super) fn owner(&self) -> Owner {
        let name = if self.is_held { "supervisor".to_owned() } else { format!("sim/{}", self.pid) };
        let id = OwnerId::parse(&name).expect("a valid id");
        let (host, boot_id) = ("sim".to_owned(), "boot".to_owned());
        Owner { id, host, boot_id, pid: self.pid, start_time: 0 }
    }

    pub(super) fn opening(&self, ended: Option<OwnerId>) -> Command {
        let (boot_id, wall) = ("boot".to_owned(), WallTime(0));
        Command::OpenDriver {
            owner: self.owner(),
            reading: ClockReading { boot_id, boot_ms: self.now, wall },
            ttl: if self.is_held { HELD } else { Duration::from_secs(3_600) },
            token_floor: FencingToken(0),
            ended,
        }
    }

    pub(super) fn live(&mut self, of: &Simulation) -> Check {
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
    pub(super) fn heal(&mut self) -> Check {
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
                self.ended_well()?;
                return self.after_the_end();
            }
            self.healed_step()?;
        }
        Err(format!("P15: the run does not settle: {:?}", self.explain_all()))
    }

    /// Nobody keeps people from asking things of a run that is over.
    fn after_the_end(&mut self) -> Check {
        let commands = [self.run_command(), self.persons_command(), self.run_command()];
        for command in commands {
            drop(self.commit(&command));
            self.check()?;
        }
        Ok(())
    }

    /// Each task passes each of its stages once; each lease that was lost, and each wait, ends once.
    pub(super) fn healed_steps_max(&self) -> usize {
        let stages = |task: TaskRecord| {
            self.engine.pipeline(&task.id).map_or(0, |pipeline| pipeline.stages().len())
        };
        let passes: usize = self.engine.tasks().map(stages).sum();
        2 * passes + 2 * self.engine.tasks().count() + 8
    }

    pub(super) fn ended_well(&self) -> Check {
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

    pub(super) fn explain_all(&self) -> Vec<String> {
        let tasks = self.engine.tasks();
        tasks.map(|t| format!("{}: {:?}", t.id, self.engine.explain(self.time(), &t.id))).collect()
    }

    pub(super) fn time(&self) -> Timestamp {
        Timestamp(self.now)
    }

    /// The time that a decision counts with.
    pub(super) fn time_of(&self, engine: &Engine) -> Timestamp {
        self.time().max(engine.run().map(|run| run.last_at).unwrap_or_default())
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.is_told {
            self.history.push(what());
        }
    }

    pub(super) fn faulty_step(&mut self) -> Check {
        match self.dice.below(20) {
            0..=6 => self.claim(),
            7..=12 => self.answer(),
            13 if self.dice.once_in(3) => self.answer_amiss(),
            13 => self.answer_again(),
            14 => self.pass_time(),
            15 if self.dice.once_in(2) => self.driver_dies(),
            16 if self.dice.once_in(2) => self.stray(),
            16 => self.person(),
            17 => self.refused_commit(),
            18 if self.dice.once_in(2) => self.clock_jumps_back(),
            18 => self.another_plan(),
            15 => self.another_driver(),
            _ if self.dice.once_in(2) => self.must(&Command::Settle),
            _ => self.must(&Command::Tick),
        }
    }

    pub(super) fn healed_step(&mut self) -> Check {
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

    pub(super) fn must(&mut self, command: &Command) -> Check {
        match self.commit(command) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(format!("{command:?} was refused: {refusal}")),
        }
        .and_then(|()| self.check())
    }

    pub(super) fn command_id(&mut self) -> CommandId {
        self.commands += 1;
        CommandId::parse(&format!("c{}", self.commands)).expect("a valid id")
    }

    pub(super) fn commit(&mut self, command: &Command) -> Result<Answer, Refusal> {
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
            let framed = super::checks::frame(command, &self.follower, &self.engine);
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
    pub(super) fn check(&self) -> Check {
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
        super::checks::dispatches(one)?;
        super::checks::reasons(one, self.time_of(one))
    }
}
