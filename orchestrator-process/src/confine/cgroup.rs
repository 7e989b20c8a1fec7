//! Cgroups of both versions: one for each start of a program, so that nothing of it gets away.
//!
//! They are made in a directory `orchestrator` below the cgroup of this process, so that whoever
//! limits this process limits its programs with it, and one orchestrator inside another one stays
//! inside. A cgroup is named after lease and start, so that a later process finds what a lease left.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use super::mounts::{Mounts, Tops};
use super::{Confinement, Entry, PlaceFor, TreeEnds, left};
use crate::environment::Marker;
use crate::sweep::signal;
use crate::table::Process;

/// The directory that all cgroups of programs are in.
pub(super) const BASE: &str = "orchestrator";
/// Stands between the parts of a name; no slug has it.
pub(super) const SEPARATOR: &str = "@";
/// What gives a process cgroups of its own.
const WHAT_HELPS: &str = "start it by `systemd-run --user --scope -p Delegate=yes`, or as root";
/// What cannot be done without any cgroup.
const NO_CGROUP: &str = "no cgroup of this process can be written to";

/// The cgroups that this process can make.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    tree: Result<(PathBuf, Kill), String>,
    memory: Result<Limit, String>,
    pids: Result<Limit, String>,
    cpu: Result<Limit, String>,
    /// Where those are looked for that others made.
    tops: Tops,
}

/// How everything in a cgroup is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kill {
    /// The kernel does it.
    File,
    /// It is frozen first, by a file of version 2.
    Freeze,
    /// The same by the freezer of version 1.
    Freezer,
}

/// Where a limit is set.
#[derive(Debug, Clone)]
struct Limit {
    base: PathBuf,
    is_v2: bool,
}

impl Cgroups {
    /// None at all, for this reason.
    pub(crate) fn none(why: &str) -> Self {
        let none = || Err(why.to_owned());
        let tops = Tops::default();
        Self { tree: Err(why.to_owned()), memory: none(), pids: none(), cpu: none(), tops }
    }

    /// Those that this process can make, tried out.
    pub(crate) fn detect() -> Self {
        Self::of(&Mounts::of_this_process())
    }

    /// Those of version 2 that this process can make.
    pub(crate) fn detect_v2() -> Self {
        let Mounts { unified, tops, .. } = Mounts::of_this_process();
        Self::of(&Mounts { unified, tops: Tops { freezer: None, ..tops }, ..Mounts::default() })
    }

    fn of(mounts: &Mounts) -> Self {
        let mut found = Self::none(NO_CGROUP);
        let mut enabled = String::new();
        // The freezer of version 1 where it is there: into a cgroup of version 2 a child must be
        // forked, or wait at its door for ten milliseconds.
        let unified = if let Some(base) = mounts.freezer.as_deref().and_then(|own| usable(own).ok())
        {
            found.tree = Ok((base, Kill::Freezer));
            None
        } else {
            found.tree =
                mounts.unified.as_deref().map_or_else(|| Err(NO_CGROUP.to_owned()), unified);
            found.tree.as_ref().ok().map(|(base, _)| {
                enabled = read(base, "cgroup.subtree_control");
                base.clone()
            })
        };
        let limit = |name: &str, v1: Option<&PathBuf>| {
            if let Some(base) = &unified
                && enabled.split_ascii_whitespace().any(|one| one == name)
            {
                return Ok(Limit { base: base.clone(), is_v2: true });
            }
            let own = v1.ok_or_else(|| {
                format!("the cgroup of this process passes no `{name}` controller on; {WHAT_HELPS}")
            })?;
            let base = usable(own).map_err(|err| refused(own, &err))?;
            Ok(Limit { base, is_v2: false })
        };
        let memory = limit("memory", mounts.memory.as_ref());
        let pids = limit("pids", mounts.pids.as_ref());
        let cpu = limit("cpu", mounts.cpu.as_ref());
        let found = Self { memory, pids, cpu, tops: mounts.tops.clone(), ..found };
        found.remove_empty();
        found
    }

