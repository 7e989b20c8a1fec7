//! Lock files, and worktrees that were never finished, that a killed git left behind.
//!
//! A lock is removed only where nothing but this crate writes (the run's refs, its branch and its
//! worktrees), and only when it is proven that no program holds it: every git program that lived
//! when the lock was seen, and may have been at work on this repository, has ended, and the very
//! same lock is still there. Its age proves nothing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::error::GitError;

/// How often it is looked whether they have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Where locks are ours to remove.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockRoots {
    /// Directories below which nobody else writes.
    pub(crate) below: Vec<PathBuf>,
    /// Single files that are locks of ours.
    pub(crate) files: Vec<PathBuf>,
    /// The repository's directory of worktrees, in which those are ours that lie below `below`.
    pub(crate) worktrees: PathBuf,
    /// A file that is locked while a stale lock is removed, so that two processes do not both.
    pub(crate) guard: PathBuf,
    /// How long programs that may hold a lock are waited for.
    pub(crate) wait: Duration,
}

/// Tells one lock from another at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    dev: u64,
    ino: u64,
    ctime: (i64, i64),
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::symlink_metadata(path).ok()?;
        let ctime = (meta.ctime(), meta.ctime_nsec());
        Some(Self { dev: meta.dev(), ino: meta.ino(), ctime })
    }
}

/// Removes a lock, or the worktree that an empty `commondir` belongs to, if it is ours and provably held by nobody; returns when it is gone.
pub(crate) async fn clear_stale(roots: &LockRoots, lock: &Path) -> Result<(), GitError> {
    let refused = |why: &str| GitError::Locked { lock: lock.to_owned(), why: why.to_owned() };
    let Some(seen) = Identity::of(lock) else { return Ok(()) };
    if !roots.owns(lock) {
        return Err(refused("it is not the orchestrator's to remove"));
    }
    let mut holders = roots.holders().map_err(|why| refused(&why))?;
    let begun = Instant::now();
    loop {
        if Identity::of(lock) != Some(seen) {
            return Ok(());
        }
        holders.retain(Holder::lives);
        if holders.is_empty() {
            break;
        }
        if begun.elapsed() > roots.wait {
            let pids: Vec<String> = holders.iter().map(|holder| holder.pid.to_string()).collect();
            return Err(refused(&format!(
                "a git program that was running when it was seen still runs (process {})",
                pids.join(", ")
            )));
        }
        sleep(LOOK).await;
    }
    remove(roots, lock, seen)
}

/// Removes the lock that was seen, and no other that has taken its place.
fn remove(roots: &LockRoots, lock: &Path, seen: Identity) -> Result<(), GitError> {
    if let Some(dir) = roots.guard.parent() {
        fs::create_dir_all(dir).map_err(GitError::io(dir, "made"))?;
    }
    let guard = File::create(&roots.guard).map_err(GitError::io(&roots.guard, "made"))?;
    guard.lock().map_err(GitError::io(&roots.guard, "locked"))?;
    if Identity::of(lock) == Some(seen) {
        match lock.parent().filter(|_| lock.ends_with("commondir")) {
            Some(dir) => fs::remove_dir_all(dir),
            None => fs::remove_file(lock),
        }
        .map_err(GitError::io(lock, "removed"))?;
        warn!(lock = %lock.display(), "removed a lock that a killed git left");
    }
    Ok(())
}

impl LockRoots {
    fn owns(&self, lock: &Path) -> bool {
        if self.files.iter().any(|file| file == lock) {
            return true;
        }
        if self.below.iter().any(|dir| lock.starts_with(dir)) {
            return true;
        }
        let Ok(rest) = lock.strip_prefix(&self.worktrees) else { return false };
        let Some(name) = rest.components().next() else { return false };
        let gitdir = fs::read(self.worktrees.join(name).join("gitdir")).unwrap_or_default();
        let tree = crate::names::path_of(gitdir.trim_ascii());
        self.below.iter().any(|dir| tree.starts_with(dir))
    }
}

impl LockRoots {
    /// Every git program on this host that may be at work on this repository.
    fn holders(&self) -> Result<BTreeSet<Holder>, String> {
        let entries = fs::read_dir("/proc").map_err(|err| {
            format!("it cannot be found out which programs run, since /proc is not there ({err})")
        })?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let places = self.places();
        Ok(pids.filter_map(Holder::read).filter(|holder| holder.may_work_in(&places)).collect())
    }

    /// The directories in which a git program works on this repository.
    fn places(&self) -> Vec<PathBuf> {
        let mut places = self.below.clone();
        places.extend(self.worktrees.parent().map(Path::to_owned));
        places.extend(self.worktrees.parent().and_then(Path::parent).map(Path::to_owned));
        for entry in fs::read_dir(&self.worktrees).into_iter().flatten().flatten() {
            let gitdir = fs::read(entry.path().join("gitdir")).unwrap_or_default();
            let tree = crate::names::path_of(gitdir.trim_ascii());
            places.extend(tree.parent().map(Path::to_owned));
        }
        places
    }
}

/// A program that may hold locks of git.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    pid: u32,
    started: String,
}

impl Holder {
    /// Reads who has this process id, if it is a git program.
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, fields) = stat.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let mut fields = fields.split_whitespace();
        let is_dead = matches!(fields.next(), Some("Z" | "X"));
        let started = fields.nth(18)?.to_owned();
        let is_git = name == "git" || name.starts_with("git-");
        (is_git && !is_dead).then_some(Self { pid, started })
    }

    /// Whether it may be at work in one of these places; so it may where that cannot be looked at,
    /// and where it was told to work elsewhere than in its directory.
    fn may_work_in(&self, places: &[PathBuf]) -> bool {
        let of = |what: &str| format!("/proc/{}/{what}", self.pid);
        let (Ok(cwd), Ok(args), Ok(env)) =
            (fs::read_link(of("cwd")), fs::read(of("cmdline")), fs::read(of("environ")))
        else {
            return true;
        };
        if places.iter().any(|place| cwd.starts_with(place)) {
            return true;
        }
        if args.split(|byte| *byte == 0).any(|arg| arg.starts_with(b"--git-dir")) {
            return true;
        }
        let told = env.split(|byte| *byte == 0).find_map(|var| var.strip_prefix(b"GIT_DIR="));
        let told = told.map(crate::names::path_of);
        told.is_some_and(|dir| {
            dir.is_relative() || places.iter().any(|place| dir.starts_with(place))
        })
    }

    fn lives(&self) -> bool {
        Self::read(self.pid).as_ref() == Some(self)
    }
}
