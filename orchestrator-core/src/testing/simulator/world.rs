//! How a world begins, goes on and heals, and what is checked after each step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::checks::{Check, Kept, Log};
use super::conduct::Amiss;
use super::coverage::Coverage;
use super::disk::Disk;
use super::drivers::Clocks;
use super::{Dice, Ended, HEALED_PLACE, LATER_PLACE, Mode, RULES_PLACE, Simulation, World};
use crate::command::{Answer, Command, Refusal};
use crate::engine::{Engine, Settlement};
use crate::id::{CommandId, FencingToken, PoolName, RunId, TaskId};
use crate::pipeline::AGENTS;
use crate::plan::Plan;
use crate::policy::SchedulingPolicy;
use crate::record::{ParkReason, Phase, PoolBounds, RunState, TaskRecord};
use crate::retry::RetryRules;
use crate::testing::Model;
use crate::time::Timestamp;

impl World {
    /// The world of a simulation.
    pub(super) fn new(of: &Simulation, is_told: bool, disk: Option<Disk>) -> Self {
        let mut dice = of.dice.clone();
        let plan = super::plans::plan(&mut dice, "t", of.tasks, &[]);
        let known: Vec<TaskId> = plan.tasks.iter().map(|task| task.id.clone()).collect();
        dice.at(LATER_PLACE);
        let count = dice.below(4);
        let later = super::plans::plan(&mut dice, "u", count, &known);
        dice.at(RULES_PLACE);
        let rules = RetryRules {
            first_stage_failures_max: 3 * dice.below(2),
            passed_over_max: dice.below(4),
            dispatches_spare: 60 / (1 + dice.below(80)),
            deferrals_max: [0, 1, 3, 20][dice.below(4) as usize],
            rejection_backoff: Duration::from_secs(u64::from(dice.below(2)) * 30),
            ..RetryRules::default()
        };
        let mut world = Self::empty(dice, Arc::clone(&of.policy), is_told, disk);
        world.later = vec![Arc::new(later)];
        world.is_held = world.dice.once_in(4);
        if world.dice.once_in(16) {
            world.too_early();
        }
        let mut begun = world.begin(rules, Arc::new(plan));
        if world.dice.once_in(6) {
            let tasks = Some(1 + world.dice.below(4));
            begun = begun.and_then(|()| world.must(&Command::SetPilot { tasks }));
        }
        world.broken = world.broken.and(begun);
        world
    }

    /// A world without a run.
    pub(super) fn empty(
        dice: Dice,
        policy: Arc<dyn SchedulingPolicy>,
        is_told: bool,
        disk: Option<Disk>,
    ) -> Self {
        let run = RunId::parse("simulated").expect("a valid id");
        let model = Model::new(run.clone());
        let engine = Engine::new(run).with_policy(Arc::clone(&policy));
        Self {
            dice,
            policy,
            follower: engine.clone(),
            engine,
            model,
            log: Log::default(),
            kept: Kept::default(),
            disk,
            later: Vec::new(),
            grants: Vec::new(),
            sent: Vec::new(),
            merged: BTreeMap::new(),
            now: 0,
            clocks: Clocks::default(),
            commands: 0,
            pid: 1,
            is_held: false,
            greatest_token: FencingToken(0),
            token_floor: FencingToken(0),
            healed: false,
            is_told,
            coverage: Coverage::default(),
            step: 0,
            history: Vec::new(),
            broken: Ok(()),
            came_to: None,
        }
    }

