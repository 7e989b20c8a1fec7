//! The processes of this machine at one moment, as `/proc` shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;

use crate::environment::Marker;

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
    pub(crate) marker: Option<String>,
}

/// Most bytes of an environment that are looked through for the marker; the system's own limit for
/// arguments and environment together is 6 MiB.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

impl Process {
    /// Reads what `/proc/<pid>/stat` holds; `None` when there is no such process.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: u32, stat: &[u8]) -> Option<Self> {
        // The second field is the name in brackets, which may itself hold brackets and blanks.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let text = std::str::from_utf8(stat.get(after_name..)?).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // The start time is field 22, the session field 6.
        let start_time = fields.nth(15)?.parse().ok()?;
        Some(Self {
            id: ProcessId { pid, start_time },
            parent,
            group,
            session,
            is_zombie: matches!(state, "Z" | "X" | "x"),
            marker: None,
        })
    }

    /// Whether it is a thread of the kernel: these come and go, and have no environment.
    const fn is_of_kernel(&self) -> bool {
        const KTHREADD: u32 = 2;
        (self.id.pid == KTHREADD || self.parent == KTHREADD) && self.session == 0
    }
}

/// The environment that a process was started with; empty also when it may not be looked at.
fn environment(pid: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) {
        // What was read up to an error is as good as can be had.
        file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes).ok();
    }
    bytes
}

fn marker_in(environment: &[u8]) -> Option<String> {
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(Marker::NAME.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok().map(str::to_owned)
}

/// The processes at one moment.
#[derive(Debug, Default)]
pub(crate) struct Table {
    processes: BTreeMap<u32, Process>,
    /// Those whose environment is empty: of one that has ended, and for an instant while a program
    /// is replaced by another.
    blank: BTreeSet<ProcessId>,
    /// Whether one may have been missed. It was in that instant; or it was started after the list of
    /// processes was read, by one that had ended when its turn came.
    pub(crate) is_torn: bool,
}

impl Table {
    /// Looks at all processes now; `before` is an earlier look, if there was one.
    pub(crate) fn read(before: Option<&Self>) -> Self {
        let pids = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut blank = BTreeSet::new();
        let mut is_torn = false;
        let mut table = Self::of(pids.filter_map(|pid| {
            let Some(mut process) = Process::read(pid) else {
                is_torn = true;
                return None;
            };
            if !process.is_of_kernel() {
                let environment = environment(pid);
                process.marker = marker_in(&environment);
                if environment.is_empty() {
                    blank.insert(process.id);
                }
            }
            Some(process)
        }));
        let was_blank = |id: &ProcessId| before.is_some_and(|before| before.blank.contains(id));
        table.is_torn = is_torn || !blank.iter().all(was_blank);
        table.blank = blank;
        table
    }

    pub(crate) fn of(processes: impl IntoIterator<Item = Process>) -> Self {
        let processes = processes.into_iter().map(|it| (it.id.pid, it)).collect();
        Self { processes, ..Self::default() }
    }

    /// The living processes that belong to a tree: those of its root's session or group, those with
    /// its marker, those known to belong to it, and all descendants of these. Never `this_pid`, nor
    /// one that it descends from.
    pub(crate) fn members(
        &self,
        root: Option<u32>,
        marker: Option<&str>,
        known: &BTreeSet<ProcessId>,
        this_pid: u32,
    ) -> BTreeSet<ProcessId> {
        let spared = self.with_ancestors(this_pid);
        let is_seed = |process: &Process| {
            let by_root = root.is_some_and(|root| {
                [process.id.pid, process.group, process.session].contains(&root)
            });
            let by_marker = marker.is_some() && process.marker.as_deref() == marker;
            by_root || by_marker || known.contains(&process.id)
        };
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

    fn process(pid: u32, parent: u32, group: u32, marker: Option<&str>) -> Process {
        Process {
            id: ProcessId { pid, start_time: 7 },
            parent,
            group,
            session: group,
            is_zombie: false,
            marker: marker.map(str::to_owned),
        }
    }

    fn pids(members: &BTreeSet<ProcessId>) -> Vec<u32> {
        members.iter().map(|id| id.pid).collect()
    }

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = b"42 (a) R 1 (x) S 7 40 39 0 -1 4194560 1 0 0 0 1 2 3 4 20 0 1 0 987654 1 1";
        let process = Process::parse(42, stat).unwrap();
        assert_eq!((process.parent, process.group, process.session), (7, 40, 39));
        assert_eq!(process.id, ProcessId { pid: 42, start_time: 987_654 });
        for torn in [&b""[..], b"42 (a", b"42 (a) S", b"42 (a) S 1 2 3", b"42 (\xff) S x"] {
            assert_eq!(Process::parse(42, torn), None);
        }
    }

    #[test]
    fn a_tree_is_found_by_group_marker_and_descent_and_spares_others() {
        let table = Table::of([
            process(1, 0, 1, None),
            process(10, 1, 10, None),
            process(20, 10, 20, Some("r/5")),
            process(21, 20, 20, None),
            process(30, 1, 30, Some("r/5")),
            process(31, 30, 31, None),
            process(40, 1, 40, Some("r/55")),
            process(50, 10, 50, None),
        ]);
        let none = BTreeSet::new();
        assert_eq!(pids(&table.members(Some(20), Some("r/5"), &none, 10)), [20, 21, 30, 31]);
        assert_eq!(pids(&table.members(None, Some("r/55"), &none, 10)), [40]);
        assert_eq!(pids(&table.members(Some(20), None, &none, 10)), [20, 21]);
        assert_eq!(pids(&table.members(None, None, &none, 10)), [0; 0]);
    }

    #[test]
    fn a_program_inside_the_tree_spares_itself_and_those_it_descends_from() {
        let table = Table::of([
            process(1, 0, 1, Some("r/5")),
            process(20, 1, 20, Some("r/5")),
            process(21, 20, 20, Some("r/5")),
            process(22, 20, 20, Some("r/5")),
        ]);
        assert_eq!(pids(&table.members(None, Some("r/5"), &BTreeSet::new(), 21)), [22]);
    }

    #[test]
    fn a_pid_that_was_used_again_is_no_member() {
        let table = Table::of([process(60, 1, 60, None), process(70, 1, 70, None)]);
        let known = BTreeSet::from([
            ProcessId { pid: 60, start_time: 6 },
            ProcessId { pid: 70, start_time: 7 },
        ]);
        assert_eq!(pids(&table.members(None, None, &known, 10)), [70]);
    }

    #[test]
    fn this_process_is_found_as_it_is() {
        let process = Process::read(std::process::id()).unwrap();
        assert!(!process.is_zombie && process.id.start_time > 0);
        assert_eq!(Process::read(u32::MAX), None);
    }
}
