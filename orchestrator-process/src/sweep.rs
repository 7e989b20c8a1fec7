//! Ending what is left of a tree.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::table::{Process, ProcessId, Seeds, Table};

/// What became of the processes that were left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// How many there were.
    pub(crate) found: BTreeSet<ProcessId>,
    /// Those that could not be ended.
    pub(crate) left: Vec<u32>,
    /// Whether there may be more, since the processes of this machine could not be looked at.
    pub(crate) is_blind: bool,
}

impl Swept {
    /// Says in the log what nobody is told otherwise.
    pub(crate) fn log(&self) {
        if !self.left.is_empty() {
            tracing::warn!(left = ?self.left, "processes of a program could not be ended");
        }
        if self.is_blind {
            tracing::warn!("/proc could not be read, so a program may have left processes");
        }
    }
}

/// How long killed processes may take to be gone; one that hangs in the kernel takes longer.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// How soon one looks again, at first and at last.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(200);

/// Ends all processes of a tree, with those that are known to belong to it: asks them first, and
/// kills those that are left after `grace`.
pub(crate) async fn end_all(seeds: &Seeds, known: BTreeSet<ProcessId>, grace: Duration) -> Swept {
    let mut swept = Swept { found: known, ..Swept::default() };
    let mut asked = BTreeSet::new();
    let asked_until = Instant::now() + grace;
    let mut pause = LOOK_AGAIN;
    loop {
        let members = look(seeds, &mut swept).await;
        if members.is_empty() {
            return swept;
        }
        if Instant::now() >= asked_until {
            break;
        }
        for id in members {
            if asked.insert(id) {
                signal(id, Signal::TERM);
                signal(id, Signal::CONT);
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN_MAX);
    }
    let killed_until = Instant::now() + KILLED_WITHIN;
    let mut pause = LOOK_AGAIN;
    loop {
        kill_frozen(seeds, &mut swept).await;
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN_MAX);
        let members = look(seeds, &mut swept).await;
        if members.is_empty() {
            return swept;
        }
        if Instant::now() >= killed_until {
            swept.left = members.iter().map(|id| id.pid).collect();
            return swept;
        }
    }
}

/// Most rounds of freezing before the kill; each finds at least one process more.
const FREEZE_ROUNDS_MAX: usize = 64;

/// Stops all members until no new one turns up, then kills them: one that is stopped cannot start
/// another one that the kill would miss.
async fn kill_frozen(seeds: &Seeds, swept: &mut Swept) {
    let mut frozen = BTreeSet::new();
    for _ in 0..FREEZE_ROUNDS_MAX {
        let members = look(seeds, swept).await;
        let news: Vec<ProcessId> = members.difference(&frozen).copied().collect();
        if news.is_empty() {
            break;
        }
        for id in news {
            signal(id, Signal::STOP);
            frozen.insert(id);
        }
    }
    for id in frozen {
        signal(id, Signal::KILL);
    }
}

/// How often one looks again when a look found nobody but may have missed somebody.
const LOOKS_MAX: usize = 5;

/// The members now; what was known of before stays known.
pub(crate) async fn look(seeds: &Seeds, swept: &mut Swept) -> BTreeSet<ProcessId> {
    let mut members = BTreeSet::new();
    for _ in 0..LOOKS_MAX {
        let table = table().await;
        members = table.members(seeds, &swept.found, std::process::id());
        swept.is_blind = table.is_blind;
        if !members.is_empty() || !table.is_torn {
            break;
        }
        if table.is_blind {
            sleep(LOOK_AGAIN).await;
        }
    }
    swept.found.extend(&members);
    members
}

/// Kills all processes of a tree without waiting in between, for where nothing can be awaited;
/// returns those that are left.
pub(crate) fn end_now(seeds: &Seeds) -> Vec<u32> {
    let mut known = BTreeSet::new();
    let rounds = KILLED_WITHIN.as_millis() / LOOK_AGAIN.as_millis();
    for _ in 0..rounds {
        let table = Table::read();
        let members = table.members(seeds, &known, std::process::id());
        if members.is_empty() && !table.is_torn {
            return Vec::new();
        }
        for id in &members {
            signal(*id, Signal::KILL);
        }
        known.extend(&members);
        thread::sleep(LOOK_AGAIN);
    }
    Table::read().members(seeds, &known, std::process::id()).iter().map(|id| id.pid).collect()
}

/// Signals a process, and no other one that has its pid by now.
fn signal(id: ProcessId, signal: Signal) {
    let Some(pid) = i32::try_from(id.pid).ok().and_then(Pid::from_raw) else { return };
    // The descriptor holds on to whatever has the pid now; if that is the one that was meant, the
    // signal goes to it or to nobody.
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if Process::read(id.pid).is_some_and(|process| process.id == id) {
        pidfd_send_signal(pidfd, signal).ok();
    }
}

/// The processes at a moment not before this call. Those who ask while one looks share the next
/// look, so that many trees that end at once cost few looks.
async fn table() -> Arc<Table> {
    static LAST: Mutex<Option<(Instant, Arc<Table>)>> = Mutex::const_new(None);
    let asked = Instant::now();
    let mut last = LAST.lock().await;
    if let Some((begun, table)) = &*last
        && *begun >= asked
    {
        return Arc::clone(table);
    }
    let begun = Instant::now();
    let look = || Arc::new(Table::read());
    let table =
        tokio::task::spawn_blocking(look).await.unwrap_or_else(|_| Arc::new(Table::blind()));
    *last = Some((begun, Arc::clone(&table)));
    table
}
