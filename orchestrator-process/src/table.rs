//! The processes of this machine at one moment, as `/proc` shows them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::thread;
use std::time::Duration;

use crate::environment::{Marker, StartMark};
use crate::error::is_no_room;

/// One process for all time: a pid alone may mean another one later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    /// When it started, in clock ticks since the host did.
    pub(crate) start_time: u64,
}

/// What is known of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// Whether it has ended and only waits to be reaped.
    pub(crate) is_zombie: bool,
    /// Whether its first thread has ended and others live on; its environment is not shown then.
    is_headless: bool,
    /// Whether it has an environment, be it an empty one.
    has_environment: bool,
    pub(crate) marks: Marks,
}

/// What a look at one process found.
enum Found {
    Alive(Process),
    /// It is just being replaced by another program, and has no environment for that instant.
    Starting(Process),
    /// It only waits to be reaped.
    Ended(Process),
    /// There is none.
    Gone,
}

/// What the environment of a process says of where it comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) start: Option<String>,
    pub(crate) lease: Option<String>,
}

/// By what the processes of a tree are found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seeds {
    /// The first one, as long as it is not reaped: its pid is that of its session and group.
    pub(crate) root: Option<u32>,
    /// The mark of its start.
    pub(crate) start: Option<StartMark>,
    /// The marker of the lease.
    pub(crate) lease: Option<Marker>,
}

impl Seeds {
    pub(crate) fn has(&self, process: &Process) -> bool {
        let ids = [process.id.pid, process.group, process.session];
        let start = self.start.as_ref().map(StartMark::as_str);
        let lease = self.lease.as_ref().map(Marker::as_str);
        self.root.is_some_and(|root| ids.contains(&root))
            || (start.is_some() && process.marks.start.as_deref() == start)
            || (lease.is_some() && process.marks.lease.as_deref() == lease)
    }
}

/// Most bytes of an environment that are looked through for the marker; the system's own limit for
/// arguments and environment together is 6 MiB.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

impl Process {
    /// Reads what `/proc/<pid>/stat` holds; `None` when there is no such process.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::try_read(pid).ok().flatten()
    }

    /// The same; fails where there may be one that cannot be looked at.
    fn try_read(pid: u32) -> io::Result<Option<Self>> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(stat) => Ok(Self::parse(pid, &stat)),
            // One that ends while its file is open is "no such process".
            Err(err) if matches!(err.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
            Err(err) => Err(err),
        }
    }

    fn parse(pid: u32, stat: &[u8]) -> Option<Self> {
        // The second field is the name in brackets, which may itself hold brackets and blanks.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let text = std::str::from_utf8(stat.get(after_name..)?).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // The session is field 6, the number of threads 20, the start time 22, and the address of
        // the environment 50, which is 0 also where it is not ours to know.
        let threads: u64 = fields.nth(13)?.parse().ok()?;
        let start_time = fields.nth(1)?.parse().ok()?;
        let has_environment = fields.nth(27).is_some_and(|address| address != "0");
        Some(Self {
            id: ProcessId { pid, start_time },
            parent,
            group,
            session,
            is_zombie: has_ended && threads < 2,
            is_headless: has_ended && threads >= 2,
            has_environment,
            marks: Marks::default(),
        })
    }

    /// Looks at a process and its environment; fails where it cannot be looked at.
    fn look(pid: u32) -> io::Result<Found> {
        let Some(process) = Self::try_read(pid)? else { return Ok(Found::Gone) };
        if process.is_of_kernel() || process.is_headless {
            return Ok(Found::Alive(process));
        }
        Ok(match environment(pid)? {
            Environ::Of(bytes) if !bytes.is_empty() => {
                Found::Alive(Self { marks: Marks::of(&bytes), ..process })
            }
            Environ::NotOurs => Found::Alive(process),
            Environ::Of(_) | Environ::None => Self::look_at_blank(pid)?,
        })
    }

    /// Looks once more at one that seemed to have no environment.
    fn look_at_blank(pid: u32) -> io::Result<Found> {
        let Some(process) = Self::try_read(pid)? else { return Ok(Found::Gone) };
        if process.is_zombie {
            return Ok(Found::Ended(process));
        }
        Ok(match environment(pid)? {
            Environ::Of(bytes) if process.has_environment => {
                Found::Alive(Self { marks: Marks::of(&bytes), ..process })
            }
            Environ::NotOurs => Found::Alive(process),
            Environ::Of(_) | Environ::None => Found::Starting(process),
        })
    }

    /// Whether it is a thread of the kernel: these come and go, and have no environment.
    const fn is_of_kernel(&self) -> bool {
        const KTHREADD: u32 = 2;
        (self.id.pid == KTHREADD || self.parent == KTHREADD) && self.session == 0
    }
}

/// The environment that a process was started with.
enum Environ {
    Of(Vec<u8>),
    /// It has none, having ended or being about to start.
    None,
    /// It is another user's.
    NotOurs,
}

fn environment(pid: u32) -> io::Result<Environ> {
    let mut bytes = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Environ::Of(bytes)),
        Err(err) if is_no_room(&err) => Err(err),
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied => Ok(Environ::NotOurs),
        Err(_) => Ok(Environ::None),
    }
}

