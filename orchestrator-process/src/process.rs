//! One process: what `/proc` shows of it, and a signal that reaches it and no other one.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// One process for all time: a pid alone may mean another one later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    /// When it started, in clock ticks since the host did.
    pub(crate) start_time: u64,
}

/// What `/proc/<pid>/stat` tells of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// Whether it has ended and only waits to be reaped.
    pub(crate) is_zombie: bool,
    /// Whether its first thread has ended and others live on; its environment is not shown then.
    pub(crate) is_headless: bool,
    /// Whether it has an environment, be it an empty one.
    pub(crate) has_environment: bool,
}

impl Process {
    /// Reads what `/proc/<pid>/stat` holds; `None` when there is no such process.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::try_read(pid).ok().flatten()
    }

    /// The same; fails where there may be one that cannot be looked at.
    pub(crate) fn try_read(pid: u32) -> io::Result<Option<Self>> {
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
        })
    }

    /// Whether it is a thread of the kernel: these come and go, and have no environment.
    pub(crate) const fn is_of_kernel(&self) -> bool {
        const KTHREADD: u32 = 2;
        (self.id.pid == KTHREADD || self.parent == KTHREADD) && self.session == 0
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

/// Signals a process, and no other one that has its pid by now.
pub(crate) fn signal(id: ProcessId, signal: Signal) {
    let Some(pid) = i32::try_from(id.pid).ok().and_then(Pid::from_raw) else { return };
    // The descriptor holds on to whatever has the pid now; if that is the one that was meant, the
    // signal goes to it or to nobody.
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if Process::read(id.pid).is_some_and(|process| process.id == id) {
        pidfd_send_signal(pidfd, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
