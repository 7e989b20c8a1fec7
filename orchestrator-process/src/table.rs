//! The processes of this machine at one moment, as `/proc` shows them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::thread;
use std::time::Duration;

use crate::marks::{Marker, Marks, StartMark};
use crate::no_room::is_no_room;
use crate::process::{Process, ProcessId};

/// A process, and what it says of where it comes from.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) process: Process,
    pub(crate) marks: Marks,
}

impl Marked {
    /// One that says nothing of it, or cannot be asked.
    fn without_marks(process: Process) -> Self {
        Self { process, marks: Marks::default() }
    }
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
    pub(crate) fn has(&self, Marked { process, marks }: &Marked) -> bool {
        let ids = [process.id.pid, process.group, process.session];
        let start = self.start.as_ref().map(StartMark::as_str);
        let lease = self.lease.as_ref().map(Marker::as_str);
        self.root.is_some_and(|root| ids.contains(&root))
            || (start.is_some() && marks.start.as_deref() == start)
            || (lease.is_some() && marks.lease.as_deref() == lease)
    }
}

/// What a look at one process found.
enum Found {
    Alive(Marked),
    /// It is just being replaced by another program, and has no environment for that instant.
    Starting(Marked),
    /// It only waits to be reaped.
    Ended(Marked),
    /// There is none.
    Gone,
}

impl Found {
    /// Looks at a process and its environment; fails where it cannot be looked at.
    fn look(pid: u32) -> io::Result<Self> {
        let Some(process) = Process::try_read(pid)? else { return Ok(Self::Gone) };
        if process.is_of_kernel() || process.is_headless {
            return Ok(Self::Alive(Marked::without_marks(process)));
        }
        Ok(match environment(pid)? {
            Environ::Of(bytes) if !bytes.is_empty() => {
                Self::Alive(Marked { process, marks: Marks::of(&bytes) })
            }
            Environ::NotOurs => Self::Alive(Marked::without_marks(process)),
            Environ::Of(_) | Environ::None => Self::look_at_blank(pid)?,
        })
    }

    /// Looks once more at one that seemed to have no environment.
    fn look_at_blank(pid: u32) -> io::Result<Self> {
        let Some(process) = Process::try_read(pid)? else { return Ok(Self::Gone) };
        if process.is_zombie {
            return Ok(Self::Ended(Marked::without_marks(process)));
        }
        Ok(match environment(pid)? {
            Environ::Of(bytes) if process.has_environment => {
                Self::Alive(Marked { process, marks: Marks::of(&bytes) })
            }
            Environ::NotOurs => Self::Alive(Marked::without_marks(process)),
            Environ::Of(_) | Environ::None => Self::Starting(Marked::without_marks(process)),
        })
    }
}

/// Most bytes of an environment that are looked through for the marker; the system's own limit for
/// arguments and environment together is 6 MiB.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

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

/// The processes at one moment.
#[derive(Debug, Default)]
pub(crate) struct Table {
    processes: BTreeMap<u32, Marked>,
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
    pub(crate) fn read_each(each: impl FnMut(&Marked)) -> Self {
        let mut table = Self::default();
        if table.fill(each).is_err() || !table.processes.contains_key(&std::process::id()) {
            (table.is_blind, table.is_torn) = (true, true);
        }
        table
    }

    /// Reads the list of processes until it holds nobody new who has ended when its turn comes, for
    /// such a one may have started another one after the list was read. So whoever a living member
    /// of a tree starts is found, however short each of them lives.
    fn fill(&mut self, mut each: impl FnMut(&Marked)) -> io::Result<()> {
        let mut settled = BTreeSet::new();
        for _ in 0..PASSES_MAX {
            self.is_torn = false;
            let mut is_starting = false;
            // The youngest first, which may be gone the soonest.
            for pid in youngest_first(&settled)? {
                let found = Found::look(pid)?;
                if let Found::Alive(it) | Found::Starting(it) = &found {
                    each(it);
                }
                self.is_torn |= !matches!(found, Found::Alive(_));
                is_starting |= matches!(found, Found::Starting(_));
                match found {
                    Found::Alive(it) | Found::Ended(it) => {
                        settled.insert(pid);
                        self.processes.insert(pid, it);
                    }
                    Found::Starting(it) => {
                        self.processes.insert(pid, it);
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
    pub(crate) fn of(processes: impl IntoIterator<Item = Marked>) -> Self {
        let processes = processes.into_iter().map(|it| (it.process.id.pid, it)).collect();
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
        let is_seed = |it: &Marked| seeds.has(it) || known.contains(&it.process.id);
        let mut children: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
        for Marked { process, .. } in self.processes.values() {
            children.entry(process.parent).or_default().push(process);
        }
        let mut members = BTreeSet::new();
        let found = self.processes.values().filter(|it| is_seed(it));
        let mut todo: Vec<&Process> = found.map(|it| &it.process).collect();
        while let Some(process) = todo.pop() {
            if !spared.contains(&process.id.pid) && members.insert(process.id) {
                todo.extend(children.get(&process.id.pid).into_iter().flatten());
            }
        }
        members.retain(|id| self.processes.get(&id.pid).is_some_and(|it| !it.process.is_zombie));
        members
    }

    fn with_ancestors(&self, pid: u32) -> BTreeSet<u32> {
        let mut line = BTreeSet::from([1]);
        let mut at = Some(pid);
        while let Some(pid) = at.filter(|pid| *pid != 0 && line.insert(*pid)) {
            at = self.processes.get(&pid).map(|it| it.process.parent);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, group: u32, marks: &[&str]) -> Marked {
        let environment = [&["A=b"], marks, &["Z="]].concat().join("\0");
        let process = Process {
            id: ProcessId { pid, start_time: 7 },
            parent,
            group,
            session: group,
            is_zombie: false,
            is_headless: false,
            has_environment: true,
        };
        Marked { process, marks: Marks::of(environment.as_bytes()) }
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
}
