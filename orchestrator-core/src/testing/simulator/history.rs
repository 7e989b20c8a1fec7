//! A history that is written down step by step, so that it can be drawn, made smaller and kept.

use std::fmt;
use std::sync::Arc;

use super::checks::Check;
use super::conduct::{Amiss, Change, Conduct};
use super::{Dice, Ended, HEALED_PLACE, Violation, World};
use crate::command::Command;
use crate::money::Usd;
use crate::plan::Plan;
use crate::policy::SchedulingPolicy;
use crate::record::TaskRecord;
use crate::retry::RetryRules;

/// Something that happens.
///
/// Where one of several is meant, by its place, a place beyond the last counts from the first again;
/// where there is none, nothing happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The driver takes a stage.
    Claim,
    /// A holder says what it hands out.
    Dispatch {
        /// Which of the stages under way.
        which: u8,
    },
    /// A stage under way comes to its end.
    Work {
        /// Which of them.
        which: u8,
        /// What its worker does.
        conduct: Conduct,
    },
    /// A result is sent that fits no lease.
    Amiss {
        /// Whose of the stages under way.
        which: u8,
        /// What of it does not fit.
        how: Amiss,
    },
    /// A result arrives once more.
    Again {
        /// Which of those that were sent, or of stages that were ended.
        which: u8,
    },
    /// What runs under a lease that is being stopped is found and ended.
    Stop {
        /// Which of them.
        which: u8,
        /// Whether its worker says just before that it passed.
        says: bool,
        /// What it then says that it spent, in cents.
        cents: u16,
    },
    /// Time passes, and the driver looks at it.
    Wait {
        /// How much, in minutes.
        minutes: u16,
    },
    /// The driver takes a stage by a clock that went back.
    ClockBack,
    /// The driver dies with commands that were never committed, and the next one takes over.
    DriverDies {
        /// The commands.
        lost: Vec<Command>,
    },
    /// The machine dies with the driver and what it ran; the wall clock shows anything afterwards.
    Reboot {
        /// How far it is ahead, in minutes.
        minutes: u32,
    },
    /// A second driver is refused, the first one ends as it should, and the second one takes over.
    NextDriver,
    /// Commands are decided whose commit is refused.
    Refused {
        /// The commands.
        commands: Vec<Command>,
    },
    /// A person edits a task.
    Edit {
        /// Which of the run's tasks.
        which: u8,
        /// What is changed.
        change: Change,
    },
    /// Somebody else asks for something.
    Ask(Command),
}

/// A plan, the rules of its run, and what happens.
///
/// Each step is checked as in a [`Simulation`](super::Simulation): by the audit, by the log, by the
/// records that were committed, by the reference model and by the promises as they are written. Then
/// the faults stop, and the run must settle.
#[derive(Clone, PartialEq)]
pub struct History {
    /// The plan at the beginning.
    pub plan: Plan,
    /// The rules.
    pub rules: RetryRules,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

impl History {
    /// Lives through it by a policy.
    ///
    /// # Errors
    /// [`Violation`], with all that was done up to it.
    pub fn live(&self, policy: Arc<dyn SchedulingPolicy>) -> Result<Ended, Violation> {
        let mut world = World::empty(Dice::new(HEALED_PLACE), policy, true, None);
        match self.pass(&mut world) {
            Ok(()) => Ok(world.ended()),
            Err(what) => {
                let World { step, history, .. } = world;
                Err(Violation { seed: None, what, step, history })
            }
        }
    }

    fn pass(&self, world: &mut World) -> Check {
        world.begin(self.rules.clone(), Arc::new(self.plan.clone()))?;
        for (number, step) in (0..).zip(&self.steps) {
            world.step = number;
            world.take(step)?;
        }
        world.heal()
    }
}

/// The plan as JSON, and a line for each step.
impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = serde_json::to_string(&self.plan).map_err(|_| fmt::Error)?;
        writeln!(f, "{:?}", self.rules)?;
        writeln!(f, "{plan}")?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step:?}"))
    }
}

/// The place of one of so many.
fn one(which: u8, len: usize) -> Option<usize> {
    usize::from(which).checked_rem(len)
}

impl World {
    fn take(&mut self, step: &Step) -> Check {
        match step {
            Step::Claim => self.claim(),
            Step::Dispatch { which } => {
                one(*which, self.grants.len()).map_or(Ok(()), |at| self.dispatch(at))
            }
            Step::Work { which, conduct } => self.works(*which, conduct),
            Step::Amiss { which, how } => {
                one(*which, self.grants.len()).map_or(Ok(()), |at| self.answer_amiss(at, *how))
            }
            Step::Again { which } => {
                one(*which, self.sent.len()).map_or(Ok(()), |at| self.answer_again(at))
            }
            Step::Stop { which, says, cents } => {
                let stopping = self.stopping();
                let Some(at) = one(*which, stopping.len()) else { return Ok(()) };
                let ((task, token), spent) = (stopping[at], Usd(u64::from(*cents) * 10_000));
                self.end_one(task, token, spent, *says)
            }
            Step::Wait { minutes } => {
                self.now += 60_000 * u64::from(*minutes);
                self.must(&Command::Tick)
            }
            Step::ClockBack => self.clock_jumps_back(),
            Step::DriverDies { lost } => {
                self.note(|| "the driver dies".to_owned());
                let restored = self.restored()?;
                lost.iter().for_each(|command| self.submit(command));
                self.take_over(restored)
            }
            Step::Reboot { minutes } => self.reboot(60_000 * u64::from(*minutes)),
            Step::NextDriver => self.another_driver(),
            Step::Refused { commands } => self.refused_commit(|world| {
                commands.iter().for_each(|command| world.submit(command));
            }),
            Step::Edit { which, change } => {
                let tasks: Vec<TaskRecord> = self.engine.tasks().collect();
                let Some(at) = one(*which, tasks.len()) else { return Ok(()) };
                let spec = self.engine.spec(&tasks[at].id).cloned();
                spec.map_or(Ok(()), |spec| self.ask(&change.of(&spec, &tasks)))
            }
            Step::Ask(command) => self.ask(command),
        }
    }

    fn works(&mut self, which: u8, conduct: &Conduct) -> Check {
        let Some(at) = one(which, self.grants.len()) else { return Ok(()) };
        let grant = self.grants.swap_remove(at);
        let report = self.carry_out(&grant, conduct)?;
        report.map_or(Ok(()), |report| self.first_report(report))
    }

    /// A refusal is an answer too; the check shows that it changed nothing.
    fn ask(&mut self, command: &Command) -> Check {
        drop(self.commit(command));
        self.check()
    }
}
