//! The cgroups of one start, and the files in them.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use super::Entry;
use crate::process::{Process, signal};

/// The directory that all cgroups of programs are in.
pub(super) const BASE: &str = "orchestrator";
/// Stands between the parts of a name; no slug has it.
pub(super) const SEPARATOR: &str = "@";
/// How everything in a cgroup is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    /// The kernel does it.
    File,
    /// It is frozen first, by a file of version 2.
    Freeze,
    /// The same by the freezer of version 1.
    Freezer,
}

/// The cgroups of one start. Dropping them removes them, if they are empty.
#[derive(Debug, Default)]
pub(crate) struct Dirs {
    pub(super) tree: Option<(PathBuf, Kill)>,
    /// The one with the limit, and whether it is of version 2.
    pub(super) memory: Option<(PathBuf, bool)>,
    pub(super) all: Vec<PathBuf>,
}

/// How often a cgroup is looked at that is to freeze, a millisecond apart.
const FREEZE_LOOKS_MAX: u32 = 100;
/// How often the removal of a cgroup is tried that is still busy, a millisecond apart.
const REMOVE_TRIES_MAX: u32 = 10;
const MOMENT: Duration = Duration::from_millis(1);

impl Dirs {
    /// Makes one of this name, unless it is there.
    pub(super) fn add(&mut self, base: &Path, name: &str) -> io::Result<PathBuf> {
        let dir = base.join(name);
        if !self.all.contains(&dir) {
            make_dir(&dir)?;
            self.all.push(dir.clone());
        }
        Ok(dir)
    }

    /// How a process gets in.
    pub(crate) fn entry(&self) -> io::Result<Entry> {
        let mut entry = Entry::default();
        for dir in &self.all {
            let is_tree = |(tree, kill): &(PathBuf, Kill)| tree == dir && *kill != Kill::Freezer;
            if self.tree.as_ref().is_some_and(is_tree) {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                entry = entry.with_cgroup(rustix::fs::open(dir, flags, Mode::empty())?)?;
                continue;
            }
            // Version 1 has a door for single threads, at which nobody waits; the child is one.
            let open = |door| OpenOptions::new().write(true).open(dir.join(door));
            entry = entry.with_join(open("tasks").or_else(|_| open("cgroup.procs"))?.into());
        }
        Ok(entry)
    }

    /// Whether one of them holds the tree.
    pub(crate) const fn holds_tree(&self) -> bool {
        self.tree.is_some()
    }

    /// Whether the process is in the one that holds the tree.
    pub(crate) fn holds(&self, pid: u32) -> bool {
        let Some((dir, _)) = &self.tree else { return false };
        let Some(name) = dir.file_name().and_then(OsStr::to_str) else { return false };
        let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        own.lines().any(|line| line.trim_end_matches(" (deleted)").ends_with(name))
    }

    /// The processes in here that have not ended, with those of cgroups that they made in here.
    pub(crate) fn processes(&self) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        if let Some((dir, kill)) = &self.tree {
            if *kill != Kill::Freezer {
                let events = fs::read_to_string(dir.join("cgroup.events"))?;
                if count(&events, "populated") == Some(0) {
                    return Ok(pids);
                }
            }
            collect(dir, &mut pids)?;
        }
        Ok(pids)
    }

    /// Kills all that is in here.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match &self.tree {
            None => Ok(()),
            Some((dir, Kill::File)) => fs::write(dir.join("cgroup.kill"), "1"),
            Some((dir, Kill::Freeze)) => {
                let file = dir.join("cgroup.freeze");
                fs::write(&file, "1")?;
                self.kill_still(|| count(&read(dir, "cgroup.events"), "frozen") == Some(1))?;
                fs::write(file, "0")
            }
            Some((dir, Kill::Freezer)) => {
                let file = dir.join("freezer.state");
                fs::write(&file, "FROZEN")?;
                self.kill_still(|| read(dir, "freezer.state").trim() == "FROZEN")?;
                fs::write(file, "THAWED")
            }
        }
    }

    /// Kills one by one those that stand still, or are about to.
    fn kill_still(&self, is_still: impl Fn() -> bool) -> io::Result<()> {
        for _ in 0..FREEZE_LOOKS_MAX {
            if is_still() {
                break;
            }
            thread::sleep(MOMENT);
        }
        for process in self.processes()?.into_iter().filter_map(Process::read) {
            signal(process.id, Signal::KILL);
        }
        Ok(())
    }

    /// Whether the kernel killed something in here for want of memory.
    pub(crate) fn has_run_out_of_memory(&self) -> bool {
        let Some((dir, is_v2)) = &self.memory else { return false };
        let file = if *is_v2 { "memory.events" } else { "memory.oom_control" };
        count(&read(dir, file), "oom_kill").is_some_and(|count| count > 0)
    }
}

fn collect(dir: &Path, pids: &mut Vec<u32>) -> io::Result<()> {
    let procs = fs::read_to_string(dir.join("cgroup.procs"))?;
    pids.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
    for below in below(dir) {
        match collect(&below, pids) {
            // Removed a moment ago.
            Err(err) if is_gone(&err) => {}
            done => done?,
        }
    }
    Ok(())
}

fn is_gone(err: &io::Error) -> bool {
    matches!(err.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// The cgroups in a cgroup.
pub(super) fn below(dir: &Path) -> Vec<PathBuf> {
    // A directory has two links, and one more for each directory in it, where these are counted.
    if fs::metadata(dir).is_ok_and(|meta| meta.nlink() == 2) {
        return Vec::new();
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Removes a cgroup with those that programs made in it; whether it is gone.
fn remove(dir: &Path) -> bool {
    let is_removed = || match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(err) => is_gone(&err),
    };
    is_removed() || {
        below(dir).iter().for_each(|one| {
            remove(one);
        });
        is_removed()
    }
}

impl Drop for Dirs {
    fn drop(&mut self) {
        let is_empty = self.processes().is_ok_and(|pids| pids.is_empty());
        let tries = if is_empty { REMOVE_TRIES_MAX } else { 1 };
        for dir in &self.all {
            for _ in 0..tries {
                if remove(dir) {
                    break;
                }
                thread::sleep(MOMENT);
            }
        }
    }
}

pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

pub(super) fn read(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_default()
}

/// The number after a word, in a file of such lines.
fn count(text: &str, word: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == word).and_then(|(_, count)| count.trim().parse().ok())
}
