//! A decision while it is being made: what it causes is added to a buffer that is used again.

use super::Engine;
use crate::event::{Event, EventKind};
use crate::id::{BlobHash, ChangeId, FencingToken, SessionId, TaskNo};
use crate::money::Usd;
use crate::outcome::{Candidate, TEXT_BYTES_MAX, head_and_tail};
use crate::plan::Links;
use crate::time::Timestamp;

/// An event inside the engine: with numbers for names.
#[derive(Debug, Clone)]
pub(super) struct Happening {
    pub(super) at: Timestamp,
    pub(super) what: What,
}

/// What happens. Grants and what passes are most of it: they have a small form of their own here.
#[derive(Debug, Clone)]
pub(super) enum What {
    Granted(Granted),
    Passed(Passed),
    Other(Box<EventKind<TaskNo>>),
}

/// [`EventKind::Granted`], with the number of its owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Granted {
    pub(super) task: TaskNo,
    pub(super) stage: u8,
    pub(super) attempt: u32,
    pub(super) token: FencingToken,
    pub(super) owner: u32,
    pub(super) hard_stop: Timestamp,
    pub(super) reserved: Usd,
}

/// [`EventKind::Passed`].
#[derive(Debug, Clone)]
pub(super) struct Passed {
    pub(super) task: TaskNo,
    pub(super) token: FencingToken,
    pub(super) cost: Usd,
    /// What most stages do not make.
    pub(super) made: Option<Box<Made>>,
}

/// What a stage that passed made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Made {
    pub(super) candidate: Option<Candidate>,
    pub(super) merged: Option<ChangeId>,
    pub(super) session: Option<SessionId>,
}

impl Made {
    /// This, unless it is nothing.
    fn some(self) -> Option<Box<Self>> {
        let is_some = self.candidate.is_some() || self.merged.is_some() || self.session.is_some();
        is_some.then(|| Box::new(self))
    }
}

/// What commands cause.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    /// The time of what is added next.
    pub(super) now: Timestamp,
    pub(super) events: Vec<Happening>,
    pub(super) blobs: Vec<Vec<u8>>,
    /// The dependencies of the plan that is added.
    pub(super) links: Option<Box<Links>>,
}

impl Draft {
    pub(super) fn push(&mut self, kind: EventKind<TaskNo>) {
        self.happens(What::Other(Box::new(kind)));
    }

    #[inline]
    pub(super) fn happens(&mut self, what: What) {
        self.events.push(Happening { at: self.now, what });
    }

    /// Adds a text, cut to what is kept of one, and gives its address.
    pub(super) fn text(&mut self, text: &str) -> BlobHash {
        let bytes = head_and_tail(text, TEXT_BYTES_MAX).into_bytes();
        let hash = BlobHash::of(&bytes);
        self.blobs.push(bytes);
        hash
    }

    /// Takes back what was added since these lengths.
    pub(super) fn cut(&mut self, (events, blobs): (usize, usize)) {
        self.events.truncate(events);
        self.blobs.truncate(blobs);
    }

    pub(super) const fn lengths(&self) -> (usize, usize) {
        (self.events.len(), self.blobs.len())
    }
}

impl Engine {
    /// The event as a log has it.
    pub(super) fn published(&self, happening: &Happening) -> Event {
        let name = |task: TaskNo| self.specs.id(task.0).clone();
        let kind = match happening.what.clone() {
            What::Granted(Granted { task, stage, attempt, token, owner, hard_stop, reserved }) => {
                let (task, owner) = (name(task), self.owners.name(owner).clone());
                EventKind::Granted { task, stage, attempt, token, owner, hard_stop, reserved }
            }
            What::Passed(Passed { task, token, cost, made }) => {
                let nothing = Made { candidate: None, merged: None, session: None };
                let Made { candidate, merged, session } = made.map_or(nothing, |made| *made);
                EventKind::Passed { task: name(task), token, cost, candidate, merged, session }
            }
            What::Other(kind) => kind.named(name),
        };
        Event { at: happening.at, kind }
    }

    /// An event of a log as it is inside.
    pub(super) fn taken_in(&mut self, event: &Event) -> Happening {
        /// The number of a task that the run does not have.
        const UNKNOWN: TaskNo = TaskNo(u32::MAX);
        let number = |id| self.specs.number(&id).map_or(UNKNOWN, TaskNo);
        let kind = event.kind.clone().named(number);
        let what =
            if let EventKind::Granted { task, stage, attempt, token, owner, hard_stop, reserved } =
                kind
            {
                let owner = self.owners.number(&owner);
                What::Granted(Granted { task, stage, attempt, token, owner, hard_stop, reserved })
            } else if let EventKind::Passed { task, token, cost, candidate, merged, session } = kind
            {
                let made = Made { candidate, merged, session }.some();
                What::Passed(Passed { task, token, cost, made })
            } else {
                What::Other(Box::new(kind))
            };
        Happening { at: event.at, what }
    }
}
