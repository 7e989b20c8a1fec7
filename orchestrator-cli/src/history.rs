//! A run as it is read back from its store.

use std::collections::BTreeMap;

use orchestrator_core::port::{Store, StoreError};
use orchestrator_core::{BlobHash, Phase, RunId, Seq, Snapshot, StoredEvent, TaskRecord};

/// Events that are read at a time.
const PAGE: usize = 1_000;

/// A run with its log, and the texts of what was escalated.
#[derive(Debug, Clone)]
pub struct History {
    /// How the run stands.
    pub snapshot: Snapshot,
    /// Its log up to there.
    pub events: Vec<StoredEvent>,
    /// The questions, errors and feedback of the tasks that are escalated.
    pub texts: BTreeMap<BlobHash, String>,
}

impl History {
    /// Reads a run; `None` when the store has no such run.
    ///
    /// # Errors
    /// [`StoreError`] when something of it could not be read.
    pub async fn read(store: &dyn Store, run: &RunId) -> Result<Option<Self>, StoreError> {
        let Some(snapshot) = store.load(run).await? else { return Ok(None) };
        let events = events(store, run, snapshot.seq).await?;
        let mut texts = BTreeMap::new();
        for hash in snapshot.tasks.iter().flat_map(named_texts) {
            if let Some(bytes) = store.blob(run, hash).await? {
                texts.insert(hash.clone(), String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Ok(Some(Self { snapshot, events, texts }))
    }
}

async fn events(
    store: &dyn Store,
    run: &RunId,
    up_to: Seq,
) -> Result<Vec<StoredEvent>, StoreError> {
    let mut events: Vec<StoredEvent> = Vec::new();
    loop {
        let after = events.last().map_or(Seq(0), |last| last.seq);
        let page = store.events(run, after, PAGE).await?;
        let before = events.len();
        events.extend(page.into_iter().take_while(|event| event.seq <= up_to));
        if events.len() == before {
            return Ok(events);
        }
    }
}

fn named_texts(task: &TaskRecord) -> Vec<&BlobHash> {
    match &task.phase {
        Phase::Escalated(escalation) => escalation.text.iter().chain(&task.feedback).collect(),
        Phase::Open
        | Phase::Deferred { .. }
        | Phase::Leased(_)
        | Phase::Stopping { .. }
        | Phase::Done(_)
        | Phase::Cancelled => Vec::new(),
    }
}