    /// Removes those that starts left whose process is gone and that hold nobody any more.
    fn remove_empty(&self) {
        let limits = [&self.memory, &self.pids, &self.cpu].into_iter().flatten();
        let bases: BTreeSet<&Path> = limits
            .map(|limit| limit.base.as_path())
            .chain(self.tree.iter().map(|(base, _)| base.as_path()))
            .collect();
        bases.into_iter().for_each(left::remove_empty);
    }

    /// How trees end, and why it is not by cgroup.
    pub(crate) fn tree(&self) -> (TreeEnds, String) {
        match &self.tree {
            Ok((_, Kill::File)) => (TreeEnds::CgroupKill, String::new()),
            Ok((_, Kill::Freeze | Kill::Freezer)) => (TreeEnds::CgroupFreeze, String::new()),
            Err(why) => (TreeEnds::Walk, why.clone()),
        }
    }

    /// By what memory, processes and processor time are limited, or why not.
    pub(crate) fn limits(&self) -> [Result<&'static str, String>; 3] {
        [&self.memory, &self.pids, &self.cpu].map(|limit| match limit {
            Ok(limit) if limit.is_v2 => Ok("cgroup v2"),
            Ok(_) => Ok("cgroup v1"),
            Err(why) => Err(why.clone()),
        })
    }

    /// Makes those for one start; `None` when there is no cgroup to make.
    pub(crate) fn make(&self, ask: &PlaceFor<'_>) -> io::Result<Option<Dirs>> {
        let name = match ask.lease {
            Some(lease) => format!("{}{}", prefix(lease), ask.start),
            None => format!("start{SEPARATOR}{}", ask.start),
        };
        // Dropped half-made, it removes what it has.
        let mut dirs = Dirs::default();
        if let Ok((base, kill)) = &self.tree {
            dirs.tree = Some((dirs.add(base, &name)?, *kill));
        }
        self.limit(&mut dirs, ask.confinement, &name)?;
        Ok((!dirs.all.is_empty()).then_some(dirs))
    }

    fn limit(&self, dirs: &mut Dirs, ask: &Confinement, name: &str) -> io::Result<()> {
        if let (Some(bytes), Ok(limit)) = (ask.memory_bytes_max, &self.memory) {
            let dir = dirs.add(&limit.base, name)?;
            let (hard, swap) = if limit.is_v2 {
                ("memory.max", ("memory.swap.max", 0))
            } else {
                ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", bytes))
            };
            fs::write(dir.join(hard), bytes.to_string())?;
            // Swap is not always accounted for; without the file there is none to limit.
            fs::write(dir.join(swap.0), swap.1.to_string()).ok();
            dirs.memory = Some((dir, limit.is_v2));
        }
        if let (Some(processes), Ok(limit)) = (ask.processes_max, &self.pids) {
            let dir = dirs.add(&limit.base, name)?;
            fs::write(dir.join("pids.max"), processes.to_string())?;
        }
        if let (Some(percent), Ok(limit)) = (ask.cpu_percent_max, &self.cpu) {
            const PERIOD: u64 = 100_000;
            let dir = dirs.add(&limit.base, name)?;
            // The kernel takes no quota below a millisecond.
            let quota = (u64::from(percent) * PERIOD / 100).max(1_000);
            if limit.is_v2 {
                fs::write(dir.join("cpu.max"), format!("{quota} {PERIOD}"))?;
            } else {
                fs::write(dir.join("cpu.cfs_period_us"), PERIOD.to_string())?;
                fs::write(dir.join("cpu.cfs_quota_us"), quota.to_string())?;
            }
        }
        Ok(())
    }

    /// Those that starts for a lease left, whoever made them and wherever.
    pub(crate) fn left_by(&self, lease: &Marker) -> Vec<Dirs> {
        let prefix = prefix(lease);
        let kills = [(&self.tops.freezer, Some(Kill::Freezer)), (&self.tops.unified, None)];
        let mut left = Vec::new();
        for (top, kill) in kills {
            for dir in top.iter().flat_map(|top| left::of(top, &prefix)) {
                left.extend(kill.or_else(|| kill_of(&dir)).map(|kill| self.found(dir, kill)));
            }
        }
        left
    }

