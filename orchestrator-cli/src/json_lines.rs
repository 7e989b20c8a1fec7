//! An observer that writes what happens as JSON, one object a line.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orchestrator_core::StoredEvent;
use orchestrator_core::port::{Activity, ActivityKind, Observer, Progress, Room};
use serde_json::{Value, json};

/// Lines that may wait to be written; what does not fit is counted, and the count written.
const BACKLOG: usize = 4_096;
/// How long the end waits for what is still to be written.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// Writes what happens in a run as JSON, one object a line.
///
/// A committed event has its fields and `seq`, its place in the log; a sign of life has `activity`,
/// `task` and `token`; after a commit comes `progress` with how the run stands; `room` is `short` while the disk is too
/// full for anything to be granted, with the numbers, and `enough` from then on. Where the reader is
/// too slow, `{"lost": N}` says how many lines were left out: the log in the store has all events.
/// It writes from a thread of its own, so that a reader that stands still holds nothing up.
pub struct JsonLines {
    tx: Mutex<Option<SyncSender<Value>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    lost: AtomicU64,
}

impl fmt::Debug for JsonLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonLines")
    }
}

impl JsonLines {
    /// Writes to this.
    #[must_use]
    pub fn new(out: impl Write + Send + 'static) -> Self {
        let (tx, rx) = sync_channel(BACKLOG);
        let write = move || write_all(&rx, out);
        // Without the thread nothing is written, and the run goes on.
        let thread = std::thread::Builder::new().name("json-lines".to_owned()).spawn(write).ok();
        Self { tx: Mutex::new(Some(tx)), thread: Mutex::new(thread), lost: AtomicU64::new(0) }
    }

    /// Writes what is still to be written; waits for a reader that takes it, but no longer than a
    /// moment for one that stands still.
    pub fn close(&self) {
        self.tx.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        let until = Instant::now() + CLOSE_WAIT;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            // A panic of the writer is no reason to end the run differently.
            drop(thread.join());
        }
    }

    fn send(&self, lines: impl IntoIterator<Item = Value>) {
        let tx = self.tx.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tx) = &*tx else { return };
        let mut lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 && tx.try_send(json!({ "lost": lost })).is_ok() {
            lost = 0;
        }
        for line in lines {
            if let Err(TrySendError::Full(_)) = tx.try_send(line) {
                lost += 1;
            }
        }
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }
}

fn write_all(rx: &Receiver<Value>, mut out: impl Write) {
    while let Ok(line) = rx.recv() {
        let mut text = line.to_string();
        text.push('\n');
        // Nobody reads it any more; the run goes on.
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

impl Observer for JsonLines {
    fn committed(&self, events: &[StoredEvent], progress: &Progress) {
        let events = events.iter().filter_map(|event| serde_json::to_value(event).ok());
        let standing = json!({
            "progress": progress.state.as_str(),
            "at": progress.now,
            "counts": progress.counts,
            "blocked": progress.blocked,
            "running": progress.running.len(),
            "spent": progress.spent,
            "reserved": progress.reserved,
            "budget": progress.budget,
        });
        self.send(events.chain([standing]));
    }

    fn activity(&self, activity: &Activity) {
        let mut line = match &activity.kind {
            ActivityKind::Started { pid, log } => {
                json!({ "activity": "started", "pid": pid, "log": log.to_string_lossy() })
            }
            ActivityKind::Output { bytes } => json!({ "activity": "output", "bytes": bytes }),
            ActivityKind::Session(session) => json!({ "activity": "session", "session": session }),
            ActivityKind::Said(words) => json!({ "activity": "said", "words": words }),
        };
        line["task"] = json!(activity.task);
        line["token"] = json!(activity.token);
        self.send([line]);
    }

    fn room(&self, room: &Room) {
        self.send([match room {
            Room::Enough => json!({ "room": "enough" }),
            Room::Short { place, free_bytes, wanted_bytes } => json!({
                "room": "short",
                "place": place.to_string_lossy(),
                "free_bytes": free_bytes,
                "wanted_bytes": wanted_bytes,
            }),
        }]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use orchestrator_core::{FencingToken, TaskId};

    use super::*;
    use crate::stuck::Stuck;

    #[test]
    fn a_reader_that_stands_still_does_not_hold_the_end_up() {
        let (_held, stuck) = channel();
        let lines = JsonLines::new(Stuck(stuck));
        let (task, token) = (TaskId::parse("a").unwrap(), FencingToken(1));
        lines.activity(&Activity { task, token, kind: ActivityKind::Said("on it".to_owned()) });
        let begun = Instant::now();
        lines.close();
        assert!(begun.elapsed() >= CLOSE_WAIT);
    }
}
