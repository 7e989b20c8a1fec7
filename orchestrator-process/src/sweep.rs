//! Ending what is left of a tree.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::confine::Cell;
use crate::process::{Process, ProcessId, signal, this_line};
use crate::table::{Marked, Seeds, Table};

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
/// How long a tree is hunted that goes on starting processes meanwhile.
const HUNTED_WITHIN: Duration = Duration::from_secs(60);
/// How soon one looks again, at first and at last.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(200);

/// Ends all processes of a tree, with those that are known to belong to it: asks them first, and
/// kills those that are left after `grace`.
pub(crate) async fn end_all(seeds: &Seeds, known: BTreeSet<ProcessId>, grace: Duration) -> Swept {
    let mut swept = Swept { found: known, ..Swept::default() };
    let mut asked = BTreeSet::new();
    let asked_until = after(grace);
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
    let hunted_until = after(HUNTED_WITHIN);
    let mut killed_until = after(KILLED_WITHIN);
    let mut pause = LOOK_AGAIN;
    for round in 0.. {
        let known = swept.found.len();
        if round < SHARED_ROUNDS {
            kill_frozen(seeds, &mut swept).await;
        } else {
            kill_at_sight(seeds, &mut swept).await;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN_MAX);
        let members = look(seeds, &mut swept).await;
        if members.is_empty() {
            return swept;
        }
        if swept.found.len() > known {
            killed_until = after(KILLED_WITHIN).min(hunted_until);
            pause = LOOK_AGAIN;
        }
        if Instant::now() >= killed_until {
            swept.left = members.iter().map(|id| id.pid).collect();
            break;
        }
    }
    swept
}

/// Ends all that a cell holds: asks it first, and kills at once what is left after `grace`.
///
/// # Errors
/// When the cell cannot be looked at; what it held may live.
pub(crate) async fn end_held(cell: &dyn Cell, grace: Duration) -> io::Result<Swept> {
    let mut swept = Swept::default();
    let asked_until = after(grace);
    let mut pause = LOOK_AGAIN;
    loop {
        if ask_held(cell, &mut swept)? == 0 {
            return Ok(swept);
        }
        if Instant::now() >= asked_until {
            break;
        }
        sleep(pause.min(asked_until.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(LOOK_AGAIN_MAX);
    }
    let killed_until = after(KILLED_WITHIN);
    let mut pause = LOOK_AGAIN;
    loop {
        cell.kill()?;
        let held = cell.processes()?;
        if held.is_empty() {
            return Ok(swept);
        }
        if Instant::now() >= killed_until {
            swept.left = held;
            return Ok(swept);
        }
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN_MAX);
    }
}

/// Asks those in a cell to end that were not asked yet; says how many there are.
pub(crate) fn ask_held(cell: &dyn Cell, swept: &mut Swept) -> io::Result<usize> {
    let pids = cell.processes()?;
    let news: Vec<ProcessId> = pids
        .iter()
        .filter_map(|pid| Process::read(*pid))
        .map(|process| process.id)
        .filter(|id| !swept.found.contains(id))
        .collect();
    // Those that are there still were what they are when they were looked at.
    let still = if news.is_empty() { Vec::new() } else { cell.processes()? };
    for id in news.into_iter().filter(|id| still.contains(&id.pid)) {
        signal(id, Signal::TERM);
        signal(id, Signal::CONT);
        swept.found.insert(id);
    }
    Ok(pids.len())
}

/// How often a tree is killed by looks that it shares with others, before it gets its own.
const SHARED_ROUNDS: u32 = 2;

/// The moment this much later, or one that nobody lives to see.
pub(crate) fn after(span: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    Instant::now() + span.min(FAR)
}

/// Most rounds of freezing before the kill; each finds at least one process more.
const FREEZE_ROUNDS_MAX: usize = 8;
/// The same where each is stopped at sight.
const SIGHT_ROUNDS_MAX: usize = 64;

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

/// Stops each member in the moment it is seen, then kills all: for those who are there for an instant
/// only, and would be gone by the end of the look.
async fn kill_at_sight(seeds: &Seeds, swept: &mut Swept) {
    let (seeds, mut known) = (seeds.clone(), swept.found.clone());
    let kill = move || {
        let spared = this_line();
        for _ in 0..SIGHT_ROUNDS_MAX {
            let mut seen = BTreeSet::new();
            let table = Table::read_each(|it @ Marked { process, .. }| {
                if seeds.has(it) && !process.is_zombie && !spared.contains(&process.id.pid) {
                    signal(process.id, Signal::STOP);
                    seen.insert(process.id);
                }
            });
            seen.extend(table.members(&seeds, &known, std::process::id()));
            let is_all = seen.is_subset(&known) && !table.is_torn;
            for id in &seen {
                signal(*id, Signal::STOP);
            }
            known.extend(seen);
            if is_all {
                break;
            }
        }
        for id in &known {
            signal(*id, Signal::KILL);
        }
        known
    };
    if let Ok(known) = tokio::task::spawn_blocking(kill).await {
        swept.found = known;
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