/// This process and those that it descends from.
pub(crate) fn this_line() -> BTreeSet<u32> {
    let mut line = BTreeSet::from([1]);
    let mut at = Some(std::process::id());
    while let Some(pid) = at.filter(|pid| *pid != 0 && line.insert(*pid)) {
        at = Process::read(pid).map(|process| process.parent);
    }
    line
}

/// The pids that there are beside these, that of the last start first.
fn youngest_first(but: &BTreeSet<u32>) -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    pids.retain(|pid| !but.contains(pid));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = load.split_ascii_whitespace().last().and_then(|pid| pid.parse().ok());
    sort_youngest_first(&mut pids, last.unwrap_or(u32::MAX));
    Ok(pids)
}

/// Pids are given out in order and begin anew at their limit, so those above the last one are older.
fn sort_youngest_first(pids: &mut [u32], last: u32) {
    pids.sort_unstable_by_key(|pid| (*pid > last, Reverse(*pid)));
}

impl Marks {
    fn of(environment: &[u8]) -> Self {
        let value = |name: &str| {
            let value = environment
                .split(|byte| *byte == 0)
                .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        };
        Self { start: value(StartMark::NAME), lease: value(Marker::NAME) }
    }
}

/// The processes at one moment.
#[derive(Debug, Default)]
pub(crate) struct Table {
    processes: BTreeMap<u32, Process>,
    /// Whether one may have been missed all the same.
    pub(crate) is_torn: bool,
    /// Whether the processes could not be looked at, or not all of them; it is torn then too.
    pub(crate) is_blind: bool,
}

/// How often the list of processes is read in one look, at most.
const PASSES_MAX: usize = 100;
/// How long one that is just being replaced by another program is waited for between two passes.
const STARTING: Duration = Duration::from_millis(1);

impl Table {
    /// What is known when nothing could be looked at.
    pub(crate) fn blind() -> Self {
        Self { is_torn: true, is_blind: true, ..Self::default() }
    }

    /// Looks at all processes now.
    pub(crate) fn read() -> Self {
        Self::read_each(|_| {})
    }

    /// The same, and hands each living process on in the moment that it is looked at.
    pub(crate) fn read_each(each: impl FnMut(&Process)) -> Self {
        let mut table = Self::default();
        if table.fill(each).is_err() || !table.processes.contains_key(&std::process::id()) {
            (table.is_blind, table.is_torn) = (true, true);
        }
        table
    }

