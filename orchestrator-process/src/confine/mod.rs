//! Confining programs: what they may use, where they may reach, and that nothing of them gets away.
//!
//! [`Confiner`] is the trait behind which a machine's means for that stand; [`LocalConfiner`] takes
//! what is there: cgroups, of whichever version, and Landlock. Nothing here is required of a
//! machine. What it lacks is said by [`Confiner::abilities`], and in the log, once.

mod abilities;
mod cgroup;
mod dirs;
mod left;
mod local;
mod mounts;
mod sandbox;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use orchestrator_core::port::Workspace;
use rustix::fs::{Mode, OFlags};

pub use self::abilities::{Abilities, TreeEnds};
pub use self::local::LocalConfiner;
pub use self::sandbox::{Sandbox, SandboxMode, Tcp, UnknownSandboxMode};

use crate::marks::Marker;

/// What one program, with all that it starts, may use and where it may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Confinement {
    /// The most memory, of all its processes together; it is ended when they need more.
    pub memory_bytes_max: Option<u64>,
    /// The most processes and threads at a time; the start of another one fails.
    pub processes_max: Option<u32>,
    /// The most of the processors, in hundredths of one: 150 is one and a half.
    pub cpu_percent_max: Option<u32>,
    /// Where it may write and connect to.
    pub sandbox: Sandbox,
}

impl Confinement {
    /// No limit and no sandbox.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// With this limit of its memory.
    #[must_use]
    pub const fn with_memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = Some(bytes);
        self
    }

    /// With this limit of its processes.
    #[must_use]
    pub const fn with_processes_max(mut self, processes: u32) -> Self {
        self.processes_max = Some(processes);
        self
    }

    /// With this limit of its processor time, in hundredths of a processor.
    #[must_use]
    pub const fn with_cpu_percent_max(mut self, percent: u32) -> Self {
        self.cpu_percent_max = Some(percent);
        self
    }

    /// In this sandbox.
    #[must_use]
    pub fn with_sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = sandbox;
        self
    }
}

impl Confinement {
    /// For a program that works in this place: where there is a sandbox, it may write there, to the
    /// place's scratch, to its logs, and to a directory for temporary files among them, which is
    /// handed back.
    ///
    /// # Errors
    /// What the system says when a directory cannot be made.
    pub(crate) fn at_work(
        &self,
        workspace: &Workspace,
        logs: &Path,
    ) -> io::Result<(Self, Option<PathBuf>)> {
        let mut confinement = self.clone();
        if self.sandbox.mode == SandboxMode::Off {
            return Ok((confinement, None));
        }
        let temporary = std::path::absolute(logs)?.join("tmp");
        std::fs::create_dir_all(&temporary)?;
        let own = [workspace.path.clone(), logs.to_owned()];
        confinement.sandbox.write.extend(own.into_iter().chain(workspace.scratch.clone()));
        Ok((confinement, Some(temporary)))
    }
}

/// Makes the place in which one program runs, and finds again those that earlier processes made.
pub trait Confiner: fmt::Debug + Send + Sync {
    /// What it can do on this machine; for what it cannot, why, and what would help.
    fn abilities(&self) -> &Abilities;

    /// Makes a place for a program that is about to be started; `None` when there is nothing to hold
    /// it with and nothing that it must be held to. A limit that the machine cannot hold is said in
    /// the log, once, and left out.
    ///
    /// # Errors
    /// [`ConfineError`] when the program must not be started like this: its sandbox is required and
    /// cannot be made, or there is no room now.
    fn confine(&self, ask: &PlaceFor<'_>) -> Result<Option<Box<dyn Cell>>, ConfineError>;

    /// The places of a lease that are there still, whoever made them.
    fn left_by(&self, lease: &Marker) -> Vec<Box<dyn Cell>>;
}

/// For whom a place is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PlaceFor<'a> {
    /// A name that no other start of a program has.
    pub start: &'a str,
    /// The lease that it works for.
    pub lease: Option<&'a Marker>,
    /// What it may use, and where it may reach.
    pub confinement: &'a Confinement,
}

/// The place in which one program runs. Dropping it removes it, once it is empty.
pub trait Cell: fmt::Debug + Send + Sync {
    /// What the child does before it becomes the program; called once, before it is started.
    ///
    /// # Errors
    /// What the system says when there is no room, say.
    fn entry(&self) -> io::Result<Entry>;

    /// Whether everything that a program starts stays in here, once that is in, so that
    /// [`Cell::processes`] is all there is.
    fn holds_tree(&self) -> bool;

    /// Whether this process is in here.
    fn holds(&self, pid: u32) -> bool;

    /// The processes in here now, those that have ended left out.
    ///
    /// # Errors
    /// What the system says when it cannot be found out.
    fn processes(&self) -> io::Result<Vec<u32>>;

    /// Kills all of them at once, so that none can start another one meanwhile.
    ///
    /// # Errors
    /// What the system says when it could not be done.
    fn kill(&self) -> io::Result<()>;

    /// Whether something in here was killed for want of memory.
    fn has_run_out_of_memory(&self) -> bool;
}

/// What a child does before it becomes the program.
#[derive(Debug, Default)]
pub struct Entry {
    /// The cgroup of version 2 that it is born in, where the system can do that.
    pub(crate) cgroup: Option<Birthplace>,
    /// Files into which it writes itself.
    pub(crate) joins: Vec<OwnedFd>,
    /// The Landlock rules that it puts on itself.
    pub(crate) rules: Option<OwnedFd>,
}

/// A cgroup of version 2.
#[derive(Debug)]
pub(crate) struct Birthplace {
    pub(crate) dir: OwnedFd,
    /// Its door, for where nobody can be born in it.
    pub(crate) procs: OwnedFd,
}

impl Entry {
    /// In a cgroup of version 2 whose directory this is: the child is born in it, or moves into it,
    /// for which it waits some ten milliseconds, where the kernel is older than 5.7.
    ///
    /// # Errors
    /// What the system says when its `cgroup.procs` cannot be written to.
    pub fn with_cgroup(mut self, dir: OwnedFd) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let procs = rustix::fs::openat(&dir, "cgroup.procs", flags, Mode::empty())?;
        self.cgroup = Some(Birthplace { dir, procs });
        Ok(self)
    }

    /// With a file, open for writing, into which the child writes `0`: the `cgroup.procs` of a
    /// cgroup. Where one refuses that, the program is started outside the cell, and the log says so.
    #[must_use]
    pub fn with_join(mut self, procs: OwnedFd) -> Self {
        self.joins.push(procs);
        self
    }

    /// With a Landlock ruleset that the child restricts itself by; where that fails, the program
    /// does not start.
    #[must_use]
    pub fn with_rules(mut self, ruleset: OwnedFd) -> Self {
        self.rules = Some(ruleset);
        self
    }
}

/// Why a program must not be started as it is confined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// The sandbox that it must have cannot be made on this machine.
    #[error(
        "its sandbox is required and this machine has none: {why}; use a kernel with Landlock (6.7 for TCP), or `prefer` in place of `require`"
    )]
    NoSandbox {
        /// What is missing.
        why: String,
    },
    /// A directory that it may write to is not there.
    #[error("its sandbox names {}, which cannot be opened", path.display())]
    Path {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The place cannot be made now.
    #[error("the place that it is to run in cannot be made")]
    Place(#[source] io::Error),
}
