//! What a machine can hold programs to.

use std::fmt;

/// How the whole tree of a program is found when it is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeEnds {
    /// A cgroup holds every process of it, and the kernel kills them at once: nothing survives.
    CgroupKill,
    /// A cgroup holds every process of it; they are frozen, then killed: nothing survives.
    CgroupFreeze,
    /// A guardian process inherits what loses its parent: nothing survives but what kills that.
    Guardian,
    /// Its processes are found by session, mark and descent: one that leaves all three behind is out
    /// of reach.
    Walk,
}

/// What a machine can hold programs to; for what it cannot, why, and what would help.
///
/// Shown by `Display` one thing a line, for a person who asks what this machine guarantees.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abilities {
    /// How trees are ended.
    pub tree: TreeEnds,
    /// Why it is not by cgroup; empty where it is.
    pub tree_why: String,
    /// By what memory is limited, or why it cannot be.
    pub memory: Result<&'static str, String>,
    /// By what the number of processes is limited, or why it cannot be.
    pub processes: Result<&'static str, String>,
    /// By what processor time is limited, or why it cannot be.
    pub cpu: Result<&'static str, String>,
    /// By what writing outside is kept from a program, or why it cannot be.
    pub write: Result<&'static str, String>,
    /// By what TCP connections are kept from it, or why they cannot be.
    pub tcp: Result<&'static str, String>,
}

impl fmt::Display for Abilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tree {
            TreeEnds::CgroupKill => writeln!(f, "process trees: guaranteed, by cgroup.kill")?,
            TreeEnds::CgroupFreeze => {
                writeln!(f, "process trees: guaranteed, by freezing a cgroup")?;
            }
            TreeEnds::Guardian => writeln!(
                f,
                "process trees: by a guardian process for each program; what kills it is out of reach ({})",
                self.tree_why
            )?,
            TreeEnds::Walk => writeln!(
                f,
                "process trees: by session, mark and descent; what leaves all three is out of reach ({})",
                self.tree_why
            )?,
        }
        let rows = [
            ("memory limit", &self.memory),
            ("process limit", &self.processes),
            ("processor limit", &self.cpu),
            ("sandbox of writes", &self.write),
            ("sandbox of TCP", &self.tcp),
        ];
        for (what, how) in rows {
            match how {
                Ok(by) => writeln!(f, "{what}: by {by}")?,
                Err(why) => writeln!(f, "{what}: not on this machine: {why}")?,
            }
        }
        Ok(())
    }
}
