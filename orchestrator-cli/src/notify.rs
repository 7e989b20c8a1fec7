//! Telling somebody, by a command, of what a person must know.
//!
//! At least once for each: how far the log was told of is kept in a file beside the run, which is
//! written after the command has ended well. What was told twice has the same event id.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use orchestrator_core::port::{Observer, Progress, Store, StoreError};
use orchestrator_core::{EventKind, RunEnd, RunId, Seq, StoredEvent};
use orchestrator_process::{Environment, Limits, Program, capture};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::write::{WriteError, write_whole};

/// How long the command may take.
const WALL: Duration = Duration::from_secs(60);
/// The first wait before it is tried again, and the longest.
const WAIT: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Events that are read at a time.
const PAGE: usize = 1_000;
/// How much of what the command says is kept for the log.
const SAID_BYTES_MAX: usize = 4 * 1024;

/// What somebody is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Notice {
    /// Its place in the log; what is no event has that of the last one.
    seq: Seq,
    what: &'static str,
    task: Option<String>,
    why: String,
}

/// Runs a command for each task that is escalated, and when the run parks, stalls or is finished.
///
/// The command finds `ORCHESTRATOR_EVENT_ID`, `ORCHESTRATOR_EVENT` (`escalated`, `parked`, `stalled`,
/// `completed`, `failed`), `ORCHESTRATOR_RUN`, `ORCHESTRATOR_WHY` and, where it is about one,
/// `ORCHESTRATOR_TASK` in its environment beside what tools need, and the same as JSON on its standard
/// input. It is run once for each event, or more often: again when it ends otherwise than with 0,
/// and again by the next process when this one ends before that is written down.
#[derive(Debug)]
pub struct Notifier {
    /// Until it is closed.
    tx: Mutex<Option<mpsc::UnboundedSender<Notice>>>,
    telling: Mutex<Option<JoinHandle<()>>>,
    give_up: CancellationToken,
}

/// A notifier that cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// What happened before cannot be read.
    #[error("what happened before cannot be read")]
    Store(#[from] StoreError),
    /// How far the log was told of cannot be read.
    #[error("{} cannot be read", path.display())]
    Cursor {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be written either.
    #[error("how far the log was told of cannot be kept")]
    Write(#[from] WriteError),
}

impl Notifier {
    /// Begins to tell: first of what happened since `cursor` was written, then of what is committed.
    ///
    /// `command` is a program and its arguments. In a run without the file, all of its past is told.
    ///
    /// # Errors
    /// [`NotifyError`] when it is not known what was told already.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(
        command: &[String],
        cursor: PathBuf,
        store: &dyn Store,
        run: &RunId,
    ) -> Result<Self, NotifyError> {
        let told = read_cursor(&cursor)?;
        write_cursor(&cursor, told)?;
        let mut missed = VecDeque::new();
        let mut after = told;
        loop {
            let page = store.events(run, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            missed.extend(page.iter().filter_map(notice));
        }
        let (tx, rx) = mpsc::unbounded_channel();
        let program = program(command);
        let give_up = CancellationToken::new();
        let teller = Teller { program, run: run.clone(), cursor, told, give_up: give_up.clone() };
        let telling = Mutex::new(Some(tokio::spawn(teller.tell(missed, after, rx))));
        Ok(Self { tx: Mutex::new(Some(tx)), telling, give_up })
    }

    /// Tells that driving the run ended, where that is no event: it stalled.
    pub fn ended(&self, end: &RunEnd, at: Seq) {
        if let RunEnd::Stalled(tasks) = end {
            let why =
                format!("{} tasks could run, but what they need will never be there", tasks.len());
            self.send(Notice { seq: at, what: "stalled", task: None, why });
        }
    }

    fn send(&self, notice: Notice) {
        if let Some(tx) = &*self.tx.lock().unwrap_or_else(PoisonError::into_inner) {
            // Nobody tells any more: the next process does.
            drop(tx.send(notice));
        }
    }

    /// Tells what is still to be told, for this long at most; the rest is told by the next process.
    pub async fn close(&self, patience: Duration) {
        self.tx.lock().unwrap_or_else(PoisonError::into_inner).take();
        let telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut telling) = telling else { return };
        if tokio::time::timeout(patience, &mut telling).await.is_err() {
            self.give_up.cancel();
            // It ends its command first.
            drop(telling.await);
        }
    }
}

impl Observer for Notifier {
    fn committed(&self, events: &[StoredEvent], _: &Progress) {
        events.iter().filter_map(notice).for_each(|notice| self.send(notice));
    }
}

fn notice(stored: &StoredEvent) -> Option<Notice> {
    let (what, task, why) = match &stored.event.kind {
        EventKind::Escalated { task, cause, .. } => {
            ("escalated", Some(task.as_str().to_owned()), cause.as_str())
        }
        EventKind::Parked { reason } => ("parked", None, reason.as_str()),
        EventKind::Completed => ("completed", None, "all tasks are done or cancelled"),
        EventKind::Failed => ("failed", None, "what is left waits for a person"),
        EventKind::RunCreated { .. }
        | EventKind::PlanAdded { .. }
        | EventKind::PoolLimited { .. }
        | EventKind::PoolClosed { .. }
        | EventKind::PoolOpened { .. }
        | EventKind::PoolBounded { .. }
        | EventKind::PlanPruned { .. }
        | EventKind::PilotSet { .. }
        | EventKind::BudgetSet { .. }
        | EventKind::DriverOpened { .. }
        | EventKind::DriverEnded { .. }
        | EventKind::Granted { .. }
        | EventKind::Passed { .. }
        | EventKind::Rejected { .. }
        | EventKind::Suspended { .. }
        | EventKind::Interrupted { .. }
        | EventKind::Stopping { .. }
        | EventKind::Cancelling { .. }
        | EventKind::ResultRefused { .. }
        | EventKind::Dispatched { .. }
        | EventKind::MergeIntended { .. }
        | EventKind::Due { .. }
        | EventKind::Edited { .. }
        | EventKind::Retried { .. }
        | EventKind::Resolved { .. }
        | EventKind::Cancelled { .. }
        | EventKind::Paused { .. }
        | EventKind::Draining { .. }
        | EventKind::Resumed { .. } => return None,
    };
    Some(Notice { seq: stored.seq, what, task, why: why.to_owned() })
}

fn program(command: &[String]) -> Program {
    Program::new(command.first().map_or("", String::as_str))
        .args(command.iter().skip(1))
        .environment(Environment::tools())
        .limits(Limits::new(WALL))
}

fn read_cursor(path: &Path) -> Result<Seq, NotifyError> {
    let unreadable = |source| NotifyError::Cursor { path: path.to_owned(), source };
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let number =
                text.trim().parse().map_err(|err| unreadable(std::io::Error::other(err)))?;
            Ok(Seq(number))
        }
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(Seq(0)),
        Err(err) => Err(unreadable(err)),
    }
}

