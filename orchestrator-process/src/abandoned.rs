//! Programs that nobody waits for any more: one thread ends and reaps them all.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::confine::Cell;
use crate::launch::Child;
use crate::process::{ProcessId, signal};
use crate::table::{Seeds, Table};

/// A child whose tree is to be ended.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) child: Child,
    pub(crate) seeds: Seeds,
    pub(crate) cell: Option<Arc<dyn Cell>>,
}

const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How often one looks for processes of a tree before one says that they cannot be ended.
const LOOKS_MAX: u32 = 1000;

/// Has a tree ended, sooner or later.
pub(crate) fn end(abandoned: Abandoned) {
    let sent = sender().map(|sender| sender.send(abandoned));
    if !matches!(sent, Ok(Ok(()))) {
        tracing::warn!("no thread to end an abandoned program");
    }
}

/// Starts the thread, so that it is there when there is no room for one any more.
pub(crate) fn sender() -> io::Result<&'static Sender<Abandoned>> {
    static SENDER: OnceLock<Sender<Abandoned>> = OnceLock::new();
    permanent(&SENDER, "orchestrator-end", end_all)
}

/// A thread that works on what is sent to it for as long as this process lives.
pub(crate) fn permanent<T: Send>(
    sender: &'static OnceLock<Sender<T>>,
    name: &str,
    work: fn(&Receiver<T>),
) -> io::Result<&'static Sender<T>> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(sender) = sender.get() {
        return Ok(sender);
    }
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = sender.get() {
        return Ok(sender);
    }
    let (tx, rx) = mpsc::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || work(&rx))?;
    Ok(sender.get_or_init(|| tx))
}

/// A tree, and what is known of it.
struct Ending {
    abandoned: Abandoned,
    known: BTreeSet<ProcessId>,
    looks: u32,
}

fn end_all(receiver: &Receiver<Abandoned>) {
    let mut endings: Vec<Ending> = Vec::new();
    loop {
        let new = |abandoned| Ending { abandoned, known: BTreeSet::new(), looks: 0 };
        if endings.is_empty() {
            match receiver.recv() {
                Ok(abandoned) => endings.push(new(abandoned)),
                Err(_) => return,
            }
        }
        endings.extend(receiver.try_iter().map(new));
        let table = Table::read();
        endings.retain_mut(|ending| !ending.is_over(&table));
        thread::sleep(LOOK_AGAIN);
    }
}

impl Ending {
    /// Kills what is there; says whether there is nothing left to do.
    fn is_over(&mut self, table: &Table) -> bool {
        let members = table.members(&self.abandoned.seeds, &self.known, std::process::id());
        for id in &members {
            signal(*id, Signal::KILL);
        }
        self.known.extend(&members);
        let held = self.end_held();
        self.looks += 1;
        if self.looks >= LOOKS_MAX {
            tracing::warn!(left = ?members, "processes of an abandoned program cannot be ended");
            return true;
        }
        // It is reaped last: until then its pid, session and group mean this tree.
        members.is_empty()
            && held == 0
            && !table.is_torn
            && !matches!(self.abandoned.child.try_wait(), Ok(None))
    }

    /// Kills what its cell holds; says how many that were.
    fn end_held(&self) -> usize {
        let Some(cell) = &self.abandoned.cell else { return 0 };
        // What cannot be looked at is left to the look at all processes.
        let held = cell.processes().unwrap_or_default().len();
        if held > 0
            && let Err(err) = cell.kill()
        {
            tracing::warn!(%err, "the cgroup of an abandoned program cannot be killed");
        }
        held
    }
}
