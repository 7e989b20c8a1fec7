//! This machine: its clocks, and which processes live on it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use orchestrator_core::port::{Host, Liveness, PortError};
use orchestrator_core::{
    ClockReading, FencingToken, Mask, Owner, OwnerId, RunId, WallTime, millis,
};
use rustix::time::{ClockId, clock_gettime};

use crate::confine::{Confiner as _, LocalConfiner};
use crate::marks::Marker;
use crate::masking::mask_logs;
use crate::open_files;
use crate::process::{Process, ProcessId};
use crate::sweep;
use crate::table::Seeds;

/// The machine that this process runs on.
#[derive(Debug, Clone)]
pub struct LocalHost {
    this: Owner,
    grace: Duration,
}

/// A machine that does not tell what must be known of it.
#[derive(Debug, thiserror::Error)]
#[error("{place} cannot be read: is /proc mounted?")]
pub struct HostError {
    /// The file.
    pub place: &'static str,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Why processes of a lease may be left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeftoversError {
    /// Some could not be ended.
    #[error("processes {left:?} of lease {token} cannot be ended: see what holds them with `ps`")]
    Left {
        /// The lease.
        token: FencingToken,
        /// Their pids.
        left: Vec<u32>,
    },
    /// The processes of this machine could not be looked at.
    #[error(
        "/proc cannot be read, so processes of lease {token} may be left: is it mounted, and is there room for open files?"
    )]
    Unseen {
        /// The lease.
        token: FencingToken,
    },
}

/// The number that the first pid namespace of a machine has as a file.
const PID_NAMESPACE_OF_HOST: &str = "pid:[4026531836]";

impl LocalHost {
    /// Looks at the machine and this process, and raises the limit of open files of this process as
    /// far as it may; programs get the one that was there before.
    ///
    /// # Errors
    /// [`HostError`] when the machine does not tell.
    pub fn new() -> Result<Self, HostError> {
        const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
        const STAT: &str = "/proc/self/stat";
        let boot_id = fs::read_to_string(BOOT_ID)
            .map_err(|source| HostError { place: BOOT_ID, source })?
            .trim()
            .to_owned();
        open_files::raise();
        let pid = std::process::id();
        let this = Process::read(pid)
            .ok_or_else(|| HostError { place: STAT, source: io::ErrorKind::NotFound.into() })?;
        let host = host_name();
        let start_time = this.id.start_time;
        let id = OwnerId::parse(&format!("{host}:{boot_id}:{pid}:{start_time}"))
            .map_err(|err| HostError { place: BOOT_ID, source: io::Error::other(err) })?;
        let this = Owner { id, host, boot_id, pid, start_time };
        Ok(Self { this, grace: Duration::from_secs(5) })
    }

    /// With this long for leftovers to end when they are asked to; 5 s otherwise.
    #[must_use]
    pub const fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

/// The host's name, and where pids do not mean what they mean to others on it, for whom they do.
fn host_name() -> String {
    let uname = rustix::system::uname();
    let name: String =
        uname.nodename().to_string_lossy().chars().filter(|c| !c.is_control()).take(64).collect();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let namespace = namespace.to_string_lossy();
    if namespace.is_empty() || namespace == PID_NAMESPACE_OF_HOST {
        name
    } else {
        format!("{name} {namespace}")
    }
}

#[async_trait]
impl Host for LocalHost {
    fn reading(&self) -> ClockReading {
        let boot = clock_gettime(ClockId::Boottime);
        let (secs, nanos) = (u64::try_from(boot.tv_sec), u64::try_from(boot.tv_nsec));
        let boot_ms = secs.unwrap_or(0).saturating_mul(1000) + nanos.unwrap_or(0) / 1_000_000;
        // A wall clock before 1970 says nothing; the engine takes it for one that went back.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ClockReading { boot_id: self.this.boot_id.clone(), boot_ms, wall: WallTime(millis(wall)) }
    }

