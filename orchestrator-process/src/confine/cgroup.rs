//! Cgroups of both versions: one for each start of a program, so that nothing of it gets away.
//!
//! They are made in a directory `orchestrator` below the cgroup of this process, so that whoever
//! limits this process limits its programs with it, and one orchestrator inside another one stays
//! inside. A cgroup is named after lease and start, so that a later process finds what a lease left.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::dirs::{BASE, Dirs, Kill, SEPARATOR, make_dir, read};
use super::mounts::{Mounts, Tops};
use super::{Confinement, PlaceFor, TreeEnds, left};
use crate::marks::Marker;

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