    /// Reads the list of processes until it holds nobody new who has ended when its turn comes, for
    /// such a one may have started another one after the list was read. So whoever a living member
    /// of a tree starts is found, however short each of them lives.
    fn fill(&mut self, mut each: impl FnMut(&Process)) -> io::Result<()> {
        let mut settled = BTreeSet::new();
        for _ in 0..PASSES_MAX {
            self.is_torn = false;
            let mut is_starting = false;
            // The youngest first, which may be gone the soonest.
            for pid in youngest_first(&settled)? {
                let found = Process::look(pid)?;
                if let Found::Alive(process) | Found::Starting(process) = &found {
                    each(process);
                }
                self.is_torn |= !matches!(found, Found::Alive(_));
                is_starting |= matches!(found, Found::Starting(_));
                match found {
                    Found::Alive(process) | Found::Ended(process) => {
                        settled.insert(pid);
                        self.processes.insert(pid, process);
                    }
                    Found::Starting(process) => {
                        self.processes.insert(pid, process);
                    }
                    Found::Gone => {
                        self.processes.remove(&pid);
                    }
                }
            }
            if !self.is_torn {
                break;
            }
            if is_starting {
                thread::sleep(STARTING);
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn of(processes: impl IntoIterator<Item = Process>) -> Self {
        let processes = processes.into_iter().map(|it| (it.id.pid, it)).collect();
        Self { processes, ..Self::default() }
    }

    /// The living processes that belong to a tree: those of its root's session or group, those with
    /// its marks, those known to belong to it, and all descendants of these. Never `this_pid`, nor
    /// one that it descends from.
    pub(crate) fn members(
        &self,
        seeds: &Seeds,
        known: &BTreeSet<ProcessId>,
        this_pid: u32,
    ) -> BTreeSet<ProcessId> {
        let spared = self.with_ancestors(this_pid);
        let is_seed = |process: &Process| seeds.has(process) || known.contains(&process.id);
        let mut children: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
        for process in self.processes.values() {
            children.entry(process.parent).or_default().push(process);
        }
        let mut members = BTreeSet::new();
        let mut todo: Vec<&Process> = self.processes.values().filter(|it| is_seed(it)).collect();
        while let Some(process) = todo.pop() {
            if !spared.contains(&process.id.pid) && members.insert(process.id) {
                todo.extend(children.get(&process.id.pid).into_iter().flatten());
            }
        }
        members.retain(|id| self.processes.get(&id.pid).is_some_and(|it| !it.is_zombie));
        members
    }

    fn with_ancestors(&self, pid: u32) -> BTreeSet<u32> {
        let mut line = BTreeSet::from([1]);
        let mut at = Some(pid);
        while let Some(pid) = at.filter(|pid| *pid != 0 && line.insert(*pid)) {
            at = self.processes.get(&pid).map(|process| process.parent);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, group: u32, marks: &[&str]) -> Process {
        let environment = [&["A=b"], marks, &["Z="]].concat().join("\0");
        Process {
            id: ProcessId { pid, start_time: 7 },
            parent,
            group,
            session: group,
            is_zombie: false,
            is_headless: false,
            has_environment: true,
            marks: Marks::of(environment.as_bytes()),
        }
    }

    fn lease(token: u64) -> Seeds {
        let run = orchestrator_core::RunId::parse("r").unwrap();
        let lease = Some(Marker::of(&run, orchestrator_core::FencingToken(token)));
        Seeds { lease, ..Seeds::default() }
    }

    fn pids(table: &Table, seeds: &Seeds, this_pid: u32) -> Vec<u32> {
        let members = table.members(seeds, &BTreeSet::new(), this_pid);
        members.iter().map(|id| id.pid).collect()
    }

    const LEASE_5: &str = "ORCHESTRATOR_LEASE=r/5";

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = b"42 (a) R 1 (x) S 7 40 39 0 -1 4194560 1 0 0 0 1 2 3 4 20 0 1 0 987654 1 1";
        let process = Process::parse(42, stat).unwrap();
        assert!(!process.is_zombie && !process.has_environment);
        assert_eq!((process.parent, process.group, process.session), (7, 40, 39));
        assert_eq!(process.id, ProcessId { pid: 42, start_time: 987_654 });
        for torn in [&b""[..], b"42 (a", b"42 (a) S", b"42 (a) S 1 2 3", b"42 (\xff) S x"] {
            assert_eq!(Process::parse(42, torn), None);
        }
    }

    #[test]
    fn a_tree_is_found_by_group_mark_and_descent_and_spares_others() {
        let start = StartMark::new();
        let mark = format!("{}={}", StartMark::NAME, start.as_str());
        let table = Table::of([
            process(1, 0, 1, &[]),
            process(10, 1, 10, &[]),
            process(20, 10, 20, &[&mark, LEASE_5]),
            process(21, 20, 20, &[]),
            process(30, 1, 30, &[&mark]),
            process(31, 30, 31, &[]),
            process(40, 1, 40, &["ORCHESTRATOR_LEASE=r/55", "ORCHESTRATOR_START=other"]),
            process(45, 1, 45, &["NOT_ORCHESTRATOR_LEASE=r/5", "ORCHESTRATOR_LEASE_X=r/5"]),
            process(50, 10, 50, &[LEASE_5]),
        ]);
        let root = |start| Seeds { root: Some(20), start, lease: None };
        assert_eq!(pids(&table, &root(Some(start)), 10), [20, 21, 30, 31]);
        assert_eq!(pids(&table, &root(None), 10), [20, 21]);
        assert_eq!(pids(&table, &lease(5), 10), [20, 21, 50]);
        assert_eq!(pids(&table, &lease(55), 10), [40]);
        assert_eq!(pids(&table, &Seeds::default(), 10), [0; 0]);
    }

    #[test]
    fn a_program_inside_the_tree_spares_itself_and_those_it_descends_from() {
        let table = Table::of([
            process(1, 0, 1, &[LEASE_5]),
            process(20, 1, 20, &[LEASE_5]),
            process(21, 20, 20, &[LEASE_5]),
            process(22, 20, 20, &[LEASE_5]),
        ]);
        assert_eq!(pids(&table, &lease(5), 21), [22]);
    }

    #[test]
    fn a_pid_that_was_used_again_is_no_member() {
        let table = Table::of([process(60, 1, 60, &[]), process(70, 1, 70, &[])]);
        let same = ProcessId { pid: 70, start_time: 7 };
        let known = BTreeSet::from([ProcessId { pid: 60, start_time: 6 }, same]);
        assert_eq!(table.members(&Seeds::default(), &known, 10), BTreeSet::from([same]));
    }

    #[test]
    fn the_youngest_process_comes_first_also_where_pids_began_anew() {
        let mut pids = [1, 7, 30, 900, 5, 999];
        sort_youngest_first(&mut pids, 30);
        assert_eq!(pids, [30, 7, 5, 1, 999, 900]);
    }

    #[test]
    fn this_process_is_found_as_it_is() {
        let process = Process::read(std::process::id()).unwrap();
        assert!(!process.is_zombie && process.has_environment && process.id.start_time > 0);
        assert_eq!(Process::read(u32::MAX), None);
    }

    #[test]
    fn a_first_thread_that_ended_before_the_others_is_no_end() {
        let is_zombie = |state: &str, threads: u32| {
            let text = format!("7 (a) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 5");
            let process = Process::parse(7, text.as_bytes()).unwrap();
            assert_eq!(process.is_headless, state != "S" && threads > 1);
            process.is_zombie
        };
        assert!(is_zombie("Z", 1) && is_zombie("Z", 0) && is_zombie("X", 1));
        assert!(!is_zombie("Z", 2) && !is_zombie("S", 1));
    }
}