    fn this_process(&self) -> Owner {
        self.this.clone()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        if owner.host != self.this.host {
            Liveness::Unknown
        } else if owner.boot_id != self.this.boot_id {
            Liveness::Gone
        } else {
            let is_alive =
                |process: Process| process.id.start_time == owner.start_time && !process.is_zombie;
            if Process::read(owner.pid).is_some_and(is_alive) {
                Liveness::Alive
            } else {
                Liveness::Dead
            }
        }
    }

    async fn end_leftovers(&self, run: &RunId, token: FencingToken) -> Result<u32, PortError> {
        end_leftovers(run, token, self.grace)
            .await
            .map_err(|err| PortError::Transient(Box::new(err)))
    }

    async fn mask_logs(&self, dir: &Path, mask: &Mask) -> Result<(), PortError> {
        let (dir, mask) = (dir.to_owned(), mask.clone());
        let masked = tokio::task::spawn_blocking(move || mask_logs(&dir, &mask)).await;
        let masked = masked.map_err(io::Error::other).flatten();
        masked.map(drop).map_err(|err| PortError::Transient(Box::new(err)))
    }
}

/// Ends every process that bears the marker of a lease, whoever started it, with all of its
/// descendants; returns when none is left, and says how many there were.
///
/// They are asked first, and killed after `grace`. This process and those that it descends from are
/// never ended.
///
/// # Errors
/// [`LeftoversError`] when some are left, or may be.
pub async fn end_leftovers(
    run: &RunId,
    token: FencingToken,
    grace: Duration,
) -> Result<u32, LeftoversError> {
    let marker = Marker::of(run, token);
    let held = end_cells(&marker, grace).await;
    // A process may have been put elsewhere, or been started where there was no cgroup.
    let seeds = Seeds { lease: Some(marker), ..Seeds::default() };
    let mut swept = sweep::end_all(&seeds, BTreeSet::new(), grace).await;
    swept.found.extend(held);
    if swept.is_blind {
        Err(LeftoversError::Unseen { token })
    } else if swept.left.is_empty() {
        Ok(u32::try_from(swept.found.len()).unwrap_or(u32::MAX))
    } else {
        Err(LeftoversError::Left { token, left: swept.left })
    }
}

/// Ends what the cgroups of a lease hold; says what that was. One that holds this process is left.
async fn end_cells(marker: &Marker, grace: Duration) -> BTreeSet<ProcessId> {
    let mut found = BTreeSet::new();
    for cell in LocalConfiner::detected().left_by(marker) {
        if cell.holds(std::process::id()) {
            continue;
        }
        match sweep::end_held(&*cell, grace).await {
            Ok(mut swept) => {
                swept.log();
                found.append(&mut swept.found);
            }
            Err(err) => tracing::warn!(%err, "a cgroup of a lease cannot be looked at"),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_and_the_wall_clock_are_read_in_milliseconds() {
        let host = LocalHost::new().unwrap();
        let (first, second) = (host.reading(), host.reading());
        assert!(first.boot_ms > 0 && second.boot_ms >= first.boot_ms);
        // Between 2020 and 2100.
        assert!((1_577_836_800_000..4_102_444_800_000).contains(&first.wall.0));
        assert_eq!(first.boot_id.len(), 36);
    }

    #[test]
    fn a_process_is_known_by_host_boot_pid_and_start_time() {
        let host = LocalHost::new().unwrap();
        let this = host.this_process();
        assert_eq!(host.liveness(&this), Liveness::Alive);
        let other = |change: fn(&mut Owner)| {
            let mut owner = this.clone();
            change(&mut owner);
            host.liveness(&owner)
        };
        assert_eq!(other(|it| it.start_time += 1), Liveness::Dead);
        assert_eq!(other(|it| it.pid = u32::MAX), Liveness::Dead);
        assert_eq!(other(|it| it.boot_id = "earlier".to_owned()), Liveness::Gone);
        assert_eq!(other(|it| it.host = "elsewhere".to_owned()), Liveness::Unknown);
    }
}