    /// Before there is a run, nothing can be asked of it.
    fn too_early(&mut self) {
        let (actor, owner) = ("sim".to_owned(), self.owner().id);
        let pool = PoolName::parse(AGENTS).expect("a valid name");
        let commands = [
            self.opening(None),
            Command::CloseDriver { owner: owner.clone() },
            Command::Claim { owner },
            Command::AddPlan { plan: Arc::new(Plan::default()) },
            Command::LimitPool { pool: pool.clone(), limit: 1 },
            Command::ClosePool { pool: pool.clone(), until: Timestamp(9) },
            Command::OpenPool { pool: pool.clone() },
            Command::BoundPool { pool, bounds: PoolBounds::default() },
            Command::SetPilot { tasks: Some(1) },
            Command::SetBudget { budget: None },
            Command::Tick,
            Command::Pause { actor: actor.clone(), reason: actor.clone() },
            Command::Drain { reason: ParkReason::Asked },
            Command::Resume { actor },
            Command::Prune,
            Command::Settle,
        ];
        for command in commands {
            let answer = self.commit(&command);
            if !matches!(answer, Err(Refusal::NoRun(_))) {
                self.broken = Err(format!("P16: {command:?} of no run was answered {answer:?}"));
            }
        }
    }

    pub(super) fn begin(&mut self, rules: RetryRules, plan: Arc<Plan>) -> Check {
        self.must(&Command::CreateRun { rules })?;
        let opening = self.opening(None);
        self.must(&opening)?;
        self.must(&Command::AddPlan { plan })
    }

    pub(super) fn state(&self) -> RunState {
        self.engine.run().map_or(RunState::Active, |run| run.state.clone())
    }

    pub(super) fn ended(&self) -> Ended {
        let (events, coverage) = (self.log.events, self.coverage.clone());
        let state = self.came_to.clone().unwrap_or_else(|| self.state());
        Ended { events, state, coverage }
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
        let pools: Vec<PoolName> = self.engine.pools().map(|pool| pool.name.clone()).collect();
        for pool in pools {
            self.must(&Command::LimitPool { pool: pool.clone(), limit: 3 })?;
            self.must(&Command::BoundPool { pool, bounds: PoolBounds::default() })?;
        }
        self.must(&Command::SetPilot { tasks: None })?;
        for _ in 0..self.healed_steps_max() {
            if self.grants.is_empty() && self.engine.settlement(self.time()).is_some() {
                self.must(&Command::Settle)?;
                self.ended_well()?;
                self.came_to = Some(self.state());
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
            0..=6 => self.claim_and_dispatch(),
            7..=12 => self.answer(),
            13 if self.dice.once_in(3) => {
                let how = Amiss::ALL[self.one_of(Amiss::ALL.len())];
                self.answer_amiss(0, how)
            }
            13 => {
                let at = self.one_of(self.sent.len());
                self.answer_again(at)
            }
            14 => self.pass_time(),
            15 => self.driver_step(),
            16 if self.dice.once_in(2) => self.stray(),
            16 => self.person(),
            17 => self.refused_commit(Self::batch_of_anything),
            18 if self.dice.once_in(2) => {
                self.clock_jumps_back()?;
                self.person()
            }
            18 => self.another_plan(),
            _ if self.dice.once_in(2) => self.must(&Command::Settle),
            _ => self.must(&Command::Tick),
        }
    }

    /// A stage is taken, and now and then its holder says what it hands out.
    fn claim_and_dispatch(&mut self) -> Check {
        if !self.healed && self.dice.once_in(8) {
            self.claim_one()?;
        } else {
            self.claim()?;
        }
        let last = self.grants.len().saturating_sub(1);
        if self.dice.once_in(3) { self.dispatch(last) } else { Ok(()) }
    }

    /// Something befalls the driver, and what ran under its leases is found and ended.
    fn driver_step(&mut self) -> Check {
        match self.dice.below(12) {
            0..=5 => self.driver_dies()?,
            6 => {
                let leap = self.any_leap();
                self.reboot(leap)?;
            }
            7 => {
                let leap = self.any_leap();
                self.wall_clock_leaps(leap)?;
            }
            _ => self.another_driver()?,
        }
        self.end_stopping()
    }

    /// The place of one of so many; 0 when there is none.
    pub(super) fn one_of(&mut self, len: usize) -> usize {
        self.dice.below(u32::try_from(len).unwrap_or(u32::MAX)) as usize
    }

    pub(super) fn healed_step(&mut self) -> Check {
        self.must(&Command::Tick)?;
        self.end_stopping()?;
        self.claim_and_dispatch()?;
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
