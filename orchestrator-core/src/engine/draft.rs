//! A decision while it is being made: what it causes is added to a buffer that is used again.

use super::Engine;
use crate::command::Answer;
use crate::event::{Event, EventKind};
use crate::id::{BlobHash, ChangeId, FencingToken, SessionId, TaskNo};
use crate::money::Usd;
use crate::outcome::{Candidate, TEXT_BYTES_MAX, head_and_tail};
use crate::plan::Links;
use crate::time::Timestamp;

/// An event inside the engine: with numbers for names, and small. What it says beyond that lies in
/// the draft that it is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Happening {
    pub(super) at: Timestamp,
    pub(super) what: What,
}

/// What happens. Grants and what passes are most of it: they have a small form of their own here.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Granted(Granted),
    Passed(Passed),
    /// The place of the event among the others.
    Other(usize),
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
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    pub(super) task: TaskNo,
    pub(super) token: FencingToken,
    pub(super) cost: Usd,
    /// The place of what it made, which most stages do not.
    pub(super) made: Option<u32>,
}

/// What a stage that passed made.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Made {
    pub(super) candidate: Option<Candidate>,
    pub(super) merged: Option<ChangeId>,
    pub(super) session: Option<SessionId>,
}

/// What commands cause.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    /// The time of what is added next.
    pub(super) now: Timestamp,
    pub(super) events: Vec<Happening>,
    others: Vec<EventKind<TaskNo>>,
    made: Vec<Made>,
    pub(super) blobs: Vec<Vec<u8>>,
    /// The dependencies of the plan that is added.
    pub(super) links: Option<Box<Links>>,
}

/// How much there is in a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lengths {
    pub(super) events: usize,
    others: usize,
    made: usize,
    blobs: usize,
}

impl Draft {
    pub(super) fn push(&mut self, kind: EventKind<TaskNo>) {
        self.others.push(kind);
        self.happens(self.now, What::Other(self.others.len() - 1));
    }

    /// What is granted, if anything is; gives what the claim gets back.
    pub(super) fn grants(&mut self, grant: Option<Granted>) -> Answer {
        let Some(grant) = grant else { return Answer::Nothing };
        self.happens(self.now, What::Granted(grant));
        let Granted { task, stage, attempt, token, .. } = grant;
        Answer::Granted { task, stage, attempt, token }
    }

    #[inline]
    pub(super) fn happens(&mut self, at: Timestamp, what: What) {
        self.events.push(Happening { at, what });
    }

    /// A stage passed, and may have made something.
    #[inline]
    pub(super) fn passed(
        &mut self,
        task: TaskNo,
        token: FencingToken,
        cost: Usd,
        made: Option<Made>,
    ) {
        let made = made.map(|made| {
            self.made.push(made);
            u32::try_from(self.made.len() - 1).unwrap_or(u32::MAX)
        });
        self.happens(self.now, What::Passed(Passed { task, token, cost, made }));
    }

    /// What a stage that passed made, if it did.
    #[inline]
    pub(super) fn made(&self, passed: &Passed) -> Option<&Made> {
        self.made.get(passed.made? as usize)
    }

    /// The event of this place among those that have no form of their own.
    #[inline]
    pub(super) fn other(&self, place: usize) -> &EventKind<TaskNo> {
        &self.others[place]
    }

    /// Adds a text, cut to what is kept of one, and gives its address.
    pub(super) fn text(&mut self, text: &str) -> BlobHash {
        let bytes = head_and_tail(text, TEXT_BYTES_MAX).into_bytes();
        let hash = BlobHash::of(&bytes);
        self.blobs.push(bytes);
        hash
    }

    /// Takes back all of it.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.events.clear();
        // Grants, and what passes and made nothing, leave nothing else.
        if self.others.len() + self.made.len() + self.blobs.len() > 0 {
            self.clear_rest();
        }
    }

    #[cold]
    #[inline(never)]
    fn clear_rest(&mut self) {
        self.others.clear();
        self.made.clear();
        self.blobs.clear();
    }

    /// Takes back what was added since it was so long.
    pub(super) fn cut(&mut self, to: Lengths) {
        self.events.truncate(to.events);
        self.others.truncate(to.others);
        self.made.truncate(to.made);
        self.blobs.truncate(to.blobs);
    }

    #[inline]
    pub(super) const fn lengths(&self) -> Lengths {
        Lengths {
            events: self.events.len(),
            others: self.others.len(),
            made: self.made.len(),
            blobs: self.blobs.len(),
        }
    }
}

impl Engine {
    /// The events of a draft as a log has them.
    pub(super) fn published(&self, draft: &Draft) -> Vec<Event> {
        let name = |task: TaskNo| self.specs.id(task.0).clone();
        let kind = |what: What| match what {
            What::Granted(Granted { task, stage, attempt, token, owner, hard_stop, reserved }) => {
                let (task, owner) = (name(task), self.owners.name(owner).clone());
                EventKind::Granted { task, stage, attempt, token, owner, hard_stop, reserved }
            }
            What::Passed(passed) => {
                let Passed { task, token, cost, .. } = passed;
                let made = draft.made(&passed).cloned().unwrap_or_default();
                let Made { candidate, merged, session } = made;
                EventKind::Passed { task: name(task), token, cost, candidate, merged, session }
            }
            What::Other(place) => draft.other(place).clone().named(name),
        };
        let event = |event: &Happening| Event { at: event.at, kind: kind(event.what) };
        draft.events.iter().map(event).collect()
    }

    /// An event of a log as it is inside.
    pub(super) fn taken_in(&mut self, event: &Event) -> Draft {
        /// The number of a task that the run does not have.
        const UNKNOWN: TaskNo = TaskNo(u32::MAX);
        let mut draft = Draft { now: event.at, ..Draft::default() };
        let number = |id| self.specs.number(&id).map_or(UNKNOWN, TaskNo);
        let kind = event.kind.clone().named(number);
        if let EventKind::Granted { task, stage, attempt, token, owner, hard_stop, reserved } = kind
        {
            let owner = self.owners.number(&owner);
            let grant = Granted { task, stage, attempt, token, owner, hard_stop, reserved };
            draft.happens(event.at, What::Granted(grant));
        } else if let EventKind::Passed { task, token, cost, candidate, merged, session } = kind {
            draft.passed(task, token, cost, Some(Made { candidate, merged, session }));
        } else {
            draft.push(kind);
        }
        draft
    }
}
