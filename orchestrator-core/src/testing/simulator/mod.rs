//! A seeded world around the engine: virtual time, workers that pass, fail, hang, lie, answer late or
//! twice, also for a driver that is dead, plans that come later, usage limits, people, drivers that
//! die with a batch that was never committed, machines that start anew, clocks that leap, commits
//! that are refused.
//!
//! The same seed gives the same history. After each step the engine is audited, and its state is held
//! against the log, against the records that were committed, and against the promises by definition
//! (`checks`); after `steps` the faults stop, and then the run must settle.

pub(super) mod checks;
mod conduct;
mod coverage;
mod dice;
mod disk;
mod drivers;
mod history;
mod people;
mod plans;
mod workers;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use self::checks::{Check, Kept, Log};
pub use self::conduct::{Act, Amiss, Change, Conduct};
pub use self::coverage::Coverage;
pub use self::dice::Dice;
use self::disk::Disk;
use self::drivers::Clocks;
pub use self::history::{History, Step};
use crate::command::{Grant, StageReport};
use crate::engine::Engine;
use crate::id::{ChangeId, FencingToken, TaskId};
use crate::outcome::{Candidate, Interruption, Outcome};
use crate::plan::Plan;
use crate::policy::{RemainingPath, SchedulingPolicy};
use crate::port::Store;
use crate::record::RunState;
use crate::testing::Model;

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

    /// The steps that are not left out.
    #[must_use]
    pub fn kept(&self) -> Vec<u32> {
        (0..self.steps).filter(|step| !self.without.contains(step)).collect()
    }

    /// The same world with these steps only.
    #[must_use]
    pub fn only(self, kept: &BTreeSet<u32>) -> Self {
        let steps = kept.last().map_or(0, |last| last.saturating_add(1));
        let without = (0..steps).filter(|step| !kept.contains(step)).collect();
        Self { steps, without, ..self }
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
                Violation { seed: Some(self.dice.seed), what, step, history }
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
        let ended = world.ended();
        (lived.map(|()| ended), world)
    }

    fn violation(&self) -> Violation {
        let (lived, World { step, history, .. }) = self.tell(true, None);
        let what = lived.err().unwrap_or_else(|| "P13: it went well the second time".to_owned());
        Violation { seed: Some(self.dice.seed), what, step, history }
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
            let before = world.without.len();
            for first in (0..world.steps).step_by(size as usize) {
                let mut next = world.clone();
                next.without.extend(first..(first + size).min(world.steps));
                if next.without.len() > world.without.len() {
                    smaller(&mut world, &mut found, next);
                }
            }
            // What goes last may be what an earlier one was needed for.
            if size > 1 || world.without.len() == before {
                size /= 2;
            }
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
    /// The seed that shows it again, when it came from one.
    pub seed: Option<u64>,
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
        if let Some(seed) = self.seed {
            write!(f, "seed {seed}, ")?;
        }
        writeln!(f, "step {}: {}", self.step, self.what)?;
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
    clocks: Clocks,
    commands: u64,
    pid: u32,
    /// Whether a supervisor that does not renew its leases drives.
    is_held: bool,
    greatest_token: FencingToken,
    token_floor: FencingToken,
    healed: bool,
    is_told: bool,
    coverage: Coverage,
    step: u32,
    history: Vec<String>,
    /// The first promise that a commit broke.
    broken: Check,
    /// What the run came to when it settled.
    came_to: Option<RunState>,
}

fn interrupted(reason: Interruption) -> Outcome {
    Outcome::Interrupted { reason, retry_at: None }
}

fn candidate(grant: &Grant) -> Result<Candidate, String> {
    let change = ChangeId::parse(&format!("change-{}", grant.token)).map_err(|e| e.to_string())?;
    let base = ChangeId::parse("base").map_err(|e| e.to_string())?;
    Ok(Candidate { change, base })
}