fn write_cursor(path: &Path, told: Seq) -> Result<(), WriteError> {
    write_whole(path, format!("{}\n", told.0).as_bytes())
}

struct Teller {
    program: Program,
    run: RunId,
    cursor: PathBuf,
    told: Seq,
    give_up: CancellationToken,
}

impl Teller {
    async fn tell(
        mut self,
        missed: VecDeque<Notice>,
        read_up_to: Seq,
        mut rx: mpsc::UnboundedReceiver<Notice>,
    ) {
        for notice in missed {
            if !self.tell_one(&notice).await {
                return;
            }
        }
        while let Some(notice) = rx.recv().await {
            // What was committed while the log was read came both ways.
            let is_known = notice.seq <= read_up_to && notice.what != "stalled";
            if !is_known && !self.tell_one(&notice).await {
                return;
            }
        }
    }

    /// Runs the command until it ends well; whether it did before there was no time left. Those
    /// after it wait too, so that the next process begins with the first that was not told.
    async fn tell_one(&mut self, notice: &Notice) -> bool {
        let mut wait = WAIT;
        while !self.run(notice).await {
            tokio::select! {
                () = self.give_up.cancelled() => {
                    tracing::warn!(event = notice.what, "not told yet; the next start does");
                    return false;
                }
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAIT_MAX),
            }
        }
        self.told = self.told.max(notice.seq);
        if let Err(err) = write_cursor(&self.cursor, self.told) {
            tracing::warn!(%err, "what was told may be told again");
        }
        true
    }

    async fn run(&self, notice: &Notice) -> bool {
        let id = match notice.what {
            "stalled" => format!("{}/{}/stalled", self.run, notice.seq),
            _ => format!("{}/{}", self.run, notice.seq),
        };
        let message = json!({
            "id": id, "event": notice.what, "run": self.run, "task": notice.task, "why": notice.why,
        });
        let mut program = self
            .program
            .clone()
            .env("ORCHESTRATOR_EVENT_ID", &id)
            .env("ORCHESTRATOR_EVENT", notice.what)
            .env("ORCHESTRATOR_RUN", self.run.as_str())
            .env("ORCHESTRATOR_WHY", &notice.why)
            .stdin_bytes(message.to_string());
        if let Some(task) = &notice.task {
            program = program.env("ORCHESTRATOR_TASK", task);
        }
        match capture(&program, &self.give_up, SAID_BYTES_MAX).await {
            Ok(captured) if captured.is_success() => true,
            Ok(captured) => {
                let said = String::from_utf8_lossy(&captured.stderr).into_owned();
                tracing::warn!(how = ?captured.how, said, "the command that tells of events failed");
                false
            }
            Err(err) => {
                tracing::warn!(err = err.chain(), "the command that tells of events cannot start");
                false
            }
        }
    }
}
