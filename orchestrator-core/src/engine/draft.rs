//! A decision while it is being made: what it causes is added to a buffer that is used again.

use crate::event::{Event, EventKind};
use crate::id::{BlobHash, TaskNo};
use crate::outcome::{TEXT_BYTES_MAX, head_and_tail};
use crate::plan::Links;
use crate::time::Timestamp;

/// An event inside the engine.
pub(super) type Happening = Event<TaskNo>;

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
        self.events.push(Event { at: self.now, kind });
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
