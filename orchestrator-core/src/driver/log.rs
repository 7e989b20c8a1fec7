//! Reading a run's log around what cannot be understood of it.

use tracing::warn;

use crate::event::StoredEvent;
use crate::id::{RunId, Seq};
use crate::port::{Store, StoreError};

/// Events that are read at once.
const AT_ONCE: usize = 1_000;
/// How many events are passed over until all that is left is.
const PASSED_OVER_MAX: u32 = 1_000;

/// The events after a position and up to another, without those that cannot be understood: a newer
/// program may have written them, or a person. What they came to is in the records.
pub(super) async fn readable(
    store: &dyn Store,
    run: &RunId,
    after: Seq,
    end: Seq,
) -> Result<Vec<StoredEvent>, StoreError> {
    let mut events = Vec::new();
    let (mut after, mut at_once, mut passed_over) = (after, AT_ONCE, 0);
    while after < end && passed_over < PASSED_OVER_MAX {
        match store.events(run, after, at_once).await {
            Ok(page) => {
                let Some(last) = page.last() else { break };
                after = last.seq;
                events.extend(page.into_iter().filter(|stored| stored.seq <= end));
            }
            // One of these: those before it can be read.
            Err(StoreError::Corrupt { .. }) if at_once > 1 => at_once = 1,
            Err(err @ StoreError::Corrupt { .. }) => {
                warn!(error = %err, "an event is passed over");
                (after, at_once, passed_over) = (after.plus(1), AT_ONCE, passed_over + 1);
            }
            Err(err) => return Err(err),
        }
    }
    Ok(events)
}
