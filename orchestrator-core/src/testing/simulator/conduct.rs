//! What the worker does to which a stage was granted, and what a person may change of a task.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{World, interrupted};
use crate::command::Command;
use crate::id::PoolName;
use crate::money::Usd;
use crate::outcome::{Interruption, Outcome, Restart};
use crate::record::TaskRecord;
use crate::scope::Scope;
use crate::task::TaskSpec;

use super::plans::GPU;

/// How a worker behaves, and what it says that this cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conduct {
    /// What it does.
    pub act: Act,
    /// What it says that it spent, in thousandths of what it may; over 1,000 is more than that.
    pub spent: u16,
    /// Whether it spent more than it says.
    pub is_part: bool,
}

/// What a worker does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// It does its work.
    Passes,
    /// Its work is rejected; two of the same `reason` are the same failure.
    Rejected {
        /// Which failure of several.
        reason: u8,
    },
    /// It is kept from its work.
    Interrupted(Interruption),
    /// The account is closed.
    UsageLimit {
        /// When it opens again, in minutes from now, if it says so; it may say nonsense.
        minutes: Option<i16>,
    },
    /// It waits for something outside, as a gate does.
    Suspended {
        /// When it wants to look again, in minutes from now, if it says so.
        minutes: Option<u16>,
    },
    /// It asks a person.
    Asks,
    /// It cannot even begin.
    Fatal,
    /// It is never heard of again, unless it is stopped.
    Hangs,
    /// Who merges announces that, and is never heard of again; any other does its work.
    DiesBeforeMerge,
    /// Who merges does that, and is never heard of again; any other does its work.
    DiesAfterMerge,
}

impl Conduct {
    /// One that does its work for nothing.
    #[must_use]
    pub const fn good() -> Self {
        Self { act: Act::Passes, spent: 0, is_part: false }
    }

    /// What its holder reports; `None` when that says nothing.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        Some(match self.act {
            Act::Passes | Act::DiesBeforeMerge | Act::DiesAfterMerge => Outcome::Passed,
            Act::Rejected { reason } => {
                let reason = reason as usize % 3;
                let feedback = format!("failed {}", ["here", "there", "elsewhere"][reason]);
                let restart = if reason == 2 { Restart::OnTarget } else { Restart::OnCandidate };
                Outcome::Rejected { feedback, restart }
            }
            Act::Interrupted(reason) => interrupted(reason),
            Act::UsageLimit { .. } => interrupted(Interruption::UsageLimit),
            Act::Suspended { .. } => Outcome::Suspended { poll_at: None },
            Act::Asks => Outcome::Question { text: "which?".to_owned() },
            Act::Fatal => Outcome::Fatal { error: "no such program".to_owned() },
            Act::Hangs => return None,
        })
    }
}

/// What of a result does not fit the lease that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amiss {
    /// Another stage.
    Stage,
    /// Another attempt.
    Attempt,
    /// A task that the run does not have.
    Task,
    /// Another run.
    Run,
    /// Another thing than was handed out.
    Content,
}

impl Amiss {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Stage, Self::Attempt, Self::Task, Self::Run, Self::Content];
}

/// What an edit changes of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Its priority.
    Priority(i8),
    /// One more retry.
    MoreRetries,
    /// Its estimate, in minutes.
    Estimate(u8),
    /// The one path of its scope.
    Scope(&'static str),
    /// How many permits it needs of a pool of graphics cards.
    Needs(u8),
    /// Its time limit.
    Timeout,
    /// What it may spend, in dollars.
    Budget(u8),
    /// It depends on nothing.
    NoDependencies,
    /// It depends on this one of the run's tasks too, which may make a circle.
    DependsOn(u8),
}

impl Change {
    /// The command for it.
    pub(super) fn of(&self, spec: &TaskSpec, tasks: &[TaskRecord]) -> Command {
        let mut spec = spec.clone();
        match *self {
            Self::Priority(priority) => spec.priority = i32::from(priority),
            Self::MoreRetries => spec.max_retries += 1,
            Self::Estimate(minutes) => {
                spec.estimate = Some(Duration::from_secs(60 * u64::from(minutes)));
            }
            Self::Scope(path) => spec.scope = Scope::parse([path]).ok(),
            Self::Needs(permits) => {
                let gpu = PoolName::parse(GPU).expect("a valid name");
                spec.needs.clear();
                spec.needs.extend(NonZeroU32::new(permits.into()).map(|permits| (gpu, permits)));
            }
            Self::Timeout => spec.timeout = Some(Duration::from_secs(600)),
            Self::Budget(dollars) => spec.budget = Some(Usd::dollars(u32::from(dollars))),
            Self::NoDependencies => spec.depends_on.clear(),
            Self::DependsOn(which) => {
                let at = usize::from(which).checked_rem(tasks.len());
                spec.depends_on.extend(at.map(|at| tasks[at].id.clone()));
            }
        }
        let (actor, reason) = ("sim".to_owned(), "chance".to_owned());
        Command::Edit { spec: std::sync::Arc::new(spec), actor, reason }
    }
}

impl World {
    /// Some conduct or other; most workers do their work.
    pub(super) fn any_conduct(&mut self) -> Conduct {
        let act = match self.dice.below(24) {
            reason @ 0..=2 => Act::Rejected { reason: u8::try_from(reason).unwrap_or(0) },
            3 | 4 => Act::Interrupted(Interruption::Overload),
            5 => {
                let span = i16::try_from(self.dice.below(133)).unwrap_or(0);
                Act::UsageLimit { minutes: self.dice.once_in(2).then_some(span - 16) }
            }
            6 => Act::Asks,
            7 => Act::Fatal,
            8 => Act::Hangs,
            9 => Act::Interrupted(Interruption::Auth),
            10 | 14 => {
                let later = u16::try_from(self.dice.below(66)).unwrap_or(0);
                Act::Suspended { minutes: self.dice.once_in(2).then_some(later) }
            }
            11 => Act::DiesBeforeMerge,
            12 | 13 => Act::DiesAfterMerge,
            _ => Act::Passes,
        };
        let spent = u16::try_from(self.dice.below(1_000)).unwrap_or(0);
        Conduct { act, spent, is_part: self.dice.once_in(3) }
    }

    pub(super) fn any_change(&mut self) -> Change {
        match self.dice.below(9) {
            8 => Change::Budget(u8::try_from(1 + self.dice.below(20)).unwrap_or(1)),
            0 => Change::Priority(7),
            1 => Change::MoreRetries,
            2 => Change::Estimate(u8::try_from(self.dice.below(90)).unwrap_or(0)),
            3 => Change::Scope(["src", "src/b", "docs"][self.dice.below(3) as usize]),
            4 => Change::Needs(u8::try_from(1 + self.dice.below(3)).unwrap_or(1)),
            5 => Change::Timeout,
            6 if self.dice.once_in(3) => Change::NoDependencies,
            6 => Change::DependsOn(u8::try_from(self.dice.below(12)).unwrap_or(0)),
            _ => Change::Needs(0),
        }
    }
}