    /// One that was left, with those beside it that hold no tree.
    fn found(&self, dir: PathBuf, kill: Kill) -> Dirs {
        let name = dir.file_name().unwrap_or_default();
        let limits = [&self.memory, &self.pids, &self.cpu].into_iter().flatten();
        let beside = limits.map(|limit| limit.base.join(name)).filter(|dir| dir.is_dir());
        let mut all: Vec<PathBuf> = std::iter::once(dir.clone()).chain(beside).collect();
        all.dedup();
        Dirs { tree: Some((dir, kill)), memory: None, all }
    }
}

fn prefix(lease: &Marker) -> String {
    format!("{}{SEPARATOR}", lease.as_str().replace('/', SEPARATOR))
}

/// The base in the hierarchy of version 2, with as many controllers as it can have.
fn unified(own: &Path) -> Result<(PathBuf, Kill), String> {
    let mut base = usable(own).map_err(|err| refused(own, &err))?;
    enable_controllers(own);
    // A cgroup that has processes of its own passes no controller on; for a user's program the one
    // above, a slice of that user, does. Not where that would leave another orchestrator's place.
    let is_inside = own.components().any(|part| part.as_os_str() == BASE);
    let is_user = !rustix::process::geteuid().is_root();
    if read(own, "cgroup.subtree_control").trim().is_empty()
        && is_user
        && !is_inside
        && let Some(above) = own.parent()
        && let Ok(better) = usable(above)
    {
        enable_controllers(above);
        base = better;
    }
    enable_controllers(&base);
    let probe = base.join(format!("probe{SEPARATOR}{}", std::process::id()));
    make_dir(&probe).map_err(|err| refused(own, &err))?;
    let kill = kill_of(&probe);
    fs::remove_dir(&probe).ok();
    let kill = kill.ok_or_else(|| "its kernel can neither kill nor freeze a cgroup".to_owned());
    kill.map(|kill| (base, kill))
}

/// How what is in a cgroup of version 2 is killed.
fn kill_of(dir: &Path) -> Option<Kill> {
    let has = |file: &str| rustix::fs::access(dir.join(file), rustix::fs::Access::WRITE_OK);
    if has("cgroup.kill").is_ok() {
        return Some(Kill::File);
    }
    has("cgroup.freeze").is_ok().then_some(Kill::Freeze)
}

fn refused(own: &Path, err: &io::Error) -> String {
    format!("{}: {err}; {WHAT_HELPS}", own.display())
}

fn enable_controllers(dir: &Path) {
    for name in ["memory", "pids", "cpu"] {
        // One that is not there or not ours stays off; what is on is read afterwards.
        fs::write(dir.join("cgroup.subtree_control"), format!("+{name}")).ok();
    }
}

/// The base below a cgroup, made if need be, when programs can be moved into it.
fn usable(own: &Path) -> io::Result<PathBuf> {
    rustix::fs::access(own.join("cgroup.procs"), rustix::fs::Access::WRITE_OK)?;
    let base = own.join(BASE);
    make_dir(&base)?;
    rustix::fs::access(base.join("cgroup.procs"), rustix::fs::Access::WRITE_OK)?;
    Ok(base)
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

fn read(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_default()
}

/// The number after a word, in a file of such lines.
fn count(text: &str, word: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == word).and_then(|(_, count)| count.trim().parse().ok())
}

/// The cgroups of one start. Dropping them removes them, if they are empty.
#[derive(Debug, Default)]
pub(crate) struct Dirs {
    tree: Option<(PathBuf, Kill)>,
    memory: Option<(PathBuf, bool)>,
    all: Vec<PathBuf>,
}

/// How often a cgroup is looked at that is to freeze, a millisecond apart.
const FREEZE_LOOKS_MAX: u32 = 100;
/// How often the removal of a cgroup is tried that is still busy, a millisecond apart.
const REMOVE_TRIES_MAX: u32 = 10;
const MOMENT: Duration = Duration::from_millis(1);

impl Dirs {
    fn add(&mut self, base: &Path, name: &str) -> io::Result<PathBuf> {
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
